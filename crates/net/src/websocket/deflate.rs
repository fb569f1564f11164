//! Message compression: RFC 7692, sections 6 and 7.2, without context takeover in either direction.
//!
//! Each message is compressed separately, so a connection owns no window (32 kB in, about 300 kB out); the worker
//! thread lends both, allocated with the first compressed message.
//!
//! Not implemented: windows below 32 kB (see `handshake.rs`).
//!
//! # Pitfalls
//!
//! A few bytes can expand a thousandfold. [`inflate`] checks the limit while it works, not afterwards.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Shorter messages are not compressed: the overhead of deflate exceeds the gain.
pub(crate) const MIN_DEFLATE_BYTES: usize = 128;
/// End of a flushed block, which is not sent (section 7.2.1).
const FLUSH_TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// Step in which the output buffer grows.
const GROWTH_BYTES: usize = 4096;

thread_local! {
    static COMPRESS: RefCell<Option<Compress>> = const { RefCell::new(None) };
    static DECOMPRESS: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

/// Reason why a message cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InflateError {
    /// The output would exceed the limit.
    TooLarge,
    /// Invalid deflate data.
    Malformed,
}

/// Appends the parts, compressed as one message. On failure `false`, and nothing is appended.
pub(crate) fn deflate(parts: [&[u8]; 3], out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    let done = COMPRESS.with_borrow_mut(|slot| {
        let state = slot.get_or_insert_with(|| Compress::new(Compression::fast(), false));
        state.reset();
        let mut parts = parts.into_iter().peekable();
        while let Some(mut part) = parts.next() {
            let flush = if parts.peek().is_none() { FlushCompress::Sync } else { FlushCompress::None };
            loop {
                out.reserve(GROWTH_BYTES);
                let before = state.total_in();
                if state.compress_vec(part, out, flush).is_err() {
                    return false;
                }
                part = part.get(bytes_processed(before, state.total_in())..).unwrap_or_default();
                // Unused capacity shows that there is no more output.
                if part.is_empty() && out.len() < out.capacity() {
                    break;
                }
            }
        }
        out.get(begin..).is_some_and(|made| made.ends_with(&FLUSH_TAIL))
    });
    out.truncate(if done { out.len() - FLUSH_TAIL.len() } else { begin });
    done
}

/// Number of bytes of a slice processed between two counts.
fn bytes_processed(before: u64, after: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}

/// Decompresses a message into `out` (cleared first), at most `limit` bytes.
pub(crate) fn inflate(message: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    out.clear();
    DECOMPRESS.with_borrow_mut(|slot| {
        let state = slot.get_or_insert_with(|| Decompress::new(false));
        state.reset(false);
        for mut part in [message, &FLUSH_TAIL[..]] {
            loop {
                if out.len() > limit {
                    return Err(InflateError::TooLarge);
                }
                out.reserve(GROWTH_BYTES.min(limit + 1 - out.len()));
                let (taken, made) = (state.total_in(), out.len());
                let status = state.decompress_vec(part, out, FlushDecompress::None);
                let taken = bytes_processed(taken, state.total_in());
                part = part.get(taken..).unwrap_or_default();
                match status {
                    // A final block, which section 7.2.3.4 allows; the empty block after it is ignored.
                    Ok(Status::StreamEnd) if out.len() <= limit => return Ok(()),
                    Ok(_) if part.is_empty() && out.len() < out.capacity() => break,
                    Ok(_) if taken > 0 || out.len() > made => {}
                    _ => return Err(InflateError::Malformed),
                }
            }
        }
        if out.len() > limit { Err(InflateError::TooLarge) } else { Ok(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflated(message: &[u8]) -> Result<String, InflateError> {
        let mut out = Vec::new();
        inflate(message, 100_000, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn examples_of_section_7_2_3() {
        // 7.2.3.1, one block; 7.2.3.3, a block without compression; 7.2.3.4, a final block; 7.2.3.5, two blocks.
        for message in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            assert_eq!(inflated(message).unwrap(), "Hello", "{message:x?}");
        }
    }

    #[test]
    fn deflated_messages_inflate_to_the_original() {
        for size in [0, 1, 127, 4095, 4096, 4097, 60_000] {
            let text: Vec<u8> =
                (0..size as u32).map(|n| b'a' + (n.wrapping_mul(n) >> 7) as u8 % 26).collect();
            let (head, rest) = text.split_at(size / 3);
            let mut made = b"before".to_vec();
            assert!(deflate([head, b"<>", rest], &mut made));
            let message = made.strip_prefix(b"before").unwrap();
            assert_eq!(inflated(message).unwrap().into_bytes(), [head, b"<>", rest].concat());
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit_and_garbage_is_refused() {
        let mut bomb = Vec::new();
        let zeros = vec![b' '; 10_000_000];
        assert!(deflate([&zeros, b"", b""], &mut bomb));
        assert!(bomb.len() < 100_000);
        let mut out = Vec::new();
        assert_eq!(inflate(&bomb, 50_000, &mut out), Err(InflateError::TooLarge));
        assert!(out.capacity() < 200_000, "{}", out.capacity());
        assert_eq!(inflated(b"\xff\xff\xff"), Err(InflateError::Malformed));
        assert_eq!(inflated(b"").unwrap(), "");
    }
}
