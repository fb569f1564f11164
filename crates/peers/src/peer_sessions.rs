//! Session reports: the nodes that have sessions of one account report these sessions to one another.
//!
//! The home of the account decides by them for all nodes. Every one of these nodes keeps the reports, so nothing moves when
//! the home changes. A report is complete: it replaces the one before. A node that receives the first report of another one
//! answers with its own. A home without a report uses the other node's claim, and requests a report by sending its own.
//!
//! ```text
//! octets  field           all numbers big-endian; for each session
//! 2 + n   resource        length, text
//! 1       state           bit 0: available; bit 1: detached
//! 1       priority
//! 8       flags           [`throng_core::session::flags`]
//! 8       bound at        milliseconds since 1970
//! ```
//!
//! A full address that is bound on two nodes belongs to the session that was bound later, on both nodes: by the clocks of their
//! nodes, then by the names of these. The other one ends with `conflict` (RFC 6120, section 7.7.2.2).
//!
//! # Pitfalls
//!
//! Reports are sent under the account's lock, so the last one is current. One that does not fit into the queue of a node is sent
//! again when there is room (`due_presence.rs`).
//!
//! A client that reconnects to another node at once loses its new session if the clock of that node is behind. Clocks must
//! differ by less than the time of a reconnection.
//! A report from a node whose clock is more than five minutes ahead is refused.

use std::sync::Arc;

use cluster::{AddressLocation, Claim, Envelope, EnvelopeClass, EnvelopeKind, NodeId, RefusalReason};
use jid::JidRef;
use store::{AddressId, Subscription};
use throng_core::account::{Account, AccountState, PeerSession, PeerSessions};
use throng_core::effect::{Effect, Effects};
use throng_core::router::peer_routing::address_number;
use throng_core::session::Session;

use super::home::account_recipient;
use crate::ClusteredNode;

/// Maximum number of sessions in a report.
const MAX_SESSIONS: usize = 1024;
/// Maximum octets of a report: nodes keep it for each account that they share.
const MAX_BYTES: usize = 128 << 10;
/// Milliseconds by which the clock of another node may be ahead. A session bound later than that would end every other one with its
/// address, also those that are bound after it.
const MAX_CLOCK_DIFFERENCE: u64 = 5 * 60 * 1000;
const AVAILABLE: u8 = 1;
const DETACHED: u8 = 2;

/// A report.
#[derive(Debug, Default, PartialEq, Eq)]
struct SessionReport {
    sessions: Vec<PeerSession>,
}

