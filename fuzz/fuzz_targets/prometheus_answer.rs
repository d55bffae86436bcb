//! Gives random bytes to `gputop::fuzz::prometheus_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::prometheus_answer(bytes);
});
