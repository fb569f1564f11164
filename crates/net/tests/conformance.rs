//! Conformance suite of all transports: a session must not be able to tell them apart. `support/cases.rs` lists the
//! cases; those of BOSH are in `bosh/conformance.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]
#![deny(dead_code)]

#[macro_use]
#[path = "support/cases.rs"]
mod cases;
mod support;

use std::future::poll_fn;
use std::task::Poll;

use support::*;
use throng_net::{ListenerConfig, NetError, SharedListenerConfig, UnsentLimit, with_scratch};
use tokio::io::AsyncReadExt;

const OPEN: &str =
    "<stream:stream to='example.org' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
const HEADER: &str = "<?xml version='1.0'?>\n<stream:stream to='example.org' xmlns='jabber:client' \
                      xmlns:stream='http://etherx.jabber.org/streams'>";
const MESSAGE: &str = "<message to='a@b'><body a='&gt;'>hé <![CDATA[</message>]]></body></message>";

fn defaults() -> SharedListenerConfig {
    port(|_| {})
}

async fn opened(mut pair: StreamPair) -> StreamPair {
    write(&mut pair.client, OPEN.as_bytes()).await;
    assert_eq!(next(&mut pair.server).await.unwrap(), OwnedEvent::Open(OPEN.into()));
    pair
}

async fn a_stream_opens_and_carries_elements_both_ways(
    make: impl AsyncFn(SharedListenerConfig) -> StreamPair,
) {
    let StreamPair { mut server, mut client } = make(defaults()).await;
    write(&mut client, format!("{HEADER}{MESSAGE}<r/>").as_bytes()).await;
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Open(OPEN.into()));
    assert_eq!(next(&mut server).await.unwrap(), element(MESSAGE));
    assert_eq!(next(&mut server).await.unwrap(), element("<r/>"));
    send(&mut server, MESSAGE.as_bytes()).await.unwrap();
    assert_eq!(read_exactly(&mut client, MESSAGE.len()).await, MESSAGE.as_bytes());
    assert_eq!(server.unsent(), 0);
}

async fn input_may_be_cut_at_every_byte(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = make(defaults()).await;
    let text = format!("{HEADER}{MESSAGE}</stream:stream>");
    let mut got = Vec::new();
    for byte in text.as_bytes() {
        write(&mut client, &[*byte]).await;
        tokio::task::yield_now().await;
        while let Some(event) = now(&mut server).await {
            got.push(event.unwrap());
        }
    }
    while got.last() != Some(&OwnedEvent::Close) {
        got.push(next(&mut server).await.unwrap());
    }
    assert_eq!(got, [OwnedEvent::Open(OPEN.into()), element(MESSAGE), OwnedEvent::Close]);
}

async fn every_cut_into_two_gives_the_same_events(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let mut pair = make(defaults()).await;
    let text = format!("{HEADER}{MESSAGE} <r/></stream:stream>");
    for cut in 1..text.len() {
        let (first, second) = text.as_bytes().split_at(cut);
        write(&mut pair.client, first).await;
        let mut got = Vec::new();
        while let Some(event) = now(&mut pair.server).await {
            got.push(event.unwrap());
        }
        write(&mut pair.client, second).await;
        while got.last() != Some(&OwnedEvent::Close) {
            got.push(next(&mut pair.server).await.unwrap());
        }
        assert_eq!(
            got,
            [OwnedEvent::Open(OPEN.into()), element(MESSAGE), element("<r/>"), OwnedEvent::Close],
            "cut at {cut}"
        );
        pair.server.restart();
    }
}

async fn a_restart_expects_a_new_document(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    // The new header may already be buffered when the old document is dropped.
    write(&mut client, format!("<auth/>{HEADER}<x/>").as_bytes()).await;
    assert_eq!(next(&mut server).await.unwrap(), element("<auth/>"));
    server.restart();
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Open(OPEN.into()));
    assert_eq!(next(&mut server).await.unwrap(), element("<x/>"));
}

async fn an_element_without_a_restart_is_refused(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    write(&mut client, HEADER.as_bytes()).await;
    assert!(matches!(next(&mut server).await, Err(NetError::Xml(_))), "an XML declaration in mid-stream");
    assert!(matches!(next(&mut server).await, Err(NetError::Closed)));
}

async fn unauthenticated_streams_have_smaller_limits(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let long = format!(
        "<message><body>{}</body></message>",
        "x".repeat(ListenerConfig::UNAUTHENTICATED_ELEMENT_BYTES as usize)
    );
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    let (refused, ()) = tokio::join!(next(&mut server), write(&mut client, long.as_bytes()));
    assert!(matches!(refused, Err(NetError::Xml(xml::Error::TooLarge))), "{refused:?}");

    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    server.set_authenticated();
    let (taken, ()) = tokio::join!(next(&mut server), write(&mut client, long.as_bytes()));
    assert_eq!(taken.unwrap(), element(&long));
}

