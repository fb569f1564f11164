//! What all peers of one endless XML document share: the scanner, the stashed bytes, the limits of what may wait.
//!
//! TCP, TLS and memory differ only in how bytes arrive and leave. What they mean is in `framing`.
//! Trap: `held` says which holding of the worker's scratch this stream owns (see [`crate::scratch`]); the blocks are
//! loaded when the holding begins and nothing may read them behind the scratch's back.

use crate::error::NetError;
use crate::facts::{Facts, Peer, SharedPort, Transport};
use crate::pool::{Block, Pool};
use crate::scratch::{self, Scratch};
use crate::stream::framing::Framing;
use crate::stream::wire::Wire;
use crate::websocket::{Accepted, WebSocket};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use xml::{Scan, Scanner};

/// What the scanner found; positions in the input buffer.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    Open(usize, usize),
    Element(usize, usize),
    /// The same in the lent text, which was written anew: a start tag, or else an element.
    Text(bool),
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
const SHUT: u8 = 32;
/// The caller did not park, and bytes are gone.
const LOST: u8 = 64;
/// A trusted proxy says that its client's side is encrypted.
const SECURED: u8 = 128;

/// The common part of a stream.
pub(crate) struct Shared {
    pub(crate) framing: Framing,
    pub(crate) port: SharedPort,
    /// The holding of the scratch, 0 when nothing of this stream is there.
    held: u64,
    /// Input that has no end yet.
    leftover: Option<Box<Block>>,
    /// Bytes for the wire that the kernel did not take.
    pub(crate) unsent: Option<Box<Block>>,
    /// Bytes of `scratch.output` that are ours.
    queued: u32,
    peer: Peer,
    state: u8,
}

impl Shared {
    pub(crate) fn new(port: SharedPort, peer: SocketAddr) -> Shared {
        Shared {
            framing: Framing::Xml(Scanner::new()),
            port,
            held: 0,
            leftover: None,
            unsent: None,
            queued: 0,
            peer: Peer::new(peer),
            state: 0,
        }
    }

    /// An empty one with the same facts.
    pub(crate) fn like(other: &Shared) -> Shared {
        let mut shared = Shared::new(other.port.clone(), other.peer.address());
        shared.state = other.state & SECURED;
        shared
    }

    fn is(&self, state: u8) -> bool {
        self.state & state != 0
    }

