//! Steps at PubSub nodes (XEP-0060): what users send to them, and to which nodes a user is subscribed.
//!
//! A node is accounted for as a room is ([`super::room_accounting`]), under the address of its service with its name as
//! resource: a subscription is a stay, an item a message, an event a copy.
//!
//! # Pitfalls
//!
//! A subscription ends when the request to end it is *sent*: events that arrive after it do not belong to it. A publisher
//! that is subscribed to a node where publishers do not receive their own items lacks events.

use super::event_loop::{WorkerEngine, WorkerStage};
use super::interpreter::StepOutcome;
use super::room_accounting::{RoomIndex, StayCursor};
use super::room_message_id::RoomMessageId;
use super::slot::UserSlot;
use super::virtual_user::{VirtualUser, WaitState};
use super::writer::request_id;
use crate::clock::now_us;
use crate::measure::{Counter, Gauge};
use crate::plan::pubsub::NODE_PREFIX;
use crate::plan::{MessageBody, PubSubNodeSelection, PubSubStep, TextTemplate};

/// Nodes of one user.
#[derive(Default)]
pub(crate) struct UserNodes {
    pub(super) nodes: Vec<PubSubSubscription>,
    /// Publication whose answer the user waits for.
    pub(super) awaited: Option<(RoomIndex, u32)>,
}

/// A subscription of a user, or one on its way.
pub(crate) struct PubSubSubscription {
    pub(super) node: RoomIndex,
    pub(super) hash: u64,
    pub(super) state: PubSubSubscriptionState,
    /// Number of the request that has not been answered.
    pub(super) request: u32,
    /// Time from which events are due.
    pub(super) subscribed_at: u64,
    pub(super) cursor: StayCursor,
}

/// State of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PubSubSubscriptionState {
    /// The request has been sent.
    Subscribing,
    Subscribed,
    /// The request to end it has been sent.
    Unsubscribing,
}

/// Class of the ids of publications.
pub(super) const PUBLICATION: u8 = b'I';
/// Class of the ids of items.
pub(super) const ITEM: u8 = b'J';
/// Class of the ids of requests to subscribe.
pub(super) const SUBSCRIBE: u8 = b'C';
/// Class of the ids of requests to end subscriptions.
pub(super) const UNSUBSCRIBE: u8 = b'V';

impl VirtualUser {
    /// Nodes of the user.
    pub(super) fn nodes(&self) -> &[PubSubSubscription] {
        self.extra.as_ref().and_then(|extra| extra.nodes.as_ref()).map_or(&[], |nodes| &nodes.nodes)
    }

    /// Nodes of the user, to be changed; `None` if it has none.
    pub(super) fn nodes_mut(&mut self) -> Option<&mut UserNodes> {
        self.extra.as_mut()?.nodes.as_deref_mut()
    }
}

