//! Computes the contrast of each palette, and how much its hues differ, in 24 bits and in 256
//! colours.

use ratatui::style::Color;
use strum::VariantArray;

use super::Theme;
use super::{Fill, palette_of};
use crate::app::settings::ThemeName;
use crate::base::terminal::ColourDepth;
use crate::output::palette::{Palette, Rgb, SAFE};

/// The least contrast of text.
const TEXT: f64 = 4.5;

/// The least contrast of lines, bars, areas and other marks.
const MARK: f64 = 3.0;

/// The least distance of two users' hues in `OKLab`, where the distance from black to white is 1.
const USERS_APART: f64 = 0.075;

/// The least distance of a user's hue to the use of the multiprocessors, which is drawn beside it.
const APART_FROM_USE: f64 = 0.09;

/// The least distance of two layers of a graph, whose gradients touch each other.
const LAYERS_APART: f64 = 0.09;

/// The least distance of two users' hues in 256 colours, where few colours are left to choose from.
const USERS_APART_IN_256: f64 = 0.055;

/// The least distance of two users' hues for people without red or green cones.
const USERS_APART_WITHOUT_CONES: f64 = 0.06;

/// The least distance of a user's hue to the badges of trouble.
const APART_FROM_TROUBLE: f64 = 0.075;

fn linear(channel: u8) -> f64 {
    let value = f64::from(channel) / 255.0;
    if value <= 0.03928 {
        value / 12.92
    } else {
        libm::pow((value + 0.055) / 1.055, 2.4)
    }
}

/// The relative luminance of WCAG 2.
///
/// Source: <https://www.w3.org/TR/WCAG21/#dfn-relative-luminance>.
fn luminance(colour: Rgb) -> f64 {
    let [red, green, blue] = colour.channels().map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/// The contrast ratio of WCAG 2, from 1 to 21.
///
/// Source: <https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio>.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

/// Red, green and blue in linear light to `OKLab`.
///
/// Source: <https://bottosson.github.io/posts/oklab/>.
fn oklab([red, green, blue]: [f64; 3]) -> [f64; 3] {
    let long = libm::cbrt(0.412_221_470_8 * red + 0.536_332_536_3 * green + 0.051_445_992_9 * blue);
    let medium =
        libm::cbrt(0.211_903_498_2 * red + 0.680_699_545_1 * green + 0.107_396_956_6 * blue);
    let short =
        libm::cbrt(0.088_302_461_9 * red + 0.281_718_837_6 * green + 0.629_978_700_5 * blue);
    [
        0.210_454_255_3 * long + 0.793_617_785_0 * medium - 0.004_072_046_8 * short,
        1.977_998_495_1 * long - 2.428_592_205_0 * medium + 0.450_593_709_9 * short,
        0.025_904_037_1 * long + 0.782_771_766_2 * medium - 0.808_675_766_0 * short,
    ]
}

/// How people without red cones (protanopia) or green cones (deuteranopia) see linear light, after
/// Machado, Oliveira and Fernandes 2009 at severity 1.
///
/// Source: <https://www.inf.ufrgs.br/~oliveira/pubs_files/CVD_Simulation/CVD_Simulation.html>.
const MISSING_CONES: [[[f64; 3]; 3]; 2] = [
    [
        [0.152_286, 1.052_583, -0.204_868],
        [0.114_503, 0.786_281, 0.099_216],
        [-0.003_882, -0.048_116, 1.051_998],
    ],
    [
        [0.367_322, 0.860_646, -0.227_968],
        [0.280_085, 0.672_501, 0.047_413],
        [-0.011_820, 0.042_940, 0.968_881],
    ],
];

fn without_cones(colour: Rgb, matrix: [[f64; 3]; 3]) -> [f64; 3] {
    let light = colour.channels().map(linear);
    matrix.map(|row| {
        let sum: f64 = row
            .iter()
            .zip(light)
            .map(|(factor, part)| factor * part)
            .sum();
        sum.clamp(0.0, 1.0)
    })
}

fn lab_distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    let squares = a.into_iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    libm::sqrt(squares.sum())
}

