//! Elements of stream management: XEP-0198 (1.6.3). Counters and unacknowledged stanzas are in the outbox
//! (`throng_core::session::stream_management`).
//!
//! `<enable/>` on a bound stream or within Bind 2, `<r/>` and `<a/>` in both directions, `<resume/>` in place of
//! binding or within SASL2. Both `urn:xmpp:sm:3` and the older `urn:xmpp:sm:2` are supported; they differ in name only.
//!
//! The identifier of a stream is a random token and the resource. The account is the authenticated one, so an
//! identifier of another account matches nothing, and there is no table of identifiers that could be flooded. If this node has no
//! such session, the nodes with sessions of the account are asked for it (`peers/src/session_transfer`).
//!
//! `<r/>` is answered at once with the number of stanzas that are safe. Those before it that become safe later are announced
//! with an unsolicited `<a/>`, one for all of them; so are stanzas for which something was written, and the final number
//! before the stream ends.
//!
//! Not implemented: server-to-server streams.
//!
//! # Pitfalls
//!
//! `<enabled/>` and `<resumed/>` are written to the output directly, stanzas only through the outbox. Stanzas are
//! counted when they leave the outbox after that, so none may be written past it.

use std::sync::Arc;

use access::login::{LoginIdentity, load_principal};
use base::spawn::BoxFuture;
use jid::JidRef;
use stanza::{StanzaCondition, StreamCondition, StreamError};
use throng_core::session::stream_management::{
    HandledCountTooHigh, TOKEN_BYTES, TakeoverError, TransferRefusal, WantedStream,
};
use throng_core::session::{StreamManagementConfig, StreamManagementTerms, flags};
use throng_core::{Host, Node, Outbox, Principal, Session};
use xml::{Ns, Writer};

use crate::detached::DetachedSession;

/// `<r/>` by namespace.
const REQUEST: [&[u8]; 2] = [b"<r xmlns='urn:xmpp:sm:3'/>", b"<r xmlns='urn:xmpp:sm:2'/>"];

/// Result of a request to resume.
pub(crate) enum ResumeOutcome {
    /// The connection continues this session; send `<resumed/>`.
    Resumed(Arc<Session>, Vec<u8>),
    /// Send `<failed/>`; the client may bind a resource.
    Failed(Vec<u8>),
    /// The stream must end.
    Ended(StreamError),
}

/// Namespace of the older or the current version.
fn ns(old: bool) -> Ns {
    if old { Ns::Sm2 } else { Ns::Sm3 }
}

fn is_old(element: &xml::TreeNode<'_>) -> bool {
    element.ns() == Some(Ns::Sm2)
}

/// `<r/>`
pub(crate) fn request(terms: StreamManagementTerms) -> &'static [u8] {
    REQUEST[usize::from(terms.sm2)]
}

/// The settings of a host; `None` if stream management is disabled.
pub(crate) fn config(host: &Host) -> Option<&StreamManagementConfig> {
    host.extensions.get()
}

/// `<a/>` with the number of handled stanzas; empty if stream management is not enabled.
pub(crate) fn ack(session: &Session) -> Vec<u8> {
    let Some(terms) = session.outbox.management_terms() else { return Vec::new() };
    let mut out = Vec::with_capacity(48);
    let mut w = Writer::new(&mut out);
    w.start("a").ns(ns(terms.sm2)).attr("h", &session.outbox.handled_count().to_string()).end();
    out
}

/// `<failed/>` (section 6), with the number of handled stanzas of a stream that has ended.
pub(crate) fn failed(old: bool, condition: StanzaCondition, h: Option<u32>) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut w = Writer::new(&mut out);
    w.start("failed").ns(ns(old));
    if let Some(h) = h {
        w.attr("h", &h.to_string());
    }
    w.start(condition.as_str()).ns(Ns::Stanzas).end().end();
    out
}

/// `<failed/>` for an element of stream management that is not allowed here (section 3).
pub(crate) fn unexpected(namespace: Ns) -> Vec<u8> {
    failed(namespace == Ns::Sm2, StanzaCondition::UnexpectedRequest, None)
}

