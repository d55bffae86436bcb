//! Stores one number for each bucket of time, packed: a number that stays the same takes almost no
//! memory.
//!
//! All buckets of a [`Track`] have one width, which only the owner of the track knows. A track has
//! one slot for each bucket from its first to its last. Full blocks of slots are packed.

mod text_form;

use std::collections::VecDeque;
use std::ops::Range;

/// The slot of a bucket in which a gap begins.
pub(super) const GAP: u32 = u32::MAX;

/// The slot of a bucket in which no value was read: the value before it lasts.
pub(super) const BLANK: u32 = u32::MAX - 1;

pub(super) const HIGHEST: u32 = u32::MAX - 2;

const BLOCK: usize = 60;
const BLOCK_BUCKETS: u32 = 60;

/// [`GAP`] and [`BLANK`] in a packed slot of one byte.
const GAP_BYTE: u8 = u8::MAX;
const BLANK_BYTE: u8 = u8::MAX - 1;

#[derive(Debug, Clone)]
enum Block {
    /// All slots of this many blocks have the same value.
    Same {
        slot: u32,
        blocks: u32,
    },
    /// Each slot is `base` plus a number of steps of 2^`shift`: amounts of memory are often
    /// multiples of a page.
    Narrow {
        base: u32,
        shift: u8,
        steps: Box<[u8; BLOCK]>,
    },
    Wide(Box<[u32; BLOCK]>),
}

impl Block {
    fn pack(slots: &[u32; BLOCK]) -> Self {
        let (base, shift) = Self::scale(slots);
        let known = || slots.iter().copied().filter(|slot| *slot <= HIGHEST);
        if known().any(|slot| (slot - base) >> shift >= u32::from(BLANK_BYTE)) {
            return Self::Wide(Box::new(*slots));
        }
        let step = |slot: u32| match slot {
            GAP => GAP_BYTE,
            BLANK => BLANK_BYTE,
            _ => u8::try_from((slot - base) >> shift).unwrap_or(GAP_BYTE),
        };
        Self::Narrow {
            base,
            shift,
            steps: Box::new(slots.map(step)),
        }
    }

    /// Returns the base and the shift with which the steps of these slots are smallest.
    fn scale(slots: &[u32]) -> (u32, u8) {
        let known = || slots.iter().copied().filter(|slot| *slot <= HIGHEST);
        let base = known().min().unwrap_or(HIGHEST);
        let shift = known()
            .fold(0, |bits, slot| bits | (slot - base))
            .trailing_zeros()
            .min(31);
        (base, u8::try_from(shift).unwrap_or(31))
    }

    fn len(&self) -> usize {
        match self {
            Self::Same { blocks, .. } => *blocks as usize * BLOCK,
            Self::Narrow { .. } | Self::Wide(_) => BLOCK,
        }
    }

    fn slot(&self, place: usize) -> u32 {
        match self {
            Self::Same { slot, .. } => *slot,
            Self::Wide(slots) => slots[place],
            Self::Narrow { base, shift, steps } => widen(*base, *shift, steps[place]),
        }
    }

    fn copy(&self, range: Range<usize>, slots: &mut Vec<u32>) {
        match self {
            Self::Same { slot, .. } => slots.extend(range.map(|_| *slot)),
            Self::Wide(all) => slots.extend_from_slice(&all[range]),
            Self::Narrow { base, shift, steps } => {
                slots.extend(steps[range].iter().map(|step| widen(*base, *shift, *step)));
            }
        }
    }

    /// The value that lasts after the block; `None` when all of its slots are blank.
    fn last_known(&self) -> Option<u32> {
        match self {
            Self::Same { slot, .. } => (*slot != BLANK).then_some(*slot),
            _ => (0..BLOCK)
                .rev()
                .map(|place| self.slot(place))
                .find(|slot| *slot != BLANK),
        }
    }
}

fn widen(base: u32, shift: u8, step: u8) -> u32 {
    match step {
        GAP_BYTE => GAP,
        BLANK_BYTE => BLANK,
        step => base + (u32::from(step) << shift),
    }
}

/// Which of two values in one bucket a track keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    Highest,
    Lowest,
}

