"""Lets the fake CUDA runtime serve a PyTorch that has NVIDIA's runtime linked into its own
libraries, as the wheels of 1.13 have.

Each runtime function in the unpacked libraries is overwritten with a jump through a table at a
fixed address. The fake runtime fills that table when it is loaded.
"""

import struct
import subprocess

TABLE = 0x6F0000000000
# movabs rax, address; jmp [rax]
JUMP = struct.Struct("<2sQ2s")


def readelf(*arguments):
    return subprocess.run(
        ["readelf", "-W", *arguments], check=True, text=True, capture_output=True
    ).stdout.splitlines()


def functions(library):
    """The runtime's functions inside a library: {name: offset in the file}. Empty where no
    runtime is linked into it.
    """
    shifts = {}
    for line in readelf("-S", library):
        fields = line.replace("[ ", "[").split()
        if len(fields) > 5 and fields[2] == "PROGBITS":
            shifts[fields[0].strip("[]")] = int(fields[3], 16) - int(fields[4], 16)
    found = {}
    for line in readelf("-s", library):
        fields = line.split()
        if (
            len(fields) == 8
            and fields[3:5] == ["FUNC", "LOCAL"]
            and fields[7].startswith(("cuda", "__cuda"))
            and not fields[7].startswith("__cudart")
            and int(fields[2], 0) >= JUMP.size
        ):
            found[fields[7]] = int(fields[1], 16) - shifts[fields[6]]
    return found if "cudaMalloc" in found else {}


def redirect(libraries):
    """Overwrites the runtime's functions in these libraries. Returns their names in the order of
    the table.
    """
    found = {library: functions(library) for library in libraries}
    names = sorted(set().union(*found.values()))
    for library, places in found.items():
        with open(library, "r+b") as file:
            for name, offset in places.items():
                file.seek(offset)
                file.write(JUMP.pack(b"\x48\xb8", TABLE + 8 * names.index(name), b"\xff\x20"))
    return names


def table(names, known):
    """C source that fills the table. Functions that the fake runtime lacks return 0."""
    entries = ", ".join("(void *)%s" % (name if name in known else "nothing") for name in names)
    return """
static int nothing(void) { return 0; }
__attribute__((constructor)) static void fill_table(void) {
    void *entries[] = {%s};
    void *at = mmap((void *)%#x, sizeof entries, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != MAP_FAILED) memcpy(at, entries, sizeof entries);
}
""" % (entries, TABLE)
