//! The colours of roles under `[colors]` in `config.toml`.

use std::ops::Range;

use toml::de::DeValue;

use crate::view::RoleColours;

/// Parses the value of `colors`. An error names the place of the role, or none for the whole value.
pub(super) fn parse(value: &DeValue<'_>) -> Result<RoleColours, (Option<Range<usize>>, String)> {
    let table = value
        .as_table()
        .ok_or((None, "must be a table: `[colors]`".to_owned()))?;
    let mut colours = RoleColours::default();
    for (role, value) in table {
        let texts = texts(value.get_ref())
            .ok_or_else(|| format!("`{}` must be a colour in quotes", role.get_ref()));
        texts
            .and_then(|texts| colours.set(role.get_ref(), &texts))
            .map_err(|why| (Some(role.span()), why))?;
    }
    Ok(colours)
}

/// Returns a text, or the texts of a list; `None` for anything else.
fn texts<'a>(value: &'a DeValue<'_>) -> Option<Vec<&'a str>> {
    match value.as_array() {
        Some(list) => list
            .iter()
            .map(|element| element.get_ref().as_str())
            .collect(),
        None => Some(vec![value.as_str()?]),
    }
}
