//! Conventions of Rust files that rustfmt and clippy leave open: order of imports, placement of tests, blank lines,
//! `#[must_use]`, the form of the opening comment.
//!
//! STYLE.md states each. They are what most files did when the check was added; one form saves a reader the question
//! whether a difference means something. That a folder's module is `mod.rs` is clippy's `self_named_module_files`.
//!
//! # Pitfalls
//!
//! The checks read lines that rustfmt has formatted and rely on its indentation.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::code_only;

/// Checks one file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.path.ends_with(".rs") || file.path.contains("/generated/") {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let code: Vec<&str> = code.lines().collect();
    let raw: Vec<&str> = file.text.lines().collect();
    let found = [
        imports(&code, &raw),
        modules_first(&code),
        tests_last(&code, file.path.contains("/src/") && !is_test_file(&file.path)),
        blank_lines(&raw, &code),
        must_use(&code),
        opening(&raw),
    ];
    let place = |line: usize| format!("{}:{}", file.path, line + 1);
    found.into_iter().flatten().map(|(line, text)| Finding::new(place(line), text)).collect()
}

/// Index of a line, and the problem.
type Problem = (usize, &'static str);

/// Group of an import: the order of the groups is that of the variants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ImportGroup {
    Std,
    Crates,
    Own,
}

fn group(import: &str) -> ImportGroup {
    let path = import.trim_start_matches("use ").trim_start_matches("::");
    match path.split(|c: char| !c.is_alphanumeric() && c != '_').next() {
        Some("std" | "core" | "alloc") => ImportGroup::Std,
        Some("crate" | "self" | "super") => ImportGroup::Own,
        _ => ImportGroup::Crates,
    }
}

/// `use Enum::{…};` and `use a_macro;` stand after the item that they name.
fn is_own_item(import: &str) -> bool {
    let path = import.trim_start_matches("use ");
    !path.contains("::") || path.starts_with(|c: char| c.is_uppercase())
}

fn imports(code: &[&str], raw: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut previous: Option<(usize, Option<ImportGroup>)> = None;
    for (start, line) in code.iter().enumerate() {
        let public = line.starts_with("pub use ") || line.starts_with("pub(") && line.contains(") use ");
        if !public && !line.starts_with("use ") || is_own_item(line) {
            continue;
        }
        let end = (start..code.len()).find(|at| code[*at].contains(';')).unwrap_or(start);
        let group = (!public).then(|| group(line));
        if let Some((last, before)) = previous {
            let apart = raw[last + 1..start].iter().any(|line| line.trim().is_empty());
            match (before, group) {
                (Some(before), Some(group)) if group < before => {
                    problems.push((start, "imports are in the order std, other crates, this crate"));
                }
                (Some(before), Some(group)) if group == before && apart => {
                    problems
                        .push((start, "imports of one group (std, other crates, this crate) stand together"));
                }
                (before, group) if before != group && !apart => {
                    problems
                        .push((start, "a blank line separates std, other crates, this crate and `pub use`"));
                }
                _ => {}
            }
        }
        previous = Some((end, group));
    }
    problems
}

/// `mod name;` before the first import.
fn modules_first(code: &[&str]) -> Vec<Problem> {
    let Some(first) = code.iter().position(|line| line.starts_with("use ")) else { return Vec::new() };
    let late = code.iter().enumerate().skip(first).filter(|(_, line)| is_module_file(line));
    late.map(|(at, _)| (at, "`mod name;` stands above the imports")).collect()
}

fn is_module_file(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    !line.starts_with(' ') && line.ends_with(';') && words.next() == Some("mod")
}

/// Unit tests are in `mod tests`, which ends the file, or in a file or folder `tests`.
fn tests_last(code: &[&str], source: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let start = code.iter().position(|line| *line == "mod tests {");
    if let Some(start) = start {
        let end = (start..code.len()).find(|at| code[*at] == "}").unwrap_or(code.len());
        if code[(end + 1).min(code.len())..].iter().any(|line| !line.trim().is_empty()) {
            problems.push((end, "`mod tests` is the last item of its file"));
        }
        let mut import_ended = false;
        for (at, line) in code.iter().enumerate().take(end).skip(start + 1) {
            match line.trim() {
                "" => import_ended = true,
                text if line.starts_with("    use ") && import_ended && !text.is_empty() => {
                    problems.push((at, "the imports of `mod tests` are one group at its top"));
                }
                _ => {}
            }
        }
    }
    if source {
        let before = &code[..start.unwrap_or(code.len())];
        let loose = before.iter().position(|line| matches!(line.trim(), "#[test]" | "#[tokio::test]"));
        if let Some(at) = loose {
            problems.push((
                at,
                "unit tests are in `mod tests { … }` at the end of the file, or in tests.rs or tests/",
            ));
        }
    }
    problems
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| {
        matches!(part, "tests" | "tests.rs" | "conformance" | "conformance.rs") || part.ends_with("_tests.rs")
    })
}

