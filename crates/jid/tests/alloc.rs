//! Test that the fast path does not allocate: parsing an ASCII address in normal form, splitting it, and its part
//! functions.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::hint::black_box;

use counting_allocator::count;
use throng_jid::{Jid, JidRef, parse, prepare_domain, prepare_local, prepare_resource};

#[test]
fn the_fast_path_allocates_nothing() {
    for text in [
        "juliet@example.com/balcony",
        "juliet@example.com",
        "example.com",
        "a-b.example.com/x y",
        "u@10.0.0.1",
        "u@example.com.",
    ] {
        assert_eq!(
            count(|| parse(black_box(text)).unwrap().as_ref().bare().local().map(str::len)),
            0,
            "{text}"
        );
    }
    assert_eq!(count(|| JidRef::from_normalised(black_box("juliet@example.com/balcony")).is_some()), 0);
    assert_eq!(count(|| prepare_local(black_box("juliet")).is_ok()), 0);
    assert_eq!(count(|| prepare_domain(black_box("example.com")).is_ok()), 0);
    assert_eq!(count(|| prepare_resource(black_box("balcony")).is_ok()), 0);
}

#[test]
fn an_owned_address_is_one_allocation() {
    let jid = parse("juliet@example.com/balcony").unwrap();
    assert_eq!(count(|| jid.as_ref().to_jid()), 1);
    assert_eq!(count(|| Jid::parse(black_box("juliet@example.com/balcony"))), 1);
    assert_eq!(count(|| jid.as_ref().with_resource(black_box("orchard"))), 1);
    assert_eq!(count(|| Jid::from_parts(Some(black_box("juliet")), "example.com", Some("x"))), 1);
}

#[test]
fn refusing_ascii_allocates_at_most_for_its_lower_case() {
    assert_eq!(count(|| parse(black_box("@example.com")).is_err()), 0);
    assert_eq!(count(|| parse(black_box("a@example.com/")).is_err()), 0);
    assert!(count(|| parse(black_box("a b@example.com")).is_err()) <= 1);
}
