//! The only writer: a bounded queue, one transaction for all waiting requests, replies after the commit is on the
//! disk.
//!
//! Each request runs in its own savepoint, so that a failure affects no other request; adjacent appends of offline
//! messages are merged and share one.
//!
//! A deadline applies to the wait only. Each request has a [`BeginClaim`] that is taken once: by the caller when the
//! deadline passes, and then the request is skipped, or by the writer when it begins the request inside an open
//! transaction, and then the caller waits for the answer however long it takes. So a failed write was not stored, and
//! can be repeated.
//!
//! # Pitfalls
//!
//! Results are known before the commit but must not be sent before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{BoxFuture, Spawner};
use store::{AppendOutcome, OfflineMessage, StoreError, StoreFuture};
use tokio::sync::{mpsc, oneshot};

use crate::batch_receiver::BatchReceiver;
use crate::context::SqlContext;
use crate::dialect::{ConnectionPool, DbConnection};
use crate::error;
use crate::tables::offline;

/// The work of a request on the connection.
pub(crate) type DbTask<T> =
    Box<dyn for<'c> FnOnce(&'c mut DbConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send>;

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
struct ReplySender<T> {
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
        let ((to, answer), turn) = (oneshot::channel(), BeginClaim::default());
        (ReplySender { to, claim: turn.clone() }, ReplyReceiver { answer, claim: turn })
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

pub(crate) struct TransactionWriter {
    queue: mpsc::Sender<WriteRequest>,
    bytes: Arc<AtomicUsize>,
    max_bytes: usize,
    deadline: Duration,
}

enum WriteRequest {
    Call(Box<dyn WriteJob>, QueuedBytes),
    Append(AppendRequest, QueuedBytes),
    Close(oneshot::Sender<()>),
}

/// Messages to append for one caller.
pub(crate) struct AppendRequest {
    pub(crate) messages: Vec<OfflineMessage>,
    pub(crate) quota: store::Quota,
    answer: ReplySender<Vec<AppendOutcome>>,
}

/// Bytes held by a queued request; released when it is done.
struct QueuedBytes(Arc<AtomicUsize>, usize);

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl TransactionWriter {
    pub(crate) fn start(
        pool: ConnectionPool,
        context: Arc<SqlContext>,
        spawner: &dyn Spawner,
        options: &crate::DatabaseOptions,
    ) -> TransactionWriter {
        let (queue, requests) = mpsc::channel(options.max_queued.max(1));
        let gather = BatchReceiver::new(options.write_batch_delay, MAX_BATCH);
        spawner.spawn("store-writer", Box::pin(run(pool, context, requests, gather)));
        TransactionWriter {
            queue,
            bytes: Arc::new(AtomicUsize::new(0)),
            max_bytes: options.max_queued_bytes,
            deadline: options.write_deadline,
        }
    }

    fn reserve_bytes(&self, bytes: usize) -> Result<QueuedBytes, StoreError> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let weight = QueuedBytes(self.bytes.clone(), bytes);
        // A single request larger than the whole limit is accepted when no other request waits.
        if before > 0 && before + bytes > self.max_bytes { Err(error::overloaded()) } else { Ok(weight) }
    }

    fn push(&self, request: WriteRequest) -> Result<(), StoreError> {
        self.queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => error::overloaded(),
            mpsc::error::TrySendError::Closed(_) => error::unavailable(),
        })
    }

    /// Queues a request of about this many bytes and waits until it is durable.
    pub(crate) fn call<T: Send + 'static>(&self, bytes: usize, work: DbTask<T>) -> StoreFuture<'_, T> {
        let (answer, wait) = ReplySender::new();
        let queued = self
            .reserve_bytes(bytes)
            .and_then(|weight| self.push(WriteRequest::Call(Box::new(CallJob { work, answer }), weight)));
        self.wait(queued, wait)
    }

    pub(crate) fn append(
        &self,
        messages: Vec<OfflineMessage>,
        quota: store::Quota,
    ) -> StoreFuture<'_, Vec<AppendOutcome>> {
        let (answer, wait) = ReplySender::new();
        let bytes = messages.iter().map(|message| message.stanza.len() + 64).sum();
        let append = AppendRequest { messages, quota, answer };
        let queued =
            self.reserve_bytes(bytes).and_then(|weight| self.push(WriteRequest::Append(append, weight)));
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
            let ReplyReceiver { mut answer, claim: turn } = wait;
            let answer = match tokio::time::timeout(deadline, &mut answer).await {
                Ok(answer) => answer,
                Err(_) if turn.claim() => return Err(error::deadline_exceeded()),
                // It has begun and may be committed, so its result must be awaited.
                Err(_) => answer.await,
            };
            answer.map_err(|_| error::unavailable())?
        })
    }

    /// Waiting requests, and their bytes.
    pub(crate) fn queue_depth(&self) -> (usize, usize) {
        let requests = self.queue.max_capacity().saturating_sub(self.queue.capacity());
        (requests, self.bytes.load(Ordering::Relaxed))
    }

    /// Writes the waiting requests, then accepts no more.
    pub(crate) async fn close(&self) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(WriteRequest::Close(done)).await.is_ok() {
            // An error means that the writer has ended, which is the goal.
            let _ = wait.await;
        }
    }
}

