"""The parts that the two ways of following a training step without data share."""

import weakref

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .nested import changed, tensors_of

GRANULE = 512
# Values of whole numbers and truth values are kept up to this number of elements, for masks and
# positions that a model looks at; of others for constants.
KEPT_ELEMENTS = 1 << 20
KEPT_FLOATS = 1024


class Memory:
    """The bytes of all living storages of a device, rounded as PyTorch's allocator rounds."""

    def __init__(self, device):
        self.device = device
        self.now = self.peak = 0
        # What other GPUs hold of it, where several share a step.
        self.elsewhere = 0
        self.known = {}

    def add(self, tensor):
        if tensor.device.type != self.device:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        amount = rounded(storage.nbytes())
        self.known[key] = weakref.finalize(storage, self.drop, key, amount)
        self.now += amount
        self.momentary(0)

    def drop(self, key, amount):
        if self.known.pop(key, None) is not None:
            self.now -= amount

    def add_all(self, value):
        for tensor in tensors_of(value):
            self.add(tensor)

    def momentary(self, amount):
        """An operation took memory while it ran."""
        self.peak = max(self.peak, self.now + rounded(amount) - self.elsewhere)


def rounded(amount):
    return (amount + GRANULE - 1) // GRANULE * GRANULE


def bytes_of(tensors):
    """The bytes of tensors that share no memory."""
    return sum(rounded(tensor.numel() * tensor.element_size()) for tensor in tensors)


def _fused_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """The fused kernel that PyTorch chooses on GPUs: half precision without a mask has another
    one.
    """
    if query.dim() != 4 or query.shape[0] != key.shape[0]:
        raise ValueError("no fused kernel")
    query, key, value = (_as_autocast(tensor) for tensor in (query, key, value))
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        if query.shape[1] != key.shape[1] and not enable_gqa:
            raise ValueError("no fused kernel")
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if query.shape[1] != key.shape[1]:
        raise ValueError("no fused kernel")
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.empty_like(attn_mask, dtype=query.dtype)
        attn_mask = _as_autocast(attn_mask).expand(*query.shape[:3], key.shape[2])
    is_training = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (query, key, value)
    )
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(query, key, value, attn_mask, is_training, dropout_p, is_causal, scale=scale)[0]


def _as_autocast(tensor):
    """The tensor as autocast gives it to attention."""
    if tensor.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return tensor.to(torch.get_autocast_dtype("cuda"))
    return tensor


def _linear(input, weight, bias=None):
    """PyTorch would keep a second output for tensors without data, to which the bias is added."""
    if bias is None or input.dim() == 2 or input.dim() == 3 and input.is_contiguous():
        return functional.linear(input, weight, bias)
    return torch.matmul(input, weight.t()).add_(bias)


class OperationsOfCuda(TorchFunctionMode):
    """Attention uses a fused kernel, as on a GPU. On the meta device, dropout saves a mask of
    bytes. Tells the device which autocast was entered.
    """

    def __init__(self, device):
        super().__init__()
        self.owner, self.device = device, device.name
        self.original = functional.scaled_dot_product_attention

    def attention(self, *arguments, **keywords):
        if arguments and arguments[0].device.type != self.device:
            return self.original(*arguments, **keywords)
        try:
            return _fused_attention(*arguments, **keywords)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            # Shapes that no fused kernel has, or an older PyTorch: the whole matrix of weights is
            # computed.
            return self.original(*arguments, **keywords)

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        name = getattr(function, "__name__", "")
        if self.device == "cuda" and torch.is_autocast_enabled("cuda"):
            self.owner.autocast = str(torch.get_autocast_dtype("cuda")).split(".")[-1]
        if name == "dropout" and self.device == "meta":
            given = dict(zip(("input", "p", "training"), arguments), **keywords)
            if given.get("training", True) and 0 < given.get("p", 0.5) < 1:
                return torch.native_dropout(given["input"], given.get("p", 0.5), True)[0]
        elif function is functional.linear:
            return _linear(*arguments, **keywords)
        elif name == "scaled_dot_product_attention":
            return self.attention(*arguments, **keywords)
        elif function is functional.multi_head_attention_forward:
            # The mode does not see calls inside of this function.
            functional.scaled_dot_product_attention = self.attention
            try:
                return function(*arguments, **keywords)
            finally:
                functional.scaled_dot_product_attention = self.original
        return function(*arguments, **keywords)


class MovedTensors(TorchFunctionMode):
    """Lets a loss compute with copies of tensors: `move` returns that of a tensor, or itself."""

    def __init__(self, move):
        super().__init__()
        self.move = move

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        arguments, keywords = changed((arguments, keywords or {}), self.move)
        return function(*arguments, **keywords)
