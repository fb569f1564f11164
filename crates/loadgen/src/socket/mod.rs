//! A client's connection for an epoll loop: TCP, or TLS over it, without a buffer of its own while nothing is under way.
//!
//! A [`Socket`] is 16 bytes; with TLS 1.3 it owns half a kilobyte besides, with TLS 1.2 rustls's 4 kB. All buffers are
//! lent: the worker has one [`WorkerBuffers`] for all its connections. What stays in a connection is only what cannot be elsewhere: an incomplete TLS
//! record, and ciphertext that the kernel did not take; both are freed when consumed. STARTTLS is RFC 6120 section 5,
//! direct TLS XEP-0368 (1.1.0), channel bindings RFC 5929 and RFC 9266.
//!
//! Left out: kernel TLS, early data, IP_BIND_ADDRESS_NO_PORT (no safe wrapper has it: with a source address and port 0 the
//! kernel gives each source its own range of ephemeral ports, 28 232 by default; give a port to use all of them).
//!
//! Trap: no call waits, and none makes up for a lost turn. When [`WriteOutcome::blocked`] says so, wait for EPOLLOUT and call
//! [`Socket::write`] again, if need be with nothing. A read can set it too: handshake messages are sent from there.

mod client;
mod end_point;
mod records;
mod scratch;
mod secrets;
mod tickets;
mod tls;

#[cfg(test)]
mod tests;

pub use client::{ClientCertificatePem, ServerTrust, SharedTlsClient, TlsOptions};
pub use scratch::{WireBytes, WorkerBuffers};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What to set on a new socket. TCP_NODELAY is always set: a stanza must not wait for the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_RCVBUF in bytes (the kernel doubles it); `None` leaves it to the kernel's own tuning.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF in bytes (the kernel doubles it).
    pub send_buffer: Option<usize>,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// The lent buffer was filled: there is probably more, read again when it is this connection's turn.
    More,
    /// Nothing more for now: wait for EPOLLIN.
    Blocked,
    /// The peer ended the connection in order: FIN without TLS, close_notify with it.
    Closed,
    /// With TLS: FIN without close_notify, so the end may have been cut off (RFC 8446 section 6.1). Many servers do it.
    Cut,
}

/// What came of [`Socket::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes given to the sink (plaintext). What was on the wire is in [`WorkerBuffers::wire`].
    pub bytes: usize,
    /// Why it stopped.
    pub end: ReadEnd,
    /// The TLS handshake was completed in this very call; true once per handshake.
    pub established: bool,
    /// Ciphertext waits to be sent: wait for EPOLLOUT too, then call [`Socket::write`].
    pub blocked: bool,
}

/// What came of [`Socket::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Bytes that are this socket's now; the caller keeps the rest.
    pub taken: usize,
    /// Wait for EPOLLOUT, then call `write` again (with the rest, or with nothing).
    pub blocked: bool,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The registered name of the cipher suite.
    pub cipher: &'static str,
    /// A ticket or session of an earlier connection was used.
    pub resumed: bool,
}

/// A non-blocking connection, plain or with TLS.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    /// Boxed: most runs are plain and pay 8 bytes for it.
    tls: Option<Box<tls::TlsConnection>>,
}

