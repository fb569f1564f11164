//! Tests of listeners: errors that state the fix, limits, and options of accepted sockets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use base::ManualClock;
use support::tls::{CONFIG, RustlsTestClient, handshake};
use support::*;
use throng_net::{
    AcceptRate, ConnectionLimiter, ConnectionLimits, ConnectionRefusal, Listener, ListenerKind, NetError,
    RemoteRole, Transport,
};
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

/// Limits with an accept rate of 20 a second, so that two connections pass at once.
const RATED: ConnectionLimits = ConnectionLimits {
    connections: 0,
    unauthenticated: 0,
    per_address: 0,
    new_per_second: 0,
    new_burst: 0,
    new_on_loopback: false,
    accepted_per_second: 20,
    accept_rate_on_loopback: true,
};

fn rated_listener(kind: ListenerKind, rate: &AcceptRate) -> (Listener, ConnectionLimiter) {
    let limiter = ConnectionLimiter::with_accept_rate(RATED, rate.clone());
    (Listener::bind(kind, any_address(), limiter.clone(), |_| {}).unwrap(), limiter)
}

/// Polls until everything that is due has happened.
async fn assert_waits<T>(mut accepting: Pin<&mut impl Future<Output = T>>) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        assert!(accepting.as_mut().poll(&mut cx).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn connections_above_the_accept_rate_wait_and_none_is_refused() {
    let clock = Arc::new(ManualClock::new());
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &AcceptRate::new(clock.clone()));
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = connect(&listener).await;
        // In the backlog, the kernel takes what the client sends.
        write(&mut client, b"<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>").await;
        clients.push(client);
    }
    let mut accepted = vec![listener.accept().await, listener.accept().await];
    {
        let third = listener.accept();
        tokio::pin!(third);
        assert_waits(third).await;
        // Dropped while it waits: the next call accepts the same connection.
    }
    for _ in 2..4 {
        let next = listener.accept();
        tokio::pin!(next);
        assert_waits(next.as_mut()).await;
        clock.advance(50);
        accepted.push(next.await);
    }
    assert_eq!((limiter.counts().delayed, listener.counts().accepted()), (2, 4));
    {
        // A reload that switches the rate off also ends the wait.
        let fifth = listener.accept();
        tokio::pin!(fifth);
        assert_waits(fifth.as_mut()).await;
        limiter.set_limits(ConnectionLimits::default());
        accepted.push(fifth.await);
    }
    accepted.push(listener.accept().await);
    let peers: Vec<_> = accepted.iter().map(|one| one.peer).collect();
    assert_eq!(peers, clients.iter().map(|one| one.local_addr().unwrap()).collect::<Vec<_>>());
    for one in accepted {
        let (mut server, _permit) = one.into_stream(None).unwrap();
        assert!(matches!(next(&mut server).await, Ok(OwnedEvent::Open(_))));
    }
    assert_eq!((limiter.counts().delayed, limiter.counts().refused_rate), (4, 0), "the sixth waited, too");
}

#[tokio::test]
async fn a_crowd_on_one_listener_leaves_the_other_its_turn() {
    let clock = Arc::new(ManualClock::new());
    let rate = AcceptRate::new(clock.clone());
    let (crowded, crowd) = rated_listener(ListenerKind::C2sTls, &rate);
    let (quiet, operators) = rated_listener(ListenerKind::Http, &rate);
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(connect(&crowded).await);
    }
    let _accepted = (crowded.accept().await, crowded.accept().await);
    clients.push(connect(&quiet).await);
    let of_crowd = async { (crowded.accept().await, crowded.accept().await) };
    let of_operator = quiet.accept();
    tokio::pin!(of_crowd, of_operator);
    assert_waits(of_crowd.as_mut()).await;
    assert_waits(of_operator.as_mut()).await;
    // Time for one of the crowd and the operator, who is before the next one of the crowd.
    clock.advance(100);
    tokio::select! {
        _ = &mut of_crowd => panic!("the crowd took the turn of the other listener"),
        _ = &mut of_operator => {}
    }
    assert_waits(of_crowd.as_mut()).await;
    clock.advance(50);
    of_crowd.await;
    assert_eq!((crowd.counts().delayed, operators.counts().delayed), (2, 1));
}

#[tokio::test]
async fn refused_connections_do_not_count_for_the_accept_rate() {
    let rate = AcceptRate::new(Arc::new(ManualClock::new()));
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &rate);
    limiter.set_limits(ConnectionLimits { per_address: 1, ..RATED });
    let _first = connect(&listener).await;
    let first = listener.accept().await;
    let accepting = listener.accept();
    tokio::pin!(accepting);
    for _ in 0..5 {
        let mut refused = connect(&listener).await;
        let mut rest = Vec::new();
        tokio::select! {
            biased;
            _ = &mut accepting => panic!("a connection above the limit was accepted"),
            end = refused.read_to_end(&mut rest) => assert!(matches!(end, Ok(0) | Err(_))),
        }
    }
    drop(first);
    let _second = connect(&listener).await;
    accepting.await;
    assert_eq!((limiter.counts().refused_address, limiter.counts().delayed), (5, 0));
}

