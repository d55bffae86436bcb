//! Gives random bytes to `gputop::fuzz::protocol_line`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gputop::fuzz::protocol_line(bytes);
});
