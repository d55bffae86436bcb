//! `gputop export`: the samples of a recording as CSV or Parquet, one row for each GPU or GPU
//! process of each pass.

mod parquet;
mod table;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use self::parquet::ParquetWriter;
pub(crate) use self::table::ExportSubject;
use self::table::{ColumnKind, ExportCell, ExportColumn};
use crate::base::terminal;
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::flags::values;
use crate::logs::recorded_run::read_lines;
use crate::model::{Fleet, HostLabel};
use crate::output::{self, Exit, without_formula};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    Csv,
    Parquet,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// A recording; `-` for lines from the standard input
    #[arg(value_name = "FILE")]
    recording: PathBuf,

    /// Write CSV (default): a row of text for each sample, empty where a value is not known
    #[arg(long, conflicts_with = "parquet")]
    csv: bool,

    /// Write Parquet; also chosen by an output file that ends in `.parquet`
    #[arg(long)]
    parquet: bool,

    /// One row for each GPU, or for each process on a GPU
    #[arg(long, value_name = "gpus|processes", default_value = "gpus", value_parser = ["gpus", "processes"])]
    #[arg(hide_possible_values = true)]
    of: String,

    /// Write to this file instead of the standard output, which is `-`
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportArgs {
    fn format(&self) -> ExportFormat {
        let by_name = self
            .output
            .as_ref()
            .and_then(|path| path.extension())
            .is_some_and(|ending| ending == "parquet");
        if self.parquet || by_name && !self.csv {
            ExportFormat::Parquet
        } else {
            ExportFormat::Csv
        }
    }

    fn subject(&self) -> ExportSubject {
        if self.of == "processes" {
            ExportSubject::Processes
        } else {
            ExportSubject::Gpus
        }
    }

    /// Where to write; `None` for the standard output.
    fn file(&self) -> Option<&Path> {
        values::unless_stdout(self.output.as_deref())
    }
}

/// Writes the table. Fails if the recording cannot be read, or the output cannot be written.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let is_for_terminal = args.file().is_none() && terminal::is_stdout();
    ensure!(
        args.format() == ExportFormat::Csv || !is_for_terminal,
        "Parquet is not for a terminal: add -o {}.parquet",
        if args.subject() == ExportSubject::Gpus {
            "gpus"
        } else {
            "processes"
        }
    );
    let name = args.file().map_or_else(
        || Text::from("the standard output"),
        |path| Text::new(path.as_os_str().as_encoded_bytes()),
    );
    let out: Box<dyn Write> = match args.file() {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("cannot create {name}"))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let written = write(args, out, &name);
    if let (Err(_), Some(path)) = (&written, args.file()) {
        // A part of a table is no table. The file is known to be new or empty.
        let _gone: io::Result<()> = fs::remove_file(path);
    }
    written
}

/// Writes the table to an output with this name.
fn write(args: &ExportArgs, out: Box<dyn Write>, name: &Text) -> anyhow::Result<ExitCode> {
    let columns = args.subject().columns();
    let mut writer = match args.format() {
        ExportFormat::Csv => TableWriter::csv(out, columns),
        ExportFormat::Parquet => {
            ParquetWriter::new(BufWriter::new(out), columns).map(TableWriter::Parquet)
        }
    }
    .with_context(|| format!("cannot write {name}"))?;
    // A checkpoint has the history before the recording. Later ones repeat what the lines said.
    let mut begun: BTreeSet<HostKey> = BTreeSet::new();
    let mut fleet = Fleet::default();
    let problems = read_lines(&args.recording, |recorded| {
        let host = recorded.host;
        let has_snapshot = match &recorded.line {
            Line::Full(_) => true,
            Line::Tick(_) => {
                begun.insert(host);
                true
            }
            Line::Checkpoint(_) if begun.contains(&host) => return Ok(()),
            Line::Reply(_) | Line::Checkpoint(_) => false,
        };
        if let Some(name) = recorded.host_name {
            let source = Text::default();
            fleet.set_label(
                host,
                HostLabel {
                    name: Some(name),
                    source,
                },
            );
        }
        // A tick that does not follow the line before is left out: the next full line has
        // everything.
        if fleet.apply(host, recorded.line).is_err() || !has_snapshot {
            return Ok(());
        }
        let Some((model, snapshot)) = fleet
            .host(host)
            .and_then(|model| Some((model, model.latest()?)))
        else {
            return Ok(());
        };
        let host = Text::new(fleet.name(host));
        args.subject()
            .rows(model, &host, |row| {
                writer.row(row, snapshot.host.facts.utc_offset.unwrap_or(0))
            })
            .with_context(|| format!("cannot write {name}"))
    })?;
    writer
        .finish()
        .with_context(|| format!("cannot write {name}"))?;
    for problem in problems {
        output::print_error(&Text::new(format!("the recording: {problem}")));
    }
    Ok(Exit::Success.into())
}

/// Writes the rows in one of the formats.
enum TableWriter {
    Csv(Box<csv::Writer<Box<dyn Write>>>, Vec<ExportColumn>),
    Parquet(ParquetWriter<BufWriter<Box<dyn Write>>>),
}

impl TableWriter {
    fn csv(out: Box<dyn Write>, columns: Vec<ExportColumn>) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(columns.iter().map(|column| column.name))?;
        Ok(Self::Csv(Box::new(writer), columns))
    }

    /// Writes a row of a host whose time zone is this many seconds ahead of UTC.
    fn row(&mut self, row: Vec<ExportCell>, utc_offset: i32) -> io::Result<()> {
        match self {
            Self::Parquet(writer) => writer.row(row),
            Self::Csv(writer, columns) => {
                let cells =
                    row.into_iter()
                        .zip(columns)
                        .map(|(cell, column)| match (cell, column.kind) {
                            (ExportCell::Empty, _) => String::new(),
                            (ExportCell::Integer(ms), ColumnKind::Time) => {
                                local_time(ms.unsigned_abs(), utc_offset)
                            }
                            (ExportCell::Integer(number), _) => number.to_string(),
                            (ExportCell::Float(number), _) => number.to_string(),
                            (ExportCell::Text(text), _) => without_formula(&text).into_owned(),
                        });
                Ok(writer.write_record(cells)?)
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv(mut writer, _) => writer.flush(),
            Self::Parquet(writer) => writer.finish()?.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_csv_is_no_formula_and_a_number_stays_a_number() {
        let columns = ExportSubject::Processes.columns();
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut writer =
            TableWriter::csv(Box::new(path.reopen().unwrap()), columns.clone()).unwrap();
        for text in ["=1+1", "+1", "-m train", "@sum", "\tx", "\rx", "python =1"] {
            let cells = columns.iter().map(|column| match column.name {
                "command" => ExportCell::Text(text.to_owned()),
                "pid" => ExportCell::Integer(-7),
                _ => ExportCell::Empty,
            });
            writer.row(cells.collect(), 0).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = csv::Reader::from_path(path.path()).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let place = |name: &str| {
            columns
                .iter()
                .position(|column| column.name == name)
                .unwrap()
        };
        let commands: Vec<&str> = rows.iter().map(|row| &row[place("command")]).collect();
        assert_eq!(
            commands,
            [
                "'=1+1",
                "'+1",
                "'-m train",
                "'@sum",
                "'\tx",
                "'\rx",
                "python =1"
            ]
        );
        assert!(rows.iter().all(|row| &row[place("pid")] == "-7"));
    }
}
