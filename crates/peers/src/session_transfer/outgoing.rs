//! A session that another node has requested: its state is sent, and what arrives meanwhile follows.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::{Envelope, EnvelopeClass, NodeId, Recipient};
use jid::Jid;
use outbox::{OutboxSnapshot, UndeliveredStanza};
use throng_core::receipt::Receipt;
use throng_core::session::stream_management::{TakeoverError, TransferRefusal};
use throng_core::session::{Outbox, Session, flags};
use throng_core::shared_stanza::SharedStanza;

use super::moved_session::{MAX_BYTES, MovedSession, MovedStanza};
use super::phases::{OutgoingEvent, OutgoingPhase};
use super::{
    MAX_TRANSFERS, OutgoingTransfer, PART_BYTES, TAKEOVER_SECONDS, TransferRequest, encode_refusal, parts,
};
use crate::envelope_kinds::{MESSAGES_TAKEN, SESSION_REFUSAL, SESSION_STATE, SESSION_TAIL};
use crate::home::account_recipient;
use crate::message_copies;
use crate::routing::{ClusteredNode, OwnedClusteredNode};

/// A stanza that was sent to the other node, as the session here holds it.
pub(super) struct SentStanza {
    left: UndeliveredStanza,
    /// Its sender waits until it is safe there.
    is_tracked: bool,
    is_stored: bool,
    /// Other sessions here have it, too, and this node answers for it.
    is_shared: bool,
}

/// Unique as long as the stanza exists.
fn address(stanza: &SharedStanza) -> usize {
    stanza.bytes().as_ptr().addr()
}

/// Holds a session between its connection and the other node. Dropped before that has it, it ends the session.
struct TransferSource {
    node: OwnedClusteredNode,
    session: Arc<Session>,
    to: NodeId,
    request: TransferRequest,
    claimant: u64,
    /// The session has no other owner.
    owns: bool,
    /// Its state may be on the way.
    is_sent: bool,
}

impl Drop for TransferSource {
    fn drop(&mut self) {
        let node = self.node.view();
        let mut state = node.state.transfers.0.lock();
        let key = self.session.outbox.id;
        let is_present = state.outgoing.get(&key).is_some_and(|outgoing| outgoing.claimant == self.claimant);
        let removed = if is_present { state.outgoing.remove(&key) } else { None };
        drop(state);
        drop(removed);
        if self.owns && !self.is_sent && self.session.outbox.hand_over() {
            // Another request had replaced this one.
            return;
        }
        if self.owns || self.session.outbox.cancel_takeover(self.claimant) {
            // Has no effect if the other node has it.
            node.end_session(&self.session);
            node.outboxes.remove(&self.session.outbox);
        }
    }
}

impl TransferSource {
    /// Waits until the session's owner has handed it over. False if it does not in time.
    async fn claim(&mut self) -> bool {
        let deadline = self.node.view().seconds().saturating_add(TAKEOVER_SECONDS);
        self.owns = poll_fn(|cx| match self.session.outbox.poll_takeover(cx, self.claimant) {
            Poll::Pending if self.node.view().seconds() < deadline => {
                self.phase(cx);
                Poll::Pending
            }
            Poll::Pending => Poll::Ready(false),
            ready => ready,
        })
        .await;
        self.owns
    }

    /// The phase; registers the task to be woken when it changes.
    fn phase(&self, cx: &Context<'_>) -> OutgoingPhase {
        let node = self.node.view();
        let mut state = node.state.transfers.0.lock();
        match state.outgoing.get_mut(&self.session.outbox.id) {
            Some(outgoing) if outgoing.claimant == self.claimant => {
                outgoing.waker = Some(cx.waker().clone());
                outgoing.phase
            }
            _ => OutgoingPhase::Failed,
        }
    }

