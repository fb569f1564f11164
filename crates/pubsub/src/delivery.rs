//! Sends the notices of a node: an event is one multicast, which costs one message for each node of a cluster.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use base::BoxFuture;
use base::spawn::yield_now;
use jid::Jid;
use queues::serial_task::MailboxFull;
use stanza::{MessageType, StanzaCondition, StanzaKind};
use throng_core::multicast::Multicast;
use throng_core::session::Session;
use throng_core::{Effect, Effects, Node, SharedStanza, StanzaSource, UndeliveredRecipient};
use xml::Ns;

use crate::graph::{EventDelivery, GraphInput};
use crate::graph_lock::GraphGuard;
use crate::node::{NodeEvent, Notice, ROOT_NODE, with_subids};
use crate::node_directory::other_owner;
use crate::pubsub_host::ImplicitRecipients;
use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared};
use crate::service::node_address;
use crate::subscriber_filter::{FewUsers, SubscriberFilter};
use crate::subscription::ShowValue;

/// Bytes of stanzas for single recipients that are made before they are sent.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that a recipient of a shared stanza counts.
const BYTES_OF_RECIPIENT: usize = 64;

/// Notices to send.
pub(crate) struct Delivery {
    key: Jid,
    shared: Arc<PubSubShared>,
    node: Arc<Node>,
    notices: Vec<Notice>,
    /// Who among the subscribers may still read the node; `None`: all.
    filter: Option<SubscriberFilter>,
    /// Of a change of the graph, which ends when the other nodes have it.
    guard: Option<Arc<GraphGuard>>,
}

impl Delivery {
    pub(crate) fn new(
        key: &Jid,
        shared: &Arc<PubSubShared>,
        node: &Arc<Node>,
        notices: Vec<Notice>,
    ) -> Delivery {
        Delivery {
            key: key.clone(),
            shared: shared.clone(),
            node: node.clone(),
            notices,
            filter: None,
            guard: None,
        }
    }

    /// The notices are those of a change of the graph.
    pub(crate) fn with_guard(mut self, guard: Option<Arc<GraphGuard>>) -> Delivery {
        self.guard = guard;
        self
    }

    fn events(&self) -> impl Iterator<Item = &NodeEvent> {
        self.notices.iter().filter_map(|notice| match notice {
            Notice::Event(event) => Some(event),
            Notice::Direct { .. } | Notice::Shared { .. } | Notice::Graph(_) => None,
        })
    }

    /// Whether plain subscribers must be known.
    pub(crate) fn is_for_all(&self) -> bool {
        self.events().any(|event| event.is_for_plain)
    }

    /// Whether only users who are online receive the events, and this node knows them all.
    pub(crate) fn is_for_online(&self) -> bool {
        let is_missed = |event: &NodeEvent| event.stanza.kind() == StanzaKind::Message(MessageType::Headline);
        self.node.is_single() && self.events().all(is_missed)
    }

    /// Whether it must be read who may still read the node, for these plain subscribers and others.
    pub(crate) fn needs_filter(&self, plain: &[Jid]) -> bool {
        self.filter.is_none()
            && self
                .events()
                .any(|event| event.condition.is_some() && !(plain.is_empty() && event.recipients.is_empty()))
    }

    /// Reads who may still read the node.
    pub(crate) async fn read_filter(&mut self, plain: &[Jid]) {
        if self.needs_filter(plain)
            && let Some(condition) = self.events().filter_map(|event| event.condition.clone()).last()
        {
            let (few, stores) = (self.few_subscribers(plain), (&self.node, &self.shared.contacts));
            self.filter = Some(SubscriberFilter::read(stores, condition, few).await);
        }
    }

    /// The users who are subscribed, if they are few.
    fn few_subscribers(&self, plain: &[Jid]) -> Option<BTreeSet<Jid>> {
        let mut users = FewUsers::default();
        users.add(plain.iter());
        for event in self.events() {
            let recipients = &event.recipients;
            users.add(recipients.special.iter());
            users.add(recipients.with_show.iter().map(|(jid, _)| jid));
            users.add(recipients.separate.iter().map(|(jid, _)| jid));
        }
        users.into_users()
    }

