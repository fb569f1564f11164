//! Memory tests: heap bytes of an idle stream, and no allocation per element of a busy one.
//!
//! The result is what dropping the stream frees, so clients and shared configuration do not count. Bytes are as
//! requested, without the allocator's rounding.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::task::Poll;

use counting_allocator::{allocations, live_bytes};
use support::tls::*;
use support::websocket::{websocket, websocket_deflate};
use support::*;
use throng_net::{ListenerKind, Stream, StreamEvent, with_scratch};
use tokio::io::AsyncReadExt;

const OPEN: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

/// Opens the stream, exchanges a few elements, and leaves it idle.
async fn settle(mut pair: StreamPair) -> StreamPair {
    write(&mut pair.client, OPEN.as_bytes()).await;
    assert_eq!(next(&mut pair.server).await.unwrap(), OwnedEvent::Open(OPEN.into()));
    for _ in 0..20 {
        write(&mut pair.client, b"<message><body>hello</body></message>").await;
        next(&mut pair.server).await.unwrap();
        send(&mut pair.server, b"<message><body>hello</body></message>").await.unwrap();
        read_exactly(&mut pair.client, 37).await;
    }
    assert!(now(&mut pair.server).await.is_none());
    assert!(pair.server.is_idle());
    pair
}

async fn tls12(port: throng_net::SharedListenerConfig) -> StreamPair {
    let (server, io) = tcp_pair().await;
    let peer = server.peer_addr().unwrap();
    let mut server = Stream::tls(server, peer, port, &CONFIG).unwrap();
    let client = RustlsTestClient { version: Some(&rustls::version::TLS12), ..RustlsTestClient::default() };
    let (done, client) = tokio::join!(handshake(&mut server), client.connect(io));
    done.unwrap();
    StreamPair { server, client: Box::new(client.unwrap()) }
}

/// Heap bytes that dropping an idle stream frees, averaged over ten.
async fn heap(make: impl AsyncFn(throng_net::SharedListenerConfig) -> StreamPair) -> isize {
    let port = port(|port| port.kind = ListenerKind::C2sTls);
    let mut pairs = Vec::new();
    for _ in 0..10 {
        pairs.push(settle(make(port.clone()).await).await);
    }
    let mut freed = 0;
    for pair in pairs {
        let before = live_bytes();
        drop(pair.server);
        freed += before - live_bytes();
    }
    freed / 10
}

#[tokio::test]
async fn an_idle_tls_stream_is_small() {
    // Warm up: lazily created objects do not belong to the stream.
    drop(settle(tls(port(|_| {})).await).await);
    let (plain, tls13, tls12) = (heap(tcp).await, heap(tls).await, heap(tls12).await);
    println!(
        "heap of an idle stream: TCP {plain}, TLS 1.3 {tls13}, TLS 1.2 {tls12} bytes; inline {}",
        size_of::<Stream>()
    );
    // The box of the variant `Tls` holds what the variant `Tcp` holds inline.
    let inline = size_of::<Stream>() as isize;
    for (version, bytes) in [("1.3", tls13), ("1.2", tls12)] {
        let state = bytes - plain - inline;
        println!("TLS {version} state: {state} bytes");
        assert!(state <= 3400, "TLS {version} costs {state} bytes per idle connection");
        assert!(state > 500, "the measurement measures nothing");
    }
    assert!(plain <= 600, "an idle TCP stream owns {plain} bytes");
}

#[tokio::test]
async fn an_idle_websocket_is_little_larger_than_tcp() {
    drop(settle(websocket_deflate(port(|_| {})).await).await);
    let (plain, framed, compressed) = (heap(tcp).await, heap(websocket).await, heap(websocket_deflate).await);
    println!(
        "heap of an idle stream: TCP {plain}, WebSocket {framed}, over memory and compressed {compressed} bytes"
    );
    assert!(framed - plain <= 96, "WebSocket costs {} bytes per idle connection", framed - plain);
    assert!(framed > plain, "the measurement measures nothing");
    // The pipe and its place in the box are there in place of a socket; no window is kept (RFC 7692, section 7.1.1).
    assert!(
        compressed <= framed + 1024,
        "compression costs {} bytes per idle connection",
        compressed - framed
    );
}

