//! Replies cut, delayed, damaged and cut off, between keys.

use super::*;

const WHITE: &str = "\x1b]11;rgb:ffff/ffff/ffff";
const END_MARK: &str = "\x1b[?62;4;22c";

/// The delays between two pieces of a reply: none, typical ones, and the longest.
const DELAYS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_secs(1),
    Duration::from_millis(2999),
];

/// A filter, and a clock that moves only by hand.
struct Exchange {
    filter: ReplyFilter,
    now: Instant,
    inputs: Vec<TerminalInput>,
}

impl Exchange {
    fn unasked() -> Self {
        Self {
            filter: ReplyFilter::new(),
            now: Instant::now(),
            inputs: Vec::new(),
        }
    }

    fn asked() -> Self {
        let mut exchange = Self::unasked();
        exchange.filter.ask(exchange.now);
        exchange
    }

    fn read(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.inputs.extend(self.filter.take(bytes, self.now));
        }
    }

    fn wait(&mut self, delay: Duration) {
        self.now += delay;
        self.inputs.extend(self.filter.expire(self.now));
    }

    /// The keys so far, as crossterm reads them: one text for each read.
    fn keys(&self) -> Vec<String> {
        self.inputs
            .iter()
            .filter_map(|input| match input {
                TerminalInput::Keys(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                TerminalInput::Background(_) | TerminalInput::EndMark => None,
            })
            .collect()
    }

    fn background(&self) -> Option<Background> {
        self.inputs.iter().find_map(|input| match input {
            TerminalInput::Background(background) => Some(*background),
            TerminalInput::Keys(_) | TerminalInput::EndMark => None,
        })
    }

    fn has_end_mark(&self) -> bool {
        self.inputs.contains(&TerminalInput::EndMark)
    }
}

/// Reads a reply in two pieces, cut at each byte, with each delay, between two keys. Calls `check`
/// with each exchange.
fn cut_everywhere(reply: &[u8], start: impl Fn() -> Exchange, check: impl Fn(&Exchange, &str)) {
    for cut in 0..=reply.len() {
        for delay in DELAYS {
            let mut exchange = start();
            exchange.read(b"j");
            exchange.read(&reply[..cut]);
            exchange.wait(delay);
            exchange.read(&reply[cut..]);
            // Keys after a reply that does not end.
            exchange.read(b"k");
            exchange.read(b"\x1b[B");
            let case = format!(
                "{:?} cut at {cut}, {delay:?}",
                String::from_utf8_lossy(reply)
            );
            assert_eq!(exchange.keys().concat(), "jk\x1b[B", "{case}");
            check(&exchange, &case);
        }
    }
}

#[test]
fn a_reply_is_found_wherever_it_is_cut_and_however_late() {
    for end in ["\x07", "\x1b\\"] {
        let reply = format!("{WHITE}{end}{END_MARK}");
        cut_everywhere(reply.as_bytes(), Exchange::asked, |exchange, case| {
            assert_eq!(exchange.background(), Some(Background::Light), "{case}");
            assert!(exchange.has_end_mark(), "{case}");
        });
        // Late, after the question was given up: the key reader swallows it all the same.
        let late = || {
            let mut exchange = Exchange::asked();
            exchange.wait(Duration::from_secs(2));
            exchange
        };
        cut_everywhere(reply.as_bytes(), late, |exchange, case| {
            assert_eq!(exchange.background(), Some(Background::Light), "{case}");
        });
    }
}

#[test]
fn the_rest_of_a_reply_may_take_longer_than_an_escape_is_held_back() {
    for end in ["\x07", "\x1b\\"] {
        let reply = format!("{WHITE}{end}");
        for cut in 2..reply.len() {
            let mut exchange = Exchange::asked();
            exchange.read(&reply.as_bytes()[..cut]);
            exchange.wait(PATIENCE);
            exchange.read(&reply.as_bytes()[cut..]);
            assert!(exchange.keys().is_empty(), "{cut}");
            assert_eq!(exchange.background(), Some(Background::Light), "{cut}");
        }
    }
    // A first byte that was passed on as the Esc key does not make keys of the rest.
    let mut exchange = Exchange::asked();
    exchange.read(b"\x1b");
    exchange.wait(PATIENCE);
    exchange.read(&WHITE.as_bytes()[1..]);
    exchange.read(b"\x07");
    assert_eq!(exchange.keys(), ["\x1b"]);
    assert_eq!(exchange.background(), Some(Background::Light));
}

