//! Presence of an account for one contact, from all nodes: after a change of a subscription or of the blocklist (RFC 6121,
//! section 3; XEP-0191, sections 3.3 and 3.4).
//!
//! Presence for a local contact goes directly to each node, like a broadcast: through the contact's home it could arrive after
//! a later broadcast. Each node sends for its own sessions: when it finds the change by comparing the roster before and after a
//! reload, or when another node requests it.
//!
//! ```text
//! 1        0 `unavailable`, 1 the last presence
//! the rest the address to which it goes
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::{Envelope, EnvelopeClass};
use jid::{Jid, JidRef};
use store::{AddressId, Subscription};
use throng_core::account::{Account, Contact};
use throng_core::blocklist::Blocklist;
use throng_core::effect::Effects;
use throng_core::router::RoutingWork;
use throng_core::router::peer_routing::address_number;
use throng_core::session::Session;
use throng_core::shared_stanza::SharedStanza;

use super::home::account_recipient;
use super::peer_presence::unavailable;
use crate::ClusteredNode;
use crate::envelope_kinds::PRESENCE_REQUEST;

fn encode(to: JidRef<'_>, available: bool) -> Vec<u8> {
    let mut octets = vec![u8::from(available)];
    octets.extend(to.as_str().as_bytes());
    octets
}

fn decode(octets: &[u8]) -> Option<(JidRef<'_>, bool)> {
    let (available, to) = octets.split_first()?;
    let to = std::str::from_utf8(to).ok().and_then(JidRef::from_normalised)?;
    (*available <= 1).then_some((to, *available == 1))
}

/// Entries that are in one of two lists only.
fn changed_entries(before: Option<&Blocklist>, after: Option<&Blocklist>) -> Vec<Jid> {
    let entries = |list: Option<&Blocklist>| -> BTreeSet<Jid> {
        list.map(|list| list.entries().iter().cloned().collect()).unwrap_or_default()
    };
    entries(before).symmetric_difference(&entries(after)).cloned().collect()
}

