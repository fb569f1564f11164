//! Links that fail: a node that is cut off, two halves, a slow link and a lossy one.

use std::time::{Duration, Instant};

use crate::Case;
use crate::trial::{JULIET, NURSE, ROMEO, TYBALT, Trial};

pub(crate) const CASES: [Case; 4] = [
    ("one-node", one_node_is_cut_off),
    ("halves", two_halves),
    ("slow", the_link_of_a_node_is_slow),
    ("lossy", the_link_of_a_node_is_lossy),
];

/// Rounds of messages during a fault that does not interrupt anything.
const ROUNDS: u32 = 40;

/// Delay of a slow link, in each direction.
const DELAY: Duration = Duration::from_millis(200);

/// The first node reaches neither NATS nor the database. A user leaves it meanwhile. Its other user still sees the contacts: the node
/// has the addresses of contacts in the database only.
fn one_node_is_cut_off(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let cut = trial.fault_begins();
    trial.cluster.network.cut(0, true);
    trial.assert_gone(cut, &[JULIET, NURSE], &[ROMEO, TYBALT]);
    trial.pass_rounds(10);
    trial.leave(TYBALT);
    trial.cluster.network.cut(0, false);
    let healed = trial.fault_ends();
    trial.assert_healed(healed);
    trial.pass_rounds(5);
    trial.finish();
}

/// The first node has NATS, and the two others have not; all have the database. A user goes from one half to the other meanwhile.
fn two_halves(case: &'static str) {
    let mut trial = Trial::start(case, false);
    let port = trial.nats().address().port();
    let cut = trial.fault_begins();
    [1, 2].into_iter().for_each(|node| trial.cluster.network.cut_from(node, port, true));
    trial.assert_gone(cut, &[JULIET], &[ROMEO, TYBALT, NURSE]);
    trial.assert_gone(cut, &[NURSE], &[ROMEO, TYBALT, JULIET]);
    trial.assert_gone(cut, &[ROMEO, TYBALT], &[JULIET, NURSE]);
    trial.leave(TYBALT);
    trial.enter(TYBALT, 1);
    trial.pass_rounds(5);
    [1, 2].into_iter().for_each(|node| trial.cluster.network.cut_from(node, port, false));
    let healed = trial.fault_ends();
    trial.assert_healed(healed);
    trial.pass_rounds(5);
    trial.finish();
}

/// Everything that the first node sends and receives takes longer; contacts notice nothing.
fn the_link_of_a_node_is_slow(case: &'static str) {
    let trial = Trial::start(case, true);
    let begun = Instant::now();
    trial.cluster.delay_first_node(DELAY);
    trial.pass_rounds(ROUNDS);
    trial.assert_nobody_left(begun);
    trial.cluster.delay_first_node(Duration::ZERO);
    trial.finish();
}

/// Packets of the first node are lost; contacts notice nothing.
fn the_link_of_a_node_is_lossy(case: &'static str) {
    let trial = Trial::start(case, false);
    let begun = Instant::now();
    trial.cluster.network.lose_packets(0, true);
    trial.pass_rounds(ROUNDS);
    trial.assert_nobody_left(begun);
    let lost = trial.cluster.network.lost_packets(0);
    println!("{case}: {lost} packets were lost");
    assert!(lost > 10, "{lost} packets were lost");
    trial.cluster.network.lose_packets(0, false);
    trial.finish();
}
