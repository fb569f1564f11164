//! [`Stream`]: one XMPP stream over any transport, as events in and bytes out.
//!
//! The boundary is events, not bytes, because framing differs between transports: TCP has one endless document,
//! WebSocket (RFC 7395) one document per message, BOSH (XEP-0124) several elements per body. The layer above receives
//! the same four events from all of them. RFC 6120, section 4 (streams) and section 5 (STARTTLS); XEP-0368 (direct
//! TLS).
//!
//! Buffers are lent by the worker thread ([`crate::Scratch`]), so that an idle stream owns none. The cycle of a task:
//!
//! ```text
//! with_scratch(|scratch| {
//!     while let Poll::Ready(event) = stream.poll_event(cx, scratch) { … stream.queue(answer, scratch) … }
//!     let _ = stream.poll_flush(cx, scratch);
//!     stream.release_buffers(scratch)
//! })
//! ```
//!
//! Not implemented: validation of elements (boundaries are certain, the content is not; `xml::Reader` checks it),
//! timeouts (the layer above sweeps), reading and writing in different tasks.
//!
//! # Pitfalls
//!
//! A task must call [`Stream::release_buffers`] before it yields. Otherwise nothing leaks, but the stream is ended once
//! its bytes were overwritten ([`NetError::BuffersNotReleased`]).

pub(crate) mod buffered;
pub(crate) mod byte_stream;
pub(crate) mod document_stream;
mod framing;
pub(crate) mod memory;
mod plain;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};

use buffered::BufferedStream;
use byte_stream::{AnyByteStream, Duplex};
use document_stream::{DocumentStream, ScanEvent};
use framing::Framing;
use memory::Pipe;
use plain::{PlainStream, PlainTransport};
use tls::TlsStream;
use tokio::net::TcpStream;

use crate::bosh::BoshStream;
use crate::connection_info::{ConnectionInfo, SharedListenerConfig, Transport};
use crate::error::NetError;
use crate::scratch::Scratch;
use crate::tls::{ChannelBinding, ClientCertificate, TlsConfig, TlsInfo};
use crate::websocket::AcceptedHandshake;

/// Event of a stream. The bytes are borrowed from the lent buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// The start tag of the stream element, raw.
    Open(&'a [u8]),
    /// One complete first-level element, raw. Its end is certain; its content is not validated yet.
    Element(&'a [u8]),
    /// The peer closed its stream (`</stream:stream>`). Only [`StreamEvent::Eof`] can follow.
    Close,
    /// End of input. Without a preceding [`StreamEvent::Close`] the stream was cut off.
    Eof,
}

/// An XMPP stream, with one variant per transport. WebSocket is a framing over any transport that carries bytes.
pub enum Stream {
    /// Plain TCP.
    Tcp(PlainStream<TcpStream>),
    /// TLS over TCP, or over memory in tests.
    Tls(Box<TlsStream>),
    /// A pipe inside the process.
    Memory(Box<PlainStream<Pipe>>),
    /// A foreign byte stream.
    Other(Box<PlainStream<Box<dyn Duplex>>>),
    /// BOSH requests.
    Bosh(Box<BoshStream>),
}

macro_rules! each {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self {
            Stream::Tcp($stream) => $do,
            Stream::Tls($stream) => $do,
            Stream::Memory($stream) => $do,
            Stream::Other($stream) => $do,
            Stream::Bosh($stream) => $do,
        }
    };
}

impl Stream {
    /// A stream over an accepted socket. Must be called inside the runtime that will poll it.
    pub fn tcp(socket: TcpStream, peer: SocketAddr, port: SharedListenerConfig) -> Stream {
        Stream::Tcp(PlainStream::plain(socket, port, peer))
    }

