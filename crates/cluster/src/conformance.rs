//! The suite that every [`Cluster`] passes: `cluster::conformance!(name, make)` stamps one test per rule.
//!
//! `make` builds a [`Lab`] with as many nodes as it likes, at least one; the rules are stated for every pair of them, so
//! that a lonely node passes by what it refuses. Rules about cuts and crashes are not here, for not every network can
//! be cut from within a test; the bus has its own in `tests/memory.rs`.
//!
//! Trap: a rule must not look at the clock or count steps. It says what must be true in the end ([`Lab::until`]) and
//! what must not have happened once nothing is under way ([`Lab::rest`]).

use std::sync::Arc;

use jid::Jid;
use parking_lot::Mutex;

use crate::{Change, Class, Cluster, Inbox, NodeId, Parcel, Place, Why};

/// Some nodes of one cluster and the means to let time pass.
pub trait Lab {
    /// The nodes; all members of one another.
    fn nodes(&self) -> Vec<Arc<dyn Cluster>>;
    /// Lets the network work until `done`; `false` when it gives up.
    fn until(&self, done: &dyn Fn() -> bool) -> bool;
    /// Lets the network work until nothing is under way.
    fn rest(&self);
}

/// What an inbox was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// [`Inbox::parcel`].
    Parcel(NodeId, Parcel),
    /// [`Inbox::undelivered`].
    Undelivered(NodeId, Parcel),
    /// [`Inbox::changed`].
    Changed(Change),
}

/// An inbox that writes down what it is told, in order.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<Heard>>);

impl Recorder {
    /// A recorder attached to `cluster`.
    pub fn on(cluster: &dyn Cluster) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        cluster.attach(recorder.clone());
        recorder
    }

    /// All it has heard.
    pub fn heard(&self) -> Vec<Heard> {
        self.0.lock().clone()
    }

    /// The texts of the parcels that arrived from `from`.
    pub fn texts(&self, from: NodeId) -> Vec<String> {
        let text = |heard: &Heard| match heard {
            Heard::Parcel(origin, parcel) if *origin == from => {
                Some(String::from_utf8_lossy(&parcel.bytes).into_owned())
            }
            _ => None,
        };
        self.0.lock().iter().filter_map(text).collect()
    }
}

impl Inbox for Recorder {
    fn parcel(&self, from: NodeId, parcel: Parcel) {
        self.0.lock().push(Heard::Parcel(from, parcel));
    }

    fn undelivered(&self, to: NodeId, parcel: Parcel) {
        self.0.lock().push(Heard::Undelivered(to, parcel));
    }

    fn changed(&self, change: Change) {
        self.0.lock().push(Heard::Changed(change));
    }
}

/// A parcel with this text for `juliet@example.com/balcony`.
pub fn parcel(own: NodeId, class: Class, text: &str) -> Parcel {
    let recipients = Jid::parse("juliet@example.com/balcony").into_iter().collect();
    Parcel::new(7, class, own, recipients, text.as_bytes())
}

type Seat = (Arc<dyn Cluster>, Arc<Recorder>);

fn seats(lab: &dyn Lab) -> Vec<Seat> {
    let seats: Vec<Seat> = lab.nodes().into_iter().map(|node| (node.clone(), Recorder::on(&*node))).collect();
    lab.rest();
    seats
}

fn pairs(seats: &[Seat]) -> impl Iterator<Item = (&Seat, &Seat)> {
    seats
        .iter()
        .flat_map(|from| seats.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.0.node() != to.0.node())
}

/// Every node knows all, in order, once.
pub fn members_are_known_everywhere(lab: &dyn Lab) {
    let seats = seats(lab);
    let mut names: Vec<NodeId> = seats.iter().map(|(node, _)| node.node()).collect();
    names.sort();
    for (node, recorder) in &seats {
        let members = node.members();
        assert_eq!(members.iter().map(|member| member.node).collect::<Vec<_>>(), names);
        assert!(!node.is_single() || names.len() == 1, "a single node has no company");
        let others: Vec<Heard> = members
            .into_iter()
            .filter(|member| member.node != node.node())
            .map(|member| Heard::Changed(Change::Joined(member)))
            .collect();
        let mut heard = recorder.heard();
        heard.sort_by_key(|heard| {
            if let Heard::Changed(Change::Joined(member)) = heard { Some(member.node) } else { None }
        });
        assert_eq!(heard, others, "an inbox hears of those who were there first");
    }
}