/// Allocations while `rounds` elements are received and answered.
async fn allocations_of_rounds(
    make: impl AsyncFn(throng_net::SharedListenerConfig) -> StreamPair,
    rounds: usize,
    batch: usize,
) -> usize {
    let StreamPair { mut server, mut client } = settle(make(port(|_| {})).await).await;
    let input = "<message><body>hello</body></message>".repeat(batch);
    let mut answer = vec![0; 4 * batch];
    let mut total = 0;
    for round in 0..rounds + 3 {
        write(&mut client, input.as_bytes()).await;
        let mut seen = 0;
        while seen < batch {
            let before = allocations();
            let got = std::future::poll_fn(|cx| {
                with_scratch(|scratch| {
                    let mut seen = 0;
                    while let Poll::Ready(event) = server.poll_event(cx, scratch) {
                        let StreamEvent::Element(bytes) = event.unwrap() else { panic!() };
                        assert_eq!(bytes.len(), 37);
                        server.queue(b"<a/>", scratch);
                        seen += 1;
                    }
                    let flushed = server.poll_flush(cx, scratch);
                    server.release_buffers(scratch).unwrap();
                    assert!(flushed.is_ready());
                    if seen == 0 { Poll::Pending } else { Poll::Ready(seen) }
                })
            });
            seen += got.await;
            // The first rounds fill the pools.
            total += if round < 3 { 0 } else { allocations() - before };
        }
        client.read_exact(&mut answer).await.unwrap();
    }
    total
}

/// The same for the server's side of a WebSocket only: its client allocates.
async fn server_allocations(rounds: usize) -> usize {
    let (mut server, mut client) = Stream::memory(port(|_| {}), 65_536);
    server.set_websocket(support::websocket::accepted(&throng_net::websocket::WebSocketSettings::default()));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let open = b"<open xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";
    let mut input = support::websocket::frame(0x81, open);
    let element = b"<message xmlns='jabber:client'><body>hello</body></message>";
    let elements = support::websocket::frame(0x81, element).repeat(20);
    let mut total = 0;
    let mut answers = vec![0; 65_536];
    for round in 0..rounds + 3 {
        assert!(matches!(client.poll_write(&mut cx, &input), Poll::Ready(Ok(count)) if count == input.len()));
        input.clone_from(&elements);
        let before = allocations();
        with_scratch(|scratch| {
            while let Poll::Ready(event) = server.poll_event(&mut cx, scratch) {
                assert!(!matches!(event.unwrap(), StreamEvent::Eof | StreamEvent::Close));
                server.queue(b"<message to='a@b'/>", scratch);
            }
            assert!(server.poll_flush(&mut cx, scratch).is_ready());
            server.release_buffers(scratch).unwrap();
        });
        total += if round < 3 { 0 } else { allocations() - before };
        assert!(client.poll_read(&mut cx, &mut answers).is_ready());
    }
    total
}

#[tokio::test]
async fn elements_are_not_allocated() {
    assert_eq!(allocations_of_rounds(tcp, 50, 1).await, 0);
    assert_eq!(allocations_of_rounds(tcp, 50, 100).await, 0);
    assert_eq!(server_allocations(50).await, 0, "frames are cut and unmasked where they are");
    // rustls allocates per record, both ways, whatever is in it.
    let (single, many) = (allocations_of_rounds(tls, 50, 1).await, allocations_of_rounds(tls, 50, 100).await);
    println!("allocations per record pair over TLS: {}", single as f64 / 50.0);
    assert!(single <= 50 * 4, "{single} allocations for 50 records in and out");
    assert!(many <= 50 * 8, "{many} allocations for 5000 elements in 50 records");
}
