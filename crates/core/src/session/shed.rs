//! What goes into a queue that has little room, and what goes out of it for that.
//!
//! Others may fill a queue that is not theirs only up to a point, so that nobody is cut off by somebody else:
//!
//! - One sender (a bare address) has a share of each class, `limits.queue_sender_percent`, and a budget in all queues that
//!   wait ([`super::budget`]). Beyond it messages go to the store or back, requests back, and the sender's own oldest
//!   presence makes room for its newest.
//! - Answers that the session did not ask for ([`super::outstanding`]) go before anything else of their class.
//! - The last quarter of control is for what the session asked for and what its server says. Only that can close the
//!   stream.
//!
//! All of this is on the cold side of [`Inner::is_tight`]. The trap: [`Item`] keeps what is needed to add up a sender's part
//! beside the pointer to the frame; reading every frame with the link locked would let a sender hold up the recipient.

use stanza::{IqType, Kind};

use super::budget::{Charge, EXEMPT, FREE_BYTES, Full, Room};
use super::link::{Inner, Item, slot};
use crate::frame::{Class, Frame};
use crate::limits::Limits;

/// The class of a frame, and whether it is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Control,
    /// A result or an error for a request.
    Answer,
    Message,
    Presence,
}

impl Rank {
    pub(super) fn of(frame: &Frame) -> Rank {
        match frame.class() {
            Class::Message => Rank::Message,
            Class::Presence => Rank::Presence,
            Class::Control if is_answer(frame.kind()) => Rank::Answer,
            Class::Control => Rank::Control,
        }
    }
    pub(super) fn class(self) -> Class {
        match self {
            Rank::Control | Rank::Answer => Class::Control,
            Rank::Message => Class::Message,
            Rank::Presence => Class::Presence,
        }
    }
}

/// Whether it answers a request.
pub(crate) fn is_answer(kind: Kind) -> bool {
    matches!(kind, Kind::Iq(IqType::Result | IqType::Error))
}

/// What became of an item at a queue with little room.
pub(super) enum Entry {
    /// It may go in; so many of its class went for it.
    Open(u32),
    /// It may not.
    Full(Full),
    /// It has to, and cannot: the stream is to be closed.
    Overrun,
}

impl Limits {
    fn queue(&self, class: Class) -> u32 {
        match class {
            Class::Control => self.queue_control_bytes,
            Class::Message => self.queue_message_bytes,
            Class::Presence => self.queue_presence_bytes,
        }
    }
    /// What one sender may fill of a queue.
    fn share(&self, class: Class) -> u32 {
        let share = u64::from(self.queue(class)) * u64::from(self.queue_sender_percent) / 100;
        u32::try_from(share).unwrap_or(u32::MAX)
    }
}

impl Inner {
    /// Whether a frame of this size needs a closer look before it goes into the queue: [`Inner::enter`].
    pub(super) fn is_tight(&self, class: Class, size: u32, limits: &Limits) -> bool {
        let bytes = self.bytes[slot(class)];
        bytes > 0 && bytes + size > limits.share(class)
            || self.bytes.iter().sum::<u32>() + size > FREE_BYTES
            || self.charge().is_some()
            || self.is_detached()
    }

    /// Whether there is no connection.
    fn is_detached(&self) -> bool {
        self.ack.as_deref().is_some_and(|ack| !ack.has_connection())
    }

