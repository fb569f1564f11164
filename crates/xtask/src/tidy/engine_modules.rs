//! Modules of the engine: lines of code of `core`, import cycles between its folders, and the largest import cycle
//! (strongly connected component) of its files.
//!
//! A line of code is one that is neither blank nor a comment and is not of a test. Files beside the folders (node, host,
//! account and others) belong together, so a cycle through them is no cycle across folders; the bound on the largest
//! cycle limits them.
//!
//! Not implemented: imports of names that a module only re-exports, which count as imports of that module.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::{code_only, without_tests};

const SOURCE: &str = "crates/core/src/";
/// Bound on the lines of code. Lower it when code leaves the engine.
const MAX_CODE_LINES: usize = 6_500;
/// Bound on the modules of the largest import cycle. Lower it when a cycle is broken.
const MAX_CYCLE: usize = 18;

/// A module: its path in the crate, `router/local`.
type ModulePath = Vec<String>;

/// The modules that a module imports.
type Imports = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// Checks the modules of `core`.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = code_lines(files);
    if lines > MAX_CODE_LINES {
        let text = format!(
            "{lines} lines of code, more than {MAX_CODE_LINES}; put what routing does not need elsewhere"
        );
        findings.push(Finding::new(SOURCE, text));
    }
    let imports = imports(files);
    for (one, other) in folder_cycles(&imports) {
        let text = format!(
            "the folders {one} and {other} import each other; let one declare what the other provides"
        );
        findings.push(Finding::new(SOURCE, text));
    }
    let cycle = largest_cycle(&imports);
    if cycle.len() > MAX_CYCLE {
        let text = format!(
            "an import cycle has {} modules, more than {MAX_CYCLE}: {}; remove the import that was added last",
            cycle.len(),
            cycle.iter().map(|module| module.join("/")).collect::<Vec<_>>().join(", ")
        );
        findings.push(Finding::new(SOURCE, text));
    }
    findings
}

/// The present numbers in one line.
pub(crate) fn describe(files: &[SourceFile]) -> String {
    let cycle = largest_cycle(&imports(files)).len();
    format!("core: {} lines of code, largest import cycle {cycle} modules", code_lines(files))
}

fn source_files(files: &[SourceFile]) -> impl Iterator<Item = (ModulePath, String)> + '_ {
    files.iter().filter_map(|file| {
        let path = file.path.strip_prefix(SOURCE)?.strip_suffix(".rs")?;
        let mut module: ModulePath = path.split('/').map(str::to_owned).collect();
        if module.iter().any(|part| part == "tests") {
            return None;
        }
        if module.last().is_some_and(|last| last == "mod" || last == "lib") {
            module.pop();
        }
        Some((module, code_only(&without_tests(&file.text))))
    })
}

fn code_lines(files: &[SourceFile]) -> usize {
    source_files(files).map(|(_, code)| code.lines().filter(|line| !line.trim().is_empty()).count()).sum()
}

fn imports(files: &[SourceFile]) -> Imports {
    let sources: Vec<_> = source_files(files).filter(|(module, _)| !module.is_empty()).collect();
    let modules: BTreeSet<&ModulePath> = sources.iter().map(|(module, _)| module).collect();
    let module_of = |path: &[String]| {
        (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|start| modules.contains(start))
    };
    let imports_of = |module: &ModulePath, code: &str| {
        let paths = paths(module, code).into_iter().filter_map(|path| module_of(&path));
        paths.filter(|other| other != module).collect()
    };
    sources.iter().map(|(module, code)| (module.clone(), imports_of(module, code))).collect()
}

/// The paths that start with `crate` or `super`, absolute in the crate.
fn paths(module: &ModulePath, code: &str) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for (start, first) in [("crate::", Vec::new()), ("super::", parent(module))] {
        for (at, _) in code.match_indices(start) {
            // The second `super` of a path is parsed with the first.
            if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                parse_tree(&code[at + start.len()..], &first, &mut found);
            }
        }
    }
    found
}

fn parent(module: &[String]) -> ModulePath {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// Parses what follows `::`: a name with its rest, or a group in braces. Returns the rest of the text.
fn parse_tree<'a>(text: &'a str, prefix: &[String], found: &mut Vec<ModulePath>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        text = group.trim_start();
        while !text.is_empty() && !text.starts_with('}') {
            let rest = parse_tree(text, prefix, found).trim_start();
            text = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            if rest.len() == text.len() && !text.starts_with('}') {
                break; // no list
            }
        }
        return text.strip_prefix('}').unwrap_or(text);
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = match name {
        "super" => parent(prefix),
        "self" | "" => prefix.to_vec(),
        name => prefix.iter().cloned().chain([name.to_owned()]).collect(),
    };
    if let Some(deeper) = rest.strip_prefix("::") {
        return parse_tree(deeper, &path, found);
    }
    found.push(path);
    match rest.trim_start().strip_prefix("as ") {
        Some(renamed) => renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'),
        None => rest,
    }
}

