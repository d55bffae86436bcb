"""Decides why memory grows, how sure that is, and what to try. Pure logic."""

# cause: (title, what to try). `{code}` is the user's line, `{name}` the holder's name.
TABLE = {
    "history_summed": (
        "a loss or metric is summed with its history",
        "`{code}` keeps the history of every step: add `{item}.item()` or `{item}.detach()` instead",
    ),
    "history_carried": (
        "a tensor is carried from step to step with its history",
        "`{code}` makes the history longer with every step: use `{name} = {name}.detach()` before the next step",
    ),
    "buffer_in_graph": (
        "a buffer is updated inside the graph",
        "update `{name}` under `torch.no_grad()`, or detach the new value: `{code}`",
    ),
    "kept_outputs": (
        "tensors are kept",
        "`{code}` keeps tensors on the GPU: keep `.item()`, `.cpu()` or less of them, or clear `{name}`",
    ),
    "kept_outputs_with_history": (
        "tensors are kept with their history",
        "`{code}` keeps tensors and what was saved for backward: keep `.detach().cpu()` or `.item()` instead, or clear `{name}`; "
        "without backward, run under `with torch.no_grad():`",
    ),
    "layer_cache": (
        "a layer caches tensors",
        "`{code}` in {owner} keeps a tensor in each step: clear `{name}`, or keep `.detach()` of the last one only",
    ),
    "eval_without_no_grad": (
        "evaluation without no_grad",
        "`{code}` keeps the history of each batch: run evaluation under `with torch.no_grad():` (`model.eval()` does not do that)",
    ),
    "retain_graph": (
        "retain_graph=True keeps the graph of each step",
        "remove retain_graph=True from `{code}`; keep `.detach()` of what `{name}` needs",
    ),
    "optimizer_recreated": (
        "optimizers are created again while the old ones are alive",
        "`{code}` keeps old optimizers and their state: create one optimizer, or change its `param_groups`",
    ),
    "hooks_hold": (
        "a hook keeps tensors",
        "`{code}` runs in a hook: keep `.detach().cpu()`, clear `{name}` in each step, or call the hook's handle.remove()",
    ),
    "traceback_frame": (
        "a kept exception holds the locals of its frames",
        "`{code}` keeps an exception, and its traceback keeps the tensors of each frame: keep `str(error)`, or call `traceback.clear_frames(error.__traceback__)`",
    ),
    "fragmentation": (
        "fragmentation: the allocator reserves far more than tensors ever needed",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad or bucket the lengths to fewer shapes",
    ),
    "reference_cycle": (
        "tensors wait in reference cycles for the garbage collector",
        "break the cycle, or call gc.collect() once per epoch",
    ),
    "model_copies": (
        "old models are kept",
        "`{code}` keeps parameters of earlier models: drop them, or move them with `.cpu()`",
    ),
    "extended": (
        "a tensor is made longer in each step",
        "`{code}` makes `{name}` longer each time: keep a bounded part of it, such as `{name}[-1000:]`, or collect the parts with `.detach().cpu()`",
    ),
    "unknown": (
        "memory grows without a Python tensor",
        "record stacks to see which line allocates it",
    ),
}


class Facts:
    """The facts known about a leak. Absent facts are None or False."""

    def __init__(self, **facts):
        self.category = facts.get("category")
        # The first holder, an object like holders.Holder, or None.
        self.holder = facts.get("holder")
        # The kept tensors have a grad_fn.
        self.has_history = facts.get("has_history", False)
        # Bytes of blocks without a Python tensor, for each byte of kept tensors.
        self.hidden_ratio = facts.get("hidden_ratio", 0.0)
        # Optimizers stepped while the blocks came.
        self.is_training = facts.get("is_training", False)
        # No optimizer steps now, and one stepped before or the model is in evaluation mode.
        self.is_evaluation = facts.get("is_evaluation", False)
        # The line of a backward(retain_graph=True), or None.
        self.retain_graph = facts.get("retain_graph")
        # The line that fills the holder is in a function that is registered as a hook.
        self.fills_in_hook = facts.get("fills_in_hook", False)
        # The line that makes a tensor longer, or None.
        self.line = facts.get("line")
        # The history of one tensor gets longer with each step.
        self.chain_grows = facts.get("chain_grows", False)


def decide(facts):
    """Returns (cause, whether it is likely rather than possible)."""
    holder, via = facts.holder, facts.holder.via if facts.holder else frozenset()
    if facts.category == "optimizer_state" or "optimizer" in via:
        return "optimizer_recreated", True
    if facts.category == "parameters":
        return "model_copies", holder is not None
    if "buffer" in via:
        return (
            ("buffer_in_graph", True)
            if facts.has_history or facts.chain_grows
            else ("kept_outputs", False)
        )
    if "traceback" in via:
        return "traceback_frame", True
    history = facts.has_history or facts.chain_grows
    if facts.retain_graph and facts.is_training and history and facts.hidden_ratio > 0.5:
        return "retain_graph", True
    if holder and (holder.kind == "hook" or "hook" in via or facts.fills_in_hook):
        return "hooks_hold", True
    if holder and holder.is_module and not facts.chain_grows:
        return "layer_cache", True
    if history and facts.is_evaluation:
        return "eval_without_no_grad", True
    if facts.chain_grows:
        return ("history_summed" if _is_sum(holder) else "history_carried"), holder is not None
    if holder:
        return ("kept_outputs", True)
    return "unknown", False


def _is_sum(holder):
    """Whether the line of the holder adds to it, rather than replacing it by a call's result."""
    if holder is None or holder.line is None:
        return True
    text = holder.line.text().replace(" ", "")
    if not text:
        return True
    name = holder.name
    return any(
        text.startswith(start) or "." + start in text
        for start in (name + "+=", name + "-=", name + "*=")
    ) or (
        name + "=" in text
        and ("+" in text or "torch.stack" in text or "torch.cat" in text or "add" in text)
    )


def explain(cause, facts):
    """Returns the title and the advice, with the user's line in it."""
    key = cause
    if cause == "kept_outputs" and facts.has_history:
        key = "kept_outputs_with_history"
    title, advice = TABLE[key]
    holder = facts.holder
    line = facts.line or (
        facts.retain_graph if cause == "retain_graph" else holder.line if holder else None
    )
    code = line.text() if line else ""
    name = holder.name if holder else "it"
    if not code:
        code = "%s" % line if line else name
    item = "the value"
    for sign in ("+=", "+"):
        if sign in code:
            item = code.split(sign, 1)[1].strip().split(" ")[0].rstrip(")")
            break
    return title, advice.format(
        code=code, name=name, item=item, owner=holder.owner if holder else ""
    )
