//! Guarantees on real servers: round trips that the network sees, nodes that start together, lost connections, a
//! killed server, conflicts between nodes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, ManualClock};
use store::conformance::{account, jid, join_all, login};
use store::{
    AddressId, AppendOutcome, BulkItem, BulkRoster, OfflineMessage, Page, Quota, RosterItem, RosterUpdate,
    StoreErrorKind, Stores, Subscription, TokensUpdateOutcome,
};
use support::servers::{new_database, on_each_server, open_url, patient, query_texts, run_sql};
use test_databases::{Proxy, ServerKind};
use throng_store_sql::{DatabaseOptions, DatabaseState, SqlStores, inspect};

const MANY: Quota = Quota::messages_only(1_000_000);

fn message(owner: AddressId, text: &str) -> OfflineMessage {
    OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: text.as_bytes().to_vec() }
}

async fn open(url: &str) -> Arc<SqlStores> {
    open_url(url, &patient(), Arc::new(ManualClock::new())).await.unwrap()
}

/// All messages of an account, as texts.
async fn stored(stores: &Stores, owner: AddressId) -> Vec<String> {
    let page = stores.offline.fetch(owner, Page::first(1_000_000), 0).await.unwrap();
    page.items.into_iter().map(|message| String::from_utf8(message.stanza).unwrap()).collect()
}

/// Counted on the wire, whatever the client library does.
#[test]
fn a_login_is_two_round_trips() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name)).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let mut items = Vec::new();
        for n in 0..200 {
            let contact = stores.addresses.intern(&jid(&format!("c{n}@example.com"))).await.unwrap();
            let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
            items.push(BulkItem { contact, name: Some("x".into()), groups: vec![], subscription });
        }
        stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
        stores.offline.append(vec![message(ann, "x"); 3], MANY).await.unwrap();
        let name = jid("ann@example.org");
        // Prepares the two statements on the connection of logins.
        login(&stores, &name).await;
        for round in 0..5 {
            let (before, statements) = (proxy.round_trips(), database.round_trips());
            let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
            assert_eq!(proxy.round_trips() - before, 1, "round {round}");
            let login = stores.logins.login(ann, secrets.revision).await.unwrap().unwrap();
            assert_eq!((login.roster.len(), login.offline_messages), (200, 3));
            assert_eq!(proxy.round_trips() - before, 2, "round {round}");
            assert_eq!(database.round_trips() - statements, 2, "round {round}");
        }
        database.close().await;
    });
}

/// Rosters of many long addresses are not large by their weight. Together they exceed the 16 MB of a text in MariaDB.
#[test]
fn many_logins_at_once_read_whole_rosters_of_long_addresses() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let database = open(&server.url(&name)).await;
        let stores = database.stores();
        let long = "a".repeat(1000);
        let contacts: Vec<_> = (0..512).map(|n| jid(&format!("{long}{n}@example.com"))).collect();
        let contacts = stores.addresses.intern_many(&contacts).await.unwrap();
        let mut accounts = Vec::new();
        for n in 0..40 {
            let user = format!("user{n}");
            let owner = account(&stores, &user).await;
            let items = contacts.iter().map(|contact| BulkItem {
                contact: *contact,
                name: None,
                groups: vec![],
                subscription: Subscription::BOTH | Subscription::IN_ROSTER,
            });
            stores.roster.put_bulk(vec![BulkRoster { owner, items: items.collect() }]).await.unwrap();
            let name = jid(&format!("{user}@example.org"));
            let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
            accounts.push((owner, secrets.revision));
        }
        for _ in 0..2 {
            let logins = accounts.iter().map(|(owner, revision)| stores.logins.login(*owner, *revision));
            for login in join_all(logins.collect()).await {
                assert_eq!(login.unwrap().unwrap().roster.len(), 512);
            }
        }
        database.close().await;
    });
}

