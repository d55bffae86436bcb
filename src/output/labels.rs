//! Short texts and figures about GPUs and processes that lists, pages and reports share.

pub(crate) mod growth;
pub(crate) mod server;
pub(crate) mod tensors;
pub(crate) mod visible_gpus;

use std::time::Duration;

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{DATALOADER_WORKER, GpuOrProcess, GpuTime, HostModel, reserved, short_name};
use crate::protocol::snapshot::{
    AllocatorUnreadable, ArgvDelay, Gpu, Missing, Process, ProcessId, Reading, Snapshot, State, Use,
};

pub(crate) fn word(reading: Result<impl ToString, impl ToString>) -> String {
    reading.map_or_else(|why| why.to_string(), |value| value.to_string())
}

/// Returns GPU-hours: `2.4`, or `≥2.4` for a lower bound.
pub(crate) fn gpu_hours(time: GpuTime) -> String {
    let bound = if time.is_lower_bound { "≥" } else { "" };
    format!("{bound}{:.1}", time.hours())
}

/// The program's file name and its arguments; `None` if the arguments are not known, or if there
/// are none. Of a Python program, the script has its file name only. A `DataLoader` worker, whose
/// arguments are those of its trainer, has its own name before them.
pub(crate) fn command_line(process: &Process) -> Option<String> {
    let mut words: Vec<&str> = process.facts.argv.as_ref().ok()?.shown().collect();
    let script = script(&words);
    for place in [Some(0), script].into_iter().flatten() {
        let word = words.get_mut(place)?;
        *word = file_name(word);
    }
    let is_worker = process
        .facts
        .comm
        .as_ref()
        .is_ok_and(|comm| comm.as_str() == DATALOADER_WORKER);
    let name = if is_worker {
        format!("[{DATALOADER_WORKER}] ")
    } else {
        String::new()
    };
    Some(name + &words.join(" "))
}

/// The place of the script among the arguments of a Python program; `None` for a module, for code
/// in an argument, and for other programs.
fn script(words: &[&str]) -> Option<usize> {
    let (program, arguments) = words.split_first()?;
    // Options of Python that take the next word: `-W ignore`, `-X dev`.
    let is_value = |place: usize| place > 0 && ["-W", "-X"].contains(&arguments[place - 1]);
    let first = arguments.iter().enumerate().position(|(place, word)| {
        (!word.starts_with('-') && !is_value(place)) || ["-m", "-c"].contains(word)
    })?;
    (file_name(program).starts_with("python") && !arguments[first].starts_with('-'))
        .then_some(first + 1)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(path)
}

/// The short name of a process: its script, its module or its program; its PID where none is known.
pub(crate) fn program(process: &Process) -> String {
    short_name(&process.facts).map_or_else(|_| process.id.pid.to_string(), |name| name.to_string())
}

/// `4711 train.py`, or only the PID if the name is not known.
pub(crate) fn name_of(id: ProcessId, name: &Reading<Text>) -> String {
    name.as_ref()
        .map_or_else(|_| id.pid.to_string(), |name| format!("{} {name}", id.pid))
}

/// `GPU 3`, or `4711 train.py`; `None` for a GPU that is gone, and for a process that was never
/// seen.
pub(crate) fn subject(model: &HostModel, subject: &GpuOrProcess) -> Option<String> {
    match subject {
        GpuOrProcess::Gpu(uuid) => Some(format!("GPU {}", gpu_label(model.latest()?.gpu(uuid)?))),
        GpuOrProcess::Process(id) => Some(name_of(*id, &model.history().process(*id)?.name())),
    }
}

/// The program's file name and its arguments, or `[comm]` if these are not known. Says so where no
/// such process exists here, or no longer.
pub(crate) fn command(process: &Process) -> Reading<String> {
    let has_ended = process.load.state == Err(Missing::Gone);
    match command_line(process) {
        Some(line) if has_ended => Ok(format!("{line} (has ended)")),
        Some(line) => Ok(line),
        _ if has_ended => Ok("(no such process here: it has ended)".to_owned()),
        _ if process.id.start_ticks.is_none() => {
            Ok("(no such process here: it ended, or is a container's)".to_owned())
        }
        // A kernel thread and a zombie have no arguments.
        _ => process
            .facts
            .comm
            .as_ref()
            .map(|comm| format!("[{comm}]{}", argv_delay(process)))
            .map_err(|why| *why),
    }
}

