//! The task of one node: it owns the node, reads it from the store, handles its inputs in order, and sends their notices before
//! the next one.
//!
//! A node that does not exist has a task only while a request for it is handled. Changes are stored in the background
//! (`write_queue.rs`); an answer is sent when they are.
//!
//! Long because every input passes all steps here, from what must be read to the answer.

use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::Jid;
use queues::answer_channel::AnswerSender;
use queues::serial_task::SerialState;
use stanza::{StanzaCondition, StanzaError};
use store::{AddressId, NodeNumber, NodeSubscribers, PubSubChange, StoreError, StoreErrorKind};
use throng_core::Node;
use throng_core::iq::IqAnswer;
use throng_core::server_error::store_error;

use crate::answers::needs_store;
use crate::associated_nodes::AssociatedNodes;
use crate::delivery::Delivery;
use crate::graph::{EdgeChange, GraphInput, NodeEdgeChange};
use crate::node::{NodeCtx, NodeState, Notice, PubSubAnswer, PubSubNode, ROOT_NODE};
use crate::node_directory::is_owned_elsewhere;
use crate::online_subscribers::online_subscribers;
use crate::plain_subscriptions::{PAGE, PlainSubscriptions};
use crate::pubsub_error::{forbidden, not_found};
use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared, UserChange};
use crate::request::NodeRequest;
use crate::requester_facts::{RequesterFacts, is_account, requester};
use crate::reservations::Reservation;
use crate::subscriber_cache::{NumberedSubscribers, PlainAudience, SubscriberCache};
use crate::write_queue::{AfterWrite, HeldByWrite, WriteQueue};

/// Items and subscriptions that count as one node in memory.
const ENTRIES_OF_WEIGHT: usize = 100;
/// Bytes of a configuration that do.
const BYTES_OF_WEIGHT: usize = 4 << 10;

/// The state of a node's task.
pub(crate) struct NodeTask {
    pub(crate) key: Jid,
    pub(crate) shared: Arc<PubSubShared>,
    pub(crate) node: Option<PubSubNode>,
    /// The store was asked.
    pub(crate) is_loaded: bool,
    /// It stays in memory without inputs.
    is_kept: bool,
    pub(crate) subscribers: SubscriberCache,
    pub(crate) writes: WriteQueue,
    /// What the request that is handled takes of its user's limits.
    pub(crate) reservation: Option<Reservation>,
    /// What is known about the nodes that the request associates.
    pub(crate) graph: Option<AssociatedNodes>,
    /// Whether the input that is handled is a client's, and not a conversion's.
    is_of_client: bool,
    /// Weight at the last `touch`.
    known_weight: usize,
}

impl NodeTask {
    pub(crate) fn new(key: &Jid, shared: Arc<PubSubShared>) -> NodeTask {
        let most = shared.options().cached_subscribers;
        let (of_task, tasks) = (key.clone(), shared.tasks_later());
        let wake = move |node: &Arc<Node>| {
            let Some(tasks) = tasks.upgrade() else { return };
            let message = NodeMessage { node: node.clone(), input: NodeInput::Drop };
            // With a full mailbox it is awake anyway.
            let _ = tasks.try_send(&node.spawner, &of_task, message, 64);
        };
        NodeTask {
            writes: WriteQueue::new(key.clone(), Arc::new(wake), shared.clone()),
            key: key.clone(),
            shared,
            node: None,
            is_loaded: false,
            is_kept: false,
            is_of_client: true,
            known_weight: 0,
            subscribers: SubscriberCache::new(most),
            reservation: None,
            graph: None,
        }
    }

    fn service(&self) -> Jid {
        self.key.bare().to_jid()
    }

    fn name(&self) -> String {
        self.key.resource().unwrap_or_default().to_owned()
    }

    /// What the node counts among those in memory: one, one for each hundred of what it has, and one for each 4 KiB of its
    /// configuration.
    fn weight(&self) -> usize {
        let entries = self.node.as_ref().map_or(0, PubSubNode::entry_count) + self.subscribers.weight();
        let config = self.node.as_ref().map_or(0, |one| one.config().text_bytes());
        1 + entries / ENTRIES_OF_WEIGHT + config / BYTES_OF_WEIGHT
    }

