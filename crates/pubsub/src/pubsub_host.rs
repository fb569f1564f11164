//! What differs between nodes of a service and nodes of an account (XEP-0163): who may create them, and what their owners know
//! about a user.

use std::sync::Arc;

use base::BoxFuture;
use jid::{Jid, JidRef};
use store::{StoreError, StoreErrorKind, Subscription};
use throng_core::Node;
use throng_core::session::flags;

use crate::node::NodeEvent;
use crate::node_config::PubSubNodeConfig;
use crate::options::{NodeCreationAccess, PubSubLimits, PubSubOptions};

/// What the owners of a node know about a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relation {
    /// The user may see the presence of one of them.
    pub(crate) sees_presence: bool,
    /// The user is in one of the groups, in the roster of one whose presence it may see.
    pub(crate) is_in_group: bool,
}

/// Where nodes are.
pub(crate) trait PubSubHost: Send + Sync + 'static {
    /// Whether a user may create a node at this address; the second value is that of [`has_account`].
    fn may_create(
        &self,
        node: &Arc<Node>,
        service: JidRef<'_>,
        user: (JidRef<'_>, bool),
        options: &PubSubOptions,
    ) -> bool;

    /// Whether a publication creates a node that does not exist (section 7.1.4).
    fn auto_creates(&self, options: &PubSubOptions) -> bool;

    /// The configuration of a node that is created.
    fn default_config(&self, limits: &PubSubLimits) -> PubSubNodeConfig {
        PubSubNodeConfig::new(limits)
    }

    /// Whether administrators of the server are owners of its nodes. Those of an account are private.
    fn admins_are_owners(&self) -> bool {
        true
    }

    /// What the owners of a node know about a user. The rosters of the owners, or that of the account with the node, decide.
    fn relation(
        &self,
        node: &Arc<Node>,
        service: JidRef<'_>,
        owners: Vec<Jid>,
        user: Jid,
        groups: Vec<String>,
    ) -> BoxFuture<'static, Result<Relation, StoreError>>;

    /// Who receives an event of a node without a subscription. Those on other nodes of the cluster are sent it by this. Bare
    /// addresses in `subscribed` receive it anyway.
    fn implicit_recipients(
        &self,
        _node: &Arc<Node>,
        _key: &Jid,
        _event: &NodeEvent,
        _subscribed: &[Jid],
    ) -> ImplicitRecipients {
        ImplicitRecipients::Known(Arc::from([]))
    }

    /// Called every few seconds.
    fn sweep(&self, _node: &Arc<Node>) {}

    /// Items of a node have changed in the store.
    fn items_stored(&self, _node: &Arc<Node>, _key: &Jid) {}

    /// A node was created or removed.
    fn node_changed(&self, _node: &Arc<Node>, _key: &Jid, _exists: bool) {}
}

/// Who receives an event of a node without a subscription.
pub(crate) enum ImplicitRecipients {
    Known(Arc<[Jid]>),
    /// They must be read.
    Later(BoxFuture<'static, Arc<[Jid]>>),
}

/// A service with an address of its own.
#[derive(Debug)]
pub(crate) struct ServiceHost {
    /// The domain of accounts.
    pub(crate) domain: String,
}

/// Owners whose rosters are read for one request.
pub(crate) const MAX_OWNERS: usize = 8;

impl PubSubHost for ServiceHost {
    fn may_create(
        &self,
        node: &Arc<Node>,
        _: JidRef<'_>,
        (user, has_account): (JidRef<'_>, bool),
        options: &PubSubOptions,
    ) -> bool {
        if node.is_admin(user) {
            return true;
        }
        match options.creation {
            NodeCreationAccess::All => true,
            NodeCreationAccess::Admins => false,
            NodeCreationAccess::Users => user.domain() == self.domain && has_account,
        }
    }

    fn auto_creates(&self, options: &PubSubOptions) -> bool {
        options.auto_create
    }

    fn relation(
        &self,
        node: &Arc<Node>,
        _: JidRef<'_>,
        owners: Vec<Jid>,
        user: Jid,
        groups: Vec<String>,
    ) -> BoxFuture<'static, Result<Relation, StoreError>> {
        let node = node.clone();
        Box::pin(async move {
            let mut relation = Relation::default();
            let local = owners.into_iter().filter(|owner| node.host(owner.domain()).is_some());
            for owner in local.take(MAX_OWNERS) {
                let mut of_owner = Relation::default();
                read_relation(&node, &owner, &user, &groups, &mut of_owner).await?;
                // One owner must fulfil both: the presence of one says nothing about the groups of another.
                if of_owner.sees_presence && (groups.is_empty() || of_owner.is_in_group) {
                    return Ok(of_owner);
                }
                relation.sees_presence |= of_owner.sees_presence;
            }
            Ok(relation)
        })
    }
}

/// Adds what one owner's roster has about a user.
pub(crate) async fn read_relation(
    node: &Arc<Node>,
    owner: &Jid,
    user: &Jid,
    groups: &[String],
    relation: &mut Relation,
) -> Result<(), StoreError> {
    let roster = &node.stores.roster;
    let subscription = roster.subscription(owner.as_ref(), user.bare()).await?;
    relation.sees_presence |= subscription.contains(Subscription::FROM);
    if groups.is_empty() {
        return Ok(());
    }
    // Without an account there is no roster.
    let Some(owner) = node.stores.addresses.find(owner).await? else { return Ok(()) };
    let entry = match roster.entry(owner, &user.bare().to_jid()).await {
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(()),
        entry => entry?,
    };
    let of_user = entry.item.map(|item| item.groups).unwrap_or_default();
    relation.is_in_group |= of_user.iter().any(|group| groups.contains(group));
    Ok(())
}

/// Whether a user of this server has an account, which anonymous users (SASL ANONYMOUS) have not; others may be anything where
/// they are. Other nodes claim accounts with their numbers, and the store is asked about what nobody claims.
pub(crate) async fn has_account(node: &Node, user: JidRef<'_>) -> Result<bool, StoreError> {
    if node.host(user.domain()).is_none() {
        return Ok(true);
    }
    let session = || node.routing_table.find(user.bare())?.session(user.resource()?);
    if let Some(session) = session() {
        return Ok(!session.flags.has(flags::EPHEMERAL));
    }
    let location = node.cluster.locate(node.routing_table.hash(user), None);
    if location.claims().iter().any(|at| at.claim.number.is_some()) {
        return Ok(true);
    }
    node.stores.accounts.exists(user.bare()).await
}
