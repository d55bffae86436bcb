"""The memory of one GPU in a training step that n GPUs share, by formula.

The step runs as on one GPU. At each time of it, one of n GPUs holds an nth of what is sharded:

    ZeRO stage 1          the state of the optimizer
    ZeRO stage 2          and gradients, from when the backward pass has made them
    ZeRO stage 3, FSDP    and parameters

and of the memory that the optimizer takes while it runs. It needs some parameters and gradients
whole for a moment:

    FSDP, which is `fully_shard` of each repeated block and of the model:
      forward             two blocks: the one that runs, and the buffer of an all-gather
      backward            their gradients too, and the buffer of the reduce-scatter
      both                the parameters outside of blocks, and their gradients
    ZeRO stage 3, forward the module with most parameters of its own
      backward            its gradients too

Sources: "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (Rajbhandari et al.,
2020), "Memory Requirements" in the documentation of DeepSpeed, and `torch.distributed.fsdp`.
`tests/pytorch/estimate_check.py` compares FSDP and stage 1 with those of PyTorch.
"""

from .step_memory import bytes_of, rounded
from .variants import repeated_blocks


class Sharding:
    """How a training step is shared. `kind` is "fsdp" or "zero"; None: one GPU holds all of it.
    FSDP shards what stage 3 shards.
    """

    def __init__(self, kind=None, gpus=1, stage=0):
        self.kind, self.gpus = kind, gpus
        self.stage = 3 if kind == "fsdp" else stage

    def part(self, amount):
        """The bytes that one GPU has of an amount that is sharded."""
        return rounded(-(-amount // self.gpus))

    def elsewhere(self, amount):
        """The bytes that it does not have."""
        return max(0, amount - self.part(amount))

    def by_formula(self):
        """The names of the parts that one GPU does not hold as the step held them."""
        shared = ["optimizer_state", "gradients", "parameters"][: self.stage]
        return shared + (["gathered"] if self.stage == 3 else []) + (["peak"] if shared else [])

    def assumptions(self, model):
        """The assumptions of the formula, as sentences."""
        if self.kind is None:
            yield "one GPU"
        elif self.kind == "zero":
            yield "ZeRO stage %d over %d GPUs, by formula: all figures are of one GPU" % (
                self.stage,
                self.gpus,
            )
            yield "ZeRO: DeepSpeed adds buckets (reduce_bucket_size)%s; with bf16 or fp16, %s" % (
                " and parameters that it keeps whole (stage3_max_live_parameters)"
                if self.stage == 3
                else "",
                "weights in single precision",
            )
        else:
            yield "FSDP over %d GPUs, by formula: all figures are of one GPU" % self.gpus
            if repeated_blocks(model):
                yield "FSDP: fully_shard of each repeated block and of the model, in its data types"
            else:
                yield (
                    "FSDP: the model has no list of blocks of one class, "
                    "so all of it is whole during a step"
                )


class OneOfSeveral:
    """One of the GPUs. Tells a memory how much is elsewhere while a step of a model runs."""

    def __init__(self, sharding, model, memory):
        self.sharding, self.memory = sharding, memory
        parameters = list(model.parameters())
        if sharding.kind == "fsdp":
            units = [list(block.parameters()) for block in repeated_blocks(model)]
        else:
            units = [list(module.parameters(recurse=False)) for module in model.modules()]
        inside = {id(parameter) for unit in units for parameter in unit}
        outside = [parameter for parameter in parameters if id(parameter) not in inside]
        # Those outside of units are whole during a step. So is what no unit shards.
        whole = outside if sharding.stage == 3 else parameters
        largest = max(units, key=bytes_of, default=[]) if sharding.stage == 3 else []
        copies = 2 if sharding.kind == "fsdp" else 1
        self.in_forward = copies * bytes_of(largest)
        self.in_backward = self.in_forward + copies * bytes_of(_trained(largest))
        self.parameters = bytes_of(parameters)
        self.whole_parameters = bytes_of(whole)
        self.gradients = bytes_of(_trained(parameters))
        # The gradients of these are sharded while the backward pass runs.
        early = inside if sharding.stage >= 2 else ()
        self.reduced = set()
        for parameter in _trained(parameters):
            if id(parameter) in early:
                parameter.register_post_accumulate_grad_hook(self.has_gradient)

    def has_gradient(self, parameter):
        """Its gradient is reduced, and each GPU keeps its part."""
        if id(parameter) not in self.reduced:
            self.reduced.add(id(parameter))
            self.memory.elsewhere += self.sharding.elsewhere(bytes_of([parameter.grad]))

    def before_forward(self, state, gradients):
        """The optimizer has that much state. Gradients of the step before are there, or none."""
        elsewhere = self.sharding.elsewhere
        self.memory.elsewhere = (
            elsewhere(self.parameters - self.whole_parameters)
            + elsewhere(state)
            + (elsewhere(gradients) if self.sharding.stage >= 2 else 0)
            - self.in_forward
        )

    def before_backward(self, state):
        """The gradients of the step before are gone."""
        self.reduced.clear()
        self.before_forward(state, 0)
        self.memory.elsewhere += self.in_forward - self.in_backward

    def optimizer_peak(self, held, peak, state):
        """The peak of the optimizer's step on one GPU: `held` were there before, with `state`."""
        elsewhere, stage = self.sharding.elsewhere, self.sharding.stage
        here = (
            held
            - elsewhere(state)
            - (elsewhere(self.gradients) if stage >= 2 else 0)
            - (elsewhere(self.parameters) if stage == 3 else 0)
        )
        return here + self.sharding.part(peak - held)

    def parts(self, counted):
        """The parts of a step as one GPU has them."""
        sharding = self.sharding
        shared = sharding.by_formula()
        found = {
            name: sharding.part(amount) if name in shared else amount
            for name, amount in counted.items()
        }
        if sharding.stage == 3:
            gathered = self.in_backward if "gradients" in counted else self.in_forward
            found["gathered"] = gathered + sharding.elsewhere(self.whole_parameters)
        return found


def _trained(parameters):
    return [parameter for parameter in parameters if parameter.requires_grad]
