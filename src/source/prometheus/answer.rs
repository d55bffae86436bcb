//! The JSON of an answer. A short one is parsed from memory, a long one piece by piece: a hostile
//! answer takes no more memory than the limits allow, however long it is and however deep it goes.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::base::text::Text;
use crate::protocol::series::{Series, SeriesAnswer, SeriesPoint};

/// The most series of an answer. Those after them are left out.
pub(super) const MOST_SERIES: usize = 200_000;

/// The most labels of one series.
const MOST_LABELS: usize = 64;

/// The most points of one series, which is the limit of Prometheus.
const MOST_POINTS: usize = 11_000;

/// The longest name or value of a label in bytes. What is longer is cut off.
const LONGEST_LABEL: usize = 1024;

/// The longest sentence of the server in bytes. What is longer is cut off.
const LONGEST_SENTENCE: usize = 300;

/// The bytes of an answer that are read before any is parsed. The totals of a thousand hosts are a
/// tenth of that.
const AT_ONCE: usize = 4 << 20;

/// The most bytes that an answer may take in memory, besides those.
const MOST_MEMORY: usize = 256 << 20;

/// The words of the parser's error when an answer passes a limit.
pub(super) const TOO_LARGE: &str = "too large";

/// An answer, or the reason why the server has none.
#[derive(Debug, Default)]
pub(super) struct ParsedAnswer {
    pub(super) answer: SeriesAnswer,
    /// The reason of the server; `None` where it has answered.
    pub(super) error: Option<Text>,
    /// Whether `status` is there: an answer of another program lacks it.
    pub(super) has_status: bool,
}

/// Parses an answer. [`AT_ONCE`] bytes are read before they are parsed, which takes a fraction of
/// the time; those after them are parsed as they come, so that a long answer takes no more memory
/// than what it says.
///
/// # Errors
///
/// When it is no JSON, ends early, or passes a limit ([`TOO_LARGE`]).
pub(super) fn parse(mut reader: impl Read) -> Result<ParsedAnswer, serde_json::Error> {
    let mut beginning = Vec::new();
    let most = u64::try_from(AT_ONCE).unwrap_or(u64::MAX);
    (reader.by_ref().take(most))
        .read_to_end(&mut beginning)
        .map_err(serde_json::Error::io)?;
    if beginning.len() < AT_ONCE {
        return parse_with(serde_json::Deserializer::from_slice(&beginning));
    }
    parse_with(serde_json::Deserializer::from_reader(
        beginning.chain(reader),
    ))
}

fn parse_with<'de, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
) -> Result<ParsedAnswer, serde_json::Error> {
    let kept = Kept::default();
    let mut parsed = AnswerSeed(&kept).deserialize(&mut deserializer)?;
    deserializer.end()?;
    parsed.answer.is_cut |= kept.is_cut.get();
    Ok(parsed)
}

/// Parses the bytes of an answer, for the fuzzer. Returns whether a server has answered.
///
/// # Panics
///
/// When an answer breaks a promise of its type.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse_bytes(bytes: &[u8]) -> bool {
    let Ok(parsed) = parse(bytes) else {
        return false;
    };
    for series in &parsed.answer.series {
        assert!(!series.points.is_empty(), "a series has no point");
        assert!(
            series.points.iter().all(|point| point.value.is_finite()),
            "a value is no number"
        );
        assert!(
            series.labels.is_sorted_by(|one, next| one.0 < next.0),
            "the labels are not in order"
        );
    }
    parsed.has_status && parsed.error.is_none()
}

/// State that the parts of an answer share: texts that were there before, and the memory so far.
#[derive(Debug, Default)]
struct Kept {
    texts: RefCell<HashSet<Text>>,
    memory: Cell<usize>,
    is_cut: Cell<bool>,
}

