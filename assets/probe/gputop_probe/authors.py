"""Tells the program's own code from that of Python, torch and installed packages."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STANDARD = os.path.dirname(os.__file__) + os.sep
TORCH = os.sep + "torch" + os.sep


def is_library(file):
    """Whether a file belongs to Python, torch or an installed package, or is no file."""
    return (
        not file
        or file.startswith("<")
        or "site-packages" in file
        or "dist-packages" in file
        or file.startswith((HERE, STANDARD))
        or TORCH in file
    )


def only_of_user(codes):
    """The code objects of the program itself."""
    return [code for code in codes if not is_library(code.co_filename)]


def is_of_user(kind):
    """Whether the program itself defines a class."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or (
        module is not None and not is_library(getattr(module, "__file__", None) or "")
    )


def library_of(kind):
    """The module of a library's class; None for a class of the program."""
    return None if is_of_user(kind) else kind.__module__
