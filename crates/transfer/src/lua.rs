//! Values in Lua's syntax as Prosody's data store contains them (util.serialization of Prosody 0.12 and 13): `return VALUE;`
//! in `.dat` files, `item(VALUE);` repeated in `.list` files, which [`crate::lua_list`] reads as a stream.
//!
//! Nothing is executed. Constructors of tables, literals and the three divisions by zero that stand for numbers without a
//! literal are read; everything else is an error.
//!
//! Not implemented: long brackets (`[[text]]`), which no version of the serialiser writes; hexadecimal floating point.
//!
//! # Pitfalls
//!
//! A Lua string is bytes, not text. Keys that are no UTF-8 are found by no lookup.

/// Maximum nesting of tables. The serialiser stops at 127.
pub const MAX_DEPTH: usize = 200;

/// Maximum number of values in one text. A value of two bytes takes 64 bytes of memory.
pub const MAX_VALUES: usize = 500_000;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum LuaValue {
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Boolean(bool),
    /// Any number; integers above 2^53 lose digits.
    Number(f64),
    /// A string.
    Text(Vec<u8>),
    /// A table.
    Table(LuaTable),
}

/// A table: its pairs in the order of the text. Values without a key have those from 1.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct LuaTable {
    pairs: Vec<(LuaValue, LuaValue)>,
}

impl LuaTable {
    /// A table of these pairs.
    pub fn new(pairs: Vec<(LuaValue, LuaValue)>) -> LuaTable {
        LuaTable { pairs }
    }

    /// All pairs in the order of the text.
    pub fn pairs(&self) -> &[(LuaValue, LuaValue)] {
        &self.pairs
    }

    /// The value of a key; of duplicate keys the last one, as in Lua.
    pub fn get(&self, key: &str) -> Option<&LuaValue> {
        self.pairs.iter().rev().find(|(found, _)| found.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// The text of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The value of the key `false`, which Prosody uses for metadata.
    pub fn metadata(&self) -> Option<&LuaTable> {
        let found = self.pairs.iter().rev().find(|(key, _)| *key == LuaValue::Boolean(false));
        found.and_then(|(_, value)| value.as_table())
    }

    /// The values with the keys 1, 2, … in this order, up to the first that is missing.
    pub fn sequence(&self) -> Vec<&LuaValue> {
        let mut numbered: Vec<(u64, &LuaValue)> =
            self.pairs.iter().filter_map(|(key, value)| Some((key.as_u64()?, value))).collect();
        numbered.sort_by_key(|(number, _)| *number);
        let mut values = Vec::with_capacity(numbered.len());
        for (number, value) in numbered {
            let next = values.len() as u64 + 1;
            if number == next {
                values.push(value);
            } else if number > next {
                break;
            }
        }
        values
    }
}

impl LuaValue {
    /// A text value.
    pub fn from_text(text: &str) -> LuaValue {
        LuaValue::Text(text.as_bytes().to_vec())
    }

    /// The text, if it is a string in UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            LuaValue::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The table.
    pub fn as_table(&self) -> Option<&LuaTable> {
        match self {
            LuaValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// A number without a fraction that fits; those beyond 2^53 are refused because their digits are uncertain.
    pub fn as_u64(&self) -> Option<u64> {
        const LAST_EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            LuaValue::Number(number) if (0.0..=LAST_EXACT).contains(number) && number.fract() == 0.0 => {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the range was checked"
                )]
                let integer = *number as u64;
                Some(integer)
            }
            _ => None,
        }
    }
}

/// Text that is not a value of the data store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in line {line}")]
pub struct LuaError {
    /// What was found or is missing.
    pub what: &'static str,
    /// The line, from 1.
    pub line: u64,
}

/// Reads the text of a `.dat` file: `return VALUE;`, where `return` and the semicolon may be missing.
///
/// # Errors
/// The first place that is not part of a value.
pub fn parse_value(text: &[u8]) -> Result<LuaValue, LuaError> {
    let mut parser = LuaParser { text, at: 0, first_line: 1, values: 0 };
    parser.skip_space();
    if parser.word() == b"return" {
        parser.at += b"return".len();
    }
    let value = parser.value(0)?;
    parser.skip_space();
    parser.eat(b';');
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.error("text after the value"));
    }
    Ok(value)
}

