//! Migration 0010 on each database: affiliations in the state of rooms become rows, also of a database with many rooms, and a
//! migration that ended in the middle is repeated.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ManualClock;
use store::conformance::jid;
use store::rooms::{AffiliationPosition, AffiliationQuery};
use store::{RoomAffiliation, Stores};
use support::servers::{new_database, on_each_server, open_url, patient, run_sql};
use support::{TempDir, runtime};
use test_databases::ServerKind;

/// Rooms besides the two whose affiliations are checked: more than the migration has in memory.
const OTHERS: usize = 450;

fn put(out: &mut Vec<u8>, fields: &[&str]) {
    for field in fields {
        out.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
        out.extend(field.as_bytes());
    }
}

/// A state as the program of schema 9 wrote it.
fn state(affiliations: &[(u8, &str, &str, &str)]) -> Vec<u8> {
    let mut state = vec![1];
    put(&mut state, &["<x xmlns='jabber:x:data' type='submit'/>", "", "", "", ""]);
    for (kind, user, nick, reason) in affiliations {
        state.push(*kind);
        put(&mut state, &[user, nick, reason]);
    }
    state.push(16);
    put(&mut state, &["urn:host", "Host", ""]);
    state
}

/// All statements that make a database of schema 9 with rooms.
fn schema_9(folder: &str, bytes: impl Fn(&str) -> String) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut sql =
        "CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL);\n"
            .to_owned();
    for file in files
        .iter()
        .filter(|file| !file.to_str().unwrap().contains("0010_") && !file.to_str().unwrap().contains("0011_"))
    {
        sql += &fs::read_to_string(file).unwrap();
    }
    sql += "INSERT INTO throng_schema (version, name, at) VALUES (9, '0009_subscription_sets', 0);\n";
    let mut room = |number: usize, name: &str, affiliations: &[(u8, &str, &str, &str)]| {
        let hex: String = state(affiliations).iter().fold(String::new(), |mut hex, octet| {
            let _ = write!(hex, "{octet:02x}");
            hex
        });
        let _ = writeln!(
            sql,
            "INSERT INTO address (id, jid) VALUES ({number}, '{name}@rooms.example.org');\n\
             INSERT INTO room (room, service, creator, public, title, state) VALUES ({number}, 1, 1, 1, {}, {});",
            bytes(""),
            bytes(&hex)
        );
    };
    room(
        1,
        "coven",
        &[
            (4, "ann@example.org", "Ann", ""),
            (2, "bob@example.org", "", ""),
            (0, "spam.example", "", "advertisements"),
            // Imports took reasons of any length.
            (0, "troll.example", "", &"x".repeat(5_000)),
        ],
    );
    room(2, "heath", &[(4, "bob@example.org", "B\u{f6}b", "")]);
    for number in 3..3 + OTHERS {
        room(number, &format!("r{number}"), &[(4, "ann@example.org", "", "")]);
    }
    sql
}

async fn affiliations(stores: &Stores, room: &str) -> Vec<RoomAffiliation> {
    let page = AffiliationQuery { affiliation: None, position: AffiliationPosition::First, limit: 99 };
    let mut all = stores.rooms.affiliations(jid(room).as_ref(), page).await.unwrap();
    all.sort_by(|one, other| one.user.cmp(&other.user));
    all
}

async fn check(stores: &Stores) {
    let one = |user: &str, affiliation, nick: &str, reason: &str| RoomAffiliation {
        user: jid(user),
        affiliation,
        nick: nick.into(),
        reason: reason.into(),
    };
    let coven = [
        one("ann@example.org", 4, "Ann", ""),
        one("bob@example.org", 2, "", ""),
        one("spam.example", 0, "", "advertisements"),
        one("troll.example", 0, "", &"x".repeat(1_024)),
    ];
    assert_eq!(affiliations(stores, "coven@rooms.example.org").await, coven);
    let heath = [one("bob@example.org", 4, "B\u{f6}b", "")];
    assert_eq!(affiliations(stores, "heath@rooms.example.org").await, heath);
    for number in 3..3 + OTHERS {
        let owner = [one("ann@example.org", 4, "", "")];
        assert_eq!(affiliations(stores, &format!("r{number}@rooms.example.org")).await, owner);
    }
    let stored = stores.rooms.load(jid("coven@rooms.example.org").as_ref(), 9).await.unwrap().unwrap();
    assert_eq!(stored.record.state, state(&[]), "the hat is left");
    assert_eq!(stored.affiliations.len(), 4);
}

#[test]
fn affiliations_in_sqlite_become_rows() {
    let directory = TempDir::new();
    let url = format!("sqlite:{}", directory.file().display());
    runtime().block_on(async {
        fs::write(directory.file(), b"").unwrap();
        run_sqlite(
            &directory.file(),
            &schema_9("sqlite", |hex| if hex.is_empty() { "''".into() } else { format!("x'{hex}'") }),
        )
        .await;
        for _ in 0..2 {
            let database = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
            check(&database.stores()).await;
            database.close().await;
        }
    });
}

async fn run_sqlite(file: &Path, sql: &str) {
    use sqlx::{ConnectOptions, Connection};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut conn = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[test]
fn affiliations_on_servers_become_rows() {
    on_each_server(async |server| {
        let (folder, sql) = match server.kind() {
            ServerKind::Postgres => ("postgres", "'\\x{}'"),
            ServerKind::MariaDb | ServerKind::MySql => ("mysql", "x'{}'"),
        };
        let url = server.url(&new_database(server).await);
        let sequence = "SELECT setval(pg_get_serial_sequence('address', 'id'), max(id)) FROM address;";
        let sequence = if server.kind() == ServerKind::Postgres { sequence } else { "" };
        run_sql(&url, &(schema_9(folder, |hex| sql.replace("{}", hex)) + sequence)).await;
        let database = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
        check(&database.stores()).await;
        database.close().await;
        if server.kind() == ServerKind::Postgres {
            return;
        }
        // MySQL may have done all of it but its record.
        run_sql(&url, "DELETE FROM throng_schema WHERE version >= 10").await;
        let database = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
        check(&database.stores()).await;
        database.close().await;
    });
}
