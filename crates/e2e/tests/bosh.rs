//! Tests of BOSH over real sockets against the program: two connections per client, as in browsers; broken connections;
//! repeated requests; the end of sessions.
//!
//! Not implemented: TLS, HTTP/2, proxies and malformed HTTP (`web/`), the rules of the protocol (`net/tests/bosh/`),
//! XMPP over BOSH (scenarios), client libraries (`clients/`).
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

#[path = "shared/bosh_client.rs"]
mod bosh_client;

use std::io::{Read, Write};

use bosh_client::{BoshTestClient, NS, TestHttpConnection};
use throng_e2e::{ports, wait};

const PASSWORD: &str = "correct horse";

/// A node with the accounts romeo and juliet, and its HTTP address.
struct BoshNode {
    port: u16,
    _node: throng_e2e::NodeProcess,
}

impl BoshNode {
    /// Appends `more` to the configuration.
    fn start(name: &str, more: &str) -> BoshNode {
        let [port] = ports::free();
        let mut node = throng_e2e::NodeProcess::new(&format!("bosh-{name}"));
        node.configure(&format!(
            "data_dir = 'data'\n[[listen]]\nkind = 'http'\naddress = '127.0.0.1:{port}'\nallow_plain_without_tls = true\n{more}"
        ));
        for user in ["romeo", "juliet"] {
            node.add_account(&format!("{user}@localhost"), PASSWORD);
        }
        node.start();
        BoshNode { port, _node: node }
    }

    fn connect(&self) -> TestHttpConnection {
        TestHttpConnection::new(self.port)
    }

    fn client(&self, user: &str) -> BoshTestClient {
        BoshTestClient::login(self.port, "localhost", user, PASSWORD)
    }
}

fn message(to: &str, text: &str) -> String {
    format!("<message to='{to}@localhost' type='chat' xmlns='jabber:client'><body>{text}</body></message>")
}

#[test]
fn two_clients_exchange_messages_over_two_connections_each() {
    let node = BoshNode::start("talk", "");
    let (mut romeo, mut juliet) = (node.client("romeo"), node.client("juliet"));
    let mut waits = node.connect();
    for round in 0..20 {
        // juliet's request is held on one connection, the next one uses the other.
        let body = juliet.next("", "");
        waits.post(&body);
        let body = romeo.next("", &message("juliet", &format!("round {round}")));
        romeo.one.post(&body);
        let text = waits.text();
        assert!(
            text.contains(&format!("<body>round {round}</body>"))
                && text.contains("from='romeo@localhost/web'")
        );
        let body = juliet.next("", &message("romeo", &format!("answer {round}")));
        juliet.one.post(&body);
        assert!(romeo.one.text().contains(&format!("<body>answer {round}</body>")));
        // juliet's request is held; it is answered with the result of the next request, or empty.
        let body = juliet.next(
            "",
            "<iq type='get' id='p' to='localhost' xmlns='jabber:client'><ping xmlns='urn:xmpp:ping'/></iq>",
        );
        waits.post(&body);
        let mut text = juliet.one.text();
        if text == format!("<body xmlns='{NS}'/>") {
            text = waits.text();
        } else {
            let body = juliet.next("", "<iq type='get' id='q' to='localhost' xmlns='jabber:client'><ping xmlns='urn:xmpp:ping'/></iq>");
            juliet.one.post(&body);
            assert!(waits.text().contains("id='q'"));
            // Neither connection may hold a request when the next round begins.
            juliet.rid += 1;
            waits.post(&juliet.body(juliet.rid, "pause='60'", ""));
            assert_eq!(juliet.one.text(), format!("<body xmlns='{NS}'/>"));
            assert_eq!(waits.text(), format!("<body xmlns='{NS}'/>"));
        }
        assert!(text.contains("id='p'"), "{text}");
    }
}

