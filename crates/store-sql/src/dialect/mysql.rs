//! MySQL 8.0 and MariaDB 10.6 and later: connections and SQL fragments.
//!
//! All texts are stored and bound as bytes. The collations that compare every character and every trailing space have
//! different names in the two servers; bytes are compared and ordered as the code points that they encode.
//!
//! # Pitfalls
//!
//! Statements that change the schema commit at once, so migrations must be repeatable.

use std::fmt::Write as _;
use std::str::FromStr;

use base::BoxFuture;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{Arguments, ConnectOptions};
use store::{StoreError, StoreErrorKind};

use super::pool::RawConnectOptions;
use super::server_statements::server_statements;
use super::statements::push_hex;
use super::{Arg, ConnectionPool, Dialect, LiteralRows, PoolLimits, PoolPurpose, STALE_AFTER};
use crate::DatabaseOptions;
use crate::error::{READ_ONLY, setup};
use crate::migrate::{MYSQL_MIGRATIONS, Migration};

pub(crate) struct MySqlDialect;

impl Dialect for MySqlDialect {
    fn begin_write(&self) -> &'static str {
        "START TRANSACTION READ WRITE"
    }

    fn list_tables(&self) -> &'static str {
        "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
    }

    fn hex(&self, bytes: &str) -> String {
        format!("coalesce(hex({bytes}), '')")
    }

    fn zero_bytes(&self, bytes: usize) -> String {
        format!("repeat(char(0), {bytes})")
    }

    fn join_lines(&self, text: &str) -> String {
        format!("group_concat({text} SEPARATOR '\\n')")
    }

    fn sum(&self, number: &str) -> String {
        // The sum of integers is a decimal.
        format!("cast(coalesce(sum({number}), 0) AS SIGNED)")
    }

    fn value_list(&self, column: &str, values: usize) -> String {
        let mut list = format!("SELECT CAST(? AS BINARY) AS {column}");
        for _ in 1..values {
            list += " UNION ALL SELECT CAST(? AS BINARY)";
        }
        list
    }

    fn insert_new_suffix(&self, columns: &[&str]) -> String {
        // INSERT IGNORE would also ignore values that do not fit.
        columns
            .first()
            .map_or_else(String::new, |first| format!(" ON DUPLICATE KEY UPDATE {first} = {first}"))
    }

    fn upsert_suffix(&self, _key: &[&str], others: &[&str]) -> String {
        let set: Vec<String> = others.iter().map(|name| format!("{name} = VALUES({name})")).collect();
        format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
    }

    fn lock_rows(&self) -> Option<&'static str> {
        Some("FOR UPDATE")
    }

    fn lock_rows_shared(&self) -> Option<&'static str> {
        // MariaDB has no `FOR SHARE`.
        Some("LOCK IN SHARE MODE")
    }

    fn lock_accounts(&self, ids: &str, names: &str) -> String {
        // Rows are locked as they are read, and `ORDER BY` sorts them afterwards. The join therefore begins with the sorted
        // ids; without a limit their order would be ignored.
        format!(
            "SELECT c.id FROM (SELECT id FROM address WHERE id IN ({ids}) UNION SELECT id FROM address \
             WHERE jid IN ({names}) ORDER BY id LIMIT 1000000000) AS owner STRAIGHT_JOIN account c \
             ON c.id = owner.id FOR UPDATE"
        )
    }

    fn max_joined_logins(&self) -> usize {
        // A joined text is cut at `max_allowed_packet`, 16 MB. The weight of a roster does not contain the addresses: 512
        // entries below the limit for large rosters have up to 700 kB, and a blocklist has up to 128 kB.
        16
    }

    fn ranges_of_rows(&self) -> bool {
        false
    }

    fn remove_timeouts(&self) -> &'static str {
        "SET SESSION innodb_lock_wait_timeout = 3600, lock_wait_timeout = 604800 \
         /*M!100101 , max_statement_time = 0 */ /*M!100301 , idle_transaction_timeout = 0 */ \
         /*!50708 , max_execution_time = 0 */"
    }

    fn migration_lock(&self) -> [&'static str; 2] {
        [
            // A name has at most 64 characters, and MySQL 9 has no md5. A week: MariaDB has no value for waiting permanently.
            "SELECT get_lock(concat('throng.', sha2(database(), 224)), 604800)",
            "SELECT release_lock(concat('throng.', sha2(database(), 224)))",
        ]
    }

    fn requirement(&self) -> Option<(&'static str, u64, &'static str)> {
        // Joined texts are cut at this length, with a warning that no client reads.
        let problem = "has a max_allowed_packet below 16 MB; raise it in the server's configuration";
        Some(("SELECT @@max_allowed_packet", 16 << 20, problem))
    }

    fn migrations(&self) -> &'static [Migration] {
        MYSQL_MIGRATIONS
    }

    fn literal_rows(&self) -> Option<LiteralRows> {
        Some(push_literal)
    }
}

fn push_literal(sql: &mut String, arg: &Arg<'_>) {
    match *arg {
        Arg::Int(number) => {
            // Writing to a string does not fail.
            let _ = write!(sql, "{number}");
        }
        Arg::Text(text) | Arg::AnyText(text) | Arg::ForeignText(text) => push_bytes(sql, text.as_bytes()),
        Arg::Bytes(bytes) => push_bytes(sql, bytes),
        Arg::Null => sql.push_str("NULL"),
    }
}

fn push_bytes(sql: &mut String, bytes: &[u8]) {
    sql.push_str("x'");
    push_hex(sql, bytes);
    sql.push('\'');
}

