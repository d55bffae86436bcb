//! The parsers that get bytes from outside, one function for each fuzz target in `fuzz/`.
//!
//! Each function panics where a parser breaks its promise, and returns whether it understood the
//! bytes. Only tests and cargo-fuzz, which sets `cfg(fuzzing)`, compile this module. The test below
//! runs each target on its seeds, so that a target and its seeds stay alive without cargo-fuzz.

use crate::source;
use crate::{agent, logs};

/// A fuzz target: its name, which is that of its folder of seeds, and its function.
pub type FuzzTarget = (&'static str, fn(&[u8]) -> bool);

/// All fuzz targets.
pub const TARGETS: [FuzzTarget; 7] = [
    ("protocol_line", protocol_line),
    ("recording", recording),
    ("out_of_memory_text", out_of_memory_text),
    ("analyze_log", analyze_log),
    ("probe_memory_file", probe_memory_file),
    ("proc_stat", proc_stat),
    ("prometheus_answer", prometheus_answer),
];

/// Parses a line of an agent.
///
/// # Panics
///
/// When a line that was understood cannot be written and read again.
pub fn protocol_line(bytes: &[u8]) -> bool {
    let Ok(Some(line)) = source::parse_line(bytes) else {
        return false;
    };
    let mut written = Vec::new();
    let result = line.write(&mut written);
    assert!(result.is_ok(), "a line cannot be written: {result:?}");
    let again = source::parse_line(&written);
    assert!(
        matches!(again, Ok(Some(_))),
        "a written line is refused: {again:?}"
    );
    true
}

/// Reads the file of a recording to its end. Returns whether it has a line.
pub fn recording(bytes: &[u8]) -> bool {
    source::read_recorded_bytes(bytes) > 0
}

/// Explains a log, which may be compressed. Returns whether a memory failure is in it.
pub fn out_of_memory_text(bytes: &[u8]) -> bool {
    logs::explain::explain_bytes(bytes.to_vec())
}

/// Analyzes a log, which may be compressed. Returns whether it has a series of memory.
pub fn analyze_log(bytes: &[u8]) -> bool {
    logs::analyze::analyze_bytes(bytes.to_vec())
}

/// Reads a memory file of the probe: once as a whole file, and once as the report behind a header
/// that fits it, whose checksum no fuzzer would find.
pub fn probe_memory_file(bytes: &[u8]) -> bool {
    agent::read_probe_bytes(bytes)
}

/// Parses the text of `/proc/PID/stat`.
pub fn proc_stat(bytes: &[u8]) -> bool {
    agent::read_proc_stat_bytes(bytes)
}

/// Parses the JSON of an answer of a Prometheus server.
pub fn prometheus_answer(bytes: &[u8]) -> bool {
    source::prometheus::parse_answer_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The beginning of the name of a seed that its target must not understand.
    const REFUSED: &str = "refused-";

    /// Runs a target on its seeds.
    #[track_caller]
    fn check(name: &str) {
        let (_, target) = TARGETS
            .iter()
            .find(|(known, _)| *known == name)
            .expect("the target is listed");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/seeds")
            .join(name);
        let (mut understood, mut refused) = (0, 0);
        for seed in fs::read_dir(folder).unwrap() {
            let path = seed.unwrap().path();
            let is_refused = path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(REFUSED);
            let bytes = fs::read(&path).unwrap();
            assert_eq!(target(&bytes), !is_refused, "{}", path.display());
            *(if is_refused {
                &mut refused
            } else {
                &mut understood
            }) += 1;
        }
        assert!(understood > 0, "no seed of {name} is understood");
        assert!(refused > 0, "no seed of {name} is refused");
    }

    #[test]
    fn seeds_of_protocol_lines_are_read_or_refused() {
        check("protocol_line");
    }

    #[test]
    fn seeds_of_recordings_are_read_or_refused() {
        check("recording");
    }

    #[test]
    fn seeds_of_out_of_memory_texts_are_explained_or_not() {
        check("out_of_memory_text");
    }

    #[test]
    fn seeds_of_logs_are_analyzed_or_not() {
        check("analyze_log");
    }

    #[test]
    fn seeds_of_memory_files_of_the_probe_are_read_or_refused() {
        check("probe_memory_file");
    }

    #[test]
    fn seeds_of_proc_stat_are_read_or_refused() {
        check("proc_stat");
    }

    #[test]
    fn seeds_of_answers_of_prometheus_are_read_or_refused() {
        check("prometheus_answer");
    }

    #[test]
    fn each_target_has_a_program_of_cargo_fuzz_and_seeds() {
        let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        for folder in ["seeds", "fuzz_targets"] {
            let found: BTreeSet<String> = fs::read_dir(root.join(folder))
                .unwrap()
                .map(|entry| {
                    entry
                        .unwrap()
                        .path()
                        .file_stem()
                        .unwrap()
                        .to_string_lossy()
                        .into_owned()
                })
                .collect();
            assert_eq!(found, names, "{folder}");
        }
    }
}
