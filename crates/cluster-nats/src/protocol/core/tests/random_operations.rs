//! Seeded lists of operations: messages, claims, cuts, crashes and departures under loss, duplication and delay.
//!
//! Invariants: an accepted envelope of a reliable class arrives at most once, in order, and arrives or returns; all tickets end; in
//! the end all nodes know the same claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::conformance::{InboxEvent, InboxRecorder, test_claim, test_envelope};
use cluster::{AddressLocation, AddressNumber, Cluster, EnvelopeClass, NodeId};
use fastrand::Rng;

use super::network::{Faults, SimulatedNetwork, name};

const NAMES: [&str; 3] = ["a", "b", "c"];

struct Run {
    seed: u64,
    network: Arc<SimulatedNetwork>,
    inboxes: BTreeMap<(NodeId, u64), Arc<InboxRecorder>>,
    claims: BTreeMap<NodeId, BTreeMap<u64, u32>>,
    sent: Vec<(NodeId, u64, NodeId, String)>,
    crashed: BTreeSet<NodeId>,
    starts: BTreeMap<NodeId, u64>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let faults = Faults { drop: 100, duplicate: 100, delay: 8 };
        let network = SimulatedNetwork::new(&NAMES, seed, faults);
        let mut run = Run {
            seed,
            network,
            inboxes: BTreeMap::new(),
            claims: BTreeMap::new(),
            sent: Vec::new(),
            crashed: BTreeSet::new(),
            starts: BTreeMap::new(),
        };
        NAMES.iter().for_each(|node| run.attach(name(node)));
        run
    }

    fn attach(&mut self, node: NodeId) {
        let cluster = self.network.node(node) as Arc<dyn Cluster>;
        let start = *self.starts.entry(node).and_modify(|start| *start += 1).or_insert(0);
        self.inboxes.insert((node, start), InboxRecorder::attach(&cluster));
        self.claims.insert(node, BTreeMap::new());
    }

    fn operate(&mut self, random: &mut Rng) {
        let [from, to] = [random.choice(NAMES).unwrap(), random.choice(NAMES).unwrap()].map(name);
        let alive = !self.crashed.contains(&from);
        match random.u8(..100) {
            0..60 if alive => {
                let text = format!("{} {}", self.seed, self.sent.len());
                let envelope = test_envelope(from, EnvelopeClass::Message, &text);
                if self.network.node(from).deliver(to, envelope).is_ok() {
                    self.sent.push((from, self.starts[&from], to, text));
                }
            }
            60..80 if alive => {
                let address = random.u64(..20);
                *self.claims.get_mut(&from).unwrap().entry(address).or_default() += 1;
                self.network.node(from).claim(test_claim(address, 1, random.u64(..9)));
            }
            80..92 if alive => {
                let address = random.u64(..20);
                self.claims
                    .get_mut(&from)
                    .unwrap()
                    .entry(address)
                    .and_modify(|count| *count = count.saturating_sub(1));
                self.network.node(from).release(address, AddressNumber::new(1));
            }
            92..95 if from != to => self.network.cut(from, to),
            95..98 if from != to => self.network.heal(from, to),
            98 if alive && self.crashed.is_empty() => {
                self.network.crash(from);
                self.crashed.insert(from);
            }
            99 if !alive => {
                self.crashed.remove(&from);
                self.network.join(from);
                self.attach(from);
            }
            _ => {}
        }
        let pause = if random.u8(..50) == 0 { random.u64(..12_000) } else { random.u64(..5) };
        self.network.run(pause, |_| false);
    }

    fn finish(mut self) {
        for node in std::mem::take(&mut self.crashed) {
            self.network.join(node);
            self.attach(node);
        }
        for one in NAMES {
            NAMES.iter().for_each(|other| self.network.heal(name(one), name(other)));
        }
        let seed = self.seed;
        let ok = self.network.run(60_000, |network| network.is_connected() && network.is_quiet());
        assert!(ok, "seed {seed}: it heals");
        // Receipts of the last envelopes, and digests.
        self.network.run(12_000, |_| false);
        self.check_envelopes();
        for reader in NAMES.map(name) {
            for address in 0..20 {
                let location = self.network.node(reader).locate(address, None);
                let expect: BTreeSet<NodeId> = NAMES
                    .map(name)
                    .into_iter()
                    .filter(|node| self.claims[node].get(&address).is_some_and(|count| *count > 0))
                    .collect();
                let found: BTreeSet<NodeId> = match location {
                    AddressLocation::Here => BTreeSet::from([reader]),
                    _ => location.claims().iter().map(|at| at.node).collect(),
                };
                assert_eq!(found, expect, "seed {seed}: {address} at {reader}");
            }
        }
    }

    fn check_envelopes(&self) {
        let seed = self.seed;
        for ((node, start), inbox) in &self.inboxes {
            for from in NAMES.map(name) {
                let texts = inbox.texts(from);
                let position = |text: &String| self.sent.iter().position(|(_, _, _, sent)| sent == text);
                assert!(
                    texts.iter().map(position).is_sorted_by(|one, next| one < next),
                    "seed {seed}: order, once"
                );
            }
            let is_last = self.starts[node] == *start;
            let returned: BTreeSet<String> = inbox
                .events()
                .iter()
                .filter_map(|event| match event {
                    InboxEvent::Undelivered(_, envelope) => {
                        Some(String::from_utf8_lossy(&envelope.bytes).into_owned())
                    }
                    InboxEvent::Violation(..) => {
                        panic!("seed {seed}: a correct node violates nothing: {event:?}")
                    }
                    _ => None,
                })
                .collect();
            for (from, sent_start, to, text) in &self.sent {
                if (from, sent_start) != (node, start) || !is_last {
                    continue;
                }
                let arrived =
                    self.inboxes.iter().any(|((at, _), inbox)| at == to && inbox.texts(*from).contains(text));
                assert!(arrived || returned.contains(text), "seed {seed}: {text} is lost");
            }
            assert!(
                !is_last || self.network.node(*node).core.status().kept_bytes == 0,
                "seed {seed}: all tickets end"
            );
        }
    }
}

#[test]
fn seeded_operations_keep_the_invariants() {
    let seeds = std::env::var("THRONG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seeds.map_or(0..12, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = Rng::with_seed(seed);
        let mut run = Run::new(seed);
        for _ in 0..150 {
            run.operate(&mut random);
        }
        run.finish();
    }
}
