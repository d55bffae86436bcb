"""Makes another Python process run a file: `python -I -S inject.py PID START_TICKS FILE`.

`gputop attach` runs this with the Python of that process. Prints one line: a word, and details for
some words.
"""

import os
import sys


def inject(pid, start_ticks, script):
    name = sys.implementation.name
    version = ".".join(map(str, sys.version_info[:3]))
    if name != "cpython":
        return "other", name, version
    if sys.version_info < (3, 14):
        return "old", version
    if not hasattr(sys, "remote_exec") or not sys.is_remote_debug_enabled():
        return "built_without", version
    # Otherwise, the program would wait while Python compiles the probe.
    import compileall

    compileall.compile_dir(os.path.dirname(script) + "/gputop_probe", quiet=2)
    with open("/proc/%s/stat" % pid, "rb") as file:
        if file.read().rsplit(b")", 1)[1].split()[19] != start_ticks.encode():
            return ("ended",)
    try:
        sys.remote_exec(int(pid), script)
    except (PermissionError, ProcessLookupError, FileNotFoundError) as error:
        return "ended" if not isinstance(error, PermissionError) else "denied", error
    except Exception as error:
        if "not enabled" in str(error):
            return ("disabled",)
        while error.__cause__ is not None:
            error = error.__cause__
        return "failed", error
    return ("done",)


print(*inject(*sys.argv[1:]))