/// Items and functions of several lines are separated by a blank line.
fn blank_lines(raw: &[&str], code: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let opening = raw.iter().take_while(|line| line.starts_with("//!")).count();
    if opening > 0 && raw.get(opening).is_some_and(|line| !line.is_empty() && !line.starts_with("#![")) {
        problems.push((opening, "a blank line follows the opening comment"));
    }
    for (at, line) in code.iter().enumerate() {
        let indent = if line.starts_with("    ") { "    " } else { "" };
        if !is_item(&line[indent.len()..], indent.is_empty()) {
            continue;
        }
        // Comments and attributes belong to the item.
        let attached = |line: &&&str| {
            line.strip_prefix(indent).is_some_and(|l| {
                l.starts_with("//") || l.starts_with("#[") || l == ")]" || l.starts_with("    ")
            })
        };
        let above = raw[..at].iter().rev().take_while(attached).count();
        // A body is indented like an attribute's arguments; its end is not.
        if raw[..at - above].last().is_some_and(|line| line.strip_prefix(indent) == Some("}")) {
            problems.push((at - above, "a blank line separates items"));
        }
    }
    problems
}

/// Whether a line begins a function or, in the first column, a type, a block or a module.
fn is_item(line: &str, top: bool) -> bool {
    let mut words = line.split_whitespace().map(|word| word.split('(').next().unwrap_or(word));
    let modifiers = ["pub", "const", "async", "unsafe", "extern"];
    let word = words.find(|word| !modifiers.contains(word) && !word.is_empty());
    !line.starts_with(' ')
        && match word {
            Some("fn") => true,
            Some("struct" | "enum" | "trait" | "mod") => top,
            Some(word) => top && (word == "impl" || word.starts_with("impl<")),
            None => false,
        }
}

/// `#[must_use]` without a reason is for methods that return a changed `self`; clippy demands it there.
fn must_use(code: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut own = "";
    for (at, line) in code.iter().enumerate() {
        if let Some(rest) = line.strip_prefix("impl") {
            let subject = rest.rsplit(" for ").next().unwrap_or(rest);
            let subject = if subject.starts_with('<') {
                subject.split_once("> ").map_or("", |(_, s)| s)
            } else {
                subject
            };
            let subject = subject.trim();
            own =
                &subject[..subject.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(subject.len())];
        }
        if line.trim() != "#[must_use]" {
            continue;
        }
        let signature: String = code[at + 1..]
            .iter()
            .take_while(|line| !line.trim_start().starts_with('}'))
            .take(8)
            .copied()
            .collect();
        let signature = signature.split(['{', ';']).next().unwrap_or_default().to_owned();
        let (arguments, returned) = signature.split_once("->").unwrap_or((&signature, ""));
        let returned = returned.trim();
        let changed = returned.starts_with("Self") || !own.is_empty() && returned.starts_with(own);
        if !changed || !arguments.contains("self") {
            problems.push((at, "`#[must_use]` is for methods that return a changed `self`; elsewhere give a reason: `#[must_use = \"…\"]`"));
        }
    }
    problems
}

