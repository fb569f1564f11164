//! Accounts in tables of other programs, in SQLite and on a real PostgreSQL and a real MariaDB: passwords of every form, changes of
//! accounts by the program, and rows that are no accounts.
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

use std::fs;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::pbkdf2;
use sasl::{Credentials, ScramHash};
use store_sql::{ForeignDatabase, ForeignDatabaseOptions};
use test_databases::{Server, ServerKind};
use throng_e2e::text_client::TextClient;
use throng_e2e::{NodeProcess, describe_output, ports};

/// Of crypt_blowfish, as PHP writes it.
const BCRYPT: &str = "$2y$07$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq";

fn django(password: &str) -> String {
    let mut key = [0; 32];
    let iterations = NonZeroU32::new(1_000).expect("a number");
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, b"saltySALT", password.as_bytes(), &mut key);
    format!("pbkdf2_sha256$1000$saltySALT${}", STANDARD.encode(key))
}

fn scram(password: &str) -> String {
    let derived = Credentials::derive(password, 4096, b"salt of 16 bytes").expect("keys");
    let keys = derived.keys(ScramHash::Sha256).expect("keys");
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    format!(
        "SCRAM-SHA-256$4096:{}${}:{}",
        encode(&keys.salt),
        encode(keys.stored_key.expose()),
        encode(keys.server_key.expose())
    )
}

/// A table with an account of each form, and a node that knows it.
struct TableNode {
    process: NodeProcess,
    port: u16,
}

impl TableNode {
    fn start(server: Option<&Server>, process: NodeProcess) -> TableNode {
        let [port] = ports::free();
        let (url, password_file) = match server {
            None => {
                let file = process.folder.join("accounts.db");
                fs::write(&file, "").expect("an empty database");
                let url = format!("sqlite:{}", file.display());
                fill(&url);
                (url, "")
            }
            Some(server) => {
                fill(&server.default_url());
                fs::write(process.folder.join("password"), server.password()).expect("a file");
                let encoded = format!(":{}@", server.password().replace(' ', "%20"));
                (server.default_url().replacen(&encoded, "@", 1), "password_file = 'password'")
            }
        };
        let mut node = TableNode { process, port };
        node.process.configure(&format!(
            "data_dir = 'data'\nhosts = ['a.test', 'b.test']\n\
             [host.'a.test'.auth.sql]\nurl = '{url}'\n{password_file}\ncache_seconds = 0\nnew_passwords = 'argon2id'\n\
             find = \"SELECT hash, locked, name FROM users WHERE name = :user AND domain = :domain\"\n\
             create = \"INSERT INTO users (name, domain, hash) VALUES (:user, :domain, :password)\"\n\
             set_password = \"UPDATE users SET hash = :password WHERE name = :user AND domain = :domain\"\n\
             remove = \"DELETE FROM users WHERE name = :user AND domain = :domain\"\n\
             [host.'b.test'.auth.sql]\nurl = '{url}'\n{password_file}\nscram = 'SCRAM-SHA-256'\n\
             find = \"SELECT hash FROM users WHERE name = :user AND domain = :domain\"\n\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\nallow_plain_without_tls = true\n"
        ));
        node.process.start();
        node
    }

    fn login(&self, user: &str, password: &str) -> Result<TextClient, String> {
        TextClient::login_plain(self.port, &format!("{user}@a.test"), password)
    }

    fn condition(&self, user: &str, password: &str) -> String {
        self.login(user, password).expect_err("no login")
    }
}

/// Creates the table.
fn fill(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = ForeignDatabaseOptions {
            password_file: None,
            connections: 1,
            deadline: Duration::from_secs(30),
            writes: true,
        };
        let clock = Arc::new(base::SystemClock::new());
        let database = ForeignDatabase::open(url, &options, clock).expect("a database");
        let execute = async |sql: &str| {
            if let Err(error) = database.execute(sql, &[]).await {
                panic!("{sql}: {error:?}");
            }
        };
        execute(
            "CREATE TABLE users (name varchar(100) NOT NULL, domain varchar(100) NOT NULL, hash varchar(200), \
             locked smallint NOT NULL DEFAULT 0, PRIMARY KEY (name, domain))",
        )
        .await;
        for (name, domain, hash, locked) in [
            ("bcrypt", "a.test", Some(BCRYPT.to_owned()), 0),
            ("django", "a.test", Some(django("s3cret")), 0),
            ("scram", "a.test", Some(scram("s3cret")), 0),
            ("locked", "a.test", Some(BCRYPT.to_owned()), 1),
            ("null", "a.test", None, 0),
            ("unusable", "a.test", Some("!".to_owned()), 0),
            ("plain", "a.test", Some("rasmuslerdorf".to_owned()), 0),
            ("costly", "a.test", Some(BCRYPT.replace("$07$", "$31$")), 0),
            ("romeo", "b.test", Some(scram("0rchard")), 0),
        ] {
            let hash = hash.map_or("NULL".to_owned(), |hash| format!("'{hash}'"));
            execute(&format!("INSERT INTO users VALUES ('{name}', '{domain}', {hash}, {locked})")).await;
        }
    });
}