async fn elements_larger_than_the_read_buffer_arrive(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let long = format!("<message><body>{}</body></message>", "0123456789abcdef".repeat(15_000));
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    server.set_authenticated();
    for _ in 0..2 {
        let text = format!("{long}<r/>");
        let (taken, ()) = tokio::join!(next(&mut server), write(&mut client, text.as_bytes()));
        assert_eq!(taken.unwrap(), element(&long));
        assert_eq!(next(&mut server).await.unwrap(), element("<r/>"));
        assert!(now(&mut server).await.is_none());
        assert!(server.is_idle());
    }
}

async fn the_peer_closes_first(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    write(&mut client, b"</stream:stream>and nothing of this counts").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client).await.unwrap();
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Close);
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof);
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof, "the end stays the end");
    // The outgoing direction is still open.
    send(&mut server, b"</stream:stream>").await.unwrap();
    shutdown(&mut server).await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"</stream:stream>");
}

async fn the_server_closes_first(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    with_scratch(|scratch| server.queue(b"</stream:stream>", scratch));
    with_scratch(|scratch| server.release_buffers(scratch)).unwrap();
    shutdown(&mut server).await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"</stream:stream>");
    write(&mut client, b"<late/></stream:stream>").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client).await.unwrap();
    assert_eq!(next(&mut server).await.unwrap(), element("<late/>"));
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Close);
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof);
}

async fn a_cut_stream_ends_without_close(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    write(&mut client, b"<message><bo").await;
    drop(client);
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof);
}

async fn a_peer_that_does_not_read_is_bounded(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let limit = 100_000;
    let StreamPair { mut server, mut client } =
        opened(make(port(|port| port.max_unsent_bytes = UnsentLimit::new(limit))).await).await;
    let stanza = MESSAGE.repeat(20);
    let mut accepted = Vec::new();
    // A reload raises the limit of connections that exist.
    let shared = server.listener_config().clone();
    let (limit, lower) = (limit * 2, limit);
    shared.max_unsent_bytes.raise(limit);
    shared.max_unsent_bytes.raise(lower);
    let error = loop {
        with_scratch(|scratch| server.queue(stanza.as_bytes(), scratch));
        with_scratch(|scratch| server.release_buffers(scratch)).unwrap();
        let flushed = poll_fn(|cx| Poll::Ready(with_scratch(|scratch| server.poll_flush(cx, scratch)))).await;
        match flushed {
            Poll::Ready(Err(error)) => break error,
            _ => accepted.extend_from_slice(stanza.as_bytes()),
        }
        // Encryption adds a little to the unsent bytes.
        assert!(server.unsent() <= limit as usize * 11 / 10, "{} bytes wait", server.unsent());
    };
    assert!(matches!(error, NetError::OutputLimit(found) if found == limit), "{error}");
    // A document with a gap is not closed as if it were whole.
    let closed = poll_fn(|cx| Poll::Ready(with_scratch(|scratch| server.poll_shutdown(cx, scratch)))).await;
    assert!(matches!(closed, Poll::Ready(Err(NetError::OutputLimit(_)))), "{closed:?}");
    // All accepted output is still sent in order; nothing that was refused is sent.
    drop(server);
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got).await;
    assert!(accepted.starts_with(&got));
}

async fn a_slow_reader_gets_everything_in_order(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } =
        opened(make(port(|port| port.max_unsent_bytes = UnsentLimit::new(8_000_000))).await).await;
    let text: String = (0..200_000).map(|n| format!("<m n='{n}'/>")).collect();
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(50_000).collect();
    // Queued without waiting, so most of it has to be stashed.
    let mut waited = false;
    for piece in &pieces {
        with_scratch(|scratch| server.queue(piece, scratch));
        let flushed = poll_fn(|cx| {
            Poll::Ready(with_scratch(|scratch| {
                let done = server.poll_flush(cx, scratch);
                server.release_buffers(scratch).unwrap();
                done
            }))
        })
        .await;
        waited |= flushed.is_pending();
    }
    assert!(waited && server.unsent() > 0, "the transport took everything at once");
    let (sent, got) = tokio::join!(send(&mut server, b""), read_exactly(&mut client, text.len()));
    sent.unwrap();
    assert!(got == text.as_bytes(), "bytes were lost or changed places");
    assert_eq!(server.unsent(), 0);
    assert!(server.is_idle());
}

async fn many_elements_come_out_of_one_read(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    let text: String = (0..500).map(|n| format!("<m n='{n}'/>")).collect();
    write(&mut client, text.as_bytes()).await;
    for n in 0..500 {
        assert_eq!(next(&mut server).await.unwrap(), element(&format!("<m n='{n}'/>")));
    }
    assert!(now(&mut server).await.is_none());
}

