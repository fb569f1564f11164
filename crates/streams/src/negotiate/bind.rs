//! Resource binding: RFC 6120 section 7.

use ::sasl::Failure;
use stanza::{Element, ErrorType, IqType, Kind, StanzaCondition, StanzaError, StreamCondition, StreamError};
use throng_core::fault::Fault;
use throng_core::{Admission, Principal};
use xml::{Ns, Tree, Writer};

use super::{Did, Ready, Taken};
use crate::c2s::{Connection, Phase};
use crate::sm;

impl Connection {
    /// A stanza before a resource is bound: nothing but the request for one. `principal`: what was read from the store for
    /// this request. It is not kept when the request is refused: a client that never binds must not hold a roster.
    pub(super) fn bind(&mut self, bytes: &[u8], principal: Option<Principal>) -> Taken {
        let limits = self.service.node.limits().negotiation();
        let scope = self.scope.clone();
        let mut portable = Vec::new();
        let (head, bytes) = match Element::read(bytes, &scope, &limits)? {
            Element::Stanza(head) => (head, bytes),
            Element::NotPortable => {
                xml::normalise(bytes, &scope, &limits, &mut portable)?;
                match Element::read(&portable, &xml::Scope::client(), &limits)? {
                    Element::Stanza(head) => (head, portable.as_slice()),
                    _ => return Err(StreamCondition::UnsupportedStanzaType.into()),
                }
            }
            _ => return Err(StreamCondition::UnsupportedStanzaType.into()),
        };
        let is_bind = head.first.is_some_and(|f| f.ns == Some(Ns::Bind) && f.name.str(bytes) == "bind");
        if head.kind != Kind::Iq(IqType::Set) || !is_bind {
            // RFC 6120 section 7.1: stanzas need a resource first.
            return Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("bind a resource before you send stanzas"));
        }
        let refuse =
            |error: &StanzaError| Ok(Did::Said(error.reply(bytes, &head, None, None).unwrap_or_default()));
        let Some(id) = head.raw_id(bytes) else {
            return refuse(&StanzaError::new(StanzaCondition::BadRequest).text("an iq needs an id"));
        };
        let client = xml::Scope::client();
        let tree = Tree::parse(bytes, &client, &limits)?;
        let wanted = tree.root().child("bind", Ns::Bind).and_then(|b| b.child("resource", Ns::Bind));
        let wanted = wanted.map(|r| r.text().into_owned());
        let node = self.service.node.clone();
        let link = self.link.clone();
        let Phase::Negotiating(state) = &mut self.phase else { return Ok(Did::Waits) };
        let Some(principal) = principal else {
            let Some(identity) = &state.identity else { return Err(StreamCondition::NotAuthorized.into()) };
            if let Err(error) = node.may_bind(identity.jid.as_ref(), wanted.as_deref()) {
                return refuse(&error);
            }
            state.binding = bytes.to_vec();
            return self.load();
        };
        match node.bind(principal, wanted.as_deref(), &link) {
            Err(error) => refuse(&error),
            Ok(session) => {
                let mut out = Vec::with_capacity(192);
                let mut w = Writer::new(&mut out);
                w.start("iq").attr("type", "result").attr_raw("id", id);
                w.start("bind").ns(Ns::Bind).leaf("jid", session.full().as_str()).end().end();
                Ok(Did::Bound(session, out))
            }
        }
    }

    /// Reads what a session begins with, now that the client has proved who it is and wants one.
    pub(super) fn load(&mut self) -> Taken {
        let node = self.service.node.clone();
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let Some(identity) = state.identity.clone() else {
            return Err(StreamCondition::NotAuthorized.into());
        };
        state.work = Some(Box::pin(async move { Ready::Loaded(node.load(identity).await) }));
        Ok(Did::Waits)
    }

    /// The store has answered.
    pub(super) fn loaded(&mut self, done: Result<Admission, Fault>) -> Taken {
        let Some(state) = self.state() else { return Ok(Did::Waits) };
        let waiting = std::mem::take(&mut state.binding);
        match done {
            Ok(Admission::Granted(principal)) if waiting.is_empty() => self.bind_inline(*principal),
            Ok(Admission::Granted(principal)) => self.bind(&waiting, Some(*principal)),
            // XEP-0388 section 3.6.2: success was not sent yet.
            Ok(Admission::Disabled) if waiting.is_empty() => {
                self.failed_login(Failure::AccountDisabled, "disabled")
            }
            Ok(Admission::Revoked) if waiting.is_empty() => {
                self.failed_login(Failure::NotAuthorized, "account changed")
            }
            // RFC 6120 has no way back from success but the end of the stream.
            Ok(Admission::Disabled) => {
                Err(StreamError::new(StreamCondition::NotAuthorized).text("the account was disabled"))
            }
            Ok(Admission::Revoked) => Err(StreamError::new(StreamCondition::NotAuthorized)
                .text("the account was removed or its password changed")),
            Err(fault) => {
                tracing::warn!(cause = %fault.cause, "a session could not be read from the store");
                if waiting.is_empty() {
                    // Success is due; the client may bind as in RFC 6120 when the store is back.
                    return self.begin_session(None);
                }
                let client = xml::Scope::client();
                let limits = self.service.node.limits().negotiation();
                let Ok(Element::Stanza(head)) = Element::read(&waiting, &client, &limits) else {
                    return Err(StreamCondition::InternalServerError.into());
                };
                let error = StanzaError::new(StanzaCondition::InternalServerError)
                    .kind(ErrorType::Wait)
                    .text("the account cannot be read; try again later");
                Ok(Did::Said(error.reply(&waiting, &head, None, None).unwrap_or_default()))
            }
        }
    }

    /// Instead of binding a resource the client goes on with a lost stream: XEP-0198 section 5.
    pub(super) fn resume(&mut self, bytes: &[u8]) -> Taken {
        let limits = self.service.node.limits().negotiation();
        let tree = Tree::parse(bytes, &self.scope, &limits)?;
        let Phase::Negotiating(state) = &mut self.phase else { return Ok(Did::Waits) };
        let Some(identity) = &state.identity else {
            return Err(StreamCondition::NotAuthorized.into());
        };
        let account = identity.jid.as_ref();
        let resumed = sm::resume(&self.service.node, &identity.host, account, tree.root());
        state.work = Some(Box::pin(async move { Ready::Resume(resumed.await) }));
        Ok(Did::Waits)
    }

    /// The old stream has let go of its session, or there was none.
    pub(super) fn resume_ready(&mut self, answer: sm::Answer) -> Taken {
        if self.state().is_some_and(|state| state.request.is_some()) {
            return self.resumed_sasl2(answer);
        }
        match answer {
            sm::Answer::Resumed(session, bytes) => Ok(Did::Resumed(session, bytes)),
            sm::Answer::Failed(bytes) => Ok(Did::Said(bytes)),
            sm::Answer::Ended(error) => Err(error),
        }
    }
}
