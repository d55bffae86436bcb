//! Tests of reports that are whole, damaged or forged, and of the memory files of real processes.

use std::os::fd::OwnedFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;

use super::memory_file::{MemoryFiles, ReportFile};
use super::state::{HEADER_SIZE, REPORTS, ReportState, ReportWriter, header, limit, read};
use crate::agent::procfs::stat;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{ProbeMissing, ProbeReport, ProcessId, TensorCategory};

const SIZE: u64 = REPORTS.size as u64;

const WRITER: ReportWriter = ReportWriter {
    pid: 42,
    start_ticks: 4711,
};

/// A report as the probe writes it.
const REPORT: &str = include_str!("../../../tests/data/probe-report-2.json");
/// The same report as the probe of the first version wrote it.
const REPORT_1: &str = include_str!("../../../tests/data/probe-report-1.json");

/// Returns the bytes of a file with this report.
fn file(writer: ReportWriter, sequence: u64, report: &[u8]) -> Vec<u8> {
    let mut bytes = header(REPORTS, writer, sequence, report);
    bytes.extend(report);
    bytes
}

/// Reads a file of these bytes, which end early in a truncated file.
fn read_bytes(bytes: &[u8], known: Option<u64>) -> Result<(ReportState, u64), ProbeMissing> {
    read(WRITER, known, &mut Vec::new(), |buffer, offset| {
        let begin = usize::try_from(offset).unwrap();
        let found = bytes.get(begin..begin + buffer.len());
        found
            .inspect(|found| buffer.copy_from_slice(found))
            .is_some()
    })
}

fn report(bytes: &[u8]) -> ProbeReport {
    match read_bytes(bytes, None) {
        Ok((ReportState::New(report), _)) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_report_is_read() {
    let bytes = file(WRITER, 8, REPORT.as_bytes());
    let report = report(&bytes);
    let device = &report.devices[0];
    assert_eq!(
        (device.device, device.reserved, device.peak),
        (0, Some(Bytes(1000)), Some(Bytes(900)))
    );
    assert_eq!(device.categories[&TensorCategory::Other], Bytes(100));
    assert_eq!(
        (report.groups[0].count, report.groups[0].bytes_change),
        (7, Some(-5))
    );
    let answer = report.answer.as_ref().unwrap();
    assert_eq!(
        (answer.lines[0].count, answer.peak[0].lines[0].bytes),
        (Some(2), Bytes(9))
    );
    assert_eq!(
        report.leaks[0].held_by[0].as_str(),
        "list outputs, train.py:40 in main"
    );
    assert_eq!(report.trouble[0].as_str(), "a\u{FFFD}[2Jb");
    assert_eq!(read_bytes(&bytes, Some(8)), Ok((ReportState::Same, 8)));
}

#[test]
fn a_report_of_the_first_version_says_the_same_as_one_of_this_version() {
    let mut old = report(&file(WRITER, 8, REPORT_1.as_bytes()));
    assert_eq!(old.version, 1);
    old.version = 2;
    assert_eq!(old, report(&file(WRITER, 8, REPORT.as_bytes())));
}

#[test]
fn an_item_in_an_unknown_form_is_left_out() {
    let leaks = r#"{"version": 2, "leaks": [
        {"cuda_device": 0, "category": "fragmentation", "bytes": 12.5, "bytes_per_second": 3},
        {"cuda_device": "cuda", "category": "activations"}, 7]}"#;
    let report = report(&file(WRITER, 8, leaks.as_bytes()));
    let [leak] = report.leaks.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(
        (leak.bytes_per_step, leak.bytes_per_second, leak.bytes),
        (None, Some(Bytes(3)), Some(Bytes(12)))
    );
}

#[test]
fn a_report_that_was_cut_is_damaged() {
    let bytes = file(WRITER, 8, REPORT.as_bytes());
    for length in 0..bytes.len() {
        assert_eq!(
            read_bytes(&bytes[..length], None),
            Err(ProbeMissing::Damaged),
            "{length}"
        );
    }
    // The header is whole, and the rest of the file is zero.
    for length in HEADER_SIZE..bytes.len() {
        let mut cut = bytes[..length].to_vec();
        cut.resize(bytes.len(), 0);
        assert_eq!(
            read_bytes(&cut, None),
            Err(ProbeMissing::Damaged),
            "{length}"
        );
    }
}

#[test]
fn no_flipped_bit_gives_another_report() {
    let bytes = file(WRITER, 8, REPORT.as_bytes());
    let whole = report(&bytes);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok((ReportState::New(report), _)) = read_bytes(&flipped, None) {
            // The sequence number, and the rest of the header, which is not used.
            assert!(
                (24..32).contains(&(bit / 8)) || (40..64).contains(&(bit / 8)),
                "bit {bit}"
            );
            assert_eq!(*report, whole, "bit {bit}");
        }
    }
}

