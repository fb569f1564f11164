//! The task that keeps the slices of this node: it renews the lease of the node, observes those of others, takes slices that are wanted,
//! and hands over those that another node must own.

use std::collections::BTreeSet;

use cluster::{Envelope, EnvelopeClass, Member, NodeId, SliceNodes};
use store::StoreError;
use store::lease::{Lease, LeaseAttempt};

use super::records::{SliceRecord, node_lease, slice_key, slice_lease};
use super::table::{KnownNode, OwnSlice, TableState};
use super::{SliceAccess, TERMS};
use crate::envelope_kinds::SLICE_FREED;
use crate::{ClusteredNode, OwnedClusteredNode};

/// Ends a run of the keeper, also one that was dropped.
struct RunningKeeper(OwnedClusteredNode);

impl Drop for RunningKeeper {
    fn drop(&mut self) {
        let this = self.0.view();
        let again = {
            let mut state = this.state.slices.0.lock();
            std::mem::take(&mut state.keeper).1
        };
        this.state.slices.wake_all();
        if again {
            this.run_slice_keeper();
        }
    }
}

impl ClusteredNode<'_> {
    pub(super) fn slice_access(&self, slice: u8) -> SliceAccess {
        if let Some(access) = self.state.slices.own_access(slice, self.clock.now_seconds()) {
            return access;
        }
        match self.slice_owner(slice) {
            owner if owner != self.cluster.node() => SliceAccess::Elsewhere(owner),
            _ if self.state.slices.takes_slices() => SliceAccess::Pending,
            _ => SliceAccess::CutOff,
        }
    }

    /// The node to which stanzas for an item go; none if that is this one.
    pub(crate) fn slice_route(&self, slice: u8) -> Option<NodeId> {
        self.state.slices.moving_to(slice).unwrap_or_else(|| {
            let owner = self.slice_owner(slice);
            (owner != self.cluster.node()).then_some(owner)
        })
    }

    /// The members without those that hand their slices over because they leave.
    fn slice_members(&self) -> Vec<Member> {
        let mut members = self.cluster.members();
        let state = self.state.slices.0.lock();
        members.retain(|member| !state.leaving.contains(&member.node));
        members
    }

    /// The node that must own a slice.
    fn slice_owner(&self, slice: u8) -> NodeId {
        let nodes = SliceNodes::among(&self.slice_members(), slice);
        nodes.map_or_else(|| self.cluster.node(), |nodes| nodes.owner)
    }

    pub(super) fn want_slice(&self, slice: u8) {
        let is_new = {
            let mut state = self.state.slices.0.lock();
            !state.slices.contains_key(&slice) && state.wanted.insert(slice)
        };
        if is_new {
            self.run_slice_keeper();
        }
    }

    /// Called by the sweep.
    pub(crate) fn sweep_slices(&self) {
        if self.is_single() {
            return;
        }
        let is_active = !self.state.slices.0.lock().services.is_empty();
        if is_active {
            self.run_slice_keeper();
        }
        self.state.slices.wake_all();
    }

    /// A member is gone.
    pub(crate) fn slice_member_left(&self, left: NodeId) {
        let now = self.clock.now_seconds();
        let services = {
            let mut state = self.state.slices.0.lock();
            let known = state.nodes.entry(left).or_default();
            (known.left_at, known.is_alive) = (Some(now), false);
            state.leaving.remove(&left);
            state.services.clone()
        };
        if !services.is_empty() {
            services.iter().for_each(|service| service.member_left(self));
            self.run_slice_keeper();
        }
    }

    /// Another node has freed a slice for this one.
    pub(crate) fn on_slice_freed(&self, from: NodeId, octets: &[u8]) -> bool {
        let [slice] = *octets else { return false };
        if self.slice_owner(slice) == from {
            self.state.slices.0.lock().leaving.insert(from);
        }
        self.want_slice(slice);
        true
    }

    /// Runs the keeper, or makes it run once more.
    fn run_slice_keeper(&self) {
        {
            let mut state = self.state.slices.0.lock();
            if state.keeper.0 {
                state.keeper.1 = true;
                return;
            }
            state.keeper = (true, false);
        }
        let running = RunningKeeper(self.owned());
        let task = async move {
            if let Err(error) = running.0.view().keep_slices().await {
                tracing::warn!(%error, "the ownership of rooms was not renewed");
            }
        };
        self.spawner.spawn("slices", Box::pin(task));
    }

    async fn keep_slices(&self) -> Result<(), StoreError> {
        self.renew_slice_lease().await?;
        self.free_slices().await?;
        self.observe_nodes().await?;
        if self.decide_cut_off() {
            self.give_up_slices();
            return self.free_slices().await;
        }
        self.begin_hand_overs();
        self.take_wanted_slices().await?;
        self.choose_backups();
        Ok(())
    }

    /// Renews the lease of this node when it is due, or takes it.
    async fn renew_slice_lease(&self) -> Result<(), StoreError> {
        let lease = self.state.slices.0.lock().lease.take();
        let lease = match lease {
            Some(lease) if !lease.is_due() => Some(lease),
            Some(mut lease) => match lease.renew().await {
                Ok(true) => Some(lease),
                Ok(false) => None,
                Err(error) => {
                    // It is tried again; meanwhile it may expire.
                    self.state.slices.0.lock().lease = Some(lease);
                    return Err(error);
                }
            },
            None => None,
        };
        let lease = match lease {
            Some(lease) => Some(lease),
            None => {
                self.lose_slices("another node took its lease");
                Lease::take_own(node_lease(self, self.cluster.node())).await?
            }
        };
        let mut state = self.state.slices.0.lock();
        state.valid_until = lease.as_ref().map_or(0, Lease::expires_at);
        state.incarnation = lease.as_ref().map_or(0, Lease::fence);
        state.lease = lease;
        drop(state);
        self.state.slices.wake_all();
        Ok(())
    }

    /// Forgets all slices.
    fn lose_slices(&self, reason: &str) {
        let slices: Vec<u8> = {
            let mut state = self.state.slices.0.lock();
            std::mem::take(&mut state.slices).into_keys().collect()
        };
        if slices.is_empty() {
            return;
        }
        tracing::warn!(slices = slices.len(), reason, "this node does not own its rooms any more");
        for service in self.state.slices.services() {
            slices.iter().for_each(|slice| service.lost(self, *slice));
        }
    }

    /// Reads the leases of the other nodes that this one has seen.
    async fn observe_nodes(&self) -> Result<(), StoreError> {
        let own = self.cluster.node();
        let members: BTreeSet<NodeId> = self.cluster.members().iter().map(|member| member.node).collect();
        let nodes: Vec<NodeId> = {
            let mut state = self.state.slices.0.lock();
            for member in members.iter().filter(|member| **member != own) {
                let known = state.nodes.entry(*member).or_default();
                (known.left_at, known.is_alive) = (None, false);
            }
            state.nodes.keys().copied().collect()
        };
        for other in nodes {
            let before = self.with_known(other, |known| known.observed.clone());
            let observed = Lease::observe(&node_lease(self, other), before).await?;
            self.with_known(other, |known| {
                let since = observed.as_ref().map(|observed| observed.since());
                // Its last renewal before the others noticed its end is seen before that.
                known.is_alive |= known.left_at.zip(since).is_some_and(|(left, since)| since > left);
                known.observed = observed;
            });
        }
        let now = self.clock.now_seconds();
        let is_gone = |known: &KnownNode| {
            known.left_at.is_some_and(|left| now.saturating_sub(left) > 2 * TERMS.seconds)
                && known.observed.as_ref().is_none_or(|seen| seen.is_expired(now, TERMS))
        };
        self.state.slices.0.lock().nodes.retain(|_, known| !is_gone(known));
        Ok(())
    }

    fn with_known<T: Default>(&self, node: NodeId, with: impl FnOnce(&mut KnownNode) -> T) -> T {
        self.state.slices.0.lock().nodes.get_mut(&node).map(with).unwrap_or_default()
    }

    /// Whether this node is cut off: nodes that it does not see are alive, and they are more than those that it sees, or as many with
    /// the first name among them.
    fn decide_cut_off(&self) -> bool {
        let members: Vec<NodeId> = self.cluster.members().iter().map(|member| member.node).collect();
        let mut state = self.state.slices.0.lock();
        let now = self.clock.now_seconds();
        let is_alive = |known: &KnownNode| {
            known.is_alive && known.observed.as_ref().is_some_and(|seen| !seen.is_expired(now, TERMS))
        };
        let others = state.nodes.iter().filter(|(node, known)| !members.contains(node) && is_alive(known));
        let others: Vec<NodeId> = others.map(|(node, _)| *node).collect();
        let own = self.cluster.node();
        let first_here = members.iter().min().copied().unwrap_or(own);
        let is_cut_off = match others.len().cmp(&members.len().max(1)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => others.iter().min().is_some_and(|first| *first < first_here),
        };
        if is_cut_off != state.is_cut_off {
            tracing::warn!(
                is_cut_off,
                unseen = others.len(),
                "the connection to the larger part of the cluster has changed"
            );
        }
        state.is_cut_off = is_cut_off;
        is_cut_off
    }

    /// Gives up all slices, since the other part of the cluster serves their items.
    fn give_up_slices(&self) {
        {
            let mut state = self.state.slices.0.lock();
            let TableState { wanted, slices, to_free, .. } = &mut *state;
            wanted.clear();
            to_free.extend(slices.iter().map(|(slice, own)| (*slice, own.record.clone(), None)));
        }
        self.lose_slices("it is cut off from the larger part of the cluster");
    }

    /// Frees the records of slices that this node has given up.
    async fn free_slices(&self) -> Result<(), StoreError> {
        loop {
            let Some((slice, record, next)) = self.state.slices.0.lock().to_free.pop() else { return Ok(()) };
            let free = SliceRecord { holder: None, ..record.clone() };
            let settings = &self.stores.server_kv;
            let freed =
                settings.compare_and_set(&slice_key(slice), Some(&record.encode()), &free.encode()).await;
            match (freed, next) {
                (Err(error), _) => {
                    self.state.slices.0.lock().to_free.push((slice, record, next));
                    return Err(error);
                }
                (Ok(true), Some(next)) => self.report_free_slice(slice, next),
                (Ok(_), _) => {}
            }
        }
    }

    fn report_free_slice(&self, slice: u8, next: NodeId) {
        let own = self.cluster.node();
        let envelope = Envelope::new(SLICE_FREED, EnvelopeClass::Control, own, Vec::new(), vec![slice]);
        if let Err(refused) = self.cluster.deliver(next, envelope) {
            tracing::debug!(%refused, "the next owner of a slice did not receive that it is free");
        }
    }

    /// Starts to hand over slices that another member must own.
    fn begin_hand_overs(&self) {
        let (own, members) = (self.cluster.node(), self.slice_members());
        let mut begun = Vec::new();
        let mut state = self.state.slices.0.lock();
        for (slice, held) in state.slices.iter_mut().filter(|(_, held)| held.moving_to.is_none()) {
            let owner = SliceNodes::among(&members, *slice).map(|nodes| nodes.owner);
            if let Some(to) = owner.filter(|owner| *owner != own) {
                held.moving_to = Some(to);
                begun.push((*slice, to));
            }
        }
        drop(state);
        for (slice, to) in begun {
            let this = self.owned();
            let task = async move { this.view().hand_over_slice(slice, to).await };
            self.spawner.spawn("slice", Box::pin(task));
        }
    }

    async fn hand_over_slice(&self, slice: u8, to: NodeId) {
        for service in self.state.slices.services() {
            service.hand_over(self, slice, to).await;
        }
        {
            let mut state = self.state.slices.0.lock();
            let Some(own) = state.slices.remove(&slice) else { return };
            state.to_free.push((slice, own.record, Some(to)));
        }
        self.state.slices.wake_all();
        self.run_slice_keeper();
    }

    pub(super) async fn hand_over_all_slices(&self) {
        let own = self.cluster.node();
        let slices: Vec<u8> = {
            let mut state = self.state.slices.0.lock();
            state.is_leaving = true;
            state.leaving.insert(own);
            state.slices.iter().filter(|(_, own)| own.moving_to.is_none()).map(|(slice, _)| *slice).collect()
        };
        for slice in slices {
            let to = self.slice_owner(slice);
            if to == own {
                // It is alone.
                return;
            }
            if let Some(slice) = self.state.slices.0.lock().slices.get_mut(&slice) {
                slice.moving_to = Some(to);
            }
            self.hand_over_slice(slice, to).await;
        }
        if let Err(error) = self.free_slices().await {
            tracing::warn!(%error, "rooms were not handed over; the others have them in ten seconds");
        }
    }

    async fn take_wanted_slices(&self) -> Result<(), StoreError> {
        let (own, members) = (self.cluster.node(), self.slice_members());
        let is_own = |slice: u8| SliceNodes::among(&members, slice).is_some_and(|nodes| nodes.owner == own);
        let copied: Vec<u8> =
            self.state.slices.services().iter().flat_map(|service| service.copied_slices()).collect();
        let wanted: BTreeSet<u8> = {
            let mut state = self.state.slices.0.lock();
            if state.is_leaving || state.lease.is_none() {
                return Ok(());
            }
            state.wanted.extend(copied);
            let TableState { wanted, slices, .. } = &mut *state;
            wanted.retain(|slice| !slices.contains_key(slice) && is_own(*slice));
            wanted.clone()
        };
        for slice in wanted {
            if let Some(previous) = self.take_slice(slice).await? {
                for service in self.state.slices.services() {
                    service.taken(self, slice, previous);
                }
                self.state.slices.wake_all();
            }
        }
        Ok(())
    }

    /// Takes a slice if it is free or its owner is gone. Returns the number of its former lease.
    async fn take_slice(&self, slice: u8) -> Result<Option<u64>, StoreError> {
        let (own, key) = (self.cluster.node(), slice_key(slice));
        let stored = self.stores.server_kv.get(&key).await?;
        let before = stored.as_deref().and_then(SliceRecord::decode);
        let incarnation = self.state.slices.0.lock().incarnation;
        if let Some(SliceRecord { holder: Some(holder), incarnation: of_holder, .. }) = &before
            && *holder != own
            && !self.end_lease_of(*holder, *of_holder).await?
        {
            return Ok(None);
        }
        let previous = before.map_or(0, |record| record.fence);
        let record = SliceRecord { fence: previous.saturating_add(1), incarnation, holder: Some(own) };
        if !self.stores.server_kv.compare_and_set(&key, stored.as_deref(), &record.encode()).await? {
            return Ok(None);
        }
        let mut state = self.state.slices.0.lock();
        state.wanted.remove(&slice);
        // The lease may have been lost meanwhile.
        let is_valid = state.incarnation == incarnation && state.lease.is_some();
        if is_valid {
            let lease = slice_lease(slice, &record);
            state.slices.insert(slice, OwnSlice { record, lease, moving_to: None, backup: None });
        }
        Ok(is_valid.then_some(previous))
    }

    /// Whether the owner of a slice has lost its lease. One that has expired is taken, so that it cannot be renewed.
    async fn end_lease_of(&self, holder: NodeId, incarnation: u64) -> Result<bool, StoreError> {
        let slot = node_lease(self, holder);
        let stored = self.stores.server_kv.get(&slot.key).await?;
        if !stored.is_some_and(|stored| Lease::is_held_by(&stored, holder.as_str(), incarnation)) {
            return Ok(true);
        }
        let observed = {
            let mut state = self.state.slices.0.lock();
            state.nodes.entry(holder).or_default().observed.clone()
        };
        match Lease::take(slot, observed).await? {
            LeaseAttempt::Taken(lease) => {
                lease.release().await?;
                tracing::warn!(node = %holder, "took the rooms of a node that is gone");
                Ok(true)
            }
            LeaseAttempt::Held(observed) => {
                self.with_known(holder, |known| known.observed = Some(observed));
                Ok(false)
            }
            LeaseAttempt::Released => Ok(true),
        }
    }

    /// Tells services which node keeps copies, where that has changed.
    fn choose_backups(&self) {
        let (own, members) = (self.cluster.node(), self.slice_members());
        let changed: Vec<(u8, Option<NodeId>)> = {
            let mut state = self.state.slices.0.lock();
            let mut changed = Vec::new();
            for (slice, held) in state.slices.iter_mut().filter(|(_, held)| held.moving_to.is_none()) {
                let Some(nodes) = SliceNodes::among(&members, *slice) else { continue };
                let backup = if nodes.owner == own { nodes.backup } else { Some(nodes.owner) };
                if held.backup != Some(backup) {
                    held.backup = Some(backup);
                    changed.push((*slice, backup));
                }
            }
            changed
        };
        for service in self.state.slices.services() {
            changed.iter().for_each(|(slice, backup)| service.set_backup(self, *slice, *backup));
        }
    }
}
