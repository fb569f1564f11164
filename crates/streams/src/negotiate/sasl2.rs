//! SASL2, the Extensible SASL Profile: XEP-0388 (1.0.4), with Initial Authentication Pipelining: XEP-0509 (0.2.0).
//!
//! One request names the mechanism and everything else that the client wants: to resume a stream (`stream_management`),
//! a resource (`bind2`), a token (`fast_tokens`), upgraded keys (`scram_upgrade`). Success carries the results, the
//! features follow immediately, and the stream continues without a restart.
//!
//! Offered only under TLS (section 4: MUST), or where the listener's configuration declares other encryption. White
//! space around base 64 is accepted, since the examples have it. The `from` of the stream does not change what is
//! offered, so the offer does not reveal which accounts exist.
//!
//! Not implemented: mandatory tasks such as a second factor. Software and device of the user agent are ignored.
//!
//! # Pitfalls
//!
//! During an exchange no other element may come (section 3.4: MUST disconnect); `is_busy` is checked before any other
//! element is handled.

use ::sasl::{Exchange, Failure, HtMechanism, Mechanism, ScramHash};
use access::login::Admission;
use stanza::{StreamCondition, StreamError};
use throng_core::server_error::ServerError;
use throng_core::session::flags;
use throng_core::{Principal, Session, StreamFeatureStage};
use xml::{Ns, Tree, Writer};

use super::bind2::BindRequest;
use super::fast_tokens::FastRequest;
use super::scram_upgrade::UpgradeTask;
use super::{LoginStepResult, NegotiationOutcome, NegotiationResult, SaslProfile};
use crate::c2s::C2sConnection;
use crate::stream_management;

/// Module name in the configuration.
pub(super) const MODULE: &str = "sasl2";
/// Namespace of XEP-0509.
pub(super) const IAP: &str = "urn:xmpp:iap:0";
/// Longest user agent id in bytes. It should be a UUID (36 bytes), but others are harmless.
const MAX_USER_AGENT_ID: usize = 128;

/// Content of `<authenticate/>`, and the results so far.
#[derive(Default)]
pub(crate) struct Sasl2Request {
    /// Id of the client installation.
    pub(super) user_agent: Option<String>,
    pub(super) bind: Option<BindRequest>,
    /// `<resume/>` of XEP-0198, until it is handled.
    resume: Option<Vec<u8>>,
    /// `<failed/>` in answer to `<resume/>`.
    resume_failure: Vec<u8>,
    pub(super) fast: Option<FastRequest>,
    /// Mechanism for which a token is requested.
    pub(super) request_token: Option<HtMechanism>,
    /// Keys that the client offers to derive, each once.
    pub(super) upgrades: Vec<ScramHash>,
    pub(super) task: Option<UpgradeTask>,
    /// Encoded credentials of the account.
    pub(super) credentials: Vec<u8>,
    /// The data that a session starts with, where it was read together with the proof.
    pub(super) loaded: Option<Result<Admission, ServerError>>,
    /// That data, once it is known that the account may log in.
    principal: Option<Box<Principal>>,
    /// The tokens were updated, or did not need it.
    tokens_updated: bool,
    /// `<token/>`, ready to send.
    pub(super) token: Vec<u8>,
}

impl C2sConnection {
    /// Handles an element in the namespace of SASL2.
    pub(super) fn sasl2(&mut self, name: &str, bytes: &[u8]) -> NegotiationResult {
        let scope = self.scope.clone();
        let limits = self.context.node.limits().negotiation();
        let tree = Tree::parse(bytes, &scope, &limits)?;
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let tasks = state.sasl2_request.as_ref().is_some_and(|r| r.task.is_some());
        match name {
            "authenticate" if state.is_busy() => {
                Err(StreamError::new(StreamCondition::PolicyViolation).text("another login is in progress"))
            }
            "authenticate" => self.authenticate(tree.root()),
            "response" if !tasks => {
                state.profile = SaslProfile::Sasl2;
                let Some(exchange) = &mut state.exchange else {
                    return self.failed_login(Failure::MalformedRequest, "no exchange");
                };
                match ::sasl::encoding::decode_sasl2(&tree.root().text()) {
                    Ok(data) => {
                        let step = exchange.step(Some(&data));
                        self.apply_sasl_step(step)
                    }
                    Err(failure) => self.failed_login(failure, "encoding"),
                }
            }
            "next" if tasks => self.next_task(tree.root()),
            "task-data" if tasks => self.task_data(tree.root()),
            "abort" => {
                state.profile = SaslProfile::Sasl2;
                self.failed_login(Failure::Aborted, "aborted")
            }
            "next" | "task-data" => {
                state.profile = SaslProfile::Sasl2;
                self.failed_login(Failure::MalformedRequest, "no task")
            }
            _ => {
                Err(StreamError::new(StreamCondition::UnsupportedStanzaType)
                    .text(format!("unexpected <{name}>")))
            }
        }
    }

