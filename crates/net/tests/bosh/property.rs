//! Property tests of BOSH: requests reordered, lost, duplicated and resent, with output at any time; no payload is
//! lost, duplicated or reordered.

#[path = "../../fuzz/bosh_body.rs"]
mod bosh_body;
#[path = "../support/damage.rs"]
mod damage;

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::harness::*;

/// Next step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The client sends a payload, if it may.
    Send,
    /// One of the requests under way arrives.
    Arrive(usize),
    /// One of them breaks on its way: the client sends it again.
    Lose(usize),
    /// The client reads the available responses; one in this number is lost with its connection.
    Receive(usize),
    /// The connection of a waiting request breaks; the client sends it again.
    Break(usize),
    /// The session's task runs: it reads, and writes output if it can.
    Turn(bool),
    /// The clock advances by seconds.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Send),
        5 => (0..4_usize).prop_map(Step::Arrive),
        1 => (0..4_usize).prop_map(Step::Lose),
        4 => (0..4_usize).prop_map(Step::Receive),
        1 => (0..4_usize).prop_map(Step::Break),
        5 => any::<bool>().prop_map(Step::Turn),
        1 => (0..3_u64).prop_map(Step::Pass),
    ]
}

/// A conforming client on a bad network.
struct Client<'w> {
    open: OpenSession<'w>,
    hold: u64,
    /// Requests under way, by id.
    travelling: Vec<u64>,
    /// Requests held by the server.
    waiting: Vec<(u64, PostedRequest)>,
    /// Responses received before one with a lower id.
    answers: Vec<(u64, String)>,
    /// Id of the next response in order.
    next: u64,
    /// Payload of each request by id, counted from the first.
    payloads: Vec<String>,
    sent: u64,
    stanzas_sent: u64,
    read: VecDeque<String>,
    received: Vec<String>,
}

impl<'w> Client<'w> {
    fn body(&self, rid: u64) -> String {
        let payload = &self.payloads[(rid - RID - 1) as usize];
        let ack = if self.open.created.contains(" ack='") && self.next < rid {
            format!("ack='{}'", self.next - 1)
        } else {
            String::new()
        };
        self.open.body(rid, &ack, payload)
    }

    /// Reads the available responses. True if the session goes on.
    fn receive(&mut self, lose: usize) {
        let mut at = 0;
        while at < self.waiting.len() {
            if !self.waiting[at].1.poll() {
                at += 1;
                continue;
            }
            let (rid, mut post) = self.waiting.remove(at);
            let text = post.text();
            if value(&text, "type") == Some("error") || lose == 1 {
                self.travelling.push(rid);
                continue;
            }
            assert_eq!(value(&text, "type"), None, "the session ended: {text}");
            if rid >= self.next && !self.answers.iter().any(|(known, _)| *known == rid) {
                self.answers.push((rid, text));
            }
        }
        while let Some(at) = self.answers.iter().position(|(rid, _)| *rid == self.next) {
            let (_, text) = self.answers.remove(at);
            self.received.extend(payload(&text).split_inclusive("/>").map(str::to_owned));
            self.next += 1;
        }
    }

