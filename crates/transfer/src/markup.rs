//! Markup of an XML document of any size, token by token: tags, text, the end of the document (XML 1.0, section 2).
//!
//! XEP-0227 files are one document with millions of accounts, so no part of the stream reader fits: that one expects small
//! elements at the first level. This reader finds boundaries only; what is taken out of it is read by [`xml::Tree`].
//! Comments and processing instructions, which XMPP forbids and files may contain, are dropped.
//!
//! Not implemented: encodings other than UTF-8, document type declarations.
//!
//! # Pitfalls
//!
//! An element is known to be well-formed only after [`xml::Tree`] has read it.

use std::io::BufRead;

/// Maximum size of a tag in bytes.
pub const MAX_TAG_BYTES: usize = 1 << 20;

/// Maximum size of an element that is collected, in bytes: that of the largest stanza.
pub const MAX_ELEMENT_BYTES: usize = 17 << 20;

/// Maximum number of tags in an element that is collected. A tag of four bytes takes 64 bytes of memory when it is read.
pub const MAX_ELEMENT_TAGS: usize = 500_000;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Markup {
    /// A start tag or an empty-element tag, from `<` to `>`.
    Start {
        /// The tag.
        tag: Vec<u8>,
        /// Whether it is an empty-element tag.
        empty: bool,
    },
    /// An end tag, from `<` to `>`.
    End(Vec<u8>),
    /// Character data or a CDATA section as written, possibly in several pieces.
    Text(Vec<u8>),
}

/// A document that cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum MarkupError {
    /// The operating system refused it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is not XML, or uses what is not implemented.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Reads tokens.
pub struct MarkupReader<R> {
    input: R,
    consumed: u64,
    line: u64,
}

/// Result of reading up to a delimiter.
#[derive(PartialEq, Eq)]
enum DelimiterOutcome {
    Found,
    /// The limit was reached before.
    TooLong,
    /// The document ended before.
    Missing,
}

impl<R: BufRead> MarkupReader<R> {
    /// A reader at the beginning of a document.
    pub fn new(input: R) -> MarkupReader<R> {
        MarkupReader { input, consumed: 0, line: 1 }
    }

    /// Bytes read so far.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The line of the next byte, from 1.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The next token; `None` at the end of the document.
    ///
    /// # Errors
    /// Those of the file, and markup that is not XML.
    pub fn next_token(&mut self) -> Result<Option<Markup>, MarkupError> {
        loop {
            let Some(first) = self.peek()? else { return Ok(None) };
            if first != b'<' {
                let mut text = Vec::new();
                self.read_text(&mut text)?;
                return Ok(Some(Markup::Text(text)));
            }
            if let Some(markup) = self.markup()? {
                return Ok(Some(markup));
            }
        }
    }

    /// Collects the element whose start tag was the last token: its bytes without comments. `None` if it is longer than
    /// [`MAX_ELEMENT_BYTES`] or has more than [`MAX_ELEMENT_TAGS`]; it is skipped then.
    ///
    /// # Errors
    /// As for [`MarkupReader::next_token`], and if the document ends inside.
    pub fn collect_element(&mut self, start: Vec<u8>, empty: bool) -> Result<Option<Vec<u8>>, MarkupError> {
        let mut element = start;
        let mut open = usize::from(!empty);
        let mut too_long = false;
        let mut tags = 1;
        while open > 0 {
            let piece = match self.next_token()? {
                Some(Markup::Start { tag, empty }) => {
                    tags += 1;
                    open += usize::from(!empty);
                    tag
                }
                Some(Markup::End(tag)) => {
                    tags += 1;
                    open -= 1;
                    tag
                }
                Some(Markup::Text(text)) => text,
                None => return Err(Self::malformed("an element without an end")),
            };
            too_long |= element.len() + piece.len() > MAX_ELEMENT_BYTES || tags > MAX_ELEMENT_TAGS;
            if too_long {
                element = Vec::new();
            } else {
                element.extend_from_slice(&piece);
            }
        }
        Ok((!too_long).then_some(element))
    }

