//! TLS settings of the server, reloadable while connections exist (RFC 6120, section 5; XEP-0368).
//!
//! Sessions are not resumed, neither by tickets nor by a cache. A stateless ticket costs no memory, but with ECDSA it
//! saves one signature (tens of microseconds) of a handshake that needs its key exchange anyway. It would carry client
//! certificates and channel bindings across connections and weaken the forward secrecy of TLS 1.2, and its keys are
//! lost in a restart, when all clients reconnect. The default session cache of rustls would cost memory per session.
//!
//! ALPN (XEP-0368, section 3): direct TLS listeners select `xmpp-client` or `xmpp-server`. A client that offers only
//! others is refused with the alert `no_application_protocol`; one that offers none is accepted. STARTTLS has no ALPN.
//! HTTP prefers `h2` (RFC 9113, section 3.2); browsers offer `http/1.1` alone for a WebSocket unless they have a
//! connection already (RFC 8441).
//!
//! Not implemented: different certificates per listener.
//!
//! # Pitfalls
//!
//! [`TlsConfig::reload`] reads files; call it where blocking is allowed.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::lock::{LeafMutex, RankedMutex, RankedRwLock, rank};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use crate::connection_info::ListenerKind;
use crate::error::NetError;
use crate::tls::certificate::ServerCertificate;
use crate::tls::client_certificate::LenientClientVerifier;
use crate::tls::{handshake_capture, self_signed};

/// One certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// Sources of TLS material.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The served domains; the first is the default for clients that send no name.
    pub domains: Vec<String>,
    /// Certificates; the first that covers a name is used. Empty: a self-signed one.
    pub certificates: Vec<CertificateFiles>,
    /// Directory of the self-signed certificate.
    pub self_signed_directory: PathBuf,
    /// Authorities for client certificates (PEM). `None`: no client certificate is requested.
    pub client_authorities: Option<PathBuf>,
    /// Authorities for certificates of other servers (PEM). `None`: no server certificate is requested.
    pub server_authorities: Option<PathBuf>,
}

/// Summary of a certificate for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    /// Path of the file.
    pub file: PathBuf,
    /// Names that it covers.
    pub names: Vec<String>,
    /// Start of validity in seconds since 1970.
    pub not_before: u64,
    /// End of validity in seconds since 1970.
    pub not_after: u64,
    /// Its SHA-256 fingerprint: pairs of upper-case hexadecimal digits with colons, as OpenSSL and clients write it.
    pub sha256: String,
    /// Self-signed by this server, so no client trusts it yet.
    pub is_self_signed: bool,
}

/// Result of a reload.
#[derive(Debug, PartialEq, Eq)]
pub enum TlsReloadOutcome {
    /// No file changed since the last attempt.
    Unchanged,
    /// New connections use the new files.
    Reloaded,
    /// The new files cannot be used; the text gives the reason. New connections use the old ones.
    Rejected(String),
}

/// Loaded TLS settings, shared by all listeners.
#[derive(Debug)]
pub struct TlsConfig {
    settings: TlsSettings,
    loaded: RankedRwLock<Arc<LoadedTls>, { rank::CERTIFICATES }>,
    /// State of the files at the last reload, successful or not.
    file_stamps: RankedMutex<Vec<FileStamp>, { rank::CERTIFICATE_FILES }>,
    /// Earliest time in seconds since 1970 to generate a self-signed certificate again, after a failed attempt.
    self_signed_retry_at: LeafMutex<u64>,
}

/// Seconds before another attempt to write a self-signed certificate.
const SELF_SIGNED_RETRY_SECONDS: u64 = 3600;

impl TlsConfig {
    /// Loads all files. The error is one sentence that names the file.
    ///
    /// # Errors
    /// [`NetError::InvalidConfig`] when a file is missing, unreadable, or does not fit its key.
    pub fn load(settings: TlsSettings) -> Result<TlsConfig, NetError> {
        TlsConfig::load_at(settings, unix_seconds())
    }

    /// As [`TlsConfig::load`], at a given time in seconds since 1970.
    ///
    /// # Errors
    /// As [`TlsConfig::load`].
    pub fn load_at(settings: TlsSettings, now: u64) -> Result<TlsConfig, NetError> {
        let seen = file_stamps(&settings);
        let list = load_certificates(&settings, now).map_err(NetError::InvalidConfig)?;
        TlsConfig::of(settings, list, seen)
    }

