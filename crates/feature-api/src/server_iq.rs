//! IQ requests of the server to clients: RFC 6120, section 8.2.3.
//!
//! A request is pending under its id until the session responds, ends, or the timeout elapses; then its handler
//! is called with the result exactly once. Ids are random, so a response cannot be sent before its request, and
//! only the session that received the request may respond. Unexpected responses are ignored.
//!
//! Not implemented: requests to other servers.
//!
//! # Pitfalls
//!
//! The table is bounded, for the whole node and for each session, so a request may be refused. A handler runs
//! on the stanza path and must not block; it is dropped without a call only with the node.

use std::sync::Arc;

use base::lock::LeafMutex;
use hashbrown::HashMap;
use stanza::{Head, IqType, StanzaKind};
use throng_core::iq::IqReplyHandler;
use throng_core::node_extensions::Swept;
use throng_core::{Effects, Node, Session, SharedStanza};
use xml::Writer;

/// Maximum number of pending requests of a node.
pub const MAX_PENDING: usize = 1024;
/// Maximum number of pending requests to one session.
pub const MAX_PENDING_PER_SESSION: usize = 4;
/// Seconds until a request counts as unanswered.
pub const TIMEOUT_SECONDS: u32 = 20;

/// Result of a request.
#[derive(Clone, Copy)]
pub enum ServerIqReply<'a> {
    /// The response: the whole stanza of type result.
    Result {
        /// Positions and properties of the stanza.
        head: &'a Head,
        /// The stanza.
        bytes: &'a [u8],
    },
    /// The client responded with an error.
    Error,
    /// No response in time, or the session ended.
    NoReply,
}

/// Handler of the result.
pub type ReplyHandler = Box<dyn FnOnce(&Arc<Node>, ServerIqReply<'_>, &mut Effects) + Send>;

struct PendingIq {
    session: Arc<Session>,
    deadline: u32,
    on_reply: ReplyHandler,
}

/// Pending requests by id.
#[derive(Default)]
struct PendingIqs(LeafMutex<HashMap<String, PendingIq>>);

impl PendingIqs {
    fn insert(&self, id: String, request: PendingIq) -> bool {
        let mut all = self.0.lock();
        let pending_of_session =
            all.values().filter(|a| Arc::ptr_eq(&a.session, &request.session)).take(MAX_PENDING_PER_SESSION);
        if all.len() >= MAX_PENDING || pending_of_session.count() >= MAX_PENDING_PER_SESSION {
            return false;
        }
        all.insert(id, request);
        true
    }

    /// Removes the request to this session with this id.
    fn take_handler(&self, session: &Arc<Session>, id: &str) -> Option<ReplyHandler> {
        let mut all = self.0.lock();
        if !all.get(id).is_some_and(|request| Arc::ptr_eq(&request.session, session)) {
            return None;
        }
        all.remove(id).map(|request| request.on_reply)
    }

    /// Removes requests that have expired or whose session has ended.
    ///
    /// They are returned whole: the last reference to a session must not be dropped under this lock, because its outbox
    /// releases its bytes in the backlog.
    fn take_expired(&self, now: u32) -> Vec<PendingIq> {
        let mut all = self.0.lock();
        if all.is_empty() {
            return Vec::new();
        }
        let expired = all.extract_if(|_, request| request.deadline <= now || request.session.is_ended());
        expired.map(|(_, request)| request).collect()
    }
}

/// Sends a request of type get from the session's domain, as an effect. False if too many requests are
/// pending; the handler is dropped then.
pub fn send_iq_get(
    node: &Node,
    session: &Arc<Session>,
    effects: &mut Effects,
    payload: impl FnOnce(&mut Writer<'_>),
    then: ReplyHandler,
) -> bool {
    let id = base::id::random_id();
    let stanza = SharedStanza::build(|w| {
        w.start("iq").attr("type", "get").attr("id", &id);
        w.attr("from", session.account.jid.domain()).attr("to", session.jid.as_str());
        payload(w);
        w.end();
    });
    let Some(stanza) = stanza else { return false };
    let request = PendingIq {
        session: session.clone(),
        deadline: node.seconds().saturating_add(TIMEOUT_SECONDS),
        on_reply: then,
    };
    if node.extensions.get::<IqReplyHandler>().is_none() {
        node.extensions.insert(IqReplyHandler(handle_iq_reply));
    }
    if !node.extensions.get_or_default_swept::<PendingIqs>().insert(id, request) {
        return false;
    }
    effects.send(session, Some(stanza));
    true
}

/// Handles a response of a client to the server. Unexpected responses are ignored.
fn handle_iq_reply(
    node: &Arc<Node>,
    session: &Arc<Session>,
    head: &Head,
    bytes: &[u8],
    effects: &mut Effects,
) {
    let Some(id) = head.id(bytes) else { return };
    let Some(pending) = node.extensions.get::<PendingIqs>() else { return };
    let Some(then) = pending.take_handler(session, &id) else { return };
    let reply = match head.kind {
        StanzaKind::Iq(IqType::Result) => ServerIqReply::Result { head, bytes },
        _ => ServerIqReply::Error,
    };
    then(node, reply, effects);
}

/// Number of pending requests.
pub fn pending_iq_count(node: &Node) -> usize {
    node.extensions.get::<PendingIqs>().map_or(0, |pending| pending.0.lock().len())
}

impl Swept for PendingIqs {
    /// Expires unanswered requests.
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        let mut effects = Effects::default();
        for request in self.take_expired(now) {
            (request.on_reply)(node, ServerIqReply::NoReply, &mut effects);
        }
        if !effects.is_empty() {
            node.perform(effects);
        }
    }
}
