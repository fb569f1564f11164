//! Search for one or three bytes, optimised for the short runs of text in stanzas.
//!
//! Not implemented: hand-written vector instructions. Long runs go to `memchr`, which has them.
//!
//! # Pitfalls
//!
//! The arithmetic finds zero bytes in a word. Only the lowest hit is exact, so only that one may be used.

use memchr::{memchr, memchr3};

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
/// Words examined before calling `memchr`, whose call costs as much as about three words.
const WORDS: usize = 2;

#[inline(always)]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).and_then(|w| w.try_into().ok()).map(u64::from_le_bytes)
}

/// Offset of the first `needle` at or after `at`.
#[inline(always)]
pub(crate) fn find1(bytes: &[u8], mut at: usize, needle: u8) -> Option<usize> {
    for _ in 0..WORDS {
        let Some(word) = word(bytes, at) else { break };
        let hits = zeros(word ^ (LOW * u64::from(needle)));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr(needle, bytes.get(at..)?).map(|i| at + i)
}

/// Offset of the first of three bytes at or after `at`.
#[inline(always)]
pub(crate) fn find3(bytes: &[u8], mut at: usize, needles: [u8; 3]) -> Option<usize> {
    for _ in 0..WORDS {
        let Some(word) = word(bytes, at) else { break };
        let hits = needles.iter().fold(0, |hits, &n| hits | zeros(word ^ (LOW * u64::from(n))));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr3(needles[0], needles[1], needles[2], bytes.get(at..)?).map(|i| at + i)
}

/// Bytes at the beginning, as whole words, of which none is a control character, one of `"&'<>`, or 0xEF.
#[inline]
pub(crate) fn plain_words(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        let is = |byte: u8| zeros(word ^ (LOW * u64::from(byte)));
        // `<` and `>` differ in one bit, and so do `&` and `'`: three comparisons for five bytes.
        let markup = zeros((word | (LOW * 2)) ^ (LOW * u64::from(b'>')))
            | is(b'"')
            | zeros((word | LOW) ^ (LOW * u64::from(b'\'')));
        // A byte below 0x20: none of its three upper bits is set.
        let control = zeros(word & (LOW * 0xE0));
        if markup | control | is(0xEF) != 0 {
            break;
        }
        at += 8;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_agrees_with_a_naive_search() {
        // Word arithmetic can confuse a needle with bytes of adjacent value.
        let mut text: Vec<u8> = (0..400u32).map(|i| (i * 7 % 13 + 55) as u8 ^ ((i % 3) as u8) << 7).collect();
        text.extend_from_slice(b"<;<=<>'\"&\x01\0\x80");
        for at in 0..=text.len() {
            let plain = |needles: &[u8]| text[at..].iter().position(|b| needles.contains(b)).map(|i| at + i);
            for needle in 0..=255 {
                assert_eq!(find1(&text, at, needle), plain(&[needle]), "{needle} from {at}");
            }
            for needles in [[b'>', b'"', b'\''], [b'<', b'&', b']'], [0, 1, 0x80]] {
                assert_eq!(find3(&text, at, needles), plain(&needles), "{needles:?} from {at}");
            }
        }
        assert_eq!(find1(&text, text.len() + 1, 0), None);
    }

    #[test]
    fn plain_words_end_before_the_first_word_with_a_byte_that_may_need_escaping() {
        let special = |b: u8| b < 0x20 || b == 0xEF || br#""&'<>"#.contains(&b);
        for byte in 0..=255 {
            for at in 0..20 {
                let mut text = *b"juliet@example.com/~";
                text[at] = byte;
                let expect = if special(byte) { at / 8 * 8 } else { 16 };
                assert_eq!(plain_words(&text), expect.min(16), "{byte} at {at}");
            }
        }
        assert_eq!(plain_words(b"short"), 0);
    }
}
