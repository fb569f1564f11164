//! Admission to a queue with little room: which stanzas are accepted, and which are dropped to make room.
//!
//! Others may fill the queue of a session only up to a limit, so that nobody can disconnect another user:
//!
//! - One sender (a bare address) has a share of each class, `limits.queue_sender_percent`, and a budget over
//!   all waiting queues ([`super::backlog`]). Beyond it, messages are stored or bounced, requests are bounced,
//!   and the sender's oldest presence makes room for its newest.
//! - Unsolicited responses (`core/src/session/pending_requests.rs`) are dropped before anything else of their class. A
//!   requested response still counts for its sender, because the sender chooses its size and time.
//! - The last quarter of the control share is reserved for requested responses and the server's stanzas.
//!   Responses of others make room for the server. Only stanzas of the server and of the account itself can
//!   close the stream, and only at the limit of the queue, because others can fill a budget.
//! - Senders to which the account is not subscribed have one common share of presence, a quarter of the queue.
//!   Their presence is dropped before any other and displaces none. The client did not ask for it, so a drop
//!   loses nothing that a resumed stream must deliver; otherwise anybody could end a detached session.
//! - When the presence share is full, that presence is dropped first, then presence of the pushing sender, then
//!   of the senders with most, then the oldest. A large presence does not displace many small ones. Drops of the
//!   senders with most only limit these senders. When the oldest is dropped, the client loses information: its
//!   stream can no longer be resumed (XEP-0198, section 5), and it is closed if it has no connection. This takes
//!   more subscribed contacts with little presence each than a sixteenth of the queue has room for.
//! - A session with a connection and an empty queue accepts any stanza, which no budget counts.
//!
//! All of this is the slow path after [`Inner::needs_admission_check`].
//!
//! # Pitfalls
//!
//! [`QueuedStanza`] holds what is needed to sum up a sender's share beside the pointer to the stanza: reading
//! every stanza with the outbox locked would let a sender block the recipient.

use hashbrown::HashMap;
use stanza::{IqType, StanzaKind, StreamCondition, StreamError};

use super::backlog::{
    AdmissionContext, BacklogEntry, ExceededLimit, SENDER_EXEMPT, SENDER_UNCOUNTED, UNCOUNTED_QUEUE_BYTES,
};
use super::outbox::{Inner, QueuedStanza};
use crate::limits::OutboxLimits;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// Presence of one sender counts as little up to this size, or up to a sixteenth of the queue.
const SMALL_PRESENCE_BYTES: u32 = 4096;

/// The class of a stanza, and whether it is a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Control,
    /// A result or error that the session did not request, unless the server sent it.
    UnsolicitedResponse,
    /// A result or error that the session requested.
    RequestedResponse,
    Message,
    Presence,
    /// Presence of a sender to which the account is not subscribed.
    UnsubscribedPresence,
}

impl Rank {
    pub(super) fn of(stanza: &SharedStanza) -> Rank {
        match stanza.class() {
            QueueClass::Message => Rank::Message,
            QueueClass::Presence => Rank::Presence,
            QueueClass::Control if stanza.is_requested() => Rank::RequestedResponse,
            QueueClass::Control if is_iq_response(stanza.kind()) => Rank::UnsolicitedResponse,
            QueueClass::Control => Rank::Control,
        }
    }

    pub(super) fn class(self) -> QueueClass {
        match self {
            Rank::Control | Rank::UnsolicitedResponse | Rank::RequestedResponse => QueueClass::Control,
            Rank::Message => QueueClass::Message,
            Rank::Presence | Rank::UnsubscribedPresence => QueueClass::Presence,
        }
    }
}

/// Whether the stanza is an IQ response.
#[inline]
pub fn is_iq_response(kind: StanzaKind) -> bool {
    matches!(kind, StanzaKind::Iq(IqType::Result | IqType::Error))
}

/// Result of the admission check.
pub(super) enum QueueAdmission {
    /// Admitted; this many stanzas of its class were dropped.
    Admitted(u32),
    /// Like `Admitted`, but presence of senders with little in the queue was dropped. A resumed stream must
    /// deliver everything (XEP-0198, section 5), so this one cannot be resumed.
    Lossy(u32),
    /// Not admitted. `lossy`: presence was dropped before, as for `Lossy`.
    Rejected { limit: ExceededLimit, lossy: bool },
    /// A stanza that must not be lost has no room: the stream must be closed.
    CloseStream,
}

fn rejected(limit: ExceededLimit) -> QueueAdmission {
    QueueAdmission::Rejected { limit, lossy: false }
}

/// Stream error for a detached session after [`QueueAdmission::Lossy`].
pub(super) fn lost_presence() -> StreamError {
    StreamError::new(StreamCondition::ResourceConstraint)
        .text("presence was dropped while the session had no connection")
}

/// Limit of a class in one queue, in bytes.
fn queue_bytes(limits: &OutboxLimits, class: QueueClass) -> u32 {
    match class {
        QueueClass::Control => limits.queue_control_bytes,
        QueueClass::Message => limits.queue_message_bytes,
        QueueClass::Presence => limits.queue_presence_bytes,
    }
}

/// Common share of all senders of unsubscribed presence, in bytes.
fn unsubscribed_share_bytes(limits: &OutboxLimits) -> u32 {
    limits.queue_presence_bytes / 4
}

/// Share of one sender in a queue, in bytes.
fn sender_share_bytes(limits: &OutboxLimits, class: QueueClass) -> u32 {
    let share = u64::from(queue_bytes(limits, class)) * u64::from(limits.queue_sender_percent) / 100;
    u32::try_from(share).unwrap_or(u32::MAX)
}

