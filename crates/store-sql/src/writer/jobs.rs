//! The jobs of a transaction: requests, some of them merged.
//!
//! A job runs again when its transaction is lost, so it keeps its arguments until it is answered.

use std::collections::HashSet;

use base::BoxFuture;
use jid::Jid;
use store::roster::run_update;
use store::{
    AddressId, AppendOutcome, OfflineMessage, RosterItem, RosterUpdate, RosterUpdateFn, RosterUpdateOutcome,
    StoreError, StoreErrorKind,
};
use tokio::sync::oneshot;

use super::{Owner, QueuedBytes, ReplySender, WriteFn, WriteRequest};
use crate::dialect::DbConnection;
use crate::error;
use crate::tables::offline::{self, RemovalRequest};
use crate::tables::roster;
use crate::tables::subscription_sets::SubscriptionRequest;
use crate::tables::tokens::TokensRequest;

/// Result of a job: it may be committed together with the others, or not.
pub(crate) enum JobOutcome {
    /// Its results are known, and its rows written.
    Ready,
    /// It must not be committed: a statement failed, or the job failed after it had written.
    Failed(StoreError),
}

/// One or several requests that run together.
pub(crate) trait WriteJob: Send {
    /// Whether no caller waits for it any more.
    fn abandoned(&self) -> bool;
    /// Claims the job. False when no part of it is wanted any more.
    fn claim(&mut self) -> bool;
    /// The accounts that it changes.
    fn owners(&self, into: &mut Vec<Owner>);
    /// Runs inside an open transaction. The results are held back until [`Self::complete`].
    fn run<'a>(&'a mut self, conn: &'a mut DbConnection) -> BoxFuture<'a, JobOutcome>;
    /// Answers the callers: with the results of the last run, or with the reason why nothing was stored.
    fn complete(self: Box<Self>, fault: Option<&StoreError>);
    /// A job for each request, in their order: one that fails must not fail the others.
    fn split(self: Box<Self>) -> Vec<Box<dyn WriteJob>>;
}

/// Separates an error that concerns one job from one that ends the transaction.
fn outcome(conn: &DbConnection, writes_before: u64, error: &StoreError) -> JobOutcome {
    if conn.statement_failed() || conn.writes() != writes_before {
        JobOutcome::Failed(error::clone_error(error))
    } else {
        JobOutcome::Ready
    }
}

/// The jobs of a transaction.
pub(super) struct MergedRequests {
    pub(super) jobs: Vec<Box<dyn WriteJob>>,
    pub(super) weights: Vec<QueuedBytes>,
    /// The writer must end after this transaction.
    pub(super) closing: Option<oneshot::Sender<()>>,
}

/// Merges requests of the same kind. Requests whose order matters keep it: those that concern the same rows, and all around
/// one with statements of its own.
pub(super) fn merge(requests: impl Iterator<Item = WriteRequest>) -> MergedRequests {
    let (mut jobs, mut weights, mut closing) = (Vec::<Box<dyn WriteJob>>::new(), Vec::new(), None);
    let mut groups = RequestGroups::default();
    for request in requests {
        match request {
            WriteRequest::Append(append, weight) => {
                weights.push(weight);
                let owners = append.messages.iter().map(|message| message.owner);
                if owners.clone().any(|owner| groups.removed.contains(&owner)) {
                    groups.finish(&mut jobs);
                }
                groups.appended.extend(owners);
                groups.appends.push(append);
            }
            WriteRequest::Removal(removal, weight) => {
                weights.push(weight);
                if groups.appended.contains(&removal.owner) {
                    groups.finish(&mut jobs);
                }
                groups.removed.insert(removal.owner);
                groups.removals.push(removal);
            }
            WriteRequest::Roster(update, weight) => {
                weights.push(weight);
                groups.rosters.push(*update);
            }
            WriteRequest::Tokens(update, weight) => {
                weights.push(weight);
                groups.tokens.push(*update);
            }
            WriteRequest::Subscriptions(change, weight) => {
                weights.push(weight);
                groups.subscriptions.push(change);
            }
            WriteRequest::Call(job, weight) => {
                weights.push(weight);
                groups.finish(&mut jobs);
                jobs.push(job);
            }
            WriteRequest::Close(done) => closing = Some(done),
        }
    }
    groups.finish(&mut jobs);
    MergedRequests { jobs, weights, closing }
}

