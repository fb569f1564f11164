//! The examples of XEP-0124 and XEP-0206, in their order.

use crate::harness::*;

const EMPTY: &str = "<body xmlns='http://jabber.org/protocol/httpbind'/>";

/// XEP-0124 examples 1 to 3, XEP-0206 examples 1 and 2.
#[test]
fn a_session_is_requested_and_created() {
    let harness = BoshHarness::new();
    let mut post = harness.post(
        "<body content='text/xml; charset=utf-8'
      from='user@example.com'
      hold='1'
      rid='1573741820'
      to='example.com'
      route='xmpp:example.com:9999'
      ver='1.6'
      wait='60'
      ack='1'
      xml:lang='en'
      xmpp:version='1.0'
      xmlns='http://jabber.org/protocol/httpbind'
      xmlns:xmpp='urn:xmpp:xbosh'/>",
    );
    assert!(post.waits(), "the stream has not said anything yet");
    let mut server = harness.server();
    let [BoshServerEvent::Open(tag)] = &server.drain_events()[..] else { panic!("no header") };
    assert_eq!(
        tag,
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='example.com' \
         from='user@example.com' version='1.0' xml:lang='en'>"
    );
    server.send(WELCOME);
    let answer = post.answer();
    assert_eq!((answer.status, answer.content_type, answer.close), (200, None, false));
    let text = post.text();
    let sid = value(&text, "sid").unwrap();
    assert!(sid.len() == 32 && sid.bytes().all(|b| b.is_ascii_hexdigit()));
    for (name, expect) in [
        ("wait", "60"),
        ("requests", "2"),
        ("hold", "1"),
        ("inactivity", "60"),
        ("polling", "2"),
        ("maxpause", "120"),
        ("ver", "1.6"),
        ("ack", "1573741820"),
        ("from", "example.com"),
        ("authid", "ServerStreamID"),
        ("xmpp:restartlogic", "true"),
        ("xmpp:version", "1.0"),
        ("xmlns", NS),
        ("xmlns:xmpp", "urn:xmpp:xbosh"),
        ("xmlns:stream", "http://etherx.jabber.org/streams"),
    ] {
        assert_eq!(value(&text, name), Some(expect), "{name} in {text}");
    }
    assert_eq!(
        payload(&text),
        "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>SCRAM-SHA-1</mechanism>\
         </mechanisms></stream:features>"
    );
}

/// XEP-0206 example 3: features sent after the response to the session request.
#[test]
fn features_may_come_in_a_later_answer() {
    let harness = BoshHarness::new();
    let mut first =
        harness.post(&format!("<body to='example.com' wait='5' hold='1' ver='1.6' rid='7' xmlns='{NS}'/>"));
    harness.advance(5);
    let created = first.text();
    let sid = value(&created, "sid").unwrap().to_owned();
    assert_eq!((value(&created, "from"), payload(&created)), (None, ""));
    let mut second = harness.post(&format!("<body rid='8' sid='{sid}' xmlns='{NS}'/>"));
    let mut server = harness.server();
    server.drain_events();
    server.send(WELCOME);
    let text = second.text();
    assert!(payload(&text).starts_with("<stream:features>"));
    assert_eq!(value(&text, "xmlns:stream"), Some("http://etherx.jabber.org/streams"));
    assert_eq!(value(&text, "sid"), None);
}

/// XEP-0124 examples 4, 5 and 6: payloads both ways, and an empty response.
#[test]
fn payloads_are_exchanged_in_both_directions() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut post = open.post(
        "
  <message to='contact@example.com'
           xmlns='jabber:client'>
    <body>Good morning!</body>
  </message>
  <message to='friend@example.com'
           xmlns='jabber:client'>
    <body>Hey, what&apos;s up?</body>
  </message>
",
    );
    assert!(open.held().waits(), "the stream has not looked at it yet");
    let got = open.server.drain_events();
    assert_eq!(
        got,
        [
            element(
                "<message to='contact@example.com'\n           xmlns='jabber:client'>\n    <body>Good morning!</body>\n  \
                 </message>"
            ),
            element(
                "<message to='friend@example.com'\n           xmlns='jabber:client'>\n    <body>Hey, what&apos;s \
                 up?</body>\n  </message>"
            )
        ]
    );
    assert_eq!(open.held().text(), EMPTY, "one request is held, the older one is answered");
    assert!(post.waits());
    open.server.queue("<message from='contact@example.com' to='user@example.com'><body>Good morning to you!</body></message>");
    open.server.send("<json xmlns='http://json.org/'>[]</json>");
    assert_eq!(
        post.text(),
        "<body xmlns='http://jabber.org/protocol/httpbind'><message xmlns='jabber:client' \
         from='contact@example.com' to='user@example.com'><body>Good morning to you!</body></message>\
         <json xmlns='http://json.org/'>[]</json></body>"
    );
}

