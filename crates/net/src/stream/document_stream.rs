//! Common part of all streams of one XML document: scanner, stashed bytes, output limits.
//!
//! Transports differ in how bytes arrive and leave, which `buffered` drives. Their meaning is in `framing`.
//!
//! # Pitfalls
//!
//! `holding` identifies the holding of the worker's scratch that this stream owns (see [`crate::scratch`]). Blocks are
//! loaded when the holding begins, and nothing may read them while the scratch is held.

use std::net::SocketAddr;

use xml::{ScanOutcome, Scanner};

use crate::buffer_pool::{BufferBlock, BufferPool};
use crate::connection_info::{CompactSocketAddr, ConnectionInfo, SharedListenerConfig, Transport};
use crate::error::NetError;
use crate::scratch::{self, Scratch};
use crate::stream::framing::Framing;
use crate::websocket::{AcceptedHandshake, WebSocket};

/// Result of the scanner; positions in the input buffer.
#[derive(Clone, Copy)]
pub(crate) enum ScanEvent {
    Open(usize, usize),
    Element(usize, usize),
    /// A rewritten item in the lent text buffer: a start tag if true, else an element.
    Rewritten(bool),
    Close,
    Eof,
    /// More raw bytes than the reader has seen; they stay in place.
    Raw,
}

/// The scanner has finished its document; further bytes are dropped.
const CLOSED: u8 = 1;
/// The peer ended its direction.
const ENDED: u8 = 2;
/// An error was reported; there are no more events.
const FAILED: u8 = 4;
/// Limits of authenticated streams apply.
const AUTHENTICATED: u8 = 8;
/// More was queued than the limit of unsent bytes.
const OVERFLOWED: u8 = 16;
/// The outgoing direction is closed.
const WRITE_CLOSED: u8 = 32;
/// The caller did not release the buffers, and bytes are lost.
const BUFFERS_LOST: u8 = 64;
/// A trusted proxy reports that its client's connection is encrypted.
const PROXIED_TLS: u8 = 128;

/// Common part of a stream.
pub(crate) struct DocumentStream {
    pub(crate) framing: Framing,
    pub(crate) listener: SharedListenerConfig,
    /// Holding of the scratch; 0 if it has no bytes of this stream.
    holding: u64,
    /// Incomplete input.
    unfinished_input: Option<Box<BufferBlock>>,
    /// Bytes that the kernel did not take.
    pub(crate) unsent: Option<Box<BufferBlock>>,
    /// Bytes of this stream in `scratch.output`.
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

    /// An empty stream with the same connection data.
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

    /// Sets the client's address and whether its connection is encrypted, as reported by a trusted proxy.
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

    /// Maximum unfinished input in bytes: an element and its surroundings.
    pub(crate) fn input_limit(&self) -> usize {
        self.limits().element_bytes as usize + scratch::READ_BUFFER_BYTES
    }

    /// XML limits in force.
    pub(crate) fn limits(&self) -> &xml::Limits {
        if self.has_flag(AUTHENTICATED) {
            &self.listener.limits
        } else {
            &self.listener.unauthenticated_limits
        }
    }

    /// Marks the stream as failed and returns the error.
    pub(crate) fn fail(&mut self, error: NetError, scratch: &mut Scratch) -> NetError {
        self.flags |= FAILED;
        // Records stay: TLS must see them again when it encrypts a final stream error.
        scratch.input.clear(&mut scratch.pool);
        error
    }

