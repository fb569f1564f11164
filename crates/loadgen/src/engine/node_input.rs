//! Received stanzas of PubSub services: events, and answers to subscriptions and publications.
//!
//! An event is recognized by the ids of its items, which the publisher has chosen (XEP-0060, section 7.1.2.1).
//!
//! # Pitfalls
//!
//! The last item of a node is sent again on subscription and on presence (section 6.1.7). It is distinguished by its delay
//! (XEP-0203) and by the time at which the publication was due.

use stanza::{Head, PayloadNs};

use super::event_loop::WorkerEngine;
use super::negotiate::error_condition;
use super::nodes::{ITEM, PubSubSubscription, PubSubSubscriptionState, SUBSCRIBE};
use super::room_accounting::{CopyKind, RoomIndex};
use super::room_message_id::RoomMessageId;
use super::slot::UserSlot;
use super::virtual_user::WaitState;
use crate::measure::{Counter, Gauge, Timing};

impl WorkerEngine<'_> {
    /// Handles a message with events. False if it has none of this run.
    pub(super) fn node_event(&mut self, slot: UserSlot, bytes: &[u8], head: &Head, now: u64) -> bool {
        let mut rest = bytes;
        let mut is_event = false;
        while let Some(at) = memchr::memmem::find(rest, b"<item ") {
            rest = rest.get(at + 6..).unwrap_or_default();
            if let Some(id) = item_id(rest).and_then(|id| RoomMessageId::read(id, ITEM, self.assignment.run))
            {
                is_event = true;
                self.node_item(slot, id, head, now);
            }
        }
        is_event
    }

    fn node_item(&mut self, slot: UserSlot, id: RoomMessageId, head: &Head, now: u64) {
        let same_clock = self.same_clock(id.worker);
        let delayed = head.payloads().contains(PayloadNs::Delay);
        let nodes = self.users[slot].nodes_mut();
        let Some(one) = nodes.and_then(|nodes| nodes.nodes.iter_mut().find(|it| it.hash == id.room)) else {
            return self.record.add(Counter::NodeEventsOutside, 1);
        };
        let is_subscribed = one.state == PubSubSubscriptionState::Subscribed;
        if delayed && (!is_subscribed || !same_clock || id.due < one.subscribed_at) {
            return self.record.add(Counter::NodeLastItems, 1);
        }
        if !is_subscribed {
            return self.record.add(Counter::NodeEventsOutside, 1);
        }
        match self.rooms.arrive(one.node, &mut one.cursor, id.worker, id.number) {
            CopyKind::New => {}
            CopyKind::Duplicate => return self.record.add(Counter::NodeEventsDuplicate, 1),
            CopyKind::Invalid => return self.record.add(Counter::MessagesForeign, 1),
        }
        self.record.add(Counter::NodeEvents, 1);
        if same_clock {
            let took = now.saturating_sub(id.due);
            self.record.time(Timing::NodeEvent, took);
            self.record_acceptable(slot, took);
        }
    }

    /// Handles the answer to a publication.
    pub(super) fn publication_answered(
        &mut self,
        slot: UserSlot,
        id: RoomMessageId,
        is_good: bool,
        bytes: &[u8],
        now: u64,
    ) {
        let took = now.saturating_sub(id.due);
        self.record.time(Timing::NodePublish, took);
        self.record_acceptable(slot, took);
        self.record.adjust_gauge(Gauge::UnderWay, -1);
        if !is_good && self.rooms.refuse(id.room, id.number) {
            let condition = error_condition(bytes, &self.users[slot].scope);
            self.record.error(&format!("publish:{condition}"));
            self.record.add(Counter::NodePublicationsRefused, 1);
        }
        let awaited = self.users[slot].nodes_mut().and_then(|nodes| nodes.awaited);
        let is_awaited =
            awaited.is_some_and(|(node, number)| number == id.number && self.rooms.hash(node) == id.room);
        if is_awaited && self.users[slot].wait == WaitState::Publication {
            self.resume_program(slot, now);
        }
    }

    /// Handles the answer to a request to begin or to end a subscription.
    pub(super) fn subscription_answered(
        &mut self,
        slot: UserSlot,
        (class, number, due): (u8, u32, u64),
        is_good: bool,
        bytes: &[u8],
        now: u64,
    ) {
        let of_request = |it: &&PubSubSubscription| it.request == number;
        let node = self.users[slot].nodes().iter().find(of_request).map(|it| it.node);
        let took = now.saturating_sub(due);
        let is_subscribe = class == SUBSCRIBE;
        let (timing, counter) = match is_subscribe {
            true => (Timing::NodeSubscribe, Counter::NodeSubscriptions),
            false => (Timing::NodeUnsubscribe, Counter::NodeUnsubscriptions),
        };
        self.record.time(timing, took);
        self.record_acceptable(slot, took);
        if is_good {
            self.record.add(counter, 1);
        } else {
            let condition = error_condition(bytes, &self.users[slot].scope);
            self.record.error(&format!("{}:{condition}", timing.name()));
            self.record.add(Counter::NodeSubscriptionErrors, 1);
        }
        if let Some(node) = node {
            match is_good && is_subscribe {
                true => self.begin_events(slot, node, now),
                false => self.forget_node(slot, node),
            }
        }
        if self.users[slot].wait == WaitState::Nodes && !self.has_pending_nodes(slot) {
            self.resume_program(slot, now);
        }
    }

    fn forget_node(&mut self, slot: UserSlot, node: RoomIndex) {
        if let Some(nodes) = self.users[slot].nodes_mut() {
            nodes.nodes.retain(|it| it.node != node);
        }
    }

    /// Gives up what the service has not answered in time.
    pub(super) fn nodes_timed_out(&mut self, slot: UserSlot) {
        let pending = |it: &&PubSubSubscription| it.state != PubSubSubscriptionState::Subscribed;
        let nodes: Vec<RoomIndex> =
            self.users[slot].nodes().iter().filter(pending).map(|it| it.node).collect();
        for node in nodes {
            self.record.error("subscribe:timeout");
            self.record.add(Counter::NodeSubscriptionErrors, 1);
            self.forget_node(slot, node);
        }
    }
}

/// The id of an item, from its attributes on.
fn item_id(attributes: &[u8]) -> Option<&str> {
    let end = memchr::memchr(b'>', attributes)?;
    let attributes = attributes.get(..end)?;
    let at = memchr::memmem::find(attributes, b"id=")?;
    let (quote, value) = attributes.get(at + 3..)?.split_first()?;
    let end = memchr::memchr(*quote, value)?;
    std::str::from_utf8(value.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::item_id;

    #[test]
    fn the_id_of_an_item() {
        assert_eq!(item_id(b"id='J1-2'><entry id='x'/>"), Some("J1-2"));
        assert_eq!(item_id(b"publisher='a' id=\"J1\"/>"), Some("J1"));
        assert_eq!(item_id(b"><entry id='x'/>"), None);
        assert_eq!(item_id(b"id='J1"), None);
    }
}
