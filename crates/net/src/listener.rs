//! Listening sockets: bind, accept at the rate of the node, and wait when file descriptors run out.
//!
//! Not implemented: connection tasks, which the caller starts; SO_REUSEPORT, because accepting is not the bottleneck
//! and one queue is fairer than several.
//!
//! # Pitfalls
//!
//! TCP_NODELAY is set on the listening socket and inherited by accepted sockets on Linux, which saves a system call per
//! connection. A test in `tests/listener.rs` checks the inheritance.
//!
//! The kernel keeps connections in the backlog whose clients have closed them. Those are dropped without a turn of the accept
//! rate, unless the client sent something before: then only reading shows the end.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::accept_rate::{AcceptCharge, AcceptTurn};
use base::connection_limits::{ConnectionLimiter, ConnectionPermit, ConnectionRefusal};
use base::lock::{LeafMutex, LeafRwLock};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop::has_budget_remaining;

use crate::connection_info::{ListenerConfig, ListenerKind, SharedListenerConfig};
use crate::error::NetError;
use crate::stream::Stream;
use crate::tls::TlsConfig;

/// Length of the kernel's accept backlog. The kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: u32 = 4096;
/// Pause after running out of file descriptors or memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause before the accept rate is read again: a reload may have raised it.
const ACCEPT_RATE_PAUSE: Duration = Duration::from_millis(100);

/// Metrics of a [`Listener`], since the start.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    accepted: AtomicU64,
    paused: AtomicU64,
}

impl ListenerCounts {
    /// Connections accepted from the kernel, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Times that accepting paused because the system was out of file descriptors or memory.
    pub fn paused(&self) -> u64 {
        self.paused.load(Relaxed)
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    config: ListenerConfigCell,
    limiter: ConnectionLimiter,
    /// Kept while no connection has taken it, also if a caller drops the future that accepts.
    turn: LeafMutex<Option<AcceptTurn>>,
    /// The accept rate has made connections wait, and the backlog has not been empty since.
    is_backlogged: AtomicBool,
    counts: Arc<ListenerCounts>,
}

/// Shared cell with the settings for new connections. Clones refer to the same cell.
#[derive(Clone, Debug)]
pub struct ListenerConfigCell(Arc<LeafRwLock<ConfigGenerations>>);

#[derive(Debug)]
struct ConfigGenerations {
    current: SharedListenerConfig,
    /// Earlier settings that connections still hold.
    previous: Vec<Weak<ListenerConfig>>,
}

impl ListenerConfigCell {
    fn new(port: ListenerConfig) -> ListenerConfigCell {
        ListenerConfigCell(Arc::new(LeafRwLock::new(ConfigGenerations {
            current: Arc::new(port),
            previous: Vec::new(),
        })))
    }

    /// Current settings.
    pub fn get(&self) -> SharedListenerConfig {
        self.0.read().current.clone()
    }

    /// Changes the settings for new connections; existing ones keep theirs.
    pub fn update(&self, change: impl FnOnce(&mut ListenerConfig)) {
        let mut slot = self.0.write();
        let mut port = (*slot.current).clone();
        change(&mut port);
        let before = std::mem::replace(&mut slot.current, Arc::new(port));
        slot.previous.push(Arc::downgrade(&before));
        slot.previous.retain(|port| port.strong_count() > 0);
    }

    /// Open XMPP streams accepted here: each holds the settings. HTTP connections do not.
    pub fn open_streams(&self) -> usize {
        let slot = self.0.read();
        Arc::strong_count(&slot.current) - 1 + slot.previous.iter().map(Weak::strong_count).sum::<usize>()
    }
}

/// Remote end of a connection, as the listener knows it from the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteRole {
    /// A client, or an HTTP proxy, whose requests name their client.
    Client,
    /// A proxy, whose PROXY header will name the client.
    Proxy,
    /// Not a trusted proxy, on a listener with `proxy_protocol`: the connection must be closed.
    Untrusted,
}

