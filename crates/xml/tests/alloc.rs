//! Test that scanning and reading a stanza does not allocate.
//!
//! # Pitfalls
//!
//! The counter covers the whole process, so this file must contain only one test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use throng_xml::{Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

#[allow(
    unsafe_code,
    reason = "a global allocator cannot be written without it; it only counts and passes on"
)]
// SAFETY: every call is forwarded to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const STREAM: &[u8] = b"<?xml version='1.0'?><stream:stream to='a' xmlns='jabber:client' \
    xmlns:stream='http://etherx.jabber.org/streams' version='1.0'> \
    <message to='juliet@capulet.example' type='chat' id='1'><body>Art thou &amp; <![CDATA[<]]></body>\
    <x:y xmlns:x='urn:x' x:z='1' xml:lang='en'/><active xmlns='http://jabber.org/protocol/chatstates'/></message></stream:stream>";

#[test]
fn scanning_and_reading_allocate_nothing() {
    let limits = Limits::DEFAULT;
    let before = COUNT.load(Ordering::Relaxed);
    let mut scanner = Scanner::new();
    let mut scope = NamespaceContext::empty();
    let (mut from, mut fed, mut events) = (0, 0, 0);
    // In chunks of seven bytes, so that the scanner resumes in every state.
    loop {
        match scanner.scan(&STREAM[from..fed], &limits) {
            Ok(ScanOutcome::More { skip }) => {
                from += skip;
                fed = (fed + 7).min(STREAM.len());
            }
            Ok(ScanOutcome::Open { start, end }) => {
                scope = NamespaceContext::from_open_tag(&STREAM[from + start..from + end], &limits)
                    .unwrap_or_default();
                from += end;
            }
            Ok(ScanOutcome::Element { start, end }) => {
                if let Ok(mut reader) = Reader::new(&STREAM[from + start..from + end], &scope, &limits) {
                    while let Ok(Some(event)) = reader.next() {
                        events += 1;
                        if let Event::Start(start) = event {
                            events += start.attrs().filter(|a| !a.value().is_empty()).count();
                        }
                    }
                }
                from += end;
            }
            Ok(ScanOutcome::Close { .. }) => break,
            Err(_) => break,
        }
    }
    let after = COUNT.load(Ordering::Relaxed);
    assert_eq!(events, 15, "the stream was read");
    assert_eq!(after - before, 0, "allocations");
}
