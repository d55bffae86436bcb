//! The colours of a theme, and the palettes of the themes that do not know the background.

/// A colour in 24 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rgb(pub u32);

impl Rgb {
    /// Red, green and blue, from 0 to 255.
    pub(crate) fn channels(self) -> [u8; 3] {
        let [_, red, green, blue] = self.0.to_be_bytes();
        [red, green, blue]
    }

    /// Returns the colour that is this far on the way to another one, from 0 to 1.
    pub(crate) fn towards(self, other: Self, way: f64) -> Self {
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
}

/// The colours of a theme.
#[derive(Debug, Clone)]
pub(crate) struct Palette {
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
    /// The frame of a GPU with a trouble that is not serious.
    pub caution_line: Rgb,
    pub good: Rgb,
    pub allocated: Rgb,
    pub unallocated: Rgb,
    pub other: Rgb,
    pub busy: Rgb,
    pub layers: [Rgb; 6],
    pub users: [Rgb; 8],
}

pub(crate) const fn all<const COUNT: usize>(colours: [u32; COUNT]) -> [Rgb; COUNT] {
    let mut all = [Rgb(0); COUNT];
    let mut place = 0;
    while place < COUNT {
        all[place] = Rgb(colours[place]);
        place += 1;
    }
    all
}

/// For a dark background that is not known in detail.
pub(crate) const DARK: Palette = Palette {
    background: Rgb(0x1a_1b1e),
    is_painted: false,
    text: Rgb(0xe4_e6eb),
    dim: Rgb(0x8f_97a6),
    band: Rgb(0x2a_2f3a),
    cursor: Rgb(0x1e_3a5f),
    alarm: all([0xc8_1e1e, 0xff_ffff]),
    caution: all([0xfb_bf24, 0x1a_1400]),
    alarm_line: Rgb(0xf8_6c6c),
    caution_line: Rgb(0xfb_bf24),
    good: Rgb(0x5f_d38a),
    allocated: Rgb(0x6a_a6ff),
    unallocated: Rgb(0x95_95ab),
    other: Rgb(0xda_8bf1),
    busy: Rgb(0x2d_d4bf),
    layers: all([
        0x66_c97a, 0xee_86b7, 0x5c_b6ee, 0xc9_c85a, 0xa3_92f0, 0xcf_a68a,
    ]),
    users: all([
        0x9a_9df4, 0x52_c4ff, 0xf4_7bb8, 0x8c_d364, 0xd6_a27c, 0xd0_8ef3, 0xb0_b549, 0xa3_b6cc,
    ]),
};

/// For a light background that is not known in detail.
pub(crate) const LIGHT: Palette = Palette {
    background: Rgb(0xfa_fafa),
    is_painted: false,
    text: Rgb(0x1d_2129),
    dim: Rgb(0x60_6773),
    band: Rgb(0xe2_e6ed),
    cursor: Rgb(0xcf_e3fb),
    alarm: all([0xc8_1e1e, 0xff_ffff]),
    caution: all([0xfb_bf24, 0x1a_1400]),
    alarm_line: Rgb(0xc8_1e1e),
    caution_line: Rgb(0xa8_6a00),
    good: Rgb(0x01_6e31),
    allocated: Rgb(0x2f_6cca),
    unallocated: Rgb(0x5f_6981),
    other: Rgb(0x98_2d9b),
    busy: Rgb(0x17_7168),
    layers: all([
        0x3b_7631, 0xb7_2f6d, 0x1e_73ab, 0x4e_5103, 0x6f_5cc4, 0x8a_5a3c,
    ]),
    users: all([
        0x2d_3ab2, 0x00_639a, 0xb1_1b62, 0x2e_6803, 0x77_432d, 0x82_2eae, 0x67_6118, 0x55_5670,
    ]),
};

/// For people who cannot tell red from green: begins with the colours of Okabe and Ito, which are
/// made light enough to be read on a dark background, and so different that the eight users also
/// differ for people without red or green cones.
///
/// Source: <https://jfly.uni-koeln.de/color/>.
pub(crate) const SAFE: Palette = Palette {
    background: Rgb(0x1a_1b1e),
    is_painted: false,
    text: Rgb(0xe4_e6eb),
    dim: Rgb(0x8f_97a6),
    band: Rgb(0x2a_2f3a),
    cursor: Rgb(0x1e_3a5f),
    alarm: all([0xe0_6a10, 0x00_0000]),
    caution: all([0xf0_e442, 0x00_0000]),
    alarm_line: Rgb(0xe8_7a2a),
    caution_line: Rgb(0xf0_e442),
    good: Rgb(0x56_b4e9),
    allocated: Rgb(0x46_9dda),
    unallocated: Rgb(0xbb_c0cb),
    other: Rgb(0xec_85b0),
    busy: Rgb(0x1f_b58a),
    layers: all([
        0x56_b4e9, 0xcc_79a7, 0x44_ba83, 0xef_f3a6, 0x81_8afd, 0xdb_bca6,
    ]),
    users: all([
        0x71_a3fd, 0x50_bdea, 0xf0_84a3, 0x8f_d07f, 0xee_c6b0, 0xe0_d0ff, 0xef_f3a6, 0xb3_bfc9,
    ]),
};
