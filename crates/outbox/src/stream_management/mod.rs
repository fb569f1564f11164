//! Stream management state of an outbox: unacknowledged stanzas, handled counts and session takeover.
//!
//! XEP-0198 1.6.3, sections 4 and 5. The syntax is in the crate `streams`. [`StreamManagement`] is absent until
//! it is enabled. Sent stanzas are retained here until the peer has acknowledged them. When they exceed the
//! limit, nothing more is dequeued, and the limits of the queue apply.
//!
//! A resumable outbox has one owner at a time: a connection, or the task of a *detached* session. A new
//! connection requests the takeover ([`Outbox::request_takeover`]), which wakes the owner. The owner finishes
//! the current stanza and hands the outbox over ([`Outbox::hand_over`]), which wakes the claimant. The claimant
//! then becomes the owner ([`Outbox::poll_takeover`]).
//!
//! # Pitfalls
//!
//! Between `hand_over` and the successful `poll_takeover` the outbox has no owner. A claimant that gives up in
//! that interval must detach or end the session: [`Outbox::cancel_takeover`] returns true then.

mod claimant;
mod snapshot;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use stanza::{MessageType, StanzaKind};

use self::claimant::Claimant;
use super::ack_request::{AckEvent, AckRequest};
use super::backlog::{AdmissionContext, SENDER_EXEMPT, UNCOUNTED_QUEUE_BYTES};
use super::ended_streams::ResumptionRecord;
use super::outbox::{Inner, Outbox, QueuedBatch, QueuedStanza, ToRewrite, notify_tracker, wake_task};
use super::signals::Signal;
use crate::shared_stanza::{QueueClass, SharedStanza};

pub use snapshot::{OutboxSnapshot, TransferRefusal, WantedStream};

/// Number of unacknowledged stanzas that triggers a request, even if none of them would alone.
const REQUEST_ACK_STANZAS: usize = 20;
/// The same limit in bytes.
const REQUEST_ACK_BYTES: u32 = 16 * 1024;
/// Seconds until the next request to a peer whose answer acknowledged nothing new. Without this delay, requests
/// and answers would follow each other as fast as the connection permits.
pub const ACK_RETRY_SECONDS: u32 = 10;
/// Capacity of the list of unacknowledged stanzas that is retained while the list is empty.
const RETAINED_CAPACITY: usize = 16;
/// Length of a resumption token in bytes.
pub const TOKEN_BYTES: usize = 16;

/// Stream management settings of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamManagementConfig {
    /// Seconds for which a lost stream may be resumed; 0 disables resumption.
    pub resume_seconds: u32,
    /// Limit in bytes of unacknowledged stanzas; nothing more is sent above it.
    pub unacked_bytes: u32,
    /// Address at which clients should resume: `host` or `host:port`; empty to omit it.
    pub location: String,
}

/// Without it, streams do not offer stream management.
impl base::Provided for StreamManagementConfig {
    const NAME: &'static str = "stream management";
}

/// Terms of one stream, fixed when stream management was enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamManagementTerms {
    /// Seconds for which the stream may be resumed; 0 disables resumption.
    pub resume_seconds: u32,
    /// Limit in bytes of unacknowledged stanzas; nothing more is sent above it.
    pub unacked_bytes: u32,
    /// The stream uses the older of the two namespaces.
    pub sm2: bool,
}

/// Acknowledgement of more stanzas than were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandledCountTooHigh {
    /// Count that the peer reported as handled.
    pub h: u32,
    /// Count of stanzas sent.
    pub sent: u32,
}

/// Why an outbox cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverError {
    /// The token does not belong to this outbox, or the outbox cannot be resumed.
    UnknownToken,
    /// The peer reported more handled stanzas than were sent.
    TooHigh(HandledCountTooHigh),
}

/// A stanza that an outbox still held when it was closed.
#[derive(Clone, Debug)]
pub struct UndeliveredStanza {
    /// The stanza.
    pub item: QueuedStanza,
    /// Second of the node's clock at which it was sent without being acknowledged.
    pub sent_at: Option<u32>,
}

