//! The URL of a database: which one, and how to reach it.
//!
//! ```text
//! sqlite:PATH
//! postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETER=VALUE&…]      also postgresql://
//! mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETER=VALUE&…]         also mariadb://
//! ```
//! The parameters are those of sqlx, which follow the client libraries of the databases: `sslmode`, `sslrootcert`,
//! `host=/run/postgresql` for a socket; `ssl-mode`, `ssl-ca`, `socket`. Others are refused: sqlx ignores them, so that a
//! parameter for encryption with the name that another database has for it would have no effect.
//!
//! # Pitfalls
//!
//! A URL may contain a password. Messages name the database by [`Location::shown`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use store::StoreError;

use crate::DatabaseOptions;
use crate::dialect::{ConnectionPool, Dialect, PoolLimits, PoolPurpose, mysql, postgres, sqlite};
use crate::error::setup;

/// Where a database is.
pub(crate) enum Location {
    Sqlite(PathBuf),
    Postgres(PgConnectOptions),
    MySql(MySqlConnectOptions),
}

/// Encryption of the connections to a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// Nothing leaves this machine.
    Local,
    /// The server proves that it is the one of the URL, or at least that a known authority has signed its certificate.
    Verified,
    /// The certificate of the server is not verified.
    Unverified,
    /// Only if the server offers it, or never.
    Optional,
}

/// Parameters of PostgreSQL's URLs that have an effect.
const POSTGRES_PARAMETERS: [&str; 16] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "options",
];

/// Parameters of MySQL's URLs that have an effect.
const MYSQL_PARAMETERS: [&str; 13] = [
    "sslmode",
    "ssl-mode",
    "sslca",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "socket",
    "charset",
    "collation",
    "timezone",
    "time-zone",
];

/// Checks that all parameters of a URL have an effect.
fn check_parameters(url: &str, known: &[&str]) -> Result<(), StoreError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        let is_option = name.starts_with("options[") && known.contains(&"options");
        if known.contains(&name) || is_option {
            continue;
        }
        // What is no name may be a part of a password.
        let message = match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            true => format!("the database URL has the parameter {name}, which is not supported; remove it"),
            false => "the database URL has a parameter that is not supported; write ? in a password as %3F"
                .to_owned(),
        };
        return Err(setup(message));
    }
    Ok(())
}

/// Checks that the password does not end early: its rest would be a part of the database's name, which is shown in messages.
fn check_password_characters(url: &str) -> Result<(), StoreError> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let address = rest.split_once('?').map_or(rest, |(address, _)| address);
    let path = address.split_once('/').map_or("", |(_, path)| path);
    if path.contains('@') || url.contains('#') {
        let message = "the database URL has an invalid character; write / in a password as %2F and # as %23";
        return Err(setup(message));
    }
    Ok(())
}

