//! Presence between nodes (RFC 6121, sections 4.2 to 4.5): changes, probes and answers, one envelope for each node with
//! contacts.
//!
//! Contacts are recipients by number: the sender has the numbers from its roster, and needs no address. The receiver has
//! the addresses, so it applies blocklists and the contact's roster. Presence that arrives before the approval of a
//! subscription is not shown: the sessions of the subscriber fetch it when their roster has the approval. `presence_change.rs`
//! has the format of a change.
//!
//! ```text
//! probe    2 + n full address of the session that became available, 4 number of its account
//! answer   2 + n resource that the answer is for; then for each presence 4 number of the account, 4 + n
//! ```
//!
//! All are retained until the other node has handled them. What its queue refuses becomes due
//! (`due_presence`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{AddressReference, Envelope, EnvelopeClass, EnvelopeKind, NodeId, Recipient, RefusalReason};
use jid::JidRef;
use stanza::{PresenceType, StanzaKind};
use store::{AddressId, Subscription};
use throng_core::account::{Account, Contact};
use throng_core::router::RoutingWork;
use throng_core::router::peer_routing::address_number;
use throng_core::session::{QueuedStanza, Session, ToRewrite};
use throng_core::shared_stanza::SharedStanza;

use crate::ClusteredNode;
use crate::envelope_kinds::{PRESENCE, PROBE, PROBE_ANSWER};
use crate::notices::{read_text, write_text};
use crate::presence_change::{
    OutgoingPresenceChange, PresenceChange, decode_change, is_presence_of_session, read_id,
};

/// Octets after which an answer continues in a further envelope.
const ANSWER_BYTES: usize = 128 << 10;

type Grouped = BTreeMap<NodeId, Vec<Recipient>>;

/// Whether a session has not changed its presence since it was read.
fn is_last_presence(session: &Session, presence: &SharedStanza) -> bool {
    let same = |last: &SharedStanza| std::ptr::eq(last.bytes(), presence.bytes());
    session.with(|state| state.presence.as_ref().is_some_and(same))
}

fn contacts_to_probe(session: &Session) -> Vec<Contact> {
    let account = &session.account;
    let mut contacts: Vec<Contact> = account.with(|state| {
        state.contacts().iter().copied().filter(|c| c.subscription.contains(Subscription::TO)).collect()
    });
    contacts.push(own_contact(account));
    contacts
}

/// The account's other resources are reached like contacts.
pub(super) fn own_contact(account: &Account) -> Contact {
    Contact { hash: account.hash, id: account.id, subscription: Subscription::NONE, is_foreign: false }
}

/// Whether a node of this deployment can have sessions of a contact. The number of a guest is unknown.
fn may_be_here(contact: &Contact) -> bool {
    contact.id != AddressId::UNASSIGNED && !contact.is_foreign
}

fn recipients_of(contacts: &[Contact]) -> Vec<Recipient> {
    let known = contacts.iter().filter(|contact| may_be_here(contact));
    known.map(|one| Recipient::Account(AddressReference { hash: one.hash, number: one.id.0 })).collect()
}

fn encode_probe(session: &Session) -> Option<Vec<u8>> {
    let own_number = address_number(&session.account)?;
    let mut octets = Vec::new();
    write_text(&mut octets, session.jid.as_str());
    octets.extend(own_number.get().to_be_bytes());
    Some(octets)
}

/// `unavailable` of an address.
pub(super) fn unavailable(from: JidRef<'_>) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("presence").attr("from", from.as_str()).attr("type", "unavailable").end();
    })
}

