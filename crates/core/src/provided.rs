//! Values that one feature of a host provides to the engine, to streams, to interfaces or to other features. They are found by
//! their type in [`crate::Host::extensions`]; a feature provides one with `FeatureBuilder::provide`.
//!
//! Not implemented: values that several features fill together, such as commands; see
//! `FeatureBuilder::extension`.

use std::sync::Arc;

use base::Provided;
use stanza::Head;

use crate::host::Host;
use crate::node::Node;
use crate::session::Session;
use crate::shared_stanza::SharedStanza;

/// Builds the keep-alive ping for an idle client.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlivePing(pub fn(&Session) -> Option<SharedStanza>);

/// Returns the software of a client in a few words or as a URI, if the client reported it.
#[derive(Clone, Copy, Debug)]
pub struct ClientSoftware(pub fn(&Session) -> Option<String>);

/// Marks a message that reaches another resource or the store later than it was sent: adds the domain and the time, in
/// milliseconds since 1970, at which it first sent the message.
#[derive(Clone, Copy, Debug)]
pub struct AddDelay(pub fn(&SharedStanza, &str, u64) -> Option<SharedStanza>);

/// Verified capabilities of clients (XEP-0115).
#[derive(Clone, Copy)]
pub struct ClientCapabilities {
    /// Whether the client of a session has a feature; false while its capabilities are unknown.
    pub has: fn(&Node, &Session, &str) -> bool,
    /// The client's features that end with this text, without it; `None` while its capabilities are unknown.
    pub with_suffix: fn(&Node, &Session, &str) -> Option<Vec<String>>,
}

/// Is called when the capabilities of an available session have become known, or have changed: with the client's earlier
/// features, if those were known.
#[derive(Clone)]
pub struct CapabilitiesObserver(pub Arc<dyn ObserveCapabilities>);

/// See [`CapabilitiesObserver`]; implemented by closures of the same signature. Must not block.
pub trait ObserveCapabilities: Send + Sync {
    /// `had`: whether the client had a feature before.
    fn capabilities_known(&self, node: &Arc<Node>, session: &Arc<Session>, had: &dyn Fn(&str) -> bool);
}

impl<F> ObserveCapabilities for F
where
    F: Fn(&Arc<Node>, &Arc<Session>, &dyn Fn(&str) -> bool) + Send + Sync,
{
    fn capabilities_known(&self, node: &Arc<Node>, session: &Arc<Session>, had: &dyn Fn(&str) -> bool) {
        self(node, session, had);
    }
}

/// Decides which requests to an account the node answers that owns the account's items, such as nodes of PubSub: one node of a
/// cluster. Others are answered where they arrive.
#[derive(Clone, Copy, Debug)]
pub struct OwnedAccountRequests(pub fn(&Host, &Head, &[u8]) -> bool);

impl Provided for ClientCapabilities {
    const NAME: &'static str = "the capabilities of clients";
}

impl Provided for CapabilitiesObserver {
    const NAME: &'static str = "the observer of capabilities";
}

impl Provided for OwnedAccountRequests {
    const NAME: &'static str = "the owner of accounts' items";
}

impl Provided for KeepAlivePing {
    const NAME: &'static str = "the keep-alive ping";
}

impl Provided for ClientSoftware {
    const NAME: &'static str = "the software of clients";
}

impl Provided for AddDelay {
    const NAME: &'static str = "the delay of messages";
}
