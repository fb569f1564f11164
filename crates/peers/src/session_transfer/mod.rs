//! Resumption of a stream on another node: the node that holds a session hands it over. XEP-0198 1.6.3, section 5.
//!
//! A node whose client names a stream that it does not hold asks the nodes with sessions of the account. The one with the session
//! compares the token in constant time, takes the session from its connection as another connection would, and sends its state.
//! The other node binds the address; from then on it is the owner, and contacts do not notice. What arrived at the old node
//! meanwhile follows, and the old session ends without `unavailable`. `phases` has the phases of both nodes, `moved_session` the
//! octets, `outgoing` and `incoming` what each node does.
//!
//! ```text
//! request    8 its number, 16 token, 4 `h`; the recipient is the full address
//! refusal    8 the number, 1 reason, 4 `h` or stanzas sent
//! state      8 the number, 2 position, 2 number of parts; a part of a session
//! offer      16 token, 4 stanzas that the client has acknowledged; the recipient is the full address
//! taken      8 the number
//! messages   24 for each stanza-id of a message that was taken on the old node; the recipient is the account
//! tail       8 the number, 1 whether it is the last one; stanzas
//! presence   of a contact or another resource, for a session that was here a moment ago: as the presence that arrived
//! probe      2 + n name of the node of a contact or another resource; its probe for a session that was here a moment ago
//! ```
//!
//! A node that is drained offers its sessions to the others. One that accepts an offer requests the session as for a client that resumes
//! it, and keeps it detached until that client comes (`offers`).
//!
//! A tracked message is safe when the envelope that has it is settled: until then the old node answers for it. A message that the store
//! has moves with its row, which the new node removes when the client acknowledges it.
//!
//! Not implemented: rate limits of the session; capabilities of its client, until that sends presence; requests to the client that are
//! not answered yet; copies of messages, and pushes other than `unavailable`, that reach the old node when the session has left it.
//!
//! # Pitfalls
//!
//! A node that loses the other one after it has sent the state does not know whether that has the session. It ends its own, as if
//! its connection were lost: the messages have their stanza-ids, by which the other node recognises them.

mod incoming;
mod moved_session;
mod offers;
mod outgoing;
mod phases;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::task::Waker;

use base::lock::LeafMutex;
use cluster::{
    AddressReference, Envelope, EnvelopeClass, EnvelopeKind, NodeId, Recipient, RefusalReason, Ticket,
};
use smallvec::SmallVec;
use store::AddressId;
use throng_core::account::Account;
use throng_core::session::Session;
use throng_core::session::stream_management::{HandledCountTooHigh, TOKEN_BYTES, TransferRefusal};
use throng_core::shared_stanza::SharedStanza;

use self::phases::{IncomingEvent, IncomingPhase, OutgoingPhase};
use crate::ClusteredNode;
use crate::envelope_kinds::{FORWARDED_PRESENCE, FORWARDED_PROBE, SESSION_STATE};
use crate::notices::write_text;
use crate::peer_push::pushed_unavailable;
use crate::presence_change::encode_change;

pub use offers::{OfferedSession, OfferedSessionHandler, TakeOfferedSession, offer_session};

/// Seconds for an answer to a request, and for what follows it.
const TIMEOUT_SECONDS: u32 = 5;
/// Seconds for the owner of a requested session to hand it over. Less than the other node waits: a session that is handed over
/// after that would end.
const TAKEOVER_SECONDS: u32 = 2;
/// Maximum number of sessions that move to this node, and that leave it, at a time.
const MAX_TRANSFERS: usize = 1024;
/// Maximum octets of received sessions that are not bound yet.
const MAX_RECEIVED_BYTES: usize = 64 << 20;
/// Maximum number of nodes that are asked for a session.
const MAX_ASKED: usize = 16;
/// Octets of a session in one envelope.
const PART_BYTES: usize = 192 << 10;
/// Maximum number of these envelopes.
const MAX_PARTS: usize = moved_session::MAX_BYTES / PART_BYTES + 2;
/// Seconds for which presence for an account that has left is sent after it.
const FORWARD_SECONDS: u32 = 60;
/// Maximum number of such accounts. Presence for further ones is not forwarded.
const MAX_FORWARDED: usize = 16_384;
/// Maximum number of nodes to which presence for one account is forwarded.
const MAX_FORWARDED_OF_ACCOUNT: usize = 4;

