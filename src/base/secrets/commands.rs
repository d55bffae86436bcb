//! Finds the program of a command, also behind `sudo`, `docker exec` and the like, and its secrets
//! by the table of programs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use super::names;
use super::programs::{
    BEFORE_NAMES, HARMLESS, INTERPRETERS, PROGRAMS, PROSE, ProgramSecrets, STDIN_READERS,
    SecretPart, WRAPPERS,
};
use super::shell::{HERE_STRING, ShellCommand};
use super::word::Word;

/// Values that stand for no password: `rar -p-`, `useradd -p '!'`.
const NO_SECRETS: [&str; 6] = ["off", "none", "-", "!", "!!", "*"];

/// The facts about a program.
#[derive(Default)]
struct KnownProgram {
    secrets: Vec<&'static ProgramSecrets>,
    is_wrapper: bool,
    is_interpreter: bool,
}

static BY_NAME: LazyLock<HashMap<&str, KnownProgram>> = LazyLock::new(|| {
    let mut programs: HashMap<&str, KnownProgram> = HashMap::new();
    for row in PROGRAMS {
        for name in row.programs.split_ascii_whitespace() {
            programs.entry(name).or_default().secrets.push(row);
        }
    }
    for name in WRAPPERS.split_ascii_whitespace() {
        programs.entry(name).or_default().is_wrapper = true;
    }
    for name in INTERPRETERS.split_ascii_whitespace() {
        programs.entry(name).or_default().is_interpreter = true;
    }
    programs
});

/// A secret of a program: in which word, where in it, and after which option.
pub(super) struct ProgramSecret {
    /// The row of the table that names it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "tests check that each row has an example")
    )]
    pub(super) row: &'static ProgramSecrets,
    pub(super) program: usize,
    pub(super) word: usize,
    pub(super) range: Range<usize>,
    pub(super) option: String,
}

/// Returns the name of a program: the file name, without the tag of an image.
pub(super) fn program_name(word: &str) -> &str {
    let name = word
        .rsplit('/')
        .next()
        .unwrap_or(word)
        .trim_start_matches('-');
    let name = name.split(':').next().unwrap_or(name);
    name.strip_suffix(".exe").unwrap_or(name)
}

fn known(word: &str) -> Option<&'static KnownProgram> {
    let name = program_name(word);
    BY_NAME.get(name).or_else(|| {
        BY_NAME
            .get("python")
            .filter(|_| name.starts_with("python3."))
    })
}

