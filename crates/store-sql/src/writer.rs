//! The one writer: a bounded queue in front, a transaction for all that waits, an answer when it is on the disk.
//!
//! Each request runs in its own savepoint, so that one that fails takes nothing else with it; neighbouring appends of
//! offline messages are merged and share one.
//!
//! A deadline cuts waiting only. Each request has a [`Turn`] that is taken once: by the caller when the deadline passes,
//! and then the request is skipped, or by the writer when it begins with it inside an open transaction, and then the
//! caller waits for the answer however long it takes. So a write that failed was not kept, and can be repeated.
//!
//! The trap for the next person: results are known before the commit but must not be answered before it.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{BoxFuture, Spawner};
use store::{Appended, Fut, OfflineMessage, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::dialect::{Conn, Pool};
use crate::fault;
use crate::gather::Gather;
use crate::kit::Kit;
use crate::tables::offline;

/// What a request does with the connection.
pub(crate) type Work<T> =
    Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, StoreError>> + Send>;

/// Who decides on a request: its caller, who gives up, or the writer, who begins.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicBool>);

impl Turn {
    /// True for the first who asks.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// The way back to the caller.
struct Answer<T> {
    to: oneshot::Sender<Result<T, StoreError>>,
    turn: Turn,
}

/// The caller's end of it.
struct Wait<T> {
    answer: oneshot::Receiver<Result<T, StoreError>>,
    turn: Turn,
}

impl<T> Answer<T> {
    fn new() -> (Answer<T>, Wait<T>) {
        let ((to, answer), turn) = (oneshot::channel(), Turn::default());
        (Answer { to, turn: turn.clone() }, Wait { answer, turn })
    }

    /// Whether nobody waits any more; a cheap look, to be followed by [`Answer::begin`].
    fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Whether the work is still wanted. After a yes the caller waits for the answer.
    fn begin(&self) -> bool {
        !self.to.is_closed() && self.turn.take()
    }

    fn send(self, result: Result<T, StoreError>) {
        // The caller may have given up; a write that was begun stands all the same.
        let _ = self.to.send(result);
    }
}

/// Requests in one transaction.
const MOST: usize = 256;

pub(crate) struct Writer {
    queue: mpsc::Sender<Request>,
    bytes: Arc<AtomicUsize>,
    most_bytes: usize,
    deadline: Duration,
}

enum Request {
    Call(Box<dyn Job>, Weight),
    Append(Append, Weight),
    Close(oneshot::Sender<()>),
}

/// Messages to be appended for one caller.
pub(crate) struct Append {
    pub(crate) messages: Vec<OfflineMessage>,
    pub(crate) quota: store::Quota,
    answer: Answer<Vec<Appended>>,
}

/// Bytes that a waiting request holds; given back when it is done.
struct Weight(Arc<AtomicUsize>, usize);

impl Drop for Weight {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Writer {
    pub(crate) fn start(
        pool: Pool,
        kit: Arc<Kit>,
        spawner: &dyn Spawner,
        options: &crate::Options,
    ) -> Writer {
        let (queue, requests) = mpsc::channel(options.queue.max(1));
        let gather = Gather::new(options.gather, MOST);
        spawner.spawn("store-writer", Box::pin(write_all(pool, kit, requests, gather)));
        Writer {
            queue,
            bytes: Arc::new(AtomicUsize::new(0)),
            most_bytes: options.queue_bytes,
            deadline: options.write_deadline,
        }
    }

    fn weigh(&self, bytes: usize) -> Result<Weight, StoreError> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let weight = Weight(self.bytes.clone(), bytes);
        // A single request larger than the whole allowance still goes when nothing else waits.
        if before > 0 && before + bytes > self.most_bytes { Err(fault::overloaded()) } else { Ok(weight) }
    }

    fn push(&self, request: Request) -> Result<(), StoreError> {
        self.queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => fault::overloaded(),
            mpsc::error::TrySendError::Closed(_) => fault::unavailable(),
        })
    }

    /// Queues a request of about this many bytes and waits until it is durable.
    pub(crate) fn call<T: Send + 'static>(&self, bytes: usize, work: Work<T>) -> Fut<'_, T> {
        let (answer, wait) = Answer::new();
        let queued = self
            .weigh(bytes)
            .and_then(|weight| self.push(Request::Call(Box::new(Call { work, answer }), weight)));
        self.wait(queued, wait)
    }

    pub(crate) fn append(
        &self,
        messages: Vec<OfflineMessage>,
        quota: store::Quota,
    ) -> Fut<'_, Vec<Appended>> {
        let (answer, wait) = Answer::new();
        let bytes = messages.iter().map(|message| message.stanza.len() + 64).sum();
        let append = Append { messages, quota, answer };
        let queued = self.weigh(bytes).and_then(|weight| self.push(Request::Append(append, weight)));
        self.wait(queued, wait)
    }

    fn wait<T: Send + 'static>(&self, queued: Result<(), StoreError>, wait: Wait<T>) -> Fut<'_, T> {
        let deadline = self.deadline;
        Box::pin(async move {
            queued?;
            let Wait { mut answer, turn } = wait;
            let answer = match tokio::time::timeout(deadline, &mut answer).await {
                Ok(answer) => answer,
                Err(_) if turn.take() => return Err(fault::late()),
                // It has begun and may be kept, so the end must be known.
                Err(_) => answer.await,
            };
            answer.map_err(|_| fault::unavailable())?
        })
    }

    /// Requests that wait, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let requests = self.queue.max_capacity().saturating_sub(self.queue.capacity());
        (requests, self.bytes.load(Ordering::Relaxed))
    }

    /// Writes what waits, then takes nothing more.
    pub(crate) async fn close(&self) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(Request::Close(done)).await.is_ok() {
            // An error means that the writer is gone, which is what was asked for.
            let _ = wait.await;
        }
    }
}

