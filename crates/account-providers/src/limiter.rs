//! Limits of the requests to a source of accounts: how many are in progress, how many wait, and how long a call may take.
//!
//! A source may serve several domains. Their calls take turns, and when too many wait, those of the domain with the most of
//! them are refused: a flood of logins to one domain must not keep the users of others out.
//!
//! Not implemented: turns between the addresses of clients. The limits of connections and of failed logins for each address
//! bound what one of them can have waiting.
//!
//! # Pitfalls
//!
//! The deadline of a call begins before it waits, because a client waits for both.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base::lock::LeafMutex;
use environment::account_provider::{ProviderError, ProviderErrorKind};
use tokio::sync::oneshot;

/// Limits of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLimits {
    /// Requests in progress, each with a connection of its own.
    pub in_progress: usize,
    /// Requests that wait for those in progress.
    pub waiting: usize,
    /// Time for a call, including the wait.
    pub deadline: Duration,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits { in_progress: 16, waiting: 1_000, deadline: Duration::from_secs(5) }
    }
}

/// Enforces [`RequestLimits`].
#[derive(Debug)]
pub struct RequestLimiter {
    limits: RequestLimits,
    queue: Arc<LeafMutex<FairQueue>>,
}

/// Calls that wait, by domain.
#[derive(Debug)]
struct FairQueue {
    /// Requests that may begin.
    free: usize,
    waiting: usize,
    next_id: u64,
    by_domain: HashMap<String, VecDeque<WaitingCall>>,
    /// Domains with waiting calls, the next one first.
    turns: VecDeque<String>,
}

#[derive(Debug)]
struct WaitingCall {
    id: u64,
    sender: oneshot::Sender<RequestPermit>,
}

impl FairQueue {
    /// The next call.
    fn pop(&mut self) -> Option<WaitingCall> {
        while let Some(domain) = self.turns.pop_front() {
            let Some(calls) = self.by_domain.get_mut(&domain) else { continue };
            let call = calls.pop_front();
            match calls.is_empty() {
                true => drop(self.by_domain.remove(&domain)),
                false => self.turns.push_back(domain),
            }
            if let Some(call) = call {
                self.waiting -= 1;
                return Some(call);
            }
        }
        None
    }

    /// Adds a call, if need be instead of one of a domain that has more of them.
    fn push(&mut self, domain: &str, most: usize) -> Option<(u64, oneshot::Receiver<RequestPermit>)> {
        if self.waiting >= most {
            let own = self.by_domain.get(domain).map_or(0, VecDeque::len);
            let longest = self.by_domain.values_mut().max_by_key(|calls| calls.len())?;
            if longest.len() <= own + 1 {
                return None;
            }
            // The newest: it has waited least. Its caller learns it by the end of its channel.
            longest.pop_back();
            self.waiting -= 1;
        }
        let (sender, receiver) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let calls = self.by_domain.entry(domain.to_owned()).or_insert_with(|| {
            self.turns.push_back(domain.to_owned());
            VecDeque::new()
        });
        calls.push_back(WaitingCall { id, sender });
        self.waiting += 1;
        Some((id, receiver))
    }

    fn remove(&mut self, domain: &str, id: u64) {
        let Some(calls) = self.by_domain.get_mut(domain) else { return };
        let before = calls.len();
        calls.retain(|call| call.id != id);
        self.waiting -= before - calls.len();
        if calls.is_empty() {
            self.by_domain.remove(domain);
            self.turns.retain(|turn| turn != domain);
        }
    }
}

/// The right to one request; passes to the next call when it is dropped.
#[derive(Debug)]
struct RequestPermit(Option<Arc<LeafMutex<FairQueue>>>);

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let Some(queue) = self.0.take() else { return };
        loop {
            let next = {
                let mut queue = queue.lock();
                let next = queue.pop();
                if next.is_none() {
                    queue.free += 1;
                }
                next
            };
            let Some(call) = next else { return };
            match call.sender.send(RequestPermit(Some(queue.clone()))) {
                Ok(()) => return,
                // Its caller is gone.
                Err(mut unused) => drop(unused.0.take()),
            }
        }
    }
}

/// A call that waits, until it is dropped.
struct WaitingGuard<'a> {
    queue: &'a LeafMutex<FairQueue>,
    domain: &'a str,
    id: u64,
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.queue.lock().remove(self.domain, self.id);
    }
}

impl RequestLimiter {
    /// Nothing is in progress.
    pub fn new(limits: RequestLimits) -> RequestLimiter {
        let queue = FairQueue {
            free: limits.in_progress.max(1),
            waiting: 0,
            next_id: 0,
            by_domain: HashMap::new(),
            turns: VecDeque::new(),
        };
        RequestLimiter { limits, queue: Arc::new(LeafMutex::new(queue)) }
    }