/// A session that another node has requested.
struct OutgoingTransfer {
    to: NodeId,
    /// Number of its request there.
    request: u64,
    /// Number under which the outbox knows the request.
    claimant: u64,
    phase: OutgoingPhase,
    session: Arc<Session>,
    /// Second of the node's clock at which the claim ends.
    deadline: u32,
    waker: Option<Waker>,
    /// The stanzas that were sent with the state.
    sent: Arc<Vec<outgoing::SentStanza>>,
    /// This node does not answer for the untracked ones any more.
    is_released: bool,
}

/// A session that was requested.
struct IncomingTransfer {
    phase: IncomingPhase,
    /// Nodes that have not answered.
    waiting: BTreeSet<NodeId>,
    /// The node that sends the session.
    from: Option<NodeId>,
    parts: Vec<Envelope>,
    /// Chunks of the tail that arrived before the session was bound.
    early_chunks: Vec<Envelope>,
    /// Everything has followed.
    has_tail: bool,
    refusal: TransferRefusal,
    session: Option<Arc<Session>>,
    /// Second of the node's clock.
    deadline: u32,
    waker: Option<Waker>,
}

/// What is known when a node has refused after another one.
fn refusal_of_both(one: TransferRefusal, other: TransferRefusal) -> TransferRefusal {
    match one {
        TransferRefusal::TooHigh(_) | TransferRefusal::Unknown(Some(_)) => one,
        TransferRefusal::Unknown(None) => other,
    }
}

fn encode_refusal(request: u64, refusal: TransferRefusal) -> Vec<u8> {
    let (reason, numbers) = match refusal {
        TransferRefusal::Unknown(None) => (0, [0; 2]),
        TransferRefusal::Unknown(Some(handled)) => (1, [handled, 0]),
        TransferRefusal::TooHigh(HandledCountTooHigh { h, sent }) => (2, [h, sent]),
    };
    let mut out = request.to_be_bytes().to_vec();
    out.push(reason);
    numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
    out
}

fn decode_refusal(octets: &[u8]) -> Option<(u64, TransferRefusal)> {
    let (request, rest) = octets.split_first_chunk()?;
    let &[reason, a, b, c, d, e, f, g, h] = rest else { return None };
    let [first, second] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
    let refusal = match reason {
        0 => TransferRefusal::Unknown(None),
        1 => TransferRefusal::Unknown(Some(first)),
        2 => TransferRefusal::TooHigh(HandledCountTooHigh { h: first, sent: second }),
        _ => return None,
    };
    Some((u64::from_be_bytes(*request), refusal))
}

/// Content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TransferRequest {
    number: u64,
    token: [u8; TOKEN_BYTES],
    h: u32,
}

impl TransferRequest {
    fn encode(self) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &self.token, &self.h.to_be_bytes()].concat()
    }

    fn decode(octets: &[u8]) -> Option<TransferRequest> {
        let (number, rest) = octets.split_first_chunk()?;
        let (token, h) = rest.split_first_chunk()?;
        let h = h.try_into().ok().map(u32::from_be_bytes)?;
        Some(TransferRequest { number: u64::from_be_bytes(*number), token: *token, h })
    }
}

/// Accounts whose sessions have left, by hash and number, with the nodes to which these have moved and the second of the node's clock
/// until which presence is forwarded there. An account cannot displace others.
#[derive(Default)]
struct ForwardedAccounts(HashMap<(u64, AddressId), ForwardedTo>);

type ForwardedTo = SmallVec<[(NodeId, u32); 1]>;

