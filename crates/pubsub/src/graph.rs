//! The graph of collections between nodes (XEP-0248 0.5.0), which is directed and acyclic: what nodes send each other. What a
//! change must know about other nodes is in `associated_nodes.rs`.
//!
//! Both ends of an edge have it in their records: a child names its collections, and a collection its children. Notifications
//! go from a child to its collections, each of which sends them to its subscribers, and only accepts them from its children:
//! half an edge, which a crash can leave, has no effect.
//!
//! # Pitfalls
//!
//! Edges are added one after another on each node of a cluster (`graph_lock.rs`), so that there is no cycle. Two nodes of a
//! cluster could create one at the same moment: notifications pass at most [`MAX_LEVELS`] levels.
//!
//! Notifications go up and wait for the mailbox of the collection; changes of edges go in both directions, and must never wait.

use jid::Jid;
use throng_core::SharedStanza;

use crate::subscription::EventKind;

/// Levels that notifications pass.
pub(crate) const MAX_LEVELS: u32 = 16;
/// Collections that one notification reaches.
pub(crate) const MAX_REACHED: u32 = 256;

/// Who adds an edge. The node at the other end decides again whether this user may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EdgeRequester {
    /// The bare address.
    pub(crate) user: Jid,
    pub(crate) is_admin: bool,
}

/// What changes at one end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeChange {
    AddChild {
        /// Its creation is announced by itself.
        is_new: bool,
    },
    RemoveChild {
        /// Its deletion is announced by itself.
        is_deleted: bool,
    },
    AddParent,
    RemoveParent,
}

impl EdgeChange {
    const ALL: [(EdgeChange, &'static str); 6] = [
        (EdgeChange::AddChild { is_new: true }, "new-child"),
        (EdgeChange::AddChild { is_new: false }, "add-child"),
        (EdgeChange::RemoveChild { is_deleted: true }, "deleted-child"),
        (EdgeChange::RemoveChild { is_deleted: false }, "remove-child"),
        (EdgeChange::AddParent, "add-parent"),
        (EdgeChange::RemoveParent, "remove-parent"),
    ];
}

/// A change of an edge, for the node at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEdgeChange {
    /// The node that receives it.
    pub(crate) to: String,
    /// The other end.
    pub(crate) from: String,
    pub(crate) change: EdgeChange,
    /// Who adds the edge; `None` for one that is removed.
    pub(crate) requester: Option<EdgeRequester>,
}

/// How an event is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventDelivery {
    /// A user who does not receive it.
    pub(crate) except: Option<Jid>,
    /// Only available users receive it.
    pub(crate) presence_based: bool,
}

/// A notification of a child on its way to a collection.
#[derive(Clone, Debug)]
pub(crate) struct ChildEvent {
    /// The collection that receives it.
    pub(crate) to: String,
    /// Its child.
    pub(crate) from: String,
    pub(crate) stanza: SharedStanza,
    /// The same for all copies of a notification.
    pub(crate) id: Box<str>,
    pub(crate) kind: EventKind,
    /// Edges from the node that it is about.
    pub(crate) depth: u32,
    /// Collections that it may still reach.
    pub(crate) budget: u32,
    /// Everybody may know it.
    pub(crate) is_public: bool,
    pub(crate) delivery: EventDelivery,
}

/// What one node sends another one.
#[derive(Clone, Debug)]
pub(crate) enum GraphInput {
    Edge(NodeEdgeChange),
    Event(Box<ChildEvent>),
}

impl GraphInput {
    /// Bytes that it counts in a mailbox.
    pub(crate) fn size(&self) -> usize {
        match self {
            GraphInput::Edge(_) => 256,
            GraphInput::Event(event) => 256 + event.stanza.bytes().len(),
        }
    }

    /// The name of the node that receives it.
    pub(crate) fn to(&self) -> &str {
        match self {
            GraphInput::Edge(edge) => &edge.to,
            GraphInput::Event(event) => &event.to,
        }
    }

