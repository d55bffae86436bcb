"""The memfds that the agent finds in /proc/PID/fd: see FORMAT.md."""

import ctypes
import errno
import json
import os
import struct
import zlib

from . import files

HEADER = struct.Struct("<8sIIQQII24x")
STATE = ("gputop-probe", b"gputopP1", 1 << 20)
REQUESTS = ("gputop-probe-requests", b"gputopR1", 4096)
# From linux/memfd.h, linux/fcntl.h and sys/mman.h.
CLOSE_ON_EXEC, ALLOW_SEALING = 1, 2
F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW = 1033, 1, 2, 4
READ_AND_WRITE, SHARED = 3, 1
# Of memfd_create, which glibc has since 2.27.
SYSTEM_CALL = {"x86_64": 319, "aarch64": 279, "ppc64le": 360}

# Unlike the module os, a PyDLL keeps the global interpreter lock during a call, so other threads
# hardly get to close a new descriptor.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.mmap.restype = ctypes.c_void_p
_libc.ftruncate.argtypes = [ctypes.c_int, ctypes.c_long]
_MAP_FAILED = ctypes.c_void_p(-1).value

_owner = None


def owner():
    """The identity of this process: its PID, and its start time in clock ticks since boot."""
    global _owner
    if _owner is None or _owner[0] != os.getpid():
        _owner = (os.getpid(), int(files.read("/proc/self/stat").rsplit(b")", 1)[1].split()[19]))
    return _owner


def _checked(result, failure=-1):
    """Returns the result of a function of the C library, or raises its error."""
    if result == failure:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _create_memfd(name):
    flags = CLOSE_ON_EXEC | ALLOW_SEALING
    if hasattr(_libc, "memfd_create"):
        return _checked(_libc.memfd_create(name.encode(), flags))
    return _checked(
        _libc.syscall(
            ctypes.c_long(SYSTEM_CALL[os.uname().machine]), name.encode(), ctypes.c_long(flags)
        )
    )


class Memfd:
    """A memfd of constant size, whose contents are one JSON object.

    All access goes through a memory map: the program may close the descriptor, and its number may
    then be that of another file. So the probe never closes it. The map is the kernel's, not one of
    Python's module mmap, which keeps a descriptor and closes it by number. It stays until the
    process ends.
    """

    def __init__(self, name, magic, size):
        self.magic, self.size, self.owner = magic, size, owner()
        self.descriptor = _create_memfd(name)
        # If another thread closed the descriptor just now, this fails: a file of the program cannot
        # be sealed.
        _checked(_libc.fcntl(self.descriptor, F_ADD_SEALS, SEAL_SHRINK))
        _checked(_libc.ftruncate(self.descriptor, size))
        _checked(_libc.fcntl(self.descriptor, F_ADD_SEALS, SEAL_SEAL | SEAL_GROW))
        self._address = _checked(
            _libc.mmap(None, size, READ_AND_WRITE, SHARED, self.descriptor, 0), _MAP_FAILED
        )
        self._identity = files.identify(self.descriptor)
        if os.readlink("/proc/self/fd/%d" % self.descriptor) != "/memfd:%s (deleted)" % name:
            raise OSError(errno.EBADF, "the program closed the memfd")
        self.sequence = 0
        self._write_header(0, 0)

    def is_open(self):
        """Whether the agent can still find the memfd."""
        return files.identify(self.descriptor) == self._identity

    def room(self):
        return self.size - HEADER.size

    def is_own(self):
        """Whether this process made the memfd, rather than a process that forked it."""
        return self.owner[0] == os.getpid()

    def write(self, payload):
        """Publishes the payload, which fits into `room()` bytes."""
        if len(payload) > self.room():
            raise ValueError("%d bytes do not fit" % len(payload))
        self.sequence += 1
        self._write_header(0, 0)
        ctypes.memmove(self._address + HEADER.size, payload, len(payload))
        self.sequence += 1
        self._write_header(len(payload), zlib.crc32(payload))

    def _write_header(self, length, checksum):
        header = HEADER.pack(
            self.magic, self.size, self.owner[0], self.owner[1], self.sequence, length, checksum
        )
        ctypes.memmove(self._address, header, HEADER.size)

    def read_new(self):
        """Returns the object that was written since the last call, or None."""
        magic, size, pid, ticks, sequence, length, checksum = HEADER.unpack(
            ctypes.string_at(self._address, HEADER.size)
        )
        if sequence == self.sequence or sequence % 2 or length > self.room():
            return None
        payload = ctypes.string_at(self._address + HEADER.size, length)
        # Torn, or not meant for this process: the next look may find it whole.
        if (
            magic != self.magic
            or size != self.size
            or (pid, ticks) != self.owner
            or zlib.crc32(payload) != checksum
        ):
            return None
        self.sequence = sequence
        found = json.loads(payload.decode())
        return found if isinstance(found, dict) else None