    /// Handles `<authenticate/>` (section 3.3).
    fn authenticate(&mut self, root: xml::TreeNode<'_>) -> NegotiationResult {
        let binding = self.channel_binding();
        let after_tls = self.mechanisms_after_tls();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        state.forget_login();
        state.profile = SaslProfile::Sasl2;
        // XEP-0509, section 2.2: the features that the client knows are outdated.
        let believed = root.child_elements().find(|c| c.name() == "config-version" && c.ns_text() == IAP);
        let believed = believed.map(|c| c.attr("value").unwrap_or_default().into_owned());
        if believed.is_some_and(|value| value != state.config_version) {
            let mismatch = format!("<config-version-mismatch xmlns='{IAP}'/>");
            return self.send_failure(Failure::Aborted, "configuration", mismatch.as_bytes());
        }
        let name = root.attr("mechanism").unwrap_or_default();
        let initial = match root.child("initial-response", Ns::Sasl2) {
            None => None,
            Some(element) => match ::sasl::encoding::decode_sasl2(&element.text()) {
                Ok(initial) => Some(initial),
                Err(failure) => return self.failed_login(failure, "encoding"),
            },
        };
        let request = match Sasl2Request::read(root) {
            Ok(request) => request,
            Err(failure) => return self.failed_login(failure, "request"),
        };
        state.sasl2_request = Some(Box::new(request));
        if let Some(mechanism) = HtMechanism::from_name(&name) {
            return self.token_login(mechanism, initial.as_deref());
        }
        let mechanism = Mechanism::from_name(&name);
        let Some(mechanism) = mechanism.filter(|m| state.offered_sasl2.contains(*m)) else {
            let failure = if mechanism.is_some_and(|m| after_tls.contains(m)) {
                Failure::EncryptionRequired
            } else {
                Failure::InvalidMechanism
            };
            return self.failed_login(failure, "mechanism");
        };
        let mut exchange = Exchange::new(mechanism, state.offered_sasl2.has_plus(), binding, ::sasl::nonce())
            .with_downgrade_protection(state.offered_sasl2);
        let step = exchange.step(initial.as_deref());
        state.exchange = Some(exchange);
        self.apply_sasl_step(step)
    }

    /// Continues after the proof. Whatever can still refuse the login comes before everything that takes effect, so
    /// that no inline request is processed in a login that fails (section 3.6.2): the account is read again with the
    /// data of the session, and only then are tokens updated, a stream resumed or a resource bound.
    pub(super) fn on_proved_sasl2(&mut self) -> NegotiationResult {
        self.first_task().unwrap_or_else(|| self.check_account())
    }

    /// Reads the data of the session if a resource will be bound; this also detects a changed account. For other
    /// clients the update of the tokens detects it, if there is one. A request to resume that ends the stream ends it
    /// here.
    pub(super) fn check_account(&mut self) -> NegotiationResult {
        let resumes = self.may_resume()?;
        if resumes || !self.wants_resource() {
            return self.update_tokens();
        }
        self.load_inline()
    }

    /// Continues with the inline requests: the account may log in. `None`: its data could not be read.
    pub(super) fn on_account_checked(&mut self, principal: Option<Box<Principal>>) -> NegotiationResult {
        let Some(request) = self.negotiation().and_then(|state| state.sasl2_request.as_mut()) else {
            return Ok(NegotiationOutcome::Pending);
        };
        if principal.is_none() {
            // Success is due; the client may bind as in RFC 6120 when the store is available again.
            request.bind = None;
        }
        request.principal = principal;
        if request.tokens_updated { self.bind_inline() } else { self.update_tokens() }
    }

