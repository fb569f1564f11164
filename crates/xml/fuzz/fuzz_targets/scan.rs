//! Fuzz target for the scanner: the first byte is a chunk size, the rest a stream, which must scan the same in chunks
//! and whole.
//!
//! Not implemented: the content of the elements, which the target `reader` covers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xml::{Error, Limits, ScanOutcome, Scanner};

const LIMITS: Limits = Limits { element_bytes: 512, depth: 5, ..Limits::DEFAULT };

fn boundaries(stream: &[u8], step: usize) -> (Vec<(usize, usize)>, Option<Error>) {
    let mut scanner = Scanner::new();
    let mut found = Vec::new();
    let (mut from, mut fed) = (0, 0);
    loop {
        match scanner.scan(&stream[from..fed], &LIMITS) {
            Ok(ScanOutcome::More { skip }) => {
                from += skip;
                if fed == stream.len() {
                    return (found, None);
                }
                fed = (fed + step).min(stream.len());
            }
            Ok(ScanOutcome::Open { start, end } | ScanOutcome::Element { start, end }) => {
                assert!(start < end && stream[from + start] == b'<' && stream[from + end - 1] == b'>');
                found.push((from + start, from + end));
                from += end;
            }
            Ok(ScanOutcome::Close { end }) => {
                // The start is not compared: white space before the element may have been skipped or not.
                found.push((0, from + end));
                from += end;
            }
            Err(error) => return (found, Some(error)),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&step, stream)) = data.split_first() else { return };
    assert_eq!(boundaries(stream, usize::from(step).max(1)), boundaries(stream, stream.len().max(1)));
});
