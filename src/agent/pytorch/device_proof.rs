//! Proves on which GPU a CUDA device of a process is, by how amounts of memory change.
//!
//! A program may set `CUDA_VISIBLE_DEVICES` after its start, which nobody can see from outside. But
//! when the allocator reserves memory of a device, NVML's figure of one GPU grows by as much. So
//! the amounts of two moments are compared. If the changes of all devices equal those of all GPUs,
//! in whatever order, then a device whose change differs from that of all others is on the GPU with
//! that change.
//!
//! The allocator and the driver are read at different moments. So amounts count only once they have
//! not changed for longer than a read may take: then there was a moment at which both were true.

use std::collections::BTreeMap;

use super::DEADLINE;
use super::device_stats::DeviceStats;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Gpu, GpuUuid};

/// By how many bytes the change of a GPU may differ from that of its device: CUDA may load some
/// kernels at the same time.
const TOLERANCE: u64 = 16 << 20;
/// By how many bytes the change of a device differs from that of each other device, if it proves
/// something.
const LEAST_DIFFERENCE: u64 = 64 << 20;

/// The memory of a process on one GPU, as NVML reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuAmount {
    pub(super) gpu: GpuUuid,
    pub(super) bytes: u64,
    /// When NVML was asked.
    pub(super) at: Moment,
}

/// The amounts of a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Amounts {
    /// The reserved memory of each used device, in bytes.
    devices: Vec<(usize, u64)>,
    gpus: Vec<(GpuUuid, u64)>,
}

/// The GPUs of the devices of one process, as far as changes of memory have proven them.
#[derive(Debug, Clone, Default)]
pub(in crate::agent) struct DeviceProof {
    /// The last amounts, and when NVML first reported them.
    last: Option<(Amounts, Moment)>,
    /// The last amounts that did not change for a while.
    settled: Option<Amounts>,
    proven: BTreeMap<usize, GpuUuid>,
    /// Whether two proofs contradicted each other, so that nothing is known.
    is_contradictory: bool,
}

impl DeviceProof {
    /// Takes the amounts of a pass.
    pub(super) fn observe(&mut self, stats: &[DeviceStats], gpus: Vec<GpuAmount>) {
        let times = || gpus.iter().map(|gpu| gpu.at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return;
        };
        let used = stats
            .iter()
            .enumerate()
            .filter(|(_, stats)| stats.is_used());
        let amounts = Amounts {
            devices: used
                .map(|(device, stats)| (device, stats.reserved.current))
                .collect(),
            gpus: gpus.into_iter().map(|gpu| (gpu.gpu, gpu.bytes)).collect(),
        };
        match &self.last {
            Some((known, since)) if *known == amounts => {
                if first.since(*since) > DEADLINE && self.settled.as_ref() != Some(known) {
                    let before = self.settled.replace(amounts);
                    self.compare(before.as_ref());
                }
            }
            _ => self.last = Some((amounts, last)),
        }
    }

    /// Adds what the changes since the settled amounts `before` prove.
    fn compare(&mut self, before: Option<&Amounts>) {
        let (Some(before), Some(now)) = (before, &self.settled) else {
            return;
        };
        for (device, gpu) in now.proven_since(before) {
            let is_known = self.proven.get(&device) == Some(&gpu);
            let is_taken = self.proven.contains_key(&device)
                || self.proven.values().any(|other| *other == gpu);
            self.is_contradictory |= is_taken && !is_known;
            self.proven.insert(device, gpu);
        }
    }

    /// Returns the index of the GPU of each device: as assigned by other rules, unless that is
    /// proven to be wrong.
    pub(super) fn correct(&self, assigned: Vec<Option<usize>>, gpus: &[Gpu]) -> Vec<Option<usize>> {
        let index = |device: &usize| {
            let uuid = self.proven.get(device).filter(|_| !self.is_contradictory)?;
            gpus.iter().position(|gpu| gpu.uuid == *uuid)
        };
        let proven: Vec<Option<usize>> = (0..assigned.len()).map(|device| index(&device)).collect();
        let is_wrong = |(assigned, proven): (&Option<usize>, &Option<usize>)| {
            assigned
                .zip(*proven)
                .is_some_and(|(assigned, proven)| assigned != proven)
        };
        if self.is_contradictory || assigned.iter().zip(&proven).any(is_wrong) {
            // If one device is elsewhere, so may be all.
            return proven;
        }
        assigned
            .into_iter()
            .zip(proven)
            .map(|(assigned, proven)| proven.or(assigned))
            .collect()
    }
}