    /// Completes the inline requests (section 3.6.1), resumption first (XEP-0198, section 9.2).
    pub(super) fn finish_sasl2(&mut self) -> NegotiationResult {
        let node = self.context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let elsewhere = state.identity.as_ref().is_some_and(|own| node.may_be_elsewhere(own.jid.as_ref()));
        let (mut resume, mut principal) = (None, None);
        if let Some(request) = &mut state.sasl2_request {
            request.tokens_updated = true;
            resume = request.resume.take();
            // A session on another node needs it.
            principal = request.principal.take_if(|_| resume.is_some() && elsewhere);
        }
        let scope = xml::NamespaceContext::client();
        if let (Some(bytes), Some(identity)) = (resume, &state.identity)
            && let Ok(tree) = Tree::parse(&bytes, &scope, &xml::Limits::CEILING)
        {
            let principal = principal.map(|principal| *principal);
            let resumed = stream_management::resume(&node, identity, principal, tree.root());
            state.pending_step = Some(Box::pin(async move { LoginStepResult::Resume(resumed.await) }));
            return Ok(NegotiationOutcome::Pending);
        }
        self.bind_inline()
    }

    /// Whether the requested resumption may succeed: such a client needs no data to start a session with.
    fn may_resume(&mut self) -> Result<bool, StreamError> {
        let node = self.context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(false) };
        let resume = state.sasl2_request.as_ref().and_then(|request| request.resume.as_deref());
        let (Some(bytes), Some(identity)) = (resume, &state.identity) else { return Ok(false) };
        let scope = xml::NamespaceContext::client();
        let Ok(tree) = Tree::parse(bytes, &scope, &xml::Limits::CEILING) else { return Ok(false) };
        stream_management::may_resume(&node, &identity.host, identity.jid.as_ref(), tree.root())
    }

    /// Reads the data of the session, unless it was read together with the proof.
    fn load_inline(&mut self) -> NegotiationResult {
        let loaded = self.negotiation().and_then(|s| s.sasl2_request.as_mut()).and_then(|r| r.loaded.take());
        match loaded {
            Some(loaded) => self.on_principal_loaded(loaded),
            None => self.load_principal(),
        }
    }

    /// Whether the request asks for a resource and Bind 2 is enabled.
    fn wants_resource(&mut self) -> bool {
        let Some(state) = self.negotiation() else { return false };
        let wanted = state.sasl2_request.as_ref().is_some_and(|request| request.bind.is_some());
        wanted && state.offers(super::bind2::MODULE)
    }

    /// Whether a resource is bound directly after authentication. A client that resumes a stream usually needs none.
    pub(super) fn binds_at_once(&mut self) -> bool {
        let resumes =
            self.negotiation().and_then(|s| s.sasl2_request.as_ref()).is_some_and(|r| r.resume.is_some());
        !resumes && self.wants_resource()
    }

    /// Begins the session, with the requested resource if there is one.
    fn bind_inline(&mut self) -> NegotiationResult {
        if !self.wants_resource() {
            return self.begin_session(None);
        }
        let Some(request) = self.negotiation().and_then(|state| state.sasl2_request.as_mut()) else {
            return Ok(NegotiationOutcome::Pending);
        };
        match request.principal.take() {
            Some(principal) => {
                let bind = request.bind.take();
                self.begin_session(bind.map(|bind| (bind, *principal)))
            }
            // A stream could not be resumed.
            None => self.load_inline(),
        }
    }

    /// Handles the result of a request to resume.
    pub(super) fn on_resume_outcome_sasl2(
        &mut self,
        answer: stream_management::ResumeOutcome,
    ) -> NegotiationResult {
        match answer {
            // Section 9.2: no binding and no features; the resumed stream continues after success.
            stream_management::ResumeOutcome::Resumed(session, bytes) => {
                self.on_authenticated();
                let out = self.success_sasl2(session.full().as_str(), &bytes);
                Ok(NegotiationOutcome::Resumed(session, out))
            }
            stream_management::ResumeOutcome::Failed(bytes) => {
                if let Some(request) = self.negotiation().and_then(|s| s.sasl2_request.as_mut()) {
                    request.resume_failure = bytes;
                }
                self.bind_inline()
            }
            stream_management::ResumeOutcome::Ended(error) => Err(error),
        }
    }

    /// Sends success, with a bound resource if one was requested and can be bound.
    fn begin_session(&mut self, bind: Option<(BindRequest, Principal)>) -> NegotiationResult {
        // Not earlier: until success is sent the login may still fail.
        self.on_authenticated();
        let request = self.negotiation().and_then(|s| s.sasl2_request.as_mut());
        let user_agent = request.and_then(|request| request.user_agent.take());
        let mut results = match self.negotiation().and_then(|s| s.sasl2_request.as_mut()) {
            Some(request) => std::mem::take(&mut request.resume_failure),
            None => Vec::new(),
        };
        let session = bind
            .and_then(|(bind, principal)| self.bind2(&bind, principal, user_agent.as_deref(), &mut results));
        let own = self.negotiation().and_then(|s| s.identity.as_ref()).map(|i| i.jid.as_str().to_owned());
        let identity = session.as_ref().map_or(own.unwrap_or_default(), |s| s.full().as_str().to_owned());
        let mut out = self.success_sasl2(&identity, &results);
        match session {
            None => {
                self.write_stream_features(&mut out);
                Ok(NegotiationOutcome::Reply(out))
            }
            Some(session) => {
                write_bound_features(&session, &mut out);
                Ok(NegotiationOutcome::Bound(session, out))
            }
        }
    }
}

