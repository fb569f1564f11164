//! Words that must not appear in the project's files.
//!
//! Hosts of package registries and absolute paths tie the tree to one machine or network; the organisation of the work
//! is of no use to a reader of the code.

use super::Finding;
use super::files::SourceFile;
use super::rust_lexer::has_word;

/// Hosts of registries. Files name the package, and the package manager knows its registry.
const HOSTS: [&str; 7] = [
    "crates.io",
    "npmjs.org",
    "npmjs.com",
    "pypi.org",
    "pythonhosted.org",
    "proxy.golang.org",
    "rubygems.org",
];
/// First components of absolute paths that exist on one machine only.
const FOLDERS: [&str; 3] = ["/work", "/root", "/home"];
/// Words about the organisation of the work.
const ORGANISATION_WORDS: [&str; 5] = ["agent", "agents", "subagent", "subagents", "sub-agent"];

/// Files that may contain the words: this list, lock files (written by tools), and the licence.
const EXEMPT: [&str; 2] = ["crates/xtask/src/tidy/forbidden_words.rs", "LICENSE"];

/// Checks one file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if EXEMPT.contains(&file.path.as_str()) || matches!(name, "Cargo.lock" | "package-lock.json") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        if let Some(text) = check_line(line) {
            findings.push(Finding::new(format!("{}:{}", file.path, number + 1), text));
        }
    }
    findings
}

fn check_line(line: &str) -> Option<String> {
    let lower = line.to_ascii_lowercase();
    if let Some(host) = HOSTS.iter().find(|host| lower.contains(**host)) {
        return Some(format!("names the registry {host}; name the package instead"));
    }
    if let Some(folder) = FOLDERS.iter().find(|folder| has_folder(&lower, folder)) {
        return Some(format!(
            "has a path below {folder}, which exists on one machine only; make it relative"
        ));
    }
    // `user-agent` is a term of HTTP and of XEP-0388.
    let text = lower.replace("user-agent", "").replace("user_agent", "").replace("user agent", "");
    if let Some(word) = ORGANISATION_WORDS.iter().find(|word| has_word(&text, word)) {
        return Some(format!("contains \"{word}\"; state the reason, not who did the work"));
    }
    if issue_number(&lower) {
        return Some("refers to a numbered issue; state the reason here".to_owned());
    }
    None
}

/// Whether the line has an absolute path below `folder`, not in the middle of another path.
fn has_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | ')' | '*'))
            && !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
    })
}

fn issue_number(line: &str) -> bool {
    line.match_indices("issue ").any(|(at, found)| {
        let rest = line[at + found.len()..].trim_start_matches('#');
        rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_words_are_reported() {
        for line in [
            "see https://crates.io/crates/xml",
            "registry = https://registry.npmjs.org/",
            "let path = \"/work/main\";",
            "cd /root && make",
            "(/home/alice/throng)",
            "written by an agent",
            "as issue 2 asks",
            "see Issue #17",
        ] {
            assert!(check_line(line).is_some(), "{line}");
        }
    }

    #[test]
    fn permitted_lines_are_not_reported() {
        for line in [
            "slixmpp (PyPI) and @xmpp/client (npm)",
            "$root/../../work/x",
            "https://example.org/work/1",
            "a route to /workers",
            "the <user-agent/> of SASL2",
            "an issue of 2 kinds",
            "reagent",
        ] {
            assert_eq!(check_line(line), None, "{line}");
        }
    }

    #[test]
    fn generated_lock_files_are_exempt() {
        let file =
            |path: &str| SourceFile { path: path.to_owned(), text: "https://registry.npmjs.org/".to_owned() };
        assert_eq!(check(&file("crates/e2e/clients/xmppjs/package-lock.json")), []);
        assert_eq!(check(&file("crates/e2e/clients/README.md")).len(), 1);
    }
}