/// Returns the places of the programs of a command: a wrapper, the program that it runs, and so on.
pub(super) fn programs(words: &[Word<'_>]) -> Vec<usize> {
    const KEYWORDS: &str = "if then else elif do while until ! { } time exec command builtin";
    let is_before =
        |word: &Word<'_>| names::is_in(KEYWORDS, &word.text) || is_assignment(&word.text);
    let mut programs = Vec::new();
    let mut next_program = words.iter().position(|word| !is_before(word));
    while let Some(place) = next_program {
        programs.push(place);
        let rest = place + 1;
        next_program = match known(&words[place].text) {
            Some(program) if program.is_wrapper => (rest..words.len()).find(|next| {
                let is_name = names::is_in(BEFORE_NAMES, &words[next - 1].text);
                // The last part of `src=/run/hf` is no program.
                known(&words[*next].text).is_some() && !is_name && !words[*next].text.contains('=')
            }),
            Some(program) if program.is_interpreter => (rest..words.len())
                .find(|next| !words[*next].text.starts_with('-') || words[next - 1].text == "-m")
                .filter(|next| words[next - 1].text != "-c"),
            _ => None,
        };
    }
    programs
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Whether an option names a secret for most programs, and none for this.
pub(super) fn is_harmless(program: &str, option: &str) -> bool {
    let name = program_name(program);
    HARMLESS
        .iter()
        .any(|(programs, options)| names::is_in(options, option) && names::is_in(programs, name))
}

/// Whether this option of this program takes text for people or models.
pub(super) fn takes_prose(program: &str, option: &str) -> bool {
    let name = program_name(program);
    PROSE
        .iter()
        .any(|(programs, options)| names::is_in(options, option) && names::is_in(programs, name))
}

/// Returns the secrets of the programs of a command.
pub(super) fn secrets(words: &[Word<'_>], programs: &[usize]) -> Vec<ProgramSecret> {
    let mut found = Vec::new();
    for place in programs {
        let Some(program) = known(&words[*place].text) else {
            continue;
        };
        for row in &program.secrets {
            Search {
                words,
                program: *place,
                row,
                found: &mut found,
            }
            .run();
        }
    }
    found
}

/// The search for the secrets of one row of the table.
struct Search<'a> {
    words: &'a [Word<'a>],
    program: usize,
    row: &'static ProgramSecrets,
    found: &'a mut Vec<ProgramSecret>,
}

impl Search<'_> {
    fn run(&mut self) {
        let Some(start) = self.start() else { return };
        for option in self.row.options.split_ascii_whitespace() {
            if option == "last" {
                self.add_last(start);
            } else if option == "all" {
                self.arguments(start)
                    .into_iter()
                    .for_each(|place| self.add(place, 0, ""));
            } else if option == "NAME" {
                self.add_named(start);
            } else if let Ok(number) = option.parse::<usize>() {
                self.add_argument(start, number);
            } else {
                self.add_options(start, option);
            }
        }
    }

    /// Returns the place after the words that must stand before.
    fn start(&self) -> Option<usize> {
        let mut start = self.program + 1;
        for wanted in self.row.after.split_ascii_whitespace() {
            let letter = wanted.strip_prefix('-').filter(|letter| letter.len() == 1);
            let is_here = |word: &Word<'_>| match letter {
                // A letter among those of `-nb`.
                Some(letter) => is_letters(&word.text) && word.text[1..].contains(letter),
                None => wanted
                    .strip_suffix('*')
                    .map_or(word.text == wanted, |start| word.text.starts_with(start)),
            };
            start += self.words[start..].iter().position(is_here)? + 1;
        }
        Some(start)
    }

    /// Returns the places of the arguments that are no options.
    fn arguments(&self, start: usize) -> Vec<usize> {
        (start..self.words.len())
            .filter(|place| !self.words[*place].text.starts_with('-'))
            .collect()
    }

    fn add_last(&mut self, start: usize) {
        let last = self.arguments(start).last().copied();
        // The value of an option, as in `mkpasswd -m sha-512`.
        let is_value = |place: usize| {
            let before = self.words[place - 1].text.as_bytes();
            place > start
                && before.len() == 2
                && before[0] == b'-'
                && before[1].is_ascii_alphabetic()
        };
        if let Some(place) =
            last.filter(|place| !is_value(*place) && !self.words[*place].text.contains("://"))
        {
            self.add(place, 0, "");
        }
    }

    fn add_argument(&mut self, start: usize, number: usize) {
        let Some(place) = self.arguments(start).get(number.saturating_sub(1)).copied() else {
            return;
        };
        // An argument after an option may be its value.
        let is_uncertain = number > 1
            && self.words[start..place]
                .iter()
                .any(|word| word.text.starts_with('-'));
        if !is_uncertain && !self.words[place].text.contains("://") {
            self.add(place, 0, "");
        }
    }

    /// Adds the arguments after names of secrets.
    fn add_named(&mut self, start: usize) {
        let mut place = start;
        while place + 1 < self.words.len() {
            let name = &self.words[place].text;
            // The value of `wifi-sec.key-mgmt wpa-psk wifi-sec.psk …` is no name.
            let next = &self.words[place + 1].text;
            let is_value =
                place + 2 < self.words.len() && next.contains('.') && names::names_secret(next);
            if !name.starts_with('-')
                && !name.contains(['=', ' '])
                && names::names_secret(name)
                && !is_value
            {
                let name = name.clone().into_owned();
                self.add(place + 1, 0, &name);
                place += 1;
            }
            place += 1;
        }
    }

    fn add_options(&mut self, start: usize, option: &str) {
        let (name, form) = match option.as_bytes().last() {
            Some(b'+' | b'<' | b'>') => option.split_at(option.len() - 1),
            _ => (option, ""),
        };
        let is_letter = name.len() == 2 && name.starts_with('-');
        let is_prefix = name.ends_with([':', '=']);
        for place in start..self.words.len() {
            let word = &self.words[place].text;
            let rest = word.strip_prefix(name);
            let joined = match rest {
                Some("") => None,
                Some(_) if is_prefix || form == "<" || is_letter && form != ">" => Some(name.len()),
                Some(rest) if !is_letter && rest.starts_with('=') => Some(name.len() + 1),
                _ => None,
            };
            let is_cluster = form == "+" && is_letters(word) && word.ends_with(&name[1..]);
            if let Some(joined) = joined {
                self.add(place, joined, name);
            } else if (rest == Some("") || is_cluster)
                && form != "<"
                && !is_prefix
                && self.has_value(place)
            {
                self.add(place + 1, 0, name);
            }
        }
    }

    /// Whether a value follows the option at this place. A short word that begins with `-` is
    /// another option.
    fn has_value(&self, option: usize) -> bool {
        const LONGEST_OPTION: usize = 24;
        let is_value =
            |word: &Word<'_>| !word.text.starts_with('-') || word.text.len() > LONGEST_OPTION;
        self.words.get(option + 1).is_some_and(is_value)
    }

    /// Adds the secret part of a word from a byte on.
    fn add(&mut self, place: usize, from: usize, option: &str) {
        let range = part_of(&self.words[place].text, from, self.row.part)
            .filter(|range| !NO_SECRETS.contains(&&self.words[place].text[range.clone()]));
        self.found.extend(range.map(|range| ProgramSecret {
            row: self.row,
            program: self.program,
            word: place,
            range,
            option: option.to_owned(),
        }));
    }
}

