//! Gives random bytes to `gputop::fuzz::probe_memory_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::probe_memory_file(bytes);
});
