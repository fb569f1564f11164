//! A PubSub service of the scripted server (XEP-0060): subscriptions and events.
//!
//! Not implemented: everything that is stored; creation and deletion have no effect.

use std::collections::BTreeMap;

use super::script::ServerAction;
use super::server::{DOMAIN, ScriptedServerState};
use super::text::{attr, escape};

/// A node.
#[derive(Default)]
pub(crate) struct ScriptedNode {
    /// In the order of subscribing.
    subscribers: Vec<String>,
    /// Events held until after the next one to the same user, with their publishers.
    held: BTreeMap<String, (String, String)>,
}

/// The text between two others.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?.1.split_once(end).map(|(found, _)| found)
}

impl ScriptedServerState {
    /// Handles a request to the service. False if it is for another address.
    pub(crate) fn node_request(&mut self, id: usize, request: &str) -> bool {
        let service = format!("pubsub.{DOMAIN}");
        if attr(request, "to").as_deref() != Some(&service) {
            return false;
        }
        let Some(user) = self.conns.get(&id).and_then(|conn| conn.user.clone()) else { return false };
        let node = between(request, " node='", "'").unwrap_or_default().to_owned();
        let result = |kind: &str, content: &str| {
            let request = escape(&attr(request, "id").unwrap_or_default());
            format!("<iq type='{kind}' id='{request}' from='{service}'>{content}</iq>")
        };
        if request.contains("<subscribe ") {
            let of_node = self.nodes.entry(node).or_default();
            if !of_node.subscribers.contains(&user) {
                of_node.subscribers.push(user.clone());
            }
            self.truth.node_subscriptions += 1;
        } else if request.contains("<unsubscribe ") {
            self.nodes.entry(node).or_default().subscribers.retain(|one| *one != user);
            self.truth.node_unsubscriptions += 1;
        } else if request.contains("<publish ") {
            let number = self.truth.node_items;
            self.truth.node_items += 1;
            if matches!((self.script.copy)(number, ""), ServerAction::Refuse) {
                self.truth.node_refused += 1;
                let error =
                    "<error type='auth'><forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>";
                self.send(&user, &result("error", error));
                return true;
            }
            let item = between(request, "<item ", "</publish>").unwrap_or_default();
            let event = format!(
                "<message from='{service}' type='headline'><event xmlns='http://jabber.org/protocol/pubsub#event'>\
                 <items node='{node}'><item {item}</items></event></message>"
            );
            self.send_events(&user, &node, number, &event);
        }
        self.send(&user, &result("result", ""));
        true
    }

    fn send_events(&mut self, publisher: &str, node: &str, number: u64, event: &str) {
        let subscribers = self.nodes.get(node).map(|node| node.subscribers.clone()).unwrap_or_default();
        for user in &subscribers {
            let held = self.nodes.get_mut(node).and_then(|node| node.held.remove(user));
            match (self.script.copy)(number, user) {
                ServerAction::Nothing => self.truth.node_dropped += 1,
                ServerAction::Hold => {
                    let state = self.nodes.entry(node.to_owned()).or_default();
                    state.held.insert(user.clone(), (publisher.to_owned(), event.to_owned()));
                }
                action => {
                    self.truth.node_events += 1;
                    self.send(user, event);
                    if matches!(action, ServerAction::Twice) {
                        self.truth.node_duplicated += 1;
                        self.send(user, event);
                    }
                }
            }
            if let Some((sender, held)) = held {
                self.truth.node_events += 1;
                self.truth.node_swapped += 1;
                self.truth.node_publisher_swapped += u64::from(sender == publisher);
                self.send(user, &held);
            }
        }
    }
}