    /// A stream that starts with a TLS handshake (XEP-0368). Events begin after it; see [`ConnectionInfo::secure`].
    ///
    /// # Errors
    /// [`NetError::Tls`] if the configuration cannot be used.
    pub fn tls(
        socket: TcpStream,
        peer: SocketAddr,
        port: SharedListenerConfig,
        config: &TlsConfig,
    ) -> Result<Stream, NetError> {
        let config = config.for_kind(port.kind);
        let tls = TlsStream::tls(config, None, AnyByteStream::Tcp(socket), DocumentStream::new(port, peer))?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    /// A stream over a pipe, and the other end. Each direction holds at most `capacity` unread bytes.
    pub fn memory(port: SharedListenerConfig, capacity: usize) -> (Stream, Pipe) {
        Stream::memory_with_peer(port, capacity, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// As [`Stream::memory`], with a peer address for tests that depend on it.
    pub fn memory_with_peer(port: SharedListenerConfig, capacity: usize, peer: SocketAddr) -> (Stream, Pipe) {
        let (here, there) = Pipe::pair(capacity);
        (Stream::Memory(Box::new(PlainStream::plain(here, port, peer))), there)
    }

    /// A stream over a foreign byte stream, such as an upgraded HTTP connection. [`ConnectionInfo::secure`] is what
    /// [`Stream::set_proxied_client`] sets.
    pub fn from_duplex(wire: Box<dyn Duplex>, peer: SocketAddr, port: SharedListenerConfig) -> Stream {
        Stream::Other(Box::new(PlainStream::plain(wire, port, peer)))
    }

    /// Sets the client's address and whether its connection is encrypted, as reported by a trusted proxy.
    pub fn set_proxied_client(&mut self, peer: SocketAddr, secure: bool) {
        each!(self, stream => stream.shared.set_proxied_client(peer, secure));
    }

    /// Switches to raw bytes (HTTP), which are read with [`Stream::poll_bytes`].
    pub fn set_raw(&mut self) {
        each!(self, stream => stream.shared.framing = Framing::Raw(0));
    }

    /// Switches to a WebSocket (RFC 6455) that carries the stream (RFC 7395). Call it when the response that accepts it
    /// was queued, or written by an HTTP library: output queued so far leaves unchanged, and unconsumed input is the
    /// first frames.
    pub fn set_websocket(&mut self, accepted: AcceptedHandshake) {
        each!(self, stream => stream.shared.set_websocket(accepted));
    }

    /// All unconsumed input, as soon as it is more than `have` bytes; at the end of input it may be no more than that.
    /// `Pending` if there is no more yet; unconsumed input is in a block then.
    ///
    /// # Errors
    /// [`NetError::TooLong`] if more is unread than an element of the listener's limit and one read; errors of the
    /// transport.
    pub fn poll_bytes<'a>(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &'a mut Scratch,
        have: usize,
    ) -> Poll<Result<&'a [u8], NetError>> {
        each!(self, stream => stream.shared.framing = Framing::Raw(have));
        match each!(self, stream => stream.poll_event(cx, scratch)) {
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(scratch.input.data())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Consumes the first `count` bytes that [`Stream::poll_bytes`] returned. Must be called before any other operation
    /// on the stream.
    pub fn consume(&mut self, count: usize, scratch: &mut Scratch) {
        if each!(self, stream => stream.shared.holds_buffers()) {
            scratch.input.consume(count);
        }
    }

    /// Unconsumed input, valid until another operation on the stream.
    pub(crate) fn unread<'a>(&self, scratch: &'a Scratch) -> &'a [u8] {
        if each!(self, stream => stream.shared.holds_buffers()) { scratch.input.data() } else { &[] }
    }

    /// Shared settings of the listener.
    pub fn listener_config(&self) -> &SharedListenerConfig {
        each!(self, stream => &stream.shared.listener)
    }

    /// Next event: from the buffer, else from repeated reads until there is one. `Pending` if the peer is silent;
    /// unfinished input is in a block then (if nothing is queued). After an error there are no more events, but a final
    /// stream error can still be queued and flushed unless the transport itself failed.
    pub fn poll_event<'a>(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &'a mut Scratch,
    ) -> Poll<Result<StreamEvent<'a>, NetError>> {
        let polled = each!(self, stream => stream.poll_event(cx, scratch));
        // Control frames of a WebSocket are answered here; the layers above do not know of them. Events still use the
        // buffers.
        if matches!(polled, Poll::Pending | Poll::Ready(Ok(ScanEvent::Eof)))
            && each!(self, stream => stream.shared.is_urgent())
        {
            // The next call returns the error.
            if self.poll_flush(cx, scratch).is_ready() {
                each!(self, stream => stream.shared.clear_urgent());
            }
        }
        let found = match polled {
            Poll::Ready(Ok(found)) => found,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let scratch = &*scratch;
        Poll::Ready(Ok(match found {
            ScanEvent::Open(start, end) => StreamEvent::Open(scratch.input.slice(start, end)),
            ScanEvent::Element(start, end) => StreamEvent::Element(scratch.input.slice(start, end)),
            ScanEvent::Rewritten(true) => StreamEvent::Open(&scratch.text),
            ScanEvent::Rewritten(false) => StreamEvent::Element(&scratch.text),
            ScanEvent::Close => StreamEvent::Close,
            // Raw bytes are read with `poll_bytes` only.
            ScanEvent::Eof | ScanEvent::Raw => StreamEvent::Eof,
        }))
    }

