//! The past of a host, as a file of an earlier viewer or of a recorder holds it.

use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::protocol::checkpoint::Checkpoint;

/// The past of a host, as a file holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The file.
    pub path: Text,
    /// The boot that the past is from. The times and PIDs of another boot mean nothing.
    pub boot_id: Text,
    /// The wall clock of the host at the end of the past, in milliseconds since 1970 (UTC).
    pub unix_ms: u64,
    /// When the last viewer of this host ended, by the same clock; `None` if only a recorder wrote.
    pub last_look_ms: Option<u64>,
    /// The state at the end of the past.
    pub checkpoint: Checkpoint,
}
