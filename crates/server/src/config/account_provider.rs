//! `[auth] provider` and its section: where the accounts of a domain are kept.
//!
//! Secrets are in files of their own, so that this configuration may be shown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use account_providers::HttpUrl;
use account_providers::http_service::HttpOperations;
use account_providers::jwt::{ClaimRules, JwtSettings, KeySourceSettings, UserClaim};
use account_providers::ldap::{FilterTemplate, LdapEncryption, LdapServer};
use account_providers::limiter::RequestLimits;
use account_providers::sql::{NewPasswordHash, SqlStatement};
use account_providers::{TrustedRoots, client_config, read_secret_file};
use base::Secret;
use sasl::ScramHash;

use super::StorageUrl;
use super::reader::ConfigSection;

/// Where the accounts of a domain are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum ProviderConfig {
    /// In the database of this server.
    #[default]
    Store,
    /// `[auth.http]`
    Http(HttpProviderConfig),
    /// `[auth.jwt]`
    Jwt(JwtProviderConfig),
    /// `[auth.ldap]`
    Ldap(LdapProviderConfig),
    /// `[auth.sql]`
    Sql(SqlProviderConfig),
}

impl ProviderConfig {
    /// The files that are read when the provider is made.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let (source, own) = match self {
            ProviderConfig::Store => return Vec::new(),
            ProviderConfig::Http(http) => (&http.source, http.token_file.as_deref()),
            ProviderConfig::Jwt(jwt) => (
                &jwt.source,
                match &jwt.keys {
                    KeySourceSettings::File(path) | KeySourceSettings::SecretFile(path) => {
                        Some(path.as_path())
                    }
                    KeySourceSettings::Url(_) => None,
                },
            ),
            ProviderConfig::Sql(sql) => (&sql.source, sql.password_file.as_deref()),
            ProviderConfig::Ldap(ldap) => (&ldap.source, ldap.bind.as_ref().map(|(_, path)| path.as_path())),
        };
        let authorities = match &source.roots {
            TrustedRoots::System => None,
            TrustedRoots::File(path) => Some(path.as_path()),
        };
        own.into_iter().chain(authorities).collect()
    }
}

/// Settings that all sources on a network have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceConfig {
    pub(crate) roots: TrustedRoots,
    pub(crate) cache: Duration,
    pub(crate) limits: RequestLimits,
}

/// An HTTP service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HttpProviderConfig {
    pub(crate) url: HttpUrl,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) operations: HttpOperations,
    pub(crate) source: SourceConfig,
}

/// An identity provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JwtProviderConfig {
    pub(crate) keys: KeySourceSettings,
    pub(crate) settings: JwtSettings,
    pub(crate) source: SourceConfig,
}

/// A directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LdapProviderConfig {
    pub(crate) url: String,
    pub(crate) start_tls: bool,
    pub(crate) bind: Option<(String, PathBuf)>,
    pub(crate) base_dn: String,
    pub(crate) filter: FilterTemplate,
    pub(crate) disabled_attribute: Option<String>,
    pub(crate) version_attribute: Option<String>,
    pub(crate) set_password: bool,
    pub(crate) source: SourceConfig,
}

/// A table of another program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SqlProviderConfig {
    pub(crate) url: StorageUrl,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) find: SqlStatement,
    pub(crate) create: Option<SqlStatement>,
    pub(crate) set_password: Option<SqlStatement>,
    pub(crate) remove: Option<SqlStatement>,
    pub(crate) new_passwords: NewPasswordHash,
    pub(crate) scram: Option<ScramHash>,
    pub(crate) source: SourceConfig,
}

/// The words of `provider`.
const PROVIDERS: [&str; 5] = ["store", "http", "jwt", "ldap", "sql"];

/// Reads `provider` and its section; missing ones are those of `otherwise`.
pub(super) fn provider(section: &mut ConfigSection, otherwise: &ProviderConfig) -> ProviderConfig {
    let written: Vec<&str> =
        PROVIDERS.iter().skip(1).filter(|name| section.is_written(name)).copied().collect();
    let chosen = section.choice("provider", &PROVIDERS).map(|at| PROVIDERS[at]);
    let chosen = chosen.or(written.first().copied());
    for other in written.into_iter().filter(|name| chosen != Some(name)) {
        let fault = format!(
            "{} has no effect, because the provider is \"{}\"; remove one of them",
            section.key_in_section(other),
            chosen.unwrap_or_default()
        );
        section.fault(other, fault);
    }
    // The sections are always read, so that their keys are known.
    let (http, jwt) = (section.section("http"), section.section("jwt"));
    let (ldap, sql) = (section.section("ldap"), section.section("sql"));
    let read = match chosen {
        None => return otherwise.clone(),
        Some("http") => http_service(http).map(ProviderConfig::Http),
        Some("jwt") => identity_provider(jwt).map(ProviderConfig::Jwt),
        Some("ldap") => directory(ldap).map(ProviderConfig::Ldap),
        Some("sql") => foreign_table(sql).map(ProviderConfig::Sql),
        Some(_) => Some(ProviderConfig::Store),
    };
    // A mistake was recorded, so this value is never used.
    read.unwrap_or_default()
}

