//! Fuzz target: bodies of BOSH requests, for a new session and for an existing one.
#![no_main]

#[path = "../bosh_body.rs"]
mod bosh_body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bosh_body::check(data));
