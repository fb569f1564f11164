//! Records of the members in a key-value bucket of JetStream: one key for each node, which expires after ten seconds. A node that
//! writes its record reads it again and sends a message to itself: what its NATS user may not do is then known.
//!
//! # Pitfalls
//!
//! NATS does not report keys that expire: a node is gone when nothing was received from it for ten seconds ([`crate::protocol`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::kv::{self, Operation, Store};
use async_nats::jetstream::stream::StorageType;
use base::clock::Millis;
use base::spawn::BoxFuture;
use bytes::Bytes;
use cluster::NodeId;
use futures_core::Stream;
use tokio::time::timeout;

use super::ANSWER;
use crate::node::{LeaveProgress, Shared};
use crate::protocol::entry::MAX_NODES;
use crate::protocol::member_record::MemberRecord;
use crate::protocol::state::{FAILURE_MILLIS, MembershipPhase, UnusableMember};
use crate::settings::{NatsError, NatsSettings};

/// Time between two writes of the record.
const REFRESH: Duration = Duration::from_secs(3);
/// Time between two attempts: the first ones, and the later ones.
const RETRY: Duration = Duration::from_millis(500);
const LATER_RETRY: Duration = Duration::from_secs(3);
/// Attempts after which the later time applies.
const FIRST_RETRIES: u64 = 10;
/// Failures after which the first one is logged, if the node was announced before: an election of the servers takes some time.
const LOGGED_FAILURES: u64 = 4;
/// Time after a new connection until another one is made because the server does not answer; twice as long after each.
const RECONNECT_MILLIS: u64 = 10_000;
const MAX_RECONNECT_MILLIS: u64 = 320_000;
/// Longest time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// A watch that reported nothing for this time has lost its consumer: the own record arrives more often.
const SILENCE: Duration = Duration::from_secs(8);
/// Copies of the bucket in a cluster of NATS servers.
const REPLICAS: usize = 3;
/// Time between two attempts to give the bucket these copies.
const REPLICATION_MILLIS: u64 = 10_000;

/// Opens the bucket, and creates it if it does not exist. Boxed: the client's futures are large.
fn open_bucket<'a>(
    settings: &'a NatsSettings,
    client: &'a Client,
) -> BoxFuture<'a, Result<Store, NatsError>> {
    Box::pin(open_or_create_bucket(settings, client))
}

async fn open_or_create_bucket(settings: &NatsSettings, client: &Client) -> Result<Store, NatsError> {
    let context = async_nats::jetstream::new(client.clone());
    let bucket = settings.bucket();
    if let Ok(store) = context.get_key_value(&bucket).await {
        return Ok(store);
    }
    // A single server, or a cluster with fewer than three, accepts no replicas.
    match context.create_key_value(bucket_config(settings, REPLICAS)).await {
        Ok(store) => Ok(store),
        Err(_) => {
            let created = context.create_key_value(bucket_config(settings, 1)).await;
            created.map_err(|error| NatsError::Bucket { bucket, reason: error.to_string() })
        }
    }
}

fn bucket_config(settings: &NatsSettings, num_replicas: usize) -> kv::Config {
    kv::Config {
        bucket: settings.bucket(),
        description: "Members of a cluster of Throng".to_owned(),
        max_value_size: 4096,
        history: 1,
        max_age: Duration::from_millis(FAILURE_MILLIS),
        // In memory, copies do not survive when servers restart one after the other: the bucket would have no leader any more.
        storage: StorageType::File,
        num_replicas,
        ..kv::Config::default()
    }
}

/// Copies of the bucket: it may have been created while there were fewer than three servers.
#[derive(Default)]
struct Replication {
    next_at: Option<Millis>,
    is_logged: bool,
}