    /// Skips the element whose start tag was the last token.
    ///
    /// # Errors
    /// As for [`MarkupReader::collect_element`].
    pub fn skip_element(&mut self, empty: bool) -> Result<(), MarkupError> {
        let mut open = usize::from(!empty);
        while open > 0 {
            match self.next_token()? {
                Some(Markup::Start { empty, .. }) => open += usize::from(!empty),
                Some(Markup::End(_)) => open -= 1,
                Some(Markup::Text(_)) => {}
                None => return Err(Self::malformed("an element without an end")),
            }
        }
        Ok(())
    }

    fn malformed(what: &'static str) -> MarkupError {
        MarkupError::Malformed(what)
    }

    fn peek(&mut self) -> Result<Option<u8>, MarkupError> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    fn next_byte(&mut self) -> Result<Option<u8>, MarkupError> {
        let byte = self.peek()?;
        if let Some(byte) = byte {
            self.input.consume(1);
            self.consumed += 1;
            self.line += u64::from(byte == b'\n');
        }
        Ok(byte)
    }

    /// Text up to the next `<` or the end of the buffer.
    fn read_text(&mut self, text: &mut Vec<u8>) -> Result<(), MarkupError> {
        let buffer = self.input.fill_buf()?;
        let length = buffer.iter().position(|byte| *byte == b'<').unwrap_or(buffer.len());
        let read = buffer.get(..length).unwrap_or_default();
        self.line += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        text.extend_from_slice(read);
        self.input.consume(length);
        self.consumed += length as u64;
        Ok(())
    }

    /// A tag or section; `None` for a comment or a processing instruction.
    fn markup(&mut self) -> Result<Option<Markup>, MarkupError> {
        self.next_byte()?;
        let mut bytes = vec![b'<'];
        match self.peek()? {
            Some(b'?') => {
                self.discard_until(b"?>")?;
                Ok(None)
            }
            Some(b'!') => {
                for _ in 0..3 {
                    bytes.extend(self.next_byte()?);
                }
                if bytes.as_slice() == b"<!--" {
                    self.discard_until(b"-->")?;
                    return Ok(None);
                }
                if bytes.as_slice() != b"<![C" {
                    return Err(Self::malformed("a document type declaration"));
                }
                match self.read_until(b"]]>", &mut bytes, MAX_ELEMENT_BYTES)? {
                    DelimiterOutcome::Found if bytes.starts_with(b"<![CDATA[") => {
                        Ok(Some(Markup::Text(bytes)))
                    }
                    DelimiterOutcome::TooLong => Err(Self::malformed("a section that is too long")),
                    _ => Err(Self::malformed("not a section")),
                }
            }
            Some(_) => self.tag(bytes).map(Some),
            None => Err(Self::malformed("a tag without an end")),
        }
    }

