//! Writes settings into a file that belongs to the user: comments and unknown keys stay.

use std::io;
use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::action;

/// A key of a settings file, and its value as TOML.
pub(crate) type SettingsLine = (&'static str, String);

/// Sets values in a file. Returns a sentence that says where, or why it failed. Waits while the
/// file system hangs.
pub(crate) fn write(path: &Path, lines: &[SettingsLine]) -> String {
    let text = match action::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    };
    let written = match text.map(|text| merged(&text, lines)) {
        Ok(Ok(text)) => action::replace(path, &text),
        Ok(Err(why)) => return format!("{}: {why}", path.display()),
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => format!("written to {}", path.display()),
        Err(error) => format!("cannot write {}: {error}", path.display()),
    }
}

/// Returns the text of a file with these values set and everything else unchanged.
pub(crate) fn merged(text: &str, lines: &[SettingsLine]) -> Result<String, String> {
    let table =
        DeTable::parse(text).map_err(|error| format!("not valid TOML: {}", error.message()))?;
    let has_tables = table
        .get_ref()
        .values()
        .any(|value| value.get_ref().is_table());
    let mut edits: Vec<(Range<usize>, &str)> = Vec::new();
    let mut new: Vec<String> = Vec::new();
    for (key, value) in lines {
        match table
            .get_ref()
            .iter()
            .find(|(name, _)| name.get_ref() == key)
        {
            // The tables `[host.NAME]` have the name of a setting.
            Some((_, old)) if old.get_ref().is_table() => {}
            Some((_, old)) => edits.push((old.span(), value)),
            None => new.push(format!("{key} = {value}\n")),
        }
    }
    let mut merged = text.to_owned();
    edits.sort_by_key(|(span, _)| span.start);
    for (span, value) in edits.into_iter().rev() {
        merged.replace_range(span, value);
    }
    // A line after the header of a table would belong to that table.
    if has_tables {
        return Ok(new.concat() + &merged);
    }
    if !merged.is_empty() && !merged.ends_with('\n') {
        merged.push('\n');
    }
    Ok(merged + &new.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_the_name_of_a_setting_stays() {
        let lines = [
            ("theme", "\"safe\"".to_owned()),
            ("host", "false".to_owned()),
        ];
        for old in ["[host.big]\nvia = \"x\"\n", "host.big = { via = \"x\" }\n"] {
            let new = merged(old, &lines).unwrap();
            assert_eq!(new, format!("theme = \"safe\"\n{old}"));
        }
    }

    #[test]
    fn writing_a_setting_keeps_comments_and_other_keys() {
        let lines = [
            ("theme", "\"safe\"".to_owned()),
            ("host", "false".to_owned()),
        ];
        let old = "# mine\ntheme = \"mono\" # for the beamer\n[future]\nhost = 1\n";
        let new = merged(old, &lines).unwrap();
        assert_eq!(
            new,
            "host = false\n# mine\ntheme = \"safe\" # for the beamer\n[future]\nhost = 1\n"
        );
    }
}
