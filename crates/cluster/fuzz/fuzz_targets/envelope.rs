//! Fuzz target for envelopes of other nodes: decoding never panics, and what is accepted is within the limits and encodes
//! to the same octets. The property is in `tests/property/mod.rs`, shared with the ordinary tests.
#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    property::check(data);
});
