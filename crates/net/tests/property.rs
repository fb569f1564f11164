//! Property tests of streams: the checks of the fuzz targets, on generated and damaged input.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

#[path = "../fuzz/body.rs"]
mod body;
#[path = "support/damage.rs"]
mod damage;
#[path = "../fuzz/websocket.rs"]
mod websocket;

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
    (any::<u8>(), any::<bool>(), pieces, damage::damage()).prop_map(|(size, opened, pieces, damage)| {
        let mut bytes = vec![size % 40];
        if opened {
            bytes.extend(PIECES[1].as_bytes());
        }
        pieces.iter().for_each(|piece| bytes.extend(piece.as_bytes()));
        damage::apply(damage, &mut bytes, 1);
        bytes
    })
}

/// Frames of a client, as `fuzz/websocket.rs` reads them: fragments of a conversation, partly damaged.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    const OPEN: &str = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='a'/>";
    const PAYLOADS: &[&str] = &[
        OPEN,
        "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>",
        "<message xmlns='jabber:client'><body>hé &amp; ☃</body></message>",
        "<message><bo",
        "dy/></message>",
        "<?xml version='1.0'?><r xmlns='urn:xmpp:sm:3'/>",
        "<r/><r/>",
        "",
        " ",
        "\u{3}\u{e8}",
    ];
    const FIRST: &[u8] = &[0x81, 0x81, 0x81, 0x81, 0x01, 0x00, 0x80, 0x80, 0x89, 0x8A, 0x88, 0xC1, 0x82];
    let frame = (prop::sample::select(FIRST), prop::sample::select(PAYLOADS));
    (any::<u8>(), any::<u8>(), prop::collection::vec(frame, 0..15), damage::damage()).prop_map(
        |(form, size, frames, damage)| {
            let mut bytes = vec![form & 2 | 1, size % 40];
            for (first, payload) in [(0x81, OPEN)].into_iter().chain(frames) {
                bytes.extend([first, payload.len() as u8]);
                bytes.extend(payload.as_bytes());
            }
            damage::apply(damage, &mut bytes, 2);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fragmented_input_gives_the_same_events(data in stream()) {
        body::check(&data);
    }

    #[test]
    fn fragmented_frames_give_the_same_events(data in frames()) {
        websocket::check(&data);
    }

    #[test]
    fn fragmented_garbage_ends_the_same_way(data in prop::collection::vec(any::<u8>(), 0..60)) {
        websocket::check(&data);
    }
}

#[test]
fn the_fuzz_seeds_pass() {
    for target in ["stream", "websocket"] {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let seed = std::fs::read(seed.unwrap().path()).unwrap();
            if target == "stream" {
                body::check(&seed)
            } else {
                websocket::check(&seed)
            }
            count += 1;
        }
        assert!(count >= 5);
    }
}
