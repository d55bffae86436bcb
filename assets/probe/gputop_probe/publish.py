"""The memfds that the agent finds in /proc/PID/fd: see FORMAT.md."""

import fcntl
import json
import mmap
import os
import struct
import zlib

HEADER = struct.Struct("<8sIIQQII24x")
STATE = ("gputop-probe", b"gputopP1", 1 << 20)
REQUESTS = ("gputop-probe-requests", b"gputopR1", 4096)
# From linux/memfd.h and linux/fcntl.h: Python has no names for them before 3.8 or without glibc 2.27.
CLOSE_ON_EXEC, ALLOW_SEALING = 1, 2
F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW = 1033, 1, 2, 4
SYSTEM_CALL = {"x86_64": 319, "aarch64": 279, "ppc64le": 360}


def start_ticks():
    """The start time of this process in clock ticks since boot: with the PID, its identity."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[19])


def create_memfd(name):
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, CLOSE_ON_EXEC | ALLOW_SEALING)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = SYSTEM_CALL[os.uname().machine]
    descriptor = libc.syscall(ctypes.c_long(call), name.encode(), ctypes.c_uint(CLOSE_ON_EXEC | ALLOW_SEALING))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return descriptor


class Memfd:
    """A memfd of constant size, whose contents are one JSON object.

    All access goes through a memory map: the program may close the descriptor, and its number may then be that of another file.
    """

    def __init__(self, name, magic, size):
        self.name, self.magic, self.size = name, magic, size
        descriptor = create_memfd(name)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, F_ADD_SEALS, SEAL_SEAL | SEAL_SHRINK | SEAL_GROW)
        # The map keeps a duplicate of the descriptor open.
        self.memory = mmap.mmap(descriptor, size)
        self.inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        self.owner = (os.getpid(), start_ticks())
        self.sequence = 0
        self._write_header(0, 0)

    def is_open(self):
        """Whether the agent can still find the memfd."""
        link = "/memfd:%s (deleted)" % self.name
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                if os.readlink("/proc/self/fd/" + descriptor) == link and os.stat("/proc/self/fd/" + descriptor).st_ino == self.inode:
                    return True
            except OSError:
                pass
        return False

    def room(self):
        return self.size - HEADER.size

    def is_own(self):
        """Whether this process made the memfd, rather than a process that forked it."""
        return self.owner[0] == os.getpid()

    def write(self, payload):
        """Publishes the payload, which fits into `room()` bytes."""
        self.sequence += 1
        self._write_header(0, 0)
        self.memory[HEADER.size : HEADER.size + len(payload)] = payload
        self.sequence += 1
        self._write_header(len(payload), zlib.crc32(payload))

    def _write_header(self, length, checksum):
        header = HEADER.pack(self.magic, self.size, self.owner[0], self.owner[1], self.sequence, length, checksum)
        self.memory[: HEADER.size] = header

    def read_new(self):
        """Returns the object that was written since the last call, or None."""
        magic, size, pid, ticks, sequence, length, checksum = HEADER.unpack(self.memory[: HEADER.size])
        if sequence == self.sequence or sequence % 2 or length > self.room():
            return None
        payload = self.memory[HEADER.size : HEADER.size + length]
        # Torn, or not meant for this process: the next look may find it whole.
        if magic != self.magic or size != self.size or (pid, ticks) != self.owner or zlib.crc32(payload) != checksum:
            return None
        self.sequence = sequence
        found = json.loads(payload.decode())
        return found if isinstance(found, dict) else None
