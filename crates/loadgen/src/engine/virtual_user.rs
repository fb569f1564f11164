//! One virtual user: the state that exists once per connection, kept small.
//!
//! An idle user owns no buffer. State that only some plans or phases need (negotiation, loops, variables, stream
//! management) is boxed and otherwise absent.
//!
//! # Pitfalls
//!
//! The size is asserted; a field here costs its size times the number of connections.

use std::collections::VecDeque;

use xml::{NamespaceContext, Scanner};

use super::bosh::BoshConnection;
use super::bytecode::{Pc, SessionProgram};
use super::nodes::UserNodes;
use super::rooms::UserRooms;
use crate::plan::TransportSecurity;
use crate::sasl::ClientExchange;
use crate::socket::Socket;

/// Event that a user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// None: the slot has no user.
    Free,
    /// End of a pause, then the step at `pc`.
    Pause,
    /// End of a pause, then another attempt to connect.
    Retry,
    /// TCP connection established.
    Connected,
    /// TLS handshake completed.
    Handshake,
    /// Stream features after a stream header.
    Features,
    /// `<proceed/>`.
    Proceed,
    /// The next SASL element.
    Sasl,
    /// Response to the request with this number.
    Answer(u32),
    /// `<enabled/>`.
    Enabled,
    /// `<resumed/>`.
    Resumed,
    /// `<a/>` with this number of stanzas or more.
    Acknowledged(u32),
    /// Any stanza.
    Any,
    /// Stanza that matches the instruction before `pc`.
    Match,
    /// Remaining deliveries of the presence that the user sent last.
    Deliveries(u32),
    /// Arrival of the message with this number in this worker's numbering (worker, number).
    Delivery(u16, u32),
    /// Answers of rooms to joins, leavings or changes of nickname.
    Rooms,
    /// The own copy of a room message.
    RoomCopy,
    /// Answers of PubSub services to requests to begin and to end subscriptions.
    Nodes,
    /// The answer to a publication.
    Publication,
    /// Barrier: all users of the worker.
    Barrier,
    /// Activities of the instruction before `pc`.
    Meanwhile,
    /// Ping-pong of messages.
    Bounce,
    /// Stream end from the peer, after which the session ends.
    Closing,
    /// Stream end from the peer, after which the next step runs.
    Parting,
    /// End of the run.
    End,
}

/// The stream has been negotiated.
pub(crate) const LOGGED_IN: u16 = 1;
/// Initial presence has been sent; destinations may choose this user.
pub(crate) const AVAILABLE: u16 = 1 << 1;
/// The socket did not accept all bytes; EPOLLOUT is requested.
pub(crate) const BLOCKED: u16 = 1 << 2;
/// `out` is not empty and the user is in the list of users to be flushed.
pub(crate) const DIRTY: u16 = 1 << 3;
/// The latest response was not acceptable.
pub(crate) const SLOW: u16 = 1 << 4;
/// A pause came between connect and bind, so the duration of the login as a whole is meaningless.
pub(crate) const PAUSED: u16 = 1 << 5;
/// A session (RFC 3921) has been opened.
pub(crate) const SESSION_OPEN: u16 = 1 << 6;
/// TCP is connected.
pub(crate) const CONNECTED: u16 = 1 << 7;
/// The initial presence has been sent and its reflection is awaited.
pub(crate) const APPEARING: u16 = 1 << 8;
/// This side has closed the stream.
pub(crate) const CLOSED: u16 = 1 << 9;
/// The server offers stream management.
pub(crate) const MANAGEABLE: u16 = 1 << 10;
/// The connection has been upgraded to WebSocket.
pub(crate) const UPGRADED: u16 = 1 << 11;

/// The user arrived in a phase with a concurrency limit and has not reached its first pause.
pub(crate) const ARRIVING: u16 = 1 << 12;

/// A virtual user.
pub(crate) struct VirtualUser {
    pub(crate) socket: Option<Socket>,
    /// Used instead of `socket` on BOSH.
    pub(crate) bosh: Option<Box<BoshConnection>>,
    /// Plaintext that is not yet written.
    pub(crate) out: Vec<u8>,
    /// Incomplete XML element.
    pub(crate) partial: Vec<u8>,
    pub(crate) scanner: Scanner,
    pub(crate) scope: NamespaceContext,
    pub(crate) login: Option<Box<PendingLogin>>,
    pub(crate) extra: Option<Box<OptionalUserState>>,
    /// Roster contacts that are accounts of this run.
    pub(crate) contacts: Box<[u32]>,
    /// The bound resource.
    pub(crate) resource: Box<str>,
    /// Time at which the current step was due, in microseconds of the clock.
    pub(crate) due: u64,
    /// Start of the session.
    pub(crate) arrived: u64,
    /// Time at which the user became available.
    pub(crate) available_at: u64,
    pub(crate) wait: WaitState,
    pub(crate) account: u32,
    pub(crate) generation: u32,
    /// Connection counter: prevents input of an earlier connection from being taken for the next one's.
    pub(crate) epoch: u32,
    /// Number of the latest request.
    pub(crate) request: u32,
    /// Recipient of the last step.
    pub(crate) last: u32,
    /// Recipient of the last message.
    pub(crate) last_message: u32,
    /// Contact of the last roster change.
    pub(crate) last_contact: u32,
    pub(crate) pc: Pc,
    pub(crate) session: u16,
    /// Position of the address in the plan's targets.
    pub(crate) target: u16,
    pub(crate) flags: u16,
    /// Bytes at the start of `out` that are already WebSocket frames.
    pub(crate) framed: u32,
}