/// An accepted and admitted connection.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The socket, registered with the caller's runtime.
    pub socket: TcpStream,
    /// Address of the remote end.
    pub peer: SocketAddr,
    /// Role of the remote end.
    pub role: RemoteRole,
    /// Settings of the listener.
    pub listener: SharedListenerConfig,
    /// Permit of the connection; keep it as long as the connection.
    pub permit: ConnectionPermit,
    /// Present while the client of a proxy is unknown.
    charge: Option<AcceptCharge>,
}

impl Listener {
    /// Binds `address` and listens. `change` may set the limits of the listener. Port number 0 requests a free port. An
    /// unspecified IPv6 address (`[::]`) also accepts IPv4. Must be called inside the runtime that will accept.
    ///
    /// # Errors
    /// [`NetError::InvalidConfig`]: one sentence with the address and the fix.
    pub fn bind(
        kind: ListenerKind,
        address: SocketAddr,
        limiter: ConnectionLimiter,
        change: impl FnOnce(&mut ListenerConfig),
    ) -> Result<Listener, NetError> {
        let socket = bind_socket(address).map_err(|error| bind_error(address, &error))?;
        let local = socket.local_addr().map_err(|error| bind_error(address, &error))?;
        let mut port = ListenerConfig::new(kind, local);
        change(&mut port);
        let (config, counts) = (ListenerConfigCell::new(port), Arc::default());
        let (turn, is_backlogged) = (LeafMutex::default(), AtomicBool::new(false));
        Ok(Listener { socket, config, limiter, turn, is_backlogged, counts })
    }

    /// Settings for new connections.
    pub fn config(&self) -> SharedListenerConfig {
        self.config.get()
    }

    /// Cell in which these settings can be changed; it may be kept while the listener is in use elsewhere.
    pub fn config_cell(&self) -> ListenerConfigCell {
        self.config.clone()
    }

    /// Metrics; they may be kept and read while the listener is in use elsewhere.
    pub fn counts(&self) -> Arc<ListenerCounts> {
        self.counts.clone()
    }

    /// Next admitted connection. Never fails: errors of one connection are skipped, and running out of descriptors is
    /// waited out. Cancel-safe.
    pub async fn accept(&self) -> AcceptedConnection {
        self.accept_with_role(|_| RemoteRole::Client).await
    }