/// The slots after the last full block. The first `same` of them have one value, as most curves
/// stay constant.
#[derive(Debug, Clone, Default)]
struct OpenBlock {
    slot: u32,
    same: u32,
    rest: Vec<u32>,
}

impl OpenBlock {
    fn len(&self) -> usize {
        self.same as usize + self.rest.len()
    }

    fn push(&mut self, slot: u32) {
        if self.rest.is_empty() && (self.same == 0 || slot == self.slot) {
            self.slot = slot;
            self.same += 1;
        } else {
            self.rest.push(slot);
        }
    }

    fn pop(&mut self) -> Option<u32> {
        self.rest.pop().or_else(|| {
            self.same = self.same.checked_sub(1)?;
            Some(self.slot)
        })
    }

    fn slot(&self, place: usize) -> u32 {
        place
            .checked_sub(self.same as usize)
            .map_or(self.slot, |place| self.rest[place])
    }

    /// Packs all slots, which fill a block, and starts the next block.
    fn take_block(&mut self) -> Block {
        if self.same == BLOCK_BUCKETS {
            let slot = std::mem::take(self).slot;
            return Block::Same { slot, blocks: 1 };
        }
        let block = Block::pack(&std::array::from_fn(|place| self.slot(place)));
        self.same = 0;
        self.rest.clear();
        block
    }
}

/// The slots of one curve in one resolution.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    /// The bucket of the first slot.
    first: u32,
    /// The number of slots in `full`.
    packed: u32,
    full: VecDeque<Block>,
    open: OpenBlock,
    /// The value that lasted into the first slot.
    before: Option<u32>,
}

impl Track {
    /// Adds a value, or [`GAP`]. With `after_silence`, the time since the last value is a gap.
    /// Keeps `kept` buckets, and up to a block more. Ignores buckets older than the last one.
    pub(super) fn push(
        &mut self,
        bucket: u32,
        slot: u32,
        keep: Merge,
        after_silence: bool,
        kept: u32,
    ) {
        if let Some(last) = self.last() {
            if bucket < last {
                return;
            }
            if bucket == last {
                self.merge(slot, keep);
                return;
            }
            if bucket - last > kept {
                *self = Self::default();
            } else {
                self.skip((bucket - last - 1) as usize, after_silence, kept);
            }
        }
        if self.is_empty() {
            self.first = bucket;
        }
        self.append(slot, kept);
    }

    fn merge(&mut self, slot: u32, keep: Merge) {
        let Some(last) = self.open.pop() else { return };
        self.open.push(match (last, slot) {
            (GAP | BLANK, slot) => slot,
            (last, GAP | BLANK) => last,
            (last, slot) if keep == Merge::Highest => last.max(slot),
            (last, slot) => last.min(slot),
        });
    }

    /// Appends blank slots; the first is a gap with `after_silence`.
    fn skip(&mut self, buckets: usize, after_silence: bool, kept: u32) {
        let mut left = buckets;
        if after_silence && left > 0 {
            self.append(GAP, kept);
            left -= 1;
        }
        while left > 0 {
            if self.open.len() == BLOCK {
                self.pack(kept);
            }
            if self.open.len() == 0 && left > BLOCK {
                self.keep(
                    Block::Same {
                        slot: BLANK,
                        blocks: 1,
                    },
                    kept,
                );
                left -= BLOCK;
            } else {
                self.open.push(BLANK);
                left -= 1;
            }
        }
    }

    fn append(&mut self, slot: u32, kept: u32) {
        // A block is packed when the next one begins: until then its last slot may change.
        if self.open.len() == BLOCK {
            self.pack(kept);
        }
        self.open.push(slot);
    }

    fn pack(&mut self, kept: u32) {
        let block = self.open.take_block();
        self.keep(block, kept);
    }

