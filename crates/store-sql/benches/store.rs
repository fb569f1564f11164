//! Storage benchmark on SQLite: a bulk load, logins at several rates and in parallel, offline messages, vCards and
//! searches.
//!
//! `cargo bench -p throng-store-sql` prints one line each. CPU is that of the whole process, user and system, from
//! `getrusage`; resident memory from `/proc`. Defaults: `ACCOUNTS=200000` and `CARDS=20000`; `ONLY=search` runs only
//! the account load and the searches.
#![allow(unsafe_code, reason = "getrusage has no safe wrapper among our dependencies")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark"
)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jid::Jid;
use store::{
    AddressId, BulkItem, BulkRoster, NewAccount, OfflineMessage, SearchPageRequest, SearchableProfile, Seek,
    Stores, Subscription, UserQuery,
};
use throng_store_sql::{DatabaseOptions, SqlStores};

fn cpu() -> Duration {
    // SAFETY: the structure is plain data and the call only fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn user(n: usize) -> Jid {
    Jid::parse(&format!("user{n}@localhost")).unwrap()
}

fn only_searches() -> bool {
    std::env::var("ONLY").is_ok_and(|only| only == "search")
}

async fn load(stores: &Stores, accounts: usize) -> Vec<AddressId> {
    let (wall, used) = (Instant::now(), cpu());
    let credentials: Arc<[u8]> = vec![7; 300].into();
    let new = (0..accounts).map(|n| NewAccount { jid: user(n), credentials: credentials.clone() }).collect();
    let ids: Vec<AddressId> =
        stores.accounts.create_bulk(new).await.unwrap().into_iter().map(store::CreateOutcome::id).collect();
    println!(
        "bulk: {accounts} accounts in {:.1} s, CPU {:.1} s",
        wall.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64()
    );
    if only_searches() {
        return ids;
    }
    let (wall, used) = (Instant::now(), cpu());
    let at = |n: usize| ids[n % accounts];
    let rosters = (0..accounts).map(|n| {
        let items = [at(n + 1), at(n + 2), at(n + accounts - 1)].map(|contact| BulkItem {
            contact,
            name: None,
            groups: vec![],
            subscription: Subscription::BOTH | Subscription::IN_ROSTER,
        });
        BulkRoster { owner: ids[n], items: items.into() }
    });
    let stored = stores.roster.put_bulk(rosters.collect()).await.unwrap();
    println!(
        "bulk: {stored} roster entries in {:.1} s, CPU {:.1} s",
        wall.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64()
    );
    ids
}

/// How the two reads of a login are sent.
#[derive(Clone, Copy)]
enum Reads {
    /// One call after the other, as when the client answers a challenge in between.
    Apart,
    /// One call that verifies the proof in between.
    Proved,
}