    /// Sends all notices; these are the plain subscribers. Returns what must be awaited before the next notices.
    pub(crate) fn perform_to(&self, plain: &Arc<[Jid]>) -> Option<BoxFuture<'static, ()>> {
        self.perform(plain, true)
    }

    /// Sends events to a page of plain subscribers; with the last page, everything else.
    pub(crate) fn perform_page(&self, page: &Arc<[Jid]>, is_last: bool) -> Option<BoxFuture<'static, ()>> {
        self.perform(page, is_last)
    }

    fn perform(&self, plain: &Arc<[Jid]>, is_last: bool) -> Option<BoxFuture<'static, ()>> {
        if self.notices.is_empty() {
            return None;
        }
        let (node, service) = (self.node.clone(), self.key.bare().to_jid());
        let mut run = DeliveryRun { node, service, shared: self.shared.clone(), steps: VecDeque::new() };
        let mut later: Vec<DeliveryStep> = Vec::new();
        let nobody: Arc<[Jid]> = Arc::from([]);
        let mut last: Option<(&NodeEvent, SelectedRecipients)> = None;
        for notice in &self.notices {
            match notice {
                Notice::Event(event) => {
                    let plain = self.admitted(event, if event.is_for_plain { plain } else { &nobody });
                    let same = last.take().filter(|(other, _)| has_same_recipients(event, other));
                    let selected = match same {
                        Some((_, selected)) => selected,
                        None => self.select(event, (&plain, is_last)),
                    };
                    self.add_event(&mut run, event, &selected);
                    last = Some((event, selected));
                    if is_last && event.implicit.is_some() {
                        self.add_implicit((&mut run, &mut later), event, &plain);
                    }
                }
                Notice::Direct { to, stanza } if is_last => {
                    let (to, stanza) = (to.clone(), stanza.clone());
                    run.steps.push_back(DeliveryStep::Direct { to, stanza, is_addressed: true });
                }
                Notice::Shared { to, stanza } if is_last => {
                    let (to, stanza) = (to.clone(), stanza.clone());
                    run.steps.push_back(DeliveryStep::Direct { to, stanza, is_addressed: false });
                }
                Notice::Graph(input) if is_last => {
                    let guard = self.guard.clone();
                    run.steps.push_back(DeliveryStep::Graph { input: input.clone(), guard });
                }
                Notice::Direct { .. } | Notice::Shared { .. } | Notice::Graph(_) => {}
            }
        }
        run.steps.extend(later);
        run.perform()
    }

    /// The plain subscribers that may still read the node.
    fn admitted(&self, event: &NodeEvent, plain: &Arc<[Jid]>) -> Arc<[Jid]> {
        match (&self.filter, &event.condition) {
            (Some(filter), Some(_)) => {
                plain.iter().filter(|one| filter.admits(&self.node, one.as_ref())).cloned().collect()
            }
            _ => plain.clone(),
        }
    }

    fn add_implicit(
        &self,
        (run, later): (&mut DeliveryRun, &mut Vec<DeliveryStep>),
        event: &NodeEvent,
        plain: &[Jid],
    ) {
        let special = event.recipients.special.iter().filter(|one| self.may_read(event, one));
        let subscribed: Vec<Jid> = plain.iter().chain(special).filter(|one| one.is_bare()).cloned().collect();
        match self.shared.host.implicit_recipients(&self.node, &self.key, event, &subscribed) {
            ImplicitRecipients::Known(known) if known.is_empty() => {}
            ImplicitRecipients::Known(known) => {
                let count = known.len();
                let multicast = implicit_multicast(&event.stanza, &run.service, known);
                run.steps.push_back(DeliveryStep::Multicast(multicast, count));
            }
            ImplicitRecipients::Later(read) => later.push(DeliveryStep::Later(event.stanza.clone(), read)),
        }
    }

    fn add_event(&self, run: &mut DeliveryRun, event: &NodeEvent, selected: &SelectedRecipients) {
        if !selected.shared.is_empty() {
            let report = self.report();
            let (recipients, count) = (selected.shared.clone(), selected.shared.len());
            let multicast = Multicast::new(event.stanza.clone(), run.service.clone(), recipients)
                .on_undelivered(move |node: &Arc<Node>, lost: Vec<UndeliveredRecipient>| {
                    report(node, lost);
                    Effects::default()
                });
            run.steps.push_back(DeliveryStep::Multicast(multicast, count));
        }
        if !selected.separate.is_empty() {
            let (stanza, to) = (event.stanza.clone(), selected.separate.clone());
            run.steps.push_back(DeliveryStep::Separate { stanza, to, next: 0 });
        }
    }

    /// Who receives an event. Without exceptions the lists are shared with the task.
    fn select(&self, event: &NodeEvent, (plain, is_last): (&Arc<[Jid]>, bool)) -> SelectedRecipients {
        let is_open = event.delivery == EventDelivery::default() && event.condition.is_none();
        let of_event = &*event.recipients;
        if !is_last || of_event.is_empty() {
            let shared = match event.delivery == EventDelivery::default() {
                true => plain.clone(),
                false => plain.iter().filter(|jid| self.receives(event, jid)).cloned().collect(),
            };
            return SelectedRecipients { shared, separate: Arc::from([]) };
        }
        let with_show = of_event.with_show.iter().filter(|one| has_show(&self.node, one)).map(|(jid, _)| jid);
        let all = plain.iter().chain(&of_event.special).chain(with_show);
        let separate = match is_open {
            true => of_event.separate.clone(),
            false => of_event.separate.iter().filter(|(to, _)| self.receives(event, to)).cloned().collect(),
        };
        SelectedRecipients {
            shared: all.filter(|jid| self.receives(event, jid)).cloned().collect(),
            separate,
        }
    }

    /// Whether a subscriber may still read the node.
    fn may_read(&self, event: &NodeEvent, jid: &Jid) -> bool {
        event.condition.is_none()
            || self.filter.as_ref().is_none_or(|filter| filter.admits(&self.node, jid.as_ref()))
    }

    fn receives(&self, event: &NodeEvent, jid: &Jid) -> bool {
        event.delivery.except.as_ref().is_none_or(|one| one.as_ref() != jid.bare())
            && self.may_read(event, jid)
            && (!event.delivery.presence_based || is_available(&self.node, jid))
    }

    /// Sends subscribers that do not exist any more to the task (section 12.4).
    fn report(&self) -> impl Fn(&Arc<Node>, Vec<UndeliveredRecipient>) + Send + 'static {
        let (key, tasks) = (self.key.clone(), self.shared.tasks());
        move |node, lost| {
            let is_gone = |one: &UndeliveredRecipient| {
                matches!(one.condition, StanzaCondition::ItemNotFound | StanzaCondition::Gone)
            };
            let lost: Vec<Jid> = lost.into_iter().filter(is_gone).map(|one| one.to).collect();
            let Some(tasks) = tasks.as_ref().filter(|_| !lost.is_empty()) else { return };
            let size = lost.iter().map(|one| one.as_str().len() + 32).sum();
            let message = NodeMessage { node: node.clone(), input: NodeInput::SubscribersLost(lost) };
            // The node's task may be the caller, so it must not wait; a full mailbox means that a later event reports them.
            let _ = tasks.try_send(&node.spawner, &key, message, size);
        }
    }
}

