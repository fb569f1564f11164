//! Stanzas of one client that are not safe yet, in the order in which they were read.
//!
//! XEP-0198 1.6.3, section 4: `h` rises only past stanzas that are complete and whose receipts are all fulfilled. Exists
//! only while a stanza is not safe.
//!
//! # Pitfalls
//!
//! Receipts are polled in order, and only those of the first stanza: that of a later one wakes the task when its turn
//! comes. So a poll costs the same however many are outstanding, and errors reach the client in the order of its stanzas.

use std::collections::VecDeque;
use std::task::Context;

use crate::receipt::{FailedReceipt, Receipts};

/// Stanzas that may wait for receipts at a time; then the stream takes no further ones.
pub const MAX_OUTSTANDING_STANZAS: usize = 256;
/// Bytes of these stanzas.
pub const MAX_OUTSTANDING_BYTES: usize = 256 * 1024;

/// Position of a stanza in the order in which a client's stanzas were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StanzaPosition(u32);

#[derive(Debug)]
enum StanzaProgress {
    /// It is being handled, or must still be handled.
    Incomplete,
    /// It was handled; these receipts are outstanding.
    AwaitsReceipts { receipts: Receipts, bytes: usize },
    /// It is safe, but an earlier one is not.
    Safe,
}

#[derive(Debug)]
struct OutstandingStanza {
    progress: StanzaProgress,
    /// It counts for `h`: it was read after stream management was enabled.
    counted: bool,
}

/// Stanzas of one client that are not safe yet.
#[derive(Debug, Default)]
pub struct OutstandingStanzas {
    stanzas: VecDeque<OutstandingStanza>,
    /// Position of the first of them.
    first: u32,
    /// Number of stanzas that await receipts, and their bytes.
    awaiting: usize,
    bytes: usize,
}

impl OutstandingStanzas {
    /// Adds a stanza that was read; `counted` if stream management is enabled.
    pub fn begin(&mut self, counted: bool) -> StanzaPosition {
        let position = self.end();
        self.stanzas.push_back(OutstandingStanza { progress: StanzaProgress::Incomplete, counted });
        position
    }

    /// The stanza was handled, and is safe when its receipts are fulfilled.
    pub fn complete(&mut self, position: StanzaPosition, receipts: Receipts) {
        let at = position.0.wrapping_sub(self.first) as usize;
        let Some(stanza) = self.stanzas.get_mut(at) else { return };
        if receipts.is_empty() {
            stanza.progress = StanzaProgress::Safe;
            return;
        }
        let bytes = receipts.bytes();
        (self.awaiting, self.bytes) = (self.awaiting + 1, self.bytes + bytes);
        stanza.progress = StanzaProgress::AwaitsReceipts { receipts, bytes };
    }

