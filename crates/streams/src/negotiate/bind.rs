//! Resource binding during negotiation: RFC 6120, section 7. Also resumption in its place: XEP-0198, section 5.

use ::sasl::Failure;
use access::login::{self, Admission};
use stanza::{
    Element, ErrorType, IqType, StanzaCondition, StanzaError, StanzaKind, StreamCondition, StreamError,
};
use throng_core::Principal;
use throng_core::server_error::ServerError;
use xml::{Ns, Tree, Writer};

use super::{LoginStepResult, NegotiationOutcome, NegotiationResult};
use crate::c2s::{C2sConnection, ConnectionPhase};
use crate::stream_management;

impl C2sConnection {
    /// Handles a stanza before a resource is bound; only a bind request is allowed. `principal` is the account data
    /// read for this request. It is dropped when the request is refused: a client that never binds must not hold a
    /// roster.
    pub(super) fn bind(&mut self, bytes: &[u8], principal: Option<Principal>) -> NegotiationResult {
        let limits = self.context.node.limits().negotiation();
        let scope = self.scope.clone();
        let mut portable = Vec::new();
        let (head, bytes) = match Element::read(bytes, &scope, &limits)? {
            Element::Stanza(head) => (head, bytes),
            Element::NotSelfContained => {
                xml::normalise(bytes, &scope, &limits, &mut portable)?;
                match Element::read(&portable, &xml::NamespaceContext::client(), &limits)? {
                    Element::Stanza(head) => (head, portable.as_slice()),
                    _ => return Err(StreamCondition::UnsupportedStanzaType.into()),
                }
            }
            _ => return Err(StreamCondition::UnsupportedStanzaType.into()),
        };
        let is_bind = head.first_child.is_some_and(|f| f.ns == Some(Ns::Bind) && f.name.str(bytes) == "bind");
        if head.kind != StanzaKind::Iq(IqType::Set) || !is_bind {
            // RFC 6120, section 7.1: stanzas need a resource first.
            return Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("bind a resource before sending stanzas"));
        }
        let refusal = |error: &StanzaError| error.reply(bytes, &head, None, None).unwrap_or_default();
        let Some(id) = head.raw_id(bytes) else {
            let error = StanzaError::new(StanzaCondition::BadRequest).text("an IQ request needs an id");
            return self.refuse_bind(refusal(&error));
        };
        let client = xml::NamespaceContext::client();
        let tree = Tree::parse(bytes, &client, &limits)?;
        let wanted = tree.root().child("bind", Ns::Bind).and_then(|b| b.child("resource", Ns::Bind));
        let wanted = wanted.map(|r| r.text().into_owned());
        let node = self.context.node.clone();
        let outbox = self.outbox.clone();
        let ConnectionPhase::Negotiating(state) = &mut self.phase else {
            return Ok(NegotiationOutcome::Pending);
        };
        let Some(principal) = principal else {
            let Some(identity) = &state.identity else { return Err(StreamCondition::NotAuthorized.into()) };
            if let Err(error) = node.check_bind(identity.jid.as_ref(), wanted.as_deref()) {
                return self.refuse_bind(refusal(&error));
            }
            state.pending_bind = bytes.to_vec();
            return self.load_principal();
        };
        match node.bind(principal, wanted.as_deref(), &outbox) {
            Err(error) => self.refuse_bind(refusal(&error)),
            Ok(session) => {
                let mut out = Vec::with_capacity(192);
                let mut w = Writer::new(&mut out);
                w.start("iq").attr("type", "result").attr_raw("id", id);
                w.start("bind").ns(Ns::Bind).text_element("jid", session.full().as_str()).end().end();
                Ok(NegotiationOutcome::Bound(session, out))
            }
        }
    }

    /// Refuses a request to bind or resume (section 7.7.3): the client may retry, up to a limit.
    pub(super) fn refuse_bind(&mut self, answer: Vec<u8>) -> NegotiationResult {
        let limit = self.context.node.limits().bind_attempts;
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        state.refused_binds = state.refused_binds.saturating_add(1);
        if state.refused_binds <= limit {
            return Ok(NegotiationOutcome::Reply(answer));
        }
        self.final_element = Some(answer);
        Err(StreamError::new(StreamCondition::PolicyViolation)
            .text("too many refused requests to bind or resume"))
    }

    /// Reads the data that a session starts with, for an authenticated client that requests a resource.
    pub(super) fn load_principal(&mut self) -> NegotiationResult {
        let node = self.context.node.clone();
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let Some(identity) = state.identity.clone() else {
            return Err(StreamCondition::NotAuthorized.into());
        };
        state.pending_step =
            Some(Box::pin(
                async move { LoginStepResult::Loaded(login::load_principal(&node, identity).await) },
            ));
        Ok(NegotiationOutcome::Pending)
    }

    /// Binds, or fails the login, once the session data is read.
    pub(super) fn on_principal_loaded(&mut self, done: Result<Admission, ServerError>) -> NegotiationResult {
        let Some(state) = self.negotiation() else { return Ok(NegotiationOutcome::Pending) };
        let waiting = std::mem::take(&mut state.pending_bind);
        if waiting.is_empty() {
            // XEP-0388: success was not sent yet.
            return match done {
                Ok(Admission::Granted(principal)) => self.on_account_checked(Some(principal)),
                Ok(Admission::Disabled) => self.failed_after_proof(Failure::AccountDisabled, "disabled"),
                Ok(Admission::Revoked) => self.revoked_login(),
                Err(fault) => {
                    tracing::warn!(cause = %fault.cause, "could not read the data of a session");
                    self.on_account_checked(None)
                }
            };
        }
        match done {
            Ok(Admission::Granted(principal)) => self.bind(&waiting, Some(*principal)),
            // After success, RFC 6120 can only refuse by ending the stream.
            Ok(Admission::Disabled) => {
                Err(StreamError::new(StreamCondition::NotAuthorized).text("the account was disabled"))
            }
            Ok(Admission::Revoked) => Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("the account was removed or its password changed")),
            Err(fault) => {
                tracing::warn!(cause = %fault.cause, "could not read the data of a session");
                let client = xml::NamespaceContext::client();
                let limits = self.context.node.limits().negotiation();
                let Ok(Element::Stanza(head)) = Element::read(&waiting, &client, &limits) else {
                    return Err(StreamCondition::InternalServerError.into());
                };
                let error = StanzaError::new(StanzaCondition::InternalServerError)
                    .kind(ErrorType::Wait)
                    .text("the account is temporarily unavailable; try again later");
                self.refuse_bind(error.reply(&waiting, &head, None, None).unwrap_or_default())
            }
        }
    }

    /// Handles `<resume/>` in place of a bind request: XEP-0198, section 5.
    pub(super) fn resume(&mut self, bytes: &[u8]) -> NegotiationResult {
        let limits = self.context.node.limits().negotiation();
        let tree = Tree::parse(bytes, &self.scope, &limits)?;
        let ConnectionPhase::Negotiating(state) = &mut self.phase else {
            return Ok(NegotiationOutcome::Pending);
        };
        let Some(identity) = &state.identity else {
            return Err(StreamCondition::NotAuthorized.into());
        };
        let resumed = stream_management::resume(&self.context.node, identity, None, tree.root());
        state.pending_step = Some(Box::pin(async move { LoginStepResult::Resume(resumed.await) }));
        Ok(NegotiationOutcome::Pending)
    }

    /// Handles the result of a request to resume.
    pub(super) fn on_resume_outcome(
        &mut self,
        answer: stream_management::ResumeOutcome,
    ) -> NegotiationResult {
        if self.negotiation().is_some_and(|state| state.sasl2_request.is_some()) {
            return self.on_resume_outcome_sasl2(answer);
        }
        match answer {
            stream_management::ResumeOutcome::Resumed(session, bytes) => {
                Ok(NegotiationOutcome::Resumed(session, bytes))
            }
            stream_management::ResumeOutcome::Failed(bytes) => self.refuse_bind(bytes),
            stream_management::ResumeOutcome::Ended(error) => Err(error),
        }
    }
}