/// All modules that a module imports, also through others.
fn reachable<T: Ord + Clone>(graph: &BTreeMap<T, BTreeSet<T>>, from: &T) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![from.clone()];
    while let Some(at) = pending.pop() {
        for next in graph.get(&at).into_iter().flatten() {
            if seen.insert(next.clone()) {
                pending.push(next.clone());
            }
        }
    }
    seen
}

fn largest_cycle(imports: &Imports) -> Vec<ModulePath> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|module| (module.clone(), reachable(imports, module))).collect();
    let cycle_of = |module: &ModulePath| -> Vec<ModulePath> {
        let others = reached[module].iter();
        others
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)))
            .cloned()
            .collect()
    };
    imports.keys().map(cycle_of).max_by_key(Vec::len).unwrap_or_default()
}

/// Pairs of folders that import each other, also through other folders.
fn folder_cycles(imports: &Imports) -> Vec<(String, String)> {
    let folders: BTreeSet<&String> =
        imports.keys().filter(|module| module.len() > 1).map(|module| &module[0]).collect();
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    for (module, others) in imports.iter().filter(|(module, _)| folders.contains(&module[0])) {
        let others = others.iter().map(|other| &other[0]);
        let others = others.filter(|other| folders.contains(other) && **other != module[0]).cloned();
        graph.entry(module[0].clone()).or_default().extend(others);
    }
    let reached: BTreeMap<_, _> =
        graph.keys().map(|folder| (folder.clone(), reachable(&graph, folder))).collect();
    let mut pairs = Vec::new();
    for (one, from_one) in &reached {
        let both = from_one.iter().filter(|other| *other > one && reached[*other].contains(one));
        pairs.extend(both.map(|other| (one.clone(), other.clone())));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<SourceFile> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("{SOURCE}{path}"),
            text: (*text).to_owned(),
        };
        list.iter().map(file).collect()
    }

    #[test]
    fn lines_of_code_are_counted_without_comments_blank_lines_and_tests() {
        let text = "//! A file.\n\nuse a::b;\n\n/// It.\nfn f() {\n    // why\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let all = files(&[("a.rs", text), ("a/tests.rs", "fn f() {}\n"), ("b/tests/c.rs", "fn f() {}\n")]);
        assert_eq!(code_lines(&all), 3);
    }

    #[test]
    fn imports_are_found_in_lists_and_in_code() {
        let all = files(&[
            ("lib.rs", "mod a;\npub use a::A;\n"),
            (
                "a.rs",
                "use crate::{b::{c::{self, C}, D as E}, Root};\nfn f() -> crate::d::F {}\n// crate::e::G\n",
            ),
            ("b/mod.rs", ""),
            ("b/c.rs", "use super::super::d::F;\nuse super::{H, e::I};\n"),
            ("b/e.rs", ""),
            ("d.rs", ""),
            ("e.rs", ""),
        ]);
        let imports = imports(&all);
        let of = |module: &str| -> Vec<String> {
            let module: ModulePath = module.split('/').map(str::to_owned).collect();
            imports[&module].iter().map(|other| other.join("/")).collect()
        };
        assert_eq!(of("a"), ["b", "b/c", "d"]);
        assert_eq!(of("b/c"), ["b", "b/e", "d"]);
    }

    #[test]
    fn cycles_are_found_across_folders_and_files() {
        let line = |module: &str| format!("use crate::{module};\n");
        let texts = [line("b::x"), line("c::x"), line("a::x"), line("a::x")];
        let all = files(&[
            ("a/mod.rs", ""),
            ("a/x.rs", &texts[0]),
            ("b/x.rs", &texts[1]),
            ("c/x.rs", &texts[2]),
            ("d/x.rs", &texts[3]),
            ("e.rs", &texts[3]),
        ]);
        let imports = imports(&all);
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(folder_cycles(&imports), [pair("a", "b"), pair("a", "c"), pair("b", "c")]);
        assert_eq!(largest_cycle(&imports).len(), 3);
        let found = check(&all);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].text.contains("the folders a and b import each other"));
    }
}