/// Says behind the name of a process that its arguments are not read yet, or hang; empty otherwise.
fn argv_delay(process: &Process) -> &'static str {
    match process.facts.argv_delay {
        Some(ArgvDelay::Hung) => " (arguments hang)",
        Some(ArgvDelay::NoReader) => " (not read yet)",
        None if process.facts.argv == Err(Missing::NotYet) => " …",
        None => "",
    }
}

/// The memory that `torch.cuda.empty_cache()` would give back; `None` where its parts were not
/// looked for.
pub(crate) fn cache(snapshot: &Snapshot, process: &Process) -> Option<Reading<Bytes>> {
    let reserved = reserved(snapshot, process.id, None).map(|reserved| Ok(reserved.cache));
    let why = || {
        Some(Err(process
            .allocator
            .as_ref()?
            .unreadable
            .map_or(Missing::Failed, AllocatorUnreadable::missing)))
    };
    reserved.or_else(why)
}

/// How the memory of a GPU, or the GPU memory of a process, changed in the last minutes, in bytes;
/// since gputop first saw it, if that is later. `None` when either amount is not known. Less than a
/// MiB counts as no change.
pub(crate) fn change_of_memory(model: &HostModel, subject: &GpuOrProcess) -> Option<i64> {
    let (series, now) = (model.series(subject)?, model.now());
    let from = Moment(
        now.0
            .saturating_sub(u64::try_from(recent(model).as_millis()).unwrap_or(u64::MAX)),
    );
    let first = if series.began()? >= from {
        series.baseline()?
    } else {
        series.at(from, now)?.high
    };
    let growth = series.latest()?.0.cast_signed() - first.0.cast_signed();
    Some(if growth.unsigned_abs() < 1 << 20 {
        0
    } else {
        growth
    })
}

/// The longest period of histories and changes in lists. A longer one in a few cells would hide
/// short changes.
const RECENT: Duration = Duration::from_mins(15);

/// The period of histories and changes in lists: as much as was seen, in seconds or whole minutes.
pub(crate) fn recent(model: &HostModel) -> Duration {
    match model.span().min(RECENT).as_secs() {
        seconds @ 0..60 => Duration::from_secs(seconds),
        seconds => Duration::from_mins(seconds / 60),
    }
}

/// A period in words: `40s`, `5m`, `1h30m`, `2d`.
pub(crate) fn period(span: Duration) -> String {
    let part = |amount: u64, unit: &str| {
        if amount > 0 {
            format!("{amount}{unit}")
        } else {
            String::new()
        }
    };
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => part(seconds / 60, "m") + &part(seconds % 60, "s"),
        seconds @ 3600..86_400 => part(seconds / 3600, "h") + &part(seconds / 60 % 60, "m"),
        seconds => part(seconds / 86_400, "d") + &part(seconds / 3600 % 24, "h"),
    }
}

/// Returns the time since a process started. For a process of the simulated machine, that is the
/// time for which it pretends to run.
pub(crate) fn elapsed(snapshot: &Snapshot, process: &Process) -> Reading<Duration> {
    let ticks = process.id.start_ticks.ok_or(Missing::Unsupported)?;
    let per_second = snapshot.host.facts.ticks_per_second.max(1);
    let started = Duration::from_millis(ticks.saturating_mul(1000) / per_second);
    let past = process.facts.simulated_past_ms.unwrap_or(0);
    Ok(Duration::from_millis(snapshot.at.0.saturating_add(past)).saturating_sub(started))
}

/// A GPU's short name: its index, or `index:instance` for a MIG instance.
pub(crate) fn gpu_label(gpu: &Gpu) -> String {
    gpu.label()
}

