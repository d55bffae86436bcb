//! The palettes of themes that others made, on the backgrounds of their authors.
//!
//! The comment beside a colour is its name in the authors' palette. `*` marks a colour that lacked
//! the contrast, or the distance to the other hues, that `theme/palette_tests.rs` asks for: a search
//! moved it, first in lightness, as little as it could. The authors have no colour for *ours*: few
//! of their hues are neither red nor amber, and the cursor must differ from headings in 256 colours,
//! too.

use crate::output::palette::{Palette, Rgb, all};

/// Catppuccin Mocha.
///
/// Source: <https://github.com/catppuccin/palette/blob/main/palette.json>.
pub(super) const CATPPUCCIN: Palette = Palette {
    background: Rgb(0x1e_1e2e), // base
    is_painted: true,
    text: Rgb(0xcd_d6f4),                 // text
    dim: Rgb(0x96_98b1),                  // overlay2*
    band: Rgb(0x31_3244),                 // surface0
    cursor: Rgb(0x37_3d63),               // ours
    alarm: all([0xf3_8ba8, 0x11_111b]),   // red, crust
    caution: all([0xf9_e2af, 0x11_111b]), // yellow, crust
    alarm_line: Rgb(0xf3_8ba8),           // red
    caution_line: Rgb(0xf9_e2af),         // yellow
    good: Rgb(0xa6_e3a1),                 // green
    allocated: Rgb(0x83_aef3),            // blue*
    unallocated: Rgb(0x8b_889d),          // overlay1*
    other: Rgb(0xd4_a3f0),                // mauve*
    busy: Rgb(0x94_e2d5),                 // teal
    // green*, pink*, sky, ours, lavender*, ours.
    layers: all([
        0xa1_ecb2, 0xfc_c8ee, 0x89_dceb, 0xb9_c57f, 0xae_b8f7, 0xd7_b4b4,
    ]),
    // blue*, sky*, pink*, green*, flamingo*, mauve, ours, subtext1*.
    users: all([
        0x93_c4fc, 0x60_c4d5, 0xfb_c7f8, 0xb2_faac, 0xe5_c0c0, 0xcb_a6f7, 0xc0_cb85, 0xb9_b2ca,
    ]),
};

/// Catppuccin Latte.
///
/// Source: <https://github.com/catppuccin/palette/blob/main/palette.json>.
pub(super) const CATPPUCCIN_LATTE: Palette = Palette {
    background: Rgb(0xef_f1f5), // base
    is_painted: true,
    text: Rgb(0x4c_4f69),                 // text
    dim: Rgb(0x5a_6074),                  // subtext1*
    band: Rgb(0xdc_e0e8),                 // crust
    cursor: Rgb(0xd3_d9fb),               // ours
    alarm: all([0xd2_0f39, 0xff_ffff]),   // red, ours
    caution: all([0xdf_8e1d, 0x11_111b]), // yellow, ours
    alarm_line: Rgb(0xd2_1619),           // red*
    caution_line: Rgb(0xc1_5f0c),         // yellow*
    good: Rgb(0x1b_6c01),                 // green*
    allocated: Rgb(0x0f_59e7),            // blue*
    unallocated: Rgb(0x5e_646d),          // overlay2*
    other: Rgb(0x7d_27e1),                // mauve*
    busy: Rgb(0x09_7277),                 // teal*
    // green*, pink*, sapphire*, ours, lavender*, ours.
    layers: all([
        0x07_6628, 0xb4_2f97, 0x0a_718a, 0x6c_6801, 0x2f_5cdc, 0x77_4a30,
    ]),
    // blue*, sky*, pink*, green*, rosewater*, mauve*, ours, subtext0*.
    users: all([
        0x2e_2de4, 0x00_5fac, 0xa5_2c79, 0x1b_6c01, 0x77_4a30, 0x7d_27e1, 0x64_621d, 0x5b_566c,
    ]),
};

