//! Store wrapper that counts calls and can be made to fail.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use base::lock::LeafMutex;
use jid::JidRef;
use store::observed::{StoreObserver, observe};
use store::{
    AccountSecrets, AddressId, Login, LoginAttempt, Logins, ProofFn, StoreError, StoreErrorKind, StoreFuture,
    Stores,
};

/// Store whose calls are counted.
pub struct CountingStore {
    inner: Stores,
    calls: LeafMutex<Vec<&'static str>>,
    failing: AtomicBool,
    held: LeafMutex<Option<&'static str>>,
    between: LeafMutex<Option<Act>>,
    before_tokens: LeafMutex<Option<Act>>,
    proofs_late: AtomicBool,
    late_proofs: LeafMutex<Vec<ProofFn>>,
}

type Act = Box<dyn FnOnce(&Stores) + Send>;

impl CountingStore {
    /// Wraps `inner`.
    pub fn new(inner: Stores) -> Arc<CountingStore> {
        Arc::new(CountingStore {
            inner,
            calls: LeafMutex::default(),
            failing: AtomicBool::new(false),
            held: LeafMutex::default(),
            between: LeafMutex::default(),
            before_tokens: LeafMutex::default(),
            proofs_late: AtomicBool::new(false),
            late_proofs: LeafMutex::default(),
        })
    }

    /// Returns and clears the names of the calls since the last time, as `need.method`.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.calls.lock())
    }

    /// Makes every call fail with `Unavailable`, or none.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Keeps the results of calls of this name, such as `rooms.append`, until the next call of this function.
    pub fn hold(&self, name: Option<&'static str>) {
        *self.held.lock() = name;
    }

    fn holds(&self, name: &'static str) -> bool {
        *self.held.lock() == Some(name)
    }

    /// Runs `act` once, between the proof of the next login and the reads after it.
    pub fn after_proof(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        *self.between.lock() = Some(Box::new(act));
    }

    /// Runs `act` once, before the next update of tokens.
    pub fn before_tokens(&self, act: impl FnOnce(&Stores) + Send + 'static) {
        *self.before_tokens.lock() = Some(Box::new(act));
    }

    /// Makes every proof miss its deadline, or none. The closures are kept until the store is dropped.
    pub fn set_proofs_late(&self, late: bool) {
        self.proofs_late.store(late, Ordering::Relaxed);
    }

    fn act(&self, act: &LeafMutex<Option<Act>>) {
        let act = act.lock().take();
        if let Some(act) = act {
            act(&self.inner);
        }
    }

    /// The bundle whose calls are counted.
    pub fn stores(self: &Arc<Self>) -> Stores {
        Stores { logins: self.clone(), ..observe(self.inner.clone(), self.clone()) }
    }
}

impl StoreObserver for CountingStore {
    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce() -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        if name == "tokens.update_tokens" {
            self.act(&self.before_tokens);
        }
        self.calls.lock().push(name);
        if self.failing.load(Ordering::Relaxed) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "the test switched the store off");
            return Box::pin(std::future::ready(Err(error)));
        }
        if !self.holds(name) {
            return call();
        }
        let result = call();
        Box::pin(async move {
            poll_fn(|_| if self.holds(name) { Poll::Pending } else { Poll::Ready(()) }).await;
            result.await
        })
    }

    fn queue(&self, name: &'static str) {
        self.calls.lock().push(name);
    }
}

impl Logins for CountingStore {
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>> {
        self.call("logins.secrets", || self.inner.logins.secrets(account))
    }

    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>> {
        self.act(&self.between);
        self.call("logins.login", || self.inner.logins.login(account, revision))
    }

    /// Counted as separate reads: the rest only if the proof is correct and the account enabled.
    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>> {
        if self.proofs_late.load(Ordering::Relaxed) {
            self.late_proofs.lock().push(proof);
            let error = StoreError::new(StoreErrorKind::Timeout, "the test made the proof late");
            return self.call("logins.secrets", || Box::pin(std::future::ready(Err(error))));
        }
        let (between, inner) = (self.between.lock().take(), self.inner.clone());
        let proof: ProofFn = Box::new(move |secrets| {
            let right = proof(secrets);
            if let Some(act) = between.filter(|_| right) {
                act(&inner);
            }
            right
        });
        let call = self.call("logins.secrets", || self.inner.logins.prove(account, proof));
        Box::pin(async move {
            let attempt = call.await?;
            if attempt.as_ref().is_some_and(|attempt| attempt.login.is_some()) {
                self.calls.lock().push("logins.login");
            }
            Ok(attempt)
        })
    }
}
