//! Questions to a Prometheus server, and the series of its answers.

use std::time::Duration;

use crate::base::text::Text;

/// A question to a Prometheus server, in `PromQL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesQuestion {
    /// The expression, in `PromQL`.
    pub(crate) expression: String,
    /// The time that the answer covers; `None` asks for the present.
    pub(crate) span: Option<QuestionSpan>,
}

/// The end of the past, up to the server's present time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionSpan {
    /// The time from the first possible point to the last one.
    pub(crate) length: Duration,
    /// The time from one point to the next.
    pub(crate) step: Duration,
}

/// The answer of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SeriesAnswer {
    /// The series. One without a usable point is left out.
    pub(crate) series: Vec<Series>,
    /// Why the server says that the answer is not complete; `None` when it does not say so.
    pub(crate) warning: Option<Text>,
    /// Whether series are missing, because the answer has more than gputop takes.
    pub(crate) is_cut: bool,
}

/// One series of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    /// The names and values of all labels, in the order of the names.
    pub(crate) labels: Vec<(Text, Text)>,
    /// The points in the order of the answer: one where the present was asked for, and always at
    /// least one. Points that are no finite number are left out.
    pub(crate) points: Vec<SeriesPoint>,
}

impl Series {
    /// Returns the value of a label. `None` if the series lacks it, or if it is empty, which is the
    /// same in Prometheus.
    pub(crate) fn label(&self, name: &str) -> Option<&Text> {
        let place = self
            .labels
            .binary_search_by(|(label, _)| label.as_str().cmp(name))
            .ok()?;
        let (_, value) = self.labels.get(place)?;
        (!value.as_str().is_empty()).then_some(value)
    }
}

/// A value and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SeriesPoint {
    /// The time in seconds since 1970, by the clock of the server.
    pub(crate) time: f64,
    /// A finite number.
    pub(crate) value: f64,
}
