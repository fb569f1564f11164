//! Services: addresses of their own that features provide, such as `proxy.example.com`.
//!
//! A feature declares a `ServiceSpec` and registers handlers; the engine and `feature-api` do the rest. The service has an IQ
//! table with its own errors, answers service discovery, limits the rate of each sender, is counted in the metrics, and is an
//! item of its domain. Its address and the rate are options of the module, and follow a reload.
//!
//! Requests address the *service* (its domain), an *item* (`item@service`) or an *item's resource*
//! (`item@service/resource`); see [`crate::iq::IqTarget`]. A feature without a service may register requests to the
//! service: they are answered by every service of the domain that has no handler of its own for them.
//!
//! # Pitfalls
//!
//! A service receives stanzas from users of every domain of the node. A handler that serves only users of its own domain
//! compares the domain of the sender.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::StanzaCondition;
use stanza_rates::ServiceRates;

use crate::effect::Effects;
use crate::hooks::Flow;
use crate::host::Host;
use crate::iq::{IqTable, IqTarget};
use crate::node::Node;
use crate::shared_stanza::SharedStanza;

/// A message, a presence, or an IQ that is passed on, for a service.
pub struct ServiceCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The host that offers the service.
    pub host: &'a Arc<Host>,
    /// The service.
    pub service: &'a Arc<Service>,
    /// The stanza.
    pub stanza: &'a SharedStanza,
    /// The sender.
    pub from: JidRef<'a>,
    /// The service, one of its items, or a resource of an item.
    pub to: JidRef<'a>,
    /// Whether the handler may return [`Flow::Wait`] until there is room for the stanza. Not in the lane of a recipient: the
    /// service may be waiting for that lane itself.
    pub may_wait: bool,
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// Handles messages or presence for a service; implemented by closures of the same signature. A refused stanza is
/// returned to its sender, except for errors.
pub trait ServiceHandler: Send + Sync {
    /// Handles a stanza. Must not block.
    fn handle(&self, ctx: &mut ServiceCtx<'_>) -> Flow;
}

impl<F> ServiceHandler for F
where
    F: Fn(&mut ServiceCtx<'_>) -> Flow + Send + Sync,
{
    fn handle(&self, ctx: &mut ServiceCtx<'_>) -> Flow {
        self(ctx)
    }
}

/// Names the thing that a stanza to a service is about, if the address alone does not; implemented by closures of the same
/// signature. In a cluster the node that owns the name handles the stanza. `None`: any node can.
pub trait ServiceItemName: Send + Sync {
    /// The name. Must not block.
    fn name(&self, stanza: &SharedStanza, to: JidRef<'_>) -> Option<String>;
}

impl<F> ServiceItemName for F
where
    F: Fn(&SharedStanza, JidRef<'_>) -> Option<String> + Send + Sync,
{
    fn name(&self, stanza: &SharedStanza, to: JidRef<'_>) -> Option<String> {
        self(stanza, to)
    }
}

/// A service of a host.
pub struct Service {
    /// The feature that provides it, which is also its name in the metrics.
    pub feature: &'static str,
    /// Its address: a domain.
    pub jid: Jid,
    /// Human-readable name.
    pub name: &'static str,
    /// Its request handlers.
    pub iq: IqTable,
    /// Its handler of messages.
    pub message: Option<Arc<dyn ServiceHandler>>,
    /// Its handler of presence.
    pub presence: Option<Arc<dyn ServiceHandler>>,
    /// Its handler of requests to resources of items, and of responses: those of users to requests that the service has passed
    /// on. Without it, the table has the requests, and responses are dropped.
    pub relayed_iq: Option<Arc<dyn ServiceHandler>>,
    /// Rates of its senders.
    pub rates: ServiceRates,
    /// Whether it has handlers of requests to items.
    pub has_items: bool,
    /// Names the items of a service whose items are not addresses.
    pub item_name: Option<Arc<dyn ServiceItemName>>,
}

impl Service {
    /// Its address: a domain.
    pub fn address(&self) -> &str {
        self.jid.as_ref().as_str()
    }

    /// Counts a stanza of a sender; false if it is above the rate. The engine has counted those to the service's address.
    pub fn try_take_rate(&self, node: &Node, from: JidRef<'_>) -> bool {
        let is_local = node.domains().host(from.domain()).is_some();
        let sender = if is_local { from.bare().as_str() } else { from.domain() };
        self.rates.try_take(sender, node.clock.now())
    }

    /// What an address at the service addresses.
    pub(crate) fn target(to: JidRef<'_>) -> IqTarget {
        match (to.local(), to.resource()) {
            // As for a server, a resource without a local part addresses the service itself.
            (None, _) => IqTarget::Service,
            (Some(_), None) => IqTarget::ServiceItem,
            (Some(_), Some(_)) => IqTarget::ServiceItemResource,
        }
    }

    /// The hash of the item that a stanza is about, by which one node of a cluster owns it.
    pub fn owner_hash(&self, node: &Node, stanza: &SharedStanza, to: JidRef<'_>) -> Option<u64> {
        match &self.item_name {
            Some(items) => items.name(stanza, to).map(|name| node.routing_table.hash_name(&name)),
            None => to.local().filter(|_| self.has_items).map(|_| node.routing_table.hash(to)),
        }
    }

    /// The error for a stanza without a handler.
    pub(crate) fn unhandled(&self, target: IqTarget) -> StanzaCondition {
        if target != IqTarget::Service && !self.has_items {
            StanzaCondition::ItemNotFound
        } else {
            StanzaCondition::ServiceUnavailable
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({})", self.jid)
    }
}
