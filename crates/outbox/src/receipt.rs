//! Receipts: proof that something durable was written for a stanza, given after the stanza has gone on.
//!
//! A handler that writes returns at once: it attaches a [`Receipt`] to the stanza as an effect and keeps
//! the [`ReceiptIssuer`]. The sender's count of handled stanzas (XEP-0198 1.6.3, section 4) rises past the stanza when all
//! its receipts are fulfilled; a receipt that fails sends the sender an error.
//!
//! A message that is put into the queue of a client needs no writer: the message itself says when it is safe
//! ([`Receipt::of_delivery`]). Such a receipt allocates nothing.
//!
//! # Pitfalls
//!
//! A receipt without an outcome would stop the sender's count permanently, so dropping the issuer fails the receipt.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use smallvec::SmallVec;
use stanza::{StanzaCondition, StanzaError};

use crate::AwaitedDelivery;
use crate::shared_stanza::SharedStanza;

/// Fulfilled, or failed with the error for the sender.
pub type ReceiptOutcome = Result<(), StanzaError>;

#[derive(Debug)]
enum ReceiptState {
    Open(Option<Waker>),
    Settled(ReceiptOutcome),
}

/// Held by the writer. Dropping it fails the receipt with `internal-server-error`.
#[derive(Debug)]
pub struct ReceiptIssuer(Arc<LeafMutex<ReceiptState>>);

/// Held for the sender of a stanza.
#[derive(Debug)]
pub struct Receipt(ReceiptKind);

#[derive(Debug)]
enum ReceiptKind {
    Issued(Arc<LeafMutex<ReceiptState>>),
    Delivery(AwaitedDelivery),
}

/// Creates both halves.
pub fn receipt_pair() -> (ReceiptIssuer, Receipt) {
    let state = Arc::new(LeafMutex::new(ReceiptState::Open(None)));
    (ReceiptIssuer(state.clone()), Receipt(ReceiptKind::Issued(state)))
}

impl ReceiptIssuer {
    /// Fulfils the receipt, or fails it.
    pub fn settle(self, outcome: ReceiptOutcome) {
        self.set(outcome);
    }

    fn set(&self, outcome: ReceiptOutcome) {
        let mut state = self.0.lock();
        if let ReceiptState::Open(waker) = &mut *state {
            let waker = waker.take();
            *state = ReceiptState::Settled(outcome);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Drop for ReceiptIssuer {
    fn drop(&mut self) {
        self.set(Err(StanzaError::new(StanzaCondition::InternalServerError)));
    }
}

impl Receipt {
    /// The receipt of a message whose delivery is tracked ([`SharedStanza::track_delivery`]). It never fails: if the message
    /// cannot be delivered or stored, its sender has an error already.
    pub fn of_delivery(stanza: &SharedStanza) -> Receipt {
        Receipt(ReceiptKind::Delivery(AwaitedDelivery::new(stanza)))
    }

    /// The outcome. While there is none, registers the task to be woken, in place of an earlier one.
    pub fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<ReceiptOutcome> {
        let issued = match &self.0 {
            ReceiptKind::Issued(issued) => issued,
            ReceiptKind::Delivery(awaited) => return awaited.poll_settled(cx).map(Ok),
        };
        match &mut *issued.lock() {
            ReceiptState::Settled(outcome) => Poll::Ready(outcome.clone()),
            ReceiptState::Open(registered) => {
                if !registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *registered = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// A receipt and the stanza to which it was attached.
#[derive(Debug)]
pub struct AttachedReceipt {
    /// The stanza, with both addresses: the error goes to its sender.
    pub stanza: SharedStanza,
    /// The receipt.
    pub receipt: Receipt,
}

/// The receipts of one stanza of a sender, or of what it caused.
#[derive(Debug, Default)]
pub struct Receipts(pub SmallVec<[AttachedReceipt; 1]>);

impl Receipts {
    /// Whether the stanza needs no receipt.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something must be written for the stanza, so that its sender is sent the count without a request for it.
    pub fn await_writes(&self) -> bool {
        self.0.iter().any(|attached| matches!(attached.receipt.0, ReceiptKind::Issued(_)))
    }

    /// Adds the receipts of another stanza.
    pub fn append(&mut self, mut others: Receipts) {
        if self.0.is_empty() {
            *self = others;
        } else {
            self.0.append(&mut others.0);
        }
    }

    /// Bytes of the stanzas that are kept for their receipts.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|attached| attached.stanza.bytes().len()).sum()
    }

    /// Takes the receipts that have an outcome, in order, and reports those that failed. True if none is left.
    pub fn poll(&mut self, cx: &mut Context<'_>, failed: &mut dyn FnMut(FailedReceipt)) -> bool {
        let mut settled = 0;
        for attached in &self.0 {
            match attached.receipt.poll_outcome(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => failed(FailedReceipt { stanza: attached.stanza.clone(), error }),
            }
            settled += 1;
        }
        self.0.drain(..settled);
        self.0.is_empty()
    }
}

/// A stanza whose receipt failed.
#[derive(Debug)]
pub struct FailedReceipt {
    /// The stanza.
    pub stanza: SharedStanza,
    /// The error for its sender.
    pub error: StanzaError,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(receipt: &Receipt) -> Poll<ReceiptOutcome> {
        receipt.poll_outcome(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_receipt_is_open_until_it_is_settled_and_keeps_its_first_outcome() {
        let (issuer, receipt) = receipt_pair();
        assert_eq!(poll(&receipt), Poll::Pending);
        issuer.settle(Ok(()));
        assert_eq!((poll(&receipt), poll(&receipt)), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
    }

    #[test]
    fn a_dropped_issuer_fails_the_receipt() {
        let (issuer, receipt) = receipt_pair();
        drop(issuer);
        let error = StanzaError::new(StanzaCondition::InternalServerError);
        assert_eq!(poll(&receipt), Poll::Ready(Err(error)));
        // Nobody waits any more.
        let (issuer, receipt) = receipt_pair();
        drop(receipt);
        issuer.settle(Ok(()));
    }

    #[test]
    fn the_receipt_of_a_delivery_is_fulfilled_when_the_message_is_settled() {
        let message = SharedStanza::parse(b"<message/>").unwrap();
        assert!(message.track_delivery(base::clock::Millis(0)));
        let (receipt, other) = (Receipt::of_delivery(&message), Receipt::of_delivery(&message));
        assert_eq!((poll(&receipt), poll(&other)), (Poll::Pending, Poll::Pending));
        drop(other);
        message.confirm_delivery();
        assert_eq!(poll(&receipt), Poll::Ready(Ok(())));
    }
}