    /// As [`TlsConfig::load`], without writing: `None` if a self-signed certificate would be generated.
    ///
    /// # Errors
    /// As [`TlsConfig::load`].
    pub fn inspect(settings: TlsSettings) -> Result<Option<TlsConfig>, NetError> {
        let seen = file_stamps(&settings);
        let list = if settings.certificates.is_empty() {
            match self_signed::load_existing(
                &settings.self_signed_directory,
                &settings.domains,
                unix_seconds(),
            ) {
                Some(kept) => vec![kept],
                None => return Ok(None),
            }
        } else {
            load_certificates(&settings, unix_seconds()).map_err(NetError::InvalidConfig)?
        };
        TlsConfig::of(settings, list, seen).map(Some)
    }

    fn of(
        settings: TlsSettings,
        list: Vec<ServerCertificate>,
        seen: Vec<FileStamp>,
    ) -> Result<TlsConfig, NetError> {
        let loaded = LoadedTls::of(&settings, list).map_err(NetError::InvalidConfig)?;
        Ok(TlsConfig {
            settings,
            loaded: RankedRwLock::new(Arc::new(loaded)),
            file_stamps: RankedMutex::new(seen),
            self_signed_retry_at: LeafMutex::new(0),
        })
    }

    /// Reloads if a file changed or a self-signed certificate is about to expire. Existing connections keep their
    /// settings.
    pub fn reload(&self) -> TlsReloadOutcome {
        self.reload_at(unix_seconds())
    }

    /// As [`TlsConfig::reload`], at a given time in seconds since 1970.
    pub fn reload_at(&self, now: u64) -> TlsReloadOutcome {
        let found = file_stamps(&self.settings);
        let mut seen = self.file_stamps.lock();
        let due = self.needs_renewal(now);
        if *seen == found && !due {
            return TlsReloadOutcome::Unchanged;
        }
        *seen = found;
        let list = load_certificates(&self.settings, now);
        match list.and_then(|list| LoadedTls::of(&self.settings, list)) {
            Ok(loaded) => {
                *self.loaded.write() = Arc::new(loaded);
                TlsReloadOutcome::Reloaded
            }
            Err(reason) => {
                *self.self_signed_retry_at.lock() = now.saturating_add(SELF_SIGNED_RETRY_SECONDS);
                TlsReloadOutcome::Rejected(reason)
            }
        }
    }

    /// Whether the self-signed certificate must be renewed.
    fn needs_renewal(&self, now: u64) -> bool {
        let loaded = self.loaded.read();
        self.settings.certificates.is_empty()
            && now >= *self.self_signed_retry_at.lock()
            && loaded.certificates.list.iter().any(|one| self_signed::needs_renewal(one, now))
    }

    /// Certificates in use.
    pub fn certificates(&self) -> Vec<CertificateSummary> {
        let loaded = self.loaded.read();
        let is_self_signed = self.settings.certificates.is_empty();
        let shown = |(index, one): (usize, &Arc<ServerCertificate>)| CertificateSummary {
            file: match self.settings.certificates.get(index) {
                Some(files) => files.certificate.clone(),
                None => self_signed::certificate_path(&self.settings.self_signed_directory),
            },
            names: one.domains().map(str::to_owned).collect(),
            not_before: one.not_before,
            not_after: one.not_after,
            sha256: one.sha256.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"),
            is_self_signed,
        };
        loaded.certificates.list.iter().enumerate().map(shown).collect()
    }

    /// rustls settings for one kind of listener, also for other TLS stacks such as that of an HTTP server.
    pub fn for_kind(&self, kind: ListenerKind) -> Arc<ServerConfig> {
        let loaded = self.loaded.read();
        match kind {
            ListenerKind::C2s => &loaded.clients,
            ListenerKind::C2sTls => &loaded.clients_direct,
            ListenerKind::S2s => &loaded.servers,
            ListenerKind::S2sTls => &loaded.servers_direct,
            ListenerKind::Component | ListenerKind::Http | ListenerKind::Https | ListenerKind::Service(_) => {
                &loaded.http
            }
        }
        .clone()
    }

    /// Earliest expiry of the loaded certificates, in seconds since 1970.
    pub fn not_after(&self) -> u64 {
        let list = &self.loaded.read().certificates.list;
        list.iter().map(|certificate| certificate.not_after).min().unwrap_or_default()
    }

    /// Names and expiry in seconds since 1970 of each loaded certificate, ordered by expiry.
    pub fn certificate_expiries(&self) -> Vec<(Vec<String>, u64)> {
        let list = &self.loaded.read().certificates.list;
        let names = |certificate: &ServerCertificate| {
            let mut names: Vec<String> =
                certificate.names.xmpp.iter().chain(&certificate.names.dns).cloned().collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let mut all: Vec<_> = list.iter().map(|it| (names(it), it.not_after)).collect();
        all.sort_by_key(|(_, not_after)| *not_after);
        all
    }

    /// Served domains that no loaded certificate covers. Worth a warning: clients will refuse the connection.
    pub fn uncovered_domains(&self) -> Vec<String> {
        let loaded = self.loaded.read();
        self.settings
            .domains
            .iter()
            .filter(|domain| loaded.certificates.find(domain).is_none())
            .cloned()
            .collect()
    }
}

/// File state: change time in nanoseconds, length, inode. Renaming a file over another changes the inode.
type FileStamp = Option<(i64, i64, u64, u64)>;

fn file_stamps(settings: &TlsSettings) -> Vec<FileStamp> {
    let TlsSettings { certificates, client_authorities, server_authorities, .. } = settings;
    let files = certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.mtime(), found.mtime_nsec(), found.len(), found.ino()))
    };
    files.chain(client_authorities).chain(server_authorities).map(stamp).collect()
}

