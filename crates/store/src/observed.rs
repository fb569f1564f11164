//! Wrapper around a bundle that passes every operation to an observer: the metrics ([`crate::instrumented`]) and the counts of
//! tests. Its methods follow from the declarations (`storage_need.rs`), so a new operation is observed without a line here.

use std::sync::Arc;

use crate::{StoreFuture, Stores};

/// Observes operations.
pub trait StoreObserver: Send + Sync + 'static {
    /// An operation, named by field and method such as `roster.get`. The observer makes the call, or fails in its place.
    fn call<'a, T: Send + 'a>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce() -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T>;

    /// A write is queued whose result nobody awaits.
    fn queue(&self, operation: &'static str) {
        let _ = operation;
    }
}

/// A bundle whose operations are observed.
pub(crate) struct ObservedStores<O> {
    pub(crate) inner: Stores,
    pub(crate) observer: Arc<O>,
}

/// Wraps a bundle.
pub fn observe<O: StoreObserver>(inner: Stores, observer: Arc<O>) -> Stores {
    Stores::from_backend(Arc::new(ObservedStores { inner, observer }))
}