trait WriteJob: Send {
    /// Whether no caller waits for it any more.
    fn abandoned(&self) -> bool;
    /// Claims the job. False when no part of it is wanted any more.
    fn claim(&mut self) -> bool;
    fn fail(self: Box<Self>, error: &StoreError);
    fn run<'c>(self: Box<Self>, conn: &'c mut DbConnection) -> BoxFuture<'c, Box<dyn PendingReply>>;
}

/// A result held back until the commit.
trait PendingReply: Send {
    fn failed(&self) -> bool;
    fn complete(self: Box<Self>, fault: Option<&StoreError>);
}

struct CallJob<T> {
    work: DbTask<T>,
    answer: ReplySender<T>,
}

struct CallResult<T> {
    result: Result<T, StoreError>,
    answer: ReplySender<T>,
}

impl<T: Send + 'static> WriteJob for CallJob<T> {
    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn claim(&mut self) -> bool {
        self.answer.claim()
    }

    fn fail(self: Box<Self>, error: &StoreError) {
        fail_all(vec![self.answer], error);
    }

    fn run<'c>(self: Box<Self>, conn: &'c mut DbConnection) -> BoxFuture<'c, Box<dyn PendingReply>> {
        Box::pin(async move {
            let result = (self.work)(conn).await;
            Box::new(CallResult { result, answer: self.answer }) as Box<dyn PendingReply>
        })
    }
}

impl<T: Send> PendingReply for CallResult<T> {
    fn failed(&self) -> bool {
        self.result.is_err()
    }

    fn complete(self: Box<Self>, fault: Option<&StoreError>) {
        let result = match fault {
            Some(error) if self.result.is_ok() => Err(error::clone_error(error)),
            _ => self.result,
        };
        self.answer.send(result);
    }
}

/// Adjacent appends as one job.
struct AppendJob(Vec<AppendRequest>);

impl WriteJob for AppendJob {
    fn abandoned(&self) -> bool {
        self.0.iter().all(|append| append.answer.is_closed())
    }

    fn claim(&mut self) -> bool {
        self.0.retain(|append| append.answer.claim());
        !self.0.is_empty()
    }

    fn fail(self: Box<Self>, error: &StoreError) {
        fail_all(self.0.into_iter().map(|append| append.answer).collect(), error);
    }

    fn run<'c>(self: Box<Self>, conn: &'c mut DbConnection) -> BoxFuture<'c, Box<dyn PendingReply>> {
        Box::pin(async move {
            let (mut batches, mut answers) = (Vec::new(), Vec::new());
            for append in self.0 {
                batches.push((append.messages, append.quota));
                answers.push(append.answer);
            }
            Box::new(AppendResult { results: offline::append(conn, batches).await, answers })
                as Box<dyn PendingReply>
        })
    }
}

struct AppendResult {
    results: Result<Vec<Vec<AppendOutcome>>, StoreError>,
    answers: Vec<ReplySender<Vec<AppendOutcome>>>,
}

impl PendingReply for AppendResult {
    fn failed(&self) -> bool {
        self.results.is_err()
    }

    fn complete(self: Box<Self>, fault: Option<&StoreError>) {
        match (fault, self.results) {
            (None, Ok(results)) => {
                for (answer, result) in self.answers.into_iter().zip(results) {
                    answer.send(Ok(result));
                }
            }
            (Some(error), Ok(_)) => fail_all(self.answers, error),
            (_, Err(error)) => fail_all(self.answers, &error),
        }
    }
}

fn fail_all<T>(answers: Vec<ReplySender<T>>, error: &StoreError) {
    for answer in answers {
        answer.send(Err(error::clone_error(error)));
    }
}

