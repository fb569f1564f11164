//! Test that scanning and reading a stanza does not allocate.

use counting_allocator::allocations;
use throng_xml::{Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner};

const STREAM: &[u8] = b"<?xml version='1.0'?><stream:stream to='a' xmlns='jabber:client' \
    xmlns:stream='http://etherx.jabber.org/streams' version='1.0'> \
    <message to='juliet@capulet.example' type='chat' id='1'><body>Art thou &amp; <![CDATA[<]]></body>\
    <x:y xmlns:x='urn:x' x:z='1' xml:lang='en'/><active xmlns='http://jabber.org/protocol/chatstates'/></message></stream:stream>";

#[test]
fn scanning_and_reading_allocate_nothing() {
    let limits = Limits::DEFAULT;
    let before = allocations();
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
    let after = allocations();
    assert_eq!(events, 15, "the stream was read");
    assert_eq!(after - before, 0, "allocations");
}
