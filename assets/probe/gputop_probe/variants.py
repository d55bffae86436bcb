"""Changes of a model that save memory, to see what they would save."""

import inspect

import torch
from torch.utils.checkpoint import checkpoint


class Refusal(ValueError):
    """A sentence for the user, about the model."""


def checkpoint_blocks(model):
    """Lets each repeated block of the model compute its activations again in the backward pass.

    A model of transformers does so itself.
    """
    own = getattr(model, "gradient_checkpointing_enable", None)
    if own is not None:
        own(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    found = repeated_blocks(model)
    if not found:
        raise Refusal("--checkpoint finds no list of blocks of one class in the model")
    classes = {}
    for block in found:
        kind = type(block)
        if kind not in classes:
            classes[kind] = _checkpointed(kind)
        # A block stays the object that it is, with its class as a base.
        block.__class__ = classes[kind]


def repeated_blocks(module):
    """The outermost modules of one class, with modules of their own, in a list or a sequence."""
    if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
        kinds = [
            type(child) for child in module if _sizes(child) is None and list(child.children())
        ]
        blocks = [child for child in module if kinds.count(type(child)) > 1]
        if blocks:
            return blocks
    return [block for child in module.children() for block in repeated_blocks(child)]


def _checkpointed(kind):
    def forward(self, *arguments, **keywords):
        def inner(*given, **named):
            return kind.forward(self, *given, **named)

        if not (self.training and torch.is_grad_enabled()):
            return inner(*arguments, **keywords)
        return checkpoint(inner, *arguments, use_reentrant=False, **keywords)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def add_adapters(model, rank):
    """Freezes the model, and adds trainable adapters of LoRA to its linear layers, but the output
    head: those that "all-linear" of peft takes. Returns a sentence that names the layers.

    As in peft, the weights of an adapter are in single precision.
    """
    head = _output_head(model)
    layers = [(name, module) for name, module in _linear_layers(model) if module is not head]
    if not layers:
        raise Refusal("--lora finds no linear layer besides the output head in the model")
    model.requires_grad_(False)
    classes = {}
    for _, module in layers:
        inside, outside = _sizes(module)
        place = {"device": module.weight.device, "dtype": torch.float32}
        module.lora_a = torch.nn.Linear(inside, rank, bias=False, **place)
        module.lora_b = torch.nn.Linear(rank, outside, bias=False, **place)
        kind = type(module)
        if kind not in classes:
            classes[kind] = _adapted(kind)
        module.__class__ = classes[kind]
    kinds = sorted({_kind_of_name(name) for name, _ in layers})
    heads = [name for name, module in model.named_modules() if module is head]
    return "LoRA of rank %d at %d linear layers (%s)%s; all other weights are frozen" % (
        rank,
        len(layers),
        ", ".join(kinds),
        ", not at the output head (%s)" % heads[0] if heads else "",
    )


def _kind_of_name(name):
    """`mlp.0` of `layers.3.mlp.0`, `query` of `layers.3.attention.query`."""
    words = name.split(".")
    first = next((place for place in range(len(words), 0, -1) if not words[place - 1].isdigit()), 1)
    return ".".join(words[max(0, first - 1) :])


def optimizer_of_adapters(optimizer, model):
    """An optimizer like the one that the user's function made, but of the adapters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    known = inspect.signature(type(optimizer)).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in known}
    try:
        return type(optimizer)(parameters, **options)
    except Exception as error:
        raise Refusal(
            "--lora cannot make the optimizer %s of the adapters (%s): name one with --optimizer"
            % (type(optimizer).__name__, error)
        ) from error


def _output_head(model):
    """The layer that computes the outputs: a model of transformers knows it; else the last linear
    layer. None: there is none.
    """
    for module in model.modules():
        known = getattr(module, "get_output_embeddings", None)
        if known is not None:
            return known()
    linear = _linear_layers(model)
    return linear[-1][1] if linear else None


def _linear_layers(model):
    """The linear layers and their names, without those of PyTorch's MultiheadAttention, which uses
    their weights and does not call them.
    """
    inside = {
        id(module)
        for attention in model.modules()
        if isinstance(attention, torch.nn.MultiheadAttention)
        for module in attention.modules()
    }
    return [
        (name, module)
        for name, module in model.named_modules()
        if id(module) not in inside and _sizes(module) is not None
    ]


def _sizes(module):
    """The numbers of inputs and outputs of a linear layer. None: it is none."""
    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        # The linear layer of GPT-2 in transformers.
        return tuple(module.weight.shape)
    return None


def _adapted(kind):
    def forward(self, x):
        result = kind.forward(self, x)
        # A factor scales what the adapter adds.
        added = self.lora_b(self.lora_a(x.to(self.lora_a.weight.dtype))) * 2.0
        return (result + added).to(result.dtype)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
