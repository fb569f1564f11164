//! WebSocket frames: headers, masks and close codes (RFC 6455, sections 5.2 to 5.5 and 7.4).
//!
//! Not implemented: the meaning of payloads.
//!
//! # Pitfalls
//!
//! A length has exactly one valid encoding. A longer one is refused (section 5.2), so that no intermediary can see
//! another boundary.

use crate::websocket::Violation;

/// Maximum payload of a control frame (section 5.5).
pub(crate) const MAX_CONTROL_BYTES: usize = 125;
/// Continuation of a message.
pub(crate) const CONTINUATION: u8 = 0;
/// Text message.
pub(crate) const TEXT: u8 = 1;
/// Binary message, which RFC 7395, section 3.2 forbids.
pub(crate) const BINARY: u8 = 2;
/// Closing handshake.
pub(crate) const CLOSE: u8 = 8;
/// Ping.
pub(crate) const PING: u8 = 9;
/// Pong.
pub(crate) const PONG: u8 = 10;

const FIN: u8 = 0x80;
/// The message is compressed (RFC 7692).
const RSV1: u8 = 0x40;
const MASKED: u8 = 0x80;

/// Header of a frame from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Last frame of its message.
    pub(crate) fin: bool,
    /// The message is compressed.
    pub(crate) compressed: bool,
    pub(crate) opcode: u8,
    pub(crate) key: [u8; 4],
    /// Size of the payload in bytes.
    pub(crate) length: u64,
    /// Size of the header in bytes.
    pub(crate) size: usize,
}

impl Header {
    /// Parses a header; `None` if it is incomplete. Errors are returned as soon as the bytes that show them are
    /// received.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Header>, Violation> {
        let (Some(&first), second) = (bytes.first(), bytes.get(1)) else { return Ok(None) };
        let opcode = first & 0x0F;
        let (last, deflated) = (first & FIN != 0, first & RSV1 != 0);
        let control = opcode >= CLOSE;
        if first & 0x30 != 0 {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        match opcode {
            CONTINUATION | TEXT | CLOSE | PING | PONG => {}
            BINARY => return Err(Violation::new(1003, "binary messages are not supported")),
            _ => return Err(Violation::protocol("the opcode is unknown")),
        }
        if control && !last {
            return Err(Violation::protocol("a control frame is fragmented"));
        }
        if deflated && opcode != TEXT {
            return Err(Violation::protocol(
                "the compression bit is set in a frame that is not the first of its message",
            ));
        }
        let Some(&second) = second else { return Ok(None) };
        if second & MASKED == 0 {
            return Err(Violation::protocol("a frame from a client is not masked"));
        }
        let short = second & 0x7F;
        if control && usize::from(short) > MAX_CONTROL_BYTES {
            return Err(Violation::protocol("a control frame is longer than 125 bytes"));
        }
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + extended + 4;
        let (Some(length), Some(key)) = (bytes.get(2..2 + extended), bytes.get(2 + extended..size)) else {
            return Ok(None);
        };
        let length = match extended {
            0 => u64::from(short),
            _ => length.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        };
        let shortest = match extended {
            0 => true,
            2 => length > 125,
            _ => length > 0xFFFF && length >> 63 == 0,
        };
        if !shortest {
            return Err(Violation::protocol("the length is not in its minimal encoding"));
        }
        let key = key.try_into().unwrap_or_default();
        Ok(Some(Header { fin: last, compressed: deflated, opcode, key, length, size }))
    }
}

/// Applies or removes the mask. For further bytes the key must be rotated, see [`rotate_key`].
pub(crate) fn apply_mask(bytes: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = [a, b, c, d, a, b, c, d];
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        for (byte, key) in word.iter_mut().zip(wide) {
            *byte ^= key;
        }
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(wide) {
        *byte ^= key;
    }
}

/// The key for the bytes `count` positions later.
pub(crate) fn rotate_key(mut key: [u8; 4], count: usize) -> [u8; 4] {
    key.rotate_left(count % 4);
    key
}