/// A group of writes has a fixed number of round trips, however many requests it holds.
#[test]
fn a_group_of_writes_has_a_fixed_number_of_round_trips() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let options = DatabaseOptions { writers: 1, ..patient() };
        let url = server.url_through(proxy.address(), &name);
        let database = open_url(&url, &options, Arc::new(ManualClock::new())).await.unwrap();
        let stores = database.stores();
        let mut owners = Vec::new();
        for n in 0..64 {
            owners.push(account(&stores, &format!("user{n}")).await);
        }
        let store_all = async || {
            let appends = owners.iter().map(|owner| stores.offline.append(vec![message(*owner, "x")], MANY));
            join_all(appends.collect()).await.into_iter().for_each(|done| drop(done.unwrap()));
        };
        let contact = jid("bob@example.com");
        let change_all = async |name: &'static str| {
            let updates = owners.iter().map(|owner| {
                let mut item = RosterItem::new(contact.clone());
                item.subscription = Subscription::IN_ROSTER;
                item.name = Some(name.to_owned());
                stores.roster.update(*owner, &contact, Box::new(move |_| RosterUpdate::Put(item)))
            });
            join_all(updates.collect()).await.into_iter().for_each(|done| drop(done.unwrap()));
        };
        let remove_all = async || {
            let removals = owners.iter().map(|owner| stores.offline.remove_range(*owner, 0, u64::MAX));
            let removed = join_all(removals.collect()).await.into_iter().map(|done| done.unwrap());
            assert!(removed.into_iter().all(|count| count > 0));
        };
        let names: Vec<_> = (0..64).map(|n| jid(&format!("user{n}@example.org"))).collect();
        let change_tokens = async |token: u8| {
            let updates = names.iter().map(|name| {
                let put = Box::new(move |_: &[u8]| Some(vec![token]));
                stores.tokens.update_tokens(name.as_ref(), None, put)
            });
            let done = join_all(updates.collect()).await.into_iter().map(|done| done.unwrap());
            assert!(done.into_iter().all(|done| done == TokensUpdateOutcome::Applied));
        };
        // Prepares the statements of all lengths that the groups below use.
        for round in 0..3 {
            store_all().await;
            change_all("first").await;
            change_tokens(round).await;
            remove_all().await;
        }
        let (trips, commits) = (proxy.round_trips(), database.commits());
        store_all().await;
        let groups = database.commits() - commits;
        assert!(groups <= 2, "{groups} groups");
        // Begin with locks; counters, rows, counters; commit.
        assert!(proxy.round_trips() - trips <= 5 * groups, "{}", proxy.round_trips() - trips);
        let (trips, commits) = (proxy.round_trips(), database.commits());
        change_all("second").await;
        let groups = database.commits() - commits;
        assert!(groups <= 2, "{groups} groups");
        // Begin with locks; numbers, versions, entries; entries, versions; commit.
        assert!(proxy.round_trips() - trips <= 7 * groups, "{}", proxy.round_trips() - trips);
        let (trips, commits) = (proxy.round_trips(), database.commits());
        change_tokens(9).await;
        let groups = database.commits() - commits;
        assert!(groups <= 2, "{groups} groups");
        // Begin with locks; tokens; tokens; commit.
        assert!(proxy.round_trips() - trips <= 4 * groups, "{}", proxy.round_trips() - trips);
        let found = stores.logins.secrets(names[63].as_ref()).await.unwrap().unwrap();
        assert_eq!(found.tokens, [9]);
        let (trips, commits) = (proxy.round_trips(), database.commits());
        remove_all().await;
        let groups = database.commits() - commits;
        assert!(groups <= 2, "{groups} groups");
        // Begin with locks; counts; rows, counters; commit.
        assert!(proxy.round_trips() - trips <= 5 * groups, "{}", proxy.round_trips() - trips);
        assert_eq!(stores.offline.count(owners[63]).await.unwrap(), 0);
        database.close().await;
    });
}

#[test]
fn ten_nodes_that_start_together_migrate_once() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let url = server.url(&name);
        assert_eq!(inspect(&url, None).await.unwrap(), DatabaseState::Missing);
        let nodes = join_all((0..10).map(|_| open(&url)).collect()).await;
        let state = inspect(&url, None).await.unwrap();
        assert!(matches!(state, DatabaseState::Schema { version, newest } if version == newest), "{state:?}");
        let ann = account(&nodes[0].stores(), "ann").await;
        for node in &nodes {
            let found = node.stores().accounts.get(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
            assert_eq!(found.id, ann);
        }
        join_all(nodes.iter().map(|node| node.close()).collect()).await;
    });
}

