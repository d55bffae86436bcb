//! The report as a table, for people and for `grep`: plain text, one line per GPU, then one per GPU process.
//!
//! Into a file or a pipe nothing is cut; on a terminal the last column is.

use std::collections::HashMap;
use std::fmt::{Display, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::base::text::Text;
use crate::base::units::{Elapsed, Moment};
use crate::model::HostModel;
use crate::protocol::snapshot::{Gpu, GpuProcess, Process, Reading, Snapshot, State};

/// The whole table; `reasons` say why it is not all there is, `width` how wide the terminal is.
pub(in crate::commands::report) fn of(
    model: &HostModel,
    snapshot: &Snapshot,
    reasons: &[Text],
    width: Option<usize>,
) -> String {
    let mut text = String::new();
    line(&mut text, width, &heading(snapshot));
    if snapshot.gpus.iter().any(|gpu| gpu.facts.simulated) {
        line(&mut text, width, "simulated machine (--demo): none of these GPUs exists");
    }
    let troubles = [&snapshot.driver.trouble].into_iter().chain(snapshot.gpus.iter().map(|gpu| &gpu.trouble)).flatten();
    for sentence in troubles.map(|trouble| &trouble.sentence).chain(reasons) {
        // It is not cut: its end is what to do about it.
        line(&mut text, None, sentence.as_str());
    }
    if !snapshot.gpus.is_empty() {
        text.push('\n');
        rows(&mut text, width, &GPU_COLUMNS, snapshot.gpus.iter().map(|gpu| gpu_row(model, gpu)));
        text.push('\n');
        match gpu_processes(snapshot) {
            none if none.is_empty() => line(&mut text, width, "no processes on these GPUs"),
            gpu_processes => rows(&mut text, width, &TENANT_COLUMNS, gpu_processes.into_iter()),
        }
    }
    text
}

/// The same in ASCII.
pub(crate) fn ascii(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut ascii, character| {
        match character {
            '…' => ascii.push_str("..."),
            // `64°C` is understood without it.
            '°' => {}
            character if character.is_ascii() => ascii.push(character),
            _ => ascii.push('?'),
        }
        ascii
    })
}

/// `box  driver 580.65.06  CUDA 13.0  cpu 3%  memory 8.0 GiB of 64.0 GiB`
fn heading(snapshot: &Snapshot) -> String {
    let (host, driver) = (&snapshot.host, &snapshot.driver);
    let version = |version: &Option<Text>| version.as_ref().map_or_else(|| "N/A".to_owned(), Text::to_string);
    format!(
        "{}  driver {}  CUDA {}  cpu {}  memory {} of {}",
        host.facts.name,
        version(&driver.version),
        version(&driver.cuda_version),
        cell(&host.load.cpu),
        cell(&host.load.memory_used),
        cell(&host.load.memory_total),
    )
}

