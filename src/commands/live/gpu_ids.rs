//! The GPUs that `-i` chooses, by index, UUID or PCI address.

use crate::base::text::Text;
use crate::commands::live::read_hosts::HostState;
use crate::output::print_error;
use crate::protocol::snapshot::{Gpu, Snapshot};

/// Whether one of the IDs is that of the GPU, or of the GPU that the instance is a part of. Without
/// IDs, all are chosen.
pub(crate) fn is_chosen(snapshot: &Snapshot, gpu: &Gpu, ids: &[String]) -> bool {
    let whole = gpu
        .facts
        .parent
        .as_ref()
        .and_then(|parent| snapshot.gpu(parent))
        .unwrap_or(gpu);
    ids.is_empty() || ids.iter().any(|id| has_id(whole, id.trim()))
}

/// Returns the IDs that no GPU of these hosts has.
pub(crate) fn unknown(snapshots: &[&Snapshot], ids: &[String]) -> Vec<String> {
    let gpus = || {
        snapshots
            .iter()
            .flat_map(|snapshot| &snapshot.gpus)
            .filter(|gpu| gpu.facts.parent.is_none())
    };
    ids.iter()
        .filter(|id| !gpus().any(|gpu| has_id(gpu, id.trim())))
        .cloned()
        .collect()
}

/// Prints the IDs that no GPU of these hosts has. Returns whether there are any; false if no host
/// was read.
pub(crate) fn print_unknown(hosts: &[HostState<'_>], ids: &[String]) -> bool {
    let snapshots: Vec<&Snapshot> = hosts.iter().filter_map(|host| Some(host.seen?.1)).collect();
    let unknown = unknown(&snapshots, ids);
    let is_any = !unknown.is_empty() && !snapshots.is_empty();
    if is_any {
        print_error(&no_such_gpu(&unknown));
    }
    is_any
}

/// Returns the sentence about IDs that no GPU has.
pub(crate) fn no_such_gpu(ids: &[String]) -> Text {
    Text::new(format!("no such GPU here: {}", ids.join(",")))
}

fn has_id(gpu: &Gpu, id: &str) -> bool {
    let bus = gpu.facts.bus_id.as_ref().is_ok_and(|bus| {
        let (bus, id) = (bus.as_str().to_lowercase(), id.to_lowercase());
        // The PCI domain may be left out.
        bus == id
            || bus.ends_with(&format!(":{id}"))
            || bus.trim_start_matches('0') == id.trim_start_matches('0')
    });
    gpu.facts.index.to_string() == id || gpu.uuid.0.as_str() == id || bus
}
