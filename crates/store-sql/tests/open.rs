//! Opening a database: refusals and their messages, and the migration of every released schema.
//!
//! A dump of each released schema is in `tests/dumps` and is never changed. `golden/sqlite.sql` is the schema that
//! this program creates; when a migration changes it, the failing test prints the new one to be stored there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::ManualClock;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use store::conformance::jid;
use store::{Page, SearchPageRequest, Seek, StoreErrorKind, Subscription, UserQuery};
use support::{SqliteTestSpawner, TempDir, open, runtime};
use throng_store_sql::{DatabaseOptions, DatabaseState, SqlStores};
use tokio::runtime::Handle;

async fn connect(file: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file).create_if_missing(true).connect().await.unwrap()
}

async fn script(file: &Path, sql: &str) {
    let mut conn = connect(file).await;
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

async fn schema(file: &Path) -> String {
    let mut conn = connect(file).await;
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' ORDER BY type, name";
    let rows = sqlx::query(sql).fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    rows.iter().map(|row| format!("{};\n", row.get::<&str, _>(0))).collect::<Vec<_>>().join("\n")
}

/// Kind and message of a refusal; the message must be one sentence.
fn refused(directory: &TempDir, url: &str) -> (StoreErrorKind, String) {
    let options = DatabaseOptions { busy_timeout: Duration::ZERO, ..DatabaseOptions::default() };
    let url = url.replace("DIR", &directory.0.display().to_string());
    let result = runtime().block_on(async {
        SqlStores::open(&url, &options, Arc::new(ManualClock::new()), &SqliteTestSpawner(Handle::current()))
            .await
    });
    let error = result.err().unwrap_or_else(|| panic!("{url} was opened"));
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("StoreError"), "{text}");
    (error.kind, text.replace(&directory.0.display().to_string(), "DIR"))
}

#[test]
fn wrong_urls_are_refused_in_one_sentence() {
    let directory = TempDir::new();
    std::fs::write(
        directory.0.join("text"),
        "I am no database, but long enough to be taken for one.".repeat(99),
    )
    .unwrap();
    for (url, expected) in [
        ("sqlite:DIR/none/throng.db", "the directory DIR/none of the database does not exist"),
        ("sqlite:DIR", "DIR is a directory, not a database"),
        ("sqlite:DIR/text", "cannot use the database DIR/text: the file is not a database"),
        ("sqlite:", "the database URL \"sqlite:\" names no file; write sqlite: and the path of a file"),
        ("sqlite::memory:", "the database URL \"sqlite::memory:\" names no file"),
        ("sqlite:DIR/x?mode=ro", "the database URL \"sqlite:DIR/x?mode=ro\" has parameters"),
        (
            "oracle://host",
            "databases of kind \"oracle\" are not supported; write sqlite: and the path of a file",
        ),
    ] {
        let (kind, text) = refused(&directory, url);
        assert_eq!(kind, StoreErrorKind::Setup, "{url}: {text}");
        assert!(text.starts_with(expected), "{url}: {text}");
    }
    assert!(std::fs::read_to_string(directory.0.join("text")).unwrap().starts_with("I am"), "left as it was");
}

#[test]
fn databases_of_other_programs_are_refused() {
    let directory = TempDir::new();
    runtime().block_on(script(&directory.file(), "CREATE TABLE account (x)"));
    let (kind, text) = refused(&directory, "sqlite:DIR/throng.db");
    assert_eq!(
        (kind, text.as_str()),
        (StoreErrorKind::Setup, "the database DIR/throng.db contains the tables of another program")
    );
}

#[test]
fn newer_schemas_are_refused() {
    let directory = TempDir::new();
    runtime().block_on(async {
        open(&directory.file(), &DatabaseOptions::default()).await.unwrap().close().await;
        script(&directory.file(), "INSERT INTO throng_schema VALUES (9999, 'future', 0)").await;
    });
    let (kind, text) = refused(&directory, "sqlite:DIR/throng.db");
    assert_eq!(kind, StoreErrorKind::Setup);
    assert!(
        text.starts_with(
            "the database DIR/throng.db has schema 9999, but this version of throng supports only up to"
        ),
        "{text}"
    );
}

/// All files of a folder with their lengths.
fn tree(folder: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut all: Vec<_> = entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect();
    all.sort();
    all
}

