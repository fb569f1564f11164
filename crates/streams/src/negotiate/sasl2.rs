//! The Extensible SASL Profile: XEP-0388 (1.0.4), with Initial Authentication Pipelining: XEP-0509 (0.2.0).
//!
//! One request names the mechanism and everything that the client wants besides: to go on with a lost stream (`sm`), a
//! resource (`bind2`), a token (`fast`), better keys (`upgrade`). Success carries the results, the features follow at once, and the stream goes on as it is.
//!
//! Offered only under TLS (section 4: MUST), or where the listener says that something else encrypts. White space around
//! base 64 is let pass, since the examples have it. A `from` of the stream changes nothing that is offered, so nothing
//! tells who exists.
//!
//! Left out: mandatory tasks such as a second factor; software and device of the user agent are read by nobody.
//!
//! The trap: during an exchange nothing but its own elements may come (section 3.4: MUST disconnect); `busy` is asked
//! before any other element is looked at.

use ::sasl::{Exchange, Failure, HtMechanism, Mechanism, ScramHash};
use stanza::{StreamCondition, StreamError};
use throng_core::server_error::ServerError;
use throng_core::session::flags;
use throng_core::{Admission, Principal, Session};
use xml::{Ns, Tree, Writer};

use super::bind2::BindRequest;
use super::fast_tokens::FastRequest;
use super::scram_upgrade::UpgradeTask;
use super::{LoginStepResult, NegotiationOutcome, NegotiationResult, NegotiationStage, SaslProfile};
use crate::c2s::C2sConnection;
use crate::stream_management;

/// The module's name in the configuration.
pub(super) const MODULE: &str = "sasl2";
/// Namespace of XEP-0509.
pub(super) const IAP: &str = "urn:xmpp:iap:0";
/// Longest id of a user agent. It is a UUID (36), but nothing is lost by taking others.
const MAX_USER_AGENT_ID: usize = 128;

/// What `<authenticate/>` asked for, and what has become of it so far.
#[derive(Default)]
pub(crate) struct Sasl2Request {
    /// The id of the client's installation.
    pub(super) user_agent: Option<String>,
    pub(super) bind: Option<BindRequest>,
    /// `<resume/>` of XEP-0198, until it is tried.
    resume: Option<Vec<u8>>,
    /// `<failed/>` in answer to it.
    resume_failure: Vec<u8>,
    pub(super) fast: Option<FastRequest>,
    /// A token is wanted, for this mechanism.
    pub(super) request_token: Option<HtMechanism>,
    /// Keys that the client would make, each once.
    pub(super) upgrades: Vec<ScramHash>,
    pub(super) task: Option<UpgradeTask>,
    /// What the account has of keys.
    pub(super) credentials: Vec<u8>,
    /// What the session begins with, where it was read together with the proof.
    pub(super) loaded: Option<Result<Admission, ServerError>>,
    /// `<token/>`, ready to send.
    pub(super) token: Vec<u8>,
}