    fn advance(&self, event: OutgoingEvent, sent: Option<Arc<Vec<SentStanza>>>) -> OutgoingPhase {
        let node = self.node.view();
        let mut state = node.state.transfers.0.lock();
        match state.outgoing.get_mut(&self.session.outbox.id) {
            Some(outgoing) if outgoing.claimant == self.claimant => {
                outgoing.phase = outgoing.phase.after(event);
                outgoing.sent = sent.unwrap_or_else(|| outgoing.sent.clone());
                outgoing.phase
            }
            _ => OutgoingPhase::Failed,
        }
    }

    /// The state of the session as contents of envelopes, and its stanzas.
    fn prepare(&self) -> Result<(Vec<Vec<u8>>, Vec<SentStanza>), TransferRefusal> {
        let (node, session) = (self.node.view(), &self.session);
        session.outbox.resume(self.request.h).map_err(TransferRefusal::TooHigh)?;
        node.remove_delivered_backups(session);
        let handled = session.outbox.handled_count();
        let snapshot = session.outbox.snapshot().ok_or(TransferRefusal::Unknown(Some(handled)))?;
        let OutboxSnapshot { terms, handled, sent, stanzas, .. } = snapshot;
        let (moved, held) = node.describe_all(session, stanzas).into_iter().unzip();
        let (presence, directed_presence) = session.with(|state| {
            let directed = state.directed_presence.as_deref().cloned().unwrap_or_default();
            (state.presence.clone(), directed)
        });
        let moved = MovedSession {
            terms,
            sent,
            handled,
            bound_at: session.bound_at(),
            flags: session.flags.get(),
            presence: presence.zip(session.priority()),
            directed_presence,
            stanzas: moved,
        };
        let octets = moved.encode().ok_or(TransferRefusal::Unknown(Some(handled)))?;
        Ok((parts(self.request.number, &octets), held))
    }

    async fn run(mut self) {
        if !self.claim().await {
            return self.refuse(TransferRefusal::Unknown(None));
        }
        let (parts, sent) = match self.prepare() {
            Ok(prepared) => prepared,
            Err(refusal) => return self.refuse(refusal),
        };
        let sent = Arc::new(sent);
        // Before the state arrives: the answer to it may be there at once.
        if self.advance(OutgoingEvent::StateSent, Some(sent.clone())) != OutgoingPhase::Sent {
            return self.refuse(TransferRefusal::Unknown(None));
        }
        self.is_sent = true;
        let mut receipts = Vec::new();
        for part in parts {
            let own = self.node.view().cluster.node();
            let envelope = Envelope::new(SESSION_STATE, EnvelopeClass::Control, own, Vec::new(), part);
            match self.node.view().hand_over(self.to, envelope, None, true) {
                Ok(receipt) => receipts.extend(receipt),
                Err(refused) => {
                    tracing::debug!(%refused, "a session cannot be moved");
                    if self.advance(OutgoingEvent::Returned, None) == OutgoingPhase::Moved {
                        self.reroute_returned(&sent);
                    }
                    return self.refuse(TransferRefusal::Unknown(None));
                }
            }
        }
        let arrived = self.wait(receipts).await;
        match self.advance(OutgoingEvent::Returned, None) {
            OutgoingPhase::Moved if arrived => self.node.view().note_arrived(&self.session, &sent),
            OutgoingPhase::Moved => self.reroute_returned(&sent),
            _ => tracing::debug!(jid = %self.session.jid, "a session has not moved"),
        }
    }

    /// The session has ended here, and its state has returned. The other node is gone, or its client has bound the address there
    /// anew: then nobody else has what the state contained.
    fn reroute_returned(&self, sent: &[SentStanza]) {
        let node = self.node.view();
        let is_taken = node.begin_release(&self.session).is_none();
        let left = sent.iter().filter(|sent| sent.is_tracked || !is_taken).map(|sent| sent.left.clone());
        node.reroute(&self.session, left.collect());
    }