impl WorkerEngine<'_> {
    /// Runs a step at PubSub nodes.
    pub(super) fn pubsub_step(&mut self, slot: UserSlot, step: &PubSubStep, due: u64) -> StepOutcome {
        let waits = match step {
            PubSubStep::Create { node, wait } => {
                return self.manage_nodes(slot, node, ("", "create"), *wait, due);
            }
            PubSubStep::Delete { node, wait } => {
                return self.manage_nodes(slot, node, ("#owner", "delete"), *wait, due);
            }
            PubSubStep::Subscribe { node, wait } => {
                for node in self.selected_nodes(slot, node) {
                    self.subscribe(slot, node, due);
                }
                *wait
            }
            PubSubStep::Listen { node } => {
                for node in self.selected_nodes(slot, node) {
                    self.add_subscription(slot, node, 0);
                    self.begin_events(slot, node, now_us());
                }
                false
            }
            PubSubStep::Unsubscribe { node, subid, wait } => {
                for node in self.selected_nodes(slot, node) {
                    self.unsubscribe(slot, node, subid.as_ref(), due);
                }
                *wait
            }
            PubSubStep::Publish { node, body, wait } => {
                let sent = self.publish(slot, node, body, due);
                return self.await_publication(slot, sent.filter(|_| *wait));
            }
        };
        if !waits || !self.has_pending_nodes(slot) {
            return StepOutcome::Go;
        }
        self.users[slot].wait = WaitState::Nodes;
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    fn await_publication(&mut self, slot: UserSlot, sent: Option<(RoomIndex, u32)>) -> StepOutcome {
        if sent.is_none() {
            return StepOutcome::Go;
        }
        self.users[slot].extra().nodes.get_or_insert_default().awaited = sent;
        self.users[slot].wait = WaitState::Publication;
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    /// Whether the user has subscriptions that the service has not answered.
    pub(super) fn has_pending_nodes(&self, slot: UserSlot) -> bool {
        self.users[slot].nodes().iter().any(|it| it.state != PubSubSubscriptionState::Subscribed)
    }

    fn pubsub_service(&self) -> String {
        match &self.plan.options.pubsub_service {
            Some(service) => service.clone(),
            None => format!("pubsub.{}", self.names.domain()),
        }
    }

    /// The selected nodes; counts an error if the user is subscribed to none.
    fn selected_nodes(&mut self, slot: UserSlot, selection: &PubSubNodeSelection) -> Vec<RoomIndex> {
        let names = match selection {
            PubSubNodeSelection::Named(name) => vec![self.text(slot, name)],
            PubSubNodeSelection::Ring { offset, nodes, count } => {
                let nodes = u64::from((*nodes).max(1));
                let first = u64::from(self.users[slot].account) + u64::from(*offset);
                let count = u64::from(*count).min(nodes);
                (first..first + count).map(|node| format!("{NODE_PREFIX}{}", node % nodes)).collect()
            }
            PubSubNodeSelection::Subscribed | PubSubNodeSelection::All => {
                let subscribed = |it: &&PubSubSubscription| it.state == PubSubSubscriptionState::Subscribed;
                let all = self.users[slot].nodes().iter().filter(subscribed).map(|it| it.node);
                let mut all: Vec<RoomIndex> = all.collect();
                if all.is_empty() {
                    self.record.error("not-subscribed");
                } else if *selection == PubSubNodeSelection::Subscribed {
                    let chosen = self.rng.below(u32::try_from(all.len()).unwrap_or(u32::MAX)) as usize;
                    all = all.get(chosen).copied().into_iter().collect();
                }
                return all;
            }
        };
        let service = self.pubsub_service();
        names.into_iter().map(|name| self.rooms.node(&format!("{service}/{name}"))).collect()
    }

    /// Writes a request up to the element with the node's name; returns where it begins.
    fn begin_node_request(
        &mut self,
        slot: UserSlot,
        node: RoomIndex,
        (ns, element): (&str, &str),
        write_id: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let (service, name) = self.rooms.address(node).split_once('/').unwrap_or_default();
        let out = &mut self.users[slot].out;
        let begin = out.len();
        out.extend_from_slice(b"<iq type='set' to='");
        xml::escape::attr(service, out);
        out.extend_from_slice(b"' id='");
        write_id(out);
        out.extend_from_slice(b"'><pubsub xmlns='http://jabber.org/protocol/pubsub");
        out.extend_from_slice(ns.as_bytes());
        out.extend_from_slice(b"'><");
        out.extend_from_slice(element.as_bytes());
        out.extend_from_slice(b" node='");
        xml::escape::attr(name, out);
        out.push(b'\'');
        begin
    }

    /// Creates or deletes nodes.
    fn manage_nodes(
        &mut self,
        slot: UserSlot,
        selection: &PubSubNodeSelection,
        element: (&str, &str),
        waits: bool,
        due: u64,
    ) -> StepOutcome {
        let mut last = None;
        for node in self.selected_nodes(slot, selection) {
            let number = self.begin_request(slot);
            let begin =
                self.begin_node_request(slot, node, element, |out| request_id(b'M', number, due, out));
            self.users[slot].out.extend_from_slice(b"/></pubsub></iq>");
            self.sent_stanza(slot, begin, Counter::IqSent);
            last = Some(number);
        }
        let Some(last) = last.filter(|_| waits) else { return StepOutcome::Go };
        self.users[slot].wait = WaitState::Answer(last);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    fn add_subscription(&mut self, slot: UserSlot, node: RoomIndex, request: u32) {
        self.end_events(slot, node);
        let one = PubSubSubscription {
            node,
            hash: self.rooms.hash(node),
            state: PubSubSubscriptionState::Subscribing,
            request,
            subscribed_at: 0,
            cursor: StayCursor::EMPTY,
        };
        let nodes = &mut self.users[slot].extra().nodes.get_or_insert_default().nodes;
        match nodes.iter_mut().find(|it| it.node == node) {
            Some(known) => *known = one,
            None => nodes.push(one),
        }
    }

    fn subscribe(&mut self, slot: UserSlot, node: RoomIndex, due: u64) {
        let number = self.begin_request(slot);
        self.add_subscription(slot, node, number);
        let begin = self
            .begin_node_request(slot, node, ("", "subscribe"), |out| request_id(SUBSCRIBE, number, due, out));
        self.end_subscription_request(slot, begin);
    }

    fn unsubscribe(&mut self, slot: UserSlot, node: RoomIndex, subid: Option<&TextTemplate>, due: u64) {
        let number = self.begin_request(slot);
        self.end_events(slot, node);
        if let Some(one) = self.subscription(slot, node) {
            (one.state, one.request) = (PubSubSubscriptionState::Unsubscribing, number);
        }
        let subid = subid.map(|text| self.text(slot, text));
        let begin = self.begin_node_request(slot, node, ("", "unsubscribe"), |out| {
            request_id(UNSUBSCRIBE, number, due, out);
        });
        if let Some(subid) = subid {
            let out = &mut self.users[slot].out;
            out.extend_from_slice(b" subid='");
            xml::escape::attr(&subid, out);
            out.push(b'\'');
        }
        self.end_subscription_request(slot, begin);
    }

    fn end_subscription_request(&mut self, slot: UserSlot, begin: usize) {
        let mut jid = String::new();
        self.own_address(slot, &mut jid);
        let jid = jid.split('/').next().unwrap_or_default();
        let out = &mut self.users[slot].out;
        out.extend_from_slice(b" jid='");
        xml::escape::attr(jid, out);
        out.extend_from_slice(b"'/></pubsub></iq>");
        self.sent_stanza(slot, begin, Counter::IqSent);
    }

    /// Publishes an item that was due at `due`. Returns the number of the last.
    pub(super) fn publish(
        &mut self,
        slot: UserSlot,
        selection: &PubSubNodeSelection,
        body: &MessageBody,
        due: u64,
    ) -> Option<(RoomIndex, u32)> {
        let mut sent = None;
        for node in self.selected_nodes(slot, selection) {
            if self.skip_if_blocked(slot) {
                return sent;
            }
            let text = match body {
                MessageBody::Text(text) => Some(self.text(slot, text)),
                MessageBody::Size(_) => None,
            };
            let sender = self.users[slot].account;
            let number = self.rooms.number(node, sender, now_us());
            sent = Some((node, number));
            let (run, worker) = (self.assignment.run, self.assignment.worker);
            let room = self.rooms.hash(node);
            let id = RoomMessageId { class: PUBLICATION, run, worker, number, sender, due, room };
            let begin = self.begin_node_request(slot, node, ("", "publish"), |out| id.write(out));
            let out = &mut self.users[slot].out;
            out.extend_from_slice(b"><item id='");
            RoomMessageId { class: ITEM, ..id }.write(out);
            out.extend_from_slice(b"'><entry xmlns='http://www.w3.org/2005/Atom'><title>");
            super::writer::write_body(text.as_deref(), body, out);
            out.extend_from_slice(b"</title></entry></item></publish></pubsub></iq>");
            self.record.adjust_gauge(Gauge::UnderWay, 1);
            self.sent_stanza(slot, begin, Counter::NodePublications);
        }
        sent
    }

    pub(super) fn subscription(
        &mut self,
        slot: UserSlot,
        node: RoomIndex,
    ) -> Option<&mut PubSubSubscription> {
        self.users[slot].nodes_mut()?.nodes.iter_mut().find(|it| it.node == node)
    }

    /// Events are due from now on.
    pub(super) fn begin_events(&mut self, slot: UserSlot, node: RoomIndex, now: u64) {
        let cursor = self.rooms.begin(node);
        if let Some(one) = self.subscription(slot, node) {
            (one.state, one.subscribed_at, one.cursor) = (PubSubSubscriptionState::Subscribed, now, cursor);
            self.record.adjust_gauge(Gauge::NodeListeners, 1);
        }
    }

    /// Events of a node are not due any more.
    fn end_events(&mut self, slot: UserSlot, node: RoomIndex) {
        let to_the_end = matches!(self.stage, WorkerStage::Closing(_));
        let Some(one) = self.subscription(slot, node) else { return };
        if one.state != PubSubSubscriptionState::Subscribed {
            return;
        }
        one.state = PubSubSubscriptionState::Unsubscribing;
        let (cursor, subscribed_at) = (one.cursor, one.subscribed_at);
        self.rooms.end(node, cursor, subscribed_at, to_the_end);
        self.record.adjust_gauge(Gauge::NodeListeners, -1);
    }

    /// Ends the events of a user whose session is over. Its subscriptions stay, but nothing is due.
    pub(super) fn end_all_events(&mut self, slot: UserSlot) {
        let nodes: Vec<RoomIndex> = self.users[slot].nodes().iter().map(|it| it.node).collect();
        for node in nodes {
            self.end_events(slot, node);
        }
        if let Some(extra) = &mut self.users[slot].extra {
            extra.nodes = None;
        }
    }
}
