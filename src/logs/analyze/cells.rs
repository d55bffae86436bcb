//! The cells of a log's row: how a line is split, amounts of memory, names of GPUs.

use std::borrow::Cow;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// Returns the character between the cells of a line: a comma; a tab in copied tables; a semicolon
/// where commas are decimal; a space between the numbers of numpy and awk.
pub(super) fn separator(line: &str) -> char {
    let is_number = |cell: &str| cell.trim().parse::<f64>().is_ok();
    match (line.contains(','), line.contains('\t'), line.contains(';')) {
        (false, true, _) => '\t',
        (false, _, true) => ';',
        (false, ..) if line.contains(' ') && line.split_whitespace().all(is_number) => ' ',
        (true, _, true) if with_decimal_points(line).split(';').all(is_number) => ';',
        _ => ',',
    }
}

/// Splits lines into cells, and keeps the room for them.
#[derive(Debug, Default)]
pub(super) struct CellSplitter {
    /// The reader for lines whose quotes come in pairs, and its separator.
    reader: Option<(char, Reader)>,
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// The cells of a line, without the spaces around them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells<'a> {
    text: &'a str,
    ends: &'a [usize],
}

impl<'a> Cells<'a> {
    pub(super) fn len(self) -> usize {
        self.ends.len()
    }

    /// Returns a cell; an empty one behind the last.
    pub(super) fn get(self, column: usize) -> &'a str {
        let begin = if column == 0 {
            Some(0)
        } else {
            self.ends.get(column - 1).copied()
        };
        let cell = begin
            .zip(self.ends.get(column))
            .and_then(|(begin, end)| self.text.get(begin..*end));
        cell.map_or("", str::trim)
    }

    pub(super) fn to_vec(self) -> Vec<&'a str> {
        (0..self.len()).map(|column| self.get(column)).collect()
    }
}

impl CellSplitter {
    /// Splits a line. Separators in quotes do not count. A quote that is never closed is a
    /// character like others.
    pub(super) fn split(&mut self, line: &str, separator: char) -> Cells<'_> {
        let (text, ends) = (&mut self.text, &mut self.ends);
        // Room for each byte and for the end of each cell.
        text.resize(line.len() + 1, 0);
        ends.resize(line.len() + 1, 0);
        let (mut length, mut count) = (0, 0);
        if separator == ' ' {
            for cell in line.split_whitespace() {
                text[length..length + cell.len()].copy_from_slice(cell.as_bytes());
                length += cell.len();
                ends[count] = length;
                count += 1;
            }
        } else {
            let quotes = line.bytes().filter(|byte| *byte == b'"').count();
            let line = if quotes > 0 {
                without_spaces_before_quotes(line, separator)
            } else {
                Cow::Borrowed(line)
            };
            let has_pairs = quotes.is_multiple_of(2);
            if !has_pairs
                || self
                    .reader
                    .as_ref()
                    .is_none_or(|(known, _)| *known != separator)
            {
                let byte = u8::try_from(separator).unwrap_or(b',');
                self.reader = Some((
                    separator,
                    ReaderBuilder::new()
                        .delimiter(byte)
                        .quoting(has_pairs)
                        .build(),
                ));
            }
            if let Some((_, reader)) = &mut self.reader {
                reader.reset();
                let (_, _, first, cells) = reader.read_record(line.as_bytes(), text, ends);
                // The end of the input ends the line.
                let (result, _, rest, more) =
                    reader.read_record(&[], &mut text[first..], &mut ends[cells..]);
                debug_assert!(
                    matches!(result, ReadRecordResult::Record | ReadRecordResult::End),
                    "{result:?}"
                );
                (length, count) = (first + rest, cells + more);
            }
            if !has_pairs {
                self.reader = None;
            }
        }
        let text = str::from_utf8(&self.text[..length]).unwrap_or_default();
        Cells {
            text,
            ends: &self.ends[..count],
        }
    }
}

/// Removes the spaces between a separator and a quote: `0, "1,234 MiB"` becomes `0,"1,234 MiB"`.
fn without_spaces_before_quotes(line: &str, separator: char) -> Cow<'_, str> {
    if !line.contains(" \"") {
        return Cow::Borrowed(line);
    }
    let mut text = String::with_capacity(line.len());
    for part in line.split_inclusive('"') {
        let kept = part
            .strip_suffix('"')
            .map(str::trim_end)
            .filter(|kept| kept.ends_with(separator));
        match kept {
            Some(kept) => {
                text.push_str(kept);
                text.push('"');
            }
            None => text.push_str(part),
        }
    }
    Cow::Owned(text)
}

