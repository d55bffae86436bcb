"""Finds the holders of tensors: from sampled tensors up to a name that the user knows.

One `gc.get_referrers` call per level covers all samples. Nothing that this module keeps refers to
an object of the program: what it returns is text and numbers.
"""

import gc
import os
import sys
import time
import types

from . import code_lines, frames

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = __name__.split(".")[0]
_LEVELS = 10
# More objects than this on one level are not names but a data structure that everything refers to.
_BREADTH = 400
# An element of a list or dictionary may hold so many tensors.
_PER_ELEMENT = 3
_CELL = frames._CELL
_CONTAINERS = (dict, list, tuple, set, frozenset)


class Holder:
    """A name that holds some of the sampled tensors.

    `kind` is local, global, attribute, class, closure or hook. `via` has what lies between the name
    and the tensors: traceback, optimizer, hook, buffer, parameter, graph, function.
    """

    def __init__(
        self, text, kind, name, samples, via=(), owner=None, line=None, is_module=False, codes=()
    ):
        self.text = text
        self.kind = kind
        self.name = name
        self.samples = frozenset(samples)
        self.via = frozenset(via)
        # The class of an attribute's owner.
        self.owner = owner
        self.line = line
        # The code that can reach the name.
        self.codes = list(codes)
        self.is_module = is_module

    def __repr__(self):
        return "<%s %s %s>" % (self.text, sorted(self.samples), sorted(self.via))


class _Node:
    """An object on the way up, without a reference to it."""

    __slots__ = ("address", "samples", "via", "shape", "keys")

    def __init__(self, address, samples, via, shape, keys):
        self.address = address
        self.samples = samples
        self.via = via
        # The type of the outermost container, or "tensor".
        self.shape = shape
        # For a dictionary: the keys that lead to the tensors, outermost first.
        self.keys = keys


def _count_of_listed():
    """What `sys.getrefcount` says of an object that only a list and a local refer to: that
    depends on the version of Python.
    """
    for value in [tuple([None])]:
        return sys.getrefcount(value)


_ONLY_LISTED = _count_of_listed()


def _attributes(value):
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def _slots(value):
    """Yields (name, value) of the slots of an object."""
    for base in type(value).__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else tuple(names):
            descriptor = base.__dict__.get(name)
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:
                    pass


