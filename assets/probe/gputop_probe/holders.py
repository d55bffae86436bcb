"""Finds the holders of tensors: from sampled tensors up to a name that the user knows.

One `gc.get_referrers` call per level covers all samples. Nothing that this module keeps refers to
an object of the program: what it returns is text, numbers, and code objects.
"""

import collections
import gc
import sys
import time
import types

from . import code_lines, cycles, frames
from .authors import HERE, is_library, is_of_user, library_of, only_of_user
from .lengths import CONTAINERS, attributes_of, length_of
from .paths import Container, Holder, Node, Step, member, shown

_PACKAGE = __name__.split(".")[0]
_LEVELS = 24
# More objects than this on one level are not names but a data structure that everything refers to.
_BREADTH = 400
# Of so many tensors it is proven that only reference cycles hold them.
_PROOFS = 2
# So many keys of one dictionary are told apart.
_WAYS = 16
# An element of a list or dictionary may hold so many tensors.
_PER_ELEMENT = 3
_CELL = frames._CELL
# The dictionaries of an nn.Module, and what they are called in `via`.
_MARKS = {"_buffers": "buffer", "_parameters": "parameter", "_modules": None}


def _count_of_listed():
    """What `sys.getrefcount` says of an object that only a list and a local refer to: that
    depends on the version of Python.
    """
    for value in [tuple([None])]:
        return sys.getrefcount(value)


