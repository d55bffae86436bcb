//! The order of the hosts in the fleet view.

use std::cmp::Reverse;

use strum::VariantArray;

use crate::model::{GpuState, HostOverview, TroubleRank};

/// The figure that the hosts are sorted by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, VariantArray, strum::Display, strum::IntoStaticStr,
)]
pub(crate) enum HostSort {
    #[default]
    #[strum(serialize = "name")]
    Name,
    /// The most free GPUs first.
    #[strum(serialize = "free GPUs")]
    Free,
    /// The most memory in use first.
    #[strum(serialize = "memory")]
    Memory,
    #[strum(serialize = "SM use")]
    Sm,
    #[strum(serialize = "power")]
    Power,
    /// The most urgent trouble first.
    #[strum(serialize = "trouble")]
    Trouble,
}

/// The place of a host in a sort order: whether the figure is unknown, and the figure.
pub(in crate::app) type HostSortKey = (bool, Reverse<u64>);

impl HostSort {
    /// The order so many places further.
    pub(in crate::app) fn neighbour(self, by: isize) -> Self {
        let orders = Self::VARIANTS;
        let place = orders.iter().position(|order| *order == self).unwrap_or(0);
        let count = orders.len().cast_signed();
        orders[(place.cast_signed() + by).rem_euclid(count).cast_unsigned()]
    }

    /// The key of a host. Hosts without the figure come last.
    pub(super) fn key(
        self,
        overview: Option<&HostOverview>,
        worst: Option<TroubleRank>,
    ) -> HostSortKey {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a percentage or watts, never below 0"
        )]
        let whole = |value: f32| value.round() as u64;
        let figure = overview.and_then(|overview| match self {
            Self::Name | Self::Trouble => None,
            Self::Free => Some(overview.count(GpuState::Free) as u64),
            Self::Memory => overview.memory_used.ok().map(|total| total.bytes.0),
            Self::Sm => overview.sm.map(|sm| whole(sm.value())),
            Self::Power => overview.power.map(whole),
        });
        let figure = if self == Self::Trouble {
            worst.map(|rank| u64::MAX - rank as u64)
        } else {
            figure
        };
        (figure.is_none(), Reverse(figure.unwrap_or(0)))
    }
}

/// A key by which `gpu-9` comes before `gpu-10`: the text before each number, and the number.
pub(in crate::app) fn natural_order(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text_end = rest
            .find(|letter: char| letter.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, after) = rest.split_at(text_end);
        let number_end = after
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, after) = after.split_at(number_end);
        parts.push((text.to_lowercase(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_numbers_are_in_the_order_of_the_numbers() {
        let mut names = [
            "gpu-10", "GPU-9", "a", "gpu-10b", "gpu-010", "gpu", "n1-2", "n1-10",
        ];
        names.sort_by_key(|name| natural_order(name));
        let expected = [
            "a", "gpu", "GPU-9", "gpu-10", "gpu-010", "gpu-10b", "n1-2", "n1-10",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_orders_go_round() {
        let mut order = HostSort::Name;
        for _ in HostSort::VARIANTS {
            order = order.neighbour(1);
        }
        assert_eq!(order, HostSort::Name);
        assert_eq!(HostSort::Name.neighbour(-1), HostSort::Trouble);
    }
}
