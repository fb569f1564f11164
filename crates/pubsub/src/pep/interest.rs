//! Last items for a client whose interest becomes known: XEP-0163 1.2.2, section 4.3.4; XEP-0060 1.30.0, section 9.2.
//!
//! A client is interested when it is available and its capabilities are verified, in whichever order. Each node of the cluster
//! sends the last items of the accounts whose nodes it owns.

use std::sync::Arc;

use base::extensions::Extension;
use cluster::NodeId;
use hashbrown::HashMap;
use jid::Jid;
use store::Subscription;
use throng_core::Node;
use throng_core::feature_notice::NoticeCtx;
use throng_core::provided::ClientCapabilities;
use throng_core::session::{Session, flags};

use super::PersonalEventing;
use super::account_nodes::AccountKey;
use super::conversion::ConversionKind;
use super::interest_passes::WaitingInterest;
use super::notice::{self, PepNotice};
use crate::pubsub_shared::{NodeInput, NodeMessage};

/// Suffix of the feature by which a client announces that it wants the events of a node.
const NOTIFY: &str = "+notify";
/// Nodes in which one client can be interested.
const MAX_NAMES: usize = 128;
/// Names of one client after changes of its capabilities.
const MAX_SENT: usize = 1_024;
/// How often the last item of one of them is sent: a client that was not interested for a while has missed items.
const MAX_TIMES: u8 = 4;
/// Bytes that an input counts.
const MESSAGE_BYTES: usize = 256;

/// Names of nodes whose last items a client was sent since it became available, after its capabilities had changed: clients can
/// change them as often as they want.
#[derive(Default)]
struct SentInterest(HashMap<Box<str>, u8>);

impl Extension for SentInterest {}

impl SentInterest {
    /// Whether the last item of a node of this name must be sent.
    fn add(&mut self, name: &str) -> bool {
        if let Some(times) = self.0.get_mut(name) {
            *times = times.saturating_add(1);
            return *times <= MAX_TIMES;
        }
        let fits = self.0.len() < MAX_SENT;
        if fits {
            self.0.insert(name.into(), 1);
        }
        fits
    }
}

impl PersonalEventing {
    /// A session has become available, or its capabilities are known or have changed. `had`: whether its client had a feature
    /// before.
    pub(super) fn interest_changed(
        self: &Arc<Self>,
        node: &Arc<Node>,
        session: &Arc<Session>,
        had: &dyn Fn(&str) -> bool,
    ) {
        if session.flags.has(flags::EPHEMERAL) || !session.is_available() {
            return;
        }
        let host = session.account.host();
        let Some(capabilities) = host.extensions.get::<ClientCapabilities>() else { return };
        let Some(mut names) = (capabilities.with_suffix)(node, session, NOTIFY) else { return };
        let is_first = session.flags.set(flags::LAST_ITEMS_SENT);
        if !is_first {
            names.retain(|name| !had(&format!("{name}{NOTIFY}")));
        }
        names.truncate(MAX_NAMES);
        session.with(|state| {
            if is_first {
                state.extensions.remove::<SentInterest>();
                return;
            }
            let mut sent = state.extensions.remove::<SentInterest>().map(|sent| *sent).unwrap_or_default();
            names.retain(|name| sent.add(name));
            state.extensions.insert(sent);
        });
        if names.is_empty() {
            return;
        }
        let account = &session.account;
        if let Some(kind) = ConversionKind::of_interest(&names) {
            self.accounts.conversions.request(node, &account.jid, kind);
        }
        let mut accounts = vec![AccountKey { hash: account.hash, id: account.id }];
        account.with(|state| {
            let contacts = state.contacts().iter();
            let seen = contacts.filter(|one| one.subscription.contains(Subscription::TO) && !one.is_foreign);
            accounts.extend(seen.map(|contact| AccountKey { hash: contact.hash, id: contact.id }));
        });
        let mut own = Vec::with_capacity(accounts.len());
        let mut of_others: HashMap<NodeId, Vec<AccountKey>> = HashMap::new();
        for account in accounts {
            match peers::slices::other_owner(node, account.hash) {
                Some(owner) => of_others.entry(owner).or_default().push(account),
                None => own.push(account),
            }
        }
        for (owner, accounts) in of_others {
            let lines: Vec<&str> =
                std::iter::once(session.jid.as_str()).chain(names.iter().map(String::as_str)).collect();
            notice::send((node, &host), owner, notice::INTEREST, &lines, &accounts, &[]);
        }
        self.send_last_items(node, session.jid.clone(), names, own);
    }

