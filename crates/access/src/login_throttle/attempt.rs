//! Login attempts that count from the start of their check: passwords and bearer tokens, whose check takes time.
//!
//! While an attempt is in progress it counts as if it had failed. One that the limits permit only if others succeed waits until
//! these are decided: any number of users may log in through one address at the same time, and at most as many guesses as the
//! limit are passed on. The number of connections bounds those that wait.
//!
//! Those that wait for the same count take turns. The end of an attempt wakes the first of them, which wakes the next one when
//! it does not wait for that count any more.
//!
//! # Pitfalls
//!
//! A provider may receive a guess although its client is gone. So the check goes on without the client
//! ([`Attempt::run`]): otherwise guesses on connections that are closed at once would not be counted.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::spawn::{BoxFuture, Spawner};
use throng_core::{Node, NodeLimits};

use super::{AttemptKeys, FailureKey, LoginLimit, LoginThrottle, Tables, login_throttle};

/// Attempts in progress under one key.
#[derive(Default)]
pub(super) struct PendingAttempts {
    count: u32,
    /// Attempts by group of accounts; see [`AttemptKeys::account_group`].
    groups: BTreeMap<u32, u32>,
}

impl PendingAttempts {
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Bit for each group of accounts.
    pub(super) fn accounts(&self) -> u128 {
        self.groups.keys().fold(0, |groups, group| groups | 1 << group)
    }

    fn add(&mut self, group: u32) {
        self.count = self.count.saturating_add(1);
        *self.groups.entry(group).or_default() += 1;
    }

    fn remove(&mut self, group: u32) {
        self.count = self.count.saturating_sub(1);
        if let Some(count) = self.groups.get_mut(&group) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.groups.remove(&group);
            }
        }
    }
}

/// Attempts that wait for others, by the key of the count that is full, in the order in which they came.
#[derive(Default)]
pub(super) struct WaitingAttempts {
    by_key: HashMap<FailureKey, BTreeMap<u64, Waker>>,
    next_id: u64,
}

/// The place of an attempt that waits.
#[derive(Clone, Copy)]
struct WaitingPlace {
    key: FailureKey,
    id: u64,
}

impl WaitingAttempts {
    fn new_place(&mut self, key: FailureKey) -> WaitingPlace {
        self.next_id += 1;
        WaitingPlace { key, id: self.next_id }
    }

    fn wait(&mut self, place: WaitingPlace, waker: &Waker) {
        self.by_key.entry(place.key).or_default().insert(place.id, waker.clone());
    }

    /// Gives up a place; returns the waker of the first attempt that still waits for the same.
    fn leave(&mut self, place: WaitingPlace) -> Option<Waker> {
        if let Some(waiting) = self.by_key.get_mut(&place.key) {
            waiting.remove(&place.id);
            if waiting.is_empty() {
                self.by_key.remove(&place.key);
            }
        }
        self.first(&place.key)
    }

    fn first(&self, key: &FailureKey) -> Option<Waker> {
        self.by_key.get(key)?.values().next().cloned()
    }
}

/// What is known about a secret when its attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It is right.
    Succeeded,
    /// It is wrong, or there is no such account.
    Failed,
    /// It could not be checked, or it is counted elsewhere. The attempt is not counted.
    Undecided,
}

/// An attempt in progress; counted until it ends. One that is dropped is not decided.
#[must_use = "the attempt ends when it is dropped"]
pub struct Attempt {
    node: Arc<Node>,
    reserved: Option<ReservedAttempt>,
}

/// The keys under which an attempt is counted while it is in progress.
#[derive(Clone, Copy, Debug)]
struct ReservedAttempt {
    keys: AttemptKeys,
    /// Only the failures of the account from the address mattered at its begin.
    alone: bool,
}

/// Why an attempt may not begin.
enum BeginRefusal {
    /// The limit was reached.
    Limit(LoginLimit),
    /// Attempts in progress would reach a limit if they fail: the count under this key.
    Full(FailureKey),
}

/// Begins an attempt as soon as the limits permit it. Fails with the limit that was reached.
pub fn begin(node: &Arc<Node>, keys: AttemptKeys) -> BeginAttempt {
    BeginAttempt { node: node.clone(), throttle: login_throttle(node), keys, place: None }
}

