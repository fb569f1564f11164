//! Requests for sessions of other nodes: the interface to the cluster, the octets between the nodes, and the response
//! that waits for another node (XEP-0124, sections 7 and 17).
//!
//! 32 bits of a session identifier name its node ([`node_tag`]), so any node can find it.
//!
//! ```text
//! request    1 flags (1: encrypted), 16 session identifier; the rest: the body     numbers are big-endian
//! response   2 status, 1 flags (1: close, 2: the session exists), 1 + n content type; the rest: the body
//! ```
//!
//! The holder of a session applies the session's limits, and never forwards again. It learns from
//! [`ForwardedRequest::response_sent`] that the client has a response, and from its drop that the connection broke, so a
//! session on another node behaves like one here.
//!
//! Not implemented: the transport, which is a [`BoshForwarder`].
//!
//! # Pitfalls
//!
//! Two nodes may have the same tag, once in four billion. Sessions of the second one are then reached on that node only.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::request::is_valid_content_type;
use super::response::{Condition, RECOVERABLE};
use super::{BoshResponse, BoshSessionTable};

/// Position of the node's tag in a session identifier: neither bits that choose a shard nor those of the hash in it.
const TAG_SHIFT: u32 = 64;
const SECURE: u8 = 1;
const CLOSE: u8 = 1;
const FOUND: u8 = 2;

/// Why a request has no response of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingError {
    /// No node can have the session: there is none with this tag, it is gone, or it does not know forwarded requests.
    NoSession,
    /// The client should send the request again: too much is under way, or the other node did not answer in time.
    Retry,
    /// The request is larger than any that can be forwarded.
    TooLarge,
}

/// Sends requests to the nodes of their sessions.
pub trait BoshForwarder: Send + Sync {
    /// Tag of this node, which identifies it among the members of the cluster.
    fn own_tag(&self) -> u32;
    /// Maximum octets of a request.
    fn max_request_bytes(&self) -> usize;
    /// Maximum octets of a response.
    fn max_response_bytes(&self) -> usize;
    /// Sends a request to the node with this tag, and waits that many seconds for its response. `client`: a number for the
    /// client's address, of which one must not use everything.
    ///
    /// # Errors
    /// If nothing was sent.
    fn forward(
        &self,
        tag: u32,
        client: u64,
        request: &[u8],
        seconds: u32,
    ) -> Result<Box<dyn ForwardedRequest>, ForwardingError>;
    /// This node shuts down: ends all waiting requests with [`ForwardingError::Retry`].
    fn close(&self);
}

/// A request that another node answers. Dropping it before the response was sent tells that node that the connection broke.
pub trait ForwardedRequest: Send {
    /// The response, once. Until then the task is woken when there is one; only the last waker is stored.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ForwardingError>>;
    /// The kernel has taken the response.
    fn response_sent(&mut self);
}

/// Tag of the node that created a session.
#[allow(clippy::cast_possible_truncation, reason = "the lower half of what is left")]
pub(super) const fn node_tag(sid: u128) -> u32 {
    (sid >> TAG_SHIFT) as u32
}

/// A random identifier with the tag of a node.
pub(super) const fn with_node_tag(sid: u128, tag: u32) -> u128 {
    sid & !((u32::MAX as u128) << TAG_SHIFT) | (tag as u128) << TAG_SHIFT
}

pub(super) fn encode_request(secure: bool, sid: u128, body: &[u8]) -> Vec<u8> {
    let flags = if secure { SECURE } else { 0 };
    [&[flags][..], &sid.to_be_bytes(), body].concat()
}

/// Whether the connection is encrypted, the session, and the body.
pub(super) fn decode_request(octets: &[u8]) -> Option<(bool, u128, &[u8])> {
    let (flags, rest) = octets.split_first()?;
    let (sid, body) = rest.split_first_chunk()?;
    Some((flags & SECURE != 0, u128::from_be_bytes(*sid), body))
}

/// Maximum octets before the body of a response.
pub(super) const MAX_HEAD_BYTES: usize = 4 + u8::MAX as usize;

/// What precedes the body of a response.
pub(super) fn encode_head(response: &BoshResponse, found: bool) -> Vec<u8> {
    let content_type = response.content_type.as_deref().unwrap_or_default();
    // Validated when the session was created; a longer one would be a bug, and the default is valid XML for all clients.
    let (length, content_type) = u8::try_from(content_type.len()).map_or((0, ""), |n| (n, content_type));
    let flags = if response.close { CLOSE } else { 0 } | if found { FOUND } else { 0 };
    let [high, low] = response.status.to_be_bytes();
    [&[high, low, flags, length], content_type.as_bytes()].concat()
}