impl C2sConnection {
    /// `<success/>` with the results of the inline requests. Completes the request.
    fn success_sasl2(&mut self, identity: &str, results: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let Some(state) = self.negotiation() else { return out };
        let mut w = Writer::new(&mut out);
        w.start("success").ns(Ns::Sasl2);
        if let Some(data) = state.additional.take() {
            w.text_element("additional-data", &::sasl::encoding::encode_challenge(&data));
        }
        w.text_element("authorization-identifier", identity).raw(results);
        if let Some(request) = state.sasl2_request.take() {
            w.raw(&request.token);
        }
        w.end();
        out
    }
}

/// Writes the features of a stream that has a resource, and possibly stream management.
fn write_bound_features(session: &Session, out: &mut Vec<u8>) {
    let host = session.account.host();
    let managed = session.flags.has(flags::STREAM_MANAGEMENT);
    stanza::stream::write_features(out, |w| match managed {
        true => host.stream_features.write_managed(w),
        false => host.stream_features.write(w, StreamFeatureStage::Authenticated),
    });
}

impl Sasl2Request {
    /// Whether the login was proved with a token.
    pub(super) fn used_token(&self) -> bool {
        self.fast.as_ref().is_some_and(FastRequest::used_token)
    }

    fn read(root: xml::TreeNode<'_>) -> Result<Sasl2Request, Failure> {
        let mut request = Sasl2Request::default();
        let mut seen_bind = false;
        for child in root.child_elements() {
            match (child.ns(), child.name()) {
                (Some(Ns::Sasl2), "user-agent") => {
                    let id = child.attr("id").map(std::borrow::Cow::into_owned);
                    request.user_agent = id.filter(|id| (1..=MAX_USER_AGENT_ID).contains(&id.len()));
                }
                (Some(Ns::Bind2), "bind") => {
                    if std::mem::replace(&mut seen_bind, true) {
                        return Err(Failure::MalformedRequest);
                    }
                    request.bind = Some(BindRequest::read(child));
                }
                (Some(Ns::Sm3 | Ns::Sm2), "resume") => {
                    request.resume = super::bind2::standalone_element(child)
                }
                (Some(Ns::Fast), "fast") => request.fast = Some(FastRequest::read(child)),
                (Some(Ns::Fast), "request-token") => {
                    request.request_token = child.attr("mechanism").and_then(|m| HtMechanism::from_name(&m));
                }
                (Some(Ns::SaslUpgrade), "upgrade") => {
                    let hash = super::scram_upgrade::hash(child.text().trim());
                    let new = hash.filter(|hash| !request.upgrades.contains(hash));
                    request.upgrades.extend(new);
                }
                _ => {}
            }
        }
        Ok(request)
    }
}
