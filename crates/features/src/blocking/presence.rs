//! Presence that contacts and the user receive on a change of the blocklist: XEP-0191 1.3, sections 3.3 and 3.4.
//!
//! A newly blocked contact that may see the user's presence, or got directed presence, receives `unavailable`. A
//! newly unblocked contact receives the current presence, and the user receives the contact's presence, which was
//! withheld meanwhile (the text does not require that, but a client has no other way to learn it).
//!
//! # Pitfalls
//!
//! Stanzas that the user's own server sends here bypass the handlers that would refuse them to the user.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::{NewAddresses, rewrite_addresses};
use store::Subscription;
use throng_core::server_error::unreadable_stanza;
use throng_core::{Account, Blocklist, Effect, Effects, Node, SharedStanza};

use super::{blocks, never_blocked};

/// Sends `unavailable` to newly blocked contacts.
pub(super) fn hide_presence(node: &Arc<Node>, account: &Arc<Account>, added: &[Jid], effects: &mut Effects) {
    let Some(list) = Blocklist::new(added) else { return };
    let contacts = affected_contacts(node, account, added, &list);
    for session in account.sessions() {
        let mut notified: Vec<Jid> = Vec::new();
        session.with(|state| {
            if state.presence.is_some() {
                let sees = contacts.iter().filter(|contact| contact.sees_us);
                notified.extend(sees.map(|contact| contact.jid.clone()));
            }
            let Some(directed) = &mut state.directed_presence else { return };
            directed.retain(|to| {
                let gone = list.matches(to.as_ref()) && !never_blocked(account.jid.as_ref(), to.as_ref());
                if gone
                    && !notified.iter().any(|t| t.as_ref() == to.as_ref() || t.as_ref() == to.as_ref().bare())
                {
                    notified.push(to.clone());
                }
                !gone
            });
            if directed.is_empty() {
                state.directed_presence = None;
            }
        });
        for to in notified {
            let gone = SharedStanza::build(|w| {
                w.start("presence").attr("from", session.full().as_str()).attr("to", to.as_str());
                w.attr("type", "unavailable").end();
            });
            effects.route(gone, session.jid.clone(), to);
        }
    }
}

/// Exchanges presence with newly unblocked contacts.
pub(super) fn restore_presence(
    node: &Arc<Node>,
    account: &Arc<Account>,
    removed: &[Jid],
    effects: &mut Effects,
) {
    let Some(list) = Blocklist::new(removed) else { return };
    let sessions = account.sessions();
    for AffectedContact { account: other, jid, sees_us, visible_to_us: seen } in
        affected_contacts(node, account, removed, &list)
    {
        // Another entry may still cover it, or the contact blocks us.
        if blocks(account, jid.as_ref()) {
            continue;
        }
        for session in &sessions {
            let presence = session.with(|state| state.presence.clone());
            let Some(presence) = presence else { continue };
            if sees_us {
                let frame = readdressed(&presence, session.full(), jid.as_ref());
                effects.route(frame, session.jid.clone(), jid.clone());
            }
            if seen && !other.blocks(session.full()) {
                other.for_each_session(|their_session| {
                    if jid.is_bare() || their_session.jid == jid {
                        let presence = their_session.with(|state| state.presence.clone());
                        effects.0.extend(presence.map(|p| Effect::SendTo(session.clone(), p)));
                    }
                });
            }
        }
    }
}

/// A connected contact that the change affects.
struct AffectedContact {
    account: Arc<Account>,
    /// Bare, or the one resource that the entry names.
    jid: Jid,
    /// Whether it may see our presence.
    sees_us: bool,
    /// Whether we may see its presence.
    visible_to_us: bool,
}

/// Contacts without a connected resource need nothing: they have no presence and get none.
fn affected_contacts(
    node: &Arc<Node>,
    account: &Arc<Account>,
    entries: &[Jid],
    list: &Blocklist,
) -> Vec<AffectedContact> {
    let mut found = Vec::new();
    let mut add = |other: Arc<Account>, jid: JidRef<'_>, own_subscription: Subscription| {
        let sees_us = own_subscription.contains(Subscription::FROM);
        let seen = own_subscription.contains(Subscription::TO)
            && other.subscription(account).contains(Subscription::FROM);
        if sees_us || seen {
            found.push(AffectedContact { account: other, jid: jid.to_jid(), sees_us, visible_to_us: seen });
        }
    };
    for contact in account.with(|state| state.contacts().to_vec()) {
        if let Some(other) = node.routing_table.find_by_id(contact.hash, contact.id)
            && list.matches(other.jid.as_ref())
        {
            let jid = other.jid.clone();
            add(other, jid.as_ref(), contact.subscription);
        }
    }
    for entry in entries.iter().map(Jid::as_ref).filter(|e| e.is_full() && e.bare() != account.jid.as_ref()) {
        if let Some(other) = node.routing_table.find(entry) {
            let own_subscription = account.subscription(&other);
            add(other, entry, own_subscription);
        }
    }
    found
}

fn readdressed(frame: &SharedStanza, from: JidRef<'_>, to: JidRef<'_>) -> Option<SharedStanza> {
    let mut out = Vec::with_capacity(frame.bytes().len() + 64);
    let addresses = NewAddresses { from: Some(from.as_str()), to: Some(to.as_str()) };
    let head = rewrite_addresses(frame.bytes(), frame.head(), addresses, &mut out);
    // Admitted stanzas have room for two addresses.
    head.map_err(unreadable_stanza).ok().map(|head| SharedStanza::new(head, &out))
}
