//! The service: it passes requests to the tasks of nodes, and answers those that concern all nodes: XEP-0060 1.30.0, sections
//! 5.2, 5.6, 5.7, 6.4, 8.1 (instant nodes), 8.3 and 8.7, in pages of XEP-0059 1.0.

use std::sync::Arc;

use feature_api::disco::HostDisco;
use jid::{Jid, JidRef};
use queues::answer_channel::{AnswerSender, answer_channel};
use queues::keyed_queues::KeyedQueueLimits;
use queues::serial_task::SerialTasks;
use stanza::payload::data_form::FormKind;
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::hooks::{Flow, StopReason};
use throng_core::iq::{IqAnswer, IqFlow, IqRequest};
use throng_core::server_error::store_error;
use throng_core::service::ServiceCtx;
use throng_core::{Node, SharedStanza};
use xml::{Ns, Writer};

use crate::affiliation::Affiliation;
use crate::get_pending::chosen_node;
use crate::node::{NodeAnswer, default_options};
use crate::node_config::NodeConfig;
use crate::node_directory::is_owned_elsewhere;
use crate::node_task::NodeTask;
use crate::options::ServiceOptions;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_error::{not_found, unsupported};
use crate::pubsub_host::PubSubHost;
use crate::pubsub_shared::{NodeInput, NodeMessage, NodeTasks, PubSubShared};
use crate::request::{Approval, NodeRequest, PubSubRequest, ServiceRequest, node_name};
use crate::subscription::Subscription;

/// Bytes that wait for one node, and for all nodes of a domain.
const MAILBOX_BYTES: usize = 4 << 20;
const ALL_MAILBOXES_BYTES: usize = 256 << 20;
/// Bytes that a message counts besides its stanza.
const MESSAGE_BYTES: usize = 256;
/// Nodes of a page.
const MAX_PAGE: u32 = 100;
/// The feature of services that create nodes for publications.
const AUTO_CREATE: &str = "http://jabber.org/protocol/pubsub#auto-create";
/// Names that are tried until one belongs to this node of the cluster.
const NAME_ATTEMPTS: usize = 256;

/// Presences that are being passed to nodes at the same time; further ones are dropped.
const MAX_SPREADS: usize = 1_024;

/// The nodes of a domain; they survive reloads.
pub(crate) struct PubSubService {
    pub(crate) shared: Arc<PubSubShared>,
    tasks: Arc<NodeTasks>,
    /// One reference for each presence that is being passed to nodes.
    spreads: Arc<()>,
}

/// The address of a node: the service with the node's name as resource (section 4.6.1).
///
/// # Errors
/// `not-acceptable`: the name is not a resource.
pub(crate) fn node_address(service: JidRef<'_>, name: &str) -> Result<Jid, StanzaError> {
    service.bare().with_resource(name).map_err(|_| {
        StanzaError::new(StanzaCondition::NotAcceptable).text("the name of the node has invalid characters")
    })
}

impl PubSubService {
    pub(crate) fn new(host: Box<dyn PubSubHost>, options: ServiceOptions) -> PubSubService {
        let shared = PubSubShared::new(host, options);
        let limits = KeyedQueueLimits::without_forced_bound(MAILBOX_BYTES, ALL_MAILBOXES_BYTES);
        let of_tasks = shared.clone();
        let tasks =
            SerialTasks::new("pubsub-node", limits, move |key: &Jid| NodeTask::new(key, of_tasks.clone()));
        shared.set_tasks(&tasks);
        PubSubService { shared, tasks, spreads: Arc::new(()) }
    }

    /// Answers a request to the service or one of its nodes.
    pub(crate) fn handle_request(&self, request: &IqRequest<'_>, is_set: bool) -> IqFlow {
        self.try_handle(request, is_set).unwrap_or_else(IqFlow::error)
    }

