//! Conformance suite of the [`Cluster`] trait: `cluster::conformance_suite!(name, make)` generates one test for each
//! rule of the list in this file; a rule that is not on the list does not compile.
//!
//! `make` builds a [`TestCluster`] with any number of nodes, at least one. The rules are stated for every pair
//! of nodes, so that a single node passes by what it refuses. Rules about partitions and crashes are not
//! included, because not every network can be partitioned from within a test; those of the bus are in
//! `tests/memory.rs`.
//!
//! Long because one list names all rules.
//!
//! # Pitfalls
//!
//! A rule must not read the clock or count steps. It states what must eventually be true
//! ([`TestCluster::run_until`]) and what must not have happened once nothing is in transit
//! ([`TestCluster::run_until_idle`]).
#![deny(dead_code)]

use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use jid::Jid;

use crate::{
    AddressLocation, AddressNumber, AddressReference, Claim, Cluster, Envelope, EnvelopeClass, EnvelopeKind,
    HandoverResult, Inbox, InvalidationSubject, MembershipChange, NodeId, PeerViolation, Recipient,
    RefusalReason, Ticket,
};

/// Defines `conformance_suite!` from the names of the rules, which are private functions.
macro_rules! rules {
    ($($rule:ident),+ $(,)?) => { rules! { @($) $($rule),+ } };
    (@($d:tt) $($rule:ident),+) => {
        #[doc(hidden)]
        #[allow(missing_docs, reason = "the names say the rules")]
        pub mod rules {
            $(
                pub fn $rule(lab: &dyn $crate::conformance::TestCluster) {
                    super::$rule(lab);
                }
            )+
        }

        /// Generates the suite: `conformance_suite!(single, || Box::new(my_lab()))` creates a module `single` of tests.
        #[macro_export]
        macro_rules! conformance_suite {
            ($d name:ident, $d make:expr) => {
                mod $d name {
                    use super::*;
                    $(
                        #[test]
                        fn $rule() {
                            let make: fn() -> Box<dyn $crate::conformance::TestCluster> = $d make;
                            $crate::conformance::rules::$rule(&*make());
                        }
                    )+
                }
            };
        }
    };
}

rules! {
    members_are_known_everywhere,
    claims_are_seen_everywhere,
    claims_are_counted,
    a_claim_is_reported_once_to_each_node,
    an_address_can_be_on_many_nodes,
    the_oldest_claim_is_the_home,
    a_number_distinguishes_addresses_with_one_hash,
    readiness_for_messages_is_seen_everywhere,
    kept_parcels_arrive_once_in_order,
    best_effort_is_never_reordered,
    broadcasts_reach_the_others,
    every_field_arrives_unchanged,
    tickets_increase_and_best_effort_has_none,
    an_envelope_that_is_settled_late_delays_no_receipt_of_another,
    a_later_receipt_ends_the_retention_of_its_envelope,
    refused_recipients_return_before_the_receipt,
    an_envelope_is_settled_once,
    what_cannot_be_sent_comes_back,
    an_inbox_may_call_its_cluster,
    a_member_that_drains_owns_nothing,
    leaving_is_polite,
}

/// Nodes of one cluster, and control over the passing of time.
pub trait TestCluster {
    /// The nodes; each is a member for all others.
    fn nodes(&self) -> Vec<Arc<dyn Cluster>>;
    /// Runs the network until `done`; `false` when it gives up.
    fn run_until(&self, done: &dyn Fn() -> bool) -> bool;
    /// Runs the network until nothing is in transit.
    fn run_until_idle(&self);
}

/// A call of an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxEvent {
    /// [`Inbox::on_envelope`].
    Envelope(NodeId, Envelope),
    /// [`Inbox::on_receipts`].
    Receipts(NodeId, Ticket, Vec<Ticket>),
    /// [`Inbox::on_refused`].
    Refused(NodeId, Envelope),
    /// [`Inbox::on_undelivered`].
    Undelivered(NodeId, Envelope),
    /// [`Inbox::on_membership_change`].
    Changed(MembershipChange),
    /// [`Inbox::on_violation`].
    Violation(NodeId, PeerViolation),
}

/// An inbox that records its calls in order, and settles envelopes as safe.
pub struct InboxRecorder {
    events: LeafMutex<Vec<InboxEvent>>,
    claims: LeafMutex<Vec<(NodeId, Claim)>>,
    /// The cluster in which envelopes are settled when they arrive; none if the test settles them.
    settles: Option<Weak<dyn Cluster>>,
}

