//! Writers: bounded queues, one transaction for all waiting requests of a queue, replies after the commit is on the
//! disk.
//!
//! SQLite has one writer; a server has several, which wait for the network and the disk at the same time. An [`Owner`]
//! chooses the queue, so requests with the same owner keep their order. One account can be two owners, by number and by
//! address, and requests of several accounts or of none are in a queue of their own: a caller that needs an order between
//! those waits for the first. Locks of the accounts keep their transactions apart. Requests of the same kind are merged into multi-row
//! statements ([`jobs`]); how a transaction is retried is described in [`transaction`].
//!
//! A deadline applies to the wait only. Each request has a [`BeginClaim`] that is taken once: by the caller when the
//! deadline passes, and then the request is skipped, or by the writer when it begins the request inside an open
//! transaction, and then the caller waits for the answer. It comes when the same time has passed again, or later only if the answer to a
//! COMMIT is missing: then it comes when the server reports whether the transaction was committed. So a failed write was
//! not stored, and can be repeated, except with the kind `InDoubt`: read-only servers could not tell ([`open_commit`]).
//!
//! # Pitfalls
//!
//! Results are known before the commit but must not be sent before it.

pub(crate) mod jobs;
mod open_commit;
mod transaction;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{BoxFuture, Spawner};
use jid::Jid;
use jobs::{AppendRequest, CallJob, MergedRequests, PendingReply, RosterRequest, WriteJob, merge};
use store::{
    AddressId, AppendOutcome, OfflineMessage, RosterUpdateFn, RosterUpdateOutcome, StoreError, StoreFuture,
    TokensUpdateFn, TokensUpdateOutcome,
};
use tokio::sync::{mpsc, oneshot};
use transaction::TransactionRunner;

use crate::batch_receiver::{BatchReceiver, Received};
use crate::context::SqlContext;
use crate::dialect::{ConnectionPool, DbConnection};
use crate::error;
use crate::tables::offline::RemovalRequest;
use crate::tables::subscription_sets::SubscriptionRequest;
use crate::tables::tokens::TokensRequest;

/// The work of a read on the connection. It runs again when its connection is lost.
pub(crate) type ReadFn<A, T> =
    for<'a> fn(&'a mut DbConnection, &'a A) -> BoxFuture<'a, Result<T, StoreError>>;

/// The work of a write on the connection. It runs again when its transaction is lost.
pub(crate) type WriteFn<A, T> =
    for<'a> fn(&'a mut DbConnection, &'a mut A) -> BoxFuture<'a, Result<T, StoreError>>;

/// The account that a request changes: its row is locked first, and it chooses the writer. An account by number and the same
/// account by address can have different writers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    Id(AddressId),
    /// Several accounts.
    Ids(Arc<[AddressId]>),
    /// By bare address.
    Name(Box<str>),
    /// No account, or one that does not exist yet.
    None,
}

/// Decides a race once: the caller gives up, or the writer begins.
#[derive(Clone, Default)]
struct BeginClaim(Arc<AtomicBool>);

impl BeginClaim {
    /// True for the first call.
    fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Sends the result to the caller.
pub(crate) struct ReplySender<T> {
    to: oneshot::Sender<Result<T, StoreError>>,
    claim: BeginClaim,
}

/// The caller's end.
struct ReplyReceiver<T> {
    answer: oneshot::Receiver<Result<T, StoreError>>,
    claim: BeginClaim,
}

impl<T> ReplySender<T> {
    fn new() -> (ReplySender<T>, ReplyReceiver<T>) {
        let ((to, answer), claim) = (oneshot::channel(), BeginClaim::default());
        (ReplySender { to, claim: claim.clone() }, ReplyReceiver { answer, claim })
    }

    /// Whether the caller has stopped waiting; a cheap check, to be followed by [`ReplySender::claim`].
    fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Whether the work is still wanted. If so, the caller waits for the answer.
    fn claim(&self) -> bool {
        !self.to.is_closed() && self.claim.claim()
    }

