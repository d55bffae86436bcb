"""Requests of the agent, and the handlers that answer them."""


class Request:
    """A request. `answer` or `fail` is called once, in any thread, at any time."""

    def __init__(self, requests, content):
        self._requests = requests
        self.arguments = content
        self.id, self.name = content.get("id"), content.get("request")

    def answer(self, **content):
        self._requests.answer = dict(content, id=self.id, request=self.name, ok=True)

    def fail(self, sentence):
        self._requests.answer = {
            "id": self.id,
            "request": self.name,
            "ok": False,
            "error": sentence,
        }


class Requests:
    def __init__(self):
        self.answer = None
        self._handlers = {}

    def on(self, name, handler):
        """`handler(request)` runs in the probe's thread, where no tensor may be looked at: see
        `Probe.in_program`.
        """
        self._handlers[name] = handler

    def handle(self, content):
        request = Request(self, content)
        handler = self._handlers.get(request.name)
        if handler is None:
            request.fail("unknown request")
            return
        try:
            handler(request)
        except Exception as error:
            request.fail("%s: %s" % (type(error).__name__, error))
            raise
