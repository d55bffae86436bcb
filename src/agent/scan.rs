//! The census: who there is on this host, who has a GPU's device file open, and who belongs to whom.
//!
//! It has a thread of its own, which reads only files that cannot block. Mostly it strolls: a few
//! processes a second. At once it looks at all of them when the loop says that something happened:
//! [`Scope`]. It says who; the loop reads what they do.

mod process_table;
mod related;
mod scanner;
#[cfg(test)]
mod tests;
mod unaccounted;

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use self::scanner::Stroll;
pub(super) use self::unaccounted::Unaccounted;
use super::AgentEvent;
use super::procfs::device_files::{DeviceFiles, OpenDeviceFiles};
use crate::base::units::Moment;
use crate::protocol::snapshot::{HostScan, ProcessId};

/// How far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Scope {
    /// A few, in turn.
    #[default]
    Few,
    /// Everyone, and the files of related processes: someone ended, or has another parent.
    Everyone,
    /// Everyone and all their files: memory went to someone unknown, or a person asks.
    Files,
}

/// What the loop asks for with each pass.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Who holds a GPU by the driver's word; absent when they are the same as before.
    pub(super) gpu_processes: Option<Vec<ProcessId>>,
    /// Who was found to belong here by its arguments.
    pub(super) adopted: Vec<ProcessId>,
    /// One was ended then, and whoever has started since may have taken its place. Absent after a while.
    pub(super) ended: Option<Moment>,
    /// How far to look now.
    pub(super) scope: Scope,
}

/// What the census found. Lists are by PID.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    /// How far it has looked.
    pub(super) scan: HostScan,
    /// Every GPU process, holder, and related processes of these.
    pub(super) related: Arc<[ProcessId]>,
    /// Who has which device file open.
    pub(super) device_file_holders: Arc<[(ProcessId, OpenDeviceFiles)]>,
    /// Whose arguments would tell whether it belongs here.
    pub(super) strays: Vec<ProcessId>,
    /// Everyone was looked at.
    pub(super) is_full: bool,
}

/// The thread, seen from the agent's loop.
#[derive(Debug)]
pub(super) struct Census {
    orders: mpsc::Sender<Order>,
}

impl Census {
    /// Starts the thread. It waits for its first order. Without `devices` it looks for related processes only: on the
    /// simulated machine, where this host's GPUs do not count.
    pub(super) fn spawn(devices: Option<DeviceFiles>, events: mpsc::Sender<AgentEvent>) -> io::Result<Self> {
        let (orders, asked) = mpsc::channel::<Order>();
        thread::Builder::new().name("census".to_owned()).spawn(move || {
            let mut stroll = Stroll::new(devices);
            // A scan goes on by itself, and one that was put off begins by itself; otherwise the loop sets the pace.
            let next = |wait: Option<Duration>| match wait.map(|wait| asked.recv_timeout(wait)) {
                None => asked.recv().ok(),
                Some(Ok(order)) => Some(order),
                Some(Err(mpsc::RecvTimeoutError::Timeout)) => Some(Order::default()),
                Some(Err(mpsc::RecvTimeoutError::Disconnected)) => None,
            };
            while let Some(mut order) = next(stroll.next_scan()) {
                // Those that came meanwhile are one with it.
                for later in asked.try_iter() {
                    order.gpu_processes = later.gpu_processes.or(order.gpu_processes);
                    order.adopted.extend(later.adopted);
                    order.ended = later.ended;
                    order.scope = order.scope.max(later.scope);
                }
                if let Some(sighting) = stroll.go(order)
                    && events.send(AgentEvent::Sighted(Box::new(sighting))).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Self { orders })
    }

    /// Gives an order.
    pub(super) fn order(&self, order: Order) {
        // The thread ends only with the loop.
        let _leaving: Result<(), mpsc::SendError<Order>> = self.orders.send(order);
    }
}
