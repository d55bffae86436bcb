//! A list of hosts: `gpu-01,node[01-16],alice@big,@lab`.

use std::collections::HashSet;
use std::str::FromStr;

use super::host_name::{HostName, check_letters};
use crate::base::text::Text;

/// The most hosts that gputop reads at once. Each takes a process of ssh on this host.
pub(super) const MOST_HOSTS: usize = 1000;

/// The most digits of a number in a range.
const MOST_DIGITS: usize = 9;

/// Hosts and groups, in the order in which they were typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(pub(super) Vec<ListedHost>);

/// An element of a list, after its ranges were written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListedHost {
    Host(HostName),
    /// The name of a group in the configuration, without the `@`.
    Group(String),
}

impl FromStr for HostList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = Vec::new();
        for element in elements(text) {
            match element.strip_prefix('@') {
                Some(group) if is_group_name(group) => {
                    list.push(ListedHost::Group(group.to_owned()));
                }
                Some(_) => {
                    return Err(format!(
                        "`{}` is no name of a group: letters, digits, . _ and - follow the @",
                        Text::new(element)
                    ));
                }
                None => {
                    for name in written_out(element, MOST_HOSTS - list.len().min(MOST_HOSTS))? {
                        list.push(ListedHost::Host(name.parse()?));
                    }
                }
            }
        }
        Ok(Self(list))
    }
}

impl HostList {
    /// Parses an inventory: one host, range or group a line, and comments after `#`.
    ///
    /// # Errors
    ///
    /// When a line is wrong: its number, and a sentence.
    pub(crate) fn of_inventory(text: &str) -> Result<Self, (usize, String)> {
        let mut all = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let list: Self = line.parse().map_err(|why| (number, why))?;
            all.extend(list.0);
            if all.len() > MOST_HOSTS {
                return Err((number, too_many()));
            }
        }
        Ok(Self(all))
    }
}

impl HostList {
    /// Returns the names of the hosts, each once.
    ///
    /// # Errors
    ///
    /// When it has a group: a sentence.
    pub(in crate::source) fn names(&self) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        let mut known = HashSet::new();
        for listed in &self.0 {
            match listed {
                ListedHost::Host(name) if known.insert(name.as_str()) => {
                    names.push(name.to_string());
                }
                ListedHost::Host(_) => {}
                ListedHost::Group(group) => return Err(format!("`@{group}` is no host")),
            }
        }
        Ok(names)
    }
}

/// Whether a text can be the name of a group.
pub(crate) fn is_group_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|letter| letter.is_alphanumeric() || "._-".contains(letter))
}

/// The sentence for too many hosts.
pub(super) fn too_many() -> String {
    format!("there are more than {MOST_HOSTS} hosts, the most that gputop reads at once")
}

/// Splits a list at its commas, but not at those between brackets.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
}

