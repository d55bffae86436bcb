"""Builds a wheel with the program as a script of the package, so that `pip install` puts it on the
PATH, and the modules `gputop_monitor` and `gputop_probe`.

    python3 .ci/package.py VERSION BINARY MAN_FOLDER OUT_FOLDER

The package is not called `gputop`, because that name is taken on PyPI. `gputop-monitor`, its other
command, is for `uvx` and `pipx run`, which run the command of the package's name. Needs only the
standard library. Times are SOURCE_DATE_EPOCH, and 1980 without it.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import sys
import time
import zipfile

NAME = "gputop_monitor"
# The first moment that a zip file can name.
EARLIEST = 315532800
CLASSIFIERS = (
    "Development Status :: 4 - Beta",
    "Environment :: Console",
    "Environment :: GPU :: NVIDIA CUDA",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Intended Audience :: System Administrators",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Programming Language :: Rust",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: System :: Monitoring",
    "Typing :: Typed",
)
LICENSES = ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES")


def main(version: str, binary: str, man: str, out: str) -> None:
    machine = platform.machine()
    tag = f"py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}"
    wheel = pathlib.Path(out) / f"{NAME}-{version}-{tag}.whl"
    info = f"{NAME}-{version}.dist-info"
    data = f"{NAME}-{version}.data"
    tags = "".join(
        f"Tag: py3-none-{platform_tag}_{machine}\n"
        for platform_tag in ("manylinux_2_17", "manylinux2014")
    )
    files = {
        f"{data}/scripts/gputop": (pathlib.Path(binary).read_bytes(), 0o755),
        f"{info}/METADATA": (metadata(version), 0o644),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: gputop\nRoot-Is-Purelib: false\n{tags}".encode(),
            0o644,
        ),
    }
    files[f"{info}/entry_points.txt"] = (
        b"[console_scripts]\ngputop-monitor = gputop_monitor.__main__:main\n",
        0o644,
    )
    modules = [
        *sorted(pathlib.Path("assets/python").glob("*/*.py")),
        *sorted(pathlib.Path("assets/python").glob("*/py.typed")),
    ]
    for module in modules:
        files[f"{module.parent.name}/{module.name}"] = (module.read_bytes(), 0o644)
    stub = pathlib.Path("assets/stub/gputop_probe.py")
    files[stub.name] = (stub.read_bytes(), 0o644)
    unit = pathlib.Path("assets/gputop-record.service")
    # With `pip install --user`, systemd finds it.
    files[f"{data}/data/share/systemd/user/{unit.name}"] = (unit.read_bytes(), 0o644)
    for page in sorted(pathlib.Path(man).iterdir()):
        files[f"{data}/data/share/man/man1/{page.name}"] = (page.read_bytes(), 0o644)
    for licence in LICENSES:
        files[f"{info}/licenses/{licence}"] = (pathlib.Path(licence).read_bytes(), 0o644)
    record = f"{info}/RECORD"
    lines = [
        f"{name},sha256={digest(content)},{len(content)}" for name, (content, _) in files.items()
    ]
    files[record] = ("\n".join([*lines, f"{record},,", ""]).encode(), 0o644)
    moment = time.gmtime(max(EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, moment[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(wheel)


def metadata(version: str) -> bytes:
    cargo = pathlib.Path("Cargo.toml").read_text(encoding="utf-8")
    (home,) = re.findall(r'(?m)^repository = "(.+)"$', cargo)
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {NAME.replace('_', '-')}",
        f"Version: {version}",
        "Summary: See every GPU, who holds its memory, whether it leaks, and end the right process",
        f"Project-URL: Homepage, {home}",
        f"Project-URL: Source, {home}",
        f"Project-URL: Issues, {home}/issues",
        f"Project-URL: Changelog, {home}/blob/{version}/CHANGELOG.md",
        "Keywords: gpu,nvidia,pytorch,cuda,monitor,nvidia-smi,top",
        "License-Expression: MIT OR Apache-2.0",
        *(f"License-File: {name}" for name in LICENSES),
        *(f"Classifier: {name}" for name in CLASSIFIERS),
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    readme = pathlib.Path("README.md").read_text(encoding="utf-8")
    # A page of PyPI has no files beside it.
    readme = re.sub(r"(!\[[^]]*\]\()(assets/)", rf"\1{home}/raw/{version}/\2", readme)
    readme = re.sub(
        r"(\]\()((?:docs/|examples/)?[A-Za-z-]+\.md)", rf"\1{home}/blob/{version}/\2", readme
    )
    return ("\n".join(lines) + "\n\n" + readme).encode()


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
