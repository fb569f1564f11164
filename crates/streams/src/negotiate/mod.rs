//! Stream negotiation with a client: header, STARTTLS, SASL, resource binding. RFC 6120, sections 4.3, 5, 6 and 7.
//! XEP-0388 and its companion specifications have one file each.
//!
//! The state is boxed and dropped at bind. Elements are copied out of the borrowed buffers, which keeps the code
//! simple; it runs a handful of times per login.
//!
//! # Pitfalls
//!
//! A new XML document begins after `<proceed/>` and `<success/>`. `Stream::restart` and `start_tls` discard the state
//! of the old one; bytes that arrived too early end the stream.

mod bind;
mod bind2;
mod fast_tokens;
mod features;
mod pre_auth_iq;
mod sasl;
mod sasl2;
mod sasl_result;
mod scram_upgrade;
mod stage;
mod stream_header;

use std::sync::Arc;
use std::task::{Context, Poll};

use ::sasl::{Credentials, Exchange, MechanismSet};
use access::login::{Admission, CredentialsUpgradeOutcome, LoginIdentity, LoginRecord};
use access::login_throttle::{Attempt, AttemptKeys, AttemptOutcome, LoginLimit};
use access::session_log::session_log;
use base::Secret;
use base::spawn::BoxFuture;
use jid::Jid;
use net::{Scratch, StreamEvent, Transport};
use stanza::{StreamCondition, StreamError};
use throng_core::Host;
use throng_core::server_error::ServerError;
use throng_core::session::flags;
use xml::{Ns, Reader};

use self::stage::{NegotiationEvent, NegotiationStage};
use crate::c2s::{C2sConnection, ConnectionPhase, PhaseOutcome};
use crate::context::C2sContext;
use crate::stream_management;

/// Unsent bytes above which a peer without a resource is not read.
const MAX_UNSENT_BYTES: usize = 8 * 1024;

/// SASL profile in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaslProfile {
    /// RFC 6120, section 6.
    Rfc6120,
    /// XEP-0388.
    Sasl2,
}

impl SaslProfile {
    const fn ns(self) -> Ns {
        match self {
            SaslProfile::Rfc6120 => Ns::Sasl,
            SaslProfile::Sasl2 => Ns::Sasl2,
        }
    }
}

/// Negotiation state of a connection.
pub(crate) struct Negotiation {
    pub(crate) stage: NegotiationStage,
    pub(crate) host: Option<Arc<Host>>,
    pub(crate) lang: String,
    pub(crate) attempts: u8,
    pub(crate) exchange: Option<Exchange>,
    pub(crate) profile: SaslProfile,
    /// Mechanisms offered in the current document.
    pub(crate) offered: MechanismSet,
    /// Mechanisms offered for XEP-0388; empty where SASL2 is not offered.
    pub(crate) offered_sasl2: MechanismSet,
    /// Content of the SASL2 request, until success or failure.
    pub(crate) sasl2_request: Option<Box<sasl2::Sasl2Request>>,
    /// Version of the current document's features (XEP-0509).
    pub(crate) config_version: String,
    /// `from` of the stream header; a hint that is not trusted.
    pub(crate) from: Option<Jid>,
    /// Name of the mechanism that succeeded.
    pub(crate) mechanism: &'static str,
    /// Address that the client claims, normalised; the user name where it is no valid address.
    pub(crate) claimed_address: String,
    /// Keys under which failures of this claim are counted.
    pub(crate) keys: Option<AttemptKeys>,
    /// The throttle has counted this claim, because its secret took time to be checked.
    pub(crate) is_counted: bool,
    /// Account record, until the client has proved its secret.
    pub(crate) login_record: Option<LoginRecord>,
    /// Authenticated identity.
    pub(crate) identity: Option<LoginIdentity>,
    /// Bind request that waits for the account's session data. The data is read when a resource is requested and never
    /// stored here.
    pub(crate) pending_bind: Vec<u8>,
    /// Number of refused requests to bind or resume, and of stream management elements that came too early.
    pub(crate) refused_binds: u8,
    /// Pending step of the login.
    pub(crate) pending_step: Option<BoxFuture<'static, LoginStepResult>>,
    /// Additional data of `<success/>`, held while the account is looked up.
    pub(crate) additional: Option<Vec<u8>>,
    /// Number of IQ requests before authentication.
    pub(crate) pre_auth_requests: u8,
    deadline: u32,
    /// Time of accept, in microseconds of the node's clock.
    pub(crate) connected_at: u64,
}

