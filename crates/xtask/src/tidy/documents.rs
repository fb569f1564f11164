//! Checks of written documents against the tree: links resolve, and every configuration key is documented.
//!
//! # Pitfalls
//!
//! Keys are found by the way in which `server/src/config` reads them (`.text("key")` and its siblings, and the list in
//! `take!`). A key read in another way escapes this rule.

use std::collections::BTreeSet;

use super::Finding;
use super::files::SourceFile;

const CONFIG: &str = "crates/server/src/config/";
const CONFIG_DOCUMENT: &str = "docs/config.md";
/// Methods that read a key.
const KEY_READERS: [&str; 9] = [
    ".text(\"",
    ".texts(\"",
    ".int(\"",
    ".bool(\"",
    ".choice(\"",
    ".section(\"",
    ".sections(\"",
    ".named(\"",
    ".has(\"",
];

/// Checks all documents.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let paths: BTreeSet<&str> = files.iter().map(|f| f.path.as_str()).collect();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        findings.extend(broken_links(file, &paths));
    }
    let explained =
        files.iter().find(|f| f.path == CONFIG_DOCUMENT).map(|f| f.text.as_str()).unwrap_or_default();
    let asks = |f: &&SourceFile| f.path.starts_with(CONFIG) && !f.path.ends_with("tests.rs");
    for config in files.iter().filter(asks) {
        for key in keys(&config.text) {
            if !explained.contains(&format!("`{key}`")) && !explained.contains(&format!("[{key}]")) {
                findings.push(Finding::new(CONFIG_DOCUMENT, format!("does not explain the key `{key}`")));
            }
        }
    }
    findings
}

/// Configuration keys read by the code, without the part after the start of the tests.
fn keys(config: &str) -> BTreeSet<String> {
    let code = config.split("#[cfg(test)]").next().unwrap_or_default();
    let mut keys = BTreeSet::new();
    for asking in KEY_READERS {
        for (at, _) in code.match_indices(asking) {
            let rest = &code[at + asking.len()..];
            keys.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    // Form: `name: low..=high,`
    let limits = code
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(_, range)| range.starts_with(|c: char| c.is_ascii_digit()) && range.contains("..="));
    keys.extend(limits.map(|(name, _)| name.to_owned()));
    keys
}

fn broken_links(file: &SourceFile, paths: &BTreeSet<&str>) -> Vec<Finding> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let Some(target) = line[at + 2..].split(')').next() else { continue };
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let path = resolve(folder, target);
            let below = format!("{path}/");
            if !paths.contains(path.as_str()) && !paths.iter().any(|p| p.starts_with(&below)) {
                let place = format!("{}:{}", file.path, number + 1);
                findings.push(Finding::new(place, format!("links to {target}, which is not there")));
            }
        }
    }
    findings
}

fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn texts(files: &[SourceFile]) -> Vec<String> {
        check(files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn broken_links_are_reported() {
        let there = file("docs/a.md", "[b](b.md#x) [c](../c.rs) [w](https://example.org) [f](../docs)");
        assert_eq!(texts(&[there, file("docs/b.md", ""), file("c.rs", "")]), [""; 0]);
        let gone = file("docs/a.md", "\n[b](b.md)");
        assert_eq!(texts(&[gone]), ["docs/a.md:2: links to b.md, which is not there"]);
    }

    #[test]
    fn an_undocumented_key_is_reported() {
        let code = "let a = root.texts(\"hosts\")?;\ntake! {\n    idle_ping_seconds: 5..=86_400,\n}\n\
                    #[cfg(test)]\nroot.text(\"no_key\")";
        let config = file(CONFIG, code);
        let found = texts(&[config, file(CONFIG_DOCUMENT, "`hosts`")]);
        assert_eq!(found, ["docs/config.md: does not explain the key `idle_ping_seconds`"]);
    }
}
