//! The only place of the load generator that prints: results to standard output, everything else to standard error.

use std::io::Write;

/// A result.
pub(super) fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed pipe (`| head`) is no reason to panic.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// A result in one line.
pub(super) fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// What went wrong, or what a person should know.
pub(super) fn error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