impl Inner {
    /// Whether a stanza of this size needs [`Inner::admit`] before it is queued.
    pub(super) fn needs_admission_check(&self, class: QueueClass, size: u32, limits: &OutboxLimits) -> bool {
        let bytes = self.bytes[class.index()];
        bytes > 0 && bytes + size > sender_share_bytes(limits, class)
            || self.bytes.iter().sum::<u32>() + size > UNCOUNTED_QUEUE_BYTES
            || self.backlog_entry().is_some()
            || self.is_detached()
    }

    /// Whether the session has no connection.
    fn is_detached(&self) -> bool {
        self.management.as_deref().is_some_and(|ack| !ack.has_connection())
    }

    /// Decides on an item and makes room for it. An admitted item is added to the backlog.
    #[cold]
    pub(super) fn admit(
        &mut self,
        item: &mut QueuedStanza,
        context: &AdmissionContext<'_>,
    ) -> QueueAdmission {
        let detached = self.is_detached();
        if self.queue.is_empty() && !detached {
            // The connection dequeues it immediately. A sender that waits for an empty queue must not be
            // rejected when it is empty.
            self.stop_counting();
            return QueueAdmission::Admitted(0);
        }
        // A full budget does not apply to a connected client that is only slightly behind.
        let (size, class, limits) = (item.size(), item.rank.class(), context.limits);
        let budgets_apply = detached || self.bytes.iter().sum::<u32>() + size > UNCOUNTED_QUEUE_BYTES;
        let sender = self.count_queue(context, item);
        let own = sender == SENDER_EXEMPT;
        let foreign = !own && !context.bypass_budgets;
        let (mut dropped, mut lossy) = (0, false);

        // Before anything is dropped: room in the common share can be made for any smaller item.
        let common_share = unsubscribed_share_bytes(limits);
        let in_common_share = foreign && item.rank == Rank::UnsubscribedPresence;
        if in_common_share && size > common_share {
            return rejected(ExceededLimit::SenderShare);
        }

        let share = sender_share_bytes(limits, class);
        if foreign && self.exceeds_limit(class, size, share) {
            let held = self.sum_bytes(|i| i.rank.class() == class && i.sender == sender);
            if held + size > share {
                let Some(count) = self.make_room_in_share(held + size - share, item, sender, share) else {
                    return rejected(ExceededLimit::SenderShare);
                };
                dropped += count;
            }
        }

        if in_common_share {
            let held = self.sum_bytes(|i| i.rank == Rank::UnsubscribedPresence);
            if held + size > common_share {
                let Some(count) = self.make_room_for_unsubscribed(held + size - common_share, sender) else {
                    return rejected(ExceededLimit::SenderShare);
                };
                dropped += count;
            }
        }

        let limit = queue_bytes(limits, class);
        let reserved = foreign && class == QueueClass::Control && item.rank != Rank::RequestedResponse;
        let limit = if reserved { limit - limit / 4 } else { limit };
        if self.exceeds_limit(class, size, limit) {
            let more = self.bytes[class.index()] + size - limit;
            match item.rank {
                Rank::Message => return rejected(ExceededLimit::Queue),
                Rank::UnsubscribedPresence if foreign => {
                    match self.make_room_for_unsubscribed(more, sender) {
                        Some(count) => dropped += count,
                        None => return rejected(ExceededLimit::Queue),
                    }
                }
                Rank::Presence | Rank::UnsubscribedPresence => {
                    match self.make_room_for_presence(more, size, sender, foreign, limits) {
                        Some((count, of_small)) => (dropped, lossy) = (dropped + count, of_small),
                        None => return rejected(ExceededLimit::Queue),
                    }
                }
                Rank::UnsolicitedResponse if foreign => {
                    return rejected(ExceededLimit::Queue);
                }
                Rank::Control | Rank::UnsolicitedResponse | Rank::RequestedResponse => {
                    dropped += self.drop_responses(more, Rank::UnsolicitedResponse);
                    if own && self.exceeds_limit(class, size, limit) {
                        let more = self.bytes[class.index()] + size - limit;
                        dropped += self.drop_responses(more, Rank::RequestedResponse);
                    }
                    if self.exceeds_limit(class, size, limit) {
                        return if own {
                            QueueAdmission::CloseStream
                        } else {
                            rejected(ExceededLimit::Queue)
                        };
                    }
                }
            }
        }

        let exceeded = self.backlog_entry().and_then(|entry| entry.exceeded_budget(sender, size, limits));
        if let Some(limit) = exceeded.filter(|_| budgets_apply && !context.bypass_budgets) {
            match self.make_room_in_budget(limit, item, sender, detached, context) {
                Some((count, of_small)) => (dropped, lossy) = (dropped + count, lossy | of_small),
                None => return QueueAdmission::Rejected { limit, lossy },
            }
        }
        if let (Some(entry), Some((_, owner))) = (self.backlog_entry(), context.backlog) {
            entry.add(item, owner);
        }
        if lossy { QueueAdmission::Lossy(dropped) } else { QueueAdmission::Admitted(dropped) }
    }

    /// Adds the queue to the backlog, which numbers its senders, and returns the number of the item's sender.
    fn count_queue(&mut self, context: &AdmissionContext<'_>, item: &QueuedStanza) -> u32 {
        self.ensure_backlog_entry(context);
        match (self.backlog_entry(), context.backlog) {
            (Some(entry), Some((_, owner))) => entry.sender_of(item, owner),
            _ => SENDER_EXEMPT,
        }
    }

    /// Makes room among unsubscribed presence, of the pushing sender first, then the oldest. None if that is not
    /// enough; nothing was removed then.
    fn make_room_for_unsubscribed(&mut self, more: u32, sender: u32) -> Option<u32> {
        let unsubscribed = |i: &QueuedStanza| i.rank == Rank::UnsubscribedPresence;
        if self.sum_bytes(unsubscribed) < more {
            return None;
        }
        let (count, freed) = self.drop_oldest(more, |i| unsubscribed(i) && i.sender == sender);
        let rest = more.saturating_sub(freed);
        Some(count + self.drop_oldest(rest, unsubscribed).0)
    }

