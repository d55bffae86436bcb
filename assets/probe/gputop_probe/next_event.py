"""Reaches a thread of the program while its main thread waits in C, as a server does that joins its
workers: from Python 3.12 on, `sys.monitoring` tells when any thread runs Python code.
"""

import sys
from _thread import get_ident

# 0 to 2 belong to debuggers, coverage and profilers; 5 to optimizers.
_TOOLS = (3, 4)


class NextEvent:
    """Calls a function once, in the next thread that begins a Python function or loops. It costs
    the program one event: it is switched off then.
    """

    def __init__(self, function):
        self._function = function
        self._tool = self._own_thread = None

    def is_on(self):
        return self._tool is not None

    def switch_on(self):
        """Call it in the probe's thread, whose own events do not count. Returns whether it is on:
        it is not before Python 3.12, or where other tools have taken the numbers.
        """
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None or self.is_on():
            return self.is_on()
        for tool in _TOOLS:
            if monitoring.get_tool(tool) is None:
                try:
                    monitoring.use_tool_id(tool, "gputop")
                except ValueError:
                    # Another thread was faster.
                    continue
                self._tool, self._own_thread = tool, get_ident()
                events = monitoring.events
                for event in (events.PY_START, events.JUMP):
                    monitoring.register_callback(tool, event, self._happened)
                monitoring.set_events(tool, events.PY_START | events.JUMP)
                return True
        return False

    def switch_off(self):
        tool, self._tool = self._tool, None
        if tool is None:
            return
        monitoring = sys.monitoring
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        for event in (monitoring.events.PY_START, monitoring.events.JUMP):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    def _happened(self, *_):
        if self._tool is None or get_ident() == self._own_thread:
            return
        self.switch_off()
        self._function()