/// Writes out the ranges of one element: `node[1-2]-x` is `node1-x` and `node2-x`. Brackets around
/// an address are none. Fails if there are more names than `most`.
fn written_out(element: &str, most: usize) -> Result<Vec<String>, String> {
    check_letters(element, ",")?;
    let refusal = |why: &str| format!("`{}` {why}", Text::new(element));
    let mut names = vec![String::new()];
    let mut rest = element;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after
            .split_once(']')
            .ok_or_else(|| refusal("lacks a closing bracket"))?;
        let endings = if inside.contains(':') {
            vec![format!("[{inside}]")]
        } else {
            numbers(inside, most).map_err(|why| refusal(&why))?
        };
        if names.len() * endings.len() > most {
            return Err(too_many());
        }
        names = names
            .iter()
            .flat_map(|name| {
                endings
                    .iter()
                    .map(move |ending| format!("{name}{before}{ending}"))
            })
            .collect();
        rest = behind;
    }
    if names.len() > most {
        return Err(too_many());
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// Writes out the text between brackets: numbers and ranges of them, which keep leading zeros.
fn numbers(inside: &str, most: usize) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for part in inside.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let is_number = text.len() <= MOST_DIGITS
                && !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err(format!(
                "has `[{inside}]`, which is no range such as [1-16] or [01-03,7]"
            ));
        };
        if from > to {
            return Err(format!("has a range that goes down, `{part}`"));
        }
        if all.len() + (to - from) as usize >= most {
            return Err(format!("is more than {MOST_HOSTS} hosts"));
        }
        let width = first.len();
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let list: HostList = text.parse().unwrap();
        list.0
            .iter()
            .map(|listed| match listed {
                ListedHost::Host(host) => host.to_string(),
                ListedHost::Group(group) => format!("@{group}"),
            })
            .collect()
    }

    #[test]
    fn ranges_are_written_out_with_their_zeros() {
        assert_eq!(names("a,b, c"), ["a", "b", "c"]);
        assert_eq!(names("n[01-03]"), ["n01", "n02", "n03"]);
        assert_eq!(names("n[8-11]"), ["n8", "n9", "n10", "n11"]);
        assert_eq!(names("n[1-2,7]-x"), ["n1-x", "n2-x", "n7-x"]);
        assert_eq!(
            names("r[1-2]n[1,03]:22"),
            ["r1n1:22", "r1n03:22", "r2n1:22", "r2n03:22"]
        );
        assert_eq!(names("me@n[1-2],@lab"), ["me@n1", "me@n2", "@lab"]);
        assert_eq!(
            names("me@[fe80::1]:22,[::1],n[1-2]"),
            ["me@[fe80::1]:22", "[::1]", "n1", "n2"]
        );
    }

    #[test]
    fn a_wrong_list_is_refused_with_a_sentence() {
        for (text, reason) in [
            ("", "lacks the name of a host"),
            ("a,,b", "lacks the name of a host"),
            ("n[1-2", "`n[1-2` lacks a closing bracket"),
            ("n[2-1]", "has a range that goes down, `2-1`"),
            ("n[a-c]", "which is no range such as [1-16]"),
            ("n[]", "which is no range"),
            ("n[1-]", "which is no range"),
            ("n[1-9999999999]", "which is no range"),
            ("n[1-5000]", "is more than 1000 hosts"),
            ("n[0-999999999]", "is more than 1000 hosts"),
            ("a[1-100]b[1-100]", "there are more than 1000 hosts"),
            ("n[1-600],m[1-600]", "is more than 1000 hosts"),
            ("@", "is no name of a group"),
            ("@a/b", "is no name of a group"),
            ("n1]", "is neither HOST nor HOST:PORT"),
            ("-n[1-2]", "begins with `-`"),
            ("a b", "has the character ' '"),
        ] {
            let why = text.parse::<HostList>().unwrap_err();
            assert!(why.contains(reason), "{text}: {why}");
        }
    }

    #[test]
    fn an_inventory_has_comments_and_its_errors_have_lines() {
        let text = "# the lab\n\ngpu-[1-2]  # old\n@big\r\n";
        let list = HostList::of_inventory(text).unwrap();
        assert_eq!(list, "gpu-[1-2],@big".parse().unwrap());
        let (line, why) = HostList::of_inventory("a\nb\nssh c; reboot\n").unwrap_err();
        assert_eq!(line, 3);
        assert!(why.contains("has the character ' '"), "{why}");
        let many = "n[1-600]\nm[1-600]\n";
        assert_eq!(HostList::of_inventory(many).unwrap_err(), (2, too_many()));
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_within_the_limit_or_an_error(text in any::<String>()) {
            if let Ok(list) = text.parse::<HostList>() {
                prop_assert!(list.0.len() <= MOST_HOSTS + text.matches('@').count());
            }
        }

        #[test]
        fn brackets_and_commas_in_any_order_do_not_panic(text in "[a-b0-3,@:%\\[\\]-]{0,40}") {
            let _parsed = text.parse::<HostList>();
        }

        #[test]
        fn a_range_has_each_number_once(first in 0_u32..500, count in 0_u32..400, width in 1_usize..6) {
            let last = first + count;
            let written = names(&format!("n[{first:0width$}-{last}]"));
            prop_assert_eq!(u32::try_from(written.len()), Ok(count + 1));
            prop_assert_eq!(&written[0], &format!("n{first:0width$}"));
        }
    }
}
