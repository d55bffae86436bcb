//! The tag of the host that a line comes from, in a file or an output with lines of several hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;

/// The host that a line comes from. gputop adds this tag to the lines of `--json` and of recordings; an agent never
/// writes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTag {
    /// The number of the host, from 0 in the order of the sources.
    pub host_key: u64,
    /// The name of the host, different from the names of the other hosts of the output or recording.
    pub name: Option<Text>,
}

/// The only field of a line that is read here.
#[derive(Deserialize)]
struct Tagged {
    source: Option<HostTag>,
}

impl HostTag {
    /// Adds the tag to a line, which is a JSON object with or without a line end.
    pub fn append_to(&self, line: &mut Vec<u8>) {
        let Some(end) = line.iter().rposition(|byte| *byte == b'}') else { return };
        // Serializing two fields into memory cannot fail.
        let Ok(tag) = serde_json::to_vec(self) else { return };
        line.splice(end..end, [&b",\"source\":"[..], &tag].concat());
    }

    /// Reads the tag of a line; `None` for a line without one.
    pub fn of(line: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Tagged>(line).ok()?.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_at_the_end_and_found_anywhere() {
        let tag = HostTag { host_key: 1, name: Some("left".into()) };
        let mut line = b"{\"kind\":\"full\",\"host\":{}}\n".to_vec();
        tag.append_to(&mut line);
        let tagged = r#"{"kind":"full","host":{},"source":{"host_key":1,"name":"left"}}"#;
        assert_eq!(String::from_utf8(line.clone()).unwrap(), format!("{tagged}\n"));
        assert_eq!(HostTag::of(&line), Some(tag.clone()));
        assert_eq!(HostTag::of(br#"{"source":{"later":0,"name":"left","host_key":1},"kind":"full"}"#), Some(tag));
    }

    #[test]
    fn a_line_of_an_agent_has_no_tag() {
        for line in [r#"{"kind":"full"}"#, r#"{"source":null}"#, r#"{"source":"ssh"}"#, "nonsense", ""] {
            assert_eq!(HostTag::of(line.as_bytes()), None, "{line}");
        }
    }
}
