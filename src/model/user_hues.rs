//! The colours of users: a hue for each name, so that one sees across the room whose memory it is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::protocol::snapshot::Snapshot;

/// One of the hues for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct UserHue(u8);

impl UserHue {
    /// The number of hues.
    const COUNT: u8 = 8;

    /// The number of hues on a terminal with sixteen colours. The first users get these.
    const IN_SIXTEEN: u8 = 4;

    /// The place of the hue in a palette.
    pub(crate) fn place(self) -> usize {
        usize::from(self.0 % Self::COUNT)
    }

    /// The place of the hue on a terminal with sixteen colours; `None` where it has none.
    pub(crate) fn sixteen(self) -> Option<usize> {
        (self.0 < Self::IN_SIXTEEN).then_some(usize::from(self.0))
    }
}

/// The hue of each user that was seen on a host. From the ninth on, a user has none. Checkpoints
/// hold the hues, so that a host's history in the state folder and recordings keep them.
///
/// The name chooses the hue, so that it is the same on every host and every day. Where two names
/// choose the same one, the user who was seen later gets the next free one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct UserHues {
    by_name: BTreeMap<Text, UserHue>,
}

impl UserHues {
    /// Returns the hue of a user; `None` for a user whom no hue was left for.
    pub(crate) fn hue(&self, name: &Text) -> Option<UserHue> {
        self.by_name.get(name).copied()
    }

    /// Gives a hue to each user of the host's GPUs who has none yet, as long as there are some.
    /// Users who are seen at the same time get theirs in the order of their names.
    pub(super) fn learn(&mut self, snapshot: &Snapshot) {
        if self.by_name.len() >= usize::from(UserHue::COUNT) {
            return;
        }
        let processes = snapshot
            .gpus
            .iter()
            .flat_map(|gpu| &gpu.processes)
            .filter_map(|listed| snapshot.process(listed.process));
        let unknown: BTreeSet<&Text> = processes
            .filter_map(|process| process.facts.user.as_ref().ok())
            .filter(|name| !self.by_name.contains_key(*name))
            .collect();
        for name in unknown {
            self.add(name.clone());
        }
    }

    /// Takes over the hues of a host's users, of those who have none here.
    pub(crate) fn adopt(&mut self, of_host: &Self) {
        for (name, hue) in &of_host.by_name {
            if !self.by_name.contains_key(name) {
                self.by_name.insert(name.clone(), *hue);
            }
        }
    }

    /// Gives a hue to a user who has none yet, as long as there are some.
    pub(crate) fn give(&mut self, name: &Text) {
        if self.by_name.len() < usize::from(UserHue::COUNT) && !self.by_name.contains_key(name) {
            self.add(name.clone());
        }
    }

    /// The hues of users who are seen in this order.
    #[cfg(test)]
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hues = Self::default();
        for name in names {
            hues.add(name.into());
        }
        hues
    }

    fn add(&mut self, name: Text) {
        // The hues that every terminal shows are given first.
        let first = fnv(name.as_str()) % UserHue::IN_SIXTEEN;
        let shown_everywhere =
            (0..UserHue::IN_SIXTEEN).map(|step| (first + step) % UserHue::IN_SIXTEEN);
        let free = shown_everywhere
            .chain(UserHue::IN_SIXTEEN..UserHue::COUNT)
            .map(UserHue)
            .find(|hue| !self.by_name.values().any(|taken| taken == hue));
        if let Some(hue) = free {
            self.by_name.insert(name, hue);
        }
    }
}

/// Returns a hash of a name that is the same in every version of gputop: FNV-1a, folded into eight
/// bits.
fn fnv(name: &str) -> u8 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash.to_be_bytes()
        .into_iter()
        .fold(0, |fold, byte| fold ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_chooses_the_hue_whoever_else_is_there() {
        let alone = UserHues::of(["alice"]).hue(&"alice".into());
        assert!(alone.is_some());
        let first = UserHues::of(["alice", "bob", "carol", "dave"]);
        assert_eq!(first.hue(&"alice".into()), alone);
    }

    #[test]
    fn eight_users_have_eight_hues_and_the_first_four_on_every_terminal() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let hues = UserHues::of(names);
        let of = |name: &str| hues.hue(&name.into());
        let all: BTreeSet<_> = names.iter().filter_map(|name| of(name)).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(of("i"), None, "the ninth is neutral");
        let everywhere = names[..4].iter().filter_map(|name| of(name)?.sixteen());
        assert_eq!(everywhere.collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(of("e").and_then(UserHue::sixteen), None);
    }
}
