//! The users whose memory growth raises alerts: on a shared host, the growth of another user's job
//! on another GPU is not the user's trouble.

use std::collections::HashSet;

use crate::model::{GpuOrProcess, HostModel};
use crate::protocol::snapshot::{Gpu, Process, Snapshot};

/// The users whose memory growth raises alerts. Growth on a GPU that the user's own processes share
/// always does, since it can end them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AlertScope {
    /// The user's growth, and everyone's where all GPU processes belong to one user.
    #[default]
    Shared,
    /// The user's growth only.
    Mine,
    /// The growth of the user of this name only.
    User(String),
    /// The growth of everyone.
    Everyone,
}

impl AlertScope {
    /// Whether growth of the subject raises alerts. Growth of an unknown user does.
    pub(crate) fn includes(
        &self,
        model: &HostModel,
        snapshot: &Snapshot,
        subject: &GpuOrProcess,
    ) -> bool {
        /// The UID of root, who answers for the processes of everyone.
        const ROOT: u32 = 0;
        let is_root = !matches!(self, Self::User(_)) && snapshot.host.facts.uid == ROOT;
        if is_root || *self == Self::Everyone {
            return true;
        }
        let gpus: Vec<&Gpu> = match subject {
            GpuOrProcess::Process(id) => {
                let places = model
                    .process_total(*id)
                    .map(|total| total.gpus.as_slice())
                    .unwrap_or_default();
                snapshot.gpus_at(places).collect()
            }
            GpuOrProcess::Gpu(uuid) => snapshot.gpu(uuid).into_iter().collect(),
        };
        let owners: Vec<Option<bool>> = processes(snapshot, &gpus)
            .map(|process| self.owns(snapshot, process))
            .collect();
        let is_of_others = match subject {
            GpuOrProcess::Process(id) => snapshot
                .process(*id)
                .is_some_and(|process| self.owns(snapshot, process) == Some(false)),
            GpuOrProcess::Gpu(_) => {
                !owners.is_empty() && owners.iter().all(|is_own| *is_own == Some(false))
            }
        };
        let has_own = owners.contains(&Some(true));
        !is_of_others || has_own || *self == Self::Shared && !has_several_users(snapshot)
    }

    /// Whether the process belongs to the user of the scope; `None` if its user is unknown.
    fn owns(&self, snapshot: &Snapshot, process: &Process) -> Option<bool> {
        match self {
            Self::User(name) => process
                .facts
                .user
                .as_ref()
                .ok()
                .map(|user| user.as_str().eq_ignore_ascii_case(name)),
            Self::Shared | Self::Mine | Self::Everyone => process
                .facts
                .uid
                .ok()
                .map(|uid| uid == snapshot.host.facts.uid),
        }
    }
}

