//! [`Stream`]: one XMPP stream over any transport, as events in and bytes out.
//!
//! The boundary is events, not bytes, because framing differs between transports: TCP has one endless document,
//! WebSocket (RFC 7395) one document per message, BOSH (XEP-0124) several elements per body. The layer above sees the
//! same four events from all of them. RFC 6120 §4 (streams), §5 (STARTTLS), XEP-0368 (TLS at once).
//!
//! Buffers are lent by the worker thread ([`crate::Scratch`]), so that an idle stream owns none. The cycle of a task:
//!
//! ```text
//! with_scratch(|lent| {
//!     while let Poll::Ready(event) = stream.poll_event(cx, lent) { … stream.queue(answer, lent) … }
//!     let _ = stream.poll_flush(cx, lent);
//!     stream.park(lent)
//! })
//! ```
//!
//! Left out: validation of elements (the boundaries are sure, the inside is not; `xml::Reader` checks it), deadlines
//! (the layer above sweeps), reading in another task than writing.
//! Trap: forgetting [`Stream::release_buffers`] before the task yields. Nothing leaks, but the stream is ended when its bytes were
//! overwritten ([`NetError::BuffersNotReleased`]).

pub(crate) mod byte_stream;
pub(crate) mod document_stream;
mod framing;
pub(crate) mod memory;
mod plain;
mod tls;

use crate::bosh::BoshStream;
use crate::connection_info::{ConnectionInfo, SharedListenerConfig, Transport};
use crate::error::NetError;
use crate::scratch::Scratch;
use crate::tls::{ChannelBinding, ClientCertificate, TlsConfig, TlsInfo};
use crate::websocket::AcceptedHandshake;
use byte_stream::{AnyByteStream, Duplex};
use document_stream::{DocumentStream, ScanEvent};
use framing::Framing;
use memory::Pipe;
use plain::PlainStream;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll};
use tls::TlsStream;
use tokio::net::TcpStream;

