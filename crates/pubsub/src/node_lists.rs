//! Lists over all nodes of a service, from the store: XEP-0060 1.30.0, sections 5.2 (nodes), 5.6 (subscriptions) and 5.7
//! (affiliations), in pages of XEP-0059 1.0. Their cost depends on the answer, not on the number of nodes.

use jid::Jid;
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use store::EntitySubscription;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;
use xml::{Ns, Writer};

use crate::affiliation::NodeAffiliation;
use crate::node::ROOT_NODE;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_error::not_found;
use crate::service::node_address;
use crate::subscription::NodeSubscription;

/// Nodes of a page.
const MAX_PAGE: u32 = 100;
/// Bytes of subscriptions of a page.
const PAGE_BYTES: usize = 192 << 10;

/// Section 5.2.
pub(crate) fn list_nodes(
    request: &IqRequest<'_>,
    service: &Jid,
    rsm: Option<RsmRequest>,
) -> Result<IqFlow, StanzaError> {
    let page = NodePage::new(service, rsm.as_ref())?;
    let stores = request.node.stores.clone();
    Ok(IqFlow::wait(async move {
        let NodePage { service, after, limit, is_page } = page;
        let nodes = stores.pubsub.list(service.as_ref(), after, limit).await.map_err(store_error)?;
        let count = stores.pubsub.count(service.as_ref()).await.map_err(store_error)?;
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoItems);
        for node in &nodes {
            let name = node.jid.resource().unwrap_or_default();
            let title = if node.title.is_empty() { name } else { &node.title };
            w.start("item").attr("jid", service.as_str()).attr("node", name).attr("name", title).end();
        }
        if is_page || (nodes.len() as u64) < count {
            write_page(&mut w, nodes.first().zip(nodes.last()).map(|(a, b)| (&a.jid, &b.jid)), Some(count));
        }
        w.end();
        Ok(out)
    }))
}

/// Section 5.6: cost depends on the answer, not on the number of nodes.
pub(crate) fn list_subscriptions(
    request: &IqRequest<'_>,
    service: &Jid,
    rsm: Option<&RsmRequest>,
) -> Result<IqFlow, StanzaError> {
    let page = NodePage::new(service, rsm)?;
    let (stores, user) = (request.node.stores.clone(), request.from.bare().to_jid());
    Ok(IqFlow::wait(async move {
        let NodePage { service, after, limit, is_page } = page;
        let plain = PlainSubscriptions(&stores);
        let found = plain.nodes(user.as_ref(), service.as_ref(), after, limit).await;
        let found = found.map_err(store_error)?;
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", Ns::Pubsub).start("subscriptions");
        // A page ends with a node, so that the next one has the rest.
        let (mut bytes, mut is_shortened) = (0, false);
        let mut shown: Vec<&EntitySubscription> = Vec::with_capacity(found.len());
        for of_node in found.chunk_by(|one, other| one.node == other.node) {
            bytes += of_node.iter().map(|one| 128 + subscription_bytes(one)).sum::<usize>();
            if bytes > PAGE_BYTES && !shown.is_empty() {
                is_shortened = true;
                break;
            }
            shown.extend(of_node);
        }
        for one in &shown {
            let node = one.node.resource().filter(|name| *name != ROOT_NODE);
            let special = one.special.clone().and_then(NodeSubscription::restore);
            if one.special.is_some() && special.is_none() {
                continue;
            }
            let jid = special.as_ref().map_or(&user, |special| &special.jid);
            w.start("subscription").attr_opt("node", node).attr("jid", jid.as_str());
            match &special {
                None => w.attr("subscription", "subscribed"),
                Some(special) => {
                    w.attr_opt("subid", special.is_approved().then_some(&*special.subid));
                    w.attr("subscription", special.state.as_str())
                }
            };
            w.end();
        }
        w.end();
        let mut nodes: Vec<&Jid> = found.iter().map(|one| &one.node).collect();
        nodes.dedup();
        if is_page || is_shortened || nodes.len() >= limit as usize {
            write_page(&mut w, shown.first().zip(shown.last()).map(|(a, b)| (&a.node, &b.node)), None);
        }
        w.end();
        Ok(out)
    }))
}

/// Section 5.7.
pub(crate) fn list_affiliations(
    request: &IqRequest<'_>,
    service: &Jid,
    rsm: Option<&RsmRequest>,
) -> Result<IqFlow, StanzaError> {
    let page = NodePage::new(service, rsm)?;
    let (stores, user) = (request.node.stores.clone(), request.from.bare().to_jid());
    Ok(IqFlow::wait(async move {
        let NodePage { service, after, limit, is_page } = page;
        let found = stores.pubsub.affiliations_of(user.as_ref(), service.as_ref(), after, limit).await;
        let found = found.map_err(store_error)?;
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", Ns::Pubsub).start("affiliations");
        for (node, number) in &found {
            let Some(affiliation) = NodeAffiliation::from_number(*number) else { continue };
            w.start("affiliation").attr("node", node.resource().unwrap_or_default());
            w.attr("affiliation", affiliation.as_str()).end();
        }
        w.end();
        if is_page || found.len() >= limit as usize {
            write_page(&mut w, found.first().zip(found.last()).map(|(a, b)| (&a.0, &b.0)), None);
        }
        w.end();
        Ok(out)
    }))
}

fn subscription_bytes(one: &EntitySubscription) -> usize {
    one.node.as_str().len() + one.special.as_ref().map_or(0, |special| special.jid.as_str().len())
}

/// A page of nodes that a request wants.
struct NodePage {
    service: Jid,
    after: Option<Jid>,
    limit: u32,
    is_page: bool,
}

impl NodePage {
    fn new(service: &Jid, rsm: Option<&RsmRequest>) -> Result<NodePage, StanzaError> {
        let service = service.clone();
        let after = match rsm.map(|rsm| &rsm.position) {
            None | Some(PagePosition::First) => None,
            Some(PagePosition::After(name)) => {
                Some(node_address(service.as_ref(), name).map_err(|_| not_found())?)
            }
            Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let limit = rsm.map_or(MAX_PAGE, |rsm| rsm.page_size(MAX_PAGE));
        Ok(NodePage { service, after, limit, is_page: rsm.is_some() })
    }
}

/// Names are the ids of a page's ends.
fn write_page(w: &mut Writer<'_>, ends: Option<(&Jid, &Jid)>, count: Option<u64>) {
    let name = |jid: &Jid| jid.resource().unwrap_or_default().to_owned();
    let ends = ends.map(|(first, last)| (name(first), name(last)));
    let ends = ends.as_ref().map(|(first, last)| (first.as_str(), last.as_str()));
    RsmResponse { first_and_last: ends, index: None, count }.write(w);
}
