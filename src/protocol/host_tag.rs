//! The tag of the host that a line comes from, in a file or an output with lines of several hosts.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::text::Text;

/// The host that a line comes from. gputop adds this tag to the lines of `--json` and of
/// recordings; an agent never writes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTag {
    /// The number of the host, from 0 in the order of the sources.
    pub host_key: u64,
    /// The name of the host, different from the names of the other hosts of the output or
    /// recording.
    pub name: Option<Text>,
}

/// The only field of a line that is read here. gputop adds its tag at the end, so the last tag
/// counts: one before it came from elsewhere.
struct Tagged(Option<HostTag>);

impl<'de> Deserialize<'de> for Tagged {
    fn deserialize<D: Deserializer<'de>>(line: D) -> Result<Self, D::Error> {
        line.deserialize_map(TagVisitor)
    }
}

struct TagVisitor;

impl<'de> Visitor<'de> for TagVisitor {
    type Value = Tagged;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tagged, A::Error> {
        let mut tag = None;
        while let Some(LineField(name)) = fields.next_key()? {
            if name == "source" {
                tag = match fields.next_value()? {
                    FieldValue::Tag(tag) => Some(tag),
                    FieldValue::Other(_) => None,
                };
            } else {
                let IgnoredAny = fields.next_value()?;
            }
        }
        Ok(Tagged(tag))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum FieldValue {
    Tag(HostTag),
    Other(IgnoredAny),
}

/// The name of a field, which may be written with escapes.
#[derive(Deserialize)]
struct LineField<'a>(#[serde(borrow)] Cow<'a, str>);

/// Adds a field to a line, which is a JSON object that is not empty, with or without a line end.
/// Leaves the line as it is where it is no object, or where the value cannot be written as JSON.
pub fn append_field(line: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    let end = line.iter().rposition(|byte| *byte == b'}');
    if let (Some(end), Ok(value)) = (end, serde_json::to_vec(value)) {
        let field = format!(",\"{name}\":").into_bytes();
        line.splice(end..end, [field, value].concat());
    }
}

impl HostTag {
    /// Adds the tag to a line, which is a JSON object with or without a line end.
    pub fn append_to(&self, line: &mut Vec<u8>) {
        append_field(line, "source", self);
    }

    /// Reads the tag of a line; `None` for a line without one.
    pub fn parse(line: &[u8]) -> Option<Self> {
        // Most lines have none, and a search takes a tenth of the time of a parser.
        let line = str::from_utf8(line)
            .ok()
            .filter(|line| line.contains("\"source\""))?;
        serde_json::from_str::<Tagged>(line).ok()?.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_at_the_end_and_found_anywhere() {
        let tag = HostTag {
            host_key: 1,
            name: Some("left".into()),
        };
        let mut line = b"{\"kind\":\"full\",\"host\":{}}\n".to_vec();
        tag.append_to(&mut line);
        let tagged = r#"{"kind":"full","host":{},"source":{"host_key":1,"name":"left"}}"#;
        assert_eq!(
            String::from_utf8(line.clone()).unwrap(),
            format!("{tagged}\n")
        );
        assert_eq!(HostTag::parse(&line), Some(tag.clone()));
        assert_eq!(
            HostTag::parse(br#"{"source":{"later":0,"name":"left","host_key":1},"kind":"full"}"#),
            Some(tag)
        );
    }

    #[test]
    fn a_tag_that_a_host_has_written_itself_does_not_count() {
        let own = HostTag {
            host_key: 2,
            name: None,
        };
        for forged in [
            r#""source":{"host_key":0,"name":null}"#,
            r#""\u0073ource":{"host_key":0,"name":"left"}"#,
            r#""source":7"#,
        ] {
            let mut line = format!("{{\"kind\":\"full\",{forged},\"host\":{{}}}}\n").into_bytes();
            own.append_to(&mut line);
            assert_eq!(HostTag::parse(&line), Some(own.clone()), "{forged}");
        }
    }

    #[test]
    fn a_line_of_an_agent_has_no_tag() {
        for line in [
            r#"{"kind":"full"}"#,
            r#"{"source":null}"#,
            r#"{"source":"ssh"}"#,
            "nonsense",
            "",
        ] {
            assert_eq!(HostTag::parse(line.as_bytes()), None, "{line}");
        }
    }
}