/// A claim is located by all, and by nobody after its release.
pub fn claims_are_seen_everywhere(lab: &dyn Lab) {
    let seats = seats(lab);
    for (number, (owner, _)) in (1_u64..).zip(&seats) {
        owner.claim(number);
        assert!(owner.locate(number).contains(owner.node(), owner.node()), "one's own claim is seen at once");
        assert!(lab.until(&|| {
            seats.iter().all(|(node, _)| node.locate(number).contains(node.node(), owner.node()))
        }));
        owner.release(number);
        let gone = |(node, _): &Seat| node.is_single() || node.locate(number) == Place::Nowhere;
        assert!(lab.until(&|| seats.iter().all(gone)));
    }
}

/// Two claims on one number need two releases; a release too many does nothing.
pub fn claims_are_counted(lab: &dyn Lab) {
    let seats = seats(lab);
    for (owner, _) in &seats {
        let seen = || seats.iter().all(|(node, _)| node.locate(5).contains(node.node(), owner.node()));
        let gone = || seats.iter().all(|(node, _)| node.is_single() || node.locate(5) == Place::Nowhere);
        owner.claim(5);
        owner.claim(5);
        owner.release(5);
        lab.rest();
        assert!(seen(), "one claim is left");
        owner.release(5);
        owner.release(5);
        assert!(lab.until(&gone));
        owner.claim(5);
        assert!(lab.until(&seen));
        owner.release(5);
        assert!(lab.until(&gone));
    }
}

/// An address can be on many nodes; each node tells itself from the others.
pub fn an_address_can_be_on_many_nodes(lab: &dyn Lab) {
    let seats = seats(lab);
    seats.iter().for_each(|(node, _)| node.claim(9));
    lab.rest();
    for (node, _) in &seats {
        let place = node.locate(9);
        let others: Vec<NodeId> =
            node.members().iter().map(|member| member.node).filter(|name| *name != node.node()).collect();
        assert_eq!(place.elsewhere(node.node()).collect::<Vec<_>>(), others);
        assert!(place.contains(node.node(), node.node()));
        assert_eq!(matches!(place, Place::Many(_)), seats.len() > 1);
    }
}

/// Kept parcels arrive once each, in order, whole, with the sender's name, epoch and rising numbers.
pub fn kept_parcels_arrive_once_in_order(lab: &dyn Lab) {
    let seats = seats(lab);
    let texts: Vec<String> = (0..50).map(|number| format!("message {number}")).collect();
    for text in &texts {
        for ((from, _), (to, _)) in pairs(&seats) {
            assert!(from.deliver(to.node(), parcel(from.node(), Class::Message, text)).is_ok());
        }
    }
    lab.rest();
    for ((from, _), (to, inbox)) in pairs(&seats) {
        assert_eq!(inbox.texts(from.node()), texts, "from {} to {}", from.node(), to.node());
        let epoch = to.members().iter().find(|member| member.node == from.node()).map(|member| member.epoch);
        let mut last = 0;
        for heard in inbox.heard() {
            let Heard::Parcel(origin, parcel) = heard else { continue };
            if origin != from.node() {
                continue;
            }
            assert_eq!((parcel.facts.origin, Some(parcel.facts.epoch)), (from.node(), epoch));
            assert_eq!((parcel.facts.kind, parcel.facts.class), (7, Class::Message));
            assert_eq!(
                parcel.recipients.iter().map(Jid::as_str).collect::<Vec<_>>(),
                ["juliet@example.com/balcony"]
            );
            assert!(parcel.facts.sequence > last);
            last = parcel.facts.sequence;
        }
    }
}

/// Presence arrives at most once and never out of order.
pub fn presence_is_never_reordered(lab: &dyn Lab) {
    let seats = seats(lab);
    for number in 0..50 {
        for ((from, _), (to, _)) in pairs(&seats) {
            let sent = from.deliver(to.node(), parcel(from.node(), Class::Presence, &format!("{number:03}")));
            assert!(sent.is_ok());
        }
    }
    lab.rest();
    for ((from, _), (_, inbox)) in pairs(&seats) {
        let texts = inbox.texts(from.node());
        assert!(texts.is_sorted_by(|one, next| one < next), "{texts:?}");
    }
}

/// A broadcast reaches all others once, and not its sender.
pub fn broadcasts_reach_the_others(lab: &dyn Lab) {
    let seats = seats(lab);
    for (from, _) in &seats {
        assert!(from.broadcast(parcel(from.node(), Class::Control, "forget it")).is_empty());
    }
    lab.rest();
    for (node, inbox) in &seats {
        for (from, _) in &seats {
            let expect = if from.node() == node.node() { &[][..] } else { &["forget it"] };
            assert_eq!(inbox.texts(from.node()), expect);
        }
    }
}