/// `side` tasks, each logging in one account after the other, with an optional pause between.
async fn logins(
    database: &Arc<SqlStores>,
    accounts: usize,
    side: usize,
    each: usize,
    pause: Option<Duration>,
    reads: Reads,
) {
    let (wall, used, trips) = (Instant::now(), cpu(), database.round_trips());
    let tasks: Vec<_> = (0..side)
        .map(|task| {
            let stores = database.stores();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(task as u64);
                for _ in 0..each {
                    let name = user(random.usize(..accounts));
                    let login = match reads {
                        Reads::Apart => {
                            let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
                            stores.logins.login(secrets.id, secrets.revision).await.unwrap()
                        }
                        Reads::Proved => {
                            let proof = Box::new(|secrets: Option<&store::AccountSecrets>| secrets.is_some());
                            let attempt = stores.logins.prove(name.as_ref(), proof).await.unwrap().unwrap();
                            attempt.login.unwrap().unwrap()
                        }
                    };
                    assert_eq!(login.unwrap().roster.len(), 3);
                    if let Some(pause) = pause {
                        tokio::time::sleep(pause).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (wall, used) = (wall.elapsed(), cpu() - used);
    let count = (side * each) as f64;
    println!(
        "{}: {side} at once{}: {:.1} us CPU each, {:.0} a second ({:.0} per core), {:.2} statements each, {} MB resident",
        match reads {
            Reads::Apart => "logins",
            Reads::Proved => "logins with their proof",
        },
        pause.map_or(String::new(), |pause| format!(", pauses of {pause:?}")),
        used.as_secs_f64() * 1e6 / count,
        count / wall.as_secs_f64(),
        count / used.as_secs_f64(),
        (database.round_trips() - trips) as f64 / count,
        resident_kb() / 1024,
    );
}

async fn messages(database: &Arc<SqlStores>, ids: &[AddressId], side: usize, each: usize) {
    let (wall, used, commits) = (Instant::now(), cpu(), database.commits());
    let tasks: Vec<_> = (0..side)
        .map(|task| {
            let (stores, ids) = (database.stores(), ids.to_vec());
            tokio::spawn(async move {
                for n in 0..each {
                    let owner = ids[(task * 7919 + n * 104_729) % ids.len()];
                    let message = OfflineMessage {
                        owner,
                        sender: 0,
                        stored_at: 1,
                        expires: None,
                        stanza: vec![b'x'; 300],
                    };
                    stores.offline.append(vec![message], store::Quota::messages_only(1000)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (wall, used) = (wall.elapsed(), cpu() - used);
    let count = (side * each) as f64;
    println!(
        "offline: {side} at once: {:.1} us CPU each, {:.0} a second, {:.1} to a transaction",
        used.as_secs_f64() * 1e6 / count,
        count / wall.as_secs_f64(),
        count / (database.commits() - commits) as f64
    );
}

const FIRST: [&str; 20] = [
    "Ann", "Bob", "Carol", "Dave", "Eve", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Karl", "Lena",
    "Mallory", "Niaj", "Olivia", "Peggy", "Rupert", "Sybil", "Trent", "Walter",
];

/// vCards for the first accounts: 20 given names, 1000 family names.
async fn cards(stores: &Stores, cards: usize) {
    let (wall, used) = (Instant::now(), cpu());
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let stores = stores.clone();
            tokio::spawn(async move {
                for n in (task..cards).step_by(100) {
                    let (first, last) = (FIRST[n % 20], format!("Family{:03}", n / 20 % 1000));
                    let shown = SearchableProfile {
                        name: format!("{first} {last}"),
                        first: first.into(),
                        nick: format!("nick{n}"),
                        email: format!("{first}.{last}.{n}@example.com"),
                        last,
                    };
                    stores.vcards.put(user(n).as_ref(), Some(vec![b'x'; 1000]), shown, None).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    println!(
        "vcards: {cards} in {:.1} s, {:.1} us CPU each",
        wall.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64() * 1e6 / cards as f64
    );
}

/// Searches, one after the other: a page from each end and from the middle, the count, the index.
async fn searches(stores: &Stores) {
    let term = |text: &str| Some(text.to_owned());
    let queries = [
        ("everybody", UserQuery::default()),
        ("user name, all match", UserQuery { user: term("user"), ..UserQuery::default() }),
        ("user name, few match", UserQuery { user: term("user12345"), ..UserQuery::default() }),
        ("family name", UserQuery { last: term("family123"), ..UserQuery::default() }),
        ("two names", UserQuery { last: term("family1"), first: term("ann"), ..UserQuery::default() }),
        (
            "two names that nobody has",
            UserQuery { last: term("family1"), first: term("annika"), ..UserQuery::default() },
        ),
        ("any field, many match", UserQuery { any: term("a"), ..UserQuery::default() }),
        ("any field, few match", UserQuery { any: term("nick777"), ..UserQuery::default() }),
        ("nobody", UserQuery { any: term("%"), ..UserQuery::default() }),
    ];
    for (name, query) in queries {
        let mut line = String::new();
        let mut cursor = None;
        for (what, seek) in [
            ("first", Some(Seek::First)),
            ("after", None),
            ("last", Some(Seek::Last)),
            ("from 5000", Some(Seek::Index(5000))),
        ] {
            let seek = seek.or_else(|| cursor.clone().map(Seek::After)).unwrap_or(Seek::First);
            let (wall, mut found) = (Instant::now(), None);
            for _ in 0..5 {
                let page = SearchPageRequest { seek: seek.clone(), limit: 50 };
                found = Some(stores.user_search.search("localhost", &query, page).await.unwrap());
            }
            let users = found.unwrap().users;
            let took = wall.elapsed().as_secs_f64() * 200.0;
            line += &format!(" {what} {took:.1} ms ({}),", users.len());
            cursor = cursor.or_else(|| users.last().map(|user| user.cursor.clone()));
        }
        let wall = Instant::now();
        let count = stores.user_search.count("localhost", &query).await.unwrap();
        println!("search: {name}:{line} count {:.1} ms ({count})", wall.elapsed().as_secs_f64() * 1e3);
    }
}

fn main() {
    let accounts: usize = std::env::var("ACCOUNTS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let directory = support::TempDir::new();
    support::runtime().block_on(async {
        let clock = Arc::new(base::SystemClock::new());
        let database =
            support::open_at(&directory.file(), &DatabaseOptions::default(), clock.clone()).await.unwrap();
        let ids = load(&database.stores(), accounts).await;
        database.close().await;
        println!("file: {} MB", std::fs::metadata(directory.file()).unwrap().len() >> 20);

        let database = support::open_at(&directory.file(), &DatabaseOptions::default(), clock).await.unwrap();
        if !only_searches() {
            for side in [1, 10, 64, 1000] {
                for reads in [Reads::Apart, Reads::Proved] {
                    logins(&database, accounts, side, (50_000 / side).min(5000), None, reads).await;
                }
            }
            for rate in [500u64, 2000, 5000, 10_000] {
                let pause = Duration::from_millis(200);
                let side = (rate / 5) as usize;
                logins(&database, accounts, side, 15, Some(pause), Reads::Apart).await;
            }
            for side in [1, 10, 100, 1000] {
                messages(&database, &ids, side, (20_000 / side).min(500)).await;
            }
        }
        let number = std::env::var("CARDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
        cards(&database.stores(), number.min(accounts)).await;
        searches(&database.stores()).await;
        database.close().await;
    });
}