/// Two nodes write to the same accounts. Everything that was acknowledged is there once, and in order.
#[test]
fn nodes_that_write_to_the_same_accounts_lose_nothing() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let nodes = [open(&server.url(&name)).await, open(&server.url(&name)).await];
        let stores = nodes.each_ref().map(SqlStores::stores);
        let mut owners = Vec::new();
        for n in 0..6 {
            owners.push(account(&stores[0], &format!("user{n}")).await);
        }
        for round in 0..20 {
            let mut appends = Vec::new();
            let mut updates = Vec::new();
            for (number, stores) in stores.iter().enumerate() {
                for owner in &owners {
                    let text = format!("{number} {round}");
                    appends.push(stores.offline.append(vec![message(*owner, &text)], MANY));
                    let contact = jid(&format!("c{round}n{number}@example.com"));
                    let mut item = RosterItem::new(contact.clone());
                    item.subscription = Subscription::IN_ROSTER;
                    let put = Box::new(move |_: Option<RosterItem>| RosterUpdate::Put(item));
                    updates.push(stores.roster.update(*owner, &contact, put));
                }
            }
            let (appended, updated) = tokio::join!(join_all(appends), join_all(updates));
            assert!(
                appended.into_iter().all(|done| matches!(done.unwrap()[..], [AppendOutcome::Stored { .. }]))
            );
            updated.into_iter().for_each(|done| drop(done.unwrap()));
        }
        for owner in owners {
            let texts = stored(&stores[0], owner).await;
            for number in 0..2 {
                let own: Vec<&String> =
                    texts.iter().filter(|text| text.starts_with(&format!("{number} "))).collect();
                let expected: Vec<String> = (0..20).map(|round| format!("{number} {round}")).collect();
                assert_eq!(own, expected.iter().collect::<Vec<_>>());
            }
            assert_eq!(stores[0].offline.count(owner).await.unwrap(), 40);
            let roster = stores[1].roster.get(owner).await.unwrap();
            assert_eq!(roster.items.len(), 40);
        }
        for node in nodes {
            node.close().await;
        }
    });
}

/// Messages lock accounts by id and tokens by name. Each of two transactions has half of the accounts by id and the other
/// half by name, crossed.
#[test]
fn transactions_that_lock_the_same_accounts_by_id_and_by_name_do_not_deadlock() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        // One writer each, so that the requests of a node share a transaction.
        let options = DatabaseOptions { writers: 1, ..patient() };
        let mut nodes = Vec::new();
        for _ in 0..2 {
            nodes.push(open_url(&url, &options, Arc::new(ManualClock::new())).await.unwrap());
        }
        let stores: Vec<Stores> = nodes.iter().map(|node| node.stores()).collect();
        let mut owners = Vec::new();
        for n in 0..16 {
            let user = format!("user{n:02}");
            owners.push((account(&stores[0], &user).await, jid(&format!("{user}@example.org"))));
        }
        let (low, high) = owners.split_at(8);
        let before: Vec<u64> = nodes.iter().map(|node| node.write_retries()).collect();
        for _ in 0..40 {
            let mut appends = Vec::new();
            let mut updates = Vec::new();
            for (stores, by_id, by_name) in [(&stores[0], high, low), (&stores[1], low, high)] {
                appends
                    .extend(by_id.iter().map(|(id, _)| stores.offline.append(vec![message(*id, "x")], MANY)));
                updates.extend(by_name.iter().map(|(_, name)| {
                    stores.tokens.update_tokens(name.as_ref(), None, Box::new(|_| Some(vec![1])))
                }));
            }
            let (appended, updated) = tokio::join!(join_all(appends), join_all(updates));
            appended.into_iter().for_each(|done| drop(done.unwrap()));
            assert!(updated.into_iter().all(|done| done.unwrap() == TokensUpdateOutcome::Applied));
        }
        let after: Vec<u64> = nodes.iter().map(|node| node.write_retries()).collect();
        assert_eq!(after, before);
        for node in nodes {
            node.close().await;
        }
    });
}

