//! Writes a second on each server, and how long they take at half of the rate that is expected, without and with a slow network.
//!
//! `cargo xtask bench databases` runs these tests with the profile `dist` and reads the lines `figure NAME VALUE UNIT`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy sees helpers outside of #[test] as ordinary code; the figures are the output"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use base::{BoxFuture, ManualClock};
use store::conformance::{jid, join_all};
use store::{AddressId, OfflineMessage, Quota, RosterItem, RosterUpdate, Stores, Subscription};
use support::runtime;
use support::servers::{new_database, open_url, patient};
use test_databases::{Proxy, Server, ServerKind, ServerSetup};
use tokio::runtime::Handle;
use tokio::time::Instant;

const MANY: Quota = Quota::messages_only(1_000_000);

const ACCOUNTS: usize = 2000;

/// Writes of each account, one after the other, for the maximum.
const ROUNDS: usize = 20;

/// Seconds of writes at a fixed rate.
const SECONDS: f64 = 10.0;

/// A write of an account; the number makes it differ from the one before.
type Write = fn(Stores, AddressId, usize) -> BoxFuture<'static, ()>;

fn store_message(stores: Stores, owner: AddressId, _: usize) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let message =
            OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: vec![b'x'; 300] };
        stores.offline.append(vec![message], MANY).await.unwrap();
    })
}

fn change_roster(stores: Stores, owner: AddressId, number: usize) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let contact = jid("bob@example.com");
        let mut item = RosterItem::new(contact.clone());
        item.subscription = Subscription::IN_ROSTER;
        item.name = Some(number.to_string());
        let put = Box::new(move |_: Option<RosterItem>| RosterUpdate::Put(item));
        stores.roster.update(owner, &contact, put).await.unwrap();
    })
}

/// Writes of all accounts, each of which waits for its last one; returns how many a second.
async fn maximum(stores: &Stores, owners: &[AddressId], write: Write) -> f64 {
    let begun = Instant::now();
    let writers = owners.iter().map(|owner| {
        let (stores, owner) = (stores.clone(), *owner);
        Handle::current().spawn(async move {
            for round in 0..ROUNDS {
                write(stores.clone(), owner, round).await;
            }
        })
    });
    join_all(writers.collect()).await.into_iter().for_each(|done| done.unwrap());
    (owners.len() * ROUNDS) as f64 / begun.elapsed().as_secs_f64()
}

/// Writes at a fixed rate, whether the earlier ones are done or not; returns their durations from when each was due, in order.
async fn durations(stores: &Stores, owners: &[AddressId], write: Write, rate: f64) -> Vec<Duration> {
    let (begun, total) = (Instant::now(), (SECONDS * rate) as usize);
    let mut writes = Vec::with_capacity(total);
    while writes.len() < total {
        let due = ((begun.elapsed().as_secs_f64() * rate) as usize).min(total);
        for number in writes.len()..due {
            let (stores, owner) = (stores.clone(), owners[number % owners.len()]);
            let due = begun + Duration::from_secs_f64(number as f64 / rate);
            writes.push(Handle::current().spawn(async move {
                write(stores, owner, number).await;
                due.elapsed()
            }));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut durations: Vec<Duration> = join_all(writes).await.into_iter().map(|done| done.unwrap()).collect();
    durations.sort_unstable();
    durations
}

/// Prints stored messages and roster changes a second, without and with 5 ms of delay.
fn measure_writes(kind: ServerKind) {
    let server = Server::start_with(kind, &ServerSetup::measured(kind));
    runtime().block_on(async {
        let name = new_database(&server).await;
        let proxy = Proxy::start(server.address());
        proxy.delay(Duration::from_millis(5));
        // Without delay the proxy would only cost time.
        for (suffix, address) in [("", server.address()), (".delayed", proxy.address())] {
            let url = server.url_through(address, &name);
            let database = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
            let stores = database.stores();
            let accounts = (0..ACCOUNTS).map(|n| store::NewAccount {
                jid: jid(&format!("user{n}@example.org")),
                credentials: [0; 300].into(),
            });
            let created = stores.accounts.create_bulk(accounts.collect()).await.unwrap();
            let owners: Vec<AddressId> = created.iter().map(|one| one.id()).collect();
            for (what, write, half) in
                [("messages", store_message as Write, 10_000.0), ("roster", change_roster, 5_000.0)]
            {
                let before = database.commits();
                let rate = maximum(&stores, &owners, write).await;
                let size = (ACCOUNTS * ROUNDS) as u64 / (database.commits() - before).max(1);
                println!("figure {what}{suffix}.rate {rate:.0} write/s");
                println!("figure {what}{suffix}.group {size} write/commit");
                let taken = durations(&stores, &owners, write, half).await;
                for percent in [50, 99] {
                    let ms = taken[taken.len() * percent / 100].as_secs_f64() * 1e3;
                    println!("figure {what}{suffix}.p{percent} {ms:.2} ms");
                }
            }
            database.close().await;
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn measure_writes_on_postgres() {
    measure_writes(ServerKind::Postgres);
}

#[test]
#[ignore = "a measurement"]
fn measure_writes_on_mariadb() {
    measure_writes(ServerKind::MariaDb);
}

#[test]
#[ignore = "a measurement"]
fn measure_writes_on_mysql() {
    measure_writes(ServerKind::MySql);
}