struct UnackedStanza {
    stanza: SharedStanza,
    sent_at: u32,
    to_rewrite: ToRewrite,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Connection,
    Detached,
    None,
}

/// Counters and unacknowledged stanzas of one outbox.
pub(super) struct StreamManagement {
    token: [u8; TOKEN_BYTES],
    terms: StreamManagementTerms,
    /// Stanzas sent, acknowledged by the peer, and handled for the peer; all three wrap.
    sent: u32,
    acked: u32,
    handled: u32,
    /// Bytes in `unacked`.
    unacked_bytes: u32,
    unacked: VecDeque<UnackedStanza>,
    /// Number of stanzas at the end of `unacked` that must be sent again.
    to_resend: u32,
    ack_request: AckRequest,
    /// A stanza that justifies a request was sent since the last one.
    wants_ack: bool,
    owner: Owner,
    /// A stanza was dropped from the queue: delivery is incomplete, so the stream cannot be resumed (XEP-0198,
    /// section 5).
    lossy: bool,
    claimant: Option<Box<Claimant>>,
}

impl StreamManagement {
    pub(super) fn resumption_record(&self) -> Option<ResumptionRecord> {
        let record = ResumptionRecord { token: self.token, handled: self.handled };
        (self.terms.resume_seconds > 0).then_some(record)
    }

    /// Moves the stanzas that may be sent now into `into`, by the rules of [`Outbox::dequeue`]; true if there
    /// are more.
    pub(super) fn take_sendable(
        &mut self,
        queue: &mut QueuedBatch,
        counts: &mut [u32; 3],
        into: &mut QueuedBatch,
        bytes: u32,
        now: u32,
    ) -> bool {
        let mut sum = 0_u32;
        while self.to_resend > 0 {
            let sent = &self.unacked[self.unacked.len() - self.to_resend as usize];
            let item = QueuedStanza::new(sent.stanza.clone(), sent.to_rewrite);
            let size = item.size();
            if sum > 0 && sum + size > bytes {
                return true;
            }
            sum += size;
            into.push(item);
            self.to_resend -= 1;
            self.wants_ack = true;
        }
        let mut count = 0;
        for item in queue.iter() {
            let size = item.size();
            if self.unacked_bytes >= self.terms.unacked_bytes || sum > 0 && sum + size > bytes {
                break;
            }
            let class = item.stanza.class();
            counts[class.index()] -= size;
            sum += size;
            count += 1;
            self.unacked_bytes += size;
            self.sent = self.sent.wrapping_add(1);
            self.wants_ack |= class != QueueClass::Presence;
            self.unacked.push_back(UnackedStanza {
                stanza: item.stanza.clone(),
                sent_at: now,
                to_rewrite: item.to_rewrite,
            });
        }
        into.extend(queue.drain(..count));
        if queue.is_empty() {
            queue.shrink_to_fit();
        }
        !queue.is_empty() && self.unacked_bytes < self.terms.unacked_bytes
    }

    /// Whether an acknowledgement must be requested now; if so, the request is recorded.
    pub(super) fn start_ack_request(&mut self, now: u32) -> bool {
        let ask = self.ack_request.pending_since().is_none()
            && !self.unacked.is_empty()
            && (self.wants_ack
                || self.ack_request == AckRequest::Idle
                    && (self.unacked.len() >= REQUEST_ACK_STANZAS
                        || self.unacked_bytes >= REQUEST_ACK_BYTES));
        if ask {
            self.ack_request = self.ack_request.after(AckEvent::Requested(now));
            self.wants_ack = false;
        }
        ask
    }

    /// Number of newly handled stanzas. A count below the last one is not an error and changes nothing, because
    /// it cannot lose a stanza.
    fn newly_handled(&self, h: u32) -> Result<u32, HandledCountTooHigh> {
        let count = h.wrapping_sub(self.acked);
        match count {
            _ if count <= self.sent.wrapping_sub(self.acked) => Ok(count),
            _ if h < self.acked && self.acked - h < 1 << 31 => Ok(0),
            _ => Err(HandledCountTooHigh { h, sent: self.sent }),
        }
    }