impl Amounts {
    /// Returns the devices whose GPU the changes since `before` prove, and that GPU.
    fn proven_since(&self, before: &Self) -> Vec<(usize, GpuUuid)> {
        let devices = changes(&before.devices, &self.devices);
        let Some((devices, mut gpus)) = devices.zip(changes(&before.gpus, &self.gpus)) else {
            return vec![];
        };
        if devices.len() > gpus.len() {
            return vec![];
        }
        let mut devices: Vec<_> = devices
            .into_iter()
            .map(|(device, change)| (Some(device), change))
            .collect();
        // The process has a context on the other GPUs, and PyTorch nothing.
        devices.resize(gpus.len(), (None, 0));
        devices.sort_by_key(|(_, change)| *change);
        gpus.sort_by_key(|(_, change)| *change);
        let is_same = |(device, gpu): (&(_, i64), &(_, i64))| device.1.abs_diff(gpu.1) <= TOLERANCE;
        if !devices.iter().zip(&gpus).all(is_same) {
            // Another library took or freed memory.
            return vec![];
        }
        let differs = |device: usize, other: usize| {
            devices
                .get(other)
                .is_none_or(|other| other.1.abs_diff(devices[device].1) >= LEAST_DIFFERENCE)
        };
        let is_unique = |device: &usize| {
            device
                .checked_sub(1)
                .is_none_or(|below| differs(*device, below))
                && differs(*device, device + 1)
        };
        let unique = (0..devices.len()).filter(is_unique);
        unique
            .filter_map(|device| Some((devices[device].0?, gpus[device].0.clone())))
            .collect()
    }
}

