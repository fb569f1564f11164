//! Storage conformance suite with accounts in a database of their own: all cases with two files of SQLite, and those of
//! accounts, logins and tokens with accounts on PostgreSQL and data on MariaDB.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
mod support;

use std::sync::Arc;

use base::ManualClock;
use store::conformance::{Backend, Case, Fixture, account, jid, login};
use store::separate_auth::separate_auth;
use store::{AddressId, CreateOutcome, NewAccount, OfflineMessage, Quota, StoreErrorKind, Stores};
use support::servers::{administer, new_database, open_url, patient, shared_server};
use support::{TempDir, open_at, runtime};
use test_databases::ServerKind;
use throng_store_sql::DatabaseOptions;

struct TwoFiles;

impl Backend for TwoFiles {
    fn run(case: Case) {
        let directories = [TempDir::new(), TempDir::new()];
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new());
            let options = DatabaseOptions::default();
            let auth = open_at(&directories[0].file(), &options, clock.clone()).await.unwrap();
            let data = open_at(&directories[1].file(), &options, clock.clone()).await.unwrap();
            let stores = separate_auth(auth.stores(), data.stores());
            case(Fixture { stores, clock }).await;
            auth.close().await;
            data.close().await;
        });
    }
}

store::conformance_suite!(crate::TwoFiles);

fn new(name: &str) -> NewAccount {
    NewAccount { jid: jid(name), credentials: b"keys"[..].into() }
}

/// An account of the data backend with a message, from before the accounts were separate, and these credentials.
async fn former_account(data: &Stores, user: &str, credentials: &[u8]) -> AddressId {
    let id = account(data, user).await;
    let message = OfflineMessage { owner: id, sender: 0, stored_at: 1, expires: None, stanza: vec![1] };
    data.offline.append(vec![message], Quota::messages_only(9)).await.unwrap();
    let name = jid(&format!("{user}@example.org"));
    data.accounts.set_credentials(name.as_ref(), credentials).await.unwrap();
    id
}

#[test]
fn a_former_account_keeps_its_data_when_it_is_created_in_the_other_database() {
    let directories = [TempDir::new(), TempDir::new()];
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new());
        let options = DatabaseOptions::default();
        let auth = open_at(&directories[0].file(), &options, clock.clone()).await.unwrap();
        let data = open_at(&directories[1].file(), &options, clock.clone()).await.unwrap();
        let (auth_stores, data_stores) = (auth.stores(), data.stores());
        let stores = separate_auth(auth_stores.clone(), data_stores.clone());
        for (user, credentials) in [("own", &b"credentials"[..]), ("emptied", b""), ("moved", b"moved")] {
            let id = former_account(&data_stores, user, credentials).await;
            let name = format!("{user}@example.org");
            let refused = stores.accounts.create(&jid(&name), b"keys").await.unwrap_err();
            assert_eq!(refused.kind, StoreErrorKind::AlreadyExists, "{user}");
            assert!(!auth_stores.accounts.exists(jid(&name).as_ref()).await.unwrap(), "{user}");
            let created = stores.accounts.create_bulk(vec![new(&name)]).await;
            assert_eq!(data_stores.offline.count(id).await.unwrap(), 1, "{user}");
            if user == "moved" {
                assert_eq!(created.unwrap(), [CreateOutcome::New(id)]);
                assert_eq!(login(&stores, &jid(&name)).await.offline_messages, 1);
            } else {
                assert_eq!(created.unwrap_err().kind, StoreErrorKind::AlreadyExists, "{user}");
                assert!(!auth_stores.accounts.exists(jid(&name).as_ref()).await.unwrap(), "{user}");
            }
        }
        auth.close().await;
        data.close().await;
    });
}

struct TwoServers;

impl Backend for TwoServers {
    fn run(case: Case) {
        let servers = [ServerKind::Postgres, ServerKind::MariaDb].map(shared_server);
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new());
            let mut databases = Vec::new();
            for server in servers {
                let name = new_database(server).await;
                let database = open_url(&server.url(&name), &patient(), clock.clone()).await.unwrap();
                databases.push((server, name, database));
            }
            let stores = separate_auth(databases[0].2.stores(), databases[1].2.stores());
            case(Fixture { stores, clock }).await;
            for (server, name, database) in databases {
                database.close().await;
                administer(server, &format!("DROP DATABASE {name}")).await;
            }
        });
    }
}

mod on_two_servers {
    store::logins!(crate::TwoServers);
    store::accounts!(crate::TwoServers);
    store::tokens!(crate::TwoServers);
}
