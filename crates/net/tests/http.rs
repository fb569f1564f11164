//! Property tests of HTTP connections: any bytes, split anywhere, mean the same and terminate.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

#[path = "../fuzz/http_bytes.rs"]
mod http_bytes;

use http_bytes::{HandledRequest, check, run};
use proptest::prelude::*;
use proptest::sample::select;

/// Fragments of requests, valid and invalid.
const PIECES: [&str; 26] = [
    "POST /bosh HTTP/1.1\r\n",
    "POST /http-bind HTTP/1.0\r\n",
    "GET /ws HTTP/1.1\r\n",
    "GET /metrics HTTP/1.1\r\n",
    "OPTIONS /bosh HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "Host: x\r\n",
    "Content-Length: 7\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 600\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: xmpp\r\n",
    "X: \u{e4}\r\n",
    " folded\r\n",
    "\r\n",
    "\n",
    "<body/>",
    "7\r\n<body/>\r\n",
    "0\r\n\r\n",
    "3;a=b\r\nabc\r\n",
    "\0",
    "\r",
];

/// Whole requests, so that pipelines of valid ones are common.
const WHOLE: [&str; 4] = [
    "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n<body/>",
    "POST /bosh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n<body/>\r\n0\r\n\r\n",
    "OPTIONS /bosh HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /bosh HTTP/1.1\r\nHost: x\r\n\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_input_is_parsed_the_same_at_every_split(size in 1..60_u8, pieces in prop::collection::vec(select(&PIECES[..]), 0..14)) {
        let mut data = vec![size];
        data.extend(pieces.concat().into_bytes());
        check(&data);
    }

    #[test]
    fn valid_requests_with_garbage_in_between(
        size in 1..60_u8,
        good in prop::collection::vec(select(&WHOLE[..]), 0..8),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        more in prop::collection::vec(select(&WHOLE[..]), 0..3),
    ) {
        let mut data = vec![size];
        data.extend(good.concat().into_bytes());
        data.extend(noise);
        data.extend(more.concat().into_bytes());
        check(&data);
    }

    #[test]
    fn every_good_request_is_answered(size in 1..200_usize, good in prop::collection::vec(select(&WHOLE[..]), 0..12)) {
        let (seen, output) = run(good.concat().as_bytes(), size);
        let posts = good.iter().filter(|text| text.starts_with("POST")).count();
        prop_assert_eq!(seen, vec![HandledRequest::Body(b"<body/>".to_vec()); posts]);
        prop_assert_eq!(output.matches("HTTP/1.1 2").count(), good.len());
    }
}
