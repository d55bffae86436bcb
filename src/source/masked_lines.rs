//! Masks the secrets in lines, before they are parsed or copied: old recordings and agents of
//! earlier versions mask less than this version.
//!
//! The arguments of a process are the same in line after line, so those that were seen are
//! remembered.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem::Finder;

use crate::base::secrets::{MASK, mask_argv, mask_text};
use crate::base::text::{Argv, Text};

/// The name of the arguments of a process in a line, and that of the command in the output of
/// `--json`.
const ARGUMENTS: &[u8] = b"\"argv\"";
const COMMAND: &[u8] = b"\"command\"";

/// The most bytes that are remembered. The arguments of a thousand processes take about a quarter
/// of a MiB.
const MOST_REMEMBERED: usize = 4 << 20;

/// The most bytes of commands that are searched for the secrets of one line, and the bytes that a
/// search counts for at least: room for a thousand commands and a thousand secrets. In a line with
/// more, which no agent writes, the other commands are masked as a whole.
const MOST_SEARCHED: usize = 1 << 29;
const LEAST_SEARCH: usize = 256;

/// Masks the secrets in the lines of one source.
#[derive(Debug)]
pub(super) struct LineMasker {
    arguments: Finder<'static>,
    command: Finder<'static>,
    /// JSON values of arguments and commands, and what replaces them; `None` where nothing is
    /// masked.
    known: HashMap<Box<[u8]>, Option<Box<[u8]>>>,
    /// The bytes in `known`.
    remembered: usize,
}

impl Default for LineMasker {
    fn default() -> Self {
        let (arguments, command) = (Finder::new(ARGUMENTS), Finder::new(COMMAND));
        Self {
            arguments,
            command,
            known: HashMap::new(),
            remembered: 0,
        }
    }
}

impl LineMasker {
    /// Returns the line without secrets.
    pub(super) fn mask<'a>(&mut self, line: &'a [u8]) -> Cow<'a, [u8]> {
        // Most lines are ticks, in which no arguments are.
        if self.arguments.find(line).is_none() && self.command.find(line).is_none() {
            return line.into();
        }
        let mut changes: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
        let mut secrets = Vec::new();
        for value in values(line, ARGUMENTS, b'[') {
            if let Some(masked) = self.masked(&line[value.clone()], masked_arguments) {
                secrets.extend(changed_arguments(&line[value.clone()], &masked));
                changes.push((value, masked));
            }
        }
        // A secret that begins like another one would leave the end of that.
        secrets.sort_unstable_by(|one: &(String, String), other| {
            (other.0.len(), &other.0).cmp(&(one.0.len(), &one.0))
        });
        secrets.dedup();
        let mut left = MOST_SEARCHED;
        for value in values(line, COMMAND, b'"') {
            let json = &line[value.clone()];
            left = left.saturating_sub((LEAST_SEARCH + json.len()).saturating_mul(secrets.len()));
            let masked = match &*secrets {
                [] => self.masked(json, |json| masked_command(json, &[])),
                _ if left == 0 => serde_json::to_vec(MASK).ok(),
                // The result depends on the other values of the line.
                secrets => masked_command(json, secrets),
            };
            if let Some(masked) = masked {
                changes.push((value, masked));
            }
        }
        if changes.is_empty() {
            return line.into();
        }
        changes.sort_by_key(|(value, _)| value.start);
        let (mut masked, mut end) = (Vec::with_capacity(line.len()), 0);
        for (value, replacement) in changes {
            masked.extend_from_slice(&line[end..value.start]);
            masked.extend_from_slice(&replacement);
            end = value.end;
        }
        masked.extend_from_slice(&line[end..]);
        masked.into()
    }

    /// Returns what replaces a JSON value; `None` if nothing does.
    fn masked(
        &mut self,
        json: &[u8],
        mask: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        if let Some(known) = self.known.get(json) {
            return known.as_ref().map(|masked| masked.to_vec());
        }
        let masked = mask(json);
        let bytes = json.len() + masked.as_ref().map_or(0, Vec::len);
        if bytes > MOST_REMEMBERED {
            return masked;
        }
        if self.remembered + bytes > MOST_REMEMBERED {
            self.known.clear();
            self.remembered = 0;
        }
        self.remembered += bytes;
        self.known
            .insert(json.into(), masked.clone().map(Vec::into_boxed_slice));
        masked
    }
}

