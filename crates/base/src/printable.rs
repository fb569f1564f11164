//! Escaping for logs: text chosen by clients must not end a line, move a terminal's cursor, or change the text
//! direction.
//!
//! Replaced by an escape such as `\n` or `\u{202e}`: control characters (Unicode category Cc), line and paragraph
//! separators, and format characters that are invisible or change the direction (Unicode Standard Annex 9, "Trojan
//! Source", CVE-2021-42574). Zero-width joiners stay: emoji and several scripts need them.
//!
//! Not implemented: confusable letters.
//!
//! # Pitfalls
//!
//! Text is truncated at a number of bytes of its escaped form.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Marks truncated text.
const ELLIPSIS: &str = "…";

/// Whether a character can have an effect other than being displayed.
pub const fn is_unsafe(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// The escaped text, of at most `most` bytes plus the truncation mark. Borrowed if nothing changes.
pub fn printable(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = Printable::new(most);
    let _ = out.write_str(text);
    Cow::Owned(out.finish())
}

/// Writer that escapes text up to a number of bytes and then fails, which stops formatting.
#[derive(Debug)]
pub struct Printable {
    text: String,
    most: usize,
    full: bool,
}

impl Printable {
    /// A writer with a limit of `most` bytes.
    pub const fn new(most: usize) -> Printable {
        Printable { text: String::new(), most, full: false }
    }

    /// The collected text, with a mark if it was truncated.
    pub fn finish(mut self) -> String {
        if self.full {
            self.text.push_str(ELLIPSIS);
        }
        self.text
    }
}

impl Write for Printable {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let begin = self.text.len();
            if is_unsafe(c) {
                self.text.extend(c.escape_default());
            } else {
                self.text.push(c);
            }
            if self.full || self.text.len() > self.most {
                self.text.truncate(begin);
                self.full = true;
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_is_unchanged() {
        for text in
            ["", "romeo@example.net/orchard", "Žluťoučký kůň", "日本語", "👩\u{200d}💻", "שלום", "a\\b\"c\""]
        {
            assert!(matches!(printable(text, 512), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn line_ends_and_control_characters_are_escaped() {
        for (text, expected) in [
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            ("\u{9b}31m\u{7f}\0", "\\u{9b}31m\\u{7f}\\u{0}"),
            ("\u{202e}gpj.exe\u{2066}", "\\u{202e}gpj.exe\\u{2066}"),
            ("\u{2028}\u{2029}\u{feff}\u{200b}", "\\u{2028}\\u{2029}\\u{feff}\\u{200b}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(printable(text, 512), expected);
        }
    }

    #[test]
    fn long_text_is_truncated_between_characters_after_escaping() {
        assert_eq!(printable(&"x".repeat(9_999), 512), format!("{}…", "x".repeat(512)));
        assert_eq!(printable(&"日".repeat(9_999), 512).len(), 510 + "…".len());
        assert_eq!(printable(&"\n".repeat(9_999), 5), "\\n\\n…");
    }
}
