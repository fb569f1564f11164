//! Fuzz target for normalisation of one element: the result is portable, bounded, and unchanged by a second pass.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xml::{Limits, NamespaceContext, Ns, Reader, normalise};

fuzz_target!(|data: &[u8]| {
    let limits = Limits::DEFAULT;
    let mut out = Vec::new();
    if normalise(data, &NamespaceContext::client(), &limits, &mut out).is_err() {
        assert!(out.is_empty());
        return;
    }
    assert!(out.len() <= limits.element_bytes as usize);
    let plain = NamespaceContext::with_default(Ns::Client);
    let mut reader = Reader::new(&out, &plain, &limits).expect("good characters");
    while reader.next().expect("well-formed").is_some() {}
    assert!(reader.is_self_contained());
    let mut again = Vec::new();
    normalise(&out, &plain, &limits, &mut again).expect("normalises again");
    assert_eq!(again, out);
});
