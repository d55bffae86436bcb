//! The last lines of the text: the command that shows more, and what to do after a leak.

use super::judged::JudgedSeries;
use super::log::AnalyzedLog;
use super::summary::SeriesRank;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::LeakVerdict;
use crate::output::StyledText;

/// Returns the command that describes each series, for a shell: `gputop analyze --all memory.csv`.
/// Returns `--all` alone if the logs cannot be named in a short command.
pub(super) fn command_for_all(logs: &[(Text, AnalyzedLog)]) -> String {
    /// Longer commands are not printed.
    const LONGEST: usize = 70;
    const OPTION: &str = "--all";
    let is_plain = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-+:,@%=".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with('-')
    };
    let capacity = logs.iter().find_map(|(_, log)| log.given_capacity);
    let capacity = capacity.map(|capacity| format!("--capacity {}", exact(capacity)));
    let mut words: Vec<String> = [format!("gputop analyze {OPTION}")]
        .into_iter()
        .chain(capacity)
        .collect();
    for (name, _) in logs {
        let name = name.as_str();
        if is_plain(name) {
            words.push(name.to_owned());
        } else if name.contains(['\'', '\u{fffd}', '\n']) || name == STANDARD_INPUT {
            return OPTION.to_owned();
        } else {
            words.push(format!("'{name}'"));
        }
    }
    let command = words.join(" ");
    if command.chars().count() <= LONGEST {
        command
    } else {
        OPTION.to_owned()
    }
}

/// The name of a log that was read from the standard input.
pub(super) const STANDARD_INPUT: &str = "standard input";

/// Returns an amount as `--capacity` reads it, without rounding.
fn exact(bytes: Bytes) -> String {
    match bytes.0 {
        count if count % (1 << 30) == 0 => format!("{}GiB", count >> 30),
        count if count % (1 << 20) == 0 => format!("{}MiB", count >> 20),
        count => format!("{count}B"),
    }
}

/// Said where nothing grew, and a log does not tell what tensors hold.
const UNSEEN_LEAK: &str = "A leak that is still smaller than PyTorch's cache does not show in these figures. What \
     tensors hold does:";

/// Adds what to do next if something leaked or is suspect.
pub(super) fn add(text: &mut StyledText, logs: &[(Text, AnalyzedLog)]) {
    let grown = || {
        logs.iter()
            .flat_map(|(_, log)| &log.series)
            .filter(|judged| has_grown(judged))
    };
    if grown().next().is_none() {
        let series = || logs.iter().flat_map(|(_, log)| &log.series);
        if series().next().is_some() && series().all(|judged| judged.allocated.is_empty()) {
            text.gap();
            text.paragraph(0, format_args!("{UNSEEN_LEAK}"));
            text.line("      gputop run -- python train.py");
        }
        return;
    }
    text.gap();
    text.line("Next:");
    // Commands have lines of their own: they are to be copied, so they are not wrapped.
    let mut step = |step: &str, commands: &[&str]| {
        text.paragraph(2, format_args!("- {step}:"));
        for command in commands {
            text.line(format_args!("      {command}"));
        }
    };
    if grown().any(|judged| judged.verdict() == LeakVerdict::Leak) {
        step(
            "If the job ran out of memory, its output says what held the memory",
            &["gputop explain OUTPUT.log"],
        );
    }
    if grown().all(|judged| judged.series.pid.is_none()) {
        step(
            "This log does not name processes. Record them when the job runs again, to learn which one grows",
            &["gputop record -o run.zst", "gputop analyze run.zst"],
        );
    }
    step(
        "To see which tensors grow, start your job with gputop, and keep `gputop` open in another terminal; it also \
         warns before memory runs out",
        &["gputop run -- python train.py"],
    );
}

/// Whether a series leaked or is suspect at the end.
pub(super) fn has_grown(judged: &JudgedSeries) -> bool {
    matches!(
        SeriesRank::of(judged),
        SeriesRank::Leaked | SeriesRank::Suspect
    )
}
