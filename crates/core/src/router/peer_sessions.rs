//! Session facts: the nodes that have sessions of one account report these sessions to one another.
//!
//! The home of the account decides by them for all nodes. All of these nodes hold them, and not the home only, so that
//! nothing has to move with the home. A report is complete: it replaces the one before. A node that receives the first
//! report of another one answers with its own; a home that has none uses what the other node's claim says, and asks with
//! a report.
//!
//! ```text
//! octets  field           all numbers big-endian; for each session
//! 2 + n   resource        length, text
//! 1       state           bit 0: available; bit 1: bound by this report
//! 1       priority
//! 8       flags           [`crate::session::flags`]
//! ```
//!
//! # Pitfalls
//!
//! Reports are sent under the account's lock: the last one is right.

use std::sync::Arc;

use cluster::{AddressLocation, Claim, Envelope, EnvelopeClass, EnvelopeKind, NodeId};
use store::{AddressId, Subscription};

use super::remote::{account_recipient, number};
use crate::account::{Account, AccountState, PeerSession, PeerSessions};
use crate::effect::{Effect, Effects};
use crate::node::Node;

/// Maximum number of sessions in a report.
const MAX_SESSIONS: usize = 1024;
const AVAILABLE: u8 = 1;
const BOUND: u8 = 2;

/// A report.
#[derive(Debug, Default, PartialEq, Eq)]
struct SessionReport {
    sessions: Vec<PeerSession>,
    /// The resource that was bound immediately before.
    bound: Option<Box<str>>,
}

impl SessionReport {
    fn of(state: &AccountState, bound: Option<&str>) -> SessionReport {
        let session = |session: &Arc<crate::session::Session>| PeerSession {
            resource: session.resource().into(),
            priority: session.priority(),
            flags: session.flags.get(),
        };
        let live = state.sessions.iter().filter(|session| !session.is_ended());
        SessionReport { sessions: live.map(session).collect(), bound: bound.map(Into::into) }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for PeerSession { resource, priority, flags } in self.sessions.iter().take(MAX_SESSIONS) {
            // A resource has at most 1 023 octets.
            let Ok(length) = u16::try_from(resource.len()) else { continue };
            out.extend(length.to_be_bytes());
            out.extend(resource.as_bytes());
            let bound = self.bound.as_ref() == Some(resource);
            out.push(if priority.is_some() { AVAILABLE } else { 0 } | if bound { BOUND } else { 0 });
            out.extend(priority.unwrap_or_default().to_be_bytes());
            out.extend(flags.to_be_bytes());
        }
        out
    }

    fn decode(mut input: &[u8]) -> Option<SessionReport> {
        let mut report = SessionReport::default();
        while !input.is_empty() {
            if report.sessions.len() == MAX_SESSIONS {
                return None;
            }
            let (length, rest) = input.split_first_chunk()?;
            let (resource, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            let (&[state, priority], rest) = rest.split_first_chunk()?;
            let (flags, rest) = rest.split_first_chunk()?;
            if state & !(AVAILABLE | BOUND) != 0 || resource.is_empty() {
                return None;
            }
            let resource: Box<str> = std::str::from_utf8(resource).ok()?.into();
            if state & BOUND != 0 {
                report.bound = Some(resource.clone());
            }
            report.sessions.push(PeerSession {
                resource,
                priority: (state & AVAILABLE != 0).then_some(i8::from_be_bytes([priority])),
                flags: u64::from_be_bytes(*flags),
            });
            input = rest;
        }
        Some(report)
    }
}

impl Node {
    /// Reports the sessions of an account to the other nodes that have sessions of it. Must be called after a change of
    /// their number, of an availability, of a priority, or of [`crate::session::flags::CARBONS`].
    pub fn report_sessions(&self, account: &Account) {
        self.report_bound(account, None);
    }

    /// Like [`Node::report_sessions`]; the other nodes end their session with the resource that was bound.
    pub(crate) fn report_bound(&self, account: &Account, bound: Option<&str>) {
        if self.is_single() {
            return;
        }
        let own = self.cluster.node();
        let location = self.cluster.locate(account.hash, number(account));
        account.with(|state| {
            for node in location.other_nodes(own) {
                self.report_to(node, account, state, bound);
            }
        });
    }

    fn report_to(&self, node: NodeId, account: &Account, state: &AccountState, bound: Option<&str>) {
        let octets = SessionReport::of(state, bound).encode();
        let recipients = vec![account_recipient(account)];
        let envelope = Envelope::new(
            EnvelopeKind::SessionFacts,
            EnvelopeClass::Control,
            self.cluster.node(),
            recipients,
            octets,
        );
        if let Err(refused) = self.cluster.deliver(node, envelope) {
            tracing::debug!(account = %account.jid, %refused, "cannot report sessions");
        }
    }

