//! Tests of rate limits on a whole stream: sessions above a rate are read more slowly and lose nothing, floods of
//! presence and roster changes are refused, reconnecting does not refill a bucket, and other clients are unaffected.
//!
//! The clock is manual; `advance` runs the sweep once a second, as the program does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use feature_api::feature::{Feature, FeatureBuilder};
use jid::Jid;
use sasl::Mechanism;
use testkit::server::{PASSWORD, StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::NodeLimits;
use throng_core::SharedStanza;
use throng_core::provided::KeepAlivePing;
use throng_core::session::StreamManagementConfig;

/// Sends keep-alive pings to idle clients.
static PROBE: Feature = Feature {
    name: "probe",
    build: |builder: &mut FeatureBuilder<'_>| {
        builder.provide(KeepAlivePing(|session| {
            SharedStanza::parse(format!("<iq type='get' id='alive' to='{}'/>", session.jid).as_bytes())
        }));
    },
    ..Feature::EMPTY
};

/// Enables resumption of streams.
static RESUME: Feature = Feature {
    name: "resume",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 300, unacked_bytes: 1_000_000, location: String::new() };
        builder.provide(management);
    },
    ..Feature::EMPTY
};

async fn server(limits: NodeLimits) -> TestServer {
    let server =
        TestServerConfig { limits, features: vec![&PROBE, &RESUME], ..TestServerConfig::default() }.start();
    for name in ["romeo", "juliet"] {
        server.create_user(name).await;
    }
    server
}

/// Ids of the answers available now.
async fn answers(client: &mut StreamClient) -> Vec<String> {
    run_until_idle().await;
    let mut ids = Vec::new();
    while let Some(received) = client.try_receive().await {
        if let testkit::server::ReceivedEvent::Element(seen) = received {
            ids.extend(seen.attr("id"));
        }
    }
    ids
}

fn pings(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!("<iq type='get' id='{n}'><nothing xmlns='urn:example:nothing'/></iq>")).collect()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# A server implementation SHOULD enable a server administrator to limit the number of XML stanzas that a connected
//# client is allowed to send to distinct recipients within a given time period.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# If a connected client sends too many stanzas to distinct recipients in a given time period, the receiving server
//# SHOULD NOT process the stanza and instead SHOULD return a <policy-violation/> stanza error
#[tokio::test]
async fn too_many_stanzas_are_read_later_in_order_and_none_is_lost() {
    let server =
        server(NodeLimits { stanzas_per_second: 5, stanzas_burst: 10, ..NodeLimits::default() }).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    romeo.send(pings(0..40)).await;
    let mut got = answers(&mut romeo).await;
    // The eleventh is the one that incurs the debt.
    assert_eq!(got.len(), 11, "{got:?}");
    juliet.sync().await;
    for _ in 0..3 {
        server.advance(1).await;
        let more = answers(&mut romeo).await;
        assert!((4..=6).contains(&more.len()), "five a second: {more:?}");
        got.extend(more);
    }
    server.advance(10).await;
    got.extend(answers(&mut romeo).await);
    assert_eq!(got, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# A server implementation SHOULD enable a server administrator to limit the amount of bandwidth it will allow a
//# connected client or peer server to use in a given time period.
#[tokio::test]
async fn too_many_bytes_are_read_later() {
    let server =
        server(NodeLimits { bytes_per_second: 1_000, bytes_burst: 2_000, ..NodeLimits::default() }).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let big = format!("<iq type='get' id='big'><nothing xmlns='urn:x'>{}</nothing></iq>", "x".repeat(6_000));
    romeo.send(&big).await;
    romeo.send(pings(0..1)).await;
    // A stanza larger than the burst is read, and charged afterwards.
    assert_eq!(answers(&mut romeo).await, ["big"]);
    server.advance(3).await;
    assert_eq!(answers(&mut romeo).await, [""; 0]);
    server.advance(3).await;
    assert_eq!(answers(&mut romeo).await, ["0"]);
}

#[tokio::test]
async fn a_throttled_session_does_not_count_as_idle() {
    let limits =
        NodeLimits { bytes_per_second: 100, bytes_burst: 100, idle_ping_seconds: 5, ..NodeLimits::default() };
    let server = server(limits).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let big = format!("<iq type='get' id='big'><nothing xmlns='urn:x'>{}</nothing></iq>", "x".repeat(4_000));
    romeo.send(&big).await;
    answers(&mut romeo).await;
    server.advance(30).await;
    assert_eq!(answers(&mut romeo).await, [""; 0], "no question while it may not answer");
    server.advance(30).await;
    assert_eq!(answers(&mut romeo).await, ["alive"], "but after that");
}

#[tokio::test]
async fn floods_of_presence_are_refused_with_the_time_to_wait() {
    let limits = NodeLimits {
        presence_broadcasts_per_minute: 6,
        presence_broadcasts_burst: 2,
        ..NodeLimits::default()
    };
    let server = server(limits).await;
    let mut romeo = server.login("romeo", "orchard").await;
    for n in 0..3 {
        romeo.send(format!("<presence id='{n}'/>")).await;
    }
    let refused = romeo.sync().await;
    let refused: Vec<_> = refused.iter().filter(|s| s.attr("type").as_deref() == Some("error")).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].attr("id").as_deref(), Some("2"));
    assert_eq!(refused[0].condition().as_deref(), Some("policy-violation"));
    assert_eq!(refused[0].error_type().as_deref(), Some("wait"));
    assert!(refused[0].has("try again in 10 s"));
    server.advance(10).await;
    romeo.send("<presence id='4'/>").await;
    let seen = romeo.sync().await;
    assert!(seen.iter().all(|s| s.attr("type").as_deref() != Some("error")));
}

