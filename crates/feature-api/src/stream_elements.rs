//! Stream-level elements (XEP-0360: *nonzas*) and elements inside other requests: tables with one owner for
//! each name, like that of IQs.
//!
//! Each host has three tables: nonzas of a bound stream; elements inside a bind request (XEP-0386); and
//! requests before authentication (XEP-0077).
//!
//! Not implemented: stream management, which the stream handles itself.
//!
//! # Pitfalls
//!
//! Handlers run on the stanza path; the rules for hooks apply.

use std::net::IpAddr;
use std::sync::Arc;

use stanza::{Head, StreamError};
use throng_core::iq::IqFlow;
use throng_core::{Effects, Host, Node, Session};
use xml::Ns;

/// A nonza from a bound session.
pub struct NonzaCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session.
    pub session: &'a Arc<Session>,
    /// The whole element.
    pub bytes: &'a [u8],
    /// Effects to perform.
    pub effects: &'a mut Effects,
}

/// Handles a nonza. An error ends the stream.
pub type NonzaHandler = fn(&mut NonzaCtx<'_>) -> Result<(), StreamError>;

/// An inline element of a bind request.
pub struct Bind2InlineCtx<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The session, just bound; nothing has been sent to it.
    pub session: &'a Arc<Session>,
    /// The element.
    pub bytes: &'a [u8],
    /// Content of `<bound/>`.
    pub answer: &'a mut Vec<u8>,
}

/// Handles an inline element. An operation that fails is omitted from the response.
pub type Bind2InlineHandler = fn(&mut Bind2InlineCtx<'_>);

/// A request before authentication.
pub struct PreAuthRequest<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The host that the stream addresses.
    pub host: &'a Arc<Host>,
    /// Address of the client.
    pub peer: IpAddr,
    /// Whether the stream is encrypted.
    pub secure: bool,
    /// Positions and properties of the stanza.
    pub head: &'a Head,
    /// The whole stanza.
    pub bytes: &'a [u8],
}

/// Answers a request before authentication.
pub trait PreAuthHandler: Send + Sync {
    /// Responds to a request. Must not block. Effects of a deferred response are performed before it is sent.
    fn answer(&self, request: &PreAuthRequest<'_>) -> IqFlow;
}

impl<F> PreAuthHandler for F
where
    F: Fn(&PreAuthRequest<'_>) -> IqFlow + Send + Sync,
{
    fn answer(&self, request: &PreAuthRequest<'_>) -> IqFlow {
        self(request)
    }
}

/// The three tables of a host, among its extensions; lists, because there are few entries.
#[derive(Default)]
pub struct StreamElements {
    /// Elements of a bound stream.
    pub nonzas: Vec<(Ns, &'static str, NonzaHandler)>,
    /// Elements inside a bind request.
    pub bind2_inline: Vec<(Ns, &'static str, Bind2InlineHandler)>,
    /// Requests before authentication.
    pub pre_auth: Vec<(Ns, &'static str, Arc<dyn PreAuthHandler>)>,
}

impl StreamElements {
    /// The tables of a host; empty for a host without features.
    pub fn of(host: &Host) -> &StreamElements {
        static EMPTY: StreamElements =
            StreamElements { nonzas: Vec::new(), bind2_inline: Vec::new(), pre_auth: Vec::new() };
        host.extensions.get().unwrap_or(&EMPTY)
    }

    /// The handler of a nonza.
    pub fn nonza(&self, ns: Ns, name: &str) -> Option<NonzaHandler> {
        self.nonzas.iter().find(|n| n.0 == ns && n.1 == name).map(|n| n.2)
    }

    /// The handler of an element inside a bind request.
    pub fn bind2_inline(&self, ns: Ns, name: &str) -> Option<Bind2InlineHandler> {
        self.bind2_inline.iter().find(|n| n.0 == ns && n.1 == name).map(|n| n.2)
    }

    /// Namespaces of elements inside a bind request, in registry order, without duplicates.
    pub fn bind2_inline_namespaces(&self) -> impl Iterator<Item = Ns> + '_ {
        let list = &self.bind2_inline;
        let first = |at: usize, ns: Ns| list[..at].iter().all(|earlier| earlier.0 != ns);
        list.iter().enumerate().filter(move |(at, n)| first(*at, n.0)).map(|(_, n)| n.0)
    }

    /// The handler of a request before authentication: namespace and name of its payload, of type get or set.
    pub fn pre_auth(&self, ns: Ns, name: &str) -> Option<&Arc<dyn PreAuthHandler>> {
        self.pre_auth.iter().find(|n| n.0 == ns && n.1 == name).map(|n| &n.2)
    }
}

/// Handles a nonza of a bound session. `None` if there is no handler.
pub fn handle_nonza(
    node: &Arc<Node>,
    session: &Arc<Session>,
    ns: Ns,
    name: &str,
    bytes: &[u8],
) -> Option<Result<(), StreamError>> {
    let handler = StreamElements::of(&session.account.host()).nonza(ns, name)?;
    let mut effects = Effects::default();
    let done = handler(&mut NonzaCtx { node, session, bytes, effects: &mut effects });
    node.perform(effects);
    Some(done)
}
