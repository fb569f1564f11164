//! What all peers of one endless XML document share: the scanner, the stashed bytes, the limits of what may wait.
//!
//! TCP, TLS and memory differ only in how bytes arrive and leave. What they mean is in `framing`.
//! Trap: `held` says which holding of the worker's scratch this stream owns (see [`crate::scratch`]); the blocks are
//! loaded when the holding begins and nothing may read them behind the scratch's back.

use crate::buffer_pool::{BufferBlock, BufferPool};
use crate::connection_info::{CompactSocketAddr, ConnectionInfo, SharedListenerConfig, Transport};
use crate::error::NetError;
use crate::scratch::{self, Scratch};
use crate::stream::byte_stream::ByteStream;
use crate::stream::framing::Framing;
use crate::websocket::{AcceptedHandshake, WebSocket};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use xml::{ScanOutcome, Scanner};

/// What the scanner found; positions in the input buffer.
#[derive(Clone, Copy)]
pub(crate) enum ScanEvent {
    Open(usize, usize),
    Element(usize, usize),
    /// The same in the lent text, which was written anew: a start tag, or else an element.
    Rewritten(bool),
    Close,
    Eof,
    /// There are more bytes than the reader has; they stay where they are.
    Raw,
}

/// The scanner is done with its document; further bytes are dropped.
const CLOSED: u8 = 1;
/// The peer said that no byte will follow.
const ENDED: u8 = 2;
/// An error was reported; there are no more events.
const FAILED: u8 = 4;
/// Limits of authenticated streams apply.
const AUTHENTICATED: u8 = 8;
/// More was queued than may wait.
const OVERFLOWED: u8 = 16;
/// We said that nothing will follow.
const WRITE_CLOSED: u8 = 32;
/// The caller did not park, and bytes are gone.
const BUFFERS_LOST: u8 = 64;
/// A trusted proxy says that its client's side is encrypted.
const PROXIED_TLS: u8 = 128;

/// The common part of a stream.
pub(crate) struct DocumentStream {
    pub(crate) framing: Framing,
    pub(crate) listener: SharedListenerConfig,
    /// The holding of the scratch, 0 when nothing of this stream is there.
    holding: u64,
    /// Input that has no end yet.
    unfinished_input: Option<Box<BufferBlock>>,
    /// Bytes for the wire that the kernel did not take.
    pub(crate) unsent: Option<Box<BufferBlock>>,
    /// Bytes of `scratch.output` that are ours.
    queued: u32,
    peer: CompactSocketAddr,
    flags: u8,
}

impl DocumentStream {
    pub(crate) fn new(port: SharedListenerConfig, peer: SocketAddr) -> DocumentStream {
        DocumentStream {
            framing: Framing::Xml(Scanner::new()),
            listener: port,
            holding: 0,
            unfinished_input: None,
            unsent: None,
            queued: 0,
            peer: CompactSocketAddr::new(peer),
            flags: 0,
        }
    }

    /// An empty one with the same facts.
    pub(crate) fn empty_like(other: &DocumentStream) -> DocumentStream {
        let mut shared = DocumentStream::new(other.listener.clone(), other.peer.address());
        shared.flags = other.flags & PROXIED_TLS;
        shared
    }

    fn has_flag(&self, state: u8) -> bool {
        self.flags & state != 0
    }

