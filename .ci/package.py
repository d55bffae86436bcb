"""Builds a wheel with the program as a script of the package, so that `pip install` puts it on the
PATH.

    python3 .ci/package.py VERSION BINARY MAN_FOLDER OUT_FOLDER

The package is not called `gputop`, because that name is taken on PyPI. Needs only the standard
library.
"""

import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

NAME = "gputop_monitor"
# A constant time makes the wheel reproducible.
TIME = (1980, 1, 1, 0, 0, 0)


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
    for page in sorted(pathlib.Path(man).iterdir()):
        files[f"{data}/data/share/man/man1/{page.name}"] = (page.read_bytes(), 0o644)
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{info}/licenses/{licence}"] = (pathlib.Path(licence).read_bytes(), 0o644)
    record = f"{info}/RECORD"
    lines = [
        f"{name},sha256={digest(content)},{len(content)}" for name, (content, _) in files.items()
    ]
    files[record] = ("\n".join([*lines, f"{record},,", ""]).encode(), 0o644)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(wheel)


def metadata(version: str) -> bytes:
    head = (
        "Metadata-Version: 2.4\n"
        f"Name: {NAME.replace('_', '-')}\n"
        f"Version: {version}\n"
        "Summary: See every GPU, who holds its memory, whether it leaks, "
        "and end the right process\n"
        "License-Expression: MIT OR Apache-2.0\n"
        "License-File: LICENSE-MIT\n"
        "License-File: LICENSE-APACHE\n"
        "Requires-Python: >=3.7\n"
        "Description-Content-Type: text/markdown\n\n"
    )
    return head.encode() + pathlib.Path("README.md").read_bytes()


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
