//! What to try when a process leaks: by the way in which its memory grows, and by which part of it can have grown.

use super::{Advice, GpuOrProcess, GrowthPattern, HostModel, MemoryPart, ReservedMemory, on_growth, reserved};
use crate::base::units::Bytes;

impl HostModel {
    /// What to try, the most likely first; nothing while memory does not grow as a leak does.
    pub fn advice(&self, subject: &GpuOrProcess) -> Vec<Advice> {
        let growing = self.growth(subject);
        let known = growing.and_then(|it| Some((it.part, it.pattern()?, it.detector.evidence()?.gained)));
        let Some((part, growth, gained)) = known else { return Vec::new() };
        let parts = match subject {
            GpuOrProcess::Process(id) => self.latest().and_then(|it| reserved(it, *id, None)),
            GpuOrProcess::Gpu(_) => None,
        };
        let held = match subject {
            GpuOrProcess::Process(id) => self.process_total(*id).and_then(|it| it.memory.ok()).map(|it| it.bytes),
            GpuOrProcess::Gpu(_) => None,
        };
        let fits = match (part, parts.zip(held)) {
            (Some(part), _) => GrownParts::only(part),
            (None, Some((parts, held))) => GrownParts::of(parts, held, gained),
            (None, None) => return on_growth(&alone(growth)),
        };
        let mut texts = on_growth(&fits.ways(growth));
        texts.retain(|it| fits.may_be(it.name));
        texts
    }
}

/// What memory alone says of a growth.
fn alone(growth: GrowthPattern) -> Vec<GrowthPattern> {
    match growth {
        // A step an epoch and a step an evaluation look the same.
        GrowthPattern::Stair => vec![GrowthPattern::Stair, GrowthPattern::InPhases],
        growth => vec![growth],
    }
}

/// Which part can have grown: none that is smaller than what was gained.
struct GrownParts {
    tensors: bool,
    cache: bool,
    other: bool,
}

impl GrownParts {
    /// The part was seen to grow.
    fn only(part: MemoryPart) -> Self {
        Self {
            tensors: part == MemoryPart::Allocated,
            cache: part == MemoryPart::Cache,
            other: part == MemoryPart::Outside,
        }
    }

    fn of(parts: ReservedMemory, held: Bytes, gained: Bytes) -> Self {
        let cache = [parts.pending, parts.fragmented, parts.cache].into_iter().sum::<Bytes>();
        let fits = |part: Bytes| part >= gained;
        let it =
            Self { tensors: fits(parts.allocated), cache: fits(cache), other: fits(held.saturating_sub(parts.sum())) };
        // It came bit by bit to all of them.
        if it.tensors || it.cache || it.other { it } else { Self { tensors: true, cache: true, other: true } }
    }

    /// The ways in which it may grow, the surest first.
    fn ways(&self, growth: GrowthPattern) -> Vec<GrowthPattern> {
        let tensors = if self.tensors { alone(growth) } else { Vec::new() };
        let others = [(self.cache, GrowthPattern::Cache), (self.other, GrowthPattern::NotPyTorch)];
        tensors.into_iter().chain(others.into_iter().filter(|it| it.0).map(|it| it.1)).collect()
    }

    /// Whether a text is about a part that can have grown.
    fn may_be(&self, name: &str) -> bool {
        match name {
            "cache" | "fragmentation" => self.cache,
            "not-pytorch" => self.other,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(allocated: u64, cache: u64) -> ReservedMemory {
        let nothing = Bytes(0);
        ReservedMemory {
            allocated: Bytes::from_gib(allocated),
            pending: nothing,
            fragmented: nothing,
            cache: Bytes::from_gib(cache),
            rounding: nothing,
        }
    }

    #[test]
    fn what_was_gained_is_in_a_part_that_is_large_enough() {
        let check = |growth, allocated, cache, held, expected: &[GrowthPattern]| {
            let fits = GrownParts::of(parts(allocated, cache), Bytes::from_gib(held), Bytes::from_gib(5));
            assert_eq!(fits.ways(growth), expected);
        };
        check(GrowthPattern::Steady, 20, 1, 22, &[GrowthPattern::Steady]);
        check(GrowthPattern::Steady, 2, 10, 13, &[GrowthPattern::Cache]);
        check(GrowthPattern::Accelerating, 2, 1, 20, &[GrowthPattern::NotPyTorch]);
        check(GrowthPattern::Stair, 20, 6, 27, &[GrowthPattern::Stair, GrowthPattern::InPhases, GrowthPattern::Cache]);
        check(
            GrowthPattern::Steady,
            3,
            3,
            9,
            &[GrowthPattern::Steady, GrowthPattern::Cache, GrowthPattern::NotPyTorch],
        );
        let tensors = GrownParts::of(parts(20, 1), Bytes::from_gib(22), Bytes::from_gib(5));
        assert!(!tensors.may_be("cache") && !tensors.may_be("not-pytorch") && tensors.may_be("loss-history"));
    }
}