/// Returns the listed processes on these GPUs.
fn processes<'a>(snapshot: &'a Snapshot, gpus: &[&'a Gpu]) -> impl Iterator<Item = &'a Process> {
    gpus.iter()
        .flat_map(|gpu| &gpu.processes)
        .filter_map(|gpu_process| snapshot.process(gpu_process.process))
}

/// Whether processes of more than one user hold GPU memory.
fn has_several_users(snapshot: &Snapshot) -> bool {
    let gpus: Vec<&Gpu> = snapshot.gpus.iter().collect();
    let users: HashSet<u32> = processes(snapshot, &gpus)
        .filter_map(|process| process.facts.uid.ok())
        .collect();
    users.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::event::{Effect, Event};
    use crate::app::{App, AppOptions};
    use crate::base::units::Bytes;
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::{Missing, example};

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;

    /// A host with two GPUs and one process on each GPU, of these users. gputop runs as alice.
    fn host(users: [(u32, &str); 2]) -> HostModel {
        let mut host = example::host(2);
        for (place, (uid, name)) in users.into_iter().enumerate() {
            let (pid, gpu) = if place == 0 { (100, 0) } else { (101, 1) };
            host = host.with(pid, "python train.py", gpu, Bytes::from_gib(1));
            let facts = host.processes[place].facts_mut();
            (facts.uid, facts.user) = (Ok(uid), Ok(name.into()));
        }
        model(host)
    }

    fn model(snapshot: Snapshot) -> HostModel {
        let mut model = HostModel::default();
        model.replace(snapshot);
        model
    }

    /// Whether growth of the process on each GPU raises alerts.
    fn included(scope: &AlertScope, model: &HostModel) -> [bool; 2] {
        let snapshot = model.latest().unwrap();
        [0, 1].map(|place| {
            let process = GpuOrProcess::Process(snapshot.gpus[place].processes[0].process);
            let included = scope.includes(model, snapshot, &process);
            // The only process of a GPU stands for the GPU.
            let gpu = GpuOrProcess::Gpu(snapshot.gpus[place].uuid.clone());
            assert_eq!(scope.includes(model, snapshot, &gpu), included);
            included
        })
    }

    #[test]
    fn growth_of_another_user_on_another_gpu_raises_no_alert() {
        let bob = || AlertScope::User("Bob".to_owned());
        let (shared, mine) = (AlertScope::Shared, AlertScope::Mine);
        let both = host([(ALICE, "alice"), (BOB, "bob")]);
        assert_eq!(included(&shared, &both), [true, false]);
        assert_eq!(included(&mine, &both), [true, false]);
        assert_eq!(included(&bob(), &both), [false, true]);
        // With one user only, nobody shares the host.
        let one = host([(BOB, "bob"), (BOB, "bob")]);
        assert_eq!(included(&shared, &one), [true, true]);
        assert_eq!(included(&mine, &one), [false, false]);
        assert_eq!(included(&bob(), &one), [true, true]);
    }

    #[test]
    fn growth_of_another_user_beside_my_process_raises_an_alert() {
        let mut both = host([(ALICE, "alice"), (BOB, "bob")])
            .latest()
            .unwrap()
            .clone();
        let mine = both.gpus[0].processes[0].clone();
        both.gpus[1].processes.push(mine);
        let both = model(both);
        for scope in [AlertScope::Shared, AlertScope::Mine] {
            let snapshot = both.latest().unwrap();
            let process = GpuOrProcess::Process(snapshot.gpus[1].processes[0].process);
            assert!(scope.includes(&both, snapshot, &process), "{scope:?}");
        }
    }

    /// Returns how many alerts an app of alice raises while the process of bob leaks for two hours.
    fn alerts_on_leak_of_bob(alert_scope: AlertScope) -> usize {
        let mut app = App::new(AppOptions {
            alert_scope,
            ..AppOptions::default()
        });
        let mut snapshot = host([(ALICE, "alice"), (BOB, "bob")])
            .latest()
            .unwrap()
            .clone();
        let mut alerts = 0;
        for _ in 0..720 {
            snapshot = snapshot.later(10);
            let memory = snapshot.gpus[1].processes[0].memory.as_mut().unwrap();
            memory.0 += 80 << 20;
            snapshot.gpus[1].load.memory_used = Ok(*memory);
            let line = Line::Full(Box::new(snapshot.clone()));
            if let Some(Effect::Alert(raised)) =
                app.update(Event::Line(HostKey::FIRST, Box::new(line)))
            {
                alerts += raised.len();
            }
        }
        alerts
    }

    #[test]
    fn the_scope_decides_whether_an_alert_is_raised() {
        assert_eq!(alerts_on_leak_of_bob(AlertScope::Shared), 0);
        assert_eq!(alerts_on_leak_of_bob(AlertScope::Mine), 0);
        assert_ne!(alerts_on_leak_of_bob(AlertScope::User("bob".to_owned())), 0);
    }

    #[test]
    fn everything_concerns_root_and_an_unknown_user_may_be_me() {
        let mut snapshot = host([(ALICE, "alice"), (BOB, "bob")])
            .latest()
            .unwrap()
            .clone();
        let as_alice = snapshot.clone();
        snapshot.host.facts.uid = 0;
        let as_root = model(snapshot);
        assert_eq!(included(&AlertScope::Mine, &as_root), [true, true]);
        assert_eq!(
            included(&AlertScope::User("bob".to_owned()), &as_root),
            [false, true]
        );
        let mut unknown = as_alice;
        let facts = unknown.processes[1].facts_mut();
        (facts.uid, facts.user) = (Err(Missing::Denied), Err(Missing::Denied));
        assert_eq!(included(&AlertScope::Mine, &model(unknown)), [true, true]);
    }
}
