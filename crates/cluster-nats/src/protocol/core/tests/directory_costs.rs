//! What the directory costs: memory, look-ups, a snapshot and changes with ten million claims of five nodes.
//!
//! `cargo xtask bench directory` runs the ignored test with the profile `dist` and reads the lines `figure NAME VALUE UNIT`.
//!
//! Five complete nodes are in one thread, so every claim is five times in memory. Frames are encoded, sealed, opened and applied
//! as between processes. Look-ups depend on one another, so that a processor cannot overlap them, and their addresses are
//! random, so that caches miss. Beside them are two that nothing can undercut: a read of a random cache line of a table with 16
//! octets for each claim, and a look-up in a `HashMap` of as many hashes.
//!
//! Not measured: NATS, and look-ups of several threads.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints figures"
)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::clock::Millis;
use bytes::Bytes;
use cluster::{
    AddressLocation, AddressNumber, Claim, Envelope, Inbox, MembershipChange, NodeId, PeerViolation, Ticket,
};

use crate::cluster_key::ClusterKey;
use crate::protocol::core::Core;
use crate::protocol::directory::DirectoryLimits;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Claims, and as many releases, of each node in a millisecond.
const CHANGES: usize = 10;

/// `SplitMix64`: no two numbers give the same one.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A number below `end`, of a random one.
fn below(random: u64, end: usize) -> usize {
    ((u128::from(random) * end as u128) >> 64) as usize
}

/// The hash of the address with this number.
fn address(number: usize) -> u64 {
    mix(number as u64)
}

fn claim(number: usize) -> Claim {
    Claim {
        address: address(number),
        number: AddressNumber::new(u32::try_from(number).unwrap() + 1),
        since: 1_790_000_000_000 + number as u64 / 100,
        takes_messages: !number.is_multiple_of(3),
    }
}

/// What nodes report. Nothing is kept.
#[derive(Default)]
struct CountingInbox {
    joined_claims: AtomicUsize,
    changes: AtomicUsize,
    violations: AtomicUsize,
}

impl Inbox for CountingInbox {
    fn on_envelope(&self, _: NodeId, _: Envelope) {}
    fn on_receipts(&self, _: NodeId, _: Ticket, _: &[Ticket]) {}
    fn on_refused(&self, _: NodeId, _: Envelope) {}
    fn on_undelivered(&self, _: NodeId, _: Envelope) {}
    fn on_membership_change(&self, _: MembershipChange) {}

    fn on_claim(&self, _: NodeId, _: Claim) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn on_claims_of_joined(&self, _: NodeId, claims: Vec<Claim>) {
        self.joined_claims.fetch_add(claims.len(), Ordering::Relaxed);
    }

    fn on_violation(&self, _: NodeId, _: PeerViolation) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Time that a node took.
#[derive(Clone, Copy, Default)]
struct Taken {
    sending: Duration,
    receiving: Duration,
}

/// Nodes that carry their frames to one another at once.
struct Nodes {
    now: Millis,
    nodes: Vec<(Core, Arc<CountingInbox>, Taken)>,
    /// Nodes before this one are members.
    members: usize,
}

impl Nodes {
    fn new() -> Nodes {
        let node = |name: &&str| {
            let core =
                Core::new(NodeId::new(name).unwrap(), ClusterKey::new(&[7; 32]), DirectoryLimits::default());
            core.start(1);
            let inbox = Arc::new(CountingInbox::default());
            core.attach(inbox.clone());
            (core, inbox, Taken::default())
        };
        Nodes { now: Millis(1), nodes: NAMES.iter().map(node).collect(), members: 0 }
    }

    /// Nodes up to this one become members, and run until all claims are everywhere.
    fn join(&mut self, members: usize) {
        self.members = members;
        let records: Vec<_> = self.nodes.iter().take(members).map(|(core, ..)| core.record()).collect();
        for (core, ..) in self.nodes.iter().take(members) {
            records.iter().for_each(|record| assert!(core.see_member(self.now, record).is_ok()));
        }
        self.settle();
    }

    fn settle(&mut self) {
        let start = self.now;
        while self
            .nodes
            .iter()
            .take(self.members)
            .any(|(core, ..)| core.members().len() < self.members || !core.is_quiet())
        {
            self.step();
            assert!(self.now.since(start) < 60_000, "claims do not arrive");
        }
    }

