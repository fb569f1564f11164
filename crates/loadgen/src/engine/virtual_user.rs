//! One simulated user: what exists once for each connection, and so is small.
//!
//! A quiet user owns no buffer. What only some plans or moments need (negotiation, loops, variables, stream management) is
//! boxed and absent otherwise. Trap: the size is asserted; a field here costs itself times the number of connections.

use std::collections::VecDeque;

use xml::{NamespaceContext, Scanner};

use super::bosh::BoshConnection;
use super::bytecode::{Pc, SessionProgram};
use crate::plan::TransportSecurity;
use crate::sasl::ClientExchange;
use crate::socket::Socket;

/// What a user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// The slot has no user.
    Free,
    /// A time to pass, then the step at `pc`.
    Pause,
    /// As `Pause`, and then the connection is tried again.
    Retry,
    /// The TCP connection.
    Connected,
    /// The TLS handshake.
    Handshake,
    /// Features after a stream header.
    Features,
    /// `<proceed/>`.
    Proceed,
    /// The next SASL element.
    Sasl,
    /// An answer with this id number.
    Answer(u32),
    /// `<enabled/>`.
    Enabled,
    /// `<resumed/>`.
    Resumed,
    /// Any stanza.
    Any,
    /// What the op before `pc` describes.
    Match,
    /// Remaining deliveries of the presence that the user sent last.
    Deliveries(u32),
    /// The arrival of the message with this number at this worker's numbering (worker, number).
    Delivery(u16, u32),
    /// All users of the worker.
    Barrier,
    /// The activities of the op before `pc`.
    Meanwhile,
    /// Messages to and fro.
    Bounce,
    /// The peer's end of the stream.
    Closing,
    /// The same, and then the next step.
    Parting,
    /// The end of the run.
    End,
}

/// The stream is negotiated.
pub(crate) const LOGGED_IN: u16 = 1;
/// Initial presence has been sent; destinations may choose this user.
pub(crate) const AVAILABLE: u16 = 1 << 1;
/// The socket did not take everything; EPOLLOUT is asked for.
pub(crate) const BLOCKED: u16 = 1 << 2;
/// Something stands in `out` and the user is on the list of those to be written.
pub(crate) const DIRTY: u16 = 1 << 3;
/// The newest answer was not acceptable.
pub(crate) const SLOW: u16 = 1 << 4;
/// A pause came between connect and bind, so the login as a whole means nothing.
pub(crate) const PAUSED: u16 = 1 << 5;
/// A session (RFC 3921) has been opened.
pub(crate) const SESSION_OPEN: u16 = 1 << 6;
/// TCP is connected.
pub(crate) const CONNECTED: u16 = 1 << 7;
/// The first presence of the session has been sent and its reflection is awaited.
pub(crate) const APPEARING: u16 = 1 << 8;
/// The stream has been closed by this side.
pub(crate) const CLOSED: u16 = 1 << 9;
/// The server offers stream management.
pub(crate) const MANAGEABLE: u16 = 1 << 10;
/// The connection speaks WebSocket by now.
pub(crate) const UPGRADED: u16 = 1 << 11;

/// It has arrived in a phase with a bound on concurrency and has not come to its first pause.
pub(crate) const ARRIVING: u16 = 1 << 12;

/// A user.
pub(crate) struct VirtualUser {
    pub(crate) socket: Option<Socket>,
    /// In place of the socket, where BOSH is spoken.
    pub(crate) bosh: Option<Box<BoshConnection>>,
    /// Not yet written, in plain.
    pub(crate) out: Vec<u8>,
    /// An incomplete element.
    pub(crate) partial: Vec<u8>,
    pub(crate) scanner: Scanner,
    pub(crate) scope: NamespaceContext,
    pub(crate) login: Option<Box<PendingLogin>>,
    pub(crate) extra: Option<Box<OptionalUserState>>,
    /// Accounts among the contacts of the roster.
    pub(crate) contacts: Box<[u32]>,
    /// The bound resource.
    pub(crate) resource: Box<str>,
    /// When the current step was due, microseconds of the clock.
    pub(crate) due: u64,
    /// When the session began.
    pub(crate) arrived: u64,
    /// When it became available.
    pub(crate) available_at: u64,
    pub(crate) wait: WaitState,
    pub(crate) account: u32,
    pub(crate) generation: u32,
    /// Counts connections, so that input of an earlier one is not taken for the next one's.
    pub(crate) epoch: u32,
    /// Number of the newest request.
    pub(crate) request: u32,
    /// Whom the last step was for.
    pub(crate) last: u32,
    /// Whom the last message was for.
    pub(crate) last_message: u32,
    /// Whom the last change of the roster was for.
    pub(crate) last_contact: u32,
    pub(crate) pc: Pc,
    pub(crate) session: u16,
    pub(crate) flags: u16,
    /// Bytes at the beginning of `out` that are frames of WebSocket already.
    pub(crate) framed: u32,
}

const _: () = assert!(size_of::<VirtualUser>() <= 336);

