//! The service: it passes requests to the tasks of nodes, and answers those that concern all nodes: XEP-0060 1.30.0, sections
//! 5.1, 6.4, 8.1.1 (instant nodes) and 8.3; lists are in `node_lists.rs`.

use std::sync::Arc;

use feature_api::disco::HostDisco;
use jid::{Jid, JidRef};
use queues::answer_channel::{AnswerSender, answer_channel};
use queues::keyed_queues::KeyedQueueLimits;
use queues::serial_task::SerialTasks;
use stanza::payload::data_form::FormKind;
use stanza::payload::rsm::RsmRequest;
use stanza::{MessageType, PresenceType, StanzaCondition, StanzaError, StanzaKind};
use store::StoreError;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{Flow, StopReason};
use throng_core::iq::{IqAnswer, IqFlow, IqRequest};
use throng_core::service::ServiceCtx;
use throng_core::{Host, Node, SharedStanza};
use xml::Ns;

use crate::account_removal;
use crate::collection_config::NodeType;
use crate::get_pending::chosen_node;
use crate::graph::GraphInput;
use crate::node::{PubSubAnswer, ROOT_NODE, default_options};
use crate::node_config::PubSubNodeConfig;
use crate::node_directory::is_owned_elsewhere;
use crate::node_lists::{list_affiliations, list_nodes, list_subscriptions};
use crate::node_task::NodeTask;
use crate::options::PubSubOptions;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::presence_fan_out::FanOutRequest;
use crate::pubsub_error::{pubsub_error, unsupported};
use crate::pubsub_host::PubSubHost;
use crate::pubsub_shared::{NodeInput, NodeMessage, NodeTasks, PubSubShared, UserChange};
use crate::request::{
    Approval, NodeRequest, PubSubRequest, ServiceRequest, lost_event, node_name, requested_node,
};
use crate::user_buckets::bucket_of;

/// Bytes that wait for one node, and for all nodes of a domain.
const MAILBOX_BYTES: usize = 4 << 20;
const ALL_MAILBOXES_BYTES: usize = 256 << 20;
/// Bytes that a message counts besides its stanza.
const MESSAGE_BYTES: usize = 256;
/// Nodes that are read at once for a presence.
const MAX_PAGE: u32 = 100;
/// The feature of services that create nodes for publications.
const AUTO_CREATE: &str = "http://jabber.org/protocol/pubsub#auto-create";
/// Name of the notice about a user: the letter of a change, the service, a space, and the user.
pub(crate) const USER_NOTICE: &str = "pubsub-user";
/// Names that are tried until one belongs to this node of the cluster.
const NAME_ATTEMPTS: usize = 256;

/// The nodes of a domain; they survive reloads.
pub(crate) struct PubSubService {
    pub(crate) shared: Arc<PubSubShared>,
    tasks: Arc<NodeTasks>,
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
    pub(crate) fn new(host: Box<dyn PubSubHost>, options: PubSubOptions) -> PubSubService {
        let shared = PubSubShared::new(host, options);
        let limits = KeyedQueueLimits::without_forced_bound(MAILBOX_BYTES, ALL_MAILBOXES_BYTES);
        let of_tasks = shared.clone();
        let tasks =
            SerialTasks::new("pubsub-node", limits, move |key: &Jid| NodeTask::new(key, of_tasks.clone()));
        shared.set_tasks(&tasks);
        PubSubService { shared, tasks }
    }

    /// Answers a request to the service or one of its nodes.
    pub(crate) fn handle_request(&self, request: &IqRequest<'_>, is_set: bool) -> IqFlow {
        let Some(service) = request.service else {
            return IqFlow::error(StanzaCondition::ServiceUnavailable);
        };
        self.handle_at(request, &service.jid, is_set).unwrap_or_else(IqFlow::error)
    }

