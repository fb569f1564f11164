//! Questions that the server itself asks of clients: RFC 6120 section 8.2.3, from the asking side.
//!
//! A question is remembered by its id until the session answers, ends, or stays silent for too long; then its handler
//! learns what came of it, exactly once. Ids are random, so an answer cannot be made before its question, and only the
//! session that was asked may answer. Answers to no question are ignored.
//!
//! Left out: questions to other servers.
//!
//! The trap: the table is bounded, for the whole node and for each session, so asking may be refused. A handler runs on
//! the stanza path and must not block; it is dropped unheard only with the node.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use stanza::{Head, IqType, StanzaKind};
use xml::Writer;

use crate::effect::Effects;
use crate::node::Node;
use crate::session::Session;
use crate::shared_stanza::SharedStanza;

/// Questions of a node that wait for an answer.
pub const MAX_PENDING: usize = 1024;
/// Questions that wait for one session.
pub const MAX_PENDING_PER_SESSION: usize = 4;
/// Seconds until a question counts as not answered.
pub const TIMEOUT_SECONDS: u32 = 20;

/// What came of a question.
#[derive(Clone, Copy)]
pub enum ServerIqReply<'a> {
    /// The answer: the whole stanza of type result.
    Result {
        /// Positions and facts.
        head: &'a Head,
        /// The stanza.
        bytes: &'a [u8],
    },
    /// The client refused.
    Error,
    /// No answer in time, or the session ended.
    NoReply,
}

/// What is to be done then.
pub type ReplyHandler = Box<dyn FnOnce(&Arc<Node>, ServerIqReply<'_>, &mut Effects) + Send>;

struct PendingIq {
    session: Arc<Session>,
    deadline: u32,
    on_reply: ReplyHandler,
}

/// Questions by id.
#[derive(Default)]
pub struct PendingIqs(Mutex<HashMap<String, PendingIq>>);

impl PendingIqs {
    /// How many wait for an answer.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn insert(&self, id: String, asked: PendingIq) -> bool {
        let mut all = self.0.lock();
        let of_session =
            all.values().filter(|a| Arc::ptr_eq(&a.session, &asked.session)).take(MAX_PENDING_PER_SESSION);
        if all.len() >= MAX_PENDING || of_session.count() >= MAX_PENDING_PER_SESSION {
            return false;
        }
        all.insert(id, asked);
        true
    }

    /// Takes out what the session was asked under this id.
    fn take_handler(&self, session: &Arc<Session>, id: &str) -> Option<ReplyHandler> {
        let mut all = self.0.lock();
        if !all.get(id).is_some_and(|asked| Arc::ptr_eq(&asked.session, session)) {
            return None;
        }
        all.remove(id).map(|asked| asked.on_reply)
    }

    /// Takes out what has waited too long, and what nobody will answer.
    fn take_expired(&self, now: u32) -> Vec<ReplyHandler> {
        let mut all = self.0.lock();
        if all.is_empty() {
            return Vec::new();
        }
        all.extract_if(|_, asked| asked.deadline <= now || asked.session.is_ended())
            .map(|(_, asked)| asked.on_reply)
            .collect()
    }
}

impl Node {
    /// Asks a client: adds a request of type get from its domain to the effects. False if too many questions wait; the
    /// handler is then dropped.
    pub fn send_iq_get(
        self: &Arc<Self>,
        session: &Arc<Session>,
        effects: &mut Effects,
        payload: impl FnOnce(&mut Writer<'_>),
        then: ReplyHandler,
    ) -> bool {
        let id = base::id::random_id();
        let frame = SharedStanza::build(|w| {
            w.start("iq").attr("type", "get").attr("id", &id);
            w.attr("from", session.account.jid.domain()).attr("to", session.jid.as_str());
            payload(w);
            w.end();
        });
        let Some(frame) = frame else { return false };
        let asked = PendingIq {
            session: session.clone(),
            deadline: self.seconds().saturating_add(TIMEOUT_SECONDS),
            on_reply: then,
        };
        if !self.pending_iqs.insert(id, asked) {
            return false;
        }
        effects.send(session, Some(frame));
        true
    }

    /// Takes an answer of a client to the server. Answers to no question change nothing.
    pub(crate) fn handle_iq_reply(
        self: &Arc<Self>,
        session: &Arc<Session>,
        head: &Head,
        bytes: &[u8],
        effects: &mut Effects,
    ) {
        let Some(id) = head.id(bytes) else { return };
        let Some(then) = self.pending_iqs.take_handler(session, &id) else { return };
        let reply = match head.kind {
            StanzaKind::Iq(IqType::Result) => ServerIqReply::Result { head, bytes },
            _ => ServerIqReply::Error,
        };
        then(self, reply, effects);
    }

    /// Gives up on questions without an answer; once a second.
    pub(crate) fn expire_pending_iqs(self: &Arc<Self>, now: u32) {
        let mut effects = Effects::default();
        for then in self.pending_iqs.take_expired(now) {
            then(self, ServerIqReply::NoReply, &mut effects);
        }
        if !effects.is_empty() {
            self.perform(effects);
        }
    }
}