/// XEP-0124 example 8: a request acknowledgement; examples 9 and 10: the client's, and a report.
#[test]
fn both_sides_acknowledge() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6' ack='1'");
    assert_eq!(value(&open.created, "ack"), Some(&*RID.to_string()));
    let mut first = open.post("");
    let mut second = open.post("<message/>");
    open.server.drain_events();
    let text = first.text();
    assert_eq!(text, format!("<body ack='{}' xmlns='{NS}'/>", RID + 2), "the second one was received");
    open.server.send("<message/>");
    assert_eq!(value(&second.text(), "ack"), None, "nothing but this request was received");
    harness.clock.advance(852);
    let mut soon = open.post_with(&format!("ack='{}'", RID + 1), "");
    assert!(soon.waits(), "the answer may still be under way");
    harness.clock.advance(1000);
    open.server.send("<presence/>");
    soon.text();
    let mut late = open.post_with(&format!("ack='{}'", RID + 1), "");
    assert_eq!(
        late.text(),
        format!("<body report='{}' time='1852' xmlns='{NS}'/>", RID + 2),
        "the client does not have what was sent 1852 ms ago"
    );
}

/// XEP-0124 example 11: a pause.
#[test]
fn a_pause_answers_all_held_requests() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut pause = open.post_with("pause='60'", "");
    assert_eq!(open.held().text(), EMPTY);
    assert_eq!(pause.text(), EMPTY);
    harness.advance(59);
    assert!(open.is_alive());
    harness.advance(2);
    assert!(!open.is_alive());
    assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof]);
}

/// XEP-0124 example 12: too many simultaneous requests.
#[test]
fn too_many_requests_at_a_time_end_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut second = open.post("<message/>");
    let mut third = open.post("<message/>");
    assert_eq!(
        third.text(),
        "<body type='terminate' condition='policy-violation' xmlns='http://jabber.org/protocol/httpbind'/>"
    );
    for other in [open.held(), &mut second] {
        assert_eq!(terminated(&other.text()), "other-request");
    }
    assert_eq!(
        open.server.drain_events(),
        [element("<message/>"), BoshServerEvent::Eof],
        "the second one was in order"
    );
}

/// XEP-0124 example 13: empty requests too close together.
#[test]
fn empty_requests_too_soon_end_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    harness.clock.advance(1999);
    let mut again = open.post("");
    assert_eq!(open.held().text(), EMPTY);
    assert!(again.waits(), "a page that is loaded again does it once");
    harness.clock.advance(1999);
    assert_eq!(terminated(&open.post("").text()), "policy-violation");
    let mut open = harness.open();
    for _ in 0..3 {
        harness.clock.advance(2000);
        let mut next = open.post("");
        assert!(next.waits(), "it is as slow as was asked for");
        assert_eq!(open.held().text(), EMPTY);
        open.held = Some(next);
    }
}

/// XEP-0124 example 14: polling too soon.
#[test]
fn polling_too_soon_ends_the_session() {
    let harness = BoshHarness::new();
    for attributes in ["wait='0' hold='1' ver='1.6'", "wait='60' hold='0' ver='1.6'"] {
        let mut open = harness.open_with(attributes);
        assert_eq!(value(&open.created, "inactivity"), Some("122"));
        assert_eq!(open.post("").text(), EMPTY, "nothing is held");
        harness.clock.advance(2000);
        assert_eq!(open.post("").text(), EMPTY);
        harness.clock.advance(1999);
        assert_eq!(terminated(&open.post("").text()), "policy-violation");
    }
}

/// XEP-0124 examples 15 and 16: the client terminates the session.
#[test]
fn the_client_ends_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut last = open.post_with("type='terminate'", "<presence type='unavailable' xmlns='jabber:client'/>");
    let got = open.server.read();
    assert_eq!(
        got,
        [
            element("<presence type='unavailable' xmlns='jabber:client'/>"),
            BoshServerEvent::Close,
            BoshServerEvent::Eof
        ]
    );
    open.server.queue("</stream:stream>");
    open.server.shutdown();
    assert_eq!(open.held().text(), "<body type='terminate' xmlns='http://jabber.org/protocol/httpbind'/>");
    assert_eq!(last.text(), EMPTY);
    assert!(!open.is_alive());
    assert!(harness.sessions.counts().ended().any(|ended| ended == ("client", 1)));
}

/// XEP-0124 example 17: a request id above the window.
#[test]
fn an_id_above_the_window_ends_the_session() {
    let harness = BoshHarness::new();
    let open = harness.open();
    let mut far = open.post_rid(open.rid + 3, "", "");
    assert_eq!(
        far.text(),
        "<body type='terminate' condition='item-not-found' xmlns='http://jabber.org/protocol/httpbind'/>"
    );
    assert!(!open.is_alive());
}

/// XEP-0124 example 18: a response that is no longer cached.
#[test]
fn requesting_a_discarded_response_ends_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    for _ in 0..3 {
        open.server.send("<message/>");
        open.held().text();
        open.held = Some(open.post(""));
    }
    assert_eq!(payload(&open.post_rid(open.rid - 1, "", "").text()), "<message xmlns='jabber:client'/>");
    assert_eq!(payload(&open.post_rid(open.rid - 2, "", "").text()), "<message xmlns='jabber:client'/>");
    assert_eq!(terminated(&open.post_rid(open.rid - 3, "", "").text()), "item-not-found");
    assert!(!open.is_alive());
}

