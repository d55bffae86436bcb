"""Starts the probe in a running program. `gputop attach` makes Python run this file in the
program's main thread.

FOLDER is the folder of the probe. Python prints an error of this file in the program's terminal, so
there must be none.
"""


def start():
    import sys

    # The program may have the stub of that name, which passes calls on to the package.
    if not hasattr(sys.modules.get("gputop_probe"), "__path__"):
        from importlib.util import module_from_spec, spec_from_file_location

        package = FOLDER + "/gputop_probe"  # noqa: F821
        spec = spec_from_file_location(
            "gputop_probe", package + "/__init__.py", submodule_search_locations=[package]
        )
        module = module_from_spec(spec)
        sys.modules["gputop_probe"] = module
        spec.loader.exec_module(module)
    from gputop_probe.boot import attach

    attach()


try:
    start()
except Exception:
    pass
