//! Tests of HTTP on real ports: BOSH and WebSocket, plain and under TLS, over HTTP/1.1 and HTTP/2, behind proxies;
//! rejected requests; reload and shutdown.
//!
//! Each test starts its own program in its own directory. Clients are sockets and bytes.
//!
//! Not implemented: XMPP over these transports (scenarios, and real clients in `clients/`).
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

mod http_client;
mod node;
mod upload;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use http_client::{BoshClient, Http2Client, WebSocketClient};
use node::WebNode;
use throng_e2e::wait;

const PROXIES: &str = "[http]\ntrusted_proxies = ['127.0.0.1']\nclient_address_header = 'X-Forwarded-For'\n\
                       client_scheme_header = 'X-Forwarded-Proto'\n";

#[test]
fn bosh_logs_in_over_http_tls_and_hyper() {
    let node = WebNode::start("bosh", "");
    for mut web in [node.plain(), node.tls(), node.tls_with(&[b"http/1.1"])] {
        let mut bosh = BoshClient::login(&mut web, "romeo");
        bosh.bound();
    }
    // The same connection after hyper has taken it over.
    let mut web = node.plain();
    assert!(web.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "").1.contains("ok"));
    BoshClient::login(&mut web, "romeo").bound();
    assert!(web.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "").1.contains("ok"));
}

#[test]
fn websockets_log_in_over_http_tls_and_hyper() {
    let node = WebNode::start("websocket", "");
    for web in [node.plain(), node.tls()] {
        WebSocketClient::open(web, "/ws").login("romeo");
    }
    let mut web = node.plain();
    assert!(web.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "").1.contains("ok"));
    WebSocketClient::open(web, "/xmpp-websocket").login("romeo");
}

#[test]
fn http_2_carries_bosh_and_websocket() {
    let node = WebNode::start("h2", "");
    for web in [node.plain(), node.tls_with(&[b"h2"])] {
        let mut h2 = Http2Client::begin(web);
        assert!(h2.connects, "SETTINGS_ENABLE_CONNECT_PROTOCOL");
        let (status, body) = h2.post("/bosh", &BoshClient::creation(1000));
        assert_eq!(status, 0x88, "200");
        assert!(body.contains("<stream:features>") && body.contains(" sid='"), "{body}");
        assert_eq!(h2.upgrade("/ws"), 0x88);
        let text = h2.websocket(
            "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>",
            "<stream:features",
        );
        assert!(text.contains("<open ") && text.contains("PLAIN"), "{text}");
    }
}

#[test]
fn a_second_request_counts_immediately_also_on_the_same_connection() {
    let node = WebNode::start("pipeline", "");
    let mut web = node.plain();
    let bosh = BoshClient::login(&mut web, "romeo");
    let (sid, rid) = (bosh.sid.clone(), bosh.rid);
    let body = |rid: u64, inner: &str| {
        format!("<body rid='{rid}' sid='{sid}' xmlns='http://jabber.org/protocol/httpbind'>{inner}</body>")
    };
    // The first request is held; it returns with the answer to the second one's content.
    let ping = "<iq xmlns='jabber:client' type='get' id='p1'><ping xmlns='urn:xmpp:ping'/></iq>";
    web.post("/bosh", &body(rid, ""));
    web.post("/bosh", &body(rid + 1, ping));
    let (head, first) = web.answer();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(first.contains("id='p1'") || first.ends_with("httpbind'/>"), "{first}");
}

