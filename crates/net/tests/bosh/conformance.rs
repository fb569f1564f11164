//! Conformance suite of all transports (`tests/conformance.rs`) for BOSH, where bytes cannot be split and the client
//! cannot half-close.

use crate::harness::*;
use throng_net::{NetError, with_scratch};

#[test]
fn many_elements_come_out_of_one_body() {
    let world = BoshHarness::new();
    let mut open = world.open();
    let text: String = (0..500).map(|n| format!("<m n='{n}'/>")).collect();
    let _post = open.post(&text);
    let expect: Vec<BoshServerEvent> = (0..500).map(|n| element(&format!("<m n='{n}'/>"))).collect();
    assert_eq!(open.server.drain_events(), expect);
    assert!(open.server.stream.is_idle());
}

#[test]
fn elements_larger_than_the_read_buffer_arrive_and_leave() {
    let world = BoshHarness::new();
    let mut open = world.open();
    open.server.stream.set_authenticated();
    let long = format!("<message><body>{}</body></message>", "0123456789abcdef".repeat(15_000));
    let mut post = open.post(&long);
    assert_eq!(open.server.drain_events(), [element(&long)]);
    open.server.send(&long);
    assert!(post.text().contains(&"0123456789abcdef".repeat(15_000)));
    assert!(open.server.stream.is_idle());
}

#[test]
fn streams_share_the_buffers_without_mixing() {
    let world = BoshHarness::new();
    let mut all: Vec<OpenSession<'_>> = (0..4).map(|_| world.open()).collect();
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

#[test]
fn a_stream_that_kept_its_buffers_over_a_yield_is_ended_not_mixed() {
    let world = BoshHarness::new();
    let (mut one, mut other) = (world.open(), world.open());
    let _post = one.post("<secret/><secret/>");
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    with_scratch(|lent| assert!(one.server.stream.poll_event(&mut cx, lent).is_ready()));
    let _post = other.post("<m/>");
    assert_eq!(other.server.drain_events(), [element("<m/>")]);
    with_scratch(|lent| {
        let event = one.server.stream.poll_event(&mut cx, lent);
        assert!(matches!(event, std::task::Poll::Ready(Err(NetError::BuffersNotReleased))));
    });
}

#[test]
fn output_above_the_limit_ends_the_stream() {
    let world = BoshHarness::new();
    let mut open = world.open_with("wait='60' hold='1' ver='1.6'");
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
fn tls_cannot_begin_inside() {
    let world = BoshHarness::new();
    let open = world.open();
    assert!(!open.server.stream.info().transport.has_starttls());
    assert!(open.server.stream.channel_binding().exporter.is_none());
    assert!(open.server.stream.tls_info().is_none() && open.server.stream.client_certificate().is_none());
}