fn distance(a: Rgb, b: Rgb) -> f64 {
    let [a, b] = [a, b].map(|colour| oklab(colour.channels().map(linear)));
    lab_distance(a, b)
}

/// The colour as a terminal with 256 colours shows it.
fn in_256(colour: Rgb) -> Rgb {
    match colour.in_256() {
        Color::Indexed(index) => Rgb::of_256(index),
        other => panic!("{other}"),
    }
}

/// Returns a colour as a terminal shows it.
type ShownColour = fn(Rgb) -> Rgb;

/// The depths of colour: the name of each, and how it shows a colour.
const DEPTHS: [(&str, ShownColour); 2] = [("24 bits", |colour| colour), ("256 colours", in_256)];

/// The themes with a palette.
fn palettes() -> impl Iterator<Item = (ThemeName, &'static Palette)> {
    ThemeName::VARIANTS
        .iter()
        .filter_map(|name| Some((*name, palette_of(*name)?)))
}

/// The backgrounds that a palette may stand on, as the terminal shows them. Where the screen is not
/// painted, the terminal's own may be another one than the palette assumes.
fn backgrounds(palette: &Palette, shown: ShownColour) -> Vec<Rgb> {
    let assumed = palette.background;
    match palette.is_painted {
        true => vec![shown(assumed)],
        false if luminance(assumed) > 0.5 => vec![assumed, Rgb(0xff_ffff)],
        // Black, and the backgrounds of Visual Studio Code, One Dark and Ptyxis or lighter.
        false => vec![
            assumed,
            Rgb(0),
            Rgb(0x1e_1e1e),
            Rgb(0x28_2c34),
            Rgb(0x2a_2a2a),
        ],
    }
}

/// All fills but those of the places of text.
fn fills() -> Vec<Fill> {
    let layers = (0..Fill::LAYERS).map(Fill::Layer);
    [Fill::Allocated, Fill::Unallocated, Fill::Other, Fill::Busy]
        .into_iter()
        .chain(layers)
        .collect()
}

/// The colours of a gradient, from its dark end to its bright end.
fn gradient(name: ThemeName, palette: &Palette, colour: Rgb) -> Vec<Rgb> {
    if name == ThemeName::Safe {
        return vec![colour];
    }
    let dark_end = palette.background.towards(colour, Theme::DARK_END);
    (0..=7)
        .map(|step| dark_end.towards(colour, f64::from(step) / 7.0))
        .collect()
}

/// The contrasts of a palette at one depth: the role and its place, the ratio, and the least one.
/// Areas that say little on purpose ([`Theme::faint`]) are left out.
fn contrasts(name: ThemeName, palette: &Palette, shown: ShownColour) -> Vec<(String, f64, f64)> {
    let mut all = Vec::new();
    let mut add = |what: String, colour: Rgb, on: Rgb, least: f64| {
        all.push((what, contrast(shown(colour), on), least));
    };
    let named_users: Vec<_> = (1..)
        .zip(palette.users)
        .map(|(number, colour)| (format!("user {number}"), colour))
        .collect();
    for background in backgrounds(palette, shown) {
        let on = format!("on #{:06x}", background.0);
        let mut texts = vec![
            ("text".to_owned(), palette.text),
            ("dim".to_owned(), palette.dim),
            ("good".to_owned(), palette.good),
            ("alarm_line".to_owned(), palette.alarm_line),
        ];
        texts.extend(named_users.clone());
        // Legends and lists name a fill in its colour.
        texts.extend(
            fills()
                .into_iter()
                .map(|fill| (format!("{fill:?}"), fill.colour(palette))),
        );
        for (role, colour) in texts {
            add(format!("{role} {on}"), colour, background, TEXT);
        }
        add(
            format!("caution_line {on}"),
            palette.caution_line,
            background,
            MARK,
        );
        let mut areas: Vec<_> = fills()
            .into_iter()
            .map(|fill| fill.colour(palette))
            .collect();
        areas.extend(palette.users);
        areas.push(palette.dim);
        for colour in areas {
            for step in gradient(name, palette, colour) {
                let what = format!("#{:06x} in the gradient of #{:06x} {on}", step.0, colour.0);
                add(what, step, background, MARK);
            }
        }
    }
    // The selected row: `Theme::select` writes dim text in the colour of text.
    let cursor = shown(palette.cursor);
    let mut selected = vec![
        ("text".to_owned(), palette.text),
        ("good".to_owned(), palette.good),
        ("unaccounted".to_owned(), palette.other),
    ];
    selected.extend(named_users);
    for (role, colour) in selected {
        add(format!("{role} on the cursor"), colour, cursor, TEXT);
    }
    for (role, line) in [
        ("alarm_line", palette.alarm_line),
        ("caution_line", palette.caution_line),
    ] {
        add(format!("{role} on the cursor"), line, cursor, MARK);
    }
    for fill in fills() {
        add(
            format!("{fill:?} on the cursor"),
            fill.colour(palette),
            cursor,
            MARK,
        );
    }
    add(
        "text on the band".to_owned(),
        palette.text,
        shown(palette.band),
        TEXT,
    );
    for (role, [badge, text]) in [("alarm", palette.alarm), ("caution", palette.caution)] {
        add(
            format!("text on the badge {role}"),
            text,
            shown(badge),
            TEXT,
        );
    }
    all
}

