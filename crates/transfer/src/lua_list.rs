//! Prosody's `.list` files as a stream: `item(VALUE);`, repeated. A file has the offline messages of an account, or the items of
//! a node, and may be larger than the memory.
//!
//! [`LuaListReader`] finds where an item ends by its parentheses and quotes; [`crate::lua`] reads it.
//!
//! # Pitfalls
//!
//! The file is appended to, so its end may have been cut off. What is complete before is returned first.

use std::io::BufRead;

use crate::lua::{LuaError, LuaValue, parse_item};

/// Maximum size of an item in bytes; longer ones are skipped. A stanza of the maximum size may have four bytes for each of its
/// own.
pub const MAX_ITEM_BYTES: usize = 64 << 20;

/// A step through a file.
#[derive(Clone, Debug, PartialEq)]
pub enum LuaListItem {
    /// The value of an item.
    Value(LuaValue),
    /// An item longer than [`MAX_ITEM_BYTES`], by its first line.
    TooLong(u64),
    /// Text that is not an item; nothing after it is read.
    Broken(LuaError),
}

/// Reads items.
pub struct LuaListReader<R> {
    input: R,
    /// The current line, from 1.
    line: u64,
    broken: bool,
}

/// Where in an item the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemState {
    Plain,
    /// In quotes of this kind.
    Quoted(u8),
    /// After a backslash in quotes of this kind.
    Escaped(u8),
    /// After a hyphen, of which two begin a comment.
    Hyphen,
    Comment,
}

impl ItemState {
    const fn after(self, byte: u8) -> ItemState {
        match (self, byte) {
            (ItemState::Comment, b'\n') => ItemState::Plain,
            (ItemState::Comment, _) | (ItemState::Hyphen, b'-') => ItemState::Comment,
            (ItemState::Quoted(quote), b'\\') => ItemState::Escaped(quote),
            (ItemState::Quoted(quote), byte) if byte == quote => ItemState::Plain,
            (ItemState::Quoted(quote) | ItemState::Escaped(quote), _) => ItemState::Quoted(quote),
            (ItemState::Plain | ItemState::Hyphen, b'"' | b'\'') => ItemState::Quoted(byte),
            (ItemState::Plain, b'-') => ItemState::Hyphen,
            (ItemState::Plain | ItemState::Hyphen, _) => ItemState::Plain,
        }
    }
}

impl<R: BufRead> LuaListReader<R> {
    /// A reader at the beginning of a file.
    pub const fn new(input: R) -> LuaListReader<R> {
        LuaListReader { input, line: 1, broken: false }
    }

    /// Reads nothing more.
    pub(crate) fn end(&mut self) {
        self.broken = true;
    }

    /// The next item; `None` at the end of the file and after [`LuaListItem::Broken`].
    ///
    /// # Errors
    /// Those of the file.
    pub fn next_item(&mut self) -> std::io::Result<Option<LuaListItem>> {
        if self.broken {
            return Ok(None);
        }
        let mut text = Vec::new();
        let mut first_line = self.line;
        let mut too_long = false;
        let mut state = ItemState::Plain;
        let mut open = 0u64;
        let mut ended = false;
        while !ended {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let mut used = 0;
            for &byte in chunk {
                used += 1;
                self.line += u64::from(byte == b'\n');
                if text.is_empty() && (byte.is_ascii_whitespace() || byte == b';') {
                    first_line = self.line;
                    continue;
                }
                let before = state;
                state = state.after(byte);
                if text.len() < MAX_ITEM_BYTES {
                    text.push(byte);
                } else {
                    too_long = true;
                }
                if state == ItemState::Plain && matches!(before, ItemState::Plain | ItemState::Hyphen) {
                    open += u64::from(byte == b'(');
                    // A parenthesis that closes nothing ends an item that is not one.
                    ended = byte == b')' && open <= 1;
                    open -= u64::from(byte == b')' && open > 1);
                }
                if ended {
                    break;
                }
            }
            self.input.consume(used);
        }
        if too_long {
            return Ok(Some(LuaListItem::TooLong(first_line)));
        }
        if !ended && is_blank(&text) {
            return Ok(None);
        }
        Ok(Some(match parse_item(&text, first_line) {
            Ok(value) => LuaListItem::Value(value),
            Err(error) => {
                self.broken = true;
                LuaListItem::Broken(error)
            }
        }))
    }
}

/// Whether a text is white space and comments, as after the last item.
fn is_blank(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').all(|line| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"--")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(file: &[u8]) -> Vec<LuaListItem> {
        // A small buffer, so that items span several chunks.
        let mut reader = LuaListReader::new(std::io::BufReader::with_capacity(3, file));
        std::iter::from_fn(|| reader.next_item().unwrap()).collect()
    }

    fn texts(file: &str) -> Vec<String> {
        let shown = |item| match item {
            LuaListItem::Value(LuaValue::Text(text)) => String::from_utf8_lossy(&text).into_owned(),
            LuaListItem::Value(other) => format!("{other:?}"),
            LuaListItem::TooLong(line) => format!("too long in line {line}"),
            LuaListItem::Broken(error) => error.to_string(),
        };
        items(file.as_bytes()).into_iter().map(shown).collect()
    }

    #[test]
    fn an_item_ends_with_its_parenthesis_and_not_with_one_in_quotes_or_comments() {
        assert_eq!(
            texts("item(\"a)\\\"(\");\nitem('\")');item (\n'c' -- :)\n)\n-- end"),
            ["a)\"(", "\")", "c"]
        );
        assert_eq!(texts("-- first\nitem(\"a\")item(\"b\")"), ["a", "b"]);
        assert_eq!(texts(""), Vec::<String>::new());
        assert!(matches!(items(b"item((1/0)); item(-1);").as_slice(),
            [LuaListItem::Value(LuaValue::Number(first)), LuaListItem::Value(LuaValue::Number(second))]
            if first.is_infinite() && *second < 0.0));
    }

    #[test]
    fn items_before_a_write_that_was_cut_off_are_kept_and_the_line_is_named() {
        assert_eq!(texts("item(\"a\");\nitem(\n{ \"tw"), ["a", "a string without an end in line 3"]);
        assert_eq!(texts("item(\"a\");\n\nitem({ 1"), ["a", "no separator in a table in line 3"]);
        assert_eq!(texts("item(\"a\");\nitem(\"b\nitem(\"c\");"), ["a", "a line end in a string in line 3"]);
        assert_eq!(texts("return {};"), ["no item in line 1"]);
        assert_eq!(texts(")item(1)"), ["no item in line 1"]);
    }

    #[test]
    fn an_item_above_the_limit_is_skipped() {
        let long = format!("item(\"a\");\nitem(\"{}\");\nitem(\"b\");", "x".repeat(MAX_ITEM_BYTES));
        let mut reader = LuaListReader::new(long.as_bytes());
        assert!(matches!(reader.next_item().unwrap(), Some(LuaListItem::Value(_))));
        assert_eq!(reader.next_item().unwrap(), Some(LuaListItem::TooLong(2)));
        assert!(matches!(reader.next_item().unwrap(), Some(LuaListItem::Value(_))));
        assert_eq!(reader.next_item().unwrap(), None);
    }
}
