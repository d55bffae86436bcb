"""Finds gputop, and names what can go wrong with it."""

import os
import shutil
import sysconfig


class GputopError(Exception):
    """gputop cannot say anything on the GPUs. The message is one sentence."""


class GputopNotFound(GputopError):
    """There is no program gputop."""


class NoDriver(GputopError):
    """No NVIDIA driver answers."""


class NoGpu(GputopError):
    """The driver finds no GPU."""


class GputopEnded(GputopError):
    """gputop ended, or printed something else than snapshots."""


def program_path() -> str:
    """Returns the path of gputop: the one of this package, else the first in PATH.

    Raises `GputopNotFound` if there is none.
    """
    schemes = ["", "posix_user"]
    folders = [
        sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        for scheme in schemes
    ]
    # `pip install --target FOLDER` has its scripts in FOLDER/bin.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin"))
    for folder in folders:
        path = os.path.join(folder, "gputop")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which("gputop")
    if found is None:
        raise GputopNotFound(
            "the program gputop is neither beside this Python nor in PATH: install it"
        )
    return found
