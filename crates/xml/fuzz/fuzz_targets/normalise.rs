//! The input is one element: what normalises is portable, bounded, and normalises to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xml::{Limits, Ns, Reader, Scope, normalise};

fuzz_target!(|data: &[u8]| {
    let limits = Limits::DEFAULT;
    let mut out = Vec::new();
    if normalise(data, &Scope::client(), &limits, &mut out).is_err() {
        assert!(out.is_empty());
        return;
    }
    assert!(out.len() <= limits.element_bytes as usize);
    let plain = Scope::only(Ns::Client);
    let mut reader = Reader::new(&out, &plain, &limits).expect("good characters");
    while reader.next().expect("well-formed").is_some() {}
    assert!(reader.portable());
    let mut again = Vec::new();
    normalise(&out, &plain, &limits, &mut again).expect("normalises again");
    assert_eq!(again, out);
});
