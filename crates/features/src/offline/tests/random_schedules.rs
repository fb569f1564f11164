//! Randomised test of offline messages: senders, a recipient that logs in and out, reloads, and a slow store, in a
//! thousand random schedules.
//!
//! Invariants: no message that was confirmed to its sender as stored is lost, and the recipient sees each sender's
//! messages in order and once. A recipient that acknowledges (XEP-0198) has seen the messages that it acknowledged.

use std::sync::Arc;

use base::spawn::BoxFuture;
use throng_core::{NodeLimits, Session};

use super::harness::{OfflineHarness, is_pending};

struct Sender {
    session: Arc<Session>,
    name: &'static str,
    sent: u32,
    /// Messages that are not safe yet.
    later: Vec<Option<BoxFuture<'static, ()>>>,
}

const GATES: [&str; 5] = ["append", "appended", "fetch", "fetched", "remove"];

fn run_seed(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let small = NodeLimits { queue_message_bytes: 900, ..NodeLimits::default() };
    let tight = random.bool();
    let bench = OfflineHarness::with(&[], if tight { small } else { NodeLimits::default() });
    let mut senders: Vec<Sender> = ["romeo", "nurse"]
        .into_iter()
        .map(|name| Sender { session: bench.online(name), name, sent: 0, later: Vec::new() })
        .collect();
    let mut juliet: Option<Arc<Session>> = None;
    let mut login = None;
    let mut got: Vec<String> = Vec::new();
    // Messages that the recipient has taken and not acknowledged, and the number acknowledged, if it acknowledges.
    let managed = random.bool();
    let mut taken: Vec<String> = Vec::new();
    let mut handled = 0;
    let mut lowered = false;
    // His messages come from another node, which does not wait until one is stored before it sends the next.
    let mut friar = 0;
    for _ in 0..120 {
        let gate = GATES[random.usize(..5)];
        match random.u64(..17) {
            0..=4 => {
                let sender = &mut senders[random.usize(..2)];
                sender.later.retain_mut(is_pending);
                if sender.later.len() < 5 {
                    let text = format!("{} {}", sender.name, sender.sent);
                    sender.sent += 1;
                    sender.later.push(bench.send_chat(&sender.session, "juliet@capulet.com", &text));
                }
            }
            5 => login = Some(bench.read_login("juliet")),
            6 if juliet.is_none() => {
                juliet = login.take().map(|principal| bench.bind(principal, "balcony"));
                if let Some(juliet) = juliet.as_ref().filter(|_| managed) {
                    bench.enable_stream_management(juliet);
                }
                (handled, lowered) = (0, false);
            }
            7 | 8 => {
                if let Some(juliet) = &juliet {
                    let priority = random.i8(-1..2);
                    lowered |= priority < 0;
                    bench.available(juliet, priority);
                }
            }
            9 => {
                if let Some(juliet) = juliet.take() {
                    // Otherwise messages stored meanwhile come before those that the session held; see `delivery`.
                    if tight || lowered || random.bool() {
                        taken.extend(bench.receive_bodies(&juliet));
                        if managed {
                            bench.acknowledge(&juliet, handled + taken.len());
                        }
                        got.append(&mut taken);
                    }
                    taken.clear();
                    bench.offline(&juliet);
                }
            }
            10 => bench.gate.close(gate),
            11 => bench.gate.open(gate),
            12 => {
                if let Some(juliet) = &juliet {
                    taken.extend(bench.receive_bodies(juliet));
                    let count = if managed { random.usize(..=taken.len()) } else { taken.len() };
                    if managed {
                        handled += count;
                        bench.acknowledge(juliet, handled);
                    }
                    got.extend(taken.drain(..count));
                }
            }
            13 => {
                bench.deliver_from_remote("friar", "juliet@capulet.com", &format!("friar {friar}"));
                friar += 1;
            }
            // A reload: new handlers, the same recipient queues.
            14 => bench.reload(Some(&[("max_messages", 1_000 + random.i64(0..10))])),
            _ => bench.tasks.step(),
        }
    }
    for gate in GATES {
        bench.gate.open(gate);
    }
    for sender in &mut senders {
        for later in sender.later.drain(..) {
            bench.complete(later);
        }
    }
    let juliet = juliet.unwrap_or_else(|| bench.connect("juliet"));
    bench.available(&juliet, 0);
    for _ in 0..100 {
        bench.run_until_idle();
        taken.extend(bench.receive_bodies(&juliet));
        if managed && juliet.outbox.management_terms().is_some() {
            handled += taken.len();
            bench.acknowledge(&juliet, handled);
        }
        got.append(&mut taken);
    }
    assert!(!bench.flushing(&juliet), "seed {seed}");
    assert_eq!(bench.stored("juliet"), 0, "seed {seed}");
    let sent = senders.iter().map(|s| (s.name, s.sent)).chain([("friar", friar)]);
    for (name, sent) in sent {
        let mine: Vec<&String> = got.iter().filter(|t| t.starts_with(name)).collect();
        let want: Vec<String> = (0..sent).map(|n| format!("{name} {n}")).collect();
        assert!(mine.iter().copied().eq(&want), "seed {seed}: {name} sent {sent}: {got:?}");
    }
    for sender in &senders {
        let answers = bench.receive(&sender.session);
        assert!(answers.is_empty(), "seed {seed}: nothing was refused: {answers:?}");
    }
}

#[test]
fn nothing_is_lost_and_no_order_changes() {
    for seed in 0..1000 {
        run_seed(seed);
    }
}
