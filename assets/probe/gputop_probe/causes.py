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
    "hooks_registered": (
        "a hook is registered again and again",
        "`{code}` registers one more hook each time, and each keeps what it refers to: register it once, or call the handle's remove()",
    ),
    "create_graph": (
        "backward(create_graph=True) keeps parameters and gradients in a cycle",
        "`{code}` keeps the graph of each step: use torch.autograd.grad(..., create_graph=True), or set the gradients to None after use",
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
        "break the cycle of `{code}`, or call gc.collect() once per epoch{collector}",
    ),
    "model_copies": (
        "old models are kept",
        "`{code}` keeps one more model or adapter each time: drop the old ones, or move them with `.cpu()`",
    ),
    "fills": (
        "a buffer of limited length fills",
        "`{name}` keeps at most {limit} ({length} now): then it grows no more",
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
        # The part of the grown bytes that holders explain, from 0 to 1.
        self.covers = facts.get("covers", 1.0)
        # The number of optimizers that hold some of the tensors.
        self.optimizers = facts.get("optimizers", 0)
        # The holder is a local of a function that began later, outside of training.
        self.is_temporary = facts.get("is_temporary", False)
        # The program tests whether something is in the holder before it adds to it.
        self.is_cache = facts.get("is_cache", False)
        # How many times its size each view keeps.
        self.waste = facts.get("waste", 1)
        # The program leaves the garbage collector on.
        self.is_collected = facts.get("is_collected", True)
        # The line of a backward(create_graph=True), or None.
        self.create_graph = facts.get("create_graph")
        # The line of a backward(retain_graph=True), or None.
        self.retain_graph = facts.get("retain_graph")
        # The line that fills the holder is in a function that is registered as a hook.
        self.fills_in_hook = facts.get("fills_in_hook", False)
        # The line that makes a tensor longer, or None.
        self.line = facts.get("line")
        # The history of one tensor gets longer with each step.
        self.chain_grows = facts.get("chain_grows", False)


# A growth that lasts so many looks is told although nothing explains it.
_LOOKS = 4
# Seconds for which a growth that nothing explains lasts before it is told: an evaluation is shorter.
_UNKNOWN = 20.0
# A holder of a smaller part of the blocks that came is not surely the cause.
_COVERS = 0.8
# Seconds for which a cache must fill before it may be a leak.
_CACHE = 45.0
# Fewer optimizers that hold some of the tensors are those that the program uses.
_OPTIMIZERS = 3
# A view that keeps less than so many times its size is not worth a word.
_WASTE = 4


def decide(facts):
    """Returns (cause, whether it is certain, if the holder is)."""
    holder, via = facts.holder, facts.holder.via if facts.holder else frozenset()
    history = facts.has_history or facts.chain_grows
    if "cycle" in via:
        return "reference_cycle", not facts.is_collected
    if "optimizer" in via and "hook" not in via and facts.optimizers >= _OPTIMIZERS:
        return "optimizer_recreated", True
    if "buffer" in via:
        return ("buffer_in_graph", True) if history else ("kept_outputs", False)
    if "traceback" in via:
        return "traceback_frame", True
    if facts.retain_graph and facts.is_training and history and facts.hidden_ratio > 0.5:
        return "retain_graph", True
    if holder and (holder.kind == "hook" or "hook" in via):
        return "hooks_registered", True
    if facts.fills_in_hook:
        return "hooks_hold", True
    if holder and "module" in via and not history:
        return "model_copies", True
    is_layer = holder and holder.is_module and "tensor" not in via
    if is_layer and not facts.chain_grows and (holder.line is None or holder.is_filled_inside()):
        return "layer_cache", True
    if history and facts.is_evaluation:
        return "eval_without_no_grad", True
    if facts.chain_grows:
        return ("history_summed" if _is_sum(holder) else "history_carried"), holder is not None
    if holder:
        return "kept_outputs", True
    if facts.create_graph:
        return "create_graph", True
    return "unknown", False


def judge(facts):
    """Returns (cause, how sure it is): likely, maybe, or bounded for a holder that grows no further
    than to a limit.
    """
    cause, is_certain = decide(facts)
    holder = facts.holder
    container = holder.container() if holder else None
    if container and container.limit is not None:
        return "fills", "bounded"
    # No container needs to grow for these.
    is_seen = (
        cause in ("reference_cycle", "create_graph", "buffer_in_graph", "optimizer_recreated")
        or facts.chain_grows
        or bool(container and container.has_grown)
    )
    is_kept = cause == "eval_without_no_grad" or not (facts.is_temporary or facts.is_cache)
    is_named = holder is None or holder.is_named()
    is_likely = is_certain and is_seen and is_kept and is_named and facts.covers >= _COVERS
    return cause, "likely" if is_likely else "maybe"


def is_told(facts, looks, seconds):
    """Whether a growth that so many looks found, and that lasts so many seconds, is worth telling."""
    if facts.category in ("gradients", "optimizer_state") and facts.optimizers < _OPTIMIZERS:
        # One optimizer makes as many as it has parameters.
        return False
    cause, sure = judge(facts)
    if sure != "maybe":
        return True
    if cause == "model_copies":
        # A model that moves to the GPU brings parameters all the time, too.
        return False
    if facts.is_cache or facts.is_temporary:
        return seconds >= _CACHE
    return looks >= _LOOKS and (cause != "unknown" or seconds >= _UNKNOWN)


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
    container = holder.container() if holder else None
    library = (
        library_of(holder) if holder and key.startswith(("kept_outputs", "extended")) else None
    )
    if library:
        title, advice = library
    line = facts.line or (
        facts.retain_graph
        if cause == "retain_graph"
        else facts.create_graph
        if cause == "create_graph"
        else holder.line
        if holder
        else None
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
    advice = advice.format(
        code=code,
        name=name,
        item=item,
        owner=holder.owner if holder else "",
        limit=container.limit if container else "",
        length=container.length if container else "",
        collector="" if facts.is_collected else ": the program switched the collector off",
    )
    if facts.waste >= _WASTE:
        advice = "each view keeps its base, %d times its size: keep `.clone()`; %s" % (
            facts.waste,
            advice,
        )
    return title, advice


# (module of the object that keeps tensors, name on the way to them): (title, what to try). A name is
# the end of an attribute; empty: any.
LIBRARIES = (
    # `out` in a cell
    (
        "IPython",
        "",
        "the notebook keeps the result of each cell in `Out`",
        "end the last line of the cell with `;`, or run `%reset -f out`",
    ),
    # `return {"loss": loss, "logits": out}` in training_step
    (
        "lightning",
        "outputs",
        "Lightning keeps what the step returns until the epoch ends",
        "`{code}`: return the loss only, or `.detach().cpu()` of the rest",
    ),
    (
        "pytorch_lightning",
        "outputs",
        "Lightning keeps what the step returns until the epoch ends",
        "`{code}`: return the loss only, or `.detach().cpu()` of the rest",
    ),
    # `trainer.evaluate()` with logits of a large vocabulary
    (
        "transformers.trainer",
        "",
        "the Trainer keeps the predictions of the whole evaluation on the GPU",
        "`{code}`: set `eval_accumulation_steps`, `prediction_loss_only=True`, or `preprocess_logits_for_metrics`",
    ),
    # `model = accelerator.prepare(Model())` in a loop
    (
        "accelerate",
        "",
        "accelerate keeps each object that prepare() got",
        "`{code}`: call `accelerator.free_memory()` before the next prepare()",
    ),
    # `metric.update(preds, target)` of a metric that keeps lists, without reset()
    (
        "torchmetrics",
        "",
        "a metric keeps each batch until it is reset",
        "`{code}`: call `reset()` after each epoch, or make the metric with `compute_on_cpu=True`",
    ),
    # `asyncio.create_task(infer(x))` whose tasks stay in a set
    (
        "asyncio",
        "",
        "tasks or futures of asyncio keep their results",
        "`{code}`: await the tasks and drop them, or return `.cpu()`",
    ),
    # `executor.submit(model, x)` whose futures stay in a list
    (
        "concurrent.futures",
        "",
        "futures keep their results",
        "`{code}`: drop the futures after `result()`, or return `.cpu()`",
    ),
    # `@lru_cache(maxsize=None)`
    (
        "functools",
        "",
        "a cache without a limit keeps each result",
        "`{code}`: give lru_cache a `maxsize`, or call `{name}.cache_clear()`",
    ),
    # `q.put(batch)` faster than `q.get()`
    (
        "queue",
        "queue",
        "a queue without a limit fills faster than it is read",
        "`{code}`: make it with `Queue(maxsize=2)`, so that the producer waits",
    ),
)


def library_of(holder):
    """The (title, advice) for what a known library keeps, or None."""
    for module, name in holder.libraries:
        for prefix, wanted, title, advice in LIBRARIES:
            is_in = module == prefix or module.startswith(prefix + ".")
            if is_in and (not wanted or name.endswith(wanted)):
                return title, advice
    return None