/// Gruvbox, dark.
///
/// Source: <https://github.com/morhetz/gruvbox/blob/master/colors/gruvbox.vim>.
pub(super) const GRUVBOX: Palette = Palette {
    background: Rgb(0x28_2828), // dark0
    is_painted: true,
    text: Rgb(0xeb_dbb2),                 // light1
    dim: Rgb(0xa8_9984),                  // light4
    band: Rgb(0x3c_3836),                 // dark1
    cursor: Rgb(0x38_454a),               // ours
    alarm: all([0xfb_4934, 0x1d_2021]),   // bright_red, dark0_hard
    caution: all([0xfa_bd2f, 0x1d_2021]), // bright_yellow, dark0_hard
    alarm_line: Rgb(0xf5_624d),           // bright_red*
    caution_line: Rgb(0xfa_bd2f),         // bright_yellow
    good: Rgb(0xc5_c839),                 // bright_green*
    allocated: Rgb(0x93_b8af),            // bright_blue*
    unallocated: Rgb(0x9e_8f80),          // gray*
    other: Rgb(0xe0_9dae),                // bright_purple*
    busy: Rgb(0x8e_c07c),                 // bright_aqua
    // neutral_green*, bright_purple*, bright_blue, ours, ours, light3*.
    layers: all([
        0x9e_9d24, 0xcc_8095, 0x83_a598, 0xef_ec90, 0xb7_98dc, 0xc6_b39a,
    ]),
    // bright_blue*, ours, bright_purple*, bright_green*, light2*, ours, ours, light4*.
    users: all([
        0x9f_ccc6, 0x82_c4f6, 0xee_9fb4, 0xb4_ce20, 0xdc_caa7, 0xcb_a2e4, 0xef_ec90, 0xc3_b0a2,
    ]),
};

/// Gruvbox, light.
///
/// Source: <https://github.com/morhetz/gruvbox/blob/master/colors/gruvbox.vim>.
pub(super) const GRUVBOX_LIGHT: Palette = Palette {
    background: Rgb(0xfb_f1c7), // light0
    is_painted: true,
    text: Rgb(0x3c_3836),                 // dark1
    dim: Rgb(0x66_5c54),                  // dark3
    band: Rgb(0xeb_dbb2),                 // light1
    cursor: Rgb(0xd8_dcd0),               // ours
    alarm: all([0x9d_0006, 0xfb_f1c7]),   // faded_red, light0
    caution: all([0xd7_9921, 0x1d_2021]), // neutral_yellow, dark0_hard
    alarm_line: Rgb(0x9d_0006),           // faded_red
    caution_line: Rgb(0xae_660e),         // faded_yellow*
    good: Rgb(0x66_6214),                 // faded_green*
    allocated: Rgb(0x07_6678),            // faded_blue
    unallocated: Rgb(0x70_6459),          // dark4*
    other: Rgb(0x88_2b68),                // faded_purple*
    busy: Rgb(0x3c_7552),                 // faded_aqua*
    // faded_green*, neutral_purple*, neutral_blue*, ours, ours, ours.
    layers: all([
        0x6c_681c, 0x9a_527d, 0x32_7376, 0x2c_5b0b, 0x6a_4aa0, 0x70_452a,
    ]),
    // faded_blue*, ours, faded_purple*, faded_green*, ours, ours, ours, dark2*.
    users: all([
        0x0f_5a64, 0x2a_5e93, 0x88_2b68, 0x5b_5700, 0x73_5442, 0x64_2f8f, 0x00_5f10, 0x4b_4440,
    ]),
};

/// Nord. Its authors publish no light variant.
///
/// Source: <https://www.nordtheme.com/docs/colors-and-palettes>.
pub(super) const NORD: Palette = Palette {
    background: Rgb(0x2e_3440), // nord0
    is_painted: true,
    text: Rgb(0xec_eff4),                 // nord6
    dim: Rgb(0xb0_b8c8),                  // ours
    band: Rgb(0x24_2933),                 // ours
    cursor: Rgb(0x38_435c),               // ours
    alarm: all([0x96_4a51, 0xec_eff4]),   // nord11*, nord6
    caution: all([0xeb_cb8b, 0x2e_3440]), // nord13, nord0
    alarm_line: Rgb(0xf0_7f8a),           // nord11*
    caution_line: Rgb(0xeb_cb8b),         // nord13
    good: Rgb(0xa9_c492),                 // nord14*
    allocated: Rgb(0x9c_c8f3),            // nord9*
    unallocated: Rgb(0x93_a0ba),          // ours
    other: Rgb(0xdc_aac9),                // nord15*
    busy: Rgb(0x7c_c4ae),                 // ours
    // nord14, nord15*, nord8*, ours, nord10*, ours.
    layers: all([
        0xa3_be8c, 0xd2_9cb6, 0x91_c5db, 0xde_f5a7, 0x8b_9dbf, 0xe7_d7c9,
    ]),
    // nord10*, nord8*, ours, nord14*, ours, nord15*, ours, nord4*.
    users: all([
        0x9f_b6e0, 0xa4_d9ee, 0xef_9ebd, 0xdc_f9c5, 0xc8_ac94, 0xd6_c0d2, 0xad_e99f, 0xdf_e5f0,
    ]),
};

