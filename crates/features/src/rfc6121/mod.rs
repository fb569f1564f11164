//! Instant messaging and presence: RFC 6121, as three features and one transition table.
//!
//! [`roster`] serves the contact list (section 2), [`subscription`] keeps it consistent with the contacts' lists
//! (section 3, by the rules of [`subscription_state`]), [`presence`] distributes availability (section 4). Messages
//! (section 8) are delivered by the engine, in `throng_core::router::rules`.
//!
//! Shared here: the wire format of a roster entry, and the effects of its change.
//!
//! # Pitfalls
//!
//! The store is authoritative, and the account's view follows it. Every change must go through `apply_roster_change`,
//! or the view, the other resources and later logins miss it.

pub mod presence;
pub mod roster;
pub mod subscription;
pub mod subscription_state;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::{NewAddresses, PresenceType, StanzaError, rewrite_addresses};
use store::roster::is_visible_change;
use store::{RosterItem, RosterUpdateOutcome, Subscription};
use throng_core::server_error::unreadable_stanza;
use throng_core::session::flags;
use throng_core::{Account, Effect, Effects, Node, SharedStanza};
use xml::{Ns, Writer};

/// Applies a change of the store: updates the account's view, and pushes to its interested resources (section 2.1.6).
/// With `always` the push is sent even if the client's own request changed nothing (section 2.3.2).
fn apply_roster_change(
    node: &Arc<Node>,
    owner: JidRef<'_>,
    contact: &Jid,
    done: &RosterUpdateOutcome,
    always: bool,
    effects: &mut Effects,
) {
    let mut in_order = true;
    let is_shown = is_visible_change(done.before.as_ref(), done.after.as_ref());
    mark_if_outdated(node, owner, done.version, is_shown);
    if done.before != done.after {
        in_order = node.roster_changed(owner, contact.as_ref(), done);
    }
    if !always && !is_shown {
        return;
    }
    let Some(account) = node.routing_table.find(owner) else { return };
    if in_order {
        let frame = roster_push(contact, done.after.as_ref(), done.version);
        effects.0.extend(frame.map(|frame| Effect::PushToInterested(account, frame)));
    } else {
        repush_item(node, account, contact.clone());
    }
}

/// The version of a roster after a change here, which counts if it is shown. If the view has not had the one before, another node has changed
/// the roster, and its push may have been lost, because nodes are cut off from each other or that node was killed. The version of the next
/// push must not say that clients have that change (section 2.6). Concurrent changes may look like that, too; then a client receives its
/// roster once more.
fn mark_if_outdated(node: &Arc<Node>, owner: JidRef<'_>, version: u64, is_shown: bool) {
    let Some(account) = node.peers().and_then(|_| node.routing_table.find(owner)) else { return };
    if account.with(|state| version <= state.roster_version.saturating_add(u64::from(is_shown))) {
        return;
    }
    for session in account.sessions().iter().filter(|session| session.flags.has(flags::INTERESTED)) {
        session.flags.set(flags::MAY_LACK_ROSTER_PUSH);
    }
}

/// A later change was pushed before: pushes have to follow the versions (section 2.6.3), so the entry is pushed in
/// its current state.
fn repush_item(node: &Arc<Node>, account: Arc<Account>, contact: Jid) {
    let spawned = node.clone();
    node.spawner.spawn(
        "roster push",
        Box::pin(async move {
            match spawned.stores.roster.entry(account.id, &contact).await {
                Ok(entry) => {
                    let frame = roster_push(&contact, entry.item.as_ref(), entry.version);
                    spawned.perform(Effects(
                        frame.map(|f| Effect::PushToInterested(account, f)).into_iter().collect(),
                    ));
                }
                Err(error) => tracing::warn!(%error, "a roster push was lost"),
            }
        }),
    );
}

/// The push of one entry; a removal if the entry is not shown.
fn roster_push(contact: &Jid, item: Option<&RosterItem>, version: u64) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("iq").attr("type", "set").attr("id", &base::id::random_id());
        w.start_ns("query", Ns::Roster).attr("ver", &version.to_string());
        match item.filter(|item| item.subscription.contains(Subscription::IN_ROSTER)) {
            Some(item) => write_item(w, item),
            None => {
                w.start("item").attr("jid", contact.as_str()).attr("subscription", "remove").end();
            }
        }
        w.end().end();
    })
}

/// Writes an entry in the format of section 2.1.2.
fn write_item(w: &mut Writer<'_>, item: &RosterItem) {
    w.start("item").attr("jid", item.jid.as_str()).attr_opt("name", item.name.as_deref());
    w.attr("subscription", item.subscription.as_str());
    if item.subscription.contains(Subscription::PENDING_OUT) {
        w.attr("ask", "subscribe");
    }
    if item.subscription.contains(Subscription::APPROVED) {
        w.attr("approved", "true");
    }
    for group in &item.groups {
        w.text_element("group", group);
    }
    w.end();
}

/// The same stanza with other addresses. Admitted stanzas have room for two.
fn readdressed(
    frame: &SharedStanza,
    from: JidRef<'_>,
    to: Option<JidRef<'_>>,
) -> Result<SharedStanza, StanzaError> {
    let mut out = Vec::with_capacity(frame.bytes().len() + 64);
    let addresses = NewAddresses { from: Some(from.as_str()), to: to.map(|t| t.as_str()) };
    let head =
        rewrite_addresses(frame.bytes(), frame.head(), addresses, &mut out).map_err(unreadable_stanza)?;
    Ok(SharedStanza::new(head, &out))
}

/// A presence without content. `id` is escaped already.
fn bare_presence(
    from: JidRef<'_>,
    to: Option<JidRef<'_>>,
    ty: PresenceType,
    id: Option<&str>,
) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("presence").attr("from", from.as_str()).attr_opt("to", to.map(|t| t.as_str()));
        if let Some(id) = id {
            w.attr_raw("id", id);
        }
        w.attr_opt("type", ty.as_str()).end();
    })
}

/// Sends the last presence of each available resource to one entity (sections 3.1.5 and 4.3.2, rule 4). True if there is
/// any.
fn send_current(account: &Arc<Account>, to: JidRef<'_>, peers: bool, effects: &mut Effects) -> bool {
    let mut any = peers && !account.available_peers().is_empty();
    account.for_each_session(|session| any |= session.is_available());
    if any {
        let (account, to) = (account.clone(), to.to_jid());
        effects.add(Effect::PresenceTo { account, to, available: true, peers });
    }
    any
}

/// Sends `unavailable` from each available resource to one entity (sections 3.2.2 and 3.3.3).
fn send_unavailable(account: &Arc<Account>, to: JidRef<'_>, effects: &mut Effects) {
    let (account, to) = (account.clone(), to.to_jid());
    effects.add(Effect::PresenceTo { account, to, available: false, peers: false });
}

/// Whether the account is that of an anonymous user, which is not in the store.
fn is_ephemeral(account: &Arc<Account>) -> bool {
    let mut ephemeral = false;
    account.for_each_session(|session| ephemeral |= session.flags.has(flags::EPHEMERAL));
    ephemeral
}