    /// Makes room for an item within its sender's share, from the sender's own queued items. None if that is
    /// not enough; nothing was removed then.
    fn make_room_in_share(&mut self, more: u32, item: &QueuedStanza, sender: u32, share: u32) -> Option<u32> {
        let droppable = |rank: Rank| match item.rank {
            Rank::Presence | Rank::UnsubscribedPresence => rank.class() == QueueClass::Presence,
            Rank::RequestedResponse => rank == Rank::UnsolicitedResponse,
            Rank::Control | Rank::UnsolicitedResponse | Rank::Message => false,
        };
        let own = |i: &QueuedStanza| droppable(i.rank) && i.sender == sender;
        (item.size() <= share && self.sum_bytes(own) >= more).then(|| self.drop_oldest(more, own).0)
    }

    /// Makes room for a presence: drops unsubscribed presence first, then presence of its sender, then of the
    /// senders with most, then the oldest. Returns the number of dropped items, and whether some were of senders with
    /// little queued.
    /// None if the sender itself would be one of those with most; nothing was removed then.
    fn make_room_for_presence(
        &mut self,
        more: u32,
        size: u32,
        sender: u32,
        foreign: bool,
        limits: &OutboxLimits,
    ) -> Option<(u32, bool)> {
        let small_share = (queue_bytes(limits, QueueClass::Presence) / 16).max(SMALL_PRESENCE_BYTES);
        let unsubscribed = self.sum_bytes(|i| i.rank == Rank::UnsubscribedPresence);
        let mut held = HashMap::<u32, u32>::new();
        for item in self.queue.iter().filter(|item| item.rank == Rank::Presence) {
            *held.entry(item.sender).or_default() += item.weight();
        }
        let total = unsubscribed + held.values().sum::<u32>();
        let own = if foreign { held.remove(&sender).unwrap_or_default() } else { 0 };
        held.retain(|other, held| *other > SENDER_EXEMPT && *held > small_share.max(size));
        let enough = unsubscribed + own + held.values().sum::<u32>() >= more;
        if total < more || foreign && size > small_share && !enough {
            return None;
        }
        let (mut count, mut freed) = (0, 0);
        let mut remove = |inner: &mut Inner, which: &dyn Fn(&QueuedStanza) -> bool| {
            if freed < more {
                let (removed, bytes) = inner.drop_oldest(more - freed, which);
                (count, freed) = (count + removed, freed + bytes);
            }
        };
        remove(self, &|i| i.rank == Rank::UnsubscribedPresence);
        if own > 0 {
            remove(self, &|i| i.rank == Rank::Presence && i.sender == sender);
        }
        let mut most: Vec<(u32, u32)> = held.into_iter().map(|(other, held)| (held, other)).collect();
        most.sort_unstable();
        for (_, other) in most.into_iter().rev() {
            remove(self, &|i| i.rank == Rank::Presence && i.sender == other);
        }
        let before = self.queue.len();
        remove(self, &|i| i.rank == Rank::Presence);
        Some((count, self.queue.len() < before))
    }

    /// Makes room for an item in a budget. None if it must be rejected.
    fn make_room_in_budget(
        &mut self,
        full: ExceededLimit,
        item: &QueuedStanza,
        sender: u32,
        detached: bool,
        context: &AdmissionContext<'_>,
    ) -> Option<(u32, bool)> {
        let size = item.size();
        let counted = |i: &QueuedStanza| full != ExceededLimit::SenderBudget || i.sender == sender;
        match item.rank {
            Rank::UnsubscribedPresence if sender != SENDER_EXEMPT => {
                let counted = |i: &QueuedStanza| i.rank == Rank::UnsubscribedPresence && counted(i);
                (self.sum_bytes(counted) >= size).then(|| (self.drop_oldest(size, counted).0, false))
            }
            // Others may have filled the budget; below the guaranteed amount this must not end a resumable session.
            Rank::Presence | Rank::UnsubscribedPresence
                if full != ExceededLimit::SenderBudget
                    && detached
                    && self.bytes[QueueClass::Presence.index()] + size <= UNCOUNTED_QUEUE_BYTES =>
            {
                Some((0, false))
            }
            Rank::Presence | Rank::UnsubscribedPresence if full != ExceededLimit::SenderBudget => {
                self.make_room_for_presence(size, size, sender, sender != SENDER_EXEMPT, context.limits)
            }
            Rank::Presence => {
                let own = |i: &QueuedStanza| i.rank.class() == QueueClass::Presence && i.sender == sender;
                (self.sum_bytes(own) >= size).then(|| (self.drop_oldest(size, own).0, false))
            }
            Rank::Control | Rank::UnsolicitedResponse | Rank::RequestedResponse
                if sender == SENDER_EXEMPT =>
            {
                let dropped = self.drop_responses(size, Rank::UnsolicitedResponse);
                // A connected client has its own limit for what it requests. For a detached one, budgets that
                // others may have filled apply only above the guaranteed amount.
                let exceeded = self
                    .backlog_entry()
                    .and_then(|entry| entry.exceeded_budget(sender, size, context.limits));
                if exceeded.is_some() && detached {
                    let own =
                        |i: &QueuedStanza| i.rank.class() == QueueClass::Control && i.sender == SENDER_EXEMPT;
                    if self.sum_bytes(own) + size > UNCOUNTED_QUEUE_BYTES {
                        return None;
                    }
                }
                Some((dropped, false))
            }
            Rank::RequestedResponse => {
                let unsolicited = |i: &QueuedStanza| {
                    i.rank == Rank::UnsolicitedResponse && i.sender > SENDER_EXEMPT && counted(i)
                };
                (self.sum_bytes(unsolicited) >= size).then(|| (self.drop_oldest(size, unsolicited).0, false))
            }
            Rank::Control | Rank::UnsolicitedResponse | Rank::Message | Rank::UnsubscribedPresence => None,
        }
    }

