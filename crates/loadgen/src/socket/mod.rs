//! Client connection for an epoll loop: TCP, or TLS over it, without own buffers while idle.
//!
//! A [`Socket`] is 16 bytes; TLS 1.3 adds half a kilobyte, TLS 1.2 adds 4 kB of rustls state. All connections of a
//! worker borrow one [`WorkerBuffers`]. A connection stores only an incomplete TLS record and ciphertext that the
//! kernel did not accept; both are freed when consumed. STARTTLS is RFC 6120, section 5, direct TLS XEP-0368 (version
//! 1.1.0), channel bindings RFC 5929 and RFC 9266.
//!
//! Not implemented: kernel TLS, early data, IP_BIND_ADDRESS_NO_PORT (no safe wrapper has it: with a source address and
//! port 0 the kernel gives each source its own range of ephemeral ports, 28 232 by default; set a port to use all of
//! them).
//!
//! # Pitfalls
//!
//! No call blocks, and none is retried internally. When [`WriteOutcome::blocked`] is set, wait for EPOLLOUT and call
//! [`Socket::write`] again, with no data if necessary. A read can set it too, since it may send handshake messages.

mod client;
mod end_point;
mod scratch;
mod tickets;
mod tls;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};

pub use client::{ClientCertificatePem, ServerTrust, SharedTlsClient, TlsOptions};
pub use scratch::{WireBytes, WorkerBuffers};

/// Options of a new socket. TCP_NODELAY is always set: a stanza must not wait for the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// SO_RCVBUF in bytes (the kernel doubles it); `None` keeps the kernel's autotuning.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF in bytes (the kernel doubles it).
    pub send_buffer: Option<usize>,
}

/// Reason for which a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// The borrowed buffer is full: there is probably more, so read again when it is this connection's turn.
    More,
    /// Nothing more for now: wait for EPOLLIN.
    Blocked,
    /// The peer closed gracefully: FIN without TLS, close_notify with it.
    Closed,
    /// With TLS: FIN without close_notify, so data may have been truncated (RFC 8446, section 6.1). Many servers do
    /// this.
    Cut,
}

/// Result of [`Socket::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Plaintext bytes passed to the sink. Bytes on the wire are counted in [`WorkerBuffers::wire`].
    pub bytes: usize,
    /// Why the read stopped.
    pub end: ReadEnd,
    /// The TLS handshake was completed in this call; true once per handshake.
    pub established: bool,
    /// Ciphertext is unsent: wait for EPOLLOUT too, then call [`Socket::write`].
    pub blocked: bool,
}

/// Result of [`Socket::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Bytes accepted by this socket; the caller keeps the rest.
    pub taken: usize,
    /// Wait for EPOLLOUT, then call `write` again (with the rest, or with no data).
    pub blocked: bool,
}