    /// Waits until the state is safe on the other node: true; or has returned.
    async fn wait(&self, receipts: Vec<Receipt>) -> bool {
        let outcome = poll_fn(|cx| {
            let mut all = true;
            for receipt in &receipts {
                match receipt.poll_outcome(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(false),
                    Poll::Ready(Ok(())) => {}
                    Poll::Pending => all = false,
                }
            }
            if all { Poll::Ready(true) } else { Poll::Pending }
        })
        .await;
        if outcome {
            // Its message about that may not have had room.
            self.node.view().finish_taken(&self.session, self.to);
        }
        outcome
    }

    fn refuse(&self, refusal: TransferRefusal) {
        self.node.view().refuse_session(self.to, self.request.number, refusal);
    }
}

impl ClusteredNode<'_> {
    fn refuse_session(&self, to: NodeId, request: u64, refusal: TransferRefusal) {
        let _ = self.send_about_session(to, SESSION_REFUSAL, Vec::new(), encode_refusal(request, refusal));
    }

    /// Another node asks for a session. False if the octets are no request.
    pub(crate) fn on_session_request(&self, from: NodeId, envelope: &Envelope) -> bool {
        let (Some(request), [Recipient::Address(jid)]) =
            (TransferRequest::decode(&envelope.bytes), &envelope.recipients[..])
        else {
            return false;
        };
        if let Err(refusal) = self.begin_outgoing(from, request, jid) {
            self.refuse_session(from, request.number, refusal);
        }
        true
    }

    fn begin_outgoing(&self, to: NodeId, request: TransferRequest, jid: &Jid) -> Result<(), TransferRefusal> {
        let hash = self.routing_table.hash(jid.as_ref());
        let unknown = || TransferRefusal::Unknown(self.ended_streams.get(hash, &request.token));
        let account = self.routing_table.find(jid.as_ref());
        let session = account.zip(jid.as_ref().resource()).and_then(|(a, resource)| a.session(resource));
        let session = session.filter(|session| !session.flags.has(flags::EPHEMERAL)).ok_or_else(unknown)?;
        let (key, claimant) = (session.outbox.id, Outbox::next_claimant());
        let refusal = |error| match error {
            TakeoverError::UnknownToken => unknown(),
            TakeoverError::TooHigh(error) => TransferRefusal::TooHigh(error),
        };
        session.outbox.check_takeover(&request.token, request.h).map_err(refusal)?;
        if session.outbox.unacked_bytes().saturating_add(session.outbox.queued_bytes()) as usize > MAX_BYTES {
            // It can be resumed here.
            return Err(TransferRefusal::Unknown(None));
        }
        let outgoing = OutgoingTransfer {
            to,
            request: request.number,
            claimant,
            phase: OutgoingPhase::Claiming,
            session: session.clone(),
            deadline: self.seconds().saturating_add(TAKEOVER_SECONDS),
            waker: None,
            sent: Arc::default(),
            is_released: false,
        };
        let mut state = self.state.transfers.0.lock();
        let is_free = match state.outgoing.get(&key) {
            Some(earlier) => earlier.phase == OutgoingPhase::Claiming,
            None => state.outgoing.len() < MAX_TRANSFERS,
        };
        if !is_free {
            return Err(TransferRefusal::Unknown(None));
        }
        let earlier = state.outgoing.insert(key, outgoing);
        drop(state);
        drop(earlier);
        let source = TransferSource {
            node: self.owned(),
            session,
            to,
            request,
            claimant,
            owns: false,
            is_sent: false,
        };
        // An earlier request is replaced.
        source.session.outbox.request_takeover(&request.token, request.h, claimant).map_err(refusal)?;
        self.spawner.spawn("session for another node", Box::pin(source.run()));
        Ok(())
    }

    /// Another node has taken a session. False if the octets are no number.
    pub(crate) fn on_session_taken(&self, from: NodeId, octets: &[u8]) -> bool {
        let Ok(request) = octets.try_into().map(u64::from_be_bytes) else { return false };
        let state = self.state.transfers.0.lock();
        let given =
            state.outgoing.values().find(|outgoing| outgoing.to == from && outgoing.request == request);
        let session = given.map(|outgoing| outgoing.session.clone());
        drop(state);
        if let Some(session) = session {
            self.finish_taken(&session, from);
        }
        true
    }

    /// Another node has bound a session with the state that was sent to it.
    fn finish_taken(&self, session: &Arc<Session>, to: NodeId) {
        let sent = if self.finish_move(session, to) { self.begin_release(session) } else { None };
        for stanza in sent.iter().flat_map(|sent| sent.iter()).filter(|sent| !sent.is_tracked) {
            self.release_sent(session, stanza);
        }
    }

    /// The stanzas of a session that has ended here, if this node still answers for the untracked ones. Not any more after this
    /// call.
    fn begin_release(&self, session: &Session) -> Option<Arc<Vec<SentStanza>>> {
        let mut state = self.state.transfers.0.lock();
        let outgoing = state.outgoing.get_mut(&session.outbox.id)?;
        let is_ended = outgoing.phase == OutgoingPhase::Moved;
        let begins = is_ended && !std::mem::replace(&mut outgoing.is_released, true);
        begins.then(|| outgoing.sent.clone())
    }

    /// Ends a session that another node has taken, or whose address it has bound, and sends what it has received meanwhile. What
    /// the state contained stays until it is known which of the two has happened. False if the session was not given to that
    /// node.
    pub(crate) fn finish_move(&self, session: &Arc<Session>, to: NodeId) -> bool {
        let mut state = self.state.transfers.0.lock();
        let outgoing = state.outgoing.get_mut(&session.outbox.id);
        let Some(outgoing) = outgoing.filter(|outgoing| outgoing.to == to) else { return false };
        let before = outgoing.phase;
        outgoing.phase = before.after(OutgoingEvent::Taken);
        if outgoing.phase != OutgoingPhase::Moved || before == OutgoingPhase::Moved {
            return before == OutgoingPhase::Moved;
        }
        let (sent, request, waker) = (outgoing.sent.clone(), outgoing.request, outgoing.waker.take());
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        self.start_forwarding(&session.account, to);
        // Otherwise another task has ended it, and reroutes what it held.
        if !session.end() {
            self.begin_release(session);
            return true;
        }
        // Contacts receive no `unavailable`.
        session.with(|state| (state.presence, state.directed_presence) = (None, None));
        let known: HashSet<usize> = sent.iter().map(|sent| address(&sent.left.item.stanza)).collect();
        let mut not_in_state = session.outbox.close_and_drain();
        not_in_state.retain(|left| !known.contains(&address(&left.item.stanza)));
        let held = sent.iter().map(|sent| &sent.left).chain(&not_in_state);
        let taken = message_copies::taken_messages(&session.account, held.map(|left| &left.item.stanza));
        if !taken.is_empty() {
            let _ =
                self.send_about_session(to, MESSAGES_TAKEN, vec![account_recipient(&session.account)], taken);
        }
        let not_sent = self.send_tail(to, request, session, not_in_state);
        self.finish_session(session);
        self.reroute(session, not_sent);
        tracing::debug!(jid = %session.jid, node = %to, "a session has moved to another node");
        true
    }

    /// This node does not answer for a stanza any more.
    fn release_sent(&self, session: &Arc<Session>, sent: &SentStanza) {
        let stanza = &sent.left.item.stanza;
        if sent.is_shared {
            // Unless another session here has it, or will reroute it.
            return self.reroute(session, vec![sent.left.clone()]);
        }
        message_copies::forget_copy(&session.account, stanza);
        if sent.is_stored
            && let Some(backup) = &session.account.host().message_backup
        {
            backup.release_backup(&session.account.jid, stanza);
        }
    }

    /// The other node has these stanzas safe.
    fn note_arrived(&self, session: &Arc<Session>, sent: &[SentStanza]) {
        let mut backups = Vec::new();
        for one in sent.iter().filter(|sent| sent.is_tracked) {
            let stanza = &one.left.item.stanza;
            message_copies::forget_copy(&session.account, stanza);
            backups.extend(stanza.confirm_delivery().then(|| stanza.clone()));
        }
        if let Some(backup) = session.account.host().message_backup.as_ref().filter(|_| !backups.is_empty()) {
            backup.remove_backups(self, &session.account, backups);
        }
    }

    fn describe_all(
        &self,
        session: &Session,
        held: Vec<UndeliveredStanza>,
    ) -> Vec<(MovedStanza, SentStanza)> {
        let account = &session.account;
        let host = account.host();
        let describe = |left: UndeliveredStanza| {
            let stanza = left.item.stanza.clone();
            let is_shared = stanza.is_shared();
            let is_tracked = !is_shared && stanza.is_delivery_unsettled();
            let row = stanza.stored().or_else(|| {
                let backup = host.message_backup.as_ref().filter(|_| !is_shared && !is_tracked)?;
                backup.row_of(&account.jid, &stanza)
            });
            let moved = MovedStanza {
                to_rewrite: left.item.to_rewrite,
                age: left.sent_at.map(|sent_at| self.seconds().saturating_sub(sent_at)),
                is_tracked,
                row,
                is_copy: is_shared || !message_copies::answers_for(account, &stanza),
                stanza,
            };
            (moved, SentStanza { left, is_tracked, is_stored: row.is_some(), is_shared })
        };
        held.into_iter().map(describe).collect()
    }

    /// Sends what a session has received since its state was sent, and reports the end of it. Returns what cannot be sent.
    fn send_tail(
        &self,
        to: NodeId,
        request: u64,
        session: &Arc<Session>,
        held: Vec<UndeliveredStanza>,
    ) -> Vec<UndeliveredStanza> {
        let mut chunks: Vec<(Vec<u8>, Vec<SentStanza>)> = vec![Default::default()];
        for (moved, sent) in self.describe_all(session, held) {
            if chunks.last().is_some_and(|(octets, _)| octets.len() >= PART_BYTES) {
                chunks.push(Default::default());
            }
            if let Some((octets, of_chunk)) = chunks.last_mut() {
                moved.encode(octets);
                of_chunk.push(sent);
            }
        }
        let (own, count) = (self.cluster.node(), chunks.len());
        let mut not_sent = Vec::new();
        for (position, (octets, sent)) in (1..).zip(chunks) {
            let is_last = u8::from(position == count);
            let octets = [&request.to_be_bytes()[..], &[is_last], &octets].concat();
            let envelope = Envelope::new(SESSION_TAIL, EnvelopeClass::Control, own, Vec::new(), octets);
            match self.hand_over(to, envelope, None, true) {
                Ok(receipt) => self.await_tail(session, receipt, sent),
                Err(_) => not_sent.extend(sent.into_iter().map(|sent| sent.left)),
            }
        }
        not_sent
    }

    /// Waits until stanzas are safe on the other node, in a task.
    fn await_tail(&self, session: &Arc<Session>, receipt: Option<Receipt>, sent: Vec<SentStanza>) {
        if sent.is_empty() {
            return;
        }
        let (node, session) = (self.owned(), session.clone());
        let task = async move {
            let outcome = match receipt {
                Some(receipt) => poll_fn(|cx| receipt.poll_outcome(cx)).await,
                None => Ok(()),
            };
            let node = node.view();
            if outcome.is_err() {
                return node.reroute(&session, sent.into_iter().map(|sent| sent.left).collect());
            }
            sent.iter().filter(|sent| !sent.is_tracked).for_each(|sent| node.release_sent(&session, sent));
            node.note_arrived(&session, &sent);
        };
        self.spawner.spawn("stanzas of a session that has moved", Box::pin(task));
    }
}
