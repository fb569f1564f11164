//! A light client's socket: plain TCP or TLS 1.3 over it, never blocking.
//!
//! The server's certificate is not checked: the benches run on loopback against self-signed certificates.
//! Sessions are not resumed, so that each connection pays for its own handshake.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Socket, Type};

/// The stream of one connection.
pub(crate) struct Link {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// What a read brought.
#[derive(PartialEq, Eq)]
pub(crate) enum Got {
    /// This many bytes; 0 when there is nothing yet.
    Bytes(usize),
    /// The peer has closed.
    End,
}

impl Link {
    /// Begins to connect. Source addresses 127.0.0.2 to 127.0.0.17 are used in turn, so that ports last.
    pub(crate) fn connect(to: SocketAddr, turn: u64) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if to.ip().is_loopback() && to.is_ipv4() {
            let source = Ipv4Addr::new(127, 0, 0, 2 + (turn % 16) as u8);
            socket.bind(&SocketAddr::V4(SocketAddrV4::new(source, 0)).into())?;
        }
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(Self { socket: socket.into(), tls: None }),
        }
    }

    /// The error of a connect that failed.
    pub(crate) fn connect_error(&self) -> io::Result<()> {
        self.socket.take_error()?.map_or(Ok(()), Err)
    }

    /// Puts TLS over the socket; the handshake runs with the next reads and writes.
    pub(crate) fn start_tls(&mut self, config: &Arc<ClientConfig>, domain: &str) -> Result<()> {
        let name = ServerName::try_from(domain.to_owned()).context("the domain is no name for TLS")?;
        let mut tls = ClientConnection::new(Arc::clone(config), name)?;
        tls.set_buffer_limit(None);
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Reads what is there, at most `into.len()` bytes.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        let Some(tls) = &mut self.tls else {
            return match self.socket.read(into) {
                Ok(0) => Ok(Got::End),
                Ok(read) => Ok(Got::Bytes(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Got::Bytes(0)),
                Err(error) => Err(error),
            };
        };
        let mut ended = false;
        match tls.read_tls(&mut self.socket) {
            Ok(0) => ended = true,
            Ok(_) => {
                tls.process_new_packets().map_err(io::Error::other)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match tls.reader().read(into) {
            Ok(0) => Ok(Got::End),
            Ok(read) => Ok(Got::Bytes(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(if ended { Got::End } else { Got::Bytes(0) })
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Got::End),
            Err(error) => Err(error),
        }
    }

    /// Writes as much of `bytes` as goes and removes it from there. True when all is out, the TLS records included.
    pub(crate) fn write(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            bytes.clear();
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            return Ok(true);
        }
        let mut written = 0;
        while written < bytes.len() {
            match self.socket.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        bytes.drain(..written);
        Ok(bytes.is_empty())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The configuration that all connections of a run share: TLS 1.3 only; `direct` offers ALPN as XEP-0368 wants it.
pub(crate) fn tls_config(direct: bool) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(testkit::tls::AcceptAnyCertificate(provider)))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    if direct {
        config.alpn_protocols = vec![b"xmpp-client".to_vec()];
    }
    Ok(Arc::new(config))
}
