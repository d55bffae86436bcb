"""Keeps errors of the probe away from the program, and tells the agent of them."""

import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 8


class Troubles:
    """At most LIMIT sentences for the agent."""

    def __init__(self):
        self.sentences = []

    def add(self, sentence):
        if sentence not in self.sentences and len(self.sentences) < LIMIT:
            self.sentences.append(sentence)

    def add_first(self, sentence):
        """Adds a sentence in front, where there are LIMIT others, too."""
        self.sentences = [sentence, *self.sentences][:LIMIT]

    def add_error(self, doing, error):
        place = _innermost(error)
        self.add("%s failed: %s: %.200s (%s)" % (doing, type(error).__name__, error, place))


def is_ours(error):
    """Whether the probe caused the error, rather than a signal handler of the program that
    interrupted it.
    """
    return _innermost(error).startswith(("gputop_probe/", "torch/", "python/"))


def pass_on_if_foreign(error):
    """Raises the error again unless the probe caused it. Each `except Exception` in a thread of the
    program must call this.

    Code of the probe may be interrupted there by a signal handler of the program, such as one that
    raises TimeoutError. That error is the program's, and must reach it.
    """
    if not is_ours(error):
        raise error


def _innermost(error):
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "gputop_probe/?"
    file = trace.tb_frame.f_code.co_filename
    torch = getattr(sys.modules.get("torch"), "__file__", None) or "/?"
    for folder, name in ((HERE, "gputop_probe"), (os.path.dirname(torch), "torch")):
        if file.startswith(folder + "/"):
            return "%s%s:%d" % (name, file[len(folder) :], trace.tb_lineno)
    python = os.path.dirname(threading.__file__) + "/"
    if file.startswith("<frozen") or file.startswith(python) and "-packages/" not in file:
        return "python/%s:%d" % (os.path.basename(file), trace.tb_lineno)
    return file