    /// Another node has reported its sessions of an account. False if the octets are no report.
    pub(super) fn on_session_report(
        self: &Arc<Self>,
        from: NodeId,
        account: &Arc<Account>,
        octets: &[u8],
    ) -> bool {
        let Some(SessionReport { sessions, bound }) = SessionReport::decode(octets) else { return false };
        let (ended, shown_again) = account.with(|state| {
            let has =
                |sessions: &[PeerSession], resource: &str| sessions.iter().any(|s| *s.resource == *resource);
            let before = state.peers().iter().find(|peer| peer.node == from);
            let mut shown_again = state.sessions.clone();
            shown_again.retain(|session| {
                let resource = session.resource();
                before.is_some_and(|before| has(&before.sessions, resource)) && !has(&sessions, resource)
            });
            let answers = !sessions.is_empty() && !state.peers().iter().any(|peer| peer.node == from);
            state.update_peers(|peers| {
                peers.retain(|peer| peer.node != from);
                if !sessions.is_empty() {
                    peers.push(PeerSessions { node: from, reported: true, sessions });
                }
            });
            account.refresh_carbons(state, None);
            if answers {
                self.report_to(from, account, state, None);
            }
            let bound = bound.as_deref();
            let ended = state.sessions.iter().find(|session| Some(session.resource()) == bound).cloned();
            (ended, shown_again)
        });
        if let Some(ended) = ended {
            self.end_with_conflict(&ended);
        }
        // The `unavailable` of a session that was replaced by one here may be the last that contacts have received.
        for session in shown_again {
            if let Some(stanza) = session.with(|state| state.presence.clone()) {
                let broadcast = Effect::Broadcast {
                    account: account.clone(),
                    stanza: stanza.clone(),
                    to: Subscription::FROM,
                };
                self.perform(Effects(vec![broadcast, Effect::OtherResources { except: session, stanza }]));
            }
        }
        true
    }

    /// Another node has a session of an address: it receives a report if this node has one, too. Two nodes that claim an
    /// address at the same time learn only by this that they share it.
    pub(super) fn on_peer_claim(&self, from: NodeId, claim: Claim) {
        let Some(number) = claim.number else { return };
        let Some(account) = self.routing_table.find_by_id(claim.address, AddressId(number)) else { return };
        self.update_peers(&account, &self.cluster.locate(account.hash, Some(number)));
        tracing::trace!(account = %account.jid, node = %from, "an account has sessions on another node, too");
    }

    /// Brings what is known of an account's sessions on other nodes into agreement with the directory.
    pub(super) fn update_peers(&self, account: &Account, location: &AddressLocation) {
        let own = self.cluster.node();
        account.with(|state| {
            let peers = state.peers();
            let mut claims = location.claims().iter().filter(|at| at.node != own);
            let known = peers.len();
            let agrees = claims.clone().count() == known
                && claims.all(|at| peers.iter().any(|peer| peer.node == at.node && peer.reported));
            if agrees {
                return;
            }
            let mut asked = Vec::new();
            state.update_peers(|peers| {
                peers.retain(|peer| location.contains(own, peer.node));
                for at in location.claims().iter().filter(|at| at.node != own) {
                    let session = PeerSession {
                        priority: at.claim.takes_messages.then_some(0),
                        ..PeerSession::default()
                    };
                    let claimed = PeerSessions { node: at.node, reported: false, sessions: vec![session] };
                    match peers.iter_mut().find(|peer| peer.node == at.node) {
                        Some(peer) if peer.reported => {}
                        Some(peer) => *peer = claimed,
                        None => {
                            peers.push(claimed);
                            asked.push(at.node);
                        }
                    }
                }
            });
            account.refresh_carbons(state, None);
            for node in asked {
                self.report_to(node, account, state, None);
            }
        });
    }

    /// A node that had sessions of this account is gone. Returns the resources that were available.
    pub(super) fn forget_peer(&self, account: &Account, node: NodeId) -> Vec<Box<str>> {
        account.with(|state| {
            let known = state.peers().iter().find(|peer| peer.node == node && peer.reported);
            let available = |session: &PeerSession| session.priority.map(|_| session.resource.clone());
            let resources =
                known.map(|peer| peer.sessions.iter().filter_map(available).collect()).unwrap_or_default();
            if state.peers().iter().any(|peer| peer.node == node) {
                state.update_peers(|peers| peers.retain(|peer| peer.node != node));
                account.refresh_carbons(state, None);
            }
            resources
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_anything_else_is_refused() {
        let session =
            |resource: &str, priority, flags| PeerSession { resource: resource.into(), priority, flags };
        let report = SessionReport {
            sessions: vec![session("balcony", Some(-128), u64::MAX), session("ü", None, 0)],
            bound: Some("ü".into()),
        };
        let octets = report.encode();
        assert_eq!(SessionReport::decode(&octets), Some(report));
        assert_eq!(SessionReport::decode(b""), Some(SessionReport::default()));
        for length in (1..octets.len()).filter(|length| *length != 19) {
            assert_eq!(SessionReport::decode(&octets[..length]), None, "{length}");
        }
        let mut undefined = octets.clone();
        undefined[9] |= 4;
        assert_eq!(SessionReport::decode(&undefined), None);
        assert_eq!(SessionReport::decode(&octets.repeat(MAX_SESSIONS)), None, "bounded");
    }
}
