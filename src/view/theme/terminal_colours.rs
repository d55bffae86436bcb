//! Converts the colours of a palette to those that a terminal shows.

use ratatui::style::Color;

use crate::output::palette::Rgb;

impl Rgb {
    pub(super) fn in_24_bits(self) -> Color {
        let [red, green, blue] = self.channels();
        Color::Rgb(red, green, blue)
    }

    /// Returns the nearest colour of the palette of 256. The first sixteen are left out, because
    /// each terminal has its own.
    pub(super) fn in_256(self) -> Color {
        let distance = |index: &u8| -> u32 {
            let squares = self
                .channels()
                .into_iter()
                .zip(Self::of_256(*index).channels())
                .map(|(a, b)| u32::from(a.abs_diff(b)).pow(2));
            squares.sum()
        };
        Color::Indexed((16..=255).min_by_key(distance).unwrap_or(16))
    }

    /// Returns a colour of the palette of 256: from 16 on one of its cube of 6×6×6, from 232 on one
    /// of its 24 greys.
    pub(super) fn of_256(index: u8) -> Self {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let [red, green, blue] = match index {
            16..=231 => {
                let place = usize::from(index - 16);
                [place / 36, place / 6 % 6, place % 6].map(|step| STEPS[step])
            }
            _ => [8 + 10 * index.saturating_sub(232); 3],
        };
        Self(u32::from_be_bytes([0, red, green, blue]))
    }
}
