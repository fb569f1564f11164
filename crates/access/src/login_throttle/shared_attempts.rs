//! Attempts to log in that other nodes must count, and the reports in which they learn of them ([`cluster::UsageReports`]).
//!
//! Attempts are summed for each account and address until the next report. A report has the account and the address
//! themselves: its receiver finds its counts by a hash with a key of its own, and compares both.
//!
//! ```text
//! octets  field             all numbers big-endian; for each account and address
//! 1       flags             1: tokens, not passwords; 2: a login succeeded; 4: the address is loopback
//! 8       network           [`base::network_number`]
//! 2       failures
//! 2       of these, since the last success
//! 1 + n   account           length and text, or 255 and its SHA-256
//! ```
//!
//! A table of [`MAX_ENTRIES`] bounds memory and the size of a report. Successes, of which a node that was just started has many,
//! take at most half of it. What finds no room is not reported, and counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

use base::ReportSchedule;
use cluster::{UsageKind, UsageReport, UsageReporter, UsageReports};
use throng_core::Node;

use super::fixed_name::FixedName;
use super::{LoginThrottle, login_throttle};

/// Accounts and addresses in a report, at most: 62 kB.
const MAX_ENTRIES: usize = 1_024;
/// Entries up to which a success gets one of its own.
const MAX_WITH_SUCCESSES: usize = MAX_ENTRIES / 2;

const TOKEN: u8 = 1;
const SUCCEEDED: u8 = 2;
const LOOPBACK: u8 = 4;

/// What the attempts that are counted together have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttemptIdentity {
    pub(super) network: u64,
    pub(super) account: FixedName,
    pub(super) loopback: bool,
    pub(super) token: bool,
}

/// Results of attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AttemptCounts {
    pub(super) failures: u16,
    /// Failures since the last success.
    pub(super) since_success: u16,
    pub(super) succeeded: bool,
}

impl AttemptCounts {
    /// One failure.
    pub(super) const FAILURE: AttemptCounts =
        AttemptCounts { failures: 1, since_success: 1, succeeded: false };

    /// Adds an attempt. Counts stop at their maximum, which is above all useful limits.
    fn add(&mut self, succeeded: bool) {
        if succeeded {
            self.since_success = 0;
            self.succeeded = true;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.since_success = self.since_success.saturating_add(1);
        }
    }
}

/// What other nodes will learn.
#[derive(Default)]
pub(super) struct UnreportedAttempts {
    entries: HashMap<AttemptIdentity, AttemptCounts>,
    dropped: u64,
}

impl UnreportedAttempts {
    /// An attempt was answered.
    pub(super) fn note(&mut self, name: AttemptIdentity, succeeded: bool) {
        let room = if succeeded { MAX_WITH_SUCCESSES } else { MAX_ENTRIES };
        let has_room = self.entries.len() < room;
        match self.entries.entry(name) {
            Entry::Occupied(mut entry) => entry.get_mut().add(succeeded),
            Entry::Vacant(entry) if has_room => entry.insert(AttemptCounts::default()).add(succeeded),
            Entry::Vacant(_) => self.dropped = self.dropped.saturating_add(1),
        }
    }

    fn into_report(self) -> UsageReport {
        let mut octets = Vec::new();
        for (name, counts) in &self.entries {
            encode(&mut octets, name, counts);
        }
        UsageReport { octets, dropped: self.dropped }
    }
}

impl LoginThrottle {
    /// From now on, attempts are collected for other nodes. False if they are already.
    fn share(&self, schedule: Arc<ReportSchedule>) -> bool {
        let is_first = self.reports.set(schedule).is_ok();
        self.tables.lock().unreported.get_or_insert_default();
        is_first
    }

    fn take_report(&self) -> UsageReport {
        let unreported = self.tables.lock().unreported.as_mut().map(std::mem::take);
        unreported.unwrap_or_default().into_report()
    }
}

fn encode(out: &mut Vec<u8>, name: &AttemptIdentity, counts: &AttemptCounts) {
    let flag = |set, flag| if set { flag } else { 0 };
    out.push(flag(name.token, TOKEN) | flag(counts.succeeded, SUCCEEDED) | flag(name.loopback, LOOPBACK));
    out.extend(name.network.to_be_bytes());
    out.extend(counts.failures.to_be_bytes());
    out.extend(counts.since_success.to_be_bytes());
    name.account.encode(out);
}

