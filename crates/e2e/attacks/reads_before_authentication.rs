//! Expensive database reads before authentication.
//!
//! Done: 40 first messages of SCRAM, PLAIN and FAST from clients without the password, for a user with a large
//! roster, a blocklist and offline messages, a user without data, a disabled one, and one that does not exist.
//!
//! Rule: RFC 6120, section 13.12 (what may be learnt before authentication) and section 13.11 (denial of service):
//! no data of an account may be read and no memory used for it before authentication, and response times must not
//! differ.
//!
//! Right: one store query for each attempt, only for what the proof needs, the same for all four; roster, blocklist
//! and counts are read once, after the proof.

use sasl::client::{Gs2, ScramClient, hashed_token, plain};
use sasl::{Mechanism, ScramHash, encoding};

use crate::support::{ClientTransport, user_with_large_roster};

const USERS: [&str; 4] = ["rich", "poor", "barred", "nobody"];
const ATTEMPTS: usize = 40;

#[tokio::test]
async fn only_the_credentials_are_read_before_authentication() {
    let mut setup = ClientTransport::Tcp.setup();
    setup.policy.allow_plain_without_tls = true;
    // Clients above a limit cause no read of the store.
    setup.limits.login_failures_per_address_and_account = 1_000_000;
    setup.limits.login_failures_per_account = 1_000_000;
    let server = setup.start();
    user_with_large_roster(&server, "rich").await;
    server.create_user("poor").await;
    server.create_user("barred").await;
    server.stores.accounts.set_disabled(server.address("barred").as_ref(), true).await.unwrap();

    for mechanism in ["SCRAM", "PLAIN", "FAST", "FAST with a resource"] {
        let mut seen = Vec::new();
        for user in USERS {
            let mut clients = Vec::new();
            server.store_calls();
            for _ in 0..ATTEMPTS {
                let mut client = server.connect();
                client.open().await;
                match mechanism {
                    "SCRAM" => {
                        let first =
                            ScramClient::new(ScramHash::Sha1, Gs2::None, user, "guess").client_first();
                        client.auth(Mechanism::ScramSha1, &first).await;
                    }
                    "PLAIN" => client.auth(Mechanism::Plain, &plain(None, user, "guess")).await,
                    _ => {
                        let bind = if mechanism == "FAST" { "" } else { "<bind xmlns='urn:xmpp:bind:0'/>" };
                        let proof = encoding::encode_challenge(&hashed_token(user, "guess", &[]));
                        client
                            .send(format!(
                                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='HT-SHA-256-NONE'>\
                                 <initial-response>{proof}</initial-response>\
                                 <user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'/>\
                                 <fast xmlns='urn:xmpp:fast:0'/>{bind}</authenticate>"
                            ))
                            .await;
                    }
                }
                let answer = client.element().await;
                assert_eq!(answer.name(), if mechanism == "SCRAM" { "challenge" } else { "failure" });
                clients.push(client);
            }
            seen.push(server.store_calls());
        }
        for calls in &seen {
            assert_eq!(*calls, ["logins.secrets"; ATTEMPTS], "{mechanism}");
        }
    }
    server.store_calls();
    server.login("rich", "balcony").await;
    assert_eq!(server.store_calls(), ["logins.secrets", "logins.login"]);
}
