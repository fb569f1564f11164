//! Encoding of a roster entry's name and groups as one compact column.
//!
//! ```text
//! label  = %x00 groups / %x01 text groups      first byte: whether there is a name
//! groups = *text
//! text   = length bytes                        length in LEB128, bytes in UTF-8
//! ```
//! An entry without name and groups has no label at all. Any text is allowed, also an empty one.

/// Encodes a label; `None` for an entry without name and groups.
pub(crate) fn encode(name: Option<&str>, groups: &[String]) -> Option<Vec<u8>> {
    if name.is_none() && groups.is_empty() {
        return None;
    }
    let mut label = vec![u8::from(name.is_some())];
    for text in name.into_iter().chain(groups.iter().map(String::as_str)) {
        let mut length = text.len();
        while length > 127 {
            label.push(128 | (length & 127) as u8);
            length >>= 7;
        }
        label.push(length as u8);
        label.extend_from_slice(text.as_bytes());
    }
    Some(label)
}

/// Decodes a label; `None` when the bytes are malformed.
pub(crate) fn decode(label: &[u8]) -> Option<(Option<String>, Vec<String>)> {
    let (first, mut rest) = match label {
        [] => return Some((None, Vec::new())),
        [first, rest @ ..] => (*first, rest),
    };
    let name = match first {
        0 => None,
        1 => Some(text(&mut rest)?),
        _ => return None,
    };
    let mut groups = Vec::new();
    while !rest.is_empty() {
        groups.push(text(&mut rest)?);
    }
    Some((name, groups))
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let mut length = 0usize;
    for shift in (0..35).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        length |= usize::from(byte & 127) << shift;
        if *byte < 128 {
            let (text, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            return Some(std::str::from_utf8(text).ok()?.to_owned());
        }
    }
    None
}

/// Decodes hexadecimal text.
pub(crate) fn decode_hex(text: &str) -> Option<Vec<u8>> {
    const fn digits() -> [u8; 256] {
        let (mut digits, mut value) = ([255; 256], 0);
        while value < 16 {
            digits[b"0123456789abcdef"[value] as usize] = value as u8;
            digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
            value += 1;
        }
        digits
    }
    const DIGITS: [u8; 256] = digits();
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = Vec::with_capacity(pairs.len());
    // 255 has bits that no digit has; checking once at the end is faster than at each digit.
    let mut seen = 0;
    for [high, low] in pairs {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        seen |= high | low;
        bytes.push(high << 4 | low);
    }
    (rest.is_empty() && seen < 16).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_labels_decode_to_the_same_name_and_groups() {
        let long = "ü".repeat(40_000);
        for name in [None, Some(""), Some("Ann \u{0}\n "), Some(long.as_str())] {
            for groups in [vec![], vec![String::new()], vec!["a".to_owned(), " a".to_owned(), long.clone()]] {
                let label = encode(name, &groups).unwrap_or_default();
                assert_eq!(decode(&label), Some((name.map(str::to_owned), groups)));
            }
        }
        assert_eq!(encode(None, &[]), None);
    }

    #[test]
    fn malformed_labels_and_hex_are_rejected() {
        for bad in [&[2u8][..], &[1], &[1, 5, b'a'], &[0, 128], &[0, 1, 0xff], &[0, 255, 255, 255, 255, 255]]
        {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
        assert_eq!(decode_hex("00fFa"), None);
        assert_eq!(decode_hex("0g"), None);
        assert_eq!(decode_hex("00fFa0"), Some(vec![0, 255, 160]));
    }
}
