//! Events to contacts and to the user's own clients, without subscriptions: XEP-0163 1.2.2, section 4; XEP-0060 1.30.0, sections
//! 9.1 (auto-subscribe) and 9.2 (filtered notifications).
//!
//! Recipients are full addresses of available sessions whose clients announce `NODE+notify`. The node of the cluster that owns
//! the account's nodes chooses the contacts, and each node the sessions that are there: capabilities are known only there. So
//! an event is one message to each node with a contact.
//!
//! On a single node the contacts come from the roster view of a connected user; otherwise the roster is read.

use std::sync::Arc;

use cluster::NodeId;
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use store::{RosterItem, StoreError, StoreErrorKind, Subscription};
use throng_core::feature_notice::NoticeCtx;
use throng_core::provided::ClientCapabilities;
use throng_core::{Account, Effects, Node, SharedStanza};

use super::account_nodes::AccountKey;
use super::notice::{self, PepNotice};
use crate::delivery::implicit_multicast;
use crate::node::{AudienceContacts, ImplicitAudience, NodeEvent};
use crate::pubsub_host::ImplicitRecipients;

/// What decides who receives an event.
struct EventFilter {
    audience: ImplicitAudience,
    /// Who receives it by another way, or must not receive it.
    except: Vec<Jid>,
}

impl EventFilter {
    /// Whether a contact receives it, apart from groups.
    fn admits(&self, contact: JidRef<'_>) -> bool {
        let is_in = |list: &[Jid]| list.iter().any(|one| one.as_ref() == contact);
        !is_in(&self.except)
            && !is_in(&self.audience.outcasts)
            && match &self.audience.contacts {
                AudienceContacts::All | AudienceContacts::InGroups(_) => true,
                AudienceContacts::Listed(listed) => is_in(listed),
            }
    }

    fn admits_item(&self, item: &RosterItem) -> bool {
        item.subscription.contains(Subscription::FROM)
            && self.admits(item.jid.as_ref())
            && match &self.audience.contacts {
                AudienceContacts::InGroups(groups) => item.groups.iter().any(|group| groups.contains(group)),
                _ => true,
            }
    }
}

/// The recipients of an event here; contacts on other nodes are sent it.
pub(super) fn recipients(
    node: &Arc<Node>,
    key: &Jid,
    event: &NodeEvent,
    subscribed: &[Jid],
) -> ImplicitRecipients {
    let Some(audience) = event.implicit.clone() else { return ImplicitRecipients::Known(Arc::from([])) };
    let except = subscribed.iter().chain(&event.delivery.except).cloned().collect();
    let filter = EventFilter { audience, except };
    let name = key.resource().unwrap_or_default().to_owned();
    let owner = node.routing_table.find(key.as_ref());
    let needs_roster = !node.is_single() || matches!(filter.audience.contacts, AudienceContacts::InGroups(_));
    if let Some(owner) = owner.filter(|_| !needs_roster) {
        return ImplicitRecipients::Known(recipients_of_view(node, &owner, &name, &filter));
    }
    let (node, key, stanza) = (node.clone(), key.clone(), event.stanza.clone());
    ImplicitRecipients::Later(Box::pin(async move {
        recipients_of_roster(&node, &key, &name, &filter, &stanza).await.unwrap_or_else(|error| {
            tracing::error!(node = %key, %error, "the contacts for an event could not be read");
            Arc::from([])
        })
    }))
}

fn recipients_of_view(node: &Node, owner: &Arc<Account>, name: &str, filter: &EventFilter) -> Arc<[Jid]> {
    let is_meant = |subscription: Subscription| subscription.contains(Subscription::FROM);
    let contacts: Vec<AccountKey> = owner.with(|state| {
        let contacts = state.contacts().iter().filter(|contact| is_meant(contact.subscription));
        contacts.map(|contact| AccountKey { hash: contact.hash, id: contact.id }).collect()
    });
    let blocked = owner.blocked();
    let is_blocked = |contact: JidRef<'_>| blocked.as_ref().is_some_and(|blocked| blocked.matches(contact));
    let interest = InterestIn::new(name);
    let mut all = Vec::new();
    if filter.except.iter().all(|one| *one != owner.jid) {
        interest.add_sessions(node, owner, &mut all);
    }
    for contact in contacts {
        let Some(account) = node.routing_table.find_by_id(contact.hash, contact.id) else { continue };
        if filter.admits(account.jid.as_ref()) && !is_blocked(account.jid.as_ref()) {
            interest.add_sessions(node, &account, &mut all);
        }
    }
    all.into()
}