    /// Runs a request for a domain within the limits. `source` names the provider in errors.
    ///
    /// # Errors
    /// `Overloaded` if too many calls wait, `Timeout` after the deadline; otherwise that of the request.
    pub async fn run<T>(
        &self,
        source: &str,
        domain: &str,
        request: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let call = async {
            let permit = self.acquire(source, domain).await?;
            let result = request.await;
            drop(permit);
            result
        };
        match tokio::time::timeout(self.limits.deadline, call).await {
            Ok(result) => result,
            Err(_) => {
                let text = format!("{source} did not answer within {} ms", self.limits.deadline.as_millis());
                Err(ProviderError::new(ProviderErrorKind::Timeout, text))
            }
        }
    }

    async fn acquire(&self, source: &str, domain: &str) -> Result<RequestPermit, ProviderError> {
        let overloaded = || {
            let text = format!("{} requests to {source} wait already", self.limits.waiting);
            ProviderError::new(ProviderErrorKind::Overloaded, text)
        };
        let waiting = {
            let mut queue = self.queue.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Ok(RequestPermit(Some(self.queue.clone())));
            }
            queue.push(domain, self.limits.waiting)
        };
        let (id, receiver) = waiting.ok_or_else(overloaded)?;
        let _waiting = WaitingGuard { queue: &self.queue, domain, id };
        receiver.await.map_err(|_| overloaded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Poll;

    fn limiter(in_progress: usize, waiting: usize) -> RequestLimiter {
        RequestLimiter::new(RequestLimits { in_progress, waiting, deadline: Duration::from_secs(2) })
    }

    async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let mut future = Some(future);
        std::future::poll_fn(|cx| match future.take() {
            Some(future) => Poll::Ready(future.poll(cx)),
            None => Poll::Pending,
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_above_the_limit_wait_and_calls_above_the_queue_are_refused() {
        let limiter = limiter(1, 1);
        let mut first = pin!(limiter.run("x", "a", std::future::pending::<Result<(), ProviderError>>()));
        assert!(poll_once(first.as_mut()).await.is_pending());
        let mut second = pin!(limiter.run("x", "a", async { Ok(2) }));
        assert!(poll_once(second.as_mut()).await.is_pending());
        let third = limiter.run("x", "a", async { Ok(3) }).await;
        assert_eq!(third.unwrap_err().kind, ProviderErrorKind::Overloaded);
        assert_eq!(first.await.unwrap_err().kind, ProviderErrorKind::Timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_leaves_its_place_to_the_next() {
        let limiter = limiter(1, 1);
        {
            let mut first = pin!(limiter.run("x", "a", std::future::pending::<Result<(), ProviderError>>()));
            assert!(poll_once(first.as_mut()).await.is_pending());
            let mut second = pin!(limiter.run("x", "a", async { Ok(2) }));
            assert!(poll_once(second.as_mut()).await.is_pending());
        }
        assert_eq!(limiter.run("x", "a", async { Ok(4) }).await, Ok(4));
        let queue = limiter.queue.lock();
        assert_eq!((queue.free, queue.waiting, queue.by_domain.len(), queue.turns.len()), (1, 0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_counts_towards_the_deadline() {
        let limiter = limiter(1, 1);
        let slow = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            Ok(())
        };
        let slow_too = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            Ok(())
        };
        let (first, second) = tokio::join!(limiter.run("x", "a", slow), limiter.run("x", "a", slow_too));
        assert_eq!(first, Ok(()));
        assert_eq!(second.unwrap_err().kind, ProviderErrorKind::Timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_domain_delays_no_other() {
        let limiter = Arc::new(limiter(1, 50));
        let (finished, mut order) = tokio::sync::mpsc::channel(256);
        let start = |domain: &'static str| {
            let (limiter, finished) = (limiter.clone(), finished.clone());
            async move {
                let request = async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok(())
                };
                let result = limiter.run("x", domain, request).await;
                finished.try_send((domain, result.map_err(|error| error.kind))).unwrap();
            }
        };
        let tasks = tokio::task::LocalSet::new();
        for domain in std::iter::repeat_n("flooded", 200).chain(["quiet", "quiet"]) {
            tasks.spawn_local(start(domain));
        }
        tasks.await;
        drop(finished);
        let mut results = Vec::new();
        while let Ok(result) = order.try_recv() {
            results.push(result);
        }
        let done: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).collect();
        assert_eq!(done.len(), 51);
        let of_quiet = |n: usize| done.iter().take(n).filter(|(domain, _)| *domain == "quiet").count();
        assert_eq!(of_quiet(5), 2, "the domains take turns: {done:?}");
        let refused = results.iter().filter(|(domain, result)| *domain == "quiet" && result.is_err()).count();
        assert_eq!(refused, 0, "a place is made for them");
    }
}