#[test]
fn malformed_requests_affect_only_their_connection() {
    let node = WebNode::start("malformed", "");
    let mut neighbour = node.plain();
    let mut bosh = BoshClient::login(&mut neighbour, "romeo");
    for (text, status) in [
        (
            "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 0\r\n\r\n", 400),
        ("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        ("POST //bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        ("POST /bosh/../bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        ("POST /%62osh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        ("GET /ws HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ] {
        let mut web = node.plain();
        web.write_all(text.as_bytes()).unwrap();
        let (head, _) = web.answer();
        let expected = format!("HTTP/1.1 {status} ");
        // An unknown path may be refused in more than one way, but it is never BOSH.
        let fits = head.starts_with(&expected) || (status == 404 && head.starts_with("HTTP/1.1 405 "));
        assert!(fits, "{text}: {head}");
    }
    let mut flood = node.plain();
    flood
        .write_all(format!("POST /bosh HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(100)).as_bytes())
        .unwrap();
    assert!(flood.answer().0.starts_with("HTTP/1.1 431 "));
    let mut noise = node.plain();
    noise.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").unwrap();
    assert!(noise.answer().0.starts_with("HTTP/1.1 400 "));
    bosh.bound();
}

#[test]
fn slow_heads_and_slow_bodies_time_out() {
    let node = WebNode::start(
        "slow",
        "[http]\nheader_timeout_seconds = 1\nbody_timeout_seconds = 1\nidle_timeout_seconds = 1\n",
    );
    for text in ["POST /bosh HT", "POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n<body"] {
        let mut web = node.plain();
        web.write_all(text.as_bytes()).unwrap();
        assert!(web.answer().0.starts_with("HTTP/1.1 408 "), "{text}");
    }
    let mut silent = node.tls_socket();
    assert_eq!(silent.read(&mut [0; 10]).unwrap(), 0, "a handshake that never comes");
}

#[test]
fn cors_headers_follow_the_configured_origins() {
    let node = WebNode::start("origins", "");
    let ask = |origin: &str| {
        let mut web = node.plain();
        let body = BoshClient::creation(1);
        let head = format!(
            "POST /bosh HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        web.ask(&head, &body).0
    };
    assert!(ask("https://evil.example").contains("Access-Control-Allow-Origin: *\r\n"));
    node.configure("[http]\nallowed_origins = ['https://chat.example.org']\n");
    assert!(node.reload().contains("applied: [http]"), "{}", node.log());
    assert!(
        ask("https://chat.example.org").contains("Access-Control-Allow-Origin: https://chat.example.org\r\n")
    );
    assert!(ask("https://evil.example").starts_with("HTTP/1.1 403 "));
    let upgrade =
        WebSocketClient::request("/ws").replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    assert!(node.plain().ask(&upgrade, "").0.starts_with("HTTP/1.1 403 "));
    let mut preflight = node.plain();
    let head =
        preflight.ask("OPTIONS /bosh HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example.org\r\n\r\n", "").0;
    assert!(
        head.starts_with("HTTP/1.1 204 ") && head.contains("Access-Control-Allow-Methods: POST"),
        "{head}"
    );
}

#[test]
fn the_client_address_comes_from_a_trusted_proxy() {
    let debug = "[log]\nlevel = 'info,throng_streams=debug'\n";
    let node = WebNode::start("proxy", &format!("{PROXIES}{debug}"));
    // A stream that ends with an error is logged with the address of its peer.
    let wrong = "<body rid='1' to='nowhere.example' wait='1' hold='1' ver='1.6' xml:lang='en' \
                 xmlns='http://jabber.org/protocol/httpbind' xmlns:xmpp='urn:xmpp:xbosh' xmpp:version='1.0'/>";
    let head = format!("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", wrong.len());
    node.plain().ask(&format!("{head}X-Forwarded-For: 203.0.113.9, 203.0.113.1\r\n\r\n"), wrong);
    node.wait_for_log("peer=203.0.113.1:0");
    let mut web = node.proxied();
    web.write_all(b"PROXY TCP4 203.0.113.2 127.0.0.1 4712 80\r\n").unwrap();
    web.ask(&format!("{head}\r\n"), wrong);
    node.wait_for_log("peer=203.0.113.2:4712");
    let mut web = node.proxied();
    web.write_all(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x03\x7f\0\0\x01\x12\x69\0\x50").unwrap();
    web.ask(&format!("{head}\r\n"), wrong);
    node.wait_for_log("peer=203.0.113.3:4713");
    let mut xmpp = node.proxied_xmpp();
    let header = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='nowhere.example' version='1.0'>";
    xmpp.write_all(format!("PROXY TCP6 2001:db8::4 ::1 4714 5222\r\n{header}").as_bytes()).unwrap();
    node.wait_for_log("peer=[2001:db8::4]:4714");
    let mut web = node.proxied();
    web.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(web.read(&mut [0; 10]).unwrap_or(0), 0, "no header, no service");
}

#[test]
fn connections_without_a_proxy_header_take_no_turn_of_the_accept_rate() {
    let node = WebNode::start("proxy-rate", PROXIES);
    node.configure(&format!("{PROXIES}[limits]\naccepted_connections_per_second = 1\n"));
    node.reload();
    let mut refused: Vec<_> = (0..40).map(|_| node.proxied_xmpp()).collect();
    for client in &mut refused {
        client.write_all(b"<stream:stream>").unwrap();
    }
    // With a turn each, the last one would wait for 40 seconds; a turn that is given back is found within a tenth of one.
    for client in refused.iter_mut().rev() {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let end = client.read(&mut [0; 10]);
        assert!(matches!(&end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
}

#[test]
fn sessions_without_tls_are_refused_where_tls_is_required() {
    let node = WebNode::start_with("encrypted", PROXIES, "tls = 'required'\n");
    let body = BoshClient::creation(1);
    let head = format!("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len());
    assert!(node.plain().ask(&format!("{head}\r\n"), &body).0.starts_with("HTTP/1.1 403 "));
    assert!(node.plain().ask(&WebSocketClient::request("/ws"), "").0.starts_with("HTTP/1.1 403 "));
    let (answer, text) = node.plain().ask(&format!("{head}X-Forwarded-Proto: https\r\n\r\n"), &body);
    assert!(answer.starts_with("HTTP/1.1 200 ") && text.contains("PLAIN"), "{answer}{text}");
    let node = WebNode::start_with("plain", "", "allow_plain_without_tls = false\n");
    let (_, text) = node.plain().ask(&format!("{head}\r\n"), &body);
    assert!(text.contains("SCRAM-SHA-1") && !text.contains(">PLAIN<"), "{text}");
}

#[test]
fn host_meta_lists_the_transports() {
    let node = WebNode::start("meta", "");
    let (head, text) =
        node.tls().ask("GET /.well-known/host-meta HTTP/1.1\r\nHost: xmpp.example:5443\r\n\r\n", "");
    assert!(head.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{head}");
    assert!(
        text.contains("<Link rel='urn:xmpp:alt-connections:xbosh' href='https://xmpp.example:5443/bosh'/>"),
        "{text}"
    );
    let ask = "GET /.well-known/host-meta.json HTTP/1.1\r\nHost: x\r\n\r\n";
    assert!(node.plain().ask(ask, "").0.starts_with("HTTP/1.1 404 "), "nothing without TLS");
    node.configure("[http]\npublic_url = 'https://web.example'\n[http.bosh]\nenabled = false\n");
    node.reload();
    let (_, text) = node.plain().ask(ask, "");
    assert!(text.contains("\"wss://web.example/ws\"") && !text.contains("bosh"), "{text}");
    assert!(node.plain().ask("GET /bosh HTTP/1.1\r\nHost: x\r\n\r\n", "").0.starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_stopping_node_answers_held_requests() {
    let mut node = WebNode::start("drain", "");
    let mut web = node.plain();
    let bosh = BoshClient::login(&mut web, "romeo");
    let (sid, rid) = (bosh.sid.clone(), bosh.rid);
    web.post(
        "/bosh",
        &format!("<body rid='{rid}' sid='{sid}' xmlns='http://jabber.org/protocol/httpbind'/>"),
    );
    let mut socket = WebSocketClient::open(node.plain(), "/ws");
    socket.login("romeo");
    let idle = node.plain();
    let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let is_held = || node.plain().ask(metrics, "").1.contains("\nthrong_bosh_held_requests 1");
    wait("the held request", || is_held().then_some(()));
    node.stop_in_order();
    let (head, text) = web.answer();
    assert!(head.contains("Connection: close"), "{head}");
    assert!(text.contains("type='terminate'") && text.contains("<system-shutdown"), "{text}");
    let last = socket.until("<close");
    assert!(last.contains("<system-shutdown"), "{last}");
    drop(idle);
}

#[test]
fn requests_under_hyper_follow_the_same_rules() {
    let more = "[http]\nallowed_origins = ['https://chat.example.org']\n[http.bosh]\nbody_bytes = 10000\n";
    let node = WebNode::start("library", more);
    let ask = |head: &str, body: &str| {
        let mut web = node.plain();
        web.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "");
        web.ask(head, body)
    };
    let body = BoshClient::creation(1);
    let post = format!("POST /bosh HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    let (head, text) = ask(&format!("{post}Origin: https://chat.example.org\r\n\r\n"), &body);
    let head = head.to_ascii_lowercase();
    assert!(text.contains(" sid='"), "{text}");
    assert!(head.contains("access-control-allow-origin: https://chat.example.org"), "{head}");
    assert!(
        head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"),
        "{head}"
    );
    let (head, _) = ask(&format!("{post}Origin: https://evil.example\r\n\r\n"), &body);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let upgrade =
        WebSocketClient::request("/ws").replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    assert!(ask(&upgrade, "").0.starts_with("HTTP/1.1 403 "));
    let (head, _) = ask("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n", "");
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    let chunk = format!("2711\r\n{}\r\n0\r\n\r\n", "x".repeat(0x2711));
    let (head, _) = ask("POST /bosh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk);
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    let wrong = WebSocketClient::request("/ws").replace("Protocol: xmpp", "Protocol: mqtt");
    let (head, text) = ask(&wrong, "");
    assert!(head.starts_with("HTTP/1.1 400 ") && text.contains("subprotocol xmpp"), "{head}{text}");
}

#[test]
fn connections_and_sessions_are_limited_separately() {
    let more = format!("{PROXIES}connections_per_address = 2\n[limits]\nconnections_per_address = 1\n");
    let node = WebNode::start("gates", &more);
    let (mut first, mut second) = (node.plain(), node.plain());
    let from = |address: &str, path: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {address}\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let body = BoshClient::creation(1);
    assert!(first.ask(&from("203.0.113.1", "/bosh", &body), &body).1.contains(" sid='"));
    let (_, text) = second.ask(&from("203.0.113.1", "/bosh", &body), &body);
    assert!(text.contains("type='terminate'") && text.contains("policy-violation"), "{text}");
    assert!(second.ask(&from("203.0.113.2", "/bosh", &body), &body).1.contains(" sid='"));
    let from = |address: &str| {
        let address = format!("\r\nX-Forwarded-For: {address}\r\n\r\n");
        WebSocketClient::request("/ws").replace("\r\n\r\n", &address)
    };
    // Two connections per address are the HTTP limit here.
    let mut third = node.plain();
    assert!(matches!(third.read(&mut [0; 10]), Ok(0) | Err(_)), "the third connection");
    assert!(first.ask(&from("203.0.113.2"), "").0.starts_with("HTTP/1.1 503 "));
    assert!(second.ask(&from("203.0.113.3"), "").0.starts_with("HTTP/1.1 101 "));
}