    /// As it is sent to another node of the cluster: lines, and the stanza after an empty one. Names have no control characters.
    pub(crate) fn encode(&self, service: &str) -> Vec<u8> {
        match self {
            GraphInput::Edge(edge) => {
                let change = EdgeChange::ALL.iter().find(|(change, _)| *change == edge.change);
                let change = change.map_or("", |(_, name)| name);
                let requester = edge.requester.as_ref();
                let user = requester.map_or("", |one| one.user.as_str());
                let is_admin = u8::from(requester.is_some_and(|one| one.is_admin));
                format!("edge\n{service}\n{}\n{}\n{change}\n{is_admin}\n{user}\n\n", edge.to, edge.from)
                    .into_bytes()
            }
            GraphInput::Event(event) => {
                let kind = if event.kind == EventKind::Items { "items" } else { "nodes" };
                let delivery = &event.delivery;
                let except = delivery.except.as_ref().map(Jid::as_str).unwrap_or_default();
                let (is_public, is_based) = (u8::from(event.is_public), u8::from(delivery.presence_based));
                let mut out = format!(
                    "event\n{service}\n{}\n{}\n{}\n{kind}\n{}\n{}\n{is_public}\n{is_based}\n{except}\n\n",
                    event.to, event.from, event.id, event.depth, event.budget
                )
                .into_bytes();
                out.extend_from_slice(event.stanza.bytes());
                out
            }
        }
    }

    /// Reads what another node of the cluster has sent: the service, and the input; `None` if it is damaged.
    pub(crate) fn decode(content: &[u8]) -> Option<(Jid, GraphInput)> {
        // The last line can be empty.
        let count = if content.starts_with(b"edge\n") { 7 } else { 11 };
        let mut end = 0;
        for _ in 0..count {
            end += content.get(end..)?.iter().position(|byte| *byte == b'\n')? + 1;
        }
        let lines: Vec<&str> = std::str::from_utf8(content.get(..end)?).ok()?.lines().collect();
        let rest = content.get(end..)?.strip_prefix(b"\n")?;
        let address =
            |text: &str| Some(text).filter(|text| !text.is_empty()).map(Jid::parse).transpose().ok();
        match lines.as_slice() {
            ["edge", service, to, from, change, is_admin, user] => {
                let (change, _) = EdgeChange::ALL.iter().find(|(_, name)| name == change)?;
                let requester = address(user)?.map(|user| EdgeRequester { user, is_admin: *is_admin == "1" });
                let (to, from) = ((*to).to_owned(), (*from).to_owned());
                let edge = NodeEdgeChange { to, from, change: *change, requester };
                Some((Jid::parse(service).ok()?, GraphInput::Edge(edge)))
            }
            ["event", service, to, from, id, kind, depth, budget, is_public, is_based, except] => {
                let event = ChildEvent {
                    to: (*to).to_owned(),
                    from: (*from).to_owned(),
                    stanza: SharedStanza::parse(rest)?,
                    id: (*id).into(),
                    kind: if *kind == "items" { EventKind::Items } else { EventKind::Nodes },
                    depth: depth.parse().ok()?,
                    budget: budget.parse::<u32>().ok()?.min(MAX_REACHED),
                    is_public: *is_public == "1",
                    delivery: EventDelivery { except: address(except)?, presence_based: *is_based == "1" },
                };
                Some((Jid::parse(service).ok()?, GraphInput::Event(Box::new(event))))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_between_nodes_of_a_cluster_is_read_again() {
        let user = Jid::parse("hamlet@denmark.lit").unwrap();
        for requester in [None, Some(EdgeRequester { user: user.clone(), is_admin: true })] {
            for (change, _) in EdgeChange::ALL {
                let (to, from) = ("blogs".to_owned(), "princely musings".to_owned());
                let edge = NodeEdgeChange { to, from, change, requester: requester.clone() };
                let bytes = GraphInput::Edge(edge.clone()).encode("pubsub.a.org");
                let (service, read) = GraphInput::decode(&bytes).unwrap();
                assert!(
                    service.as_str() == "pubsub.a.org"
                        && matches!(read, GraphInput::Edge(read) if read == edge)
                );
            }
        }
        for except in [None, Some(user)] {
            let event = ChildEvent {
                to: "blogs".into(),
                from: "musings".into(),
                stanza: SharedStanza::parse(b"<message><event>\n\n</event></message>").unwrap(),
                id: "1".into(),
                kind: EventKind::Items,
                depth: 2,
                budget: 9,
                is_public: true,
                delivery: EventDelivery { except: except.clone(), presence_based: false },
            };
            let bytes = GraphInput::Event(Box::new(event)).encode("pubsub.a.org");
            let Some((_, GraphInput::Event(read))) = GraphInput::decode(&bytes) else { panic!("{bytes:?}") };
            let read_back = (&*read.from, read.depth, read.budget, read.delivery.except);
            assert_eq!(read_back, ("musings", 2, 9, except));
            assert!(
                read.stanza.bytes().ends_with(b"\n\n</event></message>") && read.kind == EventKind::Items
            );
            for cut in 0..bytes.len() {
                drop(GraphInput::decode(&bytes[..cut]));
            }
        }
        assert!(GraphInput::decode(b"").is_none() && GraphInput::decode(b"edge\n\n\n\n\n\n\n\n").is_none());
    }
}