    pub(crate) fn facts(&self, transport: Transport, secure: bool) -> Facts<'_> {
        let transport = match self.framing {
            Framing::WebSocket(_) => Transport::WebSocket,
            _ => transport,
        };
        Facts { peer: self.peer.address(), port: &self.port, transport, secure: secure || self.is(SECURED) }
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
        self.state |= AUTHENTICATED;
    }

    /// Who is really at the other end, and whether his side is encrypted; a trusted proxy said so.
    pub(crate) fn behind_proxy(&mut self, peer: SocketAddr, secure: bool) {
        self.peer = Peer::new(peer);
        self.state = self.state & !SECURED | if secure { SECURED } else { 0 };
    }

    pub(crate) fn ended(&mut self) {
        self.state |= ENDED;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is(ENDED)
    }

    /// Most input that may be unfinished, in bytes: an element and what surrounds it.
    pub(crate) fn input_limit(&self) -> usize {
        self.limits().element_bytes as usize + scratch::READ_BYTES
    }

    /// The limits that apply now.
    pub(crate) fn limits(&self) -> &xml::Limits {
        if self.is(AUTHENTICATED) { &self.port.limits } else { &self.port.early_limits }
    }

    /// Notes that the stream is dead and passes the reason on.
    pub(crate) fn fail(&mut self, error: NetError, lent: &mut Scratch) -> NetError {
        self.state |= FAILED;
        // Records stay: TLS must see them again when it encrypts a last word.
        lent.input.clear(&mut lent.pool);
        error
    }

    /// Takes hold of the scratch. True when the caller has to load what is stashed besides the input.
    pub(crate) fn hold(&mut self, lent: &mut Scratch) -> Result<bool, NetError> {
        let fresh = match lent.hold(&mut self.held) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.state |= FAILED | LOST;
                return Err(error);
            }
        };
        if fresh && let Some(block) = self.leftover.take() {
            lent.input.load(block, &mut lent.pool);
        }
        Ok(fresh)
    }

    /// An error when there will be no more events.
    pub(crate) fn check_input(&self) -> Result<(), NetError> {
        if self.is(FAILED) { Err(NetError::Closed) } else { Ok(()) }
    }

    /// The next thing in the input buffer, or none when more bytes are needed.
    pub(crate) fn scan(&mut self, lent: &mut Scratch) -> Result<Option<Found>, NetError> {
        if self.is(CLOSED) {
            lent.input.clear(&mut lent.pool);
        }
        if lent.input.is_empty() {
            return Ok(None);
        }
        let limits = if self.is(AUTHENTICATED) { &self.port.limits } else { &self.port.early_limits };
        let at = lent.input.position();
        let scanner = match &mut self.framing {
            Framing::Xml(scanner) => scanner,
            Framing::Raw(have) => {
                return Ok((lent.input.len() > *have).then_some(Found::Raw));
            }
            Framing::WebSocket(_) => return self.scan_websocket(lent),
        };
        let (found, count) = match scanner.scan(lent.input.data(), limits) {
            Err(error) => return Err(self.fail(error.into(), lent)),
            Ok(Scan::More { skip }) => (None, skip),
            Ok(Scan::Open { start, end }) => (Some(Found::Open(at + start, at + end)), end),
            Ok(Scan::Element { start, end }) => (Some(Found::Element(at + start, at + end)), end),
            Ok(Scan::Close { end }) => {
                self.state |= CLOSED;
                (Some(Found::Close), end)
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
        self.state &= !CLOSED;
    }

    /// What is queued so far is no XML and leaves as it is.
    pub(crate) fn set_websocket(&mut self, accepted: Accepted) {
        self.framing = Framing::WebSocket(Box::new(WebSocket::new(accepted, self.queued)));
    }

    #[cold]
    #[inline(never)]
    fn scan_websocket(&mut self, lent: &mut Scratch) -> Result<Option<Found>, NetError> {
        let limits = if self.is(AUTHENTICATED) { self.port.limits } else { self.port.early_limits };
        let Framing::WebSocket(socket) = &mut self.framing else { return Ok(None) };
        let found = socket.scan(lent, &limits);
        self.queued = scratch::length(&lent.output);
        match found {
            Ok(Some(Found::Eof)) => {
                self.ended();
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
            self.queued = scratch::length(&lent.output);
            return done;
        }
        Ok(())
    }

    /// Queues the framing's own last word, if it has one. The stream must hold the scratch.
    pub(crate) fn farewell(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if let Framing::WebSocket(socket) = &mut self.framing {
            let done = socket.farewell(lent);
            self.queued = scratch::length(&lent.output);
            return done;
        }
        Ok(())
    }

    /// Whether the framing has a last word to say.
    pub(crate) fn has_farewell(&self) -> bool {
        matches!(&self.framing, Framing::WebSocket(socket) if !socket.is_ended())
    }

    /// That has left.
    pub(crate) fn calm(&mut self) {
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.calm();
        }
    }

    /// Whether something is queued that the layers above do not know of.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(&self.framing, Framing::WebSocket(socket) if socket.is_urgent())
    }

    /// Puts the unfinished input into a block and lets the scratch go. The caller has stashed everything else.
    pub(crate) fn release(&mut self, lent: &mut Scratch) {
        if lent.held_by(self.held) {
            self.leftover = lent.input.stash(&mut lent.pool);
        }
        lent.release(&mut self.held);
    }

    /// True when the scratch holds bytes of this stream, or claims to and does not.
    pub(crate) fn holds(&self) -> bool {
        self.held != 0
    }

    /// True when no buffer belongs to this stream.
    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.leftover.is_none() && self.unsent.is_none()
    }

    /// True when unread input exists, in the scratch or stashed.
    pub(crate) fn has_leftover(&self, lent: &Scratch) -> bool {
        self.leftover.is_some() || (lent.held_by(self.held) && !lent.input.is_empty())
    }

    /// Appends to the output. Beyond the port's limit nothing is taken, and the next flush says so.
    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if bytes.is_empty() || self.is(OVERFLOWED | SHUT | LOST) {
            return;
        }
        if self.unsent() + bytes.len() > self.port.unsent_bytes as usize {
            self.state |= OVERFLOWED;
            return;
        }
        lent.output.extend_from_slice(bytes);
        // Below `unsent_bytes`, which is a u32.
        self.queued = self.queued.saturating_add(scratch::length(bytes));
    }

    pub(crate) fn has_queued(&self) -> bool {
        self.queued != 0
    }

    /// Forgets what was queued, because it was sent, sealed, or never can be.
    pub(crate) fn unqueue(&mut self, lent: &mut Scratch) {
        self.queued = 0;
        if let Framing::WebSocket(socket) = &mut self.framing {
            socket.sent();
        }
        scratch::empty(&mut lent.output);
    }

    /// Errors that end the way out.
    pub(crate) fn check_output(&self) -> Result<(), NetError> {
        if self.is(LOST) {
            return Err(NetError::Unparked);
        }
        if self.is(OVERFLOWED) { Err(NetError::Unsent(self.port.unsent_bytes)) } else { Ok(()) }
    }

    /// From now on nothing can be queued.
    pub(crate) fn shut(&mut self) {
        self.state |= SHUT;
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.is(SHUT)
    }

    /// Moves what is queued to what waits. The stream must hold the scratch.
    pub(crate) fn stash_queued(&mut self, lent: &mut Scratch) {
        if self.has_queued() {
            Shared::stash_unsent(&mut self.unsent, &lent.output, &mut lent.pool);
            self.unqueue(lent);
        }
    }

    /// Forgets what was queued, because it is out, and lets the scratch go if nothing else is there.
    pub(crate) fn queue_is_out(&mut self, lent: &mut Scratch) {
        self.unqueue(lent);
        if lent.input.is_empty() {
            self.release(lent);
        }
    }

    /// Adds to what waits for the wire.
    pub(crate) fn stash_unsent(unsent: &mut Option<Box<Block>>, bytes: &[u8], pool: &mut Pool) {
        match unsent {
            Some(block) => block.append(bytes),
            None => *unsent = pool.keep(bytes),
        }
    }
}

/// Writes what waits and then `fresh`; what the wire does not take is stashed. `fresh` is empty afterwards.
pub(crate) fn poll_drain(
    wire: &mut impl Wire,
    cx: &mut Context<'_>,
    unsent: &mut Option<Box<Block>>,
    fresh: &mut Vec<u8>,
    pool: &mut Pool,
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
                    *unsent = pool.keep(rest);
                    break Poll::Pending;
                }
            }
        };
        scratch::empty(fresh);
        return done;
    }
    Shared::stash_unsent(unsent, fresh, pool);
    scratch::empty(fresh);
    while let Some(block) = unsent {
        match ready!(wire.poll_write(cx, block.data()))? {
            0 => return Poll::Ready(Err(NetError::Closed)),
            count => block.consume(count),
        }
        if block.len() == 0
            && let Some(block) = unsent.take()
        {
            pool.give(block);
        }
    }
    Poll::Ready(Ok(()))
}
