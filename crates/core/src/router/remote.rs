//! Accounts whose sessions are on other nodes: one parcel a node, as the cluster locates them.

use std::sync::Arc;

use cluster::{Change, Inbox, NodeId, Parcel, Place};
use jid::JidRef;

use super::Work;
use crate::frame::{Class, Frame};
use crate::node::Node;

/// The kind of parcel that carries a stanza.
const STANZA: u8 = 1;

impl Node {
    /// Hands a stanza to the nodes that have sessions of the recipient. True if any took it.
    pub(crate) fn elsewhere(&self, frame: &Frame, to: JidRef<'_>) -> bool {
        let own = self.cluster.node();
        let class = match frame.class() {
            Class::Control => cluster::Class::Control,
            Class::Message => cluster::Class::Message,
            Class::Presence => cluster::Class::Presence,
        };
        let place = self.cluster.locate(self.table.hash(to));
        let mut taken = false;
        for node in nodes(&place, own) {
            let parcel = Parcel::new(STANZA, class, own, vec![to.to_jid()], frame.bytes());
            taken |= self.cluster.deliver(node, parcel).is_ok();
        }
        taken
    }

    /// Whether a domain is among the hosts.
    pub(crate) fn hosts_contain(&self, domain: &str) -> bool {
        self.host_names(|hosts| hosts.contains_key(domain))
    }
}

fn nodes(place: &Place, own: NodeId) -> Vec<NodeId> {
    place.elsewhere(own).collect()
}

/// What arrives from other nodes.
#[derive(Debug)]
pub struct Arrivals(pub Arc<Node>);

impl Inbox for Arrivals {
    fn parcel(&self, _from: NodeId, parcel: Parcel) {
        if parcel.facts.kind != STANZA {
            return;
        }
        let Some(frame) = Frame::read(&parcel.bytes) else { return };
        let Some(from) = frame.head().from(frame.bytes()).and_then(|f| jid::Jid::parse(&f).ok()) else {
            return;
        };
        let mut work = Work::default();
        for to in &parcel.recipients {
            self.0.incoming(frame.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
        }
        self.0.settle_detached(work);
    }
    fn undelivered(&self, _to: NodeId, parcel: Parcel) {
        let Some(frame) = Frame::read(&parcel.bytes) else { return };
        let Some(from) = frame.head().from(frame.bytes()).and_then(|f| jid::Jid::parse(&f).ok()) else {
            return;
        };
        let mut work = Work::default();
        for to in &parcel.recipients {
            self.0.undelivered(frame.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
        }
        self.0.settle_detached(work);
    }
    fn changed(&self, change: Change) {
        tracing::info!(?change, "cluster membership");
    }
}