/// Requests by kind. Those of different kinds concern different columns, except that a stored message may be removed.
#[derive(Default)]
struct RequestGroups {
    appends: Vec<AppendRequest>,
    rosters: Vec<RosterRequest>,
    tokens: Vec<TokensRequest>,
    removals: Vec<RemovalRequest>,
    subscriptions: Vec<SubscriptionRequest>,
    /// Owners of the messages to append.
    appended: HashSet<AddressId>,
    /// Owners of the messages to remove.
    removed: HashSet<AddressId>,
}

impl RequestGroups {
    /// Makes a job of each kind.
    fn finish(&mut self, jobs: &mut Vec<Box<dyn WriteJob>>) {
        let RequestGroups { appends, rosters, tokens, removals, subscriptions, .. } = std::mem::take(self);
        if !appends.is_empty() {
            jobs.push(Box::new(AppendJob::new(appends)));
        }
        push_merged(jobs, rosters);
        push_merged(jobs, tokens);
        push_merged(jobs, removals);
        push_merged(jobs, subscriptions);
    }
}

fn push_merged<R: MergeableRequest>(jobs: &mut Vec<Box<dyn WriteJob>>, requests: Vec<R>) {
    if !requests.is_empty() {
        jobs.push(Box::new(MergedJob(requests)));
    }
}

/// A request with statements of its own.
pub(super) struct CallJob<A, T> {
    owner: Owner,
    args: A,
    work: WriteFn<A, T>,
    reply: PendingReply<T>,
}

impl<A, T> CallJob<A, T> {
    pub(super) fn new(owner: Owner, args: A, work: WriteFn<A, T>, answer: ReplySender<T>) -> CallJob<A, T> {
        CallJob { owner, args, work, reply: PendingReply::new(answer) }
    }
}

impl<A: Send + 'static, T: Send + 'static> WriteJob for CallJob<A, T> {
    fn abandoned(&self) -> bool {
        self.reply.answer.is_closed()
    }

    fn claim(&mut self) -> bool {
        self.reply.answer.claim()
    }

    fn owners(&self, into: &mut Vec<Owner>) {
        into.push(self.owner.clone());
    }

    fn run<'a>(&'a mut self, conn: &'a mut DbConnection) -> BoxFuture<'a, JobOutcome> {
        Box::pin(async move {
            let writes = conn.writes();
            let result = (self.work)(conn, &mut self.args).await;
            let outcome =
                result.as_ref().map_or_else(|error| outcome(conn, writes, error), |_| JobOutcome::Ready);
            self.reply.set(result);
            outcome
        })
    }

    fn complete(self: Box<Self>, fault: Option<&StoreError>) {
        self.reply.send(fault);
    }

    fn split(self: Box<Self>) -> Vec<Box<dyn WriteJob>> {
        vec![self]
    }
}

/// The caller of a request, and its result, which is held back until the commit.
pub(crate) struct PendingReply<T> {
    answer: ReplySender<T>,
    result: Option<Result<T, StoreError>>,
}

impl<T> PendingReply<T> {
    pub(crate) fn new(answer: ReplySender<T>) -> PendingReply<T> {
        PendingReply { answer, result: None }
    }

    pub(crate) fn set(&mut self, result: Result<T, StoreError>) {
        self.result = Some(result);
    }

    /// Sends the result, or the reason why nothing was stored.
    fn send(self, fault: Option<&StoreError>) {
        let result = match (fault, self.result) {
            // The request's own error tells more.
            (Some(error), None | Some(Ok(_))) => Err(error::clone_error(error)),
            (_, Some(result)) => result,
            (None, None) => Err(error::unavailable()),
        };
        self.answer.send(result);
    }
}

/// A request that runs together with others of its kind.
pub(crate) trait MergeableRequest: Send + Sized + 'static {
    /// Its result.
    type Output: Send + 'static;

    /// The account that it changes.
    fn owner(&self) -> Owner;
    fn reply(&self) -> &PendingReply<Self::Output>;
    fn into_reply(self) -> PendingReply<Self::Output>;
    /// Runs requests inside an open transaction, in their order, and sets the result of each.
    fn run_all<'a>(
        conn: &'a mut DbConnection,
        requests: &'a mut [Self],
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Requests of one kind for several callers.
struct MergedJob<R>(Vec<R>);

impl<R: MergeableRequest> WriteJob for MergedJob<R> {
    fn abandoned(&self) -> bool {
        self.0.iter().all(|request| request.reply().answer.is_closed())
    }

    fn claim(&mut self) -> bool {
        self.0.retain(|request| request.reply().answer.claim());
        !self.0.is_empty()
    }