impl InboxRecorder {
    /// Attaches a recorder to `cluster`.
    pub fn attach(cluster: &Arc<dyn Cluster>) -> Arc<InboxRecorder> {
        let recorder = InboxRecorder {
            events: LeafMutex::default(),
            claims: LeafMutex::default(),
            settles: Some(Arc::downgrade(cluster)),
        };
        InboxRecorder::attach_to(cluster, recorder)
    }

    /// Attaches a recorder to `cluster` that settles nothing: the test does.
    pub fn attach_unsettled(cluster: &Arc<dyn Cluster>) -> Arc<InboxRecorder> {
        let recorder =
            InboxRecorder { events: LeafMutex::default(), claims: LeafMutex::default(), settles: None };
        InboxRecorder::attach_to(cluster, recorder)
    }

    fn attach_to(cluster: &Arc<dyn Cluster>, recorder: InboxRecorder) -> Arc<InboxRecorder> {
        let recorder = Arc::new(recorder);
        cluster.attach(recorder.clone());
        recorder
    }

    /// The calls of [`Inbox::on_claim`].
    pub fn claims(&self) -> Vec<(NodeId, Claim)> {
        self.claims.lock().clone()
    }

    /// All recorded calls, except those of [`Inbox::on_claim`].
    pub fn events(&self) -> Vec<InboxEvent> {
        self.events.lock().clone()
    }

    /// The texts of the envelopes that arrived from `from`.
    pub fn texts(&self, from: NodeId) -> Vec<String> {
        let text = |received: &InboxEvent| match received {
            InboxEvent::Envelope(origin, envelope) if *origin == from => {
                Some(String::from_utf8_lossy(&envelope.bytes).into_owned())
            }
            _ => None,
        };
        self.events.lock().iter().filter_map(text).collect()
    }

    /// The tickets of the envelopes that arrived from `from`.
    pub fn tickets(&self, from: NodeId) -> Vec<Ticket> {
        let ticket = |received: &InboxEvent| match received {
            InboxEvent::Envelope(origin, envelope) if *origin == from => Some(envelope.ticket()),
            _ => None,
        };
        self.events.lock().iter().filter_map(ticket).collect()
    }

    /// The last ticket that a receipt of `from` covers.
    pub fn receipt(&self, from: NodeId) -> Option<Ticket> {
        let up_to = |received: &InboxEvent| match received {
            InboxEvent::Receipts(origin, up_to, _) if *origin == from => Some(*up_to),
            _ => None,
        };
        self.events.lock().iter().rev().find_map(up_to)
    }

    /// Tickets that receipts of `from` have named beyond those that they cover, in the order of the receipts.
    pub fn later_receipts(&self, from: NodeId) -> Vec<Ticket> {
        let later = |received: &InboxEvent| match received {
            InboxEvent::Receipts(origin, _, later) if *origin == from => later.clone(),
            _ => Vec::new(),
        };
        self.events.lock().iter().flat_map(later).collect()
    }
}

impl Inbox for InboxRecorder {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        let ticket = envelope.ticket();
        self.events.lock().push(InboxEvent::Envelope(from, envelope));
        if ticket.has_receipt()
            && let Some(cluster) = self.settles.as_ref().and_then(Weak::upgrade)
        {
            cluster.settle(from, ticket, HandoverResult::Safe);
        }
    }

    fn on_receipts(&self, from: NodeId, up_to: Ticket, later: &[Ticket]) {
        self.events.lock().push(InboxEvent::Receipts(from, up_to, later.to_vec()));
    }

    fn on_refused(&self, from: NodeId, envelope: Envelope) {
        self.events.lock().push(InboxEvent::Refused(from, envelope));
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        self.events.lock().push(InboxEvent::Undelivered(to, envelope));
    }

    fn on_claim(&self, from: NodeId, claim: Claim) {
        self.claims.lock().push((from, claim));
    }

    fn on_membership_change(&self, change: MembershipChange) {
        self.events.lock().push(InboxEvent::Changed(change));
    }

    fn on_violation(&self, from: NodeId, violation: PeerViolation) {
        self.events.lock().push(InboxEvent::Violation(from, violation));
    }
}

/// An envelope with this text for `juliet@example.com/balcony`.
pub fn test_envelope(own: NodeId, class: EnvelopeClass, text: &str) -> Envelope {
    let recipients = Jid::parse("juliet@example.com/balcony").into_iter().map(Recipient::from).collect();
    Envelope::new(EnvelopeKind::Engine(7), class, own, recipients, text.as_bytes())
}

/// A claim of the address with this hash and number.
pub fn test_claim(address: u64, number: u32, since: u64) -> Claim {
    Claim { address, number: AddressNumber::new(number), since, takes_messages: false }
}

type RecordedNode = (Arc<dyn Cluster>, Arc<InboxRecorder>);

