//! The text form of a track in a checkpoint: base64 of small numbers. A reader builds the track
//! slot by slot, so every text that it accepts is a valid track.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BLANK, BLOCK, BLOCK_BUCKETS, Block, GAP, HIGHEST, OpenBlock, Track};

/// The most slots of a track: those of six hours in tens of seconds, and two blocks.
const MOST_SLOTS: u32 = 6 * 360 + 2 * BLOCK_BUCKETS;

/// The latest first bucket: the buckets after it have a number, too.
const LATEST_FIRST: u32 = u32::MAX - 2 * MOST_SLOTS;

/// Kinds of groups of slots. All slots of a run are equal; each of the others is a base plus a
/// number of steps.
const RUN: u64 = 0;
const STEPS: u64 = 1;

/// [`GAP`] and [`BLANK`] among steps. The step `n` is written as `n + 2`.
const GAP_STEP: u64 = 0;
const BLANK_STEP: u64 = 1;

impl Serialize for Track {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        if !self.is_empty() {
            put(&mut bytes, self.first.into());
            put(
                &mut bytes,
                self.before.map_or(0, |slot| u64::from(slot) + 1),
            );
            put(&mut bytes, self.full.len() as u64);
            for block in &self.full {
                match block {
                    Block::Same { slot, blocks } => {
                        put_run(&mut bytes, *slot, blocks.saturating_mul(BLOCK_BUCKETS));
                    }
                    _ => put_steps(
                        &mut bytes,
                        &std::array::from_fn::<u32, BLOCK, _>(|place| block.slot(place)),
                    ),
                }
            }
            put_run(&mut bytes, self.open.slot, self.open.same);
            put_steps(&mut bytes, &self.open.rest);
        }
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

/// Writes a number in as few bytes as it needs, seven bits in each, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn put_run(bytes: &mut Vec<u8>, slot: u32, slots: u32) {
    put(bytes, u64::from(slots) << 1 | RUN);
    put(bytes, slot.into());
}

fn put_steps(bytes: &mut Vec<u8>, slots: &[u32]) {
    let (base, shift) = Block::scale(slots);
    put(bytes, (slots.len() as u64) << 1 | STEPS);
    put(bytes, base.into());
    put(bytes, shift.into());
    for slot in slots {
        let step = match *slot {
            GAP => GAP_STEP,
            BLANK => BLANK_STEP,
            slot => u64::from((slot - base) >> shift) + 2,
        };
        put(bytes, step);
    }
}

impl<'de> Deserialize<'de> for Track {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD
            .decode(text.as_bytes())
            .map_err(D::Error::custom)?;
        let mut rest = bytes.as_slice();
        if rest.is_empty() {
            return Ok(Self::default());
        }
        read(&mut rest)
            .filter(|_| rest.is_empty())
            .ok_or_else(|| D::Error::custom("no slots of a curve"))
    }
}

/// Reads a track; `None` when the bytes are none.
fn read(bytes: &mut &[u8]) -> Option<Track> {
    let first = small(bytes).filter(|first| *first <= LATEST_FIRST)?;
    let before = number(bytes)?
        .checked_sub(1)
        .map(u32::try_from)
        .transpose()
        .ok()?;
    let mut track = Track {
        first,
        before,
        ..Track::default()
    };
    for _ in 0..small(bytes)? {
        let block = match group(bytes, MOST_SLOTS)? {
            Group::Run { slot, slots } if slots > 0 && slots % BLOCK_BUCKETS == 0 => Block::Same {
                slot,
                blocks: slots / BLOCK_BUCKETS,
            },
            Group::Run { .. } => return None,
            Group::Steps(slots) => Block::pack(&slots.try_into().ok()?),
        };
        track.packed += u32::try_from(block.len()).ok()?;
        if track.packed > MOST_SLOTS {
            return None;
        }
        track.full.push_back(block);
    }
    let Group::Run { slot, slots: same } = group(bytes, BLOCK_BUCKETS)? else {
        return None;
    };
    let Group::Steps(rest) = group(bytes, BLOCK_BUCKETS - same)? else {
        return None;
    };
    track.open = OpenBlock { slot, same, rest };
    (!track.is_empty()).then_some(track)
}

enum Group {
    Run { slot: u32, slots: u32 },
    Steps(Vec<u32>),
}

/// Reads a group of at most this many slots.
fn group(bytes: &mut &[u8], most: u32) -> Option<Group> {
    let head = small(bytes)?;
    let slots = Some(head >> 1).filter(|slots| *slots <= most)?;
    if u64::from(head & 1) == RUN {
        return Some(Group::Run {
            slot: small(bytes)?,
            slots,
        });
    }
    let (base, shift) = (
        number(bytes)?,
        small(bytes).filter(|shift| *shift < u32::BITS)?,
    );
    let mut steps = Vec::with_capacity(slots as usize);
    for _ in 0..slots {
        steps.push(match number(bytes)? {
            GAP_STEP => GAP,
            BLANK_STEP => BLANK,
            step => {
                let above = (step - 2).checked_mul(1 << shift)?;
                u32::try_from(above.checked_add(base)?)
                    .ok()
                    .filter(|slot| *slot <= HIGHEST)?
            }
        });
    }
    Some(Group::Steps(steps))
}

fn small(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(number(bytes)?).ok()
}

/// Reads a number; `None` when it is cut off or has more than 35 bits.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..5 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}