    pub(crate) fn info(&self, transport: Transport, secure: bool) -> ConnectionInfo<'_> {
        let transport = match self.framing {
            Framing::WebSocket(_) => Transport::WebSocket,
            _ => transport,
        };
        ConnectionInfo {
            peer: self.peer.address(),
            listener: &self.listener,
            transport,
            secure: secure || self.has_flag(PROXIED_TLS),
        }
    }

    /// Bytes that wait for the peer.
    pub(crate) fn unsent(&self) -> usize {
        let waiting = match &self.framing {
            Framing::WebSocket(socket) => socket.waiting(),
            _ => 0,
        };
        self.unsent.as_ref().map_or(0, |block| block.len()) + self.queued as usize + waiting
    }

    pub(crate) fn set_authenticated(&mut self) {
        self.flags |= AUTHENTICATED;
    }

    /// Who is really at the other end, and whether his side is encrypted; a trusted proxy said so.
    pub(crate) fn set_proxied_client(&mut self, peer: SocketAddr, secure: bool) {
        self.peer = CompactSocketAddr::new(peer);
        self.flags = self.flags & !PROXIED_TLS | if secure { PROXIED_TLS } else { 0 };
    }

    pub(crate) fn set_ended(&mut self) {
        self.flags |= ENDED;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.has_flag(ENDED)
    }

    /// Most input that may be unfinished, in bytes: an element and what surrounds it.
    pub(crate) fn input_limit(&self) -> usize {
        self.limits().element_bytes as usize + scratch::READ_BUFFER_BYTES
    }

    /// The limits that apply now.
    pub(crate) fn limits(&self) -> &xml::Limits {
        if self.has_flag(AUTHENTICATED) {
            &self.listener.limits
        } else {
            &self.listener.unauthenticated_limits
        }
    }

    /// Notes that the stream is dead and passes the reason on.
    pub(crate) fn fail(&mut self, error: NetError, lent: &mut Scratch) -> NetError {
        self.flags |= FAILED;
        // Records stay: TLS must see them again when it encrypts a last word.
        lent.input.clear(&mut lent.pool);
        error
    }

    /// Takes hold of the scratch. True when the caller has to load what is stashed besides the input.
    pub(crate) fn acquire_buffers(&mut self, lent: &mut Scratch) -> Result<bool, NetError> {
        let fresh = match lent.acquire(&mut self.holding) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.flags |= FAILED | BUFFERS_LOST;
                return Err(error);
            }
        };
        if fresh && let Some(block) = self.unfinished_input.take() {
            lent.input.restore_block(block, &mut lent.pool);
        }
        Ok(fresh)
    }

    /// An error when there will be no more events.
    pub(crate) fn check_input(&self) -> Result<(), NetError> {
        if self.has_flag(FAILED) { Err(NetError::Closed) } else { Ok(()) }
    }

    /// The next thing in the input buffer, or none when more bytes are needed.
    pub(crate) fn scan(&mut self, lent: &mut Scratch) -> Result<Option<ScanEvent>, NetError> {
        if self.has_flag(CLOSED) {
            lent.input.clear(&mut lent.pool);
        }
        if lent.input.is_empty() {
            return Ok(None);
        }
        let limits = if self.has_flag(AUTHENTICATED) {
            &self.listener.limits
        } else {
            &self.listener.unauthenticated_limits
        };
        let at = lent.input.position();
        let scanner = match &mut self.framing {
            Framing::Xml(scanner) => scanner,
            Framing::Raw(have) => {
                return Ok((lent.input.len() > *have).then_some(ScanEvent::Raw));
            }
            Framing::WebSocket(_) => return self.scan_websocket(lent),
        };
        let (found, count) = match scanner.scan(lent.input.data(), limits) {
            Err(error) => return Err(self.fail(error.into(), lent)),
            Ok(ScanOutcome::More { skip }) => (None, skip),
            Ok(ScanOutcome::Open { start, end }) => (Some(ScanEvent::Open(at + start, at + end)), end),
            Ok(ScanOutcome::Element { start, end }) => (Some(ScanEvent::Element(at + start, at + end)), end),
            Ok(ScanOutcome::Close { end }) => {
                self.flags |= CLOSED;
                (Some(ScanEvent::Close), end)
            }
        };
        lent.input.consume(count);
        Ok(found)
    }

    /// A new document follows.
    pub(crate) fn restart(&mut self) {
        match &mut self.framing {
            Framing::Xml(scanner) => scanner.restart(),
            Framing::WebSocket(socket) => socket.restart(),
            Framing::Raw(_) => {}
        }
        self.flags &= !CLOSED;
    }

    /// What is queued so far is no XML and leaves as it is.
    pub(crate) fn set_websocket(&mut self, accepted: AcceptedHandshake) {
        self.framing = Framing::WebSocket(Box::new(WebSocket::new(accepted, self.queued)));
    }

    #[cold]
    #[inline(never)]
    fn scan_websocket(&mut self, lent: &mut Scratch) -> Result<Option<ScanEvent>, NetError> {
        let limits = if self.has_flag(AUTHENTICATED) {
            self.listener.limits
        } else {
            self.listener.unauthenticated_limits
        };
        let Framing::WebSocket(socket) = &mut self.framing else { return Ok(None) };
        let found = socket.scan(lent, &limits);
        self.queued = scratch::len_u32(&lent.output);
        match found {
            Ok(Some(ScanEvent::Eof)) => {
                self.set_ended();
                lent.input.clear(&mut lent.pool);
                found
            }
            Err(error) => Err(self.fail(error, lent)),
            found => found,
        }
    }

    /// Gives what is queued the form in which it leaves. The stream must hold the scratch.
    #[inline]
    pub(crate) fn encode(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if let Framing::WebSocket(socket) = &mut self.framing {
            let done = socket.encode(lent);
            self.queued = scratch::len_u32(&lent.output);
            return done;
        }
        Ok(())
    }

    /// Queues the framing's own last word, if it has one. The stream must hold the scratch.
    pub(crate) fn queue_closing_frame(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if let Framing::WebSocket(socket) = &mut self.framing {
            let done = socket.queue_close(lent);
            self.queued = scratch::len_u32(&lent.output);
            return done;
        }
        Ok(())
    }

    /// Whether the framing has a last word to say.
    pub(crate) fn has_closing_frame(&self) -> bool {
        matches!(&self.framing, Framing::WebSocket(socket) if !socket.is_ended())
    }

    /// That has left.
    pub(crate) fn clear_urgent(&mut self) {
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.clear_urgent();
        }
    }

    /// Whether something is queued that the layers above do not know of.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(&self.framing, Framing::WebSocket(socket) if socket.is_urgent())
    }

    /// Puts the unfinished input into a block and lets the scratch go. The caller has stashed everything else.
    pub(crate) fn release_buffers(&mut self, lent: &mut Scratch) {
        if lent.is_held_by(self.holding) {
            self.unfinished_input = lent.input.take_block(&mut lent.pool);
        }
        lent.release(&mut self.holding);
    }

    /// True when the scratch holds bytes of this stream, or claims to and does not.
    pub(crate) fn holds_buffers(&self) -> bool {
        self.holding != 0
    }

    /// True when no buffer belongs to this stream.
    pub(crate) fn is_idle(&self) -> bool {
        self.holding == 0 && self.unfinished_input.is_none() && self.unsent.is_none()
    }

    /// True when unread input exists, in the scratch or stashed.
    pub(crate) fn has_unread_input(&self, lent: &Scratch) -> bool {
        self.unfinished_input.is_some() || (lent.is_held_by(self.holding) && !lent.input.is_empty())
    }

    /// Appends to the output. Beyond the port's limit nothing is taken, and the next flush says so.
    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if bytes.is_empty() || self.has_flag(OVERFLOWED | WRITE_CLOSED | BUFFERS_LOST) {
            return;
        }
        if self.unsent() + bytes.len() > self.listener.max_unsent_bytes as usize {
            self.flags |= OVERFLOWED;
            return;
        }
        lent.output.extend_from_slice(bytes);
        // Below `unsent_bytes`, which is a u32.
        self.queued = self.queued.saturating_add(scratch::len_u32(bytes));
    }

    pub(crate) fn has_queued(&self) -> bool {
        self.queued != 0
    }

    /// Forgets what was queued, because it was sent, sealed, or never can be.
    pub(crate) fn discard_queued(&mut self, lent: &mut Scratch) {
        self.queued = 0;
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.sent();
        }
        scratch::clear_and_shrink(&mut lent.output);
    }

    /// Errors that end the way out.
    pub(crate) fn check_output(&self) -> Result<(), NetError> {
        if self.has_flag(BUFFERS_LOST) {
            return Err(NetError::BuffersNotReleased);
        }
        if self.has_flag(OVERFLOWED) {
            Err(NetError::OutputLimit(self.listener.max_unsent_bytes))
        } else {
            Ok(())
        }
    }

    /// From now on nothing can be queued.
    pub(crate) fn set_write_closed(&mut self) {
        self.flags |= WRITE_CLOSED;
    }

    pub(crate) fn is_write_closed(&self) -> bool {
        self.has_flag(WRITE_CLOSED)
    }

    /// Moves what is queued to what waits. The stream must hold the scratch.
    pub(crate) fn stash_queued(&mut self, lent: &mut Scratch) {
        if self.has_queued() {
            DocumentStream::stash_unsent(&mut self.unsent, &lent.output, &mut lent.pool);
            self.discard_queued(lent);
        }
    }

    /// Forgets what was queued, because it is out, and lets the scratch go if nothing else is there.
    pub(crate) fn finish_queued(&mut self, lent: &mut Scratch) {
        self.discard_queued(lent);
        if lent.input.is_empty() {
            self.release_buffers(lent);
        }
    }

    /// Adds to what waits for the wire.
    pub(crate) fn stash_unsent(unsent: &mut Option<Box<BufferBlock>>, bytes: &[u8], pool: &mut BufferPool) {
        match unsent {
            Some(block) => block.append(bytes),
            None => *unsent = pool.store(bytes),
        }
    }
}

