//! PubSub nodes of the gathering relay: the floor of an event. It writes the same bytes to the sockets of all subscribers.
//!
//! A node exists when somebody subscribes to it. An item becomes one text of [`EVENT_BYTES`] for all subscribers, its publisher
//! included if it is one. There are no items to retrieve and no affiliations; the end of the connection ends the subscription.
//! Requests are answered as all others are, with an empty result.
//!
//! # Pitfalls
//!
//! Requests must be written as `throng load` writes them.

use std::collections::HashMap;

use memchr::memmem;

/// Length of an event, unless the item itself is longer.
const EVENT_BYTES: usize = 420;

/// All nodes.
#[derive(Default)]
pub(super) struct RelayNodes {
    nodes: HashMap<Vec<u8>, RelayNode>,
    /// Names of nodes with events that have not been written.
    dirty: Vec<Vec<u8>>,
}

#[derive(Default)]
struct RelayNode {
    /// Connections of the subscribers.
    subscribers: Vec<usize>,
    /// Events that have not been written.
    pending: Vec<u8>,
}

/// The text between two others.
fn between<'a>(bytes: &'a [u8], begin: &[u8], end: &[u8]) -> Option<&'a [u8]> {
    let at = memmem::find(bytes, begin)? + begin.len();
    let rest = bytes.get(at..)?;
    rest.get(..memmem::find(rest, end)?)
}

impl RelayNodes {
    /// Handles a complete request, if it is one to a node.
    pub(super) fn request(&mut self, token: usize, request: &[u8]) {
        if let Some(node) = between(request, b"<subscribe node='", b"'") {
            let subscribers = &mut self.nodes.entry(node.to_vec()).or_default().subscribers;
            if !subscribers.contains(&token) {
                subscribers.push(token);
            }
            return;
        }
        let Some(node) = between(request, b"<publish node='", b"'") else { return };
        let Some(begin) = memmem::find(request, b"<item ") else { return };
        let Some(end) = memmem::find(request, b"</publish>") else { return };
        let Some(item) = request.get(begin..end) else { return };
        let Some((name, found)) = self.nodes.get_key_value(node) else { return };
        if found.pending.is_empty() {
            self.dirty.push(name.clone());
        }
        if let Some(found) = self.nodes.get_mut(node) {
            write_event(node, item, &mut found.pending);
        }
    }

    /// Passes the collected events of each node to `write`, once for each subscriber. Those for which it returns false have left.
    pub(super) fn flush(&mut self, mut write: impl FnMut(usize, &[u8]) -> bool) {
        for name in self.dirty.drain(..) {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            node.subscribers.retain(|token| write(*token, &node.pending));
            node.pending.clear();
        }
    }
}

/// Writes an event, filled up to its length.
fn write_event(node: &[u8], item: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    let head =
        b"<message from='pubsub' type='headline'><event xmlns='http://jabber.org/protocol/pubsub#event'>";
    for part in [head.as_slice(), b"<items node='", node, b"'>", item, b"</items></event><x xmlns='urn:x'>"] {
        out.extend_from_slice(part);
    }
    let last = b"</x></message>";
    let length = out.len() - begin + last.len();
    out.resize(out.len() + EVENT_BYTES.saturating_sub(length), b'x');
    out.extend_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::{EVENT_BYTES, RelayNodes};

    #[test]
    fn every_subscriber_receives_the_events_of_a_wake_up_at_once() {
        let mut nodes = RelayNodes::default();
        let subscribe =
            b"<iq type='set' to='p' id='1'><pubsub xmlns='p'><subscribe node='n' jid='u'/></pubsub></iq>";
        nodes.request(1, subscribe);
        nodes.request(2, subscribe);
        for id in ["a", "b"] {
            let publish = format!(
                "<iq type='set' to='p' id='2'><pubsub xmlns='p'><publish node='n'><item id='{id}'><e/></item></publish>\
                 </pubsub></iq>"
            );
            nodes.request(3, publish.as_bytes());
        }
        let mut written = Vec::new();
        nodes.flush(|token, bytes| {
            written.push((token, String::from_utf8(bytes.to_vec()).unwrap()));
            true
        });
        assert_eq!(written.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
        let text = &written[0].1;
        assert_eq!((text.len(), &written[1].1), (2 * EVENT_BYTES, text));
        assert!(text.contains("<items node='n'><item id='a'><e/></item></items>"), "{text}");
    }
}