impl Kept {
    /// Counts memory.
    fn take<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let memory = self.memory.get().saturating_add(bytes);
        self.memory.set(memory);
        if memory > MOST_MEMORY {
            return Err(E::custom(TOO_LARGE));
        }
        Ok(())
    }

    /// Returns a text of a label. Equal texts are one in memory: thousands of series have the same
    /// names and hosts.
    fn text<E: serde::de::Error>(&self, text: &str) -> Result<Text, E> {
        const OVERHEAD: usize = 64;
        let text = cut(text, LONGEST_LABEL);
        let mut texts = self.texts.borrow_mut();
        // A text that is one of those has nothing to be replaced.
        if let Some(known) = texts.get(text) {
            return Ok(known.clone());
        }
        let text = Text::new(text);
        self.take(text.as_str().len() + OVERHEAD)?;
        texts.insert(text.clone());
        Ok(text)
    }
}

/// Returns the beginning of a text, at most this many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// A text of JSON, borrowed where it can be.
#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the value of one key of a map, or skips it.
macro_rules! skip {
    ($map:ident) => {
        $map.next_value::<IgnoredAny>()?
    };
}

/// The whole answer.
struct AnswerSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for AnswerSeed<'_> {
    type Value = ParsedAnswer;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParsedAnswer, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AnswerSeed<'_> {
    type Value = ParsedAnswer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedAnswer, A::Error> {
        let mut parsed = ParsedAnswer::default();
        let mut has_failed = false;
        while let Some(JsonText(key)) = map.next_key()? {
            match &*key {
                "status" => {
                    let JsonText(status) = map.next_value()?;
                    parsed.has_status = true;
                    has_failed = status != "success";
                }
                "error" => {
                    let JsonText(error) = map.next_value()?;
                    parsed.error = Some(Text::new(cut(&error, LONGEST_SENTENCE)));
                }
                "warnings" => {
                    let warning = map.next_value_seed(FirstText)?;
                    // Prometheus says so when the limit in the question is reached.
                    parsed.answer.is_cut |= warning
                        .as_ref()
                        .is_some_and(|text| text.as_str().contains("truncated due to limit"));
                    parsed.answer.warning = warning.or(parsed.answer.warning);
                }
                "isPartial" => {
                    if map.next_value::<Option<bool>>()? == Some(true) {
                        parsed.answer.warning.get_or_insert_with(|| {
                            "some of its storage nodes did not answer".into()
                        });
                    }
                }
                "data" => parsed.answer.series = map.next_value_seed(DataSeed(self.0))?,
                _ => {
                    skip!(map);
                }
            }
        }
        if has_failed {
            parsed
                .error
                .get_or_insert_with(|| "the server gives no reason".into());
        }
        Ok(parsed)
    }
}

/// The first text of a list; the others are skipped.
struct FirstText;

impl<'de> DeserializeSeed<'de> for FirstText {
    type Value = Option<Text>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FirstText {
    type Value = Option<Text>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of sentences")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first: Option<JsonText<'_>> = list.next_element()?;
        let first = first.map(|JsonText(text)| Text::new(cut(&text, LONGEST_SENTENCE)));
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

/// The object `data`.
struct DataSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for DataSeed<'_> {
    type Value = Vec<Series>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_> {
    type Value = Vec<Series>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a result")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut series = Vec::new();
        while let Some(JsonText(key)) = map.next_key()? {
            if key == "result" {
                series = map.next_value_seed(ResultSeed(self.0))?;
            } else {
                skip!(map);
            }
        }
        Ok(series)
    }
}

/// The list `result`: series, or the time and the value of a scalar.
struct ResultSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for ResultSeed<'_> {
    type Value = Vec<Series>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ResultSeed<'_> {
    type Value = Vec<Series>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        let mut scalar_time = None;
        while let Some(element) = list.next_element_seed(ElementSeed(self.0))? {
            match element {
                Element::Series(series) if series.points.is_empty() => {}
                Element::Series(series) => {
                    if all.len() == MOST_SERIES {
                        self.0.is_cut.set(true);
                        while list.next_element::<IgnoredAny>()?.is_some() {}
                        break;
                    }
                    all.push(series);
                }
                Element::Time(time) => scalar_time = Some(time),
                Element::Value(value) => {
                    let points = point(scalar_time.take(), value);
                    all.extend(points.map(|point| Series {
                        labels: Vec::new(),
                        points: vec![point],
                    }));
                }
            }
        }
        Ok(all)
    }
}

