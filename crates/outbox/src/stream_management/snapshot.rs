//! What a node needs to continue the stream of another node: counters and stanzas of an outbox. XEP-0198 1.6.3, section 5.
//!
//! The stanzas of a snapshot count as sent in the outbox that is made of it, also those that were only queued: they are written
//! when a connection takes the outbox, in order and before all that arrives meanwhile.

use std::collections::VecDeque;

use super::{
    AckRequest, HandledCountTooHigh, Owner, StreamManagement, StreamManagementTerms, TOKEN_BYTES,
    UnackedStanza, UndeliveredStanza,
};
use crate::outbox::{Outbox, QueuedStanza};

/// A stream that a client wants to continue, and whose outbox another node may have.
pub struct WantedStream {
    /// The resource that its identifier names.
    pub resource: Box<str>,
    /// The token that the identifier contains.
    pub token: [u8; TOKEN_BYTES],
    /// Stanzas that the client has handled, modulo 2^32.
    pub h: u32,
}

/// Why no node gives an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferRefusal {
    /// None has one with this token; handled stanzas of a stream that has ended, if they are known.
    Unknown(Option<u32>),
    /// The client has handled more than it was sent.
    TooHigh(HandledCountTooHigh),
}

/// Counters and stanzas of an outbox with stream management.
#[derive(Clone)]
pub struct OutboxSnapshot {
    /// Part of the identifier that the client was sent.
    pub token: [u8; TOKEN_BYTES],
    /// The terms of the stream.
    pub terms: StreamManagementTerms,
    /// Stanzas of the peer that were handled, modulo 2^32.
    pub handled: u32,
    /// Stanzas that the peer was sent, modulo 2^32.
    pub sent: u32,
    /// Those of them that the peer has not acknowledged, then the queue.
    pub stanzas: Vec<UndeliveredStanza>,
}

impl Outbox {
    /// The state of an outbox that its caller has taken over. `None` if it is closed or must be, or cannot be resumed.
    pub fn snapshot(&self) -> Option<OutboxSnapshot> {
        let inner = self.inner.lock();
        let ack = inner.management.as_deref().filter(|ack| !ack.lossy && inner.stays_open())?;
        let sent = ack.unacked.iter().map(|sent| UndeliveredStanza {
            item: QueuedStanza::new(sent.stanza.clone(), sent.to_rewrite),
            sent_at: Some(sent.sent_at),
        });
        let queued = inner.queue.iter().map(|item| UndeliveredStanza { item: item.clone(), sent_at: None });
        Some(OutboxSnapshot {
            token: ack.token,
            terms: ack.terms,
            handled: ack.handled,
            sent: ack.sent,
            stanzas: sent.chain(queued).collect(),
        })
    }

    /// An outbox that continues another one. The connection that takes it writes all stanzas of the snapshot. `now`: the second
    /// of the node's clock.
    pub fn from_snapshot(snapshot: OutboxSnapshot, now: u32) -> Outbox {
        let OutboxSnapshot { token, terms, handled, sent, stanzas } = snapshot;
        let unacked = stanzas.iter().filter(|stanza| stanza.sent_at.is_some()).count();
        let acked = sent.wrapping_sub(u32::try_from(unacked).unwrap_or(u32::MAX));
        let mut management = StreamManagement {
            token,
            terms,
            sent: acked,
            acked,
            handled,
            unacked_bytes: 0,
            unacked: VecDeque::new(),
            to_resend: 0,
            ack_request: AckRequest::Idle,
            wants_ack: false,
            owner: Owner::Connection,
            lossy: false,
            claimant: None,
        };
        stanzas.into_iter().for_each(|stanza| management.hold(stanza, now));
        let outbox = Outbox::new();
        outbox.inner.lock().management = Some(Box::new(management));
        outbox
    }

    /// Adds stanzas after those of the snapshot and before the queue. Returns them if a connection has dequeued something
    /// since, or the outbox is closed.
    pub fn append_to_snapshot(&self, stanzas: Vec<UndeliveredStanza>, now: u32) -> Vec<UndeliveredStanza> {
        let mut inner = self.inner.lock();
        let stays_open = inner.stays_open();
        match inner.management.as_deref_mut() {
            Some(ack) if stays_open && ack.to_resend as usize == ack.unacked.len() => {
                stanzas.into_iter().for_each(|stanza| ack.hold(stanza, now));
                Vec::new()
            }
            _ => stanzas,
        }
    }
}

impl StreamManagement {
    /// Holds a stanza that will be written when a connection takes the outbox.
    fn hold(&mut self, stanza: UndeliveredStanza, now: u32) {
        let UndeliveredStanza { item, sent_at } = stanza;
        self.unacked_bytes = self.unacked_bytes.saturating_add(item.size());
        self.sent = self.sent.wrapping_add(1);
        self.unacked.push_back(UnackedStanza {
            stanza: item.stanza,
            sent_at: sent_at.unwrap_or(now),
            to_rewrite: item.to_rewrite,
        });
        self.to_resend = self.to_resend.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutboxLimits, QueuedBatch, SharedStanza, ToRewrite, Urgency};
    use std::task::{Context, Waker};

    fn item(id: u32) -> QueuedStanza {
        let stanza = SharedStanza::parse(format!("<message id='{id}'/>").as_bytes()).unwrap();
        QueuedStanza::new(stanza, ToRewrite::None)
    }

    fn push(outbox: &Outbox, id: u32) {
        outbox.push(item(id), Urgency::Now, &OutboxLimits::default());
    }

    fn take(outbox: &Outbox) -> Vec<String> {
        let mut batch = QueuedBatch::new();
        outbox.dequeue(&mut Context::from_waker(Waker::noop()), &mut batch, u32::MAX, 0);
        batch.iter().map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap().into_owned()).collect()
    }

    #[test]
    fn an_outbox_continues_another_one_with_what_that_held_and_what_follows() {
        let outbox = Outbox::new();
        let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: true };
        assert!(outbox.enable_management(terms, [7; TOKEN_BYTES]));
        (0..3).for_each(|id| push(&outbox, id));
        take(&outbox);
        outbox.acknowledge(1).unwrap();
        outbox.count_handled(9);
        push(&outbox, 3);
        let snapshot = outbox.snapshot().unwrap();
        assert_eq!((snapshot.sent, snapshot.handled, snapshot.stanzas.len()), (3, 9, 3));
        let continued = Outbox::from_snapshot(snapshot, 5);
        assert_eq!((continued.management_terms(), continued.handled_count()), (Some(terms), 9));
        push(&continued, 5);
        let rest = vec![UndeliveredStanza { item: item(4), sent_at: None }];
        assert!(continued.append_to_snapshot(rest.clone(), 5).is_empty());
        assert_eq!(take(&continued), ["1", "2", "3", "4", "5"]);
        assert_eq!(continued.append_to_snapshot(rest, 5).len(), 1, "a connection has it");
        assert!(continued.acknowledge(7).is_err() && continued.acknowledge(6).is_ok());
        assert_eq!(continued.unacked_bytes(), 0);
        assert!(continued.check_takeover(&[7; TOKEN_BYTES], 6).is_ok());
    }

    #[test]
    fn a_closed_outbox_and_one_without_stream_management_have_no_snapshot() {
        let outbox = Outbox::new();
        assert!(outbox.snapshot().is_none());
        let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: false };
        assert!(outbox.enable_management(terms, [7; TOKEN_BYTES]));
        outbox.close(stanza::StreamCondition::Conflict.into());
        assert!(outbox.snapshot().is_none());
    }
}
