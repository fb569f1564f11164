//! Tests of HTTP connections: valid and invalid requests, arbitrary splits, timeouts.

use std::pin::Pin;
use std::task::{Context, Waker};

use base::connection_limits::ConnectionPermit;

use super::harness::{ConnectionHarness, parts};
use super::*;
use crate::bosh::{BoshResponse, RequestSource};
use crate::http::{AddressHeader, SchemeHeader, TrustedProxies};
use crate::stream::Stream;

#[test]
fn a_request_is_held_without_a_buffer_and_answered() {
    let mut run = ConnectionHarness::new();
    run.post("<body rid='1'/>");
    assert_eq!(run.bodies(), ["<body rid='1'/>"]);
    assert_eq!(run.read(), "");
    assert!(run.owns_nothing());
    run.advance(500);
    assert!(!run.is_over(), "how long a request is held is not for the connection to say");
    run.answer(0, "<body/>");
    let text = run.read();
    assert_eq!(parts(&text), (200, "<body/>"));
    assert!(text.contains("\r\nAccess-Control-Allow-Origin: *\r\n"));
    assert!(text.contains("\r\nContent-Type: text/xml; charset=utf-8\r\n"));
    run.post("<body rid='2'/>");
    run.answer(1, "<body>2</body>");
    assert_eq!(parts(&run.read()), (200, "<body>2</body>"));
    assert_eq!(run.handler.http.counts().requests, 2);
    let origin = run.handler.requests.lock()[0].origin.clone();
    assert_eq!((origin.peer.to_string().as_str(), origin.secure), ("192.0.2.1:4711", false));
}

#[test]
fn a_request_is_parsed_the_same_at_every_split() {
    let text = "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n<body rid='1'/>\
                POST /http-bind HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                7\r\n<body r\r\n8\r\nid='2'/>\r\n0\r\n\r\n";
    for cut in 1..text.len() {
        let mut run = ConnectionHarness::new();
        run.send(&text[..cut]);
        run.send(&text[cut..]);
        assert_eq!(run.bodies(), ["<body rid='1'/>", "<body rid='2'/>"], "cut at {cut}");
    }
    let mut run = ConnectionHarness::new();
    text.bytes().for_each(|byte| run.send([byte]));
    assert_eq!(run.bodies(), ["<body rid='1'/>", "<body rid='2'/>"]);
}

