//! Nodes of accounts in service discovery: XEP-0163 1.2.2, section 6; XEP-0030 2.5.0.

use std::sync::Arc;

use base::BoxFuture;
use feature_api::disco::{AccountNodes, DiscoItem};
use hashbrown::HashMap;
use jid::Jid;
use stanza::StanzaError;
use store::{PubSubNodeOfService, StoreError, StoreErrorKind, Subscription};
use throng_core::Node;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;

use super::PersonalEventing;
use crate::affiliation::NodeAffiliation;
use crate::node::PubSubNode;
use crate::node_config::AccessModel;

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
    /// The nodes of an account whose existence is no secret for a user. By the store: the list does not need the owner of the nodes,
    /// and neither their items nor their subscriptions.
    async fn visible_nodes(
        &self,
        node: &Arc<Node>,
        service: &Jid,
        user: &Jid,
    ) -> Result<Vec<DiscoItem>, StoreError> {
        let (pubsub, of_account) = (&node.stores.pubsub, service.as_ref());
        let item = |(jid, title): (Jid, String)| {
            let node = jid.resource().map(str::to_owned);
            DiscoItem { jid: service.as_str().to_owned(), node, name: title }
        };
        if service == user {
            let all = pubsub.list_all(of_account, None, MAX_NODES).await?;
            return Ok(all.into_iter().map(|one| item((one.jid, one.title))).collect());
        }
        let affiliations = pubsub.affiliations_of(user.as_ref(), of_account, None, MAX_NODES).await?;
        let affiliations: HashMap<Jid, NodeAffiliation> = affiliations
            .into_iter()
            .filter_map(|(jid, number)| Some((jid, NodeAffiliation::from_number(number)?)))
            .collect();
        let groups = groups_of(node, service, user).await?;
        if groups.is_none() && affiliations.is_empty() {
            let listed = pubsub.list(of_account, None, MAX_NODES).await?;
            return Ok(listed.into_iter().map(|one| item((one.jid, one.title))).collect());
        }
        let limits = self.service.shared.options().limits;
        let is_visible = |one: &PubSubNodeOfService| {
            let affiliation = affiliations.get(&one.jid).copied().unwrap_or(NodeAffiliation::None);
            match PubSubNode::stored_access(&one.record.config, &limits) {
                _ if affiliation.may_always_read() => true,
                _ if affiliation != NodeAffiliation::None => false,
                Some((AccessModel::Open | AccessModel::Authorize, _)) => true,
                Some((AccessModel::Presence, _)) => groups.is_some(),
                Some((AccessModel::Roster, allowed)) => {
                    groups.as_ref().is_some_and(|groups| groups.iter().any(|group| allowed.contains(group)))
                }
                Some((AccessModel::Whitelist, _)) | None => false,
            }
        };
        let all = pubsub.records(of_account, None, MAX_NODES).await?;
        Ok(all.into_iter().filter(is_visible).map(|one| item((one.jid, one.record.title))).collect())
    }
}

/// The groups of a user in the roster of an account, if the user may see its presence.
async fn groups_of(node: &Arc<Node>, account: &Jid, user: &Jid) -> Result<Option<Vec<String>>, StoreError> {
    let roster = &node.stores.roster;
    let subscription = roster.subscription(account.as_ref(), user.as_ref()).await?;
    if !subscription.contains(Subscription::FROM) {
        return Ok(None);
    }
    let Some(id) = node.stores.addresses.find(account).await? else { return Ok(None) };
    match roster.entry(id, user).await {
        Ok(entry) => Ok(Some(entry.item.map(|item| item.groups).unwrap_or_default())),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