    /// Decides about an item, and makes room for it. What goes in is entered in the ledger.
    #[cold]
    pub(super) fn enter(&mut self, item: &mut Item, room: &Room<'_>) -> Entry {
        let owner = room.account.map(|(_, owner)| owner);
        item.look(owner);
        let (size, class, limits) = (item.size(), item.rank.class(), room.limits);
        let foreign = item.sender > EXEMPT && !room.forced;
        let unasked = foreign && item.rank == Rank::Answer;
        let mut shed = 0;

        let share = limits.share(class);
        if foreign && self.is_over(class, size, share) {
            let held = self.held_by(item.sender, class, room);
            if held > 0 && held + size > share {
                if class != Class::Presence {
                    return Entry::Full(Full::Share);
                }
                let sender = item.sender;
                shed += self.shed(held + size - share, |i| i.rank == Rank::Presence && i.sender == sender).0;
            }
        }

        let limit = limits.queue(class);
        let limit = if foreign && class == Class::Control { limit - limit / 4 } else { limit };
        if self.is_over(class, size, limit) {
            let more = self.bytes[slot(class)] + size - limit;
            match class {
                Class::Message => return Entry::Full(Full::Queue),
                Class::Presence => shed += self.shed(more, |i| i.rank == Rank::Presence).0,
                Class::Control if unasked => return Entry::Full(Full::Queue),
                Class::Control => {
                    shed += self.shed_unasked(more, room);
                    if self.is_over(class, size, limit) {
                        return if foreign { Entry::Full(Full::Queue) } else { Entry::Overrun };
                    }
                }
            }
        }

        let detached = self.is_detached();
        let counts =
            detached || self.charge().is_some() || self.bytes.iter().sum::<u32>() + size > FREE_BYTES;
        if !counts || !self.set_charge(room) {
            return Entry::Open(shed);
        }
        let over = self.charge().and_then(|charge| charge.over(item.sender, size, limits));
        if let Some(full) = over.filter(|_| !room.forced) {
            let freed = match class {
                Class::Presence => {
                    let sender = (full == Full::Sender).then_some(item.sender);
                    let (count, freed) = self.shed(size, |i| {
                        i.rank == Rank::Presence && sender.is_none_or(|sender| i.sender == sender)
                    });
                    shed += count;
                    freed >= size
                }
                Class::Control if !foreign => {
                    shed += self.shed_unasked(size, room);
                    let over = self.charge().and_then(|charge| charge.over(item.sender, size, limits));
                    if over.is_some() && detached {
                        return Entry::Overrun;
                    }
                    // A client that is there has its own limit for what it asks for.
                    true
                }
                _ => false,
            };
            if !freed {
                return Entry::Full(full);
            }
        }
        if let Some(charge) = self.charge() {
            charge.add(item);
        }
        Entry::Open(shed)
    }

    /// One stanza always fits, however large: its size was checked when it arrived.
    fn is_over(&self, class: Class, size: u32, limit: u32) -> bool {
        let bytes = self.bytes[slot(class)];
        bytes > 0 && bytes + size > limit
    }

    /// What one sender has in the queue; rounded up for each item.
    fn held_by(&mut self, sender: u32, class: Class, room: &Room<'_>) -> u32 {
        let owner = room.account.map(|(_, owner)| owner);
        let mut held = 0;
        for item in self.queue.iter_mut().filter(|item| item.rank.class() == class) {
            item.look(owner);
            if item.sender == sender {
                held += item.weight();
            }
        }
        held
    }

    /// Removes the oldest of these until so many bytes are free; how many, and how many bytes.
    fn shed(&mut self, bytes: u32, which: impl Fn(&Item) -> bool) -> (u32, u32) {
        let (mut count, mut freed) = (0, 0);
        let Inner { queue, bytes: counts, rare, .. } = self;
        let charge = rare.as_deref().and_then(|rare| rare.charge.as_ref());
        queue.retain(|item| {
            if freed >= bytes || !which(item) {
                return true;
            }
            let size = item.size();
            counts[slot(item.rank.class())] -= size;
            if let Some(charge) = charge {
                charge.sub(item);
            }
            (count, freed) = (count + 1, freed + size);
            false
        });
        (count, freed)
    }

    /// The same for answers that the session did not ask for.
    fn shed_unasked(&mut self, bytes: u32, room: &Room<'_>) -> u32 {
        let owner = room.account.map(|(_, owner)| owner);
        self.queue.iter_mut().filter(|item| item.rank == Rank::Answer).for_each(|item| item.look(owner));
        self.shed(bytes, |item| item.rank == Rank::Answer && item.sender > EXEMPT).0
    }

    pub(super) fn charge(&self) -> Option<&Charge> {
        self.rare.as_deref()?.charge.as_ref()
    }