    /// A single stanza always fits, whatever its size: that was checked on arrival.
    fn exceeds_limit(&self, class: QueueClass, size: u32, limit: u32) -> bool {
        let bytes = self.bytes[class.index()];
        bytes > 0 && bytes + size > limit
    }

    /// Bytes of the matching items, rounded up for each item.
    fn sum_bytes(&self, which: impl Fn(&QueuedStanza) -> bool) -> u32 {
        self.queue.iter().filter(|item| which(item)).map(QueuedStanza::weight).sum()
    }

    /// Drops the oldest matching items until this many bytes are free; returns their number and bytes.
    fn drop_oldest(&mut self, bytes: u32, which: impl Fn(&QueuedStanza) -> bool) -> (u32, u32) {
        let (mut count, mut freed) = (0, 0);
        let Inner { queue, bytes: counts, rare, .. } = self;
        let entry = rare.as_deref().and_then(|rare| rare.backlog_entry.as_ref());
        queue.retain(|item| {
            if freed >= bytes || !which(item) {
                return true;
            }
            let size = item.size();
            counts[item.rank.class().index()] -= size;
            if let Some(entry) = entry {
                entry.sub(item);
            }
            (count, freed) = (count + 1, freed + size);
            false
        });
        (count, freed)
    }

    /// Like [`Inner::drop_oldest`], for responses of others of this rank: unsolicited or requested.
    fn drop_responses(&mut self, bytes: u32, rank: Rank) -> u32 {
        self.drop_oldest(bytes, |item| item.rank == rank && item.sender > SENDER_EXEMPT).0
    }

    pub(super) fn backlog_entry(&self) -> Option<&BacklogEntry> {
        self.rare.as_deref()?.backlog_entry.as_ref()
    }

    /// Adds the queue to the backlog, if it is not there. False if there is no backlog.
    pub(super) fn ensure_backlog_entry(&mut self, context: &AdmissionContext<'_>) -> bool {
        if self.backlog_entry().is_some() {
            return true;
        }
        let Some((backlog, owner)) = context.backlog else { return false };
        let entry = BacklogEntry::new(backlog, owner);
        self.queue.iter_mut().for_each(|item| entry.add(item, owner));
        self.rare().backlog_entry = Some(entry);
        true
    }

    /// Sets the unacknowledged bytes of a detached session.
    pub(super) fn count_unacked(&mut self, bytes: u32) {
        if let Some(entry) = self.rare.as_deref_mut().and_then(|rare| rare.backlog_entry.as_mut()) {
            entry.set_unacked(bytes);
        }
    }

    /// Subtracts items that left the queue.
    pub(super) fn count_removed(&self, items: &[QueuedStanza]) {
        let Some(entry) = self.backlog_entry() else { return };
        // Stanzas that are sent again were not in the queue, so the backlog does not contain them.
        items.iter().filter(|item| item.sender != SENDER_UNCOUNTED).for_each(|item| entry.sub(item));
    }

    /// Stops counting a queue that its connection has emptied.
    pub(super) fn stop_counting(&mut self) {
        if self.queue.is_empty() && self.backlog_entry().is_some() && !self.is_detached() {
            self.release_backlog_entry();
        }
    }

    /// Releases everything that is counted for this outbox.
    pub(super) fn release_backlog_entry(&mut self) {
        let Some(rare) = self.rare.as_deref_mut() else { return };
        let Some(entry) = rare.backlog_entry.take() else { return };
        for item in &mut self.queue {
            entry.sub(item);
            item.sender = SENDER_UNCOUNTED;
        }
        self.drop_empty_rare();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.release_backlog_entry();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backlog, Outbox, PushOutcome, QueuedBatch, StreamManagementTerms, ToRewrite, Urgency};
    use jid::Jid;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    struct Queue {
        outbox: Outbox,
        owner: Jid,
        backlog: Arc<Backlog>,
        limits: OutboxLimits,
    }

