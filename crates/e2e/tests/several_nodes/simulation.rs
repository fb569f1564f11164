//! Tests of the seeded simulation of several nodes ([`throng_e2e::simulation`]).
//!
//! `THRONG_SEED=n cargo test -p throng-e2e --test several_nodes simulation -- --nocapture` repeats one seed and
//! prints its operations; `cargo xtask simulate` runs more of them.

use throng_e2e::several_nodes::{assert_entries_name_tests, assert_outcome, known_failure};
use throng_e2e::simulation::{Invariant, InvariantViolation, Setting, run_seed, run_seeds, test_name};

/// Seeds of each setting.
const SEEDS: u64 = 1_000;

/// The seed that `THRONG_SEED` names.
fn chosen_seed() -> Option<u64> {
    std::env::var("THRONG_SEED").ok().map(|seed| seed.parse().expect("THRONG_SEED is a number"))
}

fn run_setting(setting: Setting) {
    if let Some(seed) = chosen_seed() {
        let violations = run_seed(setting, seed, true);
        for InvariantViolation { invariant, text } in &violations {
            eprintln!("seed {seed} of {}: {}: {text}", setting.name(), invariant.name());
        }
        let unexpected =
            violations.iter().find(|v| known_failure(&test_name(setting, v.invariant), 0).is_none());
        assert!(unexpected.is_none(), "{unexpected:?}");
        return;
    }
    let runs = run_seeds(setting, 0..SEEDS, |_, _| ());
    runs.summary().iter().for_each(|line| eprintln!("{line}"));
    assert_eq!(runs.unexpected(), [""; 0]);
    for invariant in Invariant::ALL {
        assert_outcome(&test_name(setting, invariant), 0, runs.outcome(invariant));
    }
}

#[test]
fn one_node_keeps_every_invariant() {
    run_setting(Setting::Single);
}

#[test]
fn several_nodes_without_faults_keep_the_invariants() {
    run_setting(Setting::Calm);
}

#[test]
fn accounts_on_several_nodes_keep_the_invariants() {
    run_setting(Setting::Shared);
}

#[test]
fn several_nodes_with_faults_keep_the_invariants() {
    run_setting(Setting::Faulty);
}

#[test]
fn several_nodes_with_faults_and_sessions_that_move_keep_the_invariants() {
    run_setting(Setting::FaultsAndMoves);
}

#[test]
fn each_known_failure_names_an_invariant() {
    let of = |setting| Invariant::ALL.map(|invariant| test_name(setting, invariant));
    let names: Vec<String> = Setting::ALL.into_iter().flat_map(of).collect();
    assert_entries_name_tests("simulation/", &names);
}
