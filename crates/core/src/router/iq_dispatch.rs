//! Dispatch of IQ requests that the server handles, and their responses: RFC 6120, section 8.2.3.

use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::{Head, StanzaCondition, StanzaError};

use super::ingest::rewrite_addresses;
use super::{Continuation, ResumedChain, RoutingWork};
use crate::effect::Effects;
use crate::host::Host;
use crate::iq::{IqAnswer, IqFlow, IqRequest, IqTarget};
use crate::node::Node;
use crate::provided::OwnedAccountRequests;
use crate::server_error::unreadable_stanza;
use crate::service::Service;
use crate::session::{Session, ToRewrite, flags};
use crate::shared_stanza::SharedStanza;

/// Destination of a deferred response.
pub(crate) struct IqReplyTarget {
    /// The requesting session, if it is on this node and wrote the request itself.
    session: Option<Arc<Session>>,
    /// Address of the requester.
    to: Jid,
    /// The `to` of the request.
    from: Option<Jid>,
    /// The raw id of the request.
    id: String,
    /// The request, for an error that includes it.
    request: Option<(Head, Vec<u8>)>,
}

impl IqReplyTarget {
    fn new(request: &RoutedIq<'_>) -> IqReplyTarget {
        let RoutedIq { session, from, to, head, bytes, .. } = *request;
        IqReplyTarget {
            session: session.cloned(),
            to: from.to_jid(),
            from: to.map(|to| to.to_jid()),
            id: head.raw_id(bytes).unwrap_or_default().to_owned(),
            request: Some((*head, bytes.to_vec())),
        }
    }
}

/// An IQ request on its way to its handler.
pub(crate) struct RoutedIq<'a> {
    /// The host that answers, or the host of the service.
    pub(crate) host: &'a Arc<Host>,
    pub(crate) service: Option<&'a Arc<Service>>,
    pub(crate) target: IqTarget,
    pub(crate) session: Option<&'a Arc<Session>>,
    pub(crate) from: JidRef<'a>,
    pub(crate) to: Option<JidRef<'a>>,
    pub(crate) head: &'a Head,
    pub(crate) bytes: &'a [u8],
}

impl<'a> RoutedIq<'a> {
    /// A request that has come as a stanza, with both addresses.
    pub(super) fn of_stanza(
        (host, service): (&'a Arc<Host>, Option<&'a Arc<Service>>),
        target: IqTarget,
        stanza: &'a SharedStanza,
        (from, to): (JidRef<'a>, JidRef<'a>),
    ) -> RoutedIq<'a> {
        let (head, bytes) = (stanza.head(), stanza.bytes());
        RoutedIq { host, service, target, session: None, from, to: Some(to), head, bytes }
    }

    /// The same, to an account.
    pub(super) fn to_account(
        host: &'a Arc<Host>,
        stanza: &'a SharedStanza,
        (from, to): (JidRef<'a>, JidRef<'a>),
    ) -> RoutedIq<'a> {
        let target = if from.bare() == to.bare() { IqTarget::OwnAccount } else { IqTarget::Account };
        RoutedIq::of_stanza((host, None), target, stanza, (from, to))
    }
}

impl Node {
    /// Answers a request, here or on the node of the cluster that owns what it concerns.
    pub(crate) fn dispatch_iq(self: &Arc<Self>, request: &RoutedIq<'_>, work: &mut RoutingWork) {
        if !self.forward_to_owner_of_account(request, work) {
            self.answer_iq(request, work);
        }
    }

