//! Seeded simulation of sessions, rosters and messages over one to five nodes, and its invariants.
//!
//! A seed decides everything: the number of nodes, the faults and each operation of a few users. After the operations
//! the network heals, everything in transit arrives, and the invariants are checked ([`Invariant`]). One node must
//! keep all of them, which also proves that the simulation expects the right things.
//!
//! `cargo test -p throng-e2e --test several_nodes simulation` runs 1 000 seeds of each setting, and `cargo xtask simulate` any
//! number. `cargo xtask simulate --setting S --seed N` repeats one seed and prints its operations.
//!
//! Clients have stream management (XEP-0198): a message counts as acknowledged when its sender's server has counted it, as far
//! as the client learned before its session or its node ended. What was not acknowledged may be lost.
//!
//! Not implemented: clients without stream management.

mod invariants;
mod runs;
mod simulated_client;
mod world;

use self::world::World;

pub use invariants::{Invariant, InvariantViolation};
pub use runs::{SeedRuns, run_seeds};

/// Conditions under which the users act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
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
    /// All settings.
    pub const ALL: [Setting; 5] =
        [Setting::Single, Setting::Calm, Setting::Shared, Setting::Faulty, Setting::FaultsAndMoves];

    /// Its name in lists and commands.
    pub fn name(self) -> &'static str {
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

/// Runs one seed, and prints its operations if that is wanted; returns what it has violated.
pub fn run_seed(setting: Setting, seed: u64, print: bool) -> Vec<InvariantViolation> {
    let _seed = SeedOnPanic(setting, seed);
    let mut world = World::new(setting, seed, print);
    world.run();
    world.violations()
}

/// Name of an invariant in a setting, as in the list of known failures.
pub fn test_name(setting: Setting, invariant: Invariant) -> String {
    format!("simulation/{}/{}", setting.name(), invariant.name())
}
