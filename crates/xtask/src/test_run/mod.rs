//! `cargo xtask test`: all tests of the workspace, two test executables at a time.
//!
//! `cargo test` runs one executable after the other, and most of the time of a run is waiting: for database servers that fail
//! and recover, for NATS, for timeouts. So cargo builds the executables, and this runs them in two lanes ([`lanes`]): one for
//! those that need the processors, one for those that mostly wait. Each has the working directory that cargo gives it, and of
//! cargo's variables those with the package's name, version and directory. Doc tests follow, by cargo.
//!
//! The output of an executable is printed when it ends, below the line that cargo prints. While it runs, its output is in
//! `test-output/` of the target directory. Failed tests are repeated at the end with the beginning of their messages, because
//! the output of a whole run is long and records of CI keep only its end. The last line has the totals.
//!
//! # Pitfalls
//!
//! `cargo xtask` builds this program with other features of its dependencies than a build of the workspace, so some of them are
//! compiled twice.
#![allow(
    clippy::disallowed_types,
    reason = "a tool does not use `base`; no other lock is acquired while this one is held"
)]

mod executables;
mod lanes;
mod results;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use self::executables::TestExecutable;
use self::lanes::waiting_target;
use self::results::RunResults;
use crate::bench::clock::now;

/// Time for one executable, several times what the longest takes. A test that hangs must be named before CI ends the run.
const TIME_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Pause between two looks at a process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The flags of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct TestRunArgs {
    /// Names of test targets, such as `mysql`, or parts of their paths, such as `store-sql/`. All, and doc tests, without one.
    targets: Vec<String>,
}

/// Runs the tests; exit code 1 if one fails.
pub(crate) fn run(args: &TestRunArgs) -> ExitCode {
    match run_all(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print(&format!("xtask test: {error:#}\n"));
            ExitCode::from(2)
        }
    }
}

fn run_all(args: &TestRunArgs) -> Result<bool> {
    let begun = now();
    let executables = executables::build()?;
    let selected =
        executables.into_iter().filter(|executable| is_selected(&executable.source, &args.targets));
    let queues = Queues::new(selected.collect());
    if queues.is_empty() {
        bail!("no test target matches {:?}", args.targets);
    }
    let results = Mutex::new(RunResults::default());
    let queues = Mutex::new(queues);
    std::thread::scope(|scope| {
        let lane = |next: fn(&mut Queues) -> Option<TestExecutable>| {
            loop {
                let Some(executable) = next(&mut queues.lock()) else { return };
                let (output, error) = execute(&executable);
                // One lock for both, so that the outputs of two executables are never mixed.
                let mut results = results.lock();
                print(&format!("     Running {}\n{output}", executable.title()));
                results.add(&executable.source, &output, error);
            }
        };
        scope.spawn(move || lane(Queues::next_waiting));
        lane(Queues::next_computing);
    });
    let mut results = results.into_inner();
    if args.targets.is_empty() {
        run_doc_tests(&mut results)?;
    }
    print(&results.summary(now() - begun));
    Ok(results.is_success())
}

fn is_selected(source: &str, wanted: &[String]) -> bool {
    let name = source.strip_suffix("/main.rs").or_else(|| source.strip_suffix(".rs")).unwrap_or(source);
    wanted.is_empty()
        || wanted.iter().any(|wanted| {
            if wanted.contains('/') {
                source.contains(wanted.as_str())
            } else {
                name.ends_with(&format!("/{wanted}"))
            }
        })
}

/// The executables that have not been started.
#[derive(Debug, Default)]
struct Queues {
    computing: VecDeque<TestExecutable>,
    waiting: VecDeque<TestExecutable>,
}

impl Queues {
    fn new(executables: Vec<TestExecutable>) -> Queues {
        let (mut waiting, computing): (Vec<_>, Vec<_>) =
            executables.into_iter().partition(|executable| waiting_target(&executable.source).is_some());
        waiting.sort_by_key(|executable| waiting_target(&executable.source));
        Queues { computing: computing.into(), waiting: waiting.into() }
    }

    fn is_empty(&self) -> bool {
        self.computing.is_empty() && self.waiting.is_empty()
    }