    /// Answers a request to an address with nodes, which is that of a service or of an account.
    pub(crate) fn handle_at(
        &self,
        request: &IqRequest<'_>,
        service: &Jid,
        is_set: bool,
    ) -> Result<IqFlow, StanzaError> {
        self.shared.watch(request.node);
        let tree = request.tree()?;
        let payload = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        if node_name(payload)?.is_none() {
            match payload.ns() {
                Some(Ns::DiscoInfo) => return Ok(self.service_info(request)),
                Some(Ns::DiscoItems) => {
                    return list_nodes(request, service, RsmRequest::from_parent(payload)?);
                }
                _ => {}
            }
        }
        match PubSubRequest::read(payload, is_set)? {
            PubSubRequest::OfNode(name, of_node) => {
                self.check_root(&name, &of_node)?;
                let key = node_address(service.as_ref(), &name)?;
                self.check_changes_of_others(request, &of_node)?;
                Ok(self.ask_node(request, key, of_node))
            }
            PubSubRequest::OfService(of_service) => self.answer(request, service, of_service),
        }
    }

    /// Limits what a user changes for others, each of whom may receive a message.
    fn check_changes_of_others(
        &self,
        request: &IqRequest<'_>,
        of_node: &NodeRequest,
    ) -> Result<(), StanzaError> {
        let count = match of_node {
            NodeRequest::ModifySubscriptions(changes) => changes.len(),
            NodeRequest::ModifyAffiliations(changes) => changes.len(),
            _ => return Ok(()),
        };
        let (node, from) = (request.node, request.from);
        if node.is_admin(from.bare()) || self.shared.changes_of_others.try_take(node, from, count) {
            return Ok(());
        }
        let error = StanzaError::new(StanzaCondition::ResourceConstraint);
        Err(error.text("too many changes for others; try again later"))
    }

