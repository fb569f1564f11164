//! Transactions of a writer: all jobs in one, again after a deadlock or a lost connection, and each request in its own if
//! one of them fails the others.
//!
//! ```text
//! server: BEGIN, number of the transaction, locks of the accounts   one round trip
//!         statements of the jobs
//!         COMMIT                                                    one round trip
//! ```
//! The locks are taken by one statement in the order of the accounts' ids, so that writers of all nodes wait for each
//! other instead of deadlocking, and in a statement before those that read, so that these see what the previous holder wrote.
//!
//! A connection that breaks during COMMIT leaves the outcome open. Each writer therefore has a row that its transactions
//! update with their number; over the next connection the number tells whether the last one was committed. It is read with a
//! lock, which waits for the end of that transaction, since it holds the row. The number is requested until the server
//! returns it, whatever the deadline of the group is. A read-only server refuses that lock: [`open_commit`](super::open_commit).
//! A COMMIT that the server has answered with an error was rolled back, and is not looked up.
//!
//! Rows of writers that are gone are removed when another writer ends, so a writer that has nothing to write renews its row
//! ([`TransactionRunner::renew_row`]).
//!
//! # Pitfalls
//!
//! Jobs must not be answered while the outcome of their transaction is open, or a caller could repeat what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use store::{StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::jobs::{JobOutcome, WriteJob};
use super::open_commit::{CommitOutcome, CommitProbe};
use super::{Owner, QueuedBytes};
use crate::DatabaseOptions;
use crate::context::SqlContext;
use crate::dialect::{Arg, ConnectionPool, DbConnection, Dialect, LiteralRows};
use crate::error;

/// Pause before a transaction runs again after a conflict; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Time for the answer to a commit, also if the jobs needed all of theirs.
const MIN_COMMIT_TIME: Duration = Duration::from_secs(1);

/// Time for the answer to a rollback; a connection that takes longer is closed.
const MAX_ROLLBACK_TIME: Duration = Duration::from_secs(1);

/// Age in milliseconds after which the rows of writers that are gone are removed.
const STALE_WRITER: u64 = 7 * 24 * 3600 * 1000;

/// Age in milliseconds after which a writer renews its own.
const RENEWED_WRITER: u64 = STALE_WRITER / 2;

/// The transactions of one writer.
pub(super) struct TransactionRunner {
    pool: ConnectionPool,
    context: Arc<SqlContext>,
    held: Option<DbConnection>,
    /// How long the jobs of a group are tried, each statement included.
    timeout: Duration,
    /// The node ends.
    closing: Arc<AtomicBool>,
    /// Identifies this writer among all nodes.
    writer: i64,
    /// Number of the last transaction.
    batch: i64,
    /// Time at which the row of this writer was written last, as it is in the row. `None`: there is none.
    row_at: Option<u64>,
    /// How long a read-only server may lag behind the commits of another.
    max_standby_lag: Duration,
}

/// Why a transaction was not committed.
enum Failure {
    /// Nothing was stored; the same may succeed now.
    Transient(StoreError),
    /// Nothing was stored; one of the jobs will fail again.
    Permanent(StoreError),
    /// Nothing was stored; no transaction can begin.
    Refused(StoreError),
    /// It may be stored.
    Open(StoreError),
}

/// The time after this duration, which may be unlimited.
fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now + Duration::from_secs(365 * 24 * 3600))
}

impl TransactionRunner {
    pub(super) fn new(
        pool: ConnectionPool,
        context: Arc<SqlContext>,
        options: &DatabaseOptions,
        closing: Arc<AtomicBool>,
    ) -> TransactionRunner {
        let writer = i64::from_be_bytes(base::id::random_bytes()) & i64::MAX;
        let (timeout, max_standby_lag) = (options.write_deadline, options.max_standby_lag);
        let (held, batch, row_at) = (None, 0, None);
        TransactionRunner { pool, context, held, timeout, closing, writer, batch, row_at, max_standby_lag }
    }

