//! The list of GPUs. Each GPU keeps its slot and its last readings, whether it answers or not.

use super::COUNT_CALL;
use super::call_watch::{CallSubject, Unresponsive};
use super::errors::{self, gpu_name};
use super::gpu_calls::{CallError, GpuCalls};
use super::nvml_gpu::NvmlGpu;
use crate::agent::GpuReadings;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, GpuUuid, Missing, Trouble, Xid};

#[derive(Debug)]
pub(super) struct GpuSlot {
    pub(super) index: u32,
    /// `None` while the GPU does not answer.
    pub(super) gpu: Option<NvmlGpu>,
    /// The instances that MIG splits the GPU into. Empty while the GPU does not answer.
    pub(super) instances: Vec<NvmlGpu>,
    /// The last readings of the GPU, then of its instances. Empty while `gpu` has newer readings.
    pub(super) last: Vec<GpuReadings>,
    /// The call of this GPU that hung; `None` when none did.
    pub(super) unresponsive: Option<Unresponsive>,
}

impl GpuSlot {
    /// Creates the slot of a GPU that does not answer.
    pub(super) fn silent(last: GpuReadings) -> Self {
        Self {
            index: last.facts.index,
            gpu: None,
            instances: vec![],
            last: vec![last],
            unresponsive: None,
        }
    }

    /// Returns the newest readings of the GPU, then of its instances.
    pub(super) fn all_readings(&self) -> impl Iterator<Item = &GpuReadings> {
        let newer = self
            .gpu
            .iter()
            .chain(&self.instances)
            .filter(|_| self.last.is_empty());
        self.last.iter().chain(newer.map(|gpu| &gpu.readings))
    }

    pub(super) fn readings(&self) -> &GpuReadings {
        match &self.gpu {
            Some(gpu) if self.last.is_empty() => &gpu.readings,
            _ => &self.last[0],
        }
    }

    /// Returns `None` while the GPU does not answer.
    pub(super) fn calls(&self) -> Option<&GpuCalls> {
        self.gpu.as_ref().map(|gpu| &gpu.calls)
    }

    pub(super) fn is(&self, uuid: &GpuUuid) -> bool {
        self.readings().uuid == *uuid
    }

    pub(super) fn set_index(&mut self, index: u32) {
        self.index = index;
        self.last
            .iter_mut()
            .for_each(|readings| readings.facts.index = index);
        self.gpu
            .iter_mut()
            .chain(&mut self.instances)
            .for_each(|gpu| gpu.set_index(index));
    }

    /// Adds an Xid error, also when the GPU no longer answers.
    pub(super) fn note_xid(&mut self, xid: Xid) {
        const MOST: usize = 16;
        let newer = self.gpu.as_mut().map(|gpu| &mut gpu.readings);
        for readings in self.last.first_mut().into_iter().chain(newer) {
            let xids = &mut readings.health.xids;
            xids.push(xid);
            if xids.len() > MOST {
                // A hardware error ends many processes, each with an Xid of its own. These must not
                // push out the cause.
                let is_repeated = |place: &usize| {
                    xids[place + 1..]
                        .iter()
                        .any(|later| later.code == xids[*place].code)
                };
                let oldest_repeated = (0..MOST).find(is_repeated);
                drop(xids.drain(oldest_repeated.map_or(0..1, |place| place..place + 1)));
            }
        }
    }

    /// Sets the trouble of the GPU and its instances, which keep their last readings.
    pub(super) fn set_trouble(&mut self, trouble: &Trouble) {
        let gpus = self
            .gpu
            .take()
            .into_iter()
            .chain(std::mem::take(&mut self.instances));
        if self.last.is_empty() {
            self.last = gpus.map(|gpu| gpu.readings).collect();
        }
        for readings in &mut self.last {
            let is_denied = trouble.cause == Cause::Denied;
            readings.processes_missing = Some(if is_denied {
                Missing::Denied
            } else {
                Missing::Failed
            });
            readings.trouble = Some(errors::continued(
                trouble.clone(),
                readings.trouble.as_ref(),
            ));
        }
    }
}

