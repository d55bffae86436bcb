//! Numbers at equal distances in time, in little memory: what stays the same takes next to none.
//!
//! Time is cut into buckets of one width, which the owner knows; a track has one slot for each bucket from
//! its first to its last. Slots are packed by the block once a block is full.

use std::collections::VecDeque;
use std::ops::Range;

/// In a slot: from here on nothing is known.
pub(super) const GAP: u32 = u32::MAX;

/// In a slot: nothing was read in this bucket, and what was before goes on.
pub(super) const BLANK: u32 = u32::MAX - 1;

/// The highest number that a slot holds.
pub(super) const HIGHEST: u32 = u32::MAX - 2;

/// Slots of a block.
const BLOCK: usize = 60;
const BLOCK_BUCKETS: u32 = 60;

/// The same words in a byte.
const GAP_BYTE: u8 = u8::MAX;
const BLANK_BYTE: u8 = u8::MAX - 1;

/// Slots of a full block.
#[derive(Debug, Clone)]
enum Block {
    /// All of them hold this.
    Same(u32),
    /// Each is `base` and so many steps of two to the power of `shift`. Memory comes in pages.
    Narrow {
        base: u32,
        shift: u8,
        steps: Box<[u8; BLOCK]>,
    },
    Wide(Box<[u32; BLOCK]>),
}

impl Block {
    fn pack(slots: &[u32; BLOCK]) -> Self {
        if slots.iter().all(|it| *it == slots[0]) {
            return Self::Same(slots[0]);
        }
        let known = || slots.iter().copied().filter(|it| *it <= HIGHEST);
        let base = known().min().unwrap_or(HIGHEST);
        let shift = known().fold(0, |bits, it| bits | (it - base)).trailing_zeros().min(31);
        if known().any(|it| (it - base) >> shift >= u32::from(BLANK_BYTE)) {
            return Self::Wide(Box::new(*slots));
        }
        let step = |slot: u32| match slot {
            GAP => GAP_BYTE,
            BLANK => BLANK_BYTE,
            _ => u8::try_from((slot - base) >> shift).unwrap_or(GAP_BYTE),
        };
        Self::Narrow { base, shift: u8::try_from(shift).unwrap_or(31), steps: Box::new(slots.map(step)) }
    }

    fn slot(&self, at: usize) -> u32 {
        match self {
            Self::Same(slot) => *slot,
            Self::Wide(slots) => slots[at],
            Self::Narrow { base, shift, steps } => widen(*base, *shift, steps[at]),
        }
    }

    /// Adds some of its slots to a list.
    fn copy(&self, range: Range<usize>, slots: &mut Vec<u32>) {
        match self {
            Self::Same(slot) => slots.extend(range.map(|_| *slot)),
            Self::Wide(all) => slots.extend_from_slice(&all[range]),
            Self::Narrow { base, shift, steps } => {
                slots.extend(steps[range].iter().map(|step| widen(*base, *shift, *step)));
            }
        }
    }