    fn try_handle(&self, request: &IqRequest<'_>, is_set: bool) -> Result<IqFlow, StanzaError> {
        self.shared.watch(request.node);
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?;
        let tree = request.tree()?;
        let payload = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        if node_name(payload)?.is_none() {
            match payload.ns() {
                Some(Ns::DiscoInfo) => return Ok(self.service_info(request)),
                Some(Ns::DiscoItems) => {
                    return self.list_nodes(request, RsmRequest::from_parent(payload)?);
                }
                _ => {}
            }
        }
        match PubSubRequest::read(payload, is_set)? {
            PubSubRequest::OfNode(name, of_node) => {
                let key = node_address(service.jid.as_ref(), &name)?;
                Ok(self.ask_node(request, key, of_node))
            }
            PubSubRequest::OfService(of_service) => self.answer(request, of_service),
        }
    }

    /// Information about the service itself (section 5.1).
    fn service_info(&self, request: &IqRequest<'_>) -> IqFlow {
        let info = request.service.and_then(|service| HostDisco::of(request.host).service(service));
        let Some(info) = info else { return IqFlow::error(StanzaCondition::ServiceUnavailable) };
        let auto_creates = self.shared.host.auto_creates(&self.shared.options());
        IqFlow::result(|w| {
            w.start_ns("query", Ns::DiscoInfo);
            info.write(w);
            if auto_creates {
                w.start("feature").attr("var", AUTO_CREATE).end();
            }
            w.end();
        })
    }

    /// Passes a request to the task of a node, and waits for the answer.
    fn ask_node(&self, request: &IqRequest<'_>, key: Jid, of_node: NodeRequest) -> IqFlow {
        let from = request.from.to_jid();
        let size = request.bytes.len() + MESSAGE_BYTES;
        let answer = self.send_request(request.node, &key, size, |reply| NodeInput::Request {
            request: of_node,
            from,
            reply,
        });
        // The mailbox keeps the order of a sender's requests to the node, and is bounded.
        IqFlow::detached(answer)
    }

