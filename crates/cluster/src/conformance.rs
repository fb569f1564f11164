//! Conformance suite of the [`Cluster`] trait: `cluster::conformance_suite!(name, make)` generates one test for each
//! rule of the list in this file; a rule that is not on the list does not compile.
//!
//! `make` builds a [`TestCluster`] with any number of nodes, at least one. The rules are stated for every pair
//! of nodes, so that a single node passes by what it refuses. Rules about partitions and crashes are not
//! included, because not every network can be partitioned from within a test; those of the bus are in
//! `tests/memory.rs`.
//!
//! # Pitfalls
//!
//! A rule must not read the clock or count steps. It states what must eventually be true
//! ([`TestCluster::run_until`]) and what must not have happened once nothing is in transit
//! ([`TestCluster::run_until_idle`]).
#![deny(dead_code)]

use std::sync::Arc;

use base::lock::LeafMutex;
use jid::Jid;

use crate::{
    AddressLocation, Cluster, Envelope, EnvelopeClass, Inbox, MembershipChange, NodeId, RefusalReason,
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
    an_address_can_be_on_many_nodes,
    kept_parcels_arrive_once_in_order,
    presence_is_never_reordered,
    broadcasts_reach_the_others,
    what_cannot_be_sent_comes_back,
    an_inbox_may_call_its_cluster,
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
    /// [`Inbox::on_undelivered`].
    Undelivered(NodeId, Envelope),
    /// [`Inbox::on_membership_change`].
    Changed(MembershipChange),
}

/// An inbox that records its calls in order.
#[derive(Default)]
pub struct InboxRecorder(LeafMutex<Vec<InboxEvent>>);

impl InboxRecorder {
    /// Attaches a recorder to `cluster`.
    pub fn attach(cluster: &dyn Cluster) -> Arc<InboxRecorder> {
        let recorder = Arc::new(InboxRecorder::default());
        cluster.attach(recorder.clone());
        recorder
    }

    /// All recorded calls.
    pub fn events(&self) -> Vec<InboxEvent> {
        self.0.lock().clone()
    }

    /// The texts of the envelopes that arrived from `from`.
    pub fn texts(&self, from: NodeId) -> Vec<String> {
        let text = |received: &InboxEvent| match received {
            InboxEvent::Envelope(origin, envelope) if *origin == from => {
                Some(String::from_utf8_lossy(&envelope.bytes).into_owned())
            }
            _ => None,
        };
        self.0.lock().iter().filter_map(text).collect()
    }
}

impl Inbox for InboxRecorder {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        self.0.lock().push(InboxEvent::Envelope(from, envelope));
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        self.0.lock().push(InboxEvent::Undelivered(to, envelope));
    }

    fn on_membership_change(&self, change: MembershipChange) {
        self.0.lock().push(InboxEvent::Changed(change));
    }
}

/// An envelope with this text for `juliet@example.com/balcony`.
pub fn test_envelope(own: NodeId, class: EnvelopeClass, text: &str) -> Envelope {
    let recipients = Jid::parse("juliet@example.com/balcony").into_iter().collect();
    Envelope::new(7, class, own, recipients, text.as_bytes())
}

type RecordedNode = (Arc<dyn Cluster>, Arc<InboxRecorder>);

fn attach_recorders(lab: &dyn TestCluster) -> Vec<RecordedNode> {
    let seats: Vec<RecordedNode> =
        lab.nodes().into_iter().map(|node| (node.clone(), InboxRecorder::attach(&*node))).collect();
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
        owner.claim(number);
        assert!(owner.locate(number).contains(owner.node(), owner.node()), "one's own claim is seen at once");
        assert!(lab.run_until(&|| {
            seats.iter().all(|(node, _)| node.locate(number).contains(node.node(), owner.node()))
        }));
        owner.release(number);
        let gone =
            |(node, _): &RecordedNode| node.is_single() || node.locate(number) == AddressLocation::Nowhere;
        assert!(lab.run_until(&|| seats.iter().all(gone)));
    }
}