/// Reads what all sources have.
fn source(section: &mut ConfigSection) -> SourceConfig {
    let ca_file = section.text("ca_file").map(PathBuf::from);
    let number = |value: Option<i64>, otherwise: u64| {
        value.and_then(|value| u64::try_from(value).ok()).unwrap_or(otherwise)
    };
    let cache = number(section.int("cache_seconds", 0, 3_600), 60);
    let deadline = number(section.int("deadline_ms", 100, 60_000), 5_000);
    let in_progress = number(section.int("connections", 1, 1_000), 16);
    let waiting = number(section.int("queue", 0, 100_000), 1_000);
    SourceConfig {
        roots: ca_file.map_or(TrustedRoots::System, TrustedRoots::File),
        cache: Duration::from_secs(cache),
        limits: RequestLimits {
            in_progress: usize::try_from(in_progress).unwrap_or(usize::MAX),
            waiting: usize::try_from(waiting).unwrap_or(usize::MAX),
            deadline: Duration::from_millis(deadline),
        },
    }
}

/// A URL of a key. Without encryption only on this machine, because passwords and keys are sent.
fn url(section: &mut ConfigSection, key: &'static str) -> Option<HttpUrl> {
    let text = section.text(key)?;
    match HttpUrl::parse(&text) {
        Ok(url) if url.is_encrypted() || url.is_loopback() => Some(url),
        Ok(_) => {
            section.fault(
                key,
                format!(
                    "{} must begin with https://, unless it is on this machine",
                    section.key_in_section(key)
                ),
            );
            None
        }
        Err(error) => {
            section.fault(key, format!("{}: {error}", section.key_in_section(key)));
            None
        }
    }
}

fn http_service(mut section: ConfigSection) -> Option<HttpProviderConfig> {
    if !section.is_written("url") {
        section.faults.at(&section.here(), format!("{} is missing", section.key_in_section("url")));
    }
    let url = url(&mut section, "url");
    let token_file = section.text("token_file").map(PathBuf::from);
    let mut operations = HttpOperations { check_password: true, ..HttpOperations::default() };
    if let Some(names) = section.texts("operations") {
        operations = HttpOperations::default();
        for (number, name) in names.iter().enumerate() {
            match name.as_str() {
                "check_password" => operations.check_password = true,
                "check_token" => operations.check_token = true,
                "find" => operations.find = true,
                "create" => operations.create = true,
                "set_password" => operations.set_password = true,
                "remove" => operations.remove = true,
                _ => section.fault_at(
                    "operations",
                    number,
                    format!(
                        "\"{name}\" in {} is not known; known are check_password, check_token, find, create, \
                         set_password and remove",
                        section.key_in_section("operations")
                    ),
                ),
            }
        }
    }
    operations.versions = section.bool("versions").unwrap_or(false);
    let source = source(&mut section);
    section.finish();
    Some(HttpProviderConfig { url: url?, token_file, operations, source })
}

fn identity_provider(mut section: ConfigSection) -> Option<JwtProviderConfig> {
    let sources = [
        section.text("key_file").map(|path| KeySourceSettings::File(path.into())),
        section.text("secret_file").map(|path| KeySourceSettings::SecretFile(path.into())),
        url(&mut section, "jwks_url").map(KeySourceSettings::Url),
    ];
    let mut sources = sources.into_iter().flatten();
    let keys = sources.next();
    if keys.is_none() || sources.next().is_some() {
        let name = section.key_in_section("key_file");
        section
            .faults
            .at(&section.here(), format!("exactly one of {name}, secret_file and jwks_url is required"));
    }
    let claims = ClaimRules {
        issuer: section.text("issuer"),
        audiences: section.texts("audiences").unwrap_or_default(),
        // An identity provider signs tokens for other services with the same key.
        without_audience: matches!(keys, Some(KeySourceSettings::SecretFile(_))),
        user: section.text("user_claim").map(UserClaim).unwrap_or_default(),
    };
    let as_password = section.bool("as_password").unwrap_or(false);
    let source = source(&mut section);
    section.finish();
    Some(JwtProviderConfig { keys: keys?, settings: JwtSettings { claims, as_password }, source })
}

