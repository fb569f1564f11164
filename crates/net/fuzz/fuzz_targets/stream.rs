//! Bytes through a stream in memory: cut or whole, the events are the same, and nothing is held that should not be.
#![no_main]

#[path = "../body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