/// Stream error for a peer that acknowledges more stanzas than it was sent (section 6).
pub(crate) fn too_high(error: HandledCountTooHigh) -> StreamError {
    let HandledCountTooHigh { h, sent } = error;
    StreamError::new(StreamCondition::UndefinedCondition)
        .text(format!("you acknowledged {h} stanzas, but only {sent} were sent"))
        .application_condition(format!(
            "<handled-count-too-high xmlns='urn:xmpp:sm:3' h='{h}' send-count='{sent}'/>"
        ))
}

fn number(element: &xml::TreeNode<'_>, name: &str) -> Option<u32> {
    element.attr(name)?.trim().parse().ok()
}

fn is_true(element: &xml::TreeNode<'_>, name: &str) -> bool {
    element.attr(name).is_some_and(|value| matches!(value.trim(), "true" | "1"))
}

/// Handles `<enable/>` of a bound session (section 3), also within binding (section 9.1). The answer must be written
/// before anything from the session's outbox.
pub(crate) fn enable(session: &Session, element: xml::TreeNode<'_>) -> Vec<u8> {
    let old = is_old(&element);
    let host = session.account.host();
    let Some(management) = config(&host) else {
        return failed(old, StanzaCondition::FeatureNotImplemented, None);
    };
    // An anonymous user cannot log in again to resume.
    let resume =
        management.resume_seconds > 0 && is_true(&element, "resume") && !session.flags.has(flags::EPHEMERAL);
    let wanted = number(&element, "max").filter(|max| *max > 0);
    let seconds = if resume { wanted.unwrap_or(u32::MAX).min(management.resume_seconds) } else { 0 };
    let token = if resume { base::id::random_bytes::<TOKEN_BYTES>() } else { [0; TOKEN_BYTES] };
    if !session.outbox.enable_management(
        StreamManagementTerms { resume_seconds: seconds, unacked_bytes: management.unacked_bytes, sm2: old },
        token,
    ) {
        return failed(old, StanzaCondition::UnexpectedRequest, None);
    }
    session.flags.set(flags::STREAM_MANAGEMENT);
    let mut out = Vec::with_capacity(160);
    let mut w = Writer::new(&mut out);
    w.start("enabled").ns(ns(old));
    if resume {
        w.attr("id", &identifier(&token, session.resource())).attr("resume", "true");
        w.attr("max", &seconds.to_string());
        if !management.location.is_empty() {
            w.attr("location", &management.location);
        }
    }
    w.end();
    out
}

/// Handles `<a/>` (section 4).
///
/// # Errors
/// If `h` is missing, not a number or too high.
pub(crate) fn acknowledge(
    node: &Arc<Node>,
    session: &Session,
    element: xml::TreeNode<'_>,
) -> Result<(), StreamError> {
    let h = number(&element, "h").ok_or_else(|| {
        StreamError::new(StreamCondition::BadFormat).text("<a/> requires a numeric 'h' attribute")
    })?;
    session.outbox.acknowledge(h).map_err(too_high)?;
    node.remove_delivered_backups(session);
    Ok(())
}

fn identifier(token: &[u8], resource: &str) -> String {
    let mut id = String::with_capacity(2 * TOKEN_BYTES + 1 + resource.len());
    for byte in token {
        for half in [byte >> 4, byte & 15] {
            id.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
        }
    }
    id + ":" + resource
}

fn split(id: &str) -> Option<([u8; TOKEN_BYTES], &str)> {
    let (hex, resource) = id.split_once(':')?;
    let mut token = [0; TOKEN_BYTES];
    if hex.len() != 2 * TOKEN_BYTES {
        return None;
    }
    for (byte, pair) in token.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((token, resource))
}

