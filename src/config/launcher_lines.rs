//! The lines that a user adds to the launch table, as `[[launchers]]` in `config.toml`.

use toml::de::{DeTable, DeValue};

use super::parse;
use crate::files::action::{self, PATIENCE, in_background};
use crate::files::folders::config_file;
use crate::protocol::launchers::{self, Launcher};

/// The keys of a line.
const KEYS: [&str; 5] = ["name", "programs", "children", "variables", "place"];

/// Adds the lines of `config.toml` to the launch table, for a report. Returns a sentence if another
/// setting there is invalid, which no report needs.
///
/// # Errors
///
/// When a line is wrong: a sentence.
pub(crate) fn add() -> Result<Option<String>, String> {
    let Some(path) = config_file("config.toml") else {
        return Ok(None);
    };
    let file = path.clone();
    let text = match in_background(move || action::read(&file)).recv_timeout(PATIENCE) {
        // Most users have no such file.
        Ok(Err(_)) => return Ok(None),
        Ok(Ok(text)) => text,
        Err(_) => {
            let path = path.display();
            return Ok(Some(format!(
                "ignoring the settings: {path} does not respond"
            )));
        }
    };
    match parse(&text, &path) {
        Ok(config) => {
            launchers::add(config.launchers);
            Ok(None)
        }
        Err(why) if text.contains("launchers") => Err(why),
        Err(why) => Ok(Some(format!("ignoring the settings: {why}"))),
    }
}

/// Parses the value of `launchers`.
pub(super) fn lines(value: &DeValue<'_>) -> Result<Vec<Launcher>, String> {
    let lines = value.as_array().ok_or("must be a list: `[[launchers]]`")?;
    lines
        .iter()
        .map(|line| self::line(line.get_ref().as_table().ok_or("must be a table")?))
        .collect()
}

fn line(table: &DeTable<'_>) -> Result<Launcher, String> {
    if let Some((unknown, _)) = table
        .iter()
        .find(|(key, _)| !KEYS.contains(&&**key.get_ref()))
    {
        return Err(format!(
            "`{}` is no key; there are {}",
            unknown.get_ref(),
            KEYS.join(", ")
        ));
    }
    let text = |key: &str| match table.get(key).map(toml::Spanned::get_ref) {
        None => Ok(""),
        Some(value) => value.as_str().ok_or(format!(
            "`{key}` must be text in quotes, not {}",
            value.type_str()
        )),
    };
    let list = |key: &str| {
        let Some(value) = table.get(key).map(toml::Spanned::get_ref) else {
            return Ok(Vec::new());
        };
        let texts = value.as_array().and_then(|list| {
            list.iter()
                .map(|element| element.get_ref().as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        });
        texts.ok_or(format!(
            "`{key}` must be a list of texts, as in [\"a\", \"b\"]"
        ))
    };
    Launcher::new(
        text("name")?,
        &list("programs")?,
        &list("children")?,
        list("variables")?,
        text("place")?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference::SETTINGS;

    #[test]
    fn the_help_names_every_key_of_a_line() {
        let row = SETTINGS.iter().find(|(name, _)| *name == "[[launchers]]");
        let (_, purpose) = row.expect("the help has a row for the launchers of the user");
        assert!(
            KEYS.iter().all(|key| purpose.contains(&format!("`{key}`"))),
            "{purpose}"
        );
    }
}
