//! The audit log: who did what to this node, from where, and with which outcome. Every interface for
//! administration writes it through [`record_audit_entry`], into the log (target `throng::audit`) and into a bounded
//! buffer in memory that interfaces can show.
//!
//! Not implemented: a separate audit log on disk; the process log contains the entries and survives a restart.
//! In-band registration is only logged.
//!
//! # Pitfalls
//!
//! The value of a secret must never get here. External text is escaped and truncated ([`base::printable`]): it
//! must neither imitate another entry nor fill the memory.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::LeafMutex;
use base::printable::printable;
use serde::{Deserialize, Serialize};
use throng_core::Node;

use crate::Caller;

/// Number of entries retained in memory.
pub const MAX_ENTRIES: usize = 1_000;
/// Limit of one text of an entry, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// One action that was performed or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Sequence number, from 1 at the start of the node.
    pub number: u64,
    /// Time in milliseconds since 1970.
    pub at: u64,
    /// Requester: an address, `operator`, or the name of a token.
    pub actor: String,
    /// The interface used: `xmpp`, `socket`, `http`.
    pub interface: Cow<'static, str>,
    /// The client's address, where the interface knows it.
    pub from: String,
    /// The action: the name of a command or similar.
    pub action: String,
    /// The subject of the action.
    pub subject: String,
    /// `done`, the condition of the error, or `cancelled`.
    pub outcome: String,
}

/// The newest entries.
#[derive(Default)]
pub struct AuditLog(LeafMutex<Ring>);

#[derive(Default)]
struct Ring {
    entries: VecDeque<AuditEntry>,
    last: u64,
}

impl AuditLog {
    /// Up to `limit` entries with numbers above `after`, oldest first; and the number of the newest of all.
    pub fn after(&self, after: u64, limit: usize) -> (Vec<AuditEntry>, u64) {
        let ring = self.0.lock();
        let list = ring.entries.iter().filter(|e| e.number > after).take(limit).cloned().collect();
        (list, ring.last)
    }

    /// The newest `limit` entries, oldest first.
    pub fn newest(&self, limit: usize) -> (Vec<AuditEntry>, u64) {
        let after = self.0.lock().last.saturating_sub(limit as u64);
        self.after(after, limit)
    }

    /// Number of the newest entry.
    pub fn last(&self) -> u64 {
        self.0.lock().last
    }

    fn push(&self, mut entry: AuditEntry) {
        let mut ring = self.0.lock();
        ring.last += 1;
        entry.number = ring.last;
        if ring.entries.len() == MAX_ENTRIES {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
    }
}

/// The audit log of a node.
pub fn audit_log(node: &Node) -> Arc<AuditLog> {
    node.extensions.get_or_default()
}

/// Writes one line. `outcome` is `done` or a condition.
pub fn record_audit_entry(node: &Node, caller: &Caller, action: &str, subject: &str, outcome: &str) {
    let (actor, action, subject, outcome) =
        (truncate(caller.name()), truncate(action), truncate(subject), truncate(outcome));
    let (actor, action, subject, outcome) = (&*actor, &*action, &*subject, &*outcome);
    let (interface, from) = (caller.interface, &*truncate(&caller.from));
    node.metrics.commands.inc([interface, if outcome == "done" { "done" } else { "failed" }]);
    tracing::info!(target: "throng::audit", who = actor, interface, from, command = action, on = subject, outcome, "command");
    audit_log(node).push(AuditEntry {
        number: 0,
        at: node.clock.unix_millis(),
        actor: actor.to_owned(),
        interface: interface.into(),
        from: from.to_owned(),
        action: action.to_owned(),
        subject: subject.to_owned(),
        outcome: outcome.to_owned(),
    });
}

fn truncate(text: &str) -> Cow<'_, str> {
    printable(text, MAX_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: &str) -> AuditEntry {
        AuditEntry {
            number: 0,
            at: 0,
            actor: "operator".into(),
            interface: "socket".into(),
            from: String::new(),
            action: action.into(),
            subject: String::new(),
            outcome: "done".into(),
        }
    }

    #[test]
    fn the_ring_retains_the_newest_entries_and_numbers_keep_rising() {
        let audit = AuditLog::default();
        assert_eq!(audit.after(0, 10), (vec![], 0));
        for n in 1..=MAX_ENTRIES + 5 {
            audit.push(entry(&n.to_string()));
        }
        let (list, last) = audit.after(0, 2);
        assert_eq!((list[0].action.as_str(), list[0].number, last), ("6", 6, MAX_ENTRIES as u64 + 5));
        let (list, _) = audit.after(MAX_ENTRIES as u64 + 3, 10);
        assert_eq!(
            list.iter().map(|e| e.number).collect::<Vec<_>>(),
            [MAX_ENTRIES as u64 + 4, MAX_ENTRIES as u64 + 5]
        );
        assert_eq!(audit.newest(3).0.len(), 3);
    }

    #[test]
    fn texts_are_truncated_and_cannot_forge_another_entry() {
        assert_eq!(truncate(&"x".repeat(9_999)), format!("{}…", "x".repeat(MAX_TEXT_BYTES)));
        assert_eq!(truncate("romeo@a.org\n\u{1b}[1A\u{202e}"), "romeo@a.org\\n\\u{1b}[1A\\u{202e}");
    }
}
