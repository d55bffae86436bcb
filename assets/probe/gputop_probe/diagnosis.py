"""Joins the parts: from censuses of the allocator's blocks to the leaks with their holders, causes
and advice.

A census is the list of live blocks, without a look at tensors. When something grows, one pass over
the live objects finds the Python tensors of the growing blocks, and who holds them.
"""

import bisect
import contextlib
import gc
import threading
import time

from . import causes, code_lines, extended, graphs, holders, leaks, lines, ooms
from .passes import Pass
from .trouble import is_ours

# Passes over the objects may take one part in so many of the program's time; so may censuses; and
# censuses while the number of blocks rises.
PASSES, CENSUSES, RISING = 800, 1000, 200
# For a quick answer the first censuses of a rise may take more: one part in so many, up to so many
# seconds of CPU time in all.
FIRST, BURST = 10, 1.5
# While something may grow, so many passes come soon after each other, because only several of them
# show whether a history grows.
QUICK_PASSES, FEW_PASSES = 12, 5
# Reading the number of blocks takes about 20 µs for each GPU: seconds until it is read again.
TREND = 0.1
# After so many steps and seconds the histories of tensors are watched, even if no GPU memory grows:
# a sum of losses after backward() keeps host memory.
FIRST_PASS, FIRST_PASS_SECONDS = 20, 10.0
# Seconds without a step after which the program is not training: then the probe's thread takes the
# censuses.
IDLE = 1.0
# CPU seconds of a search for holders, and at most, where searches did not end in that time.
SEARCH, MOST_SEARCH = 0.3, 2.4
# A leak ends when so many censuses show no growth.
PAUSE = 16
# Seconds between two tests for growth.
TEST = 0.2
_SAMPLES = 4
_GROUPS = 3
_MOST_LEAKS = 8
# Parameters of fewer models than this are those of models that the program uses.
_MODELS = 4


