//! Generator of docs/attacks.md: the coverage of the attack suite, from the opening comments of `crates/e2e/attacks`.
//!
//! An opening comment has a title and the paragraphs `Done: `, `Rule: ` and `Right: `; a test of the suite enforces
//! this.
//!
//! # Pitfalls
//!
//! A `|` in a comment would end a table cell, so it is escaped as a character reference.

use std::fs;
use std::path::Path;

use anyhow::Context;

const INTRODUCTION: &str = "\
# Attack tests

<!-- Written by `cargo xtask codegen` from the cases in crates/e2e/attacks. -->

The suite `crates/e2e/attacks` runs hostile clients over TCP, TLS, WebSocket, BOSH and HTTP against a node in the test's process or
against the program. Many cases are vulnerabilities of other servers and clients; the rule names the source. `make test` includes it. To
run it alone:

```sh
cargo build -p throng-server --bin throng
cargo test -p throng-e2e --test attacks
```

A case is one file that opens with its rule. The best report of a new vulnerability is a case that fails.

| Attack | Method | Rule and source | Expected behaviour |
| --- | --- | --- | --- |
";

/// Generates the page.
///
/// # Errors
/// If a file of the suite cannot be read.
pub(crate) fn attacks_page(root: &Path) -> anyhow::Result<String> {
    let folder = root.join("crates/e2e/attacks");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.ends_with(".rs") && name != "main.rs" {
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    files.sort();
    let mut out = INTRODUCTION.to_owned();
    for (name, text) in &files {
        out.push_str(&table_row(name, text));
    }
    Ok(out)
}

fn table_row(name: &str, text: &str) -> String {
    let opening: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let paragraphs: Vec<String> =
        opening.split(|line| line.is_empty()).map(|lines| lines.join(" ").replace('|', "&#124;")).collect();
    let title = paragraphs.first().map_or("", |title| title.trim_end_matches('.'));
    let part = |key: &str| {
        let found = paragraphs.iter().find_map(|paragraph| paragraph.strip_prefix(key)).unwrap_or_default();
        let mut chars = found.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    let (done, rule, right) = (part("Done: "), part("Rule: "), part("Right: "));
    format!("| [{title}](../crates/e2e/attacks/{name}) | {done} | {rule} | {right} |\n")
}

#[cfg(test)]
mod tests {
    use super::table_row;

    #[test]
    fn an_attack_becomes_a_table_row_from_its_opening_comment() {
        let text = "//! Bombs.\n//!\n//! Done: a `|` is\n//! sent.\n//!\n//! Rule: RFC 1.\n//!\n//! Right: no.\n\nuse x;\n//! Done: not this.\n";
        assert_eq!(
            table_row("bombs.rs", text),
            "| [Bombs](../crates/e2e/attacks/bombs.rs) | A `&#124;` is sent. | RFC 1. | No. |\n"
        );
    }
}
