//! Fuzz target for stanza heads: reading, rewriting and extending one element never panics, and the result reads back
//! with the head that the rewriting returned. The property is in `tests/property/mod.rs`, shared with the ordinary
//! tests.
#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    property::check(data);
});