impl ClusteredNode<'_> {
    /// The nodes on which contacts have sessions, with these contacts as recipients.
    fn group_by_node<'a>(&self, contacts: impl Iterator<Item = &'a Contact>) -> Grouped {
        let own = self.cluster.node();
        let mut nodes = Grouped::new();
        for contact in contacts.filter(|contact| may_be_here(contact)) {
            let location = self.cluster.locate(contact.hash, Some(contact.id.0));
            for node in location.other_nodes(own) {
                let reference = AddressReference { hash: contact.hash, number: contact.id.0 };
                nodes.entry(node).or_default().push(Recipient::Account(reference));
            }
        }
        nodes
    }

    /// All other nodes, with the contacts as recipients.
    ///
    /// What a session sends first and last goes to all nodes, which search their routing tables: two contacts that become
    /// available on two nodes at the same time are in neither directory yet. A node that receives what its sender did not
    /// know to be for one of its accounts sends a probe, so what the session sends in between finds them in the
    /// directory.
    fn on_all_nodes(&self, contacts: &[Contact]) -> Grouped {
        let recipients = recipients_of(contacts);
        if recipients.is_empty() {
            return Grouped::new();
        }
        let own = self.cluster.node();
        let others = self.cluster.members().into_iter().filter(|member| member.node != own);
        others.map(|member| (member.node, recipients.clone())).collect()
    }

    fn send_presence(
        &self,
        kind: EnvelopeKind,
        node: NodeId,
        recipients: &[Recipient],
        octets: &[u8],
    ) -> Result<(), RefusalReason> {
        let own = self.cluster.node();
        for part in recipients.chunks(Envelope::MAX_RECIPIENTS) {
            let envelope = Envelope::new(kind, EnvelopeClass::Control, own, part.to_vec(), octets);
            self.hand_over_presence(node, envelope)?;
        }
        Ok(())
    }

    /// Sends presence to contacts on other nodes.
    pub(super) fn broadcast_to_peers(
        &self,
        sender: &Arc<Account>,
        contacts: &[Contact],
        stanza: &SharedStanza,
    ) {
        let leaves = stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable);
        let nodes = if leaves { self.on_all_nodes(contacts) } else { self.group_by_node(contacts.iter()) };
        if !nodes.is_empty() {
            let change = OutgoingPresenceChange::with_blocklist(self, sender, stanza);
            self.send_change(sender, &change, nodes);
        }
    }

    fn send_change(&self, sender: &Arc<Account>, change: &OutgoingPresenceChange<'_>, nodes: Grouped) {
        for (node, recipients) in nodes {
            if let Err(reason) = self.send_change_to(node, change, &recipients) {
                tracing::debug!(account = %sender.jid, %node, %reason, "presence is delayed");
                self.presence_is_due(node, sender);
            }
        }
    }

    fn send_change_to(
        &self,
        node: NodeId,
        change: &OutgoingPresenceChange<'_>,
        recipients: &[Recipient],
    ) -> Result<(), RefusalReason> {
        for part in recipients.chunks(Envelope::MAX_RECIPIENTS) {
            self.send_part(node, change, part)?;
        }
        Ok(())
    }

    /// Sends a change to recipients of one envelope, or of several, if the entries that concern them are too long for one.
    fn send_part(
        &self,
        node: NodeId,
        change: &OutgoingPresenceChange<'_>,
        recipients: &[Recipient],
    ) -> Result<(), RefusalReason> {
        let octets = match change.encode_for(self, recipients) {
            Some(octets) => octets,
            None if recipients.len() > 1 => {
                let (first, second) = recipients.split_at(recipients.len() / 2);
                self.send_part(node, change, first)?;
                return self.send_part(node, change, second);
            }
            // The end of a session is not hidden then. Anything else might be shown to what is blocked.
            None if change.is_unavailable() => change.encode_without_entries(),
            None => {
                tracing::warn!(%node, "a contact does not receive presence: too many entries of the blocklist concern it");
                return Ok(());
            }
        };
        self.send_presence(PRESENCE, node, recipients, &octets)
    }

    /// Sends presence to one contact on all other nodes. With `hides`, the sender's blocklist applies.
    pub(super) fn send_to_contact_elsewhere(
        &self,
        sender: &Arc<Account>,
        contact: &Contact,
        stanza: &SharedStanza,
        hides: bool,
    ) {
        let nodes = self.on_all_nodes(std::slice::from_ref(contact));
        self.send_to_one_elsewhere(sender, contact, stanza, nodes, hides);
    }

    fn send_to_one_elsewhere(
        &self,
        sender: &Arc<Account>,
        contact: &Contact,
        stanza: &SharedStanza,
        nodes: Grouped,
        hides: bool,
    ) {
        let mut change = match hides {
            true => OutgoingPresenceChange::with_blocklist(self, sender, stanza),
            false => OutgoingPresenceChange::without_blocklist(sender, stanza),
        };
        let number = Some(contact.id.0).filter(|_| contact.id != AddressId::UNASSIGNED);
        let location = self.cluster.locate(contact.hash, number);
        let own = self.cluster.node();
        let (located, others): (Grouped, Grouped) =
            nodes.into_iter().partition(|(node, _)| location.contains(own, *node));
        self.send_change(sender, &change, located);
        change.unlocated = true;
        self.send_change(sender, &change, others);
    }

    /// As [`ClusteredNode::send_to_contact_elsewhere`], for an address whose number is not known.
    pub(super) fn send_to_address_elsewhere(
        &self,
        sender: &Arc<Account>,
        to: JidRef<'_>,
        stanza: &SharedStanza,
        hides: bool,
    ) {
        let hash = self.routing_table.hash(to);
        let contact =
            Contact { hash, id: AddressId::UNASSIGNED, subscription: Subscription::NONE, is_foreign: false };
        let own = self.cluster.node();
        let others = self.cluster.members().into_iter().filter(|member| member.node != own);
        let recipient = || vec![Recipient::Address(to.to_jid())];
        let nodes = others.map(|member| (member.node, recipient())).collect();
        self.send_to_one_elsewhere(sender, &contact, stanza, nodes, hides);
    }

    /// Sends the presence of an account's sessions here to its contacts and its own sessions on one node. With
    /// `withdraws`, contacts first receive `unavailable` for all resources; that node requests those of other nodes again.
    pub(super) fn send_presence_of(
        &self,
        account: &Arc<Account>,
        node: NodeId,
        withdraws: bool,
    ) -> Result<(), RefusalReason> {
        let from = Subscription::FROM;
        let mut contacts: Vec<Contact> = account.with(|state| {
            state.contacts().iter().copied().filter(|contact| contact.subscription.contains(from)).collect()
        });
        let send = |contacts: &[Contact], stanza: &SharedStanza| {
            let Some(recipients) = self.group_by_node(contacts.iter()).remove(&node) else { return Ok(()) };
            self.send_change_to(
                node,
                &OutgoingPresenceChange::with_blocklist(self, account, stanza),
                &recipients,
            )
        };
        if withdraws && let Some(stanza) = unavailable(account.jid.as_ref()) {
            send(&contacts, &stanza)?;
        }
        contacts.push(own_contact(account));
        for session in account.sessions() {
            if let Some(presence) = session.with(|state| state.presence.clone()) {
                send(&contacts, &presence)?;
                if !is_last_presence(&session, &presence) {
                    self.presence_is_due(node, account);
                }
            }
        }
        Ok(())
    }

    /// Presence from another node for contacts here. False if the octets are none.
    pub(super) fn on_presence(&self, envelope: &Envelope) -> bool {
        let Some(change) = decode_change(&envelope.bytes) else { return false };
        self.forget_broadcast_presence(envelope, &change);
        let hash = self.routing_table.hash(change.from.as_ref());
        if self.is_broadcasting(hash) {
            // The session of an address may have moved: its `unavailable` from here must not follow what it sent there.
            let (node, envelope, size) = (self.owned(), envelope.clone(), envelope.encoded_len());
            self.after_broadcasts(hash, size, move || {
                // Decoded again, because a decoded blocklist is much larger than its octets.
                if let Some(change) = decode_change(&envelope.bytes) {
                    node.view().deliver_change(&envelope, &change);
                }
            });
        } else {
            self.deliver_change(envelope, &change);
        }
        true
    }

    /// Presence of a contact or of another resource that has arrived where a session was a moment ago, and may be outdated: what
    /// there is is fetched. An outdated `available` would stay if that session has ended. False if the octets are none.
    pub(super) fn on_forwarded_presence(&self, envelope: &Envelope) -> bool {
        let Some(change) = decode_change(&envelope.bytes) else { return false };
        if change.stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable) {
            self.deliver_change(envelope, &change);
        }
        for account in self.accounts_of(envelope) {
            if account.jid.as_ref() == change.from.as_ref().bare() {
                self.show_other_resources(&account);
            } else {
                self.fetch_presence(&account, change.from.as_ref());
            }
        }
        true
    }

    fn deliver_change(&self, envelope: &Envelope, change: &PresenceChange) {
        let PresenceChange { unlocated, blocked, sender, stanza, from } = change;
        let hidden = |jid: JidRef<'_>| blocked.as_ref().is_some_and(|list| list.matches(jid));
        let leaves = stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable);
        // All resources of the account are withdrawn, those of other nodes, too.
        let withdraws = from.resource().is_none() && leaves;
        for account in self.accounts_of(envelope) {
            if hidden(account.jid.as_ref()) || account.blocks(from.as_ref()) {
                continue;
            }
            // Of a subscription that began or ended meanwhile. If it began, the sessions here request the presence when their
            // roster has it.
            if !leaves && !self.may_see(&account, from.as_ref(), *sender) {
                continue;
            }
            if *unlocated && !leaves {
                self.probe_sender(&account, from.as_ref(), envelope.header.origin);
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
            if withdraws {
                self.restore_withdrawn(&account, from.as_ref());
            }
        }
    }

    /// A node sent presence of a contact and does not know that this account is here: until it does, it sends no change of
    /// it. The probe follows the claim of this account on the way there, so its answer has the last presence. What was sent is
    /// not shown: if it comes late, the session may have moved or ended, and no answer would say so.
    fn probe_sender(&self, account: &Arc<Account>, contact: JidRef<'_>, node: NodeId) {
        let hash = self.routing_table.hash(contact);
        let mut contacts = self.subscriptions_to(account, hash);
        if hash == account.hash {
            contacts.push(own_contact(account));
        }
        let reference =
            |contact: &Contact| Recipient::Account(AddressReference { hash, number: contact.id.0 });
        let recipients: Vec<Recipient> =
            contacts.iter().filter(|contact| may_be_here(contact)).map(reference).collect();
        for session in account.sessions().iter().filter(|session| session.is_available()) {
            self.send_probe(session, [(node, recipients.clone())].into());
        }
    }

    /// The contacts with this hash to whose presence an account is subscribed.
    pub(super) fn subscriptions_to(&self, account: &Account, hash: u64) -> Vec<Contact> {
        account.with(|state| {
            let of = |known: &&Contact| known.hash == hash && known.subscription.contains(Subscription::TO);
            state.contacts().iter().filter(of).copied().collect()
        })
    }

    /// Whether the roster view of an account, or the account itself, accepts presence of this address, whose account has this
    /// number.
    fn may_see(&self, account: &Account, from: JidRef<'_>, sender: AddressId) -> bool {
        let hash = self.routing_table.hash(from);
        let subscription = || account.with(|state| state.find(hash, sender));
        account.jid.as_ref() == from.bare() || subscription().contains(Subscription::TO)
    }

    /// An account has lost all resources of a contact. It receives the presence of those that the contact still has: on this
    /// node, and with answers of the others.
    fn restore_withdrawn(&self, account: &Arc<Account>, contact: JidRef<'_>) {
        self.send_presence_of_contact_here(account, contact);
        let hash = self.routing_table.hash(contact);
        let known = self.subscriptions_to(account, hash);
        for session in account.sessions().iter().filter(|session| session.is_available()) {
            self.probe_contacts(session, &known);
        }
    }

    /// Sends the presence of a contact's sessions here to those of an account that may see it.
    pub(super) fn send_presence_of_contact_here(&self, account: &Arc<Account>, contact: JidRef<'_>) {
        let Some(contact) = self.routing_table.find(contact) else { return };
        if !contact.subscription(account).contains(Subscription::FROM) {
            return;
        }
        let recipients = account.sessions();
        let sees = |session: &&Arc<Session>| session.is_available() && !contact.blocks(session.full());
        let recipients: Vec<&Arc<Session>> = recipients.iter().filter(sees).collect();
        for session in contact.sessions() {
            if account.blocks(session.full()) {
                continue;
            }
            if let Some(presence) = session.with(|state| state.presence.clone()) {
                for recipient in &recipients {
                    self.enqueue(recipient, presence.clone(), ToRewrite::Bare);
                }
            }
        }
    }

    /// The recipients of an envelope that have sessions here.
    pub(super) fn accounts_of(&self, envelope: &Envelope) -> impl Iterator<Item = Arc<Account>> {
        envelope.recipients.iter().filter_map(|recipient| self.find_account(recipient))
    }

    /// Requests the presence of contacts and of the account's other resources on other nodes, for a session that became
    /// available (RFC 6121, section 4.3). It arrives later. Its own presence goes to the contacts that the broadcast
    /// does not find.
    pub(super) fn probe_peers(&self, session: &Arc<Session>) {
        let account = &session.account;
        self.send_probe(session, self.on_all_nodes(&contacts_to_probe(session)));
        let Some(presence) = session.with(|state| state.presence.clone()) else { return };
        let mut subscribers: Vec<Contact> = account.with(|state| {
            let from = state.contacts().iter().filter(|c| c.subscription.contains(Subscription::FROM));
            from.copied().collect()
        });
        subscribers.push(own_contact(account));
        // Contacts are sorted, and so are the recipients.
        let mut nodes = self.on_all_nodes(&subscribers);
        for (node, found) in self.group_by_node(subscribers.iter()) {
            if let Some(recipients) = nodes.get_mut(&node) {
                let mut found = found.iter().peekable();
                recipients.retain(|recipient| found.next_if_eq(&recipient).is_none());
            }
        }
        nodes.retain(|_, recipients| !recipients.is_empty());
        if !nodes.is_empty() {
            let mut change = OutgoingPresenceChange::with_blocklist(self, account, &presence);
            change.unlocated = true;
            self.send_change(account, &change, nodes);
        }
    }

    /// Requests the presence of these contacts on other nodes.
    pub(super) fn probe_contacts(&self, session: &Arc<Session>, contacts: &[Contact]) {
        self.send_probe(session, self.group_by_node(contacts.iter()));
    }

    fn send_probe(&self, session: &Arc<Session>, nodes: Grouped) {
        let Some(octets) = encode_probe(session) else { return };
        for (node, recipients) in nodes {
            if self.send_presence(PROBE, node, &recipients, &octets).is_err() {
                self.probe_is_due(node, session);
            }
        }
    }

    /// As [`ClusteredNode::probe_peers`], on one node: also for contacts that have no session there, because one may have moved from there. Then
    /// that node passes the probe on.
    pub(super) fn probe_on(&self, session: &Session, node: NodeId) -> Result<(), RefusalReason> {
        let Some(octets) = encode_probe(session) else { return Ok(()) };
        self.send_presence(PROBE, node, &recipients_of(&contacts_to_probe(session)), &octets)
    }

    /// A probe for accounts of which sessions had moved here a moment ago, from the node where they were. False if the octets are none.
    pub(super) fn on_forwarded_probe(&self, envelope: &Envelope) -> bool {
        let mut rest = &envelope.bytes[..];
        let Some(node) = read_text(&mut rest).and_then(NodeId::new) else { return false };
        if node == self.cluster.node() {
            return self.answer_probe_here(rest, envelope);
        }
        // A node that has left needs no answer.
        let is_member = self.cluster.members().iter().any(|member| member.node == node);
        !is_member || self.answer_probe(node, rest, envelope)
    }

    /// As [`ClusteredNode::answer_probe`], for a session here, to whose node the contacts have moved since it became available.
    fn answer_probe_here(&self, mut rest: &[u8], envelope: &Envelope) -> bool {
        let Some(prober) = read_text(&mut rest).and_then(JidRef::from_normalised) else { return false };
        if read_id(&mut rest).filter(|_| rest.is_empty()).is_none() {
            return false;
        }
        if let Some(prober) = self.routing_table.find(prober.bare()) {
            for contact in self.accounts_of(envelope) {
                self.send_presence_of_contact_here(&prober, contact.jid.as_ref());
            }
        }
        true
    }

    /// Another node requests presence for a session there. False if the octets are no probe.
    pub(super) fn on_probe(&self, node: NodeId, envelope: &Envelope) -> bool {
        let is_valid = self.answer_probe(node, &envelope.bytes, envelope);
        if is_valid {
            self.forward_probe(node, envelope);
        }
        is_valid
    }

    /// Answers the probe in these octets for the recipients of an envelope.
    fn answer_probe(&self, node: NodeId, mut rest: &[u8], envelope: &Envelope) -> bool {
        let Some(prober) = read_text(&mut rest).and_then(JidRef::from_normalised) else { return false };
        let id = read_id(&mut rest).filter(|_| rest.is_empty());
        let (Some(id), Some(resource)) = (id, prober.resource()) else { return false };
        let hash = self.routing_table.hash(prober);
        let recipient = vec![Recipient::Account(AddressReference { hash, number: id.0 })];
        let mut first = Vec::new();
        write_text(&mut first, resource);
        let mut octets = first.clone();
        let (mut answered, mut sent) = (Vec::new(), Vec::new());
        for account in self.accounts_of(envelope) {
            let own = account.jid.as_ref() == prober.bare();
            // The contact's roster is authoritative.
            let visible = own || account.with(|state| state.find(hash, id)).contains(Subscription::FROM);
            if !visible || !own && account.blocks(prober) {
                continue;
            }
            for session in account.sessions() {
                let Some(presence) = session.with(|state| state.presence.clone()) else { continue };
                if octets.len() > ANSWER_BYTES {
                    let outcome = self.send_presence(PROBE_ANSWER, node, &recipient, &octets);
                    self.answer_later(node, &mut answered, outcome);
                    octets.clone_from(&first);
                }
                let length = u32::try_from(presence.bytes().len()).unwrap_or_default();
                octets.extend(account.id.get().to_be_bytes());
                octets.extend(length.to_be_bytes());
                octets.extend(presence.bytes());
                sent.push((session, presence));
            }
            answered.push(account);
        }
        if octets.len() > first.len() {
            let outcome = self.send_presence(PROBE_ANSWER, node, &recipient, &octets);
            self.answer_later(node, &mut answered, outcome);
        }
        // Changed meanwhile: the change may have been queued before the answer.
        for (session, presence) in sent {
            if !is_last_presence(&session, &presence) {
                self.presence_is_due(node, &session.account);
            }
        }
        true
    }

    /// Accounts whose presence an answer could not take are due.
    fn answer_later(&self, node: NodeId, answered: &mut Vec<Arc<Account>>, sent: Result<(), RefusalReason>) {
        for account in answered.drain(..) {
            if sent.is_err() {
                self.presence_is_due(node, &account);
            }
        }
    }

    /// The answer to a probe. False if the octets are none.
    pub(super) fn on_probe_answer(&self, envelope: &Envelope, work: &mut RoutingWork) -> bool {
        let mut rest = &envelope.bytes[..];
        let Some(resource) = read_text(&mut rest) else { return false };
        let session = self.accounts_of(envelope).next().and_then(|account| account.session(resource));
        while !rest.is_empty() {
            let Some(sender) = read_id(&mut rest) else { return false };
            let Some((length, after)) = rest.split_first_chunk() else { return false };
            let length = u32::from_be_bytes(*length) as usize;
            let Some((bytes, after)) = after.split_at_checked(length) else { return false };
            rest = after;
            let Some(presence) = SharedStanza::read(bytes).filter(is_presence_of_session) else {
                return false;
            };
            let Some(from) = presence.sender() else { return false };
            if session.is_none() {
                self.forward_answer(envelope, sender, &presence);
            }
            if let Some(session) = session.as_ref().filter(|session| session.is_available())
                && !session.account.blocks(from.as_ref())
                && self.may_see(&session.account, from.as_ref(), sender)
            {
                self.push(session, presence, ToRewrite::Bare, work);
            }
        }
        true
    }
}
