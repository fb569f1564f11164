//! Accounts and rosters of ejabberd in PostgreSQL, written with psql.
//!
//! The tables are those of `pg.sql` of Debian's package, which belongs to `new_sql_schema: false`, the default. Stored keys are
//! those of SCRAM-SHA-1 (RFC 5802, section 3) in Base64, the same for all accounts.

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

use super::ring_roster::neighbours;
use super::{DOMAIN, PasswordStorage, PeerOptions, run_to_end};

/// Tables of Debian's package.
const TABLES: &str = "/usr/share/ejabberd/sql/pg.sql";

/// Iterations of the keys, ejabberd's own number.
const ITERATIONS: u32 = 4096;

/// A PostgreSQL database of a server.
#[derive(Clone, Debug)]
pub(crate) struct PeerDatabase {
    /// URL for psql; the database is empty.
    pub(crate) url: String,
    /// Port on 127.0.0.1.
    pub(crate) port: u16,
    /// Its name.
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Lines of ejabberd's configuration, with its default sizes of pool and caches.
pub(super) fn configuration(database: &PeerDatabase) -> String {
    format!(
        "auth_method: sql\ndefault_db: sql\nnew_sql_schema: false\nsql_type: pgsql\nsql_server: 127.0.0.1\n\
         sql_port: {}\nsql_database: {}\nsql_username: {}\nsql_password: \"{}\"\n",
        database.port, database.name, database.user, database.password
    )
}

/// Creates the tables and fills them.
pub(super) fn fill(wanted: &PeerOptions, database: &PeerDatabase, folder: &Path) -> Result<()> {
    ensure!(wanted.passwords == PasswordStorage::Scram, "SQL accounts have SCRAM keys: omit --passwords");
    let script = folder.join("accounts.sql");
    fs::write(&script, accounts(wanted))?;
    let mut psql = Command::new("psql");
    psql.args([
        "--quiet",
        "--no-psqlrc",
        "--single-transaction",
        "--set=ON_ERROR_STOP=1",
        "--file",
        TABLES,
        "--file",
    ])
    .arg(&script)
    .arg(&database.url);
    run_to_end(&psql, &folder.join("psql.log"), "writing the accounts of ejabberd with psql")
}

/// Statements that write accounts and rosters.
fn accounts(wanted: &PeerOptions) -> String {
    let key = scram_key(&wanted.password);
    let mut text =
        String::from("COPY users (username, password, serverkey, salt, iterationcount) FROM stdin;\n");
    for account in 0..wanted.accounts {
        let _ = writeln!(text, "{}\t{key}", wanted.user(account));
    }
    text.push_str("\\.\nCOPY rosterusers (username, jid, nick, subscription, ask, askmessage, server, subscribe, type) FROM stdin;\n");
    for account in 0..wanted.accounts {
        for contact in neighbours(account, wanted.accounts, wanted.roster) {
            let _ = writeln!(
                text,
                "{}\t{}@{DOMAIN}\t\tB\tN\t\tN\t\titem",
                wanted.user(account),
                wanted.user(contact)
            );
        }
    }
    text.push_str("\\.\nANALYZE;\n");
    text
}

/// Stored key, server key, salt and iterations, separated by tabs.
fn scram_key(password: &str) -> String {
    let salt = b"0123456789abcdef";
    let mut salted = [0; digest::SHA1_OUTPUT_LEN];
    let iterations = NonZeroU32::new(ITERATIONS).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, iterations, salt, password.as_bytes(), &mut salted);
    let salted = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salted);
    let stored =
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, hmac::sign(&salted, b"Client Key").as_ref());
    let server = hmac::sign(&salted, b"Server Key");
    let encode = |bytes: &[u8]| BASE64.encode(bytes);
    format!("{}\t{}\t{}\t{ITERATIONS}", encode(stored.as_ref()), encode(server.as_ref()), encode(salt))
}

#[cfg(test)]
mod tests {
    use super::{PeerOptions, accounts};

    #[test]
    fn each_account_has_its_keys_and_its_contacts() {
        let text = accounts(&PeerOptions::new(10, 2));
        assert_eq!(text.matches("\t4096\n").count(), 10);
        assert!(text.contains("\nu0\tu9@localhost\t\tB\tN\t\tN\t\titem\n"), "{text}");
        assert_eq!(text.matches("\titem\n").count(), 20);
    }
}