/// What arrived. The bytes are borrowed from the lent buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// The start tag of the stream element, raw.
    Open(&'a [u8]),
    /// One complete first-level element, raw. Its end is certain; its inside is not checked yet.
    Element(&'a [u8]),
    /// The peer closed its stream (`</stream:stream>`). Only [`StreamEvent::Eof`] can follow.
    Close,
    /// The peer will send nothing more. Without an [`StreamEvent::Close`] before it the stream was cut.
    Eof,
}

/// An XMPP stream. The variants are the list of transports. WebSocket is a framing of any of them that carries bytes.
pub enum Stream {
    /// Plain TCP.
    Tcp(PlainStream<TcpStream>),
    /// TLS over TCP, or over memory in tests.
    Tls(Box<TlsStream>),
    /// A pipe inside the process.
    Memory(Box<PlainStream<Pipe>>),
    /// Bytes that somebody else brings.
    Other(Box<PlainStream<Box<dyn Duplex>>>),
    /// Requests over HTTP.
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
        Stream::Tcp(PlainStream::new(socket, port, peer))
    }

    /// A stream that starts with a TLS handshake (XEP-0368). Its events begin after it; [`ConnectionInfo::secure`] tells.
    ///
    /// # Errors
    /// [`NetError::TlsStream`] when the configuration cannot be used.
    pub fn tls(
        socket: TcpStream,
        peer: SocketAddr,
        port: SharedListenerConfig,
        config: &TlsConfig,
    ) -> Result<Stream, NetError> {
        let config = config.for_kind(port.kind);
        let tls = TlsStream::new(config, None, AnyByteStream::Tcp(socket), DocumentStream::new(port, peer))?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    /// A stream over a pipe, and the other end. Each direction holds at most `capacity` unread bytes.
    pub fn memory(port: SharedListenerConfig, capacity: usize) -> (Stream, Pipe) {
        Stream::memory_with_peer(port, capacity, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// The same from somewhere else, for tests of what depends on that.
    pub fn memory_with_peer(port: SharedListenerConfig, capacity: usize, peer: SocketAddr) -> (Stream, Pipe) {
        let (here, there) = Pipe::pair(capacity);
        (Stream::Memory(Box::new(PlainStream::new(here, port, peer))), there)
    }

    /// A stream over bytes that somebody else brings, such as an upgraded HTTP connection. `secure` of its facts is what
    /// [`Stream::set_proxied_client`] says.
    pub fn from_duplex(wire: Box<dyn Duplex>, peer: SocketAddr, port: SharedListenerConfig) -> Stream {
        Stream::Other(Box::new(PlainStream::new(wire, port, peer)))
    }

    /// Who is really at the other end, and whether that side is encrypted, as a trusted proxy tells.
    pub fn set_proxied_client(&mut self, peer: SocketAddr, secure: bool) {
        each!(self, stream => stream.shared.set_proxied_client(peer, secure));
    }

    /// From now on the bytes are read with [`Stream::poll_bytes`] and mean something else than XML: HTTP.
    pub fn set_raw(&mut self) {
        each!(self, stream => stream.shared.framing = Framing::Raw(0));
    }

    /// From now on the bytes are a WebSocket (RFC 6455) that carries the stream (RFC 7395). To be called when the answer
    /// that accepts it is queued, or was written by somebody else: what is queued so far leaves as it is, and bytes that
    /// were read and not consumed are the first frames.
    pub fn set_websocket(&mut self, accepted: AcceptedHandshake) {
        each!(self, stream => stream.shared.set_websocket(accepted));
    }

    /// All that was read and not consumed, as soon as it is more than `have` bytes; not more than that at the end of what
    /// the peer sends. `Pending` when there is no more yet; what is unread is in a block then.
    ///
    /// # Errors
    /// [`NetError::TooLong`] when more is unread than an element of the port may have and a read brings; the transport's.
    pub fn poll_bytes<'a>(
        &mut self,
        cx: &mut Context<'_>,
        lent: &'a mut Scratch,
        have: usize,
    ) -> Poll<Result<&'a [u8], NetError>> {
        each!(self, stream => stream.shared.framing = Framing::Raw(have));
        match each!(self, stream => stream.poll_event(cx, lent)) {
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(lent.input.data())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The first so many of the bytes that [`Stream::poll_bytes`] told are done with. To be called before anything else
    /// happens to the stream.
    pub fn consume(&mut self, count: usize, lent: &mut Scratch) {
        if each!(self, stream => stream.shared.holds_buffers()) {
            lent.input.consume(count);
        }
    }

    /// What was read and not consumed, as long as nothing else has happened to the stream.
    pub(crate) fn unread<'a>(&self, lent: &'a Scratch) -> &'a [u8] {
        if each!(self, stream => stream.shared.holds_buffers()) { lent.input.data() } else { &[] }
    }

    /// The listener's facts, to be shared.
    pub fn listener_config(&self) -> &SharedListenerConfig {
        each!(self, stream => &stream.shared.listener)
    }

    /// The next event: from what is buffered, else from one read after another until there is one. `Pending` when the
    /// peer is silent; unfinished input is in a block then (if nothing is queued). After an error there are no more events, but a last
    /// stream error can still be queued and flushed unless the transport itself failed.
    pub fn poll_event<'a>(
        &mut self,
        cx: &mut Context<'_>,
        lent: &'a mut Scratch,
    ) -> Poll<Result<StreamEvent<'a>, NetError>> {
        let polled = each!(self, stream => stream.poll_event(cx, lent));
        // Control frames of a WebSocket are answered here: nobody above knows of them. Events are in the buffers still.
        if matches!(polled, Poll::Pending | Poll::Ready(Ok(ScanEvent::Eof)))
            && each!(self, stream => stream.shared.is_urgent())
        {
            // An error comes back with the next call.
            if self.poll_flush(cx, lent).is_ready() {
                each!(self, stream => stream.shared.clear_urgent());
            }
        }
        let found = match polled {
            Poll::Ready(Ok(found)) => found,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let lent = &*lent;
        Poll::Ready(Ok(match found {
            ScanEvent::Open(start, end) => StreamEvent::Open(lent.input.slice(start, end)),
            ScanEvent::Element(start, end) => StreamEvent::Element(lent.input.slice(start, end)),
            ScanEvent::Rewritten(true) => StreamEvent::Open(&lent.text),
            ScanEvent::Rewritten(false) => StreamEvent::Element(&lent.text),
            ScanEvent::Close => StreamEvent::Close,
            // Raw bytes are asked for with `poll_bytes`; here they are none of our business.
            ScanEvent::Eof | ScanEvent::Raw => StreamEvent::Eof,
        }))
    }

    /// Moves what is unread or not flushed into blocks of its own. Must be called before the task yields; costs
    /// nothing when nothing is left.
    ///
    /// # Errors
    /// [`NetError::BuffersNotReleased`] when it was forgotten earlier and the bytes are gone.
    pub fn release_buffers(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        each!(self, stream => stream.release_buffers(lent))
    }

    /// Appends to the output. Nothing is written before the flush. When more than the port's `unsent_bytes` would
    /// wait, nothing is taken and the next flush fails: an XML stream with a hole in it is of no use.
    pub fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        each!(self, stream => stream.queue(bytes, lent));
    }

    /// Writes what is queued: one `write(2)` when the kernel takes it all. `Pending` when it did not; the rest is
    /// stashed and the task is woken when there is room.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Poll<Result<(), NetError>> {
        each!(self, stream => stream.poll_flush(cx, lent))
    }

    /// Flushes, says farewell where the transport has one (close_notify), and ends the outgoing direction. The peer's
    /// end still arrives as [`StreamEvent::Eof`].
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Poll<Result<(), NetError>> {
        each!(self, stream => stream.poll_shutdown(cx, lent))
    }

    /// Reads once and throws the bytes away; 0 is the end. For a stream that said its last word, so that the peer can
    /// read it: a socket that is closed with unread input is reset. Unlike [`Stream::poll_event`] it works after an
    /// error. To be called only when nothing is queued; no event may be asked for afterwards.
    ///
    /// # Errors
    /// When the transport failed.
    pub fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        each!(self, stream => stream.poll_discard(cx, lent))
    }

    /// Whether what is queued now could leave soon. False where the peer has to ask for it first, with BOSH: then the
    /// task is woken when it does, and until then the layer above should keep what it has, because what is queued is
    /// lost if the peer never comes.
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

    /// True when the stream owns no buffer: nothing unread, nothing unsent, nothing lent.
    pub fn is_idle(&self) -> bool {
        each!(self, stream => stream.is_idle())
    }

    /// What is known about the transport.
    pub fn info(&self) -> ConnectionInfo<'_> {
        match self {
            Stream::Tcp(stream) => stream.shared.info(Transport::Tcp, false),
            Stream::Tls(stream) => stream.info(),
            Stream::Memory(stream) => stream.shared.info(Transport::Memory, false),
            Stream::Other(stream) => stream.shared.info(Transport::Tcp, false),
            Stream::Bosh(stream) => stream.info(),
        }
    }

    /// Starts TLS on a plaintext stream (RFC 6120 §5.4.2.3), after `<proceed/>` was queued; it leaves before the first
    /// record. `domain` is the `to` of the stream header: it chooses the certificate when the client sends no SNI.
    /// A new document follows.
    ///
    /// # Errors
    /// [`NetError::AlreadyEncrypted`]; [`NetError::PlaintextAfterStartTls`] when bytes came behind `<starttls/>`, after which the
    /// stream must be dropped; [`NetError::TlsStream`] when the configuration cannot be used.
    pub fn start_tls(
        &mut self,
        config: &TlsConfig,
        domain: Option<&str>,
        lent: &mut Scratch,
    ) -> Result<(), NetError> {
        let leftover = match self {
            Stream::Tcp(stream) => stream.shared.has_unread_input(lent),
            Stream::Memory(stream) => stream.shared.has_unread_input(lent),
            Stream::Tls(_) | Stream::Other(_) | Stream::Bosh(_) => return Err(NetError::AlreadyEncrypted),
        };
        if !self.info().transport.has_starttls() {
            return Err(NetError::AlreadyEncrypted);
        }
        if leftover {
            return Err(NetError::PlaintextAfterStartTls);
        }
        self.release_buffers(lent)?;
        let config = config.for_kind(self.info().listener.kind);
        // A stand-in while the parts change hands; nobody holds its other end.
        let stand_in = PlainStream {
            io: Pipe::pair(1).0,
            shared: DocumentStream::empty_like(each!(self, stream => &stream.shared)),
        };
        let (wire, mut shared) = match std::mem::replace(self, Stream::Memory(Box::new(stand_in))) {
            Stream::Tcp(stream) => (AnyByteStream::Tcp(stream.io), stream.shared),
            Stream::Memory(stream) => (AnyByteStream::Memory(stream.io), stream.shared),
            Stream::Tls(_) | Stream::Other(_) | Stream::Bosh(_) => return Err(NetError::AlreadyEncrypted),
        };
        shared.restart();
        *self = Stream::Tls(Box::new(TlsStream::new(config, domain, wire, shared)?));
        Ok(())
    }

    /// What SASL can bind to; empty without TLS and before the handshake is done.
    pub fn channel_binding(&self) -> ChannelBinding<'_> {
        match self {
            Stream::Tls(stream) => stream.session.channel_binding(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => {
                ChannelBinding::default()
            }
        }
    }

    /// The names of a certificate that the peer presented and that was verified.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        match self {
            Stream::Tls(stream) => stream.session.client_certificate(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => None,
        }
    }

    /// Version and cipher suite, once they are known.
    pub fn tls_info(&self) -> Option<TlsInfo<'_>> {
        match self {
            Stream::Tls(stream) => stream.session.tls_info(),
            Stream::Tcp(_) | Stream::Memory(_) | Stream::Other(_) | Stream::Bosh(_) => None,
        }
    }

    /// A new document follows (RFC 6120 §4.3.3), after SASL for example. Bytes that arrived already belong to it.
    pub fn restart(&mut self) {
        each!(self, stream => stream.shared.restart());
    }

    /// From now on the port's limits for known users apply instead of those for strangers.
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
