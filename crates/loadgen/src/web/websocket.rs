//! WebSocket client for XMPP: the handshake and frames of RFC 6455, the framing of RFC 7395.
//!
//! Not implemented: extensions (none is offered), binary messages (RFC 7395, section 3.2 forbids them),
//! `see-other-uri`.
//!
//! # Pitfalls
//!
//! Client frames are masked with a new key each (RFC 6455, section 5.3); the key need not be secret here, since there
//! is no proxy in between.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest message in bytes; a roster of thousands comes in one.
const MESSAGE_BYTES: usize = 16 << 20;
/// Maximum number of fragments of a message.
const FRAMES: usize = 4_096;
/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub enum WebSocketMessage<'a> {
    /// A complete text message: one XML document. Owned if it was fragmented.
    Text(Cow<'a, [u8]>),
    /// Ping; must be answered with the same content.
    Ping(&'a [u8]),
    /// Unsolicited pong.
    Pong,
    /// Close with this status code (1005 if none was given).
    Close(u16),
}

/// Appends the upgrade request (RFC 6455, section 4.1; RFC 7395, section 3.1). `key` is 16 random bytes.
pub fn upgrade(path: &str, host: &str, key: [u8; 16], out: &mut Vec<u8>) {
    let key = STANDARD.encode(key);
    // Writing into a vector does not fail.
    let _ = write!(
        out,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: xmpp\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
}

/// Checks that a response head switches to XMPP over WebSocket (RFC 6455, section 4.1; RFC 7395, section 3.1).
///
/// # Errors
/// One sentence: what is wrong with it.
pub fn accepted(status: u16, head: &[u8], key: [u8; 16]) -> Result<(), String> {
    if status != 101 {
        return Err(format!("the server responded to the WebSocket handshake with {status}"));
    }
    let wanted = accept_of(key);
    if super::http::header(head, "sec-websocket-accept") != Some(wanted.as_str()) {
        return Err("the server's Sec-WebSocket-Accept is invalid".to_owned());
    }
    match super::http::header(head, "sec-websocket-protocol") {
        Some("xmpp") => Ok(()),
        _ => Err("the server did not select the WebSocket subprotocol xmpp".to_owned()),
    }
}

/// `Sec-WebSocket-Accept` value that the server must return for a key.
fn accept_of(key: [u8; 16]) -> String {
    let text = format!("{}{GUID}", STANDARD.encode(key));
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// Appends a text message in one frame, from parts that are concatenated.
pub fn text(parts: &[&[u8]], mask: [u8; 4], out: &mut Vec<u8>) {
    frame(TEXT, parts, mask, out);
}

/// Appends a pong; at most 125 bytes, like the ping.
pub fn pong(content: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    frame(PONG, &[content], mask, out);
}

/// Appends a close with a status code (RFC 6455, section 5.5.1).
pub fn close(code: u16, mask: [u8; 4], out: &mut Vec<u8>) {
    frame(CLOSE, &[&code.to_be_bytes()], mask, out);
}

fn frame(opcode: u8, parts: &[&[u8]], mask: [u8; 4], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(0x80 | opcode);
    match length {
        0..=125 => out.push(0x80 | length as u8),
        126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let begin = out.len();
    parts.iter().for_each(|part| out.extend_from_slice(part));
    for (byte, key) in out[begin..].iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// Finds a message at the start of `input`, and the number of bytes consumed; `None` if it is incomplete.
///
/// A control frame between the fragments of a message is returned first and leaves the message in place: its bytes must
/// be removed from `input` (the second number is their start), and the rest is parsed again.
///
/// # Errors
/// One sentence: the protocol violation.
pub fn next(input: &[u8]) -> Result<Option<(WebSocketMessage<'_>, usize, usize)>, &'static str> {
    let mut at = 0;
    let mut message: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    for count in 0..FRAMES {
        let Some(head) = header(&input[at..])? else { return Ok(None) };
        let Some(content) = input.get(at + head.bytes..at + head.bytes + head.length) else {
            return Ok(None);
        };
        let end = at + head.bytes + head.length;
        match head.opcode {
            PING => return Ok(Some((WebSocketMessage::Ping(content), at, end))),
            PONG => return Ok(Some((WebSocketMessage::Pong, at, end))),
            CLOSE => {
                let code = content.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                return Ok(Some((WebSocketMessage::Close(code), at, end)));
            }
            TEXT if count == 0 => message = Cow::Borrowed(content),
            CONTINUATION if count > 0 => message.to_mut().extend_from_slice(content),
            TEXT | CONTINUATION => return Err("fragments of WebSocket messages are out of order"),
            _ => return Err("the server sends a WebSocket frame that is neither text nor control"),
        }
        if message.len() > MESSAGE_BYTES {
            return Err("a WebSocket message is too long");
        }
        at = end;
        if head.last {
            return Ok(Some((WebSocketMessage::Text(message), 0, end)));
        }
    }
    Err("a WebSocket message has too many fragments")
}

struct FrameHead {
    opcode: u8,
    last: bool,
    bytes: usize,
    length: usize,
}

/// Head of a frame (RFC 6455, section 5.2).
fn header(input: &[u8]) -> Result<Option<FrameHead>, &'static str> {
    let Some(&[first, second]) = input.first_chunk() else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err("a reserved bit of a WebSocket frame is set");
    }
    if second & 0x80 != 0 {
        return Err("the server masks its WebSocket frames");
    }
    let (opcode, last) = (first & 0x0F, first & 0x80 != 0);
    let (bytes, length) = match second {
        126 => match input.get(2..4) {
            Some(&[a, b]) => (4, u64::from(u16::from_be_bytes([a, b]))),
            _ => return Ok(None),
        },
        127 => match input.get(2..).and_then(|rest| rest.first_chunk()) {
            Some(length) => (10, u64::from_be_bytes(*length)),
            None => return Ok(None),
        },
        short => (2, u64::from(short)),
    };
    if opcode >= CLOSE && (length > 125 || !last) {
        return Err("a WebSocket control frame is too long or fragmented");
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_BYTES);
    let length = length.ok_or("a WebSocket message is too long")?;
    Ok(Some(FrameHead { opcode, last, bytes, length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a server sends it.
    fn served(first: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match content.len() {
            short @ 0..=125 => out.push(short as u8),
            long @ 126..=0xFFFF => {
                out.push(126);
                out.extend_from_slice(&(long as u16).to_be_bytes());
            }
            longer => {
                out.push(127);
                out.extend_from_slice(&(longer as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(content);
        out
    }

    #[test]
    fn the_accept_key_matches_the_specification() {
        let mut key = [0; 16];
        key.copy_from_slice(b"the sample nonce");
        let mut out = Vec::new();
        upgrade("/ws", "server.example.com", key, &mut out);
        assert!(String::from_utf8(out).unwrap().contains("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
        assert_eq!(accept_of(key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let head = b"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: xmpp\r\n\r\n";
        assert_eq!(accepted(101, head, key), Ok(()));
        assert!(accepted(101, head, [0; 16]).unwrap_err().contains("Sec-WebSocket-Accept"));
        assert!(accepted(101, &head[..head.len() - 30], key).unwrap_err().contains("protocol"));
        assert!(accepted(404, head, key).unwrap_err().contains("404"));
    }

    /// RFC 6455, section 5.7.
    #[test]
    fn the_examples_of_the_specification() {
        let mut out = Vec::new();
        text(&[b"Hel", b"lo"], [0x37, 0xfa, 0x21, 0x3d], &mut out);
        assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        let hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
        assert_eq!(next(&hello), Ok(Some((WebSocketMessage::Text(Cow::Borrowed(b"Hello")), 0, 7))));
        let parts = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
        assert_eq!(next(&parts), Ok(Some((WebSocketMessage::Text(Cow::Borrowed(b"Hello")), 0, 9))));
        let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
        assert_eq!(next(&ping), Ok(Some((WebSocketMessage::Ping(b"Hello"), 0, 7))));
        let mut answer = Vec::new();
        pong(b"Hello", [0x37, 0xfa, 0x21, 0x3d], &mut answer);
        assert_eq!(answer, [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
    }

    #[test]
    fn lengths_of_all_three_forms_at_every_split_of_the_head() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let content = vec![b'a'; length];
            let bytes = served(0x81, &content);
            for cut in (0..bytes.len().min(12)).chain([bytes.len() - 1]) {
                assert_eq!(next(&bytes[..cut]), Ok(None), "{length} {cut}");
            }
            assert_eq!(
                next(&bytes),
                Ok(Some((WebSocketMessage::Text(Cow::Borrowed(&content)), 0, bytes.len())))
            );
            let mut out = Vec::new();
            text(&[&content], [1, 2, 3, 4], &mut out);
            assert_eq!(out.len(), bytes.len() + 4);
        }
    }

    #[test]
    fn a_control_frame_between_fragments_is_handled_first() {
        let mut bytes = served(0x01, b"<a>");
        bytes.extend(served(0x89, b"x"));
        bytes.extend(served(0x80, b"</a>"));
        let (found, from, to) = next(&bytes).unwrap().unwrap();
        assert_eq!((found, from, to), (WebSocketMessage::Ping(b"x"), 5, 8));
        bytes.drain(5..8);
        assert_eq!(next(&bytes).unwrap().unwrap().0, WebSocketMessage::Text(Cow::Borrowed(b"<a></a>")));
    }

    #[test]
    fn protocol_violations_are_errors() {
        for (bytes, what) in [
            (vec![0xC1, 0], "reserved"),
            (vec![0x81, 0x80, 0, 0, 0, 0], "masks"),
            (served(0x82, b"x"), "neither"),
            (served(0x80, b"x"), "order"),
            ([served(0x01, b"x"), served(0x81, b"y")].concat(), "order"),
            (vec![0x09, 0], "control"),
            (vec![0x89, 126, 0, 200], "control"),
            (vec![0x81, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0], "too long"),
        ] {
            assert!(next(&bytes).unwrap_err().contains(what), "{bytes:?}");
        }
        assert_eq!(
            next(&served(0x88, &1001_u16.to_be_bytes())).unwrap().unwrap().0,
            WebSocketMessage::Close(1001)
        );
        assert_eq!(next(&served(0x88, b"")).unwrap().unwrap().0, WebSocketMessage::Close(1005));
    }
}
