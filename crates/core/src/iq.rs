//! The IQ table: RFC 6120, section 8.2.3. Each combination of target, namespace, name and type has exactly one
//! handler.
//!
//! A table instead of a chain ensures that two features never answer the same request: a second handler is an
//! error when the host is built.

use std::sync::Arc;

use base::spawn::BoxFuture;
use hashbrown::HashMap;
use jid::JidRef;
use stanza::{Head, IqType, StanzaCondition, StanzaError, StanzaKind};
use xml::Ns;

use crate::effect::Effects;
use crate::host::Host;
use crate::node::Node;
use crate::service::Service;
use crate::session::{Session, flags};

/// Handles the responses of clients to requests of the server; a value of [`Node::extensions`].
#[derive(Clone, Copy, Debug)]
pub struct IqReplyHandler(pub fn(&Arc<Node>, &Arc<Session>, &Head, &[u8], &mut Effects));

/// The entity that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IqTarget {
    /// The domain itself.
    Server,
    /// The sender's own account: no `to`, or its own bare address.
    OwnAccount,
    /// Another account's bare address: the server answers on its behalf.
    Account,
    /// The address of a service: of the feature's own service, or of every service if the feature has none.
    Service,
    /// The bare address of an item of a service.
    ServiceItem,
    /// The full address of an item's resource.
    ServiceItemResource,
}

impl IqTarget {
    /// Whether requests to it are answered by a service.
    pub const fn is_of_service(self) -> bool {
        matches!(self, IqTarget::Service | IqTarget::ServiceItem | IqTarget::ServiceItemResource)
    }

    /// Name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            IqTarget::Server => "server",
            IqTarget::OwnAccount => "own-account",
            IqTarget::Account => "account",
            IqTarget::Service => "service",
            IqTarget::ServiceItem => "service-item",
            IqTarget::ServiceItemResource => "service-item-resource",
        }
    }
}

/// Key of a handler, and its declaration in a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IqKey {
    /// The addressed entity.
    pub target: IqTarget,
    /// True for set, false for get.
    pub set: bool,
    /// Namespace of the payload.
    pub ns: Ns,
    /// Name of the payload.
    pub name: &'static str,
}

impl IqKey {
    /// A request of type get.
    pub const fn get(target: IqTarget, ns: Ns, name: &'static str) -> IqKey {
        IqKey { target, set: false, ns, name }
    }

    /// A request of type set.
    pub const fn set(target: IqTarget, ns: Ns, name: &'static str) -> IqKey {
        IqKey { target, set: true, ns, name }
    }
}

/// A request that needs a response.
pub struct IqRequest<'a> {
    /// The node.
    pub node: &'a Arc<Node>,
    /// The host that responds, or that offers the service.
    pub host: &'a Arc<Host>,
    /// The service that responds, if it is addressed.
    pub service: Option<&'a Arc<Service>>,
    /// The requesting session, if it is local.
    pub session: Option<&'a Arc<Session>>,
    /// The requester.
    pub from: JidRef<'a>,
    /// The `to` of the request, if present.
    pub to: Option<JidRef<'a>>,
    /// Positions and properties of the stanza.
    pub head: &'a Head,
    /// The whole stanza.
    pub bytes: &'a [u8],
    /// Effects to perform before the response.
    pub effects: &'a mut Effects,
}

impl IqRequest<'_> {
    /// The payload element.
    pub fn payload(&self) -> &[u8] {
        self.head.first_child.map(|f| f.span.of(self.bytes)).unwrap_or_default()
    }

    /// Whether the requesting session belongs to an account of the host's domain, and is not anonymous.
    pub fn is_from_user_of_domain(&self) -> bool {
        // A request to a service was routed and has no session.
        let routed = || self.node.routing_table.find(self.from.bare())?.session(self.from.resource()?);
        let session = self.session.cloned().or_else(routed);
        self.from.domain() == self.host.domain()
            && session.is_some_and(|session| !session.flags.has(flags::EPHEMERAL))
    }

    /// A tree over the whole stanza.
    ///
    /// # Errors
    /// `bad-request`; does not occur for a checked stanza.
    pub fn tree(&self) -> Result<xml::Tree<'_>, StanzaError> {
        crate::shared_stanza::tree(self.bytes).map_err(|_| StanzaCondition::BadRequest.into())
    }
}