    /// Releases acknowledged stanzas; returns the highest store number among them. Messages that may have a backup are added
    /// to `backups`.
    fn acknowledge(
        &mut self,
        h: u32,
        backups: &mut Vec<SharedStanza>,
    ) -> Result<Option<u64>, HandledCountTooHigh> {
        let count = self.newly_handled(h)?;
        let mut stored = None;
        for _ in 0..count {
            let Some(sent) = self.unacked.pop_front() else { break };
            self.unacked_bytes -= sent.size();
            sent.stanza.mark_delivered();
            stored = sent.stanza.stored().or(stored);
            if sent.stanza.confirm_delivery() {
                backups.push(sent.stanza);
            }
        }
        self.acked = self.acked.wrapping_add(count);
        let nothing_new = count == 0 && !self.unacked.is_empty();
        let event = if nothing_new { AckEvent::NothingNew } else { AckEvent::Acknowledged };
        self.ack_request = self.ack_request.after(event);
        self.to_resend = self.to_resend.min(u32::try_from(self.unacked.len()).unwrap_or(u32::MAX));
        if self.unacked.is_empty() {
            self.wants_ack = false;
            if self.unacked.capacity() > RETAINED_CAPACITY {
                self.unacked = VecDeque::new();
            }
        }
        Ok(stored)
    }

    fn token_matches(&self, token: &[u8]) -> bool {
        self.terms.resume_seconds > 0 && !self.lossy && base::secret::constant_time_eq(&self.token, token)
    }

    /// All unacknowledged stanzas, oldest first.
    pub(super) fn unacked(&self) -> impl Iterator<Item = &SharedStanza> {
        self.unacked.iter().map(|sent| &sent.stanza)
    }

    /// Removes all unacknowledged stanzas and returns them, oldest first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = UndeliveredStanza> + '_ {
        self.unacked_bytes = 0;
        self.to_resend = 0;
        self.unacked.drain(..).map(|sent| UndeliveredStanza {
            item: QueuedStanza::new(sent.stanza, sent.to_rewrite),
            sent_at: Some(sent.sent_at),
        })
    }

    /// Waker of the claimant, for an outbox that can no longer be taken over.
    pub(super) fn take_claimant_waker(&mut self) -> Option<Waker> {
        self.claimant.as_mut()?.waker.take()
    }

    /// Whether a connection owns the outbox and notices a close request.
    pub(super) fn has_connection(&self) -> bool {
        self.owner == Owner::Connection
    }

    /// Records that a stanza was dropped. True if there is no connection, so that the session must end.
    pub(super) fn set_lossy(&mut self) -> bool {
        self.lossy = true;
        !self.has_connection()
    }

    pub(super) fn is_unowned(&self) -> bool {
        self.owner == Owner::None
    }
}

impl UnackedStanza {
    fn size(&self) -> u32 {
        super::outbox::queued_size(&self.stanza)
    }
}

impl Inner {
    /// State of an outbox that can be resumed with this token and this count.
    fn takeover_target(&mut self, token: &[u8], h: u32) -> Result<&mut StreamManagement, TakeoverError> {
        if !self.stays_open() {
            return Err(TakeoverError::UnknownToken);
        }
        let ack = self
            .management
            .as_deref_mut()
            .filter(|ack| ack.token_matches(token))
            .ok_or(TakeoverError::UnknownToken)?;
        ack.newly_handled(h).map_err(TakeoverError::TooHigh)?;
        Ok(ack)
    }
}

impl Outbox {
    /// Enables stream management: stanzas are counted and retained from this point. The caller generates the
    /// takeover token, which is unused if [`StreamManagementTerms::resume_seconds`] is 0. False if it was
    /// enabled before or the outbox is closed.
    pub fn enable_management(&self, terms: StreamManagementTerms, token: [u8; TOKEN_BYTES]) -> bool {
        let mut inner = self.inner.lock();
        if inner.management.is_some() || inner.is_closed() {
            return false;
        }
        inner.management = Some(Box::new(StreamManagement {
            token,
            terms,
            sent: 0,
            acked: 0,
            handled: 0,
            unacked_bytes: 0,
            unacked: VecDeque::new(),
            to_resend: 0,
            ack_request: AckRequest::Idle,
            wants_ack: false,
            owner: Owner::Connection,
            lossy: false,
            claimant: None,
        }));
        true
    }

