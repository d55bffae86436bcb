//! The launch table: which programs start which others and wait for them, and by what their
//! children are known. The agent compares environments with it, the model names and arguments.

use std::sync::OnceLock;

/// A line of the launch table. The head of `launchers.txt` explains the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The name in sentences, and in the facts of a child.
    pub name: String,
    programs: Vec<ProgramPattern>,
    children: Vec<ProgramPattern>,
    /// The names of variables. All are set in the environment of a child.
    variables: Vec<String>,
    /// Where the launcher starts its children.
    pub place: LaunchPlace,
    /// The line as text.
    line: String,
}

/// Where a launcher starts its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchPlace {
    /// In its own process group.
    Group,
    /// Each in a process group of its own.
    OwnGroup,
    /// Each in a session of its own.
    Session,
    /// Anywhere.
    Any,
}

/// The name of a program, script or module, and words that are among its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProgramPattern(Vec<String>);

/// The variable of which the value is the PID of the child, and not any value.
const IS_PID: &str = "=PID";

/// The separators of columns and texts in a line.
const SEPARATORS: [char; 4] = ['|', ',', '\n', '\r'];

/// The launch table of gputop, and then the lines of the user.
static TABLE: OnceLock<Vec<Launcher>> = OnceLock::new();

/// Returns the launch table.
pub fn launchers() -> &'static [Launcher] {
    TABLE.get_or_init(built_in)
}

/// The environment variable in which an agent gets the lines of the user.
pub const VARIABLE: &str = "GPUTOP_LAUNCHERS";

/// The name of the launcher of the simulated machine's processes.
pub const DEMO: &str = "gputop --demo";
/// The environment variable of the simulated machine's processes.
pub const DEMO_VARIABLE: &str = "GPUTOP_DEMO_ROLE";

/// Adds lines of the user to the launch table. Has no effect after the table was read.
pub fn add(lines: impl IntoIterator<Item = Launcher>) {
    // Only the first call counts: there is one configuration.
    let _is_set = TABLE.set(built_in().into_iter().chain(lines).collect());
}

/// Returns the lines of the user as text, which [`parse`] reads; `None` without any.
pub fn user_lines() -> Option<String> {
    let lines: Vec<&str> = launchers()[built_in().len()..]
        .iter()
        .map(|launcher| launcher.line.as_str())
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Parses lines of the table. Leaves out those that are not understood.
pub fn parse(text: &str) -> Vec<Launcher> {
    text.lines()
        .filter_map(|line| Launcher::parse(line).ok())
        .collect()
}

/// Returns the line with this name.
pub fn named(name: &str) -> Option<&'static Launcher> {
    launchers().iter().find(|launcher| launcher.name == name)
}

fn built_in() -> Vec<Launcher> {
    // The text before the table has no columns.
    parse(include_str!("launchers.txt"))
}

impl Launcher {
    /// Parses a line of the table.
    fn parse(line: &str) -> Result<Self, String> {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, programs, children, variables, place] = columns.as_slice() else {
            return Err("a line has five columns".to_owned());
        };
        let list = |text: &str, separator: char| -> Vec<String> {
            let parts = text
                .split(separator)
                .map(str::trim)
                .filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        Self::new(
            name,
            &list(programs, ','),
            &list(children, ','),
            list(variables, ' '),
            place,
        )
    }

