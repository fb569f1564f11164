//! Who among the subscribers may still read a node: with the access models presence and roster the rosters of owners decide at
//! each event, and at nodes of an account its blocklist does. A subscription that outlives the right to it receives nothing.

use std::sync::Arc;

use hashbrown::HashSet;
use jid::{Jid, JidRef};
use store::{StoreError, StoreErrorKind, Subscription};
use throng_core::{Blocklist, Node};

use crate::pubsub_host::MAX_OWNERS;

/// What the subscribers of a node must fulfil to receive an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadCondition {
    /// Owners of whose presence one must be visible; `None`: it need not.
    pub(crate) owners: Option<Vec<Jid>>,
    /// Groups of their rosters; `None`: any.
    pub(crate) groups: Option<Vec<String>>,
    /// Bare addresses whose affiliation permits to read, sorted.
    pub(crate) exempt: Vec<Jid>,
    /// The account with the node.
    pub(crate) account: Option<Jid>,
}

/// The same with what the store knows.
#[derive(Debug)]
pub(crate) struct SubscriberFilter {
    condition: Arc<ReadCondition>,
    /// Who is in the rosters as the condition says.
    contacts: Option<HashSet<Jid>>,
    blocked: Option<Blocklist>,
    /// The store did not answer: only owners and others with an affiliation are known.
    has_failed: bool,
}

impl SubscriberFilter {
    /// Reads what the condition needs.
    pub(crate) async fn read(node: &Arc<Node>, condition: Arc<ReadCondition>) -> SubscriberFilter {
        match read(node, &condition).await {
            Ok((contacts, blocked)) => SubscriberFilter { condition, contacts, blocked, has_failed: false },
            Err(error) => {
                tracing::error!(%error, "who may receive an event could not be read");
                SubscriberFilter { condition, contacts: None, blocked: None, has_failed: true }
            }
        }
    }

    /// Whether a subscriber receives the event.
    pub(crate) fn admits(&self, node: &Node, subscriber: JidRef<'_>) -> bool {
        let user = subscriber.bare();
        if self.condition.account.as_ref().is_some_and(|account| account.as_ref() == user) {
            return true;
        }
        if self.blocked.as_ref().is_some_and(|blocked| blocked.matches(subscriber)) {
            return false;
        }
        let is_exempt = self.condition.exempt.binary_search_by(|one| one.as_str().cmp(user.as_str())).is_ok()
            || self.condition.account.is_none() && node.is_admin(user);
        is_exempt
            || !self.has_failed
                && self.contacts.as_ref().is_none_or(|contacts| contacts.contains(user.as_str()))
    }
}

async fn read(
    node: &Arc<Node>,
    condition: &ReadCondition,
) -> Result<(Option<HashSet<Jid>>, Option<Blocklist>), StoreError> {
    let blocked = match &condition.account {
        Some(account) => Blocklist::new(&node.stores.blocklists.blocklist(account.as_ref()).await?),
        None => None,
    };
    let Some(owners) = &condition.owners else { return Ok((None, blocked)) };
    let mut contacts = HashSet::new();
    for owner in owners.iter().filter(|owner| node.host(owner.domain()).is_some()).take(MAX_OWNERS) {
        let Some(id) = node.stores.addresses.find(owner).await? else { continue };
        let items = match node.stores.roster.get(id).await {
            Ok(roster) => roster.items,
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let is_in_group = |of_contact: &[String]| {
            condition.groups.as_ref().is_none_or(|groups| of_contact.iter().any(|one| groups.contains(one)))
        };
        let admitted = items
            .into_iter()
            .filter(|item| item.subscription.contains(Subscription::FROM) && is_in_group(&item.groups));
        contacts.extend(admitted.map(|item| item.jid));
    }
    Ok((Some(contacts), blocked))
}
