//! The numbers that are both in chunks and in an ascending list: the subscribers who are online.
//!
//! The cost follows the list, not the set: of a chunk only words of its unary part are counted up to the next wanted number. If
//! the list is much longer than the chunk, the numbers of the chunk are searched in the list instead.

use super::elias_fano::{EliasFano, Layout};
use super::{Form, NumberChunk, bits, runs};

/// A list is this many times longer than a chunk when the chunk is searched in the list.
const MUCH_LONGER: usize = 16;

/// Appends the numbers of chunks, in ascending order, that are in an ascending list. Chunk after chunk may be passed: the order
/// of the result is that of the chunks.
pub fn intersect(chunks: &[NumberChunk], list: &[u32], into: &mut Vec<u32>) {
    let mut rest = list;
    for chunk in chunks {
        rest = rest.get(skip(rest, chunk.first())..).unwrap_or_default();
        let end = chunk.last().checked_add(1).map_or(rest.len(), |end| skip(rest, end));
        let (wanted, later) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        if wanted.len() / MUCH_LONGER > chunk.count() as usize {
            search(chunk, wanted, into);
        } else if !wanted.is_empty() {
            chunk.for_each_of(wanted, |number| into.push(number));
        }
        rest = later;
    }
}

/// How many numbers at the begin of an ascending list are below another one; cheap if they are few.
#[inline]
fn skip(list: &[u32], number: u32) -> usize {
    let mut most = 1;
    while list.get(most - 1).is_some_and(|one| *one < number) {
        most *= 2;
    }
    let least = most / 2;
    let between = list.get(least..most.min(list.len())).unwrap_or_default();
    least.min(list.len()) + between.partition_point(|one| *one < number)
}

/// Searches the numbers of a chunk in a long list.
fn search(chunk: &NumberChunk, list: &[u32], into: &mut Vec<u32>) {
    let mut rest = list;
    for number in chunk.to_vec() {
        rest = rest.get(skip(rest, number)..).unwrap_or_default();
        if rest.first() == Some(&number) {
            into.push(number);
        }
    }
}

impl NumberChunk {
    /// Calls a function with those of ascending numbers that are in this chunk.
    pub(super) fn for_each_of(&self, wanted: &[u32], mut found: impl FnMut(u32)) {
        let (first, last) = (self.first(), self.last());
        let wanted = wanted.iter().copied().filter(|number| (first..=last).contains(number));
        match self.form {
            Form::EliasFano => {
                if let Some(code) = EliasFano::new(self.body(), Layout::new(self.count, self.span)) {
                    code.for_each_of(wanted.map(|number| number - first), |value| found(first + value));
                }
            }
            Form::Runs => {
                let mut wanted = wanted.map(|number| u64::from(number - first)).peekable();
                runs::for_each(self.body(), |start, length| {
                    while let Some(value) = wanted.next_if(|value| *value < start + u64::from(length)) {
                        if value >= start {
                            found(super::add(first, value));
                        }
                    }
                });
            }
            Form::Bits => {
                for number in wanted {
                    if bits::is_set(self.body(), (number - first) as usize) {
                        found(number);
                    }
                }
            }
        }
    }
}
