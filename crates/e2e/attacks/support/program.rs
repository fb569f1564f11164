//! The real program with ports for clients, for direct TLS and for HTTP; resident memory, metrics, log and raw bytes.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first, or a stale
//! binary is tested.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use throng_e2e::{NodeProcess, TIMEOUT, ports};

/// Password of every account of a [`ProgramUnderAttack`].
pub(crate) const PASSWORD: &str = "correct horse";

/// A node of the program with the domains `localhost` and `other.test` and the accounts romeo and juliet at localhost.
pub(crate) struct ProgramUnderAttack {
    node: NodeProcess,
    /// XMPP without TLS.
    pub(crate) c2s: u16,
    /// XMPP with TLS from the first byte.
    pub(crate) direct: u16,
    /// HTTP without TLS, all paths.
    pub(crate) http: u16,
}

impl ProgramUnderAttack {
    /// Starts the program; `top` and `listen` are added to the top of its configuration and to its HTTP listener.
    pub(crate) fn start(name: &str, top: &str, listen: &str) -> ProgramUnderAttack {
        let [c2s, direct, http] = ports::free();
        let mut node = NodeProcess::new(&format!("attack-{name}"));
        node.configure(&format!(
            "hosts = ['localhost', 'other.test']\ndata_dir = 'data'\n{top}\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{c2s}'\ntls = 'off'\nallow_plain_without_tls = true\n\
             [[listen]]\nkind = 'c2s-tls'\naddress = '127.0.0.1:{direct}'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\nallow_plain_without_tls = true\n{listen}"
        ));
        for user in ["romeo", "juliet"] {
            node.add_account(&format!("{user}@localhost"), PASSWORD);
        }
        node.start();
        ProgramUnderAttack { node, c2s, direct, http }
    }

    /// Connects to one of its ports.
    pub(crate) fn connect(&self, port: u16) -> RawSocket {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
        socket.set_nodelay(true).expect("an option");
        RawSocket(socket)
    }

    /// Sends raw bytes to the HTTP port and returns everything up to the end of the connection; the bytes should
    /// request that it is closed.
    pub(crate) fn http(&self, request: &str) -> String {
        let mut connection = self.connect(self.http);
        connection.send(request);
        connection.rest()
    }

    /// `GET` of a path without normalisation: status and the whole response.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let answer =
            self.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        (status(&answer), answer)
    }

    /// Opens a WebSocket; `headers` are added to the handshake.
    pub(crate) fn websocket(&self, headers: &str) -> RawSocket {
        let mut connection = self.connect(self.http);
        connection.send(format!(
            "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: xmpp\r\n{headers}\r\n"
        ));
        assert!(connection.until("\r\n\r\n").starts_with("HTTP/1.1 101"));
        connection
    }

    /// Logs a user in over TCP without TLS and binds a resource.
    pub(crate) fn login(&self, user: &str, resource: &str) -> RawSocket {
        let header = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                      xmlns:stream='http://etherx.jabber.org/streams'>";
        let mut connection = self.connect(self.c2s);
        connection.send(header);
        connection.until("</stream:features>");
        let message = BASE64_STANDARD.encode(format!("\0{user}\0{PASSWORD}"));
        connection.send(format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{message}</auth>"
        ));
        connection.until("<success");
        connection.send(header);
        connection.until("</stream:features>");
        connection.send(format!(
            "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>{resource}</resource></bind></iq>"
        ));
        connection.until("</bind></iq>");
        connection
    }

    /// Sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (status, page) = self.get("/metrics");
        assert_eq!(status, 200, "{page}");
        let values = page.lines().filter_map(|line| line.strip_prefix(name)).filter_map(|rest| {
            let value = rest
                .strip_prefix(' ')
                .or_else(|| rest.strip_prefix('{')?.split_once("} ").map(|(_, v)| v))?;
            value.trim().parse::<f64>().ok()
        });
        values.sum()
    }

    /// Resident memory of the process in bytes. It varies by a few megabytes without load, so bounds are wide.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of its memory");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

impl Deref for ProgramUnderAttack {
    type Target = NodeProcess;
    fn deref(&self) -> &NodeProcess {
        &self.node
    }
}

impl DerefMut for ProgramUnderAttack {
    fn deref_mut(&mut self) -> &mut NodeProcess {
        &mut self.node
    }
}

/// Status of an HTTP response.
///
/// # Panics
/// If it is not an HTTP response.
fn status(answer: &str) -> u16 {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.unwrap_or_else(|| panic!("not an answer of HTTP: {answer:?}"))
}

/// A WebSocket frame with a zero mask. The announced length is independent of the payload.
pub(crate) fn frame(first: u8, announced: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match announced {
        0..=125 => bytes.push(0x80 | u8::try_from(announced).expect("a short one")),
        126..=0xffff => {
            bytes.push(0xfe);
            bytes.extend(u16::try_from(announced).expect("a middle one").to_be_bytes());
        }
        _ => {
            bytes.push(0xff);
            bytes.extend(announced.to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// Connection for raw bytes.
pub(crate) struct RawSocket(pub(crate) TcpStream);

impl RawSocket {
    /// Sends bytes, or as many as the server accepts before it closes the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// Reads until this text was received; returns all input so far.
    ///
    /// # Panics
    /// If the connection ends first.
    pub(crate) fn until(&mut self, what: &str) -> String {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&all).into_owned();
            if text.contains(what) {
                return text;
            }
            match self.0.read(&mut buffer) {
                Ok(count @ 1..) => all.extend(&buffer[..count]),
                other => panic!("{other:?} instead of {what} after: {text}"),
            }
        }
    }

    /// Ends the sending direction.
    pub(crate) fn half_close(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Reads everything until the server closes the connection.
    ///
    /// # Panics
    /// If the server does not close it.
    pub(crate) fn rest(&mut self) -> String {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => all.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => {
                    panic!("the server keeps the connection ({error}): {}", String::from_utf8_lossy(&all))
                }
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}
