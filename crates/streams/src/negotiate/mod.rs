//! Negotiation of a client's stream: header, STARTTLS, SASL, bind. RFC 6120 sections 4.3, 5, 6 and 7; XEP-0388 and what
//! goes with it has a file for each specification.
//!
//! The state is boxed and dropped at bind. Elements are copied out of the lent buffers here, which keeps the
//! code plain; it runs a handful of times a login.
//!
//! The trap: after `<proceed/>` and `<success/>` a new document begins. `Stream::restart` and `start_tls` discard
//! what was known of the old one; bytes that came too early end the stream.

mod bind;
mod bind2;
mod early;
mod fast;
mod features;
mod login;
mod open;
mod sasl;
mod sasl2;
mod upgrade;

use std::sync::Arc;
use std::task::{Context, Poll};

use ::sasl::{Credentials, Exchange, MechanismSet};
use base::Secret;
use base::spawn::BoxFuture;
use jid::Jid;
use net::{Event, Scratch, Transport};
use stanza::{StreamCondition, StreamError};
use throng_core::fault::Fault;
use throng_core::guard::AttemptKeys;
use throng_core::session::flags;
use throng_core::{Admission, Found, Host, Identity};
use xml::{Ns, Reader};

use crate::c2s::{Connection, Next, Phase};
use crate::service::Service;
use crate::sm;

/// Bytes of answers that may wait for a peer that has no resource yet.
const ANSWERS: usize = 8 * 1024;

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A stream header.
    Header,
    /// STARTTLS or SASL.
    Authentication,
    /// A resource.
    Resource,
}

/// In which words a login is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Those of RFC 6120.
    Rfc6120,
    /// Those of XEP-0388.
    Sasl2,
}

impl Profile {
    const fn ns(self) -> Ns {
        match self {
            Profile::Rfc6120 => Ns::Sasl,
            Profile::Sasl2 => Ns::Sasl2,
        }
    }
}

/// State of negotiation.
pub(crate) struct Negotiation {
    pub(crate) stage: Stage,
    /// Whether our header of the current document is out.
    pub(crate) opened: bool,
    pub(crate) host: Option<Arc<Host>>,
    pub(crate) lang: String,
    pub(crate) attempts: u8,
    pub(crate) exchange: Option<Exchange>,
    pub(crate) profile: Profile,
    /// Mechanisms offered on this document.
    pub(crate) offered: MechanismSet,
    /// The same in XEP-0388; empty where it is not offered.
    pub(crate) offered2: MechanismSet,
    /// What XEP-0388 asked for, until success or failure.
    pub(crate) request: Option<Box<sasl2::Request>>,
    /// What the features of this document are called (XEP-0509).
    pub(crate) config_version: String,
    /// Whom the stream header names; a hint.
    pub(crate) from: Option<Jid>,
    /// Name of the mechanism that succeeded.
    pub(crate) mechanism: &'static str,
    /// The address that the client claims, normalised; the user name itself where it cannot be one.
    pub(crate) claimed: String,
    /// Where the failures of that claim are counted.
    pub(crate) keys: Option<AttemptKeys>,
    /// The account, until its secret is proved.
    pub(crate) found: Option<Found>,
    /// Who has proved who it is.
    pub(crate) identity: Option<Identity>,
    /// The request for a resource that waits for what a session begins with. That is read when a resource is wanted, and
    /// never kept here.
    pub(crate) binding: Vec<u8>,
    /// What the login waits for.
    pub(crate) work: Option<BoxFuture<'static, Ready>>,
    /// Additional data with success, while the account is looked up.
    pub(crate) additional: Option<Vec<u8>>,
    pub(crate) authenticated: bool,
    /// Requests before authentication so far.
    pub(crate) early: u8,
    deadline: u32,
    /// When the connection came, in microseconds of the clock.
    pub(crate) since: u64,
}

impl Negotiation {
    pub(crate) fn new(deadline: u32, since: u64) -> Negotiation {
        Negotiation {
            stage: Stage::Header,
            opened: false,
            host: None,
            lang: "en".to_owned(),
            attempts: 0,
            exchange: None,
            profile: Profile::Rfc6120,
            offered: MechanismSet::EMPTY,
            offered2: MechanismSet::EMPTY,
            request: None,
            config_version: String::new(),
            from: None,
            mechanism: "none",
            claimed: String::new(),
            keys: None,
            found: None,
            identity: None,
            binding: Vec::new(),
            work: None,
            additional: None,
            authenticated: false,
            early: 0,
            deadline,
            since,
        }
    }

