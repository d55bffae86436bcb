//! What it costs to remember, and to draw what is remembered: 8 GPUs, 64 processes, a week of history.
//!
//! ```text
//! cargo bench --bench redraw
//! ```
//!
//! It is a measurement, not a test: it prints medians, and a bar that was missed says so.

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use gputop::app::{App, Options};
use gputop::event::Event;
use gputop::snapshot::line::Line;
use gputop::snapshot::{
    Driver, Gpu, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Host, HostFacts, HostLoad, HostScan, Identity, Missing,
    Process, ProcessFacts, ProcessId, ProcessLoad, Snapshot, State, Tenant, Use,
};
use gputop::ui::{self, Theme};
use gputop::units::{Bytes, Celsius, Moment, Percent, Watts};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const GPUS: u32 = 8;
const PROCESSES: u32 = 64;
const FRAMES: usize = 300;
const BAR: Duration = Duration::from_millis(2);

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut noise = Noise(1);
    let mut host = host();
    let mut app = App::new(Options { readonly: false, interval: Duration::from_secs(1) });
    app.update(Event::Resized(200, 60));
    // Every tier is full: five minutes apart, then ten seconds, then one.
    let (week, six_hours, quarter) = (7 * 86_400, 6 * 3600, 900);
    for (span, step) in [(week - six_hours, 300), (six_hours - quarter, 10)] {
        for _ in 0..span / step {
            pass(&mut app, &mut host, &mut noise, step);
        }
    }
    let mut feeds: Vec<Duration> = (0..quarter).map(|_| pass(&mut app, &mut host, &mut noise, 1)).collect();
    let fed = median(&mut feeds);
    writeln!(out, "a pass over {GPUS} GPUs and {PROCESSES} processes: {fed:?}, all of the model")?;

    let mut terminal = Terminal::new(TestBackend::new(200, 60))?;
    let theme = Theme::new(false, true);
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
                terminal.draw(|frame| ui::draw(frame, &theme, black_box(&app)))?;
                frames.push(now().saturating_sub(begin));
            }
            let frame = median(&mut frames);
            let verdict = if frame < BAR { "" } else { "  MISSED: 2 ms" };
            writeln!(out, "200x60, {name}, {zoom}: {frame:?} a redraw{verdict}")?;
        }
        app.update(Event::Key(KeyEvent::from(KeyCode::Esc)));
    }
    Ok(())
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\t' { KeyCode::Tab } else { KeyCode::Char(key) };
        app.update(Event::Key(KeyEvent::from(code)));
    }
}

/// What this thread has computed so far: on a busy machine, the clock on the wall measures the others.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A pass over the host, so many seconds later. Says how long the app took for it.
fn pass(app: &mut App, host: &mut Snapshot, noise: &mut Noise, seconds: u64) -> Duration {
    host.sequence += 1;
    host.at = Moment(host.at.0 + seconds * 1000);
    host.interval_ms = seconds * 1000;
    for gpu in &mut host.gpus {
        gpu.load.at = host.at;
        gpu.load.memory_used = Ok(Bytes(0));
        for tenant in &mut gpu.tenants {
            let memory = Bytes::from_mib(u64::from(1000 + noise.below(7000)));
            tenant.memory = Ok(memory);
            gpu.load.memory_used = gpu.load.memory_used.map(|it| Bytes(it.0 + memory.0));
        }
    }
    let line = Event::Line(Box::new(Line::Full(Box::new(host.clone()))));
    let begin = now();
    app.update(line);
    now().saturating_sub(begin)
}

/// Numbers without a pattern, the same in each run.
struct Noise(u32);

impl Noise {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % end
    }
}

fn host() -> Snapshot {
    let at = Moment(1_000_000);
    let ids = (0..PROCESSES).map(|it| ProcessId { pid: 1000 + it, start_ticks: Some(u64::from(it)) });
    let gpu = |index: u32| Gpu {
        uuid: GpuUuid(format!("GPU-{index}").into()),
        facts: GpuFacts { name: Ok("H100".into()), ..GpuFacts::missing(index, None, false, Missing::Unsupported) },
        load: GpuLoad {
            memory_total: Ok(Bytes::from_gib(80)),
            sm: Ok(Percent::new(50.0)),
            temperature: Ok(Celsius(50)),
            power: Ok(Watts::from_milliwatts(300_000)),
            ..GpuLoad::missing(at, Missing::Unsupported)
        },
        health: GpuHealth::missing(at, Vec::new(), Missing::Unsupported),
        tenants: ids
            .clone()
            .filter(|id| id.pid % GPUS == index)
            .map(|process| Tenant { process, usage: Use::Compute, memory: Ok(Bytes(0)), sm: Ok(Percent::new(40.0)) })
            .collect(),
        holders: Vec::new(),
        trouble: None,
        failures: Vec::new(),
        detail: None,
    };
    let process = |id: ProcessId| Process {
        id,
        facts: Arc::new(ProcessFacts {
            user: Ok("alice".into()),
            parent: Ok(1),
            comm: Ok("python".into()),
            ..ProcessFacts::missing(Identity::Sure, Missing::NotYet)
        }),
        load: ProcessLoad {
            state: Ok(State::Sleeping),
            cpu: Ok(Percent::new(99.0)),
            rss: Ok(Bytes::from_gib(3)),
            ..ProcessLoad::missing(Missing::Unsupported)
        },
        peek: None,
    };
    Snapshot {
        schema: Snapshot::SCHEMA,
        sequence: 0,
        at,
        unix_ms: 1_700_000_000_000,
        interval_ms: 1000,
        host: Host {
            facts: HostFacts::missing("box".into(), "b007".into(), 100, 1000, Missing::NotYet),
            load: HostLoad::missing(Missing::NotYet),
            scan: HostScan::missing(at, 300, 0, Missing::NotYet),
        },
        driver: Driver { version: None, cuda_version: None, trouble: None, failures: Vec::new() },
        gpus: (0..GPUS).map(gpu).collect(),
        processes: ids.clone().map(process).collect(),
    }
}