/// Contacts of an account by the store. Those on other nodes are sent the event.
async fn recipients_of_roster(
    node: &Arc<Node>,
    key: &Jid,
    name: &str,
    filter: &EventFilter,
    stanza: &SharedStanza,
) -> Result<Arc<[Jid]>, StoreError> {
    let owner = key.bare().to_jid();
    let none = || Ok(Arc::from([]));
    let Some(id) = node.stores.addresses.find(&owner).await? else { return none() };
    let items = match node.stores.roster.get(id).await {
        Ok(roster) => roster.items,
        Err(error) if error.kind == StoreErrorKind::NotFound => return none(),
        Err(error) => return Err(error),
    };
    let mut contacts: Vec<AccountKey> = Vec::new();
    if filter.except.iter().all(|one| *one != owner) {
        contacts.push(AccountKey { hash: node.routing_table.hash(owner.as_ref()), id });
    }
    for item in items.iter().filter(|item| filter.admits_item(item)) {
        let hash = node.routing_table.hash(item.jid.as_ref());
        let is_online = node.routing_table.find_by_id(hash, item.contact).is_some()
            || !node.is_single() && is_elsewhere(node, hash, item.contact);
        if is_online
            && !node.account_views().load_has_blocked(node, owner.as_ref(), item.jid.as_ref()).await?
        {
            contacts.push(AccountKey { hash, id: item.contact });
        }
    }
    if !node.is_single() {
        send_to_peers(node, (&owner, name), &contacts, stanza);
    }
    Ok(sessions_here(node, name, &contacts))
}

fn is_elsewhere(node: &Node, hash: u64, id: store::AddressId) -> bool {
    let own = node.cluster.node();
    node.cluster.locate(hash, Some(id.0)).other_nodes(own).next().is_some()
}

/// Sends an event to each node with sessions of its contacts.
fn send_to_peers(
    node: &Arc<Node>,
    (owner, name): (&Jid, &str),
    contacts: &[AccountKey],
    stanza: &SharedStanza,
) {
    let Some(host) = node.host(owner.domain()) else { return };
    let own = node.cluster.node();
    let mut by_node: HashMap<NodeId, Vec<AccountKey>> = HashMap::new();
    for contact in contacts {
        for other in node.cluster.locate(contact.hash, Some(contact.id.0)).other_nodes(own) {
            by_node.entry(other).or_default().push(*contact);
        }
    }
    for (to, accounts) in by_node {
        notice::send((node, &host), to, notice::EVENT, &[owner.as_str(), name], &accounts, stanza.bytes());
    }
}

/// Another node sends an event to contacts with sessions here.
pub(super) fn receive(ctx: &NoticeCtx<'_>) {
    let Some(notice) = ctx.content.and_then(PepNotice::read) else { return };
    let [owner, name] = notice.lines[..] else { return };
    let (Ok(owner), Some(stanza)) = (Jid::parse(owner), SharedStanza::parse(notice.rest)) else { return };
    let recipients = sessions_here(ctx.node, name, &notice.accounts);
    if recipients.is_empty() {
        return;
    }
    let mut effects = Effects::default();
    effects.multicast(implicit_multicast(&stanza, &owner, recipients));
    ctx.node.perform(effects);
}

fn sessions_here(node: &Node, name: &str, contacts: &[AccountKey]) -> Arc<[Jid]> {
    let interest = InterestIn::new(name);
    let mut all = Vec::new();
    for contact in contacts {
        if let Some(account) = node.routing_table.find_by_id(contact.hash, contact.id) {
            interest.add_sessions(node, &account, &mut all);
        }
    }
    all.into()
}

/// The feature by which a client announces that it wants the events of a node.
struct InterestIn(String);

impl InterestIn {
    fn new(name: &str) -> InterestIn {
        InterestIn(format!("{name}+notify"))
    }

    /// Adds the sessions of an account whose clients are interested.
    fn add_sessions(&self, node: &Node, account: &Account, all: &mut Vec<Jid>) {
        let host = account.host();
        let Some(capabilities) = host.extensions.get::<ClientCapabilities>() else { return };
        for session in account.sessions() {
            if session.is_available() && (capabilities.has)(node, &session, &self.0) {
                all.push(session.jid.clone());
            }
        }
    }
}
