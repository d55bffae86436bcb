//! Draws each GPU of a host as a small multiple, like a tile of the screen: use upwards and memory
//! downwards over the whole recording, figures beside, and who was on the GPU below. All of them
//! have the same axes.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::badge::{self, PageBadge};
use super::colours;
use super::path::AreaPath;
use super::summary::Finding;
use super::words;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::logs::recorded_run::{
    Decimated, Extremes, GpuRun, HostRun, LoadRange, Mean, ProcessKey, ProcessRun,
};
use crate::model::UserHues;
use crate::output::fill::Fill;

/// The size of the curves in units of SVG. The axis is in the middle.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 100.0;
const AXIS: f64 = HEIGHT / 2.0;

/// The height of the curves on each side of the axis.
const REACH: f64 = AXIS - 1.0;

/// The most and fewest buckets of a curve.
const MOST_BUCKETS: usize = 120;
const FEWEST_BUCKETS: usize = 24;

/// The bytes that all tiles of a page may take.
const PAGE_BYTES: usize = 200_000;

/// The most programs that are named on a tile.
const MOST_PROGRAMS: usize = 3;

/// The most badges of a tile.
const MOST_BADGES: usize = 2;

/// Less memory without a listed process is rounding, and what every CUDA context takes.
const LEAST_UNLISTED_KIB: u32 = 256 << 10;

/// The axes that all tiles of a host have.
#[derive(Debug, Clone, Copy)]
struct TileAxes {
    began: u64,
    ended: u64,
    /// The memory at the lower end.
    top_kib: f64,
    /// The most buckets of a curve.
    buckets: usize,
}