const _: () = assert!(size_of::<VirtualUser>() <= 336);

/// No account.
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
            target: 0,
            flags: 0,
            framed: 0,
        }
    }

    /// Whether there is a connection or a connection attempt.
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

    pub(crate) fn program<'a, 'p>(&self, programs: &'a [SessionProgram<'p>]) -> &'a SessionProgram<'p> {
        &programs[usize::from(self.session)]
    }
}

/// State needed only during stream negotiation.
#[derive(Default)]
pub(crate) struct PendingLogin {
    /// Time at which the whole login was due; 0 if it is not measured.
    pub(crate) due: u64,
    /// Time at which the current negotiation request was sent.
    pub(crate) since: u64,
    pub(crate) exchange: Option<ClientExchange>,
    pub(crate) features: ServerFeatures,
    /// Connection attempts so far.
    pub(crate) attempts: u32,
    /// The stream is being resumed (XEP-0198), so `<resume/>` follows SASL.
    pub(crate) resuming: bool,
    /// Challenge that waits for a key, and since when.
    pub(crate) challenge: Option<(Box<[u8]>, u64)>,
    /// The exchange uses SASL2.
    pub(crate) sasl2: bool,
    /// Selected SASL mechanism.
    pub(crate) mechanism: &'static str,
}

/// Features offered by the server.
#[derive(Default)]
pub(crate) struct ServerFeatures {
    /// The features have been received.
    pub(crate) known: bool,
    pub(crate) starttls: bool,
    pub(crate) mechanisms: Vec<String>,
    /// Channel binding types (XEP-0440).
    pub(crate) bindings: Option<Vec<String>>,
    /// SASL2 mechanisms (XEP-0388).
    pub(crate) sasl2: Vec<String>,
    /// XEP-0078 logins.
    pub(crate) legacy: bool,
    /// Session establishment that is not marked as optional.
    pub(crate) session: bool,
    /// Stream management.
    pub(crate) management: bool,
}

/// State needed only by some plans.
#[derive(Default)]
pub(crate) struct OptionalUserState {
    pub(crate) frames: Vec<ControlFrame>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) activities: Box<[u64]>,
    /// End of `Meanwhile` or `Bounce`.
    pub(crate) until: u64,
    pub(crate) management: Option<Box<StreamManagementState>>,
    /// Target set by `ChangeTarget`.
    pub(crate) target: Option<Box<(Vec<std::net::SocketAddr>, TransportSecurity)>>,
    /// Local part that the server assigned to an anonymous user.
    pub(crate) anonymous: Option<Box<str>>,
    /// Repetitions of the current raw step caused by `match`.
    pub(crate) repeats: u32,
    /// Restarts of the session caused by `match`.
    pub(crate) restarts: u32,
    /// Expected `id` of the response to the current raw step.
    pub(crate) awaited_id: Option<Box<str>>,
    /// Messages of a lost session, to be sent again.
    #[allow(clippy::box_collection, reason = "it is absent in most runs and exists once per user")]
    pub(crate) resend: Option<Box<VecDeque<UnackedStanza>>>,
    /// Rooms that the user is in.
    pub(crate) rooms: Option<Box<UserRooms>>,
    /// PubSub nodes of the user.
    pub(crate) nodes: Option<Box<UserNodes>>,
    /// Attempts to return since the session was lost.
    pub(crate) failovers: u32,
    /// Time at which the session began that replaces a lost one; 0 if none was lost.
    pub(crate) returned_at: u64,
}

const _: () = assert!(size_of::<OptionalUserState>() <= 176);

/// A loop or a transaction in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlFrame {
    /// Iterations left; `u32::MAX` is infinite.
    pub(crate) left: u32,
    /// Value of the loop counter.
    pub(crate) value: i64,
    /// Time at which the transaction was due.
    pub(crate) since: u64,
}

/// A stanza that the server has not acknowledged.
pub(crate) struct UnackedStanza {
    pub(crate) bytes: Box<[u8]>,
    /// The recipient's worker and the number of a message whose acknowledgement is accounted for.
    pub(crate) message: Option<(u16, u32)>,
}

/// Stream management state (XEP-0198).
#[derive(Default)]
pub(crate) struct StreamManagementState {
    /// Stanzas received since `<enabled/>`.
    pub(crate) received: u32,
    /// Stanzas sent since `<enabled/>`.
    pub(crate) sent: u32,
    /// Latest `h` from the server.
    pub(crate) acknowledged: u32,
    /// Requests for an acknowledgement that are not answered: the stanzas sent before, and when it was due. Bounded.
    pub(crate) requests: VecDeque<(u32, u64)>,
    /// Unacknowledged stanzas; kept only if the stream can be resumed.
    pub(crate) unacked: VecDeque<UnackedStanza>,
    /// Bytes in `unacked`.
    pub(crate) bytes: usize,
    /// Resumption id; `None` if the stream cannot be resumed.
    pub(crate) id: Option<Box<str>>,
    /// `<enabled/>` has been received.
    pub(crate) enabled: bool,
    /// Time at which the connection that is being replaced was lost.
    pub(crate) lost_at: u64,
    /// Position in the program at that time.
    pub(crate) resume_wait: Option<(WaitState, Pc)>,
}