#[test]
fn requests_after_a_held_one_count_immediately_and_responses_keep_their_order() {
    let mut run = ConnectionHarness::new();
    run.post("<body rid='1'/>");
    run.post("<body rid='2'/>");
    run.send("OPTIONS /bosh HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(run.bodies().len(), 2);
    run.answer(1, "second");
    assert_eq!(run.read(), "");
    run.answer(0, "first");
    let text = run.read();
    let (first, second) = (text.find("first").unwrap(), text.find("second").unwrap());
    let third = text.find("HTTP/1.1 204").unwrap();
    assert!(first < second && second < third, "{text}");
    // Bounded in number.
    for _ in 0..10 {
        run.post("<body/>");
    }
    assert_eq!(run.bodies().len(), 2 + 4);
    (2..6).for_each(|at| run.answer(at, "x"));
    run.read();
    assert_eq!(run.bodies().len(), 2 + 8);
}

#[test]
fn a_broken_connection_drops_what_it_held() {
    let mut run = ConnectionHarness::new();
    run.post("<body rid='1'/>");
    run.pipe.close();
    run.poll_until_idle();
    assert!(run.is_over());
    assert!(run.handler.requests.lock()[0].is_gone());
    assert_eq!(run.handler.limiter.counts().connections, 0);
    assert_eq!(run.handler.http.counts().connections, 0);
}

#[test]
fn slow_heads_and_slow_bodies_time_out() {
    let mut run = ConnectionHarness::new();
    run.advance(11);
    assert!(run.is_over(), "nobody said a word");

    let mut run = ConnectionHarness::new();
    let head = "POST /bosh HTTP/1.1\r\nHost: x\r\nX: ";
    for byte in head.bytes().take(11) {
        run.send([byte]);
        run.advance(1);
    }
    let text = run.read();
    assert_eq!(parts(&text).0, 408);
    assert!(text.ends_with('#') && run.handler.requests.lock().is_empty());
    run.advance(3);
    assert!(run.is_over());

    let mut run = ConnectionHarness::new();
    run.send("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    for _ in 0..31 {
        run.send("x");
        run.advance(1);
    }
    assert_eq!(parts(&run.read()).0, 408);
    assert!(run.handler.requests.lock().is_empty());
    assert_eq!(run.handler.http.counts().timeouts, 1);

    let mut run = ConnectionHarness::new();
    run.post("<body/>");
    run.answer(0, "<body/>");
    run.read();
    run.advance(60);
    assert!(!run.is_over());
    run.advance(20);
    assert!(run.read().ends_with('#'), "a connection without a request ends in silence");
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let mut run = ConnectionHarness::new();
    run.post("<body/>");
    run.answer(0, &"x".repeat(100_000));
    run.poll_until_idle();
    run.advance(20);
    let mut buffer = [0; 1000];
    let _ = run.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
    run.poll_until_idle();
    run.advance(20);
    assert!(!run.is_over(), "it took something in between");
    run.advance(31);
    assert!(run.is_over());
}

#[test]
fn a_response_is_sent_when_the_kernel_has_taken_all_of_it() {
    let mut run = ConnectionHarness::new();
    run.post("<body rid='1'/>");
    run.post("<body rid='2'/>");
    run.answer(1, "second");
    run.answer(0, &"x".repeat(100_000));
    run.poll_until_idle();
    let states = |run: &ConnectionHarness| {
        let requests = run.handler.requests.lock();
        [0, 1].map(|at| (requests[at].is_sent(), requests[at].is_gone()))
    };
    assert_eq!(states(&run), [(false, false), (false, false)], "the connection does not take it");
    let text = run.read();
    assert!(text.contains("xxxHTTP/1.1 200") && text.ends_with("second"), "in order");
    assert_eq!(states(&run), [(true, true), (true, true)]);
}

#[test]
fn a_response_is_not_sent_if_its_connection_breaks_before() {
    let mut run = ConnectionHarness::new();
    run.post("<body rid='1'/>");
    run.answer(0, &"x".repeat(100_000));
    run.poll_until_idle();
    run.pipe.close();
    run.advance(31);
    assert!(run.is_over());
    let requests = run.handler.requests.lock();
    assert_eq!((requests[0].is_sent(), requests[0].is_gone()), (false, true));
}

#[test]
fn the_last_response_of_a_connection_is_sent() {
    let mut run = ConnectionHarness::new();
    run.send("POST /bosh HTTP/1.0\r\nHost: x\r\nContent-Length: 7\r\n\r\n<body/>");
    run.answer(0, "<body/>");
    assert!(run.read().contains("<body/>"));
    assert!(run.handler.requests.lock()[0].is_sent());
}

#[test]
fn a_body_above_the_limit_is_refused() {
    let settings = || HttpSettings { bosh_body_bytes: Some(100), ..HttpSettings::default() };
    for text in [
        "Content-Length: 101\r\n\r\n".to_owned(),
        "Content-Length: 999999999999\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n65\r\n".to_owned(),
        format!("Transfer-Encoding: chunked\r\n\r\n{}", "1\r\nx\r\n".repeat(101)),
    ] {
        let mut run = ConnectionHarness::with(settings(), |_| {});
        run.send(format!("POST /bosh HTTP/1.1\r\nHost: x\r\n{text}"));
        let answer = run.read();
        assert_eq!(parts(&answer).0, 413, "{text}");
        assert!(answer.contains("Connection: close") && run.handler.requests.lock().is_empty());
    }
    let mut run = ConnectionHarness::with(settings(), |_| {});
    run.post(&"x".repeat(100));
    assert_eq!(run.bodies().len(), 1);
    let mut run = ConnectionHarness::new();
    let large = "x".repeat(250_000);
    run.post(&large);
    assert_eq!(run.bodies(), [large]);
}

#[test]
fn malformed_requests_are_refused_and_later_ones_are_not_read() {
    for (text, status) in [
        (
            "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", 400),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("POST /bosh HTTP/1.1\r\n\r\n", 400),
        ("\x16\x03\x01\x02", 400),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", 417),
    ] {
        let mut run = ConnectionHarness::new();
        run.send(format!("{text}POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        let answer = run.read();
        assert_eq!(parts(&answer).0, status, "{text:?}");
        assert!(answer.contains("Connection: close") && answer.ends_with('#'), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1);
        assert!(run.handler.requests.lock().is_empty());
        assert_eq!(run.handler.http.counts().refused, 1);
    }
    let mut run = ConnectionHarness::new();
    run.send(format!("POST /bosh HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(64)));
    assert_eq!(parts(&run.read()).0, 431);
    let mut run = ConnectionHarness::new();
    run.send(format!("POST /bosh HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(17_000)));
    assert_eq!(parts(&run.read()).0, 431);
}

#[test]
fn expect_100_continue_is_answered() {
    let mut run = ConnectionHarness::new();
    run.send("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(run.read(), "HTTP/1.1 100 Continue\r\n\r\n");
    run.send("<body/>");
    run.answer(0, "<body/>");
    assert_eq!(parts(&run.read()).0, 200);
}

#[test]
fn http_1_0_and_connection_close_end_after_one_response() {
    for (head, stays) in [
        ("POST /bosh HTTP/1.0\r\n", false),
        ("POST /bosh HTTP/1.0\r\nConnection: keep-alive\r\n", true),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", false),
    ] {
        let mut run = ConnectionHarness::new();
        run.send(format!("{head}Content-Length: 7\r\n\r\n<body/>"));
        run.answer(0, "<body/>");
        let text = run.read();
        assert_eq!(text.ends_with('#'), !stays, "{head}: {text}");
        assert_eq!(text.contains("Connection: close"), !stays);
        assert_eq!(text.contains("Connection: keep-alive"), stays);
    }
}

#[test]
fn the_path_of_bosh_answers_browsers() {
    let mut run = ConnectionHarness::new();
    run.send("OPTIONS /bosh HTTP/1.1\r\nHost: x\r\nOrigin: https://a.org\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    let text = run.read();
    assert_eq!(parts(&text), (204, ""));
    for field in
        ["Access-Control-Allow-Origin: *", "Access-Control-Allow-Methods: POST", "Access-Control-Max-Age:"]
    {
        assert!(text.contains(field), "{text}");
    }
    run.send("GET /bosh HTTP/1.1\r\nHost: x\r\n\r\n");
    let text = run.read();
    assert_eq!(parts(&text), (200, BOSH_PAGE));
    run.send("HEAD /bosh HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(parts(&run.read()), (200, ""));
    run.send("DELETE /bosh HTTP/1.1\r\nHost: x\r\n\r\n");
    let text = run.read();
    assert_eq!(parts(&text).0, 405);
    assert!(text.contains("Allow: POST"));
}

#[test]
fn other_origins_are_refused_if_configured() {
    let mut origins = AllowedOrigins::Listed(Vec::new());
    origins.add("https://chat.example.org").unwrap();
    let settings = HttpSettings { allowed_origins: origins, ..HttpSettings::default() };
    let ask = |origin: &str| {
        let mut run = ConnectionHarness::with(settings.clone(), |_| {});
        run.send(format!("POST /bosh HTTP/1.1\r\nHost: x.org\r\n{origin}Content-Length: 0\r\n\r\n"));
        if !run.handler.requests.lock().is_empty() {
            run.answer(0, "<body/>");
        }
        run.read()
    };
    let text = ask("Origin: https://chat.example.org\r\n");
    assert_eq!(parts(&text).0, 200);
    assert!(text.contains("Access-Control-Allow-Origin: https://chat.example.org\r\nVary: Origin\r\n"));
    assert_eq!(parts(&ask("Origin: https://evil.example\r\n")).0, 403);
    assert_eq!(parts(&ask("Origin: https://x.org\r\n")).0, 200);
    assert_eq!(parts(&ask("")).0, 200);
    assert_eq!(parts(&ask("Origin: https://chat.example.org\r\nOrigin: https://evil.example\r\n")).0, 403);
}

#[test]
fn other_paths_and_http_2_are_handed_over_complete() {
    for text in [
        "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0",
        "GET //bosh HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /bosh/.. HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        "GET /%62osh HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut run = ConnectionHarness::new();
        run.send(text);
        assert!(run.is_over());
        let mut bytes = StreamIo::new(run.handler.others.lock().pop().unwrap());
        let mut buffer = [0; 500];
        let mut room = tokio::io::ReadBuf::new(&mut buffer);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(tokio::io::AsyncRead::poll_read(Pin::new(&mut bytes), &mut cx, &mut room).is_ready());
        assert_eq!(room.filled(), text.as_bytes());
    }
    let mut run = ConnectionHarness::new();
    run.post("<body/>");
    run.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(!run.is_over(), "the held request comes first");
    run.answer(0, "<body/>");
    assert_eq!(parts(&run.read()).0, 200);
    assert_eq!(run.handler.others.lock().len(), 1);
    let settings = HttpSettings { bosh_body_bytes: None, websocket: None, ..HttpSettings::default() };
    for path in ["/bosh", "/ws"] {
        let mut run = ConnectionHarness::with(settings.clone(), |_| {});
        run.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(run.handler.others.lock().len(), 1, "what is off is no path of ours");
    }
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

#[test]
fn a_websocket_is_detached_with_its_101_response_queued() {
    let mut run = ConnectionHarness::new();
    run.send(format!("{UPGRADE}Sec-WebSocket-Protocol: xmpp\r\n\r\n"));
    assert!(run.is_over());
    let mut stream = run.handler.websockets.lock().pop().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(crate::with_scratch(|scratch| stream.poll_flush(&mut cx, scratch)).is_ready());
    let text = run.read();
    assert!(text.starts_with("HTTP/1.1 101 ") && text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text}");
    assert_eq!(stream.info().peer.to_string(), "192.0.2.1:4711");
    assert_eq!(run.handler.http.counts().upgraded, 1);
}

#[test]
fn a_refused_websocket_gets_the_reason() {
    let mut run = ConnectionHarness::new();
    run.send(format!("{UPGRADE}\r\n"));
    let text = run.read();
    assert_eq!(parts(&text).0, 400);
    assert!(text.contains("subprotocol xmpp"), "{text}");
    let mut run = ConnectionHarness::new();
    let old = UPGRADE.replace("Version: 13", "Version: 8");
    run.send(format!("{old}Sec-WebSocket-Protocol: xmpp\r\n\r\n"));
    let text = run.read();
    assert_eq!(parts(&text).0, 426);
    assert!(text.contains("Sec-WebSocket-Version: 13"));
    let mut run = ConnectionHarness::with(HttpSettings::default(), |handler| handler.full = true);
    run.send(format!("{UPGRADE}Sec-WebSocket-Protocol: xmpp\r\n\r\n"));
    assert_eq!(parts(&run.read()).0, 503);
    let mut run = ConnectionHarness::new();
    run.send(format!("{UPGRADE}Sec-WebSocket-Protocol: xmpp\r\nContent-Length: 1\r\n\r\nx"));
    assert_eq!(parts(&run.read()).0, 400);
}

#[test]
fn required_encryption_may_be_asserted_by_a_trusted_proxy() {
    let mut trusted = crate::Networks::NONE;
    trusted.add("192.0.2.1").unwrap();
    let (address, scheme) = (Some(AddressHeader::XForwardedFor), Some(SchemeHeader::XForwardedProto));
    let settings =
        HttpSettings { proxies: TrustedProxies { trusted, address, scheme }, ..HttpSettings::default() };
    let ask = |settings: &HttpSettings, head: &str| {
        let mut run = ConnectionHarness::with(settings.clone(), |handler| handler.tls = true);
        run.send(format!("{head}X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n\r\n"));
        run
    };
    let post = "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n";
    let upgrade = format!("{UPGRADE}Sec-WebSocket-Protocol: xmpp\r\n");
    assert_eq!(parts(&ask(&HttpSettings::default(), post).read()).0, 403);
    assert_eq!(parts(&ask(&HttpSettings::default(), &upgrade).read()).0, 403);
    let run = ask(&settings, post);
    let requests = run.handler.requests.lock();
    assert_eq!(
        (requests[0].origin.peer.to_string().as_str(), requests[0].origin.secure),
        ("203.0.113.7:0", true)
    );
    let run = ask(&settings, &upgrade);
    let websockets = run.handler.websockets.lock();
    let info = websockets[0].info();
    assert_eq!((info.peer.to_string().as_str(), info.secure), ("203.0.113.7:0", true));
}

#[test]
fn a_response_may_be_a_close_without_bytes() {
    let mut run = ConnectionHarness::new();
    run.post("<body/>");
    run.post("<body/>");
    run.handler.requests.lock()[0].respond(BoshResponse {
        status: 400,
        body: (&b"x"[..]).into(),
        content_type: None,
        close: true,
    });
    assert_eq!(run.read(), "#");
    assert!(run.handler.requests.lock()[1].is_gone());
}

#[test]
fn a_draining_node_answers_what_it_holds_and_closes() {
    let (mut idle, mut fresh, mut held) =
        (ConnectionHarness::new(), ConnectionHarness::new(), ConnectionHarness::new());
    idle.post("<body/>");
    idle.answer(0, "<body/>");
    idle.read();
    held.post("<body/>");
    for run in [&mut idle, &mut fresh, &mut held] {
        run.handler.http.drain();
        run.poll_until_idle();
    }
    assert_eq!((idle.read().as_str(), fresh.read().as_str()), ("#", "#"));
    assert_eq!(held.read(), "");
    held.answer(0, "<body type='terminate'/>");
    let text = held.read();
    assert!(
        text.contains("Connection: close") && text.contains("terminate") && text.ends_with('#'),
        "{text}"
    );
}

#[test]
fn compressed_responses_carry_content_encoding() {
    let mut run = ConnectionHarness::new();
    run.send("POST /bosh HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip, deflate\r\nContent-Length: 0\r\n\r\n");
    run.answer(0, &"<message/>".repeat(500));
    let text = run.read();
    assert!(text.contains("Content-Encoding: gzip\r\n"), "{text}");
}

#[test]
fn a_connection_fits_its_budget() {
    let size = size_of::<HttpConnection<crate::bosh::BoshSessionTable>>();
    assert!(size <= 384, "{size}");
}

impl HttpHandler for crate::bosh::BoshSessionTable {
    type ResponseFuture = crate::bosh::PendingResponse;
    fn shared(&self) -> &HttpShared {
        unreachable!("only its size is needed")
    }

    fn needs_tls(&self) -> bool {
        false
    }

    fn bosh_request(&self, _: RequestSource, _: &[u8]) -> crate::bosh::PendingResponse {
        unreachable!("only its size is needed")
    }

    fn response_sent(&self, response: &mut crate::bosh::PendingResponse) {
        response.response_sent();
    }

    fn acquire_permit(&self, _: &RemoteClient) -> Option<ConnectionPermit> {
        None
    }

    fn websocket(&self, _: Stream, _: ConnectionPermit) {}
    fn passthrough(&self, _: Stream, _: ConnectionPermit) {}
}