    fn tag(&mut self, mut tag: Vec<u8>) -> Result<Markup, MarkupError> {
        let mut quote = None;
        loop {
            let byte = self.next_byte()?.ok_or_else(|| Self::malformed("a tag without an end"))?;
            if tag.len() >= MAX_TAG_BYTES {
                return Err(Self::malformed("a tag that is too long"));
            }
            tag.push(byte);
            match (quote, byte) {
                (None, b'>') => break,
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'<') => return Err(Self::malformed("a tag in a tag")),
                (Some(open), _) if open == byte => quote = None,
                _ => {}
            }
        }
        Ok(match tag.as_slice() {
            [b'<', b'/', ..] => Markup::End(tag),
            [.., b'/', b'>'] => Markup::Start { tag, empty: true },
            _ => Markup::Start { tag, empty: false },
        })
    }

    fn discard_until(&mut self, end: &[u8]) -> Result<(), MarkupError> {
        let mut last = Vec::new();
        loop {
            match self.read_until(end, &mut last, MAX_TAG_BYTES)? {
                DelimiterOutcome::Found => return Ok(()),
                // Enough is kept to find a delimiter that spans both parts.
                DelimiterOutcome::TooLong => last = last.split_off(last.len() - end.len()),
                DelimiterOutcome::Missing => return Err(Self::malformed("a comment without an end")),
            }
        }
    }

    fn read_until(
        &mut self,
        end: &[u8],
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<DelimiterOutcome, MarkupError> {
        while let Some(byte) = self.next_byte()? {
            out.push(byte);
            if out.ends_with(end) {
                return Ok(DelimiterOutcome::Found);
            }
            if out.len() >= limit {
                return Ok(DelimiterOutcome::TooLong);
            }
        }
        Ok(DelimiterOutcome::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(document: &str) -> MarkupReader<std::io::BufReader<&[u8]>> {
        // A small buffer, so that tokens span several reads.
        MarkupReader::new(std::io::BufReader::with_capacity(4, document.as_bytes()))
    }

    fn tokens(document: &str) -> Result<Vec<String>, MarkupError> {
        let mut reader = reader(document);
        let mut found: Vec<String> = Vec::new();
        let mut in_text = false;
        while let Some(token) = reader.next_token()? {
            let (text, bytes) = match token {
                Markup::Start { tag, empty } => {
                    assert_eq!(tag.ends_with(b"/>"), empty);
                    (false, tag)
                }
                Markup::End(tag) => (false, tag),
                Markup::Text(text) => (true, text),
            };
            let bytes = String::from_utf8(bytes).unwrap();
            match found.last_mut().filter(|_| text && in_text) {
                Some(last) => last.push_str(&bytes),
                None => found.push(bytes),
            }
            in_text = text;
        }
        assert_eq!(reader.consumed(), document.len() as u64);
        Ok(found)
    }

    #[test]
    fn comments_and_instructions_are_dropped() {
        let document = "<?xml version='1.0'?><!-- a > b --><a k='>' l=\"/>\"><b/>text<!--x-->more</a>";
        assert_eq!(tokens(document).unwrap(), ["<a k='>' l=\"/>\">", "<b/>", "textmore", "</a>"]);
        assert_eq!(tokens("<a><![CDATA[<b>]]]]></a>").unwrap(), ["<a>", "<![CDATA[<b>]]]]>", "</a>"]);
        assert_eq!(tokens("<!----><a/>").unwrap(), ["<a/>"]);
    }

    #[test]
    fn what_is_no_markup_is_an_error() {
        for document in ["<a", "<!DOCTYPE a>", "<!-- a", "<a <b>", "<![CDATA[ x", "<", "<![Cxx]]>"] {
            assert!(tokens(document).is_err(), "{document}");
        }
    }

    #[test]
    fn an_element_is_collected_without_comments_or_skipped() {
        let mut collecting = reader("<a><b><!-- x --><b/>t</b></a><c/>");
        let Some(Markup::Start { tag, empty }) = collecting.next_token().unwrap() else { panic!() };
        assert_eq!(collecting.collect_element(tag, empty).unwrap().unwrap(), b"<a><b><b/>t</b></a>");
        let Some(Markup::Start { tag, empty }) = collecting.next_token().unwrap() else { panic!() };
        assert_eq!(collecting.collect_element(tag, empty).unwrap().unwrap(), b"<c/>");
        let mut skipping = reader("<a><b>t</b></a><c/>");
        skipping.next_token().unwrap();
        skipping.skip_element(false).unwrap();
        assert_eq!(
            skipping.next_token().unwrap(),
            Some(Markup::Start { tag: b"<c/>".to_vec(), empty: true })
        );
        let mut open = reader("<a><b>");
        open.next_token().unwrap();
        assert!(open.skip_element(false).is_err());
    }

    #[test]
    fn an_element_above_the_limit_is_skipped() {
        for content in ["x".repeat(MAX_ELEMENT_BYTES), "<x/>".repeat(MAX_ELEMENT_TAGS)] {
            let long = format!("<a>{content}</a><c/>");
            let mut reader = MarkupReader::new(long.as_bytes());
            let Some(Markup::Start { tag, empty }) = reader.next_token().unwrap() else { panic!() };
            assert_eq!(reader.collect_element(tag, empty).unwrap(), None);
            assert!(matches!(reader.next_token().unwrap(), Some(Markup::Start { empty: true, .. })));
        }
    }

    #[test]
    fn lines_are_counted_in_tags_texts_and_comments() {
        let mut reader = reader("<a\n k='\n'>\ntext\n<!--\n-->\n<b");
        while reader.next_token().is_ok_and(|token| token.is_some()) {}
        assert_eq!(reader.line(), 7);
    }
}
