//! State of features that outlives hosts: a reload builds new handlers, which share it with the old ones.
//!
//! Handlers are built anew with each host. State that a feature holds between stanzas, outside of sessions and
//! accounts (recipient queues, caches, counters), is created with
//! [`crate::feature::FeatureBuilder::shared_state`]: the first host of a domain creates it, all later ones
//! share it. It remains when its module is disabled or its domain removed, because tasks may still use it, and
//! is found again when they return.
//!
//! # Pitfalls
//!
//! Options must not be part of such state, because it is older than they are, and a host under construction may
//! be discarded. Hold them in the closure and pass them with each call.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use base::lock::LeafMutex;
use throng_core::domain_counters::{self, DomainCounters};

use crate::periodic_job::PeriodicJobStates;

type Key = (Box<str>, &'static str, TypeId);

/// State by domain, feature and type. Clones share the same state. At most one entry for each of these, so it
/// is bounded by the domains that were ever served.
#[derive(Clone, Default)]
pub struct FeatureState(
    Arc<LeafMutex<HashMap<Key, Arc<dyn Any + Send + Sync>>>>,
    Arc<LeafMutex<CountersByDomain>>,
    Arc<PeriodicJobStates>,
);

/// Counters by domain, and the shared ones of domains beyond the limit.
#[derive(Default)]
struct CountersByDomain {
    own: HashMap<Box<str>, Arc<DomainCounters>>,
    shared: Option<Arc<DomainCounters>>,
}

impl FeatureState {
    /// The state of this type, created if there is none.
    pub(crate) fn get_or_create<T: Send + Sync + 'static>(
        &self,
        domain: &str,
        owner: &'static str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut all = self.0.lock();
        let key = (domain.into(), owner, TypeId::of::<T>());
        if let Some(found) = all.get(&key).cloned().and_then(|any| any.downcast::<T>().ok()) {
            return found;
        }
        let made = Arc::new(make());
        all.insert(key, made.clone());
        made
    }

    /// State of periodic jobs.
    pub(crate) fn periodic_job_states(&self) -> Arc<PeriodicJobStates> {
        self.2.clone()
    }

    /// The counters of a domain; the shared ones after [`domain_counters::MAX_DOMAINS`] domains.
    pub(crate) fn domain_counters(&self, domain: &str) -> Arc<DomainCounters> {
        let mut all = self.1.lock();
        if let Some(own) = all.own.get(domain) {
            return own.clone();
        }
        if all.own.len() >= domain_counters::MAX_DOMAINS {
            return all.shared.get_or_insert_with(|| Arc::new(DomainCounters::shared())).clone();
        }
        let own = Arc::<DomainCounters>::default();
        all.own.insert(domain.into(), own.clone());
        own
    }
}

impl std::fmt::Debug for FeatureState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FeatureState({})", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn domain_counters_are_retained_and_bounded() {
        let state = FeatureState::default();
        let first = state.domain_counters("d0.org");
        let all: Vec<_> = (0..domain_counters::MAX_DOMAINS + 2)
            .map(|n| state.domain_counters(&format!("d{n}.org")))
            .collect();
        assert!(Arc::ptr_eq(&first, &all[0]));
        assert!(!Arc::ptr_eq(&all[0], &all[1]));
        assert!(
            Arc::ptr_eq(&all[domain_counters::MAX_DOMAINS], &all[domain_counters::MAX_DOMAINS + 1]),
            "the rest share one set"
        );
        assert!(Arc::ptr_eq(&all[1], &state.clone().domain_counters("d1.org")), "a reload finds them again");
    }

    #[test]
    fn state_is_created_once_for_each_domain_feature_and_type() {
        let state = FeatureState::default();
        state.get_or_create("a.org", "offline", || AtomicU32::new(1)).store(7, Ordering::Relaxed);
        let again = state.clone().get_or_create("a.org", "offline", || AtomicU32::new(1));
        assert_eq!(again.load(Ordering::Relaxed), 7);
        for (domain, owner) in [("b.org", "offline"), ("a.org", "caps")] {
            let other = state.get_or_create(domain, owner, || AtomicU32::new(1));
            assert_eq!(other.load(Ordering::Relaxed), 1, "{domain} {owner}");
        }
        assert_eq!(*state.get_or_create("a.org", "offline", || 5_u8), 5);
    }
}
