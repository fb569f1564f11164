//! Output of the load generator, and its only place that prints: results to standard output, all else to standard
//! error.

use std::io::Write;

/// Prints a result.
pub(super) fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed pipe (`| head`) must not panic.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Prints a result of one line.
pub(super) fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Prints an error or a note.
pub(super) fn error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
