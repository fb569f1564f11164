//! Directed presence of sessions on other nodes (RFC 6121, sections 4.6.3 and 4.6.6).
//!
//! A session keeps the entities to which it sent directed presence, and only its node knows them. So a probe from an entity without a
//! subscription goes from the home of the account to the other nodes with its sessions, one after the other: each answers for its
//! sessions, and the last one answers `unsubscribed` if no session did.
//!
//! A node that is killed cannot send `unavailable` to these entities. So the node that receives such presence for an entity here
//! remembers it with the node of the session (`noted_presence`), and sends `unavailable` when that node is lost. If the account has sessions on
//! other nodes, to one of which the session may have moved, it asks these afterwards, and the entity receives presence again. The entity has
//! not asked, so nobody refuses: `unsubscribed` would end its request for a subscription. A session that had moved to the lost node without
//! the knowledge of this one is gone if its account has no session any more. Subscribers are not concerned: they are sent what all
//! subscribers are (`lost_peers`).
//!
//! Not implemented: `unavailable` for such a session if its account has other sessions.
//!
//! ```text
//! probe    1 whether a session has answered; 1 number of further nodes to ask, each 1 + n; then the stanza
//! ```

use std::collections::HashSet;

use base::spawn::yield_now;
use cluster::{Claim, Envelope, EnvelopeClass, NodeId, Recipient, RefusalReason};
use jid::{Jid, JidRef};
use stanza::{PresenceType, StanzaKind};
use store::Subscription;
use throng_core::account::{Account, AccountState, Contact, PeerSessions};
use throng_core::effect::Effects;
use throng_core::shared_stanza::SharedStanza;

use super::home::account_recipient;
use super::noted_presence::NotedPresence;
use super::presence_change::PresenceChange;
use crate::ClusteredNode;
use crate::envelope_kinds::DIRECTED_PROBE;

/// Maximum number of nodes that a probe visits.
const MAX_NODES: usize = 64;

/// A probe on its way through the nodes with sessions of an account.
struct DirectedProbe {
    /// A session has answered it.
    answered: bool,
    /// The nodes that it has not visited.
    nodes: Vec<NodeId>,
    stanza: SharedStanza,
    from: Jid,
    to: Jid,
}

fn encode(answered: bool, nodes: &[NodeId], stanza: &SharedStanza) -> Vec<u8> {
    let nodes = &nodes[..nodes.len().min(MAX_NODES)];
    let mut octets = vec![u8::from(answered), u8::try_from(nodes.len()).unwrap_or_default()];
    for node in nodes {
        octets.push(u8::try_from(node.as_str().len()).unwrap_or_default());
        octets.extend(node.as_str().as_bytes());
    }
    octets.extend(stanza.bytes());
    octets
}

fn decode(octets: &[u8]) -> Option<DirectedProbe> {
    let (&[answered, count], mut rest) = octets.split_first_chunk()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_first()?;
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        nodes.push(NodeId::new(std::str::from_utf8(name).ok()?)?);
        rest = after;
    }
    if answered > 1 || nodes.len() > MAX_NODES {
        return None;
    }
    let probe = StanzaKind::Presence(PresenceType::Probe);
    let stanza = SharedStanza::read(rest).filter(|stanza| stanza.kind() == probe)?;
    let (from, to) = (stanza.sender()?, stanza.recipient()?);
    Some(DirectedProbe { answered: answered == 1, nodes, stanza, from, to })
}

/// A presence without content. `id` is escaped already.
fn empty_presence(
    from: JidRef<'_>,
    to: JidRef<'_>,
    ty: PresenceType,
    id: Option<&str>,
) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("presence").attr("from", from.as_str()).attr("to", to.as_str());
        if let Some(id) = id {
            w.attr_raw("id", id);
        }
        w.attr_opt("type", ty.as_str()).end();
    })
}

/// Other nodes that may have this resource of an account.
fn nodes_of_resource(state: &AccountState, resource: &str) -> Vec<NodeId> {
    let has = |peer: &&PeerSessions| {
        !peer.reported || peer.sessions.iter().any(|session| *session.resource == *resource)
    };
    state.peers().iter().filter(has).map(|peer| peer.node).collect()
}

/// Whether an account has a subscription to a contact that `is_contact` recognises.
fn is_subscribed(account: &Account, is_contact: impl Fn(&Contact) -> bool) -> bool {
    account.with(|state| {
        let mut contacts = state.contacts().iter();
        contacts.any(|contact| contact.subscription.contains(Subscription::TO) && is_contact(contact))
    })
}

