//! Directed presence of sessions on other nodes (RFC 6121, sections 4.6.3 and 4.6.6).
//!
//! A session keeps the entities to which it sent directed presence, and only its node knows them. So a probe from an entity without a
//! subscription goes from the home of the account to the other nodes with its sessions, one after the other: each answers for its
//! sessions, and the last one answers `unsubscribed` if no session did.
//!
//! A node that is killed cannot send `unavailable` to these entities. So the node that receives such presence for an entity here
//! remembers it with the node of the session, and sends `unavailable` when that node is lost. If the account has sessions on other
//! nodes, to one of which the session may have moved, it asks these afterwards, and the entity receives presence again. The entity has not
//! asked, so nobody refuses: `unsubscribed` would end its request for a subscription. A session that had moved to the lost node without the
//! knowledge of this one is gone if its account has no session any more.
//!
//! Not implemented: `unavailable` for such a session if its account has other sessions.
//!
//! ```text
//! probe    1 whether a session has answered; 1 number of further nodes to ask, each 1 + n; then the stanza
//! ```

use std::collections::{BTreeMap, HashSet};

use base::lock::LeafMutex;
use base::spawn::yield_now;
use cluster::{Claim, Envelope, EnvelopeClass, NodeId, Recipient};
use jid::{Jid, JidRef};
use stanza::{PresenceType, StanzaKind};
use store::Subscription;
use throng_core::account::Account;
use throng_core::effect::Effects;
use throng_core::shared_stanza::SharedStanza;

use super::home::account_recipient;
use crate::ClusteredNode;
use crate::envelope_kinds::DIRECTED_PROBE;

/// Maximum octets of what is remembered of directed presence of all other nodes.
const MAX_OCTETS: usize = 16 << 20;
/// Octets that one entry occupies besides the addresses.
const ENTRY_OCTETS: usize = 128;

/// Directed presence that sessions on other nodes have sent to entities here.
#[derive(Default)]
pub(super) struct DirectedPresenceFromPeers(LeafMutex<NotedPresence>);

#[derive(Default)]
struct NotedPresence {
    /// The node of the sender, by recipient, by sender.
    senders: BTreeMap<Jid, BTreeMap<Jid, NodeId>>,
    octets: usize,
}

fn octets_of(from: JidRef<'_>, to: &Jid) -> usize {
    ENTRY_OCTETS + from.as_str().len() + to.as_str().len()
}

impl DirectedPresenceFromPeers {
    /// Remembers the presence, unless the sender has `limit` recipients, or [`MAX_OCTETS`] are reached. The latest node of the sender
    /// counts: a session may move.
    fn note(&self, node: NodeId, from: JidRef<'_>, to: &Jid, limit: usize) {
        let octets = octets_of(from, to);
        let sender = from.to_jid();
        let mut guard = self.0.lock();
        let noted = &mut *guard;
        if let Some(known) = noted.senders.get_mut(&sender).and_then(|recipients| recipients.get_mut(to)) {
            *known = node;
            return;
        }
        if noted.octets + octets > MAX_OCTETS {
            return;
        }
        let recipients = noted.senders.entry(sender).or_default();
        if recipients.len() < limit {
            recipients.insert(to.clone(), node);
            noted.octets += octets;
        }
    }

    /// The recipient has received `unavailable`, from whichever node.
    fn forget(&self, from: JidRef<'_>, to: &Jid) {
        let mut noted = self.0.lock();
        let sender = from.to_jid();
        let Some(recipients) = noted.senders.get_mut(&sender) else { return };
        let found = recipients.remove(to).is_some();
        if recipients.is_empty() {
            noted.senders.remove(&sender);
        }
        if found {
            noted.octets -= octets_of(from, to);
        }
    }

    /// The senders for which `select` is true.
    fn senders(&self, select: impl Fn(&Jid) -> bool) -> Vec<Jid> {
        self.0.lock().senders.keys().filter(|from| select(from)).cloned().collect()
    }