    /// From here on the queue is in the ledger. False if there is none.
    pub(super) fn set_charge(&mut self, room: &Room<'_>) -> bool {
        if self.charge().is_some() {
            return true;
        }
        let Some((ledger, owner)) = room.account else { return false };
        let charge = Charge::new(ledger, owner);
        for item in &mut self.queue {
            item.look(Some(owner));
            charge.add(item);
        }
        self.rare().charge = Some(charge);
        true
    }

    /// What the peer of a detached session has not acknowledged.
    pub(super) fn charge_unacked(&mut self, bytes: u32) {
        if let Some(charge) = self.rare.as_deref_mut().and_then(|rare| rare.charge.as_mut()) {
            charge.set_unacked(bytes);
        }
    }

    /// These left the queue.
    pub(super) fn gone(&self, items: &[Item]) {
        let Some(charge) = self.charge() else { return };
        // Whatever was not in the queue is not in the ledger: stanzas that are written once more.
        items.iter().filter(|item| item.sender != super::budget::UNKNOWN).for_each(|item| charge.sub(item));
    }

    /// A queue that was emptied by its connection counts no more.
    pub(super) fn uncharge(&mut self) {
        if self.queue.is_empty() && self.charge().is_some() && !self.is_detached() {
            self.discharge();
        }
    }

    /// Gives back all that is entered for this link.
    pub(super) fn discharge(&mut self) {
        let Some(rare) = self.rare.as_deref_mut() else { return };
        let Some(mut charge) = rare.charge.take() else { return };
        charge.set_unacked(0);
        self.queue.iter().for_each(|item| charge.sub(item));
        self.tidy();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.discharge();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use jid::Jid;
    use stanza::StreamCondition;

    use super::*;
    use crate::session::{Batch, Ledger, Link, Pushed, Stamp, Terms, Urgency};

    struct Queue {
        link: Link,
        owner: Jid,
        ledger: Arc<Ledger>,
        limits: Limits,
    }

    impl Queue {
        fn new(owner: &str, ledger: &Arc<Ledger>, limits: Limits) -> Queue {
            Queue { link: Link::new(), owner: Jid::parse(owner).unwrap(), ledger: ledger.clone(), limits }
        }
        fn room(&self) -> Room<'_> {
            Room { limits: &self.limits, account: Some((&self.ledger, self.owner.as_ref())), forced: false }
        }
        fn push(&self, text: &str) -> Pushed {
            let frame = Frame::read(text.as_bytes()).unwrap();
            self.link.push_within(Item::new(frame, Stamp::None), Urgency::Now, &self.room())
        }
        fn push_asked(&self, text: &str) -> Pushed {
            let frame = Frame::read(text.as_bytes()).unwrap();
            frame.set_asked_for();
            self.link.push_within(Item::new(frame, Stamp::None), Urgency::Now, &self.room())
        }
        fn detach(&self) -> bool {
            let terms = Terms { seconds: 60, bytes: 1 << 20, old: false };
            self.link.enable(terms, [1; 16]);
            self.link.lose(0, Some(&self.room()))
        }
        fn ids(&self) -> String {
            let mut out = Batch::new();
            self.link.take(&mut Context::from_waker(Waker::noop()), &mut out);
            let ids = out.iter().map(|i| i.frame.head().id(i.frame.bytes()).unwrap().into_owned());
            ids.collect::<Vec<_>>().join(" ")
        }
    }

    /// Room for nine stanzas of up to 222 bytes in each class.
    fn small() -> Limits {
        Limits {
            queue_message_bytes: 2000,
            queue_presence_bytes: 2000,
            queue_control_bytes: 2000,
            ..Limits::default()
        }
    }
    fn queue() -> Queue {
        Queue::new("juliet@example.com", &Arc::default(), small())
    }
    fn result(from: &str, id: u32) -> String {
        format!("<iq type='result' from='{from}' id='{id}'/>")
    }