impl Negotiation {
    pub(crate) fn new(deadline: u32, since: u64) -> Negotiation {
        Negotiation {
            stage: NegotiationStage::Header,
            host: None,
            lang: "en".to_owned(),
            attempts: 0,
            exchange: None,
            profile: SaslProfile::Rfc6120,
            offered: MechanismSet::EMPTY,
            offered_sasl2: MechanismSet::EMPTY,
            sasl2_request: None,
            config_version: String::new(),
            from: None,
            mechanism: "none",
            claimed_address: String::new(),
            keys: None,
            is_counted: false,
            login_record: None,
            identity: None,
            pending_bind: Vec::new(),
            refused_binds: 0,
            pending_step: None,
            additional: None,
            pre_auth_requests: 0,
            deadline,
            connected_at: since,
        }
    }

    /// Discards what was learnt without TLS (RFC 6120, section 5.4.3.3). Failed attempts still count.
    fn forget_plaintext(&mut self) {
        *self = Negotiation {
            attempts: self.attempts,
            pre_auth_requests: self.pre_auth_requests,
            refused_binds: self.refused_binds,
            stage: self.stage,
            ..Negotiation::new(self.deadline, self.connected_at)
        };
    }

    /// Clears the state of an attempt when it ends or another one begins.
    fn forget_login(&mut self) {
        self.exchange = None;
        self.sasl2_request = None;
        self.login_record = None;
        self.identity = None;
        self.additional = None;
        self.claimed_address.clear();
        self.keys = None;
        self.is_counted = false;
        self.mechanism = "none";
    }

    /// Whether the module is enabled on the host.
    fn offers(&self, module: &str) -> bool {
        self.host.as_ref().is_some_and(|host| host.options(module).is_some())
    }

    /// Whether a login is in progress.
    fn is_busy(&self) -> bool {
        self.exchange.is_some() || self.sasl2_request.is_some()
    }

    /// Writes our header if it was not sent: an error needs it first (RFC 6120, section 4.9.1.2).
    pub(crate) fn open_for_error(&self, context: &C2sContext, out: &mut Vec<u8>) {
        if !self.stage.is_header_sent() {
            let from = self.host.as_ref().map_or(context.default_domain.as_str(), |h| h.domain());
            stanza::stream::write_header(out, from, None, &base::id::random_id(), &self.lang);
        }
    }
}

/// Result of handling an element during negotiation.
pub(crate) enum NegotiationOutcome {
    /// Send these bytes.
    Reply(Vec<u8>),
    /// Send these bytes in plaintext, then start TLS.
    StartTls(Vec<u8>),
    /// Send these bytes, then end the stream without an error.
    ReplyAndEnd(Vec<u8>),
    /// Send these bytes; a new document follows.
    RestartStream(Vec<u8>),
    /// An asynchronous step is pending.
    Pending,
    /// A resource is bound; send these bytes.
    Bound(Arc<throng_core::Session>, Vec<u8>),
    /// A session is resumed; send these bytes.
    Resumed(Arc<throng_core::Session>, Vec<u8>),
}

pub(crate) type NegotiationResult = Result<NegotiationOutcome, StreamError>;

/// RFC 6120, section 4.9.3.19: no redirection before the stream is protected and the client has authenticated.
fn without_redirection(reason: StreamError) -> StreamError {
    match reason.condition {
        StreamCondition::SeeOtherHost => StreamError::new(StreamCondition::SystemShutdown),
        _ => reason,
    }
}

