//! The explanation as one JSON object.

use serde_json::{Value, json};

use super::breakdown::{MemoryOwner, WriterName};
use super::error_finder::{AftermathLine, UnknownLine};
use super::events::LogEvent;
use super::message::RoundedAmount;
use super::message_finder::LogRank;
use super::other_processes::OtherProcesses;
use super::program::Program;
use super::reason_sentence::sentence;
use super::scan::RecoveredFailure;
use super::text::MOST_UNKNOWN;
use super::{ExplainedEvent, ExplainedMessage, LogSource, exact};
use crate::base::units::Bytes;
use crate::model::Verdict;
use crate::output::{advice_json, table};
use crate::protocol::snapshot::Snapshot;

pub(super) fn to_json(
    events: &[ExplainedEvent<'_>],
    sources: &[LogSource],
    processes: &OtherProcesses,
) -> Value {
    let left_out: u64 = sources.iter().map(|source| source.log.left_out).sum();
    let aftermath = sources.iter().flat_map(|source| {
        let line = |line: &AftermathLine| {
            json!({
                "source": source.name,
                "line": line.line,
                "ranks": LogRank::global(&line.ranks),
                "local_ranks": LogRank::local(&line.ranks),
                "sentence": line.sentence,
            })
        };
        source.log.aftermath.iter().map(line).collect::<Vec<_>>()
    });
    let unknown = sources.iter().flat_map(|source| {
        let line = |unknown: &UnknownLine| json!({ "source": source.name, "line": unknown.line, "text": unknown.text });
        source.log.unknown.iter().take(MOST_UNKNOWN).map(line).collect::<Vec<_>>()
    });
    let recovered = sources.iter().flat_map(|source| {
        let line = |failure: &RecoveredFailure| {
            json!({ "source": source.name, "line": failure.line, "continued_line": failure.continued })
        };
        source.log.recovered.iter().map(line).collect::<Vec<_>>()
    });
    let unread = sources.iter().filter_map(|source| {
        source.unread.as_ref().map(
            |reason| json!({ "source": source.name, "lines": source.log.lines, "reason": reason }),
        )
    });
    json!({
        "schema": Snapshot::SCHEMA,
        "messages": events.iter().map(|event| event_json(event, processes)).collect::<Vec<_>>(),
        "messages_left_out": left_out,
        "aftermath": aftermath.collect::<Vec<_>>(),
        "unrecognised_lines": unknown.collect::<Vec<_>>(),
        "recovered_lines": recovered.collect::<Vec<_>>(),
        "unread": unread.collect::<Vec<_>>(),
    })
}

/// Returns the fields that all events have, and those of a message.
fn event_json(explained: &ExplainedEvent<'_>, processes: &OtherProcesses) -> Value {
    let event = explained.event;
    let mut json = json!({
        "cause": event.cause(),
        "is_consequence": explained.is_consequence,
        "source": explained.log.name,
        "line": event.line(),
        "count": event.count(),
        "ranks": LogRank::global(event.ranks()),
        "local_ranks": LogRank::local(event.ranks()),
        "program": explained.log.log.program.map(Program::name),
        "advice": advice_json(&explained.advice),
    });
    let more = match (event, &explained.message) {
        (LogEvent::Error(found), _) => json!({
            "title": found.title,
            "sentence": found.sentence,
            "excerpt": found.excerpt,
            "backend": found.backend,
            "reason": null,
        }),
        (LogEvent::Message(_), Some(message)) => message_json(message, explained.log, processes),
        (LogEvent::Message(_), None) => Value::Null,
    };
    if let (Value::Object(json), Value::Object(mut more)) = (&mut json, more) {
        json.append(&mut more);
    }
    json
}

fn message_json(
    explained: &ExplainedMessage<'_>,
    log: &LogSource,
    processes: &OtherProcesses,
) -> Value {
    let (message, breakdown) = (&explained.found.message, &explained.breakdown);
    let bytes = |amount: Option<RoundedAmount>| amount.map(RoundedAmount::bytes);
    let part = |owner: MemoryOwner| breakdown.part(owner).map(RoundedAmount::bytes);
    let has_reserved = message.reserved.is_some() || message.unallocated.is_some();
    let contradictions = breakdown.contradictions.iter().map(|contradiction| {
        let (by, slack) = (contradiction.by.bytes(), contradiction.by.slack_bytes());
        json!({
            "claim": contradiction.claim,
            "difference_bytes": by,
            "rounding_bytes": slack,
            "sentence":
                format!("{}, by {}; rounding explains up to {}", contradiction.claim, exact(by), exact(slack)),
        })
    });
    let reasons = explained
        .shortages
        .iter()
        .map(|shortage| json!({ "name": shortage.name(), "sentence": sentence(*shortage, message, breakdown) }));
    json!({
        "backend": message.backend,
        "gpu": message.gpu,
        "is_truncated": message.is_cut,
        "requested_bytes": bytes(message.requested),
        "total_bytes": bytes(message.total),
        "free_bytes": bytes(message.free),
        "allocated_bytes": bytes(message.allocated),
        "private_pools_bytes": bytes(message.pools),
        "unallocated_bytes": part(MemoryOwner::Unallocated),
        "reserved_bytes": breakdown.own.filter(|_| has_reserved).map(RoundedAmount::bytes),
        "allowed_bytes": bytes(message.allowed),
        "this_process_bytes": bytes(message.this_process.and_then(Result::ok)),
        "this_process_pid": match breakdown.writer { WriterName::HostPid(pid) => Some(pid), _ => None },
        "not_pytorch_bytes": part(MemoryOwner::NotPyTorch),
        "other_processes": others(explained, log, processes),
        "other_processes_bytes": breakdown.others.map(RoundedAmount::bytes),
        "unaccounted_bytes": part(MemoryOwner::Rest),
        "rounding_bytes": breakdown.rounding,
        "adds_up": breakdown.contradictions.is_empty(),
        "contradictions": contradictions.collect::<Vec<_>>(),
        "reason": explained.shortages.first().map(|shortage| shortage.name()),
        "reasons": reasons.collect::<Vec<_>>(),
        "sentence": explained.shortages.first().map(|shortage| sentence(*shortage, message, breakdown)),
    })
}

fn others(
    explained: &ExplainedMessage<'_>,
    log: &LogSource,
    processes: &OtherProcesses,
) -> Vec<Value> {
    let writer = explained.breakdown.writer;
    let others = explained
        .found
        .message
        .others
        .iter()
        .filter(|(pid, _)| writer != WriterName::HostPid(*pid));
    others
        .map(|(pid, held)| {
            let now = processes.find(*pid).map(|(_, process)| {
                json!({
                    "start_ticks": process.id.start_ticks,
                    "user": process.facts.user.as_ref().ok(),
                    "command": table::command(process),
                    "verdict": processes.verdict_on(*pid).map(Verdict::name),
                    "started_after_message": processes.started_after(*pid, log.written),
                })
            });
            let bytes: Option<Bytes> = held.ok().map(RoundedAmount::bytes);
            json!({ "pid": pid, "memory_used_bytes": bytes, "running_process": now })
        })
        .collect()
}
