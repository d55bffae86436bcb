//! The name of a host for ssh, as a person typed it.

use std::fmt;
use std::str::FromStr;

use crate::base::text::Text;

/// The characters of a name other than letters and digits. None has a meaning for a shell, and none
/// separates words.
const PUNCTUATION: &str = "._:@%+-[]";

/// A checked name: `gpu-01`, `alice@gpu-01`, `gpu-01:2222`, `fe80::1` or `[fe80::1]:2222`.
///
/// It is one word for any shell, and ssh can take no part of it for an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName {
    typed: String,
    /// The destination for ssh: without the port, and without the brackets of an address.
    destination: String,
    port: Option<u16>,
}

impl HostName {
    /// The name as it was typed.
    pub(crate) fn as_str(&self) -> &str {
        &self.typed
    }

    /// The destination for ssh.
    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    /// The port; `None` leaves it to ssh and its configuration.
    pub(super) fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        check_letters(typed, "")?;
        let shown = || Text::new(typed);
        let (user, host) = match typed.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, typed),
        };
        if user.is_some_and(str::is_empty) || host.is_empty() {
            return Err(format!("`{}` lacks the name of a host", shown()));
        }
        if [typed, host].iter().any(|name| name.starts_with('-')) {
            return Err(format!(
                "`{}` begins with `-`, as an option of ssh does",
                shown()
            ));
        }
        let (host, port) = split_port(host)
            .ok_or_else(|| format!("`{}` is neither HOST nor HOST:PORT", shown()))?;
        Ok(Self {
            typed: typed.to_owned(),
            destination: user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")),
            port,
        })
    }
}

/// Checks that a name has no other characters than these and those of names.
pub(super) fn check_letters(typed: &str, others: &str) -> Result<(), String> {
    let is_allowed = |letter: char| {
        letter.is_alphanumeric() || PUNCTUATION.contains(letter) || others.contains(letter)
    };
    match typed.chars().find(|letter| !is_allowed(*letter)) {
        None => Ok(()),
        Some(letter) => Err(format!(
            "`{}` has the character {letter:?}; the name of a host has letters, digits and {PUNCTUATION}",
            Text::new(typed)
        )),
    }
}

/// Splits `HOST:PORT` and `[ADDRESS]:PORT`. An address with several colons has a port only after
/// brackets.
fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|port| *port > 0).map(Some);
    if let Some(bracketed) = host.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        if !address.contains(':') || address.starts_with('-') || address.contains('[') {
            return None;
        }
        return match rest.strip_prefix(':') {
            Some(text) => Some((address, port(text)?)),
            None => rest.is_empty().then_some((address, None)),
        };
    }
    if host.contains(['[', ']']) {
        return None;
    }
    match host.split_once(':') {
        Some(("", after)) if !after.contains(':') => None,
        Some((name, after)) if !after.contains(':') => Some((name, port(after)?)),
        _ => Some((host, None)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(typed: &str, destination: &str, port: Option<u16>) {
        let name: HostName = typed.parse().unwrap();
        assert_eq!(name.as_str(), typed);
        assert_eq!((name.destination(), name.port()), (destination, port));
    }

    #[test]
    fn a_name_may_have_a_user_and_a_port_and_an_address_its_brackets() {
        check("gpu-01", "gpu-01", None);
        check("gpu-01.lab.example", "gpu-01.lab.example", None);
        check("alice@gpu-01", "alice@gpu-01", None);
        check("alice@lab@gpu-01:22", "alice@lab@gpu-01", Some(22));
        check("gpu-01:2222", "gpu-01", Some(2222));
        check("10.0.0.1:2222", "10.0.0.1", Some(2222));
        check("fe80::1%eth0", "fe80::1%eth0", None);
        check("::1", "::1", None);
        check("[fe80::1]", "fe80::1", None);
        check("alice@[fe80::1]:2222", "alice@fe80::1", Some(2222));
        check("größe", "größe", None);
    }

    #[test]
    fn a_name_that_ssh_or_a_shell_would_take_otherwise_is_refused() {
        for (typed, reason) in [
            ("-oProxyCommand=x", "has the character '='"),
            ("-v", "begins with `-`"),
            ("alice@-v", "begins with `-`"),
            ("-v@gpu-01", "begins with `-`"),
            ("[-v:]", "is neither HOST nor HOST:PORT"),
            ("a b", "has the character ' '"),
            ("a;reboot", "has the character ';'"),
            ("$(reboot)", "has the character '$'"),
            ("a/b", "has the character '/'"),
            ("a\u{1b}[2J", "has the character '\\u{1b}'"),
            ("a\nb", "has the character '\\n'"),
            ("alice@", "lacks the name of a host"),
            ("@gpu-01", "lacks the name of a host"),
            ("", "lacks the name of a host"),
            ("gpu-01:", "is neither HOST nor HOST:PORT"),
            ("gpu-01:0", "is neither HOST nor HOST:PORT"),
            ("gpu-01:99999", "is neither HOST nor HOST:PORT"),
            ("gpu-01:ssh", "is neither HOST nor HOST:PORT"),
            ("[gpu-01]:22", "is neither HOST nor HOST:PORT"),
            ("[fe80::1]x", "is neither HOST nor HOST:PORT"),
        ] {
            let why = typed.parse::<HostName>().unwrap_err();
            assert!(why.contains(reason), "{typed:?}: {why}");
            assert!(!why.contains(['\u{1b}', '\n']), "{why:?}");
        }
    }

    proptest! {
        #[test]
        fn no_accepted_name_is_an_option_or_more_than_one_word(typed in any::<String>()) {
            if let Ok(name) = typed.parse::<HostName>() {
                let destination = name.destination();
                let host = destination.rsplit('@').next().unwrap();
                prop_assert!(!destination.starts_with('-') && !host.starts_with('-'));
                prop_assert!(!host.is_empty());
                prop_assert!(!destination.contains(char::is_whitespace));
                let special = "'\"\\$`;&|<>()*?#~=/!{}\0";
                prop_assert!(!destination.contains(|letter| special.contains(letter)));
            }
        }
    }
}
