//! Parallel password guessing.
//!
//! Done: 300 exchanges are begun before any of them is finished; then all proofs, passwords or tokens are sent, 299
//! of them wrong and the last one right, with SCRAM, PLAIN (both profiles) and FAST.
//!
//! Rule: RFC 6120, section 13.12, leaves limits on guesses to the server, here
//! `limits.login_failures_per_address_and_account`. A limit that is compared when an attempt begins and counted
//! when it ends does not limit parallel attempts.
//!
//! Right: at most as many guesses as the limit are answered, whatever their number and mechanism; all others learn
//! nothing, including the right one. After the window the user can log in.

use sasl::client::{Gs2, ScramClient, hashed_token, plain};
use sasl::{Mechanism, ScramHash, encoding};
use testkit::server::{PASSWORD, StreamClient, TestServer};

use crate::support::ClientTransport;

const GUESSES: usize = 300;
const SASL2: &str = "xmlns='urn:xmpp:sasl:2'";

fn guess(n: usize) -> &'static str {
    if n + 1 == GUESSES { PASSWORD } else { "wrong" }
}

fn authenticate(mechanism: &str, initial: &[u8]) -> String {
    format!(
        "<authenticate {SASL2} mechanism='{mechanism}'><initial-response>{}</initial-response>\
         <user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'/><fast xmlns='urn:xmpp:fast:0'/></authenticate>",
        encoding::encode_challenge(initial)
    )
}

/// Open streams, each with its last message.
async fn prepared(server: &TestServer, mechanism: &str) -> (Vec<StreamClient>, Vec<String>) {
    let (mut clients, mut last) = (Vec::new(), Vec::new());
    for n in 0..GUESSES {
        let mut client = server.connect();
        client.open().await;
        last.push(match mechanism {
            "SCRAM" => {
                let mut scram = ScramClient::new(ScramHash::Sha256, Gs2::None, "juliet", guess(n));
                client.auth(Mechanism::ScramSha256, &scram.client_first()).await;
                let challenge = encoding::decode_response(&client.element().await.text()).unwrap();
                let proof = encoding::encode_challenge(&scram.client_final(&challenge, None).unwrap());
                format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{proof}</response>")
            }
            "PLAIN" => format!(
                "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{}</auth>",
                encoding::encode_challenge(&plain(None, "juliet", guess(n)))
            ),
            "PLAIN of SASL2" => authenticate("PLAIN", &plain(None, "juliet", guess(n))),
            _ => authenticate("HT-SHA-256-NONE", &hashed_token("juliet", guess(n), &[])),
        });
        clients.push(client);
    }
    (clients, last)
}

#[tokio::test]
async fn parallel_password_guesses_are_limited_like_sequential_ones() {
    let mut setup = ClientTransport::Tcp.setup();
    setup.policy.allow_plain_without_tls = true;
    let server = setup.start();
    server.create_user("juliet").await;
    let limit = server.node.limits().login_failures_per_address_and_account as usize;
    for mechanism in ["SCRAM", "PLAIN", "PLAIN of SASL2", "FAST"] {
        let (mut clients, last) = prepared(&server, mechanism).await;
        for (client, last) in clients.iter_mut().zip(&last) {
            client.send(last).await;
        }
        let mut answered = 0;
        for client in &mut clients {
            let answer = client.element().await;
            match answer.condition().as_deref() {
                Some("not-authorized") => answered += 1,
                Some("temporary-auth-failure") => {}
                _ => panic!("{mechanism}: {}", answer.0),
            }
        }
        assert_eq!(answered, limit, "{mechanism}");
        drop(clients);
        server.advance(server.node.limits().login_window_seconds).await;
        server.login("juliet", "balcony").await;
    }
}