    /// Marks the node as used, with its weight; decides whether it stays in memory, and evicts others for it, which end when they
    /// have no requests.
    fn touch(&mut self, node: &Arc<Node>) {
        self.known_weight = self.weight();
        let Some(one) = self.node.as_ref().filter(|_| !is_owned_elsewhere(node, &self.key)) else {
            self.is_kept = false;
            return self.shared.directory.remove(&self.key);
        };
        let most = self.shared.options().cached_nodes;
        let (creator, weight) = (one.creator(), self.known_weight);
        let touch = self.shared.directory.touch(&self.key, creator, node.seconds(), weight, most);
        if let Some(tasks) = self.shared.tasks().filter(|_| !touch.evicted.is_empty()) {
            for key in &touch.evicted {
                let message = NodeMessage { node: node.clone(), input: NodeInput::Drop };
                // With a full mailbox it is used, and counts again.
                let _ = tasks.try_send(&node.spawner, key, message, 64);
            }
        }
        self.is_kept = touch.is_kept && !self.shared.is_stopping();
    }

    /// The same after changes, and after subscribers were read.
    fn touch_if_changed(&mut self, node: &Arc<Node>) {
        if self.weight() != self.known_weight {
            self.touch(node);
        }
    }

    /// Whether the task must wait until its changes are stored.
    pub(crate) fn must_flush(&self) -> bool {
        self.writes.is_full() || self.subscribers.is_full()
    }

    /// Reads the node from the store.
    async fn load(&mut self, node: &Arc<Node>) -> Result<(), StoreError> {
        let store = &node.stores.pubsub;
        let options = self.shared.options();
        (self.node, self.subscribers) = (None, SubscriberCache::new(options.cached_subscribers));
        self.writes.set_number(None);
        if let Some(stored) = store.load(self.key.as_ref()).await? {
            let corrupt = || StoreError::new(StoreErrorKind::Corrupt, "a stored node cannot be read");
            self.writes.set_number(Some(NodeNumber(stored.number)));
            let restored = PubSubNode::restore(self.service(), self.name(), stored, &options.limits);
            let restored = restored.ok_or_else(corrupt)?;
            self.node = Some(restored);
            self.read_last(node).await?;
            self.read_subscribers(node).await?;
        }
        self.is_loaded = true;
        Ok(())
    }

    /// Reads the numbers of the plain subscribers; the store has all changes.
    async fn read_subscribers(&mut self, node: &Arc<Node>) -> Result<(), StoreError> {
        let Some(number) = self.writes.number(node).await? else { return Ok(()) };
        let numbers = NodeSubscribers::read(&*node.stores.subscription_sets, number).await?;
        self.subscribers.set_numbers(numbers);
        Ok(())
    }

    /// Reads the addresses of subscribers, of whom the numbers are known.
    async fn read_addresses(
        &mut self,
        node: &Arc<Node>,
        known: &NumberedSubscribers,
    ) -> Result<Arc<[Jid]>, StoreError> {
        let mut all = Vec::new();
        for chunk in known.numbers.chunks() {
            let ids: Vec<AddressId> = chunk.to_vec().into_iter().filter_map(AddressId::new).collect();
            let found = node.stores.addresses.resolve(&ids).await?.into_iter().map(|(_, jid)| jid);
            all.extend(found.filter(|jid| !known.changed.contains_key(jid)));
        }
        let added = known.changed.iter().filter(|(_, is_added)| **is_added);
        all.extend(added.map(|(jid, _)| jid.clone()));
        self.subscribers.set_addresses(all.clone());
        Ok(all.into())
    }

    /// Reads the last item, if it is not in memory.
    async fn read_last(&mut self, node: &Arc<Node>) -> Result<(), StoreError> {
        let Some(one) = self.node.as_mut().filter(|one| one.lacks_last()) else { return Ok(()) };
        let Some(seq) = one.last_seq() else { return Ok(()) };
        one.set_last(node.stores.pubsub.items(self.key.as_ref(), vec![seq]).await?.pop());
        Ok(())
    }

    /// Refuses an input, since the node could not be read.
    fn refuse(input: NodeInput, error: StanzaError) {
        match input {
            NodeInput::Request { reply, .. }
            | NodeInput::Conversion { reply, .. }
            | NodeInput::Command { reply, .. }
            | NodeInput::AskAgain { reply, .. } => reply.send(Err(error)),
            _ => {}
        }
    }

