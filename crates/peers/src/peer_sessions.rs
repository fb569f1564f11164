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
//! The first report of a node whose claim was known when a session was bound here has older sessions. If it names a session with the same
//! address and a time more than a second in the future, the clock there is ahead: the session here gets a later time and is reported
//! again. A smaller difference is within the tolerance, and the times decide: the other session may have been bound since.
//!
//! A client that has a name of its own (XEP-0386) ends its earlier sessions on all nodes: 8 octets with the time at which the new
//! one was bound, and the name.
//!
//! # Pitfalls
//!
//! Reports are sent under the account's lock, so the last one is current. One that does not fit into the queue of a node is sent
//! again when there is room (`due_presence`).
//!
//! A client that reconnects to another node before the claim of its session there is known loses its new session if the clock of
//! that node is behind.
//! A report from a node whose clock is more than five minutes ahead is refused.

use std::sync::{Arc, Weak};

use cluster::{AddressLocation, Claim, Envelope, EnvelopeClass, EnvelopeKind, NodeId, RefusalReason};
use jid::JidRef;
use stanza::{StreamCondition, StreamError};
use store::{AddressId, Subscription};
use throng_core::account::{Account, AccountState, PeerSession, PeerSessions};
use throng_core::effect::{Effect, Effects};
use throng_core::router::peer_routing::address_number;
use throng_core::session::{Extension, Session};

use super::home::account_recipient;
use super::stored_messages;
use crate::ClusteredNode;
use crate::envelope_kinds::CLIENT_REPLACED;

/// Maximum number of sessions in a report.
const MAX_SESSIONS: usize = 1024;
/// Maximum octets of a report: nodes keep it for each account that they share.
const MAX_BYTES: usize = 128 << 10;
/// Milliseconds by which the clock of another node may be ahead. A session bound later than that would end every other one with its
/// address, also those that are bound after it.
const MAX_CLOCK_LEAD_MILLIS: u64 = 5 * 60 * 1000;
/// Milliseconds by which clocks of nodes may differ (docs/cluster.md). Up to this difference, the times of two sessions are compared
/// as they are.
const CLOCK_TOLERANCE_MILLIS: u64 = 1_000;
/// Milliseconds after a session was bound within which the first report of another node has older sessions only. A later report may
/// have sessions that were bound while the nodes were cut off from each other.
const MAX_REPORT_MILLIS: u64 = 2_000;
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
            bound_at: session.bound_at(),
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

/// Nodes whose claims were known, but not their sessions, when a session here was bound; with that session, and the time in
/// milliseconds since 1970 by the clock of this node.
struct EarlierClaims(Vec<(NodeId, Weak<Session>, u64)>);

impl Extension for EarlierClaims {}

impl EarlierClaims {
    /// Removes a node: its claim is over, or its sessions are known. Returns the sessions here that were bound after its claim.
    fn forget(state: &mut AccountState, node: NodeId) -> Vec<(Arc<Session>, u64)> {
        let Some(claims) = state.extension::<EarlierClaims>() else { return Vec::new() };
        let later = claims.0.extract_if(.., |(other, ..)| *other == node);
        let later = later.filter_map(|(_, session, at)| Some((session.upgrade()?, at))).collect();
        if claims.0.is_empty() {
            state.remove_extension::<EarlierClaims>();
        }
        later
    }

    /// The first report of a node: its sessions that are in the future by the clock here are older than those that were bound here after its
    /// claim, unless it was cut off meanwhile. True if a session here got a later time because of that.
    fn apply_first_report(
        state: &mut AccountState,
        node: NodeId,
        reported: &[PeerSession],
        now: u64,
    ) -> bool {
        let mut is_changed = false;
        let recent = |(_, at): &(Arc<Session>, u64)| now.saturating_sub(*at) < MAX_REPORT_MILLIS;
        let latest = now.saturating_add(CLOCK_TOLERANCE_MILLIS);
        for (session, _) in EarlierClaims::forget(state, node).into_iter().filter(recent) {
            let same = |other: &&PeerSession| *other.resource == *session.resource();
            let is_ahead = |at: &&PeerSession| at.bound_at >= session.bound_at() && at.bound_at > latest;
            if let Some(earlier) = reported.iter().find(same).filter(is_ahead) {
                session.make_newer_than(earlier.bound_at);
                is_changed = true;
            }
        }
        is_changed
    }
}

