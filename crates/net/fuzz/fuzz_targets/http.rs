//! Fuzz target: bytes of a client to an HTTP listener: heads, bodies, pipelines, with any split.
#![no_main]

#[path = "../http_bytes.rs"]
mod http_bytes;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_bytes::check(data));