impl Socket {
    /// Starts to connect. The outcome comes with EPOLLOUT: ask [`Socket::connect_result`] then.
    ///
    /// With a `source` the socket is bound to it first; its port may be 0 (see the module's trap about how many there are).
    ///
    /// # Errors
    /// What the kernel says: no files left (EMFILE), source address not of this machine or no port left (EADDRNOTAVAIL,
    /// EADDRINUSE), target unreachable. A refusal usually comes later, on loopback sometimes at once.
    pub fn connect(
        to: SocketAddr,
        source: Option<SocketAddr>,
        options: &SocketOptions,
    ) -> io::Result<Socket> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&descriptor, true)?;
        if let Some(bytes) = options.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&descriptor, bytes)?;
        }
        if let Some(bytes) = options.send_buffer {
            sockopt::set_socket_send_buffer_size(&descriptor, bytes)?;
        }
        if let Some(source) = source {
            // Ports in TIME_WAIT are free again: a run that loops would run out of them.
            sockopt::set_socket_reuseaddr(&descriptor, true)?;
            net::bind(&descriptor, &source)?;
        }
        match net::connect(&descriptor, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Socket { descriptor, tls: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether connecting succeeded; call it once, at the first EPOLLOUT (or EPOLLERR).
    ///
    /// # Errors
    /// Why it did not: ECONNREFUSED, ETIMEDOUT and so on.
    pub fn connect_result(&self) -> io::Result<()> {
        sockopt::socket_error(&self.descriptor)??;
        Ok(())
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The kernel's; not for a connected socket.
    pub fn local(&self) -> io::Result<SocketAddr> {
        let address = net::getsockname(&self.descriptor)?;
        SocketAddr::try_from(address).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Begins the TLS handshake and sends its first message. [`Socket::read`] does the rest and says when it is done.
    ///
    /// `name` is the XMPP domain: it goes into SNI and is what the certificate is checked for, if that is wanted.
    /// `alpn` is what is offered (RFC 7301): `xmpp-client` without STARTTLS (XEP-0368), `http/1.1` for BOSH and WebSocket.
    ///
    /// After STARTTLS, make sure that nothing follows `<proceed/>` in the plaintext already read: it would have been
    /// sent without protection (RFC 6120 section 5.4.3.3).
    ///
    /// # Errors
    /// InvalidInput when `name` is no DNS name or address, or TLS was begun already; the kernel's errors of sending.
    pub fn start_tls(
        &mut self,
        client: &SharedTlsClient,
        name: &str,
        alpn: Option<&[u8]>,
        scratch: &mut WorkerBuffers,
    ) -> io::Result<WriteOutcome> {
        if self.tls.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS was begun already"));
        }
        let tls = self.tls.insert(Box::new(tls::TlsConnection::new(client, name, alpn)?));
        tls.begin(self.descriptor.as_fd(), scratch)
    }

    /// Reads once from the kernel and gives the plaintext to `sink`, piece by piece; drives the handshake meanwhile.
    ///
    /// One call is one `recv` of at most [`WorkerBuffers::READ_BYTES`]: a connection that is flooded does not starve others.
    ///
    /// # Errors
    /// ECONNRESET and the like; InvalidData with a `rustls::Error` inside when TLS failed (an alert was sent if possible).
    /// The connection is of no use then. What the sink was given before stays valid.
    pub fn read(&mut self, scratch: &mut WorkerBuffers, sink: impl FnMut(&[u8])) -> io::Result<ReadOutcome> {
        let mut sink = sink;
        let descriptor = self.descriptor.as_fd();
        if let Some(tls) = &mut self.tls {
            return tls.read(descriptor, scratch, &mut sink);
        }
        let (bytes, end) = match receive(descriptor, scratch.plain_room())? {
            None => (0, ReadEnd::Blocked),
            Some(0) => (0, ReadEnd::Closed),
            Some(count) => {
                scratch.wire.received += count as u64;
                let data = scratch.plain_room().get(..count).unwrap_or_default();
                sink(data);
                (count, if count < WorkerBuffers::READ_BYTES { ReadEnd::Blocked } else { ReadEnd::More })
            }
        };
        Ok(ReadOutcome { bytes, end, established: false, blocked: false })
    }

    /// Writes what the kernel takes. With TLS what it does not take of one record (16 KiB at most) is kept here.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET; NotConnected for data while the handshake is under way (nothing is taken).
    pub fn write(&mut self, data: &[u8], scratch: &mut WorkerBuffers) -> io::Result<WriteOutcome> {
        let descriptor = self.descriptor.as_fd();
        if let Some(tls) = &mut self.tls {
            return tls.write(descriptor, data, scratch);
        }
        if data.is_empty() {
            return Ok(WriteOutcome { taken: 0, blocked: false });
        }
        let taken = send(descriptor, data, &mut scratch.wire)?;
        Ok(WriteOutcome { taken, blocked: taken < data.len() })
    }

    /// Says close_notify when there is TLS, else nothing. Nothing can be written after it; reading goes on.
    ///
    /// # Errors
    /// As [`Socket::write`].
    pub fn close_notify(&mut self, scratch: &mut WorkerBuffers) -> io::Result<WriteOutcome> {
        match &mut self.tls {
            Some(tls) => tls.close_notify(self.descriptor.as_fd(), scratch),
            None => Ok(WriteOutcome { taken: 0, blocked: false }),
        }
    }

    /// Ends the sending side (FIN). Call it when nothing waits any more.
    ///
    /// # Errors
    /// ENOTCONN when the peer was first.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(net::shutdown(&self.descriptor, Shutdown::Write)?)
    }

    /// Drops the connection with RST, as a lost one looks to a server, and leaves no TIME_WAIT. Dropping the value
    /// without this closes with FIN.
    pub fn abort(self) {
        // Should it fail, the connection is closed with FIN: the peer sees an end all the same.
        let _ = sockopt::set_socket_linger(&self.descriptor, Some(Duration::ZERO));
    }

    /// There is TLS and its handshake is done.
    pub fn is_secure(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_secure())
    }

    /// What was negotiated; `None` without TLS or before the handshake is done.
    pub fn facts(&self) -> Option<NegotiatedTls> {
        self.tls.as_ref()?.facts()
    }

    /// The channel binding `tls-exporter` (RFC 9266): 32 bytes, TLS 1.3 only.
    pub fn tls_exporter(&self) -> Option<[u8; 32]> {
        self.tls.as_ref()?.exporter()
    }

    /// The channel binding `tls-server-end-point` (RFC 5929 section 4): the hash of the server's certificate. `None` too
    /// where its signature has no one hash function, as with Ed25519.
    pub fn server_end_point(&self) -> Option<Vec<u8>> {
        self.tls.as_ref()?.server_end_point()
    }

    /// Heap bytes that wait here: an incomplete record and unsent ciphertext. 0 for an idle connection.
    pub fn held(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.held())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// One `recv`; `None` when there is nothing yet.
fn receive(descriptor: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match net::recv(descriptor, &mut *room, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// One `send`; says how much the kernel took, which may be nothing.
fn send(descriptor: BorrowedFd<'_>, data: &[u8], wire: &mut WireBytes) -> io::Result<usize> {
    loop {
        match net::send(descriptor, data, SendFlags::NOSIGNAL) {
            Ok(count) => {
                wire.sent += count as u64;
                return Ok(count);
            }
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
