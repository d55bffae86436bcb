//! Tables in plain text, and the cells in them.

use std::fmt::{Display, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::labels;
use crate::base::units::Bytes;
use crate::model::UnaccountedMemory;
use crate::protocol::snapshot::{Process, Reading, Snapshot};

/// Replaces characters that are not ASCII.
pub(crate) fn ascii(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut ascii, character| {
            match character {
                '…' => ascii.push_str("..."),
                // `64C` is understood.
                '°' => {}
                '×' => ascii.push('x'),
                character if character.is_ascii() => ascii.push(character),
                _ => ascii.push('?'),
            }
            ascii
        })
}

/// The title of a column, and whether its cells are aligned to the right.
pub(crate) type Heading = (&'static str, bool);

/// Returns a reading, or the word for why it is missing.
pub(crate) fn cell<T: Display>(reading: &Reading<T>) -> String {
    match reading {
        Ok(value) => value.to_string(),
        Err(missing) => missing.to_string(),
    }
}

/// Returns an amount of memory as one word, `34.0GiB`, so that `awk` counts one column.
pub(crate) fn one_word(reading: &Reading<Bytes>) -> String {
    cell(reading).replace(' ', "")
}

/// The program's file name and its arguments, or the kernel's name of the process.
pub(crate) fn command(process: &Process) -> String {
    labels::command_line(process).unwrap_or_else(|| cell(&process.facts.comm))
}

/// Adds a table: the headings, then the rows, each column as wide as its widest cell.
pub(crate) fn rows<R: AsRef<[String]>>(
    text: &mut String,
    width: Option<usize>,
    headings: &[(&str, bool)],
    cells: impl Iterator<Item = R>,
) {
    let cells: Vec<R> = cells.collect();
    let titles: Vec<String> = headings
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let all = || std::iter::once(titles.as_slice()).chain(cells.iter().map(AsRef::as_ref));
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            all()
                .map(|row| row[column].width())
                .max()
                .unwrap_or_default()
        })
        .collect();
    for row in all() {
        let mut whole = String::new();
        for (column, ((cell, width), (_, right))) in
            row.iter().zip(&widths).zip(headings).enumerate()
        {
            let gap = " ".repeat(width - cell.width());
            let (before, after) = if *right {
                (gap.as_str(), "")
            } else {
                ("", gap.as_str())
            };
            let between = if column + 1 < headings.len() {
                "  "
            } else {
                ""
            };
            let _infallible: std::fmt::Result = write!(whole, "{before}{cell}{after}{between}");
        }
        line(text, width, whole.trim_end());
    }
}

/// Adds a line, cut where the terminal ends.
pub(crate) fn line(text: &mut String, width: Option<usize>, line: &str) {
    let mut room = width.unwrap_or(usize::MAX);
    let fits = line.chars().take_while(|character| {
        let columns = character.width().unwrap_or_default();
        let fits = columns <= room;
        room = room.saturating_sub(columns);
        fits
    });
    text.extend(fits);
    text.push('\n');
}

/// `GPU 0: 11.0 GiB that no process accounts for; open in 101 (python train.py); 42 processes could
/// not be read`
pub(crate) fn unaccounted_memory(snapshot: &Snapshot, unaccounted: &UnaccountedMemory) -> String {
    let gpu = snapshot
        .gpu(&unaccounted.gpu)
        .map_or_else(String::new, labels::gpu_label);
    let holders = unaccounted
        .device_file_holders
        .iter()
        .map(|id| match snapshot.process(*id) {
            Some(process) => format!("{} ({})", id.pid, command(process)),
            None => id.pid.to_string(),
        });
    let holders = holders.collect::<Vec<_>>().join(", ");
    let open = if holders.is_empty() {
        "open in no visible process".to_owned()
    } else {
        format!("open in {holders}")
    };
    let unreadable = match unaccounted.unreadable {
        0 => String::new(),
        count => format!("; {count} processes could not be read (run gputop as root)"),
    };
    format!(
        "GPU {gpu}: {} that no process accounts for; {open}{unreadable}",
        unaccounted.memory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_unicode_gets_ascii() {
        assert_eq!(ascii("64°C … 名\n"), "64C ... ?\n");
    }
}
