//! Servers and nodes that fail: NATS restarts or is gone, the database is gone while a node is cut off, and a node is killed.

use std::time::{Duration, Instant};

use crate::Case;
use crate::trial::{JULIET, NURSE, ROMEO, TYBALT, Trial};

pub(crate) const CASES: [Case; 4] = [
    ("nats-restart", nats_restarts),
    ("nats-gone", nats_is_gone),
    ("database-gone", the_database_is_gone_while_a_node_is_cut_off),
    ("kill", a_node_is_killed),
];

/// Time without NATS.
const WITHOUT_NATS: Duration = Duration::from_secs(30);

/// Time from the cut until the database is back: the nodes consider each other gone before.
const WITHOUT_DATABASE: Duration = Duration::from_secs(16);

/// It is back before any node counts as gone, so contacts notice nothing.
fn nats_restarts(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let begun = trial.fault_begins();
    trial.nats().stop();
    trial.nats().run();
    trial.cluster.wait_until_connected();
    trial.fault_ends();
    trial.assert_healed(begun);
    trial.pass_rounds(30);
    trial.assert_nobody_left(begun);
    trial.finish();
}

/// Each node is alone for a while.
fn nats_is_gone(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let gone = trial.fault_begins();
    trial.nats().kill();
    trial.assert_gone(gone, &[JULIET], &[ROMEO, TYBALT, NURSE]);
    trial.assert_gone(gone, &[NURSE], &[ROMEO, TYBALT, JULIET]);
    trial.assert_gone(gone, &[ROMEO, TYBALT], &[JULIET, NURSE]);
    trial.leave(TYBALT);
    trial.enter(TYBALT, 2);
    trial.pass_until(gone, WITHOUT_NATS);
    trial.nats().run();
    let healed = trial.fault_ends();
    trial.assert_healed(healed);
    trial.pass_rounds(5);
    trial.finish();
}

/// What returns from the node that is cut off cannot be stored. Contacts see its users until the database is back: the nodes have the
/// addresses of contacts there only.
fn the_database_is_gone_while_a_node_is_cut_off(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let port = trial.nats().address().port();
    let cut = trial.fault_begins();
    trial.cluster.network.cut_from(0, port, true);
    trial.pass_rounds(3);
    trial.database().kill();
    trial.pass_until(cut, WITHOUT_DATABASE);
    let restored = Instant::now();
    trial.database().run();
    trial.assert_gone(restored, &[JULIET, NURSE], &[ROMEO, TYBALT]);
    trial.assert_gone(restored, &[ROMEO], &[JULIET, NURSE]);
    trial.leave(TYBALT);
    trial.cluster.network.cut_from(0, port, false);
    let healed = trial.fault_ends();
    trial.assert_healed(healed);
    trial.pass_rounds(5);
    trial.finish();
}

/// Its user logs in at another node, and the node comes back.
fn a_node_is_killed(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let killed = trial.fault_begins();
    trial.kill_node(1);
    trial.assert_gone(killed, &[ROMEO, TYBALT, NURSE], &[JULIET]);
    trial.enter(JULIET, 2);
    trial.renew_traffic();
    trial.pass_rounds(5);
    trial.cluster.nodes[1].start();
    let started = trial.fault_ends();
    trial.cluster.wait_until_connected();
    trial.assert_healed(started);
    trial.pass_rounds(5);
    trial.finish();
}
