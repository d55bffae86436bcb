//! The page: one HTML file that needs no network and no script.
//!
//! `maud` escapes every text. The policy in the head forbids scripts and requests even if a text
//! got through.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::Plot;
use super::summary::Summary;
use super::table::{self, PageCell, PageTable};
use super::{PageContent, words};
use crate::logs::recorded_run::HostRun;
use crate::model::Severity;

/// The style sheet. It is gputop's own text, so it is not escaped.
pub(super) const STYLE: &str = include_str!("page.css");

/// Events that are shown at once; more are behind a line that opens them.
const FEW_EVENTS: usize = 25;

/// The most events of a page.
const MOST_EVENTS: usize = 600;

/// Plots of processes that are shown at once.
const FEW_PLOTS: usize = 8;

/// Returns the page.
pub(super) fn page(content: &PageContent<'_>) -> String {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("gputop ", env!("CARGO_PKG_VERSION")));
                title { (content.summary.headline) " – gputop" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (summary(&content.summary))
                    @if let Some((name, table)) = &content.comparison {
                        h2 { "Compared with " (name) }
                        (draw_table(table))
                    }
                    @for (host, plots) in &content.hosts {
                        (host_section(host, plots, content.hosts.len() > 1))
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

fn summary(summary: &Summary) -> Markup {
    html! {
        header {
            p.sub { "gputop report" }
            h1 { (summary.headline) }
            ul.summary {
                @for sentence in &summary.sentences {
                    li class=(class(sentence.severity)) { (sentence.text) }
                }
            }
        }
    }
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "bad",
        Severity::Notable => "notable",
        Severity::Fine | Severity::Unknown => "",
    }
}

fn host_section(host: &HostRun, plots: &super::HostPlots, has_many: bool) -> Markup {
    let findings = [
        table::leaks(host),
        table::tensor_leaks(host),
        table::suspects(host),
    ];
    let events = table::events(host, MOST_EVENTS);
    html! {
        @if has_many { h2 { "Host " (host.name) } }
        @if let Some(lead) = &plots.lead { (figure(lead)) }
        @for found in findings.iter().chain([&plots.ooms]).filter(|table| !table.rows.is_empty()) {
            h2 { (found.title) }
            (draw_table(found))
        }
        h2 { "Memory of each GPU" }
        (draw_table(&table::gpus(host)))
        @for plot in &plots.gpus { (figure(plot)) }
        @if !plots.processes.is_empty() {
            h2 { "Memory of each process" }
            @for plot in plots.processes.iter().take(FEW_PLOTS) { (figure(plot)) }
            @if plots.processes.len() > FEW_PLOTS {
                details {
                    summary { (plots.processes.len() - FEW_PLOTS) " more processes" }
                    @for plot in plots.processes.iter().skip(FEW_PLOTS) { (figure(plot)) }
                }
            }
        }
        @if !host.processes.is_empty() {
            h2 { "Processes" }
            (draw_table(&table::processes(host)))
        }
        @if !events.rows.is_empty() {
            h2 { "Events" }
            @if events.rows.len() > FEW_EVENTS {
                details {
                    summary { (events.rows.len()) " events, in " (words::time_zone(host)) }
                    (draw_table(&events))
                }
            } @else {
                (draw_table(&events))
            }
        }
    }
}

fn figure(plot: &Plot) -> Markup {
    html! {
        figure {
            h3 { (plot.title) }
            div.scroll { (plot.draw()) }
        }
    }
}

/// Draws a table whose columns of numbers are right-aligned.
fn draw_table(table: &PageTable) -> Markup {
    let is_number = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column));
        cells.clone().count() > 0
            && cells
                .clone()
                .all(|cell| matches!(cell, PageCell::Number(_)))
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.title) {
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
                            @for cell in row { (draw_cell(cell)) }
                        }
                    }
                }
            }
        }
    }
}

fn draw_cell(cell: &PageCell) -> Markup {
    /// Shorter texts stay on one line.
    const LONG: usize = 30;
    html! {
        @match cell {
            PageCell::Text(text) => td class=[(text.len() > LONG).then_some("words")] { (text) },
            PageCell::Number(text) => td.n { (text) },
            PageCell::Code(text) => td.code { code { (text) } },
            PageCell::Bad(text) => td { span.bad-word { (text) } },
        }
    }
}
