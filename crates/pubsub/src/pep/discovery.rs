//! Nodes of accounts in service discovery: XEP-0163 1.2.2, section 6; XEP-0030 2.5.0; in pages of XEP-0059 1.0.

use std::sync::Arc;

use base::BoxFuture;
use feature_api::disco::{AccountNodePage, AccountNodes, DiscoItem};
use hashbrown::HashMap;
use jid::Jid;
use stanza::payload::rsm::{PagePosition, RsmRequest};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubNodeOfService, StoreError, StoreErrorKind, Subscription};
use throng_core::Node;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;

use super::PersonalEventing;
use crate::affiliation::NodeAffiliation;
use crate::node::PubSubNode;
use crate::node_config::AccessModel;
use crate::options::PubSubLimits;
use crate::pubsub_error::not_found;
use crate::service::node_address;

/// Nodes of an account in one answer, and nodes that are read at once.
const MAX_NODES: u32 = 100;
const PAGE: u32 = 100;

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

    fn list(&self, request: &IqRequest<'_>) -> BoxFuture<'static, Result<AccountNodePage, StanzaError>> {
        let (pep, node) = (self.0.clone(), request.node.clone());
        let (service, user) = (PersonalEventing::service_of(request), request.from.bare().to_jid());
        let wanted = WantedNodes::read(request, &service);
        Box::pin(async move {
            let wanted = wanted?;
            let found = pep.visible_nodes(&node, (&service, &user), &wanted).await;
            let (nodes, has_more) = found.map_err(store_error)?;
            let is_page = wanted.is_page || has_more;
            Ok(AccountNodePage { nodes, is_continued: wanted.after.is_some(), is_page })
        })
    }
}

/// The nodes that a query wants.
struct WantedNodes {
    after: Option<Jid>,
    limit: usize,
    /// A page was requested (XEP-0059).
    is_page: bool,
}

impl WantedNodes {
    fn read(request: &IqRequest<'_>, service: &Jid) -> Result<WantedNodes, StanzaError> {
        let tree = request.tree()?;
        let query = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        let rsm = RsmRequest::from_parent(query)?;
        let after = match rsm.as_ref().map(|rsm| &rsm.position) {
            None | Some(PagePosition::First) => None,
            Some(PagePosition::After(name)) => {
                Some(node_address(service.as_ref(), name).map_err(|_| not_found())?)
            }
            Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let limit = rsm.as_ref().map_or(MAX_NODES, |rsm| rsm.page_size(MAX_NODES));
        Ok(WantedNodes { after, limit: limit as usize, is_page: rsm.is_some() })
    }
}

/// How the nodes that a user may see are found.
enum NodeVisibility {
    /// All of them are.
    All,
    /// Those that the store lists for everybody.
    Listed,
    /// By configuration, the affiliations of the user, and its groups in the roster, if it may see the presence of the account.
    Checked { affiliations: HashMap<Jid, NodeAffiliation>, groups: Option<Vec<String>> },
}

impl PersonalEventing {
    /// The nodes of an account whose existence is no secret for a user, and whether there are more. By the store: the list does not
    /// need the owner of the nodes, and neither their items nor their subscriptions.
    async fn visible_nodes(
        &self,
        node: &Arc<Node>,
        (service, user): (&Jid, &Jid),
        wanted: &WantedNodes,
    ) -> Result<(Vec<DiscoItem>, bool), StoreError> {
        let item = |jid: &Jid, title: String| {
            let node = jid.resource().map(str::to_owned);
            DiscoItem { jid: service.as_str().to_owned(), node, name: title }
        };
        let visibility = visibility(node, service, user).await?;
        let limits = self.service.shared.options().limits;
        let (mut found, mut after) = (Vec::new(), wanted.after.clone());
        loop {
            let page = visibility.page(node, service, after, &limits).await?;
            let is_last = page.len() < PAGE as usize;
            after = page.last().map(|(jid, ..)| jid.clone());
            for (jid, title, _) in page.into_iter().filter(|(.., is_visible)| *is_visible) {
                if found.len() >= wanted.limit {
                    return Ok((found, true));
                }
                found.push(item(&jid, title));
            }
            if is_last {
                return Ok((found, false));
            }
        }
    }
}

impl NodeVisibility {
    /// Nodes, their titles, and whether the user may see them. Fewer than [`PAGE`]: there are no more.
    async fn page(
        &self,
        node: &Node,
        service: &Jid,
        after: Option<Jid>,
        limits: &PubSubLimits,
    ) -> Result<Vec<(Jid, String, bool)>, StoreError> {
        let (pubsub, service) = (&node.stores.pubsub, service.as_ref());
        let (affiliations, groups) = match self {
            NodeVisibility::All => {
                let all = pubsub.list_all(service, after, PAGE).await?;
                return Ok(all.into_iter().map(|one| (one.jid, one.title, true)).collect());
            }
            NodeVisibility::Listed => {
                let listed = pubsub.list(service, after, PAGE).await?;
                return Ok(listed.into_iter().map(|one| (one.jid, one.title, true)).collect());
            }
            NodeVisibility::Checked { affiliations, groups } => (affiliations, groups),
        };
        let is_visible = |one: &PubSubNodeOfService| {
            let affiliation = affiliations.get(&one.jid).copied().unwrap_or(NodeAffiliation::None);
            match PubSubNode::stored_access(&one.record.config, limits) {
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
        let all = pubsub.records(service, after, PAGE).await?;
        let entry = |one: PubSubNodeOfService| {
            let is_visible = is_visible(&one);
            (one.jid, one.record.title, is_visible)
        };
        Ok(all.into_iter().map(entry).collect())
    }
}

async fn visibility(node: &Arc<Node>, service: &Jid, user: &Jid) -> Result<NodeVisibility, StoreError> {
    if service == user {
        return Ok(NodeVisibility::All);
    }
    let (mut affiliations, mut after) = (HashMap::new(), None);
    loop {
        let page = node.stores.pubsub.affiliations_of(user.as_ref(), service.as_ref(), after, PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        after = page.last().map(|(jid, _)| jid.clone());
        let known = |(jid, number)| Some((jid, NodeAffiliation::from_number(number)?));
        affiliations.extend(page.into_iter().filter_map(known));
        if is_last {
            break;
        }
    }
    let groups = groups_of(node, service, user).await?;
    Ok(match groups.is_none() && affiliations.is_empty() {
        true => NodeVisibility::Listed,
        false => NodeVisibility::Checked { affiliations, groups },
    })
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