fn attach_recorders(lab: &dyn TestCluster) -> Vec<RecordedNode> {
    let seats: Vec<RecordedNode> =
        lab.nodes().into_iter().map(|node| (node.clone(), InboxRecorder::attach(&node))).collect();
    lab.run_until_idle();
    seats
}

fn pairs(seats: &[RecordedNode]) -> impl Iterator<Item = (&RecordedNode, &RecordedNode)> {
    seats
        .iter()
        .flat_map(|from| seats.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.0.node() != to.0.node())
}

/// Every node knows all members, in order and once.
fn members_are_known_everywhere(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let mut names: Vec<NodeId> = seats.iter().map(|(node, _)| node.node()).collect();
    names.sort();
    for (node, recorder) in &seats {
        let members = node.members();
        assert_eq!(members.iter().map(|member| member.node).collect::<Vec<_>>(), names);
        assert!(!node.is_single() || names.len() == 1, "a single node has no company");
        let others: Vec<InboxEvent> = members
            .into_iter()
            .filter(|member| member.node != node.node())
            .map(|member| InboxEvent::Changed(MembershipChange::Joined(member)))
            .collect();
        let mut received = recorder.events();
        received.sort_by_key(|received| {
            if let InboxEvent::Changed(MembershipChange::Joined(member)) = received {
                Some(member.node)
            } else {
                None
            }
        });
        assert_eq!(received, others, "an inbox receives the nodes that were there first");
    }
}

/// A claim is located by all nodes, and by none after its release.
fn claims_are_seen_everywhere(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for (number, (owner, _)) in (1_u64..).zip(&seats) {
        let claim = test_claim(number, 1, 1);
        owner.claim(claim);
        assert!(
            owner.locate(number, None).contains(owner.node(), owner.node()),
            "one's own claim is seen at once"
        );
        assert!(lab.run_until(&|| {
            seats.iter().all(|(node, _)| node.locate(number, None).contains(node.node(), owner.node()))
        }));
        owner.release(number, claim.number);
        let gone = |(node, _): &RecordedNode| {
            node.is_single() || node.locate(number, None) == AddressLocation::Nowhere
        };
        assert!(lab.run_until(&|| seats.iter().all(gone)));
    }
}

/// Of several claims on one address the first is reported, and again after its release.
fn a_claim_is_reported_once_to_each_node(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let claim = test_claim(6, 1, 1);
    for (owner, _) in &seats {
        for _ in 0..2 {
            owner.claim(claim);
            owner.claim(claim);
            owner.set_takes_messages(6, claim.number, true);
            owner.release(6, claim.number);
            lab.run_until_idle();
            owner.release(6, claim.number);
            lab.run_until_idle();
        }
    }
    for ((owner, _), (_, other)) in pairs(&seats) {
        let reported: Vec<Claim> = other
            .claims()
            .iter()
            .filter(|(from, _)| *from == owner.node())
            .map(|(_, claim)| *claim)
            .collect();
        assert_eq!(reported, [claim, claim]);
    }
}

/// Two claims on one hash need two releases; an additional release has no effect.
fn claims_are_counted(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let claim = test_claim(5, 1, 1);
    for (owner, _) in &seats {
        let seen = || seats.iter().all(|(node, _)| node.locate(5, None).contains(node.node(), owner.node()));
        let gone = || {
            seats.iter().all(|(node, _)| node.is_single() || node.locate(5, None) == AddressLocation::Nowhere)
        };
        owner.claim(claim);
        owner.claim(claim);
        owner.release(5, claim.number);
        lab.run_until_idle();
        assert!(seen(), "one claim is left");
        owner.release(5, None);
        lab.run_until_idle();
        assert!(seen(), "another address with this hash was released");
        owner.release(5, claim.number);
        owner.release(5, claim.number);
        assert!(lab.run_until(&gone));
        owner.claim(claim);
        assert!(lab.run_until(&seen));
        owner.release(5, claim.number);
        assert!(lab.run_until(&gone));
    }
}

/// An address can be on many nodes; each node distinguishes itself from the others.
fn an_address_can_be_on_many_nodes(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    seats.iter().for_each(|(node, _)| node.claim(test_claim(9, 1, 1)));
    lab.run_until_idle();
    for (node, _) in &seats {
        let place = node.locate(9, None);
        let others: Vec<NodeId> =
            node.members().iter().map(|member| member.node).filter(|name| *name != node.node()).collect();
        assert_eq!(place.other_nodes(node.node()).collect::<Vec<_>>(), others);
        assert!(place.contains(node.node(), node.node()));
        assert_eq!(matches!(place, AddressLocation::Many(_)), seats.len() > 1);
    }
}