#[test]
fn nodes_that_create_the_same_account_agree_on_who_did() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let nodes = [open(&server.url(&name)).await, open(&server.url(&name)).await];
        let stores = nodes.each_ref().map(SqlStores::stores);
        for round in 0..20 {
            let name = jid(&format!("user{round}@example.org"));
            if round % 2 == 1 {
                // Otherwise the nodes wait for each other when the address gets its number.
                stores[0].addresses.intern(&name).await.unwrap();
            }
            let (one, other) = tokio::join!(
                stores[0].accounts.create(&name, b"one"),
                stores[1].accounts.create(&name, b"other")
            );
            let credentials = stores[0].logins.secrets(name.as_ref()).await.unwrap().unwrap().credentials;
            match (one, other) {
                (Ok(_), Err(error)) => {
                    assert_eq!((error.kind, &credentials[..]), (StoreErrorKind::AlreadyExists, &b"one"[..]));
                }
                (Err(error), Ok(_)) => {
                    assert_eq!(
                        (error.kind, &credentials[..]),
                        (StoreErrorKind::AlreadyExists, &b"other"[..])
                    );
                }
                (one, other) => panic!("{one:?} {other:?}"),
            }
        }
        for node in nodes {
            node.close().await;
        }
    });
}

/// The server has committed, and the node does not get the answer.
#[test]
fn a_connection_cut_during_commit_stores_a_message_once() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name)).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        // The writer of this account connects now: the text that sets up a connection contains the word, too.
        stores.offline.append(vec![message(ann, "first")], MANY).await.unwrap();
        for round in 0..5 {
            // With its end, because READ COMMITTED is in other texts.
            proxy.cut_answer_to(match server.kind() {
                ServerKind::Postgres => "COMMIT\0",
                ServerKind::MariaDb | ServerKind::MySql => "COMMIT",
            });
            let done = stores.offline.append(vec![message(ann, &round.to_string())], MANY).await;
            assert!(matches!(done.unwrap()[..], [AppendOutcome::Stored { .. }]));
            assert_eq!(proxy.cuts(), round + 1);
        }
        assert_eq!(stored(&stores, ann).await, ["first", "0", "1", "2", "3", "4"]);
        assert_eq!(stores.offline.count(ann).await.unwrap(), 6);
        assert_eq!(database.write_retries(), 5);
        database.close().await;
    });
}

/// By its row a writer recognises whether its next commit has happened, and nodes that end remove the rows of others that are a
/// week old.
#[test]
fn an_idle_node_keeps_the_rows_of_its_writers() {
    const HALF_A_WEEK: u64 = 7 * 24 * 3600 * 1000 / 2;
    on_each_server(async |server| {
        let name = new_database(server).await;
        let (url, clock) = (server.url(&name), Arc::new(ManualClock::new()));
        let options = DatabaseOptions { writers: 1, idle_timeout: Duration::from_millis(20), ..patient() };
        let idle = open_url(&url, &options, clock.clone()).await.unwrap();
        let ann = account(&idle.stores(), "ann").await;
        let rows = async |what: &str| {
            query_texts(&url, &format!("SELECT CAST({what} AS CHAR(20)) FROM write_batch")).await
        };
        let row = rows("writer").await;
        assert_eq!(row.len(), 1);
        for round in 0..4 {
            clock.advance(HALF_A_WEEK);
            let now = clock.unix_millis().to_string();
            let renewed = async {
                while rows("at").await.iter().all(|at| at.trim() != now) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let renewed = tokio::time::timeout(Duration::from_secs(20), renewed).await;
            let other = open_url(&url, &options, clock.clone()).await.unwrap();
            account(&other.stores(), &format!("user{round}")).await;
            other.close().await;
            assert_eq!(rows("writer").await, row, "round {round}");
            renewed.unwrap();
        }
        idle.stores().offline.append(vec![message(ann, "kept")], MANY).await.unwrap();
        idle.close().await;
        assert!(rows("writer").await.is_empty());
    });
}

/// The machine of a node did not run, so it could not renew its row.
#[test]
fn a_writer_whose_row_was_removed_inserts_it_before_its_next_transaction() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let (url, clock) = (server.url_through(proxy.address(), &name), Arc::new(ManualClock::new()));
        let options = DatabaseOptions { writers: 1, ..patient() };
        let database = open_url(&url, &options, clock.clone()).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let append = async |text: &str| stores.offline.append(vec![message(ann, text)], MANY).await.unwrap();
        append("first").await;
        let before = database.round_trips();
        append("second").await;
        let usual = database.round_trips() - before;
        clock.advance(8 * 24 * 3600 * 1000);
        run_sql(&server.url(&name), "DELETE FROM write_batch").await;
        let before = database.round_trips();
        append("third").await;
        assert_eq!(database.round_trips() - before, usual + 1, "the row comes first");
        proxy.cut_answer_to(match server.kind() {
            ServerKind::Postgres => "COMMIT\0",
            ServerKind::MariaDb | ServerKind::MySql => "COMMIT",
        });
        append("fourth").await;
        assert_eq!(stored(&stores, ann).await, ["first", "second", "third", "fourth"]);
        database.close().await;
    });
}