/// Returns by how many bytes each amount has changed. `None` when the amounts are of other things
/// than before.
fn changes<Key: Clone + PartialEq>(
    before: &[(Key, u64)],
    now: &[(Key, u64)],
) -> Option<Vec<(Key, i64)>> {
    let is_same = before
        .iter()
        .map(|(key, _)| key)
        .eq(now.iter().map(|(key, _)| key));
    let change = |((_, before), (key, now)): (&(Key, u64), &(Key, u64))| {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        (key.clone(), signed(*now) - signed(*before))
    };
    is_same.then(|| before.iter().zip(now).map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::super::device_stats::CurrentAndPeak;
    use super::*;
    use crate::protocol::snapshot::example::host;

    /// A process on GPUs that are read every two seconds.
    #[derive(Default)]
    struct Observed {
        proof: DeviceProof,
        at: Moment,
    }

    impl Observed {
        /// One pass with these amounts in MiB. A device with 0 is unused.
        fn pass(&mut self, reserved: &[u64], held: &[u64]) {
            self.at = self.at.after(2 * DEADLINE);
            let stat = |mib: u64| CurrentAndPeak {
                current: mib << 20,
                peak: mib << 20,
            };
            let device = |mib: &u64| DeviceStats {
                reserved: stat(*mib),
                ..DeviceStats::default()
            };
            let devices: Vec<DeviceStats> = reserved.iter().map(device).collect();
            let gpus = held.iter().enumerate().map(|(gpu, mib)| GpuAmount {
                gpu: GpuUuid(format!("GPU-{gpu}").into()),
                bytes: mib << 20,
                at: self.at,
            });
            self.proof.observe(&devices, gpus.collect());
        }

        fn settle(&mut self, reserved: &[u64], held: &[u64]) {
            self.pass(reserved, held);
            self.pass(reserved, held);
        }

        /// Checks the GPUs of devices that other rules have assigned to the GPUs in their order.
        #[track_caller]
        fn check(&self, expected: &[Option<usize>]) {
            let gpus = host(4).gpus;
            let assigned = (0..expected.len()).map(Some).collect();
            assert_eq!(
                self.proof.correct(assigned, &gpus),
                expected,
                "{:?}",
                self.proof
            );
        }
    }

    #[test]
    fn a_device_is_on_the_gpu_that_grows_with_it() {
        let mut observed = Observed::default();
        observed.settle(&[500, 500], &[900, 900]);
        observed.check(&[Some(0), Some(1)]);
        observed.settle(&[600, 500], &[1000, 900]);
        observed.check(&[Some(0), Some(1)]);
        let mut permuted = Observed::default();
        permuted.settle(&[500, 500], &[900, 900]);
        permuted.settle(&[600, 500], &[902, 1000]);
        // The other device did not change, nor did the other GPU.
        permuted.check(&[Some(1), Some(0)]);
        assert_eq!(
            permuted.proof.correct(vec![None, None], &host(4).gpus),
            [Some(1), Some(0)]
        );
        permuted.settle(&[600, 800], &[1202, 1000]);
        permuted.check(&[Some(1), Some(0)]);
    }

    #[test]
    fn amounts_of_different_moments_are_not_compared() {
        let mut observed = Observed::default();
        observed.settle(&[500, 500], &[900, 900]);
        // The driver is behind the allocator by one pass.
        observed.pass(&[600, 500], &[900, 900]);
        observed.pass(&[600, 600], &[1000, 900]);
        observed.settle(&[600, 600], &[1000, 1000]);
        assert!(observed.proof.proven.is_empty(), "{:?}", observed.proof);
    }

    #[test]
    fn equal_changes_small_changes_and_those_of_other_libraries_prove_nothing() {
        let mut observed = Observed::default();
        observed.settle(&[500, 500], &[900, 900]);
        for (reserved, held) in [
            ([600, 600], [1000, 1000]),
            ([660, 600], [1000, 1060]),
            // Another library takes as much on the other GPU.
            ([760, 600], [1100, 1160]),
            ([760, 600], [1500, 1160]),
            // PyTorch frees its cache, and another library takes half of it.
            ([560, 600], [1400, 1160]),
        ] {
            observed.settle(&reserved, &held);
        }
        assert!(observed.proof.proven.is_empty(), "{:?}", observed.proof);
    }

    #[test]
    fn a_wrong_order_leaves_devices_unknown_until_they_change() {
        let mut observed = Observed::default();
        observed.settle(&[500, 500, 500], &[900, 900, 900]);
        observed.settle(&[600, 500, 500], &[900, 900, 1000]);
        observed.check(&[Some(2), None, None]);
        observed.settle(&[600, 700, 500], &[1100, 900, 1000]);
        observed.check(&[Some(2), Some(0), None]);
        observed.settle(&[600, 700, 800], &[1100, 1200, 1000]);
        observed.check(&[Some(2), Some(0), Some(1)]);
    }

    #[test]
    fn a_device_that_is_first_used_gets_a_context_too_and_proves_nothing() {
        let mut observed = Observed::default();
        observed.settle(&[500, 0], &[900, 400]);
        observed.settle(&[500, 500], &[900, 900]);
        assert!(observed.proof.proven.is_empty(), "{:?}", observed.proof);
        // On the first GPU, the process has a context only.
        let mut rank = Observed::default();
        rank.settle(&[500], &[400, 900]);
        rank.settle(&[700], &[400, 1100]);
        rank.check(&[Some(1)]);
    }

    #[test]
    fn after_contradicting_proofs_nothing_is_known() {
        let mut observed = Observed::default();
        observed.settle(&[500, 500], &[900, 900]);
        observed.settle(&[600, 500], &[900, 1000]);
        observed.settle(&[800, 500], &[1100, 1000]);
        observed.check(&[None, None]);
        observed.settle(&[900, 500], &[1100, 1100]);
        observed.check(&[None, None]);
    }
}