_ONLY_LISTED = _count_of_listed()


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
    """One search. `torch` may be None (plain Python objects); `budget` is CPU time in seconds.

    `before` has the lengths of the containers of the last search, by their address; `parents` the
    module that a module is part of, and the name in it, by the module's `id`; `parameters` returns
    the parameters of the modules.
    """

    def __init__(self, torch=None, budget=0.3, own=(), before=None, parents=None, parameters=None):
        self.tensor = torch.Tensor if torch else ()
        self.module = torch.nn.Module if torch else ()
        self.optimizer = torch.optim.Optimizer if torch else ()
        self.before = before or {}
        self.parents = parents or {}
        self.parameters = parameters
        self.deadline = time.thread_time() + budget
        self.running = frames.running(HERE)
        self.skip = {id(frame) for frame in self.running} | {id(value) for value in own}
        self.skip.add(id(self.parents))
        self.locals = [(frame, frames.names_of_locals(frame)) for frame in self.running]
        self.found = []
        # The answer for tensors that no name of the user holds: attributes of objects that are
        # elements of something, and names of libraries.
        self.elements = []
        self.weak = []
        # By address: the shape of what is in a cell.
        self.cells = {}
        # By address: the samples that an optimizer holds.
        self.optimizers = {}
        # The lengths of all containers that were passed.
        self.lengths = {}
        # Samples that something other than a Python object holds.
        self.outside = set()
        self.cycles = frozenset()
        self.is_complete = True
        self._codes = None

    def is_a(self, value, kind):
        return bool(kind) and issubclass(type(value), kind)

    def run(self, samples):
        """Returns the holders of `samples`, the one of most samples first. The caller's list is
        not reported.
        """
        level = {}
        for at, value in enumerate(samples):
            level[id(value)] = Node(
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
            else:
                self.is_complete = False
        finally:
            objects = None
            self.running = self.locals = self.parents = None
        named = frozenset().union(*(holder.samples for holder in self.found))
        if self.is_complete:
            unnamed = frozenset(range(len(samples))) - named - self.outside
            # The lists of the caller are no holders.
            skip = self.skip | {id(samples), id(self.__dict__)} | frames.above()
            some = sorted(unnamed)[:: max(1, len(unnamed) // _PROOFS)][:_PROOFS]
            if some and all(cycles.is_in_cycle(samples[at], skip) for at in some):
                self.cycles = unnamed
        for holder in self.weak + self.elements:
            if not holder.samples <= named:
                if holder.samples <= self.cycles:
                    holder.via |= {"cycle"}
                self._name(holder)
        if self.cycles and not any("cycle" in holder.via for holder in self.found):
            self._name(Holder("a reference cycle", "cycle", "the cycle", self.cycles, {"cycle"}))
        self.found.sort(
            key=lambda holder: (-len(holder.samples), holder.kind != "local", holder.text)
        )
        return self.found

    def _name(self, holder):
        for other in self.found:
            if other.text == holder.text:
                other.samples |= holder.samples
                other.via |= holder.via
                mine, its = other.container(), holder.container()
                if its and its.has_grown and not (mine and mine.has_grown):
                    other.steps = holder.steps
                return
        self.found.append(holder)

    def _user_codes(self):
        """The code of the program's own modules that have a running frame."""
        if self._codes is None:
            self._codes, seen = [], set()
            for frame in self.running:
                namespace = frame.f_globals
                if id(namespace) not in seen and not is_library(frame.f_code.co_filename):
                    seen.add(id(namespace))
                    self._codes += code_lines.codes_of_module(namespace, [frame])
        return self._codes

    def _user_line(self, node, library):
        """The line of the program next to an object of a library: where a function on the way is,
        or keys on the way are written, or the running line that called the library.
        """
        if node.line:
            return node.line
        keys = [key for step in node.steps for key in sorted(step.keys)]
        line = code_lines.key_line(self._user_codes(), keys) if keys else None
        if line:
            return line
        package = (library or "").split(".")[0]
        modules = [(frame.f_globals.get("__name__") or "").split(".")[0] for frame in self.running]
        if package not in modules:
            return None
        frame = self.running[modules.index(package)]
        while frame is not None and is_library(frame.f_code.co_filename):
            frame = frame.f_back
        return code_lines.Line(frame.f_code, frame.f_lineno) if frame else None

    def _weak(self, text, kind, node, name=None, owner=None, library=None, steps=None, codes=()):
        """The holder for tensors that only an object of a library holds, with the user's line next
        to it.
        """
        line = self._user_line(node, library)
        steps = node.steps if steps is None else steps
        libraries = [(library, name or "")] if library else []
        keys = [step.text for step in steps if step.keys and len(step.keys) == 1]
        return Holder(
            text + "".join(keys) + (", %s" % line if line else ""),
            kind,
            name or text,
            node.samples,
            node.via | {"library"},
            owner,
            line,
            codes=codes,
            steps=steps,
            libraries=libraries + _libraries(node.steps),
            start=text,
        )

    def _locals(self, address, node):
        """Names an object that is a local of a running frame. Returns whether it is."""
        is_local = False
        for frame, names in self.locals:
            name = names.get(address)
            if name is None:
                continue
            self.outside |= node.samples
            if node.shape == "Parameter":
                # The variable of a loop: the module says more.
                continue
            code = frame.f_code
            if is_library(code.co_filename):
                # An argument of a library's function on the stack, such as `self`, says nothing.
                if name not in _arguments(code):
                    text = "%s %s of %s" % (node.shape, name, code.co_name)
                    module = frame.f_globals.get("__name__") or "?"
                    codes = list(code_lines.codes_in(code))
                    holder = self._weak(text, "local", node, name, None, module, None, codes)
                    self.weak.append(holder)
                continue
            codes = list(code_lines.codes_in(code))
            line = (
                code_lines.fill_line(codes, name, code_lines.FILLS)
                or node.line
                or code_lines.fill_line(codes, name)
                or code_lines.Line(frame.f_code, frame.f_lineno)
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
                    steps=node.steps,
                    frame=id(frame),
                )
            )
            is_local = True
            break
        return is_local

    def _up(self, objects, level, seen, own):
        """One level: names what can be named, and returns the objects that hold the rest."""
        for value in objects:
            if any([self._locals(id(value), way) for way in level[id(value)].ways()]):
                level[id(value)] = None
        targets = [value for value in objects if level[id(value)] is not None]
        skip = self.skip | {id(objects), id(targets)} | set(own) | frames.above()
        above, nodes, attributes, held, asked = [], {}, {}, set(), []
        skip.add(id(asked))
        for value in targets:
            parent = self.parents.get(id(value))
            if parent is None:
                asked.append(value)
            else:
                # A module is part of another: the dictionary between them is not searched for.
                held.add(id(value))
                module, name = parent
                members = attributes_of(module) or {}
                container = self._container(module, len(members.get("_modules") or ()), None)
                for way in level[id(value)].ways():
                    steps = (member(name, container),) + way.steps
                    self._owner(module, way, steps, attributes)
        parent = module = members = None
        referrers = gc.get_referrers(*asked) if asked else []
        wanted = [id(value) for value in asked]
        del targets, asked
        for value in referrers:
            address = id(value)
            # From Python 3.13 on, the arguments of the call above are among the referrers. Nothing
            # else refers to them.
            if (
                type(value) is tuple
                and sys.getrefcount(value) <= _ONLY_LISTED
                and [id(it) for it in value] == wanted
            ):
                continue
            if (
                address in skip
                or type(value) is types.ModuleType
                or type(value).__module__.startswith(_PACKAGE)
            ):
                continue
            for hit, key in self._hits(value, level):
                held.add(hit.address)
                self._climb(value, hit, key, above, nodes, attributes, seen)
        value = None
        unheld = [address for address in wanted if address not in held]
        if unheld and self.parameters:
            # A tensor that C++ refers to, too, hides its attributes from the garbage collector.
            for value in self.parameters():
                address = id(attributes_of(value))
                if address in unheld:
                    unheld.remove(address)
                    for way in level[address].ways():
                        self._climb(value, way, None, above, nodes, attributes, seen)
        value = None
        for address in unheld:
            self.outside |= level[address].samples
        self._settle(attributes, above, nodes, seen)
        return above, nodes

    def _hits(self, value, level):
        """Which of the level's objects `value` refers to: [(node, key)]."""
        kind = type(value)
        if issubclass(kind, dict):
            held = [(level.get(id(it)), key) for key, it in list(dict.items(value))]
        else:
            parts = (
                list(list.__iter__(value)) if issubclass(kind, list) else gc.get_referents(value)
            )
            held = [(level.get(id(it)), None) for it in parts]
        return [(way, key) for node, key in held if node is not None for way in node.ways()]

    def _container(self, value, length, limit):
        self.lengths[id(value)] = length
        return Container(value, length, limit, self.before)

    def _climb(self, value, node, key, above, nodes, attributes, seen):
        """Handles that `value` refers to the object of `node`, below `key` where it is a
        dictionary.
        """
        kind = type(value)
        via = node.via
        if kind is dict and "__name__" in value and "__builtins__" in value and type(key) is str:
            self._global(value, node, key)
        elif kind is types.FrameType:
            name = frames.names_of_locals(value).get(node.address)
            step = Step(None if name is None else ".%s" % name, name)
            self._add(value, node, via | {"frame"}, node.shape, step, above, nodes, seen)
        elif kind is types.TracebackType or issubclass(kind, BaseException):
            line = node.line
            if kind is types.TracebackType and not is_library(value.tb_frame.f_code.co_filename):
                line = code_lines.handler_line(value.tb_frame.f_code, value.tb_lasti) or line
            self._add(
                value, node, via | {"traceback"}, "exception", Step(""), above, nodes, seen, line
            )
        elif kind is _CELL or kind is types.MethodType:
            self.cells[id(value)] = node.shape
            self._add(value, node, via, node.shape, Step(""), above, nodes, seen)
        elif kind is types.FunctionType:
            if not self._closure(value, node, attributes):
                code = value.__code__
                line = (
                    None
                    if is_library(code.co_filename)
                    else code_lines.Line(code, code.co_firstlineno)
                )
                step = Step("")
                self._add(
                    value, node, via | {"function"}, node.shape, step, above, nodes, seen, line
                )
        elif kind is types.GeneratorType or kind is types.CoroutineType:
            step = Step("%s()" % value.__name__, value.__name__)
            self._add(value, node, via, kind.__name__, step, above, nodes, seen)
        elif kind.__name__ == "_lru_cache_wrapper" and kind.__module__ == "functools":
            self._cache(value, node)
        elif issubclass(kind, CONTAINERS):
            self._climb_container(value, node, key, above, nodes, seen)
        elif isinstance(kind, type) and issubclass(kind, type):
            self._class(value, node)
        else:
            self._climb_owner(value, node, above, nodes, attributes, seen)

    def _climb_container(self, value, node, key, above, nodes, seen):
        kind = type(value)
        limit = value.maxlen if issubclass(kind, collections.deque) else None
        is_fixed = issubclass(kind, (tuple, frozenset))
        container = None if is_fixed else self._container(value, length_of(value), limit)
        step = (
            Step("['%s']" % key[:40], key, container, [key])
            if type(key) is str
            else Step("[…]", None, container)
        )
        # Small tuples and records are parts of the container above them.
        shape = node.shape if is_fixed and node.shape not in ("tensor",) else kind.__name__
        self._add(value, node, node.via, shape, step, above, nodes, seen)

    def _global(self, namespace, node, name):
        module = namespace["__name__"]
        if name in ("Out", "_oh") and "get_ipython" in namespace:
            self._name(self._weak("Out", "global", node, "Out", None, "IPython"))
            return
        is_own = module == "__main__" or not is_library(namespace.get("__file__") or "")
        text = "global %s" % name if module == "__main__" else "global %s.%s" % (module, name)
        if not is_own:
            self.weak.append(self._weak(text, "global", node, name, None, module))
            return
        codes = only_of_user(code_lines.codes_of_module(namespace, self.running))
        names = [*node.names(), name]
        line = (
            next(
                filter(None, (code_lines.fill_line(codes, it, code_lines.FILLS) for it in names)),
                None,
            )
            or node.line
            or self._fill_line(codes, names)
        )
        self._name(
            Holder(
                text + (", %s" % line if line else ""),
                "global",
                name,
                node.samples,
                node.via,
                None,
                line,
                codes=codes,
                steps=node.steps,
            )
        )

    def _fill_line(self, codes, names):
        """The line that fills one of the names, the first if possible: one that adds to it, in the
        code of its owner or elsewhere in the program; else one that assigns it.
        """
        for name in names:
            line = code_lines.fill_line(codes, name, code_lines.ADDS) or code_lines.fill_line(
                self._user_codes(), name, code_lines.FILLS
            )
            if line:
                return line
        return next(filter(None, (code_lines.fill_line(codes, name) for name in names)), None)

    def _class(self, kind, node):
        name = node.steps[0].name if node.steps else None
        if name is None:
            return
        codes = only_of_user(code_lines.codes_of_class(kind))
        line = self._fill_line(codes, [*node.names(), name])
        text = "%s.%s" % (kind.__name__, name) + (", %s" % line if line else "")
        rest = node.steps[1:]
        holder = Holder(
            text,
            "class",
            name,
            node.samples,
            node.via,
            kind.__name__,
            line,
            codes=codes,
            steps=rest,
        )
        if is_of_user(kind):
            self._name(holder)
        else:
            text = "%s.%s" % (kind.__name__, name)
            owner, module = kind.__name__, kind.__module__
            self.weak.append(self._weak(text, "class", node, name, owner, module, rest))

    def _cache(self, wrapper, node):
        """Names the cache of a function that functools.lru_cache decorates."""
        code = getattr(getattr(wrapper, "__wrapped__", None), "__code__", None)
        info = wrapper.cache_info()
        container = self._container(wrapper, info.currsize, info.maxsize)
        name = getattr(wrapper, "__name__", "?")
        line = code_lines.Line(code, code.co_firstlineno) if code else None
        text = "lru_cache of %s" % name + (", %s" % line if line else "")
        steps = (Step("(…)", name, container),) + node.steps
        libraries = [("functools", name)]
        self._name(
            Holder(
                text,
                "cache",
                name,
                node.samples,
                node.via,
                None,
                line,
                steps=steps,
                libraries=libraries,
            )
        )

    def _closure(self, function, node, attributes):
        """Notes the variable of a closure. Returns whether there is one."""
        code = function.__code__
        if node.address != id(function.__closure__) or is_library(code.co_filename):
            return False
        for name, cell in zip(code.co_freevars, function.__closure__):
            if id(cell) in self.cells:
                entry = attributes.setdefault((code, name), ([], []))
                entry[0].append(function)
                entry[1].append(node)
                node.shape = self.cells[id(cell)]
                return True
        return False

    def _climb_owner(self, value, node, above, nodes, attributes, seen):
        """Handles an object that has the object of `node` as an attribute."""
        kind = type(value)
        steps = self._attribute(value, node)
        if steps is None:
            self._add(value, node, node.via, kind.__name__, Step(None), above, nodes, seen)
            return
        name = steps[0].name or ""
        mark = (
            "optimizer"
            if self.is_a(value, self.optimizer)
            else "tensor"
            if self.is_a(value, self.tensor) or kind.__module__.startswith("torch.autograd")
            else None
        )
        if mark is None or name.endswith("_hooks"):
            self._owner(value, node, steps, attributes)
            return
        if mark == "optimizer":
            self.optimizers.setdefault(id(value), set()).update(node.samples)
        line = node.line
        if mark == "tensor" and node.collects() and line is None:
            line = code_lines.fill_line(self._user_codes(), name)
        below = node.with_steps(steps[1:], node.via | {mark})
        self._add(value, below, below.via, kind.__name__, steps[0], above, nodes, seen, line)

    def _owner(self, value, node, steps, attributes):
        """Notes that the first of `steps` leads from `value` to the tensors. Settled when the whole
        level is known: each sample in an object of its own is an element, not the owner.
        """
        entry = attributes.setdefault((type(value), steps[0].text), ([], []))
        entry[0].append(value)
        entry[1].append(node.with_steps(steps, node.via))

    def _attribute(self, value, node):
        """The steps from `value` to the tensors, through the attribute that holds the object of
        `node`; None where it has no name.
        """
        found = attributes_of(value)
        if found is not None and node.address == id(found):
            # The dictionary of the attributes is no container.
            first = node.steps[0]
            name = first.name
            if name is None:
                return None
            rest = node.steps[1:]
        else:
            name = next(
                (name for name, held in list((found or {}).items()) if id(held) == node.address),
                None,
            ) or next((name for name, held in _slots(value) if id(held) == node.address), None)
            if name is None:
                return None
            rest = node.steps
        name = str(name)
        if name in _MARKS and rest and self.is_a(value, self.module):
            # nn.Module keeps its buffers, parameters and parts in dictionaries.
            container = rest[0].container if name == "_modules" else None
            return (member(rest[0].name or "…", container, _MARKS[name]),) + rest[1:]
        return (Step(".%s" % name, name),) + rest

    def _settle(self, attributes, above, nodes, seen):
        for (kind, text), (owners, pairs) in attributes.items():
            if isinstance(kind, types.CodeType):
                self._settle_closure(kind, text, owners, pairs, above, nodes, seen)
                continue
            samples = set().union(*(node.samples for node in pairs))
            step = pairs[0].steps[0]
            is_module = bool(self.module) and issubclass(kind, self.module)
            if step.mark:
                for node in pairs:
                    node.via |= {step.mark}
            if (step.name or "").endswith("_hooks"):
                self._hook(kind, step.name, pairs, samples, is_module)
                continue
            chosen = next((node for node in pairs if node.collects()), pairs[0])
            collects = chosen.collects()
            is_element = not collects and (
                step.mark == "parameter"
                or step.mark is None
                and _are_elements(owners, samples, is_module)
            )
            is_own = (
                is_of_user(kind)
                or step.mark == "buffer"
                or bool(chosen.line and "tensor" in chosen.via)
            )
            codes = only_of_user(code_lines.codes_of_class(kind)) if is_own else []
            line = chosen.line
            if is_own and line is None:
                line = self._fill_line(codes, [*chosen.names(), step.name])
            via = frozenset().union(*(node.via for node in pairs))
            # The dictionary of a module's parts is a container: it stays a step.
            inside = (Step("", None, step.container),) if step.container else ()
            rest, name = inside + chosen.steps[1:], step.name or text
            if "tensor" in chosen.via and chosen.names():
                # The name is that of an attribute of a tensor.
                while rest and rest[0].name != chosen.names()[0]:
                    text, rest = text + (rest[0].text or ".?"), rest[1:]
                text, rest, name = text + rest[0].text, rest[1:], chosen.names()[0]
            start = shown(kind.__name__ + text, ())
            holder = Holder(
                start + (", %s" % line if line else ""),
                "attribute",
                name,
                samples,
                via,
                kind.__name__,
                line,
                is_module,
                codes,
                rest,
                None,
                _libraries(chosen.steps),
                start,
            )
            if is_own and not is_element:
                self._name(holder)
                continue
            for node in pairs:
                node.steps[0].library = library_of(kind)
            if is_element:
                self.elements.append(holder)
            else:
                node = chosen.with_steps(chosen.steps, via)
                node.samples = samples
                library = library_of(kind)
                self.weak.append(
                    self._weak(start, "attribute", node, name, kind.__name__, library, rest)
                )
            for value, node in zip(owners, pairs):
                self._add(
                    value,
                    node.with_steps(node.steps[1:], node.via),
                    node.via | ({"module"} if is_module else set()),
                    kind.__name__,
                    node.steps[0],
                    above,
                    nodes,
                    seen,
                    node.line,
                )

    def _settle_closure(self, code, name, functions, pairs, above, nodes, seen):
        """Names a variable of a closure whose function no longer runs, unless each function holds
        few of the samples: such as a hook that is registered in each step.
        """
        samples = set().union(*(node.samples for node in pairs))
        if len({id(it) for it in functions}) > 1 and _are_elements(functions, samples, False):
            for function, node in zip(functions, pairs):
                line = code_lines.Line(code, code.co_firstlineno)
                via = node.via | {"function"}
                self._add(function, node, via, node.shape, Step(""), above, nodes, seen, line)
            return
        node = next((node for node in pairs if node.collects()), pairs[0])
        codes = list(code_lines.codes_in(code))
        line = code_lines.fill_line(codes, name) or code_lines.Line(code, code.co_firstlineno)
        text = "%s %s, %s" % (node.shape, name, line)
        self._name(
            Holder(text, "closure", name, samples, node.via, None, line, False, codes, node.steps)
        )

    def _hook(self, kind, name, pairs, samples, is_module):
        line = next((node.line for node in pairs if node.line), None)
        text = "%s on %s" % (_words(name), kind.__name__)
        self._name(
            Holder(
                text + (", %s" % line if line else ""),
                "hook",
                name,
                samples,
                frozenset().union(*(node.via for node in pairs)) | {"hook"},
                kind.__name__,
                line,
                is_module,
                steps=pairs[0].steps[1:],
                start="%s.%s" % (kind.__name__, name),
            )
        )

    def _add(self, value, node, via, shape, step, above, nodes, seen, line=None):
        address = id(value)
        other = nodes.get(address)
        steps = (step,) + node.steps if step.text != "" or step.container else node.steps
        if other is not None:
            first = other
            for way in other.ways():
                if way.steps[:1] and steps and way.steps[0].text == steps[0].text:
                    other = way
                    break
            else:
                if steps and steps[0].keys and len(first.others) < _WAYS:
                    way = Node(address, set(node.samples), frozenset(via), shape, steps)
                    way.line = line or node.line
                    first.others.append(way)
                    return
            other.samples |= node.samples
            other.via |= via
            if other.steps and steps:
                other.steps = (other.steps[0].joined(steps[0]),) + other.steps[1:]
            return
        if address in seen:
            return
        seen.add(address)
        nodes[address] = Node(
            address, set(node.samples), frozenset(via), shape, steps, line or node.line
        )
        above.append(value)


def _arguments(code):
    flags = code.co_flags
    count = code.co_argcount + code.co_kwonlyargcount + bool(flags & 4) + bool(flags & 8)
    return code.co_varnames[:count]


def _libraries(steps):
    return [(step.library, step.name or "") for step in steps if step.library]


def _are_elements(owners, samples, is_module):
    """Whether each of the owners has few of the samples."""
    count = len({id(owner) for owner in owners})
    return count > 1 and (is_module or _PER_ELEMENT * count >= len(samples))


def _words(name):
    """`_forward_hooks` as words: forward hook."""
    return name.strip("_").replace("_", " ")[:-1]


def find(samples, torch=None, budget=0.3, own=()):
    """Returns (holders of the sampled tensors, whether the search was complete). Containers in
    `own` are the caller's.
    """
    search = Search(torch, budget, own)
    return search.run(samples), search.is_complete