/// Future of [`begin`].
pub struct BeginAttempt {
    node: Arc<Node>,
    throttle: Arc<LoginThrottle>,
    keys: AttemptKeys,
    place: Option<WaitingPlace>,
}

impl Future for BeginAttempt {
    type Output = Result<Attempt, LoginLimit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (limits, now) = (this.node.limits(), this.node.seconds());
        let mut tables = this.throttle.tables.lock();
        let begun = tables.try_begin(&limits, now, &this.keys);
        let full = if let Err(BeginRefusal::Full(key)) = &begun { Some(*key) } else { None };
        let mut next = None;
        if let Some(place) = this.place.take_if(|place| Some(place.key) != full) {
            // The next one may begin, too, or must be refused.
            next = tables.waiting.leave(place);
        }
        if let Some(key) = full {
            let place = *this.place.get_or_insert_with(|| tables.waiting.new_place(key));
            tables.waiting.wait(place, cx.waker());
        }
        drop(tables);
        if let Some(next) = next {
            next.wake();
        }
        match begun {
            Ok(reserved) => Poll::Ready(Ok(Attempt { node: this.node.clone(), reserved: Some(reserved) })),
            Err(BeginRefusal::Limit(limit)) => Poll::Ready(Err(limit)),
            Err(BeginRefusal::Full(_)) => Poll::Pending,
        }
    }
}

impl Drop for BeginAttempt {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // This one may have been woken for the next one.
            let next = self.throttle.tables.lock().waiting.leave(place);
            if let Some(next) = next {
                next.wake();
            }
        }
    }
}

impl Attempt {
    /// Runs the check of the secret and ends the attempt with its outcome. If the caller stops waiting, the check goes on in a
    /// task.
    ///
    /// # Errors
    /// The limit that was reached meanwhile. The caller must answer in the same way for a right and a wrong secret.
    pub async fn run<T: Send + 'static>(
        self,
        check: impl Future<Output = (AttemptOutcome, T)> + Send + 'static,
    ) -> Result<T, LoginLimit> {
        let spawner = self.node.spawner.clone();
        let check: BoxFuture<'static, Result<T, LoginLimit>> = Box::pin(async move {
            let (outcome, result) = check.await;
            self.finish(outcome).map(|()| result)
        });
        FinishOnDrop { check: Some(check), spawner }.await
    }

    /// Ends the attempt and counts its outcome.
    ///
    /// # Errors
    /// The limit that was reached meanwhile. The answer must be the same for a right and a wrong secret.
    pub fn finish(mut self, outcome: AttemptOutcome) -> Result<(), LoginLimit> {
        self.end(outcome)
    }

    fn end(&mut self, outcome: AttemptOutcome) -> Result<(), LoginLimit> {
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        let (node, throttle) = (&self.node, login_throttle(&self.node));
        let mut tables = throttle.tables.lock();
        let woken = tables.release(&reserved);
        let counted = match outcome {
            AttemptOutcome::Undecided => Ok(()),
            outcome => {
                let valid = outcome == AttemptOutcome::Succeeded;
                tables.check_and_record(&node.limits(), node.seconds(), &reserved.keys, valid)
            }
        };
        drop(tables);
        if outcome != AttemptOutcome::Undecided {
            throttle.request_report();
        }
        woken.into_iter().flatten().for_each(Waker::wake);
        counted
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Without an outcome no limit can refuse anything.
        let _ = self.end(AttemptOutcome::Undecided);
    }
}

/// A check that goes on in a task when it is dropped.
struct FinishOnDrop<T: Send + 'static> {
    check: Option<BoxFuture<'static, T>>,
    spawner: Arc<dyn Spawner>,
}

