//! BOSH: XMPP streams over long-polled HTTP requests (XEP-0124 1.11.2, XEP-0206 1.4, recommendations of XEP-0286).
//!
//! The HTTP server passes each request body to [`BoshSessionTable::handle_request`] and sends the [`BoshResponse`] that
//! its [`PendingResponse`] yields. A session is one [`crate::Stream`] for the layers above. The [`StreamStarter`] of
//! the table starts it; after that the stream's task and the requests share the session behind its lock.
//!
//! | File | Content |
//! | --- | --- |
//! | `request` | a `<body/>` from the client, as values and as payloads |
//! | `response` | a `<body/>` for the client |
//! | `state` | the rules: window, holding, replay, overactivity, pause, end; no I/O, time is a parameter |
//! | `session_types` | the types of the rules |
//! | `session` | the rules behind a lock |
//! | `key_sequence` | key sequencing |
//! | `session_table` | all sessions: creation, limits, the sweep |
//! | `pending_response` | one held request |
//! | `forwarding` | requests for sessions of other nodes: interface and octets |
//! | `forwarding_limits` | limits of requests for sessions that may not exist |
//! | `other_nodes` | the table as the sender and the receiver of such requests |
//! | `stream` | the session as a stream |
//!
//! Not implemented: multiple streams in a session (section 16), script syntax, `charsets`, `route`; `accept`, because
//! only whole HTTP requests are known to be small.
//!
//! # Pitfalls
//!
//! A held request owns no buffer, and a session has no timer: a new timeout belongs in [`BoshSessionTable::sweep`].

mod forwarding;
mod forwarding_limits;
mod key_sequence;
mod other_nodes;
mod pending_response;
mod request;
mod response;
mod session;
mod session_table;
mod session_types;
mod state;
pub(crate) mod stream;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use crate::connection_info::SharedListenerConfig;
use crate::stream::Stream;

pub use forwarding::{BoshForwarder, ForwardedRequest, ForwardingError};
pub use other_nodes::{ForwardedResponseParts, HeldForwardedRequest};
pub use pending_response::PendingResponse;
pub use session_table::BoshSessionTable;
pub(crate) use stream::BoshStream;

/// Settings of the operator. Times are whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoshSettings {
    /// Maximum time in seconds that a request is held; a longer `wait` of the client is reduced to it.
    pub max_wait_seconds: u32,
    /// Seconds without a request after which a session ends; for polling sessions twice this plus `polling_seconds`.
    pub max_inactivity_seconds: u32,
    /// Maximum pause in seconds; 0: pauses are not offered.
    pub max_pause_seconds: u32,
    /// Maximum number of held requests per session. A client may have one more under way.
    pub max_hold: u8,
    /// Minimum seconds between two empty requests of a polling session; 0: no limit.
    pub polling_seconds: u32,
    /// Maximum size of a request body in bytes: the wrapper and an element of the maximum size fit.
    pub body_bytes: usize,
    /// Concurrent sessions; 0: no limit.
    pub sessions: u32,
    /// Concurrent sessions from one IPv4 address or one IPv6 /64; 0: no limit.
    pub sessions_per_address: u32,
    /// Sustained requests per second of one session, with a burst of five times as many. 0: no limit.
    pub requests_per_second: u32,
}

impl Default for BoshSettings {
    fn default() -> BoshSettings {
        BoshSettings {
            max_wait_seconds: 60,
            max_inactivity_seconds: 60,
            max_pause_seconds: 120,
            max_hold: 2,
            polling_seconds: 2,
            body_bytes: 262_144 + 4096,
            sessions: 0,
            sessions_per_address: 0,
            requests_per_second: 100,
        }
    }
}

/// Starts the stream of a new session; false if it is not admitted. Called without a lock.
pub type StreamStarter = Box<dyn Fn(Stream) -> bool + Send + Sync>;

/// Origin of a request.
#[derive(Clone, Debug)]
pub struct RequestSource {
    /// Address of the client; for a trusted proxy, that of the proxy's client.
    pub peer: SocketAddr,
    /// Settings of the listener.
    pub listener: SharedListenerConfig,
    /// The connection is encrypted, or a trusted proxy reports that its client's is.
    pub secure: bool,
}

/// Response to a request.
///
/// It echoes text from unauthenticated clients, with a `Content-Type` chosen by the client, on an origin that also
/// serves pages. Send it with `X-Content-Type-Options: nosniff` and `Content-Security-Policy: sandbox`, so that no
/// browser runs it as a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoshResponse {
    /// HTTP status. Not 200 only for clients that send no BOSH version (section 17.1), and if `close` is set.
    pub status: u16,
    /// The whole `<body/>`.
    pub body: BoshBody,
    /// `Content-Type` that the session requested; `None`: [`BoshResponse::DEFAULT_CONTENT_TYPE`].
    pub content_type: Option<Arc<str>>,
    /// Close the connection without a response (section 19.1: an unencrypted request for an encrypted session). If that
    /// is not possible, send the status.
    pub close: bool,
}

impl BoshResponse {
    /// `Content-Type` of responses unless the client requested another one.
    pub const DEFAULT_CONTENT_TYPE: &str = "text/xml; charset=utf-8";
}

/// Bytes of a response; cloning copies nothing, and the usual empty body owns nothing.
#[derive(Clone, Debug)]
pub struct BoshBody(BodyBytes);

#[derive(Clone, Debug)]
enum BodyBytes {
    Fixed(&'static [u8]),
    Shared(Arc<[u8]>),
}

impl From<&[u8]> for BoshBody {
    fn from(bytes: &[u8]) -> BoshBody {
        BoshBody(BodyBytes::Shared(bytes.into()))
    }
}

impl Deref for BoshBody {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            BodyBytes::Fixed(bytes) => bytes,
            BodyBytes::Shared(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for BoshBody {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for BoshBody {
    fn eq(&self, other: &BoshBody) -> bool {
        self[..] == other[..]
    }
}

impl Eq for BoshBody {}

/// Reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum TerminationReason {
    /// Terminated by the client.
    Client,
    /// Terminated by the stream: a stream error, a shutdown, or takeover by another connection.
    Server,
    /// No request arrived in time.
    Inactivity,
    /// Too many requests, or too frequent ones.
    Policy,
    /// A request id outside of the window, a response that is no longer cached, or a wrong key.
    Sequence,
    /// An invalid BOSH body.
    BadRequest,
    /// The table was closed.
    Shutdown,
}

impl TerminationReason {
    /// Names in metrics, in the order of the discriminants.
    const NAMES: [&'static str; 7] =
        ["client", "server", "inactivity", "policy", "sequence", "bad-request", "shutdown"];
}

/// Metrics of a table; all but the first two count since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoshCounts {
    /// Current sessions.
    pub sessions: u64,
    /// Requests held at present.
    pub held: u64,
    /// Created sessions.
    pub created: u64,
    /// Refused session requests.
    pub refused: u64,
    /// Requests of any kind.
    pub requests: u64,
    /// Retransmitted requests.
    pub retransmits: u64,
    /// Requests received before one with a lower id.
    pub reordered: u64,
    /// Requests for unknown sessions.
    pub unknown_session: u64,
    /// Requests sent to the node of their session.
    pub forwarded: u64,
    ended: [u64; TerminationReason::NAMES.len()],
}

impl BoshCounts {
    /// Ended sessions, by reason.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        TerminationReason::NAMES.into_iter().zip(self.ended)
    }
}
