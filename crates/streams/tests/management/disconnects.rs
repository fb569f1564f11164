//! Model tests of XEP-0198 1.6.3, section 5: wherever connections break, each side receives the other's messages once and in
//! order.

use testkit::server::{ReceivedEvent, StreamClient, TestServer, run_until_idle};

use super::{NS, authenticated, enable, number, resume, start};

/// Juliet as a client with XEP-0198: counts, stores, acknowledges and resumes.
struct Juliet {
    /// Her pipe has a small capacity.
    tight: bool,
    client: Option<StreamClient>,
    id: String,
    received: u32,
    got: Vec<u32>,
    sent: u32,
    acked: u32,
    kept: Vec<(u32, String)>,
}

impl Juliet {
    async fn message(&mut self) {
        let text = format!("<message to='romeo@example.com/orchard' id='{}'/>", self.sent);
        self.kept.push((self.sent, text.clone()));
        self.sent += 1;
        self.send(&text).await;
    }

    /// Sends, while reading what arrives.
    async fn send(&mut self, text: &str) {
        if self.tight {
            self.receive(1000).await;
            run_until_idle().await;
        }
        if let Some(client) = &mut self.client {
            client.send(text).await;
        }
    }

    fn acknowledged(&mut self, h: u32) {
        assert!(h >= self.acked && h <= self.sent, "{h} of {}", self.sent);
        self.acked = h;
        self.kept.retain(|(n, _)| *n >= h);
    }

    /// Receives at most `most` elements.
    async fn receive(&mut self, most: u64) {
        for _ in 0..most {
            let Some(client) = &mut self.client else { return };
            let Some(ReceivedEvent::Element(seen)) = client.try_receive().await else { return };
            match seen.name().as_str() {
                "message" => {
                    self.received += 1;
                    self.got.push(number(&seen, "id"));
                }
                "r" => client.send(format!("<a {NS} h='{}'/>", self.received)).await,
                "a" => self.acknowledged(number(&seen, "h")),
                other => panic!("{other}"),
            }
        }
    }

    async fn resume(&mut self, server: &TestServer) {
        let mut client = authenticated(server, "juliet").await;
        let answer = resume(&mut client, &self.id, self.received).await;
        assert_eq!(answer.name(), "resumed", "{}", answer.0);
        self.acknowledged(number(&answer, "h"));
        self.client = Some(client);
        for (_, text) in self.kept.clone() {
            self.send(&text).await;
        }
    }
}

async fn act(seed: u64, capacity: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let server = start(|setup| setup.certificates = false).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut client = server.connect_with(capacity);
    client.login("juliet", "balcony").await;
    let id = enable(&mut client).await;
    let mut juliet = Juliet {
        tight: capacity < 10_000,
        client: Some(client),
        id,
        received: 0,
        got: Vec::new(),
        sent: 0,
        acked: 0,
        kept: Vec::new(),
    };
    let mut sent = 0;
    let mut seen = Vec::new();
    for _ in 0..60 {
        match random.u64(..10) {
            0..=2 => {
                for _ in 0..=random.u64(..5) {
                    let to = "juliet@example.com/balcony";
                    romeo.send(format!("<message to='{to}' type='chat' id='{sent}'/>")).await;
                    sent += 1;
                }
            }
            3 | 4 => {
                for _ in 0..=random.u64(..3) {
                    juliet.message().await;
                }
            }
            5 => juliet.receive(random.u64(..6)).await,
            6 => juliet.send(&format!("<r {NS}/>")).await,
            // Break the connection, with data in transit in both directions.
            7 => juliet.client = None,
            // Resume, possibly while the old connection is alive.
            8 => juliet.resume(&server).await,
            _ => run_until_idle().await,
        }
        while let Some(ReceivedEvent::Element(message)) = romeo.try_receive().await {
            seen.push(number(&message, "id"));
        }
    }
    juliet.resume(&server).await;
    for _ in 0..20 {
        run_until_idle().await;
        juliet.receive(1000).await;
        while let Some(ReceivedEvent::Element(message)) = romeo.try_receive().await {
            seen.push(number(&message, "id"));
        }
    }
    assert_eq!(juliet.got, (0..sent).collect::<Vec<_>>(), "seed {seed}: what Romeo sent");
    assert_eq!(seen, (0..juliet.sent).collect::<Vec<_>>(), "seed {seed}: what Juliet sent");
}

//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# except that after processing it MUST re-send to the peer any stanzas that are still marked as unhandled.
//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# Both parties SHOULD retransmit any stanzas that were not handled during the previous session, based on the
//# sequence number reported by the peer.
#[tokio::test]
async fn after_any_disconnect_each_side_receives_all_stanzas_once_in_order() {
    for seed in 0..100 {
        act(seed, 65_536).await;
        act(seed, 2000).await;
    }
}

/// Every position of a break among few stanzas in each direction: `there` stanzas were sent to Juliet, who has read
/// `read` of them, and she has sent `back`, of which the server has read all or, broken at the same moment, maybe none.
#[tokio::test]
async fn resumption_after_any_disconnect_loses_nothing() {
    for there in 0..4_u32 {
        for read in 0..=there {
            for back in 0..4_u32 {
                for wait in [false, true] {
                    let server = start(|setup| setup.certificates = false).await;
                    let mut romeo = server.login("romeo", "orchard").await;
                    let mut client = server.login("juliet", "balcony").await;
                    let id = enable(&mut client).await;
                    let mut juliet = Juliet {
                        tight: false,
                        client: Some(client),
                        id,
                        received: 0,
                        got: Vec::new(),
                        sent: 0,
                        acked: 0,
                        kept: Vec::new(),
                    };
                    for n in 0..there {
                        romeo
                            .send(format!("<message to='juliet@example.com/balcony' type='chat' id='{n}'/>"))
                            .await;
                    }
                    romeo.sync().await;
                    run_until_idle().await;
                    juliet.receive(u64::from(read)).await;
                    for _ in 0..back {
                        juliet.message().await;
                    }
                    if wait {
                        run_until_idle().await;
                    }
                    juliet.client = None;
                    run_until_idle().await;
                    juliet.resume(&server).await;
                    run_until_idle().await;
                    juliet.receive(100).await;
                    assert_eq!(juliet.got, (0..there).collect::<Vec<_>>());
                    let mut seen = Vec::new();
                    while let Some(ReceivedEvent::Element(message)) = romeo.try_receive().await {
                        seen.push(number(&message, "id"));
                    }
                    assert_eq!(seen, (0..back).collect::<Vec<_>>(), "{there} {read} {back} {wait}");
                }
            }
        }
    }
}
