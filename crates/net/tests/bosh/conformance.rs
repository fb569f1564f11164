//! Conformance suite of all transports for BOSH. `support/cases.rs` lists the cases and says which do not apply.
#![deny(dead_code)]

use throng_net::{NetError, with_scratch};

use crate::harness::*;

mod cases {
    macro_rules! tests {
        ($($case:ident)+) => {
            $(
                #[test]
                fn $case() {
                    super::$case();
                }
            )+
        };
    }

    transport_cases!(tests);
}

fn a_stream_opens_and_carries_elements_both_ways() {
    let harness = BoshHarness::new();
    let mut post =
        harness.post(&format!("<body to='example.com' rid='7' wait='60' hold='1' ver='1.6' xmlns='{NS}'/>"));
    let mut server = harness.server();
    assert!(matches!(&server.read()[..], [BoshServerEvent::Open(_)]));
    server.send(WELCOME);
    assert!(payload(&post.text()).starts_with("<stream:features>"));

    let mut open = harness.open();
    let message = "<message to='a@b'><body a='&gt;'>hé <![CDATA[</message>]]></body></message>";
    let mut post = open.post(&format!("{message}<r/>"));
    assert_eq!(open.server.drain_events(), [element(message), element("<r/>")]);
    open.server.send("<message id='1'/>");
    assert_eq!(payload(&post.text()), "<message xmlns='jabber:client' id='1'/>");
    assert_eq!(open.server.stream.unsent(), 0);
}

fn a_restart_expects_a_new_document() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let _post = open.post("<auth/>");
    assert_eq!(open.server.drain_events(), [element("<auth/>")]);
    open.server.stream.restart();
    let _post = open.post_with("to='example.com' xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'", "");
    assert!(matches!(&open.server.drain_events()[..], [BoshServerEvent::Open(_)]));
    let _post = open.post("<x/>");
    assert_eq!(open.server.drain_events(), [element("<x/>")]);
}

fn unauthenticated_streams_have_smaller_limits() {
    let harness = BoshHarness::new();
    let long = format!("<message><body>{}</body></message>", "x".repeat(20_000));
    let mut open = harness.open();
    let _post = open.post(&long);
    let refused = open.server.next().unwrap();
    assert!(matches!(refused, Err(NetError::Xml(xml::Error::TooLarge))), "{refused:?}");
    let mut open = harness.open();
    open.server.stream.set_authenticated();
    let _post = open.post(&format!("{long}{long}<r/>"));
    assert_eq!(open.server.drain_events(), [element(&long), element(&long), element("<r/>")]);
}

fn the_peer_closes_first() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut last = open.post_with("type='terminate'", "<r/>");
    let got = open.server.read();
    assert_eq!(got, [element("<r/>"), BoshServerEvent::Close, BoshServerEvent::Eof]);
    assert!(matches!(open.server.next(), Some(Ok(BoshServerEvent::Eof))), "the end stays the end");
    // The outgoing direction is still open.
    open.server.queue("<message id='1'/></stream:stream>");
    open.server.shutdown();
    let rest = open.held().text();
    assert_eq!(value(&rest, "type"), Some("terminate"));
    assert_eq!(payload(&rest), "<message xmlns='jabber:client' id='1'/>");
    assert!(last.poll() && !open.is_alive());
}

fn the_server_closes_first() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.queue("<message id='1'/></stream:stream>");
    open.server.shutdown();
    let rest = open.held().text();
    assert_eq!(value(&rest, "type"), Some("terminate"));
    assert_eq!(payload(&rest), "<message xmlns='jabber:client' id='1'/>");
    assert_eq!(open.server.read().last(), Some(&BoshServerEvent::Eof));
}

fn a_cut_stream_ends_without_close() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.held = None;
    harness.advance(62);
    assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof]);
}

fn a_slow_reader_gets_everything_in_order() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let text: String = (0..5_000).map(|n| format!("<m n='{n}'/>")).collect();
    open.server.queue(&text);
    open.server.flush().unwrap();
    assert!(open.server.stream.unsent() > 0, "the transport took everything at once");
    let mut got = String::new();
    while open.server.stream.unsent() > 0 {
        let mut post = open.post("");
        open.server.flush().unwrap();
        got += payload(&post.text());
    }
    assert!(
        got == text.replace("<m n", "<m xmlns='jabber:client' n"),
        "elements were lost or changed places"
    );
    assert!(open.server.stream.is_idle());
}

