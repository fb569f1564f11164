//! Rules for single files: size, the opening comment, `unsafe`.

use super::Finding;
use super::source::{code_only, lines_with, lines_without_tests};
use super::tree::File;

/// Above this many lines a file says why it is long.
const EXPLAINED: usize = 600;
/// Above this many lines a file is split.
const REFUSED: usize = 1_000;
/// The line that explains: ``//! Long because …``.
const REASON: &str = "//! Long because ";

/// The only files with `unsafe`, and why each cannot do without.
const UNSAFE: [(&str, &str); 9] = [
    ("crates/features/tests/alloc.rs", "a counting allocator"),
    ("crates/features/tests/weight.rs", "a counting allocator"),
    ("crates/jid/tests/alloc.rs", "a counting allocator"),
    ("crates/streams/tests/login_alloc.rs", "a counting allocator"),
    ("crates/net/tests/memory.rs", "a counting allocator"),
    ("crates/net/tests/bosh/memory.rs", "a counting allocator"),
    ("crates/streams/tests/hostile.rs", "a counting allocator"),
    ("crates/xml/tests/alloc.rs", "a counting allocator"),
    ("crates/store-sql/benches/store.rs", "getrusage has no safe wrapper among the dependencies"),
];

/// What the rules say about one file.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = file.path.ends_with(".rs");
    if is_code(&file.path) && !is_test(&file.path) && !is_generated(file) {
        findings.extend(size(file));
    }
    if rust && !is_generated(file) {
        findings.extend(opening(file));
    }
    if rust {
        findings.extend(unsafe_code(file));
    }
    findings
}

fn size(file: &File) -> Option<Finding> {
    let lines = lines_without_tests(&file.text);
    if lines > REFUSED {
        let text =
            format!("{lines} lines without tests; {REFUSED} is the end, split it by what changes together");
        return Some(Finding::new(&file.path, text));
    }
    let explained = file
        .text
        .lines()
        .any(|line| line.strip_prefix(REASON).is_some_and(|reason| reason.trim().len() > 10));
    if lines > EXPLAINED && !explained {
        let text = format!("{lines} lines without tests; split it, or explain with a line `{REASON}…`");
        return Some(Finding::new(&file.path, text));
    }
    None
}

fn opening(file: &File) -> Option<Finding> {
    // Inner attributes may come first. A file of tests may be content with the section that it tests.
    let least = if is_test(&file.path) { 1 } else { 12 };
    let first =
        file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#![")).unwrap_or("");
    match first.strip_prefix("//!") {
        Some(rest) if rest.trim().len() >= least => None,
        _ => Some(Finding::new(&file.path, "opens with no `//!` that says what the file does")),
    }
}

fn unsafe_code(file: &File) -> Vec<Finding> {
    if UNSAFE.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    let code = code_only(&file.text);
    lines_with(&code, "unsafe")
        .into_iter()
        .map(|line| {
            let text = "`unsafe` outside the list in xtask/src/tidy/texts.rs; find a safe way, or add a line with the reason";
            Finding::new(format!("{}:{line}", file.path), text)
        })
        .collect()
}

/// Files in the list that are gone or have become safe: the list only shrinks by being looked at.
pub(crate) fn unused_exceptions(files: &[File]) -> Vec<Finding> {
    let uses = |path: &str| {
        files.iter().any(|f| f.path == path && !lines_with(&code_only(&f.text), "unsafe").is_empty())
    };
    UNSAFE
        .iter()
        .filter(|(path, _)| !uses(path))
        .map(|(path, _)| {
            Finding::new(*path, "needs no `unsafe` any more; take it off the list in tidy/texts.rs")
        })
        .collect()
}

/// The largest files, for `--verbose`.
pub(crate) fn largest(files: &[File], count: usize) -> Vec<String> {
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

/// Tests are long because they list cases, not because they do too much.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "clients" | "tests.rs"))
}

fn is_generated(file: &File) -> bool {
    file.path.contains("/generated/") || file.text.lines().take(3).any(|line| line.contains("@generated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }
    fn texts(file: &File) -> Vec<String> {
        check(file).into_iter().map(|f| f.text).collect()
    }
    fn of_lines(lines: usize, first: &str) -> File {
        file("crates/a/src/b.rs", &format!("//! Does what it does.\n{first}\n{}", "x\n".repeat(lines - 2)))
    }

    #[test]
    fn long_files_are_explained_and_longer_ones_refused() {
        assert_eq!(texts(&of_lines(600, "")), [""; 0]);
        assert!(texts(&of_lines(601, ""))[0].contains("601 lines"));
        assert_eq!(texts(&of_lines(601, "//! Long because the table has a row for each state.")), [""; 0]);
        assert!(!texts(&of_lines(601, "//! Long because of it.")).is_empty());
        assert!(
            texts(&of_lines(1001, "//! Long because the table has a row for each state."))[0]
                .contains("split")
        );
    }

    #[test]
    fn tests_and_generated_files_may_be_long() {
        let long = "//! Says what it does.\n".repeat(2_000);
        assert_eq!(texts(&file("crates/a/tests/b.rs", &long)), [""; 0]);
        assert_eq!(texts(&file("crates/a/src/generated/b.rs", &long)), [""; 0]);
        assert_eq!(texts(&file("docs/a.md", &long)), [""; 0]);
    }

    #[test]
    fn files_open_with_what_they_do() {
        assert!(texts(&file("crates/a/src/lib.rs", "use std::io;\n"))[0].contains("//!"));
        assert!(texts(&file("crates/a/src/lib.rs", "//! A.\n"))[0].contains("//!"));
        assert_eq!(texts(&file("crates/a/src/tests/b.rs", "//! Section 4.\n")), [""; 0]);
        assert!(texts(&file("crates/a/tests/b.rs", "//!\n"))[0].contains("//!"));
        assert_eq!(texts(&file("crates/a/src/lib.rs", "#![no_std]\n//! Does what it does.\n")), [""; 0]);
    }

    #[test]
    fn unsafe_needs_an_entry() {
        let text = "//! Does what it does.\nfn f() {\n    unsafe { g() }\n}\n";
        let found = check(&file("crates/a/src/b.rs", text));
        assert_eq!(found[0].place, "crates/a/src/b.rs:3");
        assert_eq!(texts(&file("crates/xml/tests/alloc.rs", text)), [""; 0]);
    }

    #[test]
    fn an_entry_without_use_is_found() {
        let found = unused_exceptions(&[file("crates/xml/tests/alloc.rs", "unsafe {}")]);
        assert_eq!(found.len(), UNSAFE.len() - 1);
    }
}
