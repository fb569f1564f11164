//! Limits of the requests to a source of accounts: how many are in progress, how many wait, and how long a call may take.
//!
//! # Pitfalls
//!
//! The deadline of a call begins before it waits, because a client waits for both.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use environment::account_provider::{ProviderError, ProviderErrorKind};
use tokio::sync::{Semaphore, SemaphorePermit};

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
    permits: Semaphore,
    waiting: AtomicUsize,
}

/// Counts a waiting call until it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestLimiter {
    /// Nothing is in progress.
    pub fn new(limits: RequestLimits) -> RequestLimiter {
        let permits = Semaphore::new(limits.in_progress.clamp(1, Semaphore::MAX_PERMITS));
        RequestLimiter { limits, permits, waiting: AtomicUsize::new(0) }
    }

    /// Runs a request within the limits. `source` names the provider in errors.
    ///
    /// # Errors
    /// `Overloaded` if too many calls wait, `Timeout` after the deadline; otherwise that of the request.
    pub async fn run<T>(
        &self,
        source: &str,
        request: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let call = async {
            let permit = self.acquire(source).await?;
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

    async fn acquire(&self, source: &str) -> Result<SemaphorePermit<'_>, ProviderError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = WaitingGuard(&self.waiting);
        if before >= self.limits.waiting {
            let text = format!("{} requests to {source} wait already", self.limits.waiting);
            return Err(ProviderError::new(ProviderErrorKind::Overloaded, text));
        }
        let closed =
            |_| ProviderError::new(ProviderErrorKind::Unavailable, format!("{source} is being closed"));
        self.permits.acquire().await.map_err(closed)
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
        let mut first = pin!(limiter.run("x", std::future::pending::<Result<(), ProviderError>>()));
        assert!(poll_once(first.as_mut()).await.is_pending());
        let mut second = pin!(limiter.run("x", async { Ok(2) }));
        assert!(poll_once(second.as_mut()).await.is_pending());
        let third = limiter.run("x", async { Ok(3) }).await;
        assert_eq!(third.unwrap_err().kind, ProviderErrorKind::Overloaded);
        assert_eq!(first.await.unwrap_err().kind, ProviderErrorKind::Timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_leaves_its_place_to_the_next() {
        let limiter = limiter(1, 1);
        {
            let mut first = pin!(limiter.run("x", std::future::pending::<Result<(), ProviderError>>()));
            assert!(poll_once(first.as_mut()).await.is_pending());
            let mut second = pin!(limiter.run("x", async { Ok(2) }));
            assert!(poll_once(second.as_mut()).await.is_pending());
        }
        assert_eq!(limiter.run("x", async { Ok(4) }).await, Ok(4));
        assert_eq!(limiter.waiting.load(Ordering::Relaxed), 0);
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
        let (first, second) = tokio::join!(limiter.run("x", slow), limiter.run("x", slow_too));
        assert_eq!(first, Ok(()));
        assert_eq!(second.unwrap_err().kind, ProviderErrorKind::Timeout);
    }
}
