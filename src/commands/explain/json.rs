//! The explanation for a program: one JSON object.

use serde_json::{Value, json};

use super::anatomy::{Me, Sum, Whose};
use super::judge::sentence;
use super::lookup::Neighbours;
use super::message::{Amount, Message};
use super::text::reasons;
use super::{Story, exact};
use crate::commands::report::prose::advice;
use crate::commands::report::table;
use crate::model::on_shortage;
use crate::protocol::snapshot::{Reading, Snapshot};

/// All messages, in order; `more` different ones were found beside these.
pub(super) fn of(stories: &[Story<'_>], more: u64, neighbours: &Neighbours) -> Value {
    json!({
        "schema": Snapshot::SCHEMA,
        "messages": stories.iter().map(|it| story(it, neighbours)).collect::<Vec<_>>(),
        "messages_left_out": more,
    })
}

fn bytes(amount: Option<Amount>) -> Option<u64> {
    amount.map(|it| it.bytes.0)
}

fn said(amount: Option<Reading<Amount>>) -> Option<u64> {
    bytes(amount.and_then(Result::ok))
}

fn sum(sum: Option<Sum>) -> Option<u64> {
    sum.map(|it| it.bytes().0)
}

fn story(story: &Story<'_>, neighbours: &Neighbours) -> Value {
    let message = &story.found.message;
    let (anatomy, shortages) = reasons(message);
    let part = |wanted: Whose| anatomy.parts.iter().find(|(whose, _)| *whose == wanted).map(|(_, part)| *part);
    json!({
        "source": story.source,
        "line": story.found.line,
        "count": story.found.count,
        "ranks": story.found.ranks,
        "backend": message.backend,
        "gpu": message.gpu,
        "is_cut": message.is_cut,
        "requested_bytes": bytes(message.requested),
        "total_bytes": bytes(message.total),
        "free_bytes": bytes(message.free),
        "allocated_bytes": bytes(message.allocated),
        "private_pools_bytes": bytes(message.pools),
        "unallocated_bytes": sum(part(Whose::Unallocated)),
        "reserved_bytes": sum(anatomy.own.filter(|_| message.reserved.is_some() || message.unallocated.is_some())),
        "allowed_bytes": bytes(message.allowed),
        "this_process_bytes": said(message.this_process),
        "this_process_pid": match anatomy.me { Me::As(pid) => Some(pid), Me::Named | Me::Unnamed => None },
        "not_pytorch_bytes": sum(part(Whose::NotPyTorch)),
        "others": others(message, anatomy.me, story, neighbours),
        "others_bytes": sum(anatomy.others),
        "not_accounted_for_bytes": sum(part(Whose::Rest)),
        "rounding_bytes": anatomy.rounding.0,
        "adds_up": anatomy.mismatches.is_empty(),
        "mismatches": anatomy.mismatches.iter().map(|it| json!({
            "claim": it.claim,
            "by_bytes": it.by.bytes().0,
            "rounding_bytes": it.by.slack().0,
            "sentence": format!("{}, by {}; rounding explains up to {}", it.claim, exact(it.by.bytes()), exact(it.by.slack())),
        })).collect::<Vec<_>>(),
        "reason": shortages.first().map(|it| it.name()),
        "reasons": shortages.iter().map(|it| json!({
            "name": it.name(),
            "sentence": sentence(*it, message, &anatomy),
        })).collect::<Vec<_>>(),
        "advice": advice(&on_shortage(&shortages)),
    })
}

fn others(message: &Message, me: Me, story: &Story<'_>, neighbours: &Neighbours) -> Vec<Value> {
    let others = message.others.iter().filter(|(pid, _)| me != Me::As(*pid));
    others
        .map(|(pid, held)| {
            let now = neighbours.process(*pid).map(|(_, process)| {
                json!({
                    "process": process.id,
                    "user": process.facts.user.as_ref().ok(),
                    "command": table::command(process),
                    "verdict": neighbours.verdict(*pid).map(|(name, _)| name),
                    "started_after_the_message": neighbours.is_younger(*pid, story.written),
                })
            });
            json!({ "pid": pid, "memory_bytes": held.ok().map(|it| it.bytes.0), "here_and_now": now })
        })
        .collect()
}
