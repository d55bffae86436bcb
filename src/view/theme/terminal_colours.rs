//! Converts the colours of a palette to those that a terminal shows.

use ratatui::style::Color;

use crate::output::palette::Rgb;

/// The values of a channel in the cube of the palette of 256.
const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];

impl Rgb {
    pub(super) fn in_24_bits(self) -> Color {
        let [red, green, blue] = self.channels();
        Color::Rgb(red, green, blue)
    }

    /// Returns the nearest colour of the palette of 256. The first sixteen are left out, because
    /// each terminal has its own.
    ///
    /// Looks at the nearest colour of the cube, whose channels are independent, and at the nearest
    /// grey: a search of all 240 for each cell was three quarters of the time of a redraw.
    pub(super) fn in_256(self) -> Color {
        let channels = self.channels();
        let step = |channel: u8| -> u8 {
            let nearest = (0..6_u8).min_by_key(|step| STEPS[usize::from(*step)].abs_diff(channel));
            nearest.unwrap_or(0)
        };
        let [red, green, blue] = channels.map(step);
        let cube = 16 + 36 * red + 6 * green + blue;
        let sum: u16 = channels.into_iter().map(u16::from).sum();
        let grey = 232
            + u8::try_from((sum / 3).saturating_sub(3) / 10)
                .unwrap_or(23)
                .min(23);
        let distance = |index: u8| -> u32 {
            let squares = channels
                .into_iter()
                .zip(Self::of_256(index).channels())
                .map(|(a, b)| u32::from(a.abs_diff(b)).pow(2));
            squares.sum()
        };
        Color::Indexed(if distance(grey) < distance(cube) {
            grey
        } else {
            cube
        })
    }

    /// Returns a colour of the palette of 256: from 16 on one of its cube of 6×6×6, from 232 on one
    /// of its 24 greys.
    pub(super) fn of_256(index: u8) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_of_the_palette_is_nearer_than_the_one_that_is_shown() {
        let steps = || (0..=255_u8).step_by(15);
        let all = steps().flat_map(|red| {
            steps().flat_map(move |green| steps().map(move |blue| [red, green, blue]))
        });
        for channels in all {
            let distance = |index: u8| -> u32 {
                let pairs = channels.into_iter().zip(Rgb::of_256(index).channels());
                pairs.map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
            };
            let [red, green, blue] = channels;
            let colour = Rgb(u32::from_be_bytes([0, red, green, blue]));
            let Color::Indexed(shown) = colour.in_256() else {
                panic!("{channels:?} has no index");
            };
            let least = (16..=255).map(distance).min();
            assert_eq!(Some(distance(shown)), least, "{channels:?}: {shown}");
        }
    }
}