impl SessionReport {
    fn of(state: &AccountState) -> SessionReport {
        let session = |session: &Arc<Session>| PeerSession {
            resource: session.resource().into(),
            priority: session.priority(),
            is_detached: session.outbox.is_detached(),
            flags: session.flags.get(),
            bound_at: session.bound_at,
        };
        let live = state.sessions.iter().filter(|session| !session.is_ended());
        SessionReport { sessions: live.map(session).collect() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for session in self.sessions.iter().take(MAX_SESSIONS) {
            let PeerSession { resource, priority, is_detached, flags, bound_at } = session;
            // A resource has at most 1 023 octets.
            let Ok(length) = u16::try_from(resource.len()) else { continue };
            if out.len() + 20 + resource.len() > MAX_BYTES {
                break;
            }
            out.extend(length.to_be_bytes());
            out.extend(resource.as_bytes());
            let available = if priority.is_some() { AVAILABLE } else { 0 };
            out.push(available | if *is_detached { DETACHED } else { 0 });
            out.extend(priority.unwrap_or_default().to_be_bytes());
            out.extend(flags.to_be_bytes());
            out.extend(bound_at.to_be_bytes());
        }
        out
    }

    fn decode(mut input: &[u8]) -> Option<SessionReport> {
        let mut report = SessionReport::default();
        if input.len() > MAX_BYTES {
            return None;
        }
        while !input.is_empty() {
            if report.sessions.len() == MAX_SESSIONS {
                return None;
            }
            let (length, rest) = input.split_first_chunk()?;
            let (resource, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            let (&[state, priority], rest) = rest.split_first_chunk()?;
            let (flags, rest) = rest.split_first_chunk()?;
            let (bound_at, rest) = rest.split_first_chunk()?;
            if state & !(AVAILABLE | DETACHED) != 0 || resource.is_empty() {
                return None;
            }
            let resource: Box<str> = std::str::from_utf8(resource).ok()?.into();
            report.sessions.push(PeerSession {
                resource,
                priority: (state & AVAILABLE != 0).then_some(i8::from_be_bytes([priority])),
                is_detached: state & DETACHED != 0,
                flags: u64::from_be_bytes(*flags),
                bound_at: u64::from_be_bytes(*bound_at),
            });
            input = rest;
        }
        Some(report)
    }
}

/// The resources of another node that are available. Without its report they have no names.
fn available_resources(peer: &PeerSessions) -> Vec<Box<str>> {
    let available = |session: &PeerSession| session.priority.map(|_| session.resource.clone());
    peer.sessions.iter().filter_map(available).collect()
}

impl ClusteredNode<'_> {
    /// Reports the sessions of an account to the other nodes that have sessions of it. Must be called after a change of
    /// their number, of an availability, of a priority, of [`throng_core::session::flags::CARBONS`], and after a session was
    /// detached or resumed.
    pub(super) fn report_sessions(&self, account: &Account) {
        let own = self.cluster.node();
        let location = self.cluster.locate(account.hash, address_number(account));
        account.with(|state| {
            for node in location.other_nodes(own) {
                self.report_to(node, account, state);
            }
        });
    }

    fn report_to(&self, node: NodeId, account: &Account, state: &AccountState) {
        if self.send_report(node, account, state) == Err(RefusalReason::QueueFull) {
            self.report_is_due(node, &account.jid);
        }
    }

    /// Reports the sessions of an account that has some here to one node.
    pub(super) fn report_again(&self, node: NodeId, account: JidRef<'_>) -> Result<(), RefusalReason> {
        match self.routing_table.find(account) {
            Some(account) => account.with(|state| self.send_report(node, &account, state)),
            None => Ok(()),
        }
    }

    fn send_report(
        &self,
        node: NodeId,
        account: &Account,
        state: &AccountState,
    ) -> Result<(), RefusalReason> {
        let octets = SessionReport::of(state).encode();
        let recipients = vec![account_recipient(account)];
        let envelope = Envelope::new(
            EnvelopeKind::SessionReport,
            EnvelopeClass::Control,
            self.cluster.node(),
            recipients,
            octets,
        );
        let sent = self.cluster.deliver(node, envelope);
        sent.map(drop).map_err(|refused| {
            tracing::debug!(account = %account.jid, %refused, "cannot report sessions");
            refused.reason
        })
    }

    /// Another node has reported its sessions of an account. False if the octets are no report.
    pub(super) fn on_session_report(&self, from: NodeId, account: &Arc<Account>, octets: &[u8]) -> bool {
        let Some(SessionReport { sessions }) = SessionReport::decode(octets) else { return false };
        let latest = self.clock.unix_millis().saturating_add(MAX_CLOCK_DIFFERENCE);
        if sessions.iter().any(|session| session.bound_at > latest) {
            return false;
        }
        let own = self.cluster.node();
        // Every correct node claims an address before it reports sessions of it.
        if !self.cluster.locate(account.hash, address_number(account)).contains(own, from)
            && !sessions.is_empty()
        {
            return true;
        }
        let last_ended = sessions.is_empty();
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
            let (mut ended, mut stays) = (Vec::new(), false);
            let reported = state.peers().iter().find(|peer| peer.node == from);
            for peer in reported.iter().flat_map(|peer| &peer.sessions) {
                let same =
                    |session: &&Arc<Session>| session.resource() == &*peer.resource && !session.is_ended();
                let Some(session) = state.sessions.iter().find(same) else { continue };
                if (peer.bound_at, from) > (session.bound_at, own) {
                    ended.push(session.clone());
                } else {
                    stays = true;
                }
            }
            // Also if its own session must end: it may not know of this one.
            if answers || stays {
                self.report_to(from, account, state);
            }
            (ended, shown_again)
        });
        for session in ended {
            if !self.finish_move(&session, from) {
                self.end_with_conflict(&session);
            }
        }
        // The `unavailable` of a session that was replaced by one here may be the last that contacts have received.
        for session in shown_again {
            self.broadcast_again(&session);
        }
        if last_ended {
            // What its sessions left unread may be in the store.
            self.deliver_stored_as_home(account, Some(from));
        }
        true
    }

    /// Sends the presence of a session to its contacts and to the other resources again.
    pub(super) fn broadcast_again(&self, session: &Arc<Session>) {
        let Some(stanza) = session.with(|state| state.presence.clone()) else { return };
        let account = session.account.clone();
        let broadcast = Effect::Broadcast { account, stanza: stanza.clone(), to: Subscription::FROM };
        let others = Effect::OtherResources { except: session.clone(), stanza };
        self.perform(Effects(vec![broadcast, others]));
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
    ///
    /// A node that is not in the directory any more has ended its sessions or is lost. It may not have sent `unavailable` for
    /// all of them, and when its loss is reported, its sessions are not known any more.
    pub(super) fn update_peers(&self, account: &Account, location: &AddressLocation) {
        let own = self.cluster.node();
        let gone: Vec<Box<str>> = account.with(|state| {
            let peers = state.peers();
            let mut claims = location.claims().iter().filter(|at| at.node != own);
            let known = peers.len();
            let agrees = claims.clone().count() == known
                && claims.all(|at| peers.iter().any(|peer| peer.node == at.node && peer.reported));
            if agrees {
                return Vec::new();
            }
            let (mut asked, mut gone) = (Vec::new(), Vec::new());
            state.update_peers(|peers| {
                for peer in peers.extract_if(.., |peer| !location.contains(own, peer.node)) {
                    if peer.reported {
                        gone.extend(available_resources(&peer));
                    }
                }
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
                self.report_to(node, account, state);
            }
            gone
        });
        self.withdraw_resources(account, &gone);
    }

    /// A node that had sessions of this account is gone. Returns the resources that were available, if it had reported them.
    pub(super) fn forget_peer(&self, account: &Account, node: NodeId) -> Option<Vec<Box<str>>> {
        account.with(|state| {
            let known = state.peers().iter().find(|peer| peer.node == node && peer.reported);
            let resources = known.map(available_resources);
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
        let session = |resource: &str, priority, flags| PeerSession {
            resource: resource.into(),
            priority,
            is_detached: priority.is_some(),
            flags,
            bound_at: u64::MAX - 1,
        };
        let report = SessionReport {
            sessions: vec![session("balcony", Some(-128), u64::MAX), session("ü", None, 0)],
        };
        let octets = report.encode();
        assert_eq!(SessionReport::decode(&octets), Some(report));
        assert_eq!(SessionReport::decode(b""), Some(SessionReport::default()));
        for length in (1..octets.len()).filter(|length| *length != 27) {
            assert_eq!(SessionReport::decode(&octets[..length]), None, "{length}");
        }
        let mut undefined = octets.clone();
        undefined[9] |= 4;
        assert_eq!(SessionReport::decode(&undefined), None);
        assert_eq!(SessionReport::decode(&octets.repeat(MAX_SESSIONS)), None, "bounded");
    }
}
