//! A connection to a directory: one request at a time.
//!
//! # Pitfalls
//!
//! A request that is dropped leaves a response on the way, so its connection must not be used again: requests take the
//! connection, and only a complete one gives it back.

use std::fmt;
use std::sync::Arc;

use environment::account_provider::{ProviderError, ProviderErrorKind};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::message::{LdapEntry, LdapRequest, LdapResponse, LdapResult, decode, message_length};

/// Most entries that a search may return; all but two are refused anyway.
const MAX_ENTRIES: usize = 16;

/// Space for a read.
const MIN_READ_BYTES: usize = 2048;

/// Encryption of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LdapEncryption {
    /// TLS from the first byte: `ldaps://`.
    Tls,
    /// StartTLS before anything else.
    StartTls,
    /// None: only for a directory on this machine.
    None,
}

/// Address of a directory.
#[derive(Clone)]
pub struct LdapServer {
    /// Host name or address, which the certificate must name.
    pub host: String,
    /// Port; 389, or 636 for TLS.
    pub port: u16,
    /// Encryption.
    pub encryption: LdapEncryption,
    /// TLS settings; must be present unless there is no encryption.
    pub tls: Option<Arc<ClientConfig>>,
}

impl fmt::Display for LdapServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encryption == LdapEncryption::Tls { "ldaps" } else { "ldap" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl LdapServer {
    /// Parses `ldap://host[:port]` or `ldaps://host[:port]`; without TLS settings yet.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn parse(url: &str, start_tls: bool) -> Result<LdapServer, String> {
        let wrong = || format!("\"{url}\" is not valid; write a URL such as ldaps://ldap.example.net");
        let (rest, encryption, default_port) =
            match (url.strip_prefix("ldaps://"), url.strip_prefix("ldap://")) {
                (Some(rest), _) => (rest, LdapEncryption::Tls, 636),
                (_, Some(rest)) if start_tls => (rest, LdapEncryption::StartTls, 389),
                (_, Some(rest)) => (rest, LdapEncryption::None, 389),
                _ => return Err(wrong()),
            };
        let authority: http::uri::Authority = rest.trim_end_matches('/').parse().map_err(|_| wrong())?;
        if authority.as_str().contains('@') || !crate::http_client::has_valid_port(&authority) {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(LdapServer { host, port: authority.port_u16().unwrap_or(default_port), encryption, tls: None })
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }

    /// An error of this server.
    pub(crate) fn error(&self, kind: ProviderErrorKind, what: impl fmt::Display) -> ProviderError {
        ProviderError::new(kind, format!("{self}: {what}"))
    }
}

trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection.
pub struct LdapConnection {
    transport: Box<dyn Transport>,
    last_id: u32,
    /// Input that is no complete message yet.
    input: Vec<u8>,
}

/// Why a request failed.
#[derive(Debug)]
pub enum LdapFailure {
    /// The connection was closed before the first byte of the response: another one may work.
    Closed,
    /// Another connection would not help.
    Failed(ProviderError),
}

impl LdapConnection {
    /// Connects, and encrypts the connection.
    ///
    /// # Errors
    /// If the server cannot be reached or trusted.
    pub async fn connect(server: &LdapServer) -> Result<LdapConnection, ProviderError> {
        let unreachable = |error: &dyn fmt::Display| server.error(ProviderErrorKind::Unavailable, error);
        let socket = TcpStream::connect((server.host.as_str(), server.port)).await;
        let socket = socket.map_err(|error| unreachable(&error))?;
        socket.set_nodelay(true).map_err(|error| unreachable(&error))?;
        match server.encryption {
            LdapEncryption::None => Ok(LdapConnection::new(Box::new(socket))),
            LdapEncryption::Tls => LdapConnection::encrypt(server, Box::new(socket)).await,
            LdapEncryption::StartTls => {
                let mut plain = LdapConnection::new(Box::new(socket));
                let (_, result) = match plain.request(server, &LdapRequest::StartTls).await {
                    Ok(done) => done,
                    Err(LdapFailure::Closed) => return Err(unreachable(&"the connection was closed")),
                    Err(LdapFailure::Failed(error)) => return Err(error),
                };
                if result.code != 0 {
                    return Err(unreachable(&format!("StartTLS was refused: {}", result.diagnostic)));
                }
                // What came before the handshake could be an attacker's (RFC 4511, section 4.14.2).
                if !plain.input.is_empty() {
                    return Err(
                        server.error(ProviderErrorKind::InvalidResponse, "input before the TLS handshake")
                    );
                }
                LdapConnection::encrypt(server, plain.transport).await
            }
        }
    }