    /// One millisecond.
    fn step(&mut self) {
        self.now = self.now.plus(1);
        let mut frames: Vec<(NodeId, Vec<u8>)> = Vec::new();
        for (core, _, taken) in self.nodes.iter_mut().take(self.members) {
            let begun = Instant::now();
            frames.extend(core.poll(self.now, 16, true).frames);
            taken.sending += begun.elapsed();
        }
        for (to, frame) in frames {
            let frame = Bytes::from(frame);
            let (core, _, taken) = self.nodes.iter_mut().find(|(core, ..)| core.node() == to).unwrap();
            let begun = Instant::now();
            core.receive(self.now, &frame);
            taken.receiving += begun.elapsed();
        }
        for (core, _, taken) in self.nodes.iter_mut().take(self.members) {
            let begun = Instant::now();
            core.run_calls();
            taken.receiving += begun.elapsed();
        }
    }

    fn take_times(&mut self) -> Vec<Taken> {
        self.nodes.iter_mut().map(|(.., taken)| std::mem::take(taken)).collect()
    }

    /// Every node knows this number of claims of each, and none had to correct its directory.
    fn check(&self, each: usize) {
        for (core, inbox, _) in &self.nodes {
            let status = core.status();
            assert_eq!((status.own_claims, status.peer_claims), (each, each * (NAMES.len() - 1)));
            assert_eq!(status.statistics.digest_mismatches, 0);
            assert_eq!(inbox.violations.load(Ordering::Relaxed), 0);
        }
    }
}

/// Resident memory of this process, in octets.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .map_or(0, |pages: usize| pages * 4096)
}

/// Nanoseconds of a call with a random number, of calls that depend on one another: the median of rounds.
fn nanoseconds(calls: usize, mut call: impl FnMut(u64) -> u64) -> f64 {
    let mut random = 1;
    let mut rounds: Vec<f64> = (0..101)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..calls {
                random = mix(random ^ call(random));
            }
            begun.elapsed().as_nanos() as f64 / calls as f64
        })
        .collect();
    black_box(random);
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The hashes are random already.
#[derive(Default)]
struct HashOfHash(u64);

