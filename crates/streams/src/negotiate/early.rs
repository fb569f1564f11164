//! Requests before authentication: what a feature answers to strangers (XEP-0077 section 3.1.1).
//!
//! The answer is waited for as a step of a login is, so a stranger has one request at a time under way. Left out: stanzas
//! that are no request; they end the stream as before. The trap: whoever asks has proved nothing.

use stanza::{Element, Head, IqType, Kind, StanzaCondition, StanzaError};
use throng_core::iq::{IqAnswer, IqFlow};
use throng_core::nonza::EarlyRequest;
use xml::Writer;

use super::{Did, Ready, Taken};
use crate::c2s::{Connection, Phase};
use crate::service::TlsPolicy;

/// Requests of one stream before it logs in.
const MOST: u8 = 20;

impl Connection {
    /// Answers a request that a feature of the host takes; `None` if nobody does.
    pub(super) fn early(&mut self, bytes: &[u8]) -> Option<Taken> {
        let node = self.service.node.clone();
        let facts = self.stream.facts();
        let (secure, peer) = (facts.secure, facts.peer.ip());
        if !secure && self.service.policy.tls == TlsPolicy::Required {
            return None;
        }
        let limits = node.limits().negotiation();
        let mut portable = Vec::new();
        let (head, bytes) = match Element::read(bytes, &self.scope, &limits) {
            Ok(Element::Stanza(head)) => (head, bytes),
            Ok(Element::NotPortable) => {
                xml::normalise(bytes, &self.scope, &limits, &mut portable).ok()?;
                match Element::read(&portable, &xml::Scope::client(), &limits) {
                    Ok(Element::Stanza(head)) => (head, portable.as_slice()),
                    _ => return None,
                }
            }
            _ => return None,
        };
        if !matches!(head.kind, Kind::Iq(IqType::Get | IqType::Set)) {
            return None;
        }
        let Phase::Negotiating(state) = &mut self.phase else { return None };
        let host = state.host.clone()?;
        let first = head.first?;
        let handler = host.elements.early(first.ns?, first.name.str(bytes))?;
        state.early = state.early.saturating_add(1);
        let to = head.to(bytes);
        let flow = if state.early > MOST {
            let error =
                StanzaError::new(StanzaCondition::PolicyViolation).text("log in before you ask for more");
            IqFlow::error(error.without_request())
        } else if head.raw_id(bytes).is_none() || head.children != 1 {
            let error = StanzaError::new(StanzaCondition::BadRequest).text("an iq needs an id and one child");
            IqFlow::error(error.without_request())
        } else if to.as_deref().is_some_and(|to| to != host.domain()) {
            IqFlow::error(StanzaError::new(StanzaCondition::NotAuthorized).without_request())
        } else {
            handler.answer(&EarlyRequest { node: &node, host: &host, peer, secure, head: &head, bytes })
        };
        Some(match flow {
            IqFlow::Reply(answer) => Ok(Did::Said(reply(&answer, bytes, &head, host.domain()))),
            IqFlow::Wait(later) => {
                let bytes = bytes.to_vec();
                state.work = Some(Box::pin(async move {
                    let (answer, effects) = later.await;
                    node.perform(effects);
                    Ready::Early(reply(&answer, &bytes, &head, host.domain()))
                }));
                Ok(Did::Waits)
            }
        })
    }
}

/// A stranger has no address, so the answer has no `to`.
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