/// The response, and whether the session exists. `None` if the octets are none.
fn decode_response(octets: &[u8]) -> Option<(BoshResponse, bool)> {
    let ([high, low, flags, length], rest) = octets.split_first_chunk()?;
    let (content_type, body) = rest.split_at_checked(usize::from(*length))?;
    let status = u16::from_be_bytes([*high, *low]);
    if !matches!(status, 200 | 400 | 403 | 404) {
        return None;
    }
    let content_type = match std::str::from_utf8(content_type).ok()? {
        "" => None,
        // It becomes a header.
        text if is_valid_content_type(text) => Some(text.into()),
        _ => return None,
    };
    let response = BoshResponse { status, body: body.into(), content_type, close: flags & CLOSE != 0 };
    Some((response, flags & FOUND != 0))
}

/// The response of another node to a request.
pub(super) struct ForwardedResponse {
    /// Absent after a response that the client never gets.
    pub(super) request: Option<Box<dyn ForwardedRequest>>,
    pub(super) table: Arc<BoshSessionTable>,
    pub(super) forwarded: ForwardedFor,
    /// The client expects HTTP errors.
    pub(super) legacy: bool,
}

/// What the limits of forwarding have counted a request for.
#[derive(Clone, Copy)]
pub(super) struct ForwardedFor {
    pub(super) sid: u128,
    pub(super) address: u64,
    pub(super) octets: u32,
    /// Requests per second of a session; 0: no limit.
    pub(super) rate: u32,
    /// It was counted for its address: no earlier request has shown that the session exists.
    pub(super) is_counted: bool,
}

impl ForwardedResponse {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        let Some(request) = &mut self.request else { return Poll::Pending };
        let Poll::Ready(result) = request.poll_response(cx) else { return Poll::Pending };
        let response = result.map(|octets| decode_response(&octets));
        if !matches!(response, Ok(Some(_))) {
            // What is sent instead must not confirm anything.
            self.request = None;
        }
        let found = match &response {
            Ok(Some((_, found))) => Some(*found),
            Ok(None) | Err(ForwardingError::NoSession) => Some(false),
            Err(ForwardingError::Retry | ForwardingError::TooLarge) => None,
        };
        self.table.on_forwarded_response(&self.forwarded, found);
        Poll::Ready(match response {
            Ok(Some((response, _))) => response,
            Ok(None) => failure(ForwardingError::NoSession, self.legacy),
            Err(error) => failure(error, self.legacy),
        })
    }
}

/// The response to a request that no node has answered: the client sends it again (section 17.3), or creates a new session
/// (section 17.2).
pub(super) fn failure(error: ForwardingError, legacy: bool) -> BoshResponse {
    let terminal = |condition: Condition| (condition.status(legacy), condition.body());
    let (status, body) = match error {
        ForwardingError::NoSession => terminal(Condition::ItemNotFound),
        ForwardingError::TooLarge => terminal(Condition::PolicyViolation),
        ForwardingError::Retry => (200, RECOVERABLE),
    };
    BoshResponse { status, body, content_type: None, close: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_has_the_tag_of_its_node_and_its_other_bits_stay() {
        let sid = with_node_tag(u128::MAX, 0x1234_5678);
        assert_eq!(node_tag(sid), 0x1234_5678);
        assert_eq!(sid, 0xffff_ffff_1234_5678_ffff_ffff_ffff_ffff);
    }

    #[test]
    fn a_request_survives_the_way_to_another_node() {
        for secure in [false, true] {
            let octets = encode_request(secure, u128::MAX - 1, b"<body/>");
            assert_eq!(decode_request(&octets), Some((secure, u128::MAX - 1, &b"<body/>"[..])));
        }
        assert_eq!(decode_request(&[0; 16]), None);
    }

    #[test]
    fn a_response_survives_the_way_back() {
        for (status, content_type, close, found) in [
            (200, None, false, true),
            (404, Some("text/html; charset=utf-8"), false, false),
            (403, None, true, true),
        ] {
            let content_type = content_type.map(Into::into);
            let response = BoshResponse { status, body: (&b"<body/>"[..]).into(), content_type, close };
            let octets = [&encode_head(&response, found)[..], &response.body].concat();
            assert_eq!(decode_response(&octets), Some((response, found)));
        }
    }

    #[test]
    fn a_response_that_no_correct_node_sends_is_refused() {
        for octets in [
            &b""[..],
            b"\x00\xc8\x02",
            b"\x00\xc8\x02\x05ab",
            b"\x00\xc8\x02\x08a/b\r\nX:1",
            b"\x00\xc8\x02\x02\xff\xffx",
            b"\x01\xf4\x02\x00x",
        ] {
            assert_eq!(decode_response(octets), None, "{octets:?}");
        }
    }
}