/// `Not implemented: …`, then the section `# Pitfalls`.
fn opening(raw: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let lines: Vec<(usize, &str)> = raw
        .iter()
        .enumerate()
        .skip_while(|(_, line)| !line.starts_with("//!"))
        .map_while(|(at, line)| line.strip_prefix("//!").map(|text| (at, text.trim())))
        .collect();
    let pitfalls = lines.iter().position(|(_, text)| *text == "# Pitfalls");
    for (index, (at, text)) in lines.iter().enumerate() {
        let late = pitfalls.is_some_and(|pitfalls| pitfalls < index);
        if text.starts_with("Not implemented: ") && late {
            problems.push((*at, "`Not implemented:` stands before `# Pitfalls`"));
        } else if text.starts_with("Long because ") && late {
            problems.push((*at, "`Long because` stands before `# Pitfalls`"));
        } else if ["Left out:", "Missing:", "Trap:", "The trap", "Pitfall:", "Pitfalls:"]
            .iter()
            .any(|form| text.starts_with(form))
        {
            problems.push((*at, "the forms are `Not implemented: …` and a section `# Pitfalls`"));
        } else if text.starts_with("# Pitfall") && *text != "# Pitfalls" || text.starts_with("## Pitfall") {
            problems.push((*at, "the heading is `# Pitfalls`"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines with a problem, from 1.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let line = |finding: Finding| finding.place.rsplit(':').next().and_then(|n| n.parse().ok());
        check(&file).into_iter().filter_map(line).collect()
    }

    fn source(text: &str) -> Vec<usize> {
        lines("crates/a/src/b.rs", text)
    }

    #[test]
    fn imports_are_in_three_groups_in_order() {
        let good = "use std::fmt;\nuse std::{\n    io,\n};\n\nuse jid::Jid;\nuse tokio::net;\n\n// Reason.\nuse crate::a;\nuse super::b;\n\npub use c::D;\n";
        assert_eq!(source(good), [0; 0]);
        assert_eq!(source("use std::fmt;\nuse jid::Jid;\n"), [2]);
        assert_eq!(source("use jid::Jid;\n\nuse std::fmt;\n"), [3]);
        assert_eq!(source("use crate::a;\n\nuse jid::Jid;\n"), [3]);
        assert_eq!(source("use jid::Jid;\n\nuse tokio::net;\n"), [3]);
        assert_eq!(source("use jid::Jid;\npub use tokio::net;\n"), [2]);
        assert_eq!(source("use super::a;\n\nenum B {\n}\n\nuse B::C;\nuse a_macro;\n"), [0; 0]);
        assert_eq!(source("const TEXT: &str = \"\nuse b;\nuse a;\n\nuse std;\";\n"), [0; 0]);
    }

    #[test]
    fn modules_are_declared_above_the_imports() {
        assert_eq!(source("mod a;\npub(crate) mod b;\n\nuse jid::Jid;\n\nmod inline {\n}\n"), [0; 0]);
        assert_eq!(source("use jid::Jid;\n\n#[cfg(test)]\nmod tests;\n"), [4]);
        assert_eq!(source("use jid::Jid;\n\npub mod a;\n"), [3]);
    }

    #[test]
    fn tests_end_their_file() {
        let good = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n    use jid::Jid;\n\n    #[test]\n    fn g() {}\n}\n";
        assert_eq!(source(good), [0; 0]);
        assert_eq!(source(&format!("{good}\nfn h() {{}}\n")), [10]);
        assert_eq!(source(&good.replace("    use jid", "\n    use jid")), [7]);
        assert_eq!(source("#[test]\nfn f() {}\n"), [1]);
        assert_eq!(lines("crates/a/tests/b.rs", "#[test]\nfn f() {}\n"), [0; 0]);
        assert_eq!(lines("crates/a/src/b/tests.rs", "#[test]\nfn f() {}\n"), [0; 0]);
    }

    #[test]
    fn items_of_several_lines_are_separated_by_a_blank_line() {
        let good =
            "struct A {\n    b: u8,\n}\n\nimpl A {\n    fn f() {\n    }\n\n    fn g() {}\n    fn h() {}\n}\n";
        assert_eq!(source(good), [0; 0]);
        assert_eq!(source(&good.replace("}\n\nimpl", "}\nimpl")), [4]);
        assert_eq!(source(&good.replace("}\n\n    fn", "}\n    /// Text.\n    #[inline]\n    fn")), [8]);
        assert_eq!(source("//! Text.\nuse jid::Jid;\n"), [2]);
        assert_eq!(source("//! Text.\n#![allow(a)]\n\nuse jid::Jid;\n"), [0; 0]);
        assert_eq!(source("fn f() {\n    if x {\n    }\n    g()\n}\n"), [0; 0]);
        assert_eq!(
            source(
                "impl A {\n    pub(crate) const fn f() {\n    }\n    pub(crate) const fn g() {\n    }\n}\n"
            ),
            [4]
        );
    }

    #[test]
    fn must_use_without_a_reason_is_for_methods_that_return_a_changed_self() {
        let method = |signature: &str| {
            format!("impl<T> Builder<T> {{\n    #[must_use]\n    {signature} {{\n    }}\n}}\n")
        };
        for signature in ["pub fn with(mut self) -> Self", "pub const fn with(&self, a: u8) -> Builder<T>"] {
            assert_eq!(source(&method(signature)), [0; 0], "{signature}");
        }
        for signature in ["pub fn new() -> Self", "pub fn is_empty(&self) -> bool"] {
            assert_eq!(source(&method(signature)), [2], "{signature}");
        }
        assert_eq!(
            source("#[must_use = \"the permit is returned when it is dropped\"]\nstruct Permit;\n"),
            [0; 0]
        );
        assert_eq!(source("#[must_use]\nstruct Permit;\n"), [1]);
    }

    #[test]
    fn the_opening_has_one_form() {
        assert_eq!(
            source("//! A thing.\n//!\n//! Not implemented: b.\n//!\n//! # Pitfalls\n//!\n//! C.\n"),
            [0; 0]
        );
        assert_eq!(source("//! A.\n//!\n//! # Pitfalls\n//!\n//! C.\n//!\n//! Not implemented: b.\n"), [7]);
        for line in ["Left out: b.", "Trap: b.", "# Pitfall", "The trap for the next person: b."] {
            assert_eq!(source(&format!("//! A.\n//!\n//! {line}\n")), [3], "{line}");
        }
    }
}