    /// Runs the jobs in one transaction, or in one each if that fails, and answers them.
    pub(super) async fn commit(&mut self, jobs: Vec<Box<dyn WriteJob>>, weights: Vec<QueuedBytes>) {
        let deadline = after(self.timeout);
        let mut jobs: Vec<ClaimableJob> = jobs.into_iter().map(ClaimableJob::new).collect();
        let result = match self.commit_together(&mut jobs, deadline).await {
            Err(Failure::Permanent(error)) => {
                jobs = jobs.into_iter().flat_map(ClaimableJob::split).collect();
                if jobs.len() > 1 {
                    self.commit_one_by_one(jobs, deadline).await;
                    return;
                }
                Err(Failure::Permanent(error))
            }
            result => self.settle(result).await,
        };
        // Before the replies, so that a caller can immediately use the space it has freed.
        drop(weights);
        complete(jobs, result.err().map(Failure::into_error).as_ref());
    }

    /// Runs each request in a transaction of its own and answers it.
    async fn commit_one_by_one(&mut self, jobs: Vec<ClaimableJob>, deadline: Instant) {
        let mut waiting = jobs.into_iter();
        while let Some(job) = waiting.next() {
            let mut job = vec![job];
            let result = self.commit_together(&mut job, deadline).await;
            if matches!(result, Err(Failure::Open(_))) {
                // The time of all is over, and nothing of the others was stored.
                complete(waiting.by_ref().collect(), Some(&error::deadline_exceeded()));
            }
            let result = self.settle(result).await;
            complete(job, result.err().map(Failure::into_error).as_ref());
        }
    }