    /// A node that a request creates (sections 7.1.4 and 8.1).
    fn create(
        &self,
        node: &Arc<Node>,
        ctx: &mut NodeCtx<'_>,
        (user, facts): (&Jid, &RequesterFacts),
        request: &NodeRequest,
        is_operator: bool,
    ) -> Result<(PubSubNode, Option<PubSubAnswer>), StanzaError> {
        let options = self.shared.options();
        let host = &self.shared.host;
        if matches!(request, NodeRequest::Subscribe { .. }) && self.name() == ROOT_NODE {
            return Ok((PubSubNode::create_root(ctx, self.service()), None));
        }
        let form = match request {
            NodeRequest::Create { config } => Some(config.as_ref()),
            NodeRequest::Publish { .. } if host.auto_creates(&options) => None,
            _ => return Err(not_found()),
        };
        let (service, name) = (self.service(), self.name());
        self.check_creation(node, (user, facts), is_operator)?;
        match form {
            Some(form) => {
                let defaults = host.default_config(&options.limits);
                let (created, answer) =
                    PubSubNode::create(ctx, service, name, user.clone(), (defaults, form))?;
                Ok((created, Some(answer)))
            }
            None => {
                let conditions = match request {
                    NodeRequest::Publish { options, .. } => options.as_ref(),
                    _ => None,
                };
                let defaults = host.default_config(&options.limits);
                let created =
                    PubSubNode::auto_create(ctx, service, name, user.clone(), (defaults, conditions))?;
                Ok((created, None))
            }
        }
    }

    /// Whether a user may create the node.
    pub(crate) fn check_creation(
        &self,
        node: &Arc<Node>,
        (user, facts): (&Jid, &RequesterFacts),
        is_operator: bool,
    ) -> Result<(), StanzaError> {
        if is_operator {
            return Ok(());
        }
        let options = self.shared.options();
        let service = self.key.bare();
        if !self.shared.host.may_create(node, service, (user.as_ref(), facts.has_account), &options) {
            return Err(forbidden());
        }
        let is_full = facts.created_nodes >= u64::from(options.nodes_per_user);
        if is_full && !node.is_admin(user.bare()) {
            let error = StanzaError::new(StanzaCondition::ResourceConstraint);
            return Err(error.text("you have reached your maximum number of nodes"));
        }
        Ok(())
    }

