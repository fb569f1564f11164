//! Listening sockets: bind, accept, survive the lack of file descriptors.
//!
//! Left out: what happens to a connection afterwards; the caller starts a task for it. SO_REUSEPORT: accepting is not
//! the bottleneck, and one queue is fairer than several.
//! Trap: TCP_NODELAY is set on the listening socket, from which Linux hands it on; that saves a system call for each
//! connection, and the test in `tests/listener.rs` would notice if it stopped being true.

use crate::connection_info::{ListenerConfig, ListenerKind, SharedListenerConfig};
use crate::connection_limits::{ConnectionLimiter, ConnectionPermit, ConnectionRefusal};
use crate::error::NetError;
use crate::stream::Stream;
use crate::tls::TlsConfig;
use parking_lot::RwLock;
use socket2::{Domain, Protocol, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait in the kernel before they are accepted. The kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: u32 = 4096;
/// How long to wait when the system has nothing left for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Figures of a [`Listener`], since the start.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    accepted: AtomicU64,
    paused: AtomicU64,
}

impl ListenerCounts {
    /// Connections taken from the kernel, refused ones included.
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
    counts: Arc<ListenerCounts>,
}

/// Where a listener keeps the facts that it gives to new connections. Clones are the same place.
#[derive(Clone, Debug)]
pub struct ListenerConfigCell(Arc<RwLock<ConfigGenerations>>);

#[derive(Debug)]
struct ConfigGenerations {
    current: SharedListenerConfig,
    /// Earlier facts that connections still have.
    previous: Vec<Weak<ListenerConfig>>,
}

impl ListenerConfigCell {
    fn new(port: ListenerConfig) -> ListenerConfigCell {
        ListenerConfigCell(Arc::new(RwLock::new(ConfigGenerations {
            current: Arc::new(port),
            previous: Vec::new(),
        })))
    }

    /// The facts now.
    pub fn get(&self) -> SharedListenerConfig {
        self.0.read().current.clone()
    }

    /// Changes the facts for connections that come from now on; those that exist keep theirs.
    pub fn update(&self, change: impl FnOnce(&mut ListenerConfig)) {
        let mut slot = self.0.write();
        let mut port = (*slot.current).clone();
        change(&mut port);
        let before = std::mem::replace(&mut slot.current, Arc::new(port));
        slot.previous.push(Arc::downgrade(&before));
        slot.previous.retain(|port| port.strong_count() > 0);
    }

    /// XMPP streams that came in here and are open: each holds the facts. HTTP connections do not.
    pub fn open_streams(&self) -> usize {
        let slot = self.0.read();
        Arc::strong_count(&slot.current) - 1 + slot.previous.iter().map(Weak::strong_count).sum::<usize>()
    }
}

/// A connection that was let in.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The socket, registered with the runtime of the caller.
    pub socket: TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// The listener's facts.
    pub listener: SharedListenerConfig,
    /// Its place at the gate; keep it as long as the connection.
    pub permit: ConnectionPermit,
}

impl Listener {
    /// Binds `address` and listens. `change` may set the limits of the port. Port number 0 asks for a free one.
    /// An unspecified IPv6 address (`[::]`) also takes IPv4. Must be called inside the runtime that will accept.
    ///
    /// # Errors
    /// [`NetError::InvalidConfig`]: one sentence with the address and the mend.
    pub fn bind(
        kind: ListenerKind,
        address: SocketAddr,
        gate: ConnectionLimiter,
        change: impl FnOnce(&mut ListenerConfig),
    ) -> Result<Listener, NetError> {
        let socket = bind_socket(address).map_err(|error| bind_error(address, &error))?;
        let local = socket.local_addr().map_err(|error| bind_error(address, &error))?;
        let mut port = ListenerConfig::new(kind, local);
        change(&mut port);
        Ok(Listener { socket, config: ListenerConfigCell::new(port), limiter: gate, counts: Arc::default() })
    }

    /// The facts that new connections share.
    pub fn config(&self) -> SharedListenerConfig {
        self.config.get()
    }

    /// The place where these facts are changed; it may be kept while the listener works elsewhere.
    pub fn config_cell(&self) -> ListenerConfigCell {
        self.config.clone()
    }

    /// Its figures; they may be kept and read while the listener works elsewhere.
    pub fn counts(&self) -> Arc<ListenerCounts> {
        self.counts.clone()
    }

    /// The next connection that the gate lets in. Does not fail: trouble with one connection is that connection's, and
    /// a system without descriptors is waited for. Dropping the future loses nothing.
    pub async fn accept(&self) -> AcceptedConnection {
        self.accept_proxied(|| false).await
    }

    /// The same where `proxied` may say, whenever a connection has come, that a proxy is at its other end: then it counts
    /// for no address until [`ConnectionPermit::set_client_address`].
    pub async fn accept_proxied(&self, proxied: impl Fn() -> bool) -> AcceptedConnection {
        loop {
            poll_fn(|cx| self.limiter.poll_capacity(cx)).await;
            match poll_fn(|cx| self.socket.poll_accept(cx)).await {
                Ok((socket, peer)) => {
                    self.counts.accepted.fetch_add(1, Relaxed);
                    let pass = if proxied() {
                        self.limiter.try_acquire_proxied()
                    } else {
                        self.limiter.try_acquire(peer.ip())
                    };
                    match pass {
                        Ok(pass) => {
                            return AcceptedConnection {
                                socket,
                                peer,
                                listener: self.config.get(),
                                permit: pass,
                            };
                        }
                        // Closed by the drop; the gate has counted it.
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

impl AcceptedConnection {
    /// An XMPP stream over the socket; `tls` is used where the port begins with TLS.
    ///
    /// # Errors
    /// [`NetError::InvalidConfig`] when the port begins with TLS and there is no configuration; [`NetError::TlsStream`] when it cannot
    /// be used.
    pub fn into_stream(self, tls: Option<&TlsConfig>) -> Result<(Stream, ConnectionPermit), NetError> {
        let AcceptedConnection { socket, peer, listener: port, permit: pass } = self;
        let stream = if port.kind.is_direct_tls() {
            let config = tls.ok_or_else(|| {
                NetError::InvalidConfig(format!("a {} port needs TLS settings", port.kind.name()))
            })?;
            Stream::tls(socket, peer, port, config)?
        } else {
            Stream::tcp(socket, peer, port)
        };
        Ok((stream, pass))
    }
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restart must not wait for the connections of the last run to leave TIME_WAIT.
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
            format!("address in use: {address} belongs to another program; stop it or listen elsewhere")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "not permitted: {address} needs privileges; use a port above 1023 or grant CAP_NET_BIND_SERVICE"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("no such address: no interface of this machine has {}", address.ip())
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}

/// True for errors that took the connection with them, so that accepting again makes progress (accept(2), "Error
/// handling": pending network errors of the new socket are reported by accept).
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
