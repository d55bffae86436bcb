"""Finds the line of the user's code that fills a name, such as `outputs.append(out)` or `total
+= loss`, from bytecode.
"""

import dis
import functools
import linecache
import os
import re
import sys
import types

from . import files

_FILLERS = frozenset(
    ["append", "appendleft", "add", "extend", "insert", "update", "setdefault", "put", "put_nowait"]
    + ["push", "register_hook", "register_forward_hook", "register_forward_pre_hook"]
    + ["register_full_backward_hook"]
)
_CONCATENATIONS = frozenset(
    ["cat", "concat", "concatenate", "hstack", "vstack", "dstack"]
    + ["row_stack", "column_stack", "pad"]
)
_LOADS_OF_FUNCTIONS = (
    "LOAD_METHOD",
    "LOAD_ATTR",
    "LOAD_GLOBAL",
    "LOAD_DEREF",
    "LOAD_FAST",
    "LOAD_NAME",
)


class Line:
    """A line of code: file, number, function, and its text where the file can be read."""

    __slots__ = ("file", "number", "function", "code")

    def __init__(self, code, number):
        self.file = code.co_filename
        self.number = number
        self.function = code.co_name
        self.code = code

    def __str__(self):
        place = "%s:%d" % (os.path.basename(self.file), self.number)
        return place if self.function == "<module>" else "%s in %s" % (place, self.function)

    def text(self):
        """The line's text without indentation and comment, at most 120 characters; empty where
        unknown.
        """
        lines = _lines_of(self.file)
        return (
            lines[self.number - 1].split("  #")[0].strip()[:120]
            if 0 < self.number <= len(lines)
            else ""
        )


def _lines_of(file):
    """The lines of a file, or of a cell of a notebook, which only `linecache` has. Empty where
    unknown.
    """
    cached = linecache.cache.get(file, ())
    return cached[2] if len(cached) == 4 else _read_lines(file)


@functools.lru_cache(maxsize=32)
def _read_lines(file):
    try:
        return files.read(file).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


