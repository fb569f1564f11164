//! BOSH: streams over HTTP requests that wait for an answer. XEP-0124 1.11.2, XEP-0206 1.4, remarks of XEP-0286.
//!
//! Whoever serves HTTP hands each request's body to [`BoshSessionTable::handle_request`] and sends the [`BoshResponse`] that comes out of the
//! [`Exchange`]. A session is one [`crate::Stream`] for the layers above; it is started by the [`Start`] that the table
//! was made with, and after that the stream's task and the requests meet in the session's lock.
//!
//! | File | What |
//! | --- | --- |
//! | `request` | a `<body/>` from the client, as values and as payloads |
//! | `answer` | a `<body/>` for the client |
//! | `state` | the rules: window, holding, replay, overactivity, pause, end; no I/O, time is handed in |
//! | `parts` | what they work with |
//! | `session` | the rules behind a lock |
//! | `keys` | key sequencing |
//! | `table` | all sessions: creation, limits, the sweep |
//! | `exchange` | one request that waits |
//! | `stream` | the session as a stream |
//!
//! Left out: multiple streams in a session (section 16), script syntax, `charsets`, `route`; `accept`, since only whole
//! HTTP requests are known to be small. Trap: a request that is held owns no buffer, and a session has no timer:
//! whoever adds a wait adds it to [`BoshSessionTable::sweep`].

mod key_sequence;
mod pending_response;
mod request;
mod response;
mod session;
mod session_table;
mod session_types;
mod state;
pub(crate) mod stream;

use crate::connection_info::SharedListenerConfig;
use crate::stream::Stream;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

pub use pending_response::PendingResponse;
pub use session_table::BoshSessionTable;
pub use stream::BoshStream;

/// What the operator may set. Seconds are whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoshSettings {
    /// Longest time in seconds that a request is held; what the client asks for beyond is cut.
    pub max_wait_seconds: u32,
    /// Seconds without a request after which a session ends; twice this and `polling_seconds` for sessions that poll.
    pub max_inactivity_seconds: u32,
    /// Longest pause in seconds that a client may ask for; 0: none.
    pub max_pause_seconds: u32,
    /// Most requests that are held for a session. A client may have one more under way.
    pub max_hold: u8,
    /// Fewest seconds between two empty requests of a session that polls; 0: any.
    pub polling_seconds: u32,
    /// Longest body of a request in bytes. It has room for an element of the longest permitted size and the wrapper.
    pub body_bytes: usize,
    /// Sessions at a time; 0: any number.
    pub sessions: u32,
    /// Sessions at a time from one IPv4 address or one IPv6 /64; 0: any number.
    pub sessions_per_address: u32,
    /// Requests of one session in a second, for a long time; five times as many at once. 0: any number.
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

/// Starts the stream of a new session; false: it is not let in. Called without a lock.
pub type StreamStarter = Box<dyn Fn(Stream) -> bool + Send + Sync>;

/// Where a request came from.
#[derive(Clone, Debug)]
pub struct RequestSource {
    /// Who is really at the other end; behind a trusted proxy the proxy's client.
    pub peer: SocketAddr,
    /// The listener.
    pub listener: SharedListenerConfig,
    /// The connection is encrypted, or a trusted proxy says that its client's is.
    pub secure: bool,
}

/// What a request gets.
///
/// It echoes what strangers wrote, with a `Content-Type` that the client chose, on the origin that other pages are
/// served from. Send it with `X-Content-Type-Options: nosniff` and `Content-Security-Policy: sandbox`, so that no browser
/// ever runs it as a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoshResponse {
    /// HTTP status: 200 but for clients that do not say which version of BOSH they speak (section 17.1), and where
    /// `close` is set.
    pub status: u16,
    /// The whole `<body/>`.
    pub body: BoshBody,
    /// `Content-Type` that the session asked for; none: [`BoshResponse::CONTENT`].
    pub content_type: Option<Arc<str>>,
    /// The connection is to be closed without an answer (section 19.1: a request of an encrypted session that comes
    /// unencrypted). Where that is not possible, the status is to be sent.
    pub close: bool,
}

impl BoshResponse {
    /// `Content-Type` of answers unless the client asked for another one.
    pub const DEFAULT_CONTENT_TYPE: &str = "text/xml; charset=utf-8";
}

/// The bytes of an answer; cloning copies nothing, and the usual empty body owns nothing.
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

/// Why sessions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum TerminationReason {
    /// The client ended it.
    Client,
    /// The stream ended it: an error of the stream, a shutdown, another connection has the session.
    Server,
    /// No request came in time.
    Inactivity,
    /// Too many requests, or too often.
    Policy,
    /// A request id outside of the window, an answer that is no longer there, a wrong key.
    Sequence,
    /// A body that is no BOSH.
    BadRequest,
    /// The table was closed.
    Shutdown,
}

impl TerminationReason {
    /// The words used in metrics, in the order of the numbers.
    const NAMES: [&'static str; 7] =
        ["client", "server", "inactivity", "policy", "sequence", "bad-request", "shutdown"];
}

/// Figures of a table; all but the first two count since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoshCounts {
    /// Sessions now.
    pub sessions: u64,
    /// Requests that are waiting for an answer now.
    pub held: u64,
    /// Sessions that were created.
    pub created: u64,
    /// Session requests that were refused.
    pub refused: u64,
    /// Requests of any kind.
    pub requests: u64,
    /// Requests that had been received before.
    pub retransmits: u64,
    /// Requests that came before one with a lower id.
    pub reordered: u64,
    /// Requests for sessions that do not exist.
    pub unknown_session: u64,
    ended: [u64; TerminationReason::NAMES.len()],
}

impl BoshCounts {
    /// Sessions that have ended, by reason.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        TerminationReason::NAMES.into_iter().zip(self.ended)
    }
}
