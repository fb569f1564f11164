//! Stolen login tokens.
//!
//! Done: a token of XEP-0484 is used for another user, on another domain, by another client, with another
//! mechanism; a recorded login is replayed; the token is used after a password change and after the account was
//! disabled; it is used on two nodes of a cluster at the same time, while its owner rotates or invalidates it.
//!
//! Rule: XEP-0484, sections 3.4, 4 and 6 (without TLS early data no counter is needed).
//!
//! Right: a token is valid for one account, one client and one mechanism, a proof for one connection, and a new
//! password revokes it. On all nodes together, one use rotates it, at most one of the new tokens is valid, and what one
//! node has invalidated is invalid everywhere.

use sasl::{Credentials, HtMechanism};
use testkit::server::{
    PASSWORD, ReceivedElement, StreamClient, TestServer, TestServerConfig, TestServers, TlsClientSettings,
};

use crate::support::ClientTransport;

const FAST: &str = "<fast xmlns='urn:xmpp:fast:0' count='1'/>";
const PHONE: &str = "d4565fa7-4d72-4749-b3d3-740edbf87770";

async fn encrypted(server: &TestServer, domain: &str) -> StreamClient {
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    client.open_with(&testkit::server::STREAM_HEADER.replace("example.com", domain)).await;
    client
}

async fn authenticate(
    client: &mut StreamClient,
    mechanism: &str,
    initial: &[u8],
    device: &str,
    more: &str,
) -> testkit::server::ReceivedElement {
    let initial = sasl::encoding::encode_challenge(initial);
    client
        .send(format!(
            "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='{mechanism}'><initial-response>{initial}</initial-response>\
             <user-agent id='{device}'/>{more}</authenticate>"
        ))
        .await;
    client.element().await
}

async fn issue(server: &TestServer, mechanism: HtMechanism) -> String {
    let mut client = encrypted(server, "example.com").await;
    let request = format!("<request-token xmlns='urn:xmpp:fast:0' mechanism='{}'/>", mechanism.name());
    let success =
        authenticate(&mut client, "PLAIN", &sasl::client::plain(None, "juliet", PASSWORD), PHONE, &request)
            .await;
    let token = success.0.split(" token='").nth(1).and_then(|rest| rest.split('\'').next());
    token.unwrap_or_else(|| panic!("no token: {}", success.0)).to_owned()
}

struct TokenLogin<'a> {
    user: &'a str,
    domain: &'a str,
    device: &'a str,
    mechanism: HtMechanism,
}

async fn login(server: &TestServer, token: &str, how: &TokenLogin<'_>) -> String {
    let mut client = encrypted(server, how.domain).await;
    let data = match how.mechanism {
        HtMechanism::Exporter => client.binding("tls-exporter").to_vec(),
        HtMechanism::EndPoint => client.binding("tls-server-end-point").to_vec(),
        HtMechanism::Unbound => Vec::new(),
    };
    let proof = sasl::client::hashed_token(how.user, token, &data);
    authenticate(&mut client, how.mechanism.name(), &proof, how.device, FAST).await.name()
}

#[tokio::test]
async fn a_token_is_bound_to_user_domain_client_and_channel() {
    let server =
        TestServerConfig { domains: vec!["example.com", "other.example"], ..ClientTransport::Tcp.setup() }
            .start();
    for user in ["juliet", "mallory", "juliet@other.example"] {
        server.create_user(user).await;
    }
    let token = issue(&server, HtMechanism::Exporter).await;
    let right =
        TokenLogin { user: "juliet", domain: "example.com", device: PHONE, mechanism: HtMechanism::Exporter };
    let other = "d4565fa7-4d72-4749-b3d3-740edbf87771";
    for (what, wrong) in [
        ("another user", TokenLogin { user: "mallory", ..right }),
        ("another domain", TokenLogin { domain: "other.example", ..right }),
        ("another client", TokenLogin { device: other, ..right }),
        ("without a binding", TokenLogin { mechanism: HtMechanism::Unbound, ..right }),
        ("another binding", TokenLogin { mechanism: HtMechanism::EndPoint, ..right }),
    ] {
        assert_eq!(login(&server, &token, &wrong).await, "failure", "{what}");
    }
    // A recorded login is useless on another connection.
    let mut client = encrypted(&server, "example.com").await;
    let recorded = sasl::client::hashed_token("juliet", &token, client.binding("tls-exporter"));
    let name = HtMechanism::Exporter.name();
    assert_eq!(authenticate(&mut client, name, &recorded, PHONE, FAST).await.name(), "success");
    let mut client = encrypted(&server, "example.com").await;
    assert_eq!(authenticate(&mut client, name, &recorded, PHONE, FAST).await.name(), "failure");
    assert_eq!(login(&server, &token, &right).await, "success");
    let stored = Credentials::derive("another", 64, b"another salt 123").unwrap().encode();
    server.stores.accounts.set_credentials(server.address("juliet").as_ref(), &stored).await.unwrap();
    assert_eq!(login(&server, &token, &right).await, "failure", "after a new password");
}