/// Creates slots with the readings of an abandoned thread. Also returns the hung calls that concern
/// the whole driver.
pub(super) fn from_readings(
    gpus: Vec<GpuReadings>,
    unresponsive: Vec<Unresponsive>,
) -> (Vec<GpuSlot>, Vec<Unresponsive>) {
    let mut slots: Vec<GpuSlot> = vec![];
    for readings in gpus {
        match slots.last_mut() {
            Some(slot) if readings.facts.parent.is_some() => slot.last.push(readings),
            _ => slots.push(GpuSlot::silent(readings)),
        }
    }
    let (of_driver, of_gpus): (Vec<_>, Vec<_>) = unresponsive
        .into_iter()
        .partition(|hung| hung.call.subject == CallSubject::Driver);
    for hung in of_gpus {
        // The index alone is not enough: the slot of a lost GPU may have the same index.
        let is_hung = |slot: &&mut GpuSlot| {
            let trouble = slot.readings().trouble.as_ref();
            CallSubject::Gpu(slot.index) == hung.call.subject
                && trouble.is_some_and(Trouble::is_silence)
        };
        if let Some(slot) = slots.iter_mut().find(is_hung) {
            slot.unresponsive = Some(hung);
        }
    }
    (slots, of_driver)
}

/// Sets the trouble of GPUs that failed, and of those that the driver no longer lists.
pub(super) fn set_missing(
    slots: &mut Vec<GpuSlot>,
    present: &[GpuUuid],
    failed: Vec<(u32, CallError)>,
    now: Moment,
) {
    // Remove the placeholder of a GPU whose UUID could not be read when a GPU is found at its
    // index.
    let found = |slot: &GpuSlot| present.iter().any(|uuid| slot.is(uuid));
    let taken: Vec<u32> = slots
        .iter()
        .filter(|slot| found(slot))
        .map(|slot| slot.index)
        .collect();
    slots.retain(|slot| !(slot.is(&GpuUuid::unknown(slot.index)) && taken.contains(&slot.index)));
    let mut explained = vec![];
    for (index, (function, error)) in failed {
        let place = slots
            .iter()
            .position(|slot| slot.index == index && !found(slot));
        let place = place.unwrap_or_else(|| {
            slots.push(GpuSlot::silent(GpuReadings::unknown(
                index,
                now,
                Missing::Failed,
            )));
            slots.len() - 1
        });
        let trouble = errors::gpu_trouble(function, &error, &slots[place].readings().facts, now);
        slots[place].set_trouble(&trouble);
        explained.push(slots[place].readings().uuid.clone());
    }
    for slot in slots.iter_mut() {
        if slot.unresponsive.is_none()
            && !present.iter().chain(&explained).any(|uuid| slot.is(uuid))
        {
            let sentence = format!(
                "{} is not listed by the driver any more; `dmesg | grep -i xid` may say why",
                gpu_name(&slot.readings().facts)
            );
            let call = Some(COUNT_CALL.into());
            slot.set_trouble(&Trouble {
                cause: Cause::Lost,
                sentence: sentence.into(),
                call,
                since: now,
            });
        }
    }
    slots.sort_by_key(|slot| slot.index);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_alike_do_not_push_out_the_one_that_came_before_them() {
        let mut slot = GpuSlot::silent(GpuReadings::unknown(0, Moment(0), Missing::NotYet));
        let codes = |slot: &GpuSlot| {
            slot.last[0]
                .health
                .xids
                .iter()
                .map(|xid| xid.code)
                .collect::<Vec<_>>()
        };
        for (code, at) in [48].into_iter().chain([45; 30]).chain([31]).zip(0..) {
            slot.note_xid(Xid {
                code,
                at: Moment(at),
            });
        }
        assert_eq!(codes(&slot), [&[48][..], &[45; 14], &[31]].concat());
        let times = slot.last[0].health.xids.iter().map(|xid| xid.at);
        assert!(
            times.is_sorted() && slot.last[0].health.xids[1].at == Moment(17),
            "the latest of them stay"
        );
        (100..116).for_each(|code| {
            slot.note_xid(Xid {
                code,
                at: Moment(code),
            });
        });
        assert_eq!(
            codes(&slot),
            (100..116).collect::<Vec<_>>(),
            "of those that are all different, the latest"
        );
    }
}