    /// Another node reports the interest of a client.
    pub(super) fn receive_interest(self: &Arc<Self>, ctx: &NoticeCtx<'_>) {
        let Some(notice) = ctx.content.and_then(PepNotice::read) else { return };
        let Some((user, names)) = notice.lines.split_first() else { return };
        let Ok(user) = Jid::parse(user) else { return };
        let names = names.iter().take(MAX_NAMES).map(|name| (*name).to_owned()).collect();
        self.send_last_items(ctx.node, user, names, notice.accounts);
    }

    /// Sends the last items of nodes with these names. The user may see the presence of the accounts.
    fn send_last_items(
        self: &Arc<Self>,
        node: &Arc<Node>,
        user: Jid,
        names: Vec<String>,
        accounts: Vec<AccountKey>,
    ) {
        if accounts.is_empty() || names.is_empty() || !self.passes.add(&user, names, accounts) {
            return;
        }
        self.service.shared.watch(node);
        let (pep, of_task) = (self.clone(), node.clone());
        let task = async move {
            while let Some(interest) = pep.passes.next(&user) {
                let _permit = pep.passes.permit().await;
                pep.pass(&of_task, &user, interest).await;
            }
        };
        node.spawner.spawn("pep-last-items", Box::pin(task));
    }

    /// Sends the last items of nodes of contacts to one client.
    async fn pass(&self, node: &Arc<Node>, user: &Jid, interest: WaitingInterest) {
        let WaitingInterest { names, accounts } = interest;
        let accounts: Vec<AccountKey> = accounts.into_iter().collect();
        let nodes = match self.accounts.nodes.nodes(node, &accounts).await {
            Ok(nodes) => nodes,
            Err(error) => {
                tracing::warn!(%user, %error, "the nodes of contacts could not be read");
                return;
            }
        };
        let wanted = nodes.into_iter().filter(|key| key.resource().is_some_and(|name| names.contains(name)));
        let mut blocked: HashMap<Jid, bool> = HashMap::new();
        for key in wanted {
            let owner = key.bare().to_jid();
            if owner.as_ref() != user.bare() {
                let known = blocked
                    .get(&owner)
                    .copied()
                    .or_else(|| node.account_views().has_blocked(owner.as_ref(), user.as_ref()));
                let is_blocked = match known {
                    Some(known) => known,
                    None => {
                        let read = node.account_views().load_has_blocked(node, owner.as_ref(), user.as_ref());
                        read.await.unwrap_or(true)
                    }
                };
                blocked.insert(owner, is_blocked);
                if is_blocked {
                    continue;
                }
            }
            let input = NodeInput::Interested { user: user.clone() };
            let message = NodeMessage { node: node.clone(), input };
            self.service.send_waiting(node, key, message, MESSAGE_BYTES).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_sent_some_times_however_often_capabilities_change() {
        let mut sent = SentInterest::default();
        let names: Vec<String> = (0..2_000).map(|number| format!("urn:{number}")).collect();
        let count = |sent: &mut SentInterest| names.iter().filter(|name| sent.add(name)).count();
        let counts: Vec<usize> = (0..300).map(|_| count(&mut sent)).collect();
        assert_eq!(counts.iter().sum::<usize>(), usize::from(MAX_TIMES) * MAX_SENT);
    }
}
