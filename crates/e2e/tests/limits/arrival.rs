//! Each stanza of `stanza::shapes` on each of its ways: to a resource, to the other resources as a copy (XEP-0280), into the
//! offline store and out of it (XEP-0160, XEP-0203), back as an error (RFC 6120 section 8.3), as a request and as presence,
//! over TCP, WebSocket (RFC 7395) and BOSH (XEP-0124), with every feature. What arrives is read by expat; what does not is
//! answered with a stanza error or ends the sender's stream with a stream error.
//!
//! Left out: the stanza's content, of which only its id is looked for.

use features::registry::ALL;
use testkit::expat::Expat;
use testkit::wire::{self, Client, Heard, Setup, Wire};
use throng_core::Limits;

use crate::stanza::{Shape, shapes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tcp,
    WebSocket,
    Bosh,
}

#[tokio::test]
async fn over_tcp() {
    Box::pin(every_shape_arrives_or_is_refused(Way::Tcp)).await;
}

#[tokio::test]
async fn over_websocket() {
    Box::pin(every_shape_arrives_or_is_refused(Way::WebSocket)).await;
}

#[tokio::test]
async fn over_bosh() {
    Box::pin(every_shape_arrives_or_is_refused(Way::Bosh)).await;
}

/// Who is on stage.
pub(crate) struct Stage {
    way: Way,
    pub(crate) wire: Wire,
    expat: Expat,
    pub(crate) romeo: Client,
    phone: Client,
    juliet: Client,
    pub(crate) chamber: Client,
}

/// What a client heard, and whether its stream is over.
pub(crate) struct Got {
    pub(crate) all: Vec<String>,
    pub(crate) over: bool,
}

impl Got {
    /// Elements with this text.
    pub(crate) fn with<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a String> {
        self.all.iter().filter(move |one| one.contains(part))
    }
}

async fn available(wire: &Wire, user: &str, resource: &str) -> Client {
    let mut client = wire.login(user, resource).await;
    client.send("<iq type='set' id='on'><enable xmlns='urn:xmpp:carbons:2'/></iq>").await;
    client.send("<presence/>").await;
    client.sync().await;
    client
}

impl Stage {
    pub(crate) async fn new(way: Way) -> Stage {
        // Time stands still, so no rate may end.
        let limits = Limits {
            stanzas_per_second: 0,
            bytes_per_second: 0,
            presence_broadcasts_per_minute: 0,
            directed_presence_per_minute: 0,
            roster_changes_per_minute: 0,
            ..Limits::default()
        };
        let (websocket, bosh) = (way == Way::WebSocket, way == Way::Bosh);
        let wire = Setup { features: ALL.to_vec(), websocket, bosh, limits, ..Setup::default() }.start();
        for user in ["romeo", "juliet", "nurse"] {
            wire.user(user).await;
        }
        let _ = wire::documents();
        let romeo = available(&wire, "romeo", "orchard").await;
        let phone = available(&wire, "romeo", "phone").await;
        let juliet = available(&wire, "juliet", "balcony").await;
        let chamber = available(&wire, "juliet", "chamber").await;
        let mut stage = Stage { way, wire, expat: Expat::start(), romeo, phone, juliet, chamber };
        // Each sees the presence of the other, so that requests pass.
        for (at, text) in [
            (0, "<presence type='subscribe' to='juliet@example.com'/>"),
            (1, "<presence type='subscribed' to='romeo@example.com'/>"),
            (1, "<presence type='subscribe' to='romeo@example.com'/>"),
            (0, "<presence type='subscribed' to='juliet@example.com'/>"),
        ] {
            let client = if at == 0 { &mut stage.romeo } else { &mut stage.juliet };
            client.send(text).await;
            client.sync().await;
        }
        for _ in 0..2 {
            for client in [&mut stage.romeo, &mut stage.phone, &mut stage.juliet, &mut stage.chamber] {
                client.sync().await;
            }
        }
        stage
    }

    pub(crate) fn phone(&mut self) -> &mut Client {
        &mut self.phone
    }
    pub(crate) fn juliet(&mut self) -> &mut Client {
        &mut self.juliet
    }
    pub(crate) fn chamber(&mut self) -> &mut Client {
        &mut self.chamber
    }

    /// Reads everything that waits for a client with expat as well.
    pub(crate) async fn hear(&mut self, which: fn(&mut Stage) -> &mut Client) -> Got {
        let client = which(self);
        let heard = hear(client).await;
        self.judge(&heard);
        heard
    }

    pub(crate) fn judge(&mut self, heard: &Got) {
        for one in &heard.all {
            let document = format!(
                "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>{one}</stream:stream>"
            );
            let read = self.expat.read(document.as_bytes());
            assert_eq!(read, Ok(()), "{:?}: {}", self.way, short(one));
        }
        for document in wire::documents() {
            let read = self.expat.read(document.as_bytes());
            assert_eq!(read, Ok(()), "{:?}: {}", self.way, short(&document));
        }
    }
}

