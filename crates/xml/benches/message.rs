//! Benchmark of one chat message: scanning, validating, reading its attributes; compared with quick-xml in the same
//! run.
//!
//! Run with `cargo bench -p throng-xml`. Each result is the best of many rounds, in nanoseconds per message.
//!
//! Not implemented: statistics. The best round is the least disturbed one, which is what a comparison needs.
//!
//! # Pitfalls
//!
//! quick-xml does less here than our reader: by default it validates neither names, characters nor references.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::time::Duration;

use throng_xml::{Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner, Tree};

const MESSAGE: &str = "<message from='romeo@montague.example/orchard' id='ktx72v49' to='juliet@capulet.example/balcony' \
    type='chat' xml:lang='en'><body>Art thou not Romeo, and a Montague?</body><active \
    xmlns='http://jabber.org/protocol/chatstates'/><request xmlns='urn:xmpp:receipts'/></message>";

fn main() {
    let message = MESSAGE.as_bytes();
    println!("message of {} bytes", message.len());
    let scope = NamespaceContext::client();
    let limits = Limits::DEFAULT;
    let mut scanner = Scanner::fragment();

    measure("scan", || match scanner.scan(black_box(message), &limits) {
        Ok(ScanOutcome::Element { end, .. }) => end,
        _ => 0,
    });
    measure("reader made, nothing read", || {
        Reader::new(black_box(message), &scope, &limits).map_or(0, |r| r.position() + 1)
    });
    measure("read, every check", || read(black_box(message), &scope, &limits));
    let mut scanner = Scanner::fragment();
    measure("scan and read", || match scanner.scan(black_box(message), &limits) {
        Ok(ScanOutcome::Element { start, end }) => read(&message[start..end], &scope, &limits),
        _ => 0,
    });
    let mut scanner = Scanner::fragment();
    measure("scan, read, look at every attribute", || match scanner.scan(black_box(message), &limits) {
        Ok(ScanOutcome::Element { start, end }) => attributes(&message[start..end], &scope, &limits),
        _ => 0,
    });
    measure("tree", || Tree::parse(black_box(message), &scope, &limits).map_or(0, |t| t.node_count()));
    let mut out = Vec::new();
    measure("normalise", || {
        out.clear();
        throng_xml::normalise(black_box(message), &scope, &limits, &mut out).map_or(0, |()| out.len())
    });
    measure("quick-xml, events only", || quick_events(black_box(MESSAGE)));
    measure("quick-xml, namespaces and attributes", || quick_namespaces(black_box(MESSAGE)));

    let large = format!("<message><body>{}</body></message>", "All work and no play. ".repeat(10_000));
    let mut scanner = Scanner::fragment();
    let best = time(
        || {
            usize::from(matches!(
                scanner.scan(black_box(large.as_bytes()), &limits),
                Ok(ScanOutcome::Element { .. })
            ))
        },
        20,
    );
    println!("scan of one large text: {:.2} GB/s", large.len() as f64 / best);
    let stream = MESSAGE.repeat(200);
    let mut scanner = Scanner::fragment();
    let best = time(
        || {
            let mut rest = stream.as_bytes();
            while let Ok(ScanOutcome::Element { end, .. }) = scanner.scan(rest, &limits) {
                rest = &rest[end..];
            }
            usize::from(rest.is_empty())
        },
        20,
    );
    println!("scan of many messages: {:.2} GB/s", stream.len() as f64 / best);
}

fn read(bytes: &[u8], scope: &NamespaceContext, limits: &Limits) -> usize {
    let Ok(mut reader) = Reader::new(bytes, scope, limits) else { return 0 };
    let mut events = 0;
    while let Ok(Some(event)) = reader.next() {
        black_box(&event);
        events += 1;
    }
    events
}

fn attributes(bytes: &[u8], scope: &NamespaceContext, limits: &Limits) -> usize {
    let Ok(mut reader) = Reader::new(bytes, scope, limits) else { return 0 };
    let mut length = 0;
    while let Ok(Some(event)) = reader.next() {
        match event {
            Event::Start(start) => length += start.attrs().map(|a| a.value().len()).sum::<usize>(),
            Event::Text(text) => length += text.unescape().len(),
            Event::End => {}
        }
    }
    length
}

fn quick_events(text: &str) -> usize {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut events = 0;
    loop {
        match reader.read_event() {
            Ok(quick_xml::events::Event::Eof) | Err(_) => return events,
            Ok(event) => {
                black_box(&event);
                events += 1;
            }
        }
    }
}

fn quick_namespaces(text: &str) -> usize {
    use quick_xml::events::Event;
    let mut reader = quick_xml::NsReader::from_str(text);
    let mut length = 0;
    loop {
        match reader.read_resolved_event() {
            Ok((_, Event::Eof)) | Err(_) => return length,
            Ok((ns, Event::Start(tag) | Event::Empty(tag))) => {
                black_box(ns);
                length += tag.attributes().flatten().map(|a| a.value.len()).sum::<usize>();
            }
            Ok((_, Event::Text(text))) => length += text.len(),
            Ok(_) => {}
        }
    }
}

fn measure(what: &str, job: impl FnMut() -> usize) {
    let best = time(job, 2000);
    println!("{what:40} {best:8.1} ns");
}

/// Best time per call, in nanoseconds.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn time(mut job: impl FnMut() -> usize, calls: u32) -> f64 {
    assert!(job() > 0, "the job fails");
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let begin = std::time::Instant::now();
        for _ in 0..calls {
            black_box(job());
        }
        best = best.min(begin.elapsed());
    }
    best.as_secs_f64() * 1e9 / f64::from(calls)
}
