//! The scripts that gputop runs on other hosts, and the command for `ssh` that runs one.

/// The functions that every script begins with.
const FUNCTIONS: &str = include_str!("../../../assets/remote/functions.sh");

/// The characters, besides letters and digits, that a word after a script may have: no shell changes
/// them in single quotes.
const SAFE: &str = "._,=:/@%+-";

/// A script in `assets/remote/`. Its first argument is the nonce.
#[derive(Debug, Clone, Copy)]
pub(in crate::source) struct RemoteScript(pub(super) &'static str);

/// Finds gputop on a host, and becomes its agent.
pub(super) const FIRST_CONTACT: RemoteScript =
    RemoteScript(include_str!("../../../assets/remote/first-contact.sh"));

/// Takes a copy of gputop from the standard input.
pub(super) const UPLOAD: RemoteScript =
    RemoteScript(include_str!("../../../assets/remote/upload.sh"));

/// Removes all copies of gputop.
pub(super) const CLEAN: RemoteScript =
    RemoteScript(include_str!("../../../assets/remote/clean.sh"));

/// Asks Slurm for a job, or cancels it.
pub(in crate::source) const SLURM: RemoteScript =
    RemoteScript(include_str!("../../../assets/remote/slurm.sh"));

impl RemoteScript {
    /// Returns the command that runs the script with these words as its arguments: through a program
    /// with its own arguments, such as `srun`, unless that is empty. It means the same to bash, zsh,
    /// fish, tcsh and busybox.
    pub(super) fn command<'a>(
        self,
        program: &[String],
        words: impl IntoIterator<Item = &'a str>,
    ) -> String {
        let program: String = program
            .iter()
            .flat_map(|word| [quoted(word), " ".into()])
            .collect();
        let words: Vec<String> = words.into_iter().map(quoted).collect();
        format!(
            "exec {program}sh -c '{}' sh {}",
            self.one_line(),
            words.join(" ")
        )
    }

    /// Returns the script without its comments, on one line: tcsh refuses a line end in quotes.
    pub(super) fn one_line(self) -> String {
        FUNCTIONS
            .lines()
            .chain(self.0.lines())
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Returns a word in single quotes. Leaves out characters that are not safe there in every shell:
/// the words are gputop's own, and none has one.
fn quoted(word: &str) -> String {
    let safe: String = word
        .chars()
        .filter(|character| character.is_ascii_alphanumeric() || SAFE.contains(*character))
        .collect();
    format!("'{safe}'")
}

/// Returns the fields of a line that a script wrote with this nonce; `None` for any other line.
pub(super) fn fields<'a>(
    line: &'a [u8],
    nonce: &str,
) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
    let line = line.strip_prefix(b"gputop-")?;
    let line = line.strip_prefix(nonce.as_bytes())?.strip_prefix(b"\t")?;
    Some(line.split(|byte| *byte == b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_the_same_text_in_single_quotes_of_every_shell() {
        for script in [FIRST_CONTACT, UPLOAD, CLEAN, SLURM] {
            let line = script.one_line();
            for text in ["'", "!", "\\\\", "\\'", "\n"] {
                assert!(!line.contains(text), "{text:?} is in {line}");
            }
            assert!(line.len() < 3000, "{} bytes are sent each time", line.len());
        }
    }

    #[test]
    fn a_word_has_no_character_that_a_shell_changes() {
        assert_eq!(quoted("a'b c\\!\nd"), "'abcd'");
        assert_eq!(
            quoted("load.used_bytes,x=1:/@%+-"),
            "'load.used_bytes,x=1:/@%+-'"
        );
    }
}