/// Everything up to the answer to a request, or to the end of the stream.
pub(crate) async fn hear(client: &mut Client) -> Got {
    let _ = client.try_send("<iq type='get' id='sync'><nothing xmlns='urn:example:nothing'/></iq>").await;
    let mut all = Vec::new();
    loop {
        match client.hear().await {
            Heard::Element(seen) if seen.0.contains("id='sync'") => return Got { all, over: false },
            Heard::Element(seen) => all.push(seen.0),
            Heard::Header(_) | Heard::Close => {}
            Heard::Eof => return Got { all, over: true },
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

/// A way that a stanza can go.
struct Road {
    name: &'static str,
    to: &'static str,
    kind: &'static str,
    /// With a place for everything else.
    payload: &'static str,
}

const ROADS: [Road; 7] = [
    Road { name: "message", to: "juliet@example.com/balcony", kind: "chat", payload: "<body>x{}</body>" },
    Road { name: "message", to: "nurse@example.com", kind: "chat", payload: "<body>x{}</body>" },
    Road { name: "message", to: "nobody@example.com", kind: "chat", payload: "<body>x{}</body>" },
    Road { name: "iq", to: "juliet@example.com/balcony", kind: "get", payload: "<q xmlns='urn:q'>{}</q>" },
    Road { name: "iq", to: "example.com", kind: "get", payload: "<q xmlns='urn:q'>{}</q>" },
    Road { name: "iq", to: "juliet@example.com/gone", kind: "set", payload: "<q xmlns='urn:q'>{}</q>" },
    Road { name: "presence", to: "juliet@example.com/balcony", kind: "", payload: "<q xmlns='urn:q'>{}</q>" },
];

async fn every_shape_arrives_or_is_refused(way: Way) {
    let mut stage = Stage::new(way).await;
    let (mut arrived, mut refused) = (0, 0);
    for (number, shape) in shapes().into_iter().enumerate() {
        let mut stored = Vec::new();
        for (at, road) in ROADS.iter().enumerate() {
            let id = format!("s{number}r{at}");
            let Some(stanza) = shape.write(road.name, road.to, &id, road.kind, road.payload) else {
                continue;
            };
            if send(&mut stage, &shape, road, &id, &stanza).await {
                arrived += 1;
                stored.extend((road.to == "nurse@example.com").then_some(id));
            } else {
                refused += 1;
            }
        }
        if !stored.is_empty() {
            out_of_the_store(&mut stage, &shape, &stored).await;
        }
    }
    assert!(arrived > 500 && refused > 500, "{arrived} arrived, {refused} refused");
}

/// True if it was admitted; then everybody who should have it has it.
async fn send(stage: &mut Stage, shape: &Shape, road: &Road, id: &str, stanza: &str) -> bool {
    let case = || format!("{:?} {shape:?} {} to {}: {}", stage.way, road.name, road.to, short(stanza));
    let case = case();
    let _ = stage.romeo.try_send(stanza).await;
    let romeo = stage.hear(|s| &mut s.romeo).await;
    let (juliet, chamber) = (stage.hear(Stage::juliet).await, stage.hear(Stage::chamber).await);
    let phone = stage.hear(Stage::phone).await;
    assert!(!juliet.over && !chamber.over && !phone.over, "a bystander's stream is over: {case}");
    if romeo.over {
        assert!(!shape.is_allowed(road.payload), "what is within the limits ended the stream: {case}");
        assert!(
            romeo.with("<policy-violation ").next().is_some() || stage.way == Way::Bosh,
            "no reason: {case}"
        );
        assert!(juliet.with(id).next().is_none(), "refused and delivered: {case}");
        stage.romeo = available(&stage.wire, "romeo", "orchard").await;
        stage.hear(|s| &mut s.romeo).await;
        stage.hear(Stage::phone).await;
        stage.hear(Stage::juliet).await;
        stage.hear(Stage::chamber).await;
        return false;
    }
    assert!(shape.is_allowed(road.payload), "what is above a limit was admitted: {case}");
    let error = romeo.with(id).any(|one| one.contains(" type='error'"));
    match (road.name, road.to) {
        ("message", "juliet@example.com/balcony") => {
            assert!(!error && juliet.with(id).count() == 1, "not delivered: {case}");
            let copy = |heard: &Got, way: &str| heard.with(id).filter(|one| one.contains(way)).count();
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

/// What was stored comes out with its time.
async fn out_of_the_store(stage: &mut Stage, shape: &Shape, ids: &[String]) {
    let mut nurse = stage.wire.login("nurse", "room").await;
    nurse.send("<presence/>").await;
    let mut heard = hear(&mut nurse).await;
    wire::settle().await;
    heard.all.extend(hear(&mut nurse).await.all);
    stage.judge(&heard);
    for id in ids {
        let got: Vec<_> = heard.with(id).collect();
        let late = got.iter().all(|one| one.contains("urn:xmpp:delay"));
        assert!(got.len() == 1 && late, "{:?} {shape:?}: {} came out of the store", stage.way, got.len());
    }
    nurse.send("</stream:stream>").await;
    while nurse.hear().await != Heard::Eof {}
    // The store may forget what was taken.
    wire::settle().await;
}
