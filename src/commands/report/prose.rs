//! What programs and people get of the same text: broken into lines, and what to try.

use serde_json::{Value, json};

pub(crate) use crate::app::wrap;
use crate::model::Advice;

/// What to try, the most likely first. The names never change.
pub(crate) fn advice(texts: &[Advice]) -> Value {
    let one = |it: &Advice| json!({ "name": it.name, "title": it.title(), "text": it.paragraphs().join("\n") });
    texts.iter().map(one).collect()
}