impl C2sConnection {
    pub(crate) fn negotiate(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> PhaseOutcome {
        let ConnectionPhase::Negotiating(state) = &mut self.phase else { return PhaseOutcome::Again };
        if self.outbox.register_waker(cx) {
            return PhaseOutcome::EndStream(self.outbox.close_reason().map(without_redirection));
        }
        if self.outbox.deadline_elapsed() && self.context.node.seconds() >= state.deadline {
            // A TLS handshake may still be incomplete; the transport decides whether the error can be sent.
            return PhaseOutcome::EndStream(Some(
                StreamError::new(StreamCondition::ConnectionTimeout).text("stream negotiation timed out"),
            ));
        }
        loop {
            if let ConnectionPhase::Negotiating(state) = &mut self.phase
                && let Some(work) = &mut state.pending_step
            {
                match work.as_mut().poll(cx) {
                    // Queued output leaves together with the answer that the client waits for.
                    Poll::Pending => return PhaseOutcome::Sleep,
                    Poll::Ready(done) => {
                        state.pending_step = None;
                        let did = self.on_login_step(done);
                        if let Some(next) = self.apply_outcome(did, scratch) {
                            return next;
                        }
                        // One pending step may lead to another.
                        continue;
                    }
                }
            }
            // An unauthenticated client must receive its answers before it may send more requests.
            if self.stream.unsent() > MAX_UNSENT_BYTES {
                match self.stream.poll_flush(cx, scratch) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return self.on_transport_error(error),
                    Poll::Pending => return PhaseOutcome::Sleep,
                }
            }
            let event = match self.stream.poll_event(cx, scratch) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return self.on_transport_error(error),
                Poll::Ready(Ok(event)) => event,
            };
            let did = match event {
                StreamEvent::Open(tag) => {
                    let tag = tag.to_vec();
                    self.on_stream_header(&tag)
                }
                StreamEvent::Element(bytes) => {
                    let bytes = bytes.to_vec();
                    self.on_element(&bytes)
                }
                StreamEvent::Close => return PhaseOutcome::EndStream(None),
                StreamEvent::Eof => return PhaseOutcome::TransportClosed,
            };
            if let Some(next) = self.apply_outcome(did, scratch) {
                return next;
            }
        }
        match self.stream.poll_flush(cx, scratch) {
            Poll::Ready(Err(error)) => self.on_transport_error(error),
            _ => PhaseOutcome::Sleep,
        }
    }

    /// Carries out the outcome of an element; `Some` if the phase ends.
    fn apply_outcome(&mut self, taken: NegotiationResult, scratch: &mut Scratch) -> Option<PhaseOutcome> {
        match taken {
            Err(error) => return Some(PhaseOutcome::EndStream(Some(error))),
            Ok(NegotiationOutcome::Pending) => {}
            Ok(NegotiationOutcome::Reply(bytes)) => self.stream.queue(&bytes, scratch),
            Ok(NegotiationOutcome::ReplyAndEnd(bytes)) => {
                self.final_element = Some(bytes);
                return Some(PhaseOutcome::EndStream(None));
            }
            Ok(NegotiationOutcome::RestartStream(bytes)) => {
                self.stream.queue(&bytes, scratch);
                self.stream.restart();
                self.expect_header();
            }
            Ok(NegotiationOutcome::StartTls(bytes)) => {
                self.stream.queue(&bytes, scratch);
                let domain = match &self.phase {
                    ConnectionPhase::Negotiating(state) => state.host.as_ref().map(|h| h.domain().to_owned()),
                    _ => None,
                };
                let tls = self.context.tls.clone()?;
                if let Err(error) = self.stream.start_tls(&tls, domain.as_deref(), scratch) {
                    tracing::debug!(peer = %self.stream.info().peer, %error, "STARTTLS failed");
                    return Some(PhaseOutcome::TransportClosed);
                }
                self.expect_header();
                if let ConnectionPhase::Negotiating(state) = &mut self.phase {
                    state.forget_plaintext();
                }
            }
            Ok(NegotiationOutcome::Bound(session, bytes)) => {
                self.log_session_start(&session, false);
                self.set_stream_flags(&session);
                self.stream.queue(&bytes, scratch);
                self.on_bound(session);
                return Some(PhaseOutcome::Again);
            }
            Ok(NegotiationOutcome::Resumed(session, bytes)) => {
                self.log_session_start(&session, true);
                self.set_stream_flags(&session);
                self.stream.queue(&bytes, scratch);
                self.attach_session(session);
                return Some(PhaseOutcome::Again);
            }
        }
        None
    }

    fn log_session_start(&self, session: &throng_core::Session, resumed: bool) {
        let ConnectionPhase::Negotiating(state) = &self.phase else { return };
        let (node, info) = (&self.context.node, self.stream.info());
        let transport = info.transport.name();
        session_log(node).session_opened(
            node.seconds(),
            session,
            state.mechanism,
            transport,
            info.peer,
            resumed,
        );
    }

    /// Sets the flags that depend on the transport: encryption, for features that accept secrets, and batching of
    /// presence, for BOSH, where each answer is expensive. A resumed session has another stream.
    fn set_stream_flags(&self, session: &throng_core::Session) {
        let info = self.stream.info();
        for (bit, set) in
            [(flags::SECURE, info.secure), (flags::BATCHES_PRESENCE, info.transport == Transport::Bosh)]
        {
            if set {
                session.flags.set(bit);
            } else {
                session.flags.clear(bit);
            }
        }
    }

    fn expect_header(&mut self) {
        if let ConnectionPhase::Negotiating(state) = &mut self.phase {
            state.stage = state.stage.after(NegotiationEvent::Restarted);
        }
    }

    /// Handles one complete element before a resource is bound.
    fn on_element(&mut self, bytes: &[u8]) -> NegotiationResult {
        let limits = self.context.node.limits().negotiation();
        let mut reader = Reader::new(bytes, &self.scope, &limits)?;
        let root = match reader.next()? {
            Some(xml::Event::Start(start)) => start,
            _ => return Err(StreamCondition::NotWellFormed.into()),
        };
        let (ns, ns_text, name) = (root.ns.id, root.ns.text.to_owned(), root.name.to_owned());
        while reader.next()?.is_some() {}
        let ConnectionPhase::Negotiating(state) = &mut self.phase else {
            return Ok(NegotiationOutcome::Pending);
        };
        let profile = match ns {
            Some(Ns::Sasl) => Some(SaslProfile::Rfc6120),
            Some(Ns::Sasl2) => Some(SaslProfile::Sasl2),
            _ => None,
        };
        // XEP-0388, section 3.4: no other element during an exchange. A second profile would be a second exchange.
        let strict = profile.is_some() || state.profile == SaslProfile::Sasl2;
        if state.is_busy() && strict && profile != Some(state.profile) {
            return Err(
                StreamError::new(StreamCondition::PolicyViolation).text("another login is in progress")
            );
        }
        match (state.stage, ns) {
            (NegotiationStage::Authentication, Some(Ns::Tls)) => self.starttls(&name),
            (NegotiationStage::Authentication, Some(Ns::Sasl)) => self.sasl(&name, bytes),
            (NegotiationStage::Authentication, Some(Ns::Sasl2)) if state.offers(sasl2::MODULE) => {
                self.sasl2(&name, bytes)
            }
            (NegotiationStage::Resource, Some(Ns::Client)) => self.bind(bytes, None),
            (NegotiationStage::Resource, Some(Ns::Sm3 | Ns::Sm2)) if name == "resume" => self.resume(bytes),
            // XEP-0198, section 3: not before authentication, and before binding only `<resume/>`.
            (
                NegotiationStage::Authentication | NegotiationStage::Resource,
                Some(ns @ (Ns::Sm3 | Ns::Sm2)),
            ) => self.refuse_bind(stream_management::unexpected(ns)),
            (stage, Some(Ns::Client)) if matches!(name.as_str(), "message" | "presence" | "iq") => {
                if stage == NegotiationStage::Authentication
                    && let Some(taken) = self.on_pre_auth_iq(bytes)
                {
                    return taken;
                }
                // RFC 6120, section 4.9.3.12: no stanzas before authentication.
                Err(StreamError::new(StreamCondition::NotAuthorized).text("log in before sending stanzas"))
            }
            (NegotiationStage::Resource, Some(Ns::Sasl | Ns::Sasl2)) => {
                Err(StreamError::new(StreamCondition::PolicyViolation)
                    .text("this stream is already authenticated"))
            }
            _ => crate::session_io::unknown_element(ns, &ns_text, &name)
                .map(|()| NegotiationOutcome::ReplyAndEnd(Vec::new())),
        }
    }

    /// Handles `<starttls/>` (RFC 6120, section 5.4.2).
    fn starttls(&mut self, name: &str) -> NegotiationResult {
        const FAILURE: &[u8] = b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
        let possible = self.may_start_tls();
        match name {
            "starttls" if possible => Ok(NegotiationOutcome::StartTls(
                b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>".to_vec(),
            )),
            "starttls" => {
                tracing::debug!(peer = %self.stream.info().peer, "STARTTLS requested but not offered");
                // Section 5.4.2.2: failure, then the end of the stream and of the connection.
                Ok(NegotiationOutcome::ReplyAndEnd(FAILURE.to_vec()))
            }
            _ => Err(StreamCondition::UnsupportedStanzaType.into()),
        }
    }
}