/// XEP-0124 examples 19 to 23: keys.
#[test]
fn keys_are_followed_and_switched() {
    let harness = BoshHarness::new();
    let mut open =
        harness.open_with("wait='60' hold='1' ver='1.6' newkey='ca393b51b682f61f98e7877d61146407f3d0a770'");
    let mut first = open.post_with("key='bfb06a6f113cd6fd3838ab9d300fdb4fe3da2f7d'", "");
    let mut second = open.post_with(
        "key='6f825e81f4532b2c5fa2d12457d8a1f22e8f838e' newkey='113f58a37245ec9637266cf2fb6e48bfeaf7964e'",
        "<message to='contact@example.com' xmlns='jabber:client'><body>I said \"Hi!\"</body></message>",
    );
    assert_eq!(open.server.drain_events().len(), 1);
    assert_eq!(first.text(), EMPTY);
    assert!(second.waits());
    // Example 22.
    let mut wrong = open.post_with("key='6f825e81f4532b2c5fa2d12457d8a1f22e8f838e'", "<message/>");
    assert_eq!(terminated(&wrong.text()), "item-not-found");
    assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof], "the element was not processed");
}

/// XEP-0124 example 31: a recoverable error, after which the client sends a request again.
#[test]
fn a_resent_request_replaces_the_first() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut again = open.post_rid(open.rid, "", "");
    assert_eq!(open.held().text(), "<body type='error' xmlns='http://jabber.org/protocol/httpbind'/>");
    open.server.send("<message/>");
    assert_eq!(payload(&again.text()), "<message xmlns='jabber:client'/>");
    assert_eq!(harness.sessions.counts().retransmits, 1);
}

/// XEP-0124 example 28; XEP-0206, section 6: a stream error.
#[test]
fn an_error_of_the_stream_ends_the_session() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.queue(
        "<message from='contact@example.com' to='user@example.com'><body>I said \"Hi!\"</body></message>\
         <stream:error><xml-not-well-formed xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>\
         </stream:stream>",
    );
    open.server.shutdown();
    let text = open.held().text();
    assert_eq!(terminated(&text), "remote-stream-error");
    assert_eq!(value(&text, "xmlns:stream"), Some("http://etherx.jabber.org/streams"));
    assert_eq!(
        payload(&text),
        "<message xmlns='jabber:client' from='contact@example.com' to='user@example.com'><body>I said \"Hi!\"</body>\
         </message><stream:error><xml-not-well-formed xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
    );
}

/// XEP-0124 table 3: a domain that is not served.
#[test]
fn an_unknown_host_has_a_condition_of_its_own() {
    let harness = BoshHarness::new();
    let mut post = harness.post(&format!("<body to='nowhere.example' rid='7' ver='1.6' xmlns='{NS}'/>"));
    let mut server = harness.server();
    server.drain_events();
    server.queue(
        "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' \
         id='1' from='example.com' version='1.0' xml:lang='en'><stream:error><host-unknown \
         xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error></stream:stream>",
    );
    server.shutdown();
    assert_eq!(terminated(&post.text()), "host-unknown");
}

/// XEP-0206 examples 4 to 11: SASL, the restart, and a resource.
#[test]
fn a_login_restarts_the_stream() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-1'>biws</auth>";
    let mut post = open.post(auth);
    assert_eq!(open.server.read(), [element(auth)]);
    open.server.send("<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>cj1v</challenge>");
    assert_eq!(
        post.text(),
        "<body xmlns='http://jabber.org/protocol/httpbind'>\
         <challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>cj1v</challenge></body>"
    );
    let mut post = open.post("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>Yz1i</response>");
    assert_eq!(open.server.read().len(), 1);
    open.server.queue("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>dj1w</success>");
    open.server.stream.restart();
    open.server.flush().unwrap();
    assert!(payload(&post.text()).starts_with("<success"));
    let mut post = open.post_with(
        "to='example.com' xml:lang='en' xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'",
        "<ignored xmlns='jabber:client'/>",
    );
    let expect = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='example.com' \
                  version='1.0' xml:lang='en'>";
    assert_eq!(
        open.server.read(),
        [BoshServerEvent::Open(expect.into())],
        "what came with the restart is ignored"
    );
    open.server.send(
        "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' \
         id='2' from='example.com' version='1.0' xml:lang='en'><stream:features><bind \
         xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features>",
    );
    assert_eq!(
        post.text(),
        "<body xmlns='http://jabber.org/protocol/httpbind' xmlns:stream='http://etherx.jabber.org/streams'>\
         <stream:features><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></stream:features></body>"
    );
    let mut post = open.post("<iq id='bind_1' type='set' xmlns='jabber:client'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
    assert_eq!(open.server.read().len(), 1);
    open.server.send("<iq id='bind_1' type='result'/>");
    assert_eq!(payload(&post.text()), "<iq xmlns='jabber:client' id='bind_1' type='result'/>");
}