fn accounts_of_a_table_log_in_and_are_changed(kind: Option<ServerKind>) {
    let server = kind.map(Server::start);
    let node = TableNode::start(server.as_ref(), NodeProcess::new(&format!("foreign-table-{kind:?}")));
    for (user, password) in [("bcrypt", "rasmuslerdorf"), ("django", "s3cret"), ("scram", "s3cret")] {
        node.login(user, password).unwrap_or_else(|failure| panic!("{kind:?} {user}: {failure}"));
        for wrong in ["s3cre", "' OR 1=1 --"] {
            assert!(node.condition(user, wrong).contains("<not-authorized"), "{kind:?} {user}");
        }
    }
    for (user, password, condition) in [
        ("nobody", "rasmuslerdorf", "<not-authorized"),
        ("' or '1'='1", "rasmuslerdorf", "<not-authorized"),
        ("null", "rasmuslerdorf", "<not-authorized"),
        ("unusable", "!", "<not-authorized"),
        ("locked", "rasmuslerdorf", "<account-disabled"),
        ("locked", "wrong", "<not-authorized"),
        ("plain", "rasmuslerdorf", "<temporary-auth-failure"),
        ("costly", "rasmuslerdorf", "<temporary-auth-failure"),
    ] {
        let refused = node.condition(user, password);
        assert!(refused.contains(condition), "{kind:?} {user}: {refused}");
    }
    node.process.wait_for_log("has a password hash whose form or cost is not supported");

    // Changes by this server are written with another form.
    node.process.run_ok(&["account", "passwd", "--password", "m0nument valley", "bcrypt@a.test"]);
    node.login("bcrypt", "m0nument valley").expect("a login with the new password");
    assert!(node.condition("bcrypt", "rasmuslerdorf").contains("<not-authorized"), "{kind:?}");
    node.process.run_ok(&["account", "add", "--password", "balc0ny scene", "juliet@a.test"]);
    let again = node.process.run(&["account", "add", "--password", "another scene", "juliet@a.test"]);
    assert!(describe_output(&again).contains("already exists"), "{kind:?} {}", describe_output(&again));
    node.login("juliet", "balc0ny scene").expect("a login of the new account");
    node.process.run_ok(&["account", "remove", "juliet@a.test"]);
    assert!(node.condition("juliet", "balc0ny scene").contains("<not-authorized"), "{kind:?}");
    let refused = node.process.run(&["account", "passwd", "--password", "another scene", "romeo@b.test"]);
    let refused = describe_output(&refused);
    assert!(refused.contains("kept by a table of another program"), "{kind:?}: {refused}");

    // The other domain offers SCRAM, and a missing account looks like an existing one.
    let challenge = |user: &str| {
        let mut client = TextClient::connect(node.port, "b.test");
        let features = client.read_to("</stream:features>");
        assert!(features.contains(">SCRAM-SHA-256<") && !features.contains(">SCRAM-SHA-1<"), "{features}");
        client.send_auth("SCRAM-SHA-256", format!("n,,n={user},r=abcdef").as_bytes());
        let text = client.read_to("</challenge>");
        let text = text.rsplit_once('>').map_or("", |(_, text)| text).to_owned();
        String::from_utf8(sasl::encoding::decode_response(&text).expect("base 64")).expect("text")
    };
    let mut romeo = TextClient::connect(node.port, "b.test");
    romeo.read_to("</stream:features>");
    romeo.scram(ScramHash::Sha256, "romeo", "0rchard").expect("a login");
    let (known, missing) = (challenge("romeo"), challenge("nobody"));
    // XEP-0474 adds the attribute h.
    assert!(known.contains(",i=4096,h=") && missing.contains(",i=4096,h="), "{known} {missing}");
    assert_eq!(known.len(), missing.len());
    let log = node.process.log();
    for secret in ["BCryptRequires22", "rasmuslerdorf", "saltySALT", "argon2id"] {
        assert!(!log.contains(secret), "{kind:?}: {secret} is in the log");
    }
}

#[test]
fn accounts_of_an_sqlite_table_log_in_and_are_changed() {
    accounts_of_a_table_log_in_and_are_changed(None);
}

#[test]
fn accounts_of_a_postgresql_table_log_in_and_are_changed() {
    accounts_of_a_table_log_in_and_are_changed(Some(ServerKind::Postgres));
}

#[test]
fn accounts_of_a_mariadb_table_log_in_and_are_changed() {
    accounts_of_a_table_log_in_and_are_changed(Some(ServerKind::MariaDb));
}
