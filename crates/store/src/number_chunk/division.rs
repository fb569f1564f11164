//! Division of a set into chunks, and changes of a chunk.

use super::{BLOCK, MAX_MEMBERS, MAX_OCTETS, NumberChunk};

/// Where a set grows: it decides how full the chunks are into which one is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Anywhere. All chunks are equally full.
    Anywhere,
    /// At its end, as numbers do that rise with time. All chunks but the last one are full.
    AtEnd,
}

/// Divides ascending numbers, each once, into chunks. Two chunks never have numbers of the same block.
pub fn divide(numbers: &[u32], growth: Growth) -> Vec<NumberChunk> {
    let mut chunks = Vec::new();
    if !numbers.is_empty() {
        divide_into(numbers, growth, &mut chunks);
    }
    chunks
}

/// Octets of a chunk that are planned when a set is divided. The codes of equal parts differ a little.
const PLANNED_OCTETS: usize = MAX_OCTETS - 60;

/// Divides at least one number.
fn divide_into(numbers: &[u32], growth: Growth, chunks: &mut Vec<NumberChunk>) {
    let whole = NumberChunk::encode(numbers);
    let octets = match &whole {
        Some(chunk) if chunk.as_bytes().len() <= MAX_OCTETS => {
            chunks.extend(whole);
            return;
        }
        Some(chunk) => chunk.as_bytes().len(),
        // The parts are divided again.
        None => numbers.len().div_ceil(MAX_MEMBERS as usize) * PLANNED_OCTETS,
    };
    let part = match growth {
        Growth::Anywhere => numbers.len().div_ceil(octets.div_ceil(PLANNED_OCTETS).max(1)),
        Growth::AtEnd => numbers.len() * PLANNED_OCTETS / octets,
    };
    let mut rest = numbers;
    while !rest.is_empty() {
        let mut end = block_end(rest, part.clamp(1, MAX_MEMBERS as usize));
        if end == numbers.len() {
            // More numbers than a block has, so there are several.
            end = block_begin(rest);
        }
        let Some((now, later)) = rest.split_at_checked(end).filter(|(now, _)| !now.is_empty()) else {
            chunks.extend(whole);
            return;
        };
        divide_into(now, growth, chunks);
        rest = later;
    }
}

/// The first index from `at` on at which a block begins, or the end.
fn block_end(numbers: &[u32], at: usize) -> usize {
    let block = at.checked_sub(1).and_then(|before| numbers.get(before)).map_or(0, |number| number / BLOCK);
    let behind = numbers.get(at..).unwrap_or_default();
    at.min(numbers.len()) + behind.partition_point(|number| number / BLOCK <= block)
}

/// The index at which the last block begins.
fn block_begin(numbers: &[u32]) -> usize {
    let block = numbers.last().map_or(0, |number| number / BLOCK);
    numbers.partition_point(|number| number / BLOCK < block)
}

/// A chunk after changes: ascending numbers with whether each is added or removed. Returns all numbers, and how the set grows.
pub fn changed(chunk: Option<&NumberChunk>, changes: &[(u32, bool)]) -> (Vec<u32>, Growth) {
    let mut before = Vec::new();
    if let Some(chunk) = chunk {
        chunk.decode(&mut before);
    }
    let last = before.last().copied();
    let at_end = changes.first().is_some_and(|(number, _)| last.is_some_and(|last| *number > last));
    let mut after = Vec::with_capacity(before.len() + changes.len());
    let mut rest = before.as_slice();
    for (number, is_added) in changes {
        let below = rest.partition_point(|one| one < number);
        let (kept, behind) = rest.split_at_checked(below).unwrap_or((rest, &[]));
        after.extend_from_slice(kept);
        rest = behind.strip_prefix(&[*number]).unwrap_or(behind);
        if *is_added {
            after.push(*number);
        }
    }
    after.extend_from_slice(rest);
    (after, if at_end { Growth::AtEnd } else { Growth::Anywhere })
}