/// All nodes name the same home: the oldest claim, then the first name. It moves when that claim is released.
fn the_oldest_claim_is_the_home(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    // Later names have older claims; the last two are equally old.
    let last = u64::try_from(seats.len()).unwrap_or(u64::MAX);
    let mut order: Vec<(u64, NodeId)> = seats.iter().map(|(node, _)| (0, node.node())).collect();
    order.sort();
    for (at, (since, _)) in (1_u64..).zip(&mut order) {
        *since = 1000 - at.min(last - 1);
    }
    let number = AddressNumber::new(4);
    for (node, _) in &seats {
        let since = order.iter().find(|(_, name)| *name == node.node()).map_or(0, |(since, _)| *since);
        node.claim(test_claim(9, 4, since));
    }
    lab.run_until_idle();
    order.sort();
    while let Some((_, home)) = order.first().copied() {
        for (node, _) in &seats {
            let location = node.locate(9, number);
            assert_eq!(location.home(node.node()), Some(home));
            if let AddressLocation::Many(claims) = &location {
                let claims: Vec<_> = claims.iter().map(|at| (at.claim.since, at.node)).collect();
                assert_eq!(claims, order, "oldest first");
            }
        }
        if seats.len() == 1 {
            return;
        }
        seats.iter().filter(|(node, _)| node.node() == home).for_each(|(node, _)| node.release(9, number));
        order.remove(0);
        lab.run_until_idle();
    }
}

/// A look-up with a number finds only the claims of that address; one without, all claims on the hash.
fn a_number_distinguishes_addresses_with_one_hash(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for (number, (node, _)) in (1_u32..).zip(&seats) {
        node.claim(test_claim(11, number, u64::from(number)));
    }
    lab.run_until_idle();
    for (node, _) in seats.iter().filter(|(node, _)| !node.is_single()) {
        let own = node.node();
        for (number, (owner, _)) in (1_u32..).zip(&seats) {
            let location = node.locate(11, AddressNumber::new(number));
            assert!(location.contains(own, owner.node()));
            let others = location.other_nodes(own).count();
            assert_eq!(others, usize::from(owner.node() != own));
            assert!(location.claims().iter().all(|at| at.claim.number == AddressNumber::new(number)));
        }
        assert_eq!(node.locate(11, AddressNumber::new(99)), AddressLocation::Nowhere);
        assert_eq!(node.locate(11, None).other_nodes(own).count(), seats.len() - 1);
    }
}

/// Whether an address takes messages is seen by all nodes, and keeps the time of the claim.
fn readiness_for_messages_is_seen_everywhere(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let Some((owner, _)) = seats.first() else { return };
    let claim = test_claim(12, 3, 77);
    owner.claim(claim);
    for takes_messages in [false, true, false] {
        owner.set_takes_messages(12, claim.number, takes_messages);
        owner.set_takes_messages(12, None, !takes_messages);
        let expect = Claim { takes_messages, ..claim };
        lab.run_until_idle();
        for (node, _) in seats.iter().filter(|(node, _)| node.node() != owner.node()) {
            let location = node.locate(12, claim.number);
            assert_eq!(location.claims().iter().map(|at| at.claim).collect::<Vec<_>>(), [expect]);
        }
    }
}

/// Reliable envelopes arrive once each, in order, complete, with the sender's name, epoch and increasing
/// sequence numbers.
fn kept_parcels_arrive_once_in_order(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let texts: Vec<String> = (0..50).map(|number| format!("message {number}")).collect();
    for text in &texts {
        for ((from, _), (to, _)) in pairs(&seats) {
            assert!(
                from.deliver(to.node(), test_envelope(from.node(), EnvelopeClass::Message, text)).is_ok()
            );
        }
    }
    lab.run_until_idle();
    for ((from, _), (to, inbox)) in pairs(&seats) {
        assert_eq!(inbox.texts(from.node()), texts, "from {} to {}", from.node(), to.node());
        let epoch = to.members().iter().find(|member| member.node == from.node()).map(|member| member.epoch);
        let mut last = 0;
        for received in inbox.events() {
            let InboxEvent::Envelope(origin, envelope) = received else { continue };
            if origin != from.node() {
                continue;
            }
            assert_eq!((envelope.header.origin, Some(envelope.header.epoch)), (from.node(), epoch));
            let sent = test_envelope(from.node(), EnvelopeClass::Message, "");
            let (kind, class) = (envelope.header.kind, envelope.header.class);
            assert_eq!((kind, class), (sent.header.kind, sent.header.class));
            assert_eq!(envelope.recipients, sent.recipients);
            assert!(envelope.header.sequence > last);
            last = envelope.header.sequence;
        }
    }
}

