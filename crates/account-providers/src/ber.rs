//! The part of BER (ITU-T X.690) that LDAP (RFC 4511, section 5.1) and public keys need: definite lengths, tags below 31.
//!
//! # Pitfalls
//!
//! Input comes from the network or from files of operators: nothing here panics, allocates by a length that was read, or
//! recurses.

/// Tag of a constructed SEQUENCE.
pub const SEQUENCE: u8 = 0x30;
/// Tag of a constructed SET.
pub const SET: u8 = 0x31;
/// Tag of BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// Tag of INTEGER.
pub const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of OBJECT IDENTIFIER.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tag of ENUMERATED.
pub const ENUMERATED: u8 = 0x0a;

/// The input breaks the encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct BerReader<'a>(&'a [u8]);

impl<'a> BerReader<'a> {
    /// Reads from the beginning.
    pub const fn new(input: &'a [u8]) -> BerReader<'a> {
        BerReader(input)
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next element.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its tag and content.
    ///
    /// # Errors
    /// If it is incomplete or uses another encoding.
    pub fn element(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let (tag, header, length) = head(self.0)?.ok_or(Malformed)?;
        let content = self.0.get(header..).and_then(|rest| rest.get(..length)).ok_or(Malformed)?;
        self.0 = self.0.get(header + length..).unwrap_or_default();
        Ok((tag, content))
    }

    /// The content of the next element, which must have this tag.
    ///
    /// # Errors
    /// If it has another one, or as [`BerReader::element`].
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(Malformed),
        }
    }

    /// A reader of the content of the next element.
    ///
    /// # Errors
    /// As [`BerReader::expect`].
    pub fn enter(&mut self, tag: u8) -> Result<BerReader<'a>, Malformed> {
        self.expect(tag).map(BerReader)
    }

    /// A number of at most 32 bits that is not negative, as INTEGER or ENUMERATED.
    ///
    /// # Errors
    /// If it is larger or negative, or as [`BerReader::expect`].
    pub fn number(&mut self, tag: u8) -> Result<u32, Malformed> {
        let content = self.expect(tag)?;
        match content {
            [] => Err(Malformed),
            [first, ..] if *first >= 0x80 => Err(Malformed),
            [0, rest @ ..] | rest if rest.len() <= 4 => {
                Ok(rest.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
            }
            _ => Err(Malformed),
        }
    }
}

/// Tag, length of the header, and length of the content; `None` if more input is needed.
///
/// # Errors
/// If the length is indefinite or has more than 32 bits, or the tag more than one byte.
pub fn head(input: &[u8]) -> Result<Option<(u8, usize, usize)>, Malformed> {
    let [tag, rest @ ..] = input else { return Ok(None) };
    if tag & 0x1f == 0x1f {
        return Err(Malformed);
    }
    match rest {
        [] => Ok(None),
        [length, ..] if *length < 0x80 => Ok(Some((*tag, 2, usize::from(*length)))),
        [length, bytes @ ..] => {
            let count = usize::from(length & 0x7f);
            if !(1..=4).contains(&count) {
                return Err(Malformed);
            }
            let Some(bytes) = bytes.get(..count) else { return Ok(None) };
            let length = bytes.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
            Ok(Some((*tag, 2 + count, usize::try_from(length).map_err(|_| Malformed)?)))
        }
    }
}

/// Appends an element.
pub fn write(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    write_length(out, content.len());
    out.extend_from_slice(content);
}

/// Appends a constructed element.
pub fn write_constructed(out: &mut Vec<u8>, tag: u8, content: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    content(&mut inner);
    write(out, tag, &inner);
}

/// Appends a number that is not negative, as INTEGER or ENUMERATED.
pub fn write_number(out: &mut Vec<u8>, tag: u8, number: u32) {
    let bytes = number.to_be_bytes();
    // The first bit is the sign.
    let first = (0..3).find(|at| bytes[*at] != 0 || bytes[*at + 1] >= 0x80).unwrap_or(3);
    if bytes[first] >= 0x80 {
        let mut content = [0; 5];
        content[1..].copy_from_slice(&bytes);
        return write(out, tag, &content);
    }
    write(out, tag, &bytes[first..]);
}

fn write_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
            let bytes = &bytes[first..];
            // At most eight.
            out.push(0x80 | u8::try_from(bytes.len()).unwrap_or(8));
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_shortest_encoding() {
        for (number, encoded) in [
            (0, &[2, 1, 0][..]),
            (1, &[2, 1, 1]),
            (127, &[2, 1, 127]),
            (128, &[2, 2, 0, 128]),
            (255, &[2, 2, 0, 255]),
            (256, &[2, 2, 1, 0]),
            (32_768, &[2, 3, 0, 128, 0]),
            (u32::MAX, &[2, 5, 0, 255, 255, 255, 255]),
        ] {
            let mut out = Vec::new();
            write_number(&mut out, INTEGER, number);
            assert_eq!(out, encoded, "{number}");
            assert_eq!(BerReader::new(&out).number(INTEGER), Ok(number));
        }
    }

    #[test]
    fn lengths_of_every_form_are_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let mut out = Vec::new();
            write(&mut out, OCTET_STRING, &vec![7; length]);
            let mut reader = BerReader::new(&out);
            assert_eq!(reader.expect(OCTET_STRING).map(<[u8]>::len), Ok(length));
            assert!(reader.is_empty());
        }
        // RFC 4511, section 5.1: other forms of the length are permitted, the indefinite one is not.
        assert_eq!(BerReader::new(&[4, 0x82, 0, 1, 9]).expect(OCTET_STRING), Ok(&[9][..]));
        assert_eq!(head(&[0x30, 0x80, 0, 0]), Err(Malformed));
        assert_eq!(head(&[0x30, 0x85, 1, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(head(&[0x1f, 0x01, 0]), Err(Malformed));
        assert_eq!(head(&[0x30, 0x82, 1]), Ok(None));
        assert_eq!(BerReader::new(&[4, 3, 1, 2]).element(), Err(Malformed));
        assert_eq!(BerReader::new(&[2, 1, 0x80]).number(INTEGER), Err(Malformed), "negative");
        assert_eq!(BerReader::new(&[2, 0]).number(INTEGER), Err(Malformed));
        assert_eq!(BerReader::new(&[2, 6, 0, 1, 1, 1, 1, 1]).number(INTEGER), Err(Malformed));
    }

    proptest! {
        #[test]
        fn random_input_never_panics(input in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = BerReader::new(&input);
            while !reader.is_empty() && reader.element().is_ok() {}
            let _ = BerReader::new(&input).number(INTEGER);
        }

        #[test]
        fn elements_are_read_back(tag in 0_u8..0x1f, content in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            write(&mut out, tag, &content);
            prop_assert_eq!(BerReader::new(&out).element(), Ok((tag, content.as_slice())));
        }
    }
}
