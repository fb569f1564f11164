//! IQ requests before authentication, answered by features (XEP-0077, section 3.1.1).
//!
//! The answer is awaited as a step of the login, so an unauthenticated client has one request at a time in progress.
//!
//! Not implemented: stanzas other than requests; they end the stream.
//!
//! # Pitfalls
//!
//! The client is not authenticated: a handler must bound the work and the memory that a request can cause.

use feature_api::stream_elements::{PreAuthRequest, StreamElements};
use stanza::{Element, Head, IqType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::iq::{IqAnswer, IqFlow};
use xml::Writer;

use super::{LoginStepResult, NegotiationOutcome, NegotiationResult};
use crate::c2s::{C2sConnection, ConnectionPhase};
use crate::context::TlsPolicy;

/// Requests permitted on one stream before login.
const MAX_REQUESTS: u8 = 20;

impl C2sConnection {
    /// Answers a request that a feature of the host handles; `None` if none does.
    pub(super) fn on_pre_auth_iq(&mut self, bytes: &[u8]) -> Option<NegotiationResult> {
        let node = self.context.node.clone();
        let info = self.stream.info();
        let (secure, peer) = (info.secure, info.peer.ip());
        if !secure && self.context.policy.tls == TlsPolicy::Required {
            return None;
        }
        let limits = node.limits().negotiation();
        let mut portable = Vec::new();
        let (head, bytes) = match Element::read(bytes, &self.scope, &limits) {
            Ok(Element::Stanza(head)) => (head, bytes),
            Ok(Element::NotSelfContained) => {
                xml::normalise(bytes, &self.scope, &limits, &mut portable).ok()?;
                match Element::read(&portable, &xml::NamespaceContext::client(), &limits) {
                    Ok(Element::Stanza(head)) => (head, portable.as_slice()),
                    _ => return None,
                }
            }
            _ => return None,
        };
        if !matches!(head.kind, StanzaKind::Iq(IqType::Get | IqType::Set)) {
            return None;
        }
        let ConnectionPhase::Negotiating(state) = &mut self.phase else { return None };
        let host = state.host.clone()?;
        let first = head.first_child?;
        let handler = StreamElements::of(&host).pre_auth(first.ns?, first.name.str(bytes))?;
        state.pre_auth_requests = state.pre_auth_requests.saturating_add(1);
        let to = head.to(bytes);
        let flow = if state.pre_auth_requests > MAX_REQUESTS {
            let error = StanzaError::new(StanzaCondition::PolicyViolation)
                .text("log in before sending more requests");
            IqFlow::error(error.without_request())
        } else if head.raw_id(bytes).is_none() || head.child_count != 1 {
            let error = StanzaError::new(StanzaCondition::BadRequest)
                .text("an IQ request needs an id and exactly one child element");
            IqFlow::error(error.without_request())
        } else if to.as_deref().is_some_and(|to| to != host.domain()) {
            IqFlow::error(StanzaError::new(StanzaCondition::NotAuthorized).without_request())
        } else {
            handler.answer(&PreAuthRequest { node: &node, host: &host, peer, secure, head: &head, bytes })
        };
        Some(match flow {
            IqFlow::Reply(answer) => {
                Ok(NegotiationOutcome::Reply(reply(&answer, bytes, &head, host.domain())))
            }
            deferred => {
                let later = deferred.into_future();
                let bytes = bytes.to_vec();
                state.pending_step = Some(Box::pin(async move {
                    let (answer, effects) = later.await;
                    node.perform(effects);
                    LoginStepResult::PreAuthReply(reply(&answer, &bytes, &head, host.domain()))
                }));
                Ok(NegotiationOutcome::Pending)
            }
        })
    }
}

/// Writes the reply. An unauthenticated client has no address, so it has no `to`.
fn reply(answer: &IqAnswer, bytes: &[u8], head: &Head, domain: &str) -> Vec<u8> {
    match answer {
        Err(error) => error.reply(bytes, head, Some(domain), None).unwrap_or_default(),
        Ok(payload) => {
            let mut out = Vec::with_capacity(payload.len() + 96);
            let mut w = Writer::new(&mut out);
            w.start("iq").attr("type", "result").attr("from", domain);
            w.attr_raw("id", head.raw_id(bytes).unwrap_or_default());
            w.raw(payload).end();
            out
        }
    }
}
