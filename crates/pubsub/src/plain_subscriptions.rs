//! Plain subscriptions: bare addresses without options, of which a node can have millions and a user thousands.
//!
//! Everything that reads sets of them goes through this file. Changes are part of a node's changes in the store.

use jid::{Jid, JidRef};
use store::{EntitySubscription, StoreError, Stores};

/// Subscribers that are read at once.
pub(crate) const PAGE: u32 = 1_000;

/// The plain subscriptions of the store.
pub(crate) struct PlainSubscriptions<'a>(pub(crate) &'a Stores);

impl PlainSubscriptions<'_> {
    /// Whether a user is subscribed.
    pub(crate) async fn contains(&self, node: JidRef<'_>, user: JidRef<'_>) -> Result<bool, StoreError> {
        self.0.pubsub.is_subscribed(node, user.bare()).await
    }

    /// A page of the subscribers of a node.
    pub(crate) async fn subscribers(
        &self,
        node: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> Result<Vec<Jid>, StoreError> {
        self.0.pubsub.subscribers(node, after, limit).await
    }

    /// Number of subscribers of a node.
    pub(crate) async fn count(&self, node: JidRef<'_>) -> Result<u64, StoreError> {
        self.0.pubsub.count_subscribers(node).await
    }

    /// A page of the nodes of a service to which a user is subscribed, with the special subscriptions.
    pub(crate) async fn nodes(
        &self,
        user: JidRef<'_>,
        service: JidRef<'_>,
        after: Option<Jid>,
        limit: u32,
    ) -> Result<Vec<EntitySubscription>, StoreError> {
        self.0.pubsub.subscriptions_of(user.bare(), service, after, limit).await
    }

    /// Number of subscriptions of a user, at most `most`.
    pub(crate) async fn count_of_user(&self, user: JidRef<'_>, most: u32) -> Result<u64, StoreError> {
        self.0.pubsub.count_subscriptions(user.bare(), most).await
    }
}