    /// Sends an input that is answered; its answer.
    pub(crate) fn send_request(
        &self,
        node: &Arc<Node>,
        key: &Jid,
        size: usize,
        input: impl FnOnce(AnswerSender<IqAnswer>) -> NodeInput,
    ) -> impl Future<Output = IqAnswer> + Send + 'static {
        let (reply, answer) = answer_channel();
        self.send(node, key, input(reply), size);
        async move {
            // With a full mailbox the input was dropped, and with it the sender of its answer.
            let ended = || Err(StanzaCondition::ResourceConstraint.into());
            answer.receive().await.unwrap_or_else(ended)
        }
    }

    fn send(&self, node: &Arc<Node>, key: &Jid, input: NodeInput, size: usize) {
        let _ = self.tasks.try_send(&node.spawner, key, NodeMessage { node: node.clone(), input }, size);
    }

    fn answer(&self, request: &IqRequest<'_>, of_service: ServiceRequest) -> Result<IqFlow, StanzaError> {
        let options = self.shared.options();
        match of_service {
            ServiceRequest::CreateInstant { config } => {
                self.create_instant(request, NodeRequest::Create { config })
            }
            ServiceRequest::DefaultConfig { node_type } => {
                if node_type.is_some_and(|node_type| node_type != "leaf") {
                    return Err(unsupported("collections"));
                }
                Ok(IqFlow::result(|w| {
                    w.start_ns("pubsub", Ns::PubsubOwner).start("default");
                    NodeConfig::new(&options.limits).form(FormKind::Form).write(w);
                    w.end().end();
                }))
            }
            ServiceRequest::DefaultOptions => match default_options(None) {
                NodeAnswer::Payload(payload) => Ok(IqFlow::Reply(Ok(payload))),
                _ => Err(StanzaCondition::InternalServerError.into()),
            },
            ServiceRequest::Subscriptions(rsm) => self.list_subscriptions(request, rsm.as_ref()),
            ServiceRequest::Affiliations(rsm) => self.list_affiliations(request, rsm.as_ref()),
        }
    }

    /// Section 8.1.1. This node of the cluster must own it, since it received the request.
    fn create_instant(&self, request: &IqRequest<'_>, create: NodeRequest) -> Result<IqFlow, StanzaError> {
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?.jid.clone();
        for _ in 0..NAME_ATTEMPTS {
            let key = node_address(service.as_ref(), &base::id::random_id().to_lowercase())?;
            if !is_owned_elsewhere(request.node, &key) {
                return Ok(self.ask_node(request, key, create));
            }
        }
        Err(StanzaCondition::ResourceConstraint.into())
    }

    /// Section 5.2.
    fn list_nodes(&self, request: &IqRequest<'_>, rsm: Option<RsmRequest>) -> Result<IqFlow, StanzaError> {
        let page = NodePage::new(request, rsm.as_ref())?;
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
                write_page(
                    &mut w,
                    nodes.first().zip(nodes.last()).map(|(a, b)| (&a.jid, &b.jid)),
                    Some(count),
                );
            }
            w.end();
            Ok(out)
        }))
    }

    /// Section 5.6: cost depends on the answer, not on the number of nodes.
    fn list_subscriptions(
        &self,
        request: &IqRequest<'_>,
        rsm: Option<&RsmRequest>,
    ) -> Result<IqFlow, StanzaError> {
        let page = NodePage::new(request, rsm)?;
        let (stores, user) = (request.node.stores.clone(), request.from.bare().to_jid());
        Ok(IqFlow::wait(async move {
            let NodePage { service, after, limit, is_page } = page;
            let plain = PlainSubscriptions(&stores);
            let found = plain.nodes(user.as_ref(), service.as_ref(), after, limit).await;
            let found = found.map_err(store_error)?;
            let mut out = Vec::with_capacity(1024);
            let mut w = Writer::new(&mut out);
            w.start_ns("pubsub", Ns::Pubsub).start("subscriptions");
            for one in &found {
                let node = one.node.resource().unwrap_or_default();
                let special = one.special.clone().and_then(Subscription::restore);
                if one.special.is_some() && special.is_none() {
                    continue;
                }
                let jid = special.as_ref().map_or(&user, |special| &special.jid);
                w.start("subscription").attr("node", node).attr("jid", jid.as_str());
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
            if is_page || nodes.len() >= limit as usize {
                write_page(&mut w, found.first().zip(found.last()).map(|(a, b)| (&a.node, &b.node)), None);
            }
            w.end();
            Ok(out)
        }))
    }

    /// Section 5.7.
    fn list_affiliations(
        &self,
        request: &IqRequest<'_>,
        rsm: Option<&RsmRequest>,
    ) -> Result<IqFlow, StanzaError> {
        let page = NodePage::new(request, rsm)?;
        let (stores, user) = (request.node.stores.clone(), request.from.bare().to_jid());
        Ok(IqFlow::wait(async move {
            let NodePage { service, after, limit, is_page } = page;
            let found = stores.pubsub.affiliations_of(user.as_ref(), service.as_ref(), after, limit).await;
            let found = found.map_err(store_error)?;
            let mut out = Vec::with_capacity(1024);
            let mut w = Writer::new(&mut out);
            w.start_ns("pubsub", Ns::Pubsub).start("affiliations");
            for (node, number) in &found {
                let Some(affiliation) = Affiliation::from_number(*number) else { continue };
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

    /// A message to the service: the answer of an owner to a request for approval (section 8.6).
    pub(crate) fn handle_message(&self, ctx: &ServiceCtx<'_>) -> Flow {
        if ctx.stanza.kind().is_error() {
            return Flow::Stop(StopReason::Consumed);
        }
        let approval = ctx.stanza.tree().ok().and_then(|tree| Approval::read(tree.root()));
        let key = approval.as_ref().map(|one| node_address(ctx.service.jid.as_ref(), &one.node));
        if let (Some(approval), Some(Ok(key))) = (approval, key) {
            let (size, from) = (ctx.stanza.bytes().len() + MESSAGE_BYTES, ctx.from.to_jid());
            self.send(ctx.node, &key, NodeInput::Approval { approval, from }, size);
        }
        Flow::Stop(StopReason::Consumed)
    }

    /// Presence that a user has sent to the service: it concerns the nodes to which the user is subscribed. Returns whether it
    /// concerns any.
    pub(crate) fn handle_presence(&self, ctx: &ServiceCtx<'_>) -> Option<bool> {
        let is_available = match ctx.stanza.kind() {
            StanzaKind::Presence(PresenceType::Available) => true,
            // The engine does not count it, but it costs as much.
            StanzaKind::Presence(PresenceType::Unavailable)
                if ctx.service.try_take_rate(ctx.node, ctx.from) =>
            {
                false
            }
            _ => return None,
        };
        self.spread_presence(ctx.node, ctx.service.jid.clone(), ctx.from.to_jid(), is_available);
        Some(is_available)
    }

    /// Passes a presence to the nodes that this node of the cluster owns, and that it concerns.
    pub(crate) fn spread_presence(&self, node: &Arc<Node>, service: Jid, from: Jid, is_available: bool) {
        if Arc::strong_count(&self.spreads) > MAX_SPREADS {
            return;
        }
        let (tasks, node, shared) = (self.tasks.clone(), node.clone(), self.shared.clone());
        let (spawner, counted) = (node.spawner.clone(), self.spreads.clone());
        let spread = async move {
            let _counted = counted;
            let most = shared.options().subscriptions_per_user;
            let mut after = None;
            let mut count = 0;
            while count < most {
                let plain = PlainSubscriptions(&node.stores);
                let page = plain.nodes(from.as_ref(), service.as_ref(), after, MAX_PAGE).await;
                let Ok(page) = page else { return };
                let mut keys: Vec<Jid> = page.into_iter().map(|one| one.node).collect();
                keys.dedup();
                let is_last = keys.len() < MAX_PAGE as usize;
                count += MAX_PAGE;
                after = keys.last().cloned();
                for key in keys.iter().filter(|key| !is_owned_elsewhere(&node, key)) {
                    let input = NodeInput::Presence { from: from.clone(), is_available };
                    let message = NodeMessage { node: node.clone(), input };
                    tasks.clone().send(node.spawner.clone(), key.clone(), message, MESSAGE_BYTES).await;
                }
                if is_last {
                    return;
                }
            }
        };
        spawner.spawn("pubsub-presence", Box::pin(spread));
    }
}

/// A page of nodes that a request wants.
struct NodePage {
    service: Jid,
    after: Option<Jid>,
    limit: u32,
    is_page: bool,
}

impl NodePage {
    fn new(request: &IqRequest<'_>, rsm: Option<&RsmRequest>) -> Result<NodePage, StanzaError> {
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?.jid.clone();
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

/// The name of the node that a stanza to a service is about: one node of a cluster owns it.
pub(crate) fn item_name(stanza: &SharedStanza, to: JidRef<'_>) -> Option<String> {
    let tree = stanza.tree().ok()?;
    let name = match stanza.kind() {
        StanzaKind::Iq(_) => {
            let payload = tree.root().child_elements().next()?;
            match payload.ns()? {
                Ns::Pubsub | Ns::PubsubOwner => node_name(payload.child_elements().next()?).ok()??,
                Ns::DiscoInfo | Ns::DiscoItems => node_name(payload).ok()??,
                Ns::Commands => chosen_node(payload)?,
                _ => return None,
            }
        }
        StanzaKind::Message(_) => Approval::read(tree.root())?.node,
        StanzaKind::Presence(_) => return None,
    };
    node_address(to, &name).ok().map(|key| key.as_str().to_owned())
}
