//! Tests of stanzas at the limits for a client that lost its connection (XEP-0198): they are queued, and delivered when
//! it resumes its stream, or to another resource with their original time (XEP-0203).
//!
//! Not implemented: other transports, to which the same bytes are written as in `delivery`.
//!
//! # Pitfalls
//!
//! The queue is bounded in bytes, so only few large stanzas can be queued at a time.

use sasl::Mechanism;
use testkit::server::{self, PASSWORD, ReceivedEvent, StreamClient};

use crate::delivery::{LimitScenario, ReceivedElements, StanzaTransport, receive, short};
use crate::stanza_shapes::{StanzaShape, shapes};

/// Stanzas queued together.
const QUEUED_AT_A_TIME: usize = 3;

#[tokio::test]
async fn queued_stanzas_are_delivered_when_the_stream_is_resumed() {
    Box::pin(every_shape_is_queued(true)).await;
}

#[tokio::test]
async fn unresumed_stanzas_go_to_another_resource_with_a_delay_stamp() {
    Box::pin(every_shape_is_queued(false)).await;
}

/// Receives everything up to the last of `messages`. Acknowledges, because the amount of unacknowledged bytes is
/// limited.
async fn acknowledged(client: &mut StreamClient, messages: usize) -> ReceivedElements {
    let mut got = ReceivedElements { elements: Vec::new(), closed: false };
    let mut stanzas = 0;
    while got.with("<message").count() < messages {
        let seen = client.element().await;
        if seen.name() == "r" {
            client.send(format!("<a xmlns='urn:xmpp:sm:3' h='{stanzas}'/>")).await;
        } else if seen.name() != "resumed" {
            stanzas += 1;
            got.elements.push(seen.0);
        }
    }
    got
}

async fn every_shape_is_queued(resumes: bool) {
    const PAYLOAD: &str = "<body>x{}</body>";
    let mut scenario = Box::pin(LimitScenario::new(StanzaTransport::Tcp)).await;
    let allowed: Vec<_> = shapes().into_iter().filter(|shape| shape.is_allowed(PAYLOAD)).collect();
    assert!(allowed.len() > 100, "{} shapes", allowed.len());
    for (number, some) in allowed.chunks(QUEUED_AT_A_TIME).enumerate() {
        let mut lost = scenario.server.login("juliet", "lost").await;
        lost.send("<enable xmlns='urn:xmpp:sm:3' resume='true' max='60'/>").await;
        let enabled = lost.element().await;
        let previous = enabled.attr("id").expect("a stream that can be resumed");
        drop(lost);
        server::run_until_idle().await;
        let ids: Vec<(String, &StanzaShape)> =
            some.iter().enumerate().map(|(at, shape)| (format!("w{number}n{at}"), shape)).collect();
        for (id, shape) in &ids {
            let message = shape.write("message", "juliet@example.com/lost", id, "chat", PAYLOAD);
            scenario
                .romeo
                .send(message.unwrap_or_else(|| format!("<message id='{id}' to='juliet@example.com/lost'/>")))
                .await;
        }
        let romeo = scenario.receive(|s| &mut s.romeo).await;
        assert!(!romeo.closed && romeo.with(" type='error'").next().is_none(), "{ids:?}");
        // The others receive copies, and what exceeds the space that one sender may use in a detached session. A client
        // that does not read while time passes loses its stream.
        let mut at_once = ReceivedElements { elements: Vec::new(), closed: false };
        scenario.receive(LimitScenario::phone).await;
        for which in [LimitScenario::juliet, LimitScenario::chamber] {
            let received = scenario.receive(which).await;
            at_once
                .elements
                .extend(received.elements.into_iter().filter(|one| !one.contains("urn:xmpp:carbons:2")));
        }
        let waits = ids.iter().filter(|(id, _)| at_once.with(id).next().is_none()).count();
        let received = if resumes {
            let mut again = scenario.server.connect();
            again.open().await;
            again.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.expect("a login");
            again.open().await;
            again.send(format!("<resume xmlns='urn:xmpp:sm:3' previd='{previous}' h='0'/>")).await;
            let received = acknowledged(&mut again, waits).await;
            again.send("</stream:stream>").await;
            while again.receive().await != ReceivedEvent::Eof {}
            received
        } else {
            // The resumption time has expired, and a second later the node notices.
            scenario.server.advance(62).await;
            receive(&mut scenario.chamber).await
        };
        scenario.check(&received);
        for (id, shape) in ids.iter().filter(|(id, _)| at_once.with(id).next().is_none()) {
            let got: Vec<_> = received.with(id).filter(|one| !one.contains("urn:xmpp:carbons:2")).collect();
            let late = got.iter().all(|one| resumes || one.contains("urn:xmpp:delay"));
            assert!(
                got.len() == 1 && late,
                "{} of {id} came: {shape:?} {}",
                got.len(),
                got.first().map(|one| short(one)).unwrap_or_default()
            );
        }
        for which in [LimitScenario::phone, LimitScenario::juliet, LimitScenario::chamber] {
            scenario.receive(which).await;
        }
    }
}