#[test]
fn inspecting_a_database_changes_nothing_and_reports_what_opening_would_do() {
    let directory = TempDir::new();
    let url = format!("sqlite:{}", directory.file().display());
    let look = || {
        let before = tree(&directory.0);
        let found = runtime().block_on(throng_store_sql::inspect(&url, None));
        assert_eq!(tree(&directory.0), before);
        found
    };
    assert_eq!(look().unwrap(), DatabaseState::Missing);
    let store = runtime().block_on(open(&directory.file(), &DatabaseOptions::default())).unwrap();
    runtime().block_on(store.close());
    let DatabaseState::Schema { version, newest } = look().unwrap() else { panic!("a schema") };
    assert!(version == newest && version >= 2);
    // With a journal, as a killed program leaves it.
    let conn = runtime().block_on(async {
        let mut conn = connect(&directory.file()).await;
        let sql = "PRAGMA journal_mode = WAL; DELETE FROM throng_schema WHERE version > 1";
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        conn
    });
    assert_eq!(
        look().unwrap(),
        DatabaseState::Schema { version, newest },
        "what is in the journal is not seen"
    );
    runtime().block_on(conn.close()).unwrap();
    assert_eq!(look().unwrap(), DatabaseState::Schema { version: 1, newest });
    runtime().block_on(script(&directory.file(), "INSERT INTO throng_schema VALUES (9999, 'future', 0)"));
    assert!(
        look()
            .unwrap_err()
            .to_string()
            .contains("has schema 9999, but this version of throng supports only up to")
    );
    runtime().block_on(script(&directory.file(), "DROP TABLE throng_schema"));
    assert!(look().unwrap_err().to_string().contains("contains the tables of another program"));
    std::fs::write(directory.file(), "I am no database, but long enough to be one.".repeat(99)).unwrap();
    assert!(look().unwrap_err().to_string().contains("the file is not a database"));
}

#[test]
fn a_database_is_created_only_if_permitted() {
    let directory = TempDir::new();
    let options = DatabaseOptions { create: false, ..DatabaseOptions::default() };
    let missing =
        || runtime().block_on(open(&directory.file(), &options)).err().map(|error| error.to_string());
    let expected = Some(format!("the database {} does not exist", directory.file().display()));
    assert_eq!(missing(), expected);
    assert!(!directory.file().exists());
    std::fs::write(directory.file(), "").unwrap();
    assert_eq!(missing(), expected, "an empty file is none");
    runtime().block_on(async {
        open(&directory.file(), &DatabaseOptions::default()).await.unwrap().close().await
    });
    assert_eq!(missing(), None);
}

#[test]
fn locked_databases_are_refused() {
    let directory = TempDir::new();
    let runtime = runtime();
    let mut conn = runtime.block_on(async {
        let mut conn = connect(&directory.file()).await;
        sqlx::raw_sql("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").execute(&mut conn).await.unwrap();
        conn
    });
    let (kind, text) = refused(&directory, "sqlite:DIR/throng.db");
    assert_eq!(kind, StoreErrorKind::Conflict);
    assert!(text.contains("the database is locked by another program"), "{text}");
    runtime.block_on(async {
        sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        open(&directory.file(), &DatabaseOptions::default()).await.unwrap().close().await;
    });
}

#[cfg(unix)]
#[test]
fn the_database_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        for file in std::fs::read_dir(&directory.0).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?}");
        }
        database.close().await;
    });
}

#[test]
fn the_schema_is_the_golden_one() {
    let directory = TempDir::new();
    runtime().block_on(async {
        open(&directory.file(), &DatabaseOptions::default()).await.unwrap().close().await;
        let schema = schema(&directory.file()).await;
        let golden = include_str!("../golden/sqlite.sql");
        assert!(schema == golden, "golden/sqlite.sql should be:\n{schema}");
    });
}

#[test]
fn reopening_changes_nothing() {
    let directory = TempDir::new();
    runtime().block_on(async {
        for _ in 0..3 {
            let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
            let _ = database.stores().accounts.create(&jid("ann@example.org"), b"x").await;
            assert_eq!(database.stores().accounts.count("example.org").await.unwrap(), 1);
            database.close().await;
        }
    });
}