/// Reads one `item(VALUE);` of a `.list` file; its first line is the file's `line`.
pub(crate) fn parse_item(text: &[u8], line: u64) -> Result<LuaValue, LuaError> {
    let mut parser = LuaParser { text, at: 0, first_line: line, values: 0 };
    parser.skip_space();
    parser.item()
}

struct LuaParser<'a> {
    text: &'a [u8],
    at: usize,
    /// Line of the beginning of the text.
    first_line: u64,
    /// Values read so far.
    values: usize,
}

impl<'a> LuaParser<'a> {
    fn error(&self, what: &'static str) -> LuaError {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        LuaError { what, line: self.first_line + lines as u64 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// White space, and comments to the end of the line.
    fn skip_space(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c) => self.at += 1,
                Some(b'-') if self.text.get(self.at + 1) == Some(&b'-') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The name at this place, without consuming it; empty if there is none.
    fn word(&self) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let starts = rest.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if starts { &rest[..length] } else { &[] }
    }

    fn item(&mut self) -> Result<LuaValue, LuaError> {
        if self.word() != b"item" {
            return Err(self.error("no item"));
        }
        self.at += b"item".len();
        self.skip_space();
        if !self.eat(b'(') {
            return Err(self.error("no parenthesis after item"));
        }
        let value = self.value(0)?;
        self.skip_space();
        if !self.eat(b')') {
            return Err(self.error("an item without an end"));
        }
        self.skip_space();
        self.eat(b';');
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<LuaValue, LuaError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error("too many values"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.table(depth),
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(LuaValue::Text),
            Some(b'(') => {
                self.at += 1;
                let number = self.number()?;
                self.skip_space();
                if self.eat(b')') { Ok(LuaValue::Number(number)) } else { Err(self.error("no parenthesis")) }
            }
            Some(b'-' | b'.' | b'0'..=b'9') => self.number().map(LuaValue::Number),
            Some(_) => {
                let value = match self.word() {
                    b"nil" => LuaValue::Nil,
                    b"true" => LuaValue::Boolean(true),
                    b"false" => LuaValue::Boolean(false),
                    _ => return Err(self.error("not a value")),
                };
                self.at += self.word().len();
                Ok(value)
            }
            None => Err(self.error("a value is missing")),
        }
    }

    fn table(&mut self, depth: usize) -> Result<LuaValue, LuaError> {
        if depth >= MAX_DEPTH {
            return Err(self.error("tables are nested too deeply"));
        }
        self.at += 1;
        let mut pairs = Vec::new();
        let mut numbered = 0.0;
        loop {
            self.skip_space();
            if self.eat(b'}') {
                return Ok(LuaValue::Table(LuaTable { pairs }));
            }
            let key = self.key(depth)?;
            let value = self.value(depth + 1)?;
            let key = key.unwrap_or_else(|| {
                numbered += 1.0;
                LuaValue::Number(numbered)
            });
            pairs.push((key, value));
            self.skip_space();
            if !self.eat(b';') && !self.eat(b',') && self.peek() != Some(b'}') {
                return Err(self.error("no separator in a table"));
            }
        }
    }

    /// The key with its equals sign, if the field has one.
    fn key(&mut self, depth: usize) -> Result<Option<LuaValue>, LuaError> {
        if self.eat(b'[') {
            let key = self.value(depth + 1)?;
            self.skip_space();
            if !self.eat(b']') {
                return Err(self.error("a key without an end"));
            }
            self.skip_space();
            if !self.eat(b'=') {
                return Err(self.error("a key without a value"));
            }
            return Ok(Some(key));
        }
        let (start, name) = (self.at, self.word());
        if name.is_empty() {
            return Ok(None);
        }
        self.at += name.len();
        self.skip_space();
        if self.eat(b'=') {
            return Ok(Some(LuaValue::Text(name.to_vec())));
        }
        // It is a value: `true`, `nil`.
        self.at = start;
        Ok(None)
    }

