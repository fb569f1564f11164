//! What a client sends: checks, stamp, chain, route. RFC 6120 sections 8.1, 8.2 and 10.3.

use std::cell::RefCell;
use std::sync::Arc;

use base::spawn::BoxFuture;
use jid::JidRef;
use stanza::{
    Addresses, Head, IqType, Kind, StanzaCondition, StanzaError, StreamCondition, StreamError, restamp,
};

use super::Work;
use super::reply::Request;
use crate::fault::unreadable;
use crate::frame::Frame;
use crate::iq::Target;
use crate::metrics::Way;
use crate::node::Node;
use crate::session::Session;
use crate::session::timing::Reading;

/// What became of a stanza from a client.
pub enum Ingest {
    /// It is where it belongs.
    Done,
    /// The next stanza may be read when this is done.
    Wait(BoxFuture<'static, ()>),
    /// The stream is to be closed.
    Fatal(StreamError),
}

thread_local! {
    static REWRITE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// Kept between stanzas; larger ones give their buffer back.
const REWRITE_KEPT: usize = 64 * 1024;

impl Node {
    /// Takes one checked stanza of a bound session.
    pub fn ingest(self: &Arc<Self>, session: &Arc<Session>, bytes: &[u8], head: &Head) -> Ingest {
        self.metrics.stanza_in(head.kind);
        session.account.host().traffic.stanza_in(head.kind);
        let _reading = Reading::begin(self);
        let mut work = Work::default();
        if let Err(fatal) = self.take_in(session, bytes, head, &mut work) {
            return Ingest::Fatal(fatal);
        }
        match self.settle(work) {
            None => Ingest::Done,
            Some(rest) => Ingest::Wait(rest),
        }
    }

    /// Answers a stanza whose `type` does not exist for its kind.
    pub fn refuse(self: &Arc<Self>, session: &Arc<Session>, bytes: &[u8], head: &Head, error: &StanzaError) {
        let mut work = Work::default();
        self.bounce_to_session(session, bytes, head, None, error, &mut work);
        self.settle_detached(work);
    }

    fn take_in(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        work: &mut Work,
    ) -> Result<(), StreamError> {
        self.check_from(session, bytes, head)?;
        let written = head.to(bytes);
        let parsed = match written.as_deref().map(jid::parse) {
            None => None,
            Some(Ok(jid)) => Some(jid),
            Some(Err(error)) => {
                // RFC 6120 section 8.3.3.8; the bad address cannot stand in `from` of the answer.
                let error = StanzaError::new(StanzaCondition::JidMalformed).text(error.to_string());
                self.bounce_to_session(session, bytes, head, None, &error, work);
                return Ok(());
            }
        };
        let to = parsed.as_ref().map(jid::Parsed::as_ref);
        match head.kind {
            Kind::Iq(_) => self.take_iq(session, bytes, head, to, work),
            Kind::Message(_) => {
                // RFC 6120 section 10.3.1: no `to` means the sender's own bare address.
                let to = to.unwrap_or(session.bare());
                self.stamped(session, bytes, head, (session.full(), Some(to)), work);
            }
            Kind::Presence(t) => {
                // Subscriptions are between accounts (RFC 6121 section 3.1.2 and its siblings).
                let (from, to) = if t.is_subscription() {
                    (session.bare(), to.map(|t| t.bare()))
                } else {
                    (session.full(), to)
                };
                self.stamped(session, bytes, head, (from, to), work);
            }
        }
        Ok(())
    }

    /// RFC 6120 section 8.1.2.1: a `from` of somebody else ends the stream (section 4.9.3.9). Any resource of the
    /// sender's own account passes, and stamping puts the right one in its place: the server must add the `from` or
    /// override the client's (rule 1). Clients write the resource that they would have bound after a resumption.
    fn check_from(&self, session: &Arc<Session>, bytes: &[u8], head: &Head) -> Result<(), StreamError> {
        let Some(from) = head.from(bytes) else { return Ok(()) };
        let own = session.bare().as_str();
        if jid::parse(&from).is_ok_and(|from| from.as_ref().bare().as_str() == own) {
            Ok(())
        } else {
            Err(StreamError::new(StreamCondition::InvalidFrom).text("from is not the address of this stream"))
        }
    }

    fn take_iq(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        to: Option<JidRef<'_>>,
        work: &mut Work,
    ) {
        let request = head.kind.is_request();
        // RFC 6120 section 8.2.3: an id always, exactly one child in a request, at most one in a result.
        let bad = if head.raw_id(bytes).is_none() {
            Some("an iq needs an id")
        } else if request && head.children != 1 {
            Some("an iq of type get or set has exactly one child")
        } else if head.kind == Kind::Iq(IqType::Result) && head.children > 1 {
            Some("an iq of type result has at most one child")
        } else {
            None
        };
        if let Some(text) = bad {
            let error = StanzaError::new(StanzaCondition::BadRequest).text(text);
            self.bounce_to_session(session, bytes, head, to, &error, work);
            return;
        }
        let host = session.account.host();
        let target = match to {
            None => Some(Target::OwnAccount),
            Some(to) if to.as_str() == session.bare().as_str() => Some(Target::OwnAccount),
            Some(to) if to.as_str() == host.domain() => Some(Target::Server),
            Some(_) => None,
        };
        match target {
            // Answered here, so neither stamped nor copied. The outgoing chain polices what leaves, not this.
            Some(target) if request => {
                self.metrics.routed(head.kind, Way::Server);
                let from = session.full();
                self.serve(&Request { host, target, session: Some(session), from, to, head, bytes }, work);
            }
            // An answer to the server: the silence of the line is over, and perhaps a question has its answer.
            Some(_) => self.answered(session, head, bytes, &mut work.effects),
            None => {
                if request && let (Some(to), Some(id)) = (to, head.id(bytes)) {
                    session.ask(to, &id);
                }
                self.stamped(session, bytes, head, (session.full(), to), work);
            }
        }
    }

    /// Writes the addresses and lets the stanza go its way; what has no room for them goes back.
    fn stamped(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: &[u8],
        head: &Head,
        (from, to): (JidRef<'_>, Option<JidRef<'_>>),
        work: &mut Work,
    ) {
        match stamp(bytes, head, from.as_str(), to) {
            Ok(frame) => self.outgoing(session, frame, to, 0, work),
            Err(error) => self.bounce_to_session(session, bytes, head, to, &unreadable(error), work),
        }
    }
}

/// Writes the addresses and makes the frame: the one allocation of a stanza.
fn stamp(bytes: &[u8], head: &Head, from: &str, to: Option<JidRef<'_>>) -> Result<Frame, xml::Error> {
    let to = to.map(|t| t.as_str());
    REWRITE.with_borrow_mut(|out| {
        let frame = restamp(bytes, head, Addresses { from: Some(from), to }, out);
        let frame = frame.map(|head| Frame::new(head, out));
        if out.capacity() > REWRITE_KEPT {
            *out = Vec::new();
        }
        frame
    })
}