    /// Finds the handler and runs it.
    fn answer_iq(self: &Arc<Self>, request: &RoutedIq<'_>, work: &mut RoutingWork) {
        let RoutedIq { host, service, target, session, from, to, head, bytes } = *request;
        let table = service.map_or(&host.iq, |service| &service.iq);
        let flow = match table.find(target, head, bytes) {
            None => {
                IqFlow::error(service.map_or(StanzaCondition::ServiceUnavailable, |s| s.unhandled(target)))
            }
            Some(handler) => {
                let mut effects = Effects::default();
                let mut iq = IqRequest {
                    node: self,
                    host,
                    service,
                    session,
                    from,
                    to,
                    head,
                    bytes,
                    effects: &mut effects,
                };
                let flow = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler.answer(&mut iq)));
                work.effects.0.append(&mut effects.0);
                flow.unwrap_or_else(|_| {
                    tracing::error!(target = target.as_str(), "a request handler panicked");
                    IqFlow::error(StanzaCondition::InternalServerError)
                })
            }
        };
        match flow {
            IqFlow::Reply(answer) => self.apply_iq_answer(request, answer, work),
            IqFlow::Detached(later) => {
                let (reply, node) = (IqReplyTarget::new(request), self.clone());
                self.spawner.spawn(
                    "iq-answer",
                    Box::pin(async move {
                        let answer = base::spawn::catch_unwind(later).await.unwrap_or_else(|| {
                            tracing::error!(target = target.as_str(), "a detached request handler panicked");
                            Err(StanzaCondition::InternalServerError.into())
                        });
                        let mut work = RoutingWork::default();
                        node.send_iq_reply(reply, answer, &mut work);
                        node.perform_effects_spawned(work);
                    }),
                );
            }
            IqFlow::Wait(later) => {
                let reply = IqReplyTarget::new(request);
                work.pending.push(Box::pin(async move {
                    let (answer, effects) = base::spawn::catch_unwind(later).await.unwrap_or_else(|| {
                        tracing::error!(
                            target = target.as_str(),
                            "a request handler panicked after it had waited"
                        );
                        (Err(StanzaCondition::InternalServerError.into()), Effects::default())
                    });
                    ResumedChain { effects, continuation: Continuation::Reply { reply, answer } }
                }));
            }
        }
    }

    /// Passes a request that concerns what an account owns on to the node of the cluster that owns it; false if that is this one.
    fn forward_to_owner_of_account(self: &Arc<Self>, request: &RoutedIq<'_>, work: &mut RoutingWork) -> bool {
        let Some(peers) = self.peers() else { return false };
        if !matches!(request.target, IqTarget::OwnAccount | IqTarget::Account) {
            return false;
        }
        let owned = request.host.extensions.get::<OwnedAccountRequests>();
        if !owned.is_some_and(|owned| (owned.0)(request.host, request.head, request.bytes)) {
            return false;
        }
        // Anonymous users are known on the node of their session only, and own nothing.
        if request.session.is_some_and(|session| session.flags.has(flags::EPHEMERAL)) {
            return false;
        }
        let account = request.to.unwrap_or(request.from).bare();
        // What comes from a session is as its client wrote it, but the owner answers the address in the stanza.
        let from = request.from.as_str();
        let read = rewrite_addresses(request.bytes, request.head, from, Some(account), 0);
        let refuse = |error| self.apply_iq_answer(request, Err(unreadable_stanza(error)), work);
        let Ok(stanza) = read.map_err(refuse) else { return true };
        let hash = self.routing_table.hash(account);
        let is_forwarded = peers.forward_service_stanza(self, &stanza, account, hash, work);
        if let (true, Some(session), Some(id)) =
            (is_forwarded, request.session, request.head.id(request.bytes))
        {
            session.record_request(account, &id);
        }
        is_forwarded
    }

    /// Answers a request to an account that another node has passed on, since this one owns what it concerns; also if this one
    /// sees another owner.
    pub fn answer_for_account(
        self: &Arc<Self>,
        host: &Arc<Host>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        if stanza.kind().is_request() && to.resource().is_none() {
            self.answer_iq(&RoutedIq::to_account(host, stanza, (from, to)), work);
        }
    }

    fn apply_iq_answer(self: &Arc<Self>, request: &RoutedIq<'_>, answer: IqAnswer, work: &mut RoutingWork) {
        // Effects precede the response: a roster push comes before its result.
        self.perform_now(work);
        let id = request.head.raw_id(request.bytes).unwrap_or_default();
        let from = request.to.map(|t| t.as_str());
        let bytes = match answer {
            Ok(payload) => Some(build_iq_result(from, request.from.as_str(), id, &payload)),
            Err(error) => error.reply(request.bytes, request.head, from, Some(request.from.as_str())),
        };
        let Some(stanza) = build_iq_reply(bytes, (request.head, request.bytes), from, request.from.as_str())
        else {
            return;
        };
        match request.session {
            Some(session) => self.push(session, stanza, ToRewrite::None, work),
            None => self.route(stanza, request.to.unwrap_or(request.host.jid.as_ref()), request.from, work),
        }
    }

    /// Sends a deferred response.
    pub(crate) fn send_iq_reply(
        self: &Arc<Self>,
        reply: IqReplyTarget,
        answer: IqAnswer,
        work: &mut RoutingWork,
    ) {
        let from = reply.from.as_ref().map(|f| f.as_ref().as_str());
        let to = reply.to.as_ref();
        let bytes = match answer {
            Ok(payload) => Some(build_iq_result(from, to.as_str(), &reply.id, &payload)),
            Err(error) => reply
                .request
                .as_ref()
                .and_then(|(head, bytes)| error.reply(bytes, head, from, Some(to.as_str()))),
        };
        let request = reply.request.as_ref().map(|(head, bytes)| (head, bytes.as_slice()));
        let Some(stanza) = request.and_then(|request| build_iq_reply(bytes, request, from, to.as_str()))
        else {
            return;
        };
        match &reply.session {
            Some(session) => self.push(session, stanza, ToRewrite::None, work),
            None => {
                let from = reply.from.as_ref().unwrap_or(&reply.to).as_ref();
                self.route(stanza, from, to, work);
            }
        }
    }

    /// Handles a stanza to the domain itself (RFC 6120, sections 10.5.1 and 10.5.2).
    pub(crate) fn handle_server_stanza(
        self: &Arc<Self>,
        host: &Arc<Host>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        if !stanza.kind().is_request() {
            if matches!(stanza.kind(), stanza::StanzaKind::Message(t) if t != stanza::MessageType::Error) {
                let error = StanzaError::new(StanzaCondition::ServiceUnavailable);
                self.bounce(stanza, from, to, &error, work);
            }
            return;
        }
        self.dispatch_iq(&RoutedIq::of_stanza((host, None), IqTarget::Server, stanza, (from, to)), work);
    }
}

