//! Gives random bytes to `gputop::fuzz::analyze_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::analyze_log(bytes);
});