/// Returns where the values of a name are that begin with this byte. Looks at each byte of the line
/// once: a value has no other one inside, and after a value without an end the line is no JSON.
fn values<'a>(
    line: &'a [u8],
    name: &'a [u8],
    first: u8,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let finder = Finder::new(name);
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let end_of_name = from + finder.find(&line[from..])? + name.len();
            from = end_of_name;
            // A name is followed by a colon, a text in an array is not.
            let Some(value) = line[end_of_name..].trim_ascii_start().strip_prefix(b":") else {
                continue;
            };
            let value = value.trim_ascii_start();
            if value.first() == Some(&first) {
                let begin = line.len() - value.len();
                from = begin + length_of_value(value)?;
                return Some(begin..from);
            }
        }
    })
}

/// Returns the length of the array of texts, or of the text, that the bytes begin with. `None` when
/// it has no end.
fn length_of_value(json: &[u8]) -> Option<usize> {
    let is_array = json.first() == Some(&b'[');
    let mut is_text = false;
    let mut bytes = json.iter().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        match byte {
            b'\\' if is_text => _ = bytes.next(),
            b'"' if is_text && !is_array => return Some(offset + 1),
            b'"' => is_text = !is_text,
            b']' if !is_text => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// Masks the arguments of a process, given and returned as JSON. Returns `None` when they contain
/// no secret, or are no texts.
fn masked_arguments(json: &[u8]) -> Option<Vec<u8>> {
    let arguments: Vec<Text> = serde_json::from_slice(json).ok()?;
    let before: Argv = arguments.iter().cloned().collect();
    let masked = mask_argv(arguments.into_iter());
    if masked == before {
        None
    } else {
        serde_json::to_vec(&masked).ok()
    }
}

/// Returns the arguments that masking has changed, each with the new text.
fn changed_arguments(before: &[u8], after: &[u8]) -> Vec<(String, String)> {
    let texts = |json| serde_json::from_slice::<Vec<String>>(json).unwrap_or_default();
    texts(before)
        .into_iter()
        .zip(texts(after))
        .filter(|(before, after)| before != after)
        .collect()
}

/// Masks the command line of a process, given and returned as JSON. `changed` are the arguments in
/// the line that contain secrets: the command consists of such arguments, but no longer shows where
/// one ends.
fn masked_command(json: &[u8], changed: &[(String, String)]) -> Option<Vec<u8>> {
    let command: String = serde_json::from_slice(json).ok()?;
    let mut masked = command.clone();
    for (before, after) in changed {
        masked = masked.replace(before, after);
    }
    masked = mask_text(&masked);
    if masked == command {
        None
    } else {
        serde_json::to_vec(&masked).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let mut masker = LineMasker::default();
        // The second time, the arguments are remembered.
        for _ in 0..2 {
            assert_eq!(
                String::from_utf8_lossy(&masker.mask(line.as_bytes())),
                expected
            );
        }
        assert!(
            matches!(masker.mask(expected.as_bytes()), Cow::Borrowed(_)),
            "{expected} is masked again"
        );
    }

    #[test]
    fn arguments_are_masked_and_the_rest_of_the_line_stays() {
        check(
            r#"{"kind":"full","a":["--token","x1"],"facts":{"argv":["mysql","-ppw","a\"b"],"comm":"mysql"}}"#,
            r#"{"kind":"full","a":["--token","x1"],"facts":{"argv":["mysql","-p***","a\"b"],"comm":"mysql"}}"#,
        );
        check(
            r#"{"argv" : [ "a", "--token=x1" ] , "b":1}"#,
            r#"{"argv" : ["a","--token=***"] , "b":1}"#,
        );
        check(
            r#"{"argv":["a","--tokenizer=x1"]}"#,
            r#"{"argv":["a","--tokenizer=x1"]}"#,
        );
    }

    #[test]
    fn the_command_of_a_gpu_process_is_masked_like_its_arguments() {
        check(
            r#"{"gpus":[{"command":"python a.py --token two words"}],"argv":["python","a.py","--token","two words"]}"#,
            r#"{"gpus":[{"command":"python a.py --token ***"}],"argv":["python","a.py","--token","***"]}"#,
        );
        check(
            r#"{"command":"curl -u me:pw x"}"#,
            r#"{"command":"curl -u me:*** x"}"#,
        );
    }

    #[test]
    fn a_line_that_is_damaged_or_forged_is_kept() {
        for line in [
            r#"{"argv"#,
            r#"{"argv""#,
            r#"{"argv":"#,
            r#"{"argv":["#,
            r#"{"argv":["--token","#,
            r#"{"argv":["\"#,
            r#"{"argv":[1,{"a":["--token=x"]}]}"#,
            r#"{"argv":"--token=x"}"#,
            r#"{"a":["argv"],"command":7}"#,
            r#"{"command":"x"#,
            "",
        ] {
            check(line, line);
        }
    }

    #[test]
    fn the_memory_of_what_was_seen_is_bounded() {
        let mut masker = LineMasker::default();
        for number in 0..200 {
            let line = format!(r#"{{"argv":["{}","{number}"]}}"#, "x".repeat(100_000));
            masker.mask(line.as_bytes());
            assert!(
                masker.remembered <= MOST_REMEMBERED,
                "{}",
                masker.remembered
            );
        }
        masker.mask(format!(r#"{{"argv":["{}"]}}"#, "x".repeat(MOST_REMEMBERED)).as_bytes());
        let kept: usize = masker.known.keys().map(|json| json.len()).sum();
        assert!(kept <= MOST_REMEMBERED, "{kept}");
    }

    /// A line with the arguments of processes and one command.
    fn line_of(processes: &[String], command: &str) -> String {
        let argv = processes
            .iter()
            .map(|secret| format!(r#""argv":["a","--token","{secret}"]"#));
        format!(
            r#"{{{},"command":"{command}"}}"#,
            argv.collect::<Vec<_>>().join(",")
        )
    }

    #[test]
    fn a_secret_that_many_processes_have_is_masked_once() {
        let line = line_of(&vec!["*".to_owned(); 40], "a --token *");
        let masked = LineMasker::default().mask(line.as_bytes()).into_owned();
        assert!(masked.len() < 2 * line.len(), "{}", masked.len());
        assert!(
            masked.ends_with(br#""command":"a --token ***"}"#),
            "{}",
            String::from_utf8_lossy(&masked)
        );
    }

    #[test]
    fn a_secret_that_begins_like_another_one_leaves_nothing_of_that() {
        let line = line_of(&["two".to_owned(), "two words".to_owned()], "run two words");
        let masked = LineMasker::default().mask(line.as_bytes()).into_owned();
        assert!(
            masked.ends_with(br#""command":"run ***"}"#),
            "{}",
            String::from_utf8_lossy(&masked)
        );
    }

    #[test]
    fn the_time_for_a_hostile_line_grows_with_its_length_only() {
        // Each value without an end would be searched up to the end of the line.
        let unended = r#""argv":["#.repeat(1 << 20);
        assert!(matches!(
            LineMasker::default().mask(unended.as_bytes()),
            Cow::Borrowed(_)
        ));
        assert_eq!(values(unended.as_bytes(), ARGUMENTS, b'[').count(), 0);
        // Many secrets and many commands.
        let secrets: Vec<String> = (0..20_000)
            .map(|number| format!("secret{number}"))
            .collect();
        let commands = r#""command":"run it","#.repeat(50_000);
        let line = format!(
            "{{{commands}{}",
            &line_of(&secrets, "a --token secret7")[1..]
        );
        let masked = LineMasker::default().mask(line.as_bytes()).into_owned();
        assert!(
            masked.ends_with(br#""command":"***"}"#),
            "a secret may be in a command that is not searched"
        );
    }
}
