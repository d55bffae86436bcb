//! The list of GPUs, where each keeps its place and its last readings whether it answers or not.

use super::call_watch::Subject;
use super::errors::{self, the_gpu};
use super::gpu::{Failure, Gpu};
use super::{COUNT_CALL, Sick};
use crate::agent::GpuReadings;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Missing, Trouble, Xid};

/// A GPU's place in the list, whether it answers or not.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) index: u32,
    /// What was last read: the GPU, then its instances.
    pub(super) last: Vec<GpuReadings>,
    /// Absent while it does not answer.
    pub(super) gpu: Option<Gpu>,
    pub(super) sick: Option<Sick>,
}

impl Seat {
    pub(super) fn is(&self, uuid: &GpuUuid) -> bool {
        self.last.first().is_some_and(|readings| readings.uuid == *uuid)
    }

    /// Takes note of an Xid error, which may be the last word of a GPU that does not answer any more.
    pub(super) fn note_xid(&mut self, xid: Xid) {
        const MOST: usize = 16;
        let xids = &mut self.last[0].health.xids;
        xids.push(xid);
        if xids.len() > MOST {
            // What ends with an error of the hardware brings one each: many alike, which must not push out their cause.
            let comes_again = |at: &usize| xids[at + 1..].iter().any(|later| later.code == xids[*at].code);
            let oldest_alike = (0..MOST).find(comes_again);
            drop(xids.drain(oldest_alike.map_or(0..1, |at| at..at + 1)));
        }
        if let Some(gpu) = &mut self.gpu {
            gpu.readings.health.xids.clone_from(xids);
        }
    }

    /// Puts the trouble on the GPU and its instances, whose last readings stay. One that goes on, at another
    /// call perhaps, began when it began.
    pub(super) fn suffers(&mut self, trouble: &Trouble) {
        self.gpu = None;
        for readings in &mut self.last {
            let since = match &readings.trouble {
                Some(old) if old.cause == trouble.cause => old.since,
                _ => trouble.since,
            };
            readings.trouble = Some(Trouble { since, ..trouble.clone() });
        }
    }
}

/// The seats that a thread left behind, and what it found hung about the driver as a whole.
pub(super) fn from_readings(gpus: Vec<GpuReadings>, all_sick: Vec<Sick>) -> (Vec<Seat>, Vec<Sick>) {
    let mut seats: Vec<Seat> = vec![];
    for readings in gpus {
        let index = readings.facts.index;
        match seats.last_mut() {
            Some(seat) if readings.facts.parent.is_some() => seat.last.push(readings),
            _ => seats.push(Seat { index, last: vec![readings], gpu: None, sick: None }),
        }
    }
    let mut avoid = vec![];
    for sick in all_sick {
        match sick.subject {
            Subject::Driver => avoid.push(sick),
            Subject::Gpu(index) => {
                // A lost GPU may have had the same index before.
                let hung = |seat: &&mut Seat| {
                    let trouble = seat.last[0].trouble.as_ref();
                    seat.index == index && trouble.is_some_and(Trouble::is_silence)
                };
                if let Some(seat) = seats.iter_mut().find(hung) {
                    seat.sick = Some(sick);
                }
            }
        }
    }
    (seats, avoid)
}

/// Gives those their trouble who could not be found.
pub(super) fn settle(seats: &mut Vec<Seat>, present: &[GpuUuid], failed: Vec<(u32, Failure)>, now: Moment) {
    // A stand-in for a GPU that could not say who it is goes when someone is found in its place.
    let found = |seat: &Seat| present.iter().any(|uuid| seat.is(uuid));
    let taken: Vec<u32> = seats.iter().filter(|seat| found(seat)).map(|seat| seat.index).collect();
    seats.retain(|seat| !(seat.is(&stand_in(seat.index)) && taken.contains(&seat.index)));
    let mut excused = vec![];
    for (index, (function, error)) in failed {
        let at = seats.iter().position(|seat| seat.index == index && !found(seat));
        let at = at.unwrap_or_else(|| {
            seats.push(Seat { index, last: vec![unknown(index, now, Missing::Failed)], gpu: None, sick: None });
            seats.len() - 1
        });
        let trouble = errors::of_gpu(function, &error, &seats[at].last[0].facts, now);
        seats[at].suffers(&trouble);
        excused.push(seats[at].last[0].uuid.clone());
    }
    for seat in seats.iter_mut() {
        if seat.sick.is_none() && !present.iter().chain(&excused).any(|uuid| seat.is(uuid)) {
            let sentence = format!(
                "{} is not listed by the driver any more; `dmesg | grep -i xid` may say why",
                the_gpu(&seat.last[0].facts)
            );
            let call = Some(COUNT_CALL.into());
            seat.suffers(&Trouble { cause: Cause::Lost, sentence: sentence.into(), call, since: now });
        }
    }
    seats.sort_by_key(|seat| seat.index);
}

/// The id of a GPU that could not say its own.
fn stand_in(index: u32) -> GpuUuid {
    GpuUuid(format!("unknown-{index}").into())
}

/// What is known of a GPU that could not even say who it is, and why no more.
pub(in crate::agent) fn unknown(index: u32, now: Moment, why: Missing) -> GpuReadings {
    GpuReadings {
        uuid: stand_in(index),
        facts: GpuFacts::missing(index, None, false, why),
        load: GpuLoad::missing(now, why),
        health: GpuHealth::missing(now, vec![], why),
        detail: None,
        holds: vec![],
        device_file_holders: vec![],
        trouble: None,
        failures: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_alike_do_not_push_out_the_one_that_came_before_them() {
        let last = vec![unknown(0, Moment(0), Missing::NotYet)];
        let mut seat = Seat { index: 0, last, gpu: None, sick: None };
        let codes = |seat: &Seat| seat.last[0].health.xids.iter().map(|it| it.code).collect::<Vec<_>>();
        for (code, at) in [48].into_iter().chain([45; 30]).chain([31]).zip(0..) {
            seat.note_xid(Xid { code, at: Moment(at) });
        }
        assert_eq!(codes(&seat), [&[48][..], &[45; 14], &[31]].concat());
        let times = seat.last[0].health.xids.iter().map(|it| it.at);
        assert!(times.is_sorted() && seat.last[0].health.xids[1].at == Moment(17), "the latest of them stay");
        (100..116).for_each(|code| seat.note_xid(Xid { code, at: Moment(code) }));
        assert_eq!(codes(&seat), (100..116).collect::<Vec<_>>(), "of those that are all different, the latest");
    }
}