async fn run(
    pool: ConnectionPool,
    context: Arc<SqlContext>,
    mut queue: mpsc::Receiver<WriteRequest>,
    mut gather: BatchReceiver,
) {
    let mut waiting = Vec::with_capacity(MAX_BATCH);
    let mut conn = None;
    while gather.recv_batch(&mut queue, &mut waiting).await {
        let mut closing = None;
        let (mut jobs, mut weights): (Vec<Box<dyn WriteJob>>, Vec<QueuedBytes>) = (Vec::new(), Vec::new());
        let mut appends: Vec<AppendRequest> = Vec::new();
        for request in waiting.drain(..) {
            match request {
                WriteRequest::Append(append, weight) => {
                    weights.push(weight);
                    appends.push(append);
                }
                WriteRequest::Call(job, weight) => {
                    weights.push(weight);
                    if !appends.is_empty() {
                        jobs.push(Box::new(AppendJob(std::mem::take(&mut appends))));
                    }
                    jobs.push(job);
                }
                WriteRequest::Close(done) => closing = Some(done),
            }
        }
        if !appends.is_empty() {
            jobs.push(Box::new(AppendJob(appends)));
        }
        jobs.retain(|job| !job.abandoned());
        if !jobs.is_empty() {
            conn = commit_batch(conn, &pool, &context, jobs, weights).await;
        }
        if let Some(done) = closing {
            // Before the reply: the pool waits for its connection.
            drop(conn);
            queue.close();
            let _ = done.send(());
            return;
        }
    }
}

/// Runs the jobs in one transaction and answers each of them; returns the connection if it is still good.
async fn commit_batch(
    held: Option<DbConnection>,
    pool: &ConnectionPool,
    context: &Arc<SqlContext>,
    jobs: Vec<Box<dyn WriteJob>>,
    weights: Vec<QueuedBytes>,
) -> Option<DbConnection> {
    let (begun, size) = (context.clock.now_micros(), jobs.len() as u64);
    let mut finished: Vec<Box<dyn PendingReply>> = Vec::with_capacity(jobs.len());
    let taken = match held {
        Some(conn) => Ok(conn),
        None => pool.acquire(context).await,
    };
    let mut conn = match taken {
        Ok(conn) => conn,
        Err(error) => {
            drop(weights);
            jobs.into_iter().for_each(|job| job.fail(&error));
            return None;
        }
    };
    let outcome = run_transaction(&mut conn, jobs, &mut finished).await;
    let committed = match &outcome {
        Ok(()) => {
            context.commits.fetch_add(1, Ordering::Relaxed);
            context.committed.notify_one();
            context.commit_time.record(context.clock.now_micros().saturating_sub(begun));
            context.commit_size.record(size);
            Some(conn)
        }
        Err(_) => match conn.execute("ROLLBACK", &[]).await {
            Ok(_) => Some(conn),
            Err(_) => {
                // The state of this connection is unknown; the next transaction gets another.
                conn.discard();
                None
            }
        },
    };
    let fault = outcome.err();
    // Before the replies, so that a caller can immediately use the space it has freed.
    drop(weights);
    for result in finished {
        result.complete(fault.as_ref());
    }
    committed
}

async fn run_transaction(
    conn: &mut DbConnection,
    jobs: Vec<Box<dyn WriteJob>>,
    finished: &mut Vec<Box<dyn PendingReply>>,
) -> Result<(), StoreError> {
    let mut jobs = jobs.into_iter();
    let begun = conn.execute(conn.context.clone().dialect.begin_write(), &[]).await;
    if let Err(error) = begun {
        jobs.for_each(|job| job.fail(&error));
        return Err(error);
    }
    let alone = jobs.len() == 1;
    while let Some(mut job) = jobs.next() {
        if !job.claim() {
            continue;
        }
        let step = run_in_savepoint(conn, job, alone, finished).await;
        if let Err(error) = step {
            jobs.for_each(|job| job.fail(&error));
            return Err(error);
        }
    }
    conn.execute("COMMIT", &[]).await.map(drop)
}

/// Runs one job in its savepoint. Fails only when the whole transaction is lost.
async fn run_in_savepoint(
    conn: &mut DbConnection,
    job: Box<dyn WriteJob>,
    alone: bool,
    finished: &mut Vec<Box<dyn PendingReply>>,
) -> Result<(), StoreError> {
    if alone {
        let result = job.run(conn).await;
        let failed = result.failed();
        finished.push(result);
        // The caller gets the job's own error; this one only ends the transaction.
        return if failed { Err(error::unavailable()) } else { Ok(()) };
    }
    if let Err(error) = conn.execute("SAVEPOINT request", &[]).await {
        job.fail(&error);
        return Err(error);
    }
    let result = job.run(conn).await;
    let failed = result.failed();
    finished.push(result);
    if failed {
        conn.execute("ROLLBACK TO SAVEPOINT request", &[]).await?;
    }
    conn.execute("RELEASE SAVEPOINT request", &[]).await.map(drop)
}
