//! The CPU time of a model update and of a redraw, with 8 GPUs, 64 processes and a week of history.
//!
//! ```text
//! cargo bench --bench redraw
//! ```
//!
//! A measurement, not a test: it prints medians, and `MISSED` beside a median above its limit.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use gputop::app::event::Event;
use gputop::app::{App, AppOptions};
use gputop::base::terminal::ColourDepth;
use gputop::base::units::{Bytes, Moment};
use gputop::protocol::host_key::HostKey;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;
use gputop::view::{self, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

const GPUS: u32 = 8;
const PROCESSES: u32 = 64;
const FRAMES: usize = 300;
/// The limit for a redraw.
const LIMIT: Duration = Duration::from_millis(2);

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut noise = Noise(1);
    let mut host = host()?;
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(200, 60));
    // Fills every resolution of the history: a sample per five minutes, per ten seconds, and per
    // second.
    let (week, six_hours, quarter) = (7 * 86_400, 6 * 3600, 900);
    for (span, step) in [(week - six_hours, 300), (six_hours - quarter, 10)] {
        for _ in 0..span / step {
            pass(&mut app, &mut host, &mut noise, step);
        }
    }
    let mut updates: Vec<Duration> = (0..quarter)
        .map(|_| pass(&mut app, &mut host, &mut noise, 1))
        .collect();
    let update = median(&mut updates);
    writeln!(
        out,
        "a pass over {GPUS} GPUs and {PROCESSES} processes: {update:?} in app and model"
    )?;

    let mut terminal = Terminal::new(TestBackend::new(200, 60))?;
    let theme = Theme::new(false, ColourDepth::Sixteen);
    for (name, keys) in [("process and GPU", ""), ("GPU", "\t")] {
        let mut app_keys = keys.to_owned();
        app_keys.push('g');
        press(&mut app, &app_keys);
        for zoom in ["1 minute", "15 minutes", "6 hours", "7 days"] {
            let steps = match zoom {
                "1 minute" => "[[[[[[[[[[[[[",
                "15 minutes" => "]]]]",
                "6 hours" => "]]]]",
                _ => "]]]]]]]]]]]]]",
            };
            press(&mut app, steps);
            let mut frames = Vec::new();
            for _ in 0..FRAMES {
                let begin = now();
                terminal.draw(|frame| view::draw(frame.buffer_mut(), &theme, black_box(&app)))?;
                frames.push(now().saturating_sub(begin));
            }
            let frame = median(&mut frames);
            let verdict = if frame < LIMIT { "" } else { "  MISSED: 2 ms" };
            writeln!(out, "200x60, {name}, {zoom}: {frame:?} per redraw{verdict}")?;
        }
        app.update(Event::Key(KeyEvent::from(KeyCode::Esc)));
    }
    Ok(())
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\t' {
            KeyCode::Tab
        } else {
            KeyCode::Char(key)
        };
        app.update(Event::Key(KeyEvent::from(code)));
    }
}

/// The CPU time of this thread: on a busy machine, elapsed time would include other processes.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Applies a pass over the host, this many seconds after the last one. Returns the CPU time that
/// the app took.
fn pass(app: &mut App, host: &mut Snapshot, noise: &mut Noise, seconds: u64) -> Duration {
    host.sequence += 1;
    host.at = Moment(host.at.0 + seconds * 1000);
    host.interval_ms = seconds * 1000;
    for gpu in &mut host.gpus {
        gpu.load.at = host.at;
        gpu.load.memory_used = Ok(Bytes(0));
        for gpu_process in &mut gpu.processes {
            let memory = Bytes::from_mib(u64::from(1000 + noise.below(7000)));
            gpu_process.memory = Ok(memory);
            gpu.load.memory_used = gpu.load.memory_used.map(|used| Bytes(used.0 + memory.0));
        }
    }
    let line = Event::Line(HostKey::FIRST, Box::new(Line::Full(Box::new(host.clone()))));
    let begin = now();
    app.update(line);
    now().saturating_sub(begin)
}

/// Pseudo-random numbers, the same in each run.
struct Noise(u32);

impl Noise {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % end
    }
}

/// The snapshot of a host. Readings that are left out are missing.
fn host() -> anyhow::Result<Snapshot> {
    let at = 1_000_000;
    let gpu = |index: u32| {
        let own = (0..PROCESSES).filter(|number| number % GPUS == index);
        let gpu_process = |number| json!({"pid": 1000 + number, "start_ticks": number, "type": "compute", "memory_used_bytes": 0, "sm_utilization_percent": 40.0});
        json!({
            "uuid": format!("GPU-{index}"),
            "facts": {"index": index, "parent_uuid": null, "simulated": false, "name": "H100"},
            "load": {
                "time_ms": at, "memory_used_bytes": 0, "memory_total_bytes": 80_u64 << 30, "sm_utilization_percent": 50.0,
                "temperature_celsius": 50, "power_watts": 300.0,
            },
            "health": {"time_ms": at, "xids": []},
            "processes": own.map(gpu_process).collect::<Vec<_>>(),
            "device_file_holders": [],
        })
    };
    let process = |number: u32| {
        json!({
            "pid": 1000 + number,
            "start_ticks": number,
            "facts": {"identity": "sure", "user": "alice", "parent_pid": 1, "comm": "python"},
            "load": {"state": "sleeping", "cpu_percent": 99.0, "rss_bytes": 3_u64 << 30},
        })
    };
    let host = json!({
        "schema": Snapshot::SCHEMA, "sequence": 0, "time_ms": at, "unix_time_ms": 1_700_000_000_000_u64, "interval_ms": 1000,
        "host": {
            "facts": {"name": "box", "boot_id": "b007", "ticks_per_second": 100, "agent_uid": 1000},
            "load": {},
            "scan": {"time_ms": at, "processes": 300, "unreadable_processes": 0},
        },
        "driver": {},
        "gpus": (0..GPUS).map(gpu).collect::<Vec<_>>(),
        "processes": (0..PROCESSES).map(process).collect::<Vec<_>>(),
    });
    Ok(serde_json::from_value(host)?)
}