def codes_in(code):
    """Yields a code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def codes_of_functions(values):
    """Yields the code objects of functions and of the methods of classes, with nested ones."""
    for value in values:
        value = (
            getattr(value, "__func__", value)
            if type(value) in (staticmethod, classmethod)
            else value
        )
        if type(value) is property:
            value = value.fget
        if isinstance(value, types.FunctionType):
            yield from codes_in(value.__code__)
            # A decorator, such as torch.no_grad(), wraps the function.
            inner = vars(value).get("__wrapped__")
            if isinstance(inner, types.FunctionType) and inner is not value:
                yield from codes_of_functions([inner])


def codes_of_class(kind):
    """Yields the code objects of the methods of a class and of its bases, the most derived
    first.
    """
    for base in kind.__mro__:
        if base.__module__ != "builtins":
            yield from codes_of_functions(list(vars(base).values()))


def codes_of_module(namespace, frames=()):
    """Yields the code objects of a module: of running frames, functions and classes."""
    for frame in frames:
        if frame.f_globals is namespace:
            yield from codes_in(frame.f_code)
    values = list(namespace.values())
    yield from codes_of_functions(values)
    for value in values:
        if type(value) is type and value.__module__ == namespace.get("__name__"):
            yield from codes_of_functions(list(vars(value).values()))


def _by_line(code):
    """The instructions of a code object, grouped by line: [(line, [(operation, argument)])]."""
    lines, line = [], code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if sys.version_info >= (3, 11):
            positions = instruction.positions
            line = (positions.lineno if positions else None) or line
        elif instruction.starts_line:
            line = instruction.starts_line
        if not lines or lines[-1][0] != line:
            lines.append((line, []))
        argument = instruction.argval
        if instruction.opname == "KW_NAMES":
            argument = code.co_consts[instruction.arg]
        name = instruction.opname
        if name == "BINARY_SLICE" or name == "BINARY_OP" and instruction.argrepr == "[]":
            # From Python 3.12 and 3.14 on.
            name = "BINARY_SUBSCR"
        if type(argument) is tuple and "_FAST" in instruction.opname:
            # Two instructions in one, such as STORE_FAST_LOAD_FAST, from Python 3.13 on.
            verbs = re.findall("LOAD|STORE", instruction.opname)
            lines[-1][1].extend((verb + "_FAST", name) for verb, name in zip(verbs, argument))
        else:
            lines[-1][1].append((name, argument))
    return lines


# How far `fill_line` goes down its list: to methods such as append, or to operations.
FILLS, ADDS = 1, 2


def fill_line(codes, name, most=5):
    """Returns the line that adds to what `name` (a variable or an attribute) refers to, or None.
    Only the first `most` kinds of lines count.

    Preferred in this order: a method such as append or an item assignment; an assignment from an
    operation (`total += loss`); the last assignment of something computed; the last assignment of
    another value; one in a constructor.
    """
    found = [None] * 5
    seen = set()
    for code in codes:
        if code in seen:
            continue
        seen.add(code)
        for number, operations in _by_line(code):
            loads = stores = fills = computes = calls = False
            # The value of an item assignment is loaded before the container.
            has_loaded = is_container = False
            for operation, argument in operations:
                if operation.startswith("LOAD"):
                    is_container = is_container or (has_loaded and argument == name)
                    has_loaded = True
                if argument == name:
                    stores = stores or operation.startswith("STORE")
                    loads = loads or operation.startswith("LOAD")
                if operation in ("LOAD_METHOD", "LOAD_ATTR") and loads and argument in _FILLERS:
                    fills = True
                elif operation == "STORE_SUBSCR" and is_container:
                    fills = True
                elif operation.startswith(("INPLACE_", "BINARY_")) and "SUBSCR" not in operation:
                    computes = True
                elif operation in _LOADS_OF_FUNCTIONS and argument in _CONCATENATIONS:
                    computes = True
                elif operation.startswith("CALL"):
                    calls = True
            rank = (
                0
                if fills and loads
                else 1
                if stores and loads and computes
                else 2
                if stores and (calls or computes)
                else None
            )
            if rank is None and stores and _stores_value(operations):
                rank = 3
            if rank in (2, 3) and code.co_name == "__init__":
                rank = 4
            if rank is not None and (found[rank] is None or rank >= 2):
                found[rank] = Line(code, number)
    return next(filter(None, found[:most]), None)


def fills(line):
    """Whether the line calls a method such as append, or assigns an item."""
    for number, operations in _by_line(line.code):
        if number == line.number:
            for operation, argument in operations:
                if operation == "STORE_SUBSCR" or argument in _FILLERS:
                    return True
    return False


def _stores_value(operations):
    """Whether an assignment stores a value, and no constant such as None."""
    loads = sum(
        operation.startswith("LOAD") and operation != "LOAD_CONST" for operation, _ in operations
    )
    return loads > any(operation == "STORE_ATTR" for operation, _ in operations)


def concatenating_line(codes, name):
    """Returns the line that concatenates what `name` refers to with something, as
    `torch.cat([name, x])`, or None.
    """
    for code in codes:
        operations = [(number, *operation) for number, line in _by_line(code) for operation in line]
        for at, (number, operation, argument) in enumerate(operations):
            if operation not in _LOADS_OF_FUNCTIONS or argument not in _CONCATENATIONS:
                continue
            # The arguments are loaded right after the function.
            for _, load, loaded in operations[at + 1 : at + 10]:
                if load.startswith(("STORE", "RETURN")):
                    break
                if load.startswith("LOAD") and loaded == name:
                    return Line(code, number)
    return None


def keyword_line(codes, keyword, function=None):
    """Returns the line of a call with `keyword=`, such as `retain_graph=True`, or None; with
    `function`, only where the line also names it.
    """
    for code in codes:
        if not any(type(it) is tuple and keyword in it for it in code.co_consts):
            continue
        # The names of keywords are loaded right before the call.
        for number, operations in _by_line(code):
            for operation, argument in operations:
                if (
                    operation in ("LOAD_CONST", "KW_NAMES", "CALL_FUNCTION_KW", "CALL_KW")
                    and type(argument) is tuple
                    and keyword in argument
                    and (function is None or any(it == function for _, it in operations))
                ):
                    return Line(code, number)
        if function is None:
            return Line(code, code.co_firstlineno)
    return None


def key_line(codes, keys):
    """Returns the line that writes these keys of a dictionary as constants, or None."""
    for code in codes:
        constants = set()
        for constant in code.co_consts:
            constants.update(constant if type(constant) is tuple else (constant,))
        if not all(key in constants for key in keys):
            continue
        for number, operations in _by_line(code):
            if any(
                argument == keys[-1] or type(argument) is tuple and keys[-1] in argument
                for operation, argument in operations
                if operation == "LOAD_CONST"
            ):
                return Line(code, number)
    return None


def handler_line(code, at):
    """Returns the first line of the `except` that handles an error at an instruction, or None."""
    handlers = []
    instructions = list(dis.get_instructions(code))
    if sys.version_info >= (3, 11):
        entries = dis.Bytecode(code).exception_entries
        handlers = [entry.target for entry in entries if entry.start <= at < entry.end]
    else:
        blocks = [it for it in instructions if it.opname == "SETUP_FINALLY" and it.offset < at]
        handlers = [it.argval for it in blocks[-1:] if it.argval > at]
    lines = dict(dis.findlinestarts(code))
    for target in handlers:
        number = next(
            (lines[offset] for offset in sorted(lines) if offset >= target and lines[offset]), None
        )
        if number is not None:
            return Line(code, number)
    return None


def tests_membership(codes, name):
    """Whether a line tests if something is in `name`, or gets it from there, as a cache does."""
    for code in codes:
        for _, operations in _by_line(code):
            if not any(it.startswith("LOAD") and argument == name for it, argument in operations):
                continue
            if any(it == "CONTAINS_OP" for it, _ in operations):
                return True
            if any(argument in ("get", "setdefault") for it, argument in operations):
                return True
    return False
