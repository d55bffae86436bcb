//! Does a number of passes of the agent or the viewer in this process, with made-up readings, so that
//! `.ci/budget.py` can count their instructions: `passes agent 4`, `passes viewer 4`.
//!
//! The agent's pass compares a snapshot with the one before and writes the line. What it reads from
//! the driver and from `/proc` is left out, because that work depends on the host. The viewer's pass
//! parses a line, updates model and app, and draws the screen.

use std::env;
use std::hint::black_box;
use std::io;

use anyhow::Context;
use gputop::app::event::Event;
use gputop::app::{App, AppOptions};
use gputop::base::terminal::ColourDepth;
use gputop::base::units::{Bytes, Moment};
use gputop::protocol::change::Change;
use gputop::protocol::host_key::HostKey;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;
use gputop::view::{self, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

const GPUS: u64 = 8;
const PROCESSES: u64 = 64;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [side, passes] = arguments.as_slice() else {
        anyhow::bail!("write `passes agent COUNT` or `passes viewer COUNT`");
    };
    let passes: u64 = passes
        .parse()
        .with_context(|| format!("{passes} is no number of passes"))?;
    match side.as_str() {
        "agent" => agent(passes),
        "viewer" => viewer(passes),
        other => anyhow::bail!("write `agent` or `viewer` instead of {other}"),
    }
}

fn agent(passes: u64) -> anyhow::Result<()> {
    let mut last = snapshot()?;
    for number in 1..=passes {
        let next = changed(&last, number);
        let change = Change::between(&last, &next).context("both are of one host")?;
        Line::Tick(Box::new(change)).write(&mut io::sink())?;
        last = next;
    }
    Ok(())
}

fn viewer(passes: u64) -> anyhow::Result<()> {
    let mut app = App::new(AppOptions::default());
    app.update(Event::Resized(200, 60));
    let theme = Theme::new(false, ColourDepth::Sixteen);
    let mut terminal = Terminal::new(TestBackend::new(200, 60))?;
    let mut last = snapshot()?;
    let mut line = Vec::new();
    Line::Full(Box::new(last.clone())).write(&mut line)?;
    for number in 1..=passes {
        let parsed = Line::parse(&line)?.context("the line is of a known kind")?;
        app.update(Event::Line(HostKey::FIRST, Box::new(parsed)));
        terminal.draw(|frame| view::draw(frame.buffer_mut(), &theme, black_box(&app)))?;
        let next = changed(&last, number);
        let change = Change::between(&last, &next).context("both are of one host")?;
        line.clear();
        Line::Tick(Box::new(change)).write(&mut line)?;
        last = next;
    }
    Ok(())
}

/// Returns the snapshot one second later: the memory and use of each GPU and process have changed.
fn changed(last: &Snapshot, number: u64) -> Snapshot {
    let mut next = last.clone();
    next.sequence += 1;
    next.at = Moment(next.at.0 + 1000);
    for (place, gpu) in (0_u64..).zip(&mut next.gpus) {
        gpu.load.at = next.at;
        let mut used = 0;
        for (row, gpu_process) in (0_u64..).zip(&mut gpu.processes) {
            let memory = (1000 + 100 * row + 7 * ((number + place) % 13)) << 20;
            gpu_process.memory = Ok(Bytes(memory));
            used += memory;
        }
        gpu.load.memory_used = Ok(Bytes(used));
    }
    next
}

fn snapshot() -> anyhow::Result<Snapshot> {
    let at = 1_000_000;
    let gpu = |index: u64| {
        let rows = (0..PROCESSES).filter(|number| number % GPUS == index);
        let gpu_process = |number| json!({"pid": 1000 + number, "start_ticks": number, "type": "compute", "memory_used_bytes": 0, "sm_utilization_percent": 40.0});
        json!({
            "uuid": format!("GPU-{index}"),
            "facts": {"index": index, "parent_uuid": null, "simulated": false, "name": "H100"},
            "load": {
                "time_ms": at, "memory_used_bytes": 0, "memory_total_bytes": 80_u64 << 30, "sm_utilization_percent": 50.0,
                "temperature_celsius": 50, "power_watts": 300.0,
            },
            "health": {"time_ms": at, "xids": []},
            "processes": rows.map(gpu_process).collect::<Vec<_>>(),
            "device_file_holders": [],
        })
    };
    let process = |number: u64| {
        json!({
            "pid": 1000 + number,
            "start_ticks": number,
            "facts": {"identity": "sure", "user": format!("user{}", number % 5), "parent_pid": 1, "comm": "python"},
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
