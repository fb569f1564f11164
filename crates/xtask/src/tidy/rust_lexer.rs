//! Minimal Rust lexer that separates code from comments and literals, and code from its tests.

/// Blanks out comments and the content of literals; line numbers are preserved.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1, b'"'),
            b'r' if !word_before(bytes, at) || has_string_prefix(bytes, at) => match raw_end(bytes, at + 1) {
                Some(end) => end,
                None => at,
            },
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Numbers (from 1) of the lines whose code contains `word` as a whole word.
pub(crate) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    code.lines().enumerate().filter(|(_, line)| has_word(line, word)).map(|(n, _)| n + 1).collect()
}

/// Whether `line` contains `word` as a whole word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(of_word) && !line[at + word.len()..].starts_with(of_word))
}

/// Number of lines without `#[cfg(test)] mod … { … }` blocks, which rustfmt ends with `}` in column 0.
pub(crate) fn lines_without_tests(text: &str) -> usize {
    without_tests(text).lines().count()
}

/// The text without `#[cfg(test)] mod … { … }` blocks.
pub(crate) fn without_tests(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut in_tests = false;
    // Position of the attribute, if only attributes follow it.
    let mut attribute = None;
    for line in text.lines() {
        if in_tests {
            in_tests = line != "}";
            continue;
        }
        if let Some(start) = attribute
            && line.starts_with("mod ")
            && line.ends_with('{')
        {
            in_tests = true;
            kept.truncate(start);
            attribute = None;
            continue;
        }
        attribute = match line {
            "#[cfg(test)]" => Some(kept.len()),
            // Other attributes may stand between the two.
            _ => attribute.filter(|_| line.starts_with("#[")),
        };
        kept.push(line);
    }
    kept.join("\n")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth = depth.saturating_sub(1),
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of a raw string whose `#`s or quote begin at `at`.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|b| **b == b'#').count();
    let mut open = at + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None; // a name such as `r#type`, or just the letter
    }
    open += 1;
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let found = bytes[open..].windows(close.len()).position(|w| w == close);
    Some(found.map_or(bytes.len(), |n| open + n + close.len()))
}

/// End of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return Some(string_end(bytes, at + 1, b'\''));
    }
    // One character of up to four bytes, then the quote.
    let text = std::str::from_utf8(bytes.get(at + 1..(at + 6).min(bytes.len()))?);
    let text =
        text.unwrap_or_else(|e| std::str::from_utf8(&bytes[at + 1..at + 1 + e.valid_up_to()]).unwrap_or(""));
    let first = text.chars().next()?;
    let end = at + 1 + first.len_utf8();
    (bytes.get(end) == Some(&b'\'')).then_some(end + 1)
}

fn word_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// Whether the `r` or quote at `at` follows a prefix `b` or `c`.
fn has_string_prefix(bytes: &[u8], at: usize) -> bool {
    at > 0 && matches!(bytes[at - 1], b'b' | b'c') && !word_before(bytes, at - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_no_code() {
        for text in [
            "// unsafe",
            "/* unsafe /* unsafe */ unsafe */",
            "let a = \"unsafe \\\" unsafe\";",
            "let a = r#\"unsafe \" unsafe\"#;",
            "let a = br\"unsafe\";",
            "let unsafe_code = 1;",
        ] {
            assert_eq!(lines_with(&code_only(text), "unsafe"), [0; 0], "{text}");
        }
    }

    #[test]
    fn words_in_code_are_found_where_they_are() {
        for (text, line) in [
            ("unsafe { f() }", 1),
            ("fn f<'a>(x: &'a str) {\n    unsafe { g(x) }", 2),
            ("let a = '\"'; unsafe {}", 1),
            ("let a = '\\''; unsafe {}", 1),
            ("let a = \"/*\";\n\nunsafe {}", 3),
            ("let a = r\"\\\"; unsafe {}", 1),
            ("let a = 'é'; unsafe {}", 1),
        ] {
            assert_eq!(lines_with(&code_only(text), "unsafe"), [line], "{text}");
        }
    }

    #[test]
    fn lines_of_test_modules_are_not_counted() {
        assert_eq!(lines_without_tests("a\nb\n"), 2);
        assert_eq!(lines_without_tests("a\n\n#[cfg(test)]\nmod tests {\n    x\n}\nb\n"), 3);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\n"), 3);
    }
}
