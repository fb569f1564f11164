//! HTTP/2 rapid reset and endless headers.
//!
//! Done: ten thousand requests that are reset immediately; a header in CONTINUATION frames that never ends; endless
//! settings and pings; a thousand empty DATA frames; zero windows for large responses.
//!
//! Rule: RFC 9113, sections 5.1.2, 6.10 and 10.5; CVE-2023-44487 (rapid reset), CVE-2024-27316 (CONTINUATION
//! flood), CVE-2019-9512 to 9518.
//!
//! Right: the connection is closed or answered within bounds; memory does not grow, and other clients are served.

use std::time::Duration;

use crate::support::{ProgramUnderAttack, RawSocket};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET /console/index.html` as literals without indexing.
fn head() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/console/index.html"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

fn open(program: &ProgramUnderAttack) -> RawSocket {
    let mut connection = program.connect(program.http);
    connection.0.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    connection.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat());
    connection
}

#[test]
fn resets_and_endless_headers_are_bounded() {
    let program = ProgramUnderAttack::start("h2", "", "");
    let odd = |n: u32| 2 * n + 1;
    let resets: Vec<u8> = (0..10_000)
        .flat_map(|n| [frame(1, 5, odd(n), &head()), frame(3, 0, odd(n), &8_u32.to_be_bytes())].concat())
        .collect();
    let endless: Vec<u8> = [frame(1, 1, 1, &head())]
        .into_iter()
        .chain((0..4_000).map(|n| {
            let field = format!("x-{n:010}");
            let mut block = vec![0, u8::try_from(field.len()).unwrap()];
            block.extend(field.as_bytes());
            block.push(100);
            block.extend([b'v'; 100]);
            frame(9, 0, 1, &block.repeat(10))
        }))
        .flatten()
        .collect();
    let settings: Vec<u8> = (0..50_000).flat_map(|_| frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).collect();
    let pings: Vec<u8> = (0..50_000).flat_map(|_| frame(6, 0, 0, &[0; 8])).collect();
    let empty: Vec<u8> = [frame(1, 4, 1, &head())]
        .into_iter()
        .chain((0..50_000).map(|_| frame(0, 0, 1, &[])))
        .flatten()
        .collect();
    let stalled: Vec<u8> = [frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])]
        .into_iter()
        .chain((0..100).map(|n| frame(1, 5, odd(n), &head())))
        .flatten()
        .collect();
    let dependent: Vec<u8> = (0..20_000).flat_map(|n| frame(2, 0, odd(n), &[0, 0, 0, 0, 16])).collect();
    // The allocator retains the memory of the first requests.
    drop(open(&program));
    assert_eq!(program.get("/console/index.html").0, 200);
    let before = program.resident();
    for (what, bytes) in [
        ("rapid reset", resets),
        ("a head without an end", endless),
        ("settings", settings),
        ("pings", pings),
        ("empty data", empty),
        ("answers that are not taken", stalled),
        ("priorities", dependent),
    ] {
        let all: Vec<RawSocket> = (0..4)
            .map(|_| {
                let mut connection = open(&program);
                connection.send(&bytes);
                connection
            })
            .collect();
        assert_eq!(program.get("/healthz").0, 200, "{what}");
        let grown = program.resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{what}: {} kB more are resident", grown >> 10);
        drop(all);
    }
}
