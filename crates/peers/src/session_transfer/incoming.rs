//! A session that this node takes from another one for a client that resumes its stream here.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use arc_swap::Guard;
use cluster::{Envelope, HandoverResult, NodeId, PeerViolation, Recipient};
use jid::Jid;
use outbox::{OutboxSnapshot, UndeliveredStanza};
use store::AddressId;
use throng_core::Principal;
use throng_core::host::Host;
use throng_core::receipt::Receipt;
use throng_core::router::LifecycleEvent;
use throng_core::session::stream_management::{TransferRefusal, WantedStream};
use throng_core::session::{Outbox, QueuedStanza, Session};
use throng_core::shared_stanza::SharedStanza;

use super::moved_session::{MovedSession, MovedStanza};
use super::phases::{IncomingEvent, IncomingPhase};
use super::{
    IncomingTransfer, MAX_ASKED, MAX_PARTS, MAX_RECEIVED_BYTES, MAX_TRANSFERS, TIMEOUT_SECONDS,
    TransferRequest, decode_refusal, read_part, refusal_of_both,
};
use crate::envelope_kinds::{SESSION_REQUEST, SESSION_TAKEN};
use crate::inbox::settle;
use crate::message_copies::{self, StanzaIdText};
use crate::routing::{ClusteredNode, OwnedClusteredNode};

/// Stanzas by their ids.
type HeldStanzas = HashMap<StanzaIdText, SharedStanza>;

/// A request of this node. Dropped before the session is bound, it refuses what has arrived of it.
struct TransferTarget {
    node: OwnedClusteredNode,
    request: u64,
}

impl Drop for TransferTarget {
    fn drop(&mut self) {
        let node = self.node.view();
        let mut state = node.state.transfers.0.lock();
        let removed = state.incoming.remove(&self.request);
        let mut arrived: Vec<Envelope> =
            removed.iter().flat_map(|incoming| &incoming.parts).cloned().collect();
        state.received_bytes -= arrived.iter().map(|part| part.bytes.len()).sum::<usize>();
        arrived.extend(removed.iter().flat_map(|incoming| &incoming.early_chunks).cloned());
        drop(state);
        if let Some(from) = removed.as_ref().and_then(|incoming| incoming.from) {
            arrived.iter().for_each(|part| settle(&node, from, part, HandoverResult::Refused));
        }
    }
}

