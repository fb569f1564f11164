//! Conversations, cases and invariants that fail when they involve several nodes, each with the reason.
//!
//! A test in this list must fail: [`assert_outcome`] refuses an entry whose test passes, so a change of the engine
//! that makes it pass removes the entry. A test that is not in the list must pass. Entries with a number of seeds are for failures of
//! few seeds in a thousand: which seeds fail, if any, changes with each envelope that is added or removed, because all envelopes draw
//! their faults from one random sequence.
//!
//! Names are `scenarios/…` for files of the folder, `cases/…` and `envelopes/…` for tests of `tests/several_nodes`, and
//! `simulation/SETTING/…` for the invariants of the simulation.

/// A test that fails on several nodes.
#[derive(Clone, Copy, Debug)]
pub struct KnownFailure {
    /// Name of the test.
    pub test: &'static str,
    /// Numbers of nodes with which it fails; empty if the test chooses its number.
    pub nodes: &'static [usize],
    /// The largest number of 1 000 seeds in which an invariant of the simulation may fail; it may hold in all.
    pub seeds: Option<u64>,
    /// Section of the design that decides how it will work.
    pub section: &'static str,
    /// Why it fails, in one sentence.
    pub reason: &'static str,
}

/// The tests that fail.
pub const NOT_YET_ON_SEVERAL_NODES: &[KnownFailure] = &[
    KnownFailure {
        test: "simulation/faulty/rosters-agree",
        nodes: &[],
        seeds: Some(20),
        section: "2.2",
        reason: "A request and a removal that cross, or a crash between the two writes, change one of two rosters only.",
    },
    KnownFailure {
        test: "simulation/faulty/nothing-doubled",
        nodes: &[],
        seeds: Some(1),
        section: "2.4",
        reason: "A node crashes that has stored the backup of a message and not sent its receipt, so the message runs again \
                 elsewhere, with the same stanza-id. The session that has read the backup receives it twice.",
    },
    KnownFailure {
        test: "simulation/faulty/pair-order",
        nodes: &[],
        seeds: Some(2),
        section: "2.2",
        reason: "Seeds 140 and 1036: a home refuses a message because the recipient has logged out there. While the refusal is on its way, the \
                 recipient logs in there again, and the next message of the same sender is delivered. The first one is stored when \
                 the refusal arrives, and delivered after it.",
    },
    KnownFailure {
        test: "simulation/faulty/chain-runs-once",
        nodes: &[],
        seeds: Some(1),
        section: "2.2",
        reason: "Seed 1801: the home has run the chain and delivered the message when it is cut off, and its receipt is lost. To the \
                 sender's node that is a crash before the chain ran, so it runs it with the same stanza-id, by which the home \
                 recognises the message when it reads it from the store.",
    },
    KnownFailure {
        test: "simulation/faulty/presence-converges",
        nodes: &[],
        seeds: Some(1),
        section: "2.2",
        reason: "Seed 5282: a node crashes between the removal of a contact and the message about it, so the rosters disagree: the \
                 contact goes on sending its presence, which is not shown any more, and does not send `unavailable` for what was \
                 shown before.",
    },
    KnownFailure {
        test: "simulation/faults-and-moves/rosters-agree",
        nodes: &[],
        seeds: Some(20),
        section: "2.2",
        reason: "A request and a removal that cross, or a crash between the two writes, change one of two rosters only.",
    },
    KnownFailure {
        test: "simulation/faults-and-moves/nothing-doubled",
        nodes: &[],
        seeds: Some(1),
        section: "2.4",
        reason: "Session A logs in and receives the backup of a message that session B on another node still holds. When B \
                 ends because its move failed, its node sends the message to A again, with the same stanza-id.",
    },
    KnownFailure {
        test: "simulation/faults-and-moves/pair-order",
        nodes: &[],
        seeds: Some(1),
        section: "2.2",
        reason: "Seed 942: as seed 1036 of the setting without moves. The recipient has logged in again where the first message was \
                 refused, and receives the second one before the refusal has arrived.",
    },
    KnownFailure {
        test: "simulation/faults-and-moves/presence-converges",
        nodes: &[],
        seeds: Some(1),
        section: "2.2",
        reason: "Seed 92: the old node answers a presence probe for a session before it learns that the session has moved. The \
                 session then ends, and `unavailable` from the new node arrives before that answer: the contact shows the \
                 session as available.",
    },
];

/// The entry of a test that runs on this number of nodes; 0 if the test chooses its number.
pub fn known_failure(test: &str, nodes: usize) -> Option<&'static KnownFailure> {
    NOT_YET_ON_SEVERAL_NODES
        .iter()
        .find(|entry| entry.test == test && (entry.nodes.is_empty() || entry.nodes.contains(&nodes)))
}

/// Asserts that a test passes, or fails if it is a known failure. 0 nodes: the test chooses their number.
///
/// # Panics
/// If the outcome is not the expected one.
pub fn assert_outcome(test: &str, nodes: usize, outcome: Result<(), String>) {
    let on = if nodes == 0 { String::new() } else { format!(" on {nodes} nodes") };
    if let (Some(_), Err(error)) = (known_failure(test, nodes), &outcome) {
        // Visible with `--nocapture`.
        eprintln!("known failure of {test}{on}: {error}");
    }
    if let Err(error) = check_outcome(known_failure(test, nodes), outcome) {
        panic!("{test}{on}: {error}");
    }
}

fn check_outcome(entry: Option<&KnownFailure>, outcome: Result<(), String>) -> Result<(), String> {
    match (entry, outcome) {
        (None, outcome) => outcome,
        (Some(_), Err(_)) | (Some(KnownFailure { seeds: Some(_), .. }), Ok(())) => Ok(()),
        (Some(KnownFailure { section, reason, .. }), Ok(())) => Err(format!(
            "it passes; remove the number of nodes or the entry from NOT_YET_ON_SEVERAL_NODES \
             (section {section}: {reason})"
        )),
    }
}

/// Asserts that every entry of a group names one of its tests.
///
/// # Panics
/// If one does not, or if a test has two entries for one number of nodes.
pub fn assert_entries_name_tests(group: &str, tests: &[String]) {
    let entries: Vec<&KnownFailure> =
        NOT_YET_ON_SEVERAL_NODES.iter().filter(|entry| entry.test.starts_with(group)).collect();
    for entry in &entries {
        assert!(tests.iter().any(|test| test == entry.test), "no test has the name {}", entry.test);
        let twice = entries.iter().filter(|other| {
            other.test == entry.test
                && (other.nodes.is_empty() || other.nodes.iter().any(|count| entry.nodes.contains(count)))
        });
        assert_eq!(twice.count(), 1, "{} has two entries for one number of nodes", entry.test);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_failure_must_fail_and_any_other_test_must_pass() {
        let entry =
            KnownFailure { test: "cases/a", nodes: &[2], seeds: None, section: "2.2", reason: "It does." };
        let failed = || Err("no".to_owned());
        assert_eq!(check_outcome(None, Ok(())), Ok(()));
        assert_eq!(check_outcome(None, failed()), failed());
        assert_eq!(check_outcome(Some(&entry), failed()), Ok(()));
        let rare = KnownFailure { seeds: Some(3), ..entry };
        assert_eq!(check_outcome(Some(&rare), Ok(())), Ok(()));
        assert!(check_outcome(Some(&entry), Ok(())).is_err_and(|error| error.contains("remove")));
    }
}
