//! Gives random bytes to `gputop::fuzz::out_of_memory_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::out_of_memory_text(bytes);
});