impl TileAxes {
    fn of(host: &HostRun, tiles_of_page: usize) -> Self {
        let top = host
            .gpus
            .iter()
            .filter_map(|gpu| gpu.capacity.or(gpu.memory.peak.map(|(_, peak)| peak)))
            .max();
        #[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
        let top_kib = top.map_or(1.0, |top| (top.0 >> 10) as f64).max(1.0);
        // A bucket has about five points of nine bytes.
        let buckets = PAGE_BYTES / (45 * tiles_of_page.max(1));
        Self {
            began: host.began,
            ended: host.ended.max(host.began + 1000),
            top_kib,
            buckets: buckets.clamp(FEWEST_BUCKETS, MOST_BUCKETS),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
    fn x(&self, at: u64) -> f64 {
        let share = at.saturating_sub(self.began) as f64 / (self.ended - self.began) as f64;
        share.min(1.0) * WIDTH
    }

    fn memory_y(&self, kib: u32) -> f64 {
        AXIS + (f64::from(kib) / self.top_kib).min(1.0) * REACH
    }
}

/// Draws the tiles of a host. `tiles_of_page` is the number of GPUs of all hosts.
pub(super) fn draw(
    host: &HostRun,
    findings: &[Finding],
    hues: &UserHues,
    tiles_of_page: usize,
) -> Markup {
    let axes = TileAxes::of(host, tiles_of_page);
    html! {
        div.tiles {
            @for gpu in &host.gpus { (draw_tile(host, gpu, findings, hues, &axes)) }
        }
        p.note {
            "From " (words::time(host, host.began)) " (left) to " (words::time(host, host.ended)) " (right): "
            "use of the multiprocessors upwards, memory downwards in the colours of the users, on the same axes for every GPU. "
            "Beside them: mean use, and the highest memory of all. Above them: the highest temperature and the mean power."
        }
    }
}

fn draw_tile(
    host: &HostRun,
    gpu: &GpuRun,
    findings: &[Finding],
    hues: &UserHues,
    axes: &TileAxes,
) -> Markup {
    let mut badges: Vec<&PageBadge> = findings
        .iter()
        .filter(|finding| finding.concerns(host, gpu))
        .map(|finding| &finding.badge)
        .collect();
    badges.dedup();
    badges.truncate(MOST_BADGES);
    let edge = badges
        .first()
        .map_or("fine", |badge| badge::class(badge.severity));
    let heat = gpu.temperature.all.map(|all| format!("{:.0}°C", all.high));
    let power = gpu.power.all.map(|all| format!("{:.0}W", all.mean()));
    html! {
        article.tile.(edge) {
            header {
                span {
                    b { "GPU " (gpu.label) }
                    @for user in users(host, gpu) { " " (draw_user(user, hues)) }
                }
                span.heat { (heat.unwrap_or_default()) " " (power.unwrap_or_default()) }
            }
            div.mirror {
                (draw_mirror(host, gpu, hues, axes))
                div.figures {
                    b { (gpu.sm.all.map_or_else(|| "-".to_owned(), |all| format!("{:.0}% SM", all.mean()))) }
                    span {
                        b { (words::amount(gpu.memory.peak.map(|(_, peak)| peak))) }
                        span.of { "/" (words::amount(gpu.capacity)) }
                    }
                }
            }
            p {
                @for badge in badges { (badge.draw()) " " }
                (programs(host, gpu))
            }
        }
    }
}

/// Draws the name of a user in the user's hue.
pub(super) fn draw_user(user: &Text, hues: &UserHues) -> Markup {
    // A user without a hue has the colour of text.
    let class = match hues.hue(user) {
        Some(hue) => colours::class(Fill::User(Some(hue))),
        None => "plain",
    };
    html! { b.user.(class) { (user) } }
}

fn draw_mirror(host: &HostRun, gpu: &GpuRun, hues: &UserHues, axes: &TileAxes) -> Markup {
    let layers = memory_layers(host, gpu, hues, axes);
    let own = gpu
        .capacity
        .map(|capacity| u32::try_from(capacity.0 >> 10).unwrap_or(u32::MAX));
    let own = own
        .map(|kib| axes.memory_y(kib))
        .filter(|y| *y < AXIS + REACH - 0.5);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
            aria-label=(format!("GPU {}: {}", gpu.label, words::peak(&gpu.memory, gpu.capacity, host))) {
            path.area.(colours::class(Fill::Busy)) d=(use_area(&gpu.sm, axes)) {}
            // The last layer reaches farthest: the others cover its upper part.
            @for (fill, area) in layers.iter().rev() {
                path.area.(colours::class(*fill)) d=(area) {}
            }
            @if let Some(y) = own { path.capacity d=(format!("M0 {y:.1}H{WIDTH}")) {} }
            path.axis d=(format!("M0 {AXIS}H{WIDTH}")) {}
        }
    }
}

fn use_area(sm: &LoadRange, axes: &TileAxes) -> String {
    let curve = sm.curve.reduced(axes.buckets);
    let patience = curve.patience();
    let mut area = AreaPath::new(AXIS);
    let mut before: Option<u64> = None;
    for (at, bucket) in curve.iter() {
        let after_gap = before.is_none_or(|before| at.saturating_sub(before) > patience);
        before = Some(at);
        let share = (Mean::mean(bucket) / 100.0).clamp(0.0, 1.0);
        area.point(axes.x(at), AXIS - share * REACH, after_gap);
    }
    area.finish()
}

/// Returns the memory of each user from the axis downwards, the user of most memory first, and last
/// the memory that no process is listed for: each with the area from the axis to its end.
fn memory_layers(
    host: &HostRun,
    gpu: &GpuRun,
    hues: &UserHues,
    axes: &TileAxes,
) -> Vec<(Fill, String)> {
    let curve = gpu.curve.reduced(axes.buckets);
    let fill = |key: &ProcessKey| {
        let user = host.processes.get(key).and_then(ProcessRun::user);
        Fill::User(user.and_then(|user| hues.hue(user)))
    };
    let fills = fills_by_memory(&curve, fill);
    let mut areas: Vec<AreaPath> = fills.iter().map(|_| AreaPath::new(AXIS)).collect();
    let mut rest = AreaPath::new(AXIS);
    let mut has_rest = false;
    for (_, bucket) in curve.iter() {
        for (number, sample) in bucket.in_order().enumerate() {
            let (x, after_gap) = (axes.x(sample.at), number == 0 && bucket.after_gap);
            let mut sum = 0_u32;
            for (area, layer) in areas.iter_mut().zip(&fills) {
                let parts = sample.parts.iter().filter(|(key, _)| fill(key) == *layer);
                sum = parts.fold(sum, |sum, (_, kib)| sum.saturating_add(*kib));
                area.point(x, axes.memory_y(sum.min(sample.kib)), after_gap);
            }
            let is_unlisted = sample.kib.saturating_sub(sum) >= LEAST_UNLISTED_KIB;
            has_rest |= is_unlisted;
            let end = if is_unlisted { sample.kib } else { sum };
            rest.point(x, axes.memory_y(end), after_gap);
        }
    }
    let areas = areas.into_iter().map(AreaPath::finish);
    let mut layers: Vec<(Fill, String)> = fills.into_iter().zip(areas).collect();
    layers.extend(has_rest.then(|| (Fill::Other, rest.finish())));
    layers
}

/// Returns the fills of the parts of a curve, the one with the highest memory first.
fn fills_by_memory(
    curve: &Decimated<Extremes<Vec<(ProcessKey, u32)>>>,
    fill: impl Fn(&ProcessKey) -> Fill,
) -> Vec<Fill> {
    let mut peaks: Vec<(Fill, u64)> = Vec::new();
    for (_, bucket) in curve.iter() {
        let mut sums: Vec<(Fill, u64)> = Vec::new();
        for (key, kib) in &bucket.high.parts {
            add(&mut sums, fill(key), u64::from(*kib), |sum, kib| sum + kib);
        }
        for (fill, sum) in sums {
            add(&mut peaks, fill, sum, u64::max);
        }
    }
    peaks.sort_by_key(|(_, peak)| Reverse(*peak));
    peaks.into_iter().map(|(fill, _)| fill).collect()
}

fn add(amounts: &mut Vec<(Fill, u64)>, fill: Fill, kib: u64, join: impl Fn(u64, u64) -> u64) {
    match amounts.iter_mut().find(|(known, _)| *known == fill) {
        Some((_, amount)) => *amount = join(*amount, kib),
        None => amounts.push((fill, kib)),
    }
}

/// Returns the processes that used a GPU, the largest first.
fn processes<'a>(
    host: &'a HostRun,
    gpu: &'a GpuRun,
) -> impl Iterator<Item = (ProcessKey, &'a ProcessRun)> {
    let largest = host.largest_processes().into_iter();
    largest.filter(|(_, process)| process.gpus.contains(&gpu.uuid))
}