/// Returns a point, if it has a time and a finite value.
fn point(time: Option<f64>, value: Option<f64>) -> Option<SeriesPoint> {
    let (time, value) = (time?, value?);
    (time.is_finite() && value.is_finite()).then_some(SeriesPoint { time, value })
}

/// An element of `result`, or of a point.
enum Element {
    Series(Series),
    /// A time in seconds since 1970.
    Time(f64),
    /// A value as a text; `None` if it is no number.
    Value(Option<f64>),
}

struct ElementSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for ElementSeed<'_> {
    type Value = Element;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Element, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ElementSeed<'_> {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series, a time or a value")
    }

    fn visit_f64<E>(self, time: f64) -> Result<Element, E> {
        Ok(Element::Time(time))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a time in seconds has far fewer digits"
    )]
    fn visit_u64<E>(self, time: u64) -> Result<Element, E> {
        Ok(Element::Time(time as f64))
    }

    fn visit_str<E>(self, value: &str) -> Result<Element, E> {
        Ok(Element::Value(value.parse().ok()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Element, A::Error> {
        let mut series = Series::default();
        while let Some(JsonText(key)) = map.next_key()? {
            match &*key {
                "metric" => series.labels = map.next_value_seed(LabelsSeed(self.0))?,
                "value" => series.points.extend(map.next_value_seed(PointSeed)?),
                "values" => series.points = map.next_value_seed(PointsSeed(self.0))?,
                _ => {
                    skip!(map);
                }
            }
        }
        self.0
            .take(size_of::<Series>() + size_of::<SeriesPoint>())?;
        Ok(Element::Series(series))
    }
}

/// The labels of a series.
struct LabelsSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for LabelsSeed<'_> {
    type Value = Vec<(Text, Text)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelsSeed<'_> {
    type Value = Vec<(Text, Text)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = Vec::new();
        while let Some(JsonText(name)) = map.next_key()? {
            if labels.len() == MOST_LABELS {
                return Err(A::Error::custom(TOO_LARGE));
            }
            let name = self.0.text(&name)?;
            let JsonText(value) = map.next_value()?;
            labels.push((name, self.0.text(&value)?));
        }
        labels.sort();
        labels.dedup_by(|next, one| next.0 == one.0);
        labels.shrink_to_fit();
        self.0.take(labels.len() * size_of::<(Text, Text)>())?;
        Ok(labels)
    }
}

/// One point: a time and a value as a text. `None` if the value is no finite number.
struct PointSeed;

impl<'de> DeserializeSeed<'de> for PointSeed {
    type Value = Option<SeriesPoint>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let (time, JsonText(value)) = Deserialize::deserialize(deserializer)?;
        Ok(point(Some(time), value.parse().ok()))
    }
}

/// The points of a series.
struct PointsSeed<'k>(&'k Kept);