/// Nothing of the transaction is stored, and it runs again.
#[test]
fn a_connection_cut_before_commit_stores_a_change_once() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name)).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let contact = jid("bob@example.com");
        for round in 1..=5u64 {
            // Several at once, so that the text of the rows is in the request.
            proxy.cut_answer_to("write_batch");
            let decided = Arc::new(AtomicU64::new(0));
            let counter = decided.clone();
            let decide = move |before: Option<RosterItem>| {
                counter.fetch_add(1, Ordering::Relaxed);
                let mut item = before.unwrap_or_else(|| RosterItem::new(jid("bob@example.com")));
                item.subscription = Subscription::IN_ROSTER;
                item.name = Some(format!("{}x", item.name.unwrap_or_default()));
                RosterUpdate::Put(item)
            };
            let done = stores.roster.update(ann, &contact, Box::new(decide)).await.unwrap();
            let name = "x".repeat(usize::try_from(round).unwrap());
            assert_eq!(done.after.unwrap().name, Some(name));
            assert_eq!(decided.load(Ordering::Relaxed), 1, "a decision is made once");
            assert_eq!(proxy.cuts(), round);
        }
        database.close().await;
    });
}

#[test]
fn calls_wait_for_a_server_that_is_gone_within_their_deadline() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let options = DatabaseOptions {
            read_deadline: Duration::from_secs(1),
            write_deadline: Duration::from_secs(1),
            ..DatabaseOptions::default()
        };
        let url = server.url_through(proxy.address(), &name);
        let database = open_url(&url, &options, Arc::new(ManualClock::new())).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let name = jid("ann@example.org");
        proxy.refuse(true);
        for _ in 0..2 {
            let (read, write, secrets) = tokio::join!(
                stores.offline.count(ann),
                stores.offline.append(vec![message(ann, "lost")], MANY),
                stores.logins.secrets(name.as_ref()),
            );
            for error in [read.unwrap_err(), write.unwrap_err(), secrets.unwrap_err()] {
                assert!(error.retryable, "{error}");
            }
        }
        let stats = database.stats();
        assert!(stats.pools.iter().any(|pool| pool.circuit_open));
        proxy.refuse(false);
        // By itself, as soon as the next attempt succeeds.
        let patient = async {
            loop {
                let appended = stores.offline.append(vec![message(ann, "kept")], MANY).await;
                let secrets = stores.logins.secrets(name.as_ref()).await;
                if appended.is_ok() && secrets.is_ok() && stores.offline.count(ann).await.is_ok() {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), patient).await.unwrap();
        let texts = stored(&stores, ann).await;
        assert!(texts.iter().all(|text| text == "kept"), "{texts:?}");
        database.close().await;
    });
}

/// As after a loss of power or of a route: nothing closes the connections, and nothing answers.
#[test]
fn connections_over_which_no_answer_comes_are_replaced() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        // Answers are waited for one second longer.
        let options = DatabaseOptions {
            read_deadline: Duration::from_millis(500),
            statement_timeout: Duration::from_millis(500),
            write_deadline: Duration::from_secs(60),
            writers: 1,
            ..DatabaseOptions::default()
        };
        let url = server.url_through(proxy.address(), &name);
        let database = open_url(&url, &options, Arc::new(ManualClock::new())).await.unwrap();
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        let name = jid("ann@example.org");
        let all = async || {
            let secrets = stores.logins.secrets(name.as_ref()).await;
            (secrets.is_ok_and(|found| found.is_some()), stores.offline.count(ann).await.is_ok())
        };
        // Opens a connection of each pool.
        while all().await != (true, true) {}
        stores.offline.append(vec![message(ann, "before")], MANY).await.unwrap();
        proxy.strand();
        // It is written over another connection, once its own is given up.
        let appended = stores.offline.append(vec![message(ann, "after")], MANY);
        tokio::time::timeout(Duration::from_secs(50), appended).await.unwrap().unwrap();
        let recovered = async { while all().await != (true, true) {} };
        tokio::time::timeout(Duration::from_secs(50), recovered).await.unwrap();
        database.close().await;
        // Without the short deadlines.
        let database = open(&url).await;
        assert_eq!(stored(&database.stores(), ann).await, ["before", "after"]);
        database.close().await;
    });
}

