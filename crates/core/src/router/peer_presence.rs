//! Presence between nodes: changes, probes and answers, one envelope for each node with contacts.
//!
//! Contacts are recipients by number: the sender has the numbers from its roster, and needs no address. The receiver has
//! the addresses, so what is decided by them (blocklists, the contact's roster) is decided there.
//!
//! ```text
//! change   2 number of entries of the sender's blocklist that may cover a recipient, each 2 + n; then the presence
//! probe    2 + n full address of the session that became available, 4 number of its account
//! answer   2 + n resource that the answer is for; then for each presence 4 + n
//! ```
//!
//! # Pitfalls
//!
//! All three have the class of presence: they may be lost, and an earlier one never follows a later one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{AddressReference, Envelope, EnvelopeClass, EnvelopeKind, NodeId, Recipient};
use jid::{Jid, JidRef};
use store::{AddressId, Subscription};

use super::RoutingWork;
use super::remote::number;
use crate::account::{Account, Contact};
use crate::blocklist::Blocklist;
use crate::node::Node;
use crate::session::{QueuedStanza, Session, ToRewrite};
use crate::shared_stanza::SharedStanza;

/// Presence for contacts.
pub(super) const PRESENCE: EnvelopeKind = EnvelopeKind::Engine(2);
/// A session became available: the presence of its contacts is wanted.
pub(super) const PROBE: EnvelopeKind = EnvelopeKind::Engine(3);
/// That presence.
pub(super) const PROBE_ANSWER: EnvelopeKind = EnvelopeKind::Engine(4);

/// Octets after which an answer continues in a further envelope.
const ANSWER_BYTES: usize = 128 << 10;

type Grouped = BTreeMap<NodeId, Vec<Recipient>>;

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Addresses and their parts are shorter than 64 kB.
    let length = u16::try_from(text.len()).unwrap_or_default();
    out.extend(length.to_be_bytes());
    out.extend(&text.as_bytes()[..length.into()]);
}

fn read_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

fn encode_change(entries: &[&Jid], stanza: &SharedStanza) -> Vec<u8> {
    let entries = &entries[..entries.len().min(u16::MAX.into())];
    let mut out = Vec::with_capacity(stanza.bytes().len() + 2);
    out.extend(u16::try_from(entries.len()).unwrap_or(u16::MAX).to_be_bytes());
    entries.iter().for_each(|entry| write_text(&mut out, entry.as_str()));
    out.extend(stanza.bytes());
    out
}

fn decode_change(mut rest: &[u8]) -> Option<(Option<Blocklist>, SharedStanza, Jid)> {
    let (count, after) = rest.split_first_chunk()?;
    rest = after;
    let mut entries = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        entries.push(JidRef::from_normalised(read_text(&mut rest)?)?.to_jid());
    }
    let stanza = SharedStanza::read(rest)?;
    let from = stanza.head().from(stanza.bytes()).and_then(|from| Jid::parse(&from).ok())?;
    Some((Blocklist::new(&entries), stanza, from))
}

