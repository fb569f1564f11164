//! Chunks of numbers, compared with an ordered set.

use std::collections::BTreeSet;

use super::bits::push_number;
use super::division::changed;
use super::*;

/// A small generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn number(&mut self, end: u64) -> u32 {
        u32::try_from(self.below(end)).unwrap()
    }
}

/// Sets of all kinds: scattered, dense, runs, at both ends of the numbers.
fn set(random: &mut Random) -> BTreeSet<u32> {
    let count = 1 << random.below(13);
    let span = 1u64 << random.below(33);
    let base = random.below((1 << 32) - span + 1);
    let mut numbers = BTreeSet::new();
    let longest = 1 << random.below(8);
    for _ in 0..count {
        let start = base + random.below(span);
        let end = (start + 1 + random.below(longest)).min(1 << 32);
        numbers.extend((start..end).map(|number| u32::try_from(number).unwrap()));
    }
    numbers
}

fn vec(numbers: &BTreeSet<u32>) -> Vec<u32> {
    numbers.iter().copied().collect()
}

#[test]
fn sets_are_read_as_they_were_encoded() {
    let mut random = Random(1);
    let mut forms = [0; 4];
    for _ in 0..300 {
        let numbers = vec(&set(&mut random));
        let numbers = &numbers[..numbers.len().min(MAX_MEMBERS as usize)];
        let chunk = NumberChunk::encode(numbers).unwrap();
        forms[usize::from(chunk.form.octet())] += 1;
        assert_eq!(chunk.to_vec(), numbers);
        assert_eq!(NumberChunk::parse(chunk.as_bytes()), Ok(chunk.clone()));
        assert_eq!((chunk.first(), chunk.last()), (numbers[0], numbers[numbers.len() - 1]));
        assert_eq!(chunk.count() as usize, numbers.len());
        let after = numbers[numbers.len() / 2];
        let mut page = vec![7];
        chunk.decode_after(Some(after), 5, &mut page);
        let expected: Vec<u32> = numbers.iter().copied().filter(|number| *number > after).take(5).collect();
        assert_eq!(page[1..], expected);
    }
    assert!(forms[1..].iter().all(|count| *count > 5), "{forms:?}");
}

#[test]
fn the_ends_of_the_numbers_are_encoded() {
    for numbers in [&[0][..], &[u32::MAX], &[0, u32::MAX], &[0, 1, u32::MAX - 1, u32::MAX]] {
        let chunk = NumberChunk::encode(numbers).unwrap();
        assert_eq!(NumberChunk::parse(chunk.as_bytes()).unwrap().to_vec(), numbers);
        let mut found = Vec::new();
        intersect(std::slice::from_ref(&chunk), &[0, 5, u32::MAX], &mut found);
        assert!(found.iter().all(|number| numbers.contains(number)));
        assert!(chunk.contains(numbers[0]) && !chunk.contains(5));
    }
    assert_eq!(NumberChunk::encode(&[]), None);
    let most: Vec<u32> = (0..MAX_MEMBERS).collect();
    assert!(NumberChunk::encode(&most).unwrap().as_bytes().len() < 20);
    assert_eq!(NumberChunk::encode(&[most, vec![MAX_MEMBERS]].concat()), None);
}

#[test]
fn scattered_numbers_take_one_and_a_half_octets() {
    let mut random = Random(2);
    let numbers: BTreeSet<u32> = (0..500).map(|_| random.number(500_000)).collect();
    let octets = NumberChunk::encode(&vec(&numbers)).unwrap().as_bytes().len();
    assert!(octets < 780, "{octets}");
}

#[test]
fn sets_are_divided_into_chunks_without_common_blocks() {
    let mut random = Random(3);
    for growth in [Growth::Anywhere, Growth::AtEnd].into_iter().cycle().take(200) {
        let numbers = vec(&set(&mut random));
        let chunks = divide(&numbers, growth);
        let joined: Vec<u32> = chunks.iter().flat_map(NumberChunk::to_vec).collect();
        assert_eq!(joined, numbers);
        assert!(chunks.iter().all(|chunk| chunk.as_bytes().len() <= MAX_OCTETS));
        assert!(chunks.windows(2).all(|two| two[0].last() / BLOCK < two[1].first() / BLOCK));
    }
    assert!([Growth::Anywhere, Growth::AtEnd].into_iter().all(|growth| divide(&[], growth).is_empty()));
}

#[test]
fn chunks_of_a_large_set_are_well_filled() {
    let mut random = Random(4);
    let numbers: BTreeSet<u32> = (0..100_000).map(|_| random.number(10_000_000)).collect();
    for growth in [Growth::Anywhere, Growth::AtEnd] {
        let chunks = divide(&vec(&numbers), growth);
        let octets: usize = chunks.iter().map(|chunk| chunk.as_bytes().len()).sum();
        assert!(octets / chunks.len() > MAX_OCTETS * 8 / 10, "{growth:?}: {} chunks", chunks.len());
    }
}