    #[test]
    fn answers_that_nobody_asked_for_go_before_what_the_session_asked_for() {
        let queue = queue();
        for (stranger, pushed) in [("a@x/1", 5), ("b@x/1", 3), ("c@x/1", 0)] {
            let taken = (0..100).filter(|id| queue.push(&result(stranger, *id)) == Pushed::Queued).count();
            assert_eq!(taken, pushed, "half of it each, and the last quarter for nobody: {stranger}");
        }
        // The server's answers, pushes of its own, and an answer that it did ask for: all of them go in.
        let mut shed = 0;
        for id in 0..11 {
            let pushed = match id % 3 {
                0 => queue.push(&result("example.com", id)),
                1 => queue.push(&result("juliet@example.com", id)),
                _ => queue.push_asked(&result("a@x/1", id)),
            };
            match pushed {
                Pushed::Queued => {}
                Pushed::Shed(count) => shed += count,
                other => panic!("{id}: {other:?}"),
            }
        }
        assert_eq!((shed, queue.link.wish()), (8, None));
        assert_eq!(queue.ids(), "0 1 2 3 4 5 6 7 8 9 10");
    }

    #[test]
    fn only_what_the_session_caused_closes_it() {
        let queue = queue();
        let request = |from: &str| format!("<iq type='get' from='{from}' id='1'><x xmlns='u:x'/></iq>");
        for n in 0..1000 {
            let full = queue.push(&request(&format!("s{n}@x/1")));
            assert!(matches!(full, Pushed::Queued | Pushed::Full(Full::Queue)), "{full:?}");
            let subscribe = format!("<presence type='subscribe' from='s{n}@x'/>");
            assert!(matches!(queue.push(&subscribe), Pushed::Queued | Pushed::Full(Full::Queue)));
        }
        assert_eq!(queue.push(&result("example.com", 1)), Pushed::Queued);
        while queue.push(&result("example.com", 1)) == Pushed::Queued {}
        assert_eq!(queue.link.wish().unwrap().condition, StreamCondition::ResourceConstraint);
    }

    #[test]
    fn one_sender_has_a_share_of_messages_and_presence() {
        let queue = queue();
        let message = |from: &str| queue.push(&format!("<message from='{from}' id='m'/>"));
        let taken = (0..100).filter(|n| message(&format!("a@x/{n}")) == Pushed::Queued).count();
        assert_eq!((taken, message("a@x/1")), (6, Pushed::Full(Full::Share)));
        assert_eq!(message("b@x/1"), Pushed::Queued);
        // Oneself and one's server fill what there is.
        while message("juliet@example.com/other") == Pushed::Queued {}
        assert_eq!(message("example.com"), Pushed::Full(Full::Queue));
        queue.ids();
        // Of presence the sender's own oldest goes, and nobody else's.
        let presence = |from: &str, id: u32| queue.push(&format!("<presence from='{from}' id='{id}'/>"));
        assert_eq!(presence("b@x/1", 0), Pushed::Queued);
        for id in 10..30 {
            let expected = if id < 15 { Pushed::Queued } else { Pushed::Shed(1) };
            assert_eq!(presence(&format!("a@x/{id}"), id), expected, "{id}");
        }
        assert_eq!(queue.ids(), "0 25 26 27 28 29");
    }

