"""Stands in for a Python program with gputop's probe: publishes what the test says, in the format
of assets/probe/FORMAT.md.

Arguments: files to open, which stand for device files. Each line of the standard input is a
command; each is answered by a line.
"""

import ctypes
import fcntl
import json
import os
import struct
import sys
import zlib

SIZE = 1 << 20
F_ADD_SEALS = 1033
SEALS = 0x1 | 0x2 | 0x4  # seal, shrink, grow
PR_SET_DUMPABLE = 4


def start_ticks():
    with open("/proc/self/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])


def memory_file(name, magic, size):
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, F_ADD_SEALS, SEALS)
    os.pwrite(file, header(magic, size, 0, b""), 0)
    return file


def header(magic, size, sequence, payload):
    return struct.pack(
        "<8sIIQQII24x",
        magic,
        size,
        os.getpid(),
        start_ticks(),
        sequence,
        len(payload),
        zlib.crc32(payload),
    )


class Probe:
    def __init__(self):
        self.report = memory_file("gputop-probe", b"gputopP1", SIZE)
        self.requests = memory_file("gputop-probe-requests", b"gputopR1", 4096)
        self.sequence = 0

    def publish(self, payload, damage=False):
        os.pwrite(self.report, header(b"gputopP1", SIZE, self.sequence + 1, payload), 0)
        os.pwrite(self.report, payload[: len(payload) // 2] if damage else payload, 64)
        self.sequence += 2
        os.pwrite(self.report, header(b"gputopP1", SIZE, self.sequence, payload), 0)

    def request(self):
        """Returns the request in the file, or None before the first one."""
        fields = struct.unpack("<8sIIQQII24x", os.pread(self.requests, 64, 0))
        payload = os.pread(self.requests, fields[5], 64)
        if not payload or fields[4] % 2 or zlib.crc32(payload) != fields[6]:
            return None
        return json.loads(payload)


def main():
    files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
    probe = None
    for line in sys.stdin:
        command, _, argument = line.rstrip("\n").partition(" ")
        answer = "done"
        if command == "start":
            probe = Probe()
        elif command == "publish":
            probe.publish(argument.encode())
        elif command == "damage":
            probe.publish(argument.encode(), damage=True)
        elif command == "request":
            answer = json.dumps(probe.request())
        elif command == "close":
            os.close(probe.report)
        elif command == "hide":
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        elif command == "fork":
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                # Ends with the test: the parent has the other end of the pipe.
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            os.close(reader)
            files.append(writer)
            answer = str(child)
        print(answer, flush=True)


main()
