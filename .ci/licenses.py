"""Writes THIRD-PARTY-LICENSES: the licences of the crates in gputop, each text once.

    python3 .ci/licenses.py

Reads the sources of the crates that cargo has already downloaded; needs no network. Run it after a
change of Cargo.lock: a test compares the list of crates with those that cargo links.
"""

import json
import pathlib
import re
import subprocess
import sys
import textwrap

OUT = pathlib.Path("THIRD-PARTY-LICENSES")
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
# Names of files with a licence or with what a licence wants to be passed on.
LICENSE_FILE = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# The other licence of zstd, which offers a choice, and licences of tests.
UNUSED = ("zstd/COPYING", "src/test")
# The licence of a crate that ships no text: its name, and the file whose text it is.
STANDARD = {"MIT": "LICENSE-MIT", "Apache-2.0": "LICENSE-APACHE"}
HEAD = """\
gputop contains the code of the Rust crates below, each under its own licence. Where a crate offers
a choice of licences, it is used under any of them.

The Rust standard library is in it, too: Copyright The Rust Project Contributors, MIT OR Apache-2.0.

.ci/licenses.py writes this file.
"""


def main() -> None:
    crates = {}
    for target in TARGETS:
        for package in linked(target):
            crates[(package["name"], package["version"])] = package
    texts, lists = {}, []
    for (name, version), package in sorted(crates.items()):
        license_name = package["license"] or sys.exit(f"{name} {version} names no licence")
        lists.append(f"{name} {version} ({license_name})")
        for text in license_texts(package):
            body, owners = without_owners(text)
            key = words(body)
            texts.setdefault(key, (body, []))[1].append((name, owners))
    parts = [HEAD, "\n".join(lists) + "\n"]
    for body, users in sorted(texts.values(), key=lambda entry: (-len(entry[1]), entry[0])):
        parts.append("=" * 100 + "\n" + users_list(users) + "\n" + "-" * 100 + "\n" + body + "\n")
    OUT.write_text("\n".join(parts), encoding="utf-8")
    print(f"{OUT}: {len(crates)} crates, {len(texts)} texts, {OUT.stat().st_size} bytes")


def linked(target: str) -> list:
    """The packages whose code is in the program: no dependencies of tests or build scripts."""
    options = ["--locked", "--offline"]
    tree = run("cargo", "tree", *options, "--edges=normal", "--prefix=none", f"--target={target}")
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = run(
        "cargo", "metadata", *options, "--format-version=1", f"--filter-platform={target}"
    )
    return [
        package
        for package in json.loads(metadata)["packages"]
        if (package["name"], "v" + package["version"]) in names and package["source"]
    ]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def license_texts(package: dict) -> list:
    """The texts in the files of a crate, or the standard text if it has none."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(
        file
        for file in folder.rglob("*")
        if LICENSE_FILE.match(file.name)
        and file.suffix not in (".rs", ".py", ".toml", ".h", ".c")
        and file.is_file()
        and not str(file.relative_to(folder)).startswith(UNUSED)
    )
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    if texts:
        return texts
    for name, file in STANDARD.items():
        if name in package["license"]:
            authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
            text = pathlib.Path(file).read_text(encoding="utf-8")
            return [re.sub(r"(?m)^Copyright .*$", f"Copyright (c) {authors}", text)]
    sys.exit(f"{package['name']} ships no text of its licence, {package['license']}")


def without_owners(text: str) -> tuple:
    """Splits a text into its terms, which many crates share, and the lines that name the owners."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").expandtabs().split("\n")]
    owner = re.compile(r"\s*(©|copyright (\(c\)|©|\d|the ))", re.IGNORECASE)
    owners = [line.strip() for line in lines if owner.match(line)]
    body = [line for line in lines if line.strip() not in owners]
    return textwrap.dedent("\n".join(body)).strip("\n"), owners


def words(body: str) -> str:
    """The words of a text, by which equal texts are recognised: without its title and its form."""
    found = " ".join(re.findall(r"[a-z0-9]+", body.lower().replace("https://", "http://")))
    if found.startswith("apache license") and "exceptions" not in found:
        # An appendix follows that says how to use the licence.
        return found.split(" end of terms and conditions")[0].replace("license 2 0 terms", "terms")
    return re.sub(r"^(the )?mit license( mit)? ", "", found)


def users_list(users: list) -> str:
    """The crates with a text; those with an owner of their own on their own lines."""
    by_owners = {}
    for name, owners in users:
        by_owners.setdefault(tuple(owners), []).append(name)
    blocks = []
    for owners, names in sorted(by_owners.items(), key=lambda entry: entry[1]):
        names = ", ".join(sorted(set(names)))
        blocks.append(
            "\n".join([*textwrap.wrap(names, 100), *(f"    {owner}" for owner in owners)])
        )
    return "\n".join(blocks)


if __name__ == "__main__":
    main()