/// Returns the users of a GPU, the user of the largest process first.
fn users<'a>(host: &'a HostRun, gpu: &'a GpuRun) -> Vec<&'a Text> {
    let mut users: Vec<&Text> = Vec::new();
    for user in processes(host, gpu).filter_map(|(_, process)| process.user()) {
        if !users.contains(&user) {
            users.push(user);
        }
    }
    users
}

/// Names the programs that used a GPU, the largest first: `train.py · serve.py 2× +3`.
fn programs(host: &HostRun, gpu: &GpuRun) -> String {
    let mut programs: Vec<(String, u32)> = Vec::new();
    for (_, process) in processes(host, gpu) {
        let name = process.name();
        match programs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => programs.push((name, 1)),
        }
    }
    let more = programs.len().saturating_sub(MOST_PROGRAMS);
    let words: Vec<String> = programs
        .into_iter()
        .take(MOST_PROGRAMS)
        .map(|(name, count)| {
            if count > 1 {
                format!("{name} {count}×")
            } else {
                name
            }
        })
        .collect();
    let most = gpu.memory.peak.map_or(Bytes(0), |(_, peak)| peak);
    match (words.is_empty(), more) {
        (true, _) if most >= Bytes::from_kib(LEAST_UNLISTED_KIB.into()) => {
            "unaccounted memory".to_owned()
        }
        (true, _) => "no process".to_owned(),
        (false, 0) => words.join(" · "),
        (false, more) => format!("{} +{more}", words.join(" · ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logs::recorded_run::{RecordedRun, RunRange, fold};
    use crate::model::Fleet;
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::{Snapshot, example};

    /// Returns a snapshot of two GPUs, each with a process of one of these users.
    fn snapshot(users: [&str; 2]) -> Snapshot {
        let mut snapshot = example::host(2)
            .with(101, "python a.py", 0, Bytes::from_gib(30))
            .with(102, "python b.py", 1, Bytes::from_gib(8));
        for (process, user) in snapshot.processes.iter_mut().zip(users) {
            Arc::make_mut(&mut process.facts).user = Ok(user.into());
        }
        snapshot
    }

    fn recorded(snapshot: &Snapshot) -> RecordedRun {
        let mut lines = Vec::new();
        for seconds in [0, 10, 20] {
            Line::Full(Box::new(snapshot.later(seconds)))
                .write(&mut lines)
                .unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines).unwrap();
        fold(&RunRange::whole_recording(file.path())).unwrap()
    }

    #[test]
    fn memory_has_the_hue_that_its_user_has_on_the_screen() {
        let users = ["bob", "carol"];
        let snapshot = snapshot(users);
        let run = recorded(&snapshot);
        let tiles = draw(&run.hosts[0], &[], &run.user_hues, 2).into_string();
        let mut fleet = Fleet::default();
        fleet
            .apply(HostKey::default(), Line::Full(Box::new(snapshot)))
            .unwrap();
        let (_, of_screen) = fleet.hosts().next().unwrap();
        for user in users {
            let hue = of_screen.user_hue(&user.into());
            assert!(hue.is_some());
            let class = colours::class(Fill::User(hue));
            for part in [
                format!(r#"<b class="user {class}">{user}</b>"#),
                format!(r#"<path class="area {class}""#),
            ] {
                assert!(tiles.contains(&part), "no {part}: {tiles}");
            }
        }
    }

    #[test]
    fn names_from_outside_are_text() {
        let run = recorded(&snapshot(["<script>x", "\"><img src=x>"]));
        let tiles = draw(&run.hosts[0], &[], &run.user_hues, 2).into_string();
        assert!(!tiles.contains("<script") && !tiles.contains("<img"));
        assert!(tiles.contains("&lt;script&gt;x"), "{tiles}");
    }
}
