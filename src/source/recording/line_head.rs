//! The first fields of a line, read without the rest of it.

use std::borrow::Cow;

use serde::Deserialize;

/// The fields that gputop writes before any other.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct LineHead<'a> {
    /// The kind of the line, such as `full`.
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    /// The version of the format. Only `full` lines have it.
    pub(super) schema: Option<u32>,
    /// When the agent wrote the line: milliseconds since 1970 (UTC). A reply has none.
    #[serde(rename = "unix_time_ms")]
    pub(super) unix_ms: Option<u64>,
}

impl LineHead<'_> {
    /// Returns the head of a line; `None` for a line that is no JSON object with a kind.
    pub(super) fn parse(line: &[u8]) -> Option<LineHead<'_>> {
        let is_object = line.trim_ascii_start().starts_with(b"{");
        Self::parse_beginning(line)
            .or_else(|| is_object.then(|| serde_json::from_slice(line).ok())?)
    }

    /// Reads the fields before the first one that is an object or an array. Returns `None` when the
    /// time is not among them.
    fn parse_beginning(line: &[u8]) -> Option<LineHead<'_>> {
        /// More bytes than these fields take.
        const LONGEST: usize = 256;
        let rest = line.strip_prefix(b"{")?;
        let rest = &rest[..rest.len().min(LONGEST)];
        let nested = rest.iter().position(|byte| matches!(byte, b'{' | b'['))?;
        let end = rest[..nested].iter().rposition(|byte| *byte == b',')?;
        let mut head = LineHead::default();
        for field in rest[..end].split(|byte| *byte == b',') {
            let colon = field.iter().position(|byte| *byte == b':')?;
            let (name, value) = (&field[..colon], str::from_utf8(&field[colon + 1..]).ok()?);
            match name {
                b"\"kind\"" => head.kind = value.strip_prefix('"')?.strip_suffix('"')?.into(),
                b"\"schema\"" => head.schema = Some(value.parse().ok()?),
                b"\"unix_time_ms\"" => head.unix_ms = Some(value.parse().ok()?),
                _ => {}
            }
        }
        (!head.kind.is_empty() && head.unix_ms.is_some()).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_read_from_the_beginning_or_from_the_whole_line() {
        let head = |line: &'static str| {
            LineHead::parse(line.as_bytes())
                .map(|head| (head.kind.into_owned(), head.schema, head.unix_ms))
        };
        let expected = Some(("full".to_owned(), Some(1), Some(7)));
        assert_eq!(
            head(r#"{"kind":"full","schema":1,"sequence":2,"unix_time_ms":7,"host":{"schema":9}}"#),
            expected
        );
        assert_eq!(
            head(r#"{"host":{"kind":[]}, "unix_time_ms": 7, "schema": 1, "kind": "full"}"#),
            expected
        );
        assert_eq!(
            head(r#"{"kind":"reply","process":{}}"#),
            Some(("reply".to_owned(), None, None))
        );
        for line in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"kind":7,"a":[]}"#,
            r#"{"kind":"full","host":{"#,
        ] {
            assert_eq!(head(line), None, "{line}");
        }
    }
}