impl C2sConnection {
    /// An element in the namespace of SASL2.
    pub(super) fn sasl2(&mut self, name: &str, bytes: &[u8]) -> NegotiationResult {
        let scope = self.scope.clone();
        let limits = self.context.node.limits().negotiation();
        let tree = Tree::parse(bytes, &scope, &limits)?;
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let tasks = state.sasl2_request.as_ref().is_some_and(|r| r.task.is_some());
        match name {
            "authenticate" if state.is_busy() => {
                Err(StreamError::new(StreamCondition::PolicyViolation).text("one login at a time"))
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
            _ => Err(StreamError::new(StreamCondition::UnsupportedStanzaType)
                .text(format!("<{name}> is not expected now"))),
        }
    }

    /// Section 3.3.
    fn authenticate(&mut self, root: xml::TreeNode<'_>) -> NegotiationResult {
        let binding = self.channel_binding();
        let after_tls = self.mechanisms_after_tls();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        state.forget_login();
        state.profile = SaslProfile::Sasl2;
        // XEP-0509 section 2.2: what the client believes to be offered is out of date.
        let believed = root.child_elements().find(|c| c.name() == "config-version" && c.ns_text() == IAP);
        let believed = believed.map(|c| c.attr("value").unwrap_or_default().into_owned());
        if believed.is_some_and(|value| value != state.config_version) {
            let mismatch = format!("<config-version-mismatch xmlns='{IAP}'/>");
            return self.failed_login_with(Failure::Aborted, "configuration", mismatch.as_bytes());
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

    /// The client has proved who it is: what it asked for is done in the order in which the answers depend on each other.
    pub(super) fn on_proved_sasl2(&mut self) -> NegotiationResult {
        if let Some(task) = self.first_task() {
            return task;
        }
        self.update_tokens()
    }

    /// Section 3.6.1: everything that was asked for. XEP-0198 section 9.2: resuming comes first.
    pub(super) fn finish_sasl2(&mut self) -> NegotiationResult {
        let node = self.context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let resume = state.sasl2_request.as_mut().and_then(|r| r.resume.take());
        if let (Some(bytes), Some(identity)) = (resume, &state.identity) {
            let scope = xml::NamespaceContext::client();
            if let Ok(tree) = Tree::parse(&bytes, &scope, &xml::Limits::CEILING) {
                let resumed =
                    stream_management::resume(&node, &identity.host, identity.jid.as_ref(), tree.root());
                state.pending_step = Some(Box::pin(async move { LoginStepResult::Resume(resumed.await) }));
                return Ok(NegotiationOutcome::Pending);
            }
        }
        self.load_if_bind_requested()
    }

    /// What the session begins with is read only if one is wanted here.
    fn load_if_bind_requested(&mut self) -> NegotiationResult {
        if !self.wants_resource() {
            return self.begin_session(None);
        }
        let loaded = self.negotiation().and_then(|s| s.sasl2_request.as_mut()).and_then(|r| r.loaded.take());
        match loaded {
            Some(loaded) => self.on_principal_loaded(loaded),
            None => self.load_principal(),
        }
    }

    /// Whether the request asks for a resource, and may.
    fn wants_resource(&mut self) -> bool {
        let Some(state) = self.negotiation() else { return false };
        let wanted = state.sasl2_request.as_ref().is_some_and(|request| request.bind.is_some());
        wanted && state.offers(super::bind2::MODULE)
    }

    /// Whether a resource is bound as soon as the client has proved who it is. One that goes on with a lost stream mostly
    /// needs none.
    pub(super) fn binds_at_once(&mut self) -> bool {
        let resumes =
            self.negotiation().and_then(|s| s.sasl2_request.as_ref()).is_some_and(|r| r.resume.is_some());
        !resumes && self.wants_resource()
    }

    /// It was read.
    pub(super) fn bind_inline(&mut self, principal: Principal) -> NegotiationResult {
        let bind = self.negotiation().and_then(|s| s.sasl2_request.as_mut()).and_then(|r| r.bind.take());
        self.begin_session(bind.map(|bind| (bind, principal)))
    }

    /// The old stream has let go of its session, or there was none.
    pub(super) fn on_resume_outcome_sasl2(
        &mut self,
        answer: stream_management::ResumeOutcome,
    ) -> NegotiationResult {
        match answer {
            // Section 9.2: no binding and no features; the old stream goes on behind success.
            stream_management::ResumeOutcome::Resumed(session, bytes) => {
                self.on_authenticated();
                let out = self.success_sasl2(session.full().as_str(), &bytes);
                Ok(NegotiationOutcome::Resumed(session, out))
            }
            stream_management::ResumeOutcome::Failed(bytes) => {
                if let Some(request) = self.negotiation().and_then(|s| s.sasl2_request.as_mut()) {
                    request.resume_failure = bytes;
                }
                self.load_if_bind_requested()
            }
            stream_management::ResumeOutcome::Ended(error) => Err(error),
        }
    }

    /// Binds, if that was asked for and can be done, and says so.
    pub(super) fn begin_session(&mut self, bind: Option<(BindRequest, Principal)>) -> NegotiationResult {
        // Not before: until success is sent the login may still fail.
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
                if let Some(state) = self.negotiation() {
                    state.stage = NegotiationStage::Resource;
                }
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
    /// `<success/>` with what was done along with the login. The request is answered by it.
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

/// Features of a stream that has its resource already, and perhaps stream management, too.
fn write_bound_features(session: &Session, out: &mut Vec<u8>) {
    let host = session.account.host();
    let managed = session.flags.has(flags::STREAM_MANAGEMENT);
    stanza::stream::write_features(out, |w| {
        w.raw(if managed { &host.managed_stream_features } else { &host.stream_features });
    });
}

impl Sasl2Request {
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
