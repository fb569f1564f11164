//! A chunk of a large set of 32-bit numbers in a compact form, as it is stored in a database and searched in memory.
//!
//! ```text
//! 1 form (Elias–Fano, runs, bits)   4 checksum   count   first   last - first   body
//! ```
//! `count` and the numbers after it have seven bits an octet. The body is that of the form which is smallest:
//!
//! * [Elias–Fano](elias_fano) for scattered numbers: 1.5 octets each for a thousand of a million;
//! * lengths of runs and of the gaps between them, for numbers that were given to neighbours;
//! * a bit for each number between the first and the last one.
//!
//! A set is divided into chunks of at most [`MAX_OCTETS`] and [`MAX_MEMBERS`], so that a change rewrites little and a page of a
//! database holds several. Chunks are divided at multiples of 256, the *blocks*.
//!
//! The containers of Roaring bitmaps have two octets a number and a fixed range of 65 536 numbers: a thousand of a million take
//! 2.1 kB, and each container of 60 a header.
//!
//! # Pitfalls
//!
//! The checksum finds damage, not intent: octets made on purpose can have a valid checksum and numbers that do not ascend. No
//! function panics on them or runs longer.

mod bits;
mod division;
mod elias_fano;
mod intersection;
mod runs;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use elias_fano::{EliasFano, Layout};

pub use division::{Growth, changed, divide};
pub use intersection::intersect;

/// Octets of a chunk, at most. Five of half of that fill a page of SQLite, and PostgreSQL moves no value of this size out of
/// its row.
pub const MAX_OCTETS: usize = 1000;

/// Numbers in a chunk, at most; it bounds what is decoded.
pub const MAX_MEMBERS: u32 = 65_536;

/// Numbers in a block.
pub const BLOCK: u32 = 256;

/// The octets are not those of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CorruptChunk;

impl fmt::Display for CorruptChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored set of numbers is damaged")
    }
}

impl std::error::Error for CorruptChunk {}

/// How the numbers are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    EliasFano,
    Runs,
    Bits,
}

impl Form {
    const fn octet(self) -> u8 {
        match self {
            Form::EliasFano => 1,
            Form::Runs => 2,
            Form::Bits => 3,
        }
    }

    const fn from_octet(octet: u8) -> Option<Form> {
        match octet {
            1 => Some(Form::EliasFano),
            2 => Some(Form::Runs),
            3 => Some(Form::Bits),
            _ => None,
        }
    }
}

/// At least one and at most [`MAX_MEMBERS`] ascending numbers. Cloning copies a reference count.
#[derive(Clone, PartialEq, Eq)]
pub struct NumberChunk {
    bytes: Arc<[u8]>,
    form: Form,
    count: u32,
    first: u32,
    span: u32,
    /// Where the body begins.
    body: usize,
}

impl fmt::Debug for NumberChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NumberChunk({} of {}..={}, {:?})", self.count, self.first, self.last(), self.form)
    }
}

/// Form and checksum.
const FIXED_OCTETS: usize = 5;

/// Checksum of a form and of what follows the checksum.
fn checksum(form: u8, bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = (u64::from(form) << 32 | bytes.len() as u64).wrapping_mul(FACTOR);
    for (_, word) in bits::words(bytes) {
        sum = (sum ^ word).wrapping_mul(FACTOR);
        sum ^= sum >> 32;
    }
    (sum.wrapping_mul(FACTOR) >> 32) as u32
}

/// The number that is this far behind another one. Those of a damaged chunk may be too far.
#[inline]
fn add(first: u32, distance: u64) -> u32 {
    u32::try_from(distance).map_or(u32::MAX, |distance| first.saturating_add(distance))
}

impl NumberChunk {
    /// Encodes ascending numbers, each once; `None` if there is none, or more than [`MAX_MEMBERS`].
    pub fn encode(numbers: &[u32]) -> Option<NumberChunk> {
        let (first, last) = (*numbers.first()?, *numbers.last()?);
        let count = u32::try_from(numbers.len()).ok().filter(|count| *count <= MAX_MEMBERS)?;
        let span = last.saturating_sub(first);
        let (form, octets) = choose_form(numbers, count, span);
        let mut bytes = Vec::with_capacity(FIXED_OCTETS + 15 + octets);
        bytes.extend([form.octet(), 0, 0, 0, 0]);
        [count, first, span].into_iter().for_each(|number| bits::push_number(&mut bytes, number));
        let body = bytes.len();
        let values = numbers.iter().map(|number| number.saturating_sub(first));
        match form {
            Form::EliasFano => elias_fano::encode(values, Layout::new(count, span), &mut bytes),
            Form::Runs => runs::encode(numbers, &mut bytes),
            Form::Bits => {
                bytes.resize(body + octets, 0);
                let bits = bytes.get_mut(body..).unwrap_or_default();
                values.for_each(|value| bits::set(bits, value as usize));
            }
        }
        let sum = checksum(form.octet(), bytes.get(FIXED_OCTETS..).unwrap_or_default());
        if let Some(place) = bytes.get_mut(1..FIXED_OCTETS) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        Some(NumberChunk { bytes: bytes.into(), form, count, first, span, body })
    }