#[tokio::test]
async fn a_reload_applies_to_open_streams() {
    let server = server(NodeLimits::default()).await;
    let mut romeo = server.login("romeo", "orchard").await;
    romeo.send(pings(0..30)).await;
    assert_eq!(answers(&mut romeo).await.len(), 30);
    server.node.set_limits(NodeLimits { stanzas_per_second: 2, stanzas_burst: 3, ..NodeLimits::default() });
    // The limits are checked with each batch that arrives.
    romeo.send(pings(0..1)).await;
    answers(&mut romeo).await;
    romeo.send(pings(1..20)).await;
    let slow = answers(&mut romeo).await.len();
    assert!(slow < 6, "{slow}");
    server.node.set_limits(NodeLimits::default());
    server.advance(2).await;
    assert_eq!(answers(&mut romeo).await.len(), 19 - slow);
}

#[tokio::test]
async fn floods_of_roster_changes_are_refused() {
    let limits =
        NodeLimits { roster_changes_per_minute: 60, roster_changes_burst: 1, ..NodeLimits::default() };
    let server = server(limits).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let set = |n: u32| {
        format!("<iq type='set' id='s{n}'><query xmlns='jabber:iq:roster'><item jid='j{n}@x'/></query></iq>")
    };
    romeo.send(set(0) + &set(1)).await;
    let seen = romeo.sync().await;
    let conditions: Vec<_> = seen.iter().filter_map(|s| s.condition()).collect();
    // No feature handles the first here; the second is refused before.
    assert_eq!(conditions, ["service-unavailable", "policy-violation"]);
}

/// Five a second, burst of ten; the eleventh incurs the debt.
fn few() -> NodeLimits {
    NodeLimits { stanzas_per_second: 5, stanzas_burst: 10, ..NodeLimits::default() }
}

#[tokio::test]
async fn a_reconnecting_client_starts_with_its_remaining_tokens() {
    let server = server(few()).await;
    for how in ["closed", "lost", "replaced"] {
        let mut romeo = server.login("romeo", "orchard").await;
        romeo.send(pings(0..10)).await;
        assert_eq!(answers(&mut romeo).await.len(), 10, "{how}: a full burst");
        let mut earlier = None;
        match how {
            "closed" => romeo.send("</stream:stream>").await,
            "lost" => drop(romeo),
            _ => earlier = Some(romeo),
        }
        if earlier.is_none() {
            run_until_idle().await;
        }
        for round in 0..3 {
            let mut romeo = server.login("romeo", "orchard").await;
            romeo.send(pings(0..10)).await;
            let count = answers(&mut romeo).await.len();
            // The first round incurs the debt, with which the next one begins.
            assert_eq!(count, usize::from(round == 0), "{how}, round {round}");
        }
        drop(earlier);
        run_until_idle().await;
        server.advance(10).await;
    }
}