impl<T: Send + 'static> Future for FinishOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken meanwhile, so that a check that panics is not polled again.
        let Some(mut check) = self.check.take() else { return Poll::Pending };
        let polled = check.as_mut().poll(cx);
        if polled.is_pending() {
            self.check = Some(check);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for FinishOnDrop<T> {
    fn drop(&mut self) {
        if let Some(check) = self.check.take() {
            self.spawner.spawn("login-check", Box::pin(async move { drop(check.await) }));
        }
    }
}

impl Tables {
    fn try_begin(
        &mut self,
        limits: &NodeLimits,
        now: u32,
        keys: &AttemptKeys,
    ) -> Result<ReservedAttempt, BeginRefusal> {
        self.check(limits, now, keys).map_err(BeginRefusal::Limit)?;
        if let Some((_, full)) = self.reached(limits, now, keys, true) {
            return Err(BeginRefusal::Full(full));
        }
        let reserved = ReservedAttempt { keys: *keys, alone: self.only_pair_limit_applies(keys) };
        for key in reserved.counted_under().into_iter().flatten() {
            self.pending.entry(key).or_default().add(keys.account_group());
        }
        Ok(reserved)
    }

    /// Stops counting an attempt in progress; returns the wakers of those whose turn it may be.
    fn release(&mut self, reserved: &ReservedAttempt) -> [Option<Waker>; 3] {
        reserved.counted_under().map(|key| {
            let key = key?;
            let pending = self.pending.get_mut(&key)?;
            pending.remove(reserved.keys.account_group());
            if pending.count == 0 {
                self.pending.remove(&key);
            }
            self.waiting.first(&key)
        })
    }
}

impl ReservedAttempt {
    fn counted_under(&self) -> [Option<FailureKey>; 3] {
        let keys = &self.keys;
        let (account, address) = match self.alone {
            true => (None, None),
            false => (Some(keys.account_failures()), keys.address_failures()),
        };
        [Some(keys.pair_failures()), account, address]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::low_limits;
    use super::*;
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use testkit::engine::TestNode;

    const HERE: &str = "192.0.2.1";

    fn test_node() -> TestNode {
        TestNode::with_limits(&[], low_limits())
    }

    fn keys(node: &Arc<Node>, peer: &str, account: &str, token: bool) -> AttemptKeys {
        login_throttle(node).keys(peer.parse::<IpAddr>().unwrap(), account, token)
    }

    /// Polls a future once.
    fn poll<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn begun(node: &Arc<Node>, peer: &str, account: &str) -> Option<Result<Attempt, LoginLimit>> {
        poll(&mut boxed(node, keys(node, peer, account, false)))
    }

    fn boxed(node: &Arc<Node>, keys: AttemptKeys) -> BoxFuture<'_, Result<Attempt, LoginLimit>> {
        Box::pin(begin(node, keys))
    }

    /// Nothing is in progress and nothing waits.
    fn is_empty(node: &Arc<Node>) -> bool {
        let throttle = login_throttle(node);
        let tables = throttle.tables.lock();
        tables.pending.is_empty() && tables.waiting.by_key.is_empty()
    }

    #[test]
    fn an_attempt_counts_from_its_begin() {
        let engine = test_node();
        let node = &engine.node;
        let first: Vec<_> = (0..3).map(|_| begun(node, HERE, "juliet@x").unwrap().unwrap()).collect();
        let mut waiting = boxed(node, keys(node, HERE, "juliet@x", false));
        assert!(poll(&mut waiting).is_none(), "three may fail");
        let others = [(HERE, "romeo@x"), ("192.0.2.2", "juliet@x")]
            .map(|(peer, account)| begun(node, peer, account).unwrap().unwrap());
        for attempt in first {
            assert_eq!(attempt.finish(AttemptOutcome::Failed), Ok(()));
        }
        assert_eq!(poll(&mut waiting).unwrap().err(), Some(LoginLimit::Pair));
        drop(others);
        assert!(is_empty(node));
    }

    #[test]
    fn what_did_not_fail_gives_its_count_back() {
        let engine = test_node();
        let node = &engine.node;
        for outcome in [AttemptOutcome::Succeeded, AttemptOutcome::Undecided] {
            for _ in 0..50 {
                begun(node, HERE, "juliet@x").unwrap().unwrap().finish(outcome).unwrap();
                drop(begun(node, HERE, "juliet@x").unwrap().unwrap());
            }
        }
        assert!(is_empty(node));
    }

    #[test]
    fn attempts_across_accounts_and_addresses_are_limited_while_they_are_in_progress() {
        let engine = test_node();
        let node = &engine.node;
        let many = |next: &dyn Fn(usize) -> (String, String)| {
            let attempts: Vec<_> =
                (0..50).filter_map(|n| begun(node, &next(n).0, &next(n).1)).map(Result::unwrap).collect();
            attempts.len()
        };
        let accounts = many(&|n| (HERE.to_owned(), format!("user{n}@x")));
        assert!((4..=8).contains(&accounts), "{accounts} accounts where 5 are allowed");
        assert_eq!(many(&|n| (format!("192.0.2.{n}"), "juliet@x".to_owned())), 8);
        assert_eq!(many(&|n| (HERE.to_owned(), format!("user{}@x", n % 4))), 10);
        assert!(is_empty(node));
    }

    #[test]
    fn users_behind_one_address_take_turns_and_all_log_in() {
        let engine = test_node();
        let node = &engine.node;
        let mut waiting: Vec<_> =
            (0..500).map(|n| boxed(node, keys(node, HERE, &format!("user{n}@x"), false))).collect();
        let mut rounds = 0;
        while !waiting.is_empty() {
            rounds += 1;
            assert!(rounds < 600, "{} are stuck", waiting.len());
            let mut granted = Vec::new();
            waiting.retain_mut(|attempt| match poll(attempt) {
                Some(attempt) => {
                    granted.push(attempt.unwrap());
                    false
                }
                None => true,
            });
            assert!((1..=8).contains(&granted.len()), "{}", granted.len());
            granted.into_iter().for_each(|attempt| attempt.finish(AttemptOutcome::Succeeded).unwrap());
        }
        assert!(is_empty(node));
    }

    /// The waiters are polled only when they are woken, as by a runtime.
    #[test]
    fn every_waiter_is_woken_although_some_leave_and_others_wait_for_another_limit() {
        let engine = test_node();
        let node = &engine.node;
        let done = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut handles = Vec::new();
            for n in 0..300 {
                let (node, done) = (node.clone(), done.clone());
                let keys = keys(
                    &node,
                    if n % 3 == 0 { "192.0.2.9" } else { HERE },
                    &format!("user{}@x", n % 40),
                    false,
                );
                handles.push(tokio::runtime::Handle::current().spawn(async move {
                    let attempt = begin(&node, keys).await.unwrap();
                    tokio::task::yield_now().await;
                    attempt.finish(AttemptOutcome::Succeeded).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }));
            }
            tokio::task::yield_now().await;
            for handle in handles.iter().step_by(7) {
                handle.abort();
            }
            for handle in handles {
                let _ = handle.await;
            }
        });
        assert!(done.load(Ordering::Relaxed) >= 300 - 43);
        assert!(is_empty(node));
    }

    #[test]
    fn a_check_goes_on_without_its_caller_and_is_counted() {
        let engine = test_node();
        let node = &engine.node;
        for _ in 0..3 {
            let attempt = begun(node, HERE, "juliet@x").unwrap().unwrap();
            let check = async {
                base::spawn::yield_now().await;
                (AttemptOutcome::Failed, ())
            };
            let mut running: BoxFuture<'_, _> = Box::pin(attempt.run(check));
            assert!(poll(&mut running).is_none());
            drop(running);
        }
        assert!(begun(node, HERE, "juliet@x").is_none(), "they are in progress");
        engine.run_tasks();
        assert_eq!(begun(node, HERE, "juliet@x").unwrap().err(), Some(LoginLimit::Pair));
    }

    #[test]
    fn tokens_and_known_clients_are_counted_by_address_and_account_only() {
        let engine = test_node();
        let node = &engine.node;
        let throttle = login_throttle(node);
        let known = keys(node, HERE, "juliet@x", false);
        throttle.check_and_record(&node.limits(), node.seconds(), &known, true).unwrap();
        let crowd: Vec<_> = (0..50).filter_map(|n| begun(node, HERE, &format!("user{n}@x"))).collect();
        assert!(begun(node, HERE, "romeo@x").is_none(), "{} in progress", crowd.len());
        assert!(begun(node, HERE, "juliet@x").is_some());
        assert!(poll(&mut boxed(node, keys(node, HERE, "romeo@x", true))).is_some());
    }
}
