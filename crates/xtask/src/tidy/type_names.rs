//! Names of public types: each stands for one type in the whole workspace.
//!
//! A name in a log, an error message or a search result has no path. Types of tests, benches and fuzz targets are
//! exempt, as are private types. Associated types and types inside functions are indented and not read. A generic type may have
//! the same name with its parameters filled in: `pub type Chain = hook_chain::Chain<Effects>`.
//!
//! # Pitfalls
//!
//! Types that a macro makes are not seen.

use std::collections::BTreeMap;

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::code_only;

/// Folders whose types only tests see.
const EXEMPT_FOLDERS: [&str; 5] = ["/tests/", "/benches/", "/fuzz/", "/examples/", "crates/e2e/"];
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Finds names that more than one public type has.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_checked(&file.path)) {
        let code = code_only(&file.text);
        for (number, line) in code.lines().enumerate() {
            if let Some(name) = public_type(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    let repeated = places.into_iter().filter(|(_, places)| places.len() > 1);
    repeated
        .filter_map(|(name, places)| {
            let (last, others) = places.split_last()?;
            let others = others.join(", ");
            Some(Finding::new(
                last,
                format!("the type name {name} is taken by {others}; choose one that says what it holds"),
            ))
        })
        .collect()
}

fn is_checked(path: &str) -> bool {
    path.starts_with("crates/")
        && path.ends_with(".rs")
        && !path.ends_with("/tests.rs")
        && !EXEMPT_FOLDERS.iter().any(|folder| path.contains(folder))
}

/// The name of the type that a line of code declares with `pub` or `pub(…)` in the first column.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')')?.1,
        None => rest,
    };
    let mut words = rest.strip_prefix(' ')?.split_whitespace().skip_while(|word| *word == "unsafe");
    let keyword = words.next()?;
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    let name = &name[..end];
    (KEYWORDS.contains(&keyword) && !(keyword == "type" && is_instance(line, name))).then_some(name)
}

/// Whether a line of code declares an alias for a generic type of another module with the same name.
fn is_instance(line: &str, name: &str) -> bool {
    let target = line.split_once(" = ").map_or("", |(_, target)| target);
    let path = target.split_once('<').map_or("", |(path, _)| path);
    path.rsplit_once("::").is_some_and(|(_, last)| last == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_name_in_two_crates_is_refused_with_both_places() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Target<T>(T);\n"),
            file("crates/b/src/x.rs", "\npub(crate) enum Target {\n}\n"),
        ];
        let findings = check(&files);
        assert_eq!(findings.len(), 1);
        let text = findings[0].to_string();
        assert!(
            text.starts_with("crates/b/src/x.rs:2: ") && text.contains("crates/a/src/lib.rs:1"),
            "{text}"
        );
    }

    #[test]
    fn private_types_and_types_of_tests_may_share_a_name() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Target;\nstruct Other;\n// pub struct Target;\n"),
            file("crates/a/src/b.rs", "struct Target;\nmod tests {\n    pub struct Target;\n}\n"),
            file("crates/b/tests/x.rs", "pub struct Target;\n"),
            file("crates/e2e/src/lib.rs", "pub struct Target;\n"),
        ];
        assert_eq!(check(&files), []);
    }

    #[test]
    fn declarations_are_recognised_with_any_visibility() {
        assert_eq!(public_type("pub(in crate::a) unsafe trait Name: Send {"), Some("Name"));
        assert_eq!(public_type("pub type Name = u8;"), Some("Name"));
        assert_eq!(public_type("pub fn name() {}"), None);
        assert_eq!(public_type("pub use a::Name;"), None);
        assert_eq!(public_type("pub type Name = a::Name<u8>;"), None, "the same type");
        assert_eq!(public_type("pub type Name = a::Other<u8>;"), Some("Name"));
        assert_eq!(public_type("pub type Name = a::b::OtherName<u8>;"), Some("Name"));
        assert_eq!(public_type("publish struct"), None);
    }
}