    pub(crate) fn answer(
        &mut self,
        node: &Arc<Node>,
        ctx: &mut NodeCtx<'_>,
        (user, facts): (&Jid, &RequesterFacts),
        request: NodeRequest,
        is_operator: bool,
    ) -> Result<PubSubAnswer, StanzaError> {
        let mut facts = *facts;
        if self.node.is_none() {
            let (created, answer) = self.create(node, ctx, (user, &facts), &request, is_operator)?;
            self.node = Some(created);
            self.subscribers.set_empty();
            facts.has_room_for_subscription = true;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        let Some(pubsub_node) = &mut self.node else { return Err(not_found()) };
        let requester = requester((node, &*self.shared.host), user, &facts, is_operator);
        let is_new = ctx.changes.first().is_some_and(|change| matches!(change, PubSubChange::Put(_)));
        let answer = pubsub_node.handle(ctx, &requester, request);
        if answer.is_err() && is_new {
            // A publication that is refused creates nothing.
            self.node = None;
            ctx.changes.clear();
            ctx.notices.clear();
        }
        answer
    }

    /// Handles an input of a node that was read.
    fn handle_loaded(
        &mut self,
        node: Arc<Node>,
        input: NodeInput,
        facts: RequesterFacts,
    ) -> Option<BoxFuture<'_, ()>> {
        let Some(input) = self.admit_graph_change(&node, input, &facts) else {
            (self.reservation, self.graph) = (None, None);
            return None;
        };
        let options = self.shared.options();
        self.is_of_client = !matches!(&input, NodeInput::Conversion { .. });
        let new_id = || base::id::random_id().to_lowercase();
        let existed = self.node.is_some();
        let is_account = |jid: &Jid| is_account(&node, jid);
        let mut ctx = NodeCtx::new(node.clock.unix_millis(), &new_id, &is_account, &options.limits);
        ctx.graph = self.graph.take();
        let has_collections = self.shared.host.domain_of_collections().is_some();
        ctx.has_root = has_collections && self.shared.root.known(node.seconds()) != Some(false);
        let mut guard = None;
        let mut result = Ok(PubSubAnswer::Payload(Vec::new()));
        let mut reply = None;
        let mut held = HeldByWrite {
            reservation: self.reservation.take(),
            is_of_client: self.is_of_client,
            ..HeldByWrite::default()
        };
        match input {
            NodeInput::Request { request, from, reply: to, bytes, guard: of_change } => {
                held.bytes = bytes;
                guard = of_change;
                let published = match &request {
                    // An event without items is a publication, too.
                    NodeRequest::Publish { items, .. } => {
                        u32::try_from(items.len().max(1)).unwrap_or(u32::MAX)
                    }
                    _ => 0,
                };
                result = self.answer(&node, &mut ctx, (&from, &facts), request, false);
                if published > 0 && result.is_ok() {
                    self.shared.publications.add(node.seconds(), published);
                }
                reply = Some(to);
            }
            NodeInput::Conversion { request, account, last_item, reply: to } => {
                let request = (request, last_item);
                result = self.answer_conversion(&node, &mut ctx, (&account, &facts), request);
                reply = Some(to);
            }
            NodeInput::Command { request, user, reply: to } => {
                result = self.answer(&node, &mut ctx, (&user, &facts), request, true);
                reply = Some(to);
            }
            NodeInput::AskAgain { from, reply: to } => {
                result = match &mut self.node {
                    Some(one) => {
                        one.ask_again(&mut ctx, &requester((&node, &*self.shared.host), &from, &facts, false))
                    }
                    None => Err(not_found()),
                };
                reply = Some(to);
            }
            NodeInput::Approval { approval, from } => {
                if let Some(one) = &mut self.node {
                    one.approve(
                        &mut ctx,
                        &requester((&node, &*self.shared.host), &from, &facts, false),
                        &approval,
                    );
                }
            }
            NodeInput::UserChanged { user, change } => {
                if let Some(one) = &mut self.node {
                    let requester = requester((&node, &*self.shared.host), &user, &facts, false);
                    match change {
                        UserChange::Available => one.user_available(&mut ctx, &requester),
                        UserChange::Unavailable => one.user_unavailable(&mut ctx, &requester),
                        UserChange::Removed if self.key.bare() == user.as_ref() => {
                            one.account_removed(&mut ctx)
                        }
                        UserChange::Removed => one.user_removed(&mut ctx, &user),
                    }
                }
            }
            NodeInput::Interested { user } => {
                if let Some(one) = &mut self.node {
                    one.user_interested(
                        &mut ctx,
                        &requester((&node, &*self.shared.host), &user, &facts, false),
                    );
                }
            }
            NodeInput::Graph { input, guard: of_change } => {
                guard = of_change;
                self.handle_graph(&mut ctx, input);
            }
            NodeInput::SubscribersLost(users) => {
                if let Some(one) = &mut self.node {
                    one.subscribers_lost(&mut ctx, &users);
                }
            }
            NodeInput::Drop => self.is_kept = false,
        }
        let NodeCtx { mut changes, notices, rechecks_subscribers, .. } = ctx;
        held.graph.clone_from(&guard);
        if let Ok(PubSubAnswer::ItemsOfChildren(request)) = &result {
            if let Some(reply) = reply.take() {
                self.retrieve_of_children(&node, request.clone(), reply);
            }
            result = Ok(PubSubAnswer::Payload(Vec::new()));
        }
        if self.writes.is_idle() {
            self.subscribers.forget_recent();
        }
        let mut delivery = Delivery::new(&self.key, &self.shared, &node, notices).with_guard(guard);
        let is_for_all = delivery.is_for_all();
        // The recipients of a notice of deletion are those before it.
        let known = match is_for_all {
            true => self.subscribers.audience(),
            false => PlainAudience::Addresses(Arc::from([])),
        };
        self.subscribers.apply(&changes);
        if self.node.as_ref().is_some_and(|one| one.state() == NodeState::Deleted) {
            self.node = None;
        }
        if self.is_unused_root() {
            changes.push(PubSubChange::Remove);
            self.subscribers.set_empty();
            self.node = None;
        }
        if self.node.is_some() != existed {
            self.shared.host.node_changed(&node, &self.key, !existed);
            if self.name() == ROOT_NODE {
                self.shared.root.set(node.seconds(), !existed);
            }
        }
        if self.node.is_some() != existed || self.weight() != self.known_weight {
            self.touch(&node);
        }
        if rechecks_subscribers {
            self.writes.push_held(&node, changes, AfterWrite::Nothing, held);
            return Some(Box::pin(async move {
                self.deliver(&node, delivery, known).await;
                let is_done = self.recheck_subscribers(&node).await;
                if !is_done {
                    // The node is read again, so that the owner can repeat the change.
                    self.writes.fail();
                }
                let held = HeldByWrite::default();
                self.finish(&node, Vec::new(), reply, (result, held)).await;
            }));
        }
        let PlainAudience::Addresses(known) = known else {
            // They are read before a deletion removes them.
            return Some(Box::pin(async move {
                self.deliver(&node, delivery, known).await;
                self.subscribers.apply(&changes);
                self.finish(&node, changes, reply, (result, held)).await;
            }));
        };
        if delivery.needs_filter(&known) {
            return Some(Box::pin(async move {
                delivery.read_filter(&known).await;
                if let Some(rest) = delivery.perform_to(&known) {
                    rest.await;
                }
                self.finish(&node, changes, reply, (result, held)).await;
            }));
        }
        let rest = delivery.perform_to(&known);
        if rest.is_none() && !needs_store(&result) {
            self.send_answer(&node, changes, reply, (result, held));
            return None;
        }
        Some(Box::pin(async move {
            if let Some(rest) = rest {
                rest.await;
            }
            self.finish(&node, changes, reply, (result, held)).await;
        }))
    }