#[tokio::test]
async fn reconnecting_sessions_of_an_account_share_one_burst() {
    for resumed in [false, true] {
        let server = server(few()).await;
        let mut ids = Vec::new();
        let mut clients = Vec::new();
        for resource in ["a", "b", "c", "d"] {
            let mut client = server.login("romeo", resource).await;
            if resumed {
                client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
                ids.push(client.element().await.attr("id").unwrap());
            }
            client.send(pings(0..10)).await;
            assert_eq!(answers(&mut client).await.len(), 10, "a burst for each client");
            clients.push(client);
        }
        drop(clients);
        run_until_idle().await;
        // Enough to refill the burst of one of them.
        server.advance(2).await;
        let mut clients = Vec::new();
        for (at, resource) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let mut client = server.connect();
            if let Some(id) = ids.get(at) {
                client.open().await;
                client.authenticate(Mechanism::ScramSha1, "romeo", PASSWORD).await.unwrap();
                client.open().await;
                client.send(format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='10'/>")).await;
                assert_eq!(client.element().await.name(), "resumed");
            } else {
                client.login("romeo", resource).await;
            }
            client.send(pings(0..10)).await;
            // Without a burst, the first stanza incurs a debt.
            assert_eq!(answers(&mut client).await.len(), 1, "resumed: {resumed}");
            clients.push(client);
        }
        // They are delayed by their own debts only.
        server.advance(1).await;
        for client in &mut clients {
            assert!((4..=6).contains(&answers(client).await.len()), "five a second");
        }
        drop(clients);
        run_until_idle().await;
        server.advance(20).await;
        let mut client = server.login("romeo", "a").await;
        client.send(pings(0..30)).await;
        assert_eq!(answers(&mut client).await.len(), 11, "the burst is refilled");
    }
}

#[tokio::test]
async fn a_resumed_stream_continues_with_its_rates() {
    let server = server(few()).await;
    let mut romeo = server.login("romeo", "orchard").await;
    romeo.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    let id = romeo.element().await.attr("id").unwrap();
    romeo.send(pings(0..30)).await;
    assert_eq!(answers(&mut romeo).await.len(), 11);
    for stolen in [false, true] {
        let before = if stolen {
            Some(romeo)
        } else {
            drop(romeo);
            None
        };
        run_until_idle().await;
        romeo = server.connect();
        romeo.open().await;
        romeo.authenticate(Mechanism::ScramSha1, "romeo", PASSWORD).await.unwrap();
        romeo.open().await;
        romeo.send(format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='0'/>")).await;
        assert_eq!(romeo.element().await.name(), "resumed");
        answers(&mut romeo).await;
        romeo.send(pings(0..30)).await;
        assert_eq!(answers(&mut romeo).await, [""; 0], "in debt since before");
        drop(before);
    }
    server.advance(1).await;
    assert!(!answers(&mut romeo).await.is_empty());
}

#[tokio::test]
async fn other_sessions_of_the_account_and_other_accounts_keep_their_rates() {
    let server = server(few()).await;
    let mut phone = server.login("romeo", "phone").await;
    let mut laptop = server.login("romeo", "laptop").await;
    let mut juliet = server.login("juliet", "balcony").await;
    phone.send(pings(0..30)).await;
    assert_eq!(answers(&mut phone).await.len(), 11);
    drop(phone);
    run_until_idle().await;
    for client in [&mut laptop, &mut juliet] {
        client.send(pings(0..10)).await;
        assert_eq!(answers(client).await.len(), 10);
    }
}

#[tokio::test]
async fn an_idle_session_does_not_inherit_the_spending_of_an_ended_one() {
    let server = server(few()).await;
    let mut laptop = server.login("romeo", "laptop").await;
    server.advance(server.node.limits().idle_ping_seconds).await;
    assert_eq!(answers(&mut laptop).await, ["alive"], "its full buckets were dropped");
    let mut phone = server.login("romeo", "phone").await;
    phone.send(pings(0..10)).await;
    assert_eq!(answers(&mut phone).await.len(), 10, "not in debt, so that the end of its connection is read");
    drop(phone);
    run_until_idle().await;
    laptop.send(pings(0..10)).await;
    assert_eq!(answers(&mut laptop).await.len(), 10, "its own buckets were full");
}

#[tokio::test]
async fn default_rates_need_no_memory_on_loopback_or_while_idle() {
    let server = server(NodeLimits::with_rates()).await;
    let has_rates = || {
        let account =
            server.node.routing_table.find(Jid::parse("romeo@example.com").unwrap().as_ref()).unwrap();
        account.session("orchard").unwrap().rates(|_| ()).is_some()
    };
    let mut near = server.login("romeo", "orchard").await;
    near.sync().await;
    assert!(!has_rates());
    let mut far = server.connect_from("192.0.2.7");
    far.login("romeo", "orchard").await;
    far.sync().await;
    assert!(has_rates());
    server.advance(server.node.limits().idle_ping_seconds).await;
    assert_eq!(answers(&mut far).await, ["alive"]);
    assert!(!has_rates(), "buckets that are full need no memory");
}
