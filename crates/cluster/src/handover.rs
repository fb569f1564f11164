//! Tickets, and results of hand-overs: how a node learns that another node has an envelope safe.

use std::fmt;

use crate::{Envelope, NodeId, RefusedEnvelope};

/// The position of an envelope among those of one node to another. Tickets of a pair only increase, and one receipt
/// covers all tickets up to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Epoch of the sending node.
    pub epoch: u64,
    /// Sequence number of the envelope; 0 for one that is never acknowledged ([`crate::EnvelopeClass::BestEffort`]).
    pub sequence: u64,
}

impl Ticket {
    /// Whether a receipt, a refusal or the return of the envelope will follow.
    pub fn has_receipt(self) -> bool {
        self.sequence != 0
    }
}

/// What a node did with an envelope of a reliable class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverResult {
    /// Every recipient's copy is safe here (accepted by a session or stored), or was answered.
    Safe,
    /// Nothing was done.
    Refused,
    /// Nothing was done for the recipients at these positions; the others are safe.
    RefusedFor(Box<[u16]>),
}

impl HandoverResult {
    /// The result for an envelope of `recipients` recipients, of which those at `refused` were refused.
    pub fn of(recipients: usize, refused: Vec<u16>) -> HandoverResult {
        match refused.len() {
            0 => HandoverResult::Safe,
            count if count >= recipients => HandoverResult::Refused,
            _ => HandoverResult::RefusedFor(refused.into()),
        }
    }
}

/// Result of [`crate::Cluster::broadcast`].
#[derive(Debug, Default)]
pub struct BroadcastResult {
    /// The nodes that will receive it.
    pub accepted: Vec<(NodeId, Ticket)>,
    /// The nodes for which it could not be queued.
    pub refused: Vec<RefusedEnvelope>,
}

/// Input of another node that no correct node sends. It is ignored or refused; the receiver counts it and logs the
/// first of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerViolation {
    /// Octets that are no envelope of a version that this node reads.
    Envelope,
    /// Origin, epoch or sequence differ from those of the connection.
    Header,
    /// A receipt for what was never sent, or a refused recipient that does not exist.
    Receipt,
    /// More claims than a node can have, or the release of an address that was never claimed.
    Claim,
    /// A kind that this node does not implement.
    Kind,
    /// Contents that do not fit the kind: no stanza, or one that is not addressed to the recipients.
    Payload,
    /// More envelopes, or octets, that are not settled than a correct node sends before it has their receipts.
    TooManyUnsettled,
    /// Envelopes that are not settled in time. A correct node whose store fails does this, too.
    Unsettled,
}

impl PeerViolation {
    /// All violations.
    pub const ALL: [PeerViolation; 8] = [
        PeerViolation::Envelope,
        PeerViolation::Header,
        PeerViolation::Receipt,
        PeerViolation::Claim,
        PeerViolation::Kind,
        PeerViolation::Payload,
        PeerViolation::TooManyUnsettled,
        PeerViolation::Unsettled,
    ];

    /// The word in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            PeerViolation::Envelope => "envelope",
            PeerViolation::Header => "header",
            PeerViolation::Receipt => "receipt",
            PeerViolation::Claim => "claim",
            PeerViolation::Kind => "kind",
            PeerViolation::Payload => "payload",
            PeerViolation::TooManyUnsettled => "too-many-unsettled",
            PeerViolation::Unsettled => "unsettled",
        }
    }
}

impl fmt::Display for PeerViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Envelope {
    /// The ticket of an envelope that was sent.
    pub fn ticket(&self) -> Ticket {
        let sequence = if self.header.class.is_reliable() { self.header.sequence } else { 0 };
        Ticket { epoch: self.header.epoch, sequence }
    }

    /// Only the recipients that were refused; `None` for a position that does not exist or is repeated.
    pub fn refused(mut self, result: &HandoverResult) -> Option<Envelope> {
        match result {
            HandoverResult::Safe => None,
            HandoverResult::Refused => Some(self),
            HandoverResult::RefusedFor(positions) => {
                let known = positions.last().is_some_and(|last| usize::from(*last) < self.recipients.len());
                if !known || !positions.is_sorted_by(|one, next| one < next) {
                    return None;
                }
                let mut position = 0_u16;
                self.recipients.retain(|_| {
                    let refused = positions.binary_search(&position).is_ok();
                    position = position.saturating_add(1);
                    refused
                });
                Some(self)
            }
        }
    }
}
