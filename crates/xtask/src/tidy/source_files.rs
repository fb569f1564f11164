//! Rules for single source files: size, opening comment, `unsafe`.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::{code_only, lines_with, lines_without_tests};

/// Above this number of lines a file must give a reason.
const NEEDS_REASON_ABOVE: usize = 600;
/// Above this number of lines a file must be split.
const REFUSED_ABOVE: usize = 1_000;
/// Prefix of the line with the reason: ``//! Long because …``.
const REASON_PREFIX: &str = "//! Long because ";

/// The only files with `unsafe`, and why it is necessary in each.
const UNSAFE_ALLOWED: [(&str, &str); 2] = [
    ("crates/counting-allocator/src/lib.rs", "a global allocator"),
    ("crates/store-sql/benches/store.rs", "getrusage has no safe wrapper among the dependencies"),
];

/// Checks one file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = file.path.ends_with(".rs");
    if is_code(&file.path) && !is_test(&file.path) && !is_generated(file) {
        findings.extend(check_size(file));
    }
    if rust && !is_generated(file) {
        findings.extend(check_opening_comment(file));
    }
    if rust {
        findings.extend(check_unsafe(file));
    }
    findings
}

fn check_size(file: &SourceFile) -> Option<Finding> {
    let lines = lines_without_tests(&file.text);
    if lines > REFUSED_ABOVE {
        let text = format!(
            "{lines} lines without tests, more than {REFUSED_ABOVE}; split it by what changes together"
        );
        return Some(Finding::new(&file.path, text));
    }
    let explained = file
        .text
        .lines()
        .any(|line| line.strip_prefix(REASON_PREFIX).is_some_and(|reason| reason.trim().len() > 10));
    if lines > NEEDS_REASON_ABOVE && !explained {
        let text =
            format!("{lines} lines without tests; split it, or explain with a line `{REASON_PREFIX}…`");
        return Some(Finding::new(&file.path, text));
    }
    None
}

fn check_opening_comment(file: &SourceFile) -> Option<Finding> {
    // Inner attributes may come first. For a test file the section that it tests suffices.
    let least = if is_test(&file.path) { 1 } else { 12 };
    let first =
        file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#![")).unwrap_or("");
    match first.strip_prefix("//!") {
        Some(rest) if rest.trim().len() >= least => None,
        _ => Some(Finding::new(&file.path, "has no opening `//!` comment that states what the file is")),
    }
}

fn check_unsafe(file: &SourceFile) -> Vec<Finding> {
    if UNSAFE_ALLOWED.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    let code = code_only(&file.text);
    lines_with(&code, "unsafe")
        .into_iter()
        .map(|line| {
            let text = "`unsafe` outside the list in xtask/src/tidy/source_files.rs; find a safe way, or add a line with the reason";
            Finding::new(format!("{}:{line}", file.path), text)
        })
        .collect()
}

/// Listed files that do not exist or contain no `unsafe`, so that the list shrinks.
pub(crate) fn unused_exceptions(files: &[SourceFile]) -> Vec<Finding> {
    let uses = |path: &str| {
        files.iter().any(|f| f.path == path && !lines_with(&code_only(&f.text), "unsafe").is_empty())
    };
    UNSAFE_ALLOWED
        .iter()
        .filter(|(path, _)| !uses(path))
        .map(|(path, _)| {
            Finding::new(*path, "contains no `unsafe`; remove it from the list in tidy/source_files.rs")
        })
        .collect()
}

/// The largest files, for `--verbose`.
pub(crate) fn largest(files: &[SourceFile], count: usize) -> Vec<String> {
    let mut sizes: Vec<(usize, &str)> = files
        .iter()
        .filter(|f| is_code(&f.path) && !is_test(&f.path) && !is_generated(f))
        .map(|f| (lines_without_tests(&f.text), f.path.as_str()))
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.iter().take(count).map(|(lines, path)| format!("{lines:5} {path}")).collect()
}

fn is_code(path: &str) -> bool {
    [".rs", ".py", ".js", ".ts", ".sh"].iter().any(|end| path.ends_with(end))
}

/// Tests are exempt: they are long because they list cases, not because they do too much.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "clients" | "tests.rs"))
}

fn is_generated(file: &SourceFile) -> bool {
    file.path.contains("/generated/") || file.text.lines().take(3).any(|line| line.contains("@generated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn messages(file: &SourceFile) -> Vec<String> {
        check(file).into_iter().map(|f| f.text).collect()
    }

    fn file_with_lines(lines: usize, first: &str) -> SourceFile {
        file("crates/a/src/b.rs", &format!("//! Does what it does.\n{first}\n{}", "x\n".repeat(lines - 2)))
    }

    #[test]
    fn long_files_are_explained_and_longer_ones_refused() {
        assert_eq!(messages(&file_with_lines(600, "")), [""; 0]);
        assert!(messages(&file_with_lines(601, ""))[0].contains("601 lines"));
        assert_eq!(
            messages(&file_with_lines(601, "//! Long because the table has a row for each state.")),
            [""; 0]
        );
        assert!(!messages(&file_with_lines(601, "//! Long because of it.")).is_empty());
        assert!(
            messages(&file_with_lines(1001, "//! Long because the table has a row for each state."))[0]
                .contains("split")
        );
    }

    #[test]
    fn tests_and_generated_files_may_be_long() {
        let long = "//! Says what it does.\n".repeat(2_000);
        assert_eq!(messages(&file("crates/a/tests/b.rs", &long)), [""; 0]);
        assert_eq!(messages(&file("crates/a/src/generated/b.rs", &long)), [""; 0]);
        assert_eq!(messages(&file("docs/a.md", &long)), [""; 0]);
    }

    #[test]
    fn files_need_an_opening_comment() {
        assert!(messages(&file("crates/a/src/lib.rs", "use std::io;\n"))[0].contains("//!"));
        assert!(messages(&file("crates/a/src/lib.rs", "//! A.\n"))[0].contains("//!"));
        assert_eq!(messages(&file("crates/a/src/tests/b.rs", "//! Section 4.\n")), [""; 0]);
        assert!(messages(&file("crates/a/tests/b.rs", "//!\n"))[0].contains("//!"));
        assert_eq!(messages(&file("crates/a/src/lib.rs", "#![no_std]\n//! Does what it does.\n")), [""; 0]);
    }

    #[test]
    fn unsafe_outside_the_list_is_reported() {
        let text = "//! Does what it does.\nfn f() {\n    unsafe { g() }\n}\n";
        let found = check(&file("crates/a/src/b.rs", text));
        assert_eq!(found[0].place, "crates/a/src/b.rs:3");
        assert_eq!(messages(&file(UNSAFE_ALLOWED[0].0, text)), [""; 0]);
    }

    #[test]
    fn an_unused_unsafe_exception_is_reported() {
        let found = unused_exceptions(&[file(UNSAFE_ALLOWED[0].0, "unsafe {}")]);
        assert_eq!(found.len(), UNSAFE_ALLOWED.len() - 1);
    }
}