/// Appends the header of an unfragmented frame from the server, which has no mask (section 5.1).
pub(crate) fn write_header(opcode: u8, deflated: bool, length: usize, out: &mut Vec<u8>) {
    out.push(FIN | if deflated { RSV1 } else { 0 } | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => out.push(short),
        (_, Ok(medium)) => {
            out.push(126);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Code of a `Close`, if it has one (sections 5.5.1 and 7.4).
pub(crate) fn parse_close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(None)
        } else {
            Err(Violation::protocol("a close frame has an incomplete status code"))
        };
    };
    let code = u16::from_be_bytes(*code);
    // 1004 to 1006 and 1015 are never sent; the registry defines codes up to 1014.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::protocol("a close frame has an invalid status code"));
    }
    if std::str::from_utf8(reason).is_err() {
        return Err(Violation::new(1007, "the reason of a close frame is not UTF-8"));
    }
    Ok(Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Header {
        for cut in 0..bytes.len() {
            assert_eq!(Header::read(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        Header::read(bytes).unwrap().unwrap()
    }

    /// RFC 6455, section 5.7: "a single-frame masked text message", and the same fragmented and as a ping.
    #[test]
    fn examples_of_section_5_7() {
        let mut frame = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let header = read(&frame[..6]);
        assert_eq!((header.fin, header.opcode, header.length, header.size), (true, TEXT, 5, 6));
        apply_mask(&mut frame[6..], header.key);
        assert_eq!(&frame[6..], b"Hello");
        let header = read(&[0x01, 0x83, 1, 2, 3, 4]);
        assert_eq!((header.fin, header.opcode, header.length), (false, TEXT, 3));
        assert_eq!(read(&[0x89, 0x85, 1, 2, 3, 4]).opcode, PING);
        assert_eq!(read(&[0x81, 0xFE, 1, 0, 1, 2, 3, 4]).length, 256);
        assert_eq!(read(&[0x81, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4]).length, 65_536);
        let mut out = Vec::new();
        header_of(5, &mut out);
        header_of(256, &mut out);
        header_of(65_536, &mut out);
        assert_eq!(out, [0x81, 5, 0x81, 126, 1, 0, 0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    fn header_of(length: usize, out: &mut Vec<u8>) {
        super::write_header(TEXT, false, length, out);
    }

    #[test]
    fn frames_that_a_client_must_not_send_are_refused() {
        for (bytes, code) in [
            (&[0x81, 0x05][..], 1002),
            (&[0xA1], 1002),
            (&[0x91], 1002),
            (&[0x83], 1002),
            (&[0x8B], 1002),
            (&[0x82], 1003),
            (&[0x09], 1002),
            (&[0xC9], 1002),
            (&[0xC0], 1002),
            (&[0x89, 0xFE], 1002),
            (&[0x81, 0xFE, 0, 125, 1, 2, 3, 4], 1002),
            (&[0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 1, 2, 3, 4], 1002),
            (&[0x81, 0xFF, 0x80, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4], 1002),
        ] {
            assert_eq!(Header::read(bytes).unwrap_err().code, code, "{bytes:x?}");
        }
    }

    #[test]
    fn unmasking_works_in_fragments() {
        let key = [9, 8, 7, 6];
        let plain: Vec<u8> = (0..100).collect();
        let mut whole = plain.clone();
        apply_mask(&mut whole, key);
        assert!(whole.iter().zip(&plain).zip(key.iter().cycle()).all(|((a, b), key)| a ^ b == *key));
        for cut in 0..plain.len() {
            let mut pieces = whole.clone();
            let (first, second) = pieces.split_at_mut(cut);
            apply_mask(first, key);
            apply_mask(second, rotate_key(key, cut));
            assert_eq!(pieces, plain, "cut at {cut}");
        }
    }

    #[test]
    fn a_close_has_a_code_that_may_be_sent_or_none() {
        assert_eq!(parse_close_code(b""), Ok(None));
        assert_eq!(parse_close_code(&[3, 232]), Ok(Some(1000)));
        assert_eq!(parse_close_code(b"\x0f\xa0bye"), Ok(Some(4000)));
        for bad in [&[3][..], &[3, 236], &[3, 237], &[3, 238], &[3, 247], &[0, 0], &[0x13, 0x88]] {
            assert_eq!(parse_close_code(bad).unwrap_err().code, 1002, "{bad:?}");
        }
        assert_eq!(parse_close_code(b"\x03\xe8\xff").unwrap_err().code, 1007);
    }
}
