//! Tests of listeners: errors that state the fix, limits, and options of accepted sockets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::future::Future;
use std::task::{Context, Waker};

use support::tls::{CONFIG, RustlsTestClient, handshake};
use support::*;
use throng_net::{ConnectionLimiter, ConnectionLimits, Listener, ListenerKind, NetError, Transport};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

fn listen(kind: ListenerKind, limits: ConnectionLimits) -> (Listener, ConnectionLimiter) {
    let limiter = ConnectionLimiter::new(limits);
    (Listener::bind(kind, any_address(), limiter.clone(), |_| {}).unwrap(), limiter)
}

async fn connect(listener: &Listener) -> TcpStream {
    TcpStream::connect(listener.config().local_address).await.unwrap()
}

#[tokio::test]
async fn an_accepted_socket_becomes_a_stream() {
    let (listener, limiter) = listen(ListenerKind::C2s, ConnectionLimits::default());
    let mut client = connect(&listener).await;
    let accepted = listener.accept().await;
    assert!(accepted.socket.nodelay().unwrap(), "TCP_NODELAY is no longer inherited");
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    let (mut server, permit) = accepted.into_stream(None).unwrap();
    let info = server.info();
    assert_eq!(
        (info.peer, info.listener.local_address),
        (client.local_addr().unwrap(), listener.config().local_address)
    );
    assert_eq!((info.listener.kind, info.transport, info.secure), (ListenerKind::C2s, Transport::Tcp, false));
    write(&mut client, b"<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>").await;
    assert!(matches!(next(&mut server).await, Ok(OwnedEvent::Open(_))));
    assert_eq!(limiter.counts().connections, 1);
    drop(permit);
    assert_eq!(limiter.counts().connections, 0);
    assert_eq!(listener.counts().accepted(), 1);
}

#[tokio::test]
async fn a_direct_tls_port_starts_with_a_handshake() {
    let (listener, _gate) = listen(ListenerKind::C2sTls, ConnectionLimits::default());
    let client = connect(&listener).await;
    let (mut server, _pass) = listener.accept().await.into_stream(Some(&CONFIG)).unwrap();
    let (done, client) = tokio::join!(handshake(&mut server), RustlsTestClient::default().connect(client));
    done.unwrap();
    client.unwrap();
    assert!(server.info().secure);
    let _client = connect(&listener).await;
    let error = listener.accept().await.into_stream(None).err().unwrap();
    assert_eq!(error.to_string(), "a listener of kind c2s-tls needs TLS settings");
}

#[tokio::test]
async fn errors_name_the_address_and_the_fix() {
    let (listener, limiter) = listen(ListenerKind::C2s, ConnectionLimits::default());
    let taken = listener.config().local_address;
    let cases = [
        (taken, format!("address in use: another program listens on {taken};")),
        (
            "192.0.2.1:5222".parse().unwrap(),
            "no such address: no interface of this machine has 192.0.2.1".into(),
        ),
    ];
    for (address, part) in cases {
        let error = Listener::bind(ListenerKind::C2s, address, limiter.clone(), |_| {}).unwrap_err();
        assert!(matches!(&error, NetError::InvalidConfig(text) if text.starts_with(&part)), "{error}");
    }
}

#[tokio::test]
async fn an_address_can_be_bound_again_immediately() {
    let (listener, limiter) = listen(ListenerKind::C2s, ConnectionLimits::default());
    let address = listener.config().local_address;
    let client = connect(&listener).await;
    // The server closes first, so the old connection stays in TIME_WAIT.
    drop(listener.accept().await);
    drop((client, listener));
    Listener::bind(ListenerKind::C2s, address, limiter, |_| {}).unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# A server implementation SHOULD enable a server administrator to limit the number of TCP connections that it will
//# accept from a given IP address at any one time.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# If an entity attempts to connect but the maximum number of TCP connections has been reached, the receiving
//# server MUST NOT allow the new connection to proceed.
#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let (listener, limiter) =
        listen(ListenerKind::C2s, ConnectionLimits { connections: 1, ..ConnectionLimits::default() });
    let _first = connect(&listener).await;
    let first = listener.accept().await;
    let mut second = connect(&listener).await;
    let waiting = listener.accept();
    tokio::pin!(waiting);
    let mut rest = Vec::new();
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the second connection was let in"),
        end = second.read_to_end(&mut rest) => assert!(matches!(end, Ok(0) | Err(_))),
    }
    drop(first);
    let _third = connect(&listener).await;
    waiting.await;
    assert_eq!(limiter.counts().refused_full, 1);
    assert_eq!(listener.counts().accepted(), 3);
}

#[tokio::test]
async fn accepting_pauses_at_the_unauthenticated_limit() {
    let (listener, limiter) =
        listen(ListenerKind::C2s, ConnectionLimits { unauthenticated: 1, ..ConnectionLimits::default() });
    let _clients = (connect(&listener).await, connect(&listener).await);
    let mut first = listener.accept().await;
    let second = listener.accept();
    tokio::pin!(second);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        assert!(second.as_mut().poll(&mut cx).is_pending());
        tokio::task::yield_now().await;
    }
    first.permit.mark_authenticated();
    let _second = second.await;
    assert_eq!((limiter.counts().connections, limiter.counts().unauthenticated), (2, 1));
}
