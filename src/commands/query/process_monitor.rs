//! `nvidia-smi pmon`: a line for each process on each GPU, in each sample.

use std::fmt::Write;

use super::{nvidia_smi_exit, rows};
use crate::base::time::local_time;
use crate::base::units::Percent;
use crate::protocol::snapshot::{Gpu, GpuProcess, Snapshot};

/// The columns between those of the process and its name.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a letter of an option"
)]
#[derive(Debug, Clone, Copy)]
pub struct MonitorColumns {
    /// Shares of the engines: `-s u`.
    pub utilization: bool,
    /// Memory: `-s m`.
    pub memory: bool,
    /// The date before each line: `-o D`.
    pub date: bool,
    /// The time of day before each line: `-o T`.
    pub time: bool,
}

impl Default for MonitorColumns {
    fn default() -> Self {
        Self {
            utilization: true,
            memory: false,
            date: false,
            time: false,
        }
    }
}

/// The values of a process that has none.
const NO_VALUE: &str = "-";

/// The longest name of a process, as the kernel keeps it.
const NAME_WIDTH: usize = 15;

/// Returns the readings of GPUs that the lines need.
pub(super) fn wanted_readings() -> Vec<String> {
    [
        "processes",
        "graphics_processes",
        "process_utilization",
        "instances",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns the lines of a sample, below the header. A GPU whose processes are not known has a
/// sentence in place of the line without a process: scripts take that line for a free GPU.
pub(super) fn sample(
    snapshot: &Snapshot,
    gpus: &[&Gpu],
    columns: MonitorColumns,
    header: bool,
) -> String {
    let mut text = if header {
        titles(columns)
    } else {
        String::new()
    };
    let time = time_cells(snapshot, columns);
    let (known, unknown): (Vec<&Gpu>, Vec<&Gpu>) = gpus
        .iter()
        .partition(|gpu| nvidia_smi_exit::without_list(gpu).is_none());
    text.extend(
        unknown
            .into_iter()
            .filter_map(nvidia_smi_exit::without_list),
    );
    let mut line = |gpu: &Gpu, [pid, usage]: [&str; 2], values: &[String], name: &str| {
        let index_width = if time.is_empty() { 5 } else { 7 };
        let values = values
            .iter()
            .map(|value| format!("{value:>7}"))
            .collect::<Vec<_>>()
            .concat();
        let _infallible: std::fmt::Result = writeln!(
            text,
            "{time}{:>index_width$}{pid:>11}{usage:>6}{values}    {name:<NAME_WIDTH$}",
            gpu.facts.index
        );
    };
    for gpu in known {
        let mut has_process = false;
        for gpu_process in rows::gpu_processes(snapshot, gpu).map(|(_, gpu_process)| gpu_process) {
            has_process = true;
            let process = snapshot.process(gpu_process.process);
            let name = process.and_then(|process| process.facts.comm.as_ref().ok());
            let name = name.map_or(NO_VALUE, |name| name.as_str());
            let identity = [
                &*gpu_process.process.pid.to_string(),
                &*gpu_process.usage.to_string(),
            ];
            line(gpu, identity, &values(gpu_process, columns), name);
        }
        if !has_process {
            let count =
                if columns.utilization { 6 } else { 0 } + if columns.memory { 2 } else { 0 };
            line(
                gpu,
                [NO_VALUE; 2],
                &vec![NO_VALUE.to_owned(); count],
                NO_VALUE,
            );
        }
    }
    text
}

fn titles(columns: MonitorColumns) -> String {
    let [mut names, mut units] = match (columns.date, columns.time) {
        (true, true) => ["#Date       Time        gpu", "#YYYYMMDD   HH:MM:SS    Idx"],
        (true, false) => ["#Date        gpu", "#YYYYMMDD    Idx"],
        (false, true) => ["#Time        gpu", "#HH:MM:SS    Idx"],
        (false, false) => ["# gpu", "# Idx"],
    }
    .map(str::to_owned);
    names += "         pid   type";
    units += "           #    C/G";
    if columns.utilization {
        names += "     sm    mem    enc    dec    jpg    ofa";
        units += &"      %".repeat(6);
    }
    if columns.memory {
        names += "     fb   ccpm";
        units += "     MB     MB";
    }
    format!("{names}    command \n{units}    name \n")
}

/// Returns the date and the time of day before a line.
fn time_cells(snapshot: &Snapshot, columns: MonitorColumns) -> String {
    let local = local_time(
        snapshot.unix_ms,
        snapshot.host.facts.utc_offset.unwrap_or(0),
    );
    let (date, time) = (
        local.get(..10).unwrap_or_default().replace('-', ""),
        local.get(11..19).unwrap_or_default(),
    );
    match (columns.date, columns.time) {
        (true, true) => format!(" {date}   {time}"),
        (true, false) => format!(" {date}"),
        (false, true) => format!(" {time}"),
        (false, false) => String::new(),
    }
}

fn values(gpu_process: &GpuProcess, columns: MonitorColumns) -> Vec<String> {
    let mut values = Vec::new();
    if columns.utilization {
        values.extend(shares(gpu_process));
    }
    if columns.memory {
        let mib = gpu_process.memory.map_or_else(
            |_| NO_VALUE.to_owned(),
            |bytes| rows::mib(bytes).to_string(),
        );
        // No process has protected memory: that is a mode of the whole GPU, of confidential
        // computing.
        values.extend([mib, "0".to_owned()]);
    }
    values
}

/// Returns the shares of the multiprocessors, memory, encoder, decoder, JPEG and optical flow
/// engines, without their unit. A process of which no sample was taken has none, and an engine that
/// a process does not use has none.
fn shares(gpu_process: &GpuProcess) -> [String; 6] {
    let [mut sm, mut memory, mut encoder, mut decoder, jpeg, ofa] =
        [NO_VALUE; 6].map(str::to_owned);
    let used = |share: u32| {
        if share > 0 {
            share.to_string()
        } else {
            NO_VALUE.to_owned()
        }
    };
    let share = gpu_process.sm.map_or(0.0, Percent::value);
    if let Some(engines) = gpu_process.engines {
        (encoder, decoder) = (used(engines.encoder_percent), used(engines.decoder_percent));
        if share > 0.0 || engines.memory_percent > 0 {
            (sm, memory) = (format!("{share:.0}"), engines.memory_percent.to_string());
        }
    }
    [sm, memory, encoder, decoder, jpeg, ofa]
}
