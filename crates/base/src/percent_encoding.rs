//! Percent-encoding of texts in URLs: RFC 3986, section 2.1.

/// Percent-encodes everything that is not unreserved (RFC 3986, section 2.3).
pub fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Decodes such a text; `None` if it is malformed or not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let [high, low] =
            digits.map(|digit| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok()));
        bytes.push(high? << 4 | low?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for (text, encoded) in [
            ("a-b.c_d~1", "a-b.c_d~1"),
            ("münchen.example", "m%C3%BCnchen.example"),
            ("[::1]", "%5B%3A%3A1%5D"),
            ("a b/c?d#e%\r\n", "a%20b%2Fc%3Fd%23e%25%0D%0A"),
            ("", ""),
        ] {
            assert_eq!(percent_encode(text), encoded);
            assert_eq!(percent_decode(encoded).as_deref(), Some(text));
        }
        assert_eq!(
            percent_decode("münchen%2e").as_deref(),
            Some("münchen."),
            "not everything must be encoded"
        );
        for malformed in ["%", "%1", "%zz", "%+1", "%ff"] {
            assert_eq!(percent_decode(malformed), None, "{malformed}");
        }
    }
}
