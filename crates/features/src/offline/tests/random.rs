//! Senders, a recipient that comes and goes, reloads, and a slow store, in a thousand random orders.
//!
//! What must hold in each: nothing that a sender was told is kept is lost, and the recipient sees each sender's messages
//! in order, repeats aside.
use std::sync::Arc;

use base::spawn::BoxFuture;
use throng_core::{Limits, Session};

use super::bench::{Bench, waits};

/// xorshift64*; the seed is in every message of a failure.
struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n
    }
}

struct Sender {
    session: Arc<Session>,
    name: &'static str,
    sent: u32,
    later: Option<BoxFuture<'static, ()>>,
}

const GATES: [&str; 5] = ["append", "appended", "fetch", "fetched", "remove"];

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let small = Limits { queue_message_bytes: 900, ..Limits::default() };
    let bench = Bench::with(&[], if random.below(2) == 0 { small } else { Limits::default() });
    let mut senders: Vec<Sender> = ["romeo", "nurse"]
        .into_iter()
        .map(|name| Sender { session: bench.online(name), name, sent: 0, later: None })
        .collect();
    let mut juliet: Option<Arc<Session>> = None;
    let mut login = None;
    let mut got: Vec<String> = Vec::new();
    // His messages come from another node: nobody waits until one is stored before the next arrives.
    let mut friar = 0;
    for _ in 0..120 {
        let gate = GATES[random.below(5) as usize];
        match random.below(17) {
            0..=4 => {
                let sender = &mut senders[random.below(2) as usize];
                if !waits(&mut sender.later) {
                    let text = format!("{} {}", sender.name, sender.sent);
                    sender.sent += 1;
                    sender.later = bench.say(&sender.session, "juliet@capulet.com", &text);
                }
            }
            5 => login = Some(bench.look_up("juliet")),
            6 if juliet.is_none() => {
                juliet = login.take().map(|principal| bench.bind(principal, "balcony"));
            }
            7 | 8 => {
                if let Some(juliet) = &juliet {
                    bench.available(juliet, random.below(3) as i8 - 1);
                }
            }
            9 => {
                if let Some(juliet) = juliet.take() {
                    got.extend(bench.bodies(&juliet));
                    bench.offline(&juliet);
                }
            }
            10 => bench.gate.shut(gate),
            11 => bench.gate.open(gate),
            12 => {
                if let Some(juliet) = &juliet {
                    got.extend(bench.bodies(juliet));
                }
            }
            13 => {
                bench.arrive("friar", "juliet@capulet.com", &format!("friar {friar}"));
                friar += 1;
            }
            // A reload: new handlers, the same desks.
            14 => bench.reload(Some(&[("limit", 1_000 + random.below(10) as i64)])),
            _ => bench.tasks.step(),
        }
    }
    for gate in GATES {
        bench.gate.open(gate);
    }
    for sender in &mut senders {
        bench.finish(sender.later.take());
    }
    let juliet = juliet.unwrap_or_else(|| bench.connect("juliet"));
    bench.available(&juliet, 0);
    for _ in 0..100 {
        bench.steps();
        got.extend(bench.bodies(&juliet));
    }
    assert!(!bench.flushing(&juliet), "seed {seed}");
    assert_eq!(bench.stored("juliet"), 0, "seed {seed}");
    let sent = senders.iter().map(|s| (s.name, s.sent)).chain([("friar", friar)]);
    for (name, sent) in sent {
        // Repeats are allowed, gaps are not.
        let mut next = 0;
        for text in got.iter().filter(|t| t.starts_with(name)) {
            let n: u32 = text.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(n <= next, "seed {seed}: {text} came before {next}: {got:?}");
            next = next.max(n + 1);
        }
        assert_eq!(next, sent, "seed {seed}: {name} lost messages: {got:?}");
    }
    for sender in &senders {
        assert!(bench.bodies(&sender.session).is_empty(), "seed {seed}: nothing was refused");
    }
}

#[test]
fn nothing_is_lost_and_no_order_changes() {
    for seed in 0..1000 {
        run(seed);
    }
}
