//! The properties of the fuzz target, on generated and damaged streams, in every ordinary test run.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

#[path = "../fuzz/body.rs"]
mod body;

use proptest::prelude::*;

const PIECES: &[&str] = &[
    "<?xml version='1.0'?>",
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>",
    "<message><body>hé &amp; ☃</body></message>",
    "<a b='>' c=\"/>\"/>",
    "<a><![CDATA[</a>]]></a>",
    "</stream:stream>",
    "<r/>",
    " \n",
    "<!-- -->",
    "<a><b><c><d><e><f><g><h><i/></h></g></f></e></d></c></b></a>",
    "&lt;",
    "</a>",
    "<",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(PIECES), 0..20);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (any::<u8>(), any::<bool>(), pieces, damage).prop_map(|(size, opened, pieces, damage)| {
        let mut bytes = vec![size % 40];
        if opened {
            bytes.extend(PIECES[1].as_bytes());
        }
        pieces.iter().for_each(|piece| bytes.extend(piece.as_bytes()));
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            if at > 0 {
                bytes[at] = byte;
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_and_whole_give_the_same_events(data in stream()) {
        body::check(&data);
    }
}

#[test]
fn the_seeds_hold() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/stream");
    let mut count = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        body::check(&std::fs::read(seed.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5);
}
