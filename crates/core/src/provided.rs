//! Values that one feature of a host provides to the engine, to streams, to interfaces or to other features. They are found by
//! their type in [`crate::Host::extensions`]; a feature provides one with `FeatureBuilder::provide`.
//!
//! Not implemented: values that several features fill together, such as commands; see
//! `FeatureBuilder::extension`.

use base::Provided;

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

impl Provided for KeepAlivePing {
    const NAME: &'static str = "the keep-alive ping";
}

impl Provided for ClientSoftware {
    const NAME: &'static str = "the software of clients";
}

impl Provided for AddDelay {
    const NAME: &'static str = "the delay of messages";
}
