//! The `missing` map of a group of readings, as it is read: the reasons of a few readings, by their
//! names.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Missing;

/// The most reasons of a group. A line may be forged, and each reading searches the whole list.
const MOST: usize = 256;

/// The names are parts of the line: most processes of most lines have such a map, and a copy of
/// each name would be an allocation.
#[derive(Debug, Default)]
pub(super) struct MissingByName<'a>(Vec<(Cow<'a, str>, Missing)>);

impl MissingByName<'_> {
    /// Returns why the reading of this name is missing; `None` when the map does not have it.
    pub(super) fn get(&self, name: &str) -> Option<Missing> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, why)| *why)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MissingByName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reasons)
    }
}

struct Reasons;

impl<'de> Visitor<'de> for Reasons {
    type Value = MissingByName<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("reasons by the names of readings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut reasons = Vec::new();
        while let Some(name) = map.next_key_seed(Name)? {
            let why = map.next_value()?;
            if reasons.len() < MOST {
                reasons.push((name, why));
            }
        }
        Ok(MissingByName(reasons))
    }
}

/// Reads a name without a copy where the line has it as it is. The implementation of serde for
/// `Cow` always copies.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a reading")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
