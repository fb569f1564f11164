//! Calls of an [`Inbox`] as values.
//!
//! An implementation learns under its lock what the inbox must hear. The inbox may call its cluster, so these calls wait in a queue
//! until the lock is released (invariant 8 of the crate).

use crate::{Claim, Envelope, Inbox, MembershipChange, NodeId, PeerViolation, Ticket};

/// A call of an [`Inbox`] that is still to be made.
#[derive(Debug)]
pub enum InboxCall {
    /// [`Inbox::on_envelope`].
    Envelope(NodeId, Envelope),
    /// [`Inbox::on_receipts`].
    Receipts(NodeId, Ticket, Vec<Ticket>),
    /// [`Inbox::on_refused`].
    Refused(NodeId, Envelope),
    /// [`Inbox::on_undelivered`].
    Undelivered(NodeId, Envelope),
    /// [`Inbox::on_claim`].
    Claimed(NodeId, Claim),
    /// [`Inbox::on_claims_of_joined`].
    ClaimedByJoined(NodeId, Vec<Claim>),
    /// [`Inbox::on_membership_change`].
    Changed(MembershipChange),
    /// [`Inbox::on_violation`].
    Violation(NodeId, PeerViolation),
}

impl InboxCall {
    /// Makes the call. The caller holds no lock.
    pub fn run(self, inbox: &dyn Inbox) {
        match self {
            InboxCall::Envelope(from, envelope) => inbox.on_envelope(from, envelope),
            InboxCall::Receipts(from, up_to, later) => inbox.on_receipts(from, up_to, &later),
            InboxCall::Refused(from, envelope) => inbox.on_refused(from, envelope),
            InboxCall::Undelivered(to, envelope) => inbox.on_undelivered(to, envelope),
            InboxCall::Claimed(from, claim) => inbox.on_claim(from, claim),
            InboxCall::ClaimedByJoined(from, claims) => inbox.on_claims_of_joined(from, claims),
            InboxCall::Changed(change) => inbox.on_membership_change(change),
            InboxCall::Violation(from, violation) => inbox.on_violation(from, violation),
        }
    }
}