    /// As [`Listener::accept`], where `role` returns the role of each address. A connection from a proxy counts against the limits
    /// of an address only after [`AcceptedConnection::set_client_address`]; if it is dropped before that, it does not count against
    /// the accept rate either.
    pub async fn accept_with_role(&self, role: impl Fn(IpAddr) -> RemoteRole) -> AcceptedConnection {
        loop {
            poll_fn(|cx| self.limiter.poll_capacity(cx)).await;
            self.wait_for_accept_rate().await;
            let accepted = poll_fn(|cx| {
                let accepted = self.socket.poll_accept(cx);
                // It is also pending if the task has used up its budget (tokio::task::coop).
                if accepted.is_pending() && has_budget_remaining() {
                    // What comes later was not there during the wait.
                    self.is_backlogged.store(false, Relaxed);
                }
                accepted
            });
            match accepted.await {
                Ok((socket, peer)) => {
                    self.counts.accepted.fetch_add(1, Relaxed);
                    let role = role(peer.ip());
                    let permit = match role {
                        RemoteRole::Proxy => self.limiter.try_acquire_proxied(),
                        RemoteRole::Client | RemoteRole::Untrusted => self.limiter.try_acquire(peer.ip()),
                    };
                    match permit {
                        Ok(permit) => {
                            let takes_turn = self.takes_turn(peer.ip(), role);
                            if takes_turn && is_closed(&socket) {
                                continue;
                            }
                            let charge = if takes_turn { self.end_turn(role) } else { None };
                            if self.is_backlogged.load(Relaxed) {
                                self.limiter.count_delayed();
                            }
                            let listener = self.config.get();
                            return AcceptedConnection { socket, peer, role, listener, permit, charge };
                        }
                        // Dropping it closes it; the limiter has counted it. The turn remains: connections
                        // of an address above its own rate must not delay others.
                        Err(
                            ConnectionRefusal::TotalLimit
                            | ConnectionRefusal::AddressLimit
                            | ConnectionRefusal::AddressRate,
                        ) => {}
                    }
                }
                Err(error) if is_connection_error(&error) => {}
                Err(_) => {
                    self.counts.paused.fetch_add(1, Relaxed);
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }
}

impl Listener {
    /// Waits until the accept rate admits a connection.
    async fn wait_for_accept_rate(&self) {
        loop {
            // The rate has a lock of its own, which is not acquired under this one.
            let mut turn = *self.turn.lock();
            let delay = self.limiter.accept_delay(&mut turn);
            *self.turn.lock() = turn;
            match delay {
                0 => return,
                millis => {
                    self.is_backlogged.store(true, Relaxed);
                    tokio::time::sleep(Duration::from_millis(millis).min(ACCEPT_RATE_PAUSE)).await;
                }
            }
        }
    }

    fn takes_turn(&self, peer: IpAddr, role: RemoteRole) -> bool {
        match role {
            RemoteRole::Client => self.limiter.takes_turn(Some(peer)),
            RemoteRole::Proxy => self.limiter.takes_turn(None),
            RemoteRole::Untrusted => false,
        }
    }

    /// Ends the turn with an accepted connection. Returns the charge of one that may still be refused.
    fn end_turn(&self, role: RemoteRole) -> Option<AcceptCharge> {
        let turn = self.turn.lock().take();
        turn.filter(|_| role == RemoteRole::Proxy).and_then(|turn| self.limiter.accept_charge(turn))
    }
}

impl AcceptedConnection {
    /// Sets the client's address, once the proxy has sent it.
    ///
    /// # Errors
    /// The limit that is exceeded; the refusal is counted, and the connection must be dropped.
    pub fn set_client_address(&mut self, client: SocketAddr) -> Result<(), ConnectionRefusal> {
        self.permit.set_client_address(client.ip())?;
        self.peer = client;
        if let Some(charge) = self.charge.take() {
            charge.settle();
        }
        Ok(())
    }

    /// Builds an XMPP stream over the socket; `tls` is used if the listener has direct TLS.
    ///
    /// # Errors
    /// [`NetError::InvalidConfig`] if the listener has direct TLS and `tls` is missing; [`NetError::Tls`] if it cannot
    /// be used.
    pub fn into_stream(self, tls: Option<&TlsConfig>) -> Result<(Stream, ConnectionPermit), NetError> {
        let AcceptedConnection { socket, peer, listener: port, permit, .. } = self;
        let stream = if port.kind.is_direct_tls() {
            let config = tls.ok_or_else(|| {
                NetError::InvalidConfig(format!("a listener of kind {} needs TLS settings", port.kind.name()))
            })?;
            Stream::tls(socket, peer, port, config)?
        } else {
            Stream::tcp(socket, peer, port)
        };
        Ok((stream, permit))
    }
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restart must not wait for connections of the previous process in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.cast_signed())?;
    TcpListener::from_std(socket.into())
}

fn bind_error(address: SocketAddr, error: &io::Error) -> NetError {
    NetError::InvalidConfig(match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "address in use: another program listens on {address}; stop it or configure another address"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "not permitted: {address} requires privileges; use a port above 1023 or grant CAP_NET_BIND_SERVICE"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("no such address: no interface of this machine has {}", address.ip())
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}

/// True if the remote end has closed the connection, or reset it, and sent nothing before.
fn is_closed(socket: &TcpStream) -> bool {
    match SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]) {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// True for errors of one connection, after which accepting again makes progress (accept(2), "Error handling": accept
/// reports pending network errors of the new socket).
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
    )
}
