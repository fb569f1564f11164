//! Calls of the store that run at the same time, so that they share commits and round trips.

use std::pin::Pin;
use std::task::Poll;

use store::StoreError;

/// Runs calls, of which `limit` are in flight; the results are in their order. A call is made only when it begins, so
/// that its data need not exist before.
///
/// # Errors
/// The first error. Calls in flight are dropped, and others are not made.
pub(crate) async fn run_all<T, F>(
    calls: impl IntoIterator<Item = F>,
    limit: usize,
) -> Result<Vec<T>, StoreError>
where
    F: Future<Output = Result<T, StoreError>> + Unpin,
{
    let mut waiting = calls.into_iter();
    let mut running: Vec<(usize, F)> = Vec::with_capacity(limit);
    let mut results: Vec<Option<T>> = Vec::new();
    std::future::poll_fn(|cx| {
        loop {
            while running.len() < limit
                && let Some(call) = waiting.next()
            {
                running.push((results.len(), call));
                results.push(None);
            }
            let before = running.len();
            let mut failed = None;
            running.retain_mut(|(at, call)| match Pin::new(call).poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(result)) => {
                    if let Some(place) = results.get_mut(*at) {
                        *place = Some(result);
                    }
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            if let Some(error) = failed {
                return Poll::Ready(Err(error));
            }
            if running.is_empty() && before < limit {
                return Poll::Ready(Ok(()));
            }
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await?;
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use store::StoreErrorKind;
    use store::conformance::block_on_ready;

    type TestCall<'a> = Pin<Box<dyn Future<Output = Result<usize, StoreError>> + 'a>>;

    #[test]
    fn results_have_the_order_of_the_calls_and_the_limit_holds() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        // Calls that end in another order than they begin.
        let call = |number: usize| -> TestCall<'_> {
            let mut polls = (7 * number) % 5;
            let (running, most) = (&running, &most);
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            Box::pin(poll_fn(move |cx| {
                if polls > 0 {
                    polls -= 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                running.set(running.get() - 1);
                Poll::Ready(Ok(number))
            }))
        };
        for (calls, limit) in [(0, 4), (3, 4), (4, 4), (50, 4), (5, 1)] {
            most.set(0);
            let mut all = std::pin::pin!(run_all((0..calls).map(call), limit));
            let waker = std::task::Waker::noop();
            let mut cx = std::task::Context::from_waker(waker);
            let found = loop {
                if let Poll::Ready(found) = all.as_mut().poll(&mut cx) {
                    break found.unwrap();
                }
            };
            assert_eq!(found, (0..calls).collect::<Vec<_>>());
            assert_eq!((running.get(), most.get()), (0, calls.min(limit)));
        }
    }

    #[test]
    fn after_an_error_no_further_call_is_made() {
        let made = RefCell::new(Vec::new());
        let call = |number: usize| {
            made.borrow_mut().push(number);
            let failed = StoreError::new(StoreErrorKind::Overloaded, "test");
            std::future::ready(if number == 1 { Err(failed) } else { Ok(number) })
        };
        let error = block_on_ready(run_all((0..10).map(call), 2)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Overloaded);
        assert_eq!(*made.borrow(), [0, 1]);
    }
}