/// Solarized, dark.
///
/// Source: <https://ethanschoonover.com/solarized/>.
pub(super) const SOLARIZED: Palette = Palette {
    background: Rgb(0x00_2b36), // base03
    is_painted: true,
    text: Rgb(0x9e_a6a6),                 // base1*
    dim: Rgb(0x83_9496),                  // base0
    band: Rgb(0x07_3642),                 // base02
    cursor: Rgb(0x1f_3a52),               // ours
    alarm: all([0xd5_2928, 0xfd_f6e3]),   // red*, base3
    caution: all([0xb5_8900, 0x00_2b36]), // yellow, base03
    alarm_line: Rgb(0xec_6056),           // red*
    caution_line: Rgb(0xb5_8900),         // yellow
    good: Rgb(0xa5_a711),                 // green*
    allocated: Rgb(0x36_98df),            // blue*
    unallocated: Rgb(0x83_9496),          // base0
    other: Rgb(0xf9_74ac),                // magenta*
    busy: Rgb(0x2a_a198),                 // cyan
    // green*, magenta*, blue*, ours, violet*, ours.
    layers: all([
        0x8b_9f13, 0xea_55ac, 0x20_a2e1, 0xb8_b860, 0x8e_86dc, 0xbc_9881,
    ]),
    // violet*, blue*, magenta*, green*, ours, ours, ours, base1*.
    users: all([
        0x97_9ee8, 0x34_afef, 0xf9_74ac, 0x9d_b232, 0xce_a47f, 0xcc_85f3, 0xc5_c56d, 0x9e_a6a6,
    ]),
};

/// Solarized, light.
///
/// Source: <https://ethanschoonover.com/solarized/>.
pub(super) const SOLARIZED_LIGHT: Palette = Palette {
    background: Rgb(0xfd_f6e3), // base3
    is_painted: true,
    text: Rgb(0x4d_6369),                 // base01*
    dim: Rgb(0x58_6f7b),                  // base00*
    band: Rgb(0xee_e8d5),                 // base2
    cursor: Rgb(0xcf_dff0),               // ours
    alarm: all([0xd5_2928, 0xfd_f6e3]),   // red*, base3
    caution: all([0xb5_8900, 0x00_2b36]), // yellow, base03
    alarm_line: Rgb(0xd5_2928),           // red*
    caution_line: Rgb(0x97_730e),         // yellow*
    good: Rgb(0x59_6611),                 // green*
    allocated: Rgb(0x25_6ebb),            // blue*
    unallocated: Rgb(0x5e_6a6b),          // base0*
    other: Rgb(0xb7_106b),                // magenta*
    busy: Rgb(0x00_7374),                 // cyan*
    // green*, magenta*, blue*, ours, violet*, ours.
    layers: all([
        0x64_7221, 0xcc_2e7c, 0x21_73ad, 0x28_5d1f, 0x76_5eb0, 0x74_594a,
    ]),
    // violet*, blue*, magenta*, green*, ours, ours, ours, base01*.
    users: all([
        0x2d_4b88, 0x16_62ae, 0xb7_106b, 0x59_6611, 0x73_5a48, 0x8b_2e99, 0x43_4b18, 0x3d_5259,
    ]),
};

/// Dracula.
///
/// Source: <https://draculatheme.com/spec>.
pub(super) const DRACULA: Palette = Palette {
    background: Rgb(0x28_2a36), // background
    is_painted: true,
    text: Rgb(0xf8_f8f2),                 // foreground
    dim: Rgb(0xa0_a8c8),                  // ours
    band: Rgb(0x34_3746),                 // lighter_background
    cursor: Rgb(0x39_3d60),               // ours
    alarm: all([0xff_5555, 0x21_222c]),   // red, darker_background
    caution: all([0xff_b86c, 0x21_222c]), // orange, darker_background
    alarm_line: Rgb(0xf8_6978),           // red*
    caution_line: Rgb(0xff_b86c),         // orange
    good: Rgb(0x50_fa7b),                 // green
    allocated: Rgb(0x8b_e9fd),            // cyan
    unallocated: Rgb(0x8b_9cd1),          // comment*
    other: Rgb(0xfd_8cf2),                // pink*
    busy: Rgb(0x4f_c9c0),                 // ours
    // green, pink, cyan, yellow, purple, ours.
    layers: all([
        0x50_fa7b, 0xff_79c6, 0x8b_e9fd, 0xf1_fa8c, 0xbd_93f9, 0xd8_b898,
    ]),
    // ours, cyan, pink*, green, ours, purple*, yellow, ours.
    users: all([
        0x9d_abe7, 0x8b_e9fd, 0xfe_7bf3, 0x50_fa7b, 0xc7_ac92, 0xd5_9cff, 0xf1_fa8c, 0xbe_c2d2,
    ]),
};