/// Result of an asynchronous step of a login.
pub(crate) enum LoginStepResult {
    /// The account record, for a challenge.
    Credentials(Result<Option<LoginRecord>, ServerError>),
    /// The account record, and whether the password is correct.
    Password(Result<(Option<LoginRecord>, bool), ServerError>),
    /// Too many attempts: the client must not learn whether its secret is right.
    Throttled(LoginLimit),
    /// The account that a bearer token authorises; `None` if it is invalid.
    BearerToken(Result<Option<LoginRecord>, ServerError>),
    /// The account record, after authentication with a certificate or by a provider.
    Account(Result<Option<LoginRecord>, ServerError>),
    /// The account record, and the verification of its token.
    Token(Result<fast_tokens::Answered, ServerError>),
    /// The data that a session starts with.
    Loaded(Result<Admission, ServerError>),
    /// The result of updating the tokens.
    TokensUpdated(Result<fast_tokens::FastUpdateOutcome, ServerError>),
    /// The result of storing upgraded keys.
    Upgraded(Result<CredentialsUpgradeOutcome, ServerError>),
    /// The result of a request to resume.
    Resume(stream_management::ResumeOutcome),
    /// The reply to a request before authentication.
    PreAuthReply(Vec<u8>),
}

/// A password to check.
pub(crate) struct PasswordAttempt {
    /// The claimed account, normalised.
    pub(crate) account: String,
    pub(crate) password: Secret,
    pub(crate) attempt: Attempt,
}

