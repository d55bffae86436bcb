//! The vertical scale of a graph: round amounts on fixed rows. A scale stays in use for as long as
//! the amounts fit.

use crate::base::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    rows: u16,
    /// Whether the scale must begin at 0. Otherwise it begins near the lowest amount.
    from_zero: bool,
    /// The number of rows from one label to the next.
    stride: u16,
    unit: Unit,
    /// The amount at the bottom: a multiple of the step.
    low: f64,
    step: f64,
}

/// The unit of the labels: its name, and how many of it are a GiB.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Unit(&'static str, f64);

impl Unit {
    const MIB: Self = Self("MiB", 1024.0);
    const GIB: Self = Self("GiB", 1.0);

    fn count(self, bytes: Bytes) -> f64 {
        bytes.gib() * self.1
    }
}

/// The smallest range: the driver allocates in blocks, and smaller changes are noise.
const LEAST: Bytes = Bytes(128 << 20);

impl Scale {
    /// Returns the scale for amounts from `low` to `high`, with a margin, in a graph of this many
    /// rows. The old scale stays while it fits and a new one would not show much more detail.
    pub(super) fn settle(
        old: Option<Self>,
        low: Bytes,
        high: Bytes,
        from_zero: bool,
        rows: u16,
    ) -> Self {
        let fresh = Self::fit(low, high, from_zero, rows);
        let stays = |old: &Self| {
            (old.rows, old.from_zero) == (rows, from_zero)
                && (old.holds(low) && old.holds(high) && old.unit == fresh.unit)
                && fresh.range() > 0.4 * old.range()
        };
        old.filter(stays).unwrap_or(fresh)
    }

    fn fit(low: Bytes, high: Bytes, from_zero: bool, rows: u16) -> Self {
        let rows = rows.max(1);
        let unit = if high >= Bytes::from_gib(1) {
            Unit::GIB
        } else {
            Unit::MIB
        };
        let (bottom, top) = (
            if from_zero { 0.0 } else { unit.count(low) },
            unit.count(high),
        );
        // A scale from zero has no margin. Otherwise, a nearly flat curve is centred, and others
        // get a margin of a tenth.
        let air = if from_zero {
            0.0
        } else {
            (0.1 * (top - bottom)).max((unit.count(LEAST) - (top - bottom)) / 2.0)
        };
        let (low, high) = ((bottom - air).max(0.0), (top + air).max(unit.count(LEAST)));
        let strides = match rows {
            0..8 => 2..=4,
            8..24 => 3..=5,
            _ => 5..=8,
        };
        let fits = strides.map(|stride| {
            let count = f64::from(rows) / f64::from(stride);
            let mut step = nice((high - low) / count);
            loop {
                let low = (low / step).floor() * step;
                if low + step * count >= high || !step.is_finite() {
                    return Self {
                        rows,
                        from_zero,
                        stride,
                        unit,
                        low,
                        step,
                    };
                }
                step = nice(step * 1.01);
            }
        });
        let fresh = Self {
            rows,
            from_zero,
            stride: 1,
            unit,
            low: 0.0,
            step: f64::INFINITY,
        };
        fits.fold(fresh, |best, other| {
            if other.range() < best.range() {
                other
            } else {
                best
            }
        })
    }

    fn range(&self) -> f64 {
        self.step * f64::from(self.rows) / f64::from(self.stride)
    }

    fn top(&self) -> f64 {
        self.low + self.range()
    }

    pub(crate) fn holds(&self, amount: Bytes) -> bool {
        (self.low..=self.top()).contains(&self.unit.count(amount))
    }

    /// Whether the scale ends below an amount.
    pub(crate) fn is_below(&self, amount: Bytes) -> bool {
        self.unit.count(amount) > self.top()
    }

    /// The height of an amount: 0 at the lower edge, 1 at the upper edge, outside of that range for
    /// amounts off the scale.
    pub(crate) fn height(&self, amount: Bytes) -> f64 {
        // An amount on a labelled edge stays there despite the rounding of the division.
        (self.unit.count(amount) - self.low) / (self.top() - self.low) + 1e-9
    }

    /// The range of a scale that need not begin at 0, as in `33.9–34.1 GiB`; `None` for other
    /// scales.
    pub(crate) fn zoomed(&self) -> Option<String> {
        let decimals = self.decimals();
        let Self { low, unit, .. } = self;
        (!self.from_zero).then(|| format!("{low:.decimals$}–{:.decimals$} {}", self.top(), unit.0))
    }

