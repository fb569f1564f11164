//! The storage URL: which database, and how to reach it.
//!
//! ```text
//! sqlite:PATH
//! postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETER=VALUE&…]      also postgresql://
//! mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETER=VALUE&…]         also mariadb://
//! ```
//! The parameters are those of sqlx, which follow the client libraries of the databases: `sslmode`, `sslrootcert`,
//! `host=/run/postgresql` for a socket; `ssl-mode`, `ssl-ca`, `socket`.
//!
//! # Pitfalls
//!
//! A URL may contain a password. Messages name the database by [`Location::shown`].

use std::path::{Path, PathBuf};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use store::{StoreError, StoreErrorKind};

use crate::DatabaseOptions;
use crate::dialect::sqlite::PoolPurpose;
use crate::dialect::{ConnectionPool, Dialect, PoolLimits, mysql, postgres, sqlite};

/// Where a database is.
pub(crate) enum Location {
    Sqlite(PathBuf),
    Postgres(PgConnectOptions),
    MySql(MySqlConnectOptions),
}

impl Location {
    /// Parses a storage URL.
    pub(crate) fn parse(url: &str) -> Result<Location, StoreError> {
        match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
            "sqlite" => sqlite::path(url).map(Location::Sqlite),
            "postgres" | "postgresql" => postgres::connect_options(url).map(Location::Postgres),
            "mysql" | "mariadb" => mysql::connect_options(url).map(Location::MySql),
            kind => {
                let message = format!(
                    "storage of kind \"{kind}\" is not supported; write sqlite: and the path of a file, \
                     or a postgres:// or mysql:// URL"
                );
                Err(StoreError::new(StoreErrorKind::Setup, message))
            }
        }
    }

    /// Takes the password from a file. A line feed at its end is not part of it.
    pub(crate) fn with_password_file(self, file: Option<&Path>) -> Result<Location, StoreError> {
        let Some(file) = file else { return Ok(self) };
        let setup = |message: String| StoreError::new(StoreErrorKind::Setup, message);
        let text = std::fs::read_to_string(file).map_err(|error| {
            setup(format!("cannot read the password of the database in {}", file.display()))
                .with_source(error)
        })?;
        let password = text.trim_end_matches(['\r', '\n']);
        match self {
            Location::Sqlite(_) => {
                Err(setup("a database in a file has no password; remove password_file".to_owned()))
            }
            Location::Postgres(options) => Ok(Location::Postgres(options.password(password))),
            Location::MySql(options) => Ok(Location::MySql(options.password(password))),
        }
    }

    /// The file of an SQLite database.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Location::Sqlite(path) => Some(path),
            Location::Postgres(_) | Location::MySql(_) => None,
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
            Location::Postgres(connect) => postgres::pool(connect, options, name, limits, false),
            Location::MySql(connect) => mysql::pool(connect, options, name, limits, false),
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
            Location::Postgres(connect) => postgres::pool(connect, options, name, limits, true),
            Location::MySql(connect) => mysql::pool(connect, options, name, limits, true),
        }
    }

    /// A connection for checkpoints of SQLite's journal. Servers write their own.
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

    #[test]
    fn messages_do_not_contain_the_password() {
        for url in ["postgres://ann:secret@db.example:5433/chat", "mysql://ann:secret@db.example:5433/chat"] {
            let shown = Location::parse(url).unwrap().shown();
            assert!(shown.ends_with("database chat at db.example:5433"), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_in_one_sentence() {
        for (url, part) in [
            ("oracle://x", "\"oracle\" is not supported"),
            ("mysql://root@localhost", "names no database"),
            ("postgres://h:notaport/x", "the storage URL is invalid"),
        ] {
            let Err(error) = Location::parse(url) else { panic!("{url}") };
            assert_eq!(error.kind, StoreErrorKind::Setup, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
        }
    }
}