    fn owners(&self, into: &mut Vec<Owner>) {
        into.extend(self.0.iter().map(R::owner));
    }

    fn run<'a>(&'a mut self, conn: &'a mut DbConnection) -> BoxFuture<'a, JobOutcome> {
        Box::pin(async move {
            match R::run_all(conn, &mut self.0).await {
                Ok(()) => JobOutcome::Ready,
                Err(error) => JobOutcome::Failed(error),
            }
        })
    }

    fn complete(self: Box<Self>, fault: Option<&StoreError>) {
        for request in self.0 {
            request.into_reply().send(fault);
        }
    }

    fn split(self: Box<Self>) -> Vec<Box<dyn WriteJob>> {
        self.0.into_iter().map(|request| Box::new(MergedJob(vec![request])) as Box<dyn WriteJob>).collect()
    }
}

/// Messages to append for one caller.
pub(crate) struct AppendRequest {
    pub(super) messages: Vec<OfflineMessage>,
    pub(super) quota: store::Quota,
    pub(super) answer: ReplySender<Vec<AppendOutcome>>,
}

/// Appends of several callers.
struct AppendJob {
    batches: Vec<(Vec<OfflineMessage>, store::Quota)>,
    answers: Vec<ReplySender<Vec<AppendOutcome>>>,
    results: Vec<Vec<AppendOutcome>>,
}

impl AppendJob {
    fn new(appends: Vec<AppendRequest>) -> AppendJob {
        let (mut batches, mut answers) = (Vec::new(), Vec::new());
        for append in appends {
            batches.push((append.messages, append.quota));
            answers.push(append.answer);
        }
        AppendJob { batches, answers, results: Vec::new() }
    }
}

impl WriteJob for AppendJob {
    fn abandoned(&self) -> bool {
        self.answers.iter().all(ReplySender::is_closed)
    }

    fn claim(&mut self) -> bool {
        let wanted: Vec<bool> = self.answers.iter().map(ReplySender::claim).collect();
        let mut at = wanted.iter();
        self.batches.retain(|_| at.next().copied().unwrap_or(false));
        let mut at = wanted.iter();
        self.answers.retain(|_| at.next().copied().unwrap_or(false));
        !self.batches.is_empty()
    }

    fn owners(&self, into: &mut Vec<Owner>) {
        let messages = self.batches.iter().flat_map(|(messages, _)| messages);
        into.extend(messages.map(|message| Owner::Id(message.owner)));
    }

    fn run<'a>(&'a mut self, conn: &'a mut DbConnection) -> BoxFuture<'a, JobOutcome> {
        Box::pin(async move {
            match offline::append(conn, &self.batches).await {
                Ok(results) => {
                    self.results = results;
                    JobOutcome::Ready
                }
                Err(error) => JobOutcome::Failed(error),
            }
        })
    }

    fn complete(self: Box<Self>, fault: Option<&StoreError>) {
        match fault {
            Some(error) => fail_all(self.answers, error),
            None => {
                for (answer, result) in self.answers.into_iter().zip(self.results) {
                    answer.send(Ok(result));
                }
            }
        }
    }

    fn split(self: Box<Self>) -> Vec<Box<dyn WriteJob>> {
        let requests = self.batches.into_iter().zip(self.answers);
        let one = |(batch, answer)| {
            Box::new(AppendJob { batches: vec![batch], answers: vec![answer], results: Vec::new() })
                as Box<dyn WriteJob>
        };
        requests.map(one).collect()
    }
}

fn fail_all<T>(answers: Vec<ReplySender<T>>, error: &StoreError) {
    for answer in answers {
        answer.send(Err(error::clone_error(error)));
    }
}

/// A change of one roster entry.
pub(crate) struct RosterRequest {
    pub(crate) owner: AddressId,
    pub(crate) contact: Jid,
    decision: RosterDecision,
    reply: PendingReply<RosterUpdateOutcome>,
}

/// A decision of a caller, made once: it may report to its caller while it decides. When its transaction is lost, the
/// decision stands if the entry is the same, and the call fails with `Conflict` if another node has changed it.
enum RosterDecision {
    Open(RosterUpdateFn),
    Made { before: Option<RosterItem>, update: RosterUpdate },
    Failed,
}

impl RosterRequest {
    pub(super) fn new(
        owner: AddressId,
        contact: Jid,
        decision: RosterUpdateFn,
        answer: ReplySender<RosterUpdateOutcome>,
    ) -> RosterRequest {
        RosterRequest {
            owner,
            contact,
            decision: RosterDecision::Open(decision),
            reply: PendingReply::new(answer),
        }
    }