impl ClusteredNode<'_> {
    /// What a contact may see again is not sent to its sessions here: they fetch it when its roster has the approval.
    ///
    /// `unavailable` is also sent for the sessions on other nodes: the end of a subscription must not arrive before it (RFC 6121,
    /// sections 3.2.2 and 3.3.3), and these nodes learn of that later.
    pub(super) fn send_presence_to_contact(&self, account: &Arc<Account>, to: JidRef<'_>, available: bool) {
        let here = self.routing_table.find(to).filter(|_| !available);
        let of_session = |session: &Arc<Session>| {
            let presence = session.with(|state| state.presence.clone())?;
            if available { Some(presence) } else { unavailable(session.full()) }
        };
        let mut stanzas: Vec<SharedStanza> = account.sessions().iter().filter_map(of_session).collect();
        if !available {
            let peers = account.available_peers();
            stanzas.extend(peers.iter().filter_map(|full| unavailable(full.as_ref())));
        }
        for stanza in stanzas {
            if let Some(contact) = &here {
                self.send_to_account((&account.host(), account), contact, &stanza, available);
            }
            self.send_to_address_elsewhere(account, to, &stanza, available);
        }
    }

    /// Contacts whose subscription began or ended receive presence of the sessions here, and these receive that of contacts to
    /// which a subscription began.
    pub(super) fn roster_replaced(&self, account: &Arc<Account>, before: &[Contact], after: &[Contact]) {
        for contact in Contact::gained(before, after, Subscription::FROM) {
            self.send_presence_by_number(account, contact, true);
        }
        for contact in Contact::gained(after, before, Subscription::FROM) {
            self.send_presence_by_number(account, contact, false);
        }
        let began: Vec<Contact> = Contact::gained(before, after, Subscription::TO).copied().collect();
        self.fetch_presence_of(account, &began);
    }

    /// The sessions of an account receive the presence of a contact that has approved its subscription. See
    /// [`throng_core::Effect::FetchPresence`].
    pub(super) fn fetch_presence(&self, account: &Arc<Account>, contact: JidRef<'_>) {
        let hash = self.routing_table.hash(contact);
        self.fetch_presence_of(account, &self.subscriptions_to(account, hash));
    }

    /// Sessions that became available before the roster had these contacts have not requested their presence, and have not
    /// shown what arrived meanwhile.
    fn fetch_presence_of(&self, account: &Arc<Account>, contacts: &[Contact]) {
        if contacts.is_empty() {
            return;
        }
        for contact in contacts {
            if let Some(here) = self.routing_table.find_by_id(contact.hash, contact.id) {
                self.send_presence_of_contact_here(account, here.jid.as_ref());
            }
        }
        for session in account.sessions().iter().filter(|session| session.is_available()) {
            self.probe_contacts(session, contacts);
        }
    }

    fn send_presence_by_number(&self, account: &Arc<Account>, contact: &Contact, available: bool) {
        let here = self.routing_table.find_by_id(contact.hash, contact.id);
        for session in account.sessions() {
            let Some(presence) = session.with(|state| state.presence.clone()) else { continue };
            let stanza = if available { Some(presence) } else { unavailable(session.full()) };
            let Some(stanza) = stanza else { continue };
            if let Some(contact) = &here {
                self.send_to_account((&account.host(), account), contact, &stanza, available);
            }
            self.send_to_contact_elsewhere(account, contact, &stanza, available);
        }
    }

    /// Exchanges presence with contacts that a change of the blocklist covers or no longer covers (XEP-0191, sections 3.3 and
    /// 3.4), for the sessions here. With `everywhere`, with all of them, and with recipients of directed presence; otherwise only
    /// with sessions on other nodes, because the feature that made the change does the rest.
    ///
    /// Not implemented: entries of the form `domain/resource`.
    pub(super) async fn exchange_presence_after_block(
        &self,
        account: &Arc<Account>,
        (before, after): (Option<Arc<Blocklist>>, Option<Arc<Blocklist>>),
        everywhere: bool,
    ) {
        let covers = |list: &Option<Arc<Blocklist>>, jid: JidRef<'_>| {
            list.as_ref().is_some_and(|list| list.matches(jid))
        };
        let changed = changed_entries(before.as_deref(), after.as_deref());
        if everywhere
            && !changed.is_empty()
            && let Some(blocked) = &after
        {
            self.hide_directed_presence(account, blocked);
        }
        let contacts = self.contacts_of_entries(account, &changed);
        let ids: Vec<AddressId> = contacts.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let addresses = match self.stores.addresses.resolve(&ids).await {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::warn!(account = %account.jid, %error, "contacts see outdated presence after a change of the blocklist");
                return;
            }
        };
        for (id, jid) in addresses {
            let Some(contact) = contacts.get(&id) else { continue };
            let here = self.routing_table.find_by_id(contact.hash, contact.id).is_some();
            let shows = contact.subscription.contains(Subscription::FROM) && (everywhere || !here);
            let mut unblocked = false;
            let differs = |jid: JidRef<'_>| covers(&before, jid) != covers(&after, jid);
            if differs(jid.as_ref()) {
                let blocked = covers(&after, jid.as_ref());
                unblocked |= !blocked;
                if shows {
                    self.send_presence_by_number(account, contact, !blocked);
                }
            } else {
                let of_contact =
                    |entry: &&Jid| entry.as_ref().is_full() && entry.as_ref().bare() == jid.as_ref();
                for entry in changed.iter().filter(of_contact).filter(|entry| differs(entry.as_ref())) {
                    let blocked = covers(&after, entry.as_ref());
                    unblocked |= !blocked;
                    if shows {
                        self.send_presence_to_resource(account, entry, !blocked);
                    }
                }
            }
            if !unblocked || !contact.subscription.contains(Subscription::TO) {
                continue;
            }
            if everywhere {
                self.send_presence_of_contact_here(account, jid.as_ref());
            }
            for session in account.sessions().iter().filter(|session| session.is_available()) {
                self.probe_contacts(session, std::slice::from_ref(contact));
            }
        }
    }

    /// One resource of a contact receives the presence of the sessions here, or `unavailable`.
    fn send_presence_to_resource(&self, account: &Account, to: &Jid, available: bool) {
        let mut effects = Effects::default();
        for session in account.sessions() {
            let Some(presence) = session.with(|state| state.presence.clone()) else { continue };
            let stanza = if available { Some(presence) } else { unavailable(session.full()) };
            let stanza = stanza.and_then(|stanza| stanza.with_to(Some(to.as_ref())));
            effects.route(stanza, session.jid.clone(), to.clone());
        }
        self.perform(effects);
    }

    /// What the account has blocked receives `unavailable` from the sessions here that sent directed presence to it.
    fn hide_directed_presence(&self, account: &Account, blocked: &Blocklist) {
        let own = account.jid.as_ref();
        let hides = |to: JidRef<'_>| {
            // As in the feature: neither the account itself nor its server is ever blocked.
            let exempt = to.bare() == own || to.local().is_none() && to.domain() == own.domain();
            !exempt && blocked.matches(to)
        };
        let mut effects = Effects::default();
        for session in account.sessions() {
            let gone: Vec<Jid> = session.with(|state| {
                let Some(directed) = &mut state.directed_presence else { return Vec::new() };
                let gone = directed.extract_if(.., |to| hides(to.as_ref())).collect();
                if directed.is_empty() {
                    state.directed_presence = None;
                }
                gone
            });
            for to in gone {
                let stanza = unavailable(session.full()).and_then(|stanza| stanza.with_to(Some(to.as_ref())));
                effects.route(stanza, session.jid.clone(), to);
            }
        }
        if !effects.is_empty() {
            self.perform(effects);
        }
    }

    /// Contacts that these entries of a blocklist may cover.
    fn contacts_of_entries(&self, account: &Account, entries: &[Jid]) -> BTreeMap<AddressId, Contact> {
        if entries.is_empty() {
            return BTreeMap::new();
        }
        // A domain may cover every contact, and only the store has their addresses.
        let hash = |entry: &Jid| entry.local().map(|_| self.routing_table.hash(entry.as_ref()));
        let hashes: Option<BTreeSet<u64>> = entries.iter().map(hash).collect();
        account.with(|state| {
            let covered = |contact: &&Contact| {
                contact.subscription.0 & Subscription::BOTH.0 != 0
                    && hashes.as_ref().is_none_or(|hashes| hashes.contains(&contact.hash))
            };
            state.contacts().iter().filter(covered).map(|contact| (contact.id, *contact)).collect()
        })
    }

    /// The other nodes do the same for their sessions. See [`throng_core::Effect::PresenceTo`].
    pub(super) fn request_presence_of_peers(&self, account: &Arc<Account>, to: JidRef<'_>, available: bool) {
        let own = self.cluster.node();
        let recipients = vec![account_recipient(account)];
        let octets = encode(to, available);
        let envelope = Envelope::new(PRESENCE_REQUEST, EnvelopeClass::Control, own, recipients, octets);
        for node in self.cluster.locate(account.hash, address_number(account)).other_nodes(own) {
            if let Err(refused) = self.cluster.deliver(node, envelope.clone()) {
                tracing::debug!(account = %account.jid, %refused, "presence of other resources was not requested");
            }
        }
    }

    /// Another node requests the presence of an account. False if the octets are no request.
    pub(super) fn on_presence_request(
        &self,
        account: &Arc<Account>,
        octets: &[u8],
        work: &mut RoutingWork,
    ) -> bool {
        let Some((to, available)) = decode(octets) else { return false };
        self.send_presence_to(account, to, available, work);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changed_entries_of_a_blocklist_are_those_of_one_list_only() {
        let list = |entries: &[&str]| {
            let entries: Vec<Jid> = entries.iter().map(|entry| Jid::parse(entry).unwrap()).collect();
            Blocklist::new(&entries)
        };
        let changed = |before: &[&str], after: &[&str]| -> Vec<String> {
            let entries = changed_entries(list(before).as_ref(), list(after).as_ref());
            entries.iter().map(Jid::to_string).collect()
        };
        assert_eq!(changed(&["a@x", "b@x"], &["b@x", "y"]), ["a@x", "y"]);
        assert_eq!(changed(&[], &["a@x"]), ["a@x"]);
        assert!(changed(&["a@x"], &["a@x"]).is_empty() && changed(&[], &[]).is_empty());
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_anything_else_is_refused() {
        let to = jid::Jid::parse("juliet@example.com/balcony").unwrap();
        for available in [false, true] {
            let octets = encode(to.as_ref(), available);
            assert!(decode(&octets).is_some_and(|read| read == (to.as_ref(), available)));
        }
        for wrong in [&b""[..], b"\0", b"\x02a@b", b"\x01a@b\xff", b"\x01@"] {
            assert!(decode(wrong).is_none(), "{wrong:?}");
        }
    }
}
