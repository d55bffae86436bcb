//! The GPUs of a host without gputop, from the output of `nvidia-smi` there.
//!
//! The first contact starts `nvidia-smi --query-gpu=FIELDS -l SECONDS`, which prints one line for
//! each GPU again and again. The lines of one round become a snapshot without processes. They are
//! hostile input: their length, the number of GPUs and all figures are checked.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::first_contact::new_nonce;
use crate::base::text::Text;
use crate::base::units::{Bytes, Celsius, Hertz, Moment, Percent, Watts};
use crate::protocol::snapshot::{
    AgentFacts, Driver, Gpu, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Host, HostFacts, HostLoad,
    HostScan, Missing, MissingLists, Reading, Snapshot,
};

/// The fields of a line, in their order. All drivers since 2014 know them: one unknown field would
/// make `nvidia-smi` print nothing else.
pub(crate) const FIELDS: &str = "count,index,uuid,name,pci.bus_id,driver_version,memory.total,\
    memory.used,memory.free,utilization.gpu,utilization.memory,temperature.gpu,power.draw,\
    enforced.power.limit,clocks.sm,clocks.mem,pstate,fan.speed";

/// The number of fields.
const WIDTH: usize = 18;

/// The longest line in bytes. A line of a GPU has 200.
const LONGEST_LINE: usize = 4096;

/// The most GPUs of a host.
const MOST_GPUS: usize = 256;

/// Makes snapshots of the lines of `nvidia-smi`.
#[derive(Debug)]
pub(crate) struct NvidiaSmiReader {
    /// The name of the host that the user typed.
    host: Text,
    interval: Duration,
    /// The GPUs of the round so far.
    gpus: Vec<Gpu>,
    driver: Option<Text>,
    sequence: u64,
}

impl NvidiaSmiReader {
    /// Returns a reader for a host with this name. `interval` is the time between two rounds.
    pub(crate) fn new(host: Text, interval: Duration) -> Self {
        Self {
            host,
            interval: interval.max(Duration::from_secs(1)),
            gpus: Vec::new(),
            driver: None,
            sequence: 0,
        }
    }

    /// Reads a line without its line end. Returns a snapshot when a round is complete.
    ///
    /// # Errors
    ///
    /// When the first line is about no GPU: it says why there is none.
    pub(crate) fn read(&mut self, line: &[u8]) -> Result<Option<Snapshot>, String> {
        self.read_at(line, now(), unix_ms())
    }

    fn read_at(
        &mut self,
        line: &[u8],
        at: Moment,
        unix_ms: u64,
    ) -> Result<Option<Snapshot>, String> {
        let Some(row) = NvidiaSmiRow::parse(line) else {
            let text = line.trim_ascii();
            // Warnings come after the first GPU.
            if text.is_empty() || self.sequence > 0 || !self.gpus.is_empty() {
                return Ok(None);
            }
            let text = Text::new(&text[..text.len().min(LONGEST_LINE)]);
            return Err(format!("no gputop there, and nvidia-smi says: {text}"));
        };
        // If `nvidia-smi` leaves out a GPU that is lost, the next round ends this one.
        let is_new_round = (self.gpus.last()).is_some_and(|last| last.facts.index >= row.index);
        let mut complete = is_new_round.then(|| self.snapshot(at, unix_ms));
        let gpu = row.gpu(at);
        if self.gpus.len() < MOST_GPUS && !self.gpus.iter().any(|known| known.uuid == gpu.uuid) {
            self.gpus.push(gpu);
        }
        self.driver = row.text(5).ok();
        if self.gpus.len() >= row.count {
            complete = Some(self.snapshot(at, unix_ms));
        }
        Ok(complete)
    }

