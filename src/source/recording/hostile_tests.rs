//! Tests with recordings that are damaged or made to do harm.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tokio::time::Instant;

use super::reader_tests::{START_MS, frame, minute, rest_of};
use super::{RecordingLimits, RecordingReader, RecordingWriter};
use crate::base::units::Bytes;
use crate::protocol::host_key::HostKey;

/// A change of the bytes of a file. Places are shares of its length in 65,536ths.
#[derive(Debug, Clone)]
enum Damage {
    FlipBit {
        place: u16,
        bit: u8,
    },
    CutOff {
        place: u16,
    },
    Remove {
        place: u16,
        length: u16,
    },
    Insert {
        place: u16,
        bytes: Vec<u8>,
    },
    /// Copies bytes from one place to another.
    Splice {
        from: u16,
        length: u16,
        to: u16,
    },
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => (any::<u16>(), 0..8_u8).prop_map(|(place, bit)| Self::FlipBit { place, bit }),
            1 => any::<u16>().prop_map(|place| Self::CutOff { place }),
            1 => (any::<u16>(), 0..4000_u16).prop_map(|(place, length)| Self::Remove { place, length }),
            1 => (any::<u16>(), prop::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(place, bytes)| Self::Insert { place, bytes }),
            1 => (any::<u16>(), 0..4000_u16, any::<u16>()).prop_map(|(from, length, to)| Self::Splice { from, length, to }),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let offset = |place: u16| length * usize::from(place) / (1 << 16);
        match self {
            Self::FlipBit { place, bit } => {
                if let Some(byte) = bytes.get_mut(offset(*place)) {
                    *byte ^= 1 << bit;
                }
            }
            Self::CutOff { place } => bytes.truncate(offset(*place)),
            Self::Remove {
                place,
                length: count,
            } => {
                _ = bytes.drain(offset(*place)..length.min(offset(*place) + usize::from(*count)));
            }
            Self::Insert { place, bytes: new } => {
                _ = bytes.splice(offset(*place)..offset(*place), new.iter().copied());
            }
            Self::Splice {
                from,
                length: count,
                to,
            } => {
                let copied =
                    bytes[offset(*from)..length.min(offset(*from) + usize::from(*count))].to_vec();
                bytes.splice(offset(*to)..offset(*to), copied);
            }
        }
    }
}

/// A folder with a recording of five frames in it.
struct DamagedFile {
    folder: tempfile::TempDir,
    minutes: Vec<String>,
    frames: Vec<Vec<u8>>,
}

impl DamagedFile {
    fn new() -> Self {
        let minutes: Vec<String> = (0..5)
            .map(|number| minute(number, number % 2 == 0))
            .collect();
        let frames = minutes.iter().map(|lines| frame(lines)).collect();
        Self {
            folder: tempfile::tempdir().unwrap(),
            minutes,
            frames,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("night.jsonl.zst")
    }

    fn reader(&self, bytes: &[u8]) -> RecordingReader {
        fs::write(self.path(), bytes).unwrap();
        RecordingReader::open(&self.path()).unwrap()
    }

    /// Checks that a file can be read, searched, and appended to.
    fn check_harmless(&self, bytes: &[u8]) -> TestCaseResult {
        let mut reader = self.reader(bytes);
        // The version of the format may be damaged, too.
        while let Ok(Some(_)) = reader.next_line() {}
        let _any: Vec<String> = reader.problems();
        let span = reader.span().unwrap();
        for minute in [0, 2, 4, 1000] {
            reader.seek(START_MS + minute * 60_000).unwrap();
            let _line = reader.next_line();
        }
        if span.is_some() {
            prop_assert!(reader.span().unwrap() == span);
        }
        let limits = RecordingLimits {
            max_size: Bytes(1 << 30),
            max_age: Duration::from_hours(1000),
        };
        let Ok(mut writer) = RecordingWriter::open(&self.path(), limits) else {
            return Ok(());
        };
        let now = Instant::now();
        let last = "{\"kind\":\"full\",\"schema\":1,\"unix_time_ms\":1784999999999,\"host\":{}}\n";
        let start = writer
            .next_frame(HostKey::FIRST, 1_784_999_999_999, true, now)
            .unwrap();
        writer.begin_frame(start, last.as_bytes(), BTreeMap::new(), now);
        prop_assert!(writer.close(now).len() <= 1);
        let (text, _) = rest_of_any(&mut RecordingReader::open(&self.path()).unwrap());
        prop_assert!(text.ends_with(last), "{text}");
        Ok(())
    }
}

/// Returns all lines up to an error.
fn rest_of_any(reader: &mut RecordingReader) -> (String, bool) {
    let mut text = String::new();
    loop {
        match reader.next_line() {
            Ok(Some(line)) => text.push_str(&(String::from_utf8_lossy(line) + "\n")),
            Ok(None) => return (text, true),
            Err(_) => return (text, false),
        }
    }
}

#[test]
fn one_flipped_bit_costs_one_frame_at_most_and_is_said() {
    let file = DamagedFile::new();
    let bytes = file.frames.concat();
    let all = file.minutes.concat();
    for bit in 0..bytes.len() * 8 {
        // All bits of the headers, and some of the content.
        let first = file.frames.iter().scan(0, |offset, frame| {
            Some(std::mem::replace(offset, *offset + frame.len()))
        });
        let is_header = first
            .into_iter()
            .any(|offset| (offset..offset + 10).contains(&(bit / 8)));
        if !is_header && bit % 41 != 0 {
            continue;
        }
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (text, problems) = rest_of(&mut file.reader(&flipped));
        let mut end = 0;
        let damaged = file.frames.iter().position(|frame| {
            end += frame.len();
            bit / 8 < end
        });
        for (number, lines) in file
            .minutes
            .iter()
            .enumerate()
            .filter(|(number, _)| Some(*number) != damaged)
        {
            assert!(text.contains(lines), "bit {bit}: minute {number} is lost");
        }
        assert!(text == all || !problems.is_empty(), "bit {bit} is not said");
        assert!(
            text.lines().all(|line| all.contains(line)),
            "bit {bit}: another line"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_recordings_do_no_harm(damages in prop::collection::vec(Damage::any(), 1..5)) {
        let file = DamagedFile::new();
        let mut bytes = file.frames.concat();
        for damage in &damages {
            damage.apply(&mut bytes);
        }
        file.check_harmless(&bytes)?;
        let mut plain = file.minutes.concat().into_bytes();
        for damage in &damages {
            damage.apply(&mut plain);
        }
        file.check_harmless(&plain)?;
    }

    #[test]
    fn any_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_frame: bool) {
        if is_frame {
            bytes.splice(0..0, super::frame::MAGIC);
        }
        DamagedFile::new().check_harmless(&bytes)?;
    }
}