/// Sends to the first of these nodes that takes it, with the nodes that it must visit afterwards: the rest, and those whose queue is full here,
/// which may have room there. False if none takes it.
fn visit_first(
    nodes: &[NodeId],
    mut send: impl FnMut(NodeId, &[NodeId]) -> Result<(), RefusalReason>,
) -> bool {
    let mut full = Vec::new();
    let mut rest = nodes;
    while let Some((node, further)) = rest.split_first() {
        rest = further;
        match send(*node, &[further, &full].concat()) {
            Ok(()) => return true,
            Err(RefusalReason::QueueFull) => full.push(*node),
            Err(_) => {}
        }
    }
    false
}

impl ClusteredNode<'_> {
    /// Directed `unavailable` of a session on another node arrived: nothing else must be withdrawn from its recipient.
    pub(super) fn forget_withdrawn_presence(
        &self,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: Option<&Jid>,
    ) {
        if stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable)
            && let Some(to) = to
        {
            self.state.directed_presence.forget(from, to.as_ref());
        }
    }

    /// A session on another node has broadcast `unavailable`, which ends its directed presence, too. With one recipient, it may be for that one
    /// only: a subscription has ended, or the recipient is blocked.
    pub(super) fn forget_broadcast_presence(&self, envelope: &Envelope, change: &PresenceChange) {
        let leaves = change.stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable);
        let from = change.from.as_ref();
        if !leaves || from.resource().is_none() {
            return;
        }
        if envelope.recipients.len() > 1 {
            return self.state.directed_presence.forget_session(from);
        }
        for account in self.accounts_of(envelope) {
            self.state.directed_presence.forget_account(from, account.jid.as_ref());
        }
    }

    /// Remembers directed presence of a session on another node, for an account that has sessions here, until the session sends
    /// `unavailable`.
    pub(super) fn note_directed_presence(
        &self,
        node: NodeId,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: Option<&Jid>,
        recipient: &Account,
    ) {
        if stanza.kind() != StanzaKind::Presence(PresenceType::Available) || recipient.blocks(from) {
            return;
        }
        let Some(to) = to.filter(|to| from.resource().is_some() && to.as_ref().bare() != from.bare()) else {
            return;
        };
        // Addresses that nobody has are invented.
        let may_arrive = |name: &str| recipient.with(|state| !nodes_of_resource(state, name).is_empty());
        if to.as_ref().resource().is_some_and(|name| recipient.session(name).is_none() && !may_arrive(name)) {
            return;
        }
        // What another node only passes on comes from a session elsewhere, and services have no sessions.
        let location = self.cluster.locate(self.routing_table.hash(from), None);
        let Some(at) = location.claims().iter().find(|claim| claim.node == node) else { return };
        let has =
            |contact: &Contact| (contact.hash, Some(contact.id.0)) == (at.claim.address, at.claim.number);
        if is_subscribed(recipient, has) {
            return;
        }
        let (from, to) = (from.to_jid(), to.clone());
        self.state.directed_presence.note(NotedPresence { from, number: at.claim.number, to, node });
    }

    /// Whether the recipient is subscribed to the presence of the session's account: that is withdrawn with all presence of a lost
    /// node. A recipient that has moved away is looked up in the store.
    async fn is_subscriber(&self, noted: &NotedPresence) -> bool {
        let NotedPresence { from, number, to, .. } = noted;
        let (from, to) = (from.as_ref().bare().to_jid(), to.as_ref().bare().to_jid());
        if let Some(account) = self.routing_table.find(to.as_ref()) {
            let hash = self.routing_table.hash(from.as_ref());
            return is_subscribed(&account, |contact| (contact.hash, Some(contact.id.0)) == (hash, *number));
        }
        let Ok(Some(owner)) = self.stores.addresses.find(&to).await else { return false };
        let entry = self.stores.roster.entry(owner, &from).await.ok().and_then(|entry| entry.item);
        entry.is_some_and(|item| item.subscription.contains(Subscription::TO))
    }

    /// The node has left: takes the directed presence of sessions there, and of sessions elsewhere with a claim in `claims` whose account
    /// has no session left: they may have moved there.
    pub(super) fn take_directed_presence(&self, node: NodeId, claims: &[Claim]) -> Vec<NotedPresence> {
        self.state.directed_presence.take_of(Some(node), &self.senders_without_session(claims))
    }

    /// A node with these claims has shut down: what ended there has sent `unavailable`. What has moved from there may be at any node with
    /// sessions of its account.
    pub(super) fn forget_directed_presence(&self, claims: &[Claim]) {
        self.state.directed_presence.take_of(None, &self.senders_without_session(claims));
    }

    /// Withdraws directed presence of accounts that have no session any more: their `unavailable` had no room in the queue to this node.
    /// Called by the sweep.
    pub(super) fn sweep_directed_presence(&self, now: u32) {
        let noted = &self.state.directed_presence;
        let ended = noted.next_swept().into_iter().flat_map(|account| {
            let has_session = self.account_has_session(&account);
            noted.sweep_account(&account, has_session, now)
        });
        self.withdraw_directed_presence(ended.collect());
    }

    /// The senders of these claims whose account has no session any more.
    fn senders_without_session(&self, claims: &[Claim]) -> HashSet<Jid> {
        let addresses: HashSet<u64> = claims.iter().map(|claim| claim.address).collect();
        let of_claims = |from: &Jid| addresses.contains(&self.routing_table.hash(from.as_ref()));
        let senders = self.state.directed_presence.accounts(of_claims);
        senders.into_iter().filter(|from| !self.account_has_session(from)).collect()
    }

    /// Whether the account of an address has a session on any node.
    fn account_has_session(&self, jid: &Jid) -> bool {
        let hash = self.routing_table.hash(jid.as_ref());
        self.routing_table.find(jid.as_ref()).is_some()
            || !self.cluster.locate(hash, None).claims().is_empty()
    }

    /// Sends `unavailable` for sessions that are gone with their node, and asks for those that may have moved to another. The entries of
    /// one session follow each other.
    pub(super) fn withdraw_directed_presence(&self, entries: Vec<NotedPresence>) {
        if entries.is_empty() {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            for of_session in entries.chunk_by(|one, other| one.from == other.from) {
                let Some(NotedPresence { from, .. }) = of_session.first() else { continue };
                let location = node.cluster.locate(node.routing_table.hash(from.as_ref()), None);
                let others: Vec<NodeId> = location.other_nodes(node.cluster.node()).collect();
                let recipient = Recipient::Address(from.as_ref().bare().to_jid());
                for noted in of_session {
                    let to = &noted.to;
                    if node.has_directed_presence_here(from, to) || node.is_subscriber(noted).await {
                        continue;
                    }
                    let gone = empty_presence(from.as_ref(), to.as_ref(), PresenceType::Unavailable, None);
                    let mut effects = Effects::default();
                    effects.route(gone, from.clone(), to.clone());
                    node.perform(effects);
                    let probe = empty_presence(to.as_ref(), from.as_ref(), PresenceType::Probe, None);
                    if let Some(probe) = probe.filter(|_| !others.is_empty()) {
                        node.pass_probe_on(&recipient, &probe, true, &others);
                    }
                    yield_now().await;
                }
            }
        };
        self.spawner.spawn("presence of a lost node", Box::pin(task));
    }

    /// Whether the session is here and has sent directed presence to the entity: then it has moved here. A client that has only connected again
    /// with the same address has not.
    fn has_directed_presence_here(&self, from: &Jid, to: &Jid) -> bool {
        let account = self.routing_table.find(from.as_ref());
        let session = account.and_then(|account| account.session(from.as_ref().resource()?));
        session.is_some_and(|session| session.has_directed_presence_to(to.as_ref()))
    }

    /// Passes the probe from an entity without a subscription to the other nodes with sessions of an account. `answered`: whether a
    /// session here has answered. False if there is no such node.
    pub(super) fn probe_directed_elsewhere(
        &self,
        account: &Account,
        stanza: &SharedStanza,
        answered: bool,
    ) -> bool {
        let Some(to) = stanza.recipient() else { return false };
        let resource = to.as_ref().resource();
        let nodes: Vec<NodeId> = account.with(|state| {
            if resource.is_some_and(|resource| state.sessions.iter().any(|s| s.resource() == resource)) {
                return Vec::new();
            }
            match resource {
                Some(resource) => nodes_of_resource(state, resource),
                None => state.peers().iter().map(|peer| peer.node).collect(),
            }
        });
        self.pass_probe_on(&account_recipient(account), stanza, answered, &nodes)
    }

    /// Sends a probe to the first of these nodes that takes it, which passes it on to the others; false if none does. Without it, one that was
    /// answered is not refused, so such probes take no more room in the queue than presence.
    fn pass_probe_on(
        &self,
        recipient: &Recipient,
        stanza: &SharedStanza,
        answered: bool,
        nodes: &[NodeId],
    ) -> bool {
        let own = self.cluster.node();
        visit_first(nodes, |node, further| {
            let recipients = vec![recipient.clone()];
            let octets = encode(answered, further, stanza);
            let envelope = Envelope::new(DIRECTED_PROBE, EnvelopeClass::Control, own, recipients, octets);
            match answered {
                true => self.hand_over_presence(node, envelope),
                false => self.cluster.deliver(node, envelope).map(drop).map_err(|refused| refused.reason),
            }
        })
    }

    /// Another node asks whether sessions here have sent directed presence to an entity. False if the octets are no probe.
    pub(super) fn on_directed_probe(&self, envelope: &Envelope) -> bool {
        let Some(probe) = decode(&envelope.bytes) else { return false };
        let (from, to) = (probe.from.as_ref(), probe.to.as_ref());
        let mut effects = Effects::default();
        let account = self.accounts_of(envelope).next();
        // The address that is probed must be that of the account.
        let account = account.or_else(|| self.routing_table.find(to.bare()));
        let mut answered = probe.answered;
        if let Some(account) = account.as_ref().filter(|account| account.jid.as_ref() == to.bare()) {
            for session in account.sessions() {
                let names_other = to.resource().is_some_and(|resource| resource != session.resource());
                if !names_other && session.has_directed_presence_to(from) {
                    answered = true;
                    let here = empty_presence(session.full(), from, PresenceType::Available, None);
                    effects.route(here, session.jid.clone(), probe.from.clone());
                }
            }
        }
        // Also if the last session here has ended meanwhile.
        if let Some(recipient) = envelope.recipients.first() {
            answered |= self.pass_probe_on(recipient, &probe.stanza, answered, &probe.nodes);
        }
        if !answered {
            let id = probe.stanza.head().raw_id(probe.stanza.bytes());
            let refusal = empty_presence(to.bare(), from.bare(), PresenceType::Unsubscribed, id);
            effects.route(refusal, to.bare().to_jid(), from.bare().to_jid());
        }
        if !effects.is_empty() {
            self.perform(effects);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_visits_nodes_with_a_full_queue_after_the_others() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| NodeId::new(name).unwrap());
        let visit = |full: &[NodeId], gone: &[NodeId]| {
            let mut sent = None;
            let found = visit_first(&[a, b, c, d], |node, further| {
                if full.contains(&node) {
                    return Err(RefusalReason::QueueFull);
                }
                if gone.contains(&node) {
                    return Err(RefusalReason::UnknownNode);
                }
                sent = Some((node, further.to_vec()));
                Ok(())
            });
            assert_eq!(found, sent.is_some());
            sent
        };
        assert_eq!(visit(&[], &[]), Some((a, vec![b, c, d])));
        assert_eq!(visit(&[a], &[b]), Some((c, vec![d, a])));
        assert_eq!(visit(&[a, b, c], &[]), Some((d, vec![a, b, c])));
        assert_eq!(visit(&[a, b, c], &[d]), None);
    }

    #[test]
    fn a_probe_is_read_as_it_was_written_and_anything_else_is_refused() {
        let stanza = SharedStanza::parse(b"<presence type='probe' from='a@b/c' to='d@e'/>").unwrap();
        let nodes = ["one", "two"].map(|name| NodeId::new(name).unwrap());
        for answered in [false, true] {
            let octets = encode(answered, &nodes, &stanza);
            let read = decode(&octets).unwrap();
            assert_eq!((read.answered, &read.nodes[..]), (answered, &nodes[..]));
            assert_eq!((read.from.as_str(), read.to.as_str()), ("a@b/c", "d@e"));
            assert!((0..octets.len()).all(|length| decode(&octets[..length]).is_none()));
        }
        assert!(decode(&[&[2, 0], stanza.bytes()].concat()).is_none());
        for other in ["<presence from='a@b/c' to='d@e'/>", "<presence type='probe' from='a@b/c'/>"] {
            let other = SharedStanza::parse(other.as_bytes()).unwrap();
            assert!(decode(&encode(false, &nodes, &other)).is_none());
        }
        let many = vec![nodes[0]; 1000];
        assert_eq!(decode(&encode(false, &many, &stanza)).unwrap().nodes.len(), MAX_NODES);
    }
}
