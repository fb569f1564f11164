//! Test that the fast path does not allocate: parsing an ASCII address in normal form, splitting it, and its part functions.
#![allow(unsafe_code, reason = "a counting allocator cannot be written without")]
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use throng_jid::{Jid, JidRef, parse, prepare_domain, prepare_local, prepare_resource};

thread_local! {
    /// Allocations of this thread, so that those of the test harness do not count.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(work: impl FnOnce() -> T) -> usize {
    let before = COUNT.get();
    black_box(work());
    COUNT.get() - before
}

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
            allocations(|| parse(black_box(text)).unwrap().as_ref().bare().local().map(str::len)),
            0,
            "{text}"
        );
    }
    assert_eq!(allocations(|| JidRef::from_normalised(black_box("juliet@example.com/balcony")).is_some()), 0);
    assert_eq!(allocations(|| prepare_local(black_box("juliet")).is_ok()), 0);
    assert_eq!(allocations(|| prepare_domain(black_box("example.com")).is_ok()), 0);
    assert_eq!(allocations(|| prepare_resource(black_box("balcony")).is_ok()), 0);
}

#[test]
fn keeping_an_address_is_one_allocation() {
    let jid = parse("juliet@example.com/balcony").unwrap();
    assert_eq!(allocations(|| jid.as_ref().to_jid()), 1);
    assert_eq!(allocations(|| Jid::parse(black_box("juliet@example.com/balcony"))), 1);
    assert_eq!(allocations(|| jid.as_ref().with_resource(black_box("orchard"))), 1);
    assert_eq!(allocations(|| Jid::from_parts(Some(black_box("juliet")), "example.com", Some("x"))), 1);
}

#[test]
fn refusing_ascii_allocates_at_most_for_its_lower_case() {
    assert_eq!(allocations(|| parse(black_box("@example.com")).is_err()), 0);
    assert_eq!(allocations(|| parse(black_box("a@example.com/")).is_err()), 0);
    assert!(allocations(|| parse(black_box("a b@example.com")).is_err()) <= 1);
}
