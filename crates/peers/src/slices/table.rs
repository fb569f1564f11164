//! The slices that this node owns, what it knows of other nodes, and who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;

use base::lock::LeafMutex;
use cluster::NodeId;
use store::lease::{Lease, ObservedLease};

use super::records::SliceRecord;
use super::{SliceAccess, SliceLease, SliceService};

/// A slice of this node.
#[derive(Clone, Debug)]
pub(super) struct OwnSlice {
    pub(super) record: SliceRecord,
    pub(super) lease: SliceLease,
    /// It is being handed over.
    pub(super) moving_to: Option<NodeId>,
    /// The node on which services keep copies; none yet.
    pub(super) backup: Option<Option<NodeId>>,
}

/// A node that is or was a member.
#[derive(Default)]
pub(super) struct KnownNode {
    /// Its lease as it was last seen.
    pub(super) observed: Option<ObservedLease>,
    /// Second of this node's clock at which it left, if it is no member.
    pub(super) left_at: Option<u32>,
    /// It has renewed its lease after it left: it is cut off, not gone.
    pub(super) is_alive: bool,
}

#[derive(Default)]
pub(super) struct TableState {
    pub(super) services: Vec<Arc<dyn SliceService>>,
    /// The lease of this node, unless the keeper is using it.
    pub(super) lease: Option<Lease>,
    /// Second of the clock at which that lease expires.
    pub(super) valid_until: u32,
    /// Its fencing number.
    pub(super) incarnation: u64,
    pub(super) slices: BTreeMap<u8, OwnSlice>,
    pub(super) wanted: BTreeSet<u8>,
    /// Records of slices that this node has given up, and the node that learns when they are free.
    pub(super) to_free: Vec<(u8, SliceRecord, Option<NodeId>)>,
    pub(super) nodes: BTreeMap<NodeId, KnownNode>,
    pub(super) is_cut_off: bool,
    /// Members that hand their slices over because they leave.
    pub(super) leaving: BTreeSet<NodeId>,
    /// The node is leaving: it takes no slices any more.
    pub(super) is_leaving: bool,
    /// The keeper runs; it must run once more.
    pub(super) keeper: (bool, bool),
    waiting: Vec<Waker>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct SliceTable(pub(super) LeafMutex<TableState>);

impl SliceTable {
    pub(super) fn add_service(&self, service: Arc<dyn SliceService>) {
        self.0.lock().services.push(service);
    }

    pub(super) fn services(&self) -> Vec<Arc<dyn SliceService>> {
        self.0.lock().services.clone()
    }

    pub(super) fn add_waiting(&self, waker: &Waker) {
        let mut state = self.0.lock();
        if !state.waiting.iter().any(|one| one.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
    }

    pub(super) fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The access to a slice of this node.
    pub(super) fn own_access(&self, slice: u8, now: u32) -> Option<SliceAccess> {
        let state = self.0.lock();
        let own = state.slices.get(&slice)?;
        if now >= state.valid_until {
            return Some(SliceAccess::Pending);
        }
        let lease = own.lease.clone();
        Some(match own.moving_to {
            None => SliceAccess::Own(Some(lease)),
            Some(to) => SliceAccess::Moving(lease, to),
        })
    }

    /// Whether this node takes slices.
    pub(super) fn takes_slices(&self) -> bool {
        let state = self.0.lock();
        !state.is_cut_off && !state.is_leaving
    }

    /// The node to which a slice of this node moves; `None` if it is not one of this node.
    pub(super) fn moving_to(&self, slice: u8) -> Option<Option<NodeId>> {
        Some(self.0.lock().slices.get(&slice)?.moving_to)
    }

    pub(super) fn forget_backup(&self, slice: u8) {
        if let Some(slice) = self.0.lock().slices.get_mut(&slice) {
            slice.backup = None;
        }
    }
}
