//! Fuzz target: bytes through a WebSocket in memory; split or whole, the events and the output are the same.
#![no_main]

#[path = "../websocket.rs"]
mod websocket;

libfuzzer_sys::fuzz_target!(|data: &[u8]| websocket::check(data));