fn bind(args: &[Arg<'_>]) -> Result<MySqlArguments, sqlx::Error> {
    let mut bound = MySqlArguments::default();
    for arg in args {
        match *arg {
            Arg::Int(number) => bound.add(number),
            Arg::Text(text) | Arg::AnyText(text) => bound.add(text.as_bytes()),
            Arg::ForeignText(text) => bound.add(text),
            Arg::Bytes(bytes) => bound.add(bytes),
            Arg::Null => bound.add(None::<&[u8]>),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(bound)
}

/// How to connect; `mysql://USER@HOST/DATABASE`.
pub(crate) fn connect_options(url: &str) -> Result<MySqlConnectOptions, StoreError> {
    let options = MySqlConnectOptions::from_str(url)
        .map_err(|error| setup("the database URL is invalid").with_source(error))?;
    if options.get_database().is_none_or(str::is_empty) {
        let message = "the database URL names no database; write mysql://USER@HOST/DATABASE";
        return Err(setup(message));
    }
    Ok(options.pipes_as_concat(true).statement_cache_capacity(256).disable_statement_logging())
}

pub(crate) fn pool(
    connect: &MySqlConnectOptions,
    options: &DatabaseOptions,
    name: &'static str,
    limits: PoolLimits,
    purpose: PoolPurpose,
) -> ConnectionPool {
    let access = match purpose {
        PoolPurpose::Read => "ONLY",
        PoolPurpose::Write => "WRITE",
    };
    // Both servers understand the timeout for locks. The one for a whole statement has different names; each server takes
    // the comment of the other for one, and MySQL limits statements that read only.
    let limit = options.statement_timeout_of(purpose);
    let mut statements = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ {access}; \
         SET SESSION sql_mode = concat(@@sql_mode, ',STRICT_ALL_TABLES'), group_concat_max_len = 1073741824, \
         innodb_lock_wait_timeout = {} /*M!100101 , max_statement_time = {} */ /*!50708 , max_execution_time = {} */",
        options.statement_timeout.as_secs().clamp(1, 3600),
        limit.as_secs_f64().clamp(0.001, 3600.0),
        limit.as_millis().clamp(1, 3_600_000)
    );
    if purpose == PoolPurpose::Write {
        // A transaction of a node that is gone must not hold its locks until the operating system notices. MySQL has this
        // limit for idle connections only; those that this program uses are tested before.
        let idle = options.statement_timeout.as_secs().clamp(1, 3600);
        let idle_connection = idle.max(2 * STALE_AFTER.as_secs());
        statements += &format!(
            "; SET SESSION lock_wait_timeout = {idle} /*M!100301 , idle_transaction_timeout = {idle} */ \
             /*!50708 , wait_timeout = {idle_connection} */"
        );
    }
    let connect = RawConnectOptions::MySql(Box::new(connect.clone()), statements);
    ConnectionPool::new(connect, name, limits, options, Some(limit))
}

server_statements!(MySqlConnection, MySqlRow);

/// Classifies an error by its number (<https://mariadb.com/kb/en/mariadb-error-code-reference/>; MySQL's numbers are
/// the same below 1900).
pub(crate) fn classify(error: &MySqlDatabaseError) -> (StoreErrorKind, &'static str) {
    match error.number() {
        1213 | 1205 | 1020 => {
            (StoreErrorKind::Conflict, "the database aborted a transaction that competed with another")
        }
        1062 => (StoreErrorKind::Conflict, "another node wrote the same row"),
        1969 | 3024 => (StoreErrorKind::Timeout, "the database did not respond in time"),
        1290 | 1792 | 1836 => (StoreErrorKind::Unavailable, READ_ONLY),
        3 | 1021 | 1114 => (StoreErrorKind::Unavailable, "the disk of the database is full"),
        1040 | 1203 | 1226 => (StoreErrorKind::Unavailable, "the database accepts no more connections"),
        1037 | 1038 | 1041 => (StoreErrorKind::Unavailable, "the database has no resources left"),
        number if ends_connection(number) => (StoreErrorKind::Unavailable, "the database is not available"),
        1049 => (StoreErrorKind::Setup, "the database does not exist"),
        1044 | 1045 | 1698 => (StoreErrorKind::Setup, "the database refused the user or the password"),
        1142 | 1143 | 1227 => (StoreErrorKind::Setup, "the database denies a permission"),
        167 | 1264 | 1467 => (StoreErrorKind::TooLarge, "the address dictionary is full"),
        1153 | 1301 | 1406 => (StoreErrorKind::TooLarge, "the value is too large for the database"),
        1034 | 1035 | 1194 | 1195 => (StoreErrorKind::Corrupt, "the database is damaged"),
        _ => (StoreErrorKind::Internal, "the database rejected a statement"),
    }
}

/// Whether the error means that a shutdown, a `KILL` or the network ended the connection or the statement, which may have taken effect.
/// A proxy such as ProxySQL reports the loss of its server with the numbers of a client (2006, 2013, 2055).
pub(crate) const fn ends_connection(number: u16) -> bool {
    matches!(number, 1053 | 1077..=1080 | 1152 | 1158..=1161 | 1184 | 1317 | 1927 | 2006 | 2013 | 2055)
}

#[cfg(test)]
mod tests {
    use super::ends_connection;

    #[test]
    fn errors_roll_back_unless_they_end_the_connection() {
        let answers = [1021, 1037, 1040, 1062, 1114, 1205, 1213, 1226, 1290, 1792, 1836, 3024, 3];
        assert!(!answers.into_iter().any(ends_connection), "they roll back");
        assert!(
            [1053, 1077, 1080, 1152, 1158, 1161, 1184, 1317, 1927, 2006, 2013, 2055]
                .into_iter()
                .all(ends_connection)
        );
    }
}
