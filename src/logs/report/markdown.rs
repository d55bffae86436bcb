//! The report as Markdown, for an issue: the summary, and small tables.

use std::fmt::Write;

use super::PageContent;
use super::mark_table;
use super::table::{self, PageCell, PageTable};
use crate::model::Severity;

/// The most rows of a table: a reader of an issue sees the worst.
const MOST_ROWS: usize = 20;

/// The most characters of a cell.
const LONGEST_CELL: usize = 160;

/// Returns the report.
pub(super) fn document(content: &PageContent<'_>) -> String {
    let summary = &content.summary;
    let mut text = format!(
        "## {}: {}\n\n",
        escaped(&summary.badge.text),
        escaped(&summary.headline)
    );
    for host in &summary.hosts {
        _ = writeln!(text, "- {}", escaped(&host.ran));
        for finding in &host.findings {
            let (badge, words) = (escaped(&finding.badge.text), escaped(&finding.text));
            _ = match finding.badge.severity {
                Severity::Bad => writeln!(text, "- **{badge}: {words}**"),
                _ => writeln!(text, "- {badge}: {words}"),
            };
        }
        _ = writeln!(text, "- {}", escaped(&host.peaks));
    }
    for note in &summary.notes {
        _ = writeln!(text, "- {}", escaped(note));
    }
    if let Some((name, table)) = &content.comparison {
        _ = write!(text, "\nCompared with {}:\n", escaped(name.as_str()));
        write_table(&mut text, table);
    }
    for (host, plots) in &content.hosts {
        if content.hosts.len() > 1 {
            _ = write!(text, "\n## Host {}\n", escaped(host.name.as_str()));
        }
        let tables = [
            table::leaks(host),
            table::tensor_leaks(host),
            table::suspects(host),
            mark_table::marks(host),
        ];
        let rest = [
            table::gpus(host),
            table::processes(host),
            table::events(host, MOST_ROWS),
        ];
        for table in tables
            .iter()
            .chain([&plots.ooms])
            .chain(&rest)
            .filter(|table| !table.rows.is_empty())
        {
            write_table(&mut text, table);
        }
    }
    _ = writeln!(text, "\nWritten by gputop {}.", env!("CARGO_PKG_VERSION"));
    text
}

fn write_table(text: &mut String, table: &PageTable) {
    _ = write!(text, "\n### {}\n\n|", table.title);
    for heading in &table.headings {
        _ = write!(text, " {heading} |");
    }
    text.push_str("\n|");
    for column in 0..table.headings.len() {
        let is_number = |row: &Vec<PageCell>| matches!(row.get(column), Some(PageCell::Number(_)));
        text.push_str(if table.rows.iter().all(is_number) {
            " ---: |"
        } else {
            " --- |"
        });
    }
    text.push('\n');
    for row in table.rows.iter().take(MOST_ROWS) {
        text.push('|');
        for cell in row {
            let words = shortened(cell.text());
            _ = match cell {
                PageCell::Code(_) => write!(text, " {} |", code(&words)),
                PageCell::Bad(_) => write!(text, " **{}** |", escaped(&words)),
                PageCell::Text(_) | PageCell::Number(_) => write!(text, " {} |", escaped(&words)),
            };
        }
        text.push('\n');
    }
    if table.rows.len() > MOST_ROWS {
        _ = writeln!(text, "\nand {} more", table.rows.len() - MOST_ROWS);
    }
}

fn shortened(words: &str) -> String {
    if words.chars().count() <= LONGEST_CELL {
        return words.to_owned();
    }
    words.chars().take(LONGEST_CELL - 1).chain(['…']).collect()
}

/// Returns text in which no character has a meaning in Markdown or HTML, and which mentions nobody.
fn escaped(words: &str) -> String {
    let mut escaped = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // A zero-width entity ends the name of a user or the number of an issue.
            '@' | '#' => {
                escaped.push(letter);
                escaped.push_str("<!---->");
            }
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '|' | '~' | '$' | '!' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns words as code in a cell of a table.
fn code(words: &str) -> String {
    let longest = words
        .split(|letter| letter != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    // Even in code, a bar ends the cell.
    format!("{fence}{space}{}{space}{fence}", words.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_no_meaning_in_markdown() {
        assert_eq!(
            escaped("<b> a_b|c @me #7"),
            "&lt;b&gt; a\\_b\\|c @<!---->me #<!---->7"
        );
        assert_eq!(code("python -c 'a|b'"), "`python -c 'a\\|b'`");
        assert_eq!(code("a `b` ``c``"), "``` a `b` ``c`` ```");
    }
}
