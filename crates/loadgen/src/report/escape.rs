//! Escaping of text in HTML and SVG. Names of plans, servers, phases and metrics come from files and the network.
//!
//! # Pitfalls
//!
//! Everything in this folder that is not a literal must pass through [`escape`], attributes included.

use std::borrow::Cow;

/// Escapes text for the content of an element or a quoted attribute. Characters that XML does not allow become U+FFFD.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    let special =
        |c: char| matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}') || c.is_control();
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if special(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Truncates to `most` characters, with an ellipsis if anything is cut.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::{escape, shortened};

    #[test]
    fn names_are_escaped_in_markup() {
        assert_eq!(
            escape("<script a=\"b\" c='d'>&\u{0}"),
            "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;\u{fffd}"
        );
        assert_eq!(escape("Prüfung"), "Prüfung");
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("ä öü", 3), "ä…");
    }
}
