//! Erlang terms in text, as `ejabberdctl dump` writes them (`io:format("~p.~n")`): a term, a full stop, white space.
//!
//! [`TermReader`] finds the terms of a file of any size, [`parse_term`] reads one. A dump is Latin-1: a byte of a binary is a
//! byte of the file, unless it is escaped.
//!
//! Not implemented: numbers beyond 64 bits as integers (they become [`ErlangTerm::Other`], as process ids, references and
//! functions do), bit strings whose length is no multiple of 8.
//!
//! # Pitfalls
//!
//! `~p` breaks long strings and binaries into several literals with white space between them, and writes a binary with an
//! unprintable byte as a list of numbers. Both are the same term.

use std::io::BufRead;

/// Maximum nesting of tuples, lists and maps.
pub const MAX_DEPTH: usize = 500;

/// Maximum size of one term in bytes; longer ones are skipped.
pub const MAX_TERM_BYTES: usize = 64 << 20;

/// Maximum number of terms in one term. A term of two bytes takes 32 bytes of memory.
pub const MAX_TERMS: usize = 500_000;

/// A term.
#[derive(Clone, Debug, PartialEq)]
pub enum ErlangTerm {
    /// An atom.
    Atom(String),
    /// An integer of 64 bits.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// A binary.
    Binary(Vec<u8>),
    /// A string literal, which is a list of characters.
    Text(String),
    /// A list; an improper tail is its last element.
    List(Vec<ErlangTerm>),
    /// A tuple.
    Tuple(Vec<ErlangTerm>),
    /// A map.
    Map(Vec<(ErlangTerm, ErlangTerm)>),
    /// A term without a literal: a process id, a reference, a function.
    Other,
}

impl ErlangTerm {
    /// The elements of a tuple.
    pub fn as_tuple(&self) -> Option<&[ErlangTerm]> {
        match self {
            ErlangTerm::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// The elements of a list. A string literal is a list, too, but never one of tuples.
    pub fn as_list(&self) -> Option<&[ErlangTerm]> {
        match self {
            ErlangTerm::List(elements) => Some(elements),
            ErlangTerm::Text(text) if text.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The name of an atom.
    pub fn as_atom(&self) -> Option<&str> {
        match self {
            ErlangTerm::Atom(name) => Some(name),
            _ => None,
        }
    }

    /// An integer.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            ErlangTerm::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// A text: a binary in UTF-8 or, in old databases, a string or a list of bytes.
    pub fn to_text(&self) -> Option<String> {
        match self {
            ErlangTerm::Binary(bytes) => String::from_utf8(bytes.clone()).ok(),
            ErlangTerm::Text(text) => {
                // Old versions stored the bytes of UTF-8 as characters.
                let bytes =
                    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>();
                Some(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| text.clone()))
            }
            ErlangTerm::List(elements) => {
                let bytes = elements.iter().map(|element| u8::try_from(element.as_integer()?).ok());
                String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
            }
            _ => None,
        }
    }
}

/// Text that is no term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ErlangError {
    /// What was found or is missing.
    pub what: &'static str,
    /// Line in the term, from 0.
    pub line: u64,
}

/// A term of a file as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermText {
    /// It, without its full stop.
    Complete(Vec<u8>),
    /// It was longer than [`MAX_TERM_BYTES`].
    TooLong,
}

/// Finds the terms of a file.
pub struct TermReader<R> {
    input: R,
    consumed: u64,
    /// The current line, and that in which the last term began, from 1.
    line: u64,
    first_line: u64,
}

/// Where in a term the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TermState {
    Plain,
    /// In quotes of this kind.
    Quoted(u8),
    /// After a backslash in quotes of this kind.
    Escaped(u8),
    /// After `$`, which makes the next character a number.
    Character,
    /// After `$\`.
    EscapedCharacter,
    Comment,
    /// After a full stop, which ends the term before white space.
    Stop,
}

impl<R: BufRead> TermReader<R> {
    /// A reader at the beginning of a file.
    pub fn new(input: R) -> TermReader<R> {
        TermReader { input, consumed: 0, line: 1, first_line: 1 }
    }

    /// The line in which the last term began, from 1.
    pub const fn first_line(&self) -> u64 {
        self.first_line
    }

