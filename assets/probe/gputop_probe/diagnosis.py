"""Joins the parts: from censuses of the allocator's blocks to the leaks with their holders, causes
and advice.

A census is the list of live blocks, without a look at tensors. When something grows, one pass over
the live objects finds the Python tensors of the growing blocks, and who holds them.
"""

import bisect
import gc
import threading
import time

from . import causes, code_lines, extended, frames, graphs, holders, leaks, lengths, lines, ooms
from .authors import HERE, is_library
from .objects import without_collections
from .passes import Pass
from .shares import Kept, share, shared_out, some, waste
from .trouble import is_ours

# Passes over the objects may take one part in so many of the program's time; so may censuses; and
# censuses while the number of blocks rises.
PASSES, CENSUSES, RISING = 800, 1000, 200
# For a quick answer the first censuses of a rise may take more: one part in so many, up to so many
# seconds of CPU time in all.
FIRST, BURST = 10, 1.5
# While something grows that is not explained, passes may take one part in so many, up to so many
# seconds of CPU time in all: only several of them show whether a history or a container grows.
QUICK, QUICK_SECONDS = 4, 4.0
# Seconds between two such passes, and until a container is looked at again.
SOON, CONFIRM = 0.7, 0.5
# The same for a cache, which is a leak only if it fills for long.
LATER = 15.0
# What grows may be one tensor that fits nowhere: so many passes find it.
FEW_PASSES = 5
# Reading the number of blocks takes about 20 µs for each GPU: seconds until it is read again.
TREND = 0.1
# After so many steps and seconds the histories of tensors are watched, even if no GPU memory grows:
# a sum of losses after backward() keeps host memory.
FIRST_PASS, FIRST_PASS_SECONDS = 20, 3.0
# Seconds without a step after which the program is not training: then the probe's thread takes the
# censuses.
IDLE = 1.0
# CPU seconds of a search for holders, and at most, where searches did not end in that time.
SEARCH, MOST_SEARCH = 0.3, 2.4
# A leak ends when so many censuses show no growth.
PAUSE = 16
# Seconds between two tests for growth.
TEST = 0.2
_SAMPLES = 8
_GROUPS = 3
# An old length of a container is forgotten after so many looks without it.
_FORGET = 8
_MOST_LEAKS = 8
# A history that has not grown at so many looks is no leak any more.
_CHAIN_LOOKS = 3


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
        self._chain_leak, self._chain_seen = None, 0
        self._fragments = {}
        # Address: (size, category) of the blocks that the last reading labelled.
        self._labels = {}
        # Groups that a pass has looked at.
        self._seen = set()
        self._growing = {}
        # By the address of a container: (its least length, the look that passed it last).
        self._lengths = {}
        self._looks = 0
        # By the `id` of a running frame: its code, and the step and time at which it was new.
        self._frames = {}
        # By group: the looks that found it growing.
        self._looked = {}
        # By group: the number of the last census that showed growth.
        self._grew_at = {}
        # By device: the number of the last census that showed more memory than those before.
        self._swelled_at = {}
        # Devices whose live bytes rise.
        self._swelling = set()
        self.trend = leaks.Trend()
        # Seconds: the moment of the last census and what it took.
        self._last_census = self._cost = 0.0
        self._burst = BURST
        self._next_trend = self._next_test = 0.0
        self._next_pass = time.monotonic() + FIRST_PASS_SECONDS
        self._quick, self._passes = QUICK_SECONDS, 0
        # Leaks whose container was not yet seen to grow: (group, growth, blocks, shape, facts).
        self._candidates = []
        self._confirm_at = 0.0
        # CPU seconds that a search for holders may take.
        self._search_budget = SEARCH
        self._is_pass_wanted = False
        self._lock = threading.Lock()
        self.is_broken = False

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
        if self._candidates and now >= self._confirm_at:
            self._confirm()

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
            elif self._candidates and now >= self._confirm_at and not self._is_pass_wanted:
                self._is_pass_wanted = True
                self.probe.in_program(lambda: self._guarded(self._wanted_look), self._give_up)
        self.recorder.turn(now)
        self.published = {
            "leaks": self.leaks(),
            "fills": self._fills(),
            "recording": self.recorder.state(),
        }

    def _wanted_pass(self):
        self._is_pass_wanted = False
        self.look(time.monotonic())

    def _wanted_look(self):
        self._is_pass_wanted = False
        self._confirm()

    def _confirm(self):
        """Looks whether the containers of the candidates have grown: those are leaks."""
        candidates, self._candidates = self._candidates, []
        containers = [candidate[-1].holder.container() for candidate in candidates]
        with without_collections():
            found = lengths.lengths_of({container.address for container in containers})
        for candidate, container in zip(candidates, containers):
            container.grow(found.get(container.address))
            facts = candidate[-1]
            growth = self._growing.get(candidate[0], candidate[1])
            if not container.has_grown:
                continue
            if causes.is_told(facts, 1, growth.seconds):
                # The same name may have held an earlier container.
                confirmed = _Leak(*candidate)
                self._leaks = [
                    leak
                    for leak in self._leaks
                    if leak.group != confirmed.group
                    or leak.fields["held_by"] != confirmed.fields["held_by"]
                ]
                self._leaks.append(confirmed)
            elif facts.is_cache or facts.is_temporary:
                self._candidates.append(candidate)
                self._confirm_at = time.monotonic() + LATER

    def _give_up(self):
        self._is_pass_wanted = False

    def _guarded(self, function, *arguments):
        """Calls a function of the diagnosis. An error of it ends the diagnosis, not the probe."""
        if self.is_broken:
            return
        try:
            function(*arguments)
        except Exception as error:
            if not is_ours(error):
                raise
            self.is_broken = True
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
        # The program's own recording has traces already.
        if "steps" in request.arguments and not self.recorder.is_users():
            self.recorder.answer(request)
            return
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
            with without_collections():
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
        for device in self._swelling:
            self._swelled_at[device] = self.history.count
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
            leak.count = len(alike)
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
            if leak.fields["sure"] == "bounded":
                continue
            fields.append(dict(leak.fields))
            at = self.recorder.line_of(leak.group[0], leak.blocks)
            if at:
                fields[-1]["allocated_at"] = at
        known = {tuple(leak["held_by"]) for leak in fields}
        fields += [
            leak
            for leak in self.extended.leaks
            if self.history.count - self._swelled_at.get(leak["cuda_device"], -PAUSE) < PAUSE
            and tuple(leak["held_by"]) not in known
        ]
        fields.sort(key=lambda leak: -(leak.get("bytes_per_second") or 0))
        if self._chain_leak and not fields:
            fields.append(dict(self._chain_leak))
        for device, gap in sorted(self._fragments.items()):
            # What grows may be one tensor that fits nowhere: the first passes find it.
            if gap and not (device in self._swelling and self._passes < FEW_PASSES):
                title, advice = causes.explain("fragmentation", causes.Facts())
                fragments = {
                    "cuda_device": device,
                    "category": "fragmentation",
                    "bytes": gap,
                    "held_by": [],
                }
                # One phase, such as an evaluation, may have needed other sizes than the rest.
                fragments.update(cause="fragmentation", title=title, sure="maybe", advice=advice)
                fields.append(fragments)
        return fields[:_MOST_LEAKS]

    def _fills(self):
        """The containers of limited length that fill, for the state."""
        return [
            {
                "held_by": leak.fields["held_by"][0],
                "limit": leak.container.limit,
                "length": min(max(leak.container.length, leak.count), leak.container.limit),
                "bytes": leak.fields["bytes"],
            }
            for leak in self._leaks[:_MOST_LEAKS]
            if leak.fields["sure"] == "bounded"
        ]

    def _owner(self, blocks):
        """The category that has most of the blocks' bytes, if it is one that a leak tells
        something about, else "other".
        """
        sizes = {}
        for block in blocks:
            label = self._label(block.address)
            sizes[label] = sizes.get(label, 0) + block.size
        most = max(sizes, key=sizes.get) if sizes else None
        return most if most in ("optimizer_state", "parameters", "gradients") else "other"

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
            self._was_collecting = gc.isenabled()
            with without_collections(), self.probe.reader.guard():
                self._diagnose(self._growing, self.probe.steps.count)
        finally:
            cost = time.thread_time() - began
            rest = PASSES * cost
            is_open = any(leak.fields["sure"] == "maybe" for leak in self._leaks) or bool(
                (self._swelling or self._growing) and not self._leaks
            )
            self._passes += 1
            if (is_open or self.chain.may_grow()) and self._quick > 0:
                self._quick -= cost
                rest = max(SOON, QUICK * cost)
            self._next_pass = time.monotonic() + rest

    def _diagnose(self, growing, step):
        self._seen |= set(growing) | self._swelling
        self._looks += 1
        scan = Pass(self.probe, self._was_collecting)
        self._note_frames(step)
        codes = self._codes_of_running()
        longest = self.chain.take(step if step else self.history.count, scan.with_history)
        rate = self.chain.growth()
        found, self._candidates = [], []
        self._confirm_at = time.monotonic() + CONFIRM
        for group, growth in growing.items():
            told = self._leaks_of(group, growth, scan, codes, longest)
            if not told:
                # What was explained stays so while it grows.
                told = [leak for leak in self._leaks if leak.group == group]
            found += told
        self._leaks = found + [leak for leak in self._leaks if leak.group not in growing]
        self._looked = {group: count for group, count in self._looked.items() if group in growing}
        self._lengths = {
            address: known
            for address, known in self._lengths.items()
            if self._looks - known[1] < _FORGET
        }
        self._look_for_extended(scan, step)
        if self._passes - self._chain_seen > _CHAIN_LOOKS:
            self._chain_leak = None
        if rate and longest is not None and not found:
            self._chain_seen = self._passes
            self._chain_leak = self._chain_only(longest, rate, scan, codes, step)
        longest = None

    def _look_for_extended(self, scan, step):
        """Finds tensors that are made longer. The first look only learns the sizes."""
        sizes = [
            (tensor.device.index, tensor.numel() * tensor.element_size()) for tensor in scan.tensors
        ]
        places = [at for at in self.extended.candidates(sizes) if sizes[at][0] in self._swelling]
        samples, found = [scan.tensors[at] for at in places], []
        for holder in self._find(samples, scan).found if samples else []:
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
        for frame in frames.running(HERE):
            namespace = frame.f_globals
            if id(namespace) in seen or is_library(frame.f_code.co_filename):
                continue
            seen.add(id(namespace))
            codes += list(code_lines.codes_of_module(namespace, [frame]))
        return codes

    def _find(self, samples, scan, own=()):
        """Searches for the holders of tensors, and learns the lengths of the containers."""
        before = {address: length for address, (length, _) in self._lengths.items()}
        search = holders.Search(
            self.torch,
            self._search_budget,
            scan.own() + tuple(own),
            before,
            scan.parents(),
            scan.parameters,
        )
        search.run(samples)
        for address, length in search.lengths.items():
            least = min(length, before.get(address, length))
            self._lengths[address] = (least, self._looks)
        return search

    def _note_frames(self, step):
        """Remembers since when each running frame of the program is there."""
        before, self._frames = self._frames, {}
        for frame in frames.running(HERE):
            known = before.get(id(frame))
            code = id(frame.f_code)
            first = self._looks <= 1
            self._frames[id(frame)] = (
                known if known and known[0] == code else (code, None if first else step)
            )

    def _is_temporary(self, holder, growth):
        """Whether a local holds the tensors whose function began after the program did, while
        nothing is trained: it drops them at its end.
        """
        known = self._frames.get(holder.frame) if holder.frame else None
        return bool(known) and known[1] is not None and not growth.has_steps()

    def _leaks_of(self, group, growth, scan, codes, root):
        """The leaks of one growing group: one for each line that keeps its tensors."""
        looked = self._looked[group] = self._looked.get(group, 0) + 1
        blocks = sorted((block for block in growth.blocks), key=lambda block: block.address)
        starts = [block.address for block in blocks]
        named = {}
        tensors = {}
        for address, tensor in zip(scan.addresses, scan.tensors):
            at = bisect.bisect_right(starts, address) - 1
            if at >= 0 and address < starts[at] + blocks[at].size:
                tensors.setdefault(at, []).append(tensor)
        for at, inside in tensors.items():
            # A view of a part says more than its base, which only the view may keep.
            tensor = min(inside, key=lambda it: it.numel())
            key = (tuple(tensor.shape), str(tensor.dtype).replace("torch.", ""))
            named.setdefault(key, []).append(at)
        # Tensors of a shape that does not keep coming are no leak.
        spread = [
            (key, places)
            for key, places in named.items()
            if leaks.is_spread([blocks[at] for at in places], growth)
        ]
        kept = sorted(spread, key=lambda item: -sum(blocks[at].size for at in item[1]))[:_GROUPS]
        samples, block_of = [], []
        sampled = []
        for _, places in kept:
            places.sort(key=lambda at: blocks[at].census)
            sampled.append(some(places, _SAMPLES))
            for at in sampled[-1]:
                for tensor in tensors[at][:_SAMPLES]:
                    samples.append(tensor)
                    block_of.append(at)
        search = self._find(samples, scan, (tensors, *tensors.values())) if samples else None
        if search and not search.is_complete:
            # It had no time to explain the growth.
            looked = self._looked[group] = looked - 1
            self._search_budget = min(MOST_SEARCH, 2 * self._search_budget)
        by_line, unheld = {}, []
        for (key, places), chosen in zip(kept, sampled):
            parts, rest = shared_out(search, block_of, chosen)
            # A graph holds tensors that nothing of Python refers to, if the others have a history.
            loose = {block_of[at] for at in search.outside} & rest
            if not any(self.probe.reader.has_history(tensors[at][0]) for at in set(chosen) - rest):
                loose = set()
            covers = 1 - len(rest - loose) / max(1, len(chosen) - len(loose))
            if not parts or covers < 0.5:
                unheld.append(places)
                continue
            is_shared = len(parts) > 1 or loose
            shares = [share(places, part, len(chosen)) for _, part in parts]
            if loose:
                unheld.append([at for at in places if not any(at in own for own in shares)])
            for (holder, _), own in zip(parts, shares if is_shared else [places]):
                line = str(holder.line) if holder.line else holder.text
                found = by_line.setdefault(line, Kept(holder, key, covers))
                found.places += own
                found.covers = min(found.covers, covers)
                found.waste = max(found.waste, waste(samples, block_of, holder, blocks, tensors))
        hidden = [block for at, block in enumerate(blocks) if at not in tensors]
        # Tensors that no name reaches: the graph holds them.
        hidden += [blocks[at] for places in unheld for at in places]
        result = []
        for found in by_line.values():
            found.blocks = [blocks[at] for at in found.places]
            found.is_computed = any(
                self.probe.reader.has_history(tensors[at][0]) for at in some(found.places, 8)
            )
            found.optimizers = sum(
                bool(held & found.holder.samples) for held in search.optimizers.values()
            )
            result.append(found)
        result.sort(key=lambda it: (not it.is_computed, -sum(block.size for block in it.blocks)))
        tensors = samples = None
        return self._describe(group, growth, result, hidden, scan, codes, root, looked)

    def _describe(self, group, growth, kept, hidden, scan, codes, root, looked):
        hook_codes = scan.hook_codes()
        is_training = growth.has_steps()
        facts = {
            "is_training": is_training,
            # An optimizer stepped before, but not now.
            "is_evaluation": not is_training
            and (self.probe.steps.count > 0 or bool(scan.is_eval_mode())),
            "retain_graph": code_lines.keyword_line(codes, "retain_graph"),
            "create_graph": code_lines.keyword_line(codes, "create_graph", "backward"),
            "is_collected": scan.is_collected,
        }
        found = []
        hidden_bytes = sum(block.size for block in hidden)
        for at, it in enumerate(kept):
            own = sum(block.size for block in it.blocks)
            # Hidden blocks belong to the kept tensors that have a history.
            extra = hidden if it.is_computed and at == 0 else []
            ratio = hidden_bytes / max(1, own) if extra else 0.0
            holder = it.holder
            is_cache = bool(holder.line) and code_lines.tests_membership(
                [holder.line.code], holder.name
            )
            known = causes.Facts(
                holder=holder,
                has_history=it.is_computed,
                hidden_ratio=ratio,
                fills_in_hook=bool(holder.line and holder.line.code in hook_codes),
                category=self._owner(it.blocks),
                covers=it.covers,
                optimizers=it.optimizers,
                is_temporary=self._is_temporary(holder, growth),
                is_cache=is_cache,
                waste=it.waste,
                **facts,
            )
            candidate = (group, growth, it.blocks + extra, it.shape, known)
            if causes.is_told(known, looked, growth.seconds):
                found.append(_Leak(*candidate))
            elif holder.container() is not None:
                self._candidates.append(candidate)
        is_explained = any(it.is_computed for it in kept)
        if hidden and not is_explained and leaks.is_spread(hidden, growth):
            if not (self.chain.growth() or self.chain.is_long(len(hidden))):
                root = None
            first = self._root_holder(root, scan)
            known = causes.Facts(
                holder=first,
                chain_grows=root is not None,
                hidden_ratio=1.0,
                category=self._owner(hidden),
                **facts,
            )
            if causes.is_told(known, looked, growth.seconds):
                found.append(_Leak(group, growth, hidden, None, known))
        return found

    def _root_holder(self, root, scan):
        if root is None:
            return None
        carried = self.chain.carried(root, scan.with_history)
        found = self._find(carried, scan, (carried,)).found
        carried = None
        # A module's buffer says more than a local that refers to it too.
        return min(
            found,
            key=lambda holder: ("buffer" not in holder.via, min(holder.samples)),
            default=None,
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
        cause, sure = causes.judge(known)
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
            "sure": sure,
            "advice": advice,
        }


class _Leak:
    """One leak: the group that it belongs to, and its fields for the state."""

    def __init__(self, group, growth, blocks, shape, facts):
        self.group = group
        # Live blocks of these sizes.
        self.count = len(blocks)
        self.container = facts.holder.container() if facts.holder else None
        cause, sure = causes.judge(facts)
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
        if cause == "create_graph":
            self.fields["held_by"] = ["graph of backward(), %s" % facts.create_graph]
        self.fields["cause"] = cause
        self.fields["title"] = title
        self.fields["sure"] = sure if sure != "likely" or len(blocks) >= 8 else "maybe"
        self.fields["advice"] = advice
        if facts.holder and facts.holder.steps:
            self.fields["path"] = facts.holder.path()


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