#[test]
fn a_reply_in_single_bytes_is_no_key() {
    for end in ["\x07", "\x1b\\"] {
        for delay in DELAYS {
            let mut exchange = Exchange::asked();
            for byte in format!("{WHITE}{end}{END_MARK}").bytes() {
                exchange.read(&[byte]);
                exchange.wait(delay);
            }
            // After 3 s without an end mark, `ESC` is passed on at once.
            let late_escapes = exchange.keys().iter().all(|keys| keys == "\x1b");
            assert!(late_escapes, "{delay:?}: {:?}", exchange.keys());
            assert_eq!(exchange.background(), Some(Background::Light));
            exchange.read(b"q");
            assert_eq!(exchange.keys().last().map(String::as_str), Some("q"));
        }
    }
}

#[test]
fn a_damaged_reply_is_swallowed() {
    let damaged: [&[u8]; 12] = [
        b"\x1b]11;rgb:zzzz/ffff/ffff\x1b\\\x1b[?62c",
        b"\x1b]11;rgb:ffff/ffff\x07\x1b[?62c",
        b"\x1b]11;rgb:ffff/ff\xff\xfe/ffff\x07\x1b[?62c",
        b"\x1b]11;rgb:ffff/qqqq/\x03\x04ff\x1b\\\x1b[?62c",
        b"\x1b]11;hsl:1/2/3\x07\x1b[?62c",
        b"\x1b]11;?\x07\x1b[?62c",
        b"\x1b]10;rgb:ffff/ffff/ffff\x07\x1b[?62c",
        b"\x1b]11;rgb:ffff/ffff/ffff/ffff/ffff/ffff/ffff/ffff/ffff/ffff/ffff\x07\x1b[?62c",
        b"\x1b]\x07\x1b[?62c",
        b"\x1b[?6\xff2c",
        b"\x1b]11;rgb:ffff\x1b]11;rgb:0\x07\x1b[?c",
        b"\x1b]11;rgb:ffff/ffff/ffff\x9c\x1b[?62c",
    ];
    for reply in damaged {
        let mut exchange = Exchange::asked();
        exchange.read(reply);
        exchange.read(b"q");
        assert_eq!(exchange.keys(), ["q"], "{}", String::from_utf8_lossy(reply));
        assert!(exchange.has_end_mark());
    }
    // A reply whose first byte is lost.
    for reply in ["]11;rgb:ffff/ffff/ffff\x07", "[?62;4c"] {
        let mut exchange = Exchange::asked();
        exchange.read(reply.as_bytes());
        exchange.read(b"q");
        assert_eq!(exchange.keys(), ["q"], "{reply}");
    }
}

#[test]
fn a_reply_that_never_ends_takes_no_key_with_it() {
    for reply in [format!("{WHITE}\x1b\\{END_MARK}"), format!("{WHITE}\x07")] {
        for length in 1..reply.len() {
            for delay in [Duration::ZERO, Duration::from_secs(1), PATIENCE] {
                let mut exchange = Exchange::asked();
                exchange.read(&reply.as_bytes()[..length]);
                exchange.wait(delay);
                for key in ["q", "\x1b[A", "\r", "j", "\x1bOP", "é"] {
                    exchange.read(key.as_bytes());
                }
                let keys = exchange.keys().concat();
                // An `ESC` at the end may be the Esc key; `ESC [` goes to crossterm as it is.
                let keys = keys.trim_start_matches("\x1b[").trim_start_matches('\x1b');
                assert_eq!(keys, "q\x1b[A\rj\x1bOPé", "{length} {delay:?}");
            }
        }
    }
}

#[test]
fn a_reply_that_nobody_asked_for_is_swallowed_and_not_believed() {
    for end in ["\x07", "\x1b\\"] {
        let mut exchange = Exchange::unasked();
        exchange.read(format!("{WHITE}{end}{END_MARK}").as_bytes());
        exchange.read(format!("j{WHITE}{end}k").as_bytes());
        assert_eq!(exchange.inputs, [TerminalInput::Keys(b"jk".into())]);
    }
}