    /// Bytes read so far.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The next term; `None` at the end of the file. A term that the end cuts off is returned as it is.
    ///
    /// # Errors
    /// Those of the file.
    pub fn next_term(&mut self) -> std::io::Result<Option<TermText>> {
        let mut term = Vec::new();
        let mut too_long = false;
        let mut state = TermState::Plain;
        self.first_line = self.line;
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                if state == TermState::Stop {
                    term.pop();
                }
                let blank = term.iter().all(u8::is_ascii_whitespace);
                return Ok((!blank || too_long).then(|| complete(term, too_long)));
            }
            let mut used = 0;
            let mut ended = false;
            for &byte in chunk {
                used += 1;
                if state == TermState::Stop && (byte.is_ascii_whitespace() || byte == b'%') {
                    term.pop();
                    ended = true;
                    // The comment belongs to the next term.
                    used -= usize::from(byte == b'%');
                    self.line += u64::from(byte == b'\n');
                    break;
                }
                self.line += u64::from(byte == b'\n');
                state = advance(state, byte);
                // The end of a line remains after a comment, so that lines can be counted.
                if term.is_empty() && (byte.is_ascii_whitespace() || state == TermState::Comment) {
                    self.first_line = self.line;
                    continue;
                }
                if state == TermState::Comment {
                    continue;
                }
                if term.len() < MAX_TERM_BYTES {
                    term.push(byte);
                } else {
                    too_long = true;
                }
            }
            self.input.consume(used);
            self.consumed += used as u64;
            if ended {
                return Ok(Some(complete(term, too_long)));
            }
        }
    }
}

fn complete(term: Vec<u8>, too_long: bool) -> TermText {
    if too_long { TermText::TooLong } else { TermText::Complete(term) }
}

fn advance(state: TermState, byte: u8) -> TermState {
    match (state, byte) {
        (TermState::Comment, b'\n') => TermState::Plain,
        (TermState::Comment, _) => TermState::Comment,
        (TermState::Quoted(quote), b'\\') => TermState::Escaped(quote),
        (TermState::Quoted(quote), byte) if byte == quote => TermState::Plain,
        (TermState::Quoted(quote) | TermState::Escaped(quote), _) => TermState::Quoted(quote),
        (TermState::Character, b'\\') => TermState::EscapedCharacter,
        (TermState::Character | TermState::EscapedCharacter, _) => TermState::Plain,
        (TermState::Plain | TermState::Stop, b'"' | b'\'') => TermState::Quoted(byte),
        (TermState::Plain | TermState::Stop, b'$') => TermState::Character,
        (TermState::Plain | TermState::Stop, b'%') => TermState::Comment,
        (TermState::Plain | TermState::Stop, b'.') => TermState::Stop,
        (TermState::Plain | TermState::Stop, _) => TermState::Plain,
    }
}

/// Reads one term without its full stop.
///
/// # Errors
/// The first place that is not part of a term.
pub fn parse_term(text: &[u8]) -> Result<ErlangTerm, ErlangError> {
    let mut parser = ErlangParser { text, at: 0, terms: 0 };
    let term = parser.term(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.error("text after the term"));
    }
    Ok(term)
}

struct ErlangParser<'a> {
    text: &'a [u8],
    at: usize,
    /// Terms read so far.
    terms: usize,
}