#[test]
fn a_report_of_another_process_or_version_or_that_is_being_written_is_refused() {
    let check = |bytes: &[u8], why| assert_eq!(read_bytes(bytes, None), Err(why));
    check(
        &file(ReportWriter { pid: 43, ..WRITER }, 8, REPORT.as_bytes()),
        ProbeMissing::Damaged,
    );
    check(
        &file(
            ReportWriter {
                start_ticks: 1,
                ..WRITER
            },
            8,
            REPORT.as_bytes(),
        ),
        ProbeMissing::Damaged,
    );
    check(&file(WRITER, 7, REPORT.as_bytes()), ProbeMissing::Damaged);
    check(
        &file(WRITER, 8, br#"{"version": 3, "steps": "many"}"#),
        ProbeMissing::OtherVersion,
    );
    check(&file(WRITER, 8, b""), ProbeMissing::Damaged);
    check(&[0; 4096], ProbeMissing::NotYet);
    check(&file(WRITER, 0, b""), ProbeMissing::NotYet);
    // A length beyond the file is refused before anything is allocated.
    for length in [u32::MAX, 1 << 20] {
        let mut bytes = file(WRITER, 8, REPORT.as_bytes());
        bytes[32..36].copy_from_slice(&length.to_le_bytes());
        check(&bytes, ProbeMissing::Damaged);
    }
}

#[test]
fn a_report_with_an_amount_that_no_program_has_is_refused() {
    let huge = u64::MAX;
    let forged = [
        (
            r#""allocated_bytes": 700"#,
            format!(r#""allocated_bytes": {huge}"#),
        ),
        (r#""parameters": 400"#, format!(r#""parameters": {huge}"#)),
        (r#""exp_avg": 3"#, format!(r#""exp_avg": {huge}"#)),
        (r#""parameters": 1000"#, format!(r#""parameters": {huge}"#)),
        (r#""count": 7"#, format!(r#""count": {huge}"#)),
        (
            r#""bytes_change": -5"#,
            format!(r#""bytes_change": {}"#, i64::MIN),
        ),
        (
            r#""bytes_per_step": 8"#,
            r#""bytes_per_step": 1e300"#.to_owned(),
        ),
        (
            r#""count_per_step": 1"#,
            r#""count_per_step": 1e300"#.to_owned(),
        ),
        (r#""seconds": 0.21"#, r#""seconds": -1"#.to_owned()),
        (
            r#""bytes": 8, "count": 2"#,
            format!(r#""bytes": {huge}, "count": 2"#),
        ),
        (r#""bytes": 9"#, format!(r#""bytes": {huge}"#)),
        (r#""peak_bytes": 90"#, format!(r#""peak_bytes": {huge}"#)),
        (r#""gradients": 9"#, format!(r#""gradients": {huge}"#)),
        (
            r#""cost_percent": 0.4"#,
            r#""cost_percent": 1e300"#.to_owned(),
        ),
    ];
    for (whole, forged) in forged {
        let text = REPORT.replace(whole, &forged);
        assert_ne!(text, REPORT, "{whole}");
        assert_eq!(
            read_bytes(&file(WRITER, 8, text.as_bytes()), None),
            Err(ProbeMissing::Damaged),
            "{forged}"
        );
    }
}

#[test]
fn lists_are_cut() {
    let group = |at: u64| {
        format!(
            r#"{{"cuda_device": 0, "category": "cache", "shape": {:?}, "dtype": "x", "count": 1, "bytes": {at}, "bytes_change": {}}}"#,
            vec![1; 100],
            500 - at
        )
    };
    let groups: Vec<String> = (0..500).map(group).collect();
    let holders = vec!["\"h\""; 1000].join(",");
    let leak = format!(
        r#"{{"cuda_device": 0, "category": "cache", "bytes_per_step": 1, "held_by": [{holders}]}}"#
    );
    let text = format!(
        r#"{{"version": 2, "groups": [{}], "leaks": [{}], "trouble": [{holders}]}}"#,
        groups.join(","),
        vec![leak.as_str(); 100].join(",")
    );
    let mut report = report(&file(WRITER, 8, text.as_bytes()));
    limit(&mut report, 30);
    let bytes: Vec<u64> = report.groups.iter().map(|group| group.bytes.0).collect();
    let expected: Vec<u64> = (480..500).rev().chain((0..10).rev()).collect();
    assert_eq!(bytes, expected);
    assert!(
        report
            .groups
            .iter()
            .all(|group| group.shape.as_ref().is_some_and(|shape| shape.len() == 16))
    );
    assert_eq!(
        (
            report.leaks.len(),
            report.leaks[0].held_by.len(),
            report.trouble.len()
        ),
        (8, 8, 8)
    );
}

/// A pair of marks as the probe writes it.
const PAIR: &str = r#"{
    "since": {"name": "eval", "unix_time_seconds": 1700000000.0, "step": 3, "at": "train.py:40 in main"},
    "until": {"name": "eval end", "unix_time_seconds": 1700000001.5},
    "seconds": 1.5, "times": 12, "groups_from": 11,
    "devices": [{"cuda_device": 0, "allocated_bytes": 64, "bytes_change": -8, "total_bytes_change": -96}],
    "groups": [{"cuda_device": 0, "category": "named_tensors", "shape": [2], "dtype": "float32", "count": 1, "bytes": 8,
        "count_change": -1, "bytes_change": -9, "allocated_at": {"user": "train.py:41"}}],
    "groups_left_out": {"count": 5, "bytes_change": 1}
}"#;

#[test]
fn a_pair_of_marks_is_read_and_one_with_an_impossible_amount_is_refused() {
    let places = [
        format!(r#"{{"version": 2, "mark_pairs": [{PAIR}]}}"#),
        format!(r#"{{"version": 2, "answer": {{"id": 1, "compared": {PAIR}}}}}"#),
    ];
    for text in places {
        let report = report(&file(WRITER, 8, text.as_bytes()));
        let answer = report.answer.as_ref();
        let answered = answer.and_then(|answer| answer.compared.as_deref());
        let pair = report.mark_pairs.first().or(answered).unwrap();
        assert_eq!((pair.times, pair.devices[0].bytes_change), (Some(12), -8));
        let line = pair.groups[0].allocated_at.as_ref().unwrap();
        assert_eq!(line.user.as_ref().unwrap().as_str(), "train.py:41");
        for (whole, forged) in [
            (r#""step": 3"#, r#""step": 9999999999999999"#),
            ("1700000001.5", "-1"),
            (r#""seconds": 1.5"#, r#""seconds": 1e300"#),
            (r#""times": 12"#, r#""times": 9999999999999999"#),
            (r#""groups_from": 11"#, r#""groups_from": 9999999999999999"#),
            (": 64", ": 9999999999999999"),
            (": -8,", ": -9999999999999999,"),
            (": -96", ": -9999999999999999"),
            (": -9,", ": -9999999999999999,"),
            (
                r#""bytes_change": 1"#,
                r#""bytes_change": 9999999999999999"#,
            ),
        ] {
            let forged = text.replacen(whole, forged, 1);
            assert_ne!(forged, text, "{whole}");
            let read = read_bytes(&file(WRITER, 8, forged.as_bytes()), None);
            assert_eq!(read, Err(ProbeMissing::Damaged), "{forged}");
        }
    }
}

#[test]
fn the_memory_of_modules_is_read_cut_and_refused_where_it_is_impossible() {
    let row = r#"{"path": "a.b", "type": "B", "calls": 3, "activation_bytes": 5, "peak_bytes": 4}"#;
    let text = format!(
        r#"{{"version": 2, "answer": {{"id": 1, "kept": [{{"cuda_device": 0, "names": ["x"], "bytes": 6}}], "modules": [{{
            "cuda_device": 0, "peak_bytes": 100, "before_bytes": 50, "outside_bytes": 20, "backward_bytes": 10,
            "rows": [{}], "rows_left_out": 7}}]}}}}"#,
        vec![row; 40].join(",")
    );
    let mut report = report(&file(WRITER, 8, text.as_bytes()));
    limit(&mut report, 30);
    let answer = report.answer.unwrap();
    let memory = &answer.modules[0];
    assert_eq!((memory.rows.len(), memory.rows_left_out), (30, Some(17)));
    assert_eq!(
        (memory.rows[0].calls, answer.kept[0].bytes),
        (Some(3), Bytes(6))
    );
    for whole in [
        ": 3", ": 5", ": 4", ": 100", ": 50", ": 20", ": 10", ": 6", ": 7",
    ] {
        let forged = text.replacen(whole, ": 9999999999999999", 1);
        assert_ne!(forged, text, "{whole}");
        let read = read_bytes(&file(WRITER, 8, forged.as_bytes()), None);
        assert_eq!(read, Err(ProbeMissing::Damaged), "{whole}");
    }
}

#[test]
fn pairs_of_marks_are_cut_and_their_changes_still_add_up() {
    let group = |at: usize| {
        format!(
            r#"{{"cuda_device": 0, "category": "cache", "shape": {:?}, "count": 1, "bytes": 1, "bytes_change": {at}}}"#,
            vec![1; 100]
        )
    };
    let groups: Vec<String> = (0..100).map(group).collect();
    let groups = groups.join(",");
    let pair = |at: usize| {
        format!(
            r#"{{"since": {{"name": "a"}}, "until": {{"name": "{at}"}}, "groups": [{groups}]}}"#
        )
    };
    let pairs: Vec<String> = (0..20).map(pair).collect();
    let text = format!(
        r#"{{"version": 2, "mark_pairs": [{}], "marks": [{}], "answer": {{"id": 1, "compared": {}}}}}"#,
        pairs.join(","),
        vec![r#"{"name": "a"}"#; 40].join(","),
        pair(0)
    );
    let mut report = report(&file(WRITER, 8, text.as_bytes()));
    limit(&mut report, 30);
    assert_eq!((report.marks.len(), report.mark_pairs.len()), (16, 16));
    assert_eq!(report.mark_pairs[0].until.name.as_str(), "4");
    let answered = report.answer.unwrap().compared.unwrap();
    for (pair, most) in [(&report.mark_pairs[0], 24), (&*answered, 30)] {
        assert_eq!(pair.groups.len(), most);
        assert!(
            pair.groups
                .iter()
                .all(|group| group.shape.as_ref().unwrap().len() == 16)
        );
        let listed: i64 = pair
            .groups
            .iter()
            .filter_map(|group| group.bytes_change)
            .sum();
        let left_out = pair.groups_left_out.as_ref().unwrap();
        assert_eq!(left_out.count, 100 - most as u64);
        assert_eq!(listed + left_out.bytes_change, (0..100).sum::<i64>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Any bytes behind a header that fits them are a report or refused.
    #[test]
    fn any_report_is_read_or_refused(
        text in prop_oneof![".*", Just(REPORT.to_owned())],
        place: prop::sample::Index,
        inserted in prop_oneof!["[{}\\[\\]:,]{0,40}", "\\PC{0,20}", Just("[".repeat(5000)), Just("-1e999".to_owned())],
    ) {
        let mut text = text;
        let places: Vec<usize> = text.char_indices().map(|(offset, _)| offset).chain([text.len()]).collect();
        text.insert_str(*place.get(&places), &inserted);
        if let Ok((ReportState::New(mut report), _)) = read_bytes(&file(WRITER, 8, text.as_bytes()), None) {
            limit(&mut report, 30);
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }
}

fn own_id() -> ProcessId {
    let pid = std::process::id();
    ProcessId {
        pid,
        start_ticks: stat::start_ticks(pid),
    }
}

fn own_writer() -> ReportWriter {
    let id = own_id();
    ReportWriter {
        pid: id.pid,
        start_ticks: id.start_ticks.unwrap(),
    }
}

/// Makes a memory file of this process.
fn memory_file(size: u64, seals: SealFlags, bytes: &[u8]) -> OwnedFd {
    let file = memfd_create(
        "gputop-probe",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )
    .unwrap();
    ftruncate(&file, size).unwrap();
    assert_eq!(pwrite(&file, bytes, 0), Ok(bytes.len()));
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// One test, since the tests of one process share its open files.
#[test]
fn only_a_sealed_file_of_the_process_itself_is_found() {
    let finder = MemoryFiles::new().unwrap();
    let find = || finder.report(own_id()).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let bytes = file(own_writer(), 8, REPORT.as_bytes());
    let refused = [
        memory_file(SIZE, SealFlags::GROW, &bytes),
        memory_file(SIZE, SealFlags::empty(), &bytes),
        memory_file(SIZE * 2, seals, &bytes),
        memory_file(4096, seals, &bytes),
        memory_file(
            SIZE,
            seals,
            &file(
                ReportWriter {
                    pid: 1,
                    ..own_writer()
                },
                8,
                REPORT.as_bytes(),
            ),
        ),
        memory_file(SIZE, seals, b"gputopP2"),
    ];
    assert!(find().is_none());
    let own = memory_file(SIZE, seals, &bytes);
    let mut found: ReportFile = find().expect("the file is found among the refused ones");
    let mut buffer = Vec::new();
    assert!(matches!(found.read(&mut buffer), Ok(ReportState::New(_))));
    assert_eq!(found.read(&mut buffer), Ok(ReportState::Same));
    pwrite(&own, &file(own_writer(), 10, br#"{"version": 2}"#), 0).unwrap();
    assert!(
        matches!(found.read(&mut buffer), Ok(ReportState::New(report)) if report.devices.is_empty())
    );
    assert!(found.is_open_in(own_id().pid));
    drop(own);
    assert!(!found.is_open_in(own_id().pid));
    drop(refused);
}