    /// Adds a full block, and drops the blocks that are older than `kept` buckets.
    fn keep(&mut self, block: Block, kept: u32) {
        self.packed += BLOCK_BUCKETS;
        match (self.full.back_mut(), &block) {
            (Some(Block::Same { slot, blocks }), Block::Same { slot: same, .. })
                if slot == same =>
            {
                *blocks += 1;
            }
            _ => self.full.push_back(block),
        }
        while self.len() >= kept as usize + BLOCK
            && let Some(block) = self.full.front_mut()
        {
            self.before = block.last_known().or(self.before);
            self.first += BLOCK_BUCKETS;
            self.packed -= BLOCK_BUCKETS;
            match block {
                Block::Same { blocks, .. } if *blocks > 1 => *blocks -= 1,
                _ => drop(self.full.pop_front()),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.packed as usize + self.open.len()
    }

    /// The bucket of the first slot; `None` in an empty track.
    pub(super) fn first(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The bucket of the last slot; `None` in an empty track.
    pub(super) fn last(&self) -> Option<u32> {
        let len = u32::try_from(self.len()).unwrap_or(u32::MAX);
        (len > 0).then(|| self.first + (len - 1))
    }

    /// Returns the value that lasts into a bucket: the latest earlier slot that is not blank;
    /// `None` when there is none.
    pub(super) fn before(&self, bucket: u32) -> Option<u32> {
        let end = (bucket.saturating_sub(self.first) as usize).min(self.len());
        let packed = self.packed as usize;
        let open = (packed..end)
            .rev()
            .map(|place| self.open.slot(place - packed));
        let mut after = packed;
        let full = self.full.iter().rev().flat_map(|block| {
            after -= block.len();
            let within = end.saturating_sub(after).min(block.len());
            (0..within).rev().map(|place| block.slot(place))
        });
        open.chain(full).find(|slot| *slot != BLANK).or(self.before)
    }

    /// Returns the slots from bucket `from` to before `until`, as far as there are any, and the
    /// bucket of the first.
    pub(super) fn slots(&self, from: u32, until: u32) -> (u32, Vec<u32>) {
        let place = |bucket: u32| (bucket.saturating_sub(self.first) as usize).min(self.len());
        let (begin, end) = (place(from), place(until));
        let mut slots = Vec::with_capacity(end.saturating_sub(begin));
        // Copies whole blocks: graphs read thousands of slots in each frame.
        let mut start = 0;
        for block in &self.full {
            let within = |place: usize| place.saturating_sub(start).min(block.len());
            if within(begin) < within(end) {
                block.copy(within(begin)..within(end), &mut slots);
            }
            start += block.len();
        }
        slots.extend((begin.max(start)..end).map(|place| self.open.slot(place - start)));
        (self.first + u32::try_from(begin).unwrap_or(u32::MAX), slots)
    }

    /// Returns the last buckets alone.
    pub(super) fn last_buckets(&self, kept: u32) -> Self {
        let end = self.last().map_or(0, |last| last + 1);
        let from = end.saturating_sub(kept);
        let (first, slots) = self.slots(from, end);
        Self::from_slots(first, self.before(first), &slots)
    }

    /// Returns the track with the last `kept` buckets as they are, and one value for each `width`
    /// buckets before them.
    pub(super) fn merged(&self, kept: u32, width: u32, keep: Merge) -> Self {
        let (first, mut slots) = self.slots(0, u32::MAX);
        let old = slots.len().saturating_sub(kept as usize);
        let width = width as usize;
        // Merged buckets begin at multiples of their width, so that a later checkpoint merges the
        // same ones.
        let ahead = (width - first as usize % width) % width;
        let (head, rest) = slots[..old].split_at_mut(ahead.min(old));
        for part in std::iter::once(head).chain(rest.chunks_mut(width)) {
            let known = || part.iter().copied().filter(|slot| *slot <= HIGHEST);
            let value = if keep == Merge::Highest {
                known().max()
            } else {
                known().min()
            };
            if let Some(value) = value {
                part.fill(value);
            }
        }
        Self::from_slots(first, self.before, &slots)
    }

    fn from_slots(first: u32, before: Option<u32>, slots: &[u32]) -> Self {
        let mut track = Self {
            first,
            before,
            ..Self::default()
        };
        for slot in slots {
            track.append(*slot, u32::MAX);
        }
        track
    }

    /// The heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let packed = self.full.iter().map(|block| match block {
            Block::Same { .. } => 0,
            Block::Narrow { .. } => BLOCK,
            Block::Wide(_) => BLOCK * size_of::<u32>(),
        });
        packed.sum::<usize>()
            + self.full.capacity() * size_of::<Block>()
            + self.open.rest.capacity() * size_of::<u32>()
    }
}
