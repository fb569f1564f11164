//! `Debug` output in shipped code: API values, labels, reports and log fields are never made of it.
//!
//! The text of `{:?}` follows the names in the source, which may change at any time. What others read comes from
//! `as_str` or `Display`. Implementations of `Debug`, panics, assertions and tests are exempt.
//!
//! Not implemented: `Debug` output that no format string shows (`debug_struct`, `dbg!`, which clippy refuses).
//!
//! # Pitfalls
//!
//! A field `?value` of a `tracing` macro is found by the space or bracket before it, which no other `?` but that of
//! `?Sized` has.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::code_only;

/// Crates that are no part of a program.
const EXEMPT_CRATES: [&str; 4] =
    ["crates/e2e/", "crates/test-databases/", "crates/testkit/", "crates/xtask/"];
/// Folders and files that only tests see.
const EXEMPT_PARTS: [&str; 6] =
    ["/tests/", "/benches/", "/fuzz/", "/examples/", "/conformance/", "/tests.rs"];
/// Files that must print `Debug` output, and why.
const ALLOWED: [(&str, &str); 1] =
    [("crates/server/src/logs/line_format.rs", "tracing passes fields as Debug, also those of Display")];

/// Finds `{:?}` and `?field` in shipped code.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !is_checked(&file.path) {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    let mut exempt_block = false;
    let mut test_attribute = false;
    for (number, (line, code)) in file.text.lines().zip(code.lines()).enumerate() {
        if exempt_block {
            exempt_block = line != "}";
            continue;
        }
        let of_debug = line.starts_with("impl") && line.contains("Debug for ");
        exempt_block = (of_debug || test_attribute && line.starts_with("mod ")) && line.ends_with('{');
        test_attribute = line == "#[cfg(test)]" || test_attribute && line.starts_with("#[");
        let assertion = ["assert", "panic!", "unreachable!"].iter().any(|word| code.contains(word));
        let comment = line.trim_start().starts_with("//");
        let formatted = !comment && (line.contains(":?}") || line.contains(":#?}"));
        if !assertion && (formatted || has_debug_field(code)) {
            findings.push(Finding::new(
                format!("{}:{}", file.path, number + 1),
                "prints Debug output; use Display or `as_str`, whose text is meant to be read",
            ));
        }
    }
    findings
}

fn is_checked(path: &str) -> bool {
    path.starts_with("crates/")
        && path.ends_with(".rs")
        && !EXEMPT_CRATES.iter().any(|name| path.starts_with(name))
        && !EXEMPT_PARTS.iter().any(|part| path.contains(part))
        && !ALLOWED.iter().any(|(allowed, _)| *allowed == path)
}

/// Whether a line of code has a field `?value` of a `tracing` macro.
fn has_debug_field(code: &str) -> bool {
    code.match_indices('?').any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + 1..].chars().next();
        before.is_none_or(|c| matches!(c, ' ' | '(' | ','))
            && after.is_some_and(|c| c.is_ascii_lowercase() || c == '_' || c == '&' || c == '(')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let line = |finding: &Finding| finding.place.rsplit_once(':')?.1.parse().ok();
        check(&file).iter().filter_map(line).collect()
    }

    #[test]
    fn debug_output_is_found_in_shipped_code() {
        let text = "fn a() {\n    let t = format!(\"{:?}\", kind);\n    write!(f, \"{kind:#?}\");\n    \
                    tracing::info!(?change, \"x\");\n    tracing::info!(kind = ?kind(), \"x\");\n    \
                    tracing::info!(\n        ?change,\n    );\n    #[error(\"it is {0:?}\")]\n}\n";
        assert_eq!(found("crates/core/src/a.rs", text), [2, 3, 4, 5, 7, 9]);
        assert!(found("crates/core/tests/a.rs", text).is_empty());
        assert!(found("crates/xtask/src/a.rs", text).is_empty());
    }

    #[test]
    fn implementations_of_debug_assertions_and_tests_are_exempt() {
        let text = "// {:?}\nimpl fmt::Debug for A {\n    write!(f, \"{:?}\", self.a)\n}\nfn a<T: ?Sized>() {\n    \
                    b()?;\n    debug_assert!(x, \"{x:?}\");\n    panic!(\"{x:?}\");\n}\n#[cfg(test)]\nmod tests {\n    \
                    format!(\"{:?}\", kind);\n}\nfn b() {\n    format!(\"{:?}\", kind);\n}\n";
        assert_eq!(found("crates/core/src/a.rs", text), [15]);
    }
}