/// Who receives an event.
struct SelectedRecipients {
    /// Those who share its stanza.
    shared: Arc<[Jid]>,
    /// Those with several subscriptions, with their identifiers.
    separate: Arc<[(Jid, Vec<Box<str>>)]>,
}

/// Whether two events of one delivery go to the same recipients.
fn has_same_recipients(one: &NodeEvent, other: &NodeEvent) -> bool {
    Arc::ptr_eq(&one.recipients, &other.recipients)
        && (one.is_for_plain, &one.delivery) == (other.is_for_plain, &other.delivery)
        && one.condition.is_none()
        && other.condition.is_none()
}

/// An event to those who receive it without a subscription: one that cannot is not interested any more.
pub(crate) fn implicit_multicast(stanza: &SharedStanza, service: &Jid, recipients: Arc<[Jid]>) -> Multicast {
    Multicast::new(stanza.clone(), service.clone(), recipients)
        .on_undelivered(|_: &Arc<Node>, _: Vec<UndeliveredRecipient>| Effects::default())
}

/// What a delivery does next.
enum DeliveryStep {
    /// To this number of recipients.
    Multicast(Multicast, usize),
    /// A stanza for one recipient, which may have no `to` yet.
    Direct { to: Jid, stanza: SharedStanza, is_addressed: bool },
    /// An event to subscribers with several subscriptions, whose identifiers it must have, from `next` on.
    Separate { stanza: SharedStanza, to: Arc<[(Jid, Vec<Box<str>>)]>, next: usize },
    /// To another node of the service.
    Graph { input: GraphInput, guard: Option<Arc<GraphGuard>> },
    /// An event to recipients that must be read.
    Later(SharedStanza, BoxFuture<'static, Arc<[Jid]>>),
}

/// A delivery under way. What is made for single recipients is made when what was made before is sent.
struct DeliveryRun {
    node: Arc<Node>,
    shared: Arc<PubSubShared>,
    service: Jid,
    steps: VecDeque<DeliveryStep>,
}

impl DeliveryRun {
    /// Performs all steps. Returns what must be awaited.
    fn perform(mut self) -> Option<BoxFuture<'static, ()>> {
        let first = self.advance()?;
        Some(Box::pin(async move {
            let mut wait = first;
            loop {
                wait.await;
                match self.advance() {
                    Some(next) => wait = next,
                    None => return,
                }
            }
        }))
    }

