//! Advice against a leak, on the page of its process or GPU.

use super::Writer;
use crate::model::{GpuOrProcess, HostModel};

/// Writes advice against a leak, the most likely cause first.
pub(super) fn advise(writer: &mut Writer, model: &HostModel, subject: &GpuOrProcess) {
    let advice = model.advice(subject);
    if advice.is_empty() {
        return;
    }
    writer.head("What to try, the most likely first: memory alone cannot tell which it is");
    for (number, advice) in (1..).zip(&advice) {
        writer.field(&format!("{number}."), advice.title());
        advice
            .paragraphs()
            .iter()
            .for_each(|paragraph| writer.field("", paragraph));
    }
    writer.head("And besides");
}