/// The resources of another node that are available. Without its report they have no names.
fn available_resources(peer: &PeerSessions) -> Vec<Box<str>> {
    let available = |session: &PeerSession| session.priority.map(|_| session.resource.clone());
    peer.sessions.iter().filter_map(available).collect()
}

impl ClusteredNode<'_> {
    /// Reports the sessions of an account to the other nodes that have sessions of it: see [`throng_core::Node::report_sessions`].
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
        let latest = self.clock.unix_millis().saturating_add(MAX_CLOCK_LEAD_MILLIS);
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
        let (ended, shown_again, is_later, takes_messages) = account.with(|state| {
            let is_later =
                EarlierClaims::apply_first_report(state, from, &sessions, self.clock.unix_millis());
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
                if (peer.bound_at, from) > (session.bound_at(), own) {
                    ended.push(session.clone());
                } else {
                    stays = true;
                }
            }
            // Also if its own session must end: it may not know of this one.
            if answers || stays {
                self.report_to(from, account, state);
            }
            let reported = state.peers().iter().find(|peer| peer.node == from);
            let takes_messages = reported.is_some_and(stored_messages::has_connected_session);
            (ended, shown_again, is_later, takes_messages)
        });
        if is_later {
            self.report_sessions(account);
        }
        for session in ended {
            if !self.finish_move(&session, from) {
                self.end_with_conflict(&session);
            }
        }
        // The `unavailable` of a session that was replaced by one here may be the last that contacts have received.
        for session in shown_again {
            self.broadcast_again(&session);
        }
        if !takes_messages {
            // Its sessions may have left something unread, or take no messages any more.
            self.deliver_stored(account);
        }
        true
    }

    /// See [`throng_core::router::PeerRouting::note_earlier_claims`].
    pub(super) fn note_earlier_claims(
        &self,
        account: &Account,
        state: &mut AccountState,
        session: &Arc<Session>,
    ) {
        let location = self.cluster.locate(account.hash, address_number(account));
        let mut earlier: Vec<NodeId> = location.other_nodes(self.cluster.node()).collect();
        earlier.retain(|node| !state.peers().iter().any(|peer| peer.node == *node && peer.reported));
        if earlier.is_empty() {
            return;
        }
        let mut claims = state.remove_extension::<EarlierClaims>().map_or_else(Vec::new, |known| known.0);
        claims.retain(|(_, session, _)| session.strong_count() > 0);
        let now = self.clock.unix_millis();
        claims.extend(earlier.into_iter().map(|node| (node, Arc::downgrade(session), now)));
        state.insert_extension(EarlierClaims(claims));
    }

    /// See [`throng_core::router::PeerRouting::end_sessions_of_client`].
    pub(super) fn end_sessions_of_client(&self, session: &Session, name: &str) {
        let account = &session.account;
        let location = self.cluster.locate(account.hash, address_number(account));
        for node in location.other_nodes(self.cluster.node()) {
            let octets = [&session.bound_at().to_be_bytes()[..], name.as_bytes()].concat();
            let (class, own) = (EnvelopeClass::Control, self.cluster.node());
            let envelope =
                Envelope::new(CLIENT_REPLACED, class, own, vec![account_recipient(account)], octets);
            if let Err(refused) = self.cluster.deliver(node, envelope) {
                tracing::debug!(account = %account.jid, %refused, "earlier sessions of a client stay on a node");
            }
        }
    }

    /// A client has bound a session on another node. False if the octets are no time and no name.
    pub(super) fn on_client_replaced(&self, account: &Arc<Account>, octets: &[u8]) -> bool {
        let Some((bound_at, name)) = octets.split_first_chunk() else { return false };
        let (bound_at, Ok(name)) = (u64::from_be_bytes(*bound_at), std::str::from_utf8(name)) else {
            return false;
        };
        if name.is_empty() {
            return false;
        }
        for session in account.sessions() {
            let prefix = session.resource().strip_suffix(name);
            let same = prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('/'));
            // At the same millisecond, too: what was bound here after it is on its way to the other node.
            if same && session.bound_at() <= bound_at {
                let error = StreamError::new(StreamCondition::Conflict);
                session.outbox.close(error.text("replaced by a new connection of the same client"));
                self.end_session(&session);
            }
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
        // An earlier claim, if there was one, is over.
        account.with(|state| EarlierClaims::forget(state, from));
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
            EarlierClaims::forget(state, node);
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
