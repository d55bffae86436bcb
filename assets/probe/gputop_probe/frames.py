"""The names of a frame's locals, without a strong reference to any value and without a change to
the frame.

`frame.f_locals` is not used before Python 3.13: it keeps each value alive in a dictionary of the
frame, which is also the one that the program got from `locals()`. The addresses of the locals are
read from the frame instead.
"""

import ctypes
import gc
import os
import sys
import threading

_OPTIMIZED = 1
_WORD = ctypes.sizeof(ctypes.c_void_p)
_CELL = type((lambda value: lambda: value)(None).__closure__[0])


def _word(address):
    return ctypes.c_void_p.from_address(address).value or 0


def _slots(code):
    """The names of the slots of a frame: locals, then cells, then free variables."""
    cells = code.co_cellvars
    if sys.version_info >= (3, 11):
        cells = tuple(name for name in cells if name not in code.co_varnames)
    return code.co_varnames + cells + code.co_freevars


def _first_slot(frame):
    """The address of the first slot, or None where the frame does not look as expected."""
    code = id(frame.f_code)
    if sys.version_info >= (3, 11):
        inner = _word(id(frame) + 3 * _WORD)
        at_code = 4 * _WORD if sys.version_info < (3, 12) else 0
        if not inner or _word(inner + at_code) != code:
            return None
        return inner + 9 * _WORD
    if _word(id(frame) + 4 * _WORD) != code:
        return None
    return id(frame) + type(frame).__basicsize__ - _WORD


def names_of_locals(frame):
    """Returns {id of a value: name} of the locals of a function's frame. A cell counts as well
    as what is in it.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:
        return {}
    names = {}
    if sys.version_info >= (3, 13):
        values = frame.f_locals
        for name in values:
            try:
                names[id(values[name])] = name
            except KeyError:
                pass
        return names
    if sys.implementation.name != "cpython":
        return {}
    first = _first_slot(frame)
    if first is None:
        return {}
    boxed = set(code.co_cellvars) | set(code.co_freevars)
    for at, name in enumerate(_slots(code)):
        value = _word(first + at * _WORD)
        if not value:
            continue
        names[value] = name
        # A cell's value follows its header.
        if name in boxed and _word(value + _WORD) == id(_CELL):
            names[_word(value + 2 * _WORD)] = name
    return names


def _innermost():
    """The innermost frame of each thread, by the thread's identity."""
    # With gc on, sys._current_frames() can deadlock CPython before 3.12 (cpython#106883).
    was_on = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_on:
            gc.enable()


def place_of_main(is_library):
    """Where the main thread is: `wait (train.py:12 in main)`, with the program's own line; None
    where it has none.
    """
    first = frame = _innermost().get(threading.main_thread().ident)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    inside = "" if code.co_name == "<module>" else " in %s" % code.co_name
    line = "%s:%d%s" % (os.path.basename(code.co_filename), frame.f_lineno, inside)
    return line if frame is first else "%s (%s)" % (first.f_code.co_name.strip("_"), line)


def running(skip):
    """Returns the running frames of all threads, innermost first, without those of files below
    the folder `skip`.
    """
    frames = list(_innermost().values())
    found = []
    for frame in frames:
        while frame is not None:
            if not frame.f_code.co_filename.startswith(skip):
                found.append(frame)
            frame = frame.f_back
    # The list has the frame of this function, too: a cycle, which would keep the caller's locals
    # alive.
    frames = None
    return found


def above():
    """The running frames of this thread, by their `id`."""
    found, frame = set(), sys._getframe()
    while frame is not None:
        found.add(id(frame))
        frame = frame.f_back
    return found
