//! Ranks of locks: `docs/locks.md` and `base::lock` name the same ones in the same order.
//!
//! Each file of the document has a lock of that rank, and each file with a lock is in the document, or in one of its folders:
//! a feature with a lock needs no row. That all locks of the server have ranks is checked by clippy (`disallowed-types`).
//!
//! Not implemented: locks of `loadgen`, tools and tests, most of which have no ranks.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::{code_only, lines_with};

const DOCUMENT: &str = "docs/locks.md";
const SOURCE: &str = "crates/base/src/lock.rs";
/// Crates whose locks have no ranks: they are no part of the server.
const UNRANKED_CRATES: [&str; 6] =
    ["counting-allocator", "e2e", "loadgen", "test-databases", "testkit", "xtask"];
const LEAF: &str = "rank::LEAF";
const LEAF_NAMES: [&str; 3] = ["LeafMutex", "LeafRwLock", LEAF];

/// A rank: its constant and its name.
#[derive(Debug, PartialEq, Eq)]
struct DeclaredRank {
    constant: String,
    name: String,
}

/// A row of a table: its cells without spaces around them.
type TableRow<'a> = Vec<&'a str>;

/// Compares the document with the source.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let (Some(document), Some(source)) = (text(DOCUMENT), text(SOURCE)) else { return Vec::new() };
    let (ranked, leaves) = document.split_once("## Leaf locks").unwrap_or((document, ""));
    let mut findings = check_ranks(&declared_ranks(source), &rows(ranked), files);
    findings.extend(check_leaves(&rows(leaves), files));
    findings
}

fn check_ranks(declared: &[DeclaredRank], rows: &[TableRow<'_>], files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, rank) in declared.iter().enumerate() {
        let row = rows.iter().find(|row| row.first() == Some(&number.to_string().as_str()));
        let Some([_, name, place, ..]) = row.map(Vec::as_slice) else {
            findings.push(Finding::new(DOCUMENT, format!("rank {number}, {}, has no row", rank.name)));
            continue;
        };
        if *name != rank.name {
            let text = format!("rank {number} is `{}` in base::lock and `{name}` here", rank.name);
            findings.push(Finding::new(DOCUMENT, text));
        }
        let constant = format!("rank::{}", rank.constant);
        let listed = paths(place);
        for path in &listed {
            if !files.iter().any(|file| is_at(file, path) && uses(file, &constant)) {
                findings.push(Finding::new(DOCUMENT, format!("{path} has no lock of {constant}")));
            }
        }
        let unlisted = files.iter().filter(|file| has_ranks(&file.path) && !is_listed(file, &listed));
        for file in unlisted.filter(|file| constant != LEAF && uses(file, &constant)) {
            let text = format!("has a lock of {constant} that docs/locks.md does not list");
            findings.push(Finding::new(&file.path, text));
        }
    }
    for row in rows {
        if row.first().and_then(|number| number.parse().ok()).is_some_and(|n: usize| n >= declared.len()) {
            findings.push(Finding::new(DOCUMENT, format!("base::lock has no rank {}", row.join(" "))));
        }
    }
    findings
}

fn check_leaves(rows: &[TableRow<'_>], files: &[SourceFile]) -> Vec<Finding> {
    let listed: Vec<String> = rows.iter().filter_map(|row| row.get(1)).flat_map(|cell| paths(cell)).collect();
    let has_leaf = |file: &SourceFile| LEAF_NAMES.iter().any(|name| uses(file, name));
    let mut findings = Vec::new();
    for path in &listed {
        if !files.iter().any(|file| is_at(file, path) && has_leaf(file)) {
            findings.push(Finding::new(DOCUMENT, format!("{path} has no leaf lock")));
        }
    }
    for file in
        files.iter().filter(|file| has_ranks(&file.path) && !is_listed(file, &listed) && has_leaf(file))
    {
        findings.push(Finding::new(&file.path, "has a leaf lock that docs/locks.md does not list"));
    }
    findings
}

/// The ranks of `base::lock`, in order.
fn declared_ranks(source: &str) -> Vec<DeclaredRank> {
    let constants = source.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("pub const ")?.split_once(": u8 = ")?;
        Some((value.strip_suffix(';')?.parse::<usize>().ok()?, name.to_owned()))
    });
    let mut constants: Vec<_> = constants.collect();
    constants.sort();
    let names = source.split("pub const NAMES").nth(1).and_then(|rest| rest.split("];").next());
    let names = names.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned);
    constants.into_iter().zip(names).map(|((_, constant), name)| DeclaredRank { constant, name }).collect()
}