#[test]
fn a_broken_connection_loses_nothing() {
    let node = BoshNode::start("break", "");
    let (mut romeo, mut juliet) = (node.client("romeo"), node.client("juliet"));
    let held = juliet.next("", "");
    juliet.one.post(&held);
    juliet.one = node.connect();
    let body = romeo.next("", &message("juliet", "art thou there"));
    romeo.one.post(&body);
    // Repeats the request: the message is delivered whether or not the break was noticed.
    juliet.one.post(&held);
    let mut first = juliet.one.text();
    // If the two were read in reverse order, the older one counts as the copy and must be sent once more (XEP-0124,
    // section 17.3).
    while first.contains("type='error'") {
        juliet.one.post(&held);
        first = juliet.one.text();
    }
    assert!(first.contains("art thou there"), "{first}");
    // The response is lost too: an exact copy on a third connection.
    let mut other = node.connect();
    other.post(&held);
    assert_eq!(other.text(), first);
}

#[test]
fn out_of_order_requests_are_reordered() {
    let node = BoshNode::start("order", "");
    let (mut romeo, mut juliet) = (node.client("romeo"), node.client("juliet"));
    let waits = juliet.next("", "");
    juliet.one.post(&waits);
    let mut other = node.connect();
    let first = romeo.next("", &message("juliet", "first"));
    let second = romeo.next("", &message("juliet", "second"));
    other.post(&second);
    romeo.one.post(&first);
    let mut received = juliet.one.text();
    while !received.contains("second") {
        let body = juliet.next("", "");
        juliet.one.post(&body);
        received += &juliet.one.text();
    }
    assert!(received.find("first") < received.find("second"), "{received}");
    assert_eq!(romeo.one.text(), format!("<body xmlns='{NS}'/>"));
}

#[test]
fn sessions_end_in_every_way() {
    let node = BoshNode::start("end", "[http.bosh]\nmax_wait_seconds = 2\nmax_inactivity_seconds = 5\n");
    // By the client's request: the older request is answered with the termination.
    let mut romeo = node.client("romeo");
    let held = romeo.next("", "");
    romeo.one.post(&held);
    let mut other = node.connect();
    let body = romeo.next("type='terminate'", "<presence type='unavailable' xmlns='jabber:client'/>");
    other.post(&body);
    assert!(romeo.one.text().starts_with(&format!("<body type='terminate' xmlns='{NS}'")));
    assert_eq!(other.text(), format!("<body xmlns='{NS}'/>"));
    other.post(&romeo.body(romeo.rid + 1, "", ""));
    assert!(other.text().contains("condition='item-not-found'"));
    // By too many requests.
    let mut romeo = node.client("romeo");
    // Addressed to romeo itself, so that later messages to juliet do not depend on how many were processed.
    let bodies = [(); 3].map(|()| romeo.next("", &message("romeo", "x")));
    let mut sockets = [(); 3].map(|()| node.connect());
    // Each on its own connection. Whether the third arrives before any response is uncertain; one outside the window
    // always ends the session.
    for (socket, body) in sockets.iter_mut().zip(&bodies) {
        socket.post(body);
    }
    other.post(&romeo.body(romeo.rid + 10, "", ""));
    assert!(other.text().contains("type='terminate'"));
    // By inactivity, after a request whose wait time expires with an empty response.
    let mut juliet = node.client("juliet");
    let body = juliet.next("", "");
    juliet.one.post(&body);
    assert_eq!(juliet.one.text(), format!("<body xmlns='{NS}'/>"));
    let ended = |text: &str| text.contains("throng_bosh_sessions_terminated_total{reason=\"inactivity\"} 1");
    wait("the end of the silent session", || {
        let mut page = node.connect();
        page.socket
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut text = String::new();
        (page.socket.read_to_string(&mut text).is_ok() && ended(&text)).then_some(())
    });
    // A legacy client receives an HTTP error status.
    other.post(&format!("<body rid='7' to='localhost' wait='x' xmlns='{NS}'/>"));
    assert_eq!(other.try_answer().map(|answer| answer.0), Some(400));
}