fn garbage_ends_the_stream() {
    let harness = BoshHarness::new();
    for garbage in ["GET / HTTP/1.1\r\n\r\n", "<!DOCTYPE x>", "<a><!-- --></a>"] {
        let mut open = harness.open();
        let mut post = open.post(garbage);
        assert_eq!(terminated(&post.text()), "bad-request");
        assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof]);
    }
}

fn many_elements_come_out_of_one_read() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let text: String = (0..500).map(|n| format!("<m n='{n}'/>")).collect();
    let _post = open.post(&text);
    let expect: Vec<BoshServerEvent> = (0..500).map(|n| element(&format!("<m n='{n}'/>"))).collect();
    assert_eq!(open.server.drain_events(), expect);
    assert!(open.server.stream.is_idle());
}

fn elements_larger_than_the_read_buffer_arrive() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.stream.set_authenticated();
    let long = format!("<message><body>{}</body></message>", "0123456789abcdef".repeat(15_000));
    let mut post = open.post(&long);
    assert_eq!(open.server.drain_events(), [element(&long)]);
    open.server.send(&long);
    assert!(post.text().contains(&"0123456789abcdef".repeat(15_000)));
    assert!(open.server.stream.is_idle());
}

fn streams_share_the_buffers_without_mixing() {
    let harness = BoshHarness::new();
    let mut all: Vec<OpenSession<'_>> = (0..4).map(|_| harness.open()).collect();
    for round in 0..3 {
        let mut posts = Vec::new();
        for (n, open) in all.iter_mut().enumerate() {
            posts.push(open.post(&format!("<m round='{round}' stream='{n}'/><m second='{n}'/>")));
        }
        for (n, open) in all.iter_mut().enumerate() {
            assert_eq!(
                open.server.next().unwrap().unwrap(),
                element(&format!("<m round='{round}' stream='{n}'/>"))
            );
            open.server.queue(&format!("<a stream='{n}'/>"));
        }
        for (n, open) in all.iter_mut().enumerate() {
            assert_eq!(open.server.next().unwrap().unwrap(), element(&format!("<m second='{n}'/>")));
            assert!(open.server.next().is_none());
            open.server.flush().unwrap();
            let expect = format!("<a xmlns='jabber:client' stream='{n}'/>");
            assert_eq!(payload(&open.held().text()), expect);
        }
        for (open, post) in all.iter_mut().zip(posts) {
            open.held = Some(post);
        }
    }
}

fn a_stream_that_kept_its_buffers_over_a_yield_is_ended_not_mixed() {
    let harness = BoshHarness::new();
    let (mut one, mut other) = (harness.open(), harness.open());
    let _post = one.post("<secret/><secret/>");
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    with_scratch(|scratch| assert!(one.server.stream.poll_event(&mut cx, scratch).is_ready()));
    let _post = other.post("<m/>");
    assert_eq!(other.server.drain_events(), [element("<m/>")]);
    with_scratch(|scratch| {
        let event = one.server.stream.poll_event(&mut cx, scratch);
        assert!(matches!(event, std::task::Poll::Ready(Err(NetError::BuffersNotReleased))));
    });
}

fn a_peer_that_does_not_read_is_bounded() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let stanza = "<message><body>0123456789</body></message>".repeat(1000);
    let error = loop {
        open.server.queue(&stanza);
        if let Err(error) = open.server.flush() {
            break error;
        }
        assert!(open.server.stream.unsent() <= 4_194_304 + 100_000);
    };
    assert!(matches!(error, NetError::OutputLimit(_)), "{error}");
}

#[test]
fn starttls_is_not_possible_within_bosh() {
    let harness = BoshHarness::new();
    let open = harness.open();
    assert!(!open.server.stream.info().transport.has_starttls());
    assert!(open.server.stream.channel_binding().exporter.is_none());
    assert!(open.server.stream.tls_info().is_none() && open.server.stream.client_certificate().is_none());
}
