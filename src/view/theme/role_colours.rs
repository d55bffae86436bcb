//! The colours that a user gives to roles, under `[colors]` in the configuration.

use std::slice;

use crate::output::palette::{Palette, Rgb};

/// Declares the names of the roles and where a palette has their colours.
macro_rules! roles {
    ($( $name:literal: $palette:ident => $colours:expr, )+) => {
        /// The names of the roles.
        const ROLES: &[&str] = &[$( $name ),+];

        /// Returns the colours of a role; `None` when there is no such role.
        fn colours_of<'a>(palette: &'a mut Palette, role: &str) -> Option<&'a mut [Rgb]> {
            match role {
                $( $name => {
                    let $palette = palette;
                    Some($colours)
                } )+
                _ => None,
            }
        }
    };
}

roles! {
    "background": palette => slice::from_mut(&mut palette.background),
    "text": palette => slice::from_mut(&mut palette.text),
    "dim": palette => slice::from_mut(&mut palette.dim),
    "band": palette => slice::from_mut(&mut palette.band),
    "cursor": palette => slice::from_mut(&mut palette.cursor),
    "alarm": palette => &mut palette.alarm[..1],
    "alarm_text": palette => &mut palette.alarm[1..],
    "alarm_line": palette => slice::from_mut(&mut palette.alarm_line),
    "caution": palette => &mut palette.caution[..1],
    "caution_text": palette => &mut palette.caution[1..],
    "caution_line": palette => slice::from_mut(&mut palette.caution_line),
    "good": palette => slice::from_mut(&mut palette.good),
    "allocated": palette => slice::from_mut(&mut palette.allocated),
    "unallocated": palette => slice::from_mut(&mut palette.unallocated),
    "other": palette => slice::from_mut(&mut palette.other),
    "busy": palette => slice::from_mut(&mut palette.busy),
    "layers": palette => &mut palette.layers,
    "users": palette => &mut palette.users,
}

/// The colours that a user gives to roles instead of those of the theme.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RoleColours(Vec<(&'static str, Vec<Rgb>)>);

impl RoleColours {
    /// Gives colours to a role.
    ///
    /// # Errors
    ///
    /// When there is no such role, when it has another number of colours, or when a text is no
    /// colour; the message says which.
    pub(crate) fn set(&mut self, role: &str, texts: &[&str]) -> Result<(), String> {
        let name = ROLES.iter().copied().find(|name| *name == role);
        let mut palette = super::palette::DARK.clone();
        let (Some(name), Some(expected)) = (name, colours_of(&mut palette, role)) else {
            return Err(format!(
                "`{role}` is no role; there are {}",
                ROLES.join(", ")
            ));
        };
        match (texts.len(), expected.len()) {
            (given, expected) if given == expected => {}
            (_, 1) => return Err(format!("`{role}` must be one colour, as in \"#1e90ff\"")),
            (given, expected) => {
                return Err(format!(
                    "`{role}` must be a list of {expected} colours, not of {given}"
                ));
            }
        }
        let colours = texts
            .iter()
            .map(|text| colour(text))
            .collect::<Result<_, _>>();
        self.0
            .push((name, colours.map_err(|why| format!("`{role}`: {why}"))?));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the palette with these colours. A background that the user chose is painted.
    pub(super) fn applied_to(&self, palette: &Palette) -> Palette {
        let mut palette = palette.clone();
        for (role, colours) in &self.0 {
            palette.is_painted |= *role == "background";
            if let Some(places) = colours_of(&mut palette, role) {
                places.copy_from_slice(colours);
            }
        }
        palette
    }
}

/// Parses a colour, as in `#1e90ff`.
fn colour(text: &str) -> Result<Rgb, String> {
    text.strip_prefix('#')
        .filter(|digits| digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .map(Rgb)
        .ok_or_else(|| format!("`{text}` is no colour; write it as in \"#1e90ff\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::theme::palette::DARK;

    #[test]
    fn a_role_gets_its_colours_and_the_others_keep_theirs() {
        let mut colours = RoleColours::default();
        colours.set("alarm", &["#010203"]).unwrap();
        colours.set("users", &["#0000ff"; 8]).unwrap();
        let palette = colours.applied_to(&DARK);
        assert_eq!(palette.alarm, [Rgb(0x01_0203), DARK.alarm[1]]);
        assert_eq!(palette.users, [Rgb(0xff); 8]);
        assert_eq!((palette.text, palette.is_painted), (DARK.text, false));
        colours.set("background", &["#FFFFFF"]).unwrap();
        let palette = colours.applied_to(&DARK);
        assert_eq!(
            (palette.background, palette.is_painted),
            (Rgb(0xff_ffff), true)
        );
    }

    #[test]
    fn every_role_has_a_colour_in_a_palette() {
        for role in ROLES {
            assert!(colours_of(&mut DARK.clone(), role).is_some(), "{role}");
        }
    }

    #[test]
    fn a_wrong_role_or_colour_is_explained() {
        let why = |role: &str, texts: &[&str]| RoleColours::default().set(role, texts).unwrap_err();
        assert!(
            why("curser", &["#000000"])
                .starts_with("`curser` is no role; there are background, text, ")
        );
        assert_eq!(
            why("text", &["blue"]),
            "`text`: `blue` is no colour; write it as in \"#1e90ff\""
        );
        assert_eq!(
            why("text", &["#12345"]),
            "`text`: `#12345` is no colour; write it as in \"#1e90ff\""
        );
        assert_eq!(
            why("text", &["#+12345"]),
            "`text`: `#+12345` is no colour; write it as in \"#1e90ff\""
        );
        assert_eq!(
            why("text", &["#000000"; 2]),
            "`text` must be one colour, as in \"#1e90ff\""
        );
        assert_eq!(
            why("users", &["#000000"; 2]),
            "`users` must be a list of 8 colours, not of 2"
        );
    }
}