    /// What goes on after it; absent when nothing was read in it.
    fn last_known(&self) -> Option<u32> {
        match self {
            Self::Same(slot) => (*slot != BLANK).then_some(*slot),
            _ => (0..BLOCK).rev().map(|at| self.slot(at)).find(|it| *it != BLANK),
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Self::Same(_) => 0,
            Self::Narrow { .. } => BLOCK,
            Self::Wide(_) => BLOCK * size_of::<u32>(),
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

/// What becomes of two numbers in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Highest,
    Lowest,
}

/// The slots.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    /// The bucket of the first slot.
    first: u32,
    full: VecDeque<Block>,
    open: Vec<u32>,
    /// What went on into the first slot.
    before: Option<u32>,
}

impl Track {
    /// Takes in a number, or [`GAP`]. After a silence the buckets between are a gap. Of the past, so many
    /// buckets are kept, and up to a block more. Time never goes back: what is older than the last bucket is passed over.
    pub(super) fn push(&mut self, bucket: u32, slot: u32, keep: Keep, after_silence: bool, kept: u32) {
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

    fn merge(&mut self, slot: u32, keep: Keep) {
        if self.open.is_empty()
            && let Some(block) = self.full.pop_back()
        {
            self.open.extend((0..BLOCK).map(|at| block.slot(at)));
        }
        if let Some(last) = self.open.last_mut() {
            *last = match (*last, slot) {
                (GAP | BLANK, slot) => slot,
                (last, GAP | BLANK) => last,
                (last, slot) if keep == Keep::Highest => last.max(slot),
                (last, slot) => last.min(slot),
            };
        }
    }

    /// Leaves out so many buckets.
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
            if self.open.is_empty() && left > BLOCK {
                self.full.push_back(Block::Same(BLANK));
                self.drop_old(kept);
                left -= BLOCK;
            } else {
                let some = left.min(BLOCK - self.open.len());
                self.open.resize(self.open.len() + some, BLANK);
                left -= some;
            }
        }
    }

    fn append(&mut self, slot: u32, kept: u32) {
        // A block is packed when the next one begins: until then its last slot may still change.
        if self.open.len() == BLOCK {
            self.pack(kept);
        }
        self.open.push(slot);
    }

    fn pack(&mut self, kept: u32) {
        if let Ok(slots) = <&[u32; BLOCK]>::try_from(self.open.as_slice()) {
            self.full.push_back(Block::pack(slots));
            self.open.clear();
        }
        self.drop_old(kept);
    }

    fn drop_old(&mut self, kept: u32) {
        while self.len() >= kept as usize + BLOCK
            && let Some(block) = self.full.pop_front()
        {
            self.before = block.last_known().or(self.before);
            self.first += BLOCK_BUCKETS;
        }
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.full.is_empty()
    }

    fn len(&self) -> usize {
        self.full.len() * BLOCK + self.open.len()
    }

    /// The first bucket that there is a slot for.
    pub(super) fn first(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The last one.
    pub(super) fn last(&self) -> Option<u32> {
        let len = u32::try_from(self.len()).unwrap_or(u32::MAX);
        (len > 0).then(|| self.first + (len - 1))
    }

    /// What went on into a bucket: the last slot before it in which something was read, or a gap began.
    pub(super) fn before(&self, bucket: u32) -> Option<u32> {
        let slot = |at: usize| match self.full.get(at / BLOCK) {
            Some(block) => block.slot(at % BLOCK),
            None => self.open[at - self.full.len() * BLOCK],
        };
        let begin = (bucket.saturating_sub(self.first) as usize).min(self.len());
        (0..begin).rev().map(slot).find(|it| *it != BLANK).or(self.before)
    }

    /// The slots from one bucket to before another, as far as there are any, and the bucket of the first.
    pub(super) fn slots(&self, from: u32, until: u32) -> (u32, Vec<u32>) {
        let place = |bucket: u32| (bucket.saturating_sub(self.first) as usize).min(self.len());
        let (begin, end) = (place(from), place(until));
        let mut slots = Vec::with_capacity(end.saturating_sub(begin));
        // A block at a time: graphs read thousands of slots in each frame.
        let mut start = 0;
        for block in &self.full {
            let (low, high) = (begin.clamp(start, start + BLOCK) - start, end.clamp(start, start + BLOCK) - start);
            if low < high {
                block.copy(low..high, &mut slots);
            }
            start += BLOCK;
        }
        let within = |at: usize| at.saturating_sub(start).min(self.open.len());
        if let Some(open) = self.open.get(within(begin)..within(end)) {
            slots.extend_from_slice(open);
        }
        (self.first + u32::try_from(begin).unwrap_or(u32::MAX), slots)
    }

    /// The memory that it takes beside itself.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.full.iter().map(Block::bytes).sum::<usize>()
            + self.full.capacity() * size_of::<Block>()
            + self.open.capacity() * size_of::<u32>()
    }
}