/// Nobody.
pub(crate) const NOBODY: u32 = u32::MAX;

impl VirtualUser {
    pub(crate) fn new() -> Self {
        Self {
            socket: None,
            bosh: None,
            out: Vec::new(),
            partial: Vec::new(),
            scanner: Scanner::new(),
            scope: NamespaceContext::empty(),
            login: None,
            extra: None,
            contacts: Box::default(),
            resource: Box::default(),
            due: 0,
            arrived: 0,
            available_at: 0,
            wait: WaitState::Free,
            account: NOBODY,
            generation: 0,
            epoch: 0,
            request: 0,
            last: NOBODY,
            last_message: NOBODY,
            last_contact: NOBODY,
            pc: 0,
            session: 0,
            flags: 0,
            framed: 0,
        }
    }

    /// Whether there is a connection, or one is being made.
    pub(crate) fn is_open(&self) -> bool {
        self.socket.is_some() || self.bosh.is_some()
    }

    pub(crate) fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u16, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    pub(crate) fn extra(&mut self) -> &mut OptionalUserState {
        self.extra.get_or_insert_default()
    }

    pub(crate) fn login(&mut self) -> &mut PendingLogin {
        self.login.get_or_insert_default()
    }

    pub(crate) fn program<'p>(&self, programs: &'p [SessionProgram]) -> &'p SessionProgram {
        &programs[usize::from(self.session)]
    }
}

/// What is only there while a stream is negotiated.
#[derive(Default)]
pub(crate) struct PendingLogin {
    /// When the whole login was due; 0 when it is not measured.
    pub(crate) due: u64,
    /// When the current request of the negotiation was sent.
    pub(crate) since: u64,
    pub(crate) exchange: Option<ClientExchange>,
    pub(crate) features: ServerFeatures,
    /// Attempts to connect so far.
    pub(crate) attempts: u32,
    /// The stream is being resumed (XEP-0198), so after SASL comes `<resume/>`.
    pub(crate) resuming: bool,
    /// The challenge that waits for a key, and since when.
    pub(crate) challenge: Option<(Box<[u8]>, u64)>,
    /// The exchange is one of SASL2.
    pub(crate) sasl2: bool,
    /// The SASL mechanism that was chosen.
    pub(crate) mechanism: &'static str,
}

/// What the server offers.
#[derive(Default)]
pub(crate) struct ServerFeatures {
    /// They have come.
    pub(crate) known: bool,
    pub(crate) starttls: bool,
    pub(crate) mechanisms: Vec<String>,
    /// Types of channel binding (XEP-0440).
    pub(crate) bindings: Option<Vec<String>>,
    /// Mechanisms of SASL2 (XEP-0388).
    pub(crate) sasl2: Vec<String>,
    /// Logins of XEP-0078.
    pub(crate) legacy: bool,
    /// A session that is not marked as optional.
    pub(crate) session: bool,
    /// Stream management.
    pub(crate) management: bool,
}

/// What only some plans need.
#[derive(Default)]
pub(crate) struct OptionalUserState {
    pub(crate) frames: Vec<ControlFrame>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) activities: Box<[u64]>,
    /// End of `Meanwhile` or `Bounce`.
    pub(crate) until: u64,
    pub(crate) management: Option<Box<StreamManagementState>>,
    /// Where `ChangeTarget` points.
    pub(crate) target: Option<Box<(Vec<std::net::SocketAddr>, TransportSecurity)>>,
    /// Local part that the server gave to an anonymous user.
    pub(crate) anonymous: Option<Box<str>>,
    /// Repetitions of the current raw step by `match`.
    pub(crate) repeats: u32,
    /// Restarts of the session by `match`.
    pub(crate) restarts: u32,
    /// The `id` that the answer to the current raw step has.
    pub(crate) awaited_id: Option<Box<str>>,
}

const _: () = assert!(size_of::<OptionalUserState>() <= 136);

/// A loop or a transaction in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlFrame {
    /// Turns left; `u32::MAX` is for ever.
    pub(crate) left: u32,
    /// The counter's value.
    pub(crate) value: i64,
    /// When a transaction was due.
    pub(crate) since: u64,
}

/// Stream management (XEP-0198).
#[derive(Default)]
pub(crate) struct StreamManagementState {
    /// Stanzas received since `<enabled/>`.
    pub(crate) received: u32,
    /// Stanzas sent since then.
    pub(crate) sent: u32,
    /// The server's newest count of them.
    pub(crate) acknowledged: u32,
    /// Sent and not acknowledged; kept only where the stream can be resumed.
    pub(crate) kept: VecDeque<Box<[u8]>>,
    /// Bytes in `kept`.
    pub(crate) bytes: usize,
    /// What to resume with; `None` when the stream cannot be.
    pub(crate) id: Option<Box<str>>,
    /// `<enabled/>` has come.
    pub(crate) enabled: bool,
    /// When the connection was lost that is being replaced.
    pub(crate) lost_at: u64,
    /// Where the program stood.
    pub(crate) resume_wait: Option<(WaitState, Pc)>,
}