    /// A literal, or the quotient of two; `0/0` and `1/0` are how the serialiser writes what has no literal.
    fn number(&mut self) -> Result<f64, LuaError> {
        let number = self.literal()?;
        self.skip_space();
        if self.eat(b'/') {
            self.skip_space();
            return Ok(number / self.literal()?);
        }
        Ok(number)
    }

    fn literal(&mut self) -> Result<f64, LuaError> {
        self.skip_space();
        let negative = self.eat(b'-');
        self.skip_space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let number = if rest.len() > 1 && rest[0] == b'0' && matches!(rest[1], b'x' | b'X') {
            let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit());
            let mut number = 0.0;
            let mut length = 2;
            for digit in digits {
                number = number * 16.0 + char::from(*digit).to_digit(16).map_or(0.0, f64::from);
                length += 1;
            }
            self.at += length;
            (length > 2).then_some(number)
        } else {
            let mut length = 0;
            while let Some(byte) = rest.get(length) {
                let sign =
                    matches!(byte, b'+' | b'-') && length > 0 && matches!(rest[length - 1], b'e' | b'E');
                if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || sign) {
                    break;
                }
                length += 1;
            }
            self.at += length;
            std::str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse::<f64>().ok())
        };
        let number = number.ok_or_else(|| self.error("not a number"))?;
        Ok(if negative { -number } else { number })
    }

    fn string(&mut self, quote: u8) -> Result<Vec<u8>, LuaError> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let byte = self.peek().ok_or_else(|| self.error("a string without an end"))?;
            self.at += 1;
            match byte {
                b'\\' => self.escape(&mut bytes)?,
                b'\n' => return Err(self.error("a line end in a string")),
                byte if byte == quote => return Ok(bytes),
                byte => bytes.push(byte),
            }
        }
    }

    /// An escape sequence after its backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), LuaError> {
        let byte = self.peek().ok_or_else(|| self.error("a string without an end"))?;
        self.at += 1;
        bytes.push(match byte {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'"' | b'\'' | b'\n' => byte,
            b'z' => {
                self.skip_line_space();
                return Ok(());
            }
            b'x' => {
                let digits = self.text.get(self.at..self.at + 2);
                let byte = digits
                    .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
                    .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
                let byte = byte.ok_or_else(|| self.error("not a hexadecimal escape"))?;
                self.at += 2;
                byte
            }
            b'u' => {
                let character = self.braced_character().ok_or_else(|| self.error("not a character"))?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            b'0'..=b'9' => {
                let mut number = u32::from(byte - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'9') = self.peek() else { break };
                    number = number * 10 + u32::from(digit - b'0');
                    self.at += 1;
                }
                u8::try_from(number).map_err(|_| self.error("a decimal escape above 255"))?
            }
            _ => return Err(self.error("an unknown escape")),
        });
        Ok(())
    }

    fn skip_line_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == 0x0b) {
            self.at += 1;
        }
    }

    /// `{XXX}`.
    fn braced_character(&mut self) -> Option<char> {
        let rest = self.text.get(self.at..)?.strip_prefix(b"{")?;
        let length = rest.iter().take(7).position(|byte| *byte == b'}')?;
        let digits = &rest[..length];
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        self.at += length + 2;
        char::from_u32(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> LuaValue {
        LuaValue::from_text(text)
    }

    fn table(pairs: Vec<(LuaValue, LuaValue)>) -> LuaValue {
        LuaValue::Table(LuaTable::new(pairs))
    }

    fn value(source: &str) -> LuaValue {
        parse_value(source.as_bytes()).unwrap_or_else(|error| panic!("{source:?}: {error}"))
    }

    #[test]
    fn a_file_of_prosody_0_12_is_read() {
        let read = value(
            "return {\n\t[\"iteration_count\"] = 10000;\n\t[\"stored_key\"] = \"2e1d\";\n\t[\"salt\"] = \"a-b\";\n};\n",
        );
        let read = read.as_table().unwrap();
        assert_eq!(read.get("iteration_count").unwrap().as_u64(), Some(10_000));
        assert_eq!(read.text("stored_key"), Some("2e1d"));
        assert_eq!(read.text("missing"), None);
        let roster = value(
            "return { [false] = { [\"version\"] = 3; [\"pending\"] = {}; }; [\"a@b\"] = { groups = { [\"G\"] = true } }; }",
        );
        let roster = roster.as_table().unwrap();
        assert_eq!(roster.metadata().unwrap().get("version").unwrap().as_u64(), Some(3));
        assert_eq!(roster.pairs().len(), 2);
    }

    #[test]
    fn literals_of_the_serialiser_are_read() {
        for (source, expected) in [
            ("nil", LuaValue::Nil),
            ("true", LuaValue::Boolean(true)),
            ("-12", LuaValue::Number(-12.0)),
            ("1.5e+3", LuaValue::Number(1500.0)),
            ("0x1F", LuaValue::Number(31.0)),
            ("(1/0)", LuaValue::Number(f64::INFINITY)),
            ("(-1/0)", LuaValue::Number(f64::NEG_INFINITY)),
            ("'a'", text("a")),
            (r#""\065\n\"\\\'\x41\u{20AC}\z  b""#, text("A\n\"\\'A€b")),
            ("\"a\\\nb\"", text("a\nb")),
            (r#""\000\255""#, LuaValue::Text(vec![0, 255])),
            ("{}", table(vec![])),
            (
                "{ 1; \"b\", -- comment\n }",
                table(vec![
                    (LuaValue::Number(1.0), LuaValue::Number(1.0)),
                    (LuaValue::Number(2.0), text("b")),
                ]),
            ),
            ("{ name = \"x\" }", table(vec![(text("name"), text("x"))])),
            (
                "{ true; nil }",
                table(vec![
                    (LuaValue::Number(1.0), LuaValue::Boolean(true)),
                    (LuaValue::Number(2.0), LuaValue::Nil),
                ]),
            ),
        ] {
            assert_eq!(value(source), expected, "{source}");
        }
        assert!(matches!(value("(0/0)"), LuaValue::Number(number) if number.is_nan()));
    }

    #[test]
    fn text_that_is_not_a_value_is_refused() {
        for source in [
            "",
            "return",
            "return {",
            "{ [\"a\" = 1 }",
            "{ [\"a\"] 1 }",
            "\"a",
            "\"a\nb\"",
            "os.execute('x')",
            "{ f() }",
            "1 2",
            "\"\\q\"",
            "\"\\256\"",
            "\"\\xg0\"",
            "\"\\u{110000}\"",
            "-",
            "0x",
            "{ 1 2 }",
            "(1",
        ] {
            assert!(parse_value(source.as_bytes()).is_err(), "{source:?}");
        }
        let deep = "{".repeat(MAX_DEPTH + 1);
        assert_eq!(parse_value(deep.as_bytes()).unwrap_err().what, "tables are nested too deeply");
        let deep = format!("{}{}", "{".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        assert!(parse_value(deep.as_bytes()).is_ok());
    }

    #[test]
    fn an_error_names_the_line_and_the_number_of_values_is_limited() {
        let error = |source: &str| parse_value(source.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("return {\n\t[\"a\"] = 1;\n\t[\"b\"] = \"x"), "a string without an end in line 3");
        assert_eq!(error("\n\n{ -- 1\n f() }"), "not a value in line 4");
        let many = format!("{{{}}}", "1;".repeat(MAX_VALUES));
        assert_eq!(error(&many), "too many values in line 1");
        let huge = format!("-{}e{}", "9".repeat(100_000), "9".repeat(100_000));
        assert_eq!(value(&huge), LuaValue::Number(f64::NEG_INFINITY));
        assert_eq!(value(&huge).as_u64(), None);
    }

    #[test]
    fn a_sequence_ends_at_the_first_missing_number() {
        let list = value("{ \"a\"; [3] = \"c\"; [2] = \"b\"; [5] = \"e\"; name = \"message\" }");
        let list: Vec<_> =
            list.as_table().unwrap().sequence().into_iter().filter_map(LuaValue::as_str).collect();
        assert_eq!(list, ["a", "b", "c"]);
    }
}