/// An envelope of the class `BestEffort` arrives at most once and never out of order.
fn best_effort_is_never_reordered(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for number in 0..50 {
        for ((from, _), (to, _)) in pairs(&seats) {
            let sent = from.deliver(
                to.node(),
                test_envelope(from.node(), EnvelopeClass::BestEffort, &format!("{number:03}")),
            );
            assert!(sent.is_ok());
        }
    }
    lab.run_until_idle();
    for ((from, _), (_, inbox)) in pairs(&seats) {
        let texts = inbox.texts(from.node());
        assert!(texts.is_sorted_by(|one, next| one < next), "{texts:?}");
    }
}

/// A broadcast reaches all other nodes once, and not its sender.
fn broadcasts_reach_the_others(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for (from, _) in &seats {
        let result = from.broadcast(test_envelope(from.node(), EnvelopeClass::Control, "forget it"));
        let nodes: Vec<NodeId> = result.accepted.iter().map(|(node, _)| *node).collect();
        let mut others: Vec<NodeId> = seats.iter().map(|(node, _)| node.node()).collect();
        others.retain(|node| *node != from.node());
        others.sort();
        assert_eq!((nodes, result.refused.len()), (others, 0));
        assert!(result.accepted.iter().all(|(_, ticket)| ticket.has_receipt()));
    }
    lab.run_until_idle();
    for (node, inbox) in &seats {
        for (from, _) in &seats {
            let expect = if from.node() == node.node() { &[][..] } else { &["forget it"] };
            assert_eq!(inbox.texts(from.node()), expect);
        }
    }
}

/// Kind, hops, stanza id and every form of recipient arrive as they were sent.
fn every_field_arrives_unchanged(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let ids = base::TimeOrderedIdGenerator::new("test", 1);
    let kinds = [EnvelopeKind::RunChain, EnvelopeKind::ChainHasRun, EnvelopeKind::SessionReport]
        .into_iter()
        .chain(InvalidationSubject::ALL.map(EnvelopeKind::Invalidation))
        .chain([EnvelopeKind::Engine(0), EnvelopeKind::Engine(EnvelopeKind::MAX_ENGINE)]);
    let reference = AddressReference { hash: u64::MAX, number: AddressNumber::MAX };
    let mut sent = Vec::new();
    for (at, kind) in (0_u64..).zip(kinds) {
        for ((from, _), (to, _)) in pairs(&seats) {
            let mut envelope = test_envelope(from.node(), EnvelopeClass::Message, "all fields");
            envelope.header.kind = kind;
            envelope
                .recipients
                .extend([Recipient::Account(reference), Recipient::Session(reference, u32::MAX)]);
            let envelope = envelope.with_stanza_id((at % 2 == 0).then(|| ids.next(at)));
            let Some(forwarded) = envelope.forwarded(kind, envelope.recipients.clone()) else { continue };
            assert_eq!(forwarded.forwarded(kind, Vec::new()), None, "the last hop");
            for mut envelope in [envelope, forwarded] {
                let Ok(ticket) = from.deliver(to.node(), envelope.clone()) else { continue };
                (envelope.header.epoch, envelope.header.sequence) = (ticket.epoch, ticket.sequence);
                sent.push((to.node(), envelope));
            }
        }
    }
    lab.run_until_idle();
    for (node, inbox) in &seats {
        for (from, _) in &seats {
            let of_pair = |(to, envelope): &&(NodeId, Envelope)| {
                *to == node.node() && envelope.header.origin == from.node()
            };
            let expect: Vec<&Envelope> = sent.iter().filter(of_pair).map(|(_, envelope)| envelope).collect();
            let events = inbox.events();
            let arrived = events.iter().filter_map(|event| match event {
                InboxEvent::Envelope(origin, envelope) if *origin == from.node() => Some(envelope),
                _ => None,
            });
            assert_eq!(arrived.collect::<Vec<_>>(), expect);
        }
    }
    for (from, _) in &seats {
        for (to, _) in seats.iter().filter(|(to, _)| to.node() != from.node()) {
            let mut undefined = test_envelope(from.node(), EnvelopeClass::Message, "");
            undefined.header.hops = Envelope::MAX_HOPS + 1;
            let refused = from.deliver(to.node(), undefined).err().map(|refused| refused.reason);
            assert_eq!(refused, Some(RefusalReason::Undefined));
        }
    }
}