/// Alucard, the light variant of Dracula.
///
/// Source: <https://draculatheme.com/spec>.
pub(super) const ALUCARD: Palette = Palette {
    background: Rgb(0xff_fbeb), // background
    is_painted: true,
    text: Rgb(0x1f_1f1f),                 // foreground
    dim: Rgb(0x6c_664b),                  // comment
    band: Rgb(0xef_eddc),                 // lighter_background
    cursor: Rgb(0xd9_d9f2),               // ours
    alarm: all([0xbd_2b1c, 0xff_ffff]),   // red*, ours
    caution: all([0xe0_a030, 0x1f_1f1f]), // ours, foreground
    alarm_line: Rgb(0xbd_2b1c),           // red*
    caution_line: Rgb(0xa3_4d14),         // orange
    good: Rgb(0x08_6b00),                 // green*
    allocated: Rgb(0x03_6a96),            // cyan
    unallocated: Rgb(0x70_6e5d),          // ours
    other: Rgb(0xa3_144d),                // pink
    busy: Rgb(0x23_7269),                 // ours
    // green, pink, cyan, ours, purple, ours.
    layers: all([
        0x14_710a, 0xa3_144d, 0x03_6a96, 0x73_6d00, 0x64_4ac9, 0x7b_4a24,
    ]),
    // purple*, cyan*, pink*, green*, ours, ours, ours, ours.
    users: all([
        0x56_2bc3, 0x0f_5c8d, 0x9c_0748, 0x08_6b00, 0x76_4d2e, 0x8a_29a9, 0x5e_641a, 0x3a_3a40,
    ]),
};

/// Tokyo Night.
///
/// Source: <https://github.com/folke/tokyonight.nvim/blob/main/lua/tokyonight/colors/night.lua>.
pub(super) const TOKYO_NIGHT: Palette = Palette {
    background: Rgb(0x1a_1b26), // bg
    is_painted: true,
    text: Rgb(0xc0_caf5),                 // fg
    dim: Rgb(0x8a_91b5),                  // ours
    band: Rgb(0x29_2e42),                 // bg_highlight
    cursor: Rgb(0x28_3457),               // bg_visual
    alarm: all([0xf7_768e, 0x15_161e]),   // red, black
    caution: all([0xe0_af68, 0x15_161e]), // yellow, black
    alarm_line: Rgb(0xf7_768e),           // red
    caution_line: Rgb(0xe0_af68),         // yellow
    good: Rgb(0x9e_ce6a),                 // green
    allocated: Rgb(0x7a_a2f7),            // blue
    unallocated: Rgb(0x88_8daa),          // dark5*
    other: Rgb(0xcc_9cf7),                // magenta*
    busy: Rgb(0x2a_c3a2),                 // ours
    // green*, ours, cyan, ours, purple, ours.
    layers: all([
        0x92_c15d, 0xe8_8bc4, 0x7d_cfff, 0xce_d771, 0x9d_7cd8, 0xb6_9c8b,
    ]),
    // blue, cyan, ours, green*, ours, magenta*, ours, fg_dark.
    users: all([
        0x7a_a2f7, 0x7d_cfff, 0xf6_98d1, 0x98_c764, 0xb6_9c8b, 0xc5_96f0, 0xce_d771, 0xa9_b1d6,
    ]),
};

/// Tokyo Night Day.
///
/// Source: <https://github.com/folke/tokyonight.nvim/blob/main/extras/lua/tokyonight_day.lua>.
pub(super) const TOKYO_NIGHT_DAY: Palette = Palette {
    background: Rgb(0xe1_e2e7), // bg
    is_painted: true,
    text: Rgb(0x29_4b98),                 // fg*
    dim: Rgb(0x4b_5780),                  // fg_dark*
    band: Rgb(0xd0_d5e3),                 // bg_dark
    cursor: Rgb(0xc8_d2f5),               // ours
    alarm: all([0xbf_3c3d, 0xff_ffff]),   // red1*, ours
    caution: all([0xe0_af68, 0x15_161e]), // ours, ours
    alarm_line: Rgb(0xb1_2e32),           // red1*
    caution_line: Rgb(0x8c_6c3e),         // yellow
    good: Rgb(0x50_611f),                 // green*
    allocated: Rgb(0x24_4cd0),            // blue*
    unallocated: Rgb(0x51_5d7c),          // dark3*
    other: Rgb(0x75_28c8),                // magenta*
    busy: Rgb(0x00_7165),                 // teal*
    // green*, ours, cyan*, ours, purple*, ours.
    layers: all([
        0x35_4c1b, 0xb8_1e5c, 0x01_667f, 0x49_6a1c, 0x71_2fa1, 0x73_4d32,
    ]),
    // blue*, cyan*, ours, green*, ours, purple*, ours, ours.
    users: all([
        0x26_4bbb, 0x08_4f80, 0x9c_2576, 0x4b_5c19, 0x73_4d32, 0x71_2fa1, 0x2d_4703, 0x54_5271,
    ]),
};