impl ForwardedAccounts {
    fn add(&mut self, account: (u64, AddressId), to: NodeId, until: u32) {
        if self.0.len() >= MAX_FORWARDED && !self.0.contains_key(&account) {
            return;
        }
        let nodes = self.0.entry(account).or_default();
        nodes.retain(|(node, _)| *node != to);
        if nodes.len() >= MAX_FORWARDED_OF_ACCOUNT {
            nodes.remove(0);
        }
        nodes.push((to, until));
    }

    fn retain(&mut self, keeps: impl Fn(NodeId, u32) -> bool) {
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|_, nodes| {
            nodes.retain(|(node, until)| keeps(*node, *until));
            !nodes.is_empty()
        });
        if self.0.is_empty() {
            self.0 = HashMap::new();
        }
    }
}

#[derive(Default)]
struct TransferState {
    next: u64,
    /// By the number of the outbox.
    outgoing: HashMap<u64, OutgoingTransfer>,
    /// By the number of the request.
    incoming: HashMap<u64, IncomingTransfer>,
    received_bytes: usize,
    /// Accounts for which presence is forwarded to the nodes of their moved sessions.
    forwarded: ForwardedAccounts,
    /// Sessions whose old node was lost while they moved: contacts may have learnt from it that they have ended.
    interrupted: Vec<(NodeId, Weak<Session>)>,
}

/// Sessions that move between this node and others.
#[derive(Default)]
pub(super) struct SessionTransfers(LeafMutex<TransferState>);