    /// Whether it is the root node, without subscribers: it costs each publication at the service.
    fn is_unused_root(&self) -> bool {
        self.name() == ROOT_NODE
            && self.subscribers.is_empty()
            && self.node.as_ref().is_some_and(|one| one.special_count() == 0)
    }

    /// What another node of the service has sent.
    fn handle_graph(&mut self, ctx: &mut NodeCtx<'_>, input: GraphInput) {
        match (input, &mut self.node) {
            (GraphInput::Edge(edge), Some(one)) => one.apply_edge_change(ctx, &edge),
            (GraphInput::Event(event), Some(one)) => one.child_event(ctx, *event),
            // It was deleted meanwhile.
            (GraphInput::Edge(NodeEdgeChange { to, from, change, .. }), None) => {
                let change = match change {
                    EdgeChange::AddChild { .. } => EdgeChange::RemoveParent,
                    EdgeChange::AddParent => EdgeChange::RemoveChild { is_deleted: true },
                    _ => return,
                };
                let edge = NodeEdgeChange { to: from, from: to, change, requester: None };
                ctx.notices.push(Notice::Graph(GraphInput::Edge(edge)));
            }
            (GraphInput::Event(_), None) => {}
        }
    }

    /// Sends notices to the subscribers: of a node with many to those who are online, or if others receive them later, to all,
    /// page by page.
    async fn deliver(&mut self, node: &Arc<Node>, delivery: Delivery, known: PlainAudience) {
        let (mut delivery, mut known) = (delivery, known);
        if matches!(known, PlainAudience::Unknown) {
            self.writes.flush(node).await;
            if let Err(error) = self.read_subscribers(node).await {
                tracing::error!(node = %self.key, %error, "subscribers could not be read");
                return;
            }
            known = self.subscribers.audience();
        }
        let recipients = match known {
            PlainAudience::Addresses(all) => all,
            PlainAudience::Numbers(subscribers) if self.subscribers.has_room(subscribers.numbers.count()) => {
                match self.read_addresses(node, &subscribers).await {
                    Ok(all) => all,
                    Err(error) => {
                        tracing::error!(node = %self.key, %error, "subscribers could not be read");
                        return;
                    }
                }
            }
            PlainAudience::Numbers(subscribers) if delivery.is_for_online() => {
                online_subscribers(node, &subscribers).await
            }
            // Without a number the node is not in the store.
            PlainAudience::Unknown => Arc::from([]),
            PlainAudience::Numbers(_) => return self.deliver_in_pages(node, delivery).await,
        };
        self.touch_if_changed(node);
        delivery.read_filter(&recipients).await;
        if let Some(rest) = delivery.perform_to(&recipients) {
            rest.await;
        }
    }