/// The GPUs at these indexes of the snapshot's list: `0`, `0,2`, `0-7`.
pub(crate) fn gpu_labels(snapshot: &Snapshot, places: &[usize]) -> String {
    let gpus = || places.iter().map(|place| &snapshot.gpus[*place]);
    let run = gpus().all(|gpu| gpu.facts.parent.is_none())
        && gpus()
            .zip(gpus().skip(1))
            .all(|(a, b)| a.facts.index + 1 == b.facts.index);
    match (gpus().next(), gpus().next_back()) {
        (Some(first), Some(last)) if run && places.len() > 2 => {
            format!("{}-{}", first.facts.index, last.facts.index)
        }
        _ => gpus().map(gpu_label).collect::<Vec<_>>().join(","),
    }
}

/// An amount in five columns: `38.2G`, `512M`.
pub(crate) fn short_amount(bytes: Bytes) -> String {
    let text = bytes.to_string();
    match text.split_once(' ') {
        Some((number, unit)) => format!("{number}{}", unit.chars().next().unwrap_or('B')),
        None => text,
    }
}

/// A change in six columns: `+1.2G`, or `0`.
pub(crate) fn signed(bytes: i64) -> String {
    match bytes {
        0 => "0".to_owned(),
        1.. => format!("+{}", short_amount(Bytes(bytes.unsigned_abs()))),
        _ => format!("-{}", short_amount(Bytes(bytes.unsigned_abs()))),
    }
}

/// A change in words: `+1.2 GiB`, `-20 MiB`, and `+0` where nothing changed.
pub(crate) fn change(bytes: i64) -> String {
    let sign = match bytes {
        0 => return "+0".to_owned(),
        1.. => '+',
        _ => '-',
    };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

pub(crate) fn use_in_words(usage: Use) -> &'static str {
    match usage {
        Use::Compute => "compute",
        Use::Graphics => "graphics",
        Use::ComputeAndGraphics => "compute and graphics",
        Use::Mps => "compute, through MPS",
    }
}

/// The state of a process in words, with its effect on signals.
pub(crate) fn state_in_words(process: &Process, state: State) -> &'static str {
    let frozen_by = process.facts.frozen_by.as_ref().ok();
    match state {
        State::Sleeping | State::DiskSleep
            if frozen_by.is_some_and(|by| by.as_str().ends_with("cgroup.freeze")) =>
        {
            "frozen with its control group: a signal that it handles waits until that goes on"
        }
        State::Sleeping | State::DiskSleep if frozen_by.is_some() => {
            "frozen with its control group: no signal reaches it until that goes on"
        }
        State::Running => "running",
        State::Sleeping => "sleeping",
        State::DiskSleep => "blocked in the kernel: no signal reaches it until it wakes",
        State::Stopped => "stopped: only SIGKILL and SIGCONT reach it",
        State::Traced => "held by a debugger: only SIGKILL reaches it",
        State::Zombie => "ended, not reaped by its parent",
        State::Dead => "ended",
        State::Idle => "idle kernel thread",
        State::Other => "in a state that gputop does not know",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn a_command_names_the_script_without_its_folder() {
        let line = |command: &str| {
            let host = host(1).with(7, command, 0, Bytes::from_gib(1));
            (
                command_line(&host.processes[0]).unwrap(),
                program(&host.processes[0]),
            )
        };
        let check = |command, shown: &str, name: &str| {
            assert_eq!(line(command), (shown.to_owned(), name.to_owned()));
        };
        check(
            "/usr/bin/python3.11 -u /home/a/train.py --data /data/x",
            "python3.11 -u train.py --data /data/x",
            "train.py",
        );
        check(
            "python -W ignore /a/train.py",
            "python -W ignore train.py",
            "train.py",
        );
        check(
            "python -m torch.distributed.run /a/train.py",
            "python -m torch.distributed.run /a/train.py",
            "train.py",
        );
        check("python -c /a/b", "python -c /a/b", "python");
        check(
            "python -m torch.distributed.run",
            "python -m torch.distributed.run",
            "torch.distributed.run",
        );
        check("python", "python", "python");
    }

    #[test]
    fn an_empty_argument_is_shown_as_a_shell_quotes_it() {
        let mut host = host(1).with(7, "python3", 0, Bytes::from_gib(1));
        let words = ["/opt/venv/bin/python3", "t1.py", ""];
        host.processes[0].facts_mut().argv = Ok(words.into_iter().map(Text::from).collect());
        assert_eq!(
            command_line(&host.processes[0]).unwrap(),
            "python3 t1.py ''"
        );
    }
}