#[test]
#[expect(clippy::print_stdout, reason = "the ratios of a run are its result")]
fn text_has_a_contrast_of_4_5_and_marks_of_3_in_every_palette() {
    let mut too_low = Vec::new();
    for (name, palette) in palettes() {
        for (depth, shown) in DEPTHS {
            let all = contrasts(name, palette, shown);
            let least_of = |least: f64| {
                let ratios = all
                    .iter()
                    .filter(|(_, _, limit)| (limit - least).abs() < 0.1);
                ratios
                    .map(|(_, ratio, _)| *ratio)
                    .fold(f64::INFINITY, f64::min)
            };
            println!(
                "{name}, {depth}: text {:.2}, marks {:.2}",
                least_of(TEXT),
                least_of(MARK)
            );
            let broken = all.iter().filter(|(_, ratio, least)| ratio < least);
            too_low.extend(
                broken.map(|(what, ratio, _)| format!("{name}, {depth}: {what}: {ratio:.2}")),
            );
        }
    }
    assert!(too_low.is_empty(), "{}", too_low.join("\n"));
}

#[test]
fn headings_and_the_selected_row_differ_from_each_other_and_from_the_background() {
    for (name, palette) in palettes() {
        for (depth, shown) in DEPTHS {
            let [background, band, cursor] =
                [palette.background, palette.band, palette.cursor].map(shown);
            for (a, b) in [(background, band), (background, cursor), (band, cursor)] {
                let distance = distance(a, b);
                assert!(
                    distance >= 0.028,
                    "{name}, {depth}: {a:?} and {b:?}: {distance:.3}"
                );
            }
        }
    }
}

fn pairs<const COUNT: usize>(colours: [Rgb; COUNT]) -> impl Iterator<Item = (Rgb, Rgb)> {
    (0..COUNT).flat_map(move |last| (0..last).map(move |first| (colours[first], colours[last])))
}

#[test]
fn the_layers_of_a_graph_differ_from_each_other() {
    for (name, palette) in palettes() {
        for (a, b) in pairs(palette.layers) {
            let distance = distance(a, b);
            assert!(
                distance >= LAYERS_APART,
                "{name}: {a:?} and {b:?}: {distance:.3}"
            );
        }
    }
}