    impl Queue {
        fn new(owner: &str, backlog: &Arc<Backlog>, limits: OutboxLimits) -> Queue {
            Queue {
                outbox: Outbox::new(),
                owner: Jid::parse(owner).unwrap(),
                backlog: backlog.clone(),
                limits,
            }
        }
        fn context(&self) -> AdmissionContext<'_> {
            AdmissionContext {
                limits: &self.limits,
                backlog: Some((&self.backlog, self.owner.as_ref())),
                bypass_budgets: false,
            }
        }
        fn push(&self, text: &str) -> PushOutcome {
            let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
            self.outbox.push_accounted(
                QueuedStanza::new(stanza, ToRewrite::None),
                Urgency::Now,
                &self.context(),
            )
        }
        fn push_requested(&self, text: &str) -> PushOutcome {
            let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
            stanza.mark_requested();
            self.outbox.push_accounted(
                QueuedStanza::new(stanza, ToRewrite::None),
                Urgency::Now,
                &self.context(),
            )
        }
        fn detach(&self) -> bool {
            let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1 << 20, sm2: false };
            self.outbox.enable_management(terms, [1; 16]);
            self.outbox.detach(0, Some(&self.context()))
        }
        fn ids(&self) -> String {
            let mut out = QueuedBatch::new();
            self.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut out);
            let ids = out.iter().map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned());
            ids.collect::<Vec<_>>().join(" ")
        }
    }

    /// Room for nine stanzas of up to 222 bytes in each class.
    fn small() -> OutboxLimits {
        OutboxLimits {
            queue_message_bytes: 2000,
            queue_presence_bytes: 2000,
            queue_control_bytes: 2000,
            ..OutboxLimits::default()
        }
    }

    fn queue() -> Queue {
        Queue::new("juliet@example.com", &Arc::default(), small())
    }

    fn result(from: &str, id: u32) -> String {
        format!("<iq type='result' from='{from}' id='{id}'/>")
    }

    #[test]
    fn unsolicited_responses_are_dropped_before_requested_ones() {
        let queue = queue();
        for (sender, pushed) in [("a@x/1", 5), ("b@x/1", 3), ("c@x/1", 0)] {
            let taken = (0..100).filter(|id| queue.push(&result(sender, *id)) == PushOutcome::Queued).count();
            assert_eq!(taken, pushed, "half of it each, and the last quarter for nobody: {sender}");
        }
        // Responses and pushes of the server and a requested response are all admitted.
        let mut dropped = 0;
        for id in 0..11 {
            let pushed = match id % 3 {
                0 => queue.push(&result("example.com", id)),
                1 => queue.push(&result("juliet@example.com", id)),
                _ => queue.push_requested(&result("a@x/1", id)),
            };
            match pushed {
                PushOutcome::Queued => {}
                PushOutcome::DroppedOlder(count) => dropped += count,
                other => panic!("{id}: {other:?}"),
            }
        }
        assert_eq!((dropped, queue.outbox.close_reason()), (8, None));
        assert_eq!(queue.ids(), "0 1 2 3 4 5 6 7 8 9 10");
    }

    #[test]
    fn only_traffic_that_the_session_caused_closes_it() {
        let queue = queue();
        let request = |from: &str| format!("<iq type='get' from='{from}' id='1'><x xmlns='u:x'/></iq>");
        for n in 0..1000 {
            let full = queue.push(&request(&format!("s{n}@x/1")));
            assert!(
                matches!(full, PushOutcome::Queued | PushOutcome::LimitReached(ExceededLimit::Queue)),
                "{full:?}"
            );
            let subscribe = format!("<presence type='subscribe' from='s{n}@x'/>");
            assert!(matches!(
                queue.push(&subscribe),
                PushOutcome::Queued | PushOutcome::LimitReached(ExceededLimit::Queue)
            ));
        }
        assert_eq!(queue.push(&result("example.com", 1)), PushOutcome::Queued);
        while queue.push(&result("example.com", 1)) == PushOutcome::Queued {}
        assert_eq!(queue.outbox.close_reason().unwrap().condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn one_sender_has_a_share_of_messages_and_presence() {
        let queue = queue();
        let message = |from: &str| queue.push(&format!("<message from='{from}' id='m'/>"));
        let taken = (0..100).filter(|n| message(&format!("a@x/{n}")) == PushOutcome::Queued).count();
        assert_eq!((taken, message("a@x/1")), (6, PushOutcome::LimitReached(ExceededLimit::SenderShare)));
        assert_eq!(message("b@x/1"), PushOutcome::Queued);
        // The account itself and its server may fill the whole queue.
        while message("juliet@example.com/other") == PushOutcome::Queued {}
        assert_eq!(message("example.com"), PushOutcome::LimitReached(ExceededLimit::Queue));
        queue.ids();
        // Of presence, only the sender's own oldest is dropped.
        let presence = |from: &str, id: u32| queue.push(&format!("<presence from='{from}' id='{id}'/>"));
        assert_eq!(presence("b@x/1", 0), PushOutcome::Queued);
        for id in 10..30 {
            let expected = if id < 15 { PushOutcome::Queued } else { PushOutcome::DroppedOlder(1) };
            assert_eq!(presence(&format!("a@x/{id}"), id), expected, "{id}");
        }
        assert_eq!(queue.ids(), "0 25 26 27 28 29");
    }

    #[test]
    fn the_backlog_of_detached_sessions_is_counted_by_sender_account_and_node() {
        let limits = OutboxLimits {
            backlog_bytes: 6_000,
            backlog_bytes_per_account: 3_000,
            backlog_bytes_per_sender: 1_500,
            ..OutboxLimits::default()
        };
        let backlog = Arc::new(Backlog::default());
        let queues: Vec<Queue> = ["a@x", "a@x", "b@x", "c@x", "d@x", "e@x"]
            .map(|owner| Queue::new(owner, &backlog, limits))
            .into();
        assert!(queues.iter().all(Queue::detach));
        assert_eq!(backlog.bytes(), 0, "a session with nothing costs nothing");
        let fill = |queue: &Queue, sender: &str| {
            let mut full = None;
            while full.is_none() {
                full = match queue.push(&format!("<message from='{sender}' id='m'/>")) {
                    PushOutcome::LimitReached(full) => Some(full),
                    _ => None,
                };
            }
            full
        };
        assert_eq!(fill(&queues[0], "s@x/1"), Some(ExceededLimit::SenderBudget));
        assert!((1_300..=1_500).contains(&backlog.bytes()));
        assert_eq!(fill(&queues[2], "s@x/2"), Some(ExceededLimit::SenderBudget), "in all queues together");
        assert_eq!(fill(&queues[1], "t@x/1"), Some(ExceededLimit::SenderBudget));
        // The account's own stanzas count for the account.
        assert_eq!(fill(&queues[1], "a@x/3"), Some(ExceededLimit::AccountBudget));
        for queue in &queues[3..5] {
            fill(queue, "example.org");
        }
        for sender in ["u@x", "v@x", "w@x"] {
            fill(&queues[5], sender);
        }
        assert_eq!(fill(&queues[5], "y@x"), Some(ExceededLimit::NodeBudget));
        assert!((5_500..=6_000).contains(&backlog.bytes()), "{}", backlog.bytes());
        // Presence is admitted up to the guaranteed amount, because a session that loses it ends; responses are not.
        assert_eq!(queues[5].push("<presence from='y@x/1' id='1'/>"), PushOutcome::Queued);
        assert!(matches!(
            queues[5].push(&result("y@x/1", 1)),
            PushOutcome::LimitReached(ExceededLimit::NodeBudget)
        ));
        // The server's stanzas cannot be rerouted, and others filled the budget: they pass up to the guaranteed amount.
        assert_eq!(queues[1].push(&result("a@x", 1)), PushOutcome::Queued);
        // After a resumption or the end of a session, nothing remains in the backlog.
        queues[0].outbox.request_takeover(&[1; 16], 0, 1).unwrap();
        assert!(queues[0].outbox.hand_over());
        let _ = queues[0].outbox.poll_takeover(&mut Context::from_waker(Waker::noop()), 1);
        queues[0].ids();
        for queue in &queues[1..4] {
            queue.outbox.close_and_drain();
        }
        drop(queues);
        assert_eq!(backlog.bytes(), 0);
    }

    #[test]
    fn unacked_stanzas_count_while_the_session_is_detached() {
        let limits = OutboxLimits { backlog_bytes_per_account: 100_000, ..OutboxLimits::default() };
        let backlog = Arc::new(Backlog::default());
        let [one, other] = [(); 2].map(|()| Queue::new("a@x", &backlog, limits));
        let text = format!("<message from='b@x/1' id='m'><body>{}</body></message>", "x".repeat(20_000));
        for queue in [&one, &other] {
            queue.outbox.enable_management(
                StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1 << 20, sm2: false },
                [1; 16],
            );
            for _ in 0..4 {
                assert_eq!(queue.push(&text), PushOutcome::Queued);
                queue.ids();
            }
        }
        assert_eq!(backlog.bytes(), 0, "their connections bound them");
        let waiting = one.outbox.unacked_bytes();
        assert!(one.detach());
        assert_eq!(backlog.bytes(), u64::from(waiting));
        assert!(!other.detach(), "no room for a second one: it ends, and its messages go on");
        assert_eq!(backlog.bytes(), u64::from(waiting));
        assert_eq!((one.outbox.close_and_drain().len(), other.outbox.close_and_drain().len()), (4, 4));
        assert_eq!(backlog.bytes(), 0);
    }

    #[test]
    fn a_queue_that_grows_counts_until_it_is_read() {
        let backlog = Arc::new(Backlog::default());
        let queue = Queue::new("a@x", &backlog, OutboxLimits::default());
        let text = format!("<message from='b@x/1' id='m'><body>{}</body></message>", "x".repeat(1000));
        let mut sizes = std::collections::BTreeSet::new();
        for _ in 0..100 {
            assert_eq!(queue.push(&text), PushOutcome::Queued);
            sizes.insert(backlog.bytes() > 0);
            assert!(backlog.bytes() == 0 || backlog.bytes() == u64::from(queue.outbox.queued_bytes()));
        }
        assert_eq!(sizes.len(), 2);
        let mut cx = Context::from_waker(Waker::noop());
        let mut part = QueuedBatch::new();
        queue.outbox.dequeue(&mut cx, &mut part, 50_000, 0);
        assert_eq!(backlog.bytes(), u64::from(queue.outbox.queued_bytes()));
        queue.ids();
        assert_eq!(backlog.bytes(), 0);
        assert!(queue.outbox.inner.lock().rare.is_none(), "and leaves nothing behind");
    }

    /// A stanza of about this size.
    fn large(start: &str, name: &str, size: usize) -> String {
        format!("<{start}><x xmlns='u:x'>{}</x></{name}>", "x".repeat(size))
    }

    #[test]
    fn an_empty_connected_queue_accepts_any_stanza_outside_all_budgets() {
        let limits = OutboxLimits {
            backlog_bytes: 1_000,
            backlog_bytes_per_account: 1_000,
            backlog_bytes_per_sender: 1_000,
            ..OutboxLimits::default()
        };
        let backlog = Arc::new(Backlog::default());
        let queue = Queue::new("juliet@example.com", &backlog, limits);
        let message = large("message from='romeo@example.com/1' id='m'", "message", 100_000);
        for _ in 0..3 {
            assert_eq!(queue.push(&message), PushOutcome::Queued);
            assert_eq!(backlog.bytes(), 0);
            assert_eq!(queue.push(&message), PushOutcome::LimitReached(ExceededLimit::SenderBudget));
            assert_eq!(queue.ids(), "m");
            assert_eq!(backlog.bytes(), 0);
            assert!(queue.outbox.inner.lock().rare.is_none(), "a refusal leaves nothing behind");
        }
    }

    #[test]
    fn requested_responses_count_against_their_sender_and_do_not_close_the_stream() {
        for detached in [true, false] {
            let queue = Queue::new("juliet@example.com", &Arc::default(), OutboxLimits::default());
            assert!(!detached || queue.detach());
            let answer = large("iq type='result' from='eve@x/1' id='1'", "iq", 262_000);
            let taken = (0..8).filter(|_| queue.push_requested(&answer) == PushOutcome::Queued).count();
            assert_eq!(taken, 3, "half of the queue");
            assert_eq!(queue.push_requested(&answer), PushOutcome::LimitReached(ExceededLimit::SenderShare));
            for n in 0..8 {
                let answer = large(&format!("iq type='result' from='e{n}@x/1' id='2'"), "iq", 262_000);
                assert!(matches!(
                    queue.push_requested(&answer),
                    PushOutcome::Queued | PushOutcome::LimitReached(ExceededLimit::Queue)
                ));
            }
            // The server's responses still have room.
            let own = large("iq type='result' from='example.com' id='own'", "iq", 200_000);
            for _ in 0..5 {
                let pushed = queue.push(&own);
                assert!(matches!(pushed, PushOutcome::Queued | PushOutcome::DroppedOlder(_)), "{pushed:?}");
            }
            assert_eq!(queue.outbox.close_reason(), None);
        }
    }

    #[test]
    fn a_full_budget_of_the_node_ends_no_session() {
        let limits = OutboxLimits { backlog_bytes: 10_000, ..OutboxLimits::default() };
        let backlog = Arc::new(Backlog::default());
        let [others, lost] = ["a@x", "juliet@example.com"].map(|o| Queue::new(o, &backlog, limits));
        assert!(others.detach());
        let small = large("message from='b@x/1' id='m'", "message", 500);
        while others.push(&small) == PushOutcome::Queued {}
        assert_eq!(others.push(&small), PushOutcome::LimitReached(ExceededLimit::NodeBudget));
        // The session loses its connection with a queued stanza and is preserved.
        assert_eq!(lost.push(&small), PushOutcome::Queued);
        assert!(lost.detach());
        let own = large("iq type='result' from='example.com' id='own'", "iq", 1_000);
        let taken = (0..100).filter(|_| lost.push(&own) == PushOutcome::Queued).count();
        assert!((50..65).contains(&taken), "{taken}");
        assert_eq!(
            (lost.push(&own), lost.outbox.close_reason()),
            (PushOutcome::LimitReached(ExceededLimit::NodeBudget), None)
        );
        assert_eq!(
            lost.push(&small),
            PushOutcome::LimitReached(ExceededLimit::NodeBudget),
            "what others send is refused from the start"
        );
    }

    #[test]
    fn a_large_presence_does_not_displace_many_small_ones() {
        let queue = Queue::new("juliet@example.com", &Arc::default(), OutboxLimits::default());
        assert!(queue.detach());
        let presence = |from: &str, size: usize| {
            queue.push(&large(&format!("presence from='{from}@x/1' id='{from}'"), "presence", size))
        };
        for n in 0..200 {
            assert_eq!(presence(&format!("f{n}"), 500), PushOutcome::Queued);
        }
        assert_eq!(presence("eve", 200_000), PushOutcome::LimitReached(ExceededLimit::SenderShare));
        assert_eq!(presence("eve", 110_000), PushOutcome::Queued);
        assert_eq!(presence("mallory", 110_000), PushOutcome::LimitReached(ExceededLimit::Queue));
        // Senders with most make room for senders with little.
        assert_eq!(presence("g", 10_000), PushOutcome::Queued);
        assert_eq!(presence("h", 10_000), PushOutcome::DroppedOlder(1));
        let ids = queue.outbox.close_and_drain().into_iter().map(|left| {
            let stanza = &left.item.stanza;
            stanza.head().id(stanza.bytes()).unwrap().into_owned()
        });
        let ids: Vec<String> = ids.collect();
        assert_eq!((ids.len(), ids.iter().filter(|id| id.starts_with('f')).count()), (202, 200));
        assert!(!ids.iter().any(|id| id == "eve"));
    }

    #[test]
    fn xep_0198_section_5_a_stream_whose_presence_was_dropped_cannot_be_resumed() {
        let presence = |queue: &Queue, from: u32, size| {
            queue.push(&large(&format!("presence from='f{from}@x/1' id='{from}'"), "presence", size))
        };
        // The presence of a sender with most is dropped, without loss for anybody else.
        let queue = Queue::new("juliet@example.com", &Arc::default(), OutboxLimits::default());
        assert!(queue.detach());
        for _ in 0..100 {
            presence(&queue, 1, 20_000);
        }
        assert_eq!((presence(&queue, 2, 500), queue.outbox.close_reason()), (PushOutcome::Queued, None));
        queue.outbox.request_takeover(&[1; 16], 0, 1).expect("it can be resumed");
        // With many senders with little each, the oldest is dropped, which the client would miss.
        for detached in [true, false] {
            let queue = Queue::new("juliet@example.com", &Arc::default(), OutboxLimits::default());
            if detached {
                assert!(queue.detach());
            } else {
                queue.outbox.enable_management(
                    StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1 << 20, sm2: false },
                    [1; 16],
                );
            }
            let queued =
                (0..1000).take_while(|n| presence(&queue, *n, 10_000) == PushOutcome::Queued).count();
            assert!(queued > 16, "{queued}");
            let reason = queue.outbox.close_reason().map(|reason| reason.condition);
            assert_eq!(
                reason,
                detached.then_some(StreamCondition::ResourceConstraint),
                "one that is there goes on"
            );
            assert!(queue.outbox.request_takeover(&[1; 16], 0, 1).is_err());
            assert!(!queue.outbox.detach(0, Some(&queue.context())));
        }
    }

    #[test]
    fn unsubscribed_presence_has_one_common_share_and_displaces_nothing() {
        let push = |queue: &Queue, from: &str, size, subscribed| {
            let text = large(&format!("presence from='{from}@x/1' id='{from}'"), "presence", size);
            let item = QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None);
            let item = if subscribed { item } else { item.from_unsubscribed() };
            queue.outbox.push_accounted(item, Urgency::Now, &queue.context())
        };
        let limits = OutboxLimits::default();
        let queue = Queue::new("juliet@example.com", &Arc::default(), limits);
        assert!(queue.detach());
        for n in 0..20 {
            assert_eq!(push(&queue, &format!("f{n}"), 4_000, true), PushOutcome::Queued);
        }
        for n in 0..100 {
            let pushed = push(&queue, &format!("s{n}"), 16_000, false);
            let expected = if n < 4 { PushOutcome::Queued } else { PushOutcome::DroppedOlder(1) };
            assert_eq!(pushed, expected, "{n}");
        }
        let share = unsubscribed_share_bytes(&limits);
        let held: u32 = 20 * 4_300 + share;
        assert!(queue.outbox.queued_bytes() <= held, "{} of {held}", queue.outbox.queued_bytes());
        assert_eq!(
            push(&queue, "s", 70_000, false),
            PushOutcome::LimitReached(ExceededLimit::SenderShare),
            "larger than the share"
        );
        // Contacts fill the rest, then displace the others.
        let mut dropped = 0;
        for n in 0..36 {
            match push(&queue, &format!("g{n}"), 4_000, true) {
                PushOutcome::Queued => {}
                PushOutcome::DroppedOlder(count) => dropped += count,
                other => panic!("{n}: {other:?}"),
            }
        }
        assert!((1..4).contains(&dropped), "{dropped}");
        assert_eq!(push(&queue, "s", 60_000, false), PushOutcome::LimitReached(ExceededLimit::Queue));
        assert_eq!(queue.outbox.close_reason(), None);
        queue.outbox.request_takeover(&[1; 16], 0, 1).expect("nothing that counts was lost");
        let left = queue.outbox.close_and_drain();
        let queued = left.iter().filter(|left| left.item.rank == Rank::Presence).count();
        assert_eq!(queued, 56, "all presence of contacts");
    }

    #[test]
    fn unsubscribed_presence_that_is_rejected_displaces_nothing() {
        let limits = OutboxLimits { queue_sender_percent: 10, ..OutboxLimits::default() };
        let queue = Queue::new("juliet@example.com", &Arc::default(), limits);
        assert!(queue.detach());
        let push = |from: &str, size| {
            let text = large(&format!("presence from='{from}@x/1' id='{from}'"), "presence", size);
            let item = QueuedStanza::new(SharedStanza::parse(text.as_bytes()).unwrap(), ToRewrite::None);
            queue.outbox.push_accounted(item.from_unsubscribed(), Urgency::Now, &queue.context())
        };
        for n in 0..3 {
            assert_eq!(push(&format!("s{n}"), 20_000), PushOutcome::Queued);
        }
        let sizes = [sender_share_bytes(&limits, QueueClass::Presence), unsubscribed_share_bytes(&limits)];
        let before = queue.outbox.queued_bytes();
        for (from, size) in [("t", sizes[0]), ("t", sizes[1]), ("s0", sizes[1])] {
            let pushed = push(from, size as usize);
            assert_eq!(pushed, PushOutcome::LimitReached(ExceededLimit::SenderShare), "{from} {size}");
            assert_eq!(queue.outbox.queued_bytes(), before, "{from} {size}");
        }
    }

    #[test]
    fn a_full_budget_rejects_unsubscribed_presence_and_ends_no_session() {
        let limits = OutboxLimits { backlog_bytes: 1, ..OutboxLimits::default() };
        let queue = Queue::new("juliet@example.com", &Arc::default(), limits);
        assert!(queue.detach());
        let stanza = SharedStanza::parse(b"<presence from='a@x/1' id='1'/>").unwrap();
        let item = QueuedStanza::new(stanza, ToRewrite::None).from_unsubscribed();
        let pushed = queue.outbox.push_accounted(item, Urgency::Now, &queue.context());
        assert_eq!(pushed, PushOutcome::LimitReached(ExceededLimit::NodeBudget));
        assert_eq!(queue.outbox.close_reason(), None);
    }

    #[test]
    fn a_detached_session_that_lost_presence_ends_although_the_item_is_rejected() {
        let limits = OutboxLimits { backlog_bytes_per_sender: 20_000, ..OutboxLimits::default() };
        let backlog = Arc::default();
        let [queue, other] =
            ["juliet@example.com", "nurse@example.com"].map(|owner| Queue::new(owner, &backlog, limits));
        assert!(queue.detach() && other.detach());
        let presence = |queue: &Queue, from: &str, size: usize| {
            queue.push(&large(&format!("presence from='{from}@x/1' id='p'"), "presence", size))
        };
        // One contact has used its budget elsewhere.
        assert_eq!(presence(&other, "eve", 15_000), PushOutcome::Queued);
        let fill = (0..1000).find(|n| {
            let free = limits.queue_presence_bytes - queue.outbox.queued_bytes();
            free < 10_500 || presence(&queue, &format!("f{n}"), 10_000) != PushOutcome::Queued
        });
        assert!(fill.is_some_and(|count| count > 16) && queue.outbox.close_reason().is_none());
        // There is room in the queue only after a drop, and none in the budget.
        let pushed = presence(&queue, "eve", 12_000);
        assert_eq!(pushed, PushOutcome::LimitReached(ExceededLimit::SenderBudget));
        let reason = queue.outbox.close_reason().expect("a session that nobody can resume");
        assert_eq!(reason.condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn a_session_that_loses_presence_during_a_takeover_is_not_taken_over() {
        let queue = Queue::new("juliet@example.com", &Arc::default(), OutboxLimits::default());
        let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1 << 20, sm2: false };
        queue.outbox.enable_management(terms, [1; 16]);
        queue.outbox.request_takeover(&[1; 16], 0, 1).expect("nothing was lost yet");
        let presence = |from: u32| {
            queue.push(&large(&format!("presence from='f{from}@x/1' id='p'"), "presence", 10_000))
        };
        let lost = (0..1000).any(|n| matches!(presence(n), PushOutcome::DroppedOlder(_)));
        assert!(lost && queue.outbox.close_reason().is_none(), "the connection goes on");
        assert!(queue.outbox.hand_over());
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(queue.outbox.poll_takeover(&mut cx, 1), std::task::Poll::Ready(false));
        assert!(queue.outbox.cancel_takeover(1), "nobody has it, so the caller ends it");
        assert!(!queue.outbox.detach(0, Some(&queue.context())));
    }

    #[test]
    fn presence_within_the_guaranteed_amount_survives_a_budget_filled_by_others() {
        let limits =
            OutboxLimits { backlog_bytes: 1, backlog_bytes_per_account: 1, ..OutboxLimits::default() };
        let queue = Queue::new("juliet@example.com", &Arc::default(), limits);
        assert!(queue.detach());
        for n in 0..50 {
            assert_eq!(queue.push(&format!("<presence from='f{n}@x/1' id='{n}'/>")), PushOutcome::Queued);
        }
        assert_eq!(queue.outbox.close_reason(), None);
    }
}