/// Parses the response. A request is always answered (RFC 6120, section 8.2.3): if the response cannot be
/// parsed, with an error.
fn build_iq_reply(
    answer: Option<Vec<u8>>,
    (head, bytes): (&Head, &[u8]),
    from: Option<&str>,
    to: &str,
) -> Option<SharedStanza> {
    let answer = answer?;
    let stanza = SharedStanza::parse(&answer).or_else(|| {
        let error = StanzaError::new(StanzaCondition::InternalServerError).without_request();
        error.reply(bytes, head, from, Some(to)).and_then(|bytes| SharedStanza::parse(&bytes))
    })?;
    stanza.mark_server_answer();
    Some(stanza)
}

fn build_iq_result(from: Option<&str>, to: &str, raw_id: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + to.len() + payload.len());
    out.extend_from_slice(b"<iq type='result'");
    if let Some(from) = from {
        out.extend_from_slice(b" from='");
        xml::escape::attr(from, &mut out);
        out.push(b'\'');
    }
    out.extend_from_slice(b" to='");
    xml::escape::attr(to, &mut out);
    // Copied as it was written, in the quotes that it permits.
    out.extend_from_slice(b"' id");
    xml::escape::raw_attr_value(raw_id, &mut out);
    if payload.is_empty() {
        out.extend_from_slice(b"/>");
    } else {
        out.push(b'>');
        out.extend_from_slice(payload);
        out.extend_from_slice(b"</iq>");
    }
    out
}
