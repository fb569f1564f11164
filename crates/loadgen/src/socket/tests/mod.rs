//! Tests of connections against real peers on loopback: std's sockets, and rustls's buffered server in a thread.
//!
//! # Pitfalls
//!
//! No test sleeps. A client waits with poll(2) for at most [`TIMEOUT`], which is used up only on failure.

mod memory;
mod plain;
mod tls;
mod trust;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// Seconds after which a test is considered stuck.
const TIMEOUT: i64 = 30;
const NAME: &str = "example.test";

/// Runs a server script in a thread.
fn serve<T: Send + 'static>(
    script: impl FnOnce(TcpListener) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener.local_addr().unwrap(), spawn(move || script(listener)))
}

/// A client and everything that it received.
struct Client {
    socket: Socket,
    scratch: WorkerBuffers,
    got: Vec<u8>,
    established: u32,
    end: ReadEnd,
    blocked: bool,
}

impl Client {
    fn connect(to: SocketAddr) -> Client {
        Client::connect_with(to, &SocketOptions::default())
    }

    fn new(socket: Socket, scratch: WorkerBuffers) -> Client {
        Client { socket, scratch, got: Vec::new(), established: 0, end: ReadEnd::Blocked, blocked: false }
    }

    fn connect_with(to: SocketAddr, options: &SocketOptions) -> Client {
        let client = Client::new(Socket::connect(to, None, options).unwrap(), WorkerBuffers::new());
        wait(&client.socket, PollFlags::OUT);
        client.socket.connect_result().unwrap();
        client
    }

    /// Connects and performs a TLS handshake, like direct TLS but without ALPN.
    fn secure(to: SocketAddr, client: &SharedTlsClient) -> Client {
        let mut client = Client::connect(to).with_tls(client, NAME, false);
        client.handshake().unwrap();
        client
    }

    fn with_tls(mut self, client: &SharedTlsClient, name: &str, direct: bool) -> Client {
        self.blocked = self
            .socket
            .start_tls(client, name, direct.then_some(b"xmpp-client".as_slice()), &mut self.scratch)
            .unwrap()
            .blocked;
        self
    }

    /// Polls the socket and handles its events.
    fn turn(&mut self) -> io::Result<()> {
        let wanted = if self.blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let ready = wait(&self.socket, wanted);
        if self.blocked && ready.contains(PollFlags::OUT) {
            self.blocked = self.socket.write(&[], &mut self.scratch)?.blocked;
        }
        let got = &mut self.got;
        let before = got.len();
        let read = self.socket.read(&mut self.scratch, |data| got.extend_from_slice(data))?;
        assert_eq!(read.bytes, self.got.len() - before);
        self.established += u32::from(read.established);
        self.blocked = read.blocked;
        self.end = read.end;
        Ok(())
    }

    fn handshake(&mut self) -> io::Result<()> {
        while !self.socket.is_secure() {
            assert!(self.is_open(), "the handshake was cut");
            self.turn()?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        matches!(self.end, ReadEnd::More | ReadEnd::Blocked)
    }

    fn read_bytes(&mut self, count: usize) -> &[u8] {
        while self.got.len() < count {
            assert!(self.is_open(), "{} of {count} bytes, then {:?}", self.got.len(), self.end);
            self.turn().unwrap();
        }
        &self.got
    }

    fn read_end(&mut self) -> io::Result<ReadEnd> {
        while self.is_open() {
            self.turn()?;
        }
        Ok(self.end)
    }

    fn send(&mut self, mut data: &[u8]) -> io::Result<()> {
        loop {
            let written = self.socket.write(data, &mut self.scratch)?;
            data = &data[written.taken..];
            self.blocked = written.blocked;
            if !written.blocked {
                assert!(data.is_empty(), "it stopped for no reason");
                return Ok(());
            }
            wait(&self.socket, PollFlags::OUT);
        }
    }
}

fn wait(socket: &Socket, flags: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(socket, flags)];
    let limit = Timespec { tv_sec: TIMEOUT, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&limit)).unwrap(), 1, "stuck");
    polled[0].revents()
}

/// A certificate, its key, and both as PEM.
struct Made {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    identity: ClientCertificatePem,
}

impl Clone for Made {
    fn clone(&self) -> Self {
        Made {
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            identity: self.identity.clone(),
        }
    }
}

impl Made {
    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Made {
        Made {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            identity: ClientCertificatePem {
                certificates: certificate.pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
            },
        }
    }
}

fn self_signed(name: &str) -> Made {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    Made::new(&made.cert, &made.signing_key)
}

/// PEM of an authority, and a certificate signed by it.
fn signed(name: &str) -> (Vec<u8>, Made) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem().into_bytes();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (pem, Made::new(&leaf, &key))
}

fn client(change: impl FnOnce(&mut TlsOptions)) -> SharedTlsClient {
    let mut options = TlsOptions::default();
    change(&mut options);
    SharedTlsClient::new(&options).unwrap()
}

fn server_config(made: &Made) -> ServerConfig {
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.certificate.clone()], made.key.clone_key())
        .unwrap()
}

type Served = StreamOwned<ServerConnection, TcpStream>;

/// Accepts one connection and performs the TLS handshake; blocking.
fn accept(listener: &TcpListener, config: &Arc<ServerConfig>) -> Served {
    let (stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = stream;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).unwrap();
    }
    StreamOwned::new(connection, stream)
}

/// A TLS server for one connection.
fn serve_tls<T: Send + 'static>(
    config: ServerConfig,
    script: impl FnOnce(Served) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    serve(move |listener| script(accept(&listener, &Arc::new(config))))
}

/// Test data with varying bytes.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 7 + place / 251) as u8).collect()
}