    /// RFC 6120 section 5.4.3.3: what was learnt without TLS is forgotten. Failed attempts still count.
    fn forget_plaintext(&mut self) {
        *self = Negotiation {
            attempts: self.attempts,
            early: self.early,
            stage: self.stage,
            ..Negotiation::new(self.deadline, self.since)
        };
    }

    /// An attempt is over, or another one begins.
    fn forget_login(&mut self) {
        self.exchange = None;
        self.request = None;
        self.found = None;
        self.identity = None;
        self.additional = None;
        self.claimed.clear();
        self.keys = None;
        self.mechanism = "none";
    }

    /// Whether the host has this module on.
    fn offers(&self, module: &str) -> bool {
        self.host.as_ref().is_some_and(|host| host.options(module).is_some())
    }

    /// Whether a login is under way.
    fn busy(&self) -> bool {
        self.exchange.is_some() || self.request.is_some()
    }

    /// RFC 6120 section 4.9.1.2: an error before our header needs the header first.
    pub(crate) fn open_for_error(&self, service: &Service, out: &mut Vec<u8>) {
        if !self.opened {
            let from = self.host.as_ref().map_or(service.default_domain.as_str(), |h| h.domain());
            stanza::stream::header(out, from, None, &base::id::random_id(), &self.lang);
        }
    }
}

/// What an element led to.
pub(crate) enum Did {
    /// Bytes to send.
    Said(Vec<u8>),
    /// Bytes to send in the clear, then TLS.
    Proceed(Vec<u8>),
    /// Bytes to send, then the end of the stream without an error.
    Farewell(Vec<u8>),
    /// Bytes to send; a new document follows.
    Restart(Vec<u8>),
    /// Something is being waited for.
    Waits,
    /// A resource is bound; the answer to the client.
    Bound(Arc<throng_core::Session>, Vec<u8>),
    /// A session goes on; the answer to the client.
    Resumed(Arc<throng_core::Session>, Vec<u8>),
}

pub(crate) type Taken = Result<Did, StreamError>;