fn rows(text: &str) -> Vec<TableRow<'_>> {
    text.lines()
        .filter(|line| line.starts_with("| ") && line.ends_with(" |"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// The files and folders that a cell names in backticks, from the root.
fn paths(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|text| text.ends_with(".rs") || text.ends_with('/'));
    paths.map(|path| format!("crates/{path}")).collect()
}

/// Whether this is the file, or a file in the folder.
fn is_at(file: &SourceFile, path: &str) -> bool {
    file.path == path || path.ends_with('/') && file.path.starts_with(path)
}

fn is_listed(file: &SourceFile, listed: &[String]) -> bool {
    listed.iter().any(|path| is_at(file, path))
}

/// Whether the code of this file, without its tests, contains a word.
fn uses(file: &SourceFile, word: &str) -> bool {
    let product = file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    product.contains(word) && !lines_with(&code_only(product), word).is_empty()
}

/// Whether the locks of this source file have ranks.
fn has_ranks(path: &str) -> bool {
    let test = |name| path.ends_with(name);
    let product =
        !path.contains("/tests/") && !["tests.rs", "harness.rs", "conformance.rs"].into_iter().any(test);
    let inside = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
    let ranked =
        inside.is_some_and(|(name, file)| file.starts_with("src/") && !UNRANKED_CRATES.contains(&name));
    path.ends_with(".rs") && product && ranked && path != SOURCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "pub mod rank {\n    pub const ACCOUNT: u8 = 0;\n    pub const LEAF: u8 = 1;\n    \
                         pub const NAMES: [&str; 2] = [\n        \"account\",\n        \"leaf lock\",\n    ];\n}\n";

    fn findings(ranked: &str, leaves: &str, code: &str) -> Vec<String> {
        let document =
            format!("| Rank | Lock | File |\n| --- | --- | --- |\n{ranked}\n## Leaf locks\n\n{leaves}");
        let files = [(DOCUMENT, document.as_str()), (SOURCE, LOCKS), ("crates/core/src/a.rs", code)];
        let files = files.map(|(path, text)| SourceFile { path: path.to_owned(), text: text.to_owned() });
        check(&files).iter().map(ToString::to_string).collect()
    }

    const RANKED: &str = "| 0 | account | `core/src/a.rs` | it is read |\n| 1 | leaf lock | below | – |\n";
    const LEAVES: &str = "| names | `core/src/a.rs` |\n";
    const CODE: &str = "state: RankedMutex<A, { rank::ACCOUNT }>,\nnames: LeafMutex<B>,\n";

    #[test]
    fn a_document_that_agrees_has_no_findings() {
        assert_eq!(findings(RANKED, LEAVES, CODE), Vec::<String>::new());
    }

    #[test]
    fn a_folder_lists_all_its_files() {
        let in_folder = |text: &str| text.replace("`core/src/a.rs`", "`core/src/`");
        assert_eq!(findings(&in_folder(RANKED), &in_folder(LEAVES), CODE), Vec::<String>::new());
        let elsewhere = LEAVES.replace("`core/src/a.rs`", "`features/src/`");
        let found = findings(RANKED, &elsewhere, CODE);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn every_difference_is_found() {
        for (ranked, leaves, code, expected) in [
            (RANKED.replace("| account", "| session"), LEAVES, CODE, "rank 0 is `account` in base::lock"),
            (RANKED.replace("| 1 |", "| 2 |"), LEAVES, CODE, "rank 1, leaf lock, has no row"),
            (format!("{RANKED}| 7 | x | y |\n"), LEAVES, CODE, "base::lock has no rank 7"),
            (RANKED.to_owned(), LEAVES, "names: LeafMutex<B>,", "has no lock of rank::ACCOUNT"),
            (RANKED.to_owned(), LEAVES, "state: RankedMutex<A, { rank::ACCOUNT }>,", "has no leaf lock"),
            (RANKED.to_owned(), "", CODE, "has a leaf lock that docs/locks.md does not list"),
            (RANKED.replace("`core/src/a.rs`", "–"), LEAVES, CODE, "has a lock of rank::ACCOUNT that"),
        ] {
            let found = findings(&ranked, leaves, code);
            assert!(found.iter().any(|text| text.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn locks_of_tests_are_not_in_the_document() {
        let code = "state: RankedMutex<A, { rank::ACCOUNT }>,\n\n#[cfg(test)]\nmod tests {\n    type Seen = LeafMutex<u8>;\n}\n";
        assert_eq!(findings(RANKED, "", code), Vec::<String>::new());
    }
}
