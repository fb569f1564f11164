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
use stanza::{Head, IqType, Kind};
use xml::Writer;

use crate::effect::Effects;
use crate::frame::Frame;
use crate::node::Node;
use crate::session::Session;

/// Questions of a node that wait for an answer.
pub const MOST: usize = 1024;
/// Questions that wait for one session.
pub const MOST_PER_SESSION: usize = 4;
/// Seconds until a question counts as not answered.
pub const PATIENCE: u32 = 20;

/// What came of a question.
#[derive(Clone, Copy)]
pub enum Reply<'a> {
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
    Silence,
}

/// What is to be done then.
pub type Then = Box<dyn FnOnce(&Arc<Node>, Reply<'_>, &mut Effects) + Send>;

struct Asked {
    session: Arc<Session>,
    until: u32,
    then: Then,
}

/// Questions by id.
#[derive(Default)]
pub struct Questions(Mutex<HashMap<String, Asked>>);

impl Questions {
    /// How many wait for an answer.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn put(&self, id: String, asked: Asked) -> bool {
        let mut all = self.0.lock();
        let of_session =
            all.values().filter(|a| Arc::ptr_eq(&a.session, &asked.session)).take(MOST_PER_SESSION);
        if all.len() >= MOST || of_session.count() >= MOST_PER_SESSION {
            return false;
        }
        all.insert(id, asked);
        true
    }

    /// Takes out what the session was asked under this id.
    fn take(&self, session: &Arc<Session>, id: &str) -> Option<Then> {
        let mut all = self.0.lock();
        if !all.get(id).is_some_and(|asked| Arc::ptr_eq(&asked.session, session)) {
            return None;
        }
        all.remove(id).map(|asked| asked.then)
    }

    /// Takes out what has waited too long, and what nobody will answer.
    fn overdue(&self, now: u32) -> Vec<Then> {
        let mut all = self.0.lock();
        if all.is_empty() {
            return Vec::new();
        }
        all.extract_if(|_, asked| asked.until <= now || asked.session.is_ended())
            .map(|(_, asked)| asked.then)
            .collect()
    }
}

impl Node {
    /// Asks a client: adds a request of type get from its domain to the effects. False if too many questions wait; the
    /// handler is then dropped.
    pub fn ask(
        self: &Arc<Self>,
        session: &Arc<Session>,
        effects: &mut Effects,
        payload: impl FnOnce(&mut Writer<'_>),
        then: Then,
    ) -> bool {
        let id = base::id::random_id();
        let frame = Frame::build(|w| {
            w.start("iq").attr("type", "get").attr("id", &id);
            w.attr("from", session.account.jid.domain()).attr("to", session.jid.as_str());
            payload(w);
            w.end();
        });
        let Some(frame) = frame else { return false };
        let asked = Asked { session: session.clone(), until: self.seconds().saturating_add(PATIENCE), then };
        if !self.questions.put(id, asked) {
            return false;
        }
        effects.send(session, Some(frame));
        true
    }

    /// Takes an answer of a client to the server. Answers to no question change nothing.
    pub(crate) fn answered(
        self: &Arc<Self>,
        session: &Arc<Session>,
        head: &Head,
        bytes: &[u8],
        effects: &mut Effects,
    ) {
        let Some(id) = head.id(bytes) else { return };
        let Some(then) = self.questions.take(session, &id) else { return };
        let reply = match head.kind {
            Kind::Iq(IqType::Result) => Reply::Result { head, bytes },
            _ => Reply::Error,
        };
        then(self, reply, effects);
    }

    /// Gives up on questions without an answer; once a second.
    pub(crate) fn sweep_questions(self: &Arc<Self>, now: u32) {
        let mut effects = Effects::default();
        for then in self.questions.overdue(now) {
            then(self, Reply::Silence, &mut effects);
        }
        if !effects.is_empty() {
            self.perform(effects);
        }
    }
}