impl Connection {
    pub(crate) fn negotiate(&mut self, cx: &mut Context<'_>, lent: &mut Scratch) -> Next {
        let Phase::Negotiating(state) = &mut self.phase else { return Next::Again };
        if self.link.register(cx) {
            return Next::End(self.link.wish());
        }
        if self.link.rang() && self.service.node.seconds() >= state.deadline {
            // A handshake that never came is not worth an XML answer inside TLS; the transport decides.
            return Next::End(Some(
                StreamError::new(StreamCondition::ConnectionTimeout).text("negotiation took too long"),
            ));
        }
        loop {
            if let Phase::Negotiating(state) = &mut self.phase
                && let Some(work) = &mut state.work
            {
                match work.as_mut().poll(cx) {
                    // What is queued leaves together with the answer that the client waits for.
                    Poll::Pending => return Next::Sleep,
                    Poll::Ready(done) => {
                        state.work = None;
                        let did = self.login_ready(done);
                        if let Some(next) = self.act(did, lent) {
                            return next;
                        }
                        // One wait may lead to another.
                        continue;
                    }
                }
            }
            // A stranger's answers must leave before it may ask for more.
            if self.stream.unsent() > ANSWERS {
                match self.stream.poll_flush(cx, lent) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return self.failed(error),
                    Poll::Pending => return Next::Sleep,
                }
            }
            let event = match self.stream.poll_event(cx, lent) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return self.failed(error),
                Poll::Ready(Ok(event)) => event,
            };
            let did = match event {
                Event::Open(tag) => {
                    let tag = tag.to_vec();
                    self.header(&tag)
                }
                Event::Element(bytes) => {
                    let bytes = bytes.to_vec();
                    self.element(&bytes)
                }
                Event::Close => return Next::End(None),
                Event::Eof => return Next::Gone,
            };
            if let Some(next) = self.act(did, lent) {
                return next;
            }
        }
        match self.stream.poll_flush(cx, lent) {
            Poll::Ready(Err(error)) => self.failed(error),
            _ => Next::Sleep,
        }
    }

    /// Carries out what an element led to; `Some` if the phase ends.
    fn act(&mut self, taken: Taken, lent: &mut Scratch) -> Option<Next> {
        match taken {
            Err(error) => return Some(Next::End(Some(error))),
            Ok(Did::Waits) => {}
            Ok(Did::Said(bytes)) => self.stream.queue(&bytes, lent),
            Ok(Did::Farewell(bytes)) => {
                self.last_words = Some(bytes);
                return Some(Next::End(None));
            }
            Ok(Did::Restart(bytes)) => {
                self.stream.queue(&bytes, lent);
                self.stream.restart();
                self.expect_header();
            }
            Ok(Did::Proceed(bytes)) => {
                self.stream.queue(&bytes, lent);
                let domain = match &self.phase {
                    Phase::Negotiating(state) => state.host.as_ref().map(|h| h.domain().to_owned()),
                    _ => None,
                };
                let tls = self.service.tls.clone()?;
                if let Err(error) = self.stream.start_tls(&tls, domain.as_deref(), lent) {
                    tracing::debug!(peer = %self.stream.facts().peer, %error, "STARTTLS failed");
                    return Some(Next::Gone);
                }
                self.expect_header();
                if let Phase::Negotiating(state) = &mut self.phase {
                    state.forget_plaintext();
                }
            }
            Ok(Did::Bound(session, bytes)) => {
                self.note_opened(&session, false);
                self.tell_stream(&session);
                self.stream.queue(&bytes, lent);
                self.bound(session);
                return Some(Next::Again);
            }
            Ok(Did::Resumed(session, bytes)) => {
                self.note_opened(&session, true);
                self.tell_stream(&session);
                self.stream.queue(&bytes, lent);
                self.adopt(session);
                return Some(Next::Again);
            }
        }
        None
    }

    fn note_opened(&self, session: &throng_core::Session, resumed: bool) {
        let Phase::Negotiating(state) = &self.phase else { return };
        let (node, facts) = (&self.service.node, self.stream.facts());
        let transport = facts.transport.name();
        node.login_log.opened(node.seconds(), session, state.mechanism, transport, facts.peer, resumed);
    }

    /// Features that take secrets ask whether the stream is encrypted, and what is dear to answer gathers presence; a resumed
    /// session has another stream.
    fn tell_stream(&self, session: &throng_core::Session) {
        let facts = self.stream.facts();
        for (bit, set) in
            [(flags::SECURE, facts.secure), (flags::GATHERS, facts.transport == Transport::Bosh)]
        {
            if set {
                session.flags.set(bit);
            } else {
                session.flags.clear(bit);
            }
        }
    }

    fn expect_header(&mut self) {
        if let Phase::Negotiating(state) = &mut self.phase {
            state.stage = Stage::Header;
            state.opened = false;
        }
    }

    /// One complete element before a resource is bound.
    fn element(&mut self, bytes: &[u8]) -> Taken {
        let limits = self.service.node.limits().negotiation();
        let mut reader = Reader::new(bytes, &self.scope, &limits)?;
        let root = match reader.next()? {
            Some(xml::Event::Start(start)) => start,
            _ => return Err(StreamCondition::NotWellFormed.into()),
        };
        let (ns, ns_text, name) = (root.ns.id, root.ns.text.to_owned(), root.name.to_owned());
        while reader.next()?.is_some() {}
        let Phase::Negotiating(state) = &mut self.phase else { return Ok(Did::Waits) };
        let profile = match ns {
            Some(Ns::Sasl) => Some(Profile::Rfc6120),
            Some(Ns::Sasl2) => Some(Profile::Sasl2),
            _ => None,
        };
        // XEP-0388 section 3.4: nothing else may come during an exchange; and two profiles are two exchanges.
        let strict = profile.is_some() || state.profile == Profile::Sasl2;
        if state.busy() && strict && profile != Some(state.profile) {
            return Err(StreamError::new(StreamCondition::PolicyViolation).text("one login at a time"));
        }
        match (state.stage, ns) {
            (Stage::Authentication, Some(Ns::Tls)) => self.starttls(&name),
            (Stage::Authentication, Some(Ns::Sasl)) => self.sasl(&name, bytes),
            (Stage::Authentication, Some(Ns::Sasl2)) if state.offers(sasl2::MODULE) => {
                self.sasl2(&name, bytes)
            }
            (Stage::Resource, Some(Ns::Client)) => self.bind(bytes, None),
            (Stage::Resource, Some(Ns::Sm3 | Ns::Sm2)) if name == "resume" => self.resume(bytes),
            // XEP-0198 section 3: neither before authentication nor, but for resuming, before binding.
            (Stage::Authentication | Stage::Resource, Some(ns @ (Ns::Sm3 | Ns::Sm2))) => {
                Ok(Did::Said(sm::unexpected(ns)))
            }
            (stage, Some(Ns::Client)) if matches!(name.as_str(), "message" | "presence" | "iq") => {
                if stage == Stage::Authentication
                    && let Some(taken) = self.early(bytes)
                {
                    return taken;
                }
                // RFC 6120 section 4.9.3.12: nothing is handled before authentication.
                Err(StreamError::new(StreamCondition::NotAuthorized).text("log in before you send stanzas"))
            }
            (Stage::Resource, Some(Ns::Sasl | Ns::Sasl2)) => {
                Err(StreamError::new(StreamCondition::PolicyViolation)
                    .text("this stream is authenticated already"))
            }
            _ => crate::pump::unknown(ns, &ns_text, &name).map(|()| Did::Farewell(Vec::new())),
        }
    }

    /// RFC 6120 section 5.4.2.
    fn starttls(&mut self, name: &str) -> Taken {
        const FAILURE: &[u8] = b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
        let possible = self.may_start_tls();
        match name {
            "starttls" if possible => {
                Ok(Did::Proceed(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>".to_vec()))
            }
            "starttls" => {
                tracing::debug!(peer = %self.stream.facts().peer, "STARTTLS was asked for where it is not offered");
                // 5.4.2.2: failure, then the end of the stream and of the connection.
                Ok(Did::Farewell(FAILURE.to_vec()))
            }
            _ => Err(StreamCondition::UnsupportedStanzaType.into()),
        }
    }
}

/// A slow step of a login came back.
pub(crate) enum Ready {
    /// The account, for a challenge.
    Credentials(Result<Option<Found>, Fault>),
    /// The account and whether the password is right.
    Password(Result<(Option<Found>, bool), Fault>),
    /// The account, after a certificate proved who it is.
    Account(Result<Option<Found>, Fault>),
    /// The account, and whether its token was proved.
    Token(Result<fast::Answered, Fault>),
    /// What the session begins with.
    Loaded(Result<Admission, Fault>),
    /// What became of a change of tokens.
    TokensChanged(Result<fast::Changed, Fault>),
    /// Whether better keys are stored.
    Upgraded(Result<bool, Fault>),
    /// A session to be resumed.
    Resume(sm::Answer),
    /// The answer to a request before authentication.
    Early(Vec<u8>),
}

/// A password that a client has sent.
pub(crate) struct Tried {
    /// The account that it claims, normalised.
    pub(crate) account: String,
    pub(crate) keys: AttemptKeys,
    pub(crate) password: Secret,
}

/// Checks a password against what is stored, away from the routing threads.
pub(crate) fn check_password(
    service: &Arc<Service>,
    found: Option<Found>,
    tried: Tried,
) -> BoxFuture<'static, (Option<Found>, bool)> {
    let (node, decoy) = (service.node.clone(), service.decoy.clone());
    let (tell, told) = tokio::sync::oneshot::channel();
    service.node.spawner.blocking(
        "password",
        Box::new(move || {
            let Tried { account, keys, password } = tried;
            // Others may have failed while this one waited for a thread. It would get no answer then (`may_answer`), so
            // guesses in parallel cost no more derivations than are answered, but for those under way.
            if node.guard.check(&node.limits(), node.seconds(), &keys).is_err() {
                let _ = tell.send((found, false));
                return;
            }
            let stored = found.as_ref().and_then(|f| Credentials::decode(&f.credentials).ok());
            let known = stored.is_some();
            // The decoy costs the same, so that time does not tell who exists.
            let credentials = stored.unwrap_or_else(|| decoy.credentials(&account));
            let right =
                std::str::from_utf8(password.expose()).is_ok_and(|p| credentials.verify_password(p)) && known;
            let _ = tell.send((found, right));
        }),
    );
    Box::pin(async move { told.await.unwrap_or((None, false)) })
}