    fn with_management<T>(&self, f: impl FnOnce(&mut StreamManagement) -> T) -> Option<T> {
        self.inner.lock().management.as_deref_mut().map(f)
    }

    /// The terms, if stream management is enabled.
    pub fn management_terms(&self) -> Option<StreamManagementTerms> {
        self.with_management(|ack| ack.terms)
    }

    /// Counts stanzas of the peer as handled, once they are safe.
    pub fn count_handled(&self, count: u32) {
        let mut inner = self.inner.lock();
        let Inner { management, rare, .. } = &mut *inner;
        let ended = rare.as_deref_mut().and_then(|rare| rare.ended_stream.as_mut());
        let handled = match management.as_deref_mut() {
            Some(ack) => &mut ack.handled,
            None => match ended {
                Some(record) => &mut record.handled,
                None => return,
            },
        };
        *handled = handled.wrapping_add(count);
    }

    /// Handled stanzas of the peer, modulo 2^32.
    pub fn handled_count(&self) -> u32 {
        self.with_management(|ack| ack.handled).unwrap_or_default()
    }

    /// Second of the pending acknowledgement request.
    pub fn ack_requested_at(&self) -> Option<u32> {
        self.with_management(|ack| ack.ack_request.pending_since()).flatten()
    }

    /// Restarts the timeout of the pending request, because the peer could not receive it before.
    pub fn restart_ack_timer(&self, now: u32) {
        self.with_management(|ack| ack.ack_request = ack.ack_request.after(AckEvent::Delivered(now)));
    }

    /// Whether the last answer acknowledged none of the outstanding stanzas; see [`Outbox::retry_ack_request`].
    pub fn is_ack_stalled(&self) -> bool {
        self.with_management(|ack| ack.ack_request == AckRequest::Stalled).unwrap_or_default()
    }

    /// Permits another request to a peer whose last answer acknowledged nothing new.
    pub fn retry_ack_request(&self) {
        self.with_management(|ack| {
            ack.wants_ack |= ack.ack_request == AckRequest::Stalled;
            ack.ack_request = ack.ack_request.after(AckEvent::RetryAllowed);
        });
    }

    /// Bytes of sent and unacknowledged stanzas.
    pub fn unacked_bytes(&self) -> u32 {
        self.with_management(|ack| ack.unacked_bytes).unwrap_or_default()
    }

    /// Whether the session is detached and waits for a resumption.
    pub fn is_detached(&self) -> bool {
        self.with_management(|ack| ack.owner == Owner::Detached).unwrap_or_default()
    }

    /// Records that the peer has handled `h` stanzas.
    ///
    /// # Errors
    /// If `h` exceeds the number of stanzas sent.
    pub fn acknowledge(&self, h: u32) -> Result<(), HandledCountTooHigh> {
        let mut inner = self.inner.lock();
        let Some(ack) = &mut inner.management else { return Ok(()) };
        let mut backups = Vec::new();
        let stored = ack.acknowledge(h, &mut backups)?;
        inner.keep_confirmed_backups(backups);
        notify_tracker(inner, stored);
        Ok(())
    }

    /// Detaches the outbox after its connection was lost. True if it may be resumed until the deadline. False
    /// if presence was dropped from its queue, or if it holds more than the guaranteed [`UNCOUNTED_QUEUE_BYTES`]
    /// and exceeds a budget.
    pub fn detach(&self, now: u32, context: Option<&AdmissionContext<'_>>) -> bool {
        let mut inner = self.inner.lock();
        inner.release_unsent();
        if !inner.stays_open() {
            return false;
        }
        let Some(ack) =
            inner.management.as_deref_mut().filter(|ack| ack.terms.resume_seconds > 0 && !ack.lossy)
        else {
            return false;
        };
        let unacked = ack.unacked_bytes;
        let held = unacked + inner.bytes.iter().sum::<u32>();
        if let Some(context) = context
            && held > 0
            && inner.ensure_backlog_entry(context)
        {
            inner.count_unacked(0);
            let exceeded = inner
                .backlog_entry()
                .and_then(|entry| entry.exceeded_budget(SENDER_EXEMPT, unacked, context.limits));
            if exceeded.is_some() && held > UNCOUNTED_QUEUE_BYTES {
                return false;
            }
            inner.count_unacked(unacked);
        }
        let Some(ack) = inner.management.as_deref_mut() else { return false };
        ack.owner = Owner::Detached;
        ack.ack_request = ack.ack_request.after(AckEvent::ConnectionLost);
        self.signals.discard_sample();
        let deadline = now.saturating_add(ack.terms.resume_seconds);
        inner.waker = None;
        self.set_deadline(deadline);
        true
    }

