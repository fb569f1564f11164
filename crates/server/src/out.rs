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