/// Tickets of a pair increase, the envelope arrives with its own, and all end. Best effort has none.
fn tickets_increase_and_best_effort_has_none(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let mut last = Vec::new();
    for ((from, _), (to, inbox)) in pairs(&seats) {
        let mut tickets = Vec::new();
        for class in [EnvelopeClass::Message, EnvelopeClass::BestEffort, EnvelopeClass::Control] {
            from.claim(test_claim(1, 1, 1));
            let sent = from.deliver(to.node(), test_envelope(from.node(), class, "numbered"));
            assert!(sent.is_ok());
            let Ok(ticket) = sent else { continue };
            assert_eq!(ticket.has_receipt(), class.is_reliable());
            if ticket.has_receipt() {
                tickets.push(ticket);
            }
        }
        assert!(tickets.is_sorted_by(|one, next| one < next), "{tickets:?}");
        lab.run_until_idle();
        let mut arrived = inbox.tickets(from.node());
        arrived.retain(|ticket| ticket.has_receipt());
        assert_eq!(arrived, tickets);
        last.push((from.node(), to.node(), tickets.last().copied()));
    }
    for (from, to, ticket) in last {
        let Some((_, inbox)) = seats.iter().find(|(node, _)| node.node() == from) else { continue };
        assert!(inbox.receipt(to) >= ticket, "every ticket ended");
    }
}

/// A receipt names what was settled after an envelope that is open.
fn an_envelope_that_is_settled_late_delays_no_receipt_of_another(lab: &dyn TestCluster) {
    let nodes = lab.nodes();
    let inboxes: Vec<_> = nodes.iter().map(InboxRecorder::attach_unsettled).collect();
    lab.run_until_idle();
    let [from, to, ..] = &nodes[..] else { return };
    let [sender, receiver, ..] = &inboxes[..] else { return };
    for text in ["one", "two", "three", "four"] {
        assert!(from.deliver(to.node(), test_envelope(from.node(), EnvelopeClass::Message, text)).is_ok());
    }
    lab.run_until_idle();
    let tickets = receiver.tickets(from.node());
    assert_eq!(tickets.len(), 4, "all arrived");
    let [one, two, three, four] = tickets[..] else { return };
    assert_eq!(sender.receipt(to.node()), None, "it arrived and is not safe");
    let steps = [
        (three, None, one, vec![three]),
        (two, None, one, vec![three, two]),
        (one, Some(three), four, vec![three, two]),
    ];
    for (ticket, covered, not_covered, later) in steps {
        assert!(to.settle(from.node(), ticket, HandoverResult::Safe));
        lab.run_until_idle();
        let receipt = sender.receipt(to.node());
        assert!(receipt >= covered && receipt < Some(not_covered), "{receipt:?}");
        assert_eq!(sender.later_receipts(to.node()), later, "each once");
    }
    let refused = |event: &InboxEvent| matches!(event, InboxEvent::Refused(..));
    assert!(!sender.events().iter().any(refused));
}

/// An envelope that is settled late takes its own room in the queue, and not that of later ones.
fn a_later_receipt_ends_the_retention_of_its_envelope(lab: &dyn TestCluster) {
    let nodes = lab.nodes();
    let inboxes: Vec<_> = nodes.iter().map(InboxRecorder::attach_unsettled).collect();
    lab.run_until_idle();
    let [from, to, ..] = &nodes[..] else { return };
    let [_, receiver, ..] = &inboxes[..] else { return };
    let envelope = test_envelope(from.node(), EnvelopeClass::Message, &"x".repeat(100_000));
    let fill = || (0..1000).take_while(|_| from.deliver(to.node(), envelope.clone()).is_ok()).count();
    let room = fill();
    assert!((2..1000).contains(&room), "it is bounded: {room}");
    lab.run_until_idle();
    for ticket in receiver.tickets(from.node()).split_off(1) {
        assert!(to.settle(from.node(), ticket, HandoverResult::Safe));
    }
    lab.run_until_idle();
    assert_eq!(fill(), room - 1);
}

