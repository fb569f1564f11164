//! Properties of BOSH for arbitrary request bodies. Used by the fuzz target and by `tests/bosh/property.rs`.
//!
//! The first byte selects a session request or a request for an existing session; then the tag is completed so that
//! later stages are reached. For any input every request is answered in time, elements that reach the stream are
//! elements, and no state remains.
//!
//! # Pitfalls
//!
//! Responses are compared as text only; `xml::Reader`'s own tests check XML.
#![allow(clippy::disallowed_types, reason = "the test holds its locks around calls of the product")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use throng_net::bosh::{BoshResponse, BoshSessionTable, BoshSettings, PendingResponse, RequestSource};
use throng_net::{ListenerConfig, ListenerKind, Scratch, Stream, StreamEvent};

const OPEN: &[u8] =
    b"<body to='a' rid='1' ver='1.6' wait='5' hold='1' xmlns='http://jabber.org/protocol/httpbind'/>";

fn poll(exchange: &mut PendingResponse) -> Option<BoshResponse> {
    match exchange.poll_response(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => {
            let text = std::str::from_utf8(&answer.body).unwrap();
            assert!(text.starts_with("<body ") && text.ends_with('>'));
            assert!(matches!(answer.status, 200 | 400 | 403 | 404));
            exchange.response_sent();
            Some(answer)
        }
        Poll::Pending => None,
    }
}

/// Panics if a property is violated.
pub(crate) fn check(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let clock = Arc::new(base::clock::ManualClock::new());
    let streams: Arc<Mutex<Vec<Stream>>> = Arc::default();
    let list = streams.clone();
    let start = Box::new(move |stream| {
        list.lock().push(stream);
        true
    });
    let sessions = BoshSessionTable::new(BoshSettings::default(), clock.clone(), start);
    let address = SocketAddr::from(([127, 0, 0, 1], 5280));
    let port = Arc::new(ListenerConfig::new(ListenerKind::Http, address));
    let post = |body: &[u8]| {
        sessions.handle_request(RequestSource { peer: address, listener: port.clone(), secure: false }, body)
    };
    let mut scratch = Scratch::new();
    let mut waiting = Vec::new();
    if mode & 1 != 0 {
        // For an existing session: bodies separated by zero bytes, each after a matching tag.
        let mut first = post(OPEN);
        say(&streams, b"<stream:features/>", &mut scratch);
        let created = poll(&mut first).unwrap();
        let text = std::str::from_utf8(&created.body).unwrap();
        let sid = text.split("sid='").nth(1).unwrap().get(..32).unwrap().to_owned();
        for (n, piece) in rest.split(|byte| *byte == 0).take(8).enumerate() {
            let mut body =
                format!("<body rid='{}' sid='{sid}' xmlns='http://jabber.org/protocol/httpbind' ", n + 2)
                    .into_bytes();
            body.extend_from_slice(piece);
            if mode & 2 != 0 {
                body.extend_from_slice(b"</body>");
            }
            waiting.push(post(&body));
            say(&streams, b"<message/>", &mut scratch);
        }
    } else {
        waiting.push(post(rest));
        say(&streams, b"<message/>", &mut scratch);
    }
    // Every request is answered by then, and every session is over.
    for _ in 0..300 {
        clock.advance(1000);
        sessions.sweep();
        waiting.retain_mut(|exchange| poll(exchange).is_none());
    }
    assert!(waiting.is_empty());
    say(&streams, b"", &mut scratch);
    let counts = sessions.counts();
    assert_eq!((counts.sessions, counts.held), (0, 0));
}

/// Each stream reads everything available and queues output.
fn say(streams: &Mutex<Vec<Stream>>, bytes: &[u8], scratch: &mut Scratch) {
    let mut cx = Context::from_waker(Waker::noop());
    for stream in streams.lock().iter_mut() {
        while let Poll::Ready(event) = stream.poll_event(&mut cx, scratch) {
            match event {
                Ok(StreamEvent::Element(bytes)) => assert!(bytes.starts_with(b"<") && bytes.ends_with(b">")),
                Ok(StreamEvent::Open(bytes)) => assert!(bytes.starts_with(b"<stream:stream ")),
                Ok(StreamEvent::Close) => {}
                Ok(StreamEvent::Eof) | Err(_) => break,
            }
        }
        stream.queue(bytes, scratch);
        let _ = stream.poll_flush(&mut cx, scratch);
        stream.release_buffers(scratch).unwrap();
    }
}
