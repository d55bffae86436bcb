"""The way from a name of the program to the tensors that it holds. Nothing here refers to an object
of the program.
"""

# A container whose earlier length is not known seems to collect tensors with so many elements.
_COLLECTS = 8


class Container:
    """A container on the way from a name to the tensors, without a reference to it.

    `limit` is the most elements that it can have, or None. `has_grown` is None where its length was
    not known before.
    """

    __slots__ = ("address", "length", "limit", "has_grown")

    def __init__(self, value, length, limit, before):
        self.address = id(value)
        self.length = length
        self.limit = limit
        known = before.get(self.address)
        self.has_grown = None if known is None else length > known

    def grow(self, length):
        """Takes a later length; None where the container is gone."""
        self.has_grown = length is not None and length > self.length
        self.length = length or self.length

    def collects(self):
        return self.has_grown or self.has_grown is None and self.length >= _COLLECTS


class Step:
    """One step of a path: `.name`, `['key']`, or `[…]` for an element. `text` is None where the
    step has no name. `keys` are the keys of a dictionary that lead to the tensors. `library` is the
    module of the object that the step leaves, if it is a library's. `mark` is buffer or parameter
    where the step leads to one of a module.
    """

    __slots__ = ("text", "name", "container", "keys", "library", "mark")

    def __init__(self, text, name=None, container=None, keys=(), mark=None):
        self.text = text
        self.name = name
        self.container = container
        self.keys = frozenset(keys)
        self.library = None
        self.mark = mark

    def joined(self, other):
        """One step for both ways."""
        if self.text == other.text:
            return self
        text = ".…" if (self.text or "").startswith(".") else "[…]"
        step = Step(text, None, self.container, self.keys | other.keys, self.mark)
        step.library = self.library
        return step


class Holder:
    """A name that holds some of the sampled tensors.

    `kind` is local, global, attribute, class, closure, hook, cache or cycle. `via` has what lies
    between the name and the tensors: traceback, optimizer, hook, buffer, parameter, module, graph,
    function, cycle.
    """

    def __init__(
        self,
        text,
        kind,
        name,
        samples,
        via=(),
        owner=None,
        line=None,
        is_module=False,
        codes=(),
        steps=(),
        frame=None,
        libraries=(),
        start=None,
    ):
        self.text = text
        # The start of the path.
        self.start = start or name
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
        self.steps = tuple(steps)
        # The `id` of the running frame whose local it is.
        self.frame = frame
        # (module, name) of the libraries' objects on the way.
        self.libraries = list(libraries)

    def container(self):
        """The innermost container that grew since the last look, else the innermost that may
        have. None: there is none.
        """
        containers = [step.container for step in self.steps if step.container]
        return next(
            (it for it in reversed(containers) if it.has_grown),
            next((it for it in reversed(containers) if it.has_grown is None), None),
        )

    def path(self):
        """The way from the name to the tensors, such as `Linear.weight.past[…]`. An unnamed step is
        `.?`.
        """
        return shown(self.start, self.steps)

    def is_filled_inside(self):
        """Whether the line is in the owner's own code."""
        return self.line.code in self.codes

    def is_named(self):
        """Whether each step from the name to the tensors has a name."""
        return all(step.text is not None for step in self.steps)

    def __repr__(self):
        return "<%s %s %s>" % (self.text, sorted(self.samples), sorted(self.via))


class Node:
    """An object on the way up, without a reference to it."""

    __slots__ = ("address", "samples", "via", "shape", "steps", "line", "others")

    def __init__(self, address, samples, via, shape, steps, line=None):
        self.address = address
        self.samples = samples
        self.via = via
        # The type of the outermost container, or "tensor".
        self.shape = shape
        # From this object down to the tensors.
        self.steps = steps
        # The user's line that a function or a traceback on the way tells.
        self.line = line
        # The ways through other keys of the same dictionary.
        self.others = []

    def ways(self):
        return [self, *self.others]

    def with_steps(self, steps, via):
        return Node(self.address, self.samples, via, self.shape, steps, self.line)

    def collects(self):
        return any(step.container and step.container.collects() for step in self.steps)

    def names(self):
        """The names on the way down to the container that collects, innermost first."""
        places = [
            at for at, step in enumerate(self.steps) if step.container and step.container.collects()
        ]
        last = places[-1] if places else 0
        return [step.name for step in reversed(self.steps[:last]) if step.name]


def member(name, container=None, mark=None):
    """A part of a module as a step: `.layer`, or `[0]` in a Sequential."""
    name = str(name)
    if name.isdigit():
        return Step("[%s]" % name, None, container, (), mark)
    return Step(".%s" % name, None if name == "…" else name, container, (), mark)


def shown(start, steps):
    """The text of a path."""
    text = start + "".join(".?" if step.text is None else step.text for step in steps)
    while ".….…" in text:
        text = text.replace(".….…", ".…")
    return text
