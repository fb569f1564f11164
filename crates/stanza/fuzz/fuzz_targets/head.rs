//! The input is one element: reading, stamping and extending it never panics, and what was rewritten reads back with the
//! head that the rewriting returned. The property is `tests/property/mod.rs`, which the ordinary tests ask as well.
#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    property::check(data);
});
