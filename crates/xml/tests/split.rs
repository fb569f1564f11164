//! Tests that the content of a stream is independent of how it is split, and that no prefix of a valid stream is an
//! error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use support::{Random, generate, read_stream};
use throng_xml::{Limits, ScanOutcome, Scanner};

fn limits() -> Limits {
    // Small, so that generated streams exceed them too.
    Limits { element_bytes: 400, depth: 4, ..Limits::DEFAULT }
}

fn cases(count: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..count).map(|seed| {
        let random = &mut Random::new(seed ^ 0x5711);
        let mut input = generate::stream(random);
        if seed % 2 == 0 {
            generate::mutate(random, &mut input);
        }
        (seed, input)
    })
}

#[test]
fn byte_by_byte_is_the_same_as_whole() {
    for (seed, input) in cases(20_000) {
        let whole = read_stream(&input, &limits(), || input.len());
        assert_eq!(read_stream(&input, &limits(), || 1), whole, "seed {seed}: {}", input.escape_ascii());
        let mut random = Random::new(seed);
        let pieces = read_stream(&input, &limits(), || random.below(30));
        assert_eq!(pieces, whole, "seed {seed}: {}", input.escape_ascii());
    }
}

#[test]
fn every_split_in_two_is_the_same_as_whole() {
    for (seed, input) in cases(600) {
        let whole = read_stream(&input, &limits(), || input.len());
        for at in 0..input.len() {
            let mut first = true;
            let split =
                read_stream(&input, &limits(), || if std::mem::take(&mut first) { at } else { input.len() });
            assert_eq!(split, whole, "seed {seed} split at {at}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn a_truncated_stream_is_unfinished_and_no_error() {
    let mut good = 0;
    for (seed, input) in cases(600) {
        if !matches!(read_stream(&input, &Limits::DEFAULT, || input.len()), Ok(Some(_))) {
            continue;
        }
        good += 1;
        let end = input.iter().rposition(|&b| b == b'>').unwrap();
        for length in 0..end {
            let part = read_stream(&input[..length], &Limits::DEFAULT, || length);
            assert_eq!(part, Ok(None), "seed {seed} cut at {length}: {}", input.escape_ascii());
        }
    }
    assert!(good > 100, "only {good} good streams");
}

/// The scanner examines each byte once: a stream in one-byte pieces takes about as many steps as bytes.
#[test]
fn keepalives_and_complete_elements_leave_no_state() {
    let mut scanner = Scanner::fragment();
    let limits = Limits::DEFAULT;
    for _ in 0..10_000 {
        assert_eq!(scanner.scan(b" \r\n\t", &limits), Ok(ScanOutcome::More { skip: 4 }));
    }
    assert_eq!(scanner.scan(b" \n<a/> <b>", &limits), Ok(ScanOutcome::Element { start: 2, end: 6 }));
    assert_eq!(scanner.scan(b" <b>", &limits), Ok(ScanOutcome::More { skip: 1 }));
    assert_eq!(scanner.scan(b"<b>", &limits), Ok(ScanOutcome::More { skip: 0 }));
    assert_eq!(scanner.scan(b"<b></b><c/>", &limits), Ok(ScanOutcome::Element { start: 0, end: 7 }));
    assert_eq!(scanner.scan(b"", &limits), Ok(ScanOutcome::More { skip: 0 }));
}