/// Payload of the result, which may be empty, or the error.
pub type IqAnswer = Result<Vec<u8>, StanzaError>;

/// An immediate or deferred response.
pub enum IqFlow {
    /// The response.
    Reply(IqAnswer),
    /// The response is deferred; the requester's stream is not read meanwhile.
    Wait(BoxFuture<'static, (IqAnswer, Effects)>),
    /// The response is deferred, and later stanzas of the requester do not wait for it. The handler must keep their order where
    /// it matters, and bound how many are under way.
    Detached(BoxFuture<'static, IqAnswer>),
}

impl IqFlow {
    /// An empty result.
    pub fn empty() -> IqFlow {
        IqFlow::Reply(Ok(Vec::new()))
    }

    /// A result with a payload.
    pub fn result(write: impl FnOnce(&mut xml::Writer<'_>)) -> IqFlow {
        let mut out = Vec::with_capacity(128);
        write(&mut xml::Writer::new(&mut out));
        IqFlow::Reply(Ok(out))
    }

    /// A deferred response that causes no effects.
    pub fn wait(answer: impl Future<Output = IqAnswer> + Send + 'static) -> IqFlow {
        IqFlow::Wait(Box::pin(async move { (answer.await, Effects::default()) }))
    }

    /// A deferred response for which later stanzas of the requester do not wait.
    pub fn detached(answer: impl Future<Output = IqAnswer> + Send + 'static) -> IqFlow {
        IqFlow::Detached(Box::pin(answer))
    }

    /// The response as a future, also if it is immediate.
    pub fn into_future(self) -> BoxFuture<'static, (IqAnswer, Effects)> {
        match self {
            IqFlow::Reply(answer) => Box::pin(std::future::ready((answer, Effects::default()))),
            IqFlow::Wait(later) => later,
            IqFlow::Detached(later) => Box::pin(async move { (later.await, Effects::default()) }),
        }
    }

    /// An error.
    pub fn error(error: impl Into<StanzaError>) -> IqFlow {
        IqFlow::Reply(Err(error.into()))
    }
}

/// Handler of one kind of request, implemented by closures of the same signature.
pub trait IqHandler: Send + Sync {
    /// Responds to a request. Must not block.
    fn answer(&self, request: &mut IqRequest<'_>) -> IqFlow;
}

impl<F> IqHandler for F
where
    F: Fn(&mut IqRequest<'_>) -> IqFlow + Send + Sync,
{
    fn answer(&self, request: &mut IqRequest<'_>) -> IqFlow {
        self(request)
    }
}

/// All handlers of a host or a service.
#[derive(Default)]
pub struct IqTable(HashMap<IqKey, (&'static str, Arc<dyn IqHandler>)>);

impl IqTable {
    /// Adds a handler.
    ///
    /// # Errors
    /// The name of the feature that already has this key.
    pub fn add(
        &mut self,
        key: IqKey,
        owner: &'static str,
        handler: Arc<dyn IqHandler>,
    ) -> Result<(), &'static str> {
        match self.0.entry(key) {
            hashbrown::hash_map::Entry::Occupied(taken) => Err(taken.get().0),
            hashbrown::hash_map::Entry::Vacant(free) => {
                free.insert((owner, handler));
                Ok(())
            }
        }
    }

    /// The handler for a stanza.
    pub fn find(&self, target: IqTarget, head: &Head, bytes: &[u8]) -> Option<&Arc<dyn IqHandler>> {
        let first = head.first_child?;
        let key = BorrowedIqKey {
            target,
            set: head.kind == StanzaKind::Iq(IqType::Set),
            ns: first.ns?,
            name: first.name.str(bytes),
        };
        self.0.get(&key).map(|(_, handler)| handler)
    }

    /// All keys with the features that own them.
    pub fn keys(&self) -> impl Iterator<Item = (IqKey, &'static str)> + '_ {
        self.0.iter().map(|(key, (owner, _))| (*key, *owner))
    }
}

/// A key with a borrowed name.
#[derive(Hash)]
struct BorrowedIqKey<'a> {
    target: IqTarget,
    set: bool,
    ns: Ns,
    name: &'a str,
}

impl hashbrown::Equivalent<IqKey> for BorrowedIqKey<'_> {
    fn equivalent(&self, key: &IqKey) -> bool {
        self.target == key.target && self.set == key.set && self.ns == key.ns && self.name == key.name
    }
}
