//! Session log: logins, ends of sessions, and failed logins.
//!
//! All lines have the target `throng::sessions`, so that `[log] level = "info,throng::sessions=warn"` silences
//! exactly these; a silenced line costs a comparison. Logins and ends are logged individually up to
//! [`LINES_PER_SECOND`]; more, as in a storm of reconnects or a load test, are counted, and the counts are
//! logged once a minute. Failed logins are grouped by address: the first is logged immediately, those of the
//! following minute as one line with their number.
//!
//! # Pitfalls
//!
//! A client chooses the name that it claims, and people type passwords into the name field. So only existing
//! accounts are named; text is escaped where the log is written (`server/src/logs/line_format.rs`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::lock::LeafMutex;
use throng_core::{Node, Session};
use tracing::Level;

/// The target of these lines.
pub const TARGET: &str = "throng::sessions";
/// Maximum lines about logins and ends in a second.
const LINES_PER_SECOND: u32 = 50;
/// Seconds over which failures of one address are grouped.
const FAILURE_WINDOW_SECONDS: u32 = 60;
/// Maximum number of addresses with separate groups. Failures of other addresses are counted together.
const MAX_ADDRESSES: usize = 1_024;

/// Failed logins of one address.
#[derive(Debug, PartialEq, Eq)]
struct FailedLogins {
    /// None: addresses beyond [`MAX_ADDRESSES`].
    peer: Option<IpAddr>,
    count: u64,
    /// The account of the last one, if it exists.
    account: String,
    condition: &'static str,
    reason: &'static str,
}

struct FailureWindow {
    since: u32,
    failed: FailedLogins,
}

#[derive(Default)]
struct Failures {
    addresses: HashMap<IpAddr, FailureWindow>,
    others: Option<FailureWindow>,
}

impl Failures {
    /// Adds a failure; returns what must be logged immediately.
    fn add(&mut self, now: u32, failed: FailedLogins) -> Option<FailedLogins> {
        let entry = match failed.peer {
            Some(peer) if self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&peer) => {
                match self.addresses.entry(peer) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        let none = FailedLogins { count: 0, account: String::new(), ..failed };
                        entry.insert(FailureWindow { since: now, failed: none });
                        return Some(failed);
                    }
                }
            }
            _ => {
                let none = FailedLogins { peer: None, count: 0, account: String::new(), ..failed };
                self.others.get_or_insert(FailureWindow { since: now, failed: none })
            }
        };
        entry.failed.count += failed.count;
        entry.failed.account = failed.account;
        (entry.failed.condition, entry.failed.reason) = (failed.condition, failed.reason);
        None
    }

    /// Returns what must be logged now. An address without failures in its window is removed.
    fn due(&mut self, now: u32) -> Vec<FailedLogins> {
        let mut due = Vec::new();
        let mut keep = |gathered: &mut FailureWindow| {
            if now.saturating_sub(gathered.since) < FAILURE_WINDOW_SECONDS {
                return true;
            }
            if gathered.failed.count == 0 {
                return false;
            }
            let next = FailedLogins { count: 0, account: String::new(), ..gathered.failed };
            due.push(std::mem::replace(&mut gathered.failed, next));
            gathered.since = now;
            true
        };
        self.addresses.retain(|_, gathered| keep(gathered));
        if !self.others.as_mut().is_none_or(keep) {
            self.others = None;
        }
        due
    }
}

/// Lines that may still be logged in this second, and the number of skipped ones.
#[derive(Default)]
struct LineBudget {
    second: u32,
    written: u32,
    /// Logins and ends since the last summary.
    skipped: [u64; 2],
    since: u32,
}

impl LineBudget {
    fn take(&mut self, now: u32, kind: usize) -> bool {
        if self.second != now {
            (self.second, self.written) = (now, 0);
        }
        if self.written < LINES_PER_SECOND {
            self.written += 1;
            return true;
        }
        if self.skipped == [0, 0] {
            self.since = now;
        }
        self.skipped[kind] += 1;
        false
    }

    fn due(&mut self, now: u32) -> Option<[u64; 2]> {
        let due = self.skipped != [0, 0] && now.saturating_sub(self.since) >= FAILURE_WINDOW_SECONDS;
        due.then(|| std::mem::take(&mut self.skipped))
    }
}

/// The session log of a node.
pub fn session_log(node: &Node) -> Arc<SessionLog> {
    node.extensions.get_or_default()
}

/// Must be called once a second: writes lines that were delayed in order to group them.
pub fn write_delayed_lines(node: &Node) {
    session_log(node).sweep(node.clock.now_seconds());
}

/// State of the session log.
#[derive(Default)]
pub struct SessionLog {
    failures: LeafMutex<Failures>,
    budget: LeafMutex<LineBudget>,
}

