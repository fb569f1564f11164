//! Hostile BOSH input: it is refused with the right condition, and other sessions are not affected.

use std::net::SocketAddr;

use throng_net::bosh::RequestSource;

use crate::harness::*;

/// Another session that must not be affected.
fn undisturbed(neighbour: &mut OpenSession<'_>) {
    let mut post = neighbour.post("<message id='n'/>");
    assert_eq!(neighbour.server.drain_events(), [element("<message id='n'/>")]);
    neighbour.server.send("<presence/>");
    let held = neighbour.held.as_mut().map(|held| held.text());
    assert!(held.is_some_and(|text| text == format!("<body xmlns='{NS}'/>")));
    assert_eq!(payload(&post.text()), "<presence xmlns='jabber:client'/>");
    neighbour.held = Some(neighbour.post(""));
}

#[test]
fn an_invalid_bosh_body_is_a_bad_request() {
    let harness = BoshHarness::new();
    let mut neighbour = harness.open();
    for body in [
        "",
        " ",
        "hello",
        "<",
        "<body",
        "<body/>",
        "<body xmlns='http://jabber.org/protocol/httpbind'",
        "<body xmlns='http://jabber.org/protocol/httpbind'>",
        "<body xmlns='http://jabber.org/protocol/httpbind'></bodi>",
        "<html xmlns='http://jabber.org/protocol/httpbind'/>",
        "<body xmlns='urn:other' rid='1' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' rid='2' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='0' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='-1' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='9007199254740991' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='99999999999999999999' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' wait='soon' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' hold='-1' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' newkey='x' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' pause='x' to='a'/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'/>garbage",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'>text</body>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'><m/></body><body/>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'><!-- --></body>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'><?pi?></body>",
        "<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'><![CDATA[x]]></body>",
        "<!DOCTYPE body><body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'/>",
        "<?xml version='1.0'",
        "\u{feff}<body xmlns='http://jabber.org/protocol/httpbind' rid='1' to='a'/>",
        "POST /bosh HTTP/1.1\r\n\r\n",
    ] {
        // With a version, so that the response is not an HTTP error.
        let body = body.replacen(" to=", " ver='1.6' to=", 1);
        let mut post = harness.post(&body);
        assert_eq!(terminated(&post.text()), "bad-request", "{body}");
    }
    let mut post = harness.post_from(
        harness.origin(),
        b"<body xmlns='http://jabber.org/protocol/httpbind' to='\xff' rid='1'/>",
    );
    assert_eq!(terminated(&post.text()), "bad-request");
    assert_eq!(harness.started(), 0, "no stream began");
    assert_eq!(harness.sessions.counts().sessions, 1);
    undisturbed(&mut neighbour);
}

#[test]
fn payloads_that_are_not_elements_end_the_session() {
    let harness = BoshHarness::new();
    let mut neighbour = harness.open();
    for bad in ["text", "<a", "<a>", "</a>", "<a/>x", "<!-- -->", "<a><!-- --></a>", "<a><?x?></a>", "&amp;"]
    {
        let mut open = harness.open();
        let mut post = open.post(&format!("<message/>{bad}"));
        assert_eq!(terminated(&post.text()), "bad-request", "{bad}");
        assert_eq!(terminated(&open.held().text()), "other-request");
        assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof]);
    }
    undisturbed(&mut neighbour);
}

#[test]
fn an_oversized_body_is_refused_and_the_session_continues() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let huge = format!("<message>{}</message>", "x".repeat(300_000));
    let mut post = open.post(&huge);
    assert_eq!(terminated(&post.text()), "policy-violation");
    assert!(open.held().waits(), "whose it was is not looked at");
    open.rid -= 1;
    undisturbed(&mut open);
}

#[test]
fn deep_nesting_ends_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let deep = "<a>".repeat(70) + &"</a>".repeat(70);
    assert_eq!(terminated(&open.post(&deep).text()), "policy-violation");
}

#[test]
fn forged_sessions_are_not_found() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let sid = open.sid.clone();
    let last = char::from_digit(u32::from_str_radix(&sid[31..], 16).unwrap() ^ 2, 16).unwrap();
    let long = format!("{sid}0");
    let near = format!("{}{last}", &sid[..31]);
    for forged in
        ["", "0", "SomeSID", "../../etc/passwd", &sid[1..], &long, &near, &format!("+{}", &sid[1..])]
    {
        let mut post = harness.post(&format!("<body rid='{}' sid='{forged}' xmlns='{NS}'/>", open.rid + 1));
        assert_eq!(terminated(&post.text()), "item-not-found", "{forged}");
    }
    assert_eq!(harness.sessions.counts().unknown_session, 8);
    undisturbed(&mut open);
}

#[test]
fn a_flood_of_request_ids_ends_only_its_own_session() {
    let harness = BoshHarness::new();
    let mut neighbour = harness.open();
    for far in [3, 4, 1000, u64::from(u32::MAX), 9_007_199_254_740_991 - RID - 1] {
        let open = harness.open();
        assert_eq!(terminated(&open.post_rid(open.rid + far, "", "").text()), "item-not-found");
    }
    let open = harness.open();
    assert_eq!(terminated(&open.post_rid(1, "", "").text()), "item-not-found");
    let open = harness.open();
    let mut bad = harness.post(&format!("<body rid='x' sid='{}' xmlns='{NS}'/>", open.sid));
    assert_eq!(terminated(&bad.text()), "bad-request");
    undisturbed(&mut neighbour);
    assert_eq!(harness.sessions.counts().sessions, 1);
}

