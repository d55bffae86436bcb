"""Tensors in nested values, such as the inputs and the outputs of a model."""

import torch


def tensors_of(value):
    """The tensors in nested lists, tuples, dicts, and objects such as outputs of transformers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    if not isinstance(value, (list, tuple)):
        return []
    return [tensor for inner in value for tensor in tensors_of(inner)]


def changed(value, change):
    """A copy of nested lists, tuples and dicts, in which `change` has replaced the tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: changed(inner, change) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(changed(inner, change) for inner in value))
    if isinstance(value, (list, tuple)):
        return type(value)(changed(inner, change) for inner in value)
    return value