/// Reads a whole report. `None` if it is none.
fn decode(mut input: &[u8]) -> Option<Vec<(AttemptIdentity, AttemptCounts)>> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        let (flags, rest) = input.split_first()?;
        let (network, rest) = rest.split_first_chunk()?;
        let (failures, rest) = rest.split_first_chunk()?;
        let (since_success, rest) = rest.split_first_chunk()?;
        let (account, rest) = FixedName::decode(rest)?;
        let has = |flag| flags & flag != 0;
        let counts = AttemptCounts {
            failures: u16::from_be_bytes(*failures),
            since_success: u16::from_be_bytes(*since_success),
            succeeded: has(SUCCEEDED),
        };
        let is_consistent = counts.since_success <= counts.failures
            && (counts.succeeded || counts.since_success == counts.failures && counts.failures != 0);
        if flags & !(TOKEN | SUCCEEDED | LOOPBACK) != 0 || !is_consistent || entries.len() == MAX_ENTRIES {
            return None;
        }
        let network = u64::from_be_bytes(*network);
        let name = AttemptIdentity { network, account, loopback: has(LOOPBACK), token: has(TOKEN) };
        entries.push((name, counts));
        input = rest;
    }
    Some(entries)
}

/// Reports the attempts of a node.
struct AttemptReporter {
    throttle: Arc<LoginThrottle>,
    node: Weak<Node>,
}

impl UsageReporter for AttemptReporter {
    fn kind(&self) -> UsageKind {
        UsageKind::LoginAttempts
    }

    fn take_report(&self) -> UsageReport {
        self.throttle.take_report()
    }

    fn on_report(&self, octets: &[u8]) -> bool {
        let (Some(entries), Some(node)) = (decode(octets), self.node.upgrade()) else { return false };
        let (limits, now) = (node.limits(), node.seconds());
        for (name, counts) in entries {
            self.throttle.record_remote(&limits, now, name, counts);
        }
        true
    }
}