    #[test]
    fn what_waits_without_a_connection_is_counted_by_sender_account_and_node() {
        let limits = Limits {
            waiting_bytes: 6_000,
            waiting_bytes_per_account: 3_000,
            waiting_bytes_per_sender: 1_500,
            ..Limits::default()
        };
        let ledger = Arc::new(Ledger::default());
        let queues: Vec<Queue> = ["a@x", "a@x", "b@x", "c@x", "d@x", "e@x"]
            .map(|owner| Queue::new(owner, &ledger, limits.clone()))
            .into();
        assert!(queues.iter().all(Queue::detach));
        assert_eq!(ledger.bytes(), 0, "a session with nothing costs nothing");
        let fill = |queue: &Queue, sender: &str| {
            let mut full = None;
            while full.is_none() {
                full = match queue.push(&format!("<message from='{sender}' id='m'/>")) {
                    Pushed::Full(full) => Some(full),
                    _ => None,
                };
            }
            full
        };
        assert_eq!(fill(&queues[0], "s@x/1"), Some(Full::Sender));
        assert!((1_300..=1_500).contains(&ledger.bytes()));
        assert_eq!(fill(&queues[2], "s@x/2"), Some(Full::Sender), "in all queues together");
        assert_eq!(fill(&queues[1], "t@x/1"), Some(Full::Sender));
        // The account's own waits for the account.
        assert_eq!(fill(&queues[1], "a@x/3"), Some(Full::Account));
        for queue in &queues[3..5] {
            fill(queue, "example.org");
        }
        for sender in ["u@x", "v@x", "w@x"] {
            fill(&queues[5], sender);
        }
        assert_eq!(fill(&queues[5], "y@x"), Some(Full::Node));
        assert!((5_500..=6_000).contains(&ledger.bytes()), "{}", ledger.bytes());
        // Presence makes room for presence only; answers end there.
        assert!(matches!(queues[5].push("<presence from='y@x/1' id='1'/>"), Pushed::Full(Full::Node)));
        assert!(matches!(queues[5].push(&result("y@x/1", 1)), Pushed::Full(Full::Node)));
        // The server's own has nowhere to go: the session ends, what it holds goes on.
        assert_eq!(queues[1].push(&result("a@x", 1)), Pushed::Closed);
        // Resumed and read, or ended: nothing stays in the ledger.
        queues[0].link.claim(&[1; 16], 0, 1).unwrap();
        assert!(queues[0].link.release());
        let _ = queues[0].link.poll_claim(&mut Context::from_waker(Waker::noop()), 1);
        queues[0].ids();
        for queue in &queues[1..4] {
            queue.link.end();
        }
        drop(queues);
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn what_is_not_acknowledged_counts_while_there_is_no_connection() {
        let limits = Limits { waiting_bytes_per_account: 1_000, ..Limits::default() };
        let ledger = Arc::new(Ledger::default());
        let [one, other] = [(); 2].map(|()| Queue::new("a@x", &ledger, limits.clone()));
        for queue in [&one, &other] {
            queue.link.enable(Terms { seconds: 60, bytes: 1 << 20, old: false }, [1; 16]);
            for _ in 0..4 {
                assert_eq!(queue.push("<message from='b@x/1' id='m'/>"), Pushed::Queued);
            }
            queue.ids();
        }
        assert_eq!(ledger.bytes(), 0, "their connections bound them");
        let waiting = one.link.unacked_bytes();
        assert!(one.detach());
        assert_eq!(ledger.bytes(), u64::from(waiting));
        assert!(!other.detach(), "no room for a second one: it ends, and its messages go on");
        assert_eq!(ledger.bytes(), u64::from(waiting));
        assert_eq!((one.link.end().len(), other.link.end().len()), (4, 4));
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn a_queue_that_grows_counts_until_it_is_read() {
        let ledger = Arc::new(Ledger::default());
        let queue = Queue::new("a@x", &ledger, Limits::default());
        let text = format!("<message from='b@x/1' id='m'><body>{}</body></message>", "x".repeat(1000));
        let mut sizes = std::collections::BTreeSet::new();
        for _ in 0..100 {
            assert_eq!(queue.push(&text), Pushed::Queued);
            sizes.insert(ledger.bytes() > 0);
            assert!(ledger.bytes() == 0 || ledger.bytes() == u64::from(queue.link.queued_bytes()));
        }
        assert_eq!(sizes.len(), 2);
        let mut cx = Context::from_waker(Waker::noop());
        let mut part = Batch::new();
        queue.link.take_some(&mut cx, &mut part, 50_000, 0);
        assert_eq!(ledger.bytes(), u64::from(queue.link.queued_bytes()));
        queue.ids();
        assert_eq!(ledger.bytes(), 0);
        assert!(queue.link.inner.lock().rare.is_none(), "and leaves nothing behind");
    }
}
