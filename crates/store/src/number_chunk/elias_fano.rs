//! Elias–Fano code of ascending numbers: the low bits of each, and the high parts in unary.
//!
//! With `n` numbers up to `span` the low part of a number has `⌊log2(span / n)⌋` bits. The high part of number `i` is a one at the
//! bit `high + i`, so the zeros separate the possible high parts. Together at most `log2(span / n) + 2` bits a number, half a bit
//! above what any code of random numbers needs. Unlike codes of differences, a number is found without decoding those
//! before it: the ones and zeros are counted word by word.

use super::bits::{load, octets, select, set, words};

/// Sizes of the parts.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    low_bits: u32,
    low_octets: u64,
    high_octets: u64,
}

impl Layout {
    /// Of a number of values of which the largest is `span`.
    pub(super) fn new(count: u32, span: u32) -> Layout {
        let low_bits = (span / count.max(1)).checked_ilog2().unwrap_or(0);
        let high = u64::from(count) + u64::from(span >> low_bits) + 1;
        let low = u64::from(count) * u64::from(low_bits);
        Layout { low_bits, low_octets: octets(low), high_octets: octets(high) }
    }

    /// Octets of both parts.
    pub(super) fn octets(self) -> u64 {
        self.low_octets + self.high_octets
    }
}

/// Appends the code of ascending numbers.
pub(super) fn encode(values: impl ExactSizeIterator<Item = u32>, layout: Layout, to: &mut Vec<u8>) {
    let Layout { low_bits, low_octets, high_octets } = layout;
    let (Ok(low), Ok(high)) = (usize::try_from(low_octets), usize::try_from(high_octets)) else { return };
    let mut unary = vec![0; high];
    let end = to.len() + low;
    let (mut buffer, mut filled) = (0u64, 0);
    let mask = (1u32 << low_bits) - 1;
    for (index, value) in values.enumerate() {
        set(&mut unary, (value >> low_bits) as usize + index);
        buffer |= u64::from(value & mask) << filled;
        filled += low_bits;
        while filled >= 8 {
            to.push((buffer & 0xff) as u8);
            buffer >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        to.push((buffer & 0xff) as u8);
    }
    to.resize(end, 0);
    to.append(&mut unary);
}

/// The code of numbers.
#[derive(Clone, Copy)]
pub(super) struct EliasFano<'a> {
    low: &'a [u8],
    high: &'a [u8],
    low_bits: u32,
}

impl<'a> EliasFano<'a> {
    /// The parts; `None` if the octets are too few.
    pub(super) fn new(bytes: &'a [u8], layout: Layout) -> Option<EliasFano<'a>> {
        let (low, high) = bytes.split_at_checked(usize::try_from(layout.low_octets).ok()?)?;
        Some(EliasFano { low, high, low_bits: layout.low_bits })
    }

    /// The unary part, which has a one for each number.
    pub(super) fn high(&self) -> &'a [u8] {
        self.high
    }

    /// Low part of the number with this index.
    #[inline]
    fn low(&self, index: usize) -> u64 {
        let bit = index * self.low_bits as usize;
        load(self.low, bit / 8) >> (bit % 8) & ((1 << self.low_bits) - 1)
    }

    /// Calls a function with each number.
    #[inline]
    pub(super) fn for_each(&self, mut found: impl FnMut(u64)) {
        let mut index = 0;
        for (first, mut word) in words(self.high) {
            while word != 0 {
                let high = (first + word.trailing_zeros() as usize).saturating_sub(index) as u64;
                found(high << self.low_bits | self.low(index));
                index += 1;
                word &= word - 1;
            }
        }
    }

    /// Calls a function with those of ascending numbers that are in this code.
    #[inline]
    pub(super) fn for_each_of(&self, wanted: impl Iterator<Item = u32>, mut found: impl FnMut(u32)) {
        // The word that has the zero before the high part, and the zeros before that word.
        let (mut at, mut word, mut zeros) = (0, load(self.high, 0), 0);
        for value in wanted {
            let high = (value >> self.low_bits) as usize;
            while zeros + (word.count_zeros() as usize) < high {
                if at >= self.high.len() {
                    return;
                }
                zeros += word.count_zeros() as usize;
                at += 8;
                word = load(self.high, at);
            }
            let mut bit = match u32::try_from(high - zeros) {
                Ok(0) => at * 8,
                Ok(number) => at * 8 + select(!word, number - 1) as usize + 1,
                Err(_) => return,
            };
            let low = u64::from(value) & ((1 << self.low_bits) - 1);
            while super::bits::is_set(self.high, bit) {
                let here = self.low(bit.saturating_sub(high));
                if here >= low {
                    if here == low {
                        found(value);
                    }
                    break;
                }
                bit += 1;
            }
        }
    }
}
