//! Who among the subscribers may still read a node: with the access models presence and roster the rosters of owners decide at
//! each event, and at nodes of an account its blocklist does. A subscription that outlives the right to it receives nothing.
//!
//! Of few subscribers one entry each is read. For many, the contacts of the owners are read as a whole when their rosters have changed
//! ([`ContactCache`]), and only the versions of the rosters for each event.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::lock::LeafMutex;
use hashbrown::{HashMap, HashSet};
use jid::{Jid, JidRef};
use store::{StoreError, StoreErrorKind, Subscription};
use throng_core::Node;

use crate::pubsub_host::{MAX_OWNERS, Relation, read_relation};

/// Users of whom one roster entry each is read.
const MAX_FEW: usize = 16;
/// Contacts in the cache, of all owners.
const MAX_CACHED: usize = 200_000;

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

/// The contacts of an owner that may see its presence, with their groups.
#[derive(Debug)]
struct OwnerContacts {
    /// Of the roster.
    version: u64,
    contacts: HashMap<Jid, Vec<String>>,
}

#[derive(Debug, Default)]
struct CachedContacts {
    by_owner: HashMap<Jid, Arc<OwnerContacts>>,
    /// Contacts of all owners.
    count: usize,
}

/// Contacts of the owners of nodes with many subscribers.
#[derive(Debug, Default)]
pub(crate) struct ContactCache(LeafMutex<CachedContacts>);

impl ContactCache {
    /// The contacts of an owner, as the roster is now; `None`: there is no such account.
    async fn contacts(&self, node: &Node, owner: &Jid) -> Result<Option<Arc<OwnerContacts>>, StoreError> {
        let Some(id) = node.stores.addresses.find(owner).await? else { return Ok(None) };
        let known = self.0.lock().by_owner.get(owner).cloned();
        let is_missing = |error: &StoreError| error.kind == StoreErrorKind::NotFound;
        if let Some(known) = known {
            match node.stores.roster.entry(id, owner).await {
                Ok(entry) if entry.version == known.version => return Ok(Some(known)),
                Ok(_) => {}
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let roster = match node.stores.roster.get(id).await {
            Ok(roster) => roster,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let seen = roster.items.into_iter().filter(|item| item.subscription.contains(Subscription::FROM));
        let contacts = seen.map(|item| (item.jid, item.groups)).collect();
        let read = Arc::new(OwnerContacts { version: roster.version, contacts });
        let mut cached = self.0.lock();
        if cached.count + read.contacts.len() > MAX_CACHED {
            *cached = CachedContacts::default();
        }
        cached.count += read.contacts.len();
        if let Some(old) = cached.by_owner.insert(owner.clone(), read.clone()) {
            cached.count -= old.contacts.len();
        }
        Ok(Some(read))
    }
}

/// What the rosters say about the subscribers.
#[derive(Debug)]
enum AdmittedContacts {
    /// Everybody may read.
    All,
    /// These users.
    Few(HashSet<Jid>),
    /// Those in one of these rosters.
    Many(Vec<Arc<OwnerContacts>>),
    /// The store did not answer: only owners and others with an affiliation are known.
    Unknown,
}

/// A condition with what the store knows.
#[derive(Debug)]
pub(crate) struct SubscriberFilter {
    condition: Arc<ReadCondition>,
    contacts: AdmittedContacts,
}

impl SubscriberFilter {
    /// Reads what the condition needs for these users; `None`: for many.
    pub(crate) async fn read(
        (node, cache): (&Arc<Node>, &ContactCache),
        condition: Arc<ReadCondition>,
        few: Option<BTreeSet<Jid>>,
    ) -> SubscriberFilter {
        let contacts = read(node, cache, &condition, few).await;
        let contacts = contacts.unwrap_or_else(|error| {
            tracing::error!(%error, "who may receive an event could not be read");
            AdmittedContacts::Unknown
        });
        SubscriberFilter { condition, contacts }
    }

    /// Whether a subscriber receives the event.
    pub(crate) fn admits(&self, node: &Node, subscriber: JidRef<'_>) -> bool {
        let user = subscriber.bare();
        if let Some(account) = &self.condition.account {
            if account.as_ref() == user {
                return true;
            }
            // What is not known was not read, because the store did not answer.
            if node.account_views().has_blocked(account.as_ref(), subscriber).unwrap_or(true) {
                return false;
            }
        }
        if self.condition.is_exempt(user) || self.condition.account.is_none() && node.is_admin(user) {
            return true;
        }
        match &self.contacts {
            AdmittedContacts::All => true,
            AdmittedContacts::Few(users) => users.contains(user.as_str()),
            AdmittedContacts::Many(rosters) => {
                rosters.iter().filter_map(|roster| roster.contacts.get(user.as_str())).any(|groups| {
                    let wanted = self.condition.groups.as_ref();
                    wanted.is_none_or(|wanted| groups.iter().any(|group| wanted.contains(group)))
                })
            }
            AdmittedContacts::Unknown => false,
        }
    }
}

impl ReadCondition {
    fn is_exempt(&self, user: JidRef<'_>) -> bool {
        self.exempt.binary_search_by(|one| one.as_str().cmp(user.as_str())).is_ok()
    }
}

/// Users, of whom [`MAX_FEW`] are counted.
#[derive(Debug, Default)]
pub(crate) struct FewUsers {
    users: BTreeSet<Jid>,
    are_many: bool,
}

impl FewUsers {
    /// Adds those with these addresses.
    pub(crate) fn add<'a>(&mut self, addresses: impl Iterator<Item = &'a Jid>) {
        for one in addresses {
            let user = one.as_ref().bare();
            if self.are_many || self.users.contains(user.as_str()) {
                continue;
            }
            self.are_many = self.users.len() >= MAX_FEW;
            self.users.insert(user.to_jid());
        }
    }

    /// The users; `None`: they are many.
    pub(crate) fn into_users(self) -> Option<BTreeSet<Jid>> {
        (!self.are_many).then_some(self.users)
    }
}

async fn read(
    node: &Arc<Node>,
    cache: &ContactCache,
    condition: &ReadCondition,
    few: Option<BTreeSet<Jid>>,
) -> Result<AdmittedContacts, StoreError> {
    if let Some(account) = condition.account.as_ref().map(Jid::as_ref) {
        let views = node.account_views();
        if views.has_blocked(account, account).is_none() {
            views.load_has_blocked(node, account, account).await?;
        }
    }
    let Some(owners) = &condition.owners else { return Ok(AdmittedContacts::All) };
    let owners = owners.iter().filter(|owner| node.host(owner.domain()).is_some()).take(MAX_OWNERS);
    let Some(users) = few else {
        let mut rosters = Vec::new();
        for owner in owners {
            rosters.extend(cache.contacts(node, owner).await?);
        }
        return Ok(AdmittedContacts::Many(rosters));
    };
    let groups = condition.groups.as_deref().unwrap_or_default();
    let mut admitted = HashSet::new();
    for user in users.into_iter().filter(|user| !condition.is_exempt(user.as_ref())) {
        for owner in owners.clone() {
            let mut relation = Relation::default();
            read_relation(node, owner, &user, groups, &mut relation).await?;
            if relation.sees_presence && (condition.groups.is_none() || relation.is_in_group) {
                admitted.insert(user);
                break;
            }
        }
    }
    Ok(AdmittedContacts::Few(admitted))
}