/// What cannot be sent comes back at once, whole.
pub fn what_cannot_be_sent_comes_back(lab: &dyn Lab) {
    let seats = seats(lab);
    let Some(nobody) = NodeId::new("nobody-of-that-name") else { return };
    for (from, inbox) in &seats {
        let before = inbox.heard().len();
        let refused = |to, parcel: &Parcel| {
            from.deliver(to, parcel.clone())
                .err()
                .map(|refused| (refused.node, refused.why, refused.parcel.bytes))
        };
        let small = parcel(from.node(), Class::Message, "small");
        assert_eq!(refused(nobody, &small), Some((nobody, Why::Unknown, small.bytes.clone())));
        assert_eq!(refused(from.node(), &small), Some((from.node(), Why::Itself, small.bytes.clone())));
        let large =
            Parcel::new(7, Class::Message, from.node(), Vec::new(), vec![b'x'; Parcel::MAX_BYTES + 1]);
        for (to, _) in seats.iter().filter(|(to, _)| to.node() != from.node()) {
            assert_eq!(refused(to.node(), &large), Some((to.node(), Why::TooLarge, large.bytes.clone())));
        }
        lab.rest();
        assert_eq!(inbox.heard().len(), before, "nothing arrives of what was refused");
    }
}

/// An inbox may send, claim and locate while it is being called.
pub fn an_inbox_may_call_its_cluster(lab: &dyn Lab) {
    struct Echo(Arc<dyn Cluster>, Recorder);
    impl Inbox for Echo {
        fn parcel(&self, from: NodeId, parcel: Parcel) {
            self.0.claim(77);
            assert!(self.0.locate(77).contains(self.0.node(), self.0.node()));
            if &*parcel.bytes == b"ping" {
                assert!(
                    self.0
                        .deliver(from, super::conformance::parcel(self.0.node(), Class::Control, "pong"))
                        .is_ok()
                );
            }
            self.1.parcel(from, parcel);
        }
        fn undelivered(&self, _: NodeId, _: Parcel) {}
        fn changed(&self, _: Change) {
            assert!(!self.0.members().is_empty());
        }
    }
    let nodes = lab.nodes();
    let echoes: Vec<Arc<Echo>> =
        nodes.iter().map(|node| Arc::new(Echo(node.clone(), Recorder::default()))).collect();
    nodes.iter().zip(&echoes).for_each(|(node, echo)| node.attach(echo.clone()));
    lab.rest();
    for from in &nodes {
        for to in nodes.iter().filter(|to| to.node() != from.node()) {
            assert!(from.deliver(to.node(), parcel(from.node(), Class::Message, "ping")).is_ok());
        }
    }
    lab.rest();
    for echo in &echoes {
        for from in nodes.iter().filter(|from| from.node() != echo.0.node()) {
            let mut texts = echo.1.texts(from.node());
            texts.sort();
            assert_eq!(texts, ["ping", "pong"]);
        }
    }
}

/// A node that leaves hands over what it had accepted, is forgotten at once, and can send no more.
pub fn leaving_is_polite(lab: &dyn Lab) {
    let seats = seats(lab);
    let Some(((leaver, _), others)) = seats.split_first() else { return };
    if others.is_empty() {
        return;
    }
    leaver.claim(3);
    for (other, _) in others {
        assert!(leaver.deliver(other.node(), parcel(leaver.node(), Class::Message, "last words")).is_ok());
    }
    wait(leaver.leave());
    let left = |(other, inbox): &Seat| {
        inbox.heard().contains(&Heard::Changed(Change::Left(leaver.node())))
            && other.locate(3) == Place::Nowhere
            && other.members().iter().all(|member| member.node != leaver.node())
    };
    assert!(lab.until(&|| others.iter().all(left)));
    for (other, inbox) in others {
        assert_eq!(inbox.texts(leaver.node()), ["last words"]);
        let late = other.deliver(leaver.node(), parcel(other.node(), Class::Message, "late"));
        assert_eq!(late.err().map(|refused| refused.why), Some(Why::Unknown));
        let late = leaver.deliver(other.node(), parcel(leaver.node(), Class::Message, "late"));
        assert_eq!(late.err().map(|refused| refused.why), Some(Why::Unknown));
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

/// Stamps the suite: `conformance!(single, || Box::new(my_lab()))` makes a module `single` of tests.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        $crate::conformance!(@ $name, $make, members_are_known_everywhere, claims_are_seen_everywhere, claims_are_counted,
            an_address_can_be_on_many_nodes, kept_parcels_arrive_once_in_order, presence_is_never_reordered,
            broadcasts_reach_the_others, what_cannot_be_sent_comes_back, an_inbox_may_call_its_cluster, leaving_is_polite);
    };
    (@ $name:ident, $make:expr, $($rule:ident),*) => {
        mod $name {
            use super::*;
            $(
                #[test]
                fn $rule() {
                    let make: fn() -> Box<dyn $crate::conformance::Lab> = $make;
                    $crate::conformance::$rule(&*make());
                }
            )*
        }
    };
}