#[test]
fn escape_waits_only_while_a_reply_may_follow() {
    // Without a question, and after its end mark.
    let mut exchange = Exchange::unasked();
    exchange.read(b"\x1b");
    assert_eq!(exchange.keys(), ["\x1b"]);
    let mut exchange = Exchange::asked();
    exchange.read(END_MARK.as_bytes());
    exchange.read(b"\x1b");
    assert_eq!(exchange.keys(), ["\x1b"]);
    // Before the end mark: until the next key, the end mark, or 3 s later.
    for next in ["q", "\x1b[A", "[", "]", "O"] {
        let mut exchange = Exchange::asked();
        exchange.read(b"\x1b");
        assert!(exchange.keys().is_empty());
        exchange.read(next.as_bytes());
        exchange.read(b"x");
        let keys = exchange.keys();
        assert_eq!(keys[0], "\x1b", "{next}");
        assert_eq!(keys[1..].concat(), format!("{next}x"));
    }
    let mut exchange = Exchange::asked();
    exchange.read(b"\x1b");
    exchange.read(END_MARK.as_bytes());
    assert_eq!(exchange.keys(), ["\x1b"]);
    let mut exchange = Exchange::asked();
    exchange.read(b"\x1b");
    exchange.wait(PATIENCE);
    assert_eq!(exchange.keys(), ["\x1b"]);
    exchange.read(b"\x1b");
    assert_eq!(exchange.keys(), ["\x1b", "\x1b"], "the question is over");
}

#[test]
fn keys_around_a_reply_are_passed_on_at_once_and_as_they_were() {
    let sequences = [
        "j",
        "\r",
        "\x03",
        "\x1b[A",
        "\x1b[1;5C",
        "\x1bOP",
        "\x1b[20~",
        "\x1bq",
        "ü",
        "[",
        "]",
        "\x1b[<0;10;5M",
        "\x1b[M !!",
        "\x1b[200~]11;a\x1b[201~",
    ];
    for key in sequences {
        for start in [Exchange::asked, Exchange::unasked] {
            let mut exchange = start();
            exchange.read(key.as_bytes());
            assert_eq!(exchange.keys(), [key]);
            exchange.read(format!("{key}{WHITE}\x07{key}{END_MARK}{key}").as_bytes());
            assert_eq!(exchange.keys().concat(), key.repeat(4));
        }
    }
    // Two Esc keys in one read are two keys.
    let mut exchange = Exchange::unasked();
    exchange.read(b"\x1b\x1b");
    assert_eq!(exchange.keys(), ["\x1b", "\x1b"]);
}

#[test]
fn the_question_is_open_until_the_end_mark_or_for_three_seconds() {
    let mut exchange = Exchange::asked();
    assert!(exchange.filter.is_open(exchange.now));
    exchange.read(format!("{WHITE}\x07").as_bytes());
    assert!(exchange.filter.is_open(exchange.now));
    assert!(!exchange.filter.is_open(exchange.now + PATIENCE));
    exchange.read(END_MARK.as_bytes());
    assert!(!exchange.filter.is_open(exchange.now));
    assert!(!Exchange::unasked().filter.is_open(exchange.now));
}

#[test]
fn all_forms_of_colours_are_understood() {
    let of = |reply: &str| background(reply.as_bytes());
    for dark in [
        "11;rgb:0000/0000/0000",
        "11;rgb:1e/1e/2e",
        "11;#002b36",
        "11;rgb:2/2/2",
        "11;rgba:0/0/0/ffff",
    ] {
        assert_eq!(of(dark), Some(Background::Dark), "{dark}");
    }
    for light in [
        "11;rgb:ffff/ffff/ffff",
        "11;rgb:fd/f6/e3",
        "11;#fff",
        "11;#ffffeeeedddd",
        "11;rgba:ff/ff/ff/ff",
    ] {
        assert_eq!(of(light), Some(Background::Light), "{light}");
    }
    for nonsense in [
        "",
        "11;",
        "11;rgb:",
        "11;rgb:f/f",
        "11;rgb:fffff/0/0",
        "11;rgb:+f/0/0",
        "11;#ff",
        "11;#ffff",
        "11;#é",
        "10;rgb:f/f/f",
    ] {
        assert_eq!(of(nonsense), None, "{nonsense}");
    }
}
