//! Tests of Bind 2: XEP-0386 (1.1.0).

use super::*;

async fn bound(server: &TestServer, more: &str) -> (StreamClient, ReceivedElement) {
    let (mut client, _) = encrypted(server).await;
    client.send(plain("juliet", PASSWORD, more)).await;
    let (success, features) = succeeds(&mut client).await;
    assert!(!features.has("xmpp-bind"), "{}", features.0);
    (client, success)
}

fn bind(inner: &str) -> String {
    format!("<bind xmlns='urn:xmpp:bind:0'>{inner}</bind>")
}

#[tokio::test]
async fn section_4_2_success_contains_the_resource_of_the_bound_session() {
    let server = node().await;
    let (mut client, success) = bound(&server, BIND).await;
    assert!(success.has("<bound xmlns='urn:xmpp:bind:0'/>"), "{}", success.0);
    let jid = identity(&success);
    let id = jid.strip_prefix("juliet@example.com/AwesomeXMPP/").unwrap();
    assert_eq!(id.len(), 16);
    assert!(client.sync().await.is_empty());
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    assert!(account.session(&format!("AwesomeXMPP/{id}")).is_some());
    // RFC 6120, section 7.1: the stream has its resource.
    assert!(client.bind("another").await.is_err());
}

#[tokio::test]
async fn section_4_2_1_a_client_keeps_its_resource_and_ends_its_old_session() {
    let server = node().await;
    let (mut first, success) = bound(&server, &format!("{PHONE}{BIND}")).await;
    let (_second, again) = bound(&server, &format!("{PHONE}{BIND}")).await;
    assert_eq!(identity(&success), identity(&again));
    assert!(!success.has("d4565fa7"), "the id is nobody's business");
    first.expect_stream_error(StreamCondition::Conflict).await;
    // With another tag the same client has another resource.
    let (mut third, updated) = bound(&server, &format!("{PHONE}{}", bind("<tag>Awesome 2</tag>"))).await;
    let (old, new) = (identity(&again), identity(&updated));
    assert_ne!(old, new);
    assert_eq!(old.rsplit('/').next(), new.rsplit('/').next());
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    assert_eq!(account.sessions().len(), 1);
    // Another client gets another resource.
    let other = PHONE.replace("d4565fa7", "e4565fa7");
    let (_fourth, success) = bound(&server, &format!("{other}{BIND}")).await;
    assert_ne!(identity(&success), old);
    assert_eq!(account.sessions().len(), 2);
    assert!(third.sync().await.is_empty());
}

#[tokio::test]
async fn without_an_id_each_session_is_new() {
    let server = node().await;
    let (_one, a) = bound(&server, BIND).await;
    let (_two, b) = bound(&server, BIND).await;
    assert_ne!(identity(&a), identity(&b));
    assert_eq!(
        server.node.routing_table.find(server.address("juliet").as_ref()).unwrap().sessions().len(),
        2
    );
}

#[tokio::test]
async fn tags_that_are_not_valid_in_a_resource_are_omitted() {
    let server = node().await;
    let long = "x".repeat(600);
    for tag in [
        "",
        "<tag/>",
        "<tag>   </tag>",
        "<tag>\u{fffe}</tag>",
        "<tag>a&#x7f;b</tag>",
        &format!("<tag>{long}</tag>"),
    ] {
        let (mut client, _) = encrypted(&server).await;
        client.send(plain("juliet", PASSWORD, &bind(tag))).await;
        if tag.contains('\u{fffe}') {
            client.expect_stream_error(StreamCondition::NotWellFormed).await;
            continue;
        }
        let (success, _) = succeeds(&mut client).await;
        let jid = identity(&success);
        assert_eq!(jid.strip_prefix("juliet@example.com/").unwrap().len(), 16, "{tag}");
    }
    let (_client, success) = bound(&server, &bind("<tag>a/b c</tag>")).await;
    assert!(identity(&success).starts_with("juliet@example.com/a/b c/"));
}

#[tokio::test]
async fn section_4_2_inline_features_are_enabled_and_answered() {
    let server = node().await;
    let inner = "<enable xmlns='urn:xmpp:carbons:2'/><inactive xmlns='urn:xmpp:csi:0'/>\
                 <inactive xmlns='urn:xmpp:csi:0'/><enable xmlns='urn:example:unknown'/>\
                 <leave xmlns='urn:xmpp:carbons:2'/>";
    let (_client, success) = bound(&server, &bind(inner)).await;
    assert!(
        success.has("<bound xmlns='urn:xmpp:bind:0'><inactive xmlns='urn:xmpp:csi:0'/></bound>"),
        "{}",
        success.0
    );
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    assert!(account.sessions()[0].flags.has(throng_core::session::flags::INTERESTED));
    // An element that uses a prefix declared outside is not passed on.
    let (mut client, _) = encrypted(&server).await;
    let outside = "<bind xmlns='urn:xmpp:bind:0' xmlns:x='urn:xmpp:csi:0'><x:inactive/></bind>";
    client.send(plain("juliet", PASSWORD, outside)).await;
    assert!(succeeds(&mut client).await.0.has("<bound xmlns='urn:xmpp:bind:0'/>"));
}

#[tokio::test]
async fn without_room_for_another_resource_the_login_succeeds_unbound() {
    let server = juliet(|setup| setup.limits.sessions_per_account = 1).await;
    let (mut first, _) = bound(&server, BIND).await;
    let (mut second, _) = encrypted(&server).await;
    second.send(plain("juliet", PASSWORD, BIND)).await;
    let (success, features) = succeeds(&mut second).await;
    assert_eq!(identity(&success), "juliet@example.com");
    assert!(!success.has("<bound") && features.has("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"));
    assert!(second.bind("x").await.unwrap_err().has("resource-constraint"));
    assert!(first.sync().await.is_empty(), "the neighbour is undisturbed");
    // The same client may always replace its own session.
    let server = juliet(|setup| setup.limits.sessions_per_account = 1).await;
    let (_first, _) = bound(&server, &format!("{PHONE}{BIND}")).await;
    let (_second, _) = bound(&server, &format!("{PHONE}{BIND}")).await;
}

#[tokio::test]
async fn two_requests_to_bind_are_malformed() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    assert_eq!(
        fails(&mut client, &plain("juliet", PASSWORD, &format!("{BIND}{BIND}"))).await,
        "malformed-request"
    );
}
