//! Settings in YAML, as the programs around Prometheus have them.

use yaml_rust2::{Yaml, YamlLoader};

/// Parses a text with one document at most. An empty text is `Null`.
///
/// # Errors
///
/// When it is no YAML, or has several documents: a sentence.
pub(crate) fn parse_document(text: &str) -> Result<Yaml, String> {
    let mut documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    if documents.len() > 1 {
        return Err("there must be one document".to_owned());
    }
    Ok(documents.pop().unwrap_or(Yaml::Null))
}

/// Returns the entries of a mapping with names. `Null` is an empty mapping.
///
/// # Errors
///
/// When it is no mapping, or has a name that is no text: a sentence that names the place.
pub(crate) fn entries<'a>(yaml: &'a Yaml, place: &str) -> Result<Vec<(&'a str, &'a Yaml)>, String> {
    let mapping = match yaml {
        Yaml::Null => return Ok(Vec::new()),
        Yaml::Hash(mapping) => mapping,
        _ => return Err(format!("{place} must hold names and values")),
    };
    let named = |(name, value): (&'a Yaml, &'a Yaml)| Some((name.as_str()?, value));
    mapping
        .iter()
        .map(|entry| named(entry).ok_or_else(|| format!("a name in {place} is no text")))
        .collect()
}
