"""Starts the probe of gputop in this Python process, and runs the sitecustomize that this file
shadows.

Python's `site` imports this file because `gputop run` put its folder first on PYTHONPATH. It runs
in every Python process of the job, also in those that never use a GPU, and in old versions of
Python. So it only waits for the import of torch, at the cost of one string comparison per import.
GPUTOP_PROBE=0 turns the probe off.
"""

import sys


def _folder():
    import os

    return os.path.dirname(os.path.abspath(__file__))


class _ProbePackage(object):
    """Finds the package gputop_probe, whose folder is not on sys.path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "gputop_probe":
            return None
        from importlib.util import spec_from_file_location

        package = _HERE + "/gputop_probe"
        return spec_from_file_location(
            name, package + "/__init__.py", submodule_search_locations=[package]
        )


class _WaitForTorch(object):
    """Is replaced, in its place, when torch is imported. Removing it would make the running
    import skip a finder.

    Finds the probe before the stub of the same name that a program may have.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "gputop_probe":
            return _ProbePackage.find_spec(name)
        if name == "torch":
            try:
                place = sys.meta_path.index(_WaitForTorch)
                sys.meta_path[place] = _ProbePackage
                from gputop_probe.boot import WaitForCuda

                sys.meta_path[place] = WaitForCuda(_ProbePackage)
            except (ImportError, SyntaxError, ValueError):
                pass
        return None


_HERE = _folder()
if sys.version_info >= (3, 8):
    import os

    if os.environ.get("GPUTOP_PROBE") != "0":
        sys.meta_path.insert(0, _WaitForTorch)
    # At the end: a program that turned the probe off can still import it.
    sys.meta_path.append(_ProbePackage)
    del os

# Without this folder, sys.path is what it would be without the probe, and the next sitecustomize on
# it is found. Child processes find this folder through PYTHONPATH.
sys.path[:] = [entry for entry in sys.path if entry.rstrip("/") != _HERE]
sys.modules.pop("sitecustomize", None)
# If there is none, or if it fails, `site` handles the error as it would without the probe.
import sitecustomize  # noqa: E402, F401
