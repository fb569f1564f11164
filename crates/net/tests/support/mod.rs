//! Pairs of a server stream and a client for the transport tests, and the loop of a session task.

#![allow(dead_code, unreachable_pub, reason = "every test program uses its own part")]

pub mod tls;
pub mod websocket;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use throng_net::{
    ListenerConfig, ListenerKind, NetError, SharedListenerConfig, Stream, StreamEvent, with_scratch,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// An event with its bytes copied out, as a session would.
#[derive(Debug, PartialEq, Eq)]
pub enum OwnedEvent {
    Open(String),
    Element(String),
    Close,
    Eof,
}

impl From<StreamEvent<'_>> for OwnedEvent {
    fn from(event: StreamEvent<'_>) -> OwnedEvent {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match event {
            StreamEvent::Open(bytes) => OwnedEvent::Open(text(bytes)),
            StreamEvent::Element(bytes) => OwnedEvent::Element(text(bytes)),
            StreamEvent::Close => OwnedEvent::Close,
            StreamEvent::Eof => OwnedEvent::Eof,
        }
    }
}

pub fn element(text: &str) -> OwnedEvent {
    OwnedEvent::Element(text.to_owned())
}

pub trait TestIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> TestIo for T {}

pub struct StreamPair {
    pub server: Stream,
    pub client: Box<dyn TestIo>,
}

pub fn any_address() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn port(change: impl FnOnce(&mut ListenerConfig)) -> SharedListenerConfig {
    let mut port = ListenerConfig::new(ListenerKind::C2s, any_address());
    change(&mut port);
    Arc::new(port)
}

/// The next event; releases the buffers before it yields, as a session task does.
pub async fn next(stream: &mut Stream) -> Result<OwnedEvent, NetError> {
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let got = match stream.poll_event(cx, scratch) {
                Poll::Ready(Ok(event)) => Poll::Ready(Ok(OwnedEvent::from(event))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            stream.release_buffers(scratch)?;
            got
        })
    })
    .await
}

/// Polls for an event once: `None` if the peer is silent.
pub async fn now(stream: &mut Stream) -> Option<Result<OwnedEvent, NetError>> {
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let got = match stream.poll_event(cx, scratch) {
                Poll::Ready(event) => Some(event.map(OwnedEvent::from)),
                Poll::Pending => None,
            };
            stream.release_buffers(scratch).unwrap();
            Poll::Ready(got)
        })
    })
    .await
}

pub async fn send(stream: &mut Stream, bytes: &[u8]) -> Result<(), NetError> {
    with_scratch(|scratch| {
        stream.queue(bytes, scratch);
        stream.release_buffers(scratch)
    })?;
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let done = stream.poll_flush(cx, scratch);
            stream.release_buffers(scratch)?;
            done
        })
    })
    .await
}

pub async fn shutdown(stream: &mut Stream) -> Result<(), NetError> {
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let done = stream.poll_shutdown(cx, scratch);
            stream.release_buffers(scratch)?;
            done
        })
    })
    .await
}

/// Writes everything and flushes; large amounts need a concurrent reader.
pub async fn write(client: &mut (impl AsyncWrite + Unpin + ?Sized), bytes: &[u8]) {
    client.write_all(bytes).await.unwrap();
    client.flush().await.unwrap();
}

pub async fn read_exactly(client: &mut (impl AsyncRead + Unpin + ?Sized), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    client.read_exact(&mut bytes).await.unwrap();
    bytes
}

pub async fn tcp_pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind(any_address()).await.unwrap();
    let (client, accepted) =
        tokio::join!(tokio::net::TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let (server, client) = (accepted.unwrap().0, client.unwrap());
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    // Small kernel buffers, so that a peer that does not read has an effect soon.
    for socket in [&client, &server] {
        let socket = socket2::SockRef::from(socket);
        socket.set_send_buffer_size(32_768).unwrap();
        socket.set_recv_buffer_size(32_768).unwrap();
    }
    (server, client)
}

pub async fn tcp(port: SharedListenerConfig) -> StreamPair {
    let (server, client) = tcp_pair().await;
    let peer = server.peer_addr().unwrap();
    StreamPair { server: Stream::tcp(server, peer, port), client: Box::new(client) }
}

pub async fn memory(port: SharedListenerConfig) -> StreamPair {
    let (server, client) = Stream::memory(port, 16_384);
    StreamPair { server, client: Box::new(client) }
}
