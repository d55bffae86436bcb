//! Rejects impossible values, which a broken driver returns. Each limit is far above real values,
//! except 100 %.

use crate::base::units::{Celsius, Hertz, Percent, Watts};
use crate::protocol::snapshot::{Missing, Reading};

const MOST_CELSIUS: u32 = 250;
const MOST_MILLIWATTS: u32 = 100_000_000;
const MOST_MEGAHERTZ: u32 = 100_000;

pub(super) fn percent(value: u32) -> Reading<Percent> {
    match u8::try_from(value) {
        Ok(value @ 0..=100) => Ok(Percent::new(f32::from(value))),
        _ => Err(Missing::Failed),
    }
}

pub(super) fn celsius(value: u32) -> Reading<Celsius> {
    let plausible = i32::try_from(value).ok().filter(|_| value < MOST_CELSIUS);
    plausible.map(Celsius).ok_or(Missing::Failed)
}

pub(super) fn milliwatts(value: u32) -> Reading<u32> {
    if value < MOST_MILLIWATTS {
        Ok(value)
    } else {
        Err(Missing::Failed)
    }
}

pub(super) fn watts(value: u32) -> Reading<Watts> {
    milliwatts(value).map(Watts::from_milliwatts)
}

pub(super) fn hertz(megahertz: u32) -> Reading<Hertz> {
    if megahertz < MOST_MEGAHERTZ {
        Ok(Hertz::from_mhz(megahertz))
    } else {
        Err(Missing::Failed)
    }
}