    fn snapshot(&mut self, at: Moment, unix_ms: u64) -> Snapshot {
        /// Stands for the boot of a host that tells no ID of it. A checkpoint of another session
        /// would not be of the same clock.
        static BOOT_ID: OnceLock<String> = OnceLock::new();
        let boot_id = BOOT_ID.get_or_init(new_nonce).as_str();
        self.sequence += 1;
        Snapshot {
            schema: Snapshot::SCHEMA,
            sequence: self.sequence,
            at,
            unix_ms,
            interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            agent: Some(AgentFacts::of_nvidia_smi().into()),
            host: Host {
                facts: HostFacts::missing(
                    self.host.clone(),
                    boot_id.into(),
                    100,
                    u32::MAX,
                    Missing::Unsupported,
                ),
                load: HostLoad::missing(Missing::Unsupported),
                scan: HostScan::missing(at, 0, 0, Missing::Unsupported),
            },
            driver: Driver {
                version: self.driver.clone(),
                cuda_version: None,
                trouble: None,
                failures: Vec::new(),
            },
            gpus: std::mem::take(&mut self.gpus),
            processes: Vec::new(),
        }
    }
}

/// The time since boot of the viewer's host: the other host tells none.
fn now() -> Moment {
    Moment(milliseconds(ClockId::Boottime))
}

fn unix_ms() -> u64 {
    milliseconds(ClockId::Realtime)
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
}

/// The line of a GPU.
struct NvidiaSmiRow<'a> {
    fields: [&'a str; WIDTH],
    /// The number of GPUs of the host.
    count: usize,
    index: u32,
}

