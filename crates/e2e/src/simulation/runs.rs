//! Runs of many seeds of one setting: which seeds violate which invariant, and whether that is more than what is known.

use std::collections::BTreeMap;

use super::{Invariant, InvariantViolation, Setting, run_seed, test_name};
use crate::several_nodes::known_failure;

/// Seeds for which the largest numbers in the list of known failures are stated.
const KNOWN_PER: u64 = 1_000;
/// Failing seeds of an invariant that a summary lists.
const LISTED_SEEDS: usize = 20;

/// Seeds that violate an invariant, and the text of a violation.
#[derive(Debug)]
struct ViolatingSeeds {
    seeds: Vec<u64>,
    first_text: String,
}

/// Outcome of runs of one setting.
#[derive(Debug)]
pub struct SeedRuns {
    setting: Setting,
    count: u64,
    violated: BTreeMap<Invariant, ViolatingSeeds>,
}

/// Runs these seeds in ascending order; `after_seed` is called after each with what it has violated.
pub fn run_seeds(
    setting: Setting,
    seeds: impl IntoIterator<Item = u64>,
    mut after_seed: impl FnMut(u64, &[InvariantViolation]),
) -> SeedRuns {
    let mut runs = SeedRuns { setting, count: 0, violated: BTreeMap::new() };
    for seed in seeds {
        let violations = run_seed(setting, seed, false);
        after_seed(seed, &violations);
        runs.add(seed, violations);
    }
    runs
}

impl SeedRuns {
    fn add(&mut self, seed: u64, violations: Vec<InvariantViolation>) {
        self.count += 1;
        for InvariantViolation { invariant, text } in violations {
            let violated = self.violated.entry(invariant);
            let violated = violated.or_insert_with(|| ViolatingSeeds { seeds: Vec::new(), first_text: text });
            if violated.seeds.last() != Some(&seed) {
                violated.seeds.push(seed);
            }
        }
    }

    /// Adds runs of other seeds of the same setting.
    pub fn merge(&mut self, other: SeedRuns) {
        self.count += other.count;
        for (invariant, mut others) in other.violated {
            match self.violated.get_mut(&invariant) {
                None => drop(self.violated.insert(invariant, others)),
                Some(own) => {
                    if others.seeds.first() < own.seeds.first() {
                        own.first_text = others.first_text;
                    }
                    own.seeds.append(&mut others.seeds);
                    own.seeds.sort_unstable();
                }
            }
        }
    }

    /// Number of seeds that ran.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A line for each invariant that some seed violates.
    pub fn summary(&self) -> Vec<String> {
        let line = |(invariant, ViolatingSeeds { seeds, first_text }): (&Invariant, &ViolatingSeeds)| {
            let listed = &seeds[..seeds.len().min(LISTED_SEEDS)];
            format!(
                "{}: {} in {} of {} seeds, the first being {listed:?}: {first_text}",
                self.setting.name(),
                invariant.name(),
                seeds.len(),
                self.count
            )
        };
        self.violated.iter().map(line).collect()
    }

    /// Whether an invariant holds in all seeds; the error names the first seed that violates it.
    ///
    /// # Errors
    /// If a seed violates it.
    pub fn outcome(&self, invariant: Invariant) -> Result<(), String> {
        let Some(ViolatingSeeds { seeds, first_text }) = self.violated.get(&invariant) else { return Ok(()) };
        let (seed, setting) = (seeds.first().copied().unwrap_or_default(), self.setting.name());
        let repeat = format!("cargo xtask simulate --setting {setting} --seed {seed}");
        Err(format!("seed {seed}: {first_text}\nRepeat it with `{repeat}`."))
    }

    /// Invariants that more seeds violate than the list of known failures permits for this number of seeds.
    pub fn unexpected(&self) -> Vec<String> {
        let too_many = |(invariant, violating): (&Invariant, &ViolatingSeeds)| {
            let name = test_name(self.setting, *invariant);
            let found = violating.seeds.len() as u64;
            let most = known_failure(&name, 0).map_or(0, |known| {
                known.seeds.map_or(u64::MAX, |seeds| seeds.saturating_mul(self.count.div_ceil(KNOWN_PER)))
            });
            (found > most)
                .then(|| format!("{name} fails in {found} of {} seeds; {most} are known", self.count))
        };
        self.violated.iter().filter_map(too_many).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(setting: Setting, count: u64, seeds: &[u64]) -> SeedRuns {
        let mut runs = SeedRuns { setting, count: 0, violated: BTreeMap::new() };
        for seed in seeds {
            let text = format!("text of {seed}");
            // A seed counts once, however often it violates the invariant.
            let violation = || InvariantViolation { invariant: Invariant::RostersAgree, text: text.clone() };
            runs.add(*seed, vec![violation(), violation()]);
        }
        runs.count = count;
        runs
    }

    #[test]
    fn merged_runs_list_the_seeds_in_order_and_the_text_of_the_first() {
        let mut all = runs(Setting::Faulty, 500, &[3, 9]);
        all.merge(runs(Setting::Faulty, 500, &[2, 4]));
        let lines = all.summary();
        assert_eq!(
            lines,
            ["faulty: rosters-agree in 4 of 1000 seeds, the first being [2, 3, 4, 9]: text of 2"]
        );
        assert!(all.outcome(Invariant::RostersAgree).is_err_and(|error| error.starts_with("seed 2: ")));
        assert_eq!(all.outcome(Invariant::NothingLost), Ok(()));
    }

    #[test]
    fn violations_beyond_the_known_ones_are_unexpected() {
        let seeds: Vec<u64> = (0..21).collect();
        assert_eq!(runs(Setting::Faulty, 1_000, &seeds[..20]).unexpected(), [""; 0]);
        assert_eq!(runs(Setting::Faulty, 1_000, &seeds).unexpected().len(), 1);
        assert_eq!(runs(Setting::Faulty, 10_000, &seeds).unexpected(), [""; 0]);
        assert_eq!(runs(Setting::Calm, 1_000, &seeds[..1]).unexpected().len(), 1, "none is known");
    }
}