async fn streams_share_the_buffers_without_mixing(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let mut pairs = Vec::new();
    for _ in 0..4 {
        pairs.push(opened(make(defaults()).await).await);
    }
    for round in 0..3 {
        for (n, pair) in pairs.iter_mut().enumerate() {
            write(&mut pair.client, format!("<m round='{round}' stream='{n}'/><m unfin").as_bytes()).await;
        }
        for (n, pair) in pairs.iter_mut().enumerate() {
            let expected = element(&format!("<m round='{round}' stream='{n}'/>"));
            assert_eq!(next(&mut pair.server).await.unwrap(), expected);
            assert!(now(&mut pair.server).await.is_none());
            with_scratch(|scratch| {
                pair.server.queue(format!("<a stream='{n}'/>").as_bytes(), scratch);
                pair.server.release_buffers(scratch).unwrap();
            });
        }
        for (n, pair) in pairs.iter_mut().enumerate() {
            write(&mut pair.client, format!("ished='{n}'/>").as_bytes()).await;
            let expected = element(&format!("<m unfinished='{n}'/>"));
            assert_eq!(next(&mut pair.server).await.unwrap(), expected);
            send(&mut pair.server, b"<b/>").await.unwrap();
            let answer = format!("<a stream='{n}'/><b/>");
            assert_eq!(read_exactly(&mut pair.client, answer.len()).await, answer.as_bytes());
        }
    }
}

async fn a_stream_that_kept_its_buffers_over_a_yield_is_ended_not_mixed(
    make: impl AsyncFn(SharedListenerConfig) -> StreamPair,
) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    let mut other = opened(make(defaults()).await).await;
    write(&mut client, b"<secret/><secret/>").await;
    poll_fn(|cx| with_scratch(|scratch| server.poll_event(cx, scratch).map(|event| assert!(event.is_ok()))))
        .await;
    write(&mut other.client, b"<m/>").await;
    assert_eq!(next(&mut other.server).await.unwrap(), element("<m/>"));
    assert!(matches!(next(&mut server).await, Err(NetError::BuffersNotReleased)));
    assert!(matches!(send(&mut server, b"<late/>").await, Err(NetError::BuffersNotReleased)));
}

async fn white_space_keeps_alive_and_costs_nothing(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    let StreamPair { mut server, mut client } = opened(make(defaults()).await).await;
    for _ in 0..100 {
        write(&mut client, b" \n").await;
        tokio::task::yield_now().await;
        assert!(now(&mut server).await.is_none());
        assert!(server.is_idle(), "white space was kept");
    }
    write(&mut client, b"<m/>").await;
    assert_eq!(next(&mut server).await.unwrap(), element("<m/>"));
}

const GARBAGE: [&[u8]; 4] =
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05", b"<!DOCTYPE x>", b"<a><!-- -->"];

/// Sends `garbage` as the first bytes and returns the error of the stream.
async fn send_garbage(pair: &mut StreamPair, garbage: &[u8]) -> NetError {
    write(&mut pair.client, garbage).await;
    loop {
        match next(&mut pair.server).await {
            Ok(OwnedEvent::Open(_)) => {}
            Ok(other) => panic!("{other:?} out of {garbage:?}"),
            Err(error) => return error,
        }
    }
}

async fn garbage_ends_the_stream(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    for garbage in GARBAGE {
        let mut pair = make(defaults()).await;
        let error = send_garbage(&mut pair, garbage).await;
        assert!(matches!(error, NetError::Xml(_)), "{error}");
        assert!(matches!(next(&mut pair.server).await, Err(NetError::Closed)));
    }
}

async fn an_error_can_be_sent_after_garbage(make: impl AsyncFn(SharedListenerConfig) -> StreamPair) {
    for garbage in GARBAGE {
        let mut pair = make(defaults()).await;
        send_garbage(&mut pair, garbage).await;
        send(&mut pair.server, b"<stream:error/>").await.unwrap();
        assert_eq!(read_exactly(&mut pair.client, 15).await, b"<stream:error/>");
    }
}

mod transports {
    pub(crate) use crate::support::tls::{starttls12, tls};
    pub(crate) use crate::support::websocket::{
        websocket, websocket_deflate, websocket_memory, websocket_tls,
    };
    pub(crate) use crate::support::{memory, tcp};
}

/// One test per case for the `transport` in scope.
macro_rules! tests {
    ($($case:ident)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                crate::$case(transport).await;
            }
        )+
    };
}

macro_rules! conformance_suite {
    ($($transport:ident)+) => {
        $(
            mod $transport {
                use crate::transports::$transport as transport;
                transport_cases!(tests);
                byte_stream_cases!(tests);
            }
        )+
    };
}

conformance_suite! { tcp memory tls starttls12 websocket websocket_memory websocket_tls websocket_deflate }
