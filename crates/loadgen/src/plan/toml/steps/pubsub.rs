//! Parser of the steps at PubSub nodes.

use super::super::super::pubsub::NODE_PREFIX;
use super::super::super::{PubSubNodeSelection, PubSubStep, TextTemplate};
use super::super::reader::{TomlNode, TomlSection};
use super::room::ring;
use super::send::body;

const EXAMPLE: &str = "node = \"news\", node = 7 or node = \"ring\"";

pub(super) fn create(s: &TomlSection<'_>) -> Option<PubSubStep> {
    let (node, wait) = (named(s), waits(s));
    Some(PubSubStep::Create { node: node?, wait })
}

pub(super) fn delete(s: &TomlSection<'_>) -> Option<PubSubStep> {
    let (node, wait) = (named(s), waits(s));
    Some(PubSubStep::Delete { node: node?, wait })
}

pub(super) fn subscribe(s: &TomlSection<'_>) -> Option<PubSubStep> {
    let (node, wait) = (named(s), waits(s));
    Some(PubSubStep::Subscribe { node: node?, wait })
}

pub(super) fn listen(s: &TomlSection<'_>) -> Option<PubSubStep> {
    Some(PubSubStep::Listen { node: named(s)? })
}

pub(super) fn unsubscribe(s: &TomlSection<'_>) -> Option<PubSubStep> {
    let node = node_or(s, PubSubNodeSelection::All);
    let subid = s.get("subid").and_then(|n| n.template());
    let wait = waits(s);
    Some(PubSubStep::Unsubscribe { node: node?, subid, wait })
}

pub(super) fn publish(s: &TomlSection<'_>) -> Option<PubSubStep> {
    let (node, wait) = (node_or(s, PubSubNodeSelection::Subscribed), waits(s));
    let body = body(s)?;
    Some(PubSubStep::Publish { node: node?, body, wait })
}

/// Nodes to which the user need not be subscribed.
fn named(s: &TomlSection<'_>) -> Option<PubSubNodeSelection> {
    let node = s.need("node", EXAMPLE)?;
    let selection = selection(s, &node)?;
    if matches!(selection, PubSubNodeSelection::Subscribed | PubSubNodeSelection::All) {
        return node.none("must name a node, such as \"news\", 7 or \"ring\"");
    }
    Some(selection)
}

fn node_or(s: &TomlSection<'_>, default: PubSubNodeSelection) -> Option<PubSubNodeSelection> {
    match s.get("node") {
        Some(node) => selection(s, &node),
        None => Some(default),
    }
}

fn waits(s: &TomlSection<'_>) -> bool {
    s.get("wait").and_then(|n| n.word(&[("answer", true), ("none", false)])).unwrap_or(true)
}

/// A node by number, by its name, by position in a ring, or those to which the user is subscribed.
fn selection(s: &TomlSection<'_>, node: &TomlNode<'_>) -> Option<PubSubNodeSelection> {
    let (nodes, count) = (s.get("nodes"), s.get("count"));
    let given = [&nodes, &count].into_iter().flatten().next();
    let ring = if node.is_text() { ring(node) } else { None };
    if let (None, Some(given)) = (&ring, given) {
        given.error("belongs to node = \"ring\"; remove it");
    }
    if node.integer().is_some() {
        let number = node.whole(0, i64::from(u32::MAX))?;
        return Some(PubSubNodeSelection::Named(TextTemplate::literal(format!("{NODE_PREFIX}{number}"))));
    }
    match (ring, node.text()?) {
        (Some(offset), _) => {
            let nodes = nodes.map_or(Some(s.context.connections), |n| n.amount());
            let count = count.map_or(Some(1), |n| n.whole(1, 10_000));
            let count = u32::try_from(count?).unwrap_or(u32::MAX);
            Some(PubSubNodeSelection::Ring { offset: offset?, nodes: nodes?, count })
        }
        (None, "subscribed") => Some(PubSubNodeSelection::Subscribed),
        (None, "all") => Some(PubSubNodeSelection::All),
        (None, "") => node.none("is empty; name a node, such as \"news\""),
        (None, _) => node.template().map(PubSubNodeSelection::Named),
    }
}