/// Whether this is letters of options: `-xzf`.
fn is_letters(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        !letters.is_empty()
            && letters.len() <= 8
            && letters.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Returns the secret part of a value, which begins at a byte of a word.
fn part_of(word: &str, from: usize, part: SecretPart) -> Option<Range<usize>> {
    let value = &word[from..];
    let after = |separator| Some(from + value.find(separator)? + 1..word.len());
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match part {
        // The ports of `docker run -p3306:3306`.
        SecretPart::Whole
            if value
                .split_once(':')
                .is_some_and(|(left, right)| is_number(left) && is_number(right)) =>
        {
            None
        }
        SecretPart::Whole => Some(from..word.len()),
        SecretPart::Login => {
            let (user, password) = value.split_once(':')?;
            match password {
                // A key has digits, and the name of a user with an empty password seldom.
                "" => names::is_mixed(user).then_some(from..from + user.len()),
                password if is_number(user) && is_number(password) => None,
                _ => Some(from + user.len() + 1..word.len()),
            }
        }
        SecretPart::BeforeAt => {
            let offset = value.rfind('@').filter(|_| !value.contains("://"))?;
            Some(from + value[..offset].find(':')? + 1..from + offset)
        }
        SecretPart::AfterColon => Some(from + value.rfind(':')? + 1..word.len()),
        SecretPart::AfterScheme => Some(from + value.find("://")? + "://".len()..word.len()),
        SecretPart::AfterPercent => after('%'),
        SecretPart::AfterComma => after(','),
        SecretPart::AfterEquals => after('='),
        SecretPart::AfterSlash => {
            let skipped = value
                .strip_prefix("userid=")
                .map_or(0, |rest| value.len() - rest.len());
            let (user, password) = value[skipped..].split_once('/')?;
            let is_login = !user.is_empty() && !user.contains(['=', '@', '.']);
            let begin = from + skipped + user.len() + 1;
            is_login.then(|| begin..begin + password.rfind('@').unwrap_or(password.len()))
        }
        SecretPart::Pass => value
            .starts_with("pass:")
            .then_some(from + "pass:".len()..word.len()),
    }
}

/// Returns the part of the standard input that is a secret of this command; `None` if it reads
/// none.
fn stdin_part(words: &[Word<'_>]) -> Option<SecretPart> {
    let programs = programs(words);
    let reads = |(names, wanted, _): &&(&str, &str, SecretPart)| {
        let is_program = |place: &usize| names::is_in(names, program_name(&words[*place].text));
        programs.iter().any(is_program)
            && (wanted.is_empty() || words.iter().any(|word| is_flag(&word.text, wanted)))
    };
    let names_stdin = || {
        words
            .iter()
            .any(|word| names::takes_password_from_stdin(&word.text))
    };
    STDIN_READERS
        .iter()
        .find(reads)
        .map(|(.., part)| *part)
        .or_else(|| names_stdin().then_some(SecretPart::Whole))
}

fn is_flag(word: &str, wanted: &str) -> bool {
    word == wanted || wanted.len() == 2 && is_letters(word) && word.ends_with(&wanted[1..])
}

/// Finds the secrets that commands of a shell text pass on through the standard input: `echo SECRET
/// | sudo -S`. Calls `found` with the word and where the secret is in it.
pub(super) fn stdin_secrets(
    commands: &[ShellCommand<'_>],
    mut found: impl FnMut(&Word<'_>, Range<usize>),
) {
    for (number, command) in commands.iter().enumerate() {
        let Some(part) = stdin_part(&command.words) else {
            continue;
        };
        let mut add = |word: &Word<'_>| {
            if let Some(range) = part_of(&word.text, 0, part) {
                found(word, range);
            }
        };
        for pair in command
            .words
            .windows(2)
            .filter(|pair| pair[0].text == HERE_STRING)
        {
            add(&pair[1]);
        }
        let before = number
            .checked_sub(1)
            .map(|before| &commands[before])
            .filter(|_| command.is_piped);
        before
            .into_iter()
            .flat_map(|before| output(&before.words))
            .for_each(&mut add);
    }
}

/// Returns the words that a command writes, if it is `echo` or the like.
fn output<'a, 'b>(command: &'a [Word<'b>]) -> Vec<&'a Word<'b>> {
    let Some((program, rest)) = command.split_first() else {
        return Vec::new();
    };
    match program_name(&program.text) {
        "echo" | "printf" | "yes" => rest
            .iter()
            .filter(|word| !word.text.starts_with(['-', '%']))
            .collect(),
        "cat" if rest.first().is_some_and(|word| word.text == HERE_STRING) => {
            rest[1..].iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Calls `found` with each word that the commands of a text write.
pub(super) fn find_echoed(commands: &[ShellCommand<'_>], found: impl FnMut(&Word<'_>)) {
    commands
        .iter()
        .flat_map(|command| output(&command.words))
        .for_each(found);
}