/// What was refused returns with only those recipients, before a receipt covers its ticket.
fn refused_recipients_return_before_the_receipt(lab: &dyn TestCluster) {
    let nodes = lab.nodes();
    let inboxes: Vec<_> = nodes.iter().map(InboxRecorder::attach_unsettled).collect();
    lab.run_until_idle();
    let [from, to, ..] = &nodes[..] else { return };
    let [sender, receiver, ..] = &inboxes[..] else { return };
    let account = |number| {
        AddressNumber::new(number).map(|number| Recipient::Account(AddressReference { hash: 1, number }))
    };
    let mut sent = Vec::new();
    for text in ["all", "some", "none", "no recipients"] {
        let mut envelope = test_envelope(from.node(), EnvelopeClass::Message, text);
        envelope.recipients = (1..=3).filter_map(account).collect();
        if text == "no recipients" {
            envelope.recipients.clear();
        }
        assert!(from.deliver(to.node(), envelope.clone()).is_ok());
        sent.push(envelope);
    }
    lab.run_until_idle();
    let results = [
        HandoverResult::Refused,
        HandoverResult::of(3, vec![0, 2]),
        HandoverResult::of(3, Vec::new()),
        HandoverResult::of(0, Vec::new()),
    ];
    for (ticket, result) in receiver.tickets(from.node()).into_iter().zip(results) {
        assert!(to.settle(from.node(), ticket, result));
    }
    lab.run_until_idle();
    let events = sender.events();
    let mut returned = Vec::new();
    let mut covered = None;
    for event in events {
        match event {
            InboxEvent::Refused(by, envelope) => {
                assert_eq!(by, to.node());
                assert!(Some(envelope.ticket()) > covered, "before its receipt");
                returned.push((String::from_utf8_lossy(&envelope.bytes).into_owned(), envelope.recipients));
            }
            InboxEvent::Receipts(by, up_to, _) if by == to.node() => covered = Some(up_to),
            _ => {}
        }
    }
    let all = sent.first().map(|envelope| envelope.recipients.clone()).unwrap_or_default();
    let some = [1, 3].into_iter().filter_map(account).collect();
    assert_eq!(returned, [("all".to_owned(), all), ("some".to_owned(), some)]);
    assert_eq!(covered.max(receiver.tickets(from.node()).last().copied()), covered, "every ticket ended");
}

/// A second result for an envelope has no effect, nor has one for an envelope that never arrived.
fn an_envelope_is_settled_once(lab: &dyn TestCluster) {
    let nodes = lab.nodes();
    let inboxes: Vec<_> = nodes.iter().map(InboxRecorder::attach_unsettled).collect();
    lab.run_until_idle();
    let [from, to, ..] = &nodes[..] else {
        let ticket = Ticket { epoch: 0, sequence: 1 };
        assert!(nodes.iter().all(|node| !node.settle(node.node(), ticket, HandoverResult::Refused)));
        return;
    };
    let [sender, receiver, ..] = &inboxes[..] else { return };
    assert!(from.deliver(to.node(), test_envelope(from.node(), EnvelopeClass::Message, "once")).is_ok());
    lab.run_until_idle();
    let tickets = receiver.tickets(from.node());
    assert_eq!(tickets.len(), 1, "it arrived");
    let [ticket] = tickets[..] else { return };
    let never = Ticket { sequence: ticket.sequence + 100, ..ticket };
    let earlier = Ticket { epoch: ticket.epoch.wrapping_sub(1), ..ticket };
    for wrong in [never, earlier, Ticket { sequence: 0, ..ticket }] {
        assert!(!to.settle(from.node(), wrong, HandoverResult::Refused));
    }
    assert!(to.settle(from.node(), ticket, HandoverResult::Safe));
    assert!(!to.settle(from.node(), ticket, HandoverResult::Refused));
    lab.run_until_idle();
    assert!(!to.settle(from.node(), ticket, HandoverResult::Refused));
    lab.run_until_idle();
    assert!(!sender.events().iter().any(|event| matches!(event, InboxEvent::Refused(..))));
}

/// An envelope that cannot be sent is returned immediately and complete.
fn what_cannot_be_sent_comes_back(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let Some(nobody) = NodeId::new("nobody-of-that-name") else { return };
    for (from, inbox) in &seats {
        let before = inbox.events().len();
        let refused = |to, envelope: &Envelope| {
            from.deliver(to, envelope.clone())
                .err()
                .map(|refused| (refused.node, refused.reason, refused.envelope.bytes))
        };
        let small = test_envelope(from.node(), EnvelopeClass::Message, "small");
        assert_eq!(refused(nobody, &small), Some((nobody, RefusalReason::UnknownNode, small.bytes.clone())));
        assert_eq!(
            refused(from.node(), &small),
            Some((from.node(), RefusalReason::OwnNode, small.bytes.clone()))
        );
        let large = Envelope::new(
            EnvelopeKind::RunChain,
            EnvelopeClass::Message,
            from.node(),
            Vec::new(),
            vec![b'x'; Envelope::MAX_BYTES + 1],
        );
        for (to, _) in seats.iter().filter(|(to, _)| to.node() != from.node()) {
            assert_eq!(
                refused(to.node(), &large),
                Some((to.node(), RefusalReason::TooLarge, large.bytes.clone()))
            );
        }
        lab.run_until_idle();
        assert_eq!(inbox.events().len(), before, "nothing arrives of what was refused");
    }
}