/// Handles `<resume/>` of an authenticated account (sections 5 and 9.2). `principal`: the initial data of a session, if it was
/// read.
///
/// The future waits until the holder of the session hands it over, which may be another node; dropping the future cancels the
/// request. On [`ResumeOutcome::Resumed`] the caller must attach the session immediately
/// ([`crate::negotiate::NegotiationOutcome::Resumed`]).
pub(crate) fn resume(
    node: &Arc<Node>,
    identity: &LoginIdentity,
    principal: Option<Principal>,
    element: xml::TreeNode<'_>,
) -> BoxFuture<'static, ResumeOutcome> {
    let old = is_old(&element);
    let account = identity.jid.as_ref();
    let done = |answer: Vec<u8>| -> BoxFuture<'static, ResumeOutcome> {
        Box::pin(std::future::ready(ResumeOutcome::Failed(answer)))
    };
    if config(&identity.host).is_none_or(|config| config.resume_seconds == 0) {
        return done(failed(old, StanzaCondition::FeatureNotImplemented, None));
    }
    let (Some(previd), Some(h)) = (element.attr("previd"), number(&element, "h")) else {
        return done(failed(old, StanzaCondition::BadRequest, None));
    };
    let Some((token, resource)) = split(&previd) else {
        return done(failed(old, StanzaCondition::ItemNotFound, None));
    };
    let hash = node.routing_table.hash(account);
    let unknown = {
        let node = node.clone();
        move || failed(old, StanzaCondition::ItemNotFound, node.ended_streams.get(hash, &token))
    };
    let session = node.routing_table.find(account).and_then(|a| a.session(resource));
    let who = Outbox::next_claimant();
    let requested = session.map(|session| (session.outbox.request_takeover(&token, h, who), session));
    let session = match requested {
        Some((Ok(()), session)) => session,
        Some((Err(TakeoverError::TooHigh(error)), _)) => {
            return Box::pin(std::future::ready(ResumeOutcome::Ended(too_high(error))));
        }
        None | Some((Err(TakeoverError::UnknownToken), _)) => {
            if node.may_be_elsewhere(account) {
                let stream = WantedStream { token, resource: resource.into(), h };
                return resume_from_peer(node, identity.clone(), principal, stream, previd.into_owned(), old);
            }
            return done(unknown());
        }
    };
    let previd = previd.into_owned();
    let claim = TakeoverRequest { node: node.clone(), session, who, pending: true };
    Box::pin(async move {
        let mut claim = claim;
        let (node, session) = (claim.node.clone(), claim.session.clone());
        if !std::future::poll_fn(|cx| session.outbox.poll_takeover(cx, who)).await {
            drop(claim);
            return ResumeOutcome::Failed(unknown());
        }
        claim.pending = false;
        match session.outbox.resume(h) {
            Err(error) => {
                DetachedSession::start(&node, &session, None);
                ResumeOutcome::Ended(too_high(error))
            }
            Ok(handled) => {
                node.remove_delivered_backups(&session);
                resumed(&node, session, &previd, handled, old)
            }
        }
    })
}

fn resumed(node: &Arc<Node>, session: Arc<Session>, previd: &str, handled: u32, old: bool) -> ResumeOutcome {
    node.metrics.sessions_resumed.inc();
    // XEP-0352, section 4.2: a resumed stream is active.
    session.flags.clear(flags::INACTIVE);
    node.session_resumed(&session);
    let mut out = Vec::with_capacity(128);
    let mut w = Writer::new(&mut out);
    w.start("resumed").ns(ns(old)).attr("previd", previd);
    w.attr("h", &handled.to_string()).end();
    ResumeOutcome::Resumed(session, out)
}

/// A session that was taken over from another node and waits for its connection. Dropped before, it is detached.
struct UnattachedSession {
    node: Arc<Node>,
    session: Option<Arc<Session>>,
}

impl Drop for UnattachedSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            DetachedSession::start(&self.node, &session, None);
        }
    }
}