impl SessionLog {
    /// Logs that a session started, or was resumed with another connection.
    pub fn session_opened(
        &self,
        now: u32,
        session: &Session,
        mechanism: &'static str,
        transport: &'static str,
        peer: SocketAddr,
        resumed: bool,
    ) {
        if tracing::enabled!(target: TARGET, Level::INFO) && self.budget.lock().take(now, 0) {
            let event = if resumed { "session resumed" } else { "logged in" };
            tracing::info!(target: TARGET, jid = %session.jid, mechanism, transport, %peer, "{event}");
        }
    }

    /// Logs the end of a session, `seconds` after its start.
    pub fn session_ended(&self, now: u32, session: &Session, reason: &str, seconds: u32) {
        if tracing::enabled!(target: TARGET, Level::INFO) && self.budget.lock().take(now, 1) {
            tracing::info!(target: TARGET, jid = %session.jid, reason, seconds, "session ended");
        }
    }

    /// Logs a failed login. `account`: empty if it does not exist.
    pub fn login_failed(
        &self,
        now: u32,
        peer: IpAddr,
        account: &str,
        condition: &'static str,
        reason: &'static str,
    ) {
        if !tracing::enabled!(target: TARGET, Level::INFO) {
            return;
        }
        let account = account.to_owned();
        let failed = FailedLogins { peer: Some(base::network(peer)), count: 1, account, condition, reason };
        let first = self.failures.lock().add(now, failed);
        write_failures(first);
    }

    fn sweep(&self, now: u32) {
        let due = self.failures.lock().due(now);
        write_failures(due);
        let skipped = self.budget.lock().due(now);
        if let Some([logins, ends]) = skipped {
            tracing::info!(target: TARGET, logins, ends, "further logins and session ends, not logged individually");
        }
    }
}

fn write_failures(lines: impl IntoIterator<Item = FailedLogins>) {
    for FailedLogins { peer, count, account, condition, reason } in lines {
        let peer = match peer {
            Some(IpAddr::V6(peer)) => format!("{peer}/64"),
            Some(peer) => peer.to_string(),
            None => "other addresses".to_owned(),
        };
        tracing::info!(target: TARGET, peer, count, user = account, condition, reason, "login failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(peer: &str) -> FailedLogins {
        FailedLogins {
            peer: Some(base::network(peer.parse().unwrap())),
            count: 1,
            account: "juliet@example.com".to_owned(),
            condition: "not-authorized",
            reason: "invalid-proof",
        }
    }

    #[test]
    fn failures_of_an_address_are_logged_immediately_and_then_once_a_minute() {
        let mut failures = Failures::default();
        assert_eq!(failures.add(100, failed("192.0.2.1")).unwrap().count, 1);
        for second in 100..159 {
            assert_eq!(failures.add(second, failed("192.0.2.1")), None);
            assert_eq!(failures.due(second), []);
        }
        assert!(failures.add(120, failed("192.0.2.2")).is_some(), "another address has its own");
        let due = failures.due(160);
        assert_eq!((due.len(), due[0].count, due[0].account.as_str()), (1, 59, "juliet@example.com"));
        assert_eq!(failures.add(170, failed("192.0.2.1")), None);
        assert_eq!(failures.due(220).iter().map(|failed| failed.count).collect::<Vec<_>>(), [1]);
        assert_eq!(failures.due(280), []);
        assert!(failures.addresses.is_empty(), "who is quiet is forgotten");
    }

    #[test]
    fn a_flood_of_addresses_is_one_line() {
        let mut failures = Failures::default();
        let at_once = (0..100_000u32)
            .filter(|n| failures.add(5, failed(&IpAddr::from(n.to_be_bytes()).to_string())).is_some())
            .count();
        assert_eq!((at_once, failures.addresses.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
        let due = failures.due(65);
        assert_eq!((due.len(), due[0].peer, due[0].count), (1, None, 100_000 - MAX_ADDRESSES as u64));
    }

    #[test]
    fn addresses_of_one_ipv6_prefix_are_grouped() {
        let mut failures = Failures::default();
        assert!(failures.add(1, failed("2001:db8:1:2::1")).is_some());
        assert!(failures.add(1, failed("2001:db8:1:2:ffff::9")).is_none());
        assert!(failures.add(1, failed("::ffff:192.0.2.1")).is_some());
        assert!(failures.add(1, failed("192.0.2.1")).is_none());
    }

    #[test]
    fn logins_above_the_limit_are_counted_instead_of_logged() {
        let mut budget = LineBudget::default();
        let written = (0..1_000).filter(|_| budget.take(7, 0)).count();
        assert_eq!(written, LINES_PER_SECOND as usize);
        assert!(budget.take(8, 1), "the next second has room again");
        assert_eq!((budget.due(8), budget.due(67)), (None, Some([1_000 - u64::from(LINES_PER_SECOND), 0])));
        assert_eq!(budget.due(500), None);
    }
}