/// Writes what waits and then `fresh`; what the wire does not take is stashed. `fresh` is empty afterwards.
pub(crate) fn poll_drain(
    wire: &mut impl ByteStream,
    cx: &mut Context<'_>,
    unsent: &mut Option<Box<BufferBlock>>,
    fresh: &mut Vec<u8>,
    pool: &mut BufferPool,
) -> Poll<Result<(), NetError>> {
    if unsent.is_none() {
        let mut sent = 0;
        let done = loop {
            let Some(rest) = fresh.get(sent..).filter(|rest| !rest.is_empty()) else {
                break Poll::Ready(Ok(()));
            };
            match wire.poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(NetError::Closed)),
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    *unsent = pool.store(rest);
                    break Poll::Pending;
                }
            }
        };
        scratch::clear_and_shrink(fresh);
        return done;
    }
    DocumentStream::stash_unsent(unsent, fresh, pool);
    scratch::clear_and_shrink(fresh);
    while let Some(block) = unsent {
        match ready!(wire.poll_write(cx, block.data()))? {
            0 => return Poll::Ready(Err(NetError::Closed)),
            count => block.consume(count),
        }
        if block.len() == 0
            && let Some(block) = unsent.take()
        {
            pool.recycle(block);
        }
    }
    Poll::Ready(Ok(()))
}
