//! Paths of SVG in few bytes: relative places in tenths, without points on a straight line.

use std::fmt::Write;

/// The most points that one line replaces.
const MOST_WAITING: usize = 64;

/// A place in tenths of a unit.
type Tenths = (i64, i64);

/// A path of straight lines.
#[derive(Debug, Default)]
pub(super) struct LinePath {
    text: String,
    /// The place that the text reached; `None` before the first.
    reached: Option<Tenths>,
    /// The points since then, which lie on one line so far.
    waiting: Vec<Tenths>,
}

/// An area between a line and a base line, in several pieces where the line has gaps.
#[derive(Debug)]
pub(super) struct AreaPath {
    line: LinePath,
    base: f64,
}

#[expect(clippy::cast_possible_truncation, reason = "places are small")]
fn tenths(x: f64, y: f64) -> Tenths {
    ((x * 10.0).round() as i64, (y * 10.0).round() as i64)
}

impl LinePath {
    /// Adds a point. With `after_gap`, a new line begins there.
    pub(super) fn point(&mut self, x: f64, y: f64, after_gap: bool) {
        let place = tenths(x, y);
        if after_gap || self.reached.is_none() {
            self.flush();
            _ = write!(self.text, "M{} {}", decimal(place.0), decimal(place.1));
            self.reached = Some(place);
            return;
        }
        let is_line = |from: Tenths| {
            self.waiting
                .iter()
                .all(|middle| is_on_line(from, *middle, place))
        };
        if self.waiting.len() == MOST_WAITING || !self.reached.is_some_and(is_line) {
            self.flush();
        }
        self.waiting.push(place);
    }

    /// Writes the line to the last waiting point.
    fn flush(&mut self) {
        let (Some(from), Some(to)) = (self.reached, self.waiting.pop()) else {
            return;
        };
        self.waiting.clear();
        let (x, y) = (to.0 - from.0, to.1 - from.1);
        _ = match (x, y) {
            (0, 0) => Ok(()),
            (x, 0) => write!(self.text, "h{}", decimal(x)),
            (0, y) => write!(self.text, "v{}", decimal(y)),
            // A sign separates numbers as well as a space does.
            (x, y) if y < 0 => write!(self.text, "l{}{}", decimal(x), decimal(y)),
            (x, y) => write!(self.text, "l{} {}", decimal(x), decimal(y)),
        };
        self.reached = Some(to);
    }

    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.text
    }
}

impl AreaPath {
    pub(super) fn new(base: f64) -> Self {
        Self {
            line: LinePath::default(),
            base,
        }
    }

    /// Adds a point. With `after_gap`, a new piece begins there.
    pub(super) fn point(&mut self, x: f64, y: f64, after_gap: bool) {
        if after_gap || self.line.reached.is_none() {
            self.close();
            self.line.point(x, self.base, true);
        }
        self.line.point(x, y, false);
    }

    /// Closes the piece along the base line.
    fn close(&mut self) {
        self.line.flush();
        if self.line.reached.is_some() {
            let (_, base) = tenths(0.0, self.base);
            _ = write!(self.line.text, "V{}Z", decimal(base));
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.close();
        self.line.text
    }
}

/// Whether the middle point is less than a third of a unit from the line between the others, and
/// between them.
fn is_on_line(from: Tenths, middle: Tenths, to: Tenths) -> bool {
    let (x, y) = (to.0 - from.0, to.1 - from.1);
    let (middle_x, middle_y) = (middle.0 - from.0, middle.1 - from.1);
    let cross = x * middle_y - y * middle_x;
    let along = x * middle_x + y * middle_y;
    let square = x * x + y * y;
    (0..=square).contains(&along) && cross * cross <= 9 * square
}

/// Returns tenths as a number: `3.5`, `-0.2`, `12`.
fn decimal(tenths: i64) -> String {
    let (sign, tenths) = (if tenths < 0 { "-" } else { "" }, tenths.unsigned_abs());
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, part) => format!("{sign}.{part}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_are_left_out_and_peaks_stay() {
        let mut path = LinePath::default();
        for (x, y) in [
            (0.0, 10.0),
            (1.0, 10.0),
            (2.0, 10.0),
            (3.0, 2.5),
            (4.0, 10.0),
            (9.0, 10.0),
        ] {
            path.point(x, y, false);
        }
        assert_eq!(path.finish(), "M0 10h2l1-7.5l1 7.5h5");
    }

    #[test]
    fn an_area_has_a_piece_on_each_side_of_a_gap() {
        let mut path = AreaPath::new(20.0);
        for (x, y, after_gap) in [
            (0.0, 10.0, true),
            (5.0, 10.0, false),
            (8.0, 5.0, true),
            (9.0, 5.0, false),
        ] {
            path.point(x, y, after_gap);
        }
        assert_eq!(path.finish(), "M0 20v-10h5V20ZM8 20v-15h1V20Z");
    }
}