impl<'a> ErlangParser<'a> {
    fn error(&self, what: &'static str) -> ErlangError {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        ErlangError { what, line: before.iter().filter(|byte| **byte == b'\n').count() as u64 }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn term(&mut self, depth: usize) -> Result<ErlangTerm, ErlangError> {
        if depth > MAX_DEPTH {
            return Err(self.error("terms are nested too deeply"));
        }
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(self.error("too many terms"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.sequence(b"}", depth).map(ErlangTerm::Tuple)
            }
            Some(b'[') => {
                self.at += 1;
                self.sequence(b"]", depth).map(ErlangTerm::List)
            }
            Some(b'<') => self.angle(),
            Some(b'"') => self.strings().map(ErlangTerm::Text),
            Some(b'\'') => self.quoted(b'\'').map(ErlangTerm::Atom),
            Some(b'#') => self.hash(depth),
            Some(b'$') => self.character(),
            Some(b'-' | b'+' | b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z') => Ok(ErlangTerm::Atom(self.name())),
            Some(_) => Err(self.error("not a term")),
            None => Err(self.error("a term is missing")),
        }
    }

    fn name(&mut self) -> String {
        let rest = self.rest();
        let part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(**byte, b'_' | b'@');
        let length = rest.iter().take_while(part).count();
        self.at += length;
        rest[..length].iter().copied().map(char::from).collect()
    }

    /// Terms up to the closing bracket.
    fn sequence(&mut self, end: &[u8], depth: usize) -> Result<Vec<ErlangTerm>, ErlangError> {
        let mut terms = Vec::new();
        self.skip_space();
        if self.eat(end) {
            return Ok(terms);
        }
        loop {
            terms.push(self.term(depth + 1)?);
            self.skip_space();
            if self.eat(end) {
                return Ok(terms);
            }
            let separated = self.eat(b",") || (end == b"]" && self.eat(b"|"));
            if !separated {
                return Err(self.error("no separator in a list or tuple"));
            }
        }
    }

    /// A map, or a term without a literal such as `#Ref<0.1.2.3>`.
    fn hash(&mut self, depth: usize) -> Result<ErlangTerm, ErlangError> {
        self.at += 1;
        if self.eat(b"{") {
            let mut pairs = Vec::new();
            self.skip_space();
            if self.eat(b"}") {
                return Ok(ErlangTerm::Map(pairs));
            }
            loop {
                let key = self.term(depth + 1)?;
                self.skip_space();
                if !self.eat(b"=>") && !self.eat(b":=") {
                    return Err(self.error("a key without a value"));
                }
                pairs.push((key, self.term(depth + 1)?));
                self.skip_space();
                if self.eat(b"}") {
                    return Ok(ErlangTerm::Map(pairs));
                }
                if !self.eat(b",") {
                    return Err(self.error("no separator in a map"));
                }
            }
        }
        let named = self.rest().iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        self.at += named;
        if named == 0 || self.peek() != Some(b'<') {
            return Err(self.error("not a term"));
        }
        self.skip_angle()
    }

    /// Skips `<…>`, which may be nested.
    fn skip_angle(&mut self) -> Result<ErlangTerm, ErlangError> {
        let mut open = 0usize;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'<' => open += 1,
                b'>' => {
                    open -= 1;
                    if open == 0 {
                        return Ok(ErlangTerm::Other);
                    }
                }
                _ => {}
            }
        }
        Err(self.error("a term without an end"))
    }

    /// A binary or a process id.
    fn angle(&mut self) -> Result<ErlangTerm, ErlangError> {
        if !self.eat(b"<<") {
            return self.skip_angle();
        }
        let mut bytes = Vec::new();
        self.skip_space();
        if self.eat(b">>") {
            return Ok(ErlangTerm::Binary(bytes));
        }
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'"') => {
                    let text = self.strings()?;
                    if self.eat(b"/utf8") {
                        bytes.extend_from_slice(text.as_bytes());
                    } else {
                        for c in text.chars() {
                            let byte = u8::try_from(u32::from(c));
                            bytes.push(byte.map_err(|_| self.error("a character above 255 in a binary"))?);
                        }
                    }
                }
                Some(b'0'..=b'9') => {
                    let number = self.digits(10)?;
                    bytes.push(u8::try_from(number).map_err(|_| self.error("a byte above 255"))?);
                    if self.peek() == Some(b':') {
                        return Err(self.error("a bit string"));
                    }
                }
                _ => return Err(self.error("not a part of a binary")),
            }
            self.skip_space();
            if self.eat(b">>") {
                return Ok(ErlangTerm::Binary(bytes));
            }
            if !self.eat(b",") {
                return Err(self.error("a binary without an end"));
            }
        }
    }

    /// Adjacent string literals, which are one string.
    fn strings(&mut self) -> Result<String, ErlangError> {
        let mut text = self.quoted(b'"')?;
        loop {
            let end = self.at;
            self.skip_space();
            if self.peek() != Some(b'"') {
                self.at = end;
                return Ok(text);
            }
            text.push_str(&self.quoted(b'"')?);
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<String, ErlangError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.error("a string without an end"))?;
            self.at += 1;
            match byte {
                byte if byte == quote => return Ok(text),
                b'\\' => {
                    if let Some(c) = self.escape()? {
                        text.push(c);
                    }
                }
                byte => text.push(char::from(byte)),
            }
        }
    }

    /// An escape sequence after its backslash; `None` for an escaped line end.
    fn escape(&mut self) -> Result<Option<char>, ErlangError> {
        let byte = self.peek().ok_or_else(|| self.error("a string without an end"))?;
        self.at += 1;
        let number = match byte {
            b'\n' => return Ok(None),
            b'b' => 0x08,
            b'd' => 0x7f,
            b'e' => 0x1b,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b's' => 0x20,
            b't' => 0x09,
            b'v' => 0x0b,
            b'^' => {
                let byte = self.peek().ok_or_else(|| self.error("a string without an end"))?;
                self.at += 1;
                u32::from(byte & 31)
            }
            b'x' => {
                if self.eat(b"{") {
                    let number = self.digits(16)?;
                    if !self.eat(b"}") {
                        return Err(self.error("not a hexadecimal escape"));
                    }
                    u32::try_from(number).unwrap_or(u32::MAX)
                } else {
                    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                    let (high, low) = (digit(self.peek()), digit(self.text.get(self.at + 1).copied()));
                    let (Some(high), Some(low)) = (high, low) else {
                        return Err(self.error("not a hexadecimal escape"));
                    };
                    self.at += 2;
                    high * 16 + low
                }
            }
            b'0'..=b'7' => {
                let mut number = u32::from(byte - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'7') = self.peek() else { break };
                    number = number * 8 + u32::from(digit - b'0');
                    self.at += 1;
                }
                number
            }
            byte => u32::from(byte),
        };
        char::from_u32(number).map(Some).ok_or_else(|| self.error("not a character"))
    }

    fn character(&mut self) -> Result<ErlangTerm, ErlangError> {
        self.at += 1;
        let byte = self.peek().ok_or_else(|| self.error("a character is missing"))?;
        self.at += 1;
        let c = if byte == b'\\' { self.escape()?.unwrap_or('\n') } else { char::from(byte) };
        Ok(ErlangTerm::Integer(i64::from(u32::from(c))))
    }

    /// Digits of an unsigned number of 64 bits.
    fn digits(&mut self, radix: u32) -> Result<u64, ErlangError> {
        let mut number: u64 = 0;
        let mut length = 0;
        while let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(radix)) {
            number = number
                .checked_mul(u64::from(radix))
                .and_then(|number| number.checked_add(u64::from(digit)))
                .ok_or_else(|| self.error("a number above 64 bits"))?;
            self.at += 1;
            length += 1;
        }
        if length == 0 { Err(self.error("a number is missing")) } else { Ok(number) }
    }

    fn number(&mut self) -> Result<ErlangTerm, ErlangError> {
        let negative = self.eat(b"-");
        if !negative {
            self.eat(b"+");
        }
        let start = self.at;
        let rest = self.rest();
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return Err(self.error("a number is missing"));
        }
        match (rest.get(length), rest.get(length + 1)) {
            (Some(b'#'), _) => {
                let radix = u32::try_from(self.digits(10)?).unwrap_or(0);
                if !(2..=36).contains(&radix) {
                    return Err(self.error("not a number"));
                }
                self.at += 1;
                let number = self.digits(radix)?;
                Ok(integer(negative, Some(number)))
            }
            (Some(b'.'), Some(b'0'..=b'9')) => {
                let part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E');
                let mut end = length + 1;
                while rest.get(end).is_some_and(|byte| {
                    part(byte) || (matches!(byte, b'+' | b'-') && matches!(rest[end - 1], b'e' | b'E'))
                }) {
                    end += 1;
                }
                self.at = start + end;
                let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse::<f64>().ok());
                let number = number.ok_or_else(|| self.error("not a number"))?;
                Ok(ErlangTerm::Float(if negative { -number } else { number }))
            }
            _ => {
                self.at = start + length;
                let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
                Ok(integer(negative, text.parse().ok()))
            }
        }
    }
}