/// Two claims on one hash need two releases; an additional release has no effect.
fn claims_are_counted(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for (owner, _) in &seats {
        let seen = || seats.iter().all(|(node, _)| node.locate(5).contains(node.node(), owner.node()));
        let gone =
            || seats.iter().all(|(node, _)| node.is_single() || node.locate(5) == AddressLocation::Nowhere);
        owner.claim(5);
        owner.claim(5);
        owner.release(5);
        lab.run_until_idle();
        assert!(seen(), "one claim is left");
        owner.release(5);
        owner.release(5);
        assert!(lab.run_until(&gone));
        owner.claim(5);
        assert!(lab.run_until(&seen));
        owner.release(5);
        assert!(lab.run_until(&gone));
    }
}

/// An address can be on many nodes; each node distinguishes itself from the others.
fn an_address_can_be_on_many_nodes(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    seats.iter().for_each(|(node, _)| node.claim(9));
    lab.run_until_idle();
    for (node, _) in &seats {
        let place = node.locate(9);
        let others: Vec<NodeId> =
            node.members().iter().map(|member| member.node).filter(|name| *name != node.node()).collect();
        assert_eq!(place.other_nodes(node.node()).collect::<Vec<_>>(), others);
        assert!(place.contains(node.node(), node.node()));
        assert_eq!(matches!(place, AddressLocation::Many(_)), seats.len() > 1);
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
            assert_eq!((envelope.header.kind, envelope.header.class), (7, EnvelopeClass::Message));
            assert_eq!(
                envelope.recipients.iter().map(Jid::as_str).collect::<Vec<_>>(),
                ["juliet@example.com/balcony"]
            );
            assert!(envelope.header.sequence > last);
            last = envelope.header.sequence;
        }
    }
}

/// Presence arrives at most once and never out of order.
fn presence_is_never_reordered(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    for number in 0..50 {
        for ((from, _), (to, _)) in pairs(&seats) {
            let sent = from.deliver(
                to.node(),
                test_envelope(from.node(), EnvelopeClass::Presence, &format!("{number:03}")),
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
        assert!(from.broadcast(test_envelope(from.node(), EnvelopeClass::Control, "forget it")).is_empty());
    }
    lab.run_until_idle();
    for (node, inbox) in &seats {
        for (from, _) in &seats {
            let expect = if from.node() == node.node() { &[][..] } else { &["forget it"] };
            assert_eq!(inbox.texts(from.node()), expect);
        }
    }
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
            7,
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
            self.0.claim(77);
            assert!(self.0.locate(77).contains(self.0.node(), self.0.node()));
            if &*envelope.bytes == b"ping" {
                assert!(
                    self.0
                        .deliver(
                            from,
                            super::conformance::test_envelope(self.0.node(), EnvelopeClass::Control, "pong")
                        )
                        .is_ok()
                );
            }
            self.1.on_envelope(from, envelope);
        }
        fn on_undelivered(&self, _: NodeId, _: Envelope) {}
        fn on_membership_change(&self, _: MembershipChange) {
            assert!(!self.0.members().is_empty());
        }
    }
    let nodes = lab.nodes();
    let echoes: Vec<Arc<Echo>> =
        nodes.iter().map(|node| Arc::new(Echo(node.clone(), InboxRecorder::default()))).collect();
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

/// A leaving node hands over what it had accepted, is removed immediately, and can send nothing more.
fn leaving_is_polite(lab: &dyn TestCluster) {
    let seats = attach_recorders(lab);
    let Some(((leaver, _), others)) = seats.split_first() else { return };
    if others.is_empty() {
        return;
    }
    leaver.claim(3);
    for (other, _) in others {
        assert!(
            leaver
                .deliver(other.node(), test_envelope(leaver.node(), EnvelopeClass::Message, "last words"))
                .is_ok()
        );
    }
    wait(leaver.leave());
    let left = |(other, inbox): &RecordedNode| {
        inbox.events().contains(&InboxEvent::Changed(MembershipChange::Left(leaver.node())))
            && other.locate(3) == AddressLocation::Nowhere
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
