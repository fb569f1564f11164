//! Words that the project replaced by terms of the field: metaphors such as `desk` and `stranger`, and the section
//! sign.
//!
//! They are refused as words of identifiers (`desk_of`, `DeskSet`), comments and texts of every file that people read.
//! Each entry names the words to use instead.
//!
//! Not implemented: words that are right in some sentences (`line`, `keep`, `ask`); those are for reviews.
//!
//! # Pitfalls
//!
//! A quotation of a specification keeps its words: lines that begin with `//#` are not read, nor are the files of
//! `docs/compliance`.

use super::Finding;
use super::files::SourceFile;

/// The list itself, the rule that names examples, what quotes, and what describes earlier versions.
const EXEMPT: [&str; 6] = [
    "crates/xtask/src/tidy/metaphors.rs",
    "STYLE.md",
    "LICENSE",
    "CHANGELOG.md",
    "UPGRADING/",
    "docs/compliance",
];
const ENDINGS: [&str; 13] = [
    ".rs",
    ".md",
    ".js",
    ".py",
    ".erl",
    ".yml",
    ".html",
    ".css",
    ".sh",
    ".toml",
    ".scenario",
    "Makefile",
    ".ci/run",
];

/// Words, and what to write.
const WORDS: [(&str, &str); 37] = [
    ("absurd", "invalid"),
    ("births", "creations"),
    ("conductor", "coordinator"),
    ("crew", "workers, worker pool"),
    ("deed", "action"),
    ("deeds", "actions"),
    ("desk", "queue, map of queues"),
    ("desks", "queues, map of queues"),
    ("door", "listener, interface"),
    ("doorkeeper", "limiter"),
    ("doors", "listeners, interfaces"),
    ("dormant", "detached"),
    ("epitaph", "record"),
    ("grudge", "retry delay"),
    ("heard", "received, captured"),
    ("hears", "receives"),
    ("hoarded", "kept"),
    ("manners", "options"),
    ("mend", "fix, restore"),
    ("mended", "fixed, restored"),
    ("mends", "fixes, restores"),
    ("pump", "session input and output"),
    ("rhythm", "interval, schedule"),
    ("road", "route, path"),
    ("shed", "dropped, refused"),
    ("spoilt", "invalid"),
    ("stranger", "unauthenticated client, user without a subscription, other user"),
    ("strangers", "unauthenticated clients, users without a subscription, other users"),
    ("sung", "sent, run"),
    ("tally", "count"),
    ("teller", "completer, sender"),
    ("thief", "attacker, other client"),
    ("told", "reported, notified, received, sent; distinguished for \"told apart\""),
    ("tray", "batch in flight"),
    ("trays", "batches in flight"),
    ("unasked", "unsolicited"),
    ("whoever", "clients that, users who"),
];

/// Phrases, and what to write.
const PHRASES: [(&str, &str); 10] = [
    ("are to be", "must be, will be"),
    ("at the most", "at most"),
    ("for ever", "permanently, without an end"),
    ("had got", "had received"),
    ("has got", "has received"),
    ("have got", "have received"),
    ("is to be", "must be, will be"),
    ("sign of life", "ping, keep-alive"),
    ("so many", "that many, `N`, a number"),
    ("what came of", "result of"),
];

/// Checks one file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let path = file.path.as_str();
    if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) || !ENDINGS.iter().any(|end| path.ends_with(end))
    {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//#"))
        .flat_map(|(number, line)| {
            check_line(line).into_iter().map(move |text| Finding::new(format!("{path}:{}", number + 1), text))
        })
        .collect()
}

fn check_line(line: &str) -> Vec<String> {
    if line.contains('\u{a7}') {
        return vec!["cites with a sign; write: section".to_owned()];
    }
    let words = words(line);
    let text = format!(" {} ", words.join(" "));
    let listed = WORDS.iter().chain(&PHRASES);
    listed
        .filter(|(word, _)| text.contains(&format!(" {word} ")))
        .map(|(word, instead)| format!("contains \"{word}\"; write: {instead}"))
        .collect()
}

/// The words of a line in small letters; identifiers are split at `_` and at capitals.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for c in line.chars() {
        let starts = c.is_uppercase() && (previous.is_lowercase() || previous.is_ascii_digit());
        if starts || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaphors_are_found_in_identifiers_comments_and_texts() {
        for line in [
            "let told = 1;",
            "struct DeskSet;",
            "fn desk_of(a: A)",
            "const DOORS: u8 = 1;",
            "// Whoever reads this.",
            "\"a stranger\"",
            "/// It waits for ever.",
            "it is to be ended",
            "the peer has got it",
            "RFC 6120, \u{a7} 8.5",
        ] {
            assert_eq!(check_line(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn other_words_with_the_same_letters_are_not_found() {
        for line in
            ["desktop", "indoor", "broadcast", "the untold", "is_to_bed", "forever", "has gotten", "amend"]
        {
            assert_eq!(check_line(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn quotations_and_files_of_other_programs_are_not_read() {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        assert_eq!(check(&file("crates/a/src/b.rs", "//# the server is told\n")), []);
        assert_eq!(check(&file("UPGRADING/unreleased.md", "told\n")), []);
        assert_eq!(check(&file("crates/a/tests/data.xml", "told\n")), []);
        assert_eq!(check(&file("docs/a.md", "\nIt is told.\n"))[0].place, "docs/a.md:2");
    }

    #[test]
    fn the_list_is_sorted_and_has_no_word_twice() {
        assert!(WORDS.is_sorted_by(|a, b| a.0 < b.0) && PHRASES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
