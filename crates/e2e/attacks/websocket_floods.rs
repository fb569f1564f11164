//! WebSocket frame floods.
//!
//! Done: frames of 2^63 bytes; messages in a hundred thousand empty fragments; long or fragmented control frames;
//! frames without a mask; endless pings from a client that does not read; a compression bomb; all before a login.
//!
//! Rule: RFC 6455, sections 5.1, 5.4, 5.5 and 10.4, RFC 7692; CVE-2022-0217 (Prosody's WebSocket), CVE-2014-2744
//! (compression bombs).
//!
//! Right: the connection is closed, or its memory is bounded; memory does not grow, and other clients are served.

use std::io::Write;

use crate::support::{ProgramUnderAttack, frame};

#[test]
fn announced_and_endless_frames_use_no_memory() {
    let program = ProgramUnderAttack::start("frames", "[http.websocket]\ncompression = true\n", "");
    drop(program.websocket(""));
    let before = program.resident();
    let empty_fragments: Vec<u8> = [frame(0x01, 1, b"<")]
        .into_iter()
        .chain((0..100_000).map(|_| frame(0x00, 0, b"")))
        .flatten()
        .collect();
    let small_fragments: Vec<u8> = [frame(0x01, 1, b"<")]
        .into_iter()
        .chain((0..50_000).map(|_| frame(0x00, 1, b"a")))
        .flatten()
        .collect();
    let bomb = {
        // One megabyte of spaces in an attribute, deflated, a hundred times.
        let mut deflated = Vec::new();
        let blanks = vec![b' '; 1 << 20];
        let mut encoder = flate2::write::DeflateEncoder::new(&mut deflated, flate2::Compression::best());
        encoder.write_all(b"<open a='").unwrap();
        for _ in 0..100 {
            encoder.write_all(&blanks).unwrap();
        }
        encoder.finish().unwrap();
        deflated
    };
    let attacks: Vec<(&str, &str, Vec<u8>)> = vec![
        ("a frame of 2^63 bytes", "", frame(0x81, 1 << 63, b"<a")),
        ("a frame of 2^62 bytes", "", frame(0x81, 1 << 62, b"<a")),
        ("a frame of a gigabyte", "", frame(0x81, 1 << 30, b"<a")),
        ("empty fragments", "", empty_fragments),
        ("fragments of one byte", "", small_fragments),
        ("a long ping", "", frame(0x89, 126, &[b'x'; 126])),
        ("a ping in fragments", "", frame(0x09, 1, b"x")),
        ("no mask", "", vec![0x81, 0x01, b'<']),
        ("a reserved kind", "", frame(0x83, 1, b"x")),
        ("a reserved bit", "", frame(0xC1, 1, b"x")),
        ("a continuation of nothing", "", frame(0x80, 1, b"x")),
        ("a binary message", "", frame(0x82, 1, b"x")),
        (
            "a compressed bomb",
            "Sec-WebSocket-Extensions: permessage-deflate\r\n",
            frame(0xC1, bomb.len() as u64, &bomb),
        ),
    ];
    for (what, extensions, bytes) in &attacks {
        for _ in 0..8 {
            let mut connection = program.websocket(extensions);
            connection.send(bytes);
            connection.half_close();
            // It ends without help; its last output may go to a closed connection.
            connection.rest();
        }
        assert_eq!(program.get("/healthz").0, 200, "{what}");
    }
    let grown = program.resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{} kB more are resident", grown >> 10);
}

#[test]
fn pongs_to_a_client_that_does_not_read_are_not_queued() {
    let program = ProgramUnderAttack::start("pings", "", "");
    let mut connection = program.websocket("");
    let pings: Vec<u8> = (0..20_000).flat_map(|_| frame(0x89, 125, &[b'x'; 125])).collect();
    let before = program.resident();
    connection.0.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    for _ in 0..20 {
        if connection.0.write_all(&pings).is_err() {
            break;
        }
    }
    let grown = program.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{} kB more are resident", grown >> 10);
    assert_eq!(program.get("/healthz").0, 200);
}
