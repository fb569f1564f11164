//! `cargo xtask simulate`: runs seeds of the simulation of several nodes, of which the tests run 1 000 in each setting, and
//! prints those that violate an invariant.
//!
//! Exit code 1 if an invariant fails in more seeds than the list of known failures permits (`e2e/src/several_nodes.rs`).

use std::process::ExitCode;
use std::thread::available_parallelism;

use throng_e2e::simulation::{InvariantViolation, SeedRuns, Setting, run_seed, run_seeds};

/// The flags of `cargo xtask simulate`.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Number of seeds of each setting.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed of each setting, and print its operations.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Only this setting: single, calm, shared, faulty or faults-and-moves; may be repeated.
    #[arg(long = "setting", value_parser = parse_setting)]
    settings: Vec<Setting>,
    /// Threads; one for each processor by default.
    #[arg(long)]
    threads: Option<u16>,
}

fn parse_setting(name: &str) -> Result<Setting, String> {
    let names = Setting::ALL.map(Setting::name).join(", ");
    let found = Setting::ALL.into_iter().find(|setting| setting.name() == name);
    found.ok_or_else(|| format!("the settings are {names}"))
}

/// Runs the seeds.
pub(crate) fn run(args: &SimulateArgs) -> ExitCode {
    let settings = if args.settings.is_empty() { Setting::ALL.to_vec() } else { args.settings.clone() };
    let mut as_expected = true;
    for setting in settings {
        as_expected &= match args.seed {
            Some(seed) => repeat_seed(setting, seed),
            None => run_setting(setting, args),
        };
    }
    if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// True if the seed violates nothing.
fn repeat_seed(setting: Setting, seed: u64) -> bool {
    let violations = run_seed(setting, seed, true);
    print_violations(setting, seed, &violations);
    violations.is_empty()
}

/// True if no invariant fails in more seeds than is known.
fn run_setting(setting: Setting, args: &SimulateArgs) -> bool {
    let threads = args.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let seeds = args.first..args.first.saturating_add(args.seeds);
    let mut all: Option<SeedRuns> = None;
    // Thread i of n has every n-th seed from i: a run has no state outside its thread.
    std::thread::scope(|scope| {
        let run_share = |share: usize| {
            let seeds = seeds.clone().skip(share).step_by(threads.max(1));
            run_seeds(setting, seeds, |seed, violations| print_violations(setting, seed, violations))
        };
        let threads: Vec<_> =
            (0..threads.max(1)).map(|share| scope.spawn(move || run_share(share))).collect();
        for thread in threads {
            let runs = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match &mut all {
                None => all = Some(runs),
                Some(all) => all.merge(runs),
            }
        }
    });
    let Some(all) = all else { return true };
    all.summary().iter().for_each(|line| print_line(line));
    let unexpected = all.unexpected();
    print_line(&format!(
        "{}: {} seeds, {}",
        setting.name(),
        all.count(),
        if unexpected.is_empty() { "as expected" } else { "NOT as expected" }
    ));
    unexpected.iter().for_each(|line| print_line(line));
    unexpected.is_empty()
}

fn print_violations(setting: Setting, seed: u64, violations: &[InvariantViolation]) {
    for InvariantViolation { invariant, text } in violations {
        print_line(&format!("{}: seed {seed}: {}: {text}", setting.name(), invariant.name()));
    }
}

fn print_line(line: &str) {
    #[allow(clippy::print_stdout, reason = "a program's answer")]
    {
        println!("{line}");
    }
}