/// Takes a session over from another node. That goes on in a task of its own: a client whose connection breaks meanwhile finds the
/// session here.
fn resume_from_peer(
    node: &Arc<Node>,
    identity: LoginIdentity,
    principal: Option<Principal>,
    stream: WantedStream,
    previd: String,
    old: bool,
) -> BoxFuture<'static, ResumeOutcome> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (hash, token) = (node.routing_table.hash(identity.jid.as_ref()), stream.token);
    let task_node = node.clone();
    node.spawner.spawn(
        "resumption from another node",
        Box::pin(async move {
            let node = task_node;
            let principal = match principal {
                Some(principal) => Some(principal),
                None => match load_principal(&node, identity).await {
                    Ok(admission) => admission.granted(),
                    Err(fault) => {
                        tracing::warn!(cause = %fault.cause, "could not read the data of a session");
                        let _ = sender.send(Err(StanzaCondition::InternalServerError));
                        return;
                    }
                },
            };
            let taken = match principal {
                Some(principal) => node.peer_routing().take_session(&node, principal, stream).await,
                None => Err(TransferRefusal::Unknown(None)),
            };
            let taken = taken.map(|(session, handled)| {
                (UnattachedSession { node: node.clone(), session: Some(session) }, handled)
            });
            let _ = sender.send(Ok(taken));
        }),
    );
    let node = node.clone();
    Box::pin(async move {
        let outcome = match receiver.await {
            Ok(Ok(taken)) => taken,
            Ok(Err(condition)) => return ResumeOutcome::Failed(failed(old, condition, None)),
            Err(_) => Err(TransferRefusal::Unknown(None)),
        };
        match outcome {
            Ok((mut unattached, handled)) => match unattached.session.take() {
                Some(session) => resumed(&node, session, &previd, handled, old),
                None => ResumeOutcome::Failed(failed(old, StanzaCondition::ItemNotFound, Some(handled))),
            },
            Err(TransferRefusal::TooHigh(error)) => ResumeOutcome::Ended(too_high(error)),
            Err(TransferRefusal::Unknown(handled)) => {
                let handled = handled.or_else(|| node.ended_streams.get(hash, &token));
                ResumeOutcome::Failed(failed(old, StanzaCondition::ItemNotFound, handled))
            }
        }
    })
}

/// Whether [`resume`] would succeed at present with a session of this node. Changes nothing.
///
/// # Errors
/// The stream error with which [`resume`] would end the stream.
pub(crate) fn may_resume(
    node: &Node,
    host: &Host,
    account: JidRef<'_>,
    element: xml::TreeNode<'_>,
) -> Result<bool, StreamError> {
    if config(host).is_none_or(|config| config.resume_seconds == 0) {
        return Ok(false);
    }
    let previd = element.attr("previd");
    let parsed = previd.as_deref().and_then(split).zip(number(&element, "h"));
    let Some(((token, resource), h)) = parsed else { return Ok(false) };
    let Some(session) = node.routing_table.find(account).and_then(|a| a.session(resource)) else {
        return Ok(false);
    };
    match session.outbox.check_takeover(&token, h) {
        Ok(()) => Ok(true),
        Err(TakeoverError::UnknownToken) => Ok(false),
        Err(TakeoverError::TooHigh(error)) => Err(too_high(error)),
    }
}

/// Pending request to take over a session that another connection holds.
struct TakeoverRequest {
    node: Arc<Node>,
    session: Arc<Session>,
    who: u64,
    pending: bool,
}

impl Drop for TakeoverRequest {
    /// Cancels the request. If the session was already handed over, it is detached again.
    fn drop(&mut self) {
        if self.pending && self.session.outbox.cancel_takeover(self.who) {
            DetachedSession::start(&self.node, &self.session, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://xmpp.org/extensions/xep-0198.html#resumption
    //= type=test
    //# The SM-ID MUST be generated by the server.
    #[test]
    fn an_identifier_holds_token_and_resource() {
        let token = [0, 1, 0xFE, 0xFF, 16, 32, 64, 128, 1, 2, 3, 4, 5, 6, 7, 8];
        for resource in ["balcony", "a:b", "\u{e9}t\u{e9} 'x'", ""] {
            let id = identifier(&token, resource);
            assert_eq!(split(&id), Some((token, resource)), "{id}");
        }
        for wrong in ["", ":", "0001:x", "zz0102030405060708090a0b0c0d0e0f:x", "\u{e9}".repeat(40).as_str()] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}
