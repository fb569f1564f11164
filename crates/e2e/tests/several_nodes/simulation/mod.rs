//! Seeded simulation of sessions, rosters and messages over one to five nodes, and its invariants.
//!
//! A seed decides everything: the number of nodes, the faults and each operation of a few users. After the operations
//! the network heals, everything in transit arrives, and the invariants are checked ([`Invariant`]). One node must
//! keep all of them, which also proves that the simulation expects the right things.
//!
//! `THRONG_SEED=n cargo test -p throng-e2e --test several_nodes simulation -- --nocapture` repeats one seed and
//! prints its operations.
//!
//! Clients have stream management (XEP-0198): a message counts as acknowledged when its sender's server has counted it, as far
//! as the client learned before its session or its node ended. What was not acknowledged may be lost.
//!
//! Not implemented: clients without stream management.

mod invariants;
mod simulated_client;
mod world;

use std::collections::BTreeMap;

use throng_e2e::several_nodes::{assert_entries_name_tests, assert_outcome, known_failure};

use self::invariants::{Invariant, InvariantViolation};
use self::world::World;

/// Seeds of each setting.
const SEEDS: u64 = 1_000;
/// Failing seeds of an invariant that are printed.
const PRINTED_SEEDS: usize = 20;

/// Conditions under which the users act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// One node.
    Single,
    /// Several nodes. The sessions of an account are on one of them at a time, and everything in transit arrives
    /// before the next operation.
    Calm,
    /// Several nodes. The sessions of an account are anywhere, and everything in transit arrives before the next operation.
    Shared,
    /// Several nodes. Sessions are anywhere, envelopes are delayed, lost and doubled, pairs of nodes are cut off from
    /// each other, and nodes crash. Sessions stay where they are.
    Faulty,
    /// The same, and clients resume their sessions on other nodes, as they do in the settings without faults.
    FaultsAndMoves,
}

impl Setting {
    const ALL: [Setting; 5] =
        [Setting::Single, Setting::Calm, Setting::Shared, Setting::Faulty, Setting::FaultsAndMoves];

    fn name(self) -> &'static str {
        match self {
            Setting::Single => "single",
            Setting::Calm => "calm",
            Setting::Shared => "shared",
            Setting::Faulty => "faulty",
            Setting::FaultsAndMoves => "faults-and-moves",
        }
    }

    fn has_faults(self) -> bool {
        matches!(self, Setting::Faulty | Setting::FaultsAndMoves)
    }

    /// Whether clients resume their sessions on other nodes.
    fn moves_sessions(self) -> bool {
        !matches!(self, Setting::Single | Setting::Faulty)
    }
}

/// Prints the seed if its run panics.
struct SeedOnPanic(Setting, u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation ended in seed {} of {}", self.1, self.0.name());
        }
    }
}

fn run_seed(setting: Setting, seed: u64, print: bool) -> Vec<InvariantViolation> {
    let _seed = SeedOnPanic(setting, seed);
    let mut world = World::new(setting, seed, print);
    world.run();
    world.violations()
}

fn test_name(setting: Setting, invariant: Invariant) -> String {
    format!("simulation/{}/{}", setting.name(), invariant.name())
}

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
    let mut first: BTreeMap<Invariant, (u64, String)> = BTreeMap::new();
    let mut seeds: BTreeMap<Invariant, Vec<u64>> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut violated: Vec<Invariant> = Vec::new();
        for InvariantViolation { invariant, text } in run_seed(setting, seed, false) {
            first.entry(invariant).or_insert((seed, text));
            violated.push(invariant);
        }
        violated.sort_unstable();
        violated.dedup();
        violated.into_iter().for_each(|invariant| seeds.entry(invariant).or_default().push(seed));
    }
    for (invariant, (_, text)) in &first {
        let seeds = &seeds[invariant];
        let (count, some) = (seeds.len(), &seeds[..seeds.len().min(PRINTED_SEEDS)]);
        let (setting, name) = (setting.name(), invariant.name());
        eprintln!("{setting}: {name} in {count} of {SEEDS} seeds, the first being {some:?}: {text}");
    }
    for invariant in Invariant::ALL {
        let test = test_name(setting, invariant);
        let count = seeds.get(&invariant).map_or(0, |seeds| seeds.len() as u64);
        let most = known_failure(&test, 0).and_then(|known| known.seeds);
        assert!(most.is_none_or(|most| count <= most), "{test} fails in {count} of {SEEDS} seeds: {first:?}");
        let outcome = match first.get(&invariant) {
            None => Ok(()),
            Some((seed, text)) => {
                Err(format!("seed {seed}: {text}\nRepeat it with THRONG_SEED={seed} and --nocapture."))
            }
        };
        assert_outcome(&test, 0, outcome);
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
