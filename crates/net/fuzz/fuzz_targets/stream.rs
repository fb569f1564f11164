//! Fuzz target: bytes through a stream in memory; split or whole, the events are the same, and no buffer is left.
#![no_main]

#[path = "../body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