/// Whether a host is this machine.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Location {
    /// Parses the URL of a database.
    pub(crate) fn parse(url: &str) -> Result<Location, StoreError> {
        let location = Location::parse_unchecked(url)?;
        if !matches!(location, Location::Sqlite(_)) {
            check_password_characters(url)?;
        }
        match &location {
            Location::Sqlite(_) => {}
            Location::Postgres(_) => check_parameters(url, &POSTGRES_PARAMETERS)?,
            Location::MySql(_) => check_parameters(url, &MYSQL_PARAMETERS)?,
        }
        Ok(location)
    }

    fn parse_unchecked(url: &str) -> Result<Location, StoreError> {
        match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
            "sqlite" => sqlite::path(url).map(Location::Sqlite),
            "postgres" | "postgresql" => postgres::connect_options(url).map(Location::Postgres),
            "mysql" | "mariadb" => mysql::connect_options(url).map(Location::MySql),
            kind => {
                let message = format!(
                    "databases of kind \"{kind}\" are not supported; write sqlite: and the path of a file, \
                     or a postgres:// or mysql:// URL"
                );
                Err(setup(message))
            }
        }
    }

    /// Takes the password from a file. A line feed at its end is not part of it.
    pub(crate) fn with_password_file(self, file: Option<&Path>) -> Result<Location, StoreError> {
        let Some(file) = file else { return Ok(self) };
        let text = std::fs::read_to_string(file).map_err(|error| {
            setup(format!("cannot read the password of the database in {}", file.display()))
                .with_source(error)
        })?;
        let password = text.trim_end_matches(['\r', '\n']);
        match self {
            Location::Sqlite(_) => Err(setup("a database in a file has no password; remove password_file")),
            Location::Postgres(options) => Ok(Location::Postgres(options.password(password))),
            Location::MySql(options) => Ok(Location::MySql(options.password(password))),
        }
    }

    /// Whether both are the same database, as far as their URLs tell.
    pub(crate) fn is_same(&self, other: &Location) -> bool {
        match (self, other) {
            (Location::Sqlite(one), Location::Sqlite(other)) => {
                let resolve =
                    |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
                one == other || resolve(one).is_some_and(|one| resolve(other) == Some(one))
            }
            (one, other) => one.shown() == other.shown(),
        }
    }

    /// Whether its URL has a password.
    pub(crate) fn has_password(url: &str) -> bool {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = address.split_once('/').map_or(address, |(authority, _)| authority);
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        user.contains(':') || query.split('&').any(|parameter| parameter.starts_with("password="))
    }

    /// The file of an SQLite database.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Location::Sqlite(path) => Some(path),
            Location::Postgres(_) | Location::MySql(_) => None,
        }
    }

    /// How the connections to the database are encrypted.
    pub(crate) fn encryption(&self) -> Encryption {
        let (host, socket) = match self {
            Location::Sqlite(_) => return Encryption::Local,
            Location::Postgres(options) => (options.get_host(), options.get_socket()),
            Location::MySql(options) => (options.get_host(), options.get_socket()),
        };
        if socket.is_some() || host.starts_with('/') || is_loopback(host) {
            return Encryption::Local;
        }
        match self {
            Location::Sqlite(_) => Encryption::Local,
            Location::Postgres(options) => match options.get_ssl_mode() {
                PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer => Encryption::Optional,
                PgSslMode::Require => Encryption::Unverified,
                PgSslMode::VerifyCa | PgSslMode::VerifyFull => Encryption::Verified,
            },
            Location::MySql(options) => match options.get_ssl_mode() {
                MySqlSslMode::Disabled | MySqlSslMode::Preferred => Encryption::Optional,
                MySqlSslMode::Required => Encryption::Unverified,
                MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity => Encryption::Verified,
            },
        }
    }

    /// The parameters of the URL that make [`Encryption::Verified`].
    pub(crate) fn encryption_parameters(&self) -> &'static str {
        match self {
            Location::Sqlite(_) => "",
            Location::Postgres(_) => "sslmode=verify-full&sslrootcert=FILE",
            Location::MySql(_) => "ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE",
        }
    }

    /// The database in messages, without a password.
    pub(crate) fn shown(&self) -> String {
        match self {
            Location::Sqlite(path) => format!("the database {}", path.display()),
            Location::Postgres(options) => {
                let database = options.get_database().unwrap_or(options.get_username());
                match options.get_socket() {
                    Some(socket) => format!("the PostgreSQL database {database} at {}", socket.display()),
                    None => {
                        let (host, port) = (options.get_host(), options.get_port());
                        format!("the PostgreSQL database {database} at {host}:{port}")
                    }
                }
            }
            Location::MySql(options) => {
                let database = options.get_database().unwrap_or_default();
                match options.get_socket() {
                    Some(socket) => format!("the MySQL database {database} at {}", socket.display()),
                    None => {
                        let (host, port) = (options.get_host(), options.get_port());
                        format!("the MySQL database {database} at {host}:{port}")
                    }
                }
            }
        }
    }

    pub(crate) fn dialect(&self) -> Box<dyn Dialect> {
        match self {
            Location::Sqlite(_) => Box::new(sqlite::SqliteDialect),
            Location::Postgres(_) => Box::new(postgres::PostgresDialect),
            Location::MySql(_) => Box::new(mysql::MySqlDialect),
        }
    }

    /// A pool of connections that write.
    pub(crate) fn writing_pool(&self, options: &DatabaseOptions, name: &'static str) -> ConnectionPool {
        let limits = PoolLimits::exactly(self.writers(options));
        match self {
            Location::Sqlite(path) => {
                sqlite::pool(path, options, (PoolPurpose::Write, name), limits, options.cache_bytes)
            }
            Location::Postgres(connect) => postgres::pool(connect, options, name, limits, PoolPurpose::Write),
            Location::MySql(connect) => mysql::pool(connect, options, name, limits, PoolPurpose::Write),
        }
    }

    /// A pool of connections that only read.
    pub(crate) fn reading_pool(
        &self,
        options: &DatabaseOptions,
        name: &'static str,
        limits: PoolLimits,
    ) -> ConnectionPool {
        match self {
            Location::Sqlite(path) => {
                sqlite::pool(path, options, (PoolPurpose::Read, name), limits, options.cache_bytes)
            }
            Location::Postgres(connect) => postgres::pool(connect, options, name, limits, PoolPurpose::Read),
            Location::MySql(connect) => mysql::pool(connect, options, name, limits, PoolPurpose::Read),
        }
    }

    /// A pool of connections to a database of another program.
    pub(crate) fn foreign_pool(
        &self,
        options: &DatabaseOptions,
        limits: PoolLimits,
        purpose: PoolPurpose,
    ) -> ConnectionPool {
        match self {
            Location::Sqlite(path) => sqlite::foreign_pool(path, options, limits, purpose),
            Location::Postgres(connect) => postgres::foreign_pool(connect, options, limits, purpose),
            Location::MySql(connect) => mysql::pool(connect, options, "foreign", limits, purpose),
        }
    }

    /// A connection for checkpoints of SQLite's write-ahead log. Servers write their own.
    pub(crate) fn checkpoint_pool(&self, options: &DatabaseOptions) -> Option<ConnectionPool> {
        let purpose = (PoolPurpose::Read, "checkpoint");
        self.path().map(|path| sqlite::pool(path, options, purpose, PoolLimits::at_most(1), 0))
    }

    /// Writers that work at the same time: SQLite has one.
    pub(crate) fn writers(&self, options: &DatabaseOptions) -> u32 {
        match self {
            Location::Sqlite(_) => 1,
            Location::Postgres(_) | Location::MySql(_) => options.writers.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreErrorKind;

    #[test]
    fn messages_do_not_contain_the_password() {
        for url in ["postgres://ann:secret@db.example:5433/chat", "mysql://ann:secret@db.example:5433/chat"] {
            let shown = Location::parse(url).unwrap().shown();
            assert!(shown.ends_with("database chat at db.example:5433"), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_found_where_the_server_would_get_it() {
        for (url, expected) in [
            ("sqlite:data/throng.db", false),
            ("postgres://ann@h:5432/x", false),
            ("postgres://h:5432/x?user=ann", false),
            ("postgres://ann:secret@h/x", true),
            ("postgres://h/x?user=ann&password=secret", true),
            ("mysql://ann:secret@h/x", true),
        ] {
            assert_eq!(Location::has_password(url), expected, "{url}");
        }
    }

    #[test]
    fn a_database_is_the_same_however_its_url_is_written() {
        for (one, other, expected) in [
            ("sqlite:a.db", "sqlite:./a.db", true),
            ("sqlite:a.db", "sqlite:b.db", false),
            ("postgres://ann@h/x", "postgresql://bob:secret@h:5432/x?sslmode=require", true),
            ("postgres://ann@h/x", "postgres://ann@h/y", false),
            ("postgres://ann@h/x", "mysql://ann@h:5432/x", false),
        ] {
            let parsed = [one, other].map(|url| Location::parse(url).unwrap());
            assert_eq!(parsed[0].is_same(&parsed[1]), expected, "{one} {other}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_in_one_sentence() {
        for (url, part) in [
            ("oracle://x", "\"oracle\" are not supported"),
            ("mysql://root@localhost", "names no database"),
            ("postgres://h:notaport/x", "the database URL is invalid"),
            ("mysql://ann@h/x?sslrootcert=ca.pem", "the parameter sslrootcert, which is not supported"),
            ("postgres://ann@h/x?ssl_mode=require", "the parameter ssl_mode, which is not supported"),
            ("postgres://ann:12?secret@h/x", "write ? in a password as %3F"),
            ("postgres://ann:12/secret@h/x", "write / in a password as %2F"),
            ("mysql://ann:12/x#secret@h/x", "and # as %23"),
        ] {
            let Err(error) = Location::parse(url) else { panic!("{url}") };
            assert_eq!(error.kind, StoreErrorKind::Setup, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        for url in [
            "postgres://ann@h/x?options[search_path]=chat&sslmode=require",
            "mysql://ann@h/x?charset=utf8mb4&",
        ] {
            Location::parse(url).unwrap();
        }
    }

    #[test]
    fn connections_to_other_machines_are_verified_only_if_the_url_requires_it() {
        for (url, expected) in [
            ("sqlite:x.db", Encryption::Local),
            ("postgres://ann@localhost/x", Encryption::Local),
            ("postgres://ann@127.0.0.2/x", Encryption::Local),
            ("postgres://ann@[::1]/x", Encryption::Local),
            ("postgres://ann@db.example/x?host=/run/postgresql", Encryption::Local),
            ("mysql://ann@db.example/x?socket=/run/mysqld.sock", Encryption::Local),
            ("postgres://ann@db.example/x", Encryption::Optional),
            ("postgres://ann@localhost.example/x", Encryption::Optional),
            ("postgres://ann@localhost/x?host=db.example", Encryption::Optional),
            ("mysql://ann@db.example/x?ssl-mode=PREFERRED", Encryption::Optional),
            ("postgres://ann@db.example/x?sslmode=require", Encryption::Unverified),
            ("mysql://ann@db.example/x?ssl-mode=REQUIRED", Encryption::Unverified),
            ("postgres://ann@db.example/x?sslmode=verify-full", Encryption::Verified),
            ("mysql://ann@db.example/x?ssl-mode=VERIFY_CA", Encryption::Verified),
        ] {
            assert_eq!(Location::parse(url).unwrap().encryption(), expected, "{url}");
        }
    }
}