    /// Moves unread and unsent bytes into blocks. Must be called before the task yields; costs nothing if there are
    /// none.
    ///
    /// # Errors
    /// [`NetError::BuffersNotReleased`] if an earlier call was missing and the bytes are lost.
    pub fn release_buffers(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        each!(self, stream => stream.release_buffers(scratch))
    }

    /// Appends to the output; only a flush writes. If more than [`crate::ListenerConfig::max_unsent_bytes`] would wait,
    /// nothing is appended and the next flush fails: an XML stream with a gap is useless.
    pub fn queue(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        each!(self, stream => stream.queue(bytes, scratch));
    }

    /// Writes queued output: one `write(2)` if the kernel takes it all. Otherwise `Pending`; the remainder is stashed
    /// and the task is woken when it can be written.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), NetError>> {
        each!(self, stream => stream.poll_flush(cx, scratch))
    }

    /// Flushes, sends the transport's closing message if it has one (close_notify), and ends the outgoing direction.
    /// The peer's end still arrives as [`StreamEvent::Eof`].
    pub fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        each!(self, stream => stream.poll_shutdown(cx, scratch))
    }

    /// Reads once and discards the bytes; 0 is the end. For a stream after its final output, so that the peer can read
    /// that: closing a socket with unread input resets it. Unlike [`Stream::poll_event`] it works after an error. Call
    /// it only if nothing is queued; no event may be requested afterwards.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        each!(self, stream => stream.poll_discard(cx, scratch))
    }

    /// Whether queued output could leave soon. False for BOSH without a waiting request, or if much output in responses is
    /// not sent: the task is woken by the next request or when that was sent, and until then the layer above should keep its output, because queued output is lost if the client
    /// never returns.
    pub fn accepts_output(&mut self) -> bool {
        match self {
            Stream::Bosh(stream) => stream.accepts_output(),
            _ => true,
        }
    }

    /// Bytes that wait for the peer, queued or stashed.
    pub fn unsent(&self) -> usize {
        each!(self, stream => stream.shared.unsent())
    }

    /// Bytes that the kernel has not taken: those of [`Stream::unsent`], and over BOSH those in responses, which are sent
    /// after the flush. If there are any, the task is woken when they become fewer.
    pub fn unflushed(&self) -> usize {
        match self {
            Stream::Bosh(stream) => stream.shared.unsent() + stream.unsent_response_bytes(),
            _ => self.unsent(),
        }
    }

    /// True if the stream owns no buffer: nothing unread, unsent or lent.
    pub fn is_idle(&self) -> bool {
        each!(self, stream => stream.is_idle())
    }

    /// Transport properties.
    pub fn info(&self) -> ConnectionInfo<'_> {
        match self {
            Stream::Tcp(stream) => stream.shared.info(Transport::Tcp, false),
            Stream::Tls(stream) => stream.info(),
            Stream::Memory(stream) => stream.shared.info(Transport::Memory, false),
            Stream::Other(stream) => stream.shared.info(Transport::Tcp, false),
            Stream::Bosh(stream) => stream.shared.info(Transport::Bosh, false),
        }
    }

    /// Starts TLS on a plaintext stream (RFC 6120, section 5.4.2.3), after `<proceed/>` was queued, which leaves before
    /// the first record. `domain` is the `to` of the stream header: it selects the certificate if the client sends no
    /// SNI. A new document follows.
    ///
    /// # Errors
    /// [`NetError::AlreadyEncrypted`]; [`NetError::PlaintextAfterStartTls`] if bytes followed `<starttls/>`, after
    /// which the stream must be dropped; [`NetError::Tls`] if the configuration cannot be used.
    pub fn start_tls(
        &mut self,
        config: &TlsConfig,
        domain: Option<&str>,
        scratch: &mut Scratch,
    ) -> Result<(), NetError> {
        let unread = match self {
            Stream::Tcp(stream) => stream.shared.has_unread_input(scratch),
            Stream::Memory(stream) => stream.shared.has_unread_input(scratch),
            Stream::Tls(_) | Stream::Other(_) | Stream::Bosh(_) => return Err(NetError::AlreadyEncrypted),
        };
        if !self.info().transport.has_starttls() {
            return Err(NetError::AlreadyEncrypted);
        }
        if unread {
            return Err(NetError::PlaintextAfterStartTls);
        }
        self.release_buffers(scratch)?;
        let config = config.for_kind(self.info().listener.kind);
        // A placeholder during the swap; its other end is dropped.
        let stand_in = BufferedStream::new(
            PlainTransport { io: Pipe::pair(1).0 },
            DocumentStream::empty_like(each!(self, stream => &stream.shared)),
        );
        let (wire, mut shared) = match std::mem::replace(self, Stream::Memory(Box::new(stand_in))) {
            Stream::Tcp(stream) => (AnyByteStream::Tcp(stream.transport.io), stream.shared),
            Stream::Memory(stream) => (AnyByteStream::Memory(stream.transport.io), stream.shared),
            Stream::Tls(_) | Stream::Other(_) | Stream::Bosh(_) => return Err(NetError::AlreadyEncrypted),
        };
        shared.restart();
        *self = Stream::Tls(Box::new(TlsStream::tls(config, domain, wire, shared)?));
        Ok(())
    }

    /// Channel binding data for SASL; empty without TLS and before the handshake is complete.
    pub fn channel_binding(&self) -> ChannelBinding<'_> {
        match self {
            Stream::Tls(stream) => stream.transport.session.channel_binding(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => {
                ChannelBinding::default()
            }
        }
    }

    /// Names of the peer's verified certificate.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        match self {
            Stream::Tls(stream) => stream.transport.session.client_certificate(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => None,
        }
    }

    /// Negotiated TLS parameters, once they are known.
    pub fn tls_info(&self) -> Option<TlsInfo<'_>> {
        match self {
            Stream::Tls(stream) => stream.transport.session.tls_info(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => None,
        }
    }

    /// Starts a new document (RFC 6120, section 4.3.3), after SASL for example. Bytes already received belong to it.
    pub fn restart(&mut self) {
        each!(self, stream => stream.shared.restart());
    }

    /// Applies the listener's limits for authenticated streams.
    pub fn set_authenticated(&mut self) {
        each!(self, stream => stream.shared.set_authenticated());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_move_between_threads() {
        fn check<T: Send + 'static>() {}
        check::<Stream>();
        check::<Pipe>();
        check::<Scratch>();
    }

    #[test]
    fn an_idle_stream_is_small() {
        assert!(size_of::<PlainStream<TcpStream>>() <= 192, "{}", size_of::<PlainStream<TcpStream>>());
        assert!(size_of::<Stream>() <= 192, "{}", size_of::<Stream>());
    }
}