    /// The next one of the first lane. Two executables that wait may run beside each other, two that compute may not: so only
    /// this lane helps the other.
    fn next_computing(&mut self) -> Option<TestExecutable> {
        self.computing.pop_front().or_else(|| self.next_waiting())
    }

    fn next_waiting(&mut self) -> Option<TestExecutable> {
        self.waiting.pop_front()
    }
}

/// Runs an executable; returns its output, and what is wrong with it besides failed tests.
fn execute(executable: &TestExecutable) -> (String, Option<String>) {
    match try_execute(executable) {
        Ok(result) => result,
        Err(error) => (String::new(), Some(format!("{error:#}"))),
    }
}

fn try_execute(executable: &TestExecutable) -> Result<(String, Option<String>)> {
    // A file and not a pipe: processes that outlive the test would keep a pipe open.
    let path = executable.output_file()?;
    let file = File::options().create(true).write(true).truncate(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = executable.command();
    if let (Some((_, threads)), None) =
        (waiting_target(&executable.source), std::env::var_os("RUST_TEST_THREADS"))
    {
        command.env("RUST_TEST_THREADS", threads.to_string());
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", executable.executable.display()))?;
    let status = wait_with_limit(&mut child, TIME_LIMIT)?;
    let output = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let error = match status {
        None => Some(format!("ended after {} minutes", TIME_LIMIT.as_secs() / 60)),
        Some(status) if status.success() => None,
        Some(status) => Some(status.to_string()),
    };
    Ok((String::from_utf8_lossy(&output).into_owned(), error))
}

/// Waits for a process; `None` if it was killed because of the limit.
fn wait_with_limit(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let begun = now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if now() - begun > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn run_doc_tests(results: &mut RunResults) -> Result<()> {
    // One pipe for both, because cargo names the crates on standard error.
    let (mut reader, writer) = io::pipe()?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start cargo")?;
    // It holds the other end of the pipe.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    let status = child.wait()?;
    let output = String::from_utf8_lossy(&output);
    print(&output);
    results.add("doc tests", &output, (!status.success()).then(|| status.to_string()));
    Ok(())
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Root of the workspace: two directories above this crate.
fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}

/// The program's output. A reader that is gone does not end the tests.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(sources: &[&str]) -> Queues {
        Queues::new(sources.iter().map(|source| TestExecutable::example(source)).collect())
    }

    #[test]
    fn unknown_targets_run_one_after_the_other_and_listed_ones_beside_them() {
        let listed = ["store-sql/tests/failures.rs", "e2e/tests/databases/main.rs"];
        let mut queues = queues(&[listed[1], "xml/src/lib.rs", "new/tests/new.rs", listed[0]]);
        let source = |next: Option<TestExecutable>| next.map_or(String::new(), |next| next.source);
        assert_eq!(source(queues.next_computing()), "xml/src/lib.rs");
        assert_eq!(source(queues.next_waiting()), listed[0]);
        assert_eq!(source(queues.next_computing()), "new/tests/new.rs");
        assert_eq!(source(queues.next_computing()), listed[1]);
        assert_eq!(source(queues.next_waiting()), "");
        assert!(queues.is_empty());
    }

    #[test]
    fn a_process_above_the_limit_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(wait_with_limit(&mut child, Duration::ZERO).unwrap(), None);
        let mut child = Command::new("false").spawn().unwrap();
        assert_eq!(wait_with_limit(&mut child, TIME_LIMIT).unwrap().unwrap().code(), Some(1));
    }

    #[test]
    fn targets_are_selected_by_name_or_part_of_their_path() {
        for (source, wanted, expected) in [
            ("store-sql/tests/mysql.rs", "mysql", true),
            ("e2e/tests/databases/main.rs", "databases", true),
            ("e2e/tests/databases/main.rs", "bases", false),
            ("e2e/tests/databases/main.rs", "e2e/", true),
            ("xml/src/lib.rs", "xml/src", true),
            ("xml/src/lib.rs", "e2e/", false),
        ] {
            assert_eq!(is_selected(source, &[wanted.to_owned()]), expected, "{source} {wanted}");
        }
        assert!(is_selected("xml/src/lib.rs", &[]));
    }
}
