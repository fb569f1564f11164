//! Settings of the connection to NATS: servers, credentials, TLS.
//!
//! # Pitfalls
//!
//! A URL may contain a password, so neither it nor these settings are part of debug output and messages.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, ServerAddr};
use base::Secret;
use base::percent_encoding::percent_decode;
use cluster::NodeId;

use crate::cluster_key::ClusterKey;
use crate::protocol::frame::MAX_FRAME;

/// Messages of NATS that wait for the task that handles them; later ones are dropped, and sent again.
const SUBSCRIPTION_CAPACITY: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that answers no ping in this time is closed after the second one.
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// Longest time between two attempts to connect.
pub(crate) const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// How a node authenticates itself to NATS. A user and a password may also be in the URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsCredentials {
    /// Not at all, or as the URLs say.
    #[default]
    None,
    /// User and password.
    UserPassword(String, Secret),
    /// A token.
    Token(Secret),
    /// The seed of an nkey.
    NkeySeed(Secret),
    /// The contents of a credentials file: a JSON Web Token and the seed of an nkey.
    CredentialsFile(Secret),
}

/// TLS to NATS. It is used if a server requires it, and all connections use it if any URL begins with `tls://` or `required` says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// Connections without TLS are refused, as with a URL that begins with `tls://`.
    pub required: bool,
    /// File with the authorities that sign the certificates of servers; without it those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// Files with the certificate of this node and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Settings of the connection to NATS.
#[derive(Clone)]
pub struct NatsSettings {
    /// URLs of servers: any of them is used, and others that they name.
    pub servers: Vec<String>,
    /// Name of this node.
    pub node: NodeId,
    /// Number of the deployment, the same on all its nodes: several may share the servers.
    pub deployment: u64,
    /// Key of the deployment, with which its nodes authenticate what they send.
    pub key: ClusterKey,
    /// Credentials.
    pub credentials: NatsCredentials,
    /// TLS.
    pub tls: NatsTls,
}

impl fmt::Debug for NatsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSettings").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why there is no connection to NATS.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// No server is named.
    #[error("[cluster] nats is empty; name at least one server, such as nats://127.0.0.1:4222")]
    NoServer,
    /// It is no URL of a NATS server.
    #[error("the NATS URL number {0} is not valid; write nats://HOST:PORT or tls://HOST:PORT")]
    Url(usize),
    /// Credentials that cannot be read.
    #[error("the credentials of [cluster] are not valid: {0}")]
    Credentials(String),
    /// The credentials were refused.
    #[error("NATS refuses the credentials of this node; check [cluster] and the users of the NATS server")]
    Refused,
    /// No server could be reached.
    #[error("cannot connect to NATS at {servers}: {reason}")]
    Unreachable {
        /// Hosts and ports.
        servers: String,
        /// The reason.
        reason: String,
    },
    /// The server accepts only smaller messages.
    #[error("max_payload of the NATS server is {0}; it must be at least {MAX_FRAME}")]
    MaxPayload(usize),
    /// No JetStream.
    #[error("JetStream is not available: {0}; enable it in the NATS server (nats-server -js)")]
    JetStream(String),
    /// The node cannot publish to its subject, or receives nothing from it.
    #[error(
        "messages on the NATS subject {0} do not arrive; let the NATS user of this node publish and subscribe to throng.>"
    )]
    Subject(String),
    /// The bucket of the members cannot be used.
    #[error("cannot use the key-value bucket {bucket}: {reason}")]
    Bucket {
        /// Its name.
        bucket: String,
        /// The reason.
        reason: String,
    },
}

impl NatsSettings {
    /// The subject of a node.
    pub(crate) fn subject(&self, node: NodeId) -> String {
        format!("throng.{:016x}.{node}", self.deployment)
    }

    /// The bucket of the members.
    pub(crate) fn bucket(&self) -> String {
        format!("throng-{:016x}", self.deployment)
    }

    /// Reads the URLs.
    ///
    /// # Errors
    /// The first one that is not valid.
    pub(crate) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsError> {
        if self.servers.is_empty() {
            return Err(NatsError::NoServer);
        }
        let read = |(at, url): (usize, &String)| {
            let address: Option<ServerAddr> = url.parse().ok();
            address
                .filter(|address| !address.is_websocket() && !address.host().is_empty())
                .ok_or(NatsError::Url(at + 1))
        };
        self.servers.iter().enumerate().map(read).collect()
    }

    /// Hosts and ports, for messages.
    pub(crate) fn shown_servers(&self) -> String {
        let addresses = self.addresses().unwrap_or_default();
        let shown: Vec<String> =
            addresses.iter().map(|address| format!("{}:{}", address.host(), address.port())).collect();
        shown.join(", ")
    }

