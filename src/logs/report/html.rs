//! The page: one HTML file that needs no network and no script.
//!
//! `maud` escapes every text. The policy in the head forbids scripts and requests even if a text
//! got through.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::mark_table;
use super::plot::Plot;
use super::summary::{HostSummary, Summary};
use super::table::{self, PageCell, PageTable};
use super::{HostPlots, PageContent, badge, colours, tiles, words};
use crate::logs::recorded_run::{HostRun, ProcessKey};
use crate::model::UserHues;

/// Events that are shown at once; more are left out of the page.
const MOST_EVENTS: usize = 600;

/// Plots of processes that are shown at once.
const FEW_PLOTS: usize = 12;

/// Returns the page.
pub(super) fn page(content: &PageContent<'_>) -> String {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let summary = &content.summary;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("gputop ", env!("CARGO_PKG_VERSION")));
                title { (summary.badge.text) ": " (summary.headline) " – gputop" }
                // gputop's own text.
                style { (PreEscaped(colours::style_sheet())) }
            }
            body {
                main {
                    (draw_header(summary))
                    @for ((host, plots), found) in content.hosts.iter().zip(&summary.hosts) {
                        @if content.hosts.len() > 1 { h2 { "Host " (host.name) } }
                        (host_section(content, host, plots, found))
                    }
                    @if let Some((name, table)) = &content.comparison {
                        h2 { "Compared with " (name) }
                        (draw_table(table))
                    }
                }
                footer {
                    "Written by gputop " (env!("CARGO_PKG_VERSION")) ". Amounts are powers of 1024. Times are local times of the host. "
                    "The curves keep the highest and the lowest amount of each span of time."
                }
            }
        }
    };
    page.into_string()
}

/// Draws the worst finding.
fn draw_header(summary: &Summary) -> Markup {
    let others = summary.other_findings();
    html! {
        header.top {
            h1 { (summary.badge.draw()) " " (summary.headline) }
            @if others > 0 {
                p.note { (others) @if others == 1 { " more finding below" } @else { " more findings below" } }
            }
            @for note in &summary.notes { p.note { (note) } }
        }
    }
}

fn host_section(
    content: &PageContent<'_>,
    host: &HostRun,
    plots: &HostPlots,
    found: &HostSummary,
) -> Markup {
    let tiles_of_page = content.hosts.iter().map(|(host, _)| host.gpus.len()).sum();
    let reports = [
        table::tensor_leaks(host),
        plots.ooms.clone(),
        mark_table::marks(host),
    ];
    let (few, more) = plots
        .processes
        .split_at_checked(FEW_PLOTS)
        .unwrap_or((&plots.processes, &[]));
    let figure = |(key, plot): &(ProcessKey, Plot)| process_figure(host, *key, plot, content.hues);
    html! {
        p.note { (found.ran) " " (found.peaks) }
        (tiles::draw(host, &found.findings, content.hues, tiles_of_page))
        @if !found.findings.is_empty() {
            h2 { "Findings" }
            ul.findings {
                @for finding in &found.findings {
                    li class=(badge::class(finding.badge.severity)) { (finding.badge.draw()) " " (finding.text) }
                }
            }
        }
        @for report in reports.iter().filter(|table| !table.rows.is_empty()) {
            h3 { (report.title) }
            (draw_table(report))
        }
        @if !few.is_empty() || !plots.leaking_gpus.is_empty() {
            h2 { "Memory over time" }
            div.charts {
                @for plot in &plots.leaking_gpus { (gpu_figure(plot)) }
                @for process in few { (figure(process)) }
            }
        }
        @if !more.is_empty() {
            details {
                summary { (more.len()) " more processes" }
                div.charts { @for process in more { (figure(process)) } }
            }
        }
        (host_details(host, plots))
    }
}

/// Draws what is folded: tables, and the memory of each GPU by process.
fn host_details(host: &HostRun, plots: &HostPlots) -> Markup {
    let events = table::events(host, MOST_EVENTS);
    let tables = [
        ("Evidence of leaks".to_owned(), table::leaks(host)),
        (
            "Processes that may be left over".to_owned(),
            table::suspects(host),
        ),
        ("GPUs".to_owned(), table::gpus(host)),
        ("Processes".to_owned(), table::processes(host)),
        (format!("Events, in {}", words::time_zone(host)), events),
    ];
    html! {
        h2.details { "Details" }
        @if !plots.gpus.is_empty() {
            details {
                summary { "Memory of each GPU by process (" (plots.gpus.len()) ")" }
                div.charts { @for plot in &plots.gpus { (gpu_figure(plot)) } }
            }
        }
        @for (title, table) in tables.iter().filter(|(_, table)| !table.rows.is_empty()) {
            details {
                summary { (title) " (" (table.rows.len()) ")" }
                (draw_table(table))
            }
        }
    }
}

fn gpu_figure(plot: &Plot) -> Markup {
    html! {
        figure {
            figcaption { b { (plot.title) } }
            (plot.draw_chart())
        }
    }
}

/// Draws the memory of a process below its name, its user, its GPUs, its peak and its growth.
fn process_figure(host: &HostRun, key: ProcessKey, plot: &Plot, hues: &UserHues) -> Markup {
    let Some(process) = host.processes.get(&key) else {
        return html! {};
    };
    let gpus = process
        .gpus
        .iter()
        .filter_map(|uuid| Some(host.gpu(uuid)?.label.as_str()));
    html! {
        figure {
            figcaption {
                span {
                    b { (process.name()) } " PID " (key.id.pid)
                    @if let Some(user) = process.user() { " " (tiles::draw_user(user, hues)) }
                    " GPU " (gpus.collect::<Vec<_>>().join(", "))
                }
                span {
                    @if let Some((_, peak)) = process.memory.peak { "peak " (peak) }
                    @if let Some(growth) = process.curve.growth().filter(|growth| growth.per_hour() > 0.0) {
                        " " (growth)
                    }
                }
            }
            (plot.draw_chart())
        }
    }
}

/// Draws a table whose columns of numbers are right-aligned. On a phone each row becomes a list, in
/// which each cell has its heading before it.
fn draw_table(table: &PageTable) -> Markup {
    let is_number = |column: usize| {
        let mut cells = table.rows.iter().filter_map(|row| row.get(column));
        !table.rows.is_empty() && cells.all(|cell| matches!(cell, PageCell::Number(_)))
    };
    html! {
        table {
            thead {
                tr {
                    @for (column, heading) in table.headings.iter().enumerate() {
                        th scope="col" class=[is_number(column).then_some("n")] { (heading) }
                    }
                }
            }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (cell, heading) in row.iter().zip(&table.headings) {
                            (draw_cell(cell, heading))
                        }
                    }
                }
            }
        }
    }
}

fn draw_cell(cell: &PageCell, heading: &str) -> Markup {
    html! {
        @match cell {
            PageCell::Text(text) => td data-heading=(heading) { (text) },
            PageCell::Number(text) => td.n data-heading=(heading) { (text) },
            PageCell::Code(text) => td data-heading=(heading) { code { (text) } },
            PageCell::Bad(text) => td data-heading=(heading) { span.bad-word { (text) } },
        }
    }
}