#[tokio::test]
async fn a_proxied_connection_takes_no_turn_if_its_client_is_refused_or_unknown() {
    let rate = AcceptRate::new(Arc::new(ManualClock::new()));
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &rate);
    limiter.set_limits(ConnectionLimits { per_address: 1, ..RATED });
    let client = |last: u8| SocketAddr::from(([192, 0, 2, last], 40_000));
    let mut clients = vec![connect(&listener).await];
    let mut first = listener.accept_with_role(|_| RemoteRole::Proxy).await;
    first.set_client_address(client(1)).unwrap();
    assert_eq!((first.role, first.peer), (RemoteRole::Proxy, client(1)));
    for _ in 0..5 {
        clients.push(connect(&listener).await);
        let mut refused = listener.accept_with_role(|_| RemoteRole::Proxy).await;
        assert_eq!(refused.set_client_address(client(1)), Err(ConnectionRefusal::AddressLimit));
        drop(refused);
        // As when the header is invalid or does not arrive.
        clients.push(connect(&listener).await);
        drop(listener.accept_with_role(|_| RemoteRole::Proxy).await);
    }
    clients.push(connect(&listener).await);
    let mut second = listener.accept_with_role(|_| RemoteRole::Proxy).await;
    second.set_client_address(client(2)).unwrap();
    clients.push(connect(&listener).await);
    let third = listener.accept_with_role(|_| RemoteRole::Proxy);
    tokio::pin!(third);
    assert_waits(third).await;
    assert_eq!((limiter.counts().refused_address, limiter.counts().delayed), (5, 0));
}

#[tokio::test]
async fn untrusted_connections_take_no_turn_and_the_limits_by_address_apply_to_them() {
    let rate = AcceptRate::new(Arc::new(ManualClock::new()));
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &rate);
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(connect(&listener).await);
        let untrusted = listener.accept_with_role(|_| RemoteRole::Untrusted).await;
        assert_eq!(untrusted.role, RemoteRole::Untrusted);
    }
    limiter.set_limits(ConnectionLimits { per_address: 1, ..RATED });
    clients.extend([connect(&listener).await, connect(&listener).await]);
    let _held = listener.accept_with_role(|_| RemoteRole::Untrusted).await;
    {
        let refused = listener.accept_with_role(|_| RemoteRole::Untrusted);
        tokio::pin!(refused);
        assert_waits(refused).await;
    }
    assert_eq!((limiter.counts().refused_address, limiter.counts().delayed), (1, 0));
    limiter.set_limits(RATED);
    // Two turns are left.
    for _ in 0..2 {
        clients.push(connect(&listener).await);
        listener.accept_with_role(|_| RemoteRole::Proxy).await.set_client_address(any_address()).unwrap();
    }
    clients.push(connect(&listener).await);
    let third = listener.accept_with_role(|_| RemoteRole::Proxy);
    tokio::pin!(third);
    assert_waits(third).await;
}

#[tokio::test]
async fn connections_that_their_clients_have_closed_take_no_turn() {
    let rate = AcceptRate::new(Arc::new(ManualClock::new()));
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &rate);
    for reset in [false, true] {
        for _ in 0..5 {
            let client = connect(&listener).await;
            if reset {
                client.set_zero_linger().unwrap();
            }
        }
    }
    // One that has sent nothing yet, and one that has.
    let mut clients = [connect(&listener).await, connect(&listener).await];
    write(&mut clients[1], b"<stream:stream xmlns:stream='http://etherx.jabber.org/streams'>").await;
    for client in &clients {
        assert_eq!(listener.accept().await.peer, client.local_addr().unwrap());
    }
    assert_eq!((limiter.counts().connections, limiter.counts().delayed), (0, 0));
    let _third = connect(&listener).await;
    let third = listener.accept();
    tokio::pin!(third);
    assert_waits(third).await;
}

#[tokio::test]
async fn every_connection_of_a_backlog_counts_as_delayed_and_later_ones_do_not() {
    let clock = Arc::new(ManualClock::new());
    let (listener, limiter) = rated_listener(ListenerKind::C2s, &AcceptRate::new(clock.clone()));
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(connect(&listener).await);
    }
    let mut accepted = vec![listener.accept().await, listener.accept().await];
    {
        let third = listener.accept();
        tokio::pin!(third);
        assert_waits(third).await;
    }
    // The pause was longer than a turn: the last two do not wait again.
    clock.advance(150);
    for delayed in 1..=3 {
        accepted.push(listener.accept().await);
        assert_eq!(limiter.counts().delayed, delayed);
    }
    clock.advance(1_000);
    let next = listener.accept();
    tokio::pin!(next);
    assert_waits(next.as_mut()).await;
    clients.push(connect(&listener).await);
    accepted.push(next.await);
    assert_eq!((limiter.counts().delayed, accepted.len()), (3, 6));
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