#[test]
fn two_programs_may_create_the_database_concurrently() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let opened = store::conformance::join_all(
            (0..4).map(|_| async { open(&directory.file(), &DatabaseOptions::default()).await }).collect(),
        );
        for database in opened.await {
            database.unwrap().close().await;
        }
    });
}

/// Every released schema, filled by a program of that version, is migrated to the golden one and retains its
/// contents.
#[test]
fn every_released_schema_is_migrated() {
    const DUMPS: &[&str] = &[include_str!("dumps/sqlite_0001.sql")];
    for dump in DUMPS {
        let directory = TempDir::new();
        runtime().block_on(async {
            script(&directory.file(), dump).await;
            // The server writes its secret, not the store that made the dump.
            script(&directory.file(), "INSERT INTO setting VALUES ('decoy-secret', X'0102')").await;
            let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
            let stores = database.stores();
            let secrets = stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
            assert_eq!(secrets.credentials, b"secret");
            let ann = stores.logins.login(secrets.id, secrets.revision).await.unwrap().unwrap();
            assert_eq!(ann.offline_messages, 2);
            let items: Vec<_> =
                ann.roster.iter().map(|item| (item.jid.as_str(), item.subscription)).collect();
            let both = Subscription::BOTH | Subscription::IN_ROSTER;
            assert_eq!(items, [("bob@example.org", both), ("eve@example.com", Subscription::PENDING_IN)]);
            assert_eq!(ann.roster[0].name.as_deref(), Some("Bob"));
            assert_eq!(ann.roster[0].groups, ["Friends"]);
            assert_eq!(ann.roster[1].request.as_deref(), Some(&b"<presence type='subscribe'/>"[..]));
            let waiting = stores.offline.fetch(secrets.id, Page::first(9), 0).await.unwrap().items;
            assert_eq!(waiting[1].stanza, b"<message><body>2</body></message>");
            // Messages stored before are counted: two messages of 33 bytes.
            let message = |size: usize| store::OfflineMessage {
                owner: secrets.id,
                sender: 0,
                stored_at: 1,
                expires: None,
                stanza: vec![b'x'; size],
            };
            let quota = store::Quota { bytes: 100, ..store::Quota::messages_only(9) };
            for (size, full) in [(35, true), (34, false)] {
                let appended = stores.offline.append(vec![message(size)], quota).await.unwrap();
                assert_eq!(appended[0] == store::AppendOutcome::Full, full, "{size}");
            }
            assert_eq!(stores.server_kv.get("server-secret").await.unwrap().as_deref(), Some(&[1, 2][..]));
            assert_eq!(stores.server_kv.get("decoy-secret").await.unwrap(), None);
            assert_eq!(stores.server_kv.get("salt").await.unwrap().as_deref(), Some(&b"pepper"[..]));
            assert!(ann.blocklist.is_empty() && secrets.tokens.is_empty());
            for (user, expected) in [("", vec!["ann", "bob"]), ("b", vec!["bob"]), ("eve", vec![])] {
                let query = UserQuery { user: Some(user.to_owned()), ..UserQuery::default() };
                let page = SearchPageRequest { seek: Seek::First, limit: 9 };
                let found = stores.user_search.search("example.org", &query, page).await.unwrap().users;
                let names: Vec<_> = found.iter().filter_map(|user| user.jid.local()).collect();
                assert_eq!(names, expected, "accounts of before are found");
            }
            let name = jid("ann@example.org");
            stores.accounts.remove(name.as_ref()).await.unwrap();
            assert_eq!(stores.user_search.count("example.org", &UserQuery::default()).await.unwrap(), 1);
            database.close().await;
            assert_eq!(schema(&directory.file()).await, include_str!("../golden/sqlite.sql"));
        });
    }
}

/// Creates the dump that [`every_released_schema_is_migrated`] reads, for the next released schema: `cargo test -p
/// throng-store-sql --test open -- --ignored fill`, then dump the file that it names.
#[test]
#[ignore = "run by hand when a schema is released"]
fn fill() {
    let directory = std::mem::ManuallyDrop::new(TempDir::new());
    println!("{}", directory.file().display());
    runtime().block_on(async {
        let database = open(&directory.file(), &DatabaseOptions::default()).await.unwrap();
        support::contents::fill(&database.stores()).await;
        database.close().await;
    });
}