/// From now on, the throttles of the nodes of a cluster learn of one another's attempts. Must be called once, before logins.
pub fn share_login_attempts(node: &Arc<Node>) {
    if node.is_single() {
        return;
    }
    let (throttle, reports) = (login_throttle(node), node.extensions.get_or_default::<UsageReports>());
    if throttle.share(reports.schedule().clone()) {
        reports.register(Arc::new(AttemptReporter { throttle, node: Arc::downgrade(node) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login_throttle::LoginLimit;
    use throng_core::NodeLimits;

    const HERE: &str = "192.0.2.1";
    const WINDOW: u32 = 600;

    /// Throttles of several nodes, and the second of their clock.
    struct Throttles {
        nodes: Vec<LoginThrottle>,
        limits: NodeLimits,
        now: u32,
    }

    impl Throttles {
        fn new(count: usize) -> Throttles {
            let limits = NodeLimits {
                login_window_seconds: WINDOW,
                login_failures_per_address_and_account: 3,
                login_failures_per_address: 10,
                login_accounts_per_address: 5,
                login_failures_per_account: 8,
                ..NodeLimits::default()
            };
            let node = |_| {
                let throttle = LoginThrottle::new();
                assert!(throttle.share(Arc::default()));
                throttle
            };
            Throttles { nodes: (0..count).map(node).collect(), limits, now: 100 }
        }

        fn admit(&self, node: usize, peer: &str, account: &str, valid: bool) -> Result<(), LoginLimit> {
            let throttle = &self.nodes[node % self.nodes.len()];
            let keys = throttle.keys(peer.parse().unwrap(), account, false);
            throttle.check_and_record(&self.limits, self.now, &keys, valid)
        }

        fn fail(&self, node: usize, peer: &str, account: &str) -> Result<(), LoginLimit> {
            self.admit(node, peer, account, false)
        }

        /// Whether an attempt may begin on each of the nodes.
        fn check(&self, peer: &str, account: &str) -> Vec<Result<(), LoginLimit>> {
            let check = |throttle: &LoginThrottle| {
                let keys = throttle.keys(peer.parse().unwrap(), account, false);
                throttle.check(&self.limits, self.now, &keys)
            };
            self.nodes.iter().map(check).collect()
        }

        /// Every node reports to all others. Returns the octets of each report.
        fn exchange(&self) -> Vec<usize> {
            let reports: Vec<_> = self.nodes.iter().map(|node| node.take_report().octets).collect();
            for (from, octets) in reports.iter().enumerate() {
                for (to, node) in self.nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                    for (name, counts) in decode(octets).unwrap_or_else(|| panic!("{from} to {to}")) {
                        node.record_remote(&self.limits, self.now, name, counts);
                    }
                }
            }
            reports.iter().map(Vec::len).collect()
        }
    }

    #[test]
    fn guesses_one_after_the_other_are_limited_on_all_nodes_as_on_one() {
        for count in [1, 2, 5] {
            let tried = |guess: &dyn Fn(&Throttles, usize) -> Result<(), LoginLimit>| {
                let nodes = Throttles::new(count);
                let answered = (0..100).filter(|n| {
                    let answer = guess(&nodes, *n);
                    nodes.exchange();
                    answer.is_ok()
                });
                answered.count()
            };
            assert_eq!(tried(&|nodes, n| nodes.fail(n, HERE, "juliet@x")), 3, "{count}");
            let account = tried(&|nodes, n| nodes.fail(n, &format!("198.51.100.{n}"), "juliet@x"));
            assert_eq!(account, 8, "{count}");
            let accounts = tried(&|nodes, n| nodes.fail(n, HERE, &format!("user{n}@x")));
            assert!((4..=8).contains(&accounts), "{accounts} accounts where 5 are allowed");
            let address = tried(&|nodes, n| nodes.fail(n, HERE, &format!("user{}@x", n % 4)));
            assert!((10..=12).contains(&address), "{count}: {address}");
        }
    }

    #[test]
    fn guesses_at_the_same_time_extend_the_window_so_that_many_nodes_admit_no_more() {
        let mut nodes = Throttles::new(5);
        let mut answered = 0;
        for _window in 0..20 {
            for node in 0..5 {
                answered += (0..10).filter(|_| nodes.fail(node, HERE, "juliet@x").is_ok()).count();
            }
            nodes.exchange();
            assert!(nodes.check(HERE, "juliet@x").iter().all(|check| *check == Err(LoginLimit::Pair)));
            nodes.now += WINDOW;
        }
        // 20 windows on one node.
        assert_eq!(answered, 60);
    }

    #[test]
    fn an_address_that_tried_too_many_accounts_at_the_same_time_waits_for_as_many_windows() {
        let mut nodes = Throttles::new(5);
        let tried = |nodes: &Throttles| -> usize {
            let one = |node| {
                (0..9).filter(|n| nodes.fail(node, HERE, &format!("user{n} of {node}@x")).is_ok()).count()
            };
            (0..5).map(one).sum()
        };
        let first = tried(&nodes);
        nodes.exchange();
        let mut windows = 0;
        while nodes.check(HERE, "another@x")[0].is_err() {
            nodes.now += WINDOW;
            windows += 1;
        }
        assert!((20..=40).contains(&first) && (3..=6).contains(&windows), "{first} in {windows} windows");
    }

    #[test]
    fn the_owner_of_an_attacked_account_logs_in_on_a_node_that_has_not_seen_the_address() {
        let mut nodes = Throttles::new(3);
        nodes.admit(0, "198.51.100.7", "juliet@x", true).unwrap();
        nodes.exchange();
        for n in 0..100 {
            let _ = nodes.fail(n, &format!("192.0.2.{n}"), "juliet@x");
            nodes.exchange();
        }
        assert!(
            nodes.check("203.0.113.9", "juliet@x").iter().all(|check| *check == Err(LoginLimit::Account))
        );
        assert!(nodes.check("198.51.100.7", "juliet@x").iter().all(Result::is_ok));
        // Failures of those who are exempt do not extend the window of others.
        for n in 0..3 {
            nodes.fail(n, "198.51.100.7", "juliet@x").unwrap();
        }
        nodes.exchange();
        nodes.now += WINDOW;
        assert!(nodes.check("203.0.113.9", "juliet@x").iter().all(Result::is_ok));
    }

    #[test]
    fn a_success_clears_the_failures_before_it_on_all_nodes() {
        let nodes = Throttles::new(2);
        nodes.fail(0, HERE, "juliet@x").unwrap();
        nodes.fail(1, HERE, "juliet@x").unwrap();
        nodes.exchange();
        nodes.admit(0, HERE, "juliet@x", true).unwrap();
        nodes.fail(0, HERE, "juliet@x").unwrap();
        nodes.exchange();
        for _ in 0..2 {
            nodes.fail(1, HERE, "juliet@x").unwrap();
        }
        assert_eq!(nodes.fail(1, HERE, "juliet@x"), Err(LoginLimit::Pair));
    }

    #[test]
    fn a_repeated_success_is_reported_once_in_a_window() {
        let mut nodes = Throttles::new(2);
        let mut reported = 0;
        for _second in 0..3 * WINDOW {
            nodes.admit(0, HERE, "juliet@x", true).unwrap();
            reported += usize::from(nodes.exchange()[0] > 0);
            nodes.now += 1;
        }
        assert_eq!(reported, 3);
    }

    #[test]
    fn a_flood_of_failures_is_one_report_of_bounded_size_and_is_counted() {
        let nodes = Throttles::new(1);
        for n in 0..5_000 {
            nodes
                .fail(0, &format!("10.0.{}.{}", n / 250, n % 250), &format!("{}{n}@x", "u".repeat(60)))
                .unwrap();
        }
        let report = nodes.nodes[0].take_report();
        assert!(report.octets.len() <= 62_500, "{}", report.octets.len());
        assert_eq!(report.dropped, 5_000 - MAX_ENTRIES as u64);
        assert_eq!(decode(&report.octets).unwrap().len(), MAX_ENTRIES);
        assert_eq!(nodes.nodes[0].take_report(), UsageReport::default());
        // One account from one address is one entry, however often it fails.
        let mut unreported = UnreportedAttempts::default();
        let name = nodes.nodes[0].keys(HERE.parse().unwrap(), "juliet@x", false).name();
        (0..100_000).for_each(|_| unreported.note(name, false));
        assert_eq!(unreported.entries.len(), 1);
        assert_eq!(unreported.entries[&name].failures, u16::MAX);
        // Successes leave room for failures.
        let numbered = |network| AttemptIdentity { network, ..name };
        (0..5_000).for_each(|n| unreported.note(numbered(n), true));
        assert_eq!(unreported.entries.len(), MAX_WITH_SUCCESSES);
        (5_000..10_000).for_each(|n| unreported.note(numbered(n), false));
        assert_eq!(unreported.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_anything_else_is_refused() {
        let throttle = LoginThrottle::new();
        let long = "m".repeat(300);
        let entries = [
            (throttle.keys("127.0.0.1".parse().unwrap(), "juliet@x", true).name(), AttemptCounts::FAILURE),
            (
                throttle.keys("2001:db8::1".parse().unwrap(), &long, false).name(),
                AttemptCounts { failures: 700, since_success: 2, succeeded: true },
            ),
        ];
        let write = |entries: &[(AttemptIdentity, AttemptCounts)]| {
            let mut octets = Vec::new();
            entries.iter().for_each(|(name, counts)| encode(&mut octets, name, counts));
            octets
        };
        let octets = write(&entries);
        assert_eq!(decode(&octets).unwrap(), entries);
        assert_eq!(decode(&[]), Some(Vec::new()));
        let first = write(&entries[..1]).len();
        let cut = (1..octets.len()).filter(|length| *length != first);
        assert!(cut.into_iter().all(|length| decode(&octets[..length]).is_none()));
        let mut undefined = octets.clone();
        undefined[0] |= 8;
        assert_eq!(decode(&undefined), None);
        for counts in [
            AttemptCounts { failures: 1, since_success: 2, succeeded: true },
            AttemptCounts { failures: 2, since_success: 1, succeeded: false },
            AttemptCounts { failures: 0, since_success: 0, succeeded: false },
        ] {
            assert_eq!(decode(&write(&[(entries[0].0, counts)])), None, "{counts:?}");
        }
        assert_eq!(decode(&write(&vec![entries[0]; MAX_ENTRIES + 1])), None);
    }
}
