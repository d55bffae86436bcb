//! The arguments of a process.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Text;

/// The arguments of a process: each a [`Text`], followed by a NUL. In JSON, an array of strings.
///
/// All arguments are in one allocation, which processes with equal arguments share: a host may have
/// thousands of processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Argv(Arc<str>);

impl Argv {
    /// Whether there are no arguments, as of a kernel thread or a zombie.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each argument.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split_terminator('\0')
    }

    /// Returns each argument as a person reads it: an empty one as `''`, since it would look like
    /// a space too many.
    pub fn shown(&self) -> impl Iterator<Item = &str> {
        self.iter()
            .map(|argument| if argument.is_empty() { "''" } else { argument })
    }

    /// Returns all arguments with spaces between them.
    pub fn line(&self) -> String {
        self.shown().collect::<Vec<_>>().join(" ")
    }
}

impl FromIterator<Text> for Argv {
    fn from_iter<I: IntoIterator<Item = Text>>(arguments: I) -> Self {
        let mut all = String::new();
        for argument in arguments {
            // A `Text` contains no NUL.
            all.push_str(argument.as_str());
            all.push('\0');
        }
        Self(all.into())
    }
}

impl Serialize for Argv {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Argv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Text>::deserialize(deserializer)?
            .into_iter()
            .collect())
    }
}

impl JsonSchema for Argv {
    fn schema_name() -> Cow<'static, str> {
        Vec::<Text>::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Text>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], json: &str) {
        let argv: Argv = arguments
            .iter()
            .map(|argument| Text::from(*argument))
            .collect();
        assert_eq!(argv.iter().collect::<Vec<_>>(), arguments);
        assert_eq!(argv.is_empty(), arguments.is_empty());
        assert_eq!(serde_json::to_string(&argv).unwrap(), json);
        assert_eq!(serde_json::from_str::<Argv>(json).unwrap(), argv);
    }

    #[test]
    fn arguments_stay_separate_and_empty_ones_are_kept() {
        check(&["python", "train.py"], r#"["python","train.py"]"#);
        check(&["sh", "-c", "", ""], r#"["sh","-c","",""]"#);
        check(&[""], r#"[""]"#);
        check(&[], "[]");
    }

    #[test]
    fn an_argument_from_a_line_is_made_printable_and_does_not_become_two() {
        let argv: Argv = serde_json::from_str(r#"["a\u0000b","\u001b[2J"]"#).unwrap();
        assert_eq!(
            argv.iter().collect::<Vec<_>>(),
            ["a\u{FFFD}b", "\u{FFFD}[2J"]
        );
    }
}