    /// Performs steps until something must be awaited; `None`: all are performed.
    fn advance(&mut self) -> Option<BoxFuture<'static, ()>> {
        while !self.steps.is_empty() {
            let (mut effects, mut bytes) = (Effects::default(), 0);
            while bytes < CHUNK_BYTES
                && let Some(step) = self.steps.pop_front()
            {
                match step {
                    DeliveryStep::Multicast(multicast, count) => {
                        bytes += count * BYTES_OF_RECIPIENT;
                        effects.multicast(multicast);
                    }
                    DeliveryStep::Direct { to, stanza, is_addressed } => {
                        let stanza = match is_addressed {
                            true => Some(stanza),
                            false => stanza.with_to(Some(to.as_ref())),
                        };
                        bytes += self.route(&mut effects, &to, stanza);
                    }
                    DeliveryStep::Separate { stanza, to, next } => {
                        if let Some((jid, subids)) = to.get(next) {
                            let own =
                                with_subids(&stanza, subids).and_then(|one| one.with_to(Some(jid.as_ref())));
                            bytes += self.route(&mut effects, jid, own);
                            self.steps.push_front(DeliveryStep::Separate { stanza, to, next: next + 1 });
                        }
                    }
                    DeliveryStep::Later(stanza, read) if effects.is_empty() => {
                        return Some(self.deliver_later(stanza, read));
                    }
                    DeliveryStep::Graph { input, guard } if effects.is_empty() => {
                        if let Some(wait) = self.send_graph(input, guard) {
                            return Some(wait);
                        }
                    }
                    later @ (DeliveryStep::Later(..) | DeliveryStep::Graph { .. }) => {
                        self.steps.push_front(later);
                        break;
                    }
                }
            }
            if let Some(rest) = self.node.perform_in_order(effects) {
                return Some(rest);
            }
            if bytes >= CHUNK_BYTES && !self.steps.is_empty() {
                // Other tasks must run, too.
                return Some(Box::pin(yield_now()));
            }
        }
        None
    }

    /// Adds a stanza for one recipient; its size.
    fn route(&self, effects: &mut Effects, to: &Jid, stanza: Option<SharedStanza>) -> usize {
        let Some(stanza) = stanza else { return 0 };
        let bytes = stanza.bytes().len();
        let (from, to) = (self.service.clone(), to.clone());
        effects.add(Effect::RouteInLane { source: StanzaSource::Service, stanza, from, to });
        bytes
    }

    /// Sends something to another node of the service. Returns what must be awaited.
    fn send_graph(
        &self,
        input: GraphInput,
        guard: Option<Arc<GraphGuard>>,
    ) -> Option<BoxFuture<'static, ()>> {
        let (node, shared, service) = (self.node.clone(), self.shared.clone(), self.service.clone());
        let is_known = input.to() != ROOT_NODE || shared.root.known(node.seconds()) == Some(true);
        if is_known {
            return send_to_node(&node, &shared, &service, input, guard);
        }
        Some(Box::pin(async move {
            if shared.root.exists(&node, service.as_ref()).await
                && let Some(wait) = send_to_node(&node, &shared, &service, input, guard)
            {
                wait.await;
            }
        }))
    }

    fn deliver_later(
        &self,
        stanza: SharedStanza,
        read: BoxFuture<'static, Arc<[Jid]>>,
    ) -> BoxFuture<'static, ()> {
        let (node, service) = (self.node.clone(), self.service.clone());
        Box::pin(async move {
            let recipients = read.await;
            if recipients.is_empty() {
                return;
            }
            let mut effects = Effects::default();
            effects.multicast(implicit_multicast(&stanza, &service, recipients));
            if let Some(rest) = node.perform_in_order(effects) {
                rest.await;
            }
        })
    }
}