    /// The root node is of services with collections, and cannot be deleted (XEP-0248, section 7.4.3).
    fn check_root(&self, name: &str, of_node: &NodeRequest) -> Result<(), StanzaError> {
        if name != ROOT_NODE {
            return Ok(());
        }
        match (self.shared.host.domain_of_collections(), of_node) {
            (None, _) => Err(pubsub_error("nodeid-required")),
            (Some(_), NodeRequest::Delete { .. }) => Err(StanzaCondition::NotAllowed.into()),
            (Some(_), _) => Ok(()),
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
        let bytes = request.bytes.len() + MESSAGE_BYTES;
        let input = |reply| NodeInput::Request { request: of_node, from, reply, bytes, guard: None };
        let answer = self.send_request(request.node, &key, bytes, input);
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

    /// Sends an input that is not answered, when there is room for it.
    pub(crate) async fn send_waiting(&self, node: &Arc<Node>, key: Jid, message: NodeMessage, size: usize) {
        self.tasks.clone().send(node.spawner.clone(), key, message, size).await;
    }

    fn send(&self, node: &Arc<Node>, key: &Jid, input: NodeInput, size: usize) {
        let _ = self.tasks.try_send(&node.spawner, key, NodeMessage { node: node.clone(), input }, size);
    }

    fn answer(
        &self,
        request: &IqRequest<'_>,
        service: &Jid,
        of_service: ServiceRequest,
    ) -> Result<IqFlow, StanzaError> {
        let options = self.shared.options();
        match of_service {
            ServiceRequest::CreateInstant { config } => {
                self.create_instant(request, service, NodeRequest::Create { config })
            }
            ServiceRequest::DefaultConfig { node_type } => {
                let config = match node_type.as_deref() {
                    None | Some("leaf") => self.shared.host.default_config(&options.limits),
                    Some("collection") if self.shared.host.domain_of_collections().is_some() => {
                        PubSubNodeConfig::of_collection(&options.limits)
                    }
                    Some(_) => return Err(unsupported("collections")),
                };
                Ok(IqFlow::result(|w| {
                    w.start_ns("pubsub", Ns::PubsubOwner).start("default");
                    config.form(FormKind::Form).write(w);
                    w.end().end();
                }))
            }
            ServiceRequest::DefaultOptions => match default_options(None, NodeType::Leaf) {
                PubSubAnswer::Payload(payload) => Ok(IqFlow::Reply(Ok(payload))),
                _ => Err(StanzaCondition::InternalServerError.into()),
            },
            ServiceRequest::Subscriptions(rsm) => list_subscriptions(request, service, rsm.as_ref()),
            ServiceRequest::Affiliations(rsm) => list_affiliations(request, service, rsm.as_ref()),
        }
    }

    /// Section 8.1.1. This node of the cluster must own it, since it received the request.
    fn create_instant(
        &self,
        request: &IqRequest<'_>,
        service: &Jid,
        create: NodeRequest,
    ) -> Result<IqFlow, StanzaError> {
        for _ in 0..NAME_ATTEMPTS {
            let key = node_address(service.as_ref(), &base::id::random_id().to_lowercase())?;
            if !is_owned_elsewhere(request.node, &key) {
                return Ok(self.ask_node(request, key, create));
            }
        }
        Err(StanzaCondition::ResourceConstraint.into())
    }

    /// A message to the service: the answer of an owner to a request for approval (section 8.6).
    pub(crate) fn handle_message(&self, ctx: &ServiceCtx<'_>) -> Flow {
        if ctx.stanza.kind().is_error() {
            self.handle_bounce(ctx);
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

    /// An event that came back from a subscriber that does not exist any more (section 12.4).
    fn handle_bounce(&self, ctx: &ServiceCtx<'_>) {
        let name = ctx.stanza.tree().ok().and_then(|tree| lost_event(tree.root()));
        let key = name.and_then(|name| node_address(ctx.service.jid.as_ref(), &name).ok());
        if let Some(key) = key {
            let lost = NodeInput::SubscribersLost(vec![ctx.from.to_jid()]);
            self.send(ctx.node, &key, lost, MESSAGE_BYTES);
        }
    }

    /// Presence that a user has sent to the service: it concerns the nodes to which the user is subscribed.
    pub(crate) fn handle_presence(&self, ctx: &ServiceCtx<'_>) {
        let change = match ctx.stanza.kind() {
            StanzaKind::Presence(PresenceType::Available) => UserChange::Available,
            // It is never refused: subscriptions end with it.
            StanzaKind::Presence(PresenceType::Unavailable) => UserChange::Unavailable,
            _ => return,
        };
        self.shared.watch(ctx.node);
        let (service, user) = (&ctx.service.jid, ctx.from.to_jid());
        let bucket = bucket_of(ctx.node, ctx.from);
        let outcome = self.shared.presence.add(bucket, &user, change);
        if matches!(outcome, FanOutRequest::Duplicate | FanOutRequest::Dropped) {
            return;
        }
        self.report_change(USER_NOTICE, ctx.node, ctx.host, (service, &user), change);
        if outcome == FanOutRequest::Start {
            self.fan_out_presence(ctx.node, service.clone(), (bucket, &user));
        }
    }

    /// Tells the other nodes of the cluster.
    pub(crate) fn report_change(
        &self,
        notice: &'static str,
        node: &Arc<Node>,
        host: &Host,
        (service, user): (&Jid, &Jid),
        change: UserChange,
    ) {
        if let Some(peers) = node.peers() {
            let content = format!("{}{service} {user}", change.letter());
            peers.send_notice(node, host, notice, content.as_bytes());
        }
    }

    /// Visits the nodes to which a user is subscribed, of those that this node of the cluster owns, until nothing waits.
    fn fan_out_presence(&self, node: &Arc<Node>, service: Jid, (bucket, user): (&str, &Jid)) {
        let (tasks, presence) = (self.tasks.clone(), self.shared.presence.clone());
        let (node, bucket, mut user) = (node.clone(), bucket.to_owned(), user.bare().to_jid());
        let spawner = node.spawner.clone();
        let fan_out = async move {
            loop {
                while let Some((session, change)) = presence.next(&user) {
                    let (mut after, mut is_reported) = (None, false);
                    loop {
                        let page = match subscribed_nodes(&node, (&service, &user), after.clone()).await {
                            Ok(page) => page,
                            Err(error) => {
                                if !std::mem::replace(&mut is_reported, true) {
                                    tracing::warn!(%user, %error, "the nodes of a subscriber could not be read");
                                }
                                if change != UserChange::Unavailable {
                                    break;
                                }
                                // Subscriptions end with it.
                                presence.wait_for_store().await;
                                continue;
                            }
                        };
                        let own = page.iter().filter(|key| !is_owned_elsewhere(&node, key));
                        presence.wait_for_rate(&node, &user, page.len()).await;
                        for key in own {
                            let (user, input_of) = (session.clone(), key.clone());
                            let input = NodeInput::UserChanged { user, change };
                            let message = NodeMessage { node: node.clone(), input };
                            tasks.clone().send(node.spawner.clone(), input_of, message, MESSAGE_BYTES).await;
                        }
                        after = page.last().cloned();
                        if after.is_none() {
                            break;
                        }
                    }
                }
                match presence.next_user(&bucket) {
                    Some(next) => user = next,
                    None => return,
                }
            }
        };
        spawner.spawn("pubsub-presence", Box::pin(fan_out));
    }

    /// Another node of the cluster reports a change.
    pub(crate) fn handle_notice(&self, ctx: &NoticeCtx<'_>) {
        let text = ctx.content.and_then(|content| std::str::from_utf8(content).ok()).unwrap_or_default();
        let mut letters = text.chars();
        let Some(change) = letters.next().and_then(UserChange::from_letter) else { return };
        let Some((service, user)) = letters.as_str().split_once(' ') else { return };
        let Some((service, user)) = Jid::parse(service).ok().zip(Jid::parse(user).ok()) else { return };
        if change == UserChange::Removed {
            return account_removal::remove_here(ctx.node, &user);
        }
        self.shared.watch(ctx.node);
        let bucket = bucket_of(ctx.node, user.as_ref());
        if self.shared.presence.add(bucket, &user, change) == FanOutRequest::Start {
            self.fan_out_presence(ctx.node, service, (bucket, &user));
        }
    }

    /// Tells a node that an account was removed.
    pub(crate) async fn send_removed(&self, node: &Arc<Node>, key: Jid, user: &Jid) {
        let input = NodeInput::UserChanged { user: user.clone(), change: UserChange::Removed };
        self.send_waiting(node, key, NodeMessage { node: node.clone(), input }, MESSAGE_BYTES).await;
    }

    /// Another node of the cluster sends something to a node that this one owns.
    pub(crate) fn handle_graph_notice(&self, ctx: &NoticeCtx<'_>) {
        let Some((service, input)) = ctx.content.and_then(GraphInput::decode) else { return };
        let Ok(key) = node_address(service.as_ref(), input.to()) else { return };
        // The order is that of the mailbox; of an owner that has changed, it is lost.
        if !is_owned_elsewhere(ctx.node, &key) {
            let (size, is_edge) = (input.size(), matches!(input, GraphInput::Edge(_)));
            let message =
                NodeMessage { node: ctx.node.clone(), input: NodeInput::Graph { input, guard: None } };
            let _ = match is_edge {
                true => self.tasks.send_forced(&ctx.node.spawner, &key, message, size),
                false => self.tasks.try_send(&ctx.node.spawner, &key, message, size),
            };
        }
    }
}

/// A page of the nodes to which a user is subscribed.
async fn subscribed_nodes(
    node: &Node,
    (service, user): (&Jid, &Jid),
    after: Option<Jid>,
) -> Result<Vec<Jid>, StoreError> {
    let plain = PlainSubscriptions(&node.stores);
    let found = plain.nodes(user.as_ref(), service.as_ref(), after, MAX_PAGE).await?;
    let mut nodes: Vec<Jid> = found.into_iter().map(|one| one.node).collect();
    nodes.dedup();
    Ok(nodes)
}

/// The name of the node that a stanza to a service is about: one node of a cluster owns it.
pub(crate) fn item_name(stanza: &SharedStanza, to: JidRef<'_>) -> Option<String> {
    let tree = stanza.tree().ok()?;
    let name = match stanza.kind() {
        StanzaKind::Iq(_) => {
            let payload = tree.root().child_elements().next()?;
            match payload.ns()? {
                Ns::Pubsub | Ns::PubsubOwner => requested_node(payload.child_elements().next()?)?,
                Ns::DiscoInfo | Ns::DiscoItems => node_name(payload).ok()??,
                Ns::Commands => chosen_node(payload)?,
                _ => return None,
            }
        }
        StanzaKind::Message(MessageType::Error) => lost_event(tree.root())?,
        StanzaKind::Message(_) => Approval::read(tree.root())?.node,
        StanzaKind::Presence(_) => return None,
    };
    node_address(to, &name).ok().map(|key| key.as_str().to_owned())
}