@contextlib.contextmanager
def _without_collections():
    """The many small objects of a census or a pass, which soon die, would start a collection of
    all objects.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Diagnosis:
    """The leaks of one process. `take` and what it calls run in a thread of the program while it
    trains; see `turn` for the rest.
    """

    def __init__(self, probe):
        self.probe = probe
        self.torch = probe.torch
        # Fields of the published state.
        self.published = {}
        self.history = leaks.History()
        self.reserved = leaks.Reserved()
        self.chain = graphs.Chain(probe.reader.grad_fn)
        self.extended = extended.Extended()
        self.recorder = lines.Recorder(probe)
        self.recorder.label = self._label
        self.black_box = ooms.BlackBox(probe, self.leaks)
        self._leaks = []
        self._chain_leak = None
        self._fragments = {}
        # Address: (size, category) of the blocks that the last reading labelled.
        self._labels = {}
        # Groups that a pass has looked at.
        self._seen = set()
        self._growing = {}
        # By group: the number of the last census that showed growth.
        self._grew_at = {}
        # Devices whose live bytes rise.
        self._swelling = set()
        self.trend = leaks.Trend()
        # Seconds: the moment of the last census and what it took.
        self._last_census = self._cost = 0.0
        self._burst = BURST
        self._next_trend = self._next_test = 0.0
        self._next_pass = time.monotonic() + FIRST_PASS_SECONDS
        self._quick_passes = 0
        # CPU seconds that a search for holders may take.
        self._search_budget = SEARCH
        self._is_pass_wanted = False
        self._lock = threading.Lock()
        self._is_broken = False

    # In a thread of the program.

    def after_step(self, count):
        self._guarded(self._after_step, count)

    def after_reading(self):
        self._guarded(self._learn_labels)

    def _after_step(self, count):
        self.recorder.after_step(count)
        if count <= 2:
            # The first step makes gradients and optimizer state: that is no leak.
            self.trend = leaks.Trend()
        now = time.monotonic()
        if self._is_census_due(now):
            self.take(count, now)
            if self._is_pass_due(now):
                self.look(now)

    def _learn_labels(self):
        blocks, labels = self.probe.blocks_and_labels
        self._labels = {
            blocks.address[place]: (blocks.size[place], label.category)
            for place, label in labels.items()
        }

    # In the probe's thread.

    def turn(self, now):
        self._guarded(self._turn, now)

    def _turn(self, now):
        ended_at = self.probe.steps.ended_at
        if (ended_at is None or now - ended_at > IDLE) and self._is_census_due(now):
            self.take(self.probe.steps.count, now)
            if self._is_pass_due(now) and not self._is_pass_wanted:
                self._is_pass_wanted = True
                self.probe.in_program(lambda: self._guarded(self._wanted_pass), self._give_up)
        self.recorder.turn(now)
        self.published = {"leaks": self.leaks(), "recording": self.recorder.state()}

    def _wanted_pass(self):
        self._is_pass_wanted = False
        self.look(time.monotonic())

    def _give_up(self):
        self._is_pass_wanted = False

    def _guarded(self, function, *arguments):
        """Calls a function of the diagnosis. An error of it ends the diagnosis, not the probe."""
        if self._is_broken:
            return
        try:
            function(*arguments)
        except Exception as error:
            if not is_ours(error):
                raise
            self._is_broken = True
            self.published = {}
            self.probe.troubles.add_error("looking for leaks", error)

    # Requests.

    def answer_holders(self, request):
        def answer():
            self._guarded(self.look, time.monotonic())
            request.answer()

        self.probe.in_program(
            answer, lambda: request.fail("the program runs long outside of Python: try again")
        )

    def answer_snapshot(self, request):
        content = ooms.write_snapshot(self.torch, request.arguments.get("path"))
        error = content.pop("error", None)
        request.fail(error) if error else request.answer(**content)

    # Censuses.

    def _is_census_due(self, now):
        if now < self._next_trend:
            return False
        self._next_trend = now + TREND
        populations = [
            self.probe.allocator.population(device) for device in list(self.probe.levels)
        ]
        self.trend.take(
            sum(count for count, _ in populations), sum(size for _, size in populations)
        )
        share = (
            CENSUSES
            if not self._is_rising()
            else FIRST
            if self._burst > 0 and not self._leaks
            else RISING
        )
        return now >= self._last_census + share * self._cost

    def take(self, step, now):
        """Takes a census, and tests for growth."""
        if not self._lock.acquire(False):
            return
        try:
            with _without_collections():
                self._take(step, now)
        finally:
            self._lock.release()

    def _take(self, step, now):
        began = time.thread_time()
        blocks = self.probe.allocator.read()
        # CUDA graphs keep their memory. Labels are no groups here: new blocks have none until the
        # next reading.
        entries = [
            (device, address, size, "other")
            for address, size, device, is_private in zip(
                blocks.address, blocks.size, blocks.device, blocks.private
            )
            if not is_private
        ]
        self.history.take(step, now, entries)
        for device, memory in blocks.devices.items():
            self.reserved.take(device, memory.reserved, self.probe.allocator.levels(device)[1])
        self._fragments = {device: self.reserved.gap(device) for device in blocks.devices}
        if now >= self._next_test:
            self._next_test = now + TEST
            self._test()
        self._last_census, self._cost = time.monotonic(), time.thread_time() - began
        if self._is_rising():
            self._burst -= self._cost

    def _is_rising(self):
        return bool(self._growing or self._swelling) or self.trend.is_rising()

    def _test(self):
        self._growing, self._swelling = self.history.growing(), self.history.swelling()
        for group in self._growing:
            self._grew_at[group] = self.history.count
        self._leaks = [
            leak for leak in self._leaks if self.history.count - self._grew_at[leak.group] < PAUSE
        ]
        for leak in self._leaks:
            if leak.group not in self._growing:
                continue
            alike = [
                block.size
                for block in self.history.blocks.values()
                if block.device == leak.group[0] and block.size in leak.sizes
            ]
            leak.fields["bytes"] = sum(alike)
            leak.blocks = {
                (block.address, block.size)
                for block in self._growing[leak.group].blocks
                if block.size in leak.sizes
            }

    def _is_pass_due(self, now):
        is_new = any(group not in self._seen for group in [*self._growing, *self._swelling])
        has_begun = self.probe.steps.count >= FIRST_PASS or (
            not self.probe.steps.count and self.history.count >= 6
        )
        return is_new or (now >= self._next_pass and has_begun)

    def leaks(self):
        """The leaks for the state, the largest first."""
        fields = []
        for leak in self._leaks:
            fields.append(dict(leak.fields))
            at = self.recorder.line_of(leak.group[0], leak.blocks)
            if at:
                fields[-1]["allocated_at"] = at
        known = {tuple(leak["held_by"]) for leak in fields}
        fields += [
            leak
            for leak in self.extended.leaks
            if leak["cuda_device"] in self._swelling and tuple(leak["held_by"]) not in known
        ]
        fields.sort(key=lambda leak: -(leak.get("bytes_per_second") or 0))
        if self._chain_leak and not fields:
            fields.append(dict(self._chain_leak))
        for device, gap in sorted(self._fragments.items()):
            # What grows may be one tensor that fits nowhere: the first passes find it.
            if gap and not (device in self._swelling and self._quick_passes < FEW_PASSES):
                title, advice = causes.explain("fragmentation", causes.Facts())
                fragments = {
                    "cuda_device": device,
                    "category": "fragmentation",
                    "bytes": gap,
                    "held_by": [],
                }
                fragments.update(cause="fragmentation", title=title, sure="likely", advice=advice)
                fields.append(fragments)
        return fields[:_MOST_LEAKS]

    def _owner(self, blocks):
        """The category that has most of the blocks' bytes, if it is one that a leak tells
        something about, else "other".
        """
        sizes = {}
        for block in blocks:
            label = self._label(block.address)
            sizes[label] = sizes.get(label, 0) + block.size
        most = max(sizes, key=sizes.get) if sizes else None
        return most if most in ("optimizer_state", "parameters") else "other"

    def _label(self, address):
        """The category of the block at an address, or None."""
        known = self._labels.get(address)
        return (
            known[1] if known else "libraries" if address in self.probe.history.libraries else None
        )

    # The pass.

    def look(self, now):
        began = time.thread_time()
        try:
            # A collection could run code of the program, for which the guard is not meant.
            with _without_collections(), self.probe.reader.guard():
                self._diagnose(self._growing, self.probe.steps.count)
        finally:
            rest = PASSES * (time.thread_time() - began)
            is_open = any(leak.fields["cause"] == "unknown" for leak in self._leaks) or bool(
                self._swelling and not self._leaks
            )
            if (is_open or self.chain.may_grow()) and self._quick_passes < QUICK_PASSES:
                self._quick_passes += 1
                rest = min(
                    rest,
                    0.7
                    if (self._growing or self._swelling) and self._quick_passes < FEW_PASSES
                    else 4.0,
                )
            self._next_pass = now + rest

    def _diagnose(self, growing, step):
        self._seen |= set(growing) | self._swelling
        scan = Pass(self.probe)
        codes = self._codes_of_running()
        longest = self.chain.take(step if step else self.history.count, scan.with_history)
        rate = self.chain.growth()
        found = []
        for group, growth in growing.items():
            found += self._leaks_of(group, growth, scan, codes, longest)
        self._leaks = found + [leak for leak in self._leaks if leak.group not in growing]
        self._look_for_extended(scan, step)
        self._chain_leak = None
        if rate and longest is not None and not found:
            self._chain_leak = self._chain_only(longest, rate, scan, codes, step)
        longest = None

    def _look_for_extended(self, scan, step):
        """Finds tensors that are made longer. The first look only learns the sizes."""
        sizes = [
            (tensor.device.index, tensor.numel() * tensor.element_size()) for tensor in scan.tensors
        ]
        places = [at for at in self.extended.candidates(sizes) if sizes[at][0] in self._swelling]
        samples, found = [scan.tensors[at] for at in places], []
        for holder in holders.find(samples, self.torch, own=scan.own())[0] if samples else []:
            largest = max(holder.samples, key=lambda at: sizes[places[at]][1])
            tensor = samples[largest]
            fields = {
                "cuda_device": tensor.device.index,
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype).replace("torch.", ""),
            }
            fields["category"] = (
                "activations" if self.probe.reader.has_history(tensor) else "named_tensors"
            )
            found.append((holder, sum(sizes[places[at]][1] for at in holder.samples), fields))
        tensor = samples = None
        self.extended.take(step, time.monotonic(), found)

    def _codes_of_running(self):
        codes, seen = [], set()
        for frame in holders.frames.running(holders._HERE):
            namespace = frame.f_globals
            if id(namespace) in seen or holders._is_library(frame.f_code.co_filename):
                continue
            seen.add(id(namespace))
            codes += list(code_lines.codes_of_module(namespace, [frame]))
        return codes

    def _leaks_of(self, group, growth, scan, codes, root):
        """The leaks of one growing group: one for each holder."""
        device, category = group
        blocks = sorted((block for block in growth.blocks), key=lambda block: block.address)
        starts = [block.address for block in blocks]
        named = {}
        tensors = {}
        for address, tensor in zip(scan.addresses, scan.tensors):
            at = bisect.bisect_right(starts, address) - 1
            if at >= 0 and address < starts[at] + blocks[at].size:
                tensors.setdefault(at, tensor)
        for at, tensor in tensors.items():
            key = (tuple(tensor.shape), str(tensor.dtype).replace("torch.", ""))
            named.setdefault(key, []).append(at)
        # Tensors of a shape that does not keep coming are no leak.
        spread = [
            (key, places)
            for key, places in named.items()
            if leaks.is_spread([blocks[at] for at in places], growth)
        ]
        kept = sorted(spread, key=lambda item: -sum(blocks[at].size for at in item[1]))[:_GROUPS]
        samples, owner = [], []
        for key, places in kept:
            places.sort(key=lambda at: blocks[at].census)
            for at in _some(places, _SAMPLES):
                samples.append(tensors[at])
                owner.append(key)
        named_holders, is_complete = (
            holders.find(samples, self.torch, self._search_budget, scan.own() + (tensors,))
            if samples
            else ([], True)
        )
        if not is_complete:
            self._search_budget = min(MOST_SEARCH, 2 * self._search_budget)
        by_holder, unheld = {}, []
        for key, places in kept:
            indexes = {at for at, name in enumerate(owner) if name == key}
            best = max(
                named_holders,
                key=lambda holder: (len(holder.samples & indexes), -len(holder.samples)),
                default=None,
            )
            # A local of a running function may hold the latest one only.
            least = 1 if is_complete else len(indexes) / 2
            if best is None or len(best.samples & indexes) < least:
                unheld.append((key, places))
                continue
            by_holder.setdefault(best.text, (best, []))[1].append((key, places))
        hidden = [block for at, block in enumerate(blocks) if at not in tensors]
        # Tensors that no name reaches: the graph holds them.
        hidden += [blocks[at] for _, places in unheld for at in places]
        result = []
        for holder, parts in by_holder.values():
            places = [at for _, some in parts for at in some]
            is_computed = any(self.probe.reader.has_history(tensors[at]) for at in _some(places, 8))
            # A model that moves to the GPU brings parameters all the time, too.
            if not 0 < scan.models_of([tensors[at] for at in places]) < _MODELS:
                result.append(
                    (holder, parts[0][0], [blocks[at] for at in places], is_computed, named_holders)
                )
        result.sort(key=lambda leak: (not leak[3], -sum(block.size for block in leak[2])))
        tensors = samples = None
        return self._describe(group, growth, result, hidden, scan, codes, root)

    def _describe(self, group, growth, kept, hidden, scan, codes, root):
        hook_codes = scan.hook_codes()
        is_training = growth.has_steps()
        facts = {
            "is_training": is_training,
            # An optimizer stepped before, but not now.
            "is_evaluation": not is_training
            and (self.probe.steps.count > 0 or bool(scan.is_eval_mode())),
            "retain_graph": code_lines.keyword_line(codes, "retain_graph"),
        }
        found = []
        hidden_bytes = sum(block.size for block in hidden)
        for at, (holder, shape, blocks, is_computed, _) in enumerate(kept):
            own = sum(block.size for block in blocks)
            # Hidden blocks belong to the kept tensors that have a history.
            extra = hidden if is_computed and at == 0 else []
            ratio = hidden_bytes / max(1, own) if extra else 0.0
            in_hook = bool(holder.line and holder.line.code in hook_codes)
            known = causes.Facts(
                holder=holder,
                has_history=is_computed,
                hidden_ratio=ratio,
                fills_in_hook=in_hook,
                category=self._owner(blocks),
                **facts,
            )
            found.append(_Leak(group, growth, blocks + extra, shape, known))
        is_explained = any(is_computed for _, _, _, is_computed, _ in kept)
        if hidden and not is_explained and leaks.is_spread(hidden, growth):
            if not (self.chain.growth() or self.chain.is_long(len(hidden))):
                root = None
            first = self._root_holder(root, scan)
            known = causes.Facts(
                holder=first, chain_grows=root is not None, hidden_ratio=1.0, **facts
            )
            found.append(_Leak(group, growth, hidden, None, known))
        return found

    def _root_holder(self, root, scan):
        if root is None:
            return None
        found = holders.find([root], self.torch, own=scan.own())[0]
        # A module's buffer says more than a local that refers to it too.
        return next(
            (holder for holder in found if "buffer" in holder.via), found[0] if found else None
        )

    def _chain_only(self, root, rate, scan, codes, step):
        """A leak of history that keeps no GPU memory, since backward() freed what was saved."""
        holder = self._root_holder(root, scan)
        if holder is None:
            return None
        known = causes.Facts(
            holder=holder,
            chain_grows=True,
            is_training=step > 0,
            is_evaluation=False,
        )
        cause, is_likely = causes.decide(known)
        title, advice = causes.explain(cause, known)
        return {
            "cuda_device": root.device.index,
            "category": "activations",
            "bytes_per_step": 0,
            "count_per_step": 0,
            "operations_per_step": round(rate, 1),
            "steps": self.chain.looks[-1][0] - self.chain.looks[0][0],
            "held_by": [holder.text],
            "cause": cause,
            "title": title,
            "sure": "likely" if is_likely else "maybe",
            "advice": advice,
        }


class _Leak:
    """One leak: the group that it belongs to, and its fields for the state."""

    def __init__(self, group, growth, blocks, shape, facts):
        self.group = group
        cause, is_likely = causes.decide(facts)
        title, advice = causes.explain(cause, facts)
        amount = sum(block.size for block in blocks)
        self.blocks = {(block.address, block.size) for block in blocks}
        self.sizes = {block.size for block in blocks}
        self.fields = {"cuda_device": group[0], "category": _category(facts)}
        if shape is not None:
            self.fields["shape"], self.fields["dtype"] = list(shape[0]), shape[1]
        by_step, count, by_second = growth.rates(blocks)
        if by_step is not None:
            self.fields["bytes_per_step"], self.fields["count_per_step"] = by_step, count
            self.fields["steps"] = growth.steps
            self.fields["oldest_step"] = min(block.step for block in blocks)
        if by_second is not None:
            self.fields["bytes_per_second"] = by_second
        self.fields["bytes"] = amount
        self.fields["held_by"] = [facts.holder.text] if facts.holder else []
        self.fields["cause"] = cause
        self.fields["title"] = title
        self.fields["sure"] = "likely" if is_likely and len(blocks) >= 8 else "maybe"
        self.fields["advice"] = advice


def _category(facts):
    if facts.category in ("optimizer_state", "parameters"):
        return facts.category
    if facts.holder and "optimizer" in facts.holder.via:
        return "optimizer_state"
    return (
        "activations"
        if facts.has_history or facts.chain_grows
        else "named_tensors"
        if facts.holder
        else "libraries"
    )


def _some(values, count):
    """At most `count` of the values, spread over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[at * (len(values) - 1) // (count - 1)] for at in range(count)]
