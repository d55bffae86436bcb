//! The colours of the themes: one [`Palette`] for each theme that has colours of its own.

use ratatui::style::Color;

/// A colour in 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rgb(pub u32);

impl Rgb {
    /// Red, green and blue, from 0 to 255.
    pub(super) fn channels(self) -> [u8; 3] {
        let [_, red, green, blue] = self.0.to_be_bytes();
        [red, green, blue]
    }

    /// Returns the colour that is this far on the way to another one, from 0 to 1.
    pub(super) fn towards(self, other: Self, way: f64) -> Self {
        let (from, to) = (self.channels(), other.channels());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between two values of 8 bits"
        )]
        let [red, green, blue] = [0, 1, 2].map(|channel| {
            let (from, to) = (f64::from(from[channel]), f64::from(to[channel]));
            (from + (to - from) * way.clamp(0.0, 1.0)).round() as u8
        });
        Self(u32::from_be_bytes([0, red, green, blue]))
    }

    pub(super) fn in_24_bits(self) -> Color {
        let [red, green, blue] = self.channels();
        Color::Rgb(red, green, blue)
    }

    /// Returns the nearest colour of the palette of 256: one of its cube of 6×6×6, or of its 24
    /// greys. The first sixteen are left out, because each terminal has its own.
    pub(super) fn in_256(self) -> Color {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        let distance = |other: [u8; 3]| -> u32 {
            let squares = self
                .channels()
                .into_iter()
                .zip(other)
                .map(|(a, b)| u32::from(a.abs_diff(b)).pow(2));
            squares.sum()
        };
        let colour = |index: u8| match index {
            16..=231 => {
                let place = usize::from(index - 16);
                [place / 36, place / 6 % 6, place % 6].map(|step| STEPS[step])
            }
            _ => [8 + 10 * (index.saturating_sub(232)); 3],
        };
        let nearest = (16..=255).min_by_key(|index| distance(colour(*index)));
        Color::Indexed(nearest.unwrap_or(16))
    }
}

/// The colours of a theme.
#[derive(Debug)]
pub(super) struct Palette {
    /// The background that the other colours are chosen for.
    pub background: Rgb,
    /// Whether the screen is painted in the background. If not, the terminal's own one stays.
    pub is_painted: bool,
    pub text: Rgb,
    pub dim: Rgb,
    /// Behind headings.
    pub band: Rgb,
    /// Behind the line under the cursor.
    pub cursor: Rgb,
    /// The background of the badge of a serious trouble, and the text on it.
    pub alarm: [Rgb; 2],
    /// The background of the badge of another trouble, and the text on it.
    pub caution: [Rgb; 2],
    /// A line that leads to trouble, and the frame of a GPU in trouble.
    pub alarm_line: Rgb,
    pub good: Rgb,
    pub allocated: Rgb,
    pub unallocated: Rgb,
    pub other: Rgb,
    pub busy: Rgb,
    pub layers: [Rgb; 6],
    pub users: [Rgb; 8],
}

const fn all<const COUNT: usize>(colours: [u32; COUNT]) -> [Rgb; COUNT] {
    let mut all = [Rgb(0); COUNT];
    let mut place = 0;
    while place < COUNT {
        all[place] = Rgb(colours[place]);
        place += 1;
    }
    all
}

/// For a dark background that is not known in detail.
pub(super) const DARK: Palette = Palette {
    background: Rgb(0x1a_1b1e),
    is_painted: false,
    text: Rgb(0xe4_e6eb),
    dim: Rgb(0x8f_97a6),
    band: Rgb(0x2a_2f3a),
    cursor: Rgb(0x33_3d52),
    alarm: all([0xc8_1e1e, 0xff_ffff]),
    caution: all([0xfb_bf24, 0x1a_1400]),
    alarm_line: Rgb(0xf8_6c6c),
    good: Rgb(0x5f_d38a),
    allocated: Rgb(0x6a_a6ff),
    unallocated: Rgb(0x74_7f9c),
    other: Rgb(0xc6_78dd),
    busy: Rgb(0x2d_d4bf),
    layers: all([
        0x66_c97a, 0xee_86b7, 0x5c_b6ee, 0xe2_bd6b, 0xa3_92f0, 0xe8_9a72,
    ]),
    users: all([
        0x92_94fa, 0x4b_bdf8, 0xf4_7bb8, 0x8c_d364, 0xd6_a27c, 0xbf_8cf5, 0xbd_c257, 0xa3_b6cc,
    ]),
};

/// For a light background that is not known in detail.
pub(super) const LIGHT: Palette = Palette {
    background: Rgb(0xfa_fafa),
    is_painted: false,
    text: Rgb(0x1d_2129),
    dim: Rgb(0x60_6773),
    band: Rgb(0xe4_e8ef),
    cursor: Rgb(0xcf_e3fb),
    alarm: all([0xc8_1e1e, 0xff_ffff]),
    caution: all([0xfb_bf24, 0x1a_1400]),
    alarm_line: Rgb(0xc8_1e1e),
    good: Rgb(0x1a_7a3c),
    allocated: Rgb(0x3b_78d8),
    unallocated: Rgb(0x7d_869c),
    other: Rgb(0xa3_55b8),
    busy: Rgb(0x0f_857a),
    layers: all([
        0x3c_8a4e, 0xb8_4a86, 0x2d_7fb8, 0x9a_7320, 0x6f_5cc4, 0xb0_6038,
    ]),
    users: all([
        0x52_4ecb, 0x0a_69a0, 0xb8_2468, 0x3f_7a1f, 0x8a_5526, 0x88_35b5, 0x66_6a0c, 0x4a_5a70,
    ]),
};

/// For people who cannot tell red from green: the colours of Okabe and Ito, light enough to be read
/// on a dark background.
///
/// Source: <https://jfly.uni-koeln.de/color/>.
pub(super) const SAFE: Palette = Palette {
    background: Rgb(0x1a_1b1e),
    is_painted: false,
    text: Rgb(0xe4_e6eb),
    dim: Rgb(0x8f_97a6),
    band: Rgb(0x2a_2f3a),
    cursor: Rgb(0x33_3d52),
    alarm: all([0xe0_6a10, 0x00_0000]),
    caution: all([0xf0_e442, 0x00_0000]),
    alarm_line: Rgb(0xe8_7a2a),
    good: Rgb(0x56_b4e9),
    allocated: Rgb(0x3f_97d3),
    unallocated: Rgb(0xa8_adb8),
    other: Rgb(0xcc_79a7),
    busy: Rgb(0x1f_b58a),
    layers: all([
        0x56_b4e9, 0xcc_79a7, 0x1f_b58a, 0xf0_e442, 0x3f_97d3, 0xe6_9f00,
    ]),
    users: all([
        0x56_b4e9, 0xe6_9f00, 0xcc_79a7, 0x1f_b58a, 0xf0_e442, 0x6f_8fff, 0xd8_b49a, 0xb5_bcc8,
    ]),
};