/// A column's name, and whether its cells stand at its right edge.
pub(crate) type Column = (&'static str, bool);

const GPU_COLUMNS: [Column; 8] = [
    ("GPU", true),
    ("NAME", false),
    ("USED", true),
    ("TOTAL", true),
    ("SM", true),
    ("TEMP", true),
    ("POWER", true),
    ("HEALTH", false),
];

const TENANT_COLUMNS: [Column; 10] = [
    ("GPU", true),
    ("PID", true),
    ("USER", false),
    ("MEMORY", true),
    ("SM", true),
    ("CPU", true),
    ("RSS", true),
    ("TIME", true),
    ("S", false),
    ("COMMAND", false),
];

/// What a reading prints as.
pub(crate) fn cell<T: Display>(reading: &Reading<T>) -> String {
    match reading {
        Ok(value) => value.to_string(),
        Err(missing) => missing.to_string(),
    }
}

/// `3`; `3:1` for the instance 1 of GPU 3.
pub(crate) fn number(gpu: &Gpu) -> String {
    match (&gpu.facts.parent, gpu.facts.gpu_instance) {
        (Some(_), Ok(instance)) => format!("{}:{instance}", gpu.facts.index),
        _ => gpu.facts.index.to_string(),
    }
}

fn gpu_row(model: &HostModel, gpu: &Gpu) -> [String; 8] {
    let health = model.health(gpu);
    let simulated = if gpu.facts.simulated { " (simulated)" } else { "" };
    [
        number(gpu),
        format!("{}{simulated}", cell(&gpu.facts.name)),
        cell(&gpu.load.memory_used),
        cell(&gpu.load.memory_total),
        cell(&gpu.load.sm),
        cell(&gpu.load.temperature),
        cell(&gpu.load.power),
        if gpu.trouble.is_some() { health.phrase } else { health.word },
    ]
}

/// By GPU, those that hold most first.
fn gpu_processes(snapshot: &Snapshot) -> Vec<[String; 10]> {
    let processes: HashMap<_, _> = snapshot.processes.iter().map(|process| (process.id, process)).collect();
    let mut table = Vec::new();
    for gpu in &snapshot.gpus {
        let mut gpu_processes: Vec<&GpuProcess> = gpu.processes.iter().collect();
        gpu_processes.sort_by_key(|gpu_process| std::cmp::Reverse(gpu_process.memory.ok()));
        let row = |gpu_process: &GpuProcess| {
            tenant_row(gpu, gpu_process, processes.get(&gpu_process.process).copied(), snapshot)
        };
        table.extend(gpu_processes.into_iter().map(row));
    }
    table
}

fn tenant_row(gpu: &Gpu, gpu_process: &GpuProcess, process: Option<&Process>, snapshot: &Snapshot) -> [String; 10] {
    let of = |show: &dyn Fn(&Process) -> String| process.map_or_else(|| "N/A".to_owned(), show);
    [
        number(gpu),
        gpu_process.process.pid.to_string(),
        of(&|it| cell(&it.facts.user)),
        cell(&gpu_process.memory),
        cell(&gpu_process.sm),
        of(&|it| cell(&it.load.cpu)),
        of(&|it| cell(&it.load.rss)),
        elapsed(gpu_process, snapshot).map_or_else(|| "N/A".to_owned(), |it| it.to_string()),
        of(&|it| cell(&it.load.state.map(State::letter))),
        of(&command),
    ]
}

/// How long the process has been there.
fn elapsed(gpu_process: &GpuProcess, snapshot: &Snapshot) -> Option<Elapsed> {
    let started =
        gpu_process.process.start_ticks?.saturating_mul(1000).checked_div(snapshot.host.facts.ticks_per_second)?;
    Some(Elapsed(snapshot.at.since(Moment(started))))
}

/// Its program, without where that lies, and its arguments; its short name where it has none, or we may not know.
pub(crate) fn command(process: &Process) -> String {
    match &process.facts.argv {
        Ok(argv) if !argv.is_empty() => {
            let mut words = argv.iter();
            let program = words.next().map(|it| it.rsplit('/').next().filter(|it| !it.is_empty()).unwrap_or(it));
            program.into_iter().chain(words).collect::<Vec<_>>().join(" ")
        }
        _ => cell(&process.facts.comm),
    }
}

pub(crate) fn rows<const N: usize>(
    text: &mut String,
    width: Option<usize>,
    columns: &[Column; N],
    cells: impl Iterator<Item = [String; N]>,
) {
    let head = columns.map(|(name, _)| name.to_owned());
    let rows: Vec<[String; N]> = std::iter::once(head).chain(cells).collect();
    let widths: [usize; N] = std::array::from_fn(|at| rows.iter().map(|row| row[at].width()).max().unwrap_or_default());
    for row in &rows {
        let mut whole = String::new();
        for (((cell, width), (_, right)), at) in row.iter().zip(widths).zip(columns).zip(1..) {
            let gap = " ".repeat(width - cell.width());
            let (before, after) = if *right { (gap.as_str(), "") } else { ("", gap.as_str()) };
            let _infallible: std::fmt::Result =
                write!(whole, "{before}{cell}{after}{}", if at < N { "  " } else { "" });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::{Cause, Missing, Trouble, example};

    #[track_caller]
    fn check(snapshot: Snapshot, width: Option<usize>, expected: &[&str]) {
        let mut model = HostModel::default();
        model.replace(snapshot);
        let text = of(&model, model.latest().unwrap(), &[], width);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_line_for_each_gpu_and_each_tenant_those_that_hold_most_first() {
        let host = example::host(2)
            .with(200, "python eval.py", 1, Bytes::from_gib(2))
            .with(100, "python train.py", 0, Bytes::from_gib(20))
            .with(100, "python train.py", 1, Bytes::from_gib(30));
        check(
            host,
            None,
            &[
                "box  driver 580.65.06  CUDA 13.0  cpu 12%  memory 100 GiB of 512 GiB",
                "",
                "GPU  NAME                       USED     TOTAL   SM  TEMP  POWER  HEALTH",
                "  0  NVIDIA H100 80GB HBM3  20.0 GiB  80.0 GiB  50%  50°C   300W  ok",
                "  1  NVIDIA H100 80GB HBM3  32.0 GiB  80.0 GiB  50%  50°C   300W  ok",
                "",
                "GPU  PID  USER     MEMORY   SM  CPU      RSS    TIME  S  COMMAND",
                "  0  100  alice  20.0 GiB  40%  99%  3.0 GiB  16m39s  S  python train.py",
                "  1  100  alice  30.0 GiB  40%  99%  3.0 GiB  16m39s  S  python train.py",
                "  1  200  alice   2.0 GiB  40%  99%  3.0 GiB  16m38s  S  python eval.py",
            ],
        );
    }

    #[test]
    fn what_is_missing_is_named_and_trouble_is_said_in_full() {
        let mut host = example::host(2);
        host.gpus[0].facts.simulated = true;
        host.gpus[1].load = crate::protocol::snapshot::GpuLoad::missing(Moment(0), Missing::Failed);
        host.gpus[1].facts.name = Err(Missing::NotYet);
        host.gpus[1].trouble = Some(Trouble {
            cause: Cause::Hung,
            sentence: "GPU 1 has not answered nvmlDeviceGetPowerUsage: a reset may help".into(),
            call: None,
            since: Moment(993_000),
        });
        check(
            host,
            Some(50),
            &[
                "box  driver 580.65.06  CUDA 13.0  cpu 12%  memory ",
                "simulated machine (--demo): none of these GPUs exi",
                "GPU 1 has not answered nvmlDeviceGetPowerUsage: a reset may help",
                "",
                "GPU  NAME                               USED     T",
                "  0  NVIDIA H100 80GB HBM3 (simulated)   0 B  80.0",
                "  1  …                                   ERR      ",
                "",
                "no processes on these GPUs",
            ],
        );
    }

    #[test]
    fn a_locale_without_unicode_gets_ascii() {
        assert_eq!(ascii("64°C … 名\n"), "64C ... ?\n");
    }
}
