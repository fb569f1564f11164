//! Terminal output, the only place that prints: results go to standard output, messages to standard error.

use std::io::Write;

/// Prints a line of the result.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed pipe (`| head`) is no reason to panic.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Prints an error message.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a prompt without a line end.
pub(crate) fn question(text: &str) {
    let mut error = std::io::stderr().lock();
    let _ = write!(error, "{text}");
    let _ = error.flush();
}
