//! Client of the simulation: remembers what it knows, and accepts subscription requests. It reads whenever something
//! arrives, or only at the end if it is slow.

use std::collections::BTreeMap;

use testkit::{NodeClient, PendingResumption, TestNodes};

/// A message that a client received.
pub(super) struct ReceivedMessage {
    pub(super) id: String,
    /// The id that the recipient's server has assigned (XEP-0359).
    pub(super) stanza_id: Option<String>,
    /// Whether it has a delay stamp (XEP-0203), so that it was stored.
    pub(super) delayed: bool,
}

/// Session of a user, also after its end.
pub(super) struct SimulatedClient {
    /// Index of the user.
    pub(super) user: usize,
    /// Number of its node.
    pub(super) node: usize,
    /// Its full address.
    pub(super) address: String,
    /// Whether it ever had a negative priority.
    pub(super) was_negative: bool,
    /// Text of its last presence.
    pub(super) status: String,
    /// The session, until it ends.
    pub(super) client: Option<NodeClient>,
    /// Last presence by full address; without those that are unavailable.
    pub(super) seen: BTreeMap<String, String>,
    /// Messages in the order in which they arrived.
    pub(super) received: Vec<ReceivedMessage>,
    /// Ids of messages that came back with an error.
    pub(super) returned: Vec<String>,
    /// Number of its stanzas that its server has acknowledged.
    pub(super) acknowledged: u32,
    /// Its node crashed. What it had received may not have been acknowledged.
    pub(super) crashed: bool,
    /// It does not read until everything else has arrived.
    pub(super) slow: bool,
    /// It was slow, so that the store may have had messages that were in its queue.
    pub(super) was_slow: bool,
    /// Number of messages that had been sent when it was opened.
    pub(super) opened_at: usize,
    /// It ended before it had read everything.
    pub(super) left_unread: bool,
    /// It resumes its stream on this node. Its connection is lost meanwhile.
    pub(super) moving: Option<(usize, PendingResumption)>,
}

impl SimulatedClient {
    pub(super) fn new(user: usize, node: usize, client: NodeClient, opened_at: usize) -> SimulatedClient {
        SimulatedClient {
            user,
            node,
            address: client.full().to_owned(),
            was_negative: false,
            status: String::new(),
            client: Some(client),
            seen: BTreeMap::new(),
            received: Vec::new(),
            returned: Vec::new(),
            acknowledged: 0,
            crashed: false,
            slow: false,
            was_slow: false,
            opened_at,
            left_unread: false,
            moving: None,
        }
    }

    /// Loses the connection and reconnects to another node.
    pub(super) fn resume_on(&mut self, nodes: &TestNodes, node: usize) {
        let Some(client) = &self.client else { return };
        client.leave(true);
        self.moving = Some((node, nodes.node(node).resume(client)));
    }

    /// Continues on the other node when that has an outcome. True if it had.
    pub(super) fn finish_move(&mut self, nodes: &TestNodes) -> bool {
        let Some((node, pending)) = &self.moving else { return false };
        let Some(outcome) = nodes.node(*node).resumed(pending) else {
            // What it holds may be delivered to others meanwhile.
            self.was_slow = true;
            return false;
        };
        match outcome {
            Ok(client) => (self.client, self.node) = (Some(client), *node),
            Err(_) => {
                self.left_unread = true;
                self.client.take().iter().for_each(NodeClient::close);
            }
        }
        self.moving = None;
        true
    }

    /// Sends a stanza; without a session nothing happens.
    pub(super) fn send(&self, text: &str) {
        if let Some(client) = &self.client
            && !client.session.is_ended()
            && self.moving.is_none()
        {
            client.send(text);
        }
    }

    /// Broadcasts presence with this text.
    pub(super) fn become_available(&mut self, status: String, priority: i8) {
        self.send(&format!("<presence><status>{status}</status><priority>{priority}</priority></presence>"));
        self.status = status;
        self.was_negative |= priority < 0;
    }

    /// Messages with this id that it received; with `delayed`, only those that were stored, or were not.
    pub(super) fn count(&self, id: &str, delayed: Option<bool>) -> usize {
        let matches = |m: &&ReceivedMessage| m.id == id && delayed.is_none_or(|delayed| m.delayed == delayed);
        self.received.iter().filter(matches).count()
    }

    /// Ends the session; a slow client does not read what is left.
    pub(super) fn close(&mut self) {
        if self.slow {
            self.left_unread = true;
        } else {
            self.read();
        }
        if let Some(client) = self.client.take() {
            client.close();
        }
    }

    /// Reads everything that has arrived. True if there was anything.
    pub(super) fn read(&mut self) -> bool {
        let Some(client) = self.client.as_ref().filter(|_| self.moving.is_none()) else { return false };
        let stanzas = client.recv();
        self.acknowledged = client.handled();
        if client.session.is_ended() {
            self.client = None;
        }
        stanzas.iter().for_each(|stanza| self.handle(stanza));
        !stanzas.is_empty()
    }

    fn handle(&mut self, text: &str) {
        let document = roxmltree::Document::parse(text).expect("XML");
        let root = document.root_element();
        let attribute = |name: &str| root.attribute(name).unwrap_or_default().to_owned();
        let (from, id) = (attribute("from"), attribute("id"));
        let child = |name: &str| root.children().find(|child| child.tag_name().name() == name);
        match (root.tag_name().name(), attribute("type").as_str()) {
            ("message", "error") => self.returned.push(id),
            ("message", _) => {
                let stanza_id = child("stanza-id").and_then(|child| child.attribute("id")).map(str::to_owned);
                self.received.push(ReceivedMessage { id, stanza_id, delayed: child("delay").is_some() });
            }
            ("presence", "") if from != self.address => {
                let status = child("status").and_then(|status| status.text()).unwrap_or_default();
                self.seen.insert(from, status.to_owned());
            }
            // From a bare address it is that of all resources.
            ("presence", "unavailable") if from.contains('/') => drop(self.seen.remove(&from)),
            ("presence", "unavailable") => {
                self.seen.retain(|address, _| address.split('/').next() != Some(from.as_str()));
            }
            ("presence", "subscribe") => self.send(&format!("<presence type='subscribed' to='{from}'/>")),
            _ => {}
        }
    }
}