trait Job: Send {
    /// Whether nobody waits for it any more.
    fn abandoned(&self) -> bool;
    /// Takes its turn. False when nothing of it is wanted any more.
    fn begin(&mut self) -> bool;
    fn refuse(self: Box<Self>, error: &StoreError);
    fn run<'c>(self: Box<Self>, conn: &'c mut Conn) -> BoxFuture<'c, Box<dyn Finish>>;
}

/// A result that waits for the commit.
trait Finish: Send {
    fn failed(&self) -> bool;
    fn settle(self: Box<Self>, fault: Option<&StoreError>);
}

struct Call<T> {
    work: Work<T>,
    answer: Answer<T>,
}

struct Done<T> {
    result: Result<T, StoreError>,
    answer: Answer<T>,
}

impl<T: Send + 'static> Job for Call<T> {
    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn begin(&mut self) -> bool {
        self.answer.begin()
    }

    fn refuse(self: Box<Self>, error: &StoreError) {
        refuse(vec![self.answer], error);
    }

    fn run<'c>(self: Box<Self>, conn: &'c mut Conn) -> BoxFuture<'c, Box<dyn Finish>> {
        Box::pin(async move {
            let result = (self.work)(conn).await;
            Box::new(Done { result, answer: self.answer }) as Box<dyn Finish>
        })
    }
}

impl<T: Send> Finish for Done<T> {
    fn failed(&self) -> bool {
        self.result.is_err()
    }

    fn settle(self: Box<Self>, fault: Option<&StoreError>) {
        let result = match fault {
            Some(error) if self.result.is_ok() => Err(fault::again(error)),
            _ => self.result,
        };
        self.answer.send(result);
    }
}

/// Neighbouring appends as one job.
struct Appends(Vec<Append>);

impl Job for Appends {
    fn abandoned(&self) -> bool {
        self.0.iter().all(|append| append.answer.is_closed())
    }

    fn begin(&mut self) -> bool {
        self.0.retain(|append| append.answer.begin());
        !self.0.is_empty()
    }

    fn refuse(self: Box<Self>, error: &StoreError) {
        refuse(self.0.into_iter().map(|append| append.answer).collect(), error);
    }

    fn run<'c>(self: Box<Self>, conn: &'c mut Conn) -> BoxFuture<'c, Box<dyn Finish>> {
        Box::pin(async move {
            let (mut batches, mut answers) = (Vec::new(), Vec::new());
            for append in self.0 {
                batches.push((append.messages, append.quota));
                answers.push(append.answer);
            }
            Box::new(AppendsDone { results: offline::append(conn, batches).await, answers })
                as Box<dyn Finish>
        })
    }
}

struct AppendsDone {
    results: Result<Vec<Vec<Appended>>, StoreError>,
    answers: Vec<Answer<Vec<Appended>>>,
}

impl Finish for AppendsDone {
    fn failed(&self) -> bool {
        self.results.is_err()
    }

    fn settle(self: Box<Self>, fault: Option<&StoreError>) {
        match (fault, self.results) {
            (None, Ok(results)) => {
                for (answer, result) in self.answers.into_iter().zip(results) {
                    answer.send(Ok(result));
                }
            }
            (Some(error), Ok(_)) => refuse(self.answers, error),
            (_, Err(error)) => refuse(self.answers, &error),
        }
    }
}

fn refuse<T>(answers: Vec<Answer<T>>, error: &StoreError) {
    for answer in answers {
        answer.send(Err(fault::again(error)));
    }
}

