//! Lines of the log about people: logins, ends of sessions, and failed logins.
//!
//! All have the target `throng::sessions`, so that `[log] level = "info,throng::sessions=warn"` silences them and nothing else; a
//! silenced line costs a comparison. A login and an end are a line each, up to [`LINES`] a second; what a storm of reconnects or
//! a load generator brings beyond that is counted, and the counts are one line a minute. Failed logins are gathered by
//! address: the first one is written at once, those of the following minute are one line with their number.
//!
//! The trap: a client chooses what it calls itself, and people type passwords into the field for the name. So only accounts
//! that exist are named; what is printed is escaped where the log is written (`server/src/logs/line.rs`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;
use tracing::Level;

use crate::session::Session;

/// The target of these lines.
pub const TARGET: &str = "throng::sessions";
/// Lines about logins and ends in a second.
const LINES: u32 = 50;
/// Seconds over which failures of one address are gathered.
const WINDOW: u32 = 60;
/// Addresses whose failures are gathered apart. Those of others are counted together.
const ADDRESSES: usize = 1_024;

/// Failed logins of one address.
#[derive(Debug, PartialEq, Eq)]
struct Failed {
    /// None: addresses beyond [`ADDRESSES`].
    peer: Option<IpAddr>,
    count: u64,
    /// The account of the last one, if it exists.
    account: String,
    condition: &'static str,
    reason: &'static str,
}

struct Gathered {
    since: u32,
    failed: Failed,
}

#[derive(Default)]
struct Failures {
    addresses: HashMap<IpAddr, Gathered>,
    others: Option<Gathered>,
}

impl Failures {
    /// Counts one; what is to be written at once.
    fn add(&mut self, now: u32, failed: Failed) -> Option<Failed> {
        let entry = match failed.peer {
            Some(peer) if self.addresses.len() < ADDRESSES || self.addresses.contains_key(&peer) => {
                match self.addresses.entry(peer) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        let none = Failed { count: 0, account: String::new(), ..failed };
                        entry.insert(Gathered { since: now, failed: none });
                        return Some(failed);
                    }
                }
            }
            _ => {
                let none = Failed { peer: None, count: 0, account: String::new(), ..failed };
                self.others.get_or_insert(Gathered { since: now, failed: none })
            }
        };
        entry.failed.count += failed.count;
        entry.failed.account = failed.account;
        (entry.failed.condition, entry.failed.reason) = (failed.condition, failed.reason);
        None
    }

    /// What is to be written now. An address without failures in its window is forgotten.
    fn due(&mut self, now: u32) -> Vec<Failed> {
        let mut due = Vec::new();
        let mut keep = |gathered: &mut Gathered| {
            if now.saturating_sub(gathered.since) < WINDOW {
                return true;
            }
            if gathered.failed.count == 0 {
                return false;
            }
            let next = Failed { count: 0, account: String::new(), ..gathered.failed };
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

/// Lines that may still be written in this second, and how many were not.
#[derive(Default)]
struct Budget {
    second: u32,
    written: u32,
    /// Logins and ends since the last account of them.
    skipped: [u64; 2],
    since: u32,
}

impl Budget {
    fn take(&mut self, now: u32, what: usize) -> bool {
        if self.second != now {
            (self.second, self.written) = (now, 0);
        }
        if self.written < LINES {
            self.written += 1;
            return true;
        }
        if self.skipped == [0, 0] {
            self.since = now;
        }
        self.skipped[what] += 1;
        false
    }

    fn due(&mut self, now: u32) -> Option<[u64; 2]> {
        let due = self.skipped != [0, 0] && now.saturating_sub(self.since) >= WINDOW;
        due.then(|| std::mem::take(&mut self.skipped))
    }
}

/// What is gathered for the log.
#[derive(Default)]
pub struct LoginLog {
    failures: Mutex<Failures>,
    budget: Mutex<Budget>,
}

impl LoginLog {
    /// A session began, or goes on over another connection.
    pub fn opened(
        &self,
        now: u32,
        session: &Session,
        mechanism: &'static str,
        transport: &'static str,
        peer: SocketAddr,
        resumed: bool,
    ) {
        if tracing::enabled!(target: TARGET, Level::INFO) && self.budget.lock().take(now, 0) {
            let what = if resumed { "session resumed" } else { "logged in" };
            tracing::info!(target: TARGET, jid = %session.jid, mechanism, transport, %peer, "{what}");
        }
    }

    /// A session is over, `seconds` after it began.
    pub fn ended(&self, now: u32, session: &Session, reason: &str, seconds: u32) {
        if tracing::enabled!(target: TARGET, Level::INFO) && self.budget.lock().take(now, 1) {
            tracing::info!(target: TARGET, jid = %session.jid, reason, seconds, "session ended");
        }
    }

    /// A login failed. `account`: empty if there is none.
    pub fn failed(
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
        let failed = Failed { peer: Some(base::network(peer)), count: 1, account, condition, reason };
        let first = self.failures.lock().add(now, failed);
        write(first);
    }

    /// To be called once a second.
    pub(crate) fn sweep(&self, now: u32) {
        let due = self.failures.lock().due(now);
        write(due);
        let skipped = self.budget.lock().due(now);
        if let Some([logins, ends]) = skipped {
            tracing::info!(target: TARGET, logins, ends, "further logins and session ends, not logged individually");
        }
    }
}

fn write(lines: impl IntoIterator<Item = Failed>) {
    for Failed { peer, count, account, condition, reason } in lines {
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

    fn failed(peer: &str) -> Failed {
        Failed {
            peer: Some(base::network(peer.parse().unwrap())),
            count: 1,
            account: "juliet@example.com".to_owned(),
            condition: "not-authorized",
            reason: "invalid-proof",
        }
    }

    #[test]
    fn failures_of_an_address_are_a_line_at_once_and_then_one_a_minute() {
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
        assert_eq!((at_once, failures.addresses.len()), (ADDRESSES, ADDRESSES));
        let due = failures.due(65);
        assert_eq!((due.len(), due[0].peer, due[0].count), (1, None, 100_000 - ADDRESSES as u64));
    }

    #[test]
    fn addresses_of_one_customer_are_one() {
        let mut failures = Failures::default();
        assert!(failures.add(1, failed("2001:db8:1:2::1")).is_some());
        assert!(failures.add(1, failed("2001:db8:1:2:ffff::9")).is_none());
        assert!(failures.add(1, failed("::ffff:192.0.2.1")).is_some());
        assert!(failures.add(1, failed("192.0.2.1")).is_none());
    }

    #[test]
    fn a_storm_of_logins_is_counted_instead_of_written() {
        let mut budget = Budget::default();
        let written = (0..1_000).filter(|_| budget.take(7, 0)).count();
        assert_eq!(written, LINES as usize);
        assert!(budget.take(8, 1), "the next second has room again");
        assert_eq!((budget.due(8), budget.due(67)), (None, Some([1_000 - u64::from(LINES), 0])));
        assert_eq!(budget.due(500), None);
    }
}