impl Node {
    /// The nodes on which contacts have sessions, with these contacts as recipients.
    fn group_by_node<'a>(&self, contacts: impl Iterator<Item = &'a Contact>) -> Grouped {
        let own = self.cluster.node();
        let mut nodes = Grouped::new();
        for contact in contacts.filter(|contact| contact.id != AddressId::UNASSIGNED) {
            let location = self.cluster.locate(contact.hash, Some(contact.id.0));
            for node in location.other_nodes(own) {
                let reference = AddressReference { hash: contact.hash, number: contact.id.0 };
                nodes.entry(node).or_default().push(Recipient::Account(reference));
            }
        }
        nodes
    }

    fn send_presence(&self, kind: EnvelopeKind, node: NodeId, recipients: Vec<Recipient>, octets: &[u8]) {
        let own = self.cluster.node();
        for part in recipients.chunks(Envelope::MAX_RECIPIENTS) {
            let envelope = Envelope::new(kind, EnvelopeClass::Presence, own, part.to_vec(), octets);
            if let Err(refused) = self.cluster.deliver(node, envelope) {
                tracing::debug!(%refused, "presence was lost");
            }
        }
    }

    /// Sends presence to contacts on other nodes.
    pub(super) fn broadcast_to_peers(&self, sender: &Account, contacts: &[Contact], stanza: &SharedStanza) {
        let nodes = self.group_by_node(contacts.iter());
        if nodes.is_empty() {
            return;
        }
        let blocked = sender.blocked();
        // Of the entries with a localpart, those whose hash is not that of a contact cover none.
        let may_cover = |entry: &&Jid| {
            let hash = self.routing_table.hash(entry.as_ref());
            entry.local().is_none() || contacts.iter().any(|contact| contact.hash == hash)
        };
        let entries: Vec<&Jid> = blocked.iter().flat_map(|list| list.entries()).filter(may_cover).collect();
        let octets = encode_change(&entries, stanza);
        for (node, recipients) in nodes {
            self.send_presence(PRESENCE, node, recipients, &octets);
        }
    }

    /// Presence from another node for contacts here. False if the octets are none.
    pub(super) fn on_presence(self: &Arc<Self>, envelope: &Envelope) -> bool {
        let Some((blocked, stanza, from)) = decode_change(&envelope.bytes) else { return false };
        let hidden = |jid: JidRef<'_>| blocked.as_ref().is_some_and(|list| list.matches(jid));
        for account in self.accounts_of(envelope) {
            if hidden(account.jid.as_ref()) || account.blocks(from.as_ref()) {
                continue;
            }
            let host = account.host();
            for session in account.sessions() {
                if session.is_available() && !hidden(session.full()) {
                    let item = QueuedStanza::new(stanza.clone(), ToRewrite::Bare);
                    // A full queue drops its oldest presence; a closed one needs none.
                    let _ = self.push_item_with_host(&host, &session, item, false);
                }
            }
        }
        true
    }

    /// The recipients of an envelope that have sessions here, those by number only.
    fn accounts_of(&self, envelope: &Envelope) -> impl Iterator<Item = Arc<Account>> {
        envelope.recipients.iter().filter_map(|recipient| match recipient {
            Recipient::Account(reference) => {
                let id = Some(AddressId(reference.number)).filter(|id| *id != AddressId::UNASSIGNED)?;
                self.routing_table.find_by_id(reference.hash, id)
            }
            Recipient::Address(_) | Recipient::Session(..) => None,
        })
    }

    /// Requests the presence of contacts and of the account's other resources on other nodes, for a session that became
    /// available (RFC 6121, section 4.3). It arrives later.
    pub fn probe_peers(&self, session: &Session) {
        if self.is_single() {
            return;
        }
        let account = &session.account;
        let mut contacts: Vec<Contact> = account.with(|state| {
            state.contacts().iter().copied().filter(|c| c.subscription.contains(Subscription::TO)).collect()
        });
        contacts.push(Contact { hash: account.hash, id: account.id, subscription: Subscription::NONE });
        self.probe_contacts(session, &contacts);
    }

    /// Requests the presence of these contacts on other nodes.
    pub(super) fn probe_contacts(&self, session: &Session, contacts: &[Contact]) {
        let Some(own_number) = number(&session.account) else { return };
        let nodes = self.group_by_node(contacts.iter());
        if nodes.is_empty() {
            return;
        }
        let mut octets = Vec::new();
        write_text(&mut octets, session.jid.as_str());
        octets.extend(own_number.get().to_be_bytes());
        for (node, recipients) in nodes {
            self.send_presence(PROBE, node, recipients, &octets);
        }
    }

    /// Another node requests presence for a session there. False if the octets are no probe.
    pub(super) fn on_probe(&self, node: NodeId, envelope: &Envelope) -> bool {
        let mut rest = &envelope.bytes[..];
        let Some(prober) = read_text(&mut rest).and_then(JidRef::from_normalised) else { return false };
        let id = <[u8; 4]>::try_from(rest).ok().and_then(|octets| AddressId::new(u32::from_be_bytes(octets)));
        let (Some(id), Some(resource)) = (id, prober.resource()) else { return false };
        let hash = self.routing_table.hash(prober);
        let recipient = vec![Recipient::Account(AddressReference { hash, number: id.0 })];
        let mut first = Vec::new();
        write_text(&mut first, resource);
        let mut octets = first.clone();
        for account in self.accounts_of(envelope) {
            let own = account.jid.as_ref() == prober.bare();
            // The contact's roster is authoritative.
            let visible = own || account.with(|state| state.find(hash, id)).contains(Subscription::FROM);
            if !visible || !own && account.blocks(prober.bare()) {
                continue;
            }
            for session in account.sessions() {
                let Some(presence) = session.with(|state| state.presence.clone()) else { continue };
                if octets.len() > ANSWER_BYTES {
                    self.send_presence(PROBE_ANSWER, node, recipient.clone(), &octets);
                    octets.clone_from(&first);
                }
                let length = u32::try_from(presence.bytes().len()).unwrap_or_default();
                octets.extend(length.to_be_bytes());
                octets.extend(presence.bytes());
            }
        }
        if octets.len() > first.len() {
            self.send_presence(PROBE_ANSWER, node, recipient, &octets);
        }
        true
    }

    /// The answer to a probe. False if the octets are none.
    pub(super) fn on_probe_answer(self: &Arc<Self>, envelope: &Envelope, work: &mut RoutingWork) -> bool {
        let mut rest = &envelope.bytes[..];
        let Some(resource) = read_text(&mut rest) else { return false };
        let session = self.accounts_of(envelope).next().and_then(|account| account.session(resource));
        while !rest.is_empty() {
            let Some((length, after)) = rest.split_first_chunk() else { return false };
            let length = u32::from_be_bytes(*length) as usize;
            let Some((bytes, after)) = after.split_at_checked(length) else { return false };
            rest = after;
            let Some(presence) = SharedStanza::read(bytes) else { return false };
            let Some(from) = presence.head().from(bytes).and_then(|from| Jid::parse(&from).ok()) else {
                return false;
            };
            if let Some(session) = session.as_ref().filter(|session| session.is_available())
                && !session.account.blocks(from.as_ref())
            {
                self.push(session, presence, ToRewrite::Bare, work);
            }
        }
        true
    }

    /// Whether a presence broadcast of the account reaches this address, here or on another node. Not for decisions about
    /// trust: an address without a session here is compared by its keyed hash only.
    pub fn reaches_by_broadcast(&self, account: &Account, contact: JidRef<'_>) -> bool {
        match self.routing_table.find(contact) {
            Some(contact) => account.subscription(&contact).contains(Subscription::FROM),
            None if self.is_single() => false,
            None => {
                let hash = self.routing_table.hash(contact);
                account.with(|state| {
                    state
                        .contacts()
                        .iter()
                        .any(|known| known.hash == hash && known.subscription.contains(Subscription::FROM))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_carries_the_blocklist_and_anything_else_is_refused() {
        let stanza = SharedStanza::parse(b"<presence from='a@b/c'/>").unwrap();
        let entries = ["x@y/z", "spam.example"].map(|text| Jid::parse(text).unwrap());
        let octets = encode_change(&entries.iter().collect::<Vec<_>>(), &stanza);
        let (blocked, read, from) = decode_change(&octets).unwrap();
        assert_eq!(blocked.unwrap().entries().len(), 2);
        assert_eq!((read.bytes(), from.as_str()), (stanza.bytes(), "a@b/c"));
        assert!((0..octets.len()).all(|length| decode_change(&octets[..length]).is_none()));
        assert!(decode_change(&encode_change(&[], &stanza)).unwrap().0.is_none());
        let nobody = SharedStanza::parse(b"<presence/>").unwrap();
        assert!(decode_change(&encode_change(&[], &nobody)).is_none(), "without a sender");
    }
}
