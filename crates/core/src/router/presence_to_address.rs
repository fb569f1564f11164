//! Presence of an account's sessions for one address, after a change of a subscription or of the blocklist
//! ([`Effect::PresenceTo`]; RFC 6121, section 3), and the replacement of a roster view, which causes it. Directed presence
//! (section 4.6) is something else: the client sends it.
//!
//! On several nodes, presence for a local contact goes directly to each node, like a broadcast: through the contact's home it
//! could arrive after a later broadcast.

use std::sync::Arc;

use jid::JidRef;
use stanza::{NewAddresses, rewrite_addresses};
use store::{RosterItem, Subscription};

use super::RoutingWork;
use crate::account::{Account, Contact};
use crate::domains::Domain;
use crate::effect::Effect;
use crate::node::Node;
use crate::shared_stanza::SharedStanza;

fn readdressed(presence: &SharedStanza, from: JidRef<'_>, to: JidRef<'_>) -> Option<SharedStanza> {
    let mut out = Vec::with_capacity(presence.bytes().len() + 64);
    let addresses = NewAddresses { from: Some(from.as_str()), to: Some(to.as_str()) };
    let head = rewrite_addresses(presence.bytes(), presence.head(), addresses, &mut out).ok()?;
    Some(SharedStanza::new(head, &out))
}

/// `unavailable` of a session for an entity whose subscription ends. It is marked as requested: the client of that entity expects it.
fn unavailable_to(from: JidRef<'_>, to: JidRef<'_>) -> Option<SharedStanza> {
    let stanza = SharedStanza::build(|w| {
        w.start("presence").attr("from", from.as_str()).attr("to", to.as_str());
        w.attr("type", "unavailable").end();
    });
    stanza.inspect(SharedStanza::mark_requested)
}

impl Node {
    /// Sends the presence of the sessions here. See [`Effect::PresenceTo`].
    pub fn send_presence_to(
        self: &Arc<Self>,
        account: &Arc<Account>,
        to: JidRef<'_>,
        available: bool,
        work: &mut RoutingWork,
    ) {
        let local = || matches!(self.domains().find(to.domain()), Domain::Accounts(_));
        if let Some(peers) = self.peers()
            && to.is_bare()
            && to.local().is_some()
            && local()
        {
            return peers.send_presence_to_contact(self, account, to, available);
        }
        for session in account.sessions() {
            let Some(presence) = session.with(|state| state.presence.clone()) else { continue };
            let stanza = if available {
                readdressed(&presence, session.full(), to)
            } else {
                unavailable_to(session.full(), to)
            };
            if let Some(stanza) = stanza {
                work.effects.add(Effect::Route { stanza, from: session.jid.clone(), to: to.to_jid() });
            }
        }
        // The end of the subscription must not arrive before it, and the other nodes learn of that later.
        for full in if available { Vec::new() } else { account.available_peers() } {
            if let Some(stanza) = unavailable_to(full.as_ref(), to) {
                work.effects.add(Effect::Route { stanza, from: full, to: to.to_jid() });
            }
        }
    }

    /// Replaces the roster view of an account with one that was read after another node changed it. Contacts whose
    /// subscription began or ended receive presence of the sessions here, and these receive that of contacts to which a
    /// subscription began.
    pub fn replace_roster_view(self: &Arc<Self>, account: &Arc<Account>, items: &[RosterItem], version: u64) {
        let peers = self.peers();
        let changed = account.with(|state| {
            if version < state.roster_version {
                return None;
            }
            let before: Option<Box<[Contact]>> = peers.map(|_| state.contacts().into());
            if state.prefetched().is_some_and(|roster| roster.version != version) {
                state.take_prefetched();
            }
            state.replace_roster(&self.routing_table, &self.domains(), items, version);
            let (peers, before) = peers.zip(before)?;
            for contact in Contact::gained(state.contacts(), &before, Subscription::TO) {
                peers.subscription_ended(self, account, (contact.hash, contact.id));
            }
            Some((peers, before, Box::<[Contact]>::from(state.contacts())))
        });
        if let Some((peers, before, after)) = changed {
            peers.roster_replaced(self, account, &before, &after);
        }
    }
}