/// Checks a password against the stored credentials, off the routing threads, and counts the attempt, also if the client
/// is gone meanwhile.
pub(crate) fn check_password(
    context: &Arc<C2sContext>,
    found: Option<LoginRecord>,
    tried: PasswordAttempt,
) -> BoxFuture<'static, LoginStepResult> {
    let decoy = context.decoy.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    context.node.spawner.spawn_blocking(
        "password",
        Box::new(move || {
            let PasswordAttempt { account, password, attempt } = tried;
            let stored = found.as_ref().and_then(|f| Credentials::decode(&f.credentials).ok());
            // The decoy costs the same, so that timing does not reveal whether the account exists.
            let (credentials, known) = decoy.stored_or_decoy(stored, &account);
            let right =
                std::str::from_utf8(password.expose()).is_ok_and(|p| credentials.verify_password(p)) && known;
            let outcome = if right { AttemptOutcome::Succeeded } else { AttemptOutcome::Failed };
            let _ = sender.send(match attempt.finish(outcome) {
                Ok(()) => LoginStepResult::Password(Ok((found, right))),
                Err(limit) => LoginStepResult::Throttled(limit),
            });
        }),
    );
    Box::pin(async move {
        // Not a wrong password: clients forget one that is refused.
        let interrupted = || ServerError {
            retryable: true,
            public_text: "the password could not be checked; try again".into(),
            cause: "the check of a password was interrupted".into(),
        };
        receiver.await.unwrap_or_else(|_| LoginStepResult::Password(Err(interrupted())))
    })
}