    /// Removes the stanzas at the beginning that are safe, and returns how many of them count. A stanza whose receipt
    /// failed counts too, because its sender gets an error.
    pub fn poll(&mut self, cx: &mut Context<'_>, failed: &mut dyn FnMut(FailedReceipt)) -> u32 {
        let mut handled = 0;
        while let Some(stanza) = self.stanzas.front_mut() {
            match &mut stanza.progress {
                StanzaProgress::Safe => {}
                StanzaProgress::Incomplete => break,
                StanzaProgress::AwaitsReceipts { receipts, bytes } => {
                    if !receipts.poll(cx, failed) {
                        break;
                    }
                    (self.awaiting, self.bytes) = (self.awaiting - 1, self.bytes - *bytes);
                }
            }
            handled += u32::from(stanza.counted);
            self.stanzas.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        handled
    }

    /// Forgets the stanza at this position and all later ones: the client must send them again. Receipts among them are
    /// dropped, and failures are not reported.
    pub fn truncate(&mut self, position: StanzaPosition) {
        let at = position.0.wrapping_sub(self.first) as usize;
        for stanza in self.stanzas.drain(at.min(self.stanzas.len())..) {
            if let StanzaProgress::AwaitsReceipts { bytes, .. } = stanza.progress {
                (self.awaiting, self.bytes) = (self.awaiting - 1, self.bytes - bytes);
            }
        }
    }

    /// Frees memory above this number of stanzas, so that an empty list can be kept for another client.
    pub fn shrink_to(&mut self, stanzas: usize) {
        self.stanzas.shrink_to(stanzas);
    }

    /// Whether all stanzas are safe.
    pub fn is_empty(&self) -> bool {
        self.stanzas.is_empty()
    }

    /// Number of stanzas that are not safe, or follow one that is not.
    pub fn len(&self) -> usize {
        self.stanzas.len()
    }

    /// Whether a bound of outstanding receipts is reached, so that no further stanza may be handled.
    pub fn is_full(&self) -> bool {
        self.awaiting >= MAX_OUTSTANDING_STANZAS || self.bytes >= MAX_OUTSTANDING_BYTES
    }

    /// Whether all stanzas before this one are safe.
    pub fn is_first(&self, position: StanzaPosition) -> bool {
        position.0 == self.first
    }

    /// Whether all stanzas before this position are safe; it may be that of [`OutstandingStanzas::end`].
    pub fn has_reached(&self, position: StanzaPosition) -> bool {
        self.first.wrapping_sub(position.0) < 1 << 31
    }

    /// Position of the next stanza.
    pub fn end(&self) -> StanzaPosition {
        // The number of stanzas is bounded by what the stream reads, far below 2^32.
        StanzaPosition(self.first.wrapping_add(u32::try_from(self.stanzas.len()).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::{AttachedReceipt, ReceiptIssuer, receipt_pair};
    use crate::shared_stanza::SharedStanza;
    use stanza::{StanzaCondition, StanzaError};
    use std::task::Waker;

    fn one(size: usize) -> (ReceiptIssuer, Receipts) {
        let text = format!("<message from='a@b/c' to='d@e'><body>{}</body></message>", "x".repeat(size));
        let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
        let (issuer, receipt) = receipt_pair();
        let mut receipts = Receipts::default();
        receipts.0.push(AttachedReceipt { stanza, receipt });
        (issuer, receipts)
    }

    fn poll(stanzas: &mut OutstandingStanzas) -> (u32, usize) {
        let mut failed = 0;
        let handled = stanzas.poll(&mut Context::from_waker(Waker::noop()), &mut |_| failed += 1);
        (handled, failed)
    }

    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# When an <r/> element ("request") is received, the recipient MUST acknowledge it by sending an <a/> element to the
    //# sender containing a value of 'h' that is equal to the number of stanzas handled by the recipient of the <r/> element.
    #[test]
    fn stanzas_count_in_order_once_their_receipts_are_fulfilled() {
        let mut stanzas = OutstandingStanzas::default();
        let (first, receipts) = one(1);
        let position = stanzas.begin(true);
        stanzas.complete(position, receipts);
        let incomplete = stanzas.begin(true);
        let (third, receipts) = one(1);
        let position = stanzas.begin(true);
        stanzas.complete(position, receipts);
        let position = stanzas.begin(true);
        stanzas.complete(position, Receipts::default());
        third.settle(Ok(()));
        assert_eq!(poll(&mut stanzas), (0, 0));
        first.settle(Ok(()));
        assert_eq!(poll(&mut stanzas), (1, 0));
        assert!(stanzas.is_first(incomplete));
        stanzas.complete(incomplete, Receipts::default());
        assert_eq!((poll(&mut stanzas), stanzas.is_empty()), ((3, 0), true));
    }

    #[test]
    fn a_failed_receipt_is_reported_in_order_and_counts() {
        let mut stanzas = OutstandingStanzas::default();
        let (first, mut receipts) = one(1);
        let (second, more) = one(1);
        let (later, last) = one(1);
        receipts.append(more);
        for receipts in [receipts, last] {
            let position = stanzas.begin(true);
            stanzas.complete(position, receipts);
        }
        drop(later);
        assert_eq!(poll(&mut stanzas), (0, 0), "its turn has not come");
        drop(first);
        assert_eq!(poll(&mut stanzas), (0, 1), "another receipt of the stanza is outstanding");
        second.settle(Err(StanzaError::new(StanzaCondition::ServiceUnavailable)));
        assert_eq!((poll(&mut stanzas), stanzas.is_empty()), ((2, 2), true));
    }

    #[test]
    fn stanzas_from_before_stream_management_do_not_count() {
        let mut stanzas = OutstandingStanzas::default();
        for counted in [false, true] {
            let position = stanzas.begin(counted);
            stanzas.complete(position, Receipts::default());
        }
        assert_eq!(poll(&mut stanzas), (1, 0));
    }

    #[test]
    fn receipts_are_bounded_in_number_and_bytes() {
        for (size, count) in [(1, MAX_OUTSTANDING_STANZAS), (MAX_OUTSTANDING_BYTES / 4, 4)] {
            let mut stanzas = OutstandingStanzas::default();
            let mut issuers = Vec::new();
            while !stanzas.is_full() {
                let (issuer, receipts) = one(size);
                issuers.push(issuer);
                let position = stanzas.begin(true);
                stanzas.complete(position, receipts);
                // Stanzas that need no receipt are not limited by them.
                let position = stanzas.begin(true);
                stanzas.complete(position, Receipts::default());
            }
            assert_eq!(issuers.len(), count);
            issuers.remove(0).settle(Ok(()));
            assert_eq!((poll(&mut stanzas).0, stanzas.is_full()), (2, false));
            stanzas.truncate(StanzaPosition(stanzas.first));
            assert_eq!((stanzas.awaiting, stanzas.bytes, stanzas.len()), (0, 0, 0));
        }
    }

    #[test]
    fn a_position_is_reached_when_all_stanzas_before_it_are_safe() {
        let mut stanzas = OutstandingStanzas { first: u32::MAX, ..OutstandingStanzas::default() };
        let start = stanzas.end();
        let position = stanzas.begin(true);
        let end = stanzas.end();
        assert_eq!((stanzas.has_reached(start), stanzas.has_reached(end)), (true, false));
        stanzas.complete(position, Receipts::default());
        assert_eq!((poll(&mut stanzas), stanzas.has_reached(end)), ((1, 0), true));
    }

    #[test]
    fn positions_wrap() {
        let mut stanzas = OutstandingStanzas { first: u32::MAX, ..OutstandingStanzas::default() };
        let positions = [stanzas.begin(true), stanzas.begin(true)];
        stanzas.complete(positions[1], Receipts::default());
        assert_eq!(poll(&mut stanzas), (0, 0));
        stanzas.complete(positions[0], Receipts::default());
        assert_eq!(poll(&mut stanzas), (2, 0));
    }
}
