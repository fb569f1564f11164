//! Totals and failures, from the output of libtest.
//!
//! # Pitfalls
//!
//! The output of a test may contain lines that look like libtest's own: only those below `failures:` name failed tests.

use std::fmt::Write as _;
use std::time::Duration;

/// Failed tests whose messages are repeated. Further ones are only named.
const MAX_MESSAGES: usize = 5;
/// Lines of a message that are repeated.
const MESSAGE_LINES: usize = 3;
/// Characters of such a line.
const LINE_CHARACTERS: usize = 200;

/// Results of a run so far.
#[derive(Debug, Default)]
pub(super) struct RunResults {
    counts: TestCounts,
    failures: Vec<TestFailure>,
}

/// Numbers of the lines `test result:`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct TestCounts {
    passed: u64,
    failed: u64,
    ignored: u64,
    measured: u64,
    filtered_out: u64,
}

/// A failed test, or an executable that ended without a result.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TestFailure {
    name: String,
    /// File and line of the panic; empty if there was none.
    location: String,
    message: Vec<String>,
}

impl RunResults {
    /// Adds the output of an executable. `error` says how it ended, if that was no success.
    pub(super) fn add(&mut self, source: &str, output: &str, error: Option<String>) {
        let failures = failures(output);
        for line in output.lines() {
            self.counts.add(line);
        }
        // A panic outside of the tests, a signal or the time limit: libtest reports none of them.
        if let (true, Some(error)) = (failures.is_empty(), error) {
            let mut message = vec![error];
            let last: Vec<&str> =
                output.lines().rev().filter(|line| !line.is_empty()).take(MESSAGE_LINES - 1).collect();
            message.extend(last.into_iter().rev().map(shortened));
            self.failures.push(TestFailure { name: source.to_owned(), location: String::new(), message });
        }
        self.failures.extend(failures);
    }

    /// Whether everything passed.
    pub(super) fn is_success(&self) -> bool {
        self.failures.is_empty() && self.counts.failed == 0
    }

    /// Failures and totals; one line if everything passed.
    pub(super) fn summary(&self, duration: Duration) -> String {
        let mut text = String::from("\n");
        let only_named = self.failures.len().saturating_sub(MAX_MESSAGES);
        for (number, failure) in self.failures.iter().enumerate() {
            let TestFailure { name, location, message } = failure;
            let at = if location.is_empty() { "" } else { " at " };
            let _ = writeln!(text, "FAILED {name}{at}{location}");
            if number >= only_named {
                for line in message {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
        let TestCounts { passed, failed, ignored, measured, filtered_out } = self.counts;
        let state = if self.is_success() { "ok" } else { "FAILED" };
        let _ = writeln!(
            text,
            "test result: {state}. {passed} passed; {failed} failed; {ignored} ignored; {measured} measured; \
             {filtered_out} filtered out; finished in {:.2}s",
            duration.as_secs_f64()
        );
        text
    }
}

impl TestCounts {
    /// Adds the numbers of a line `test result: ok. 3 passed; 0 failed; …`; other lines have none.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|result| result.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let sum = match what {
                "passed" => &mut self.passed,
                "failed" => &mut self.failed,
                "ignored" => &mut self.ignored,
                "measured" => &mut self.measured,
                "filtered out" => &mut self.filtered_out,
                _ => continue,
            };
            *sum = sum.saturating_add(number.parse().unwrap_or(0));
        }
    }
}

/// The failed tests: each has a section `---- NAME stdout ----` with its output, where the message follows `panicked at`.
fn failures(output: &str) -> Vec<TestFailure> {
    let mut failures: Vec<TestFailure> = Vec::new();
    let mut is_inside = false;
    for line in output.lines() {
        let name = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            is_inside = true;
            failures.push(TestFailure {
                name: name.to_owned(),
                location: String::new(),
                message: Vec::new(),
            });
            continue;
        }
        // Before and after the sections.
        if line == "failures:" {
            is_inside = false;
        }
        let Some(failure) = failures.last_mut().filter(|_| is_inside) else { continue };
        let location = line.split_once(" panicked at ").map(|(_, location)| location.trim_end_matches(':'));
        match location {
            Some(location) if failure.location.is_empty() => {
                failure.location = location.to_owned();
                // What the test printed before is not its message.
                failure.message.clear();
            }
            _ if failure.message.len() < MESSAGE_LINES && !line.is_empty() => {
                failure.message.push(shortened(line))
            }
            _ => {}
        }
    }
    failures
}

fn shortened(line: &str) -> String {
    line.chars().take(LINE_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "\nrunning 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nprinted\n\n\
        thread 'b' (7) panicked at crates/x/src/lib.rs:5:9:\nassertion failed\n  left: 1\n right: 2\nnote: run with\n\n\n\
        failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s\n";
    const PASSED: &str =
        "test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 1.50s\n";

    #[test]
    fn the_last_line_of_a_good_run_has_the_totals() {
        let mut results = RunResults::default();
        results.add("x/src/lib.rs", PASSED, None);
        results.add("x/tests/y.rs", PASSED, None);
        assert!(results.is_success());
        let expected = "\ntest result: ok. 80 passed; 0 failed; 4 ignored; 0 measured; 2 filtered out; finished in 9.00s\n";
        assert_eq!(results.summary(Duration::from_secs(9)), expected);
    }

    #[test]
    fn a_failed_test_is_repeated_with_its_message() {
        let mut results = RunResults::default();
        results.add("x/src/lib.rs", FAILED, Some("exit status: 101".to_owned()));
        assert!(!results.is_success());
        let expected = "\nFAILED b at crates/x/src/lib.rs:5:9\n  assertion failed\n    left: 1\n   right: 2\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s\n";
        assert_eq!(results.summary(Duration::from_secs(2)), expected);
    }

    #[test]
    fn an_executable_that_ends_without_a_result_is_a_failure() {
        let mut results = RunResults::default();
        results.add(
            "x/tests/y.rs",
            "running 1 test\nabort\n\nstack overflow\n",
            Some("signal: 6".to_owned()),
        );
        results.add("x/src/lib.rs", PASSED, None);
        assert!(!results.is_success());
        let summary = results.summary(Duration::ZERO);
        let expected = "\nFAILED x/tests/y.rs\n  signal: 6\n  abort\n  stack overflow\ntest result: FAILED. 40 passed; 0 failed;";
        assert!(summary.starts_with(expected), "{summary}");
    }

    #[test]
    fn a_test_that_fails_without_a_panic_has_its_output_as_message() {
        let output =
            "failures:\n\n---- src/a.rs - a::b (line 3) stdout ----\nError: no\n\nfailures:\n    b\n";
        let failure = TestFailure {
            name: "src/a.rs - a::b (line 3)".to_owned(),
            location: String::new(),
            message: vec!["Error: no".to_owned()],
        };
        assert_eq!(failures(output), [failure]);
    }

    #[test]
    fn only_the_last_failures_have_messages() {
        let mut results = RunResults::default();
        for _ in 0..MAX_MESSAGES + 2 {
            results.add("x/src/lib.rs", FAILED, Some("exit status: 101".to_owned()));
        }
        let summary = results.summary(Duration::ZERO);
        assert_eq!(summary.matches("FAILED b at").count(), MAX_MESSAGES + 2);
        assert_eq!(summary.matches("assertion failed").count(), MAX_MESSAGES);
    }
}