    /// Returns the line with these columns, or says what is wrong with one of them.
    pub fn new(
        name: &str,
        programs: &[String],
        children: &[String],
        variables: Vec<String>,
        place_word: &str,
    ) -> Result<Self, String> {
        let patterns = |texts: &[String]| {
            let words = texts.iter().map(|text| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            });
            words
                .filter(|words| !words.is_empty())
                .map(ProgramPattern)
                .collect::<Vec<_>>()
        };
        let (programs, children) = (patterns(programs), patterns(children));
        let place = match place_word {
            "group" => LaunchPlace::Group,
            "own group" => LaunchPlace::OwnGroup,
            "session" => LaunchPlace::Session,
            "-" | "" => LaunchPlace::Any,
            other => {
                return Err(format!(
                    "`{other}` is no place; there are group, own group, session"
                ));
            }
        };
        if name.is_empty() {
            return Err("it has no name".to_owned());
        }
        let mut words = programs
            .iter()
            .chain(&children)
            .flat_map(|pattern| &pattern.0)
            .chain(&variables);
        if name.contains(SEPARATORS) || words.any(|word| word.contains(SEPARATORS)) {
            return Err(format!(
                "`{name}` has a text with a comma, `|` or line break"
            ));
        }
        if children.is_empty() && variables.is_empty() {
            return Err(format!(
                "`{name}` has neither children nor variables, so no child of it can be known"
            ));
        }
        if let Some(bad) = variables
            .iter()
            .find(|name| !is_variable(name.strip_suffix(IS_PID).unwrap_or(name)))
        {
            return Err(format!("`{bad}` is no name of a variable"));
        }
        let join = |patterns: &[ProgramPattern]| {
            patterns
                .iter()
                .map(|pattern| pattern.0.join(" "))
                .collect::<Vec<_>>()
        };
        let columns = [
            name,
            &join(&programs).join(", "),
            &join(&children).join(", "),
            &variables.join(" "),
            place_word,
        ];
        let line = columns.join(" | ");
        Ok(Self {
            name: name.to_owned(),
            programs,
            children,
            variables,
            place,
            line,
        })
    }

    /// Whether the launcher only waits for its children, which its variables identify. Others may
    /// do work of their own.
    pub fn only_waits(&self) -> bool {
        !self.variables.is_empty()
    }

    /// Whether a process with this name and these arguments is the launcher.
    pub fn is_program(&self, comm: &str, argv: &[&str]) -> bool {
        self.programs
            .iter()
            .any(|pattern| pattern.matches(comm, argv))
    }

    /// Whether a process with this name and these arguments works for this launcher only.
    pub fn is_child(&self, comm: &str, argv: &[&str]) -> bool {
        self.children
            .iter()
            .any(|pattern| pattern.matches(comm, argv))
    }

    /// Whether the environment has all variables of the launcher. `value` returns the value of a
    /// variable; `None` if it is not set.
    pub fn has_set<'a>(&self, pid: u32, value: impl Fn(&str) -> Option<&'a [u8]>) -> bool {
        let is_set = |variable: &String| match variable.strip_suffix(IS_PID) {
            Some(name) => value(name) == Some(pid.to_string().as_bytes()),
            None => value(variable).is_some_and(|value| !value.is_empty()),
        };
        self.only_waits() && self.variables.iter().all(is_set)
    }

    /// Whether the launcher sets this variable.
    pub fn sets(&self, name: &str) -> bool {
        self.variables
            .iter()
            .any(|variable| variable.strip_suffix(IS_PID).unwrap_or(variable) == name)
    }
}

fn is_variable(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_letter)
}

impl ProgramPattern {
    fn matches(&self, comm: &str, argv: &[&str]) -> bool {
        /// The most bytes of a name that the kernel keeps.
        const MOST_COMM: usize = 15;
        let Some((name, words)) = self.0.split_first() else {
            return false;
        };
        let (program, after) = program(argv);
        // Several programs may have the same name in the kernel: the first argument has the rest of
        // the name.
        let has_rest = || {
            argv.first()
                .is_some_and(|first| base_name(first).starts_with(comm))
        };
        let is_comm =
            is_like(name, comm) || comm.len() == MOST_COMM && name.starts_with(comm) && !has_rest();
        let is_path = |path: &str| {
            path.strip_suffix(name.as_str())
                .is_some_and(|folder| folder.ends_with('/'))
        };
        let is_first = |first: &&str| is_like(name, base_name(first)) || is_path(first);
        let is_program = || argv.first().is_some_and(is_first) || is_like(name, program);
        let after = if argv.is_empty() { &[] } else { &argv[after..] };
        (is_comm || is_program())
            && words
                .iter()
                .all(|word| after.iter().any(|argument| is_like(word, argument)))
    }
}

/// Whether a text is this one, or begins with it if it ends in `*`.
fn is_like(pattern: &str, text: &str) -> bool {
    pattern
        .strip_suffix('*')
        .map_or(pattern == text, |start| text.starts_with(start))
}

fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the script or module that an interpreter runs, and the index of the first argument after
/// it. For other programs, returns nothing and the index of the first argument.
fn program<'a>(argv: &[&'a str]) -> (&'a str, usize) {
    let is_interpreter = argv.first().is_some_and(|first| {
        ["python", "pypy", "java"]
            .iter()
            .any(|name| base_name(first).starts_with(name))
    });
    let mut rest = argv.iter().enumerate().skip(1);
    let Some((place, word)) = rest
        .find(|(_, word)| !word.starts_with('-') || **word == "-m")
        .filter(|_| is_interpreter)
    else {
        return ("", 1.min(argv.len()));
    };
    match argv.get(place + 1) {
        Some(module) if *word == "-m" => (module, place + 2),
        _ => (base_name(word), place + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = include_str!("launchers.txt")
            .lines()
            .filter(|line| !line.starts_with(' ') && line.contains('|'));
        let lines: Vec<Result<Launcher, String>> = lines.map(Launcher::parse).collect();
        assert!(lines.iter().all(Result::is_ok), "{lines:?}");
        assert_eq!(lines.len(), built_in().len());
        let says = format!(
            "gputop knows the children of {} launchers and servers",
            lines.len()
        );
        assert!(
            include_str!("../../docs/leftovers.md").contains(&says),
            "docs/leftovers.md does not say: {says}"
        );
        let again = built_in()
            .iter()
            .map(|launcher| launcher.line.clone())
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(parse(&again), built_in());
        let mut names: Vec<String> = built_in()
            .into_iter()
            .map(|launcher| launcher.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), lines.len(), "names are unique");
    }

    #[track_caller]
    fn check(line: &str, comm: &str, command: &str, program: bool, child: bool) {
        let launcher = Launcher::parse(line).unwrap();
        let argv: Vec<&str> = command.split(' ').collect();
        assert_eq!(
            (
                launcher.is_program(comm, &argv),
                launcher.is_child(comm, &argv)
            ),
            (program, child),
            "{command}"
        );
    }

    #[test]
    fn a_program_is_known_by_its_name_script_or_module() {
        let line = "x | serve, run.py fast, a.b* | serve worker, X::* | | -";
        check(line, "serve", "/opt/bin/serve --port 1", true, false);
        check(
            line,
            "python3.11",
            "/usr/bin/python3.11 -u /opt/bin/serve",
            true,
            false,
        );
        check(line, "serve", "serve worker --port 1", true, true);
        check(line, "python", "python -m a.bc.d", true, false);
        check(line, "python", "python run.py --x fast", true, false);
        check(line, "python", "python run.py slow", false, false);
        check(line, "python", "python eval.py serve worker", false, false);
        check(line, "bash", "bash -c serve", false, false);
        check(
            "x | | ollama/run | | -",
            "run",
            "/usr/lib/ollama/run --port 4",
            false,
            true,
        );
        check(
            "x | | ollama/run | | -",
            "run",
            "/usr/bin/run --port 4",
            false,
            false,
        );
        check(line, "X::Engine", "X::Engine", false, true);
        check(
            "x | | a_very_long_name_of_a_program | | -",
            "a_very_long_nam",
            "",
            false,
            true,
        );
        check(
            "x | | a_very_long_name_of_a_program | | -",
            "a_very_long_nam",
            "/x/a_very_long_name -x",
            false,
            false,
        );
        check(
            "x | | a_very_long_name_of_a_program | | -",
            "a_very_long_nam",
            "python -x",
            false,
            true,
        );
    }

    #[test]
    fn a_line_that_cannot_work_is_refused() {
        let parse = |line: &str| Launcher::parse(line).unwrap_err();
        assert_eq!(
            parse("x | a | | | -"),
            "`x` has neither children nor variables, so no child of it can be known"
        );
        assert_eq!(
            parse("x | a | b | | room"),
            "`room` is no place; there are group, own group, session"
        );
        assert_eq!(parse("x | a | | A=1 | -"), "`A=1` is no name of a variable");
        assert_eq!(parse(" | a | b | | -"), "it has no name");
        let with_comma = Launcher::new("x", &["a,b".to_owned()], &["c".to_owned()], vec![], "");
        assert_eq!(
            with_comma.unwrap_err(),
            "`x` has a text with a comma, `|` or line break"
        );
    }

    #[test]
    fn a_launcher_has_set_all_of_its_variables() {
        let launcher = Launcher::parse("x | a | | A B=PID | -").unwrap();
        let has_set = |text: &'static str| {
            launcher.has_set(7, |name| {
                let mut pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
                pairs
                    .find(|pair| pair.0 == name)
                    .map(|pair| pair.1.as_bytes())
            })
        };
        assert!(has_set("A=1 B=7"));
        assert!(!has_set("A=1 B=8") && !has_set("B=7") && !has_set("A= B=7"));
        assert!(launcher.sets("B") && !launcher.sets("C"));
    }
}