#[test]
fn a_flood_of_requests_is_limited() {
    let harness = BoshHarness::with(|s| s.requests_per_second = 10);
    let mut neighbour = harness.open();
    let open = harness.open();
    let mut posts = Vec::new();
    let end = (0..1000).find(|_| {
        let mut post = open.post_rid(open.rid, "", "");
        let answered = post.poll();
        posts.push(post);
        answered
    });
    assert!(matches!(end, Some(40..60)), "{end:?}");
    assert_eq!(terminated(&posts.last_mut().unwrap().text()), "policy-violation");
    // All but the last must be sent again, or were ended by another request.
    assert!(posts.iter_mut().all(|post| post.poll()));
    assert_eq!(harness.sessions.counts().held, 1, "the neighbour's");
    undisturbed(&mut neighbour);
    // At the permitted rate it goes on.
    let open = harness.open();
    let mut last = None;
    for _ in 0..1000 {
        harness.clock.advance(100);
        last = Some(open.post_rid(open.rid, "", ""));
    }
    assert!(last.unwrap().waits());
}

#[test]
fn a_stream_that_does_not_read_bounds_its_client() {
    let harness = BoshHarness::with(|s| s.body_bytes = 10_000);
    let mut open = harness.open();
    let long = format!("<message>{}</message>", "x".repeat(9000));
    let mut sent = 0;
    let end = (0..100).find_map(|_| {
        let mut post = open.post(&long);
        sent += 1;
        // The sweep answers the excess request, so that the client goes on.
        harness.advance(1);
        (post.poll() && post.text().contains("terminate")).then(|| post.text())
    });
    assert_eq!(terminated(&end.unwrap()), "policy-violation");
    assert_eq!(sent, 3, "twice a body may wait");
}

#[test]
fn sessions_are_limited_in_total_and_by_address() {
    let harness = BoshHarness::with(|s| (s.sessions, s.sessions_per_address) = (3, 2));
    let from =
        |text: &str| RequestSource { peer: SocketAddr::new(text.parse().unwrap(), 1), ..harness.origin() };
    let body = format!("<body to='example.com' rid='7' ver='1.6' xmlns='{NS}'/>");
    let ask = |text: &str| harness.post_from(from(text), body.as_bytes());
    let mut first = [ask("192.0.2.1"), ask("::ffff:192.0.2.1")];
    assert!(first.iter_mut().all(PostedRequest::waits));
    assert_eq!(terminated(&ask("192.0.2.1").text()), "policy-violation");
    let mut other = ask("2001:db8::1");
    assert!(other.waits());
    assert_eq!(terminated(&ask("192.0.2.3").text()), "policy-violation", "all places are taken");
    assert_eq!(harness.sessions.counts().refused, 2);
    drop(harness.server());
    assert!(ask("192.0.2.1").waits(), "a place is free again");
    assert_eq!(harness.sessions.counts().sessions, 3);
}

#[test]
fn the_key_of_a_resent_request_is_checked_again() {
    let harness = BoshHarness::new();
    let key = "key='bfb06a6f113cd6fd3838ab9d300fdb4fe3da2f7d'";
    let newkey = "wait='60' hold='1' ver='1.6' newkey='ca393b51b682f61f98e7877d61146407f3d0a770'";
    for (attributes, right) in
        [(key, true), ("", false), ("key='6f825e81f4532b2c5fa2d12457d8a1f22e8f838e'", false)]
    {
        let mut open = harness.open_with(newkey);
        let mut post = open.post_with(key, "");
        let mut again = open.post_rid(open.rid, attributes, "");
        assert_eq!(again.waits(), right, "{attributes}");
        assert_eq!(value(&post.text(), "type"), Some(if right { "error" } else { "terminate" }));
    }
    // Two that arrive in the wrong order are checked in the right one.
    let mut open = harness.open_with(newkey);
    let rid = open.rid;
    let mut second = open.post_rid(rid + 2, "key='6f825e81f4532b2c5fa2d12457d8a1f22e8f838e'", "<iq/>");
    let mut first = open.post_rid(rid + 1, key, "<message/>");
    assert_eq!(open.server.drain_events(), [element("<message/>"), element("<iq/>")]);
    assert!(first.poll() && second.waits());
    let mut open = harness.open_with(newkey);
    let mut second = open.post_rid(rid + 2, key, "<iq/>");
    assert_eq!(terminated(&open.post_rid(rid + 1, key, "<message/>").text()), "item-not-found");
    assert_eq!(terminated(&second.text()), "other-request");
    assert_eq!(
        open.server.drain_events(),
        [element("<message/>"), BoshServerEvent::Eof],
        "the one with the right key"
    );
}

#[test]
fn client_input_cannot_escape_its_attribute() {
    let harness = BoshHarness::new();
    let _post = harness.post(&format!(
        "<body to='a&apos; from=&quot;x' xml:lang='e&lt;n' from=\"o'b@c\" xmpp:version='1.0&apos;' rid='7' xmlns='{NS}' \
         xmlns:xmpp='urn:xmpp:xbosh'/>"
    ));
    let mut server = harness.server();
    let [BoshServerEvent::Open(tag)] = &server.drain_events()[..] else { panic!("no header") };
    let opening = stanza::stream::StreamHeader::read(tag.as_bytes(), &xml::Limits::DEFAULT);
    assert!(opening.is_err(), "the version is none");
    let start = xml::Reader::open_tag(tag.as_bytes(), &xml::Limits::DEFAULT).unwrap();
    assert_eq!(start.attr("to").unwrap().value(), "a' from=\"x");
    assert_eq!(start.attr("from").unwrap().value(), "o'b@c");
    assert_eq!(start.lang().unwrap(), "e<n");
}