    /// Acquires the scratch. True if the caller must load stashed data other than the input.
    pub(crate) fn acquire_buffers(&mut self, scratch: &mut Scratch) -> Result<bool, NetError> {
        let fresh = match scratch.acquire(&mut self.holding) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.flags |= FAILED | BUFFERS_LOST;
                return Err(error);
            }
        };
        if fresh && let Some(block) = self.unfinished_input.take() {
            scratch.input.restore_block(block, &mut scratch.pool);
        }
        Ok(fresh)
    }

    /// An error if there will be no more events.
    pub(crate) fn check_input(&self) -> Result<(), NetError> {
        if self.has_flag(FAILED) { Err(NetError::Closed) } else { Ok(()) }
    }

    /// Next item in the input buffer; `None` if more bytes are needed.
    pub(crate) fn scan(&mut self, scratch: &mut Scratch) -> Result<Option<ScanEvent>, NetError> {
        if self.has_flag(CLOSED) {
            scratch.input.clear(&mut scratch.pool);
        }
        if scratch.input.is_empty() {
            return Ok(None);
        }
        let limits = if self.has_flag(AUTHENTICATED) {
            &self.listener.limits
        } else {
            &self.listener.unauthenticated_limits
        };
        let at = scratch.input.position();
        let scanner = match &mut self.framing {
            Framing::Xml(scanner) => scanner,
            Framing::Raw(have) => {
                return Ok((scratch.input.len() > *have).then_some(ScanEvent::Raw));
            }
            Framing::WebSocket(_) => return self.scan_websocket(scratch),
        };
        let (found, count) = match scanner.scan(scratch.input.data(), limits) {
            Err(error) => return Err(self.fail(error.into(), scratch)),
            Ok(ScanOutcome::More { skip }) => (None, skip),
            Ok(ScanOutcome::Open { start, end }) => (Some(ScanEvent::Open(at + start, at + end)), end),
            Ok(ScanOutcome::Element { start, end }) => (Some(ScanEvent::Element(at + start, at + end)), end),
            Ok(ScanOutcome::Close { end }) => {
                self.flags |= CLOSED;
                (Some(ScanEvent::Close), end)
            }
        };
        scratch.input.consume(count);
        Ok(found)
    }

    /// Starts a new document.
    pub(crate) fn restart(&mut self) {
        match &mut self.framing {
            Framing::Xml(scanner) => scanner.restart(),
            Framing::WebSocket(socket) => socket.restart(),
            Framing::Raw(_) => {}
        }
        self.flags &= !CLOSED;
    }

    /// Switches to WebSocket framing. Output queued so far is no XML and leaves unchanged.
    pub(crate) fn set_websocket(&mut self, accepted: AcceptedHandshake) {
        self.framing = Framing::WebSocket(Box::new(WebSocket::new(accepted, self.queued)));
    }

    #[cold]
    #[inline(never)]
    fn scan_websocket(&mut self, scratch: &mut Scratch) -> Result<Option<ScanEvent>, NetError> {
        let limits = if self.has_flag(AUTHENTICATED) {
            self.listener.limits
        } else {
            self.listener.unauthenticated_limits
        };
        let Framing::WebSocket(socket) = &mut self.framing else { return Ok(None) };
        let found = socket.scan(scratch, &limits);
        self.queued = scratch::len_u32(&scratch.output);
        match found {
            Ok(Some(ScanEvent::Eof)) => {
                self.set_ended();
                scratch.input.clear(&mut scratch.pool);
                found
            }
            Err(error) => Err(self.fail(error, scratch)),
            found => found,
        }
    }

    /// Encodes queued output for its framing. The stream must hold the scratch.
    #[inline]
    pub(crate) fn encode(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        if let Framing::WebSocket(socket) = &mut self.framing {
            let done = socket.encode(scratch);
            self.queued = scratch::len_u32(&scratch.output);
            return done;
        }
        Ok(())
    }

    /// Queues the closing frame, if the framing has one. The stream must hold the scratch.
    pub(crate) fn queue_closing_frame(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        if let Framing::WebSocket(socket) = &mut self.framing {
            let done = socket.queue_close(scratch);
            self.queued = scratch::len_u32(&scratch.output);
            return done;
        }
        Ok(())
    }

    /// The urgent output has left.
    pub(crate) fn clear_urgent(&mut self) {
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.clear_urgent();
        }
    }

    /// Whether output is queued that the layers above do not know of.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(&self.framing, Framing::WebSocket(socket) if socket.is_urgent())
    }

    /// Moves unfinished input into a block and releases the scratch. The caller has stashed everything else.
    pub(crate) fn release_buffers(&mut self, scratch: &mut Scratch) {
        if self.is_holder(scratch) {
            self.unfinished_input = scratch.input.take_block(&mut scratch.pool);
        }
        scratch.release(&mut self.holding);
    }

    /// True if the scratch holds bytes of this stream, or should but does not.
    pub(crate) fn holds_buffers(&self) -> bool {
        self.holding != 0
    }

    /// True if the scratch holds bytes of this stream, so that they may be used.
    pub(crate) fn is_holder(&self, scratch: &Scratch) -> bool {
        scratch.is_held_by(self.holding)
    }

    /// True if this stream owns no buffer.
    pub(crate) fn is_idle(&self) -> bool {
        self.holding == 0 && self.unfinished_input.is_none() && self.unsent.is_none()
    }

    /// True if there is unread input, in the scratch or stashed.
    pub(crate) fn has_unread_input(&self, scratch: &Scratch) -> bool {
        self.unfinished_input.is_some() || (self.is_holder(scratch) && !scratch.input.is_empty())
    }

    /// Appends to the output. Above the listener's limit nothing is appended, and the next flush fails.
    pub(crate) fn queue(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        if bytes.is_empty() || self.has_flag(OVERFLOWED | WRITE_CLOSED | BUFFERS_LOST) {
            return;
        }
        if self.unsent() + bytes.len() > self.listener.max_unsent_bytes.bytes() as usize {
            self.flags |= OVERFLOWED;
            return;
        }
        scratch.output.extend_from_slice(bytes);
        // Below `max_unsent_bytes`, which is a u32.
        self.queued = self.queued.saturating_add(scratch::len_u32(bytes));
    }

    pub(crate) fn has_queued(&self) -> bool {
        self.queued != 0
    }

    /// Discards queued output because it was sent, encrypted, or can never be sent.
    pub(crate) fn discard_queued(&mut self, scratch: &mut Scratch) {
        self.queued = 0;
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.sent();
        }
        scratch::clear_and_shrink(&mut scratch.output);
    }

    /// Errors that prevent further output.
    pub(crate) fn check_output(&self) -> Result<(), NetError> {
        if self.has_flag(BUFFERS_LOST) {
            return Err(NetError::BuffersNotReleased);
        }
        if self.has_flag(OVERFLOWED) {
            Err(NetError::OutputLimit(self.listener.max_unsent_bytes.bytes()))
        } else {
            Ok(())
        }
    }

    /// Closes the outgoing direction: nothing more can be queued.
    pub(crate) fn set_write_closed(&mut self) {
        self.flags |= WRITE_CLOSED;
    }

    pub(crate) fn is_write_closed(&self) -> bool {
        self.has_flag(WRITE_CLOSED)
    }

    /// Moves queued output to the unsent bytes. The stream must hold the scratch.
    pub(crate) fn stash_queued(&mut self, scratch: &mut Scratch) {
        if self.has_queued() {
            DocumentStream::stash_unsent(&mut self.unsent, &scratch.output, &mut scratch.pool);
            self.discard_queued(scratch);
        }
    }

    /// Appends to the unsent bytes.
    pub(crate) fn stash_unsent(unsent: &mut Option<Box<BufferBlock>>, bytes: &[u8], pool: &mut BufferPool) {
        match unsent {
            Some(block) => block.append(bytes),
            None => *unsent = pool.store(bytes),
        }
    }
}