impl Replication {
    /// Tries to give an opened bucket three copies, from time to time.
    async fn repair(&mut self, shared: &Shared, client: &Client, bucket: &mut Store) {
        let now = shared.clock.now();
        if bucket.stream.cached_info().config.num_replicas >= REPLICAS
            || self.next_at.is_some_and(|at| now < at)
        {
            return;
        }
        self.next_at = Some(now.plus(REPLICATION_MILLIS));
        let context = async_nats::jetstream::new(client.clone());
        let config = bucket_config(&shared.settings, REPLICAS);
        let reason = match timeout(ANSWER, Box::pin(context.update_key_value(config))).await {
            Ok(Ok(replicated)) => {
                *bucket = replicated;
                tracing::info!("the bucket of the members has three copies");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(
                reason,
                "the bucket of the members has one copy, which is lost with its NATS server; it gets three when there are three servers"
            );
        }
    }
}

fn is_member(shared: &Shared) -> bool {
    *shared.leave.borrow() == LeaveProgress::Member && shared.core.phase() == MembershipPhase::Running
}

/// Waits, or until the node leaves.
async fn pause(shared: &Shared, time: Duration) {
    let mut leave = shared.leave.subscribe();
    tokio::select! {
        _ = leave.wait_for(|progress| *progress != LeaveProgress::Member) => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// Writes the record of this node every three seconds, until it leaves.
pub(super) async fn keep_record(shared: Arc<Shared>, client: Client) {
    let mut bucket = None;
    let mut replication = Replication::default();
    let mut failures = AnnounceFailures::default();
    let mut connections = shared.connections.subscribe();
    while is_member(&shared) {
        connections.mark_unchanged();
        let written = match bucket.take() {
            Some(bucket) => Box::pin(announce(&shared, &client, bucket)).await,
            None => match open_bucket(&shared.settings, &client).await {
                Ok(bucket) => Box::pin(announce(&shared, &client, bucket)).await,
                Err(error) => Err(error),
            },
        };
        let time = match written {
            Ok(mut used) => {
                Box::pin(replication.repair(&shared, &client, &mut used)).await;
                bucket = Some(used);
                failures = AnnounceFailures::default();
                REFRESH
            }
            Err(error) => {
                shared.failed_announcements.fetch_add(1, Ordering::AcqRel);
                if failures.count_and_should_log(shared.announcements.load(Ordering::Acquire) != 0) {
                    tracing::error!(%error, failures = failures.count, "cannot announce this node in the cluster");
                }
                let may_reconnect =
                    shared.connected.load(Ordering::Acquire) && failures.may_reconnect(shared.clock.now());
                if may_reconnect && !answers(&shared, &client).await {
                    tracing::warn!("NATS does not answer on an open connection; connecting again");
                    failures.reconnected(shared.clock.now());
                    let _ = timeout(ANSWER, client.force_reconnect()).await;
                }
                if failures.count < FIRST_RETRIES { RETRY } else { LATER_RETRY }
            }
        };
        tokio::select! {
            () = pause(&shared, time) => {}
            () = shared.record_changed.notified() => {}
            // The key may have expired.
            _ = connections.changed() => {}
        }
    }
}

/// Failed attempts to announce the node since one succeeded.
#[derive(Debug, Default)]
struct AnnounceFailures {
    count: u64,
    reconnect_at: Option<Millis>,
    reconnect_after: u64,
}

impl AnnounceFailures {
    /// Counts another one. Whether to log it: less and less often.
    fn count_and_should_log(&mut self, was_announced: bool) -> bool {
        self.count += 1;
        let first = if was_announced { LOGGED_FAILURES } else { 1 };
        self.count.is_multiple_of(first) && (self.count / first).is_power_of_two()
    }

    fn may_reconnect(&self, now: Millis) -> bool {
        self.reconnect_at.is_none_or(|at| now >= at)
    }

    /// The next connection is given more time: this one may be as good as the server permits.
    fn reconnected(&mut self, now: Millis) {
        self.reconnect_after = (2 * self.reconnect_after).clamp(RECONNECT_MILLIS, MAX_RECONNECT_MILLIS);
        self.reconnect_at = Some(now.plus(self.reconnect_after));
    }
}

/// Whether the server answers, if only with an error. The client itself is content with a connection over which messages only arrive.
async fn answers(shared: &Shared, client: &Client) -> bool {
    // Nobody subscribes to it, which the server reports.
    let subject = format!("{}.probe", shared.settings.subject(shared.settings.node));
    let errors = shared.server_errors.load(Ordering::Acquire);
    timeout(ANSWER, Box::pin(client.request(subject, Bytes::new()))).await.is_ok()
        || shared.server_errors.load(Ordering::Acquire) != errors
}

/// Writes the record, reads it, and sends a message to this node.
async fn announce(shared: &Shared, client: &Client, bucket: Store) -> Result<Store, NatsError> {
    let now = || shared.clock.now().0.max(1);
    write_record(shared, &bucket).await?;
    shared.record_written_at.store(now(), Ordering::Release);
    shared.announced.notify_one();
    let subject = shared.settings.subject(shared.settings.node);
    let mut echoes = shared.echoes.subscribe();
    let echo = async {
        client.publish(subject.clone(), shared.core.echo().into()).await.ok()?;
        echoes.changed().await.ok()
    };
    if timeout(ANSWER, echo).await.ok().flatten().is_none() {
        return Err(NatsError::Subject(subject));
    }
    shared.echoed_at.store(now(), Ordering::Release);
    shared.announcements.fetch_add(1, Ordering::AcqRel);
    Ok(bucket)
}

async fn write_record(shared: &Shared, bucket: &Store) -> Result<(), NatsError> {
    let (node, key) = (shared.settings.node, &shared.settings.key);
    let failed = |reason: String| NatsError::Bucket { bucket: shared.settings.bucket(), reason };
    if !shared.has_record() {
        // The clock may have gone back since the last start of this node.
        let known = timeout(REQUEST, bucket.get(node.as_str())).await;
        let known = known.map_err(|_| failed("no answer".to_owned()))?.map_err(|e| failed(e.to_string()))?;
        let known = known.and_then(|record| MemberRecord::decode(key, node.as_str(), &record));
        shared.core.start_after(known.map_or(0, |known| known.member.epoch));
    }
    let record = shared.core.record().encode(key);
    let written = timeout(REQUEST, bucket.put(node.as_str(), record.into())).await;
    written.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| failed(error.to_string()))?;
    let read = timeout(REQUEST, bucket.get(node.as_str())).await;
    let read =
        read.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| failed(error.to_string()))?;
    read.map(drop).ok_or_else(|| failed("a record that was written is not there".to_owned()))
}

/// Writes, reads, watches and removes a record.
pub(super) async fn check_bucket(settings: &NatsSettings, client: &Client) -> Result<(), NatsError> {
    let bucket = open_bucket(settings, client).await?;
    let key = settings.node.as_str();
    let check = async {
        bucket.put(key, Bytes::from_static(b"check")).await.map_err(|error| error.to_string())?;
        bucket.get(key).await.map_err(|error| error.to_string())?.ok_or("a record is not there")?;
        let mut entries = bucket.watch_with_history(">").await.map_err(|error| error.to_string())?;
        let entry = std::future::poll_fn(|context| Pin::new(&mut entries).poll_next(context)).await;
        entry.ok_or("the watch ended")?.map_err(|error| error.to_string())?;
        bucket.delete(key).await.map_err(|error| error.to_string())
    };
    let failed = |reason| NatsError::Bucket { bucket: settings.bucket(), reason };
    timeout(REQUEST, Box::pin(check)).await.unwrap_or_else(|_| Err("no answer".to_owned())).map_err(failed)
}

/// Removes the record, so that others do not wait for it.
pub(super) async fn remove_record(shared: &Shared, client: &Client) {
    // Another process has the name.
    if shared.core.phase() == MembershipPhase::Superseded {
        return;
    }
    let removed = async {
        let bucket = open_bucket(&shared.settings, client).await.ok()?;
        bucket.delete(shared.settings.node.as_str()).await.ok()
    };
    if timeout(Duration::from_secs(2), removed).await.ok().flatten().is_none() {
        tracing::warn!("the record of this node in the cluster remains until it expires");
    }
}

/// Follows the records of all nodes, until this one leaves.
pub(super) async fn watch(shared: Arc<Shared>, client: Client) {
    let mut connections = shared.connections.subscribe();
    let mut leave = shared.leave.subscribe();
    while is_member(&shared) && !shared.has_record() {
        // The record of an earlier start would look like that of another process.
        tokio::select! {
            () = shared.announced.notified() => {}
            _ = leave.wait_for(|progress| *progress != LeaveProgress::Member) => return,
        }
    }
    while is_member(&shared) {
        connections.mark_unchanged();
        tokio::select! {
            () = watch_once(&shared, &client) => {}
            _ = connections.changed() => {}
            _ = leave.wait_for(|progress| *progress != LeaveProgress::Member) => return,
        }
        pause(&shared, RETRY).await;
    }
}

/// Follows the records until the watch ends.
async fn watch_once(shared: &Shared, client: &Client) {
    let Ok(bucket) = open_bucket(&shared.settings, client).await else { return };
    let Ok(Ok(mut entries)) = timeout(REQUEST, bucket.watch_with_history(">")).await else { return };
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut entries).poll_next(context));
        let entry = match timeout(SILENCE, next).await {
            Ok(Some(Ok(entry))) => entry,
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "the watch of the members ended");
                return;
            }
            Ok(None) | Err(_) => return,
        };
        match entry.operation {
            Operation::Put => match MemberRecord::decode(&shared.settings.key, &entry.key, &entry.value) {
                Some(record) => {
                    let was_running = shared.core.phase() == MembershipPhase::Running;
                    let now = shared.clock.now();
                    if let Err(reason) = shared.core.see_member(now, &record)
                        && let Some(left_out) = shared.record_lines.permit(now)
                    {
                        log_unusable_member(record.member.node, reason, left_out);
                    }
                    if was_running && shared.core.phase() == MembershipPhase::Superseded {
                        tracing::error!(
                            node = %shared.settings.node,
                            "another process has joined the cluster with the name of this node; give each node another [cluster] node and start this one again"
                        );
                    }
                }
                None => {
                    if let Some(left_out) = shared.record_lines.permit(shared.clock.now()) {
                        tracing::warn!(key = entry.key, left_out, "a record of a member is not valid");
                    }
                }
            },
            Operation::Delete | Operation::Purge => {
                if let Some(node) = NodeId::new(&entry.key) {
                    shared.core.forget_record(node);
                }
            }
        }
        shared.wake.notify_one();
    }
}

fn log_unusable_member(node: NodeId, reason: UnusableMember, left_out: u64) {
    match reason {
        UnusableMember::NoCommonVersion => tracing::error!(
            %node,
            left_out,
            "a node has a version with which this one cannot communicate; upgrade over the versions between them"
        ),
        UnusableMember::TooManyNodes => tracing::error!(
            %node,
            left_out,
            "a node is ignored because the cluster has {MAX_NODES} nodes already; use fewer, larger nodes"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_less_and_less_often() {
        let logged = |was_announced| {
            let mut failures = AnnounceFailures::default();
            (1..=64_u64).filter(|_| failures.count_and_should_log(was_announced)).collect::<Vec<_>>()
        };
        assert_eq!(logged(false), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(logged(true), [4, 8, 16, 32, 64]);
    }

    #[test]
    fn connections_that_do_not_help_are_made_less_and_less_often() {
        let mut failures = AnnounceFailures::default();
        let made = (0..1_000).filter(|second| {
            let now = Millis(1_000 * second);
            let may = failures.may_reconnect(now);
            if may {
                failures.reconnected(now);
            }
            may
        });
        assert_eq!(made.collect::<Vec<_>>(), [0, 10, 30, 70, 150, 310, 630, 950]);
    }
}