/// One generation of loaded files.
#[derive(Debug)]
struct LoadedTls {
    clients: Arc<ServerConfig>,
    clients_direct: Arc<ServerConfig>,
    servers: Arc<ServerConfig>,
    servers_direct: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    certificates: Arc<CertificateResolver>,
}

/// Seconds since 1970.
fn unix_seconds() -> u64 {
    SystemClock::new().unix_millis() / 1000
}

/// Loads the certificates; generates a self-signed one if there is none that is valid.
fn load_certificates(settings: &TlsSettings, now: u64) -> Result<Vec<ServerCertificate>, String> {
    if settings.certificates.is_empty() {
        return Ok(vec![self_signed::load_or_create(
            &settings.self_signed_directory,
            &settings.domains,
            now,
        )?]);
    }
    settings
        .certificates
        .iter()
        .map(|files| ServerCertificate::load(&files.certificate, &files.key))
        .collect()
}

impl LoadedTls {
    fn of(settings: &TlsSettings, list: Vec<ServerCertificate>) -> Result<LoadedTls, String> {
        let certificates = Arc::new(CertificateResolver::new(list, settings.domains.first())?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = |authorities: Option<&Path>, servers: bool, alpn: &[&str]| {
            let builder = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&version::TLS13, &version::TLS12])
                .map_err(|error| error.to_string())?;
            let builder = match authorities {
                Some(path) => builder.with_client_cert_verifier(Arc::new(LenientClientVerifier::load(
                    path, servers, &provider,
                )?)),
                None => builder.with_no_client_auth(),
            };
            let mut config = builder.with_cert_resolver(certificates.clone());
            config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config.key_log = Arc::new(handshake_capture::ExporterLog);
            Ok::<_, String>(Arc::new(config))
        };
        let (clients, servers) =
            (settings.client_authorities.as_deref(), settings.server_authorities.as_deref());
        Ok(LoadedTls {
            clients: config(clients, false, &[])?,
            clients_direct: config(clients, false, &["xmpp-client"])?,
            servers: config(servers, true, &[])?,
            servers_direct: config(servers, true, &["xmpp-server"])?,
            http: config(None, false, &["h2", "http/1.1"])?,
            certificates,
        })
    }
}

/// Certificates of one generation, by name.
#[derive(Debug)]
struct CertificateResolver {
    list: Vec<Arc<ServerCertificate>>,
    /// Lower-case name, possibly `*.example.org`, to an index in the list.
    by_name: HashMap<String, usize>,
    default: usize,
}

impl CertificateResolver {
    fn new(list: Vec<ServerCertificate>, default: Option<&String>) -> Result<CertificateResolver, String> {
        if list.is_empty() {
            return Err("no certificate is configured".to_owned());
        }
        let mut by_name = HashMap::new();
        for (index, certificate) in list.iter().enumerate() {
            for name in certificate.domains() {
                by_name.entry(name.to_ascii_lowercase()).or_insert(index);
            }
        }
        let list = list.into_iter().map(Arc::new).collect();
        let mut certificates = CertificateResolver { list, by_name, default: 0 };
        if let Some(index) = default.and_then(|domain| certificates.index_of(domain)) {
            certificates.default = index;
        }
        Ok(certificates)
    }

    fn index_of(&self, domain: &str) -> Option<usize> {
        let name = domain.to_ascii_lowercase();
        // A wildcard matches exactly one label (RFC 9525, section 6.3).
        let wild = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        self.by_name.get(&name).copied().or_else(|| self.by_name.get(&wild()?).copied())
    }

    fn find(&self, domain: &str) -> Option<&Arc<ServerCertificate>> {
        self.list.get(self.index_of(domain)?)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let hint = handshake_capture::record(|capture| capture.domain.clone()).flatten();
        let requested = hello.server_name().or(hint.as_deref());
        let certificate =
            requested.and_then(|name| self.find(name)).or_else(|| self.list.get(self.default))?;
        handshake_capture::record(|capture| {
            capture.certificate = Some(certificate.clone());
            capture.server_name = hello.server_name().map(Box::from);
        });
        Some(certificate.key.clone())
    }
}