    /// Removes and returns the senders on a node, with their recipients, and these others. Those of one sender follow each other.
    fn take_of(&self, node: Option<NodeId>, others: &HashSet<Jid>) -> Vec<(Jid, Jid)> {
        let mut taken = Vec::new();
        let mut guard = self.0.lock();
        let noted = &mut *guard;
        noted.senders.retain(|from, recipients| {
            let all = others.contains(from);
            let gone = recipients.extract_if(.., |_, at| all || Some(*at) == node);
            taken.extend(gone.map(|(to, _)| (from.clone(), to)));
            !recipients.is_empty()
        });
        noted.octets -= taken.iter().map(|(from, to)| octets_of(from.as_ref(), to)).sum::<usize>();
        taken
    }
}

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

impl ClusteredNode<'_> {
    /// Remembers directed presence of a session on another node until the session sends `unavailable` to its recipient.
    pub(super) fn note_directed_presence(
        &self,
        node: NodeId,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: Option<&Jid>,
    ) {
        let StanzaKind::Presence(ty @ (PresenceType::Available | PresenceType::Unavailable)) = stanza.kind()
        else {
            return;
        };
        let Some(to) = to.filter(|to| from.resource().is_some() && to.as_ref().bare() != from.bare()) else {
            return;
        };
        if ty == PresenceType::Unavailable {
            return self.state.directed_presence.forget(from, to);
        }
        // What another node only passes on comes from a session elsewhere, and services have no sessions.
        let location = self.cluster.locate(self.routing_table.hash(from), None);
        let claim = location.claims().iter().find(|claim| claim.node == node);
        if claim.is_none_or(|at| self.is_subscribed(to, &at.claim)) {
            return;
        }
        let limit = usize::from(self.limits().directed_presence_entities);
        self.state.directed_presence.note(node, from, to, limit);
    }

    /// Whether an account here is subscribed to the presence of another one: that is withdrawn with all presence of a lost node.
    fn is_subscribed(&self, here: &Jid, other: &Claim) -> bool {
        let account = self.routing_table.find(here.as_ref().bare());
        account.is_some_and(|account| {
            account.with(|state| {
                state.contacts().iter().any(|contact| {
                    contact.subscription.contains(Subscription::TO)
                        && (contact.hash, Some(contact.id.0)) == (other.address, other.number)
                })
            })
        })
    }

    /// The node has left: takes the directed presence of sessions there, and of those that may have moved there. Their account has no
    /// session any more.
    pub(super) fn take_directed_presence(&self, node: NodeId, claims: &[Claim]) -> Vec<(Jid, Jid)> {
        self.state.directed_presence.take_of(Some(node), &self.senders_without_session(claims))
    }

    /// A node with these claims has left in order: what ended there has sent `unavailable`. What has moved from there may be at any node with
    /// sessions of its account.
    pub(super) fn forget_directed_presence(&self, claims: &[Claim]) {
        self.state.directed_presence.take_of(None, &self.senders_without_session(claims));
    }

    /// The senders of these claims whose account has no session any more.
    fn senders_without_session(&self, claims: &[Claim]) -> HashSet<Jid> {
        let addresses: HashSet<u64> = claims.iter().map(|claim| claim.address).collect();
        let of_claims = |from: &Jid| addresses.contains(&self.routing_table.hash(from.as_ref()));
        let senders = self.state.directed_presence.senders(of_claims);
        senders.into_iter().filter(|from| !self.has_session(from)).collect()
    }

    /// Whether the account of an address has a session on any node.
    fn has_session(&self, jid: &Jid) -> bool {
        let hash = self.routing_table.hash(jid.as_ref());
        self.routing_table.find(jid.as_ref()).is_some()
            || !self.cluster.locate(hash, None).claims().is_empty()
    }

    /// Sends `unavailable` for sessions that are gone with their node, and asks for those that may have moved to another. The entries of
    /// one session follow each other.
    pub(super) fn withdraw_directed_presence(&self, entries: Vec<(Jid, Jid)>) {
        if entries.is_empty() {
            return;
        }
        let node = self.owned();
        let task = async move {
            let node = node.view();
            for of_session in entries.chunk_by(|(one, _), (other, _)| one == other) {
                let Some((from, _)) = of_session.first() else { continue };
                let account = node.routing_table.find(from.as_ref());
                if account.is_some_and(|a| from.resource().is_some_and(|name| a.session(name).is_some())) {
                    // It has moved here.
                    continue;
                }
                let location = node.cluster.locate(node.routing_table.hash(from.as_ref()), None);
                let others: Vec<NodeId> = location.other_nodes(node.cluster.node()).collect();
                let recipient = Recipient::Address(from.as_ref().bare().to_jid());
                for (_, to) in of_session {
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
            let may_have = |name: &str| {
                let peers = state.peers().iter();
                let of = peers.filter(|peer| {
                    !peer.reported || peer.sessions.iter().any(|session| *session.resource == *name)
                });
                of.map(|peer| peer.node).collect()
            };
            match resource {
                Some(resource) => may_have(resource),
                None => state.peers().iter().map(|peer| peer.node).collect(),
            }
        });
        self.pass_probe_on(&account_recipient(account), stanza, answered, &nodes)
    }

    /// Sends a probe to the first of these nodes that takes it; false if none does. Without it, one that was answered is not refused, so
    /// such probes take no more room in the queue than presence.
    fn pass_probe_on(
        &self,
        recipient: &Recipient,
        stanza: &SharedStanza,
        answered: bool,
        nodes: &[NodeId],
    ) -> bool {
        let own = self.cluster.node();
        let mut rest = nodes;
        while let Some((node, further)) = rest.split_first() {
            rest = further;
            let recipients = vec![recipient.clone()];
            let octets = encode(answered, further, stanza);
            let envelope = Envelope::new(DIRECTED_PROBE, EnvelopeClass::Control, own, recipients, octets);
            let sent = match answered {
                true => self.hand_over_presence(*node, envelope).is_ok(),
                false => self.cluster.deliver(*node, envelope).is_ok(),
            };
            if sent {
                return true;
            }
        }
        false
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
    fn directed_presence_is_remembered_until_it_is_withdrawn_and_bounded() {
        let noted = DirectedPresenceFromPeers::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let [romeo, juliet] = ["romeo@x/r", "juliet@x"].map(|text| Jid::parse(text).unwrap());
        for node in [a, a, b] {
            noted.note(node, romeo.as_ref(), &juliet, 9);
        }
        let take_of = |node| noted.take_of(Some(node), &HashSet::new());
        assert!(take_of(a).is_empty(), "it has moved");
        assert_eq!(take_of(b), [(romeo.clone(), juliet.clone())]);
        assert_eq!(noted.0.lock().octets, 0);
        noted.note(a, romeo.as_ref(), &juliet, 9);
        for _ in 0..2 {
            noted.forget(romeo.as_ref(), &juliet);
        }
        assert!(take_of(a).is_empty() && noted.0.lock().octets == 0);
        noted.note(a, romeo.as_ref(), &juliet, 9);
        assert!(noted.take_of(Some(b), &HashSet::from([juliet.clone()])).is_empty());
        assert!(noted.take_of(None, &HashSet::new()).is_empty());
        assert_eq!(noted.take_of(Some(b), &HashSet::from([romeo.clone()])).len(), 1, "it may have moved");
        assert!(noted.0.lock().senders.is_empty() && noted.0.lock().octets == 0);
        for number in 0..40_000 {
            let from = Jid::parse(&format!("romeo@x/{number:0>1000}")).unwrap();
            noted.note(a, from.as_ref(), &juliet, 9);
        }
        let octets = noted.0.lock().octets;
        assert!(octets <= MAX_OCTETS && octets > MAX_OCTETS / 2);
        for number in 0..20 {
            noted.note(b, romeo.as_ref(), &Jid::parse(&format!("{number}@x")).unwrap(), 9);
        }
        take_of(a);
        for number in 0..20 {
            noted.note(b, romeo.as_ref(), &Jid::parse(&format!("{number}@x")).unwrap(), 9);
        }
        assert_eq!(take_of(b).len(), 9, "the recipients of one sender are bounded");
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
