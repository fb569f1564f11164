//! Batching of logins: all waiting logins share a statement.
//!
//! A round trip to SQLite's thread costs five times the read itself, so a *login worker* (a task with its own connection)
//! collects all waiting logins and sends one statement for them. Only the round trip is shared: each login has its own
//! answer and deadline.
//!
//! A proof that comes with its request is verified between the two statements, so that a login takes one call: no
//! second batching, and no waking of its task in between.
//!
//! Between batches a worker retains the capacity of its request lists, not the answers.
//!
//! # Pitfalls
//!
//! Two workers make smaller batches and so cost more; more workers help only when reads wait for a disk or a network.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use base::Spawner;
use store::logins::judge;
use store::{AccountSecrets, ProofFn, StoreError, StoreErrorKind, StoreFuture};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::batch_receiver::BatchReceiver;
use crate::context::SqlContext;
use crate::dialect::{ConnectionPool, DbConnection, SizedStatement};
use crate::error;
use crate::tables::logins::{self as tables, LoginRow, ProvedAccount};

/// Logins per statement; those before and those after their proof have a statement each.
const MAX_BATCH: usize = 64;

pub(crate) struct LoginBatcher {
    queue: mpsc::Sender<BatchRequest>,
    deadline: Duration,
}

/// A query about an account, and its waiting caller.
struct LoginRequest<K, R> {
    account: K,
    reply: R,
}

type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// Secrets, and the session's initial data if the proof was right.
type JudgedProof = (AccountSecrets, Option<Result<Option<LoginRow>, StoreError>>);

/// Caller waiting for secrets.
enum BeforeProof {
    Secrets(ReplySender<Option<AccountSecrets>>),
    Proof(ProofFn, ReplySender<Option<JudgedProof>>),
}

/// Caller waiting for the session's initial data.
enum AfterProof {
    Login(ReplySender<Option<LoginRow>>),
    Proof(AccountSecrets, ReplySender<Option<JudgedProof>>),
}

enum BatchRequest {
    Before(LoginRequest<Box<str>, BeforeProof>),
    After(LoginRequest<ProvedAccount, AfterProof>),
    Close,
}

impl LoginBatcher {
    pub(crate) fn start(
        pool: ConnectionPool,
        context: Arc<SqlContext>,
        spawner: &dyn Spawner,
        options: &crate::DatabaseOptions,
    ) -> LoginBatcher {
        let (queue, waiting) = mpsc::channel(options.max_queued.max(1));
        let waiting =
            Arc::new(Mutex::new((waiting, BatchReceiver::new(options.login_batch_delay, MAX_BATCH))));
        for _ in 0..options.login_connections.max(1) {
            spawner
                .spawn("store-logins", Box::pin(run_batches(pool.clone(), context.clone(), waiting.clone())));
        }
        LoginBatcher { queue, deadline: options.read_deadline }
    }

    /// Logins that wait.
    pub(crate) fn queue_depth(&self) -> usize {
        self.queue.max_capacity().saturating_sub(self.queue.capacity())
    }

    /// Answers the waiting logins, then accepts no more. The workers release their connections soon after.
    pub(crate) async fn close(&self) {
        // An error means that the workers have ended, which is the goal.
        let _ = self.queue.send(BatchRequest::Close).await;
    }

    pub(crate) fn secrets(&self, account: &str) -> StoreFuture<'_, Option<AccountSecrets>> {
        let (answer, wait) = oneshot::channel();
        let reply = BeforeProof::Secrets(answer);
        self.enqueue(BatchRequest::Before(LoginRequest { account: account.into(), reply }), wait)
    }

    pub(crate) fn login(&self, account: ProvedAccount) -> StoreFuture<'_, Option<LoginRow>> {
        let (answer, wait) = oneshot::channel();
        self.enqueue(BatchRequest::After(LoginRequest { account, reply: AfterProof::Login(answer) }), wait)
    }

    pub(crate) fn prove(&self, account: &str, proof: ProofFn) -> StoreFuture<'_, Option<JudgedProof>> {
        let (answer, wait) = oneshot::channel();
        let reply = BeforeProof::Proof(proof, answer);
        self.enqueue(BatchRequest::Before(LoginRequest { account: account.into(), reply }), wait)
    }

    fn enqueue<T: Send + 'static>(
        &self,
        request: BatchRequest,
        wait: oneshot::Receiver<Result<Option<T>, StoreError>>,
    ) -> StoreFuture<'_, Option<T>> {
        let queued = self.queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => error::overloaded(),
            mpsc::error::TrySendError::Closed(_) => error::unavailable(),
        });
        let deadline = self.deadline;
        Box::pin(async move {
            queued?;
            match tokio::time::timeout(deadline, wait).await {
                Ok(answer) => answer.map_err(|_| error::unavailable())?,
                Err(_) => Err(error::deadline_exceeded()),
            }
        })
    }
}

impl BeforeProof {
    fn is_closed(&self) -> bool {
        match self {
            BeforeProof::Secrets(answer) => answer.is_closed(),
            BeforeProof::Proof(_, answer) => answer.is_closed(),
        }
    }