class Search:
    """One search. `torch` may be None (plain Python objects); `budget` is CPU time in seconds."""

    def __init__(self, torch=None, budget=0.3, own=()):
        self.tensor = torch.Tensor if torch else ()
        self.module = torch.nn.Module if torch else ()
        self.optimizer = torch.optim.Optimizer if torch else ()
        self.deadline = time.thread_time() + budget
        self.running = frames.running(_HERE)
        self.skip = {id(frame) for frame in self.running} | {id(value) for value in own}
        self.locals = [(frame, frames.names_of_locals(frame)) for frame in self.running]
        self.found = []
        # Attributes of objects that are elements of something: the answer where that has no name.
        self.elements = []
        # By address: the shape of what is in a cell.
        self.cells = {}
        self.is_complete = True

    def is_a(self, value, kind):
        return bool(kind) and issubclass(type(value), kind)

    def run(self, samples):
        """Returns the holders of `samples`, the one of most samples first. The caller's list is
        not reported.
        """
        level = {}
        for at, value in enumerate(samples):
            level[id(value)] = _Node(
                id(value),
                {at},
                frozenset(),
                "tensor" if self.is_a(value, self.tensor) else type(value).__name__,
                (),
            )
        objects = list(samples)
        seen = set(level)
        try:
            for _ in range(_LEVELS):
                objects, level = self._up(objects, level, seen, (id(samples), id(self.__dict__)))
                if not objects:
                    break
                if time.thread_time() > self.deadline or len(objects) > _BREADTH:
                    self.is_complete = False
                    break
        finally:
            objects = None
            self.running = None
            self.locals = None
        named = frozenset().union(*(holder.samples for holder in self.found))
        for holder in self.elements:
            if not holder.samples <= named:
                self._name(holder)
        self.found.sort(
            key=lambda holder: (-len(holder.samples), holder.kind != "local", holder.text)
        )
        return self.found

    def _name(self, holder):
        for other in self.found:
            if other.text == holder.text:
                other.samples |= holder.samples
                other.via |= holder.via
                return
        self.found.append(holder)

    def _locals(self, address, node):
        """Names an object that is a local of a running frame. Returns whether it is."""
        is_local = False
        for frame, names in self.locals:
            name = names.get(address)
            # A name of the interpreter's own, such as an argument of a library's function on the
            # stack, says nothing.
            if name is None or _is_library(frame.f_code.co_filename):
                continue
            codes = list(code_lines.codes_in(frame.f_code))
            line = code_lines.fill_line(codes, name) or code_lines.Line(
                frame.f_code, frame.f_lineno
            )
            self._name(
                Holder(
                    "%s %s, %s" % (node.shape, name, line),
                    "local",
                    name,
                    node.samples,
                    node.via,
                    None,
                    line,
                    codes=codes,
                )
            )
            is_local = True
            break
        return is_local

    def _up(self, objects, level, seen, own):
        """One level: names what can be named, and returns the objects that hold the rest."""
        for value in objects:
            node = level[id(value)]
            if self._locals(id(value), node):
                level[id(value)] = None
        targets = [value for value in objects if level[id(value)] is not None]
        skip = self.skip | {id(objects), id(targets)} | set(own)
        frame = sys._getframe()
        while frame is not None:
            skip.add(id(frame))
            frame = frame.f_back
        referrers = gc.get_referrers(*targets)
        above, nodes, attributes = [], {}, {}
        wanted = [id(value) for value in targets]
        del targets
        for value in referrers:
            address = id(value)
            # From Python 3.13 on, the arguments of the call above are among the referrers. Nothing
            # else refers to them.
            if (
                type(value) is tuple
                and sys.getrefcount(value) <= _ONLY_LISTED
                and [id(held) for held in value] == wanted
            ):
                continue
            if (
                address in skip
                or type(value) is types.ModuleType
                or type(value).__module__.startswith(_PACKAGE)
            ):
                continue
            for hit, key in self._hits(value, level):
                self._climb(value, hit, key, above, nodes, attributes, seen)
        value = None
        self._settle(attributes, above, nodes, seen)
        return above, nodes

    def _hits(self, value, level):
        """Which of the level's objects `value` refers to: [(node, key)]."""
        kind = type(value)
        hits = []
        if issubclass(kind, dict):
            for key, held in list(dict.items(value)):
                node = level.get(id(held))
                if node is not None:
                    hits.append((node, key))
            return hits
        for held in (
            list(list.__iter__(value)) if issubclass(kind, list) else gc.get_referents(value)
        ):
            node = level.get(id(held))
            if node is not None:
                hits.append((node, None))
        return hits

    def _climb(self, value, node, key, above, nodes, attributes, seen):
        """Handles that `value` refers to the object of `node`, below `key` where it is a
        dictionary.
        """
        kind = type(value)
        via = node.via
        if kind is dict and "__name__" in value and "__builtins__" in value and type(key) is str:
            codes = _of_user(code_lines.codes_of_module(value, self.running))
            line = code_lines.fill_line(codes, key)
            text = (
                "global %s" % key
                if value["__name__"] == "__main__"
                else "global %s.%s" % (value["__name__"], key)
            )
            self._name(
                Holder(
                    text + (", %s" % line if line else ""),
                    "global",
                    key,
                    node.samples,
                    via,
                    None,
                    line,
                    codes=codes,
                )
            )
            return
        if kind is types.FrameType:
            self._add(value, node, via | {"frame"}, node.shape, None, above, nodes, seen)
            return
        if kind is types.TracebackType or issubclass(kind, BaseException):
            self._add(value, node, via | {"traceback"}, "exception", None, above, nodes, seen)
            return
        if kind is _CELL:
            self.cells[id(value)] = node.shape
        if kind is types.FunctionType and self._closure(value, node):
            return
        if kind in (_CELL, types.FunctionType, types.MethodType):
            function = value.__name__ if kind is types.FunctionType else None
            self._add(
                value,
                node,
                via | ({"function"} if function else set()),
                node.shape,
                None,
                above,
                nodes,
                seen,
            )
            return
        if issubclass(kind, _CONTAINERS) or kind.__module__ == "collections":
            # Small tuples and records are parts of the container above them.
            self._add(value, node, via, kind.__name__, key, above, nodes, seen)
            return
        if isinstance(kind, type) and issubclass(kind, type):
            if node.keys and type(node.keys[0]) is str:
                name = node.keys[0]
                codes = _of_user(code_lines.codes_of_class(value))
                line = code_lines.fill_line(codes, name)
                text = "%s.%s" % (value.__name__, name)
                self._name(
                    Holder(
                        text + (", %s" % line if line else ""),
                        "class",
                        name,
                        node.samples,
                        via,
                        value.__name__,
                        line,
                        codes=codes,
                    )
                )
            return
        name = self._attribute(value, node)
        if name is None:
            self._add(value, node, via, kind.__name__, None, above, nodes, seen)
            return
        if (
            self.is_a(value, self.optimizer)
            or self.is_a(value, self.tensor)
            or kind.__module__.startswith("torch.autograd")
        ):
            mark = (
                "optimizer"
                if self.is_a(value, self.optimizer)
                else "hook"
                if name.endswith("_hooks")
                else "tensor"
            )
            self._add(value, node, via | {mark}, kind.__name__, None, above, nodes, seen)
            return
        # Settled when the whole level is known: each sample in an object of its own is an element,
        # not the owner.
        entry = attributes.setdefault((kind, name), [set(), [], set(), set()])
        entry[0].add(id(value))
        entry[1].append((value, node))
        entry[2].update(node.samples)
        entry[3].update(via)

    def _closure(self, function, node):
        """Names a variable of a closure whose function no longer runs. Returns whether there is
        one.
        """
        code = function.__code__
        if node.address != id(function.__closure__) or _is_library(code.co_filename):
            return False
        for name, cell in zip(code.co_freevars, function.__closure__):
            if id(cell) in self.cells:
                codes = list(code_lines.codes_in(code))
                line = code_lines.fill_line(codes, name) or code_lines.Line(
                    code, code.co_firstlineno
                )
                text = "%s %s, %s" % (self.cells[id(cell)], name, line)
                self._name(
                    Holder(text, "closure", name, node.samples, node.via, None, line, codes=codes)
                )
                return True
        return False

    def _attribute(self, value, node):
        """The name of the attribute of `value` through which it holds the object of `node`, or
        None.
        """
        found, keys = _attributes(value), ()
        if found is not None and node.address == id(found):
            keys = node.keys
        elif found is not None:
            keys = next(
                (
                    (name,) + node.keys
                    for name, held in list(found.items())
                    if id(held) == node.address
                ),
                (),
            )
        if keys:
            # nn.Module keeps its buffers and parameters in dictionaries.
            return (
                " ".join(keys[:2])
                if keys[0] in ("_buffers", "_parameters") and len(keys) > 1
                else str(keys[0])
            )
        return next((name for name, held in _slots(value) if id(held) == node.address), None)

    def _settle(self, attributes, above, nodes, seen):
        for (kind, name), (owners, pairs, samples, via) in attributes.items():
            is_module = bool(self.module) and issubclass(kind, self.module)
            if name.startswith(("_buffers ", "_parameters ")):
                where, name = name.split(" ", 1)
                via = via | {"buffer" if where == "_buffers" else "parameter"}
            if name.endswith("_hooks"):
                self._name(
                    Holder(
                        "%s on %s" % (_words(name), kind.__name__),
                        "hook",
                        name,
                        samples,
                        via | {"hook"},
                        kind.__name__,
                        None,
                        is_module,
                    )
                )
                continue
            codes = _of_user(code_lines.codes_of_class(kind))
            line = code_lines.fill_line(codes, name)
            text = "%s.%s" % (kind.__name__, name) + (", %s" % line if line else "")
            holder = Holder(
                text, "attribute", name, samples, via, kind.__name__, line, is_module, codes
            )
            if len(owners) > 1 and _PER_ELEMENT * len(owners) >= len(samples) and not is_module:
                # Each has few of the samples.
                for value, node in pairs:
                    self._add(value, node, node.via, kind.__name__, None, above, nodes, seen)
                self.elements.append(holder)
            else:
                self._name(holder)

    def _add(self, value, node, via, shape, key, above, nodes, seen):
        address = id(value)
        other = nodes.get(address)
        if other is not None:
            other.samples |= node.samples
            other.via |= via
            return
        if address in seen:
            return
        seen.add(address)
        keys = () if key is None else (key,) + node.keys
        nodes[address] = _Node(address, set(node.samples), frozenset(via), shape, keys)
        above.append(value)


def _words(name):
    """`_forward_hooks` as words: forward hook."""
    return name.strip("_").replace("_", " ")[:-1]


def _is_library(file):
    """Whether a file belongs to Python, torch or an installed package, or is no file."""
    return (
        not file
        or file.startswith("<")
        or "site-packages" in file
        or "dist-packages" in file
        or file.startswith((_HERE, _STANDARD))
        or _TORCH in file
    )


def _of_user(codes):
    return [code for code in codes if not _is_library(code.co_filename)]


_STANDARD = os.path.dirname(os.__file__) + os.sep
_TORCH = os.sep + "torch" + os.sep


def find(samples, torch=None, budget=0.3, own=()):
    """Returns (holders of the sampled tensors, whether the search was complete). Containers in
    `own` are the caller's.
    """
    search = Search(torch, budget, own)
    return search.run(samples), search.is_complete