    /// The token of a stream that may be resumed, and the number of stanzas that the peer has acknowledged: what a request for a
    /// takeover that acknowledges nothing needs.
    pub fn resumption_point(&self) -> Option<([u8; TOKEN_BYTES], u32)> {
        let inner = self.inner.lock();
        let ack = inner.management.as_deref().filter(|ack| !ack.lossy && ack.terms.resume_seconds > 0)?;
        (inner.stays_open() && ack.owner != Owner::None).then_some((ack.token, ack.acked))
    }

    /// Whether a takeover may be requested with this token and this count of handled stanzas. Changes nothing.
    ///
    /// # Errors
    /// If the token is wrong or `h` is impossible.
    pub fn check_takeover(&self, token: &[u8], h: u32) -> Result<(), TakeoverError> {
        self.inner.lock().takeover_target(token, h).map(drop)
    }

    /// Requests the takeover for this connection, whose peer has handled `h` stanzas. A request replaces an
    /// earlier one.
    ///
    /// # Errors
    /// If the token is wrong or `h` is impossible. Nothing has changed then.
    pub fn request_takeover(&self, token: &[u8], h: u32, connection: u64) -> Result<(), TakeoverError> {
        let mut inner = self.inner.lock();
        let ack = inner.takeover_target(token, h)?;
        let earlier = ack.claimant.replace(Box::new(Claimant { id: connection, waker: None }));
        self.signals.raise(Signal::TakeoverRequested);
        wake_task(inner);
        if let Some(waker) = earlier.and_then(|c| c.waker) {
            waker.wake();
        }
        Ok(())
    }

