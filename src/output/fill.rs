//! The meanings of filled areas, each with its colour, on the screen and on the page of a report.

use super::palette::{Palette, Rgb};
use crate::model::{TensorLayer, UserHue};

/// The meaning of a filled area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Memory in use by tensors, or memory in use whose parts are not known.
    Allocated,
    /// Memory that PyTorch keeps without a tensor in it.
    Unallocated,
    /// Memory outside of PyTorch, and unaccounted memory.
    Other,
    /// Use of the multiprocessors.
    Busy,
    /// One of several layers that are drawn above each other.
    Layer(usize),
    /// Memory of a user.
    User(Option<UserHue>),
    /// Memory of one of several processes of a user: each has a shade of the user's hue.
    Process(Option<UserHue>, u8),
}

impl Fill {
    /// The number of layers that have fills of their own.
    pub(crate) const LAYERS: usize = 6;

    /// The number of shades of a user's hue.
    pub(crate) const SHADES: u8 = 3;

    /// The fill of a layer of PyTorch's memory.
    pub(crate) fn of_layer(layer: TensorLayer) -> Self {
        match TensorLayer::ALL.iter().position(|other| *other == layer) {
            Some(at) if layer != TensorLayer::Unallocated => Self::Layer(at),
            _ => Self::Unallocated,
        }
    }

    /// Returns the colour of the area.
    pub(crate) fn colour(self, palette: &Palette) -> Rgb {
        match self {
            Self::Allocated => palette.allocated,
            Self::Unallocated => palette.unallocated,
            Self::Other => palette.other,
            Self::Busy => palette.busy,
            Self::Layer(layer) => palette.layers[layer % Self::LAYERS],
            Self::User(Some(hue)) => palette.users[hue.place()],
            Self::User(None) => palette.dim,
            Self::Process(hue, shade) => Self::User(hue)
                .colour(palette)
                .towards(palette.background, 0.22 * f64::from(shade % Self::SHADES)),
        }
    }
}