impl Hasher for HashOfHash {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Times below which no look-up can be.
fn measure_floors(total: usize, calls: usize) {
    let lines: Vec<[u64; 8]> = (0..total.div_ceil(4)).map(|line| [line as u64; 8]).collect();
    let line = nanoseconds(calls, |random| lines[below(random, lines.len())][0]);
    println!("figure floor.line {line:.1} ns");
    let map: HashMap<u64, u64, BuildHasherDefault<HashOfHash>> =
        (0..total).map(|number| (address(number), number as u64)).collect();
    let found = nanoseconds(calls, |random| map[&address(below(random, total))]);
    println!("figure floor.map {found:.1} ns");
}

fn measure_lookups(core: &Core, total: usize, calls: usize) {
    let locate = |number: usize, with_number: bool| {
        let claim = claim(number);
        match core.locate(claim.address, claim.number.filter(|_| with_number)) {
            AddressLocation::Nowhere => 0,
            AddressLocation::Here => 1,
            AddressLocation::Node(at) => at.claim.since,
            AddressLocation::Many(all) => all.len() as u64,
        }
    };
    for number in [0, total / 2, total - 1] {
        assert_ne!(locate(number, true), 0);
    }
    assert_eq!(locate(total, false), 0);
    let present = nanoseconds(calls, |random| locate(below(random, total), true));
    println!("figure lookup.present {present:.1} ns");
    let unnumbered = nanoseconds(calls, |random| locate(below(random, total), false));
    println!("figure lookup.unnumbered {unnumbered:.1} ns");
    let absent = nanoseconds(calls, |random| locate(total + below(random, total), true));
    println!("figure lookup.absent {absent:.1} ns");
}

/// Prints what `each` claims of each node cost, and `millis` of changes.
fn measure(each: usize, calls: usize, millis: usize) {
    let (count, total) = (NAMES.len(), each * NAMES.len());
    measure_floors(total, calls);

    let (allocated, was_resident) = (counting_allocator::live_bytes(), resident());
    let mut nodes = Nodes::new();
    let empty = counting_allocator::live_bytes() - allocated;
    println!("figure memory.empty {:.0} kB", empty as f64 / count as f64 / 1e3);
    let begun = Instant::now();
    for number in 0..total {
        let (core, ..) = &nodes.nodes[number % count];
        core.claim(claim(number));
        if number % 1_000 < count {
            // Pending changes are taken after some milliseconds.
            nodes.now = nodes.now.plus(5);
            core.poll(nodes.now, 1, false);
        }
    }
    println!("figure claim.own {:.1} ns", begun.elapsed().as_nanos() as f64 / total as f64);

    nodes.join(count - 1);
    nodes.take_times();
    let begun = Instant::now();
    nodes.join(count);
    let wall = begun.elapsed();
    nodes.check(each);
    let times = nodes.take_times();
    let joined = times[count - 1];
    let sending = times[..count - 1].iter().map(|taken| taken.sending).max().unwrap_or_default();
    println!("figure snapshot.write {:.3} s", sending.as_secs_f64());
    println!("figure snapshot.apply {:.3} s", joined.receiving.as_secs_f64());
    println!("figure snapshot.all {:.3} s", wall.as_secs_f64());
    let entries = (total * count) as f64;
    let octets = (counting_allocator::live_bytes() - allocated) as f64 / entries;
    println!("figure memory.allocated {octets:.2} B");
    println!("figure memory.resident {:.2} B", resident().saturating_sub(was_resident) as f64 / entries);

    measure_lookups(&nodes.nodes[0].0, total, calls);

    let begun = Instant::now();
    let mut claiming = Duration::ZERO;
    for number in (0..millis).map(|milli| milli * CHANGES * count) {
        let begun = Instant::now();
        for number in number..number + CHANGES * count {
            let (core, ..) = &nodes.nodes[number % count];
            let gone = claim(number);
            core.release(gone.address, gone.number);
            core.claim(claim(total + number));
        }
        claiming += begun.elapsed();
        nodes.step();
    }
    let wall = begun.elapsed();
    nodes.settle();
    nodes.check(each);
    let times = nodes.take_times();
    let percent = |taken: Duration| taken.as_secs_f64() / (millis as f64 / 1e3) * 100.0 / count as f64;
    println!("figure changes.claim {:.2} percent", percent(claiming));
    println!("figure changes.send {:.2} percent", percent(times.iter().map(|taken| taken.sending).sum()));
    println!("figure changes.apply {:.2} percent", percent(times.iter().map(|taken| taken.receiving).sum()));
    println!("figure changes.all {:.2} percent", percent(wall));
    measure_lookups_after(&nodes.nodes[0].0, total + millis * CHANGES * count, total, calls);
    let octets = (counting_allocator::live_bytes() - allocated) as f64 / entries;
    println!("figure memory.after {octets:.2} B");
    println!(
        "figure memory.resident_after {:.2} B",
        resident().saturating_sub(was_resident) as f64 / entries
    );

    // The last one sends nothing any more.
    let (lost, ..) = nodes.nodes.pop().unwrap();
    nodes.members -= 1;
    drop(lost);
    let begun = Instant::now();
    for (core, ..) in &nodes.nodes {
        // Others are silent as well, so all of them are lost.
        core.poll(nodes.now.plus(60_000), 0, false);
        core.run_calls();
        assert_eq!(core.status().peer_claims, 0);
    }
    let removed = (count - 1) * (count - 1) * each;
    println!("figure remove {:.1} ns", begun.elapsed().as_nanos() as f64 / removed as f64);
}

fn measure_lookups_after(core: &Core, end: usize, total: usize, calls: usize) {
    let found = nanoseconds(calls, |random| {
        let claim = claim(end - total + below(random, total));
        u64::from(core.locate(claim.address, claim.number) != AddressLocation::Nowhere)
    });
    println!("figure lookup.after {found:.1} ns");
}

#[test]
#[ignore = "a measurement"]
fn measure_the_directory() {
    measure(2_000_000, 20_000, 20_000);
}

#[test]
fn the_measurement_of_the_directory_works_with_few_claims() {
    measure(1_000, 10, 50);
}