impl SessionTransfers {
    /// A node is gone: it gives no session, and sends nothing more of one that it has given.
    pub(super) fn forget_node(&self, node: NodeId) {
        let mut wakers = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        for incoming in state.incoming.values_mut() {
            let asked = incoming.waiting.remove(&node);
            let was_last = asked && incoming.waiting.is_empty() && incoming.from.is_none();
            if incoming.from == Some(node) || was_last {
                incoming.phase = incoming.phase.after(IncomingEvent::Lost);
            }
            wakers.extend(incoming.waker.take());
        }
        state.forwarded.retain(|to, _| to != node);
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes what has waited long enough.
    fn expire(&self, now: u32) {
        let mut wakers = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        for incoming in state.incoming.values_mut().filter(|incoming| incoming.deadline <= now) {
            incoming.phase = incoming.phase.after(IncomingEvent::Lost);
            wakers.extend(incoming.waker.take());
        }
        let late = state.outgoing.values_mut().filter(|outgoing| outgoing.deadline <= now);
        wakers.extend(late.filter_map(|outgoing| outgoing.waker.take()));
        state.forwarded.retain(|_, until| until > now);
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The nodes to which sessions of an account have moved a moment ago.
    fn forwarded_to(&self, account: AddressReference) -> SmallVec<[NodeId; 1]> {
        let state = self.0.lock();
        let moved = state.forwarded.0.get(&(account.hash, AddressId(account.number)));
        moved.into_iter().flatten().map(|(to, _)| *to).collect()
    }
}

impl ClusteredNode<'_> {
    /// Ends what has waited long enough. Called by the sweep.
    pub(super) fn expire_session_transfers(&self, now: u32) {
        self.state.transfers.expire(now);
    }

    fn send_about_session(
        &self,
        to: NodeId,
        kind: EnvelopeKind,
        recipients: Vec<Recipient>,
        octets: Vec<u8>,
    ) -> Result<Ticket, RefusalReason> {
        let class = EnvelopeClass::Control;
        let envelope = Envelope::new(kind, class, self.cluster.node(), recipients, octets);
        self.cluster.deliver(to, envelope).map_err(|refused| {
            tracing::debug!(%refused, "a message about a session that moves was not sent");
            refused.reason
        })
    }

    /// Presence for an account of which a session has moved a moment ago. The other node may have received a later one, so it asks
    /// for the present one.
    pub(super) fn forward_presence(&self, envelope: &Envelope) {
        self.forward_to_moved(FORWARDED_PRESENCE, envelope, |_| Some(envelope.bytes.to_vec()));
    }

    /// A probe for an account of which a session has moved a moment ago. The probing node may know the session here and not
    /// yet its new node, which assumes that its presence was fetched already.
    pub(super) fn forward_probe(&self, node: NodeId, envelope: &Envelope) {
        self.forward_to_moved(FORWARDED_PROBE, envelope, |_| {
            let mut octets = Vec::new();
            write_text(&mut octets, node.as_str());
            octets.extend(&envelope.bytes[..]);
            Some(octets)
        });
    }

    /// As [`ClusteredNode::forward_presence`], for a push, which may be the `unavailable` of another resource.
    pub(super) fn forward_push(&self, envelope: &Envelope) {
        self.forward_to_moved(FORWARDED_PRESENCE, envelope, |account| {
            let stanza = pushed_unavailable(&envelope.bytes)?;
            Some(encode_change(&[], AddressId(account.number), &stanza))
        });
    }

    /// As [`ClusteredNode::forward_presence`], for the answer to a probe.
    pub(super) fn forward_answer(&self, envelope: &Envelope, contact: AddressId, presence: &SharedStanza) {
        let octets = |_| Some(encode_change(&[], contact, presence));
        self.forward_to_moved(FORWARDED_PRESENCE, envelope, octets);
    }

    /// Forwards to each node what concerns sessions that have moved there, in one envelope. `octets`: of the first account. What has
    /// several recipients is the same for all.
    fn forward_to_moved(
        &self,
        kind: EnvelopeKind,
        envelope: &Envelope,
        octets: impl FnOnce(AddressReference) -> Option<Vec<u8>>,
    ) {
        if self.state.transfers.0.lock().forwarded.0.is_empty() {
            return;
        }
        let (mut first, mut moved) = (None, BTreeMap::<NodeId, Vec<Recipient>>::new());
        for recipient in &envelope.recipients {
            let Recipient::Account(account) = recipient else { continue };
            for to in self.state.transfers.forwarded_to(*account) {
                first.get_or_insert(*account);
                moved.entry(to).or_default().push(recipient.clone());
            }
        }
        let Some(octets) = first.and_then(octets) else { return };
        let octets: Arc<[u8]> = octets.into();
        for (to, recipients) in moved {
            let (class, own) = (EnvelopeClass::Control, self.cluster.node());
            let envelope = Envelope::new(kind, class, own, recipients, octets.clone());
            if self.hand_over_presence(to, envelope.clone()) == Err(RefusalReason::QueueFull) {
                self.forwarding_is_due(to, envelope);
            }
        }
    }

    /// A node has returned: contacts may have learnt from it that sessions have ended which it has given to this node.
    pub(super) fn show_interrupted_sessions(&self, node: NodeId) {
        let mut state = self.state.transfers.0.lock();
        let sessions: Vec<Weak<Session>> =
            state.interrupted.extract_if(.., |(from, _)| *from == node).map(|(_, session)| session).collect();
        drop(state);
        for session in sessions.iter().filter_map(Weak::upgrade).filter(|session| !session.is_ended()) {
            self.broadcast_again(&session);
        }
    }

    /// What followed a session has not arrived: its old node may end it as if its connection were lost.
    fn note_interrupted(&self, from: NodeId, session: &Arc<Session>) {
        let mut state = self.state.transfers.0.lock();
        state.interrupted.retain(|(_, session)| session.strong_count() > 0);
        if state.interrupted.len() < MAX_TRANSFERS {
            state.interrupted.push((from, Arc::downgrade(session)));
        }
    }

    fn start_forwarding(&self, account: &Account, to: NodeId) {
        let until = self.seconds().saturating_add(FORWARD_SECONDS);
        let mut state = self.state.transfers.0.lock();
        state.forwarded.add((account.hash, account.id), to, until);
    }
}

/// The parts of a session as contents of envelopes.
fn parts(request: u64, octets: &[u8]) -> Vec<Vec<u8>> {
    let count = octets.len().div_ceil(PART_BYTES).max(1);
    let number = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
    let part = |(position, part): (usize, &[u8])| {
        [&request.to_be_bytes()[..], &number(position), &number(count), part].concat()
    };
    octets.chunks(PART_BYTES).enumerate().map(part).collect()
}

/// The request, the position and the number of parts, and the octets of a part.
fn read_part(envelope: &Envelope) -> Option<(u64, u16, u16, &[u8])> {
    let (request, rest) = envelope.bytes.split_first_chunk()?;
    let (position, rest) = rest.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (position, count) = (u16::from_be_bytes(*position), u16::from_be_bytes(*count));
    let is_valid = envelope.header.kind == SESSION_STATE && position < count;
    is_valid.then_some((u64::from_be_bytes(*request), position, count, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_refusals_and_parts_are_read_as_they_were_written() {
        let request = TransferRequest { number: u64::MAX, token: [7; TOKEN_BYTES], h: 3 };
        assert_eq!(TransferRequest::decode(&request.encode()), Some(request));
        assert!((0..28).all(|length| TransferRequest::decode(&request.encode()[..length]).is_none()));
        let too_high = TransferRefusal::TooHigh(HandledCountTooHigh { h: 9, sent: 8 });
        for refusal in [TransferRefusal::Unknown(None), TransferRefusal::Unknown(Some(5)), too_high] {
            let octets = encode_refusal(4, refusal);
            assert_eq!(decode_refusal(&octets), Some((4, refusal)));
            assert!((0..octets.len()).all(|length| decode_refusal(&octets[..length]).is_none()));
            assert_eq!(refusal_of_both(TransferRefusal::Unknown(None), refusal), refusal);
            let known = if refusal == TransferRefusal::Unknown(None) { too_high } else { refusal };
            assert_eq!(refusal_of_both(refusal, too_high), known);
        }
        let octets: Vec<u8> = (0..=u8::MAX).cycle().take(PART_BYTES * 2 + 1).collect();
        let own = NodeId::new("a").unwrap();
        let envelope =
            |part: Vec<u8>| Envelope::new(SESSION_STATE, EnvelopeClass::Control, own, vec![], part);
        let envelopes: Vec<Envelope> = parts(6, &octets).into_iter().map(envelope).collect();
        let read: Vec<_> = envelopes.iter().map(|envelope| read_part(envelope).unwrap()).collect();
        assert!(
            read.iter().enumerate().all(|(at, part)| (part.0, usize::from(part.1), part.2) == (6, at, 3))
        );
        assert_eq!(read.iter().flat_map(|part| part.3).copied().collect::<Vec<u8>>(), octets);
    }

    #[test]
    fn presence_is_forwarded_for_a_while_and_the_accounts_are_bounded() {
        let transfers = SessionTransfers::default();
        let to = NodeId::new("a").unwrap();
        let number = |number| std::num::NonZero::new(number).unwrap();
        let forwarded_to =
            |of| transfers.forwarded_to(AddressReference { hash: 1, number: number(of) }).into_vec();
        let add = |of, to| transfers.0.lock().forwarded.add((1, AddressId(number(of))), to, 10);
        add(2, to);
        assert_eq!((forwarded_to(2), forwarded_to(3)), (vec![to], vec![]), "the number decides");
        transfers.expire(9);
        assert_eq!(forwarded_to(2), [to]);
        let others = (0..10).map(|n| NodeId::new(&format!("node-{n}")).unwrap());
        others.for_each(|other| add(3, other));
        assert_eq!(forwarded_to(3).len(), MAX_FORWARDED_OF_ACCOUNT, "of one account");
        (4..2 + u32::try_from(MAX_FORWARDED).unwrap() + 10).for_each(|of| add(of, to));
        assert_eq!(transfers.0.lock().forwarded.0.len(), MAX_FORWARDED);
        assert_eq!(forwarded_to(2), [to], "others have not displaced it");
        transfers.forget_node(NodeId::new("node-9").unwrap());
        assert_eq!(forwarded_to(3).len(), MAX_FORWARDED_OF_ACCOUNT - 1);
        transfers.expire(10);
        assert!(forwarded_to(2).is_empty() && transfers.0.lock().forwarded.0.is_empty());
    }
}
