//! Counters by served domain: sessions, and stanzas from and to its clients.
//!
//! They outlive the host: a reload builds a new host with the same counters (`feature-api/src/feature_state.rs`). The first
//! [`MAX_DOMAINS`] domains of a process have separate counters and the others share one set, because each takes 6 kB.
//!
//! Not implemented: the other metrics, which count for a node and not for a domain.
//!
//! # Pitfalls
//!
//! Every stanza is counted here, so each count is one addition to a thread-local cell.

use std::sync::atomic::{AtomicU64, Ordering};

use base::count::Counter;
use stanza::StanzaKind;

use crate::kind_index;

/// Maximum number of domains with separate counters.
pub const MAX_DOMAINS: usize = 100;
/// Name of the shared counters; not a valid domain.
pub const OTHER_DOMAINS: &str = "(others)";

/// Counters of one domain, or the shared ones.
#[derive(Debug, Default)]
pub struct DomainCounters {
    stanzas: [[Counter; 3]; 2],
    opened: AtomicU64,
    closed: AtomicU64,
    shared: bool,
}

/// Values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainTotals {
    /// Sessions, including detached ones.
    pub sessions: u64,
    /// Sessions opened since the start.
    pub opened: u64,
    /// Messages, presence, IQs; from clients, then to clients.
    pub stanzas: [[u64; 3]; 2],
}

impl DomainCounters {
    /// The counters that domains share.
    pub fn shared() -> DomainCounters {
        DomainCounters { shared: true, ..DomainCounters::default() }
    }

    /// Counts a stanza from a client.
    pub fn stanza_in(&self, kind: StanzaKind) {
        self.stanzas[0][kind_index(kind)].add(1);
    }

    /// Counts a stanza to a client.
    pub fn stanza_out(&self, kind: StanzaKind) {
        self.stanzas[1][kind_index(kind)].add(1);
    }

    /// Counts a session that starts.
    pub fn session_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session that ends.
    pub fn session_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether several domains share these counters.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Present values.
    pub fn totals(&self) -> DomainTotals {
        // In this order, so that a session that ends meanwhile is not missing from the opened ones.
        let closed = self.closed.load(Ordering::Relaxed);
        let opened = self.opened.load(Ordering::Relaxed);
        DomainTotals {
            sessions: opened.saturating_sub(closed),
            opened,
            stanzas: [0, 1].map(|d| [0, 1, 2].map(|k| self.stanzas[d][k].get())),
        }
    }
}