fn directory(mut section: ConfigSection) -> Option<LdapProviderConfig> {
    for key in ["url", "base_dn", "filter"] {
        if !section.is_written(key) {
            section.faults.at(&section.here(), format!("{} is missing", section.key_in_section(key)));
        }
    }
    let start_tls = section.bool("start_tls").unwrap_or(false);
    let url = section.text("url").filter(|url| match LdapServer::parse(url, start_tls) {
        Ok(server) if server.encryption == LdapEncryption::None && !server.is_loopback() => {
            let name = section.key_in_section("url");
            section.fault(
                "url",
                format!(
                    "{name} must begin with ldaps://, or start_tls must be true, unless it is on this machine"
                ),
            );
            false
        }
        Ok(_) => true,
        Err(error) => {
            section.fault("url", format!("{}: {error}", section.key_in_section("url")));
            false
        }
    });
    let filter = section.text("filter").and_then(|text| match FilterTemplate::parse(&text) {
        Ok(filter) => Some(filter),
        Err(error) => {
            section.fault("filter", error);
            None
        }
    });
    let base_dn = section.text("base_dn");
    let bind_dn = section.text("bind_dn");
    let password_file = section.text("bind_password_file").map(PathBuf::from);
    if bind_dn.is_some() != password_file.is_some() {
        let name = section.key_in_section("bind_dn");
        section.faults.at(&section.here(), format!("{name} and bind_password_file need each other"));
    }
    let (disabled_attribute, version_attribute) =
        (section.text("disabled_attribute"), section.text("version_attribute"));
    let set_password = section.bool("set_password").unwrap_or(false);
    let source = source(&mut section);
    section.finish();
    Some(LdapProviderConfig {
        url: url?,
        start_tls,
        bind: bind_dn.zip(password_file),
        base_dn: base_dn?,
        filter: filter?,
        disabled_attribute,
        version_attribute,
        set_password,
        source,
    })
}

fn foreign_table(mut section: ConfigSection) -> Option<SqlProviderConfig> {
    for key in ["url", "find"] {
        if !section.is_written(key) {
            section.faults.at(&section.here(), format!("{} is missing", section.key_in_section(key)));
        }
    }
    let url = section.text("url").map(StorageUrl);
    if let Some(Err(error)) = url.as_ref().map(|url| store_sql::database_name(url)) {
        section.fault("url", format!("{}: {error}", section.key_in_section("url")));
    }
    let password_file = section.text("password_file").map(PathBuf::from);
    let mut statement = |key: &'static str, writes_password: bool| {
        let text = section.text(key)?;
        match SqlStatement::parse(&text, writes_password) {
            Ok(statement) => Some(statement),
            Err(error) => {
                section.fault(key, format!("{}: {error}", section.key_in_section(key)));
                None
            }
        }
    };
    let find = statement("find", false);
    let create = statement("create", true);
    let set_password = statement("set_password", true);
    let remove = statement("remove", false);
    let forms: Vec<&str> = NewPasswordHash::ALL.iter().map(|form| form.name()).collect();
    let new_passwords = section.choice("new_passwords", &forms).map(|at| NewPasswordHash::ALL[at]);
    if new_passwords.is_none() && (create.is_some() || set_password.is_some()) {
        let name = section.key_in_section("new_passwords");
        section.faults.at(
            &section.here(),
            format!("{name} is missing: the form of the passwords that create and set_password write"),
        );
    }
    let names = ScramHash::ALL.map(ScramHash::scram_name);
    let scram = section.choice("scram", &names).map(|at| ScramHash::ALL[at]);
    if section.is_written("ca_file") {
        let fault = format!(
            "{} has no effect; name the file in the URL, as sslrootcert or ssl-ca",
            section.key_in_section("ca_file")
        );
        section.fault("ca_file", fault);
    }
    let source = source(&mut section);
    section.finish();
    Some(SqlProviderConfig {
        url: url?,
        password_file,
        find: find?,
        create,
        set_password,
        remove,
        new_passwords: new_passwords.unwrap_or(NewPasswordHash::Bcrypt),
        scram,
        source,
    })
}

/// The secret in a file.
pub(crate) fn read_secret(path: &Path) -> anyhow::Result<Secret> {
    read_secret_file(path).map_err(anyhow::Error::msg)
}

/// TLS settings of a source, if it needs them.
pub(crate) fn source_tls(
    source: &SourceConfig,
    encrypted: bool,
) -> anyhow::Result<Option<std::sync::Arc<rustls::ClientConfig>>> {
    if !encrypted {
        return Ok(None);
    }
    client_config(&source.roots).map(Some).map_err(|error| anyhow::anyhow!("{error}"))
}
