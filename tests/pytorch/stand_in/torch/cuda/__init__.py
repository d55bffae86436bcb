import threading
import traceback

_initialized = False
_queued_calls = []
_lock = threading.Lock()


def is_initialized():
    return _initialized


def _lazy_call(callable):
    if _initialized:
        callable()
    else:
        _queued_calls.append((callable, traceback.format_stack()))


def _lazy_init():
    global _initialized
    if _initialized:
        return
    with _lock:
        for callable, _ in _queued_calls:
            callable()
        _initialized = True


def device_count():
    return 1


def get_device_properties(device):
    class Properties:
        uuid = "00000000-0000-0000-0000-000000000001"

    return Properties
