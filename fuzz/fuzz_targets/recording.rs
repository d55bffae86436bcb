//! Gives random bytes to `gputop::fuzz::recording`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::recording(bytes);
});
