//! Counters by served domain: sessions, and stanzas from and to its clients.
//!
//! They belong to a host and outlive it: a reload builds a new host with the same ones ([`crate::kept::FeatureState`]). The first
//! [`MOST`] domains of a process have counters of their own, the rest share one set, for each costs 6 kB. Left out: whatever
//! else [`crate::metrics`] counts, for a node and not for a domain.
//!
//! The trap: this is on the path of every stanza, so each count is one addition to a cell of the thread's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::count::Counter;
use stanza::StanzaKind;

use crate::metrics::kind_index;
use crate::node::Node;

/// Domains with counters of their own.
pub const MAX_DOMAINS: usize = 100;
/// Stands for the domains that share theirs; it is no domain's name.
pub const OTHER_DOMAINS: &str = "(others)";

/// Counters of one domain, or of those that share them.
#[derive(Debug, Default)]
pub struct DomainCounters {
    stanzas: [[Counter; 3]; 2],
    opened: AtomicU64,
    closed: AtomicU64,
    shared: bool,
}

/// What they say at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainTotals {
    /// Sessions, those that wait to be resumed included.
    pub sessions: u64,
    /// Sessions that were opened since the start.
    pub opened: u64,
    /// Messages, presence, IQs; from clients, then to clients.
    pub stanzas: [[u64; 3]; 2],
}

impl DomainCounters {
    /// The counters that domains share.
    pub(crate) fn shared() -> DomainCounters {
        DomainCounters { shared: true, ..DomainCounters::default() }
    }
    pub(crate) fn stanza_in(&self, kind: StanzaKind) {
        self.stanzas[0][kind_index(kind)].add(1);
    }
    pub(crate) fn stanza_out(&self, kind: StanzaKind) {
        self.stanzas[1][kind_index(kind)].add(1);
    }
    pub(crate) fn session_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn session_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
    /// What they say.
    pub fn totals(&self) -> DomainTotals {
        // In this order: a session that ends meanwhile must not be missing from those that were opened.
        let closed = self.closed.load(Ordering::Relaxed);
        let opened = self.opened.load(Ordering::Relaxed);
        DomainTotals {
            sessions: opened.saturating_sub(closed),
            opened,
            stanzas: [0, 1].map(|d| [0, 1, 2].map(|k| self.stanzas[d][k].get())),
        }
    }
}

impl Node {
    /// The counters of the served domains, by name; at most [`MOST`] of them, and at the end [`OTHER_DOMAINS`] if there are more.
    pub fn domain_totals(&self) -> Vec<(String, DomainTotals)> {
        let mut list = Vec::new();
        let mut others = None;
        for host in self.hosts() {
            if host.domain_counters.shared {
                others = Some(host.domain_counters.clone());
            } else {
                list.push((host.domain().to_owned(), host.domain_counters.totals()));
            }
        }
        list.extend(others.map(|shared: Arc<DomainCounters>| (OTHER_DOMAINS.to_owned(), shared.totals())));
        list
    }
}