    /// Answers, or verifies the proof; if it is right, the rest must be read.
    fn found(
        self,
        found: Result<Option<AccountSecrets>, StoreError>,
    ) -> Option<LoginRequest<ProvedAccount, AfterProof>> {
        let (proof, answer) = match self {
            BeforeProof::Secrets(answer) => {
                let _ = answer.send(found);
                return None;
            }
            BeforeProof::Proof(proof, answer) => (proof, answer),
        };
        // Verified for unknown accounts, too, so that the work does not reveal which accounts exist.
        let judged = found.and_then(|secrets| judge(proof, secrets.as_ref()).map(|right| (secrets, right)));
        let _ = match judged {
            Ok((Some(secrets), true)) if !secrets.disabled => {
                let account = (secrets.id, secrets.revision);
                return Some(LoginRequest { account, reply: AfterProof::Proof(secrets, answer) });
            }
            Ok((secrets, _)) => answer.send(Ok(secrets.map(|secrets| (secrets, None)))),
            Err(error) => answer.send(Err(error)),
        };
        None
    }
}

impl AfterProof {
    fn is_closed(&self) -> bool {
        match self {
            AfterProof::Login(answer) => answer.is_closed(),
            AfterProof::Proof(_, answer) => answer.is_closed(),
        }
    }

    fn found(self, found: Result<Option<LoginRow>, StoreError>) {
        let _ = match self {
            AfterProof::Login(answer) => answer.send(found).is_ok(),
            AfterProof::Proof(secrets, answer) => answer.send(Ok(Some((secrets, Some(found))))).is_ok(),
        };
    }
}

async fn run_batches(
    pool: ConnectionPool,
    context: Arc<SqlContext>,
    waiting: Arc<Mutex<(mpsc::Receiver<BatchRequest>, BatchReceiver)>>,
) {
    let mut requests: Vec<BatchRequest> = Vec::with_capacity(MAX_BATCH);
    let mut before: Vec<LoginRequest<Box<str>, BeforeProof>> = Vec::new();
    let mut after: Vec<LoginRequest<ProvedAccount, AfterProof>> = Vec::new();
    let mut held: Option<DbConnection> = None;
    loop {
        {
            let mut waiting = waiting.lock().await;
            let (queue, batches) = &mut *waiting;
            if !batches.recv_batch(queue, &mut requests).await {
                return;
            }
            for request in requests.drain(..) {
                match request {
                    BatchRequest::Before(request) => before.push(request),
                    BatchRequest::After(request) => after.push(request),
                    BatchRequest::Close => queue.close(),
                }
            }
        }
        before.retain(|request| !request.reply.is_closed());
        // Each request is in one of the two, and a right proof moves it: both statements hold all waiting requests.
        debug_assert!(before.len() + after.len() <= SizedStatement::MAX);
        if !before.is_empty() {
            let accounts: Vec<&str> = before.iter().map(|request| request.account.as_ref()).collect();
            let mut attempts = Attempts::default();
            let found = loop {
                let found = match connection(&mut held, &pool, &context).await {
                    Ok(mut conn) => {
                        let found = tables::secrets(&mut conn, &accounts).await;
                        // After a failure the pool decides whether the connection is still good.
                        held = found.is_ok().then_some(conn);
                        found
                    }
                    Err(error) => Err(error),
                };
                if !attempts.again(&found) {
                    break found;
                }
            };
            send_results(&mut before, found, |reply, found| after.extend(reply.found(found)));
        }
        after.retain(|request| !request.reply.is_closed());
        if !after.is_empty() {
            let accounts: Vec<_> = after.iter().map(|request| request.account).collect();
            let mut attempts = Attempts::default();
            let found = loop {
                let found = match connection(&mut held, &pool, &context).await {
                    Ok(mut conn) => {
                        let found = tables::logins(&mut conn, &accounts).await;
                        held = found.is_ok().then_some(conn);
                        found
                    }
                    Err(error) => Err(error),
                };
                if !attempts.again(&found) {
                    break found;
                }
            };
            send_results(&mut after, found, AfterProof::found);
        }
    }
}

/// Whether to read again: once, over another connection, since the server may have been restarted between two logins.
#[derive(Default)]
struct Attempts(u32);

impl Attempts {
    fn again<T>(&mut self, result: &Result<T, StoreError>) -> bool {
        self.0 += 1;
        self.0 < 2 && result.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Unavailable)
    }
}

async fn connection(
    held: &mut Option<DbConnection>,
    pool: &ConnectionPool,
    context: &Arc<SqlContext>,
) -> Result<DbConnection, StoreError> {
    // A stale connection goes back to the pool, which tests it.
    match held.take().filter(|conn| !conn.is_stale()) {
        Some(conn) => Ok(conn),
        None => pool.acquire(context).await,
    }
}

fn send_results<K: Eq + Hash, R, T: Clone>(
    requests: &mut Vec<LoginRequest<K, R>>,
    found: Result<tables::LoginResults<K, Option<T>>, StoreError>,
    mut answer: impl FnMut(R, Result<Option<T>, StoreError>),
) {
    let mut found: HashMap<K, Result<Option<T>, StoreError>> = match found {
        Ok(found) => found.into_iter().collect(),
        Err(error) => {
            for request in requests.drain(..) {
                answer(request.reply, Err(error::clone_error(&error)));
            }
            return;
        }
    };
    while let Some(request) = requests.pop() {
        // Several requests may be for the same account; only the last one may move the answer out.
        let more = requests.iter().any(|other| other.account == request.account);
        let one = if more {
            found.get(&request.account).map(|found| match found {
                Ok(found) => Ok(found.clone()),
                Err(error) => Err(error::clone_error(error)),
            })
        } else {
            found.remove(&request.account)
        };
        answer(request.reply, one.unwrap_or(Ok(None)));
    }
}
