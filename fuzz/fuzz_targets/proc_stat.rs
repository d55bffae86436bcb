//! Gives random bytes to `gputop::fuzz::proc_stat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::proc_stat(bytes);
});
