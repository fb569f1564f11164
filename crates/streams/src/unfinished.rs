//! Stanzas of one client that were read and are not safe yet: one that is being handled, those that were read meanwhile,
//! and those whose receipts are outstanding. XEP-0198 1.6.3, section 4.
//!
//! A connection has one only while it needs it, and hands it over to the detached session that replaces it.
//!
//! # Pitfalls
//!
//! While a stanza is being handled, the stream is still read, so that `<a/>`, `<r/>` and answers that release it arrive;
//! other stanzas are held. A client without stream management treats any answer of the server as proof that earlier stanzas
//! were handled, so its requests are held until those are safe. If the connection breaks, held stanzas are forgotten: they
//! were not counted, so a client with stream management sends them again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::spawn::BoxFuture;
use stanza::StreamError;
use throng_core::session::outstanding::{MAX_OUTSTANDING_STANZAS, OutstandingStanzas, StanzaPosition};
use throng_core::{Node, Receipts, Session};

use crate::c2s::PhaseOutcome;

/// Bytes of held stanzas; above it, the stream is not read.
const MAX_HELD_BYTES: usize = 64 * 1024;
/// Stanzas that are not safe, or follow one that is not; above it, the stream is not read.
const MAX_UNFINISHED: usize = 4 * MAX_OUTSTANDING_STANZAS;

/// A stanza that must wait for its turn.
struct HeldStanza {
    position: StanzaPosition,
    bytes: Box<[u8]>,
    turn: StanzaTurn,
}

/// When a held stanza is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StanzaTurn {
    /// When those before it were handled.
    AfterHandling,
    /// When those before it are safe.
    AfterReceipts,
}

/// The stanzas that must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldRule {
    /// None.
    None,
    /// Requests that must wait for receipts.
    UntilReceipts,
    /// All that must not overtake others.
    All,
}