async fn write_all(pool: Pool, kit: Arc<Kit>, mut queue: mpsc::Receiver<Request>, mut gather: Gather) {
    let mut waiting = Vec::with_capacity(MOST);
    let mut conn = None;
    while gather.take(&mut queue, &mut waiting).await {
        let mut closing = None;
        let (mut jobs, mut weights): (Vec<Box<dyn Job>>, Vec<Weight>) = (Vec::new(), Vec::new());
        let mut appends: Vec<Append> = Vec::new();
        for request in waiting.drain(..) {
            match request {
                Request::Append(append, weight) => {
                    weights.push(weight);
                    appends.push(append);
                }
                Request::Call(job, weight) => {
                    weights.push(weight);
                    if !appends.is_empty() {
                        jobs.push(Box::new(Appends(std::mem::take(&mut appends))));
                    }
                    jobs.push(job);
                }
                Request::Close(done) => closing = Some(done),
            }
        }
        if !appends.is_empty() {
            jobs.push(Box::new(Appends(appends)));
        }
        jobs.retain(|job| !job.abandoned());
        if !jobs.is_empty() {
            conn = transaction(conn, &pool, &kit, jobs, weights).await;
        }
        if let Some(done) = closing {
            // Before the answer: the pool waits for its connection.
            drop(conn);
            queue.close();
            let _ = done.send(());
            return;
        }
    }
}

/// Runs the jobs in one transaction and answers each of them; gives the connection back if it is still good.
async fn transaction(
    held: Option<Conn>,
    pool: &Pool,
    kit: &Arc<Kit>,
    jobs: Vec<Box<dyn Job>>,
    weights: Vec<Weight>,
) -> Option<Conn> {
    let (begun, size) = (kit.clock.micros(), jobs.len() as u64);
    let mut finished: Vec<Box<dyn Finish>> = Vec::with_capacity(jobs.len());
    let taken = match held {
        Some(conn) => Ok(conn),
        None => pool.acquire(kit).await,
    };
    let mut conn = match taken {
        Ok(conn) => conn,
        Err(error) => {
            drop(weights);
            jobs.into_iter().for_each(|job| job.refuse(&error));
            return None;
        }
    };
    let outcome = within(&mut conn, jobs, &mut finished).await;
    let kept = match &outcome {
        Ok(()) => {
            kit.commits.fetch_add(1, Ordering::Relaxed);
            kit.commit_time.record(kit.clock.micros().saturating_sub(begun));
            kit.commit_size.record(size);
            Some(conn)
        }
        Err(_) => match conn.run("ROLLBACK", &[]).await {
            Ok(_) => Some(conn),
            Err(_) => {
                // Nobody can say what state this connection is in; the next transaction gets another.
                conn.discard();
                None
            }
        },
    };
    let fault = outcome.err();
    // Before the answers, so that a caller may use at once what it has freed.
    drop(weights);
    for result in finished {
        result.settle(fault.as_ref());
    }
    kept
}

async fn within(
    conn: &mut Conn,
    jobs: Vec<Box<dyn Job>>,
    finished: &mut Vec<Box<dyn Finish>>,
) -> Result<(), StoreError> {
    let mut jobs = jobs.into_iter();
    let begun = conn.run(conn.kit.clone().dialect.begin(), &[]).await;
    if let Err(error) = begun {
        jobs.for_each(|job| job.refuse(&error));
        return Err(error);
    }
    let alone = jobs.len() == 1;
    while let Some(mut job) = jobs.next() {
        if !job.begin() {
            continue;
        }
        let step = step(conn, job, alone, finished).await;
        if let Err(error) = step {
            jobs.for_each(|job| job.refuse(&error));
            return Err(error);
        }
    }
    conn.run("COMMIT", &[]).await.map(drop)
}

/// One job in its savepoint. Fails only when the whole transaction is lost.
async fn step(
    conn: &mut Conn,
    job: Box<dyn Job>,
    alone: bool,
    finished: &mut Vec<Box<dyn Finish>>,
) -> Result<(), StoreError> {
    if alone {
        let result = job.run(conn).await;
        let failed = result.failed();
        finished.push(result);
        // Its own error is what the caller gets; this one only ends the transaction.
        return if failed { Err(fault::unavailable()) } else { Ok(()) };
    }
    if let Err(error) = conn.run("SAVEPOINT request", &[]).await {
        job.refuse(&error);
        return Err(error);
    }
    let result = job.run(conn).await;
    let failed = result.failed();
    finished.push(result);
    if failed {
        conn.run("ROLLBACK TO SAVEPOINT request", &[]).await?;
    }
    conn.run("RELEASE SAVEPOINT request", &[]).await.map(drop)
}