    /// Checks what can be checked without a connection.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn check(&self) -> Result<(), NatsError> {
        self.options().map(drop)
    }

    /// Whether connections without TLS are refused, also to servers that NATS itself names.
    fn requires_tls(&self, addresses: &[ServerAddr]) -> bool {
        self.tls.required || addresses.iter().any(ServerAddr::tls_required)
    }

    /// Options of the client.
    pub(crate) fn options(&self) -> Result<(ConnectOptions, Vec<ServerAddr>), NatsError> {
        let addresses = self.addresses()?;
        let mut options = ConnectOptions::new()
            .name(format!("throng {}", self.node))
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(CONNECT_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .require_tls(self.requires_tls(&addresses))
            .reconnect_delay_callback(|attempts| {
                let millis = 50_u64.saturating_mul(1 << attempts.min(10));
                Duration::from_millis(millis).min(MAX_RECONNECT_DELAY)
            });
        if let Some(authorities) = &self.tls.authorities {
            options = options.add_root_certificates(authorities.clone());
        }
        if let Some((certificate, key)) = &self.tls.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        let options = match &self.credentials {
            NatsCredentials::None => with_url_credentials(options, &addresses)?,
            NatsCredentials::UserPassword(user, password) => {
                options.user_and_password(user.clone(), text(password)?)
            }
            NatsCredentials::Token(token) => options.token(text(token)?),
            NatsCredentials::NkeySeed(seed) => {
                // The client would report a wrong seed only when it connects, and as a refusal of the server.
                if !is_user_seed(&text(seed)?) {
                    return Err(NatsError::Credentials("it is not the seed of a user (SU…)".to_owned()));
                }
                options.nkey(text(seed)?)
            }
            NatsCredentials::CredentialsFile(contents) => options
                .credentials(&text(contents)?)
                .map_err(|error| NatsError::Credentials(error.to_string()))?,
        };
        Ok((options, addresses))
    }

    /// The reason why the client could not connect.
    pub(crate) fn connect_error(&self, error: &async_nats::ConnectError) -> NatsError {
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => NatsError::Refused,
            _ => NatsError::Unreachable { servers: self.shown_servers(), reason: error.to_string() },
        }
    }
}

fn is_user_seed(seed: &str) -> bool {
    seed.len() == 58 && seed.starts_with("SU") && seed.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'))
}

fn text(secret: &Secret) -> Result<String, NatsError> {
    let text = secret.expose_str().map_err(|_| NatsError::Credentials("they are not UTF-8".to_owned()))?;
    Ok(text.trim().to_owned())
}

/// The client ignores credentials in URLs. All URLs must have the same.
fn with_url_credentials(
    options: ConnectOptions,
    addresses: &[ServerAddr],
) -> Result<ConnectOptions, NatsError> {
    let of = |address: &ServerAddr| {
        let decode = |text: &str| percent_decode(text).unwrap_or_default();
        (address.username().map(decode), address.password().map(decode))
    };
    let Some(first) = addresses.first().map(of) else { return Ok(options) };
    if addresses.iter().any(|address| of(address) != first) {
        return Err(NatsError::Credentials("all URLs must have the same user and password".to_owned()));
    }
    Ok(match first {
        (None, _) => options,
        (Some(token), None) => options.token(token),
        (Some(user), Some(password)) => options.user_and_password(user, password),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(servers: &[&str], credentials: NatsCredentials) -> NatsSettings {
        NatsSettings {
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            node: NodeId::new("node-1").unwrap(),
            deployment: 0xab,
            key: ClusterKey::new(&[1; 32]),
            credentials,
            tls: NatsTls::default(),
        }
    }

    #[test]
    fn names_depend_on_the_deployment_and_messages_have_no_password() {
        let settings = settings(
            &["nats://user:secret@10.0.0.1", "tls://user:secret@nats.example:5000"],
            NatsCredentials::None,
        );
        assert_eq!(settings.subject(settings.node), "throng.00000000000000ab.node-1");
        assert_eq!(settings.bucket(), "throng-00000000000000ab");
        assert_eq!(settings.shown_servers(), "10.0.0.1:4222, nats.example:5000");
        assert!(!format!("{settings:?}").contains("secret"));
        assert!(settings.check().is_ok());
    }

    #[test]
    fn one_url_of_tls_requires_it_of_all_servers() {
        let requires = |servers: &[&str], required| {
            let mut settings = settings(servers, NatsCredentials::None);
            settings.tls.required = required;
            settings.requires_tls(&settings.addresses().unwrap())
        };
        assert!(requires(&["nats://a", "tls://b"], false) && requires(&["nats://a"], true));
        assert!(!requires(&["nats://a", "b"], false));
    }

    #[test]
    fn what_is_not_valid_is_refused_before_a_connection() {
        let refused =
            |servers: &[&str], credentials| settings(servers, credentials).check().unwrap_err().to_string();
        assert!(refused(&[], NatsCredentials::None).contains("is empty"));
        for url in ["http://a", "ws://a", "nats://", "nats://a:99999"] {
            assert!(refused(&["nats://a", url], NatsCredentials::None).contains("number 2"), "{url}");
        }
        assert!(refused(&["nats://u:p@a", "nats://a"], NatsCredentials::None).contains("the same"));
        for seed in ["", "SU", "SAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(refused(&["a"], NatsCredentials::NkeySeed(seed.into())).contains("seed"), "{seed}");
        }
        assert!(refused(&["a"], NatsCredentials::CredentialsFile("x".into())).contains("not valid"));
    }
}