    fn new(transport: Box<dyn Transport>) -> LdapConnection {
        LdapConnection { transport, last_id: 0, input: Vec::new() }
    }

    async fn encrypt(
        server: &LdapServer,
        socket: Box<dyn Transport>,
    ) -> Result<LdapConnection, ProviderError> {
        let unreachable = |error: &dyn fmt::Display| server.error(ProviderErrorKind::Unavailable, error);
        let Some(tls) = server.tls.clone() else { return Err(unreachable(&"TLS is not configured")) };
        let name = ServerName::try_from(server.host.clone()).map_err(|error| unreachable(&error))?;
        let stream = tokio_rustls::TlsConnector::from(tls).connect(name, socket).await;
        Ok(LdapConnection::new(Box::new(stream.map_err(|error| unreachable(&error))?)))
    }

    /// Sends a request and reads its responses: the entries of a search, and the result.
    ///
    /// # Errors
    /// See [`LdapFailure`]. The connection must not be used again.
    pub async fn request(
        &mut self,
        server: &LdapServer,
        request: &LdapRequest<'_>,
    ) -> Result<(Vec<LdapEntry>, LdapResult), LdapFailure> {
        let invalid =
            |what: &str| LdapFailure::Failed(server.error(ProviderErrorKind::InvalidResponse, what));
        // RFC 4511, section 4.1.1.1: not zero.
        self.last_id = self.last_id % 0x7fff_ffff + 1;
        let message = request.encode(self.last_id);
        if self.transport.write_all(&message).await.is_err() || self.transport.flush().await.is_err() {
            return Err(LdapFailure::Closed);
        }
        let mut entries = Vec::new();
        let mut began = false;
        loop {
            let message = match self.read_message().await {
                Ok(Some(message)) => message,
                Ok(None) if !began && self.input.is_empty() => return Err(LdapFailure::Closed),
                Ok(None) => return Err(invalid("the connection was closed in the middle of a response")),
                Err(()) => return Err(invalid("a response is malformed")),
            };
            let (id, response) = decode(&message).map_err(|_| invalid("a response is malformed"))?;
            match (id == self.last_id, response) {
                (true, LdapResponse::Done(result)) => return Ok((entries, result)),
                (true, LdapResponse::Entry(entry)) if entries.len() < MAX_ENTRIES => entries.push(entry),
                (true, LdapResponse::Entry(_)) => return Err(invalid("a search has too many entries")),
                (true, LdapResponse::Reference) => {}
                // A notice of disconnection (section 4.4.1).
                (false, LdapResponse::Done(_)) if id == 0 => return Err(LdapFailure::Closed),
                (false, _) => return Err(invalid("a response belongs to no request")),
            }
            began = true;
        }
    }

    /// The next message; `None` if the connection was closed.
    async fn read_message(&mut self) -> Result<Option<Vec<u8>>, ()> {
        loop {
            if let Some(length) = message_length(&self.input).map_err(|_| ())? {
                let rest = self.input.split_off(length);
                return Ok(Some(std::mem::replace(&mut self.input, rest)));
            }
            self.input.reserve(MIN_READ_BYTES);
            match self.transport.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown() {
        for (url, start_tls, shown, encryption) in [
            ("ldaps://ldap.example.net", false, "ldaps://ldap.example.net:636", LdapEncryption::Tls),
            ("ldap://ldap.example.net/", true, "ldap://ldap.example.net:389", LdapEncryption::StartTls),
            ("ldap://127.0.0.1:3389", false, "ldap://127.0.0.1:3389", LdapEncryption::None),
        ] {
            let server = LdapServer::parse(url, start_tls).unwrap();
            assert_eq!((server.to_string().as_str(), server.encryption), (shown, encryption));
        }
        for wrong in
            ["", "ldap.example.net", "http://a.org", "ldap://", "ldap://user@a.org", "ldap://a.org:x"]
        {
            assert!(LdapServer::parse(wrong, false).is_err(), "{wrong}");
        }
        assert!(LdapServer::parse("ldap://[::1]", false).unwrap().is_loopback());
    }
}