    /// The decision on an entry.
    pub(crate) fn decide(&mut self, entry: Option<&RosterItem>) -> Result<RosterUpdate, StoreError> {
        match std::mem::replace(&mut self.decision, RosterDecision::Failed) {
            RosterDecision::Open(decision) => {
                let update = run_update(decision, entry.cloned())?;
                self.decision = RosterDecision::Made { before: entry.cloned(), update: update.clone() };
                Ok(update)
            }
            RosterDecision::Made { before, update } if before.as_ref() == entry => {
                self.decision = RosterDecision::Made { before, update: update.clone() };
                Ok(update)
            }
            RosterDecision::Made { .. } => {
                let message = "another node changed the roster entry; nothing was stored";
                Err(StoreError::new(StoreErrorKind::Conflict, message))
            }
            RosterDecision::Failed => {
                let message = "a roster change failed; nothing was stored";
                Err(StoreError::new(StoreErrorKind::Internal, message))
            }
        }
    }

    /// Completes the result with the number that the contact's address was assigned.
    pub(crate) fn assign_number(&mut self, number: Option<AddressId>) {
        if let (Some(number), Some(Ok(outcome))) = (number, &mut self.reply.result) {
            for item in [&mut outcome.before, &mut outcome.after].into_iter().flatten() {
                item.contact = number;
            }
        }
    }

    /// Holds back the result until the commit.
    pub(crate) fn set_result(&mut self, result: Result<RosterUpdateOutcome, StoreError>) {
        self.reply.set(result);
    }
}

impl MergeableRequest for RosterRequest {
    type Output = RosterUpdateOutcome;

    fn owner(&self) -> Owner {
        Owner::Id(self.owner)
    }

    fn reply(&self) -> &PendingReply<RosterUpdateOutcome> {
        &self.reply
    }

    fn into_reply(self) -> PendingReply<RosterUpdateOutcome> {
        self.reply
    }

    fn run_all<'a>(
        conn: &'a mut DbConnection,
        requests: &'a mut [RosterRequest],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(roster::update_many(conn, requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn weight() -> QueuedBytes {
        QueuedBytes(Arc::new(AtomicUsize::new(1)), 1)
    }

    fn id(number: u32) -> AddressId {
        AddressId::new(number).unwrap()
    }

    fn append(owner: u32) -> WriteRequest {
        let message =
            OfflineMessage { owner: id(owner), sender: 0, stored_at: 1, expires: None, stanza: vec![] };
        let quota = store::Quota::messages_only(1);
        let request = AppendRequest { messages: vec![message], quota, answer: ReplySender::new().0 };
        WriteRequest::Append(request, weight())
    }

    fn removal(owner: u32) -> WriteRequest {
        let reply = PendingReply::new(ReplySender::new().0);
        WriteRequest::Removal(RemovalRequest { owner: id(owner), first: 0, last: 1, reply }, weight())
    }

    fn tokens(name: &str) -> WriteRequest {
        let reply = PendingReply::new(ReplySender::new().0);
        WriteRequest::Tokens(
            Box::new(TokensRequest::new(name.into(), None, Box::new(|_| None), reply)),
            weight(),
        )
    }

    fn owners_of_jobs(requests: Vec<WriteRequest>) -> Vec<Vec<Owner>> {
        let mut owners_of_jobs = Vec::new();
        for job in merge(requests.into_iter()).jobs {
            let mut owners = Vec::new();
            job.owners(&mut owners);
            owners_of_jobs.push(owners);
        }
        owners_of_jobs
    }

    #[test]
    fn requests_of_a_kind_are_one_job_although_others_are_between_them() {
        let requests =
            vec![append(1), tokens("a"), removal(2), append(3), tokens("b"), removal(4), append(1)];
        let name = |name: &str| Owner::Name(name.into());
        let jobs = [
            vec![Owner::Id(id(1)), Owner::Id(id(3)), Owner::Id(id(1))],
            vec![name("a"), name("b")],
            vec![Owner::Id(id(2)), Owner::Id(id(4))],
        ];
        assert_eq!(owners_of_jobs(requests), jobs);
    }

    #[test]
    fn a_removal_and_an_append_of_one_account_keep_their_order() {
        let own = |owner| Owner::Id(id(owner));
        let requests = vec![append(1), append(2), removal(2), append(3), append(2)];
        assert_eq!(
            owners_of_jobs(requests),
            [vec![own(1), own(2)], vec![own(3)], vec![own(2)], vec![own(2)]]
        );
    }
}