    fn send(self, result: Result<T, StoreError>) {
        // The caller may have given up; a write that was begun stands all the same.
        let _ = self.to.send(result);
    }
}

/// Requests per transaction.
const MAX_BATCH: usize = 256;

/// Longest time after which an idle writer looks whether its row must be renewed.
const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// The writers of a database.
pub(crate) struct TransactionWriter {
    queues: Vec<mpsc::Sender<WriteRequest>>,
    hasher: RandomState,
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
    deadline: Duration,
    closing: Arc<AtomicBool>,
}

pub(crate) enum WriteRequest {
    Call(Box<dyn WriteJob>, QueuedBytes),
    Append(AppendRequest, QueuedBytes),
    Roster(Box<RosterRequest>, QueuedBytes),
    Tokens(Box<TokensRequest>, QueuedBytes),
    Removal(RemovalRequest, QueuedBytes),
    Subscriptions(SubscriptionRequest, QueuedBytes),
    Close(oneshot::Sender<()>),
}

/// Bytes held by a queued request; released when it is done.
pub(crate) struct QueuedBytes(Arc<AtomicUsize>, usize);

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl TransactionWriter {
    pub(crate) fn start(
        pool: &ConnectionPool,
        context: &Arc<SqlContext>,
        spawner: &dyn Spawner,
        options: &crate::DatabaseOptions,
        writers: u32,
    ) -> TransactionWriter {
        let mut queues = Vec::new();
        let closing = Arc::new(AtomicBool::new(false));
        let writers = writers.max(1) as usize;
        let idle = options.idle_timeout.clamp(Duration::from_millis(10), MAX_RENEWAL_INTERVAL);
        for _ in 0..writers {
            let (queue, requests) = mpsc::channel((options.max_queued / writers).max(1));
            let batches = BatchReceiver::new(options.write_batch_delay, MAX_BATCH);
            let (pool, context) = (pool.clone(), context.clone());
            let runner = TransactionRunner::new(pool, context, options, closing.clone());
            spawner.spawn("store-writer", Box::pin(run(runner, requests, batches, idle)));
            queues.push(queue);
        }
        TransactionWriter {
            queues,
            hasher: RandomState::new(),
            bytes: Arc::new(AtomicUsize::new(0)),
            max_bytes: options.max_queued_bytes,
            deadline: options.write_deadline,
            closing,
        }
    }

    /// Transactions that run at the same time.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    fn reserve_bytes(&self, bytes: usize) -> Result<QueuedBytes, StoreError> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let weight = QueuedBytes(self.bytes.clone(), bytes);
        // A single request larger than the whole limit is accepted when no other request waits.
        if before > 0 && before + bytes > self.max_bytes { Err(error::overloaded()) } else { Ok(weight) }
    }