/// Negotiated TLS parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// Registered name of the cipher suite.
    pub cipher: &'static str,
    /// A ticket or session of an earlier connection was resumed.
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
    /// Starts to connect. The result is available at EPOLLOUT from [`Socket::connect_result`].
    ///
    /// A `source` is bound first; its port may be 0 (see the module documentation for the number of such ports).
    ///
    /// # Errors
    /// The kernel's error: no file descriptors left (EMFILE), source address not local or no port left (EADDRNOTAVAIL,
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
            // Makes ports in TIME_WAIT reusable: a run in a loop would exhaust them.
            sockopt::set_socket_reuseaddr(&descriptor, true)?;
            net::bind(&descriptor, &source)?;
        }
        match net::connect(&descriptor, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Socket { descriptor, tls: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Result of connecting; call it once, at the first EPOLLOUT (or EPOLLERR).
    ///
    /// # Errors
    /// The reason of the failure: ECONNREFUSED, ETIMEDOUT and so on.
    pub fn connect_result(&self) -> io::Result<()> {
        sockopt::socket_error(&self.descriptor)??;
        Ok(())
    }

    /// Local address.
    ///
    /// # Errors
    /// The kernel's error; none on a connected socket.
    pub fn local(&self) -> io::Result<SocketAddr> {
        let address = net::getsockname(&self.descriptor)?;
        SocketAddr::try_from(address).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Starts the TLS handshake and sends its first message. [`Socket::read`] completes it and reports when it is done.
    ///
    /// `name` is the XMPP domain, used for SNI and, if trust is configured, to verify the certificate.
    /// `alpn` is the offer (RFC 7301): `xmpp-client` without STARTTLS (XEP-0368), `http/1.1` for BOSH and WebSocket.
    ///
    /// After STARTTLS, check that nothing follows `<proceed/>` in the plaintext already read: it would have been
    /// sent without protection (RFC 6120, section 5.4.3.3).
    ///
    /// # Errors
    /// InvalidInput if `name` is not a DNS name or address, or TLS was started already; the kernel's errors of sending.
    pub fn start_tls(
        &mut self,
        client: &SharedTlsClient,
        name: &str,
        alpn: Option<&[u8]>,
        scratch: &mut WorkerBuffers,
    ) -> io::Result<WriteOutcome> {
        if self.tls.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS was already started"));
        }
        let tls = self.tls.insert(Box::new(tls::TlsConnection::new(client, name, alpn)?));
        tls.begin(self.descriptor.as_fd(), scratch)
    }

    /// Reads once from the kernel and passes the plaintext to `sink` piece by piece; drives the handshake meanwhile.
    ///
    /// One call is one `recv` of at most [`WorkerBuffers::READ_BYTES`]: a flooded connection does not starve others.
    ///
    /// # Errors
    /// ECONNRESET and the like; InvalidData with a `rustls::Error` inside if TLS failed (an alert was sent if
    /// possible). The connection is then unusable. Data already passed to the sink stays valid.
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

    /// Writes what the kernel accepts. With TLS the unsent part of one record (at most 16 KiB) is kept here.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET; NotConnected for data during the handshake (nothing is accepted).
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

    /// Sends close_notify if there is TLS. Nothing can be written afterwards; reading continues.
    ///
    /// # Errors
    /// As [`Socket::write`].
    pub fn close_notify(&mut self, scratch: &mut WorkerBuffers) -> io::Result<WriteOutcome> {
        match &mut self.tls {
            Some(tls) => tls.close_notify(self.descriptor.as_fd(), scratch),
            None => Ok(WriteOutcome { taken: 0, blocked: false }),
        }
    }

    /// Closes the sending side (FIN). Call it when nothing is unsent.
    ///
    /// # Errors
    /// ENOTCONN if the peer closed first.
    pub fn shutdown(&self) -> io::Result<()> {
        Ok(net::shutdown(&self.descriptor, Shutdown::Write)?)
    }

    /// Resets the connection (RST), which looks like a lost one to a server and leaves no TIME_WAIT. Dropping the value
    /// instead closes it with FIN.
    pub fn abort(self) {
        // If it fails, the connection is closed with FIN, and the peer sees an end all the same.
        let _ = sockopt::set_socket_linger(&self.descriptor, Some(Duration::ZERO));
    }

    /// Whether the TLS handshake is complete.
    pub fn is_secure(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_secure())
    }

    /// Negotiated TLS parameters; `None` without TLS or before the handshake is complete.
    pub fn negotiated_tls(&self) -> Option<NegotiatedTls> {
        self.tls.as_ref()?.negotiated_tls()
    }

    /// Channel binding `tls-exporter` (RFC 9266): 32 bytes, TLS 1.3 only.
    pub fn tls_exporter(&self) -> Option<[u8; 32]> {
        self.tls.as_ref()?.exporter()
    }

    /// Channel binding `tls-server-end-point` (RFC 5929, section 4): hash of the server's certificate. `None` also if
    /// its signature has no single hash function, as with Ed25519.
    pub fn server_end_point(&self) -> Option<Vec<u8>> {
        self.tls.as_ref()?.server_end_point()
    }

    /// Heap bytes buffered here: an incomplete record and unsent ciphertext. 0 for an idle connection.
    pub fn held(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.held())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// One `recv`; `None` if nothing is available.
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

/// One `send`; returns the number of bytes that the kernel accepted, possibly 0.
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