/// Name of the notice of something for a node that another node of the cluster owns.
pub(crate) const GRAPH_NOTICE: &str = "pubsub-graph";

fn send_to_node(
    node: &Arc<Node>,
    shared: &Arc<PubSubShared>,
    service: &Jid,
    input: GraphInput,
    guard: Option<Arc<GraphGuard>>,
) -> Option<BoxFuture<'static, ()>> {
    let key = node_address(service.as_ref(), input.to()).ok()?;
    if let Some(other) = other_owner(node, &key) {
        let host = shared.host.domain_of_collections().and_then(|domain| node.host(domain))?;
        let content = input.encode(service.as_str());
        if !peers::notices::send_notice_to(node, other, &host, GRAPH_NOTICE, &content) {
            tracing::warn!(node = %other, to = %key, "a notice to a collection was not sent");
        }
        return None;
    }
    let (tasks, size) = (shared.tasks()?, input.size());
    let (is_edge, is_to_root) = (matches!(input, GraphInput::Edge(_)), input.to() == ROOT_NODE);
    let message = NodeMessage { node: node.clone(), input: NodeInput::Graph { input, guard } };
    if is_edge {
        // The other node may wait for this one, with an event. Edges are few: requests that add them have a rate, and have added
        // those that are removed.
        let _ = tasks.send_forced(&node.spawner, &key, message, size);
        return None;
    }
    let MailboxFull(message) = tasks.try_send(&node.spawner, &key, message, size).err()?;
    if is_to_root {
        // All publications at the service would wait for one task.
        return None;
    }
    // Events only go up, so the other node does not wait for this one.
    Some(Box::pin(tasks.send(node.spawner.clone(), key, message, size)))
}

/// Whether the presence of a subscriber is one of those that it wants events for (section 16.4.2). Of a user without a session
/// on this node it is not known, and the event is sent.
fn has_show(node: &Node, (jid, wanted): &(Jid, Vec<ShowValue>)) -> bool {
    let Some(account) = node.routing_table.find(jid.as_ref()) else {
        return !node.is_single() || node.host(jid.domain()).is_none();
    };
    let matches = |session: &Arc<Session>| {
        let Some(presence) = session.with(|state| state.presence.clone()) else { return false };
        let Ok(tree) = presence.tree() else { return false };
        let show = tree.root().child("show", Ns::Client).map(|show| show.text().into_owned());
        ShowValue::from_show(show.as_deref().unwrap_or_default()).is_some_and(|show| wanted.contains(&show))
    };
    match jid.resource() {
        Some(resource) => account.session(resource).is_some_and(|session| matches(&session)),
        None => account.sessions().iter().any(matches),
    }
}

/// Whether a user is available, as far as this node knows: presence of other servers is not subscribed to, so their users count
/// as available.
fn is_available(node: &Node, user: &Jid) -> bool {
    if node.host(user.domain()).is_none() {
        return true;
    }
    let account = node.routing_table.find(user.as_ref());
    let is_here = account.is_some_and(|account| match user.resource() {
        Some(resource) => account.session(resource).is_some_and(|session| session.is_available()),
        None => account.sessions().iter().any(|session| session.is_available()),
    });
    if is_here || node.is_single() {
        return is_here;
    }
    let own = node.cluster.node();
    node.cluster.locate(node.routing_table.hash(user.as_ref()), None).other_nodes(own).next().is_some()
}
