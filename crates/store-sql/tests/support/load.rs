//! Load while a server fails: senders that store numbered messages, and the comparison of what was acknowledged with what is
//! in the database.
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, each using a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use store::conformance::account;
use store::{AddressId, AppendOutcome, OfflineMessage, Page, Quota, Stores};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Time for the server to answer as expected; far more than it needs on a slow machine.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Senders, each of which stores messages for an account of its own, one after the other.
pub struct Load {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<Sent>>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// What a sender has sent: messages with the numbers from 0 on.
struct Sent {
    owner: AddressId,
    count: u64,
    acknowledged: Vec<u64>,
}

/// Numbers of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadCounts {
    pub sent: u64,
    pub acknowledged: u64,
    pub found: u64,
}

/// A message that begins with its number. Its other bytes cannot be compressed.
fn stanza(number: u64, bytes: usize) -> Vec<u8> {
    let mut text = format!("{number} ").into_bytes();
    let mut random = fastrand::Rng::with_seed(number);
    text.extend((0..bytes).map(|_| random.u8(b'0'..=b'z')));
    text
}

fn number_of(stanza: &[u8]) -> u64 {
    let number = stanza.split(|byte| *byte == b' ').next().unwrap();
    std::str::from_utf8(number).unwrap().parse().unwrap()
}

impl Load {
    /// Creates the accounts and begins. A message has about this number of bytes.
    pub async fn start(stores: &Stores, senders: usize, bytes: usize) -> Load {
        let shared = Arc::new(Shared::default());
        let mut tasks = Vec::new();
        for sender in 0..senders {
            let owner = account(stores, &format!("sender{sender}")).await;
            let (stores, shared) = (stores.clone(), shared.clone());
            tasks.push(Handle::current().spawn(async move { send(stores, shared, owner, bytes).await }));
        }
        Load { shared, senders: tasks }
    }

    /// Waits until this number of further messages is acknowledged.
    pub async fn wait_for_acknowledged(&self, more: u64) {
        wait_for(&self.shared.acknowledged, more).await;
    }

    /// Waits until this number of further messages is refused.
    pub async fn wait_for_refused(&self, more: u64) {
        wait_for(&self.shared.refused, more).await;
    }

    /// Ends the senders. What was acknowledged is in the database, each message once and in order; what was refused may be
    /// there as well, if the answer to its commit was lost and the writer could not find out before its deadline.
    pub async fn end(self, stores: &Stores) -> LoadCounts {
        self.shared.ended.store(true, Ordering::Release);
        let mut counts = LoadCounts::default();
        for sender in self.senders {
            let sent = sender.await.unwrap();
            let page = stores.offline.fetch(sent.owner, Page::first(1_000_000), 0).await.unwrap();
            let found: Vec<u64> = page.items.iter().map(|message| number_of(&message.stanza)).collect();
            assert!(found.is_sorted_by(|one, next| one < next), "not in order, or twice: {found:?}");
            let lost: Vec<&u64> =
                sent.acknowledged.iter().filter(|number| found.binary_search(number).is_err()).collect();
            assert!(lost.is_empty(), "acknowledged messages are lost: {lost:?}");
            assert!(found.iter().all(|number| *number < sent.count));
            assert_eq!(stores.offline.count(sent.owner).await.unwrap() as usize, found.len());
            counts.sent += sent.count;
            counts.acknowledged += sent.acknowledged.len() as u64;
            counts.found += found.len() as u64;
        }
        counts
    }
}

async fn send(stores: Stores, shared: Arc<Shared>, owner: AddressId, bytes: usize) -> Sent {
    let mut sent = Sent { owner, count: 0, acknowledged: Vec::new() };
    while !shared.ended.load(Ordering::Acquire) {
        let (number, quota) = (sent.count, Quota::messages_only(1_000_000));
        sent.count += 1;
        let message =
            OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: stanza(number, bytes) };
        match stores.offline.append(vec![message], quota).await {
            Ok(outcome) => {
                assert!(matches!(outcome[..], [AppendOutcome::Stored { .. }]), "{outcome:?}");
                sent.acknowledged.push(number);
                shared.acknowledged.fetch_add(1, Ordering::Release);
            }
            Err(error) => {
                assert!(error.retryable, "{error}");
                shared.refused.fetch_add(1, Ordering::Release);
            }
        }
    }
    sent
}

async fn wait_for(counter: &AtomicU64, more: u64) {
    let goal = counter.load(Ordering::Acquire) + more;
    let waiting = async {
        while counter.load(Ordering::Acquire) < goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, waiting).await.unwrap();
}