/// Stanzas of one client that are outstanding, with those that are held until their turn.
#[derive(Default)]
pub(crate) struct UnfinishedStanzas {
    outstanding: OutstandingStanzas,
    /// The stanza that is being handled.
    handling: Option<(StanzaPosition, BoxFuture<'static, Receipts>)>,
    held: VecDeque<HeldStanza>,
    held_bytes: usize,
    /// How the input ended.
    end: Option<PhaseOutcome>,
    /// Second until which a stream that is being closed waits for receipts. It stays if a stanza fails
    /// meanwhile: the stream then ends because of that, and no later.
    closing_deadline: Option<u32>,
    /// The client knows a count that is too low: it is sent each count up to this position.
    announce_through: Option<StanzaPosition>,
    /// The stream was not read because too much of it is unfinished.
    input_paused: bool,
}

/// Capacity for stanzas that is kept with an unused [`UnfinishedStanzas`].
const RETAINED_STANZAS: usize = 16;
/// Unused ones that a thread keeps.
const MAX_SPARE: usize = 64;

thread_local! {
    /// A client with stream management needs one for each of its messages, until the recipient has it: no allocation then.
    #[allow(clippy::vec_box, reason = "the boxes are what is reused")]
    static SPARE: RefCell<Vec<Box<UnfinishedStanzas>>> = const { RefCell::new(Vec::new()) };
}

impl UnfinishedStanzas {
    /// An empty one, which may have belonged to another connection.
    pub(crate) fn recycled() -> Box<UnfinishedStanzas> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Keeps an empty one for another connection.
    pub(crate) fn recycle(mut self: Box<Self>) {
        debug_assert!(self.is_empty() && self.handling.is_none() && self.held.is_empty());
        (self.closing_deadline, self.announce_through, self.input_paused) = (None, None, false);
        self.outstanding.shrink_to(RETAINED_STANZAS);
        self.held.shrink_to(RETAINED_STANZAS);
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < MAX_SPARE {
                spare.push(self);
            }
        });
    }

    /// A stanza was read; `counted` if stream management is enabled.
    pub(crate) fn begin(&mut self, counted: bool) -> StanzaPosition {
        self.outstanding.begin(counted)
    }

    /// A stanza was handled, and is safe when its receipts are fulfilled.
    pub(crate) fn complete(&mut self, position: StanzaPosition, receipts: Receipts) {
        if receipts.await_writes() {
            self.announce_through = Some(self.outstanding.end());
        }
        self.outstanding.complete(position, receipts);
    }

    /// A stanza is handled when the future completes; later ones are held until then.
    pub(crate) fn wait(&mut self, position: StanzaPosition, later: BoxFuture<'static, Receipts>) {
        self.handling = Some((position, later));
    }

    /// Holds a stanza until its turn.
    pub(crate) fn hold(&mut self, bytes: &[u8], turn: StanzaTurn, counted: bool) {
        let position = self.begin(counted);
        self.held_bytes += bytes.len();
        self.held.push_back(HeldStanza { position, bytes: bytes.into(), turn });
    }

    /// The client was sent a count that does not include all of its stanzas.
    pub(crate) fn announce_next_count(&mut self) {
        self.announce_through = Some(self.outstanding.end());
    }

    /// Completes what can be completed; returns the number of stanzas that are newly safe and count.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, node: &Arc<Node>) -> u32 {
        if let Some((position, later)) = &mut self.handling
            && let Poll::Ready(receipts) = later.as_mut().poll(cx)
        {
            let position = *position;
            self.handling = None;
            self.complete(position, receipts);
        }
        self.outstanding.poll(cx, &mut |failed| node.return_failed(failed))
    }

    /// Whether the client must be sent the count that has just risen. Must be called once for each.
    pub(crate) fn must_announce(&mut self) -> bool {
        let Some(last) = self.announce_through else { return false };
        if self.outstanding.has_reached(last) {
            self.announce_through = None;
        }
        true
    }

    /// Number of stanzas that are not safe, or follow one that is not.
    pub(crate) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Nothing is left: the connection need not keep this.
    pub(crate) fn is_empty(&self) -> bool {
        self.outstanding.is_empty() && self.end.is_none()
    }

    /// The stanzas that must be held if they are read now.
    pub(crate) fn hold_rule(&self) -> HoldRule {
        if !self.held.is_empty() || !self.may_handle() {
            HoldRule::All
        } else if self.outstanding.is_empty() {
            HoldRule::None
        } else {
            HoldRule::UntilReceipts
        }
    }

    /// Whether the stream may be read. If too much of it is unfinished, this is remembered for
    /// [`UnfinishedStanzas::resumes_input`].
    pub(crate) fn accepts_input(&mut self) -> bool {
        self.input_paused |= self.end.is_none() && !self.has_room();
        self.end.is_none() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.held_bytes < MAX_HELD_BYTES && self.outstanding.len() < MAX_UNFINISHED
    }

    /// Whether the stream is not read, so that the client's silence means nothing.
    pub(crate) fn is_input_paused(&self) -> bool {
        self.input_paused
    }

    /// Whether reading continues after a pause. True once for each pause.
    pub(crate) fn resumes_input(&mut self) -> bool {
        let resumes = self.input_paused && self.has_room();
        self.input_paused &= !resumes;
        resumes
    }

    fn may_handle(&self) -> bool {
        self.handling.is_none() && !self.outstanding.is_full()
    }

    /// The next held stanza, if it may be handled.
    pub(crate) fn next_held(&mut self) -> Option<(StanzaPosition, Box<[u8]>)> {
        if !self.may_handle() {
            return None;
        }
        let first = self.held.front()?;
        if first.turn == StanzaTurn::AfterReceipts && !self.outstanding.is_first(first.position) {
            return None;
        }
        let HeldStanza { position, bytes, .. } = self.held.pop_front()?;
        self.held_bytes -= bytes.len();
        Some((position, bytes))
    }

    /// The input has ended, and nothing more is read. The stanzas before the end are handled first. If the stream is closed
    /// cleanly, it waits for receipts until this second, or until that of an earlier call, if it comes first.
    pub(crate) fn end_input(&mut self, end: PhaseOutcome, deadline: u32) {
        if self.end.is_none() {
            if matches!(end, PhaseOutcome::EndStream(_)) {
                self.limit_closing(deadline);
            }
            self.end = Some(end);
        }
    }

    fn limit_closing(&mut self, deadline: u32) {
        self.closing_deadline = Some(self.closing_deadline.map_or(deadline, |limit| limit.min(deadline)));
    }

    /// Whether the stream is being closed cleanly, or was before a stanza failed.
    pub(crate) fn has_been_closing(&self) -> bool {
        self.closing_deadline.is_some()
    }

    /// The server closes the stream. Stanzas that were not handled are not counted, so they are forgotten; the count of the
    /// others must be right, because the client sends the rest again. It waits for receipts until this second. False if the
    /// stream is being closed already.
    pub(crate) fn close(&mut self, error: Option<StreamError>, deadline: u32) -> bool {
        self.limit_closing(deadline);
        if self.is_closing() {
            return false;
        }
        self.forget_held();
        self.end = Some(PhaseOutcome::EndStream(error));
        true
    }

    /// Whether the stream is being closed cleanly, by the client or the server: its session must not be resumed.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.end, Some(PhaseOutcome::EndStream(_)))
    }

    /// Second at which a stream that is being closed ends in any case.
    pub(crate) fn closing_deadline(&self) -> Option<u32> {
        self.closing_deadline.filter(|_| self.is_closing())
    }

    /// How a stream that is being closed ends if it cannot wait any longer.
    pub(crate) fn give_up_closing(&mut self) -> Option<PhaseOutcome> {
        if self.is_closing() { self.end.take() } else { None }
    }

    /// Whether the end of the input may take effect. A stream that is closed cleanly waits for receipts: its client gets
    /// their errors and a final count.
    pub(crate) fn may_end(&self) -> bool {
        self.end.is_some()
            && self.handling.is_none()
            && self.held.is_empty()
            && (self.outstanding.is_empty() || !self.is_closing())
    }

    /// How the input ended, once that may take effect.
    pub(crate) fn take_end(&mut self) -> Option<PhaseOutcome> {
        if self.may_end() { self.end.take() } else { None }
    }

    /// Whether all stanzas that were handled are safe, so that another connection may continue with the next one.
    pub(crate) fn is_settled(&self) -> bool {
        self.handling.is_none()
            && match self.held.front() {
                Some(held) => self.outstanding.is_first(held.position),
                None => self.outstanding.is_empty(),
            }
    }

    /// Forgets the stanzas that were not handled.
    pub(crate) fn forget_held(&mut self) {
        if let Some(first) = self.held.front() {
            self.outstanding.truncate(first.position);
        }
        self.held.clear();
        (self.held_bytes, self.end) = (0, None);
    }

    /// Forgets the stanza at this position and those after it.
    pub(crate) fn forget_from(&mut self, position: StanzaPosition) {
        self.outstanding.truncate(position);
        self.held.clear();
        (self.held_bytes, self.end) = (0, None);
    }

    /// Forgets the stanza whose handler panicked and those after it.
    pub(crate) fn forget_failed(&mut self) {
        if let Some((position, _)) = self.handling.take() {
            self.forget_from(position);
        }
    }

    /// Completes the stanzas that were handled or are being handled, when the session ends: they were accepted on a working
    /// stream. They count for a client that resumes too late (section 5).
    pub(crate) fn complete_in_background(mut self: Box<Self>, node: &Arc<Node>, session: &Arc<Session>) {
        self.forget_held();
        if self.is_empty() {
            return;
        }
        let (task_node, session) = (node.clone(), session.clone());
        let rest = std::future::poll_fn(move |cx| {
            let handled = self.poll(cx, &task_node);
            task_node.count_handled(&session, handled);
            if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        node.spawner.spawn("last stanzas", Box::pin(rest));
    }
}
