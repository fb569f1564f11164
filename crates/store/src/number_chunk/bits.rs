//! Bits and variable-length integers in octets: bit 0 is the lowest of the first octet.

/// The 64 bits from an octet on; zeros behind the end.
#[inline]
pub(super) fn load(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(rest) {
                *to = *from;
            }
            u64::from_le_bytes(word)
        }
    }
}

/// A number of bits as octets.
pub(super) const fn octets(bits: u64) -> u64 {
    bits.div_ceil(8)
}

/// Sets a bit.
#[inline]
pub(super) fn set(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
}

/// Whether a bit is set; those behind the end are not.
#[inline]
pub(super) fn is_set(bytes: &[u8], bit: usize) -> bool {
    bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Count of the bits that are set.
pub(super) fn ones(bytes: &[u8]) -> u64 {
    (0..bytes.len()).step_by(8).map(|at| u64::from(load(bytes, at).count_ones())).sum()
}

/// The words of 64 bits with the number of the first bit of each.
#[inline]
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> + '_ {
    (0..bytes.len()).step_by(8).map(|at| (at * 8, load(bytes, at)))
}

/// Position of the bit with this number among those that are set in a word, counted from 0. 63 if there is none.
#[inline]
pub(super) fn select(word: u64, number: u32) -> u32 {
    let (mut at, mut left) = (0, number);
    for half in [32, 16, 8] {
        let part = word >> at & ((1 << half) - 1);
        if part.count_ones() <= left {
            left -= part.count_ones();
            at += half;
        }
    }
    let mut rest = word >> at;
    for _ in 0..left {
        rest &= rest.wrapping_sub(1);
    }
    (at + rest.trailing_zeros()).min(63)
}

/// Appends a number, seven bits an octet, the lowest first.
pub(super) fn push_number(to: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        to.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    to.push((number & 0x7f) as u8);
}

/// Octets that [`push_number`] appends.
pub(super) const fn number_octets(number: u32) -> usize {
    match number {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

/// Reads a number and moves the slice behind it; `None` if it ends early or does not fit.
#[inline]
pub(super) fn take_number(from: &mut &[u8]) -> Option<u32> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(number).ok();
        }
        shift += 7;
        if shift > 28 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in
            [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456, u32::MAX]
        {
            let mut bytes = Vec::new();
            push_number(&mut bytes, number);
            assert_eq!(bytes.len(), number_octets(number));
            let mut rest = &bytes[..];
            assert_eq!((take_number(&mut rest), rest), (Some(number), &[][..]));
            assert_eq!(take_number(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_number(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None, "33 bits");
        assert_eq!(take_number(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), None, "six octets");
    }

    #[test]
    fn bits_are_found_by_their_number() {
        for word in [1, u64::MAX, 0x8000_0000_0000_0001, 0x0123_4567_89ab_cdef, 1 << 63] {
            let expected: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 != 0).collect();
            let found: Vec<u32> = (0..word.count_ones()).map(|number| select(word, number)).collect();
            assert_eq!(found, expected, "{word:x}");
        }
        assert_eq!(select(0, 0), 63);
        assert_eq!(load(&[1, 2], 1), 2);
        assert_eq!(load(&[1, 2], 9), 0);
    }
}