#[test]
fn changes_of_a_chunk_are_those_of_a_set() {
    let mut random = Random(5);
    for _ in 0..200 {
        let mut model = set(&mut random);
        let numbers = vec(&model);
        let chunk = NumberChunk::encode(&numbers[..numbers.len().min(MAX_MEMBERS as usize)]);
        model = chunk.iter().flat_map(NumberChunk::to_vec).collect();
        let changes: std::collections::BTreeMap<u32, bool> = (0..random.below(50))
            .map(|_| {
                let known = numbers[usize::try_from(random.below(numbers.len() as u64)).unwrap()];
                let number =
                    if random.below(2) == 0 { known } else { known.saturating_add(random.number(9)) };
                (number, random.below(2) == 0)
            })
            .collect();
        for (number, is_added) in &changes {
            if *is_added {
                model.insert(*number)
            } else {
                model.remove(number)
            };
        }
        let changes: Vec<(u32, bool)> = changes.into_iter().collect();
        assert_eq!(changed(chunk.as_ref(), &changes).0, vec(&model));
    }
    assert_eq!(changed(None, &[(3, true), (4, false)]).0, [3]);
    assert_eq!(changed(NumberChunk::encode(&[1, 2]).as_ref(), &[(3, true)]).1, Growth::AtEnd);
}

#[test]
fn the_intersection_is_that_of_sets() {
    let mut random = Random(6);
    for _ in 0..300 {
        let numbers = set(&mut random);
        let chunks = divide(&vec(&numbers), Growth::Anywhere);
        let mut wanted = set(&mut random);
        let share = 1 + random.below(40);
        wanted.extend(numbers.iter().filter(|_| random.below(share) == 0));
        let mut found = Vec::new();
        intersect(&chunks, &vec(&wanted), &mut found);
        assert_eq!(found, numbers.intersection(&wanted).copied().collect::<Vec<_>>());
        for number in wanted.iter().take(30) {
            assert_eq!(chunks.iter().any(|chunk| chunk.contains(*number)), numbers.contains(number));
        }
    }
}

#[test]
fn every_damaged_bit_and_missing_octet_is_an_error() {
    for numbers in [&[5, 9, 1000, 70_000][..], &[1, 2, 3, 4, 9], &[1, 3, 4, 6, 8, 9, 11, 12]] {
        let chunk = NumberChunk::encode(numbers).unwrap();
        let bytes = chunk.as_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(NumberChunk::parse(&damaged), Err(CorruptChunk), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert_eq!(NumberChunk::parse(&bytes[..end]), Err(CorruptChunk));
        }
        assert_eq!(NumberChunk::parse(&[bytes, &[0]].concat()), Err(CorruptChunk));
    }
}

/// Uses a chunk in every way.
fn exercise(chunk: &NumberChunk, random: &mut Random) {
    let numbers = chunk.to_vec();
    assert!(numbers.len() <= MAX_MEMBERS as usize);
    let mut wanted: Vec<u32> =
        (0..50).map(|_| chunk.first().saturating_add(random.number(1 << 20))).collect();
    wanted.extend([chunk.first(), chunk.last()]);
    wanted.sort_unstable();
    let mut found = Vec::new();
    intersect(std::slice::from_ref(chunk), &wanted, &mut found);
    chunk.decode_after(Some(random.number(1 << 32)), 10, &mut found);
    let _ = changed(Some(chunk), &[(chunk.first(), false), (chunk.last(), true)]);
}

/// With a valid checksum, as somebody could write who wants to do harm.
#[test]
fn octets_made_on_purpose_neither_panic_nor_decode_without_end() {
    let mut random = Random(7);
    let mut valid = 0;
    for round in 0..50_000u64 {
        let form = u8::try_from(1 + random.below(3)).unwrap();
        let mut summed = Vec::new();
        let count = 1 + random.number(if round % 3 == 0 { 1 << 32 } else { 40 } - 1);
        let ends = (1 << random.below(33), 1 << random.below(33));
        let (first, span) = (random.number(ends.0), random.number(ends.1));
        [count, first, span].into_iter().for_each(|number| push_number(&mut summed, number));
        let (layout, bits) = (Layout::new(count, span).octets(), bits::octets(u64::from(span) + 1));
        let fitting = if form == 1 { layout } else { bits };
        let octets = if form != 2 && fitting < 200 { fitting } else { random.below(60) };
        // Few ones, so that their count is often right.
        summed.extend((0..octets).map(|_| (random.next() & random.next() & random.next()) as u8));
        let mut bytes = vec![form];
        bytes.extend(checksum(form, &summed).to_le_bytes());
        bytes.extend(summed);
        if let Ok(chunk) = NumberChunk::parse(&bytes) {
            valid += 1;
            exercise(&chunk, &mut random);
        }
    }
    assert!(valid > 100, "{valid}");
}

#[test]
fn random_octets_are_no_chunk() {
    let mut random = Random(8);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
        if let Ok(chunk) = NumberChunk::parse(&bytes) {
            exercise(&chunk, &mut random);
        }
    }
}
