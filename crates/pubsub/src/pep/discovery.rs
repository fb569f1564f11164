//! Nodes of accounts in service discovery: XEP-0163 1.2.2, section 6; XEP-0030 2.5.0.

use std::sync::Arc;

use base::BoxFuture;
use feature_api::disco::{AccountNodes, DiscoItem};
use jid::{Jid, JidRef};
use stanza::StanzaError;
use store::StoreError;
use throng_core::Node;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;

use super::PersonalEventing;
use crate::node::{PubSubNode, Requester};
use crate::node_config::AccessModel;
use crate::options::PubSubLimits;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_host::Relation;

/// Nodes of an account that are listed.
const MAX_NODES: u32 = 100;

/// Nodes in the answers of accounts.
pub(super) struct AccountDiscovery(pub(super) Arc<PersonalEventing>);

/// The node of a query of service discovery.
pub(super) fn queried_node(bytes: &[u8]) -> Option<String> {
    let tree = throng_core::shared_stanza::tree(bytes).ok()?;
    let node = tree.root().child_elements().next()?.attr("node")?;
    Some(node.into_owned()).filter(|node| !node.is_empty())
}

impl AccountNodes for AccountDiscovery {
    fn answer(&self, request: &IqRequest<'_>) -> IqFlow {
        self.0.handle_request(request, false)
    }

    fn list(&self, request: &IqRequest<'_>) -> BoxFuture<'static, Result<Vec<DiscoItem>, StanzaError>> {
        let (pep, node) = (self.0.clone(), request.node.clone());
        let (service, user) = (PersonalEventing::service_of(request), request.from.bare().to_jid());
        Box::pin(async move { pep.visible_nodes(&node, &service, &user).await.map_err(store_error) })
    }
}

impl PersonalEventing {
    /// The nodes of an account whose items a user may retrieve.
    async fn visible_nodes(
        &self,
        node: &Arc<Node>,
        service: &Jid,
        user: &Jid,
    ) -> Result<Vec<DiscoItem>, StoreError> {
        let all = node.stores.pubsub.list_all(service.as_ref(), None, MAX_NODES).await?;
        let limits = self.service.shared.options().limits;
        let mut visible = Vec::new();
        for one in all {
            if service != user && !self.may_read(node, one.jid.as_ref(), user, &limits).await? {
                continue;
            }
            let name = one.jid.resource().map(str::to_owned);
            visible.push(DiscoItem { jid: service.as_str().to_owned(), node: name, name: one.title });
        }
        Ok(visible)
    }

    /// Whether a user may retrieve items. By the store: the list does not need the owner of the nodes.
    async fn may_read(
        &self,
        node: &Arc<Node>,
        key: JidRef<'_>,
        user: &Jid,
        limits: &PubSubLimits,
    ) -> Result<bool, StoreError> {
        let Some(stored) = node.stores.pubsub.load(key).await? else { return Ok(false) };
        let name = key.resource().unwrap_or_default().to_owned();
        let Some(one) = PubSubNode::restore(key.bare().to_jid(), name, stored, limits) else {
            return Ok(false);
        };
        let config = one.config();
        let host = &self.service.shared.host;
        let relation = match config.access_model {
            AccessModel::Presence | AccessModel::Roster => {
                let groups = config.roster_groups.clone();
                host.relation(node, key.bare(), Vec::new(), user.clone(), groups).await?
            }
            _ => Relation::default(),
        };
        let has_plain_subscription = match config.access_model {
            AccessModel::Authorize => PlainSubscriptions(&node.stores).contains(key, user.as_ref()).await?,
            _ => false,
        };
        let requester = Requester {
            jid: user,
            is_admin: false,
            is_anonymous: false,
            has_plain_subscription,
            sees_presence: relation.sees_presence,
            is_in_group: relation.is_in_group,
            may_subscribe: false,
        };
        Ok(one.may_read(&requester))
    }
}
