//! Envelopes without a receipt: at the sender, which keeps them, and at the receiver, which has not settled them.
//!
//! # Pitfalls
//!
//! A receipt must not cover a refusal that it does not carry: what does not fit into one item waits for the next.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use cluster::{Envelope, HandoverResult, PeerViolation};

use super::frame::{ReceiptItem, read_envelope};

/// Envelopes of one node that another one may keep without settling them.
pub(super) const MAX_UNSETTLED: usize = 1 << 16;
/// Octets of them.
pub(super) const MAX_UNSETTLED_BYTES: usize = 8 << 20;
/// Octets of the receipts in one item.
const RECEIPTS_BYTES: usize = 64 << 10;

/// Envelopes that this node has sent, or will send, to another one.
#[derive(Default)]
pub(super) struct SentEnvelopes {
    /// Sequence of the ticket, and the body of the item.
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
    last: u64,
}

/// What receipts of another node ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EndedEnvelopes {
    /// Refused recipients.
    pub(super) refused: Vec<Envelope>,
    /// Ended tickets after the last one that the receipt covers with all before it.
    pub(super) later: Vec<u64>,
    /// Whether any ended.
    pub(super) any: bool,
}

impl SentEnvelopes {
    /// Whether there is room for this number of octets.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.kept.len() < MAX_UNSETTLED && self.bytes + bytes <= MAX_UNSETTLED_BYTES
    }

    pub(super) fn keep(&mut self, ticket: u64, body: Bytes) {
        self.last = ticket;
        self.bytes += body.len();
        self.kept.push_back((ticket, body));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the envelopes that receipts cover.
    ///
    /// # Errors
    /// If they cover what was never sent, or refuse what does not exist. In the second case the others have ended.
    pub(super) fn end(
        &mut self,
        receipts: ReceiptItem,
    ) -> Result<EndedEnvelopes, (PeerViolation, EndedEnvelopes)> {
        let ReceiptItem { up_to, later, refused } = receipts;
        let last = later.last().copied().unwrap_or(up_to).max(up_to);
        if last > self.last || !later.is_sorted_by(|one, next| one < next) {
            return Err((PeerViolation::Receipt, EndedEnvelopes::default()));
        }
        let mut refused: BTreeMap<u64, HandoverResult> = refused.into_iter().collect();
        let mut ended = EndedEnvelopes::default();
        // Tickets increase, so nothing after the last one is visited.
        let end = self.kept.partition_point(|(ticket, _)| *ticket <= last);
        let mut open = Vec::new();
        for (ticket, body) in self.kept.drain(..end) {
            if ticket > up_to && later.binary_search(&ticket).is_err() {
                open.push((ticket, body));
                continue;
            }
            self.bytes -= body.len();
            ended.any = true;
            if ticket > up_to {
                ended.later.push(ticket);
            }
            let Some(result) = refused.remove(&ticket) else { continue };
            let Ok((_, envelope)) = read_envelope(&body) else { continue };
            match envelope.refused(&result) {
                Some(envelope) => ended.refused.push(envelope),
                None => drop(refused.insert(ticket, result)),
            }
        }
        open.into_iter().rev().for_each(|kept| self.kept.push_front(kept));
        // Refusals that belong to no envelope.
        if refused.is_empty() { Ok(ended) } else { Err((PeerViolation::Receipt, ended)) }
    }

    /// The envelopes without a receipt, in order.
    pub(super) fn into_envelopes(self) -> impl Iterator<Item = Envelope> {
        self.kept.into_iter().filter_map(|(_, body)| read_envelope(&body).ok()).map(|(_, envelope)| envelope)
    }
}

/// Envelopes that another node has sent to this one.
#[derive(Default)]
pub(super) struct ReceivedEnvelopes {
    /// Not settled, with their octets.
    outstanding: BTreeMap<u64, usize>,
    bytes: usize,
    /// Settled, and not reported yet.
    settled: Vec<u64>,
    /// Those of them that were not safe.
    refused: BTreeMap<u64, HandoverResult>,
    /// The last one that arrived.
    last: u64,
    /// What the last receipt covered.
    reported: u64,
}