impl TransferTarget {
    /// Waits for the state of the session.
    async fn state(&self) -> Result<(NodeId, Vec<u8>), TransferRefusal> {
        poll_fn(|cx| {
            let node = self.node.view();
            let mut state = node.state.transfers.0.lock();
            let Some(incoming) = state.incoming.get_mut(&self.request) else {
                return Poll::Ready(Err(TransferRefusal::Unknown(None)));
            };
            match (incoming.phase, incoming.from) {
                (IncomingPhase::Received, Some(from)) => {
                    let parts = incoming.parts.iter().filter_map(read_part);
                    Poll::Ready(Ok((from, parts.flat_map(|part| part.3).copied().collect())))
                }
                (IncomingPhase::Failed, _) => Poll::Ready(Err(incoming.refusal)),
                _ => {
                    incoming.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The session is bound here. Returns the parts of its state, and the chunks of the tail that have arrived already.
    fn bound(&self, session: &Arc<Session>) -> (Vec<Envelope>, Vec<Envelope>) {
        let node = self.node.view();
        let mut state = node.state.transfers.0.lock();
        let Some(incoming) = state.incoming.get_mut(&self.request) else { return Default::default() };
        incoming.phase = incoming.phase.after(IncomingEvent::Bound);
        incoming.session = Some(session.clone());
        incoming.deadline = node.seconds().saturating_add(TIMEOUT_SECONDS);
        let (parts, early_chunks) =
            (std::mem::take(&mut incoming.parts), std::mem::take(&mut incoming.early_chunks));
        state.received_bytes -= parts.iter().map(|part| part.bytes.len()).sum::<usize>();
        (parts, early_chunks)
    }

    /// Waits until the tail has arrived, or will not. False in the latter case.
    async fn wait_for_tail(&self) -> bool {
        poll_fn(|cx| {
            let node = self.node.view();
            let mut state = node.state.transfers.0.lock();
            let Some(incoming) = state.incoming.get_mut(&self.request) else { return Poll::Ready(false) };
            if incoming.phase == IncomingPhase::Complete {
                return Poll::Ready(incoming.has_tail);
            }
            incoming.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl ClusteredNode<'_> {
    /// Takes a session over from the node that holds it.
    pub(crate) async fn take_session(
        &self,
        principal: Principal,
        stream: WantedStream,
    ) -> Result<(Arc<Session>, u32), TransferRefusal> {
        let WantedStream { resource, token, h } = stream;
        let number = (principal.id != AddressId::UNASSIGNED).then_some(principal.id.0);
        let location = self.cluster.locate(self.routing_table.hash(principal.jid.as_ref()), number);
        let asked: BTreeSet<NodeId> = location.other_nodes(self.cluster.node()).take(MAX_ASKED).collect();
        let full = principal.jid.as_ref().with_resource(&resource).ok().filter(|_| !principal.ephemeral);
        let (Some(full), Some(target)) = (full, self.begin_incoming(asked.clone())) else {
            return Err(TransferRefusal::Unknown(None));
        };
        for node in asked {
            let octets = TransferRequest { number: target.request, token, h }.encode();
            let recipients = vec![Recipient::Address(full.clone())];
            if self.send_about_session(node, SESSION_REQUEST, recipients, octets).is_err() {
                self.note_refusal(node, target.request, TransferRefusal::Unknown(None));
            }
        }
        let (from, octets) = target.state().await?;
        let Some(moved) = MovedSession::decode(&octets) else {
            self.note_violation(from, PeerViolation::Payload);
            return Err(TransferRefusal::Unknown(None));
        };
        drop(octets);
        let (host, owner) = (principal.host.clone(), principal.jid.clone());
        let MovedSession { terms, handled, sent, bound_at, .. } = moved;
        let others = self.held_by_others(&owner, &moved.stanzas);
        let stanzas = moved.stanzas.iter().map(|one| self.hold_moved(&host, &owner, one, &others));
        let stanzas: Vec<_> = stanzas.collect();
        let held: Vec<SharedStanza> = stanzas.iter().map(|one| one.item.stanza.clone()).collect();
        let snapshot = OutboxSnapshot { token, terms, handled, sent, stanzas };
        let outbox = Arc::new(Outbox::from_snapshot(snapshot, self.seconds()));
        self.outboxes.add(outbox.clone());
        let bound =
            self.bind_prepared(principal, Some(&resource), &outbox, bound_at, &|session: &Session| {
                moved.prepare(session);
            });
        let session = match bound {
            Ok(session) => session,
            Err(error) => {
                tracing::debug!(jid = %full, condition = error.condition.as_str(), "a session cannot be taken over");
                self.outboxes.remove(&outbox);
                for (one, held) in moved.stanzas.iter().zip(&held) {
                    if let Some(backup) = host.message_backup.as_ref().filter(|_| one.row.is_some()) {
                        backup.release_backup(&owner, held);
                    }
                    held.release_copy();
                }
                return Err(TransferRefusal::Unknown(Some(handled)));
            }
        };
        self.finish_incoming(&target, from, &session, &moved, &held);
        if !target.wait_for_tail().await {
            self.note_interrupted(from, &session);
        }
        // The store may have more.
        let host = Guard::into_inner(session.account.host());
        if session.is_available() {
            self.begin_flushing(&session.account);
            self.run_event_spawned(LifecycleEvent::Available(session.clone()), host);
        }
        Ok((session, handled))
    }

    /// The session is bound: its old node must end it, and nodes of contacts must know where it is.
    fn finish_incoming(
        &self,
        target: &TransferTarget,
        from: NodeId,
        session: &Arc<Session>,
        moved: &MovedSession,
        held: &[SharedStanza],
    ) {
        // Its flags are new for this account.
        session.account.with(|state| session.account.refresh_carbons(state, None));
        for one in &moved.stanzas {
            message_copies::record_copy(&session.account, &one.stanza, !one.is_copy);
        }
        let (parts, early_chunks) = target.bound(session);
        let taken = target.request.to_be_bytes().to_vec();
        // The report of the session tells the same.
        let _ = self.send_about_session(from, SESSION_TAKEN, Vec::new(), taken);
        self.settle_when_safe(from, parts, session, held.iter());
        for envelope in early_chunks {
            self.receive_tail(from, &envelope);
        }
        if session.is_available() {
            self.announce_readiness(&session.account);
            // Presence on the way to the old node may not find the session any more.
            self.probe_peers(session);
        }
    }

    /// Those of these stanzas that sessions of the account here hold already.
    fn held_by_others(&self, owner: &Jid, moved: &[MovedStanza]) -> HeldStanzas {
        let Some(account) = self.routing_table.find(owner.as_ref()) else { return HeldStanzas::new() };
        let ids = message_copies::stanza_ids(moved.iter().map(|one| &one.stanza), owner.as_ref());
        let mut held = HeldStanzas::new();
        for session in account.sessions() {
            for (id, stanza) in message_copies::find_held(&session, &ids) {
                held.entry(id).or_insert(stanza);
            }
        }
        held
    }

    /// Makes a stanza ready for an outbox of this node. `others`: what other sessions hold.
    fn hold_moved(
        &self,
        host: &Host,
        owner: &Jid,
        moved: &MovedStanza,
        others: &HeldStanzas,
    ) -> UndeliveredStanza {
        let account = self.routing_table.find(owner.as_ref());
        let id = message_copies::stanza_id(&moved.stanza, owner.as_ref()).filter(|_| !others.is_empty());
        let others = id.and_then(|id| others.get(&id).cloned());
        let taker =
            account.filter(|account| others.is_none() && message_copies::was_taken(account, &moved.stanza));
        let stanza = shared_with_others(others, moved);
        if let Some(backup) = &host.message_backup {
            match moved.row {
                Some(row) => backup.adopt_backup(self, owner, &stanza, row),
                None if moved.is_tracked => {
                    stanza.track_delivery(self.clock.now());
                }
                None => {}
            }
        }
        if let Some(account) = taker {
            self.share_with_taker(&account, &stanza);
        }
        UndeliveredStanza {
            item: QueuedStanza::new(stanza, moved.to_rewrite),
            sent_at: moved.age.map(|age| self.seconds().saturating_sub(age)),
        }
    }

    /// Settles envelopes when the tracked messages in them are safe here.
    fn settle_when_safe<'s>(
        &self,
        from: NodeId,
        envelopes: Vec<Envelope>,
        session: &Arc<Session>,
        stanzas: impl Iterator<Item = &'s SharedStanza>,
    ) {
        let unsettled: Vec<SharedStanza> =
            stanzas.filter(|stanza| stanza.is_delivery_unsettled()).cloned().collect();
        if unsettled.is_empty() {
            envelopes.iter().for_each(|envelope| settle(self, from, envelope, HandoverResult::Safe));
            return;
        }
        self.watch_delivery(session);
        let node = self.owned();
        let task = async move {
            for stanza in unsettled {
                let receipt = Receipt::of_delivery(&stanza);
                let _ = poll_fn(|cx| receipt.poll_outcome(cx)).await;
            }
            let node = node.view();
            envelopes.iter().for_each(|envelope| settle(&node, from, envelope, HandoverResult::Safe));
        };
        self.spawner.spawn("stanzas of a session that was taken over", Box::pin(task));
    }

    fn begin_incoming(&self, asked: BTreeSet<NodeId>) -> Option<TransferTarget> {
        let mut state = self.state.transfers.0.lock();
        if asked.is_empty() || state.incoming.len() >= MAX_TRANSFERS {
            return None;
        }
        state.next += 1;
        let request = state.next;
        let incoming = IncomingTransfer {
            phase: IncomingPhase::Requested,
            waiting: asked,
            from: None,
            parts: Vec::new(),
            early_chunks: Vec::new(),
            has_tail: false,
            refusal: TransferRefusal::Unknown(None),
            session: None,
            deadline: self.seconds().saturating_add(TIMEOUT_SECONDS),
            waker: None,
        };
        state.incoming.insert(request, incoming);
        Some(TransferTarget { node: self.owned(), request })
    }

    fn note_refusal(&self, from: NodeId, request: u64, refusal: TransferRefusal) {
        let mut state = self.state.transfers.0.lock();
        let Some(incoming) = state.incoming.get_mut(&request) else { return };
        if !incoming.waiting.remove(&from) {
            return;
        }
        incoming.refusal = refusal_of_both(incoming.refusal, refusal);
        let none_is_left = incoming.waiting.is_empty() && incoming.from.is_none();
        if incoming.from == Some(from) || none_is_left {
            incoming.phase = incoming.phase.after(IncomingEvent::Lost);
        }
        let waker = incoming.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A request has returned: that node is gone, or its release cannot answer it.
    pub(crate) fn on_returned_session_request(&self, by: NodeId, envelope: &Envelope) {
        if let Some(request) = TransferRequest::decode(&envelope.bytes) {
            self.note_refusal(by, request.number, TransferRefusal::Unknown(None));
        }
    }

    /// A node does not give a session. False if the octets are no refusal.
    pub(crate) fn on_session_refusal(&self, from: NodeId, octets: &[u8]) -> bool {
        let Some((request, refusal)) = decode_refusal(octets) else { return false };
        self.note_refusal(from, request, refusal);
        true
    }

    /// A part of a session arrived.
    pub(crate) fn on_session_state(&self, from: NodeId, envelope: Envelope) {
        let Some((request, position, count, _)) = read_part(&envelope) else {
            self.note_violation(from, PeerViolation::Payload);
            return settle(self, from, &envelope, HandoverResult::Refused);
        };
        let size = envelope.bytes.len();
        let mut guard = self.state.transfers.0.lock();
        let state = &mut *guard;
        let expected = |incoming: &&mut IncomingTransfer| {
            usize::from(count) <= MAX_PARTS
                && incoming.phase.accepts_state()
                && incoming.waiting.contains(&from)
                && incoming.from.is_none_or(|other| other == from)
                && incoming.parts.len() == usize::from(position)
                && state.received_bytes + size <= MAX_RECEIVED_BYTES
        };
        let Some(incoming) = state.incoming.get_mut(&request).filter(expected) else {
            drop(guard);
            return settle(self, from, &envelope, HandoverResult::Refused);
        };
        incoming.from = Some(from);
        incoming.parts.push(envelope);
        let is_last = position + 1 == count;
        incoming.phase =
            incoming.phase.after(if is_last { IncomingEvent::LastPart } else { IncomingEvent::Part });
        let waker = incoming.waker.take_if(|_| is_last);
        state.received_bytes += size;
        drop(guard);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A chunk of what a session has received on its old node since the state was sent.
    pub(crate) fn on_session_tail(&self, from: NodeId, envelope: Envelope) {
        let request = envelope.bytes.split_first_chunk().map(|(request, _)| u64::from_be_bytes(*request));
        let mut state = self.state.transfers.0.lock();
        let incoming = request.and_then(|request| state.incoming.get_mut(&request));
        let is_bound_now = |incoming: &&mut IncomingTransfer| {
            incoming.from == Some(from) && incoming.phase == IncomingPhase::Received
        };
        if let Some(incoming) = incoming.filter(is_bound_now) {
            return incoming.early_chunks.push(envelope);
        }
        drop(state);
        self.receive_tail(from, &envelope);
    }

    fn receive_tail(&self, from: NodeId, envelope: &Envelope) {
        let read = || {
            let (request, rest) = envelope.bytes.split_first_chunk()?;
            let (&is_last, rest) = rest.split_first()?;
            Some((u64::from_be_bytes(*request), is_last != 0, MovedStanza::decode_all(rest)?))
        };
        let Some((request, is_last, stanzas)) = read() else {
            self.note_violation(from, PeerViolation::Payload);
            return settle(self, from, envelope, HandoverResult::Refused);
        };
        let state = self.state.transfers.0.lock();
        let incoming = state.incoming.get(&request).filter(|incoming| incoming.phase == IncomingPhase::Bound);
        let session = incoming.filter(|incoming| incoming.from == Some(from)).and_then(|t| t.session.clone());
        drop(state);
        let Some(session) = session else {
            return settle(self, from, envelope, HandoverResult::Refused);
        };
        let held = self.append_tail(&session, &stanzas);
        self.settle_when_safe(from, vec![envelope.clone()], &session, held.iter());
        if !is_last {
            return;
        }
        forget_moved(&session, from);
        let mut state = self.state.transfers.0.lock();
        let Some(incoming) = state.incoming.get_mut(&request) else { return };
        incoming.has_tail = true;
        incoming.phase = incoming.phase.after(IncomingEvent::LastChunk);
        let waker = incoming.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Puts stanzas behind those that the session held when it was moved. Returns them as the session holds them.
    fn append_tail(&self, session: &Arc<Session>, stanzas: &[MovedStanza]) -> Vec<SharedStanza> {
        let account = &session.account;
        let host = account.host();
        let owner = account.jid.as_ref();
        let ids = message_copies::stanza_ids(stanzas.iter().map(|one| &one.stanza), owner);
        let of_session: HeldStanzas = message_copies::find_held(session, &ids).into_iter().collect();
        let others = self.held_by_others(&account.jid, stanzas);
        let (mut appended, mut held) = (Vec::new(), Vec::new());
        for one in stanzas {
            // It may have come here directly, if its home knew of both sessions.
            let id = message_copies::stanza_id(&one.stanza, owner);
            if let Some(direct) = id.and_then(|id| of_session.get(&id).cloned()) {
                message_copies::record_copy(account, &one.stanza, !one.is_copy);
                if one.is_tracked && host.message_backup.is_some() {
                    direct.track_delivery(self.clock.now());
                }
                account.with(|state| state.may_have_offline_messages |= one.row.is_some());
                held.push(direct);
                continue;
            }
            let moved = self.hold_moved(&host, &account.jid, one, &others);
            message_copies::record_copy(account, &one.stanza, !one.is_copy);
            held.push(moved.item.stanza.clone());
            appended.push(moved);
        }
        let left = session.outbox.append_to_snapshot(appended, self.seconds());
        if !left.is_empty() {
            self.reroute(session, left);
        }
        held
    }
}

/// The stanza, or the one that other sessions of the account hold here: it is lost only when all of them lose it.
fn shared_with_others(others: Option<SharedStanza>, moved: &MovedStanza) -> SharedStanza {
    match others {
        Some(held) => {
            held.add_recipients(if held.is_shared() { 1 } else { 2 });
            held
        }
        None => moved.stanza.clone(),
    }
}

/// A session that has moved here is not on its old node any more. That node ends it without `unavailable`, so its report of
/// that must not show the session to contacts again.
fn forget_moved(session: &Session, old_node: NodeId) {
    let account = &session.account;
    account.with(|state| {
        state.update_peers(|peers| {
            for peer in peers.iter_mut().filter(|peer| peer.node == old_node) {
                peer.sessions.retain(|known| *known.resource != *session.resource());
            }
            peers.retain(|peer| !peer.sessions.is_empty());
        });
        account.refresh_carbons(state, None);
    });
}
