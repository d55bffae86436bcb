//! The report as a table, for people and for `grep`: plain text, one line per GPU, then one per GPU
//! process.
//!
//! On a terminal, lines are cut at its width; in a file or a pipe they are not.

use std::borrow::Cow;

use super::HostReport;
use crate::app::lists::columns::{Align, Columns, ListColumn};
use crate::app::lists::gpu_cells;
use crate::app::lists::gpu_columns::GpuColumn;
use crate::app::lists::process_cells;
use crate::app::lists::process_cells::ProcessLine;
use crate::app::lists::process_columns::{ProcessColumn, Sort, WIDE};
use crate::app::lists::{unknown_processes, unread_stats};
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::model::{ProcessTotal, UnaccountedMemory};
use crate::output::labels::visible_gpus::sees_some;
use crate::output::table::{Heading, cell, line, one_word, rows, unaccounted_memory};
use crate::protocol::snapshot::{
    Gpu, GpuProcess, Identity, Missing, Process, ProcessFacts, ProcessLoad, Snapshot,
};

/// The narrowest table with columns that may be empty on every line.
const WIDE_TABLE: u16 = 120;

/// A file or a pipe gets the columns of a screen of this width: those that are useful on most
/// hosts.
const PIPE_WIDTH: u16 = 140;

/// The columns that the user chose, for both lists; `None` shows those that the terminal has room
/// for.
#[derive(Debug, Clone, Default)]
pub struct ChosenColumns {
    /// Columns of the process list.
    pub processes: Option<Columns<ProcessColumn>>,
    /// Columns of the GPU list.
    pub gpus: Option<Columns<GpuColumn>>,
    /// The order of the processes; `None` for the order of the GPUs, then of memory.
    pub(crate) sort: Option<Sort>,
}