impl ReceivedEnvelopes {
    /// Notes an envelope that must be settled.
    ///
    /// # Errors
    /// If its ticket does not follow the last one, or too many, or too many octets, are not settled: its sender keeps no more.
    pub(super) fn add(&mut self, ticket: u64, bytes: usize) -> Result<(), PeerViolation> {
        if ticket <= self.last {
            return Err(PeerViolation::Header);
        }
        if self.outstanding.len() + self.settled.len() >= 2 * MAX_UNSETTLED
            || self.bytes + bytes > MAX_UNSETTLED_BYTES
        {
            return Err(PeerViolation::TooManyUnsettled);
        }
        self.last = ticket;
        self.bytes += bytes;
        self.outstanding.insert(ticket, bytes);
        Ok(())
    }

    /// False if there is no such envelope, or it was settled.
    pub(super) fn settle(&mut self, ticket: u64, result: HandoverResult) -> bool {
        let Some(bytes) = self.outstanding.remove(&ticket) else { return false };
        self.bytes -= bytes;
        self.settled.push(ticket);
        if result != HandoverResult::Safe {
            self.refused.insert(ticket, result);
        }
        true
    }

    pub(super) fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    fn settled_up_to(&self) -> u64 {
        self.outstanding.first_key_value().map_or(self.last, |(oldest, _)| oldest - 1)
    }

    pub(super) fn has_unreported(&self) -> bool {
        !self.settled.is_empty()
    }

