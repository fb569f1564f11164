//! A message as large as the operator allows.
//!
//! Done: the limit of a stanza is raised to 5 MB. A message of exactly this size goes to a user who is online,
//! with and without stream management, and to one who is offline. Then the user logs in, several times. One with a byte more
//! is sent. A user with a roster of 5 MB requests it.
//!
//! Rule: RFC 6120, section 13.12, leaves the maximum size of a stanza to the server; XEP-0198, section 4, and XEP-0160 require
//! that what was accepted is delivered.
//!
//! Right: what the limits admit arrives over every transport, and nobody's login ends because of it. The byte more ends the
//! sender's stream with `policy-violation`.

use stanza::StreamCondition;
use store::{BulkItem, BulkRoster, Subscription};
use testkit::server::{TestServer, run_until_idle};
use throng_core::NodeLimits;

use crate::support::{ClientTransport, ask};

const STANZA_BYTES: u32 = 5_000_000;
const ROSTER_BYTES: usize = 5_000_000;

/// A message to juliet of this size.
fn message_of(id: &str, bytes: usize) -> String {
    let of = |body: &str| {
        format!("<message to='juliet@example.com' type='chat' id='{id}'><body>{body}</body></message>")
    };
    of(&"x".repeat(bytes - of("").len()))
}

fn limits() -> NodeLimits {
    NodeLimits {
        stanza_bytes: STANZA_BYTES,
        roster_bytes: 33_554_432,
        bytes_per_second: 0,
        ..NodeLimits::default()
    }
}

#[tokio::test]
async fn the_largest_message_arrives_online_and_after_login() {
    for transport in ClientTransport::ALL {
        // Acknowledgements of BOSH are its own.
        for managed in
            [false, true].into_iter().filter(|managed| !managed || transport != ClientTransport::Bosh)
        {
            let mut setup = transport.setup();
            setup.limits = limits();
            let wire = setup.start();
            for user in ["romeo", "juliet"] {
                wire.create_user(user).await;
            }
            let mut romeo = wire.connect_tcp().await;
            romeo.login("romeo", "orchard").await;
            let mut message = async |id: &str| {
                romeo.send(message_of(id, STANZA_BYTES as usize)).await;
                romeo.sync().await;
            };
            message("offline").await;
            for id in ["offline", "online"] {
                let mut juliet = wire.login("juliet", "balcony").await;
                if managed {
                    juliet.send("<enable xmlns='urn:xmpp:sm:3'/>").await;
                    assert_eq!(juliet.element().await.name(), "enabled");
                }
                juliet.send("<presence/>").await;
                let mut stanzas = 0;
                if id == "online" {
                    // The answer of `sync` is a stanza too.
                    stanzas += 1 + juliet.sync().await.iter().filter(|element| element.name() != "r").count();
                    message(id).await;
                }
                let received = loop {
                    let element = juliet.element().await;
                    stanzas += usize::from(element.name() != "r");
                    if element.name() == "message" {
                        break element;
                    }
                };
                assert_eq!(received.attr("id").as_deref(), Some(id), "{transport:?} {managed}");
                assert!(received.0.len() > STANZA_BYTES as usize);
                // What follows on the same stream arrives too.
                if managed {
                    juliet.send(format!("<a xmlns='urn:xmpp:sm:3' h='{stanzas}'/>")).await;
                }
                juliet.sync().await;
                drop(juliet);
                run_until_idle().await;
            }
        }
    }
}

#[tokio::test]
async fn a_message_above_the_limit_ends_the_stream_of_its_sender() {
    let mut setup = ClientTransport::Tcp.setup();
    setup.limits = limits();
    let wire = setup.start();
    wire.create_user("romeo").await;
    let mut romeo = wire.login("romeo", "orchard").await;
    romeo.send(message_of("1", STANZA_BYTES as usize + 1)).await;
    romeo.expect_stream_error(StreamCondition::PolicyViolation).await;
}

/// Creates juliet with a roster of 5 MB.
async fn create_large_roster(wire: &TestServer) {
    let owner = wire.create_user("juliet").await;
    let mut items = Vec::new();
    for n in 0..5_000 {
        let contact = wire.stores.addresses.intern(&wire.address(&format!("contact{n}"))).await.unwrap();
        let (name, groups) = (Some("x".repeat(1_000)), vec![]);
        let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
        items.push(BulkItem { contact, name, groups, subscription });
    }
    wire.stores.roster.put_bulk(vec![BulkRoster { owner, items }]).await.unwrap();
}

#[tokio::test]
async fn a_roster_that_is_not_read_counts_towards_the_backlog() {
    let mut setup = ClientTransport::Tcp.setup();
    setup.limits = limits();
    let wire = setup.start();
    create_large_roster(&wire).await;
    let mut juliet = wire.login("juliet", "balcony").await;
    juliet.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>").await;
    run_until_idle().await;
    let counted = wire.node.backlog.bytes();
    assert!(counted > ROSTER_BYTES as u64 / 2, "{counted}");
    juliet.sync().await;
    assert_eq!(wire.node.backlog.bytes(), 0);
}

#[tokio::test]
async fn the_largest_roster_arrives() {
    for transport in ClientTransport::ALL {
        let mut setup = transport.setup();
        setup.limits = limits();
        let wire = setup.start();
        create_large_roster(&wire).await;
        let mut juliet = wire.login("juliet", "balcony").await;
        let roster =
            ask(&mut juliet, "r", "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>").await;
        assert!(roster.0.len() > ROSTER_BYTES, "{transport:?}");
        juliet.sync().await;
    }
}