    async fn deliver_in_pages(&mut self, node: &Arc<Node>, delivery: Delivery) {
        self.writes.flush(node).await;
        let (mut delivery, mut after) = (delivery, None);
        loop {
            let page = PlainSubscriptions(&node.stores).subscribers(self.key.as_ref(), after, PAGE).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(node = %self.key, %error, "subscribers could not be read");
                    return;
                }
            };
            let is_last = page.len() < PAGE as usize;
            after = page.last().cloned();
            let page: Arc<[Jid]> = page.into();
            delivery.read_filter(&page).await;
            if let Some(wait) = delivery.perform_page(&page, is_last) {
                wait.await;
            }
            if is_last {
                return;
            }
        }
    }

    /// Stores changes; reads what the answer needs, and sends it.
    async fn finish(
        &mut self,
        node: &Arc<Node>,
        changes: Vec<PubSubChange>,
        reply: Option<AnswerSender<IqAnswer>>,
        (result, held): (Result<PubSubAnswer, StanzaError>, HeldByWrite),
    ) {
        if !needs_store(&result) {
            return self.send_answer(node, changes, reply, (result, held));
        }
        if !changes.is_empty() {
            self.writes.push_held(node, changes, AfterWrite::Nothing, held);
        }
        let is_stored = self.writes.flush(node).await;
        let answer = match result {
            // The store does not have what the answer is about.
            Ok(_) if !is_stored => Err(StanzaCondition::ResourceConstraint.into()),
            Ok(answer) => self.read_answer(node, answer).await.map_err(|error| match error.kind {
                StoreErrorKind::NotFound => not_found(),
                _ => store_error(error),
            }),
            Err(error) => Err(error),
        };
        if let Some(reply) = reply {
            reply.send(answer);
        }
    }

    fn send_answer(
        &self,
        node: &Arc<Node>,
        changes: Vec<PubSubChange>,
        reply: Option<AnswerSender<IqAnswer>>,
        (result, held): (Result<PubSubAnswer, StanzaError>, HeldByWrite),
    ) {
        let answer: IqAnswer = result.map(|answer| match answer {
            PubSubAnswer::Payload(payload) => payload,
            _ => Vec::new(),
        });
        match reply {
            // An answer that depends on nothing does not wait.
            Some(reply) if changes.is_empty() && self.writes.is_idle() && !self.writes.has_failed() => {
                reply.send(answer);
            }
            Some(reply) => self.writes.push_held(node, changes, AfterWrite::Answer(reply, answer), held),
            None if changes.is_empty() => {}
            None => self.writes.push_held(node, changes, AfterWrite::Nothing, held),
        }
    }
}

impl SerialState for NodeTask {
    type Message = NodeMessage;

    fn handle(&mut self, message: NodeMessage) -> Option<BoxFuture<'_, ()>> {
        let NodeMessage { node, mut input } = message;
        if matches!(input, NodeInput::Drop) {
            self.is_kept = false;
            self.shared.directory.remove(&self.key);
            return None;
        }
        self.is_loaded &= !self.writes.take_failure();
        if self.is_loaded {
            self.touch(&node);
        }
        if self.is_ready(&node, &input) {
            let facts = self.known_facts(&node, &input);
            return self.handle_loaded(node, input, facts);
        }
        Some(Box::pin(async move {
            if self.must_flush() {
                self.writes.flush(&node).await;
                self.subscribers.forget_recent();
                self.is_loaded &= !self.writes.take_failure();
            }
            let loaded = match self.is_loaded {
                true => {
                    if self.node.as_ref().is_some_and(PubSubNode::lacks_last) {
                        self.writes.flush(&node).await;
                    }
                    self.read_last(&node).await
                }
                false => {
                    self.writes.flush(&node).await;
                    let loaded = self.load(&node).await;
                    // Its weight and its creator were not known before.
                    self.touch(&node);
                    loaded
                }
            };
            let facts = match loaded {
                Ok(()) => self.facts(&node, &mut input).await,
                Err(error) => Err(error),
            };
            match facts {
                Ok(facts) => {
                    if let Some(rest) = self.handle_loaded(node, input, facts) {
                        rest.await;
                    }
                }
                Err(error) => {
                    tracing::error!(node = %self.key, %error, "a node could not be read");
                    self.reservation = None;
                    Self::refuse(input, store_error(error));
                }
            }
        }))
    }

    fn is_idle(&self) -> bool {
        let is_idle = (self.node.is_none() || !self.is_kept) && self.writes.can_end();
        if is_idle {
            self.shared.directory.remove(&self.key);
        }
        is_idle
    }
}