    /// The next receipts to send.
    pub(super) fn take_receipts(&mut self) -> Option<ReceiptItem> {
        if self.settled.is_empty() {
            return None;
        }
        self.settled.sort_unstable();
        let mut bytes = 0;
        let fitting = self.settled.iter().take_while(|ticket| {
            bytes += 8 + self.refused.get(ticket).map_or(0, ReceiptItem::refusal_len);
            bytes <= RECEIPTS_BYTES
        });
        // One alone always fits: an envelope has at most 8192 recipients.
        let count = fitting.count().max(1);
        let rest = self.settled.split_off(count);
        let settled = std::mem::replace(&mut self.settled, rest);
        let limit = self.settled.first().map_or(u64::MAX, |first| first - 1);
        let up_to = self.settled_up_to().min(limit);
        self.reported = self.reported.max(up_to);
        let refused = settled.iter().filter_map(|ticket| Some((*ticket, self.refused.remove(ticket)?)));
        let refused = refused.collect();
        let later = settled.into_iter().filter(|ticket| *ticket > up_to).collect();
        Some(ReceiptItem { up_to: self.reported, later, refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{EnvelopeClass, EnvelopeKind, NodeId, Recipient};
    use jid::Jid;

    fn body(ticket: u64, recipients: usize) -> Bytes {
        let jid = Jid::parse("juliet@example.com").unwrap();
        let recipients = (0..recipients).map(|_| Recipient::from(jid.clone())).collect();
        let own = NodeId::new("a").unwrap();
        let envelope =
            Envelope::new(EnvelopeKind::RunChain, EnvelopeClass::Message, own, recipients, &b"x"[..]);
        let mut octets = ticket.to_be_bytes().to_vec();
        envelope.encode(&mut octets).unwrap();
        octets.into()
    }

    fn sent(tickets: impl IntoIterator<Item = u64>) -> SentEnvelopes {
        let mut sent = SentEnvelopes::default();
        tickets.into_iter().for_each(|ticket| sent.keep(ticket, body(ticket, 3)));
        sent
    }

    #[test]
    fn a_receipt_covers_what_was_settled_after_an_open_envelope() {
        let (mut sent, mut received) = (sent([3, 5, 9]), ReceivedEnvelopes::default());
        [3, 5, 9].into_iter().for_each(|ticket| received.add(ticket, 1).unwrap());
        assert_eq!(received.take_receipts(), None);
        assert!(received.settle(5, HandoverResult::Safe) && !received.settle(5, HandoverResult::Safe));
        let receipts = received.take_receipts().unwrap();
        assert_eq!(receipts, ReceiptItem { up_to: 2, later: vec![5], refused: vec![] });
        assert_eq!(sent.end(receipts).unwrap().later, [5]);
        received.settle(3, HandoverResult::Refused);
        let receipts = received.take_receipts().unwrap();
        assert_eq!(
            receipts,
            ReceiptItem { up_to: 8, later: vec![], refused: vec![(3, HandoverResult::Refused)] }
        );
        let ended = sent.end(receipts).unwrap();
        assert_eq!((ended.any, ended.refused.len(), sent.kept.len()), (true, 1, 1));
    }

    #[test]
    fn refusals_that_do_not_fit_wait_and_are_not_covered() {
        let mut received = ReceivedEnvelopes::default();
        let all = HandoverResult::RefusedFor((0..8191).collect());
        for ticket in 1..=10 {
            received.add(ticket, 1).unwrap();
            received.settle(ticket, all.clone());
        }
        let mut refused = Vec::new();
        while let Some(receipts) = received.take_receipts() {
            assert!(receipts.encode().len() <= RECEIPTS_BYTES + 64);
            assert!(receipts.later.is_empty());
            refused.extend(receipts.refused.iter().map(|(ticket, _)| *ticket));
            assert_eq!(refused.last(), Some(&receipts.up_to));
        }
        assert_eq!(refused, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn receipts_for_what_was_never_sent_are_refused() {
        let mut sent = sent([1, 2]);
        let wrong = |up_to, later: &[u64], refused: &[(u64, HandoverResult)]| ReceiptItem {
            up_to,
            later: later.to_vec(),
            refused: refused.to_vec(),
        };
        for receipts in
            [wrong(3, &[], &[]), wrong(u64::MAX, &[], &[]), wrong(0, &[2, 1], &[]), wrong(0, &[1, 9], &[])]
        {
            assert_eq!(sent.end(receipts).unwrap_err().0, PeerViolation::Receipt);
        }
        let positions = |positions: &[u16]| HandoverResult::RefusedFor(positions.into());
        let (violation, ended) = sent.end(wrong(1, &[], &[(1, positions(&[3]))])).unwrap_err();
        assert_eq!((violation, ended.refused.len(), ended.any), (PeerViolation::Receipt, 0, true));
        assert_eq!(
            sent.end(wrong(2, &[], &[(1, HandoverResult::Refused)])).unwrap_err().0,
            PeerViolation::Receipt
        );
        assert!(sent.is_empty() && sent.bytes() == 0);
    }

    #[test]
    fn envelopes_beyond_the_maximum_and_repeated_tickets_are_refused() {
        let mut received = ReceivedEnvelopes::default();
        assert_eq!((received.add(4, 1), received.add(4, 1)), (Ok(()), Err(PeerViolation::Header)));
        let accepted = (5..).take_while(|ticket| received.add(*ticket, 1).is_ok()).count();
        assert_eq!(accepted, 2 * MAX_UNSETTLED - 1);
        assert_eq!(received.add(u64::MAX, 1), Err(PeerViolation::TooManyUnsettled));
    }

    #[test]
    fn octets_that_are_not_settled_are_bounded() {
        let mut received = ReceivedEnvelopes::default();
        let accepted = (1..).take_while(|ticket| received.add(*ticket, 1 << 20).is_ok()).count();
        assert_eq!(accepted, MAX_UNSETTLED_BYTES >> 20);
        assert!(received.settle(3, HandoverResult::Safe));
        assert_eq!(
            (received.add(100, 1 << 20), received.add(101, 1)),
            (Ok(()), Err(PeerViolation::TooManyUnsettled))
        );
    }
}