    /// True when the caller owns the outbox; false if it never will.
    pub fn poll_takeover(&self, cx: &mut Context<'_>, connection: u64) -> Poll<bool> {
        let mut inner = self.inner.lock();
        let stays_open = inner.stays_open();
        let Some(ack) = inner.management.as_deref_mut() else { return Poll::Ready(false) };
        let Some(claimant) = ack.claimant.as_deref_mut().filter(|c| c.id == connection) else {
            return Poll::Ready(false);
        };
        // Presence may have been dropped since the request.
        if !stays_open || ack.lossy {
            return Poll::Ready(false);
        }
        if ack.owner != Owner::None {
            claimant.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        ack.owner = Owner::Connection;
        ack.claimant = None;
        inner.count_unacked(0);
        inner.stop_counting();
        Poll::Ready(true)
    }

    /// Withdraws a takeover request. True if the outbox has no owner: the caller must handle the session.
    pub fn cancel_takeover(&self, connection: u64) -> bool {
        let free = self.with_management(|ack| {
            if ack.claimant.as_ref().is_some_and(|c| c.id == connection) {
                ack.claimant = None;
                return ack.owner == Owner::None;
            }
            false
        });
        free.unwrap_or_default()
    }

    /// Whether another connection requests the takeover.
    pub fn takeover_requested(&self) -> bool {
        self.signals.is_raised(Signal::TakeoverRequested)
    }

    /// Hands the outbox over. False if the request was withdrawn: the caller remains the owner.
    pub fn hand_over(&self) -> bool {
        let mut inner = self.inner.lock();
        self.signals.take(Signal::TakeoverRequested);
        let Some(ack) = inner.management.as_deref_mut() else { return false };
        let Some(claimant) = &mut ack.claimant else { return false };
        ack.owner = Owner::None;
        let waker = claimant.waker.take();
        inner.waker = None;
        inner.release_unsent();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Resumes the stream: the peer has handled `h` stanzas; the ones after them are sent again. Returns the
    /// number of the peer's stanzas that were handled.
    ///
    /// # Errors
    /// If the peer's count is impossible.
    pub fn resume(&self, h: u32) -> Result<u32, HandledCountTooHigh> {
        let mut inner = self.inner.lock();
        let Some(ack) = inner.management.as_deref_mut() else {
            return Err(HandledCountTooHigh { h, sent: 0 });
        };
        let mut backups = Vec::new();
        let stored = ack.acknowledge(h, &mut backups)?;
        ack.to_resend = u32::try_from(ack.unacked.len()).unwrap_or(u32::MAX);
        ack.ack_request = ack.ack_request.after(AckEvent::RetryAllowed);
        let handled = ack.handled;
        inner.keep_confirmed_backups(backups);
        notify_tracker(inner, stored);
        Ok(handled)
    }

    /// Token and handled count of an outbox that is or was resumable, for [`crate::EndedStreams`].
    pub fn resumption_record(&self) -> Option<ResumptionRecord> {
        let inner = self.inner.lock();
        match inner.management.as_deref() {
            Some(ack) => ack.resumption_record(),
            None => inner.rare.as_deref()?.ended_stream,
        }
    }

    /// Dequeues what the peer may still read before the close: everything except messages, which are rerouted, but errors,
    /// which are not. It stops before `bytes` are exceeded; at least one stanza is dequeued. True if more can be.
    pub fn take_non_messages(&self, into: &mut QueuedBatch, bytes: u32) -> bool {
        let mut inner = self.inner.lock();
        let Inner { queue, bytes: counts, rare, .. } = &mut *inner;
        let entry = rare.as_deref().and_then(|rare| rare.backlog_entry.as_ref());
        let (mut sum, mut more) = (0_u32, false);
        queue.retain(|item| {
            let class = item.stanza.class();
            if class == QueueClass::Message && item.stanza.kind() != StanzaKind::Message(MessageType::Error) {
                return true;
            }
            let size = item.size();
            more |= sum > 0 && sum.saturating_add(size) > bytes;
            if more {
                return true;
            }
            sum = sum.saturating_add(size);
            counts[class.index()] -= size;
            if let Some(entry) = entry {
                entry.sub(item);
            }
            into.push(item.clone());
            false
        });
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OutboxLimits;
    use crate::{DequeueOutcome, Urgency};

    const TERMS: StreamManagementTerms =
        StreamManagementTerms { resume_seconds: 60, unacked_bytes: 400, sm2: false };

    fn outbox(terms: StreamManagementTerms) -> Outbox {
        let outbox = Outbox::new();
        assert!(
            outbox.enable_management(terms, [7; TOKEN_BYTES])
                && !outbox.enable_management(terms, [8; TOKEN_BYTES])
        );
        outbox
    }

    fn push(outbox: &Outbox, text: &str) {
        outbox.push(
            QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None),
            Urgency::Now,
            &OutboxLimits::default(),
        );
    }

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn take(outbox: &Outbox, now: u32) -> (usize, DequeueOutcome) {
        let mut batch = QueuedBatch::new();
        let taken = outbox.dequeue(&mut cx(), &mut batch, u32::MAX, now);
        (batch.len(), taken)
    }

    #[test]
    fn stream_management_state_fits_128_bytes() {
        assert!(size_of::<StreamManagement>() <= 128, "{}", size_of::<StreamManagement>());
    }

    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# When a party receives an <a/> element, it SHOULD keep a record of the 'h' value returned as the sequence
    //# number of the last handled outbound stanza for the current stream
    #[test]
    fn unacked_stanzas_stop_the_queue_and_one_acknowledgement_is_requested() {
        let outbox = outbox(TERMS);
        for id in 0..6 {
            push(&outbox, &format!("<message id='{id}'/>"));
        }
        let all = outbox.queued_bytes();
        let (count, taken) = take(&outbox, 5);
        assert!(count == 3 && !taken.more && taken.request_ack, "{count} {taken:?}");
        assert_eq!(
            (outbox.unacked_bytes() + outbox.queued_bytes(), outbox.ack_requested_at()),
            (all, Some(5))
        );
        assert_eq!(take(&outbox, 6), (0, DequeueOutcome { closing: false, more: false, request_ack: false }));
        outbox.acknowledge(2).unwrap();
        let (count, taken) = take(&outbox, 7);
        assert!(count == 2 && taken.request_ack);
        outbox.acknowledge(5).unwrap();
        assert_eq!((outbox.unacked_bytes(), outbox.ack_requested_at()), (0, None));
        assert_eq!(take(&outbox, 8).0, 1);
        assert_eq!(outbox.acknowledge(7), Err(HandledCountTooHigh { h: 7, sent: 6 }));
        // An acknowledgement cannot be withdrawn, so the count is unchanged.
        outbox.acknowledge(6).unwrap();
        outbox.acknowledge(5).unwrap();
        assert_eq!(outbox.acknowledge(7), Err(HandledCountTooHigh { h: 7, sent: 6 }));
    }

    #[test]
    fn an_acknowledgement_without_progress_delays_the_next_request() {
        let outbox = outbox(StreamManagementTerms { unacked_bytes: 100_000, ..TERMS });
        push(&outbox, &format!("<message><body>{}</body></message>", "x".repeat(REQUEST_ACK_BYTES as usize)));
        let (count, taken) = take(&outbox, 1);
        assert!(count == 1 && taken.request_ack);
        for _ in 0..1000 {
            outbox.acknowledge(0).unwrap();
            assert!(!take(&outbox, 1).1.request_ack && outbox.is_ack_stalled());
        }
        // A later stanza justifies one request, and no more.
        push(&outbox, "<message/>");
        assert!(take(&outbox, 2).1.request_ack);
        outbox.acknowledge(0).unwrap();
        assert!(!take(&outbox, 2).1.request_ack);
        // The deadline permits one request.
        outbox.retry_ack_request();
        assert!(
            take(&outbox, 12).1.request_ack && !outbox.is_ack_stalled() && !take(&outbox, 12).1.request_ack
        );
        // After progress, the rest is requested.
        outbox.acknowledge(0).unwrap();
        outbox.acknowledge(1).unwrap();
        assert!(!outbox.is_ack_stalled());
        outbox.acknowledge(2).unwrap();
        assert!(!take(&outbox, 13).1.request_ack && !outbox.is_ack_stalled());
        outbox.retry_ack_request();
        assert!(!take(&outbox, 13).1.request_ack);
    }

    #[test]
    fn a_large_amount_of_presence_triggers_an_acknowledgement_request() {
        let outbox = outbox(StreamManagementTerms { unacked_bytes: 100_000, ..TERMS });
        for n in 1..=REQUEST_ACK_STANZAS {
            push(&outbox, "<presence/>");
            assert_eq!(take(&outbox, 1).1.request_ack, n == REQUEST_ACK_STANZAS, "{n}");
        }
        outbox.acknowledge(REQUEST_ACK_STANZAS as u32).unwrap();
        push(&outbox, "<iq type='result' id='1'/>");
        assert!(take(&outbox, 1).1.request_ack);
    }

    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# the value of 'h' SHALL be reset from 2^32-1 back to zero (rather than being incremented to 2^32).
    #[test]
    fn section_4_counters_wrap_at_2_to_the_32() {
        let outbox = outbox(StreamManagementTerms { unacked_bytes: 100_000, ..TERMS });
        outbox.with_management(|ack| {
            (ack.sent, ack.acked, ack.handled) = (u32::MAX - 1, u32::MAX - 1, u32::MAX)
        });
        for _ in 0..3 {
            push(&outbox, "<message/>");
        }
        assert_eq!(take(&outbox, 0).0, 3);
        assert_eq!(outbox.acknowledge(2), Err(HandledCountTooHigh { h: 2, sent: 1 }));
        outbox.acknowledge(0).unwrap();
        assert!(outbox.unacked_bytes() > 0);
        outbox.acknowledge(1).unwrap();
        assert_eq!(outbox.unacked_bytes(), 0);
        outbox.count_handled(1);
        assert_eq!(outbox.handled_count(), 0);
    }

    #[test]
    fn a_takeover_succeeds_once_and_resends_unacked_stanzas() {
        let outbox = outbox(StreamManagementTerms { unacked_bytes: 100_000, ..TERMS });
        for id in 0..3 {
            push(&outbox, &format!("<message id='{id}'/>"));
        }
        take(&outbox, 0);
        assert_eq!(outbox.request_takeover(&[8; TOKEN_BYTES], 1, 1), Err(TakeoverError::UnknownToken));
        assert_eq!(
            outbox.request_takeover(&[7; TOKEN_BYTES], 4, 1),
            Err(TakeoverError::TooHigh(HandledCountTooHigh { h: 4, sent: 3 }))
        );
        assert!(!outbox.takeover_requested());
        outbox.request_takeover(&[7; TOKEN_BYTES], 1, 1).unwrap();
        outbox.request_takeover(&[7; TOKEN_BYTES], 1, 2).unwrap();
        assert!(outbox.takeover_requested());
        assert_eq!(outbox.poll_takeover(&mut cx(), 1), Poll::Ready(false), "replaced");
        assert_eq!(outbox.poll_takeover(&mut cx(), 2), Poll::Pending);
        assert!(outbox.hand_over() && !outbox.takeover_requested());
        assert!(!outbox.cancel_takeover(1), "it was not the last who wanted it");
        assert_eq!(outbox.poll_takeover(&mut cx(), 2), Poll::Ready(true));
        push(&outbox, "<message id='3'/>");
        assert_eq!(outbox.resume(1), Ok(0));
        let mut batch = QueuedBatch::new();
        assert!(outbox.dequeue(&mut cx(), &mut batch, u32::MAX, 0).request_ack);
        let ids: Vec<_> =
            batch.iter().map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned()).collect();
        assert_eq!(ids, ["1", "2", "3"]);
    }

    #[test]
    fn an_outbox_handed_over_to_a_cancelled_takeover_has_no_owner() {
        let outbox = outbox(TERMS);
        outbox.request_takeover(&[7; TOKEN_BYTES], 0, 1).unwrap();
        assert!(outbox.hand_over());
        assert!(outbox.cancel_takeover(1), "the caller must see to it");
        assert!(outbox.detach(5, None) && outbox.is_detached());
        assert_eq!(outbox.deadline(), 65);
        // A takeover request during the close is rejected.
        outbox.request_takeover(&[7; TOKEN_BYTES], 0, 2).unwrap();
        outbox.close(stanza::StreamCondition::Conflict.into());
        assert_eq!(outbox.poll_takeover(&mut cx(), 2), Poll::Ready(false));
        assert!(!outbox.detach(6, None));
        assert_eq!(outbox.request_takeover(&[7; TOKEN_BYTES], 0, 3), Err(TakeoverError::UnknownToken));
    }

    #[test]
    fn a_closed_outbox_returns_all_stanzas_in_order_and_its_count_is_recorded() {
        let outbox = outbox(TERMS);
        for id in 0..6 {
            push(&outbox, &format!("<message id='{id}'/>"));
        }
        take(&outbox, 9);
        outbox.count_handled(1);
        let record = outbox.resumption_record().unwrap();
        assert_eq!(record, ResumptionRecord { token: [7; TOKEN_BYTES], handled: 1 });
        let left = outbox.drain_for_close();
        let sent: Vec<_> = left.iter().map(|l| l.sent_at).collect();
        assert_eq!(sent, [Some(9), Some(9), Some(9), None, None, None]);
        // A stanza that arrives while the outbox drains is returned by the next call.
        push(&outbox, "<message id='6'/>");
        assert_eq!((outbox.drain_for_close().len(), outbox.drain_for_close().len()), (1, 0));
        assert_eq!(take(&outbox, 9).0, 0);
        // A stanza that becomes safe after the end counts.
        outbox.count_handled(1);
        assert_eq!(outbox.resumption_record(), Some(ResumptionRecord { handled: 2, ..record }));
    }
}