#[test]
fn the_hues_of_users_differ_from_each_other_from_use_and_from_trouble() {
    let mut too_near = Vec::new();
    let mut check = |what: String, distance: f64, least: f64| {
        if distance < least {
            too_near.push(format!("{what}: {distance:.3}"));
        }
    };
    for (name, palette) in palettes() {
        for (a, b) in pairs(palette.users) {
            let what = format!("{name}: {a:?} and {b:?}");
            check(what.clone(), distance(a, b), USERS_APART);
            let shown = distance(in_256(a), in_256(b));
            check(format!("{what} in 256 colours"), shown, USERS_APART_IN_256);
        }
        for user in palette.users {
            let what = format!("{name}: {user:?}");
            check(
                format!("{what} and use"),
                distance(user, palette.busy),
                APART_FROM_USE,
            );
            for trouble in [palette.alarm[0], palette.caution[0]] {
                let distance = distance(user, trouble);
                check(
                    format!("{what} and {trouble:?}"),
                    distance,
                    APART_FROM_TROUBLE,
                );
            }
        }
    }
    assert!(too_near.is_empty(), "{}", too_near.join("\n"));
}

#[test]
fn no_user_and_no_layer_is_red_or_amber() {
    for (name, palette) in palettes() {
        for colour in palette.users.into_iter().chain(palette.layers) {
            let [_, a, b] = oklab(colour.channels().map(linear));
            let (chroma, hue) = (libm::hypot(a, b), libm::atan2(b, a).to_degrees());
            // Red is at 29°, amber at 85°. Brown and beige have less chroma.
            let is_red_or_amber = chroma >= 0.095 && (8.0..=100.0).contains(&hue);
            assert!(
                !is_red_or_amber,
                "{name}: {colour:?}: {chroma:.3} at {hue:.0}°"
            );
        }
    }
}

#[test]
fn safe_keeps_users_apart_without_red_or_green_cones() {
    for matrix in MISSING_CONES {
        for (a, b) in pairs(SAFE.users) {
            let [first, second] = [a, b].map(|colour| oklab(without_cones(colour, matrix)));
            let distance = lab_distance(first, second);
            assert!(
                distance >= USERS_APART_WITHOUT_CONES,
                "{a:?} and {b:?}: {distance:.3}"
            );
        }
    }
}

#[test]
fn words_have_the_foreground_of_the_terminal_where_the_theme_has_no_palette() {
    let no_palette = |name: ThemeName, depth: ColourDepth| {
        palette_of(name).is_none() || depth < ColourDepth::Palette
    };
    for name in ThemeName::VARIANTS {
        let depths = [
            ColourDepth::None,
            ColourDepth::Sixteen,
            ColourDepth::Palette,
            ColourDepth::Rgb,
        ];
        for depth in depths.into_iter().filter(|depth| no_palette(*name, *depth)) {
            let theme = Theme::new(false, depth).with(*name);
            let styles = [
                theme.text(),
                theme.dim(),
                theme.head(),
                theme.accent(),
                theme.badge(),
                theme.alarm(),
                theme.alarm_words(),
                theme.caution(),
                theme.good(),
                theme.user(None),
                theme.fill_name(Fill::Other),
            ];
            for style in styles {
                assert_eq!((style.fg, style.bg), (None, None), "{name}, {depth:?}");
            }
        }
    }
}

/// Prints the contrasts of the sixteen colours, which each terminal chooses itself: the theme
/// `terminal` only marks with them.
#[test]
#[expect(clippy::print_stdout, reason = "the ratios of a run are its result")]
fn the_contrasts_of_the_sixteen_colours_are_reported_not_promised() {
    // The colours of xterm, as its table of resources has them.
    let sixteen = [
        0x00_0000, 0xcd_0000, 0x00_cd00, 0xcd_cd00, 0x00_00ee, 0xcd_00cd, 0x00_cdcd, 0xe5_e5e5,
        0x7f_7f7f, 0xff_0000, 0x00_ff00, 0xff_ff00, 0x5c_5cff, 0xff_00ff, 0x00_ffff, 0xff_ffff,
    ];
    println!("colour of xterm: on black, on white");
    for (number, colour) in sixteen.into_iter().enumerate() {
        let [on_black, on_white] =
            [Rgb(0), Rgb(0xff_ffff)].map(|background| contrast(Rgb(colour), background));
        println!("{number:2} #{colour:06x}: {on_black:5.2}, {on_white:5.2}");
    }
}
