//! A model of PyTorch's caching allocator: the memory that it takes from the driver is the figure
//! of `nvidia-smi`.
//!
//! Requests are rounded up to 512 B. Requests up to 1 MiB share segments of 2 MiB, those up to 10
//! MiB segments of 20 MiB; a larger request has a segment of its own, rounded up to 2 MiB. Freed
//! blocks stay cached, are merged with free neighbours, and are reused by best fit. Only segments
//! that are free as a whole can be returned.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) const MIB: u64 = 1 << 20;

/// The place of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    segment: usize,
    offset: u64,
}

#[derive(Debug, Default)]
struct Segment {
    small: bool,
    size: u64,
    /// By offset, the size of each block and whether it is free.
    blocks: BTreeMap<u64, (u64, bool)>,
}

#[derive(Debug, Default)]
pub(crate) struct DeviceAllocator {
    segments: Vec<Segment>,
    vacant: Vec<usize>,
    /// Free blocks by pool and size.
    free: BTreeSet<(bool, u64, usize, u64)>,
    reserved: u64,
    allocated: u64,
    /// Segments grow by pages instead of being added, as with `expandable_segments:True`.
    expandable: bool,
}

impl DeviceAllocator {
    pub(crate) fn new(expandable: bool) -> Self {
        Self {
            expandable,
            ..Self::default()
        }
    }

    /// The memory taken from the driver.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The memory held by tensors.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Allocates a tensor; `None` when the driver's memory would exceed `limit`.
    pub(crate) fn allocate(&mut self, bytes: u64, limit: u64) -> Option<Block> {
        let size = bytes.max(1).next_multiple_of(512);
        let small = size <= MIB;
        let best = self
            .free
            .range((small, size, 0, 0)..(small, u64::MAX, 0, 0))
            .next()
            .copied();
        if let Some((_, whole, segment, offset)) = best {
            return Some(self.cut(segment, offset, whole, size));
        }
        let page = if small { 2 * MIB } else { 20 * MIB };
        if self.expandable {
            return self.expand(size, small, page, limit);
        }
        let whole = if small || size < 10 * MIB {
            page
        } else {
            size.next_multiple_of(2 * MIB)
        };
        if self.reserved + whole > limit {
            return None;
        }
        self.reserved += whole;
        let segment = self.vacant.pop().unwrap_or_else(|| {
            self.segments.push(Segment::default());
            self.segments.len() - 1
        });
        self.segments[segment] = Segment {
            small,
            size: whole,
            blocks: BTreeMap::from([(0, (whole, true))]),
        };
        self.free.insert((small, whole, segment, 0));
        Some(self.cut(segment, 0, whole, size))
    }

    /// Extends the only segment of a pool so that the tensor fits at its end.
    fn expand(&mut self, size: u64, small: bool, page: u64, limit: u64) -> Option<Block> {
        let at = self
            .segments
            .iter()
            .position(|segment| segment.small == small && segment.size > 0)
            .unwrap_or_else(|| {
                self.segments.push(Segment {
                    small,
                    ..Segment::default()
                });
                self.segments.len() - 1
            });
        let end = self.segments[at].size;
        let last = self.segments[at]
            .blocks
            .last_key_value()
            .map(|(offset, length)| (*offset, *length));
        let (offset, had) = match last {
            Some((offset, (had, true))) => (offset, had),
            _ => (end, 0),
        };
        let more = (size - had).next_multiple_of(page);
        if self.reserved + more > limit {
            return None;
        }
        self.reserved += more;
        self.free.remove(&(small, had, at, offset));
        self.segments[at].size += more;
        self.segments[at].blocks.insert(offset, (had + more, true));
        self.free.insert((small, had + more, at, offset));
        Some(self.cut(at, offset, had + more, size))
    }

    fn cut(&mut self, segment: usize, offset: u64, whole: u64, size: u64) -> Block {
        let small = self.segments[segment].small;
        self.free.remove(&(small, whole, segment, offset));
        let rest = whole - size;
        let is_cut = if small { rest >= 512 } else { rest > MIB };
        let size = if is_cut { size } else { whole };
        self.allocated += size;
        let blocks = &mut self.segments[segment].blocks;
        blocks.insert(offset, (size, false));
        if is_cut {
            blocks.insert(offset + size, (rest, true));
            self.free.insert((small, rest, segment, offset + size));
        }
        Block { segment, offset }
    }

    /// Frees a tensor into the cache.
    pub(crate) fn free(&mut self, block: Block) {
        let segment = &mut self.segments[block.segment];
        let (mut offset, small) = (block.offset, segment.small);
        let Some((mut size, _)) = segment.blocks.remove(&offset) else {
            return;
        };
        self.allocated -= size;
        if let Some((&next, &(more, true))) = segment.blocks.range(offset..).next() {
            segment.blocks.remove(&next);
            self.free.remove(&(small, more, block.segment, next));
            size += more;
        }
        if let Some((&before, &(more, true))) = segment.blocks.range(..offset).next_back() {
            self.free.remove(&(small, more, block.segment, before));
            size += more;
            offset = before;
        }
        segment.blocks.insert(offset, (size, true));
        self.free.insert((small, size, block.segment, offset));
    }

    /// Returns all free segments to the driver.
    pub(crate) fn empty_cache(&mut self) {
        for (at, segment) in self
            .segments
            .iter_mut()
            .enumerate()
            .filter(|(_, segment)| segment.size > 0)
        {
            let Some((&offset, &(size, true))) = segment.blocks.last_key_value() else {
                continue;
            };
            if size == segment.size {
                self.free.remove(&(segment.small, size, at, offset));
                self.reserved -= size;
                *segment = Segment::default();
                if !self.expandable {
                    self.vacant.push(at);
                }
            } else if self.expandable {
                let page = if segment.small { 2 * MIB } else { 20 * MIB };
                let less = size / page * page;
                if less == 0 {
                    continue;
                }
                self.free.remove(&(segment.small, size, at, offset));
                segment.size -= less;
                self.reserved -= less;
                segment.blocks.remove(&offset);
                if size > less {
                    segment.blocks.insert(offset, (size - less, true));
                    self.free.insert((segment.small, size - less, at, offset));
                }
            }
        }
    }
}
