//! Tests of registration from the first byte of a stream (XEP-0077, section 3.1.1), including stream negotiation.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::sync::Arc;

use base::Secret;
use feature_api::feature::OptionValue;
use features::registry::ALL;
use stanza::StreamCondition;
use streams::{NegotiationPolicy, TlsPolicy};
use testkit::server::{ReceivedElement, StreamClient, TestServer, TestServerConfig};
use throng_core::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use throng_core::account_provider::{AccountProvider, PasswordCheck, ProviderCapabilities};

fn server(options: &[(&'static str, OptionValue)], tls: TlsPolicy) -> TestServer {
    let default = TestServerConfig::default();
    let options = options.iter().map(|(key, value)| ("registration", *key, value.clone())).collect();
    let policy = NegotiationPolicy { tls, ..default.policy.clone() };
    TestServerConfig { features: ALL.to_vec(), options, policy, ..default }.start()
}

/// A server with open registration and a provider of accounts.
fn with_provider(capabilities: ProviderCapabilities) -> (TestServer, Arc<MemoryAccounts>) {
    let accounts = Arc::new(MemoryAccounts::new(capabilities));
    let options = ["open", "allow_without_tls"].map(|key| ("registration", key, OptionValue::Bool(true)));
    let policy = NegotiationPolicy { tls: TlsPolicy::Optional, ..TestServerConfig::default().policy };
    let config = TestServerConfig {
        features: ALL.to_vec(),
        options: options.to_vec(),
        policy,
        account_provider: Some(accounts.clone()),
        ..TestServerConfig::default()
    };
    (config.start(), accounts)
}

fn open() -> TestServer {
    server(
        &[("open", OptionValue::Bool(true)), ("allow_without_tls", OptionValue::Bool(true))],
        TlsPolicy::Optional,
    )
}
const GET: &str = "<iq type='get' id='reg1'><query xmlns='jabber:iq:register'/></iq>";

async fn set(client: &mut StreamClient, name: &str, password: &str) -> ReceivedElement {
    let fields = format!("<username>{name}</username><password>{password}</password>");
    client
        .send(format!("<iq type='set' id='reg2'><query xmlns='jabber:iq:register'>{fields}</query></iq>"))
        .await;
    client.element().await
}

#[tokio::test]
async fn an_account_is_registered_and_used_on_one_stream() {
    let server = open();
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(features.has("<register xmlns='http://jabber.org/features/iq-register'/>"), "{}", features.0);
    client.send(GET).await;
    let offer = client.element().await;
    assert_eq!(offer.attr("type").as_deref(), Some("result"));
    assert_eq!(
        (offer.attr("id").as_deref(), offer.attr("to")),
        (Some("reg1"), None),
        "an unauthenticated client has no address"
    );
    assert!(offer.has("<username/><password/>") && offer.has("<x xmlns='jabber:x:data' type='form'>"));
    assert_eq!(set(&mut client, "hamlet", "short").await.condition().as_deref(), Some("not-acceptable"));
    let done = set(&mut client, "hamlet", "C4lliope+co").await;
    assert_eq!(done.attr("type").as_deref(), Some("result"), "{}", done.0);
    let twice = set(&mut client, "hamlet", "C4lliope+co").await;
    assert_eq!(twice.condition().as_deref(), Some("conflict"));
    assert!(!twice.has("C4lliope"), "{}", twice.0);
    assert!(server.stores.accounts.exists(server.address("hamlet").as_ref()).await.unwrap());
}

#[tokio::test]
async fn an_account_is_registered_at_its_provider_and_only_where_that_can_create_it() {
    let (server, accounts) = with_provider(ALL_CAPABILITIES);
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(features.has("<register "), "{}", features.0);
    let done = set(&mut client, "hamlet", "C4lliope+co").await;
    assert_eq!(done.attr("type").as_deref(), Some("result"), "{}", done.0);
    let hamlet = server.address("hamlet");
    let checked = accounts.check_password(hamlet.as_ref(), Secret::from("C4lliope+co")).await.unwrap();
    assert!(matches!(checked, PasswordCheck::Valid(_)));
    assert!(server.stores.accounts.exists(hamlet.as_ref()).await.unwrap());

    let fixed = ProviderCapabilities { create: false, ..ALL_CAPABILITIES };
    let (server, _) = with_provider(fixed);
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("<register "), "{}", features.0);
    let refused = set(&mut client, "hamlet", "C4lliope+co").await;
    assert_eq!(refused.condition().as_deref(), Some("service-unavailable"));
    assert!(!server.stores.accounts.exists(server.address("hamlet").as_ref()).await.unwrap());
}

#[tokio::test]
async fn pipelined_requests_before_login_are_answered_in_order() {
    let server = open();
    let mut client = server.connect();
    client.open().await;
    let all: String = (0..3)
        .map(|n| {
            format!(
                "<iq type='set' id='{n}'><query xmlns='jabber:iq:register'><username>user{n}</username>\
                 <password>C4lliope+co</password></query></iq>"
            )
        })
        .collect();
    client.send(all).await;
    for n in 0..3 {
        assert_eq!(client.element().await.attr("id"), Some(n.to_string()));
    }
}

#[tokio::test]
async fn other_requests_before_login_end_the_stream() {
    let server = open();
    for stanza in [
        "<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>",
        "<iq type='get' id='1'><query xmlns='jabber:iq:registers'/></iq>",
        "<iq type='result' id='1'><query xmlns='jabber:iq:register'/></iq>",
        "<message><query xmlns='jabber:iq:register'/></message>",
        "<presence/>",
    ] {
        let mut client = server.connect();
        client.open().await;
        client.send(stanza).await;
        client.expect_stream_error(StreamCondition::NotAuthorized).await;
    }
}

#[tokio::test]
async fn malformed_requests_are_refused_and_the_stream_continues() {
    let server = open();
    let mut client = server.connect();
    client.open().await;
    for (stanza, condition) in [
        ("<iq type='get'><query xmlns='jabber:iq:register'/></iq>", "bad-request"),
        ("<iq type='get' id='1'><query xmlns='jabber:iq:register'/><x xmlns='u:v'/></iq>", "bad-request"),
        ("<iq type='get' id='1' to='example.net'><query xmlns='jabber:iq:register'/></iq>", "not-authorized"),
        (
            "<iq type='get' id='1' to='bill@example.com'><query xmlns='jabber:iq:register'/></iq>",
            "not-authorized",
        ),
        (
            "<iq type='set' id='1'><query xmlns='jabber:iq:register'><remove/></query></iq>",
            "unexpected-request",
        ),
    ] {
        client.send(stanza).await;
        assert_eq!(client.element().await.condition().as_deref(), Some(condition), "{stanza}");
    }
    client.send(GET).await;
    assert!(client.element().await.condition().is_none());
}

#[tokio::test]
async fn a_flood_before_the_login_is_rate_limited_and_times_out() {
    let server = open();
    let mut client = server.connect();
    client.open().await;
    let mut refused = 0;
    for _ in 0..60 {
        client.send(GET).await;
        refused += usize::from(client.element().await.condition().as_deref() == Some("policy-violation"));
    }
    assert_eq!(refused, 40, "20 are answered");
    let mut neighbour = server.connect();
    neighbour.open().await;
    neighbour.send(GET).await;
    assert!(neighbour.element().await.condition().is_none());
    server.advance(40).await;
    client.expect_stream_error(StreamCondition::ConnectionTimeout).await;
}

#[tokio::test]
async fn registration_is_refused_where_it_is_disabled() {
    let server = server(&[], TlsPolicy::Optional);
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("iq-register"));
    client.send(GET).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("service-unavailable"));
    let answer = set(&mut client, "hamlet", "C4lliope+co").await;
    assert_eq!(answer.condition().as_deref(), Some("service-unavailable"));
}

#[tokio::test]
async fn where_tls_is_required_registration_needs_starttls() {
    let server = server(&[("open", OptionValue::Bool(true))], TlsPolicy::Required);
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("iq-register"));
    client.send(GET).await;
    client.expect_stream_error(StreamCondition::NotAuthorized).await;
    let optional = self::server(&[("open", OptionValue::Bool(true))], TlsPolicy::Optional);
    let mut client = optional.connect();
    client.open().await;
    client.send(GET).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("not-authorized"));
}
