//! Runs of consecutive numbers: of each the gap to the end of the one before, less 1, and the length, less 1. The gap of the first
//! one is left out.

use super::bits::{number_octets, push_number, take_number};

/// First number and length of each run of ascending numbers.
fn runs(numbers: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let runs = numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    runs.filter_map(|run| Some((*run.first()?, u32::try_from(run.len()).ok()?)))
}

/// Gaps and lengths as they are written.
fn parts(numbers: &[u32]) -> impl Iterator<Item = (Option<u32>, u32)> + '_ {
    let mut end: Option<u32> = None;
    runs(numbers).map(move |(first, length)| {
        let gap = end.map(|end| first.saturating_sub(end).saturating_sub(1));
        end = Some(first.saturating_add(length));
        (gap, length - 1)
    })
}

/// Octets of the code if they are fewer than that.
pub(super) fn octets_below(numbers: &[u32], most: usize) -> Option<usize> {
    let mut octets = 0;
    for (gap, length) in parts(numbers) {
        octets += gap.map_or(0, number_octets) + number_octets(length);
        if octets >= most {
            return None;
        }
    }
    Some(octets)
}

/// Appends the code of ascending numbers.
pub(super) fn encode(numbers: &[u32], to: &mut Vec<u8>) {
    for (gap, length) in parts(numbers) {
        if let Some(gap) = gap {
            push_number(to, gap);
        }
        push_number(to, length);
    }
}

/// Calls a function with first number and length of each run; stops where the code is damaged. A length is at least 1.
#[inline]
pub(super) fn for_each(mut code: &[u8], mut found: impl FnMut(u64, u32)) {
    let mut end = None;
    while !code.is_empty() {
        let gap = match end {
            None => Some(0),
            Some(_) => take_number(&mut code).map(|gap| u64::from(gap) + 1),
        };
        let length = take_number(&mut code).and_then(|length| length.checked_add(1));
        let (Some(gap), Some(length)) = (gap, length) else { return };
        let start = end.unwrap_or(0) + gap;
        found(start, length);
        end = Some(start + u64::from(length));
    }
}

/// Whether the code ends where it should, and has this count of numbers, of which the last one is `span`.
pub(super) fn is_consistent(code: &[u8], count: u64, span: u32) -> bool {
    // Each run has two numbers, except the first one.
    let numbers = code.iter().filter(|octet| **octet & 0x80 == 0).count();
    let (mut total, mut last, mut found) = (0, 0, 0);
    for_each(code, |start, length| {
        total += u64::from(length);
        last = start + u64::from(length) - 1;
        found += 1;
    });
    let is_complete =
        code.last().is_some_and(|octet| octet & 0x80 == 0) && numbers == found * 2 - found.min(1);
    is_complete && total == count && last == u64::from(span)
}
