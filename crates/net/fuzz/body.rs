//! Properties of a stream that reads arbitrary bytes. Used by the fuzz target and by `tests/property.rs`.
//!
//! Two streams read the same bytes from memory, one all at once, one in pieces, alternating over the same buffers.
//!
//! # Pitfalls
//!
//! A stream that reads pieces may stop at an error earlier than the other, never later.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use throng_net::{ListenerConfig, ListenerKind, Pipe, Scratch, Stream, StreamEvent};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Open(Vec<u8>),
    Element(Vec<u8>),
    Close,
    Failed,
}

struct Side {
    stream: Stream,
    pipe: Option<Pipe>,
    got: Vec<Got>,
}

impl Side {
    fn new() -> Side {
        let mut port = ListenerConfig::new(ListenerKind::C2s, ([127, 0, 0, 1], 5222).into());
        // Small, so that short inputs reach it.
        port.unauthenticated_limits.element_bytes = 256;
        port.unauthenticated_limits.depth = 8;
        let (stream, pipe) = Stream::memory(Arc::new(port), 1 << 20);
        Side { stream, pipe: Some(pipe), got: Vec::new() }
    }

    /// Feeds bytes and reads all events, releasing the buffers in between as the first byte says.
    fn feed(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        let mut cx = Context::from_waker(Waker::noop());
        if let Some(pipe) = &mut self.pipe {
            assert!(
                matches!(pipe.poll_write(&mut cx, bytes), Poll::Ready(Ok(count)) if count == bytes.len())
            );
        }
        loop {
            let got = match self.stream.poll_event(&mut cx, scratch) {
                Poll::Pending | Poll::Ready(Ok(StreamEvent::Eof)) => break,
                Poll::Ready(Ok(StreamEvent::Open(bytes))) => Got::Open(bytes.to_vec()),
                Poll::Ready(Ok(StreamEvent::Element(bytes))) => Got::Element(bytes.to_vec()),
                Poll::Ready(Ok(StreamEvent::Close)) => Got::Close,
                Poll::Ready(Err(_)) => {
                    if self.got.last() != Some(&Got::Failed) {
                        self.got.push(Got::Failed);
                    }
                    break;
                }
            };
            self.got.push(got);
            // A response after every event, and a yield after every second one.
            self.stream.queue(b"<a/>", scratch);
            if self.got.len().is_multiple_of(2) {
                self.stream.release_buffers(scratch).unwrap();
            }
        }
        assert!(matches!(self.stream.poll_flush(&mut cx, scratch), Poll::Ready(Ok(()))));
        self.stream.release_buffers(scratch).unwrap();
    }
}

/// Panics if a property is violated. The first byte chooses the size of the pieces.
pub(crate) fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let bytes = &bytes[..bytes.len().min(100_000)];
    let mut scratch = Scratch::new();
    let (mut whole, mut cut) = (Side::new(), Side::new());
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        cut.feed(piece, &mut scratch);
        // The other stream uses the buffers in between.
        whole.feed(b"", &mut scratch);
    }
    whole.feed(bytes, &mut scratch);
    assert_eq!(whole.got, cut.got);
    for side in [&mut whole, &mut cut] {
        let answers = side.got.iter().filter(|got| **got != Got::Failed).count() * 4;
        let mut out = vec![0; answers + 1];
        let mut cx = Context::from_waker(Waker::noop());
        if answers > 0 {
            let pipe = side.pipe.as_mut().unwrap();
            assert_eq!(
                pipe.poll_read(&mut cx, &mut out),
                Poll::Ready(answers),
                "answers were lost or doubled"
            );
        }
        // After the end nothing remains buffered.
        side.pipe = None;
        side.feed(b"", &mut scratch);
        side.stream.release_buffers(&mut scratch).unwrap();
    }
}