    fn may_send(&self) -> bool {
        // The number of unanswered requests in the client's view.
        self.open.rid + 1 - self.next <= self.hold
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Send if self.may_send() => {
                self.open.rid += 1;
                self.sent += 1;
                self.payloads.push(format!("<message id='{}'/>", self.sent));
                self.travelling.push(self.open.rid);
            }
            Step::Arrive(which) if !self.travelling.is_empty() => {
                let rid = self.travelling.remove(which % self.travelling.len());
                // The client no longer reads requests that it gave up.
                self.waiting.retain(|(old, _)| *old != rid);
                let post = self.open.harness.post(&self.body(rid));
                self.waiting.push((rid, post));
            }
            Step::Lose(which) if !self.travelling.is_empty() => {
                // Lost under way: the client sends it again, which is equivalent to a delay.
                let at = which % self.travelling.len();
                let rid = self.travelling.remove(at);
                self.travelling.push(rid);
            }
            Step::Receive(lose) => self.receive(lose),
            Step::Break(which) if !self.waiting.is_empty() => {
                let (rid, _) = self.waiting.remove(which % self.waiting.len());
                self.travelling.push(rid);
            }
            Step::Turn(say) => {
                for got in self.open.server.read() {
                    let BoshServerEvent::Element(text) = got else { panic!("{got:?}") };
                    self.read.push_back(text);
                }
                if say && self.open.server.stream.accepts_output() {
                    self.stanzas_sent += 1;
                    self.open.server.queue(&format!("<presence id='{}'/>", self.stanzas_sent));
                }
                self.open.server.flush().unwrap();
            }
            Step::Pass(seconds) => self.open.harness.advance(seconds),
            _ => {}
        }
    }
}

fn check(steps: &[Step], hold: u64, ack: bool) {
    let harness = BoshHarness::with(|s| {
        (s.polling_seconds, s.max_inactivity_seconds, s.requests_per_second) = (0, 3600, 0)
    });
    let ack = if ack { "ack='1'" } else { "" };
    let open = harness.open_with(&format!("wait='60' hold='{hold}' ver='1.6' {ack}"));
    let mut client = Client {
        next: RID + 1,
        open,
        hold,
        travelling: Vec::new(),
        waiting: Vec::new(),
        answers: Vec::new(),
        payloads: Vec::new(),
        sent: 0,
        stanzas_sent: 0,
        read: VecDeque::new(),
        received: Vec::new(),
    };
    for step in steps {
        client.run(*step);
    }
    // The network recovers: everything arrives.
    for _ in 0..20 {
        for step in [Step::Arrive(0), Step::Turn(false), Step::Receive(0)] {
            client.run(step);
        }
    }
    for _ in 0..4 {
        harness.advance(61);
        for step in [Step::Turn(false), Step::Receive(0), Step::Arrive(0), Step::Arrive(0), Step::Receive(0)]
        {
            client.run(step);
        }
    }
    let sent: Vec<String> = (1..=client.sent).map(|n| format!("<message id='{n}'/>")).collect();
    assert_eq!(Vec::from(client.read), sent);
    let stanzas_sent: Vec<String> =
        (1..=client.stanzas_sent).map(|n| format!("<presence xmlns='jabber:client' id='{n}'/>")).collect();
    assert_eq!(client.received, stanzas_sent);
}

const PIECES: &[&str] = &[
    "<?xml version='1.0'?>",
    "<body xmlns='http://jabber.org/protocol/httpbind' ",
    "<body to='a' rid='1' ver='1.6' xmlns='http://jabber.org/protocol/httpbind'",
    "rid='2' ",
    "pause='5' ",
    "type='terminate' ",
    "ack='1' ",
    "xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh' ",
    "xmlns:p='urn:p' ",
    "/>",
    ">",
    "\0",
    "<message><body>h\u{e9} &amp; \u{2603}</body></message>",
    "<p:a p:b='1'><![CDATA[</a>]]></p:a>",
    "<a b='>'/>",
    "</body>",
    "<!-- -->",
    "<a>",
    "</a>",
    "text",
    " ",
];

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(PIECES), 0..20);
    (0..4_u8, pieces, damage::damage()).prop_map(|(mode, pieces, damage)| {
        let mut bytes = vec![mode];
        pieces.iter().for_each(|piece| bytes.extend(piece.as_bytes()));
        damage::apply(damage, &mut bytes, 1);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_body_is_answered_and_leaves_no_state(data in bodies()) {
        bosh_body::check(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn payloads_arrive_once_and_in_order(
        steps in prop::collection::vec(step(), 0..200),
        hold in 1..3_u64,
        ack in any::<bool>(),
    ) {
        check(&steps, hold, ack);
    }
}