    pub(crate) fn begins_at_zero(&self) -> bool {
        self.low <= 0.0
    }

    /// The number of decimals that the labels need.
    fn decimals(&self) -> usize {
        let is_enough = |decimals: &i32| (self.step * 10_f64.powi(*decimals)).fract() < 1e-6;
        (0..4)
            .find(is_enough)
            .and_then(|decimals| usize::try_from(decimals).ok())
            .unwrap_or(4)
    }

    /// The labels, from the bottom: the row, counted from the bottom, on whose lower edge the
    /// amount lies.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (u16, String)> {
        let decimals = self.decimals();
        (0..self.rows)
            .step_by(usize::from(self.stride))
            .map(move |row| {
                let amount = self.low + self.step * f64::from(row / self.stride);
                (row, format!("{amount:.decimals$} {}", self.unit.0))
            })
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn nice(least: f64) -> f64 {
    let ten = libm::exp10(libm::log10(least).floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * ten)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * ten)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(low: Bytes, high: Bytes, from_zero: bool, rows: u16, expected: &[&str]) {
        let scale = Scale::settle(None, low, high, from_zero, rows);
        let labels: Vec<String> = scale.labels().map(|(_, label)| label).collect();
        assert_eq!(labels, expected);
    }

    #[test]
    fn labels_are_round_and_begin_at_the_bottom() {
        let gib = Bytes::from_gib;
        check(
            gib(0),
            gib(80),
            true,
            12,
            &["0 GiB", "20 GiB", "40 GiB", "60 GiB"],
        );
        check(
            gib(0),
            Bytes::from_mib(81_008),
            true,
            22,
            &["0 GiB", "20 GiB", "40 GiB", "60 GiB", "80 GiB"],
        );
        check(gib(38), gib(41), false, 12, &["36 GiB", "38 GiB", "40 GiB"]);
        check(
            gib(34),
            gib(34),
            false,
            12,
            &["33.90 GiB", "33.95 GiB", "34.00 GiB", "34.05 GiB"],
        );
        check(
            Bytes::from_mib(100),
            Bytes::from_mib(110),
            false,
            9,
            &["0 MiB", "100 MiB"],
        );
        check(Bytes(0), Bytes(0), true, 6, &["0 MiB", "50 MiB", "100 MiB"]);
    }

    #[test]
    fn while_memory_grows_the_scale_seldom_moves() {
        let (mut scale, mut moves) = (None, 0);
        for mib in (1000..9000).step_by(10) {
            let low = Bytes::from_mib(mib - 600);
            let new = Scale::settle(scale, low, Bytes::from_mib(mib), false, 12);
            moves += usize::from(scale.is_some_and(|old| old != new));
            scale = Some(new);
        }
        assert!(moves < 40, "{moves} in 800 steps");
    }

    #[test]
    fn a_small_change_at_the_edge_keeps_the_scale() {
        let mut scale = Scale::settle(None, Bytes::from_gib(10), Bytes::from_gib(20), false, 12);
        let first = Scale::settle(
            Some(scale),
            Bytes::from_gib(10),
            Bytes::from_mib(21_000),
            false,
            12,
        );
        for wobble in 0..100 {
            let high = Bytes::from_mib(20_480 + 500 * (wobble % 2));
            scale = Scale::settle(Some(first), Bytes::from_gib(10), high, false, 12);
            assert_eq!(scale, first);
        }
    }

    proptest! {
        /// All amounts lie within the scale and fill a good part of it, and each label has a row of
        /// its own.
        #[test]
        fn every_amount_has_its_place(low in 0..1u64 << 42, range in 0..1u64 << 42, from_zero: bool, rows in 1..60u16) {
            let (low, high) = (Bytes(low), Bytes(low + range));
            let scale = Scale::settle(None, low, high, from_zero, rows);
            prop_assert!(scale.holds(low) && scale.holds(high), "{scale:?}");
            prop_assert!((0.0..1.000_001).contains(&scale.height(high)));
            if range > 1 << 28 && rows >= 4 {
                let bottom = if from_zero { Bytes(0) } else { low };
                prop_assert!(scale.height(high) - scale.height(bottom) > 0.2, "{scale:?}");
            }
            let rows_of: Vec<u16> = scale.labels().map(|(row, _)| row).collect();
            prop_assert!(rows_of.windows(2).all(|it| it[1] - it[0] >= 2) && rows_of.iter().all(|it| *it < rows));
        }
    }
}