/// Each answer takes 20 ms: the groups grow, and so nothing waits for more than a few of them.
#[test]
fn a_slow_server_gets_larger_groups() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let proxy = Proxy::start(server.address());
        let database = open(&server.url_through(proxy.address(), &name)).await;
        let stores = database.stores();
        let ann = account(&stores, "ann").await;
        stores.offline.append(vec![message(ann, "first")], MANY).await.unwrap();
        proxy.delay(Duration::from_millis(20));
        let commits = database.commits();
        let senders = (0..20).map(|sender| {
            let stores = stores.clone();
            async move {
                for round in 0..10 {
                    let text = format!("{sender}.{round}");
                    stores.offline.append(vec![message(ann, &text)], MANY).await.unwrap();
                }
            }
        });
        join_all(senders.collect()).await;
        let groups = database.commits() - commits;
        assert!(groups <= 40, "{groups} groups for 200 messages of 20 senders");
        assert_eq!(stores.offline.count(ann).await.unwrap(), 201);
        proxy.delay(Duration::ZERO);
        database.close().await;
    });
}

/// Nodes remove the same expired messages while others arrive: the counters stay those of the rows.
#[test]
fn nodes_that_expire_the_same_messages_count_them_once() {
    on_each_server(async |server| {
        let name = new_database(server).await;
        let nodes = [open(&server.url(&name)).await, open(&server.url(&name)).await];
        let stores = nodes.each_ref().map(SqlStores::stores);
        let mut owners = Vec::new();
        for n in 0..4 {
            owners.push(account(&stores[0], &format!("user{n}")).await);
        }
        let mut removed = 0;
        for round in 0..10 {
            let appends = owners.iter().flat_map(|owner| {
                let expired = OfflineMessage { expires: Some(5), ..message(*owner, "expired") };
                let kept = message(*owner, "kept");
                stores
                    .iter()
                    .map(move |stores| stores.offline.append(vec![expired.clone(), kept.clone()], MANY))
            });
            let sweeps = stores.iter().map(|stores| stores.offline.expire(10, 100));
            let (appended, swept) = tokio::join!(join_all(appends.collect()), join_all(sweeps.collect()));
            appended.into_iter().for_each(|done| drop(done.unwrap()));
            removed += swept.into_iter().map(Result::unwrap).sum::<u32>();
            if round == 9 {
                removed += stores[0].offline.expire(10, 100).await.unwrap();
            }
        }
        assert_eq!(removed, 10 * 2 * 4);
        for owner in owners {
            assert_eq!(stored(&stores[0], owner).await.len(), 20);
            assert_eq!(stores[1].offline.count(owner).await.unwrap(), 20);
        }
        for node in nodes {
            node.close().await;
        }
    });
}

#[test]
fn the_password_may_be_in_a_file() {
    let directory = support::TempDir::new();
    let file = directory.0.join("password");
    on_each_server(async |server| {
        let name = new_database(server).await;
        let url = server.url(&name);
        let wrong = url.replace("correct%20horse", "wrong");
        assert_ne!(wrong, url);
        let refused = inspect(&wrong, None).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Setup, "{refused}");
        std::fs::write(&file, "correct horse\n").unwrap();
        let options = DatabaseOptions { password_file: Some(file.clone()), ..patient() };
        assert_eq!(inspect(&wrong, Some(&file)).await.unwrap(), DatabaseState::Missing);
        let database = open_url(&wrong, &options, Arc::new(ManualClock::new())).await.unwrap();
        account(&database.stores(), "ann").await;
        database.close().await;
    });
}
