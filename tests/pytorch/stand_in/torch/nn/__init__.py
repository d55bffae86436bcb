from torch import Tensor


class Parameter(Tensor):
    requires_grad = True


class Module:
    def __init__(self):
        self._parameters, self._buffers = {}, {}