impl<'de> DeserializeSeed<'de> for PointsSeed<'_> {
    type Value = Vec<SeriesPoint>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PointsSeed<'_> {
    type Value = Vec<SeriesPoint>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut points = Vec::new();
        while let Some(point) = list.next_element_seed(PointSeed)? {
            if points.len() == MOST_POINTS {
                return Err(A::Error::custom(TOO_LARGE));
            }
            if let Some(point) = point {
                self.0.take(size_of::<SeriesPoint>())?;
                points.push(point);
            }
        }
        points.shrink_to_fit();
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answer(text: &str) -> SeriesAnswer {
        let parsed = parse(text.as_bytes()).unwrap();
        assert!(parsed.has_status && parsed.error.is_none(), "{parsed:?}");
        parsed.answer
    }

    #[test]
    fn a_series_has_its_labels_in_order_and_only_finite_points() {
        let answer = answer(
            r#"{"status":"success","data":{"resultType":"matrix","result":[
               {"metric":{"gpu":"1","__name__":"up","empty":"","Hostname":"n\u001b1"},
                "values":[[1700000000,"1"],[1700000015.5,"NaN"],[1700000030,"+Inf"],[1700000045,"2.5e3"]]},
               {"metric":{},"value":[1,"NaN"]}]},
               "warnings":["slow","second"],"infos":["x"]}"#,
        );
        assert_eq!(answer.series.len(), 1);
        let series = &answer.series[0];
        assert_eq!(series.label("gpu").map(Text::as_str), Some("1"));
        assert_eq!(
            series.label("Hostname").map(Text::as_str),
            Some("n\u{FFFD}1")
        );
        assert_eq!((series.label("empty"), series.label("none")), (None, None));
        let points: Vec<_> = series.points.iter().map(|p| (p.time, p.value)).collect();
        assert_eq!(points, [(1_700_000_000.0, 1.0), (1_700_000_045.0, 2500.0)]);
        assert_eq!(answer.warning.as_ref().map(Text::as_str), Some("slow"));
        assert!(!answer.is_cut);
    }

    #[test]
    fn a_scalar_is_one_series_without_labels() {
        let answer = answer(
            r#"{"status":"success","isPartial":true,"data":{"resultType":"scalar","result":[17,"3"]}}"#,
        );
        assert_eq!(answer.series.len(), 1);
        assert!(answer.series[0].labels.is_empty());
        let point = answer.series[0].points[0];
        assert_eq!((point.time, point.value), (17.0, 3.0));
        assert!(answer.warning.is_some(), "a partial answer says so");
    }

    #[test]
    fn the_reason_of_the_server_and_its_cut_are_known() {
        let parsed = parse(&br#"{"status":"error","errorType":"bad_data","error":"no\nsuch"}"#[..]);
        let error = parsed.unwrap().error.unwrap();
        assert_eq!(error.as_str(), "no\u{FFFD}such");
        let cut = answer(
            r#"{"status":"success","data":null,"warnings":["results truncated due to limit"]}"#,
        );
        assert!(cut.is_cut && cut.series.is_empty());
        assert!(!parse(&b"{}"[..]).unwrap().has_status);
    }

    /// Bytes that repeat a piece for ever behind a beginning.
    fn endless(start: &'static [u8], piece: &'static [u8]) -> impl Read {
        struct Repeated(&'static [u8], usize);
        impl Read for Repeated {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let piece = &self.0[self.1..];
                let length = piece.len().min(buffer.len());
                buffer[..length].copy_from_slice(&piece[..length]);
                self.1 = (self.1 + length) % self.0.len();
                Ok(length)
            }
        }
        start.chain(Repeated(piece, 0))
    }

    #[test]
    fn an_endless_answer_ends_at_a_limit() {
        const RESULT: &[u8] = br#"{"status":"success","data":{"result":["#;
        const LABELS: &[u8] = br#"{"status":"success","data":{"result":[{"metric":{"a":"""#;
        const POINTS: &[u8] = br#"{"status":"success","data":{"result":[{"values":[[1,"1"]"#;
        let why = |start, piece| parse(endless(start, piece)).unwrap_err().to_string();
        assert!(why(LABELS, br#","a":"b""#).contains(TOO_LARGE));
        assert!(why(POINTS, br#",[1,"1"]"#).contains(TOO_LARGE));
        let deep = why(RESULT, b"[");
        assert!(!deep.contains(TOO_LARGE), "{deep}");
        // The reader of the client ends an endless list of series after 64 MiB.
        let series = endless(RESULT, br#"{"value":[1,"1"]},"#).take(8 << 20);
        assert!(parse(series).unwrap_err().is_eof());
    }

    #[test]
    fn series_beyond_the_limit_are_left_out() {
        let mut text = r#"{"status":"success","data":{"result":["#.to_owned();
        text += &vec![r#"{"value":[1,"1"]}"#; MOST_SERIES + 2].join(",");
        text += "]}}";
        let answer = answer(&text);
        assert_eq!((answer.series.len(), answer.is_cut), (MOST_SERIES, true));
    }
}
