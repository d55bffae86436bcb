//! Words and shapes of what the program writes: exit codes, labels of GPUs and processes, tables,
//! wrapped text in a style, colours, advice, JSON, cells of CSV.

mod exit;
mod failed_readings;
pub(crate) mod fill;
pub(crate) mod judged;
pub(crate) mod labels;
pub(crate) mod palette;
pub(crate) mod table;
pub(crate) mod text_wrap;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

pub use self::exit::Exit;
pub(crate) use self::failed_readings::failed_readings;
use self::text_wrap::wrap_figures;
use crate::base::terminal::{self, TerminalAbilities};
use crate::base::text::Text;
use crate::model::Advice;

/// How a text is written: its width, whether it is ASCII only, and whether it may be bold or dim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextStyle {
    /// The longest line, in terminal columns.
    pub(crate) width: usize,
    pub(crate) ascii: bool,
    pub(crate) bold: bool,
}

impl TextStyle {
    /// Returns the style for the standard output.
    pub(crate) fn of_stdout(ascii: bool) -> Self {
        /// Columns of lines in a file or a pipe.
        const WIDTH: usize = 100;
        Self {
            width: terminal::width().unwrap_or(WIDTH),
            ascii,
            bold: terminal::is_stdout() && TerminalAbilities::from_env().has_colour(),
        }
    }

    /// Returns the style for the explanation of a log, which people read in mails and in reports of
    /// bugs: in a file or a pipe, lines are narrower.
    pub(crate) fn of_explanation(ascii: bool) -> Self {
        /// Columns of lines in a file or a pipe.
        const WIDTH: usize = 80;
        Self {
            width: terminal::width().unwrap_or(WIDTH),
            ..Self::of_stdout(ascii)
        }
    }
}

/// A text that is written line by line.
pub(crate) struct StyledText {
    text: String,
    pub(crate) style: TextStyle,
}

impl StyledText {
    pub(crate) fn new(style: TextStyle) -> Self {
        Self {
            text: String::new(),
            style,
        }
    }

    /// Adds a line without wrapping it.
    pub(crate) fn line(&mut self, line: impl Display) {
        self.text.push_str(&line.to_string());
        self.text.push('\n');
    }

    /// Adds an empty line, unless the text is empty or its last line is empty.
    pub(crate) fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Adds lines that already end with a line break.
    pub(crate) fn lines(&mut self, lines: &str) {
        self.text.push_str(lines);
    }

    /// Adds a paragraph wrapped to the width. Lines after the first one are indented by `indent`
    /// columns.
    pub(crate) fn paragraph(&mut self, indent: usize, paragraph: impl Display) {
        for (number, line) in wrap_figures(&paragraph.to_string(), self.style.width, indent)
            .iter()
            .enumerate()
        {
            self.line(format_args!(
                "{:indent$}{line}",
                "",
                indent = if number > 0 { indent } else { 0 }
            ));
        }
    }

    pub(crate) fn heading(&mut self, heading: &str) {
        let (on, off) = if self.style.bold {
            ("\x1b[1m", "\x1b[22m")
        } else {
            ("", "")
        };
        for line in wrap_figures(heading, self.style.width, 0) {
            self.line(format_args!("{on}{line}{off}"));
        }
    }

    /// Adds the numbered title of a piece of advice, and its paragraphs unless `brief`.
    pub(crate) fn advice(&mut self, number: usize, advice: &Advice, brief: bool) {
        const INDENT: usize = 3;
        self.paragraph(INDENT, format_args!("{number}. {}", advice.title()));
        for paragraph in advice.paragraphs().iter().filter(|_| !brief) {
            let is_code = paragraph.starts_with(' ');
            let paragraph = format_args!("{:INDENT$}{paragraph}", "");
            // Code is to be copied, so it is not wrapped.
            if is_code {
                self.line(paragraph);
            } else {
                self.paragraph(INDENT, paragraph);
            }
        }
    }

    /// Returns the text, in ASCII if the style says so.
    pub(crate) fn finish(self) -> String {
        if self.style.ascii {
            table::ascii(&self.text)
        } else {
            self.text
        }
    }
}

/// Returns the JSON of pieces of advice, in order of likelihood. Their names never change.
pub(crate) fn advice_json(pieces: &[Advice]) -> Value {
    let one = |advice: &Advice| json!({ "name": advice.name, "title": advice.title(), "text": advice.paragraphs().join("\n") });
    pieces.iter().map(one).collect()
}

/// Puts `'` before a text that a spreadsheet would take for a formula: names and commands come from
/// outside.
pub(crate) fn without_formula(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}").into()
    } else {
        text.into()
    }
}

/// Returns rows as CSV. Fields with separators, quotes or line ends are quoted, as RFC 4180 says.
pub(crate) fn csv(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    // A row with more or fewer cells than the first one is written too.
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Vec::new());
    for row in rows {
        // Writing to memory cannot fail.
        let _written = writer.write_record(row);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Prints why the command line or the configuration is refused. Returns the exit code for that.
pub(crate) fn refuse(why: &Text) -> ExitCode {
    print_error(why);
    Exit::Usage.into()
}

pub(crate) fn print_json(value: &Value) -> io::Result<()> {
    print(format!("{value}\n").as_bytes())
}

/// Prints a text, in ASCII if `ascii`.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn print_text(text: &str, ascii: bool) -> io::Result<()> {
    if ascii {
        print(table::ascii(text).as_bytes())
    } else {
        print(text.as_bytes())
    }
}

/// Writes a report to the standard output.
///
/// # Errors
///
/// When the standard output is closed.
pub(crate) fn print(out: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(out)?;
    stdout.flush()
}

/// Prints a sentence to the standard error.
pub fn print_error(reason: &Text) {
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop: {reason}");
}