/// Replaces decimal commas in cells between semicolons: `0,5;100,5 MiB` becomes `0.5;100.5 MiB`.
pub(super) fn with_decimal_points(line: &str) -> Cow<'_, str> {
    if !line.contains(',') {
        return Cow::Borrowed(line);
    }
    let is_number = |cell: &str| {
        let starts_number = |first: char| first.is_ascii_digit() || first == '-';
        !cell.contains('.')
            && cell.trim().trim_matches('"').starts_with(starts_number)
            && cell.matches(',').count() == 1
    };
    let cells = line.split(';').map(|cell| {
        if is_number(cell) {
            cell.replacen(',', ".", 1)
        } else {
            cell.to_owned()
        }
    });
    Cow::Owned(cells.collect::<Vec<_>>().join(";"))
}

/// Parses an amount of memory: `1234 MiB`, `1,234 MiB`, `1.5GiB`, or a number of `unit` bytes,
/// which numpy writes as `1.07e+10`. Returns `None` if the cell is neither an amount nor one of
/// nvidia-smi's words for a missing value.
pub(super) fn amount(cell: &str, unit: u64) -> Option<Reading<Bytes>> {
    if is_missing(cell) {
        return Some(Err(Missing::Unsupported));
    }
    // Most logs are nvidia-smi's.
    if let Some(mib) = cell
        .strip_suffix(" MiB")
        .and_then(|number| number.parse::<u32>().ok())
    {
        return Some(Ok(Bytes::from_mib(u64::from(mib))));
    }
    let plain = without_thousands(cell);
    let cell = plain.as_ref();
    let suffix =
        cell.trim_start_matches(|character: char| character.is_ascii_digit() || character == '.');
    let bytes = match Bytes::unit(suffix.trim()) {
        Some(unit) => Bytes::parse_number(&cell[..cell.len() - suffix.len()], unit),
        None => Bytes::parse_number(cell, unit),
    };
    bytes.map(Ok)
}

/// Removes the separators between thousands: `1,234,567`, `1'234'567`, `1 234 567`.
fn without_thousands(cell: &str) -> Cow<'_, str> {
    const SEPARATORS: [char; 7] = [',', '\'', '’', '_', ' ', '\u{a0}', '\u{202f}'];
    let number = cell
        .trim_end_matches(|letter: char| letter.is_alphabetic())
        .trim_end();
    // Two points are between thousands, too: `20.971.520.000`.
    let has_points = number.matches('.').nth(1).is_some();
    let Some(separator) = number
        .chars()
        .find(|character| SEPARATORS.contains(character) || has_points && *character == '.')
    else {
        return Cow::Borrowed(cell);
    };
    if separator == '.' {
        let is_grouped = number.split('.').skip(1).all(|group| group.len() == 3);
        return if is_grouped {
            Cow::Owned(cell.replacen('.', "", number.matches('.').count()))
        } else {
            Cow::Borrowed(cell)
        };
    }
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let mut groups = whole.split(separator);
    let is_digits =
        |group: &str| !group.is_empty() && group.bytes().all(|digit| digit.is_ascii_digit());
    let is_first = groups
        .next()
        .is_some_and(|group| group.len() <= 3 && is_digits(group));
    if is_first
        && groups.all(|group| group.len() == 3 && is_digits(group))
        && (decimals.is_empty() || is_digits(decimals))
    {
        let digits = number.replace(separator, "");
        return Cow::Owned(format!("{digits}{}", &cell[number.len()..]));
    }
    Cow::Borrowed(cell)
}

/// Whether the cell is empty or stands for a missing value: `[N/A]`, `[Not Supported]`,
/// `[Insufficient Permissions]` …
pub(super) fn is_missing(cell: &str) -> bool {
    cell.starts_with('[') && cell.ends_with(']')
        || cell.is_empty()
        || cell.len() <= 7
            && ["n/a", "-", "--", "nan", "null", "none", "no data"]
                .iter()
                .any(|word| cell.eq_ignore_ascii_case(word))
}

pub(super) fn is_gpu(cell: &str) -> bool {
    let is_address = || {
        let is_hex =
            |part: &&str| part.len() >= 2 && part.chars().all(|digit| digit.is_ascii_hexdigit());
        let parts: Vec<&str> = cell.split([':', '.']).collect();
        parts.len() == 4 && parts[..3].iter().all(is_hex) && parts[3].len() == 1
    };
    cell.starts_with("GPU-") || cell.starts_with("MIG-") || is_address()
}