#[tokio::test]
async fn tokens_of_a_disabled_account_are_refused() {
    let server = ClientTransport::Tcp.start();
    server.create_user("juliet").await;
    let token = issue(&server, HtMechanism::Exporter).await;
    server.stores.accounts.set_disabled(server.address("juliet").as_ref(), true).await.unwrap();
    let right =
        TokenLogin { user: "juliet", domain: "example.com", device: PHONE, mechanism: HtMechanism::Exporter };
    assert_eq!(login(&server, &token, &right).await, "failure");
}

/// Sends a login with a token on each node before any is answered; returns the answers.
async fn login_on_all(servers: &TestServers, token: &str, more: &[&str]) -> Vec<ReceivedElement> {
    let mut clients = Vec::new();
    for (server, more) in servers.nodes.iter().zip(more) {
        let mut client = encrypted(server, "example.com").await;
        let proof = sasl::client::hashed_token("juliet", token, client.binding("tls-exporter"));
        let initial = sasl::encoding::encode_challenge(&proof);
        client
            .send(format!(
                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='{}'><initial-response>{initial}</initial-response>\
                 <user-agent id='{PHONE}'/>{more}</authenticate>",
                HtMechanism::Exporter.name()
            ))
            .await;
        clients.push(client);
    }
    let mut answers = Vec::new();
    for client in &mut clients {
        answers.push(client.element().await);
    }
    answers
}

#[tokio::test]
async fn a_token_that_is_used_on_two_nodes_at_once_is_rotated_and_invalidated_once() {
    let servers = ClientTransport::Tcp.setup().start_cluster(2);
    let [a, b] = &servers.nodes[..] else { panic!("two nodes") };
    a.create_user("juliet").await;
    let right =
        TokenLogin { user: "juliet", domain: "example.com", device: PHONE, mechanism: HtMechanism::Exporter };
    let rotate = format!(
        "{FAST}<request-token xmlns='urn:xmpp:fast:0' mechanism='{}'/>",
        HtMechanism::Exporter.name()
    );
    let first = issue(a, HtMechanism::Exporter).await;
    let answers = login_on_all(&servers, &first, &[&rotate, &rotate]).await;
    let issued: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.0.split(" token='").nth(1)?.split('\'').next().map(str::to_owned))
        .collect();
    assert!(!issued.is_empty(), "{answers:?}");
    let mut valid = Vec::new();
    for token in &issued {
        // On the node that has not issued it, so that nothing in memory decides.
        for server in [b, a] {
            if login(server, token, &right).await == "success" {
                valid.push(token.clone());
            }
        }
    }
    valid.dedup();
    assert_eq!(valid.len(), 1, "one of {} new tokens", issued.len());
    assert_eq!(login(a, &first, &right).await, "failure", "the first use of a new token ends the former one");
    assert_eq!(login(b, &first, &right).await, "failure");
    // The owner logs out on one node while an attacker uses the token, and wants another one, on the other.
    let invalidate = "<fast xmlns='urn:xmpp:fast:0' count='1' invalidate='true'/>";
    let answers = login_on_all(&servers, &valid[0], &[invalidate, &rotate]).await;
    assert_eq!(answers[0].name(), "success");
    let stolen = answers[1].0.split(" token='").nth(1).and_then(|rest| rest.split('\'').next());
    for server in [a, b] {
        assert_eq!(login(server, &valid[0], &right).await, "failure");
        if let Some(stolen) = stolen {
            assert_eq!(login(server, stolen, &right).await, "failure", "{}", answers[1].0);
        }
    }
}