impl<'a> NvidiaSmiRow<'a> {
    /// Returns `None` for a line that is not of a GPU.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line
            .get(..=LONGEST_LINE)
            .is_none()
            .then(|| str::from_utf8(line))?;
        let mut parts = line.ok()?.split(',').map(str::trim);
        let mut fields = [""; WIDTH];
        for field in &mut fields {
            *field = parts.next()?;
        }
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            fields,
            count: fields[0].parse().ok()?,
            index: fields[1].parse().ok()?,
        })
    }

    /// Returns the text of a field, or why it is missing.
    fn word(&self, place: usize) -> Reading<&'a str> {
        match self.fields[place] {
            "[N/A]"
            | "N/A"
            | "[Not Supported]"
            | "[Requested functionality has been deprecated]" => Err(Missing::Unsupported),
            "[Insufficient Permissions]" => Err(Missing::Denied),
            "" => Err(Missing::Failed),
            // An error such as `[Unknown Error]` and `[GPU is lost]`.
            error if error.starts_with('[') => Err(Missing::Failed),
            word => Ok(word),
        }
    }

    fn text(&self, place: usize) -> Reading<Text> {
        self.word(place).map(Text::from)
    }

    fn number<T: std::str::FromStr>(&self, place: usize) -> Reading<T> {
        self.word(place)?.parse().map_err(|_| Missing::Failed)
    }

    fn mebibytes(&self, place: usize) -> Reading<Bytes> {
        self.number(place).map(Bytes::from_mib)
    }

    fn percent(&self, place: usize) -> Reading<Percent> {
        // A byte has no more than 255 percent.
        self.number::<u8>(place)
            .map(|value| Percent::new(value.into()))
    }

    fn megahertz(&self, place: usize) -> Reading<Hertz> {
        self.number(place).map(Hertz::from_mhz)
    }

    fn watts(&self, place: usize) -> Reading<Watts> {
        let watts: f64 = self.number(place)?;
        if !(0.0..100_000.0).contains(&watts) {
            return Err(Missing::Failed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        Ok(Watts::from_milliwatts((watts * 1000.0) as u32))
    }

    fn gpu(&self, at: Moment) -> Gpu {
        let performance_state = self.word(16).and_then(|word| {
            let number = word.strip_prefix('P').and_then(|word| word.parse().ok());
            number.ok_or(Missing::Failed)
        });
        Gpu {
            uuid: self
                .text(2)
                .map_or_else(|_| GpuUuid::unknown(self.index), GpuUuid),
            facts: GpuFacts {
                name: self.text(3),
                bus_id: self.text(4),
                ..GpuFacts::missing(self.index, None, false, Missing::Unsupported)
            },
            load: GpuLoad {
                memory_total: self.mebibytes(6),
                memory_used: self.mebibytes(7),
                memory_free: self.mebibytes(8),
                sm: self.percent(9),
                memory_bandwidth: self.percent(10),
                temperature: self.number(11).map(Celsius),
                power: self.watts(12),
                sm_clock: self.megahertz(14),
                ..GpuLoad::missing(at, Missing::Unsupported)
            },
            health: GpuHealth {
                power_limit: self.watts(13),
                memory_clock: self.megahertz(15),
                performance_state,
                fan: self.percent(17),
                ..GpuHealth::missing(at, Vec::new(), Missing::Unsupported)
            },
            shared_memory: None,
            detail: None,
            processes: Vec::new(),
            missing: MissingLists {
                processes: Some(Missing::Unsupported),
                processes_not_asked: true,
            },
            device_file_holders: Vec::new(),
            trouble: None,
            failures: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> NvidiaSmiReader {
        NvidiaSmiReader::new("gpu-06".into(), Duration::from_secs(2))
    }

    /// A line with these first fields, as an H100 prints the others.
    fn line(count: &str, index: &str, uuid: &str) -> String {
        format!(
            "{count}, {index}, {uuid}, NVIDIA H100 80GB HBM3, 00000000:18:00.0, 590.48.01, 81559, 19818, 61263, 100, 11, 59, \
             631.95, 700.00, 1980, 2619, P0, [N/A]"
        )
    }

    #[test]
    fn the_fields_are_as_many_as_are_read() {
        assert_eq!(FIELDS.split(',').count(), WIDTH);
        assert!(!FIELDS.contains(' '));
    }

    #[test]
    fn the_lines_of_a_round_are_a_snapshot() {
        let mut reader = reader();
        let at = Moment(5000);
        assert_eq!(
            reader.read_at(line("2", "0", "GPU-a").as_bytes(), at, 7),
            Ok(None)
        );
        let snapshot = reader
            .read_at(line("2", "1", "GPU-b").as_bytes(), at, 7)
            .unwrap()
            .unwrap();
        assert!(snapshot.is_of_nvidia_smi() && !snapshot.can_end_after_silence());
        assert_eq!(snapshot.host.facts.name.as_str(), "gpu-06");
        assert_eq!(
            snapshot.driver.version.as_ref().unwrap().as_str(),
            "590.48.01"
        );
        assert_eq!((snapshot.sequence, snapshot.interval_ms), (1, 2000));
        let [first, second] = &snapshot.gpus[..] else {
            panic!("{:?}", snapshot.gpus)
        };
        assert_eq!((first.uuid.0.as_str(), second.facts.index), ("GPU-a", 1));
        assert_eq!(first.load.memory_used, Ok(Bytes::from_mib(19818)));
        assert_eq!(first.load.memory_total, Ok(Bytes::from_mib(81559)));
        assert_eq!(first.load.sm, Ok(Percent::new(100.0)));
        assert_eq!(first.load.power, Ok(Watts::from_milliwatts(631_950)));
        assert_eq!(first.load.sm_clock, Ok(Hertz::from_mhz(1980)));
        assert_eq!(first.health.performance_state, Ok(0));
        assert_eq!(first.health.fan, Err(Missing::Unsupported));
        assert_eq!(first.missing.processes, Some(Missing::Unsupported));
        let again = reader.read_at(line("2", "0", "GPU-a").as_bytes(), at, 8);
        assert_eq!(again, Ok(None));
        let next = reader.read_at(line("2", "1", "GPU-b").as_bytes(), at, 8);
        assert_eq!(next.unwrap().unwrap().sequence, 2);
    }

    #[test]
    fn a_snapshot_can_be_recorded() {
        let snapshot = reader()
            .read(line("1", "0", "GPU-a").as_bytes())
            .unwrap()
            .unwrap();
        let line = crate::protocol::line::Line::Full(Box::new(snapshot));
        let mut written = Vec::new();
        line.write(&mut written).unwrap();
        assert_eq!(
            crate::source::limits::parse(written.trim_ascii_end()),
            Ok(Some(line))
        );
    }

    #[test]
    fn a_value_that_nvidia_smi_does_not_know_is_missing_with_its_reason() {
        let line = "1, 0, [Unknown Error], NVIDIA GeForce RTX 2080 SUPER, [GPU is lost], 595.71.05, [Unknown Error], 214, \
                    [Insufficient Permissions], [N/A], 999, -3, -1, nan, 12.5, 99999999999, 8, 38";
        let snapshot = reader().read(line.as_bytes()).unwrap().unwrap();
        let gpu = &snapshot.gpus[0];
        assert!(gpu.uuid.is_unknown(), "{:?}", gpu.uuid);
        assert_eq!(gpu.facts.bus_id, Err(Missing::Failed));
        assert_eq!(gpu.load.memory_total, Err(Missing::Failed));
        assert_eq!(gpu.load.memory_used, Ok(Bytes::from_mib(214)));
        assert_eq!(gpu.load.memory_free, Err(Missing::Denied));
        assert_eq!(gpu.load.sm, Err(Missing::Unsupported));
        assert_eq!(gpu.load.memory_bandwidth, Err(Missing::Failed));
        assert_eq!(gpu.load.temperature, Ok(Celsius(-3)));
        assert_eq!(gpu.load.power, Err(Missing::Failed));
        assert_eq!(gpu.health.power_limit, Err(Missing::Failed));
        assert_eq!(gpu.load.sm_clock, Err(Missing::Failed));
        assert_eq!(gpu.health.memory_clock, Err(Missing::Failed));
        assert_eq!(gpu.health.performance_state, Err(Missing::Failed));
        assert_eq!(gpu.health.fan, Ok(Percent::new(38.0)));
    }

    #[test]
    fn a_round_in_which_a_gpu_is_missing_ends_with_the_next_round() {
        let mut reader = reader();
        assert_eq!(reader.read(line("3", "0", "GPU-a").as_bytes()), Ok(None));
        assert_eq!(reader.read(line("3", "2", "GPU-c").as_bytes()), Ok(None));
        let snapshot = reader
            .read(line("3", "0", "GPU-a").as_bytes())
            .unwrap()
            .unwrap();
        let indexes: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.facts.index).collect();
        assert_eq!(indexes, [0, 2]);
    }

    #[test]
    fn a_first_line_about_no_gpu_is_the_reason_and_a_later_one_is_skipped() {
        let mut reader = reader();
        assert_eq!(reader.read(b"  "), Ok(None));
        let failure =
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
        assert_eq!(
            reader.read(failure.as_bytes()).unwrap_err(),
            format!("no gputop there, and nvidia-smi says: {failure}")
        );
        assert!(
            reader
                .read(line("1", "0", "GPU-a").as_bytes())
                .unwrap()
                .is_some()
        );
        assert_eq!(reader.read(b"WARNING: infoROM is corrupted"), Ok(None));
    }

    #[test]
    fn hostile_lines_stay_within_the_limits() {
        let mut reader = reader();
        let long = line("1", "0", &"x".repeat(1 << 20));
        let error = reader.read(long.as_bytes()).unwrap_err();
        assert!(error.len() <= Text::LIMIT + 100, "{} bytes", error.len());
        let more_fields = line("1", "0", "GPU-a") + ", 1";
        for text in ["1, 0", &more_fields, "x, 0,,,,,,,,,,,,,,,,", "\u{1b}[2J"] {
            let error = reader.read(text.as_bytes()).unwrap_err();
            assert!(!error.contains('\u{1b}'), "{error}");
        }
        for index in 0..10_000 {
            let text = line("4000000000", &index.to_string(), &format!("GPU-{index}"));
            assert_eq!(reader.read(text.as_bytes()), Ok(None));
        }
        assert_eq!(reader.gpus.len(), MOST_GPUS);
        // Two lines with one UUID are one GPU.
        let snapshot = reader.read(line("1", "0", "GPU-x").as_bytes());
        assert_eq!(snapshot.unwrap().unwrap().gpus.len(), 1);
    }
}