/// Returns the whole table. `unreached` says why other hosts are not in it. `width` is the width of
/// the terminal; `None` for a file or a pipe. With several hosts, each row names its host.
pub(super) fn format(
    hosts: &[HostReport<'_>],
    unreached: &[Text],
    width: Option<usize>,
    chosen: &ChosenColumns,
) -> String {
    let mut text = String::new();
    for host in hosts {
        host_lines(&mut text, host, width);
    }
    for sentence in unreached {
        line(&mut text, None, sentence.as_str());
    }
    if hosts.iter().all(|host| host.gpus().next().is_none()) {
        return text;
    }
    let has_hosts = hosts.len() + unreached.len() > 1;
    let screen = width.map_or(PIPE_WIDTH, |width| u16::try_from(width).unwrap_or(u16::MAX));
    text.push('\n');
    let shown = Columns::<GpuColumn>::shown_at(chosen.gpus.as_ref(), screen, has_hosts);
    let columns = once(shown, chosen.gpus.is_some());
    let gpus = hosts
        .iter()
        .flat_map(|host| host.gpus().map(move |(_, gpu)| (host, gpu)));
    let cells = gpus.map(|(host, gpu)| {
        columns
            .iter()
            .map(|column| gpu_cell(*column, host, gpu))
            .collect::<Vec<_>>()
    });
    rows(&mut text, width, &headings(&columns), cells);
    text.push('\n');
    // Scripts count columns, so a wide table has them all.
    let has_values = |column| {
        screen >= WIDE_TABLE
            || hosts
                .iter()
                .any(|host| process_cells::has_values(column, host.model))
    };
    let mut shown = Columns::<ProcessColumn>::shown(
        chosen.processes.as_ref(),
        screen,
        false,
        has_values,
        has_hosts,
    );
    // The screen has badges instead. Scripts read a column.
    if chosen.processes.is_none() && screen >= WIDE {
        shown.push(ProcessColumn::Verdict);
        shown.sort_by_key(|column| column.spec().is_last);
    }
    let columns = once(shown, chosen.processes.is_some());
    let cells = process_rows(hosts, &columns, chosen.sort);
    if cells.is_empty() {
        let is_all = hosts.iter().all(|host| host.processes.is_all());
        let mut gpus = hosts.iter().flat_map(HostReport::gpus);
        let sentence = match is_all {
            false => "no process matches the filter",
            true if gpus.any(|(_, gpu)| gpu.missing.processes.is_some()) => {
                "no process is known to use these GPUs"
            }
            true => "no processes on these GPUs",
        };
        line(&mut text, width, sentence);
    } else {
        rows(&mut text, width, &headings(&columns), cells.into_iter());
    }
    for host in hosts.iter().filter(|host| host.processes.is_all()) {
        unaccounted_lines(&mut text, host, has_hosts);
    }
    text
}

/// Writes the heading of a host, and the sentences about it.
fn host_lines(text: &mut String, host: &HostReport<'_>, width: Option<usize>) {
    let HostReport {
        both_names,
        snapshot,
        reasons,
        ..
    } = host;
    for heading in heading(both_names, snapshot) {
        line(text, width, &heading);
    }
    if snapshot.gpus.iter().any(|gpu| gpu.facts.simulated) {
        line(
            text,
            width,
            "simulated machine (--demo): none of these GPUs exists",
        );
    }
    let gpu_troubles = host.gpus().map(|(_, gpu)| &gpu.trouble);
    let troubles = [&snapshot.driver.trouble]
        .into_iter()
        .chain(gpu_troubles)
        .flatten();
    for sentence in troubles.map(|trouble| &trouble.sentence).chain(reasons) {
        // The end of a sentence says what to do, so it is not cut.
        line(text, None, sentence.as_str());
    }
    for sentence in unknown_processes::sentences(host.gpus().map(|(_, gpu)| gpu)) {
        line(text, None, &sentence);
    }
    if let Some(sentence) = unread_stats::omitted(&[*snapshot]) {
        line(text, None, &sentence);
    }
}

/// Writes a line for the unaccounted memory of each GPU.
fn unaccounted_lines(text: &mut String, host: &HostReport<'_>, has_hosts: bool) {
    let HostReport {
        name,
        model,
        snapshot,
        ..
    } = host;
    let is_chosen =
        |memory: &&UnaccountedMemory| host.gpus().any(|(_, gpu)| gpu.uuid == memory.gpu);
    for memory in model.unaccounted().iter().filter(is_chosen) {
        let name = if has_hosts {
            format!("{name}: ")
        } else {
            String::new()
        };
        // The end of the sentence names the processes, so it is not cut.
        line(text, None, &(name + &unaccounted_memory(snapshot, memory)));
    }
}

/// Returns the columns that need no past, and those that the user chose.
fn once<C: ListColumn>(columns: Vec<C>, is_chosen: bool) -> Vec<C> {
    columns
        .into_iter()
        .filter(|column| is_chosen || !column.spec().needs_past)
        .collect()
}

fn headings<C: ListColumn>(columns: &[C]) -> Vec<Heading> {
    columns
        .iter()
        .map(|column| (column.spec().title, column.spec().align == Align::Right))
        .collect()
}

fn gpu_cell(column: GpuColumn, host: &HostReport<'_>, gpu: &Gpu) -> String {
    match column {
        GpuColumn::Memory if gpu.shared_memory.is_some() => {
            format!(
                "shared:{}",
                gpu_cells::cell(column, host.name, host.model, gpu).text
            )
        }
        GpuColumn::Health if gpu.trouble.is_some() => host.model.health(gpu).phrase,
        _ => gpu_cells::cell(column, host.name, host.model, gpu).text,
    }
}

/// Returns one row for each GPU process, in the order of `sort`; by default, sorted by GPU and then
/// by memory, the largest first.
fn process_rows(
    hosts: &[HostReport<'_>],
    columns: &[ProcessColumn],
    sort: Option<Sort>,
) -> Vec<Vec<String>> {
    let mut gpu_users = Vec::new();
    for (host, (place, gpu)) in hosts
        .iter()
        .flat_map(|host| host.gpus().map(move |gpu| (host, gpu)))
    {
        let mut gpu_processes: Vec<&GpuProcess> = gpu.processes.iter().collect();
        gpu_processes.sort_by_key(|gpu_process| std::cmp::Reverse(gpu_process.memory.ok()));
        for gpu_process in gpu_processes {
            let id = gpu_process.process;
            // A process that the snapshot does not list is known by its PID and memory only.
            let unlisted = Process {
                id,
                facts: ProcessFacts::missing(Identity::Unverified, Missing::Unsupported).into(),
                load: ProcessLoad::missing(Missing::Unsupported),
                allocator: None,
                probe: None,
                bytes_read: None,
            };
            let process = host
                .snapshot
                .process(id)
                .map_or(Cow::Owned(unlisted), Cow::Borrowed);
            gpu_users.push((host, process, ProcessTotal::on_gpu(gpu_process, gpu, place)));
        }
    }
    let mut lines: Vec<ProcessLine<'_>> = Vec::new();
    for (host, process, on_gpu) in &gpu_users {
        let line = ProcessLine::new(host.name, host.model, host.snapshot, process);
        lines.push(ProcessLine {
            process_total: Some(on_gpu),
            ..line
        });
    }
    if let Some(sort) = sort {
        lines.sort_by(|a, b| process_cells::compare(sort, a, b));
    }
    // An empty cell would shift the columns of `awk`. One look cannot give a verdict that needs
    // time.
    let filled = |column: ProcessColumn, text: String| match text.as_str() {
        "" => "-".to_owned(),
        "…" if column == ProcessColumn::Verdict => "-".to_owned(),
        _ => text,
    };
    let row = |line| {
        columns
            .iter()
            .map(|column| filled(*column, process_cells::cell(*column, line).text))
            .collect()
    };
    lines.iter().map(row).collect()
}

/// `2026-07-14 10:12:38  box  cpu 3%  memory 8.0GiB of 64.0GiB` and `Driver Version: 580.65.06
/// CUDA Version: 13.0`: scripts look for the words that nvidia-smi writes before the versions, and
/// for the space behind the first.
fn heading(name: &str, snapshot: &Snapshot) -> [String; 2] {
    /// Length of `2026-07-14T10:12:38`.
    const SECONDS: usize = 19;
    let (host, driver) = (&snapshot.host, &snapshot.driver);
    let version = |version: &Option<Text>| {
        version
            .as_ref()
            .map_or_else(|| "N/A".to_owned(), Text::to_string)
    };
    let time = local_time(snapshot.unix_ms, host.facts.utc_offset.unwrap_or(0));
    let time = time.get(..SECONDS).unwrap_or(&time).replace('T', " ");
    let (used, total) = (
        one_word(&host.load.memory_used),
        one_word(&host.load.memory_total),
    );
    let sees_some = sees_some(snapshot).map_or_else(String::new, |words| format!("  {words}"));
    [
        format!(
            "{time}  {name}  cpu {}  memory {used} of {total}{sees_some}",
            cell(&host.load.cpu)
        ),
        format!(
            "Driver Version: {}  CUDA Version: {}",
            version(&driver.version),
            version(&driver.cuda_version)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment, Percent};
    use crate::commands::live::chosen_processes::ChosenProcesses;
    use crate::model::HostModel;
    use crate::protocol::snapshot::{Cause, Trouble, example};

    const TIME_AND_HOST: &str = "2023-11-14 22:13:20  box  cpu 12%  memory 100GiB of 512GiB";
    const VERSIONS: &str = "Driver Version: 580.65.06  CUDA Version: 13.0";

    #[track_caller]
    fn check(snapshot: Snapshot, width: Option<usize>, expected: &[&str]) {
        let mut model = HostModel::default();
        model.replace(snapshot);
        let snapshot = model.latest().unwrap();
        let host = HostReport {
            name: "box",
            both_names: "box",
            model: &model,
            snapshot,
            reasons: Vec::new(),
            ids: &[],
            processes: &ChosenProcesses::default(),
        };
        let text = format(&[host], &[], width, &ChosenColumns::default());
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn one_line_for_each_gpu_and_each_gpu_process_the_largest_first() {
        let host = example::host(2)
            .with(200, "python eval.py", 1, Bytes::from_gib(2))
            .with(100, "python train.py", 0, Bytes::from_gib(20))
            .with(100, "python train.py", 1, Bytes::from_gib(30));
        check(
            host,
            None,
            &[
                TIME_AND_HOST,
                VERSIONS,
                "",
                "#  GPU             MEMORY       SM  TEMP  POWER  HEALTH",
                "0  H100 80GB HBM3  20.0/80.0G  50%  50°C   300W  ok",
                "1  H100 80GB HBM3  32.0/80.0G  50%  50°C   300W  ok",
                "",
                "GPU  PID  USER     MEM  CACHE   SM  CPU   RSS    TIME  VERDICT  COMMAND",
                "0    100  alice  20.0G      -  40%  99%  3.0G  16m39s  ok       python train.py",
                "1    100  alice  30.0G      -  40%  99%  3.0G  16m39s  ok       python train.py",
                "1    200  alice   2.0G      -  40%  99%  3.0G  16m38s  ok       python eval.py",
            ],
        );
    }

    #[test]
    fn a_verdict_that_needs_time_is_a_dash_and_unaccounted_memory_has_a_line() {
        let mut host = example::host(1).with(100, "python train.py", 0, Bytes::from_gib(20));
        host.gpus[0].processes[0].sm = Ok(Percent::new(0.0));
        host.gpus[0].load.memory_used = Ok(Bytes::from_gib(31));
        host.processes[0].load.cpu = Ok(Percent::new(0.0));
        check(
            host,
            None,
            &[
                TIME_AND_HOST,
                VERSIONS,
                "",
                "#  GPU             MEMORY       SM  TEMP  POWER  HEALTH",
                "0  H100 80GB HBM3  31.0/80.0G  50%  50°C   300W  ok",
                "",
                "GPU  PID  USER     MEM  CACHE  SM  CPU   RSS    TIME  VERDICT  COMMAND",
                "0    100  alice  20.0G      -  0%   0%  3.0G  16m39s  -        python train.py",
                "GPU 0: 11.0 GiB that no process accounts for; open in no visible process",
            ],
        );
    }

    #[test]
    fn a_gpu_process_that_is_not_listed_has_a_row() {
        let mut host = example::host(1).with(100, "python train.py", 0, Bytes::from_gib(20));
        host.processes.clear();
        check(
            host,
            None,
            &[
                TIME_AND_HOST,
                VERSIONS,
                "",
                "#  GPU             MEMORY       SM  TEMP  POWER  HEALTH",
                "0  H100 80GB HBM3  20.0/80.0G  50%  50°C   300W  ok",
                "",
                "GPU  PID  USER    MEM  CACHE   SM  CPU  RSS    TIME  VERDICT  COMMAND",
                "0    100  N/A   20.0G      -  40%  N/A  N/A  16m39s  -        N/A",
            ],
        );
    }

    #[test]
    fn missing_values_are_named_and_sentences_on_trouble_are_not_cut() {
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
                &TIME_AND_HOST[..50],
                VERSIONS,
                "simulated machine (--demo): none of these GPUs exi",
                "GPU 1 has not answered nvmlDeviceGetPowerUsage: a reset may help",
                "",
                "#  GPU             MEMORY      SM  TEMP  POWER  HE",
                "0  H100 80GB HBM3  0.0/80.0G  50%  50°C   300W  ok",
                "1  …               ERR        ERR   ERR    ERR  hu",
                "",
                "no processes on these GPUs",
            ],
        );
    }
}
