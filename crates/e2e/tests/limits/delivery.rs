//! Tests of each stanza of `stanza_shapes` on each of its routes: to a resource, to the other resources as a copy
//! (XEP-0280), into the offline store and out of it (XEP-0160, XEP-0203), back as an error (RFC 6120, section 8.3), as
//! a request and as presence, over TCP, WebSocket (RFC 7395) and BOSH (XEP-0124), with every feature. Delivered stanzas
//! are parsed by expat; others are answered with a stanza error or end the sender's stream with a stream error.
//!
//! Not implemented: the content of stanzas, of which only the id is checked.

use features::registry::ALL;
use testkit::expat::Expat;
use testkit::server::{self, ReceivedEvent, StreamClient, TestServer, TestServerConfig};
use throng_core::NodeLimits;

use crate::stanza_shapes::{StanzaShape, shapes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StanzaTransport {
    Tcp,
    WebSocket,
    Bosh,
}

#[tokio::test]
async fn stanzas_at_the_limits_arrive_or_are_refused_over_tcp() {
    Box::pin(every_shape_arrives_or_is_refused(StanzaTransport::Tcp)).await;
}

#[tokio::test]
async fn stanzas_at_the_limits_arrive_or_are_refused_over_websocket() {
    Box::pin(every_shape_arrives_or_is_refused(StanzaTransport::WebSocket)).await;
}

#[tokio::test]
async fn stanzas_at_the_limits_arrive_or_are_refused_over_bosh() {
    Box::pin(every_shape_arrives_or_is_refused(StanzaTransport::Bosh)).await;
}

/// Server, clients and parser of a scenario.
pub(crate) struct LimitScenario {
    transport: StanzaTransport,
    pub(crate) server: TestServer,
    expat: Expat,
    pub(crate) romeo: StreamClient,
    phone: StreamClient,
    juliet: StreamClient,
    pub(crate) chamber: StreamClient,
}

/// Elements that a client received, and whether its stream was closed.
pub(crate) struct ReceivedElements {
    pub(crate) elements: Vec<String>,
    pub(crate) closed: bool,
}

impl ReceivedElements {
    /// Elements that contain this text.
    pub(crate) fn with<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a String> {
        self.elements.iter().filter(move |one| one.contains(part))
    }
}

async fn available(server: &TestServer, user: &str, resource: &str) -> StreamClient {
    let mut client = server.login(user, resource).await;
    client.send("<iq type='set' id='on'><enable xmlns='urn:xmpp:carbons:2'/></iq>").await;
    client.send("<presence/>").await;
    client.sync().await;
    client
}

impl LimitScenario {
    pub(crate) async fn new(transport: StanzaTransport) -> LimitScenario {
        // Time stands still, so no rate limit may be exhausted.
        let limits = NodeLimits {
            stanzas_per_second: 0,
            bytes_per_second: 0,
            presence_broadcasts_per_minute: 0,
            directed_presence_per_minute: 0,
            roster_changes_per_minute: 0,
            ..NodeLimits::default()
        };
        let (websocket, bosh) = (transport == StanzaTransport::WebSocket, transport == StanzaTransport::Bosh);
        let server = TestServerConfig {
            features: ALL.to_vec(),
            websocket,
            bosh,
            limits,
            ..TestServerConfig::default()
        }
        .start();
        for user in ["romeo", "juliet", "nurse"] {
            server.create_user(user).await;
        }
        let _ = server::take_documents();
        let romeo = available(&server, "romeo", "orchard").await;
        let phone = available(&server, "romeo", "phone").await;
        let juliet = available(&server, "juliet", "balcony").await;
        let chamber = available(&server, "juliet", "chamber").await;
        let mut scenario =
            LimitScenario { transport, server, expat: Expat::start(), romeo, phone, juliet, chamber };
        // Mutual subscriptions, so that requests are forwarded.
        for (at, text) in [
            (0, "<presence type='subscribe' to='juliet@example.com'/>"),
            (1, "<presence type='subscribed' to='romeo@example.com'/>"),
            (1, "<presence type='subscribe' to='romeo@example.com'/>"),
            (0, "<presence type='subscribed' to='juliet@example.com'/>"),
        ] {
            let client = if at == 0 { &mut scenario.romeo } else { &mut scenario.juliet };
            client.send(text).await;
            client.sync().await;
        }
        for _ in 0..2 {
            for client in
                [&mut scenario.romeo, &mut scenario.phone, &mut scenario.juliet, &mut scenario.chamber]
            {
                client.sync().await;
            }
        }
        scenario
    }

    pub(crate) fn phone(&mut self) -> &mut StreamClient {
        &mut self.phone
    }

    pub(crate) fn juliet(&mut self) -> &mut StreamClient {
        &mut self.juliet
    }

    pub(crate) fn chamber(&mut self) -> &mut StreamClient {
        &mut self.chamber
    }

    /// Receives everything pending for a client and parses it with expat as well.
    pub(crate) async fn receive(
        &mut self,
        which: fn(&mut LimitScenario) -> &mut StreamClient,
    ) -> ReceivedElements {
        let client = which(self);
        let received = receive(client).await;
        self.check(&received);
        received
    }

    pub(crate) fn check(&mut self, received: &ReceivedElements) {
        for one in &received.elements {
            let document = format!(
                "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>{one}</stream:stream>"
            );
            let read = self.expat.read(document.as_bytes());
            assert_eq!(read, Ok(()), "{:?}: {}", self.transport, short(one));
        }
        for document in server::take_documents() {
            let read = self.expat.read(document.as_bytes());
            assert_eq!(read, Ok(()), "{:?}: {}", self.transport, short(&document));
        }
    }
}

/// Receives everything up to the answer to a request, or to the end of the stream.
pub(crate) async fn receive(client: &mut StreamClient) -> ReceivedElements {
    let _ = client.try_send("<iq type='get' id='sync'><nothing xmlns='urn:example:nothing'/></iq>").await;
    let mut all = Vec::new();
    loop {
        match client.receive().await {
            ReceivedEvent::Element(seen) if seen.0.contains("id='sync'") => {
                return ReceivedElements { elements: all, closed: false };
            }
            ReceivedEvent::Element(seen) => all.push(seen.0),
            ReceivedEvent::Header(_) | ReceivedEvent::Close => {}
            ReceivedEvent::Eof => return ReceivedElements { elements: all, closed: true },
        }
    }
}

pub(crate) fn short(text: &str) -> String {
    if text.len() < 4000 {
        return text.to_owned();
    }
    let (start, end) = (text.floor_char_boundary(2500), text.floor_char_boundary(text.len() - 1000));
    format!("{} … {}", &text[..start], &text[end..])
}

/// Route of a stanza.
struct StanzaRoute {
    name: &'static str,
    to: &'static str,
    kind: &'static str,
    /// Child of the stanza; `{}` marks the place for further content.
    payload: &'static str,
}

const STANZA_ROUTES: [StanzaRoute; 7] = [
    StanzaRoute {
        name: "message",
        to: "juliet@example.com/balcony",
        kind: "chat",
        payload: "<body>x{}</body>",
    },
    StanzaRoute { name: "message", to: "nurse@example.com", kind: "chat", payload: "<body>x{}</body>" },
    StanzaRoute { name: "message", to: "nobody@example.com", kind: "chat", payload: "<body>x{}</body>" },
    StanzaRoute {
        name: "iq",
        to: "juliet@example.com/balcony",
        kind: "get",
        payload: "<q xmlns='urn:q'>{}</q>",
    },
    StanzaRoute { name: "iq", to: "example.com", kind: "get", payload: "<q xmlns='urn:q'>{}</q>" },
    StanzaRoute {
        name: "iq",
        to: "juliet@example.com/gone",
        kind: "set",
        payload: "<q xmlns='urn:q'>{}</q>",
    },
    StanzaRoute {
        name: "presence",
        to: "juliet@example.com/balcony",
        kind: "",
        payload: "<q xmlns='urn:q'>{}</q>",
    },
];

async fn every_shape_arrives_or_is_refused(transport: StanzaTransport) {
    let mut scenario = Box::pin(LimitScenario::new(transport)).await;
    let (mut arrived, mut refused) = (0, 0);
    for (number, shape) in shapes().into_iter().enumerate() {
        let mut stored = Vec::new();
        for (at, route) in STANZA_ROUTES.iter().enumerate() {
            let id = format!("s{number}r{at}");
            let Some(stanza) = shape.write(route.name, route.to, &id, route.kind, route.payload) else {
                continue;
            };
            if send(&mut scenario, &shape, route, &id, &stanza).await {
                arrived += 1;
                stored.extend((route.to == "nurse@example.com").then_some(id));
            } else {
                refused += 1;
            }
        }
        if !stored.is_empty() {
            stored_offline_and_delivered_at_login(&mut scenario, &shape, &stored).await;
        }
    }
    assert!(arrived > 500 && refused > 500, "{arrived} arrived, {refused} refused");
}

/// Returns true if it was admitted; then all its recipients must have received it.
async fn send(
    scenario: &mut LimitScenario,
    shape: &StanzaShape,
    route: &StanzaRoute,
    id: &str,
    stanza: &str,
) -> bool {
    let case =
        || format!("{:?} {shape:?} {} to {}: {}", scenario.transport, route.name, route.to, short(stanza));
    let case = case();
    let _ = scenario.romeo.try_send(stanza).await;
    let romeo = scenario.receive(|s| &mut s.romeo).await;
    let (juliet, chamber) =
        (scenario.receive(LimitScenario::juliet).await, scenario.receive(LimitScenario::chamber).await);
    let phone = scenario.receive(LimitScenario::phone).await;
    assert!(!juliet.closed && !chamber.closed && !phone.closed, "a bystander's stream is over: {case}");
    if romeo.closed {
        assert!(!shape.is_allowed(route.payload), "what is within the limits ended the stream: {case}");
        assert!(
            romeo.with("<policy-violation ").next().is_some() || scenario.transport == StanzaTransport::Bosh,
            "no reason: {case}"
        );
        assert!(juliet.with(id).next().is_none(), "refused and delivered: {case}");
        scenario.romeo = available(&scenario.server, "romeo", "orchard").await;
        scenario.receive(|s| &mut s.romeo).await;
        scenario.receive(LimitScenario::phone).await;
        scenario.receive(LimitScenario::juliet).await;
        scenario.receive(LimitScenario::chamber).await;
        return false;
    }
    assert!(shape.is_allowed(route.payload), "what is above a limit was admitted: {case}");
    let error = romeo.with(id).any(|one| one.contains(" type='error'"));
    match (route.name, route.to) {
        ("message", "juliet@example.com/balcony") => {
            assert!(!error && juliet.with(id).count() == 1, "not delivered: {case}");
            let copy = |received: &ReceivedElements, transport: &str| {
                received.with(id).filter(|one| one.contains(transport)).count()
            };
            assert_eq!(copy(&chamber, "<received "), 1, "no copy for the recipient's other resource: {case}");
            assert_eq!(copy(&phone, "<sent "), 1, "no copy for the sender's other resource: {case}");
        }
        ("message", "nurse@example.com") => assert!(!error, "not stored: {case}"),
        ("message", _) => assert!(error, "neither delivered nor answered: {case}"),
        ("iq", "juliet@example.com/balcony") => {
            assert!(error || juliet.with(id).count() == 1, "neither delivered nor answered: {case}");
        }
        ("iq", _) => assert!(error, "a request without an answer: {case}"),
        _ => assert!(error || juliet.with(id).count() == 1, "neither delivered nor answered: {case}"),
    }
    true
}

/// Stored stanzas are delivered with their time.
async fn stored_offline_and_delivered_at_login(
    scenario: &mut LimitScenario,
    shape: &StanzaShape,
    ids: &[String],
) {
    let mut nurse = scenario.server.login("nurse", "room").await;
    nurse.send("<presence/>").await;
    let mut received = receive(&mut nurse).await;
    server::run_until_idle().await;
    received.elements.extend(receive(&mut nurse).await.elements);
    scenario.check(&received);
    for id in ids {
        let got: Vec<_> = received.with(id).collect();
        let late = got.iter().all(|one| one.contains("urn:xmpp:delay"));
        assert!(
            got.len() == 1 && late,
            "{:?} {shape:?}: {} came out of the store",
            scenario.transport,
            got.len()
        );
    }
    nurse.send("</stream:stream>").await;
    while nurse.receive().await != ReceivedEvent::Eof {}
    // Lets the store delete what was delivered.
    server::run_until_idle().await;
}