    /// Reads the octets of a chunk.
    ///
    /// # Errors
    /// [`CorruptChunk`] if they are damaged.
    pub fn parse(bytes: &[u8]) -> Result<NumberChunk, CorruptChunk> {
        NumberChunk::parse_octets(bytes).ok_or(CorruptChunk)
    }

    fn parse_octets(bytes: &[u8]) -> Option<NumberChunk> {
        let (fixed, summed) = bytes.split_first_chunk::<FIXED_OCTETS>()?;
        let [form, sum @ ..] = *fixed;
        if checksum(form, summed) != u32::from_le_bytes(sum) {
            return None;
        }
        let form = Form::from_octet(form)?;
        let mut rest = summed;
        let mut number = || bits::take_number(&mut rest);
        let (count, first, span) = (number()?, number()?, number()?);
        let is_possible = (1..=MAX_MEMBERS).contains(&count) && count - 1 <= span;
        if !is_possible || first.checked_add(span).is_none() {
            return None;
        }
        let chunk =
            NumberChunk { bytes: bytes.into(), form, count, first, span, body: bytes.len() - rest.len() };
        chunk.is_consistent().then_some(chunk)
    }

    /// Whether the body has the right size and the right count of numbers.
    fn is_consistent(&self) -> bool {
        let (body, count) = (self.body(), u64::from(self.count));
        match self.form {
            Form::EliasFano => {
                let layout = Layout::new(self.count, self.span);
                layout.octets() == body.len() as u64
                    && EliasFano::new(body, layout).is_some_and(|code| bits::ones(code.high()) == count)
            }
            Form::Runs => runs::is_consistent(body, count, self.span),
            Form::Bits => {
                bits::octets(u64::from(self.span) + 1) == body.len() as u64 && bits::ones(body) == count
            }
        }
    }

    /// The octets to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn body(&self) -> &[u8] {
        self.bytes.get(self.body..).unwrap_or_default()
    }

    /// Count of the numbers, at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The smallest number.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The largest number.
    pub fn last(&self) -> u32 {
        self.first.saturating_add(self.span)
    }

    /// Whether it has a number.
    pub fn contains(&self, number: u32) -> bool {
        let mut found = false;
        self.for_each_of(&[number], |_| found = true);
        found
    }

    /// Appends all numbers, in ascending order.
    pub fn decode(&self, into: &mut Vec<u32>) {
        into.reserve(self.count as usize);
        let first = self.first;
        match self.form {
            Form::EliasFano => {
                if let Some(code) = EliasFano::new(self.body(), Layout::new(self.count, self.span)) {
                    code.for_each(|value| into.push(add(first, value)));
                }
            }
            Form::Runs => runs::for_each(self.body(), |start, length| {
                let start = add(first, start);
                into.extend(start..=start.saturating_add(length - 1));
            }),
            Form::Bits => {
                for (at, mut word) in bits::words(self.body()) {
                    while word != 0 {
                        into.push(add(first, at as u64 + u64::from(word.trailing_zeros())));
                        word &= word - 1;
                    }
                }
            }
        }
    }

    /// All numbers, in ascending order.
    pub fn to_vec(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        self.decode(&mut numbers);
        numbers
    }

    /// Appends the numbers that are above another one, or all, and at most `limit`.
    pub fn decode_after(&self, after: Option<u32>, limit: usize, into: &mut Vec<u32>) {
        let begin = into.len();
        self.decode(into);
        if let Some(after) = after {
            let decoded = into.get(begin..).unwrap_or_default();
            let skipped = decoded.partition_point(|number| *number <= after);
            into.drain(begin..begin + skipped);
        }
        into.truncate(begin + limit);
    }
}

/// The smallest form, and the octets of its body.
fn choose_form(numbers: &[u32], count: u32, span: u32) -> (Form, usize) {
    let scattered = Layout::new(count, span).octets();
    let bits = bits::octets(u64::from(span) + 1);
    let (form, most) = if bits < scattered { (Form::Bits, bits) } else { (Form::EliasFano, scattered) };
    // Below 2 octets for each number, of which there are at most `MAX_MEMBERS`.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match runs::octets_below(numbers, most) {
        Some(octets) => (Form::Runs, octets),
        None => (form, most),
    }
}
