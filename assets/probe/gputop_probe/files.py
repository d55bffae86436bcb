"""Opens files so that only these are closed.

A program may close any descriptor at any time, also in another thread, as daemons do with
os.closerange. Its number may then be that of a file of the program. Python's file objects and
memory maps close a number without a look, some only when they are collected or when Python exits,
so the probe uses none of them.
"""

import errno
import os

# The bytes of one call that writes: between two calls, the program may close the file.
_PART = 1 << 20


class OwnFile:
    """An open file of the probe, which ends with the `with` statement. It is never closed by the
    garbage collector.
    """

    def __init__(self, path, flags, folder=None):
        """`folder`: the descriptor that a relative path begins at."""
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o600, dir_fd=folder)
        self._identity = identify(path, folder)
        self._check()

    def _is_own(self):
        return self._identity is not None and identify(self.number) == self._identity

    def _check(self):
        if not self._is_own():
            raise OSError(errno.EBADF, "the program closed a file of the probe")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._is_own():
            os.close(self.number)

    def read(self, most):
        """Returns the rest of the file, at most so many bytes."""
        content = b""
        while len(content) < most:
            self._check()
            part = os.read(self.number, most - len(content))
            if not part:
                break
            content += part
        return content

    def write(self, content):
        rest = memoryview(content)
        while rest:
            self._check()
            rest = rest[os.write(self.number, rest[:_PART]) :]


def identify(file, folder=None):
    """The device and inode of a path or of an open descriptor. None: it does not exist, or is
    not open.
    """
    try:
        status = os.stat(file, dir_fd=folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read(path, most=1 << 20):
    """Returns the first bytes of a file; raises OSError."""
    with OwnFile(path, os.O_RDONLY) as file:
        return file.read(most)