    fn push(&self, owner: &Owner, request: WriteRequest) -> Result<(), StoreError> {
        let writers = self.queues.len();
        let writer = match owner {
            _ if writers < 2 => 0,
            Owner::None => 0,
            owner => usize::try_from(self.hasher.hash_one(owner) % writers as u64).unwrap_or(0),
        };
        let queue = self.queues.get(writer).ok_or_else(error::unavailable)?;
        queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => error::overloaded(),
            mpsc::error::TrySendError::Closed(_) => error::unavailable(),
        })
    }

    /// Queues a request of about this many bytes and waits until it is durable.
    pub(crate) fn call<A: Send + 'static, T: Send + 'static>(
        &self,
        owner: Owner,
        bytes: usize,
        args: A,
        work: WriteFn<A, T>,
    ) -> StoreFuture<'_, T> {
        let (answer, wait) = ReplySender::new();
        let queued = self.reserve_bytes(bytes).and_then(|weight| {
            let job = CallJob::new(owner.clone(), args, work, answer);
            self.push(&owner, WriteRequest::Call(Box::new(job), weight))
        });
        self.wait(queued, wait)
    }

    pub(crate) fn append(
        &self,
        messages: Vec<OfflineMessage>,
        quota: store::Quota,
    ) -> StoreFuture<'_, Vec<AppendOutcome>> {
        let (answer, wait) = ReplySender::new();
        let owner = messages.first().map_or(Owner::None, |message| Owner::Id(message.owner));
        let bytes = messages.iter().map(|message| message.stanza.len() + 64).sum();
        let append = AppendRequest { messages, quota, answer };
        let queued = self
            .reserve_bytes(bytes)
            .and_then(|weight| self.push(&owner, WriteRequest::Append(append, weight)));
        self.wait(queued, wait)
    }

    pub(crate) fn update_roster(
        &self,
        owner: AddressId,
        contact: Jid,
        decision: RosterUpdateFn,
    ) -> StoreFuture<'_, RosterUpdateOutcome> {
        let (answer, wait) = ReplySender::new();
        let update = Box::new(RosterRequest::new(owner, contact, decision, answer));
        let queued = self
            .reserve_bytes(512)
            .and_then(|weight| self.push(&Owner::Id(owner), WriteRequest::Roster(update, weight)));
        self.wait(queued, wait)
    }

    pub(crate) fn update_tokens(
        &self,
        name: Box<str>,
        revision: Option<u64>,
        decision: TokensUpdateFn,
    ) -> StoreFuture<'_, TokensUpdateOutcome> {
        let (answer, wait) = ReplySender::new();
        let owner = Owner::Name(name.clone());
        let update = Box::new(TokensRequest::new(name, revision, decision, PendingReply::new(answer)));
        let queued = self
            .reserve_bytes(512)
            .and_then(|weight| self.push(&owner, WriteRequest::Tokens(update, weight)));
        self.wait(queued, wait)
    }

    pub(crate) fn remove_messages(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32> {
        let (answer, wait) = ReplySender::new();
        let removal = RemovalRequest { owner, first, last, reply: PendingReply::new(answer) };
        let queued = self
            .reserve_bytes(64)
            .and_then(|weight| self.push(&Owner::Id(owner), WriteRequest::Removal(removal, weight)));
        self.wait(queued, wait)
    }

    /// Adds or removes subscriptions, as numbers of node and subscriber; returns how many were changed.
    pub(crate) fn change_subscriptions(&self, changes: Vec<(u32, u32, bool)>) -> StoreFuture<'_, u64> {
        let (answer, wait) = ReplySender::new();
        let bytes = 64 + changes.len() * 12;
        let change = SubscriptionRequest::new(changes, PendingReply::new(answer));
        let queued = self
            .reserve_bytes(bytes)
            .and_then(|weight| self.push(&Owner::None, WriteRequest::Subscriptions(change, weight)));
        self.wait(queued, wait)
    }

    fn wait<T: Send + 'static>(
        &self,
        queued: Result<(), StoreError>,
        wait: ReplyReceiver<T>,
    ) -> StoreFuture<'_, T> {
        let deadline = self.deadline;
        Box::pin(async move {
            queued?;
            let ReplyReceiver { mut answer, claim } = wait;
            let answer = match tokio::time::timeout(deadline, &mut answer).await {
                Ok(answer) => answer,
                Err(_) if claim.claim() => return Err(error::deadline_exceeded()),
                // It has begun and may be committed, so its result must be awaited.
                Err(_) => answer.await,
            };
            answer.map_err(|_| error::unavailable())?
        })
    }

    /// Waiting requests, and their bytes.
    pub(crate) fn queue_depth(&self) -> (usize, usize) {
        let depth = |queue: &mpsc::Sender<_>| queue.max_capacity().saturating_sub(queue.capacity());
        (self.queues.iter().map(depth).sum(), self.bytes.load(Ordering::Relaxed))
    }

    /// Writes the waiting requests, then accepts no more.
    pub(crate) async fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let mut closing = Vec::new();
        for queue in &self.queues {
            let (done, wait) = oneshot::channel();
            if queue.send(WriteRequest::Close(done)).await.is_ok() {
                closing.push(wait);
            }
        }
        for wait in closing {
            // An error means that the writer has ended, which is the goal.
            let _ = wait.await;
        }
    }
}

async fn run(
    mut runner: TransactionRunner,
    mut queue: mpsc::Receiver<WriteRequest>,
    mut batches: BatchReceiver,
    idle: Duration,
) {
    let mut waiting = Vec::with_capacity(MAX_BATCH);
    loop {
        match batches.recv_batch_within(idle, &mut queue, &mut waiting).await {
            Received::Batch => {}
            Received::Nothing => {
                runner.renew_row().await;
                continue;
            }
            Received::Closed => return,
        }
        let MergedRequests { mut jobs, weights, closing } = merge(waiting.drain(..));
        jobs.retain(|job| !job.abandoned());
        if !jobs.is_empty() {
            runner.commit(jobs, weights).await;
        }
        if let Some(done) = closing {
            // Before the reply: the pool waits for its connection.
            runner.close().await;
            queue.close();
            let _ = done.send(());
            return;
        }
    }
}
