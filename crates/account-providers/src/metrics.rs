//! Metrics of account providers: latency and failures of each operation, for every provider of the node together.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Secret;
use base::clock::Clock;
use base::count::{Histogram, LATENCY_BUCKETS_MICROS};
use environment::account_provider::{
    AccountProvider, PasswordCheck, ProvidedAccount, ProviderCapabilities, ProviderError, ProviderErrorKind,
    ProviderFuture, ScramParameters, TokenCheck,
};
use jid::JidRef;

/// Names of the operations.
pub const OPERATIONS: [&str; 6] =
    ["find", "check_password", "check_token", "create", "set_password", "remove"];

/// Metrics of all providers.
#[derive(Debug)]
pub struct ProviderMetrics {
    operations: [ProviderOperationMetrics; OPERATIONS.len()],
}

/// Metrics of one operation.
#[derive(Debug)]
pub struct ProviderOperationMetrics {
    /// Microseconds from the call to its result, failures included.
    pub latency: Arc<Histogram>,
    failures: [AtomicU64; ProviderErrorKind::ALL.len()],
}

impl Default for ProviderMetrics {
    fn default() -> ProviderMetrics {
        ProviderMetrics {
            operations: std::array::from_fn(|_| ProviderOperationMetrics {
                latency: Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)),
                failures: Default::default(),
            }),
        }
    }
}

impl ProviderMetrics {
    /// The operations with their names.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &ProviderOperationMetrics)> {
        OPERATIONS.into_iter().zip(&self.operations)
    }
}

impl ProviderOperationMetrics {
    /// Failures by kind.
    pub fn failures(&self) -> impl Iterator<Item = (ProviderErrorKind, u64)> + '_ {
        ProviderErrorKind::ALL
            .into_iter()
            .zip(&self.failures)
            .map(|(kind, n)| (kind, n.load(Ordering::Relaxed)))
    }
}

/// A provider whose calls are measured.
pub struct MeasuredProvider {
    inner: Arc<dyn AccountProvider>,
    metrics: Arc<ProviderMetrics>,
    clock: Arc<dyn Clock>,
}

impl MeasuredProvider {
    /// Measures the calls of `inner`.
    pub fn new(
        inner: Arc<dyn AccountProvider>,
        metrics: Arc<ProviderMetrics>,
        clock: Arc<dyn Clock>,
    ) -> MeasuredProvider {
        MeasuredProvider { inner, metrics, clock }
    }

    fn measure<'a, T: Send + 'a>(
        &'a self,
        operation: usize,
        call: impl Future<Output = Result<T, ProviderError>> + Send + 'a,
    ) -> ProviderFuture<'a, T> {
        Box::pin(async move {
            let started = self.clock.now_micros();
            let result = call.await;
            let Some(metrics) = self.metrics.operations.get(operation) else { return result };
            metrics.latency.record(self.clock.now_micros().saturating_sub(started));
            if let Err(error) = &result
                && let Some(count) = metrics.failures.get(error.kind as usize)
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
            result
        })
    }
}

impl AccountProvider for MeasuredProvider {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.inner.capabilities()
    }

    fn scram_parameters(&self) -> Option<ScramParameters> {
        self.inner.scram_parameters()
    }

    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        self.measure(0, self.inner.find(account))
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        self.measure(1, self.inner.check_password(account, password))
    }

    fn check_token(&self, domain: &str, token: Secret) -> ProviderFuture<'_, TokenCheck> {
        self.measure(2, self.inner.check_token(domain, token))
    }

    fn create(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        self.measure(3, self.inner.create(account, password))
    }

    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        self.measure(4, self.inner.set_password(account, password))
    }

    fn remove(&self, account: JidRef<'_>) -> ProviderFuture<'_, ()> {
        self.measure(5, self.inner.remove(account))
    }
}