    /// Runs jobs in one transaction until it is committed, it is hopeless, or the time is over.
    async fn commit_together(
        &mut self,
        jobs: &mut Vec<ClaimableJob>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let begun = self.context.clock.now_micros();
        let (mut pause, mut open) = (FIRST_PAUSE, false);
        loop {
            let done = match open {
                true => match self.open_commit(deadline).await {
                    Ok(CommitProbe::Committed) => Ok(()),
                    Ok(CommitProbe::RolledBack) => {
                        open = false;
                        continue;
                    }
                    Ok(CommitProbe::Inconclusive) => Err(Failure::Open(error::read_only())),
                    Err(error) => Err(Failure::Open(error)),
                },
                false if Instant::now() >= deadline => {
                    return Err(Failure::Transient(error::deadline_exceeded()));
                }
                false => self.attempt(jobs, deadline).await,
            };
            let failure = match done {
                Ok(()) => {
                    let size = jobs.len() as u64;
                    self.context.commits.fetch_add(1, Ordering::Relaxed);
                    self.context.committed.notify_one();
                    self.context.commit_time.record(self.context.clock.now_micros().saturating_sub(begun));
                    self.context.commit_size.record(size);
                    return Ok(());
                }
                Err(failure @ (Failure::Permanent(_) | Failure::Refused(_))) => return Err(failure),
                Err(failure) => failure,
            };
            open = matches!(failure, Failure::Open(_));
            if Instant::now() + pause > deadline {
                return Err(failure);
            }
            self.context.write_retries.fetch_add(1, Ordering::Relaxed);
            // Callers that gave up before their turn need no transaction.
            jobs.retain(|entry| entry.claimed || !entry.job.abandoned());
            if jobs.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Waits until it is known whether a transaction with an open outcome was committed, however long it takes: its callers
    /// can neither be given a result nor an error before. It remains open if a read-only server cannot tell, and when the node
    /// ends.
    async fn settle(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        let Err(Failure::Open(mut error)) = result else { return result };
        let mut outcome = CommitOutcome::Unknown;
        loop {
            let probe = self.open_commit(after(self.timeout)).await;
            outcome = outcome.after(probe.as_ref().ok().copied(), Instant::now(), self.max_standby_lag);
            if let Err(failed) = probe {
                error = failed;
            }
            match outcome {
                CommitOutcome::Committed => {
                    self.context.commits.fetch_add(1, Ordering::Relaxed);
                    self.context.committed.notify_one();
                    return Ok(());
                }
                CommitOutcome::RolledBack => return Err(Failure::Transient(error)),
                CommitOutcome::InDoubt => return Err(Failure::Open(error)),
                CommitOutcome::Unknown | CommitOutcome::InconclusiveSince(_) => {}
            }
            if self.closing.load(Ordering::Relaxed) {
                return Err(Failure::Open(error));
            }
            self.context.write_retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(MAX_PAUSE).await;
        }
    }

    async fn attempt(&mut self, jobs: &mut Vec<ClaimableJob>, deadline: Instant) -> Result<(), Failure> {
        // A stale connection goes back to the pool, which tests it.
        let mut conn = match self.held.take().filter(|conn| !conn.is_stale()) {
            Some(conn) => conn,
            None => self.acquire(deadline).await.map_err(|error| self.failure(error).whole())?,
        };
        conn.begin_transaction();
        conn.set_deadline(deadline);
        if let Err(error) = self.register(&mut conn).await {
            self.roll_back(conn).await;
            return Err(self.failure(error).whole());
        }
        let begun_at = self.context.clock.unix_millis();
        let begin = self.begin_text(jobs, begun_at);
        if let Err(error) = conn.execute_text(&begin).await {
            self.roll_back(conn).await;
            return Err(self.failure(error).whole());
        }
        let mut at = 0;
        while let Some(entry) = jobs.get_mut(at) {
            if !entry.claim() {
                // Its callers gave up while it waited for its turn.
                jobs.remove(at);
                continue;
            }
            if let JobOutcome::Failed(error) = entry.job.run(&mut conn).await {
                self.roll_back(conn).await;
                return Err(self.failure(error));
            }
            at += 1;
        }
        if conn.statement_failed() {
            // PostgreSQL would answer a commit with success and roll back.
            self.roll_back(conn).await;
            let message = "a statement of the transaction failed; nothing was stored";
            return Err(Failure::Permanent(StoreError::new(StoreErrorKind::Internal, message)));
        }
        conn.set_deadline(deadline.max(Instant::now() + MIN_COMMIT_TIME));
        match conn.execute_text("COMMIT").await {
            Ok(_) => {
                self.held = Some(conn);
                self.row_at = self.row_at.map(|_| begun_at);
                Ok(())
            }
            Err(error) => {
                let is_open = conn.is_outcome_unknown() && self.context.dialect.lock_rows().is_some();
                self.roll_back(conn).await;
                // The jobs are not to blame, so they are not tried one by one.
                Err(if is_open { Failure::Open(error) } else { self.failure(error).whole() })
            }
        }
    }

    /// Inserts the row of this writer, before any transaction updates it: a row that is not committed yet cannot be
    /// waited for. A row that was not renewed, while the database or this machine did not run, may have been removed and is
    /// inserted again.
    async fn register(&mut self, conn: &mut DbConnection) -> Result<(), StoreError> {
        let registered = self.row_at.is_some() && !self.is_row_due();
        if registered || self.context.dialect.lock_rows().is_none() {
            return Ok(());
        }
        let at = self.context.clock.unix_millis();
        conn.execute_text(&self.mark_text(at)).await?;
        self.row_at = Some(at);
        Ok(())
    }

    /// Whether there is a row, and others may soon take it for that of a writer that is gone. They compare wall clocks.
    fn is_row_due(&self) -> bool {
        let now = self.context.clock.unix_millis();
        self.row_at.is_some_and(|at| now.saturating_sub(at) >= RENEWED_WRITER)
    }

    /// Renews the row of this writer if nothing was written for a long time. A failure is repeated at the next call.
    pub(super) async fn renew_row(&mut self) {
        if !self.is_row_due() {
            return;
        }
        let deadline = after(self.timeout);
        let conn = match self.held.take().filter(|conn| !conn.is_stale()) {
            Some(conn) => Ok(conn),
            None => self.acquire(deadline).await,
        };
        let Ok(mut conn) = conn else { return };
        conn.set_deadline(deadline);
        match self.register(&mut conn).await {
            Ok(()) => self.held = Some(conn),
            Err(_) => conn.discard(),
        }
    }

    /// Statement that records the number of the transaction.
    fn mark_text(&self, at: u64) -> String {
        let (writer, batch) = (self.writer, self.batch);
        let suffix = self.context.dialect.upsert_suffix(&["writer"], &["batch", "at"]);
        format!("INSERT INTO write_batch (writer, batch, at) VALUES ({writer}, {batch}, {at}){suffix}")
    }

    /// Begins a transaction, numbers it and locks the accounts.
    fn begin_text(&mut self, jobs: &[ClaimableJob], at: u64) -> String {
        let dialect = &self.context.dialect;
        let mut text = dialect.begin_write().to_owned();
        if let (Some(lock), Some(push)) = (dialect.lock_rows(), dialect.literal_rows()) {
            self.batch += 1;
            text += &format!("; {}", self.mark_text(at));
            let mut owners = Vec::new();
            jobs.iter().for_each(|entry| entry.job.owners(&mut owners));
            text += &lock_statement(&owners, dialect.as_ref(), lock, push);
        }
        text
    }

    /// Looks for the last transaction in the database. Only the wait for a connection ends at the deadline: a server whose
    /// disk does not respond would otherwise collect waiting statements.
    async fn open_commit(&mut self, deadline: Instant) -> Result<CommitProbe, StoreError> {
        let mut conn = match self.held.take().filter(|conn| !conn.is_stale()) {
            Some(conn) => conn,
            None => self.acquire(deadline).await?,
        };
        let probe = if self.is_visible(&mut conn, "").await? {
            CommitProbe::Committed
        } else {
            // Afterwards and on the same connection: what a read-only server does not have counts only if it is still
            // read-only, because one that can lock knows the answer.
            let lock = self.context.dialect.lock_rows().unwrap_or_default();
            match self.is_visible(&mut conn, lock).await {
                Ok(true) => CommitProbe::Committed,
                Ok(false) => CommitProbe::RolledBack,
                // The pool closes this connection. The next one may lead to another server.
                Err(error) if error::is_read_only(&error) => return Ok(CommitProbe::Inconclusive),
                Err(error) => return Err(error),
            }
        };
        self.held = Some(conn);
        Ok(probe)
    }

    /// Whether the row of this writer has the number of the last transaction.
    async fn is_visible(&self, conn: &mut DbConnection, lock: &str) -> Result<bool, StoreError> {
        let sql = conn.sql(&format!("SELECT batch FROM write_batch WHERE writer = ? {lock}"));
        let row = conn.fetch_optional(&sql, &[Arg::Int(self.writer)]).await?;
        let batch = row.map_or(Ok(None), |row| row.optional_number(0))?;
        Ok(batch.is_some_and(|batch| i64::try_from(batch) == Ok(self.batch)))
    }

    /// Waits until the deadline for a connection.
    async fn acquire(&self, deadline: Instant) -> Result<DbConnection, StoreError> {
        let acquired = tokio::time::timeout_at(deadline, self.pool.acquire(&self.context)).await;
        acquired.unwrap_or_else(|_| Err(error::unreachable()))
    }

    /// Classifies an error. The only transaction of SQLite competes with nothing: its errors do not pass soon.
    fn failure(&self, error: StoreError) -> Failure {
        match error.kind {
            StoreErrorKind::Conflict | StoreErrorKind::Unavailable | StoreErrorKind::Timeout
                if self.context.dialect.lock_rows().is_some() =>
            {
                Failure::Transient(error)
            }
            _ => Failure::Permanent(error),
        }
    }

    async fn roll_back(&mut self, mut conn: DbConnection) {
        conn.set_deadline(Instant::now() + MAX_ROLLBACK_TIME);
        if !conn.is_lost() && conn.execute_text("ROLLBACK").await.is_ok() {
            self.held = Some(conn);
        } else {
            // The state of this connection is unknown; the next transaction gets another.
            conn.discard();
        }
    }

    /// Removes the row of this writer and releases its connection.
    pub(super) async fn close(&mut self) {
        if self.row_at.is_some()
            && let Some(conn) = &mut self.held
        {
            let stale = self.context.clock.unix_millis().saturating_sub(STALE_WRITER);
            let writer = self.writer;
            // A row that remains is only removed later.
            conn.set_deadline(after(self.timeout));
            let sql = format!("DELETE FROM write_batch WHERE writer = {writer} OR at < {stale}");
            let _ = conn.execute_text(&sql).await;
        }
        self.held = None;
    }
}

impl Failure {
    /// Of a step before the first job.
    fn whole(self) -> Failure {
        match self {
            Failure::Permanent(error) => Failure::Refused(error),
            other => other,
        }
    }

    fn into_error(self) -> StoreError {
        match self {
            Failure::Transient(error) | Failure::Permanent(error) | Failure::Refused(error) => error,
            Failure::Open(error) => error::in_doubt(error),
        }
    }
}

/// A job, and whether its callers wait for it however long it takes.
struct ClaimableJob {
    job: Box<dyn WriteJob>,
    claimed: bool,
}

impl ClaimableJob {
    fn new(job: Box<dyn WriteJob>) -> ClaimableJob {
        ClaimableJob { job, claimed: false }
    }

    /// A job for each request.
    fn split(self) -> impl Iterator<Item = ClaimableJob> {
        let claimed = self.claimed;
        self.job.split().into_iter().map(move |job| ClaimableJob { job, claimed })
    }

    /// Claims the job at its first turn. False when it is not wanted any more.
    fn claim(&mut self) -> bool {
        self.claimed = self.claimed || self.job.claim();
        self.claimed
    }
}

fn complete(jobs: Vec<ClaimableJob>, fault: Option<&StoreError>) {
    for entry in jobs {
        entry.job.complete(fault);
    }
}

/// Statement that locks the rows of accounts. It is one, or two transactions with the same accounts, one by id and the
/// other by name, could wait for each other.
fn lock_statement(owners: &[Owner], dialect: &dyn Dialect, lock: &str, push: LiteralRows) -> String {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for owner in owners {
        match owner {
            Owner::Id(id) => ids.push(id.get()),
            Owner::Ids(many) => ids.extend(many.iter().map(|id| id.get())),
            Owner::Name(name) => names.push(&**name),
            Owner::None => {}
        }
    }
    ids.sort_unstable();
    ids.dedup();
    names.sort_unstable();
    names.dedup();
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return match ids.is_empty() {
            true => String::new(),
            false => format!("; SELECT id FROM account WHERE id IN ({ids}) ORDER BY id {lock}"),
        };
    }
    let mut list = String::new();
    for name in names {
        if !list.is_empty() {
            list.push_str(", ");
        }
        push(&mut list, &Arg::Text(name));
    }
    // No account has the number 0.
    let ids = if ids.is_empty() { "0" } else { &ids };
    format!("; {}", dialect.lock_accounts(ids, &list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::postgres::PostgresDialect;
    use store::AddressId;

    #[test]
    fn accounts_are_locked_once_each_and_in_order_by_one_statement() {
        let id = |number| Owner::Id(AddressId::new(number).unwrap());
        let name = |name: &str| Owner::Name(name.into());
        let push = PostgresDialect.literal_rows().unwrap();
        let lock = |owners: &[Owner]| lock_statement(owners, &PostgresDialect, "FOR UPDATE", push);
        let many = Owner::Ids([AddressId::new(3).unwrap(), AddressId::new(9).unwrap()].into());
        let owners = [many, id(9), Owner::None, id(10), id(9)];
        assert_eq!(lock(&owners), "; SELECT id FROM account WHERE id IN (3, 9, 10) ORDER BY id FOR UPDATE");
        let text = lock(&[name("b"), id(9), name("a"), name("b")]);
        assert!(text.contains("ARRAY[9]") && text.contains("('a', 'b')"), "{text}");
        assert_eq!(text.matches(';').count(), 1, "{text}");
        assert_eq!(lock(&[Owner::None]), "");
    }
}