/// An integer; [`ErlangTerm::Other`] beyond 64 bits.
fn integer(negative: bool, number: Option<u64>) -> ErlangTerm {
    let number = number.and_then(|number| {
        if negative { 0i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
    });
    number.map_or(ErlangTerm::Other, ErlangTerm::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(text: &str) -> ErlangTerm {
        parse_term(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn binary(text: &str) -> ErlangTerm {
        ErlangTerm::Binary(text.as_bytes().to_vec())
    }

    fn terms(file: &[u8]) -> Vec<Vec<u8>> {
        // A small buffer, so that terms span several chunks.
        let mut reader = TermReader::new(std::io::BufReader::with_capacity(3, file));
        let mut found = Vec::new();
        while let Some(term) = reader.next_term().unwrap() {
            let TermText::Complete(term) = term else { panic!("too long") };
            found.push(term);
        }
        assert_eq!(reader.consumed(), file.len() as u64);
        found
    }

    #[test]
    fn terms_end_with_a_full_stop_before_white_space() {
        let found =
            terms(b"%% coding\n{a,1.5,\"x. y\"}.\n\n'b. \\' .'.\n[$.,$\\.,<<\". \">>].%c. \n{last, 'cut off");
        let shown: Vec<_> = found.iter().map(|term| String::from_utf8_lossy(term).into_owned()).collect();
        assert_eq!(shown, ["{a,1.5,\"x. y\"}", "'b. \\' .'", "[$.,$\\.,<<\". \">>]", "{last, 'cut off"]);
        assert_eq!(terms(b"a."), [b"a".to_vec()]);
        assert!(terms(b" \n").is_empty());
    }

    #[test]
    fn lines_are_counted_with_comments_and_in_terms() {
        let file = b"% one\n{a,\n b}.\n\n% four\n{c, % five\n d, E}. \n{f";
        let mut reader = TermReader::new(std::io::BufReader::with_capacity(3, file.as_slice()));
        let mut lines = Vec::new();
        while let Some(TermText::Complete(term)) = reader.next_term().unwrap() {
            lines.push((
                reader.first_line(),
                parse_term(&term).err().map(|error| reader.first_line() + error.line),
            ));
        }
        assert_eq!(lines, [(2, None), (6, Some(7)), (8, Some(8))]);
    }

    #[test]
    fn records_of_a_dump_are_read() {
        let roster = term(
            "{roster,{<<\"juliet\">>,<<\"capulet.lit\">>,{<<\"romeo\">>,<<\"montague.lit\">>,<<>>}},none,\n  [<<\"A\">>|tail],#{a => 1},-7}",
        );
        let roster = roster.as_tuple().unwrap();
        assert_eq!(roster[0].as_atom(), Some("roster"));
        assert_eq!(roster[1].as_tuple().unwrap()[0].to_text().as_deref(), Some("juliet"));
        assert_eq!(roster[3].as_list().unwrap().len(), 2);
        assert_eq!(roster[4], ErlangTerm::Map(vec![(ErlangTerm::Atom("a".into()), ErlangTerm::Integer(1))]));
        assert_eq!(roster[5].as_integer(), Some(-7));
    }

    #[test]
    fn all_forms_of_a_binary_are_the_same() {
        for text in [
            "<<\"\u{e9}a\">>".replace('\u{e9}', "\\303\\251"),
            "<<195,169,97>>".to_owned(),
            "<<195,169,\"a\">>".to_owned(),
            "<<\"\\xc3\"\n   \"\\x{A9}a\">>".to_owned(),
            "<<\"\\x{E9}a\"/utf8>>".to_owned(),
        ] {
            assert_eq!(term(&text), binary("éa"), "{text}");
        }
        assert_eq!(parse_term(b"<<\"\xc3\xa9a\">>").unwrap(), binary("éa"), "Latin-1, byte by byte");
        assert_eq!(term("<<>>"), binary(""));
    }

    #[test]
    fn texts_of_old_databases_are_bytes_in_strings_and_lists() {
        assert_eq!(term("\"romeo\"").to_text().as_deref(), Some("romeo"));
        assert_eq!(parse_term(b"\"\xc3\xa9\"").unwrap().to_text().as_deref(), Some("é"));
        assert_eq!(term("[195,169]").to_text().as_deref(), Some("é"));
        assert_eq!(term("[300]").to_text(), None);
        assert_eq!(term("a").to_text(), None);
        assert_eq!(term("[]").to_text().as_deref(), Some(""));
    }

    #[test]
    fn numbers_and_terms_without_a_literal() {
        for (text, expected) in [
            ("16#ff", ErlangTerm::Integer(255)),
            ("-9223372036854775808", ErlangTerm::Integer(i64::MIN)),
            ("9223372036854775808", ErlangTerm::Other),
            ("99999999999999999999999", ErlangTerm::Other),
            ("-1.5e-3", ErlangTerm::Float(-0.0015)),
            ("$a", ErlangTerm::Integer(97)),
            ("$\\n", ErlangTerm::Integer(10)),
            ("<0.1.2>", ErlangTerm::Other),
            ("#Ref<0.1.2.3>", ErlangTerm::Other),
            ("#Fun<a.1.2>", ErlangTerm::Other),
            ("'Quoted Atom'", ErlangTerm::Atom("Quoted Atom".into())),
            ("user@host", ErlangTerm::Atom("user@host".into())),
        ] {
            assert_eq!(term(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_term_is_refused() {
        for text in [
            "", "{", "{a", "{a b}", "[a,]", "<<1", "<<256>>", "<<1:3>>", "\"a", "#{a}", "#a", "Var", "-",
            "a b",
        ] {
            assert!(parse_term(text.as_bytes()).is_err(), "{text:?}");
        }
        let many = format!("[{}1]", "1,".repeat(MAX_TERMS));
        assert_eq!(parse_term(many.as_bytes()).unwrap_err().what, "too many terms");
        let deep = "{".repeat(MAX_DEPTH + 2);
        assert_eq!(parse_term(deep.as_bytes()).unwrap_err().what, "terms are nested too deeply");
    }
}
