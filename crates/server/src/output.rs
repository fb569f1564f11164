//! The only place that prints: what a person asked for goes to standard output, the rest to standard error.

use std::io::Write;

/// A line for the person.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed pipe (`| head`) is no reason to panic.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// A line about what went wrong.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A question, which the answer follows on the same line.
pub(crate) fn question(text: &str) {
    let mut error = std::io::stderr().lock();
    let _ = write!(error, "{text}");
    let _ = error.flush();
}
