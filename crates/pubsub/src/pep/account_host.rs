//! Accounts as hosts of nodes: XEP-0163 1.2.2, sections 3.1 to 3.5.

use std::sync::Arc;

use base::BoxFuture;
use jid::{Jid, JidRef};
use store::StoreError;
use throng_core::Node;

use super::account_nodes::AccountNodesCache;
use super::conversion::{ConversionKind, Conversions};
use super::notifications;
use crate::node::NodeEvent;
use crate::node_config::PubSubNodeConfig;
use crate::options::{PubSubLimits, PubSubOptions};
use crate::pubsub_host::{ImplicitRecipients, PubSubHost, Relation, read_relation};

/// What is known of the accounts of a domain.
#[derive(Default)]
pub(crate) struct PepAccounts {
    pub(crate) nodes: AccountNodesCache,
    pub(crate) conversions: Conversions,
}

/// The accounts of a domain.
pub(crate) struct AccountHost {
    pub(crate) domain: String,
    pub(crate) accounts: Arc<PepAccounts>,
}

impl PubSubHost for AccountHost {
    fn may_create(
        &self,
        _: &Arc<Node>,
        service: JidRef<'_>,
        (user, has_account): (JidRef<'_>, bool),
        _: &PubSubOptions,
    ) -> bool {
        user.bare() == service.bare() && service.domain() == self.domain && has_account
    }

    fn auto_creates(&self, _: &PubSubOptions) -> bool {
        true
    }

    fn default_config(&self, limits: &PubSubLimits) -> PubSubNodeConfig {
        PubSubNodeConfig::of_account(limits)
    }

    fn admins_are_owners(&self) -> bool {
        false
    }

    /// The roster of the account decides, also for the publishers of other owners.
    fn relation(
        &self,
        node: &Arc<Node>,
        service: JidRef<'_>,
        _: Vec<Jid>,
        user: Jid,
        groups: Vec<String>,
    ) -> BoxFuture<'static, Result<Relation, StoreError>> {
        let (node, service) = (node.clone(), service.bare().to_jid());
        Box::pin(async move {
            let mut relation = Relation::default();
            read_relation(&node, &service, &user, &groups, &mut relation).await?;
            Ok(relation)
        })
    }

    fn implicit_recipients(
        &self,
        node: &Arc<Node>,
        key: &Jid,
        event: &NodeEvent,
        subscribed: &[Jid],
    ) -> ImplicitRecipients {
        notifications::recipients(node, key, event, subscribed)
    }

    fn sweep(&self, node: &Arc<Node>) {
        if !node.is_single() {
            self.accounts.nodes.retain(|hash| peers::slices::other_owner(node, hash).is_none());
        }
    }

    fn items_stored(&self, node: &Arc<Node>, key: &Jid) {
        if let Some(kind) = key.resource().and_then(ConversionKind::of_items) {
            self.accounts.conversions.request(node, &key.bare().to_jid(), kind);
        }
    }

    fn node_changed(&self, node: &Arc<Node>, key: &Jid, exists: bool) {
        self.accounts.nodes.changed(node, key, exists);
    }
}
