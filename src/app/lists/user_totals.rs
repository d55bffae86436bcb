//! The sums of each user's processes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::HostModel;
use crate::output::labels::{program, short_amount};

/// The processes and the memory of one user on a host.
#[derive(Debug, Default)]
pub(crate) struct UserTotals {
    pub(crate) gpus: BTreeSet<usize>,
    pub(crate) processes: usize,
    memory: Bytes,
    /// Whether the memory of some process is not known: the user holds more.
    is_lower_bound: bool,
    /// The use of the multiprocessors of all its GPUs, in percent of one GPU; `None` where no use
    /// is known.
    pub(crate) sm: Option<f32>,
    pub(crate) programs: BTreeSet<String>,
}

impl UserTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.gpus.extend(&other.gpus);
        self.processes += other.processes;
        self.memory = self.memory + other.memory;
        self.is_lower_bound |= other.is_lower_bound;
        if let Some(sm) = other.sm {
            self.sm = Some(self.sm.unwrap_or(0.0) + sm);
        }
    }

    /// The memory of the user: `≥61.0G` where that of a process is not known, `?` where none is.
    pub(crate) fn held(&self) -> String {
        match (self.is_lower_bound, self.memory) {
            (true, Bytes(0)) => "?".to_owned(),
            (true, known) => format!("≥{}", short_amount(known)),
            (false, known) => short_amount(known),
        }
    }
}

/// Returns the users of a host, the one who holds most memory first.
pub(crate) fn user_totals(model: &HostModel) -> Vec<(Text, UserTotals)> {
    let mut users: BTreeMap<Text, UserTotals> = BTreeMap::new();
    let Some(snapshot) = model.latest() else {
        return Vec::new();
    };
    for total in model.process_totals() {
        let Some(process) = snapshot.process(total.process) else {
            continue;
        };
        let Ok(name) = &process.facts.user else {
            continue;
        };
        let user = users.entry(name.clone()).or_default();
        user.gpus.extend(&total.gpus);
        user.processes += 1;
        user.programs.insert(program(process));
        match total.memory {
            Ok(memory) => {
                user.memory = user.memory + memory.bytes;
                user.is_lower_bound |= memory.is_lower_bound;
            }
            Err(_) => user.is_lower_bound = true,
        }
        if let Ok(sm) = total.sm {
            user.sm = Some(user.sm.unwrap_or(0.0) + sm.value());
        }
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by_key(|(_, totals)| Reverse(totals.memory));
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fleet;
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::Missing;
    use crate::protocol::snapshot::example::host;

    /// The memory of the only user of a host.
    fn memory_shown(is_known: bool) -> String {
        let mut host = host(1).with(7, "python a.py", 0, Bytes::from_gib(12)).with(
            8,
            "python b.py",
            0,
            Bytes::from_gib(3),
        );
        if !is_known {
            for process in &mut host.gpus[0].processes {
                process.memory = Err(Missing::Unsupported);
            }
        }
        let mut fleet = Fleet::default();
        fleet
            .apply(HostKey::FIRST, Line::Full(Box::new(host)))
            .unwrap();
        let (_, model) = fleet.hosts().next().unwrap();
        let users = user_totals(model);
        assert_eq!(users.len(), 1);
        users.iter().map(|(_, totals)| totals.held()).collect()
    }

    #[test]
    fn unknown_memory_of_a_user_is_not_none() {
        assert_eq!([true, false].map(memory_shown), ["15.0G", "?"]);
    }
}
