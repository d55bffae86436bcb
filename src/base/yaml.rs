//! Small settings files in YAML, as the programs around Prometheus have them.

use std::fs;
use std::io::Read;
use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads a file of text that belongs to the settings, such as one with a certificate.
///
/// # Errors
///
/// When it cannot be read, or is larger than a MiB: a sentence that names the file.
pub(crate) fn read_small_file(path: &Path) -> Result<String, String> {
    let describe = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(describe)?;
    if text.len() as u64 > LARGEST {
        return Err(format!("{} is larger than a MiB", path.display()));
    }
    Ok(text)
}

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