/// An inbox may send, claim and locate while it is called.
fn an_inbox_may_call_its_cluster(lab: &dyn TestCluster) {
    struct Echo(Arc<dyn Cluster>, InboxRecorder);
    impl Inbox for Echo {
        fn on_envelope(&self, from: NodeId, envelope: Envelope) {
            self.0.claim(test_claim(77, 1, 1));
            assert!(self.0.locate(77, None).contains(self.0.node(), self.0.node()));
            if &*envelope.bytes == b"ping" {
                assert!(
                    self.0
                        .deliver(from, test_envelope(self.0.node(), EnvelopeClass::Control, "pong"))
                        .is_ok()
                );
            }
            assert!(self.0.settle(from, envelope.ticket(), HandoverResult::Safe));
            self.1.on_envelope(from, envelope);
        }
        fn on_receipts(&self, from: NodeId, _: Ticket, _: &[Ticket]) {
            assert!(self.0.members().iter().any(|member| member.node == from));
        }
        fn on_refused(&self, _: NodeId, _: Envelope) {}
        fn on_undelivered(&self, _: NodeId, _: Envelope) {}
        fn on_violation(&self, _: NodeId, _: PeerViolation) {}
        fn on_membership_change(&self, _: MembershipChange) {
            assert!(!self.0.members().is_empty());
        }
    }
    let nodes = lab.nodes();
    let recorder =
        || InboxRecorder { events: LeafMutex::default(), settles: None, claims: LeafMutex::default() };
    let echoes: Vec<Arc<Echo>> = nodes.iter().map(|node| Arc::new(Echo(node.clone(), recorder()))).collect();
    nodes.iter().zip(&echoes).for_each(|(node, echo)| node.attach(echo.clone()));
    lab.run_until_idle();
    for from in &nodes {
        for to in nodes.iter().filter(|to| to.node() != from.node()) {
            assert!(
                from.deliver(to.node(), test_envelope(from.node(), EnvelopeClass::Message, "ping")).is_ok()
            );
        }
    }
    lab.run_until_idle();
    for echo in &echoes {
        for from in nodes.iter().filter(|from| from.node() != echo.0.node()) {
            let mut texts = echo.1.texts(from.node());
            texts.sort();
            assert_eq!(texts, ["ping", "pong"]);
        }
    }
}

/// A leaving node hands over what it had accepted and the claims that it had, is removed immediately, and can send nothing more.
fn leaving_is_polite(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let Some(((leaver, _), others)) = seats.split_first() else { return };
    if others.is_empty() {
        return;
    }
    let claim = test_claim(3, 5, 1);
    leaver.claim(claim);
    lab.run_until_idle();
    for (other, _) in others {
        assert!(
            leaver
                .deliver(other.node(), test_envelope(leaver.node(), EnvelopeClass::Message, "last words"))
                .is_ok()
        );
    }
    wait(leaver.leave());
    let left = |(other, inbox): &RecordedNode| {
        let change = MembershipChange::Left { node: leaver.node(), claims: vec![claim], orderly: true };
        inbox.events().contains(&InboxEvent::Changed(change))
            && other.locate(3, None) == AddressLocation::Nowhere
            && other.members().iter().all(|member| member.node != leaver.node())
    };
    assert!(lab.run_until(&|| others.iter().all(left)));
    for (other, inbox) in others {
        assert_eq!(inbox.texts(leaver.node()), ["last words"]);
        let late = other.deliver(leaver.node(), test_envelope(other.node(), EnvelopeClass::Message, "late"));
        assert_eq!(late.err().map(|refused| refused.reason), Some(RefusalReason::UnknownNode));
        let late = leaver.deliver(other.node(), test_envelope(leaver.node(), EnvelopeClass::Message, "late"));
        assert_eq!(late.err().map(|refused| refused.reason), Some(RefusalReason::UnknownNode));
    }
}

/// A node that drains is an owner for no other node and for itself, and stays a member. Alone it owns everything.
fn a_member_that_drains_owns_nothing(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let Some(((draining, _), others)) = seats.split_first() else { return };
    draining.begin_drain();
    let owns = |node: &Arc<dyn Cluster>| (0..64).any(|key| node.owner(key) == draining.node());
    assert_eq!(owns(draining), others.is_empty(), "it knows it at once");
    assert!(lab.run_until(&|| others.iter().all(|(other, _)| !owns(other))));
    for (other, inbox) in others {
        assert!(other.members().iter().any(|member| member.node == draining.node()));
        let envelope = test_envelope(draining.node(), EnvelopeClass::Message, "still here");
        assert!(draining.deliver(other.node(), envelope).is_ok());
        assert!(lab.run_until(&|| inbox.texts(draining.node()) == ["still here"]));
    }
}

/// Runs a future on this thread.
fn wait(future: base::spawn::BoxFuture<'_, ()>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = future;
    while future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}
