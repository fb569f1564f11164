//! Bytes through a WebSocket in memory: cut or whole, the events are the same, and so is what leaves.
#![no_main]

#[path = "../websocket.rs"]
mod websocket;

libfuzzer_sys::fuzz_target!(|data: &[u8]| websocket::check(data));
