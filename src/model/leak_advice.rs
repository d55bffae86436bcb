//! Advice on a leak: by the pattern of growth, and by the parts of memory that may have grown.

use super::{
    Advice, GpuOrProcess, GrowthPattern, HostModel, MemoryPart, ReservedMemory, on_growth, reserved,
};
use crate::base::units::Bytes;

impl HostModel {
    /// Returns advice, most likely first; none unless the memory leaks or may leak.
    pub fn advice(&self, subject: &GpuOrProcess) -> Vec<Advice> {
        let known = self
            .growth(subject)
            .and_then(|growth| Some((growth.part, growth.pattern()?, growth.detector.evidence()?)));
        let Some((part, growth, evidence)) = known else {
            return Vec::new();
        };
        let parts = || {
            let GpuOrProcess::Process(id) = subject else {
                return None;
            };
            let held = self.process_total(*id)?.memory.ok()?.bytes;
            Some(GrownParts::at_least(
                reserved(self.latest()?, *id, None)?,
                held,
                evidence.gained,
            ))
        };
        let Some(grown) = part.map(GrownParts::of_part).or_else(parts) else {
            return on_growth(&patterns_of_total(growth));
        };
        let mut texts = on_growth(&grown.patterns(growth));
        texts.retain(|advice| grown.suits(advice.name));
        texts
    }
}

/// Returns the patterns that a growth of the total may be.
fn patterns_of_total(growth: GrowthPattern) -> Vec<GrowthPattern> {
    match growth {
        // A step per epoch and a step per evaluation look the same.
        GrowthPattern::Steps => vec![GrowthPattern::Steps, GrowthPattern::InPhases],
        growth => vec![growth],
    }
}

/// The parts of memory that may have grown: those that are at least as large as the gain.
struct GrownParts {
    tensors: bool,
    cache: bool,
    other: bool,
}

impl GrownParts {
    /// Returns the part that was seen to grow.
    fn of_part(part: MemoryPart) -> Self {
        Self {
            tensors: part == MemoryPart::Allocated,
            cache: part == MemoryPart::Cache,
            other: part == MemoryPart::Outside,
        }
    }

    fn at_least(parts: ReservedMemory, held: Bytes, gained: Bytes) -> Self {
        let cache = [parts.pending, parts.fragmented, parts.cache]
            .into_iter()
            .sum::<Bytes>();
        let grown = |part: Bytes| part >= gained;
        let parts_that_fit = Self {
            tensors: grown(parts.allocated),
            cache: grown(cache),
            other: grown(held.saturating_sub(parts.sum())),
        };
        // When no part is that large, the gain is spread over several parts.
        if parts_that_fit.tensors || parts_that_fit.cache || parts_that_fit.other {
            parts_that_fit
        } else {
            Self {
                tensors: true,
                cache: true,
                other: true,
            }
        }
    }

    /// The possible patterns, most likely first: of tensors, of the cache, of memory outside
    /// PyTorch.
    fn patterns(&self, growth: GrowthPattern) -> Vec<GrowthPattern> {
        let tensors = if self.tensors {
            patterns_of_total(growth)
        } else {
            Vec::new()
        };
        let others = [
            (self.cache, GrowthPattern::Cache),
            (self.other, GrowthPattern::NotPyTorch),
        ];
        tensors
            .into_iter()
            .chain(
                others
                    .into_iter()
                    .filter(|possible| possible.0)
                    .map(|possible| possible.1),
            )
            .collect()
    }

    /// Whether a text is about a part that may have grown.
    fn suits(&self, name: &str) -> bool {
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
    fn the_gain_is_in_a_part_that_is_large_enough() {
        let check = |growth, allocated, cache, held, expected: &[GrowthPattern]| {
            let grown = GrownParts::at_least(
                parts(allocated, cache),
                Bytes::from_gib(held),
                Bytes::from_gib(5),
            );
            assert_eq!(grown.patterns(growth), expected);
        };
        check(GrowthPattern::Steady, 20, 1, 22, &[GrowthPattern::Steady]);
        check(GrowthPattern::Steady, 2, 10, 13, &[GrowthPattern::Cache]);
        check(
            GrowthPattern::Accelerating,
            2,
            1,
            20,
            &[GrowthPattern::NotPyTorch],
        );
        check(
            GrowthPattern::Steps,
            20,
            6,
            27,
            &[
                GrowthPattern::Steps,
                GrowthPattern::InPhases,
                GrowthPattern::Cache,
            ],
        );
        check(
            GrowthPattern::Steady,
            3,
            3,
            9,
            &[
                GrowthPattern::Steady,
                GrowthPattern::Cache,
                GrowthPattern::NotPyTorch,
            ],
        );
        let tensors = GrownParts::at_least(parts(20, 1), Bytes::from_gib(22), Bytes::from_gib(5));
        assert!(
            !tensors.suits("cache")
                && !tensors.suits("not-pytorch")
                && tensors.suits("loss-history")
        );
    }
}
