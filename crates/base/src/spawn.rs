//! Task spawning for crates without a runtime: a trait that the program implements.
//!
//! Not implemented: a runtime. The program's implementation owns every task, so that shutdown can wait for them and
//! tests can run them by hand.
//!
//! # Pitfalls
//!
//! There is no task handle. A task that must be awaited or cancelled needs its own channel.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// A boxed future, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Spawns tasks.
pub trait Spawner: Send + Sync {
    /// Spawns `task`. `what` names it in logs and metrics. A panic in it must not reach the caller.
    fn spawn(&self, what: &'static str, task: BoxFuture<'static, ()>);

    /// Runs `job`, which may block or compute for long (password hashing, file reads), outside the threads that serve
    /// sockets.
    fn spawn_blocking(&self, what: &'static str, job: Box<dyn FnOnce() + Send>);

    /// Ready after about this time, for a task that lets others work first. One without a runtime, as in tests, does not wait.
    fn pause(&self, _millis: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Yields to other tasks: for work over all sessions.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs futures concurrently in the calling task; the outputs are in their order.
pub async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(move |cx| {
        for (future, output) in &mut futures {
            if let Some(running) = future
                && let Poll::Ready(value) = running.as_mut().poll(cx)
            {
                *output = Some(value);
                *future = None;
            }
        }
        if futures.iter().any(|(future, _)| future.is_some()) {
            return Poll::Pending;
        }
        Poll::Ready(futures.iter_mut().filter_map(|(_, output)| output.take()).collect())
    })
    .await
}

/// The output of a future; `None` if it panicked. What it has borrowed may be inconsistent then.
pub async fn catch_unwind<T>(mut future: BoxFuture<'_, T>) -> Option<T> {
    poll_fn(|cx| match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

impl<S: Spawner + ?Sized> Spawner for Arc<S> {
    fn spawn(&self, what: &'static str, task: BoxFuture<'static, ()>) {
        (**self).spawn(what, task);
    }

    fn spawn_blocking(&self, what: &'static str, job: Box<dyn FnOnce() + Send>) {
        (**self).spawn_blocking(what, job);
    }

    fn pause(&self, millis: u64) -> BoxFuture<'static, ()> {
        (**self).pause(millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Waker};

    /// Polls once, immediately.
    struct AtOnce;
    impl Spawner for AtOnce {
        fn spawn(&self, _what: &'static str, mut task: BoxFuture<'static, ()>) {
            assert_eq!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
        }
        fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
            job();
        }
    }

    #[test]
    fn a_future_that_panics_has_no_output() {
        let run = |mut future: BoxFuture<'static, Option<u8>>| {
            let mut polls = 0;
            loop {
                polls += 1;
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    return (output, polls);
                }
            }
        };
        let returns: BoxFuture<'static, u8> = Box::pin(async {
            yield_now().await;
            7
        });
        assert_eq!(run(Box::pin(catch_unwind(returns))), (Some(7), 2));
        let panics: BoxFuture<'static, u8> = Box::pin(async {
            yield_now().await;
            panic!("on purpose")
        });
        assert_eq!(run(Box::pin(catch_unwind(panics))), (None, 2));
    }

    #[test]
    fn a_shared_spawner_object_runs_tasks_and_jobs() {
        let ran = Arc::new(AtomicU32::new(0));
        let spawner: Arc<dyn Spawner> = Arc::new(AtOnce);
        let (a, b) = (ran.clone(), ran.clone());
        spawner.spawn(
            "task",
            Box::pin(async move {
                a.fetch_add(1, Ordering::SeqCst);
            }),
        );
        Spawner::spawn_blocking(
            &spawner,
            "job",
            Box::new(move || {
                b.fetch_add(10, Ordering::SeqCst);
            }),
        );
        assert_eq!(ran.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn joined_futures_run_at_the_same_time_and_keep_their_order() {
        let mut polls = 0;
        let futures = (1..=3).map(|needed| {
            let mut left = needed;
            poll_fn(move |_| {
                left -= 1;
                if left == 0 { Poll::Ready(needed) } else { Poll::Pending }
            })
        });
        let mut all = std::pin::pin!(join_all(futures.collect()));
        let mut cx = Context::from_waker(Waker::noop());
        let outputs = loop {
            polls += 1;
            if let Poll::Ready(outputs) = all.as_mut().poll(&mut cx) {
                break outputs;
            }
        };
        assert_eq!((polls, outputs), (3, vec![1, 2, 3]));
    }
}
