//! Tests of XEP-0509 (0.2.0) and of requests sent before the features, in fragments of every size.

use sasl::HtMechanism;

use super::*;

fn version(features: &ReceivedElement) -> String {
    let (_, rest) =
        features.0.split_once("<config-version xmlns='urn:xmpp:iap:0' scheme='opaque' value='").unwrap();
    rest.split('\'').next().unwrap().to_owned()
}

fn believed(value: &str) -> String {
    format!("<config-version xmlns='urn:xmpp:iap:0' scheme='opaque' value='{value}'/>")
}

#[tokio::test]
async fn section_2_1_the_same_features_have_the_same_name() {
    let server = node().await;
    let (_, one) = encrypted(&server).await;
    let (_, two) = encrypted(&server).await;
    assert_eq!(version(&one), version(&two));
    let other = juliet(|setup| setup.policy.allow_anonymous = true).await;
    assert_ne!(version(&encrypted(&other).await.1), version(&one));
}

#[tokio::test]
async fn section_2_2_an_outdated_name_is_refused_without_prejudice() {
    let server = juliet(|setup| setup.limits.auth_attempts = 2).await;
    let (mut client, features) = encrypted(&server).await;
    for _ in 0..5 {
        client.send(plain("juliet", PASSWORD, &believed("b3V0ZGF0ZWQ="))).await;
        client
            .expect(
                "<failure xmlns='urn:xmpp:sasl:2'><aborted xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>\
                 <config-version-mismatch xmlns='urn:xmpp:iap:0'/></failure>",
            )
            .await;
    }
    client.send(plain("juliet", PASSWORD, &believed(&version(&features)))).await;
    succeeds(&mut client).await;
}

/// Header, request, and the first stanzas, in one write and split at every position.
#[tokio::test]
async fn a_pipelined_login_in_fragments_of_every_size() {
    let server = juliet(|setup| setup.policy.allow_plain_without_tls = true).await;
    let mut client = server.connect();
    client.open().await;
    let request = format!("{PHONE}<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>");
    client.send(plain("juliet", PASSWORD, &request)).await;
    let (success, _) = succeeds(&mut client).await;
    let (_, token) = success.0.split_once(" token='").unwrap();
    let token = token.split('\'').next().unwrap();
    let proof = sasl::client::hashed_token("juliet", token, &[]);
    let login = authenticate(
        HtMechanism::Unbound.name(),
        &proof,
        &format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>{BIND}"),
    );
    let last = "<iq type='get' id='1'><nothing xmlns='urn:example:nothing'/></iq>";
    let flight = format!("{}{login}{last}", testkit::server::STREAM_HEADER);
    let sizes = (1..40).chain([100, 500, flight.len()]);
    for size in sizes {
        let mut client = server.connect();
        for piece in flight.as_bytes().chunks(size) {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        client.header().await;
        assert_eq!(client.element().await.name(), "features");
        let (success, _) = succeeds(&mut client).await;
        assert!(identity(&success).contains("/AwesomeXMPP/"), "pieces of {size}");
        let answer = client.element().await;
        assert!(answer.name() == "iq" && answer.attr("id").as_deref() == Some("1"), "{}", answer.0);
    }
}

#[tokio::test]
async fn a_pipelined_login_with_a_wrong_password_is_answered_in_order() {
    let server = juliet(|setup| setup.policy.allow_plain_without_tls = true).await;
    let mut client = server.connect();
    client
        .send(format!(
            "{}{}{}",
            testkit::server::STREAM_HEADER,
            plain("juliet", "wrong", BIND),
            plain("juliet", PASSWORD, BIND)
        ))
        .await;
    client.header().await;
    assert_eq!(client.element().await.name(), "features");
    assert_eq!(failure(&mut client).await, "not-authorized");
    succeeds(&mut client).await;
}

/// XEP-0368: with TLS from the first byte, header and request follow directly after the handshake.
#[tokio::test]
async fn a_reconnect_over_direct_tls_is_one_round_trip_after_the_handshake() {
    let server = node().await;
    let mut client = server.connect_direct().await;
    client.handshake(&TlsClientSettings::default()).await.unwrap();
    let request = format!("{PHONE}<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-EXPR'/>");
    client.send(format!("{}{}", testkit::server::STREAM_HEADER, plain("juliet", PASSWORD, &request))).await;
    client.header().await;
    client.element().await;
    let (success, _) = succeeds(&mut client).await;
    let (_, token) = success.0.split_once(" token='").unwrap();
    let token = token.split('\'').next().unwrap();
    let mut client = server.connect_direct().await;
    client.handshake(&TlsClientSettings::default()).await.unwrap();
    let proof = sasl::client::hashed_token("juliet", token, client.binding("tls-exporter"));
    let login =
        authenticate("HT-SHA-256-EXPR", &proof, &format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>{BIND}"));
    client.send(format!("{}{login}", testkit::server::STREAM_HEADER)).await;
    client.header().await;
    assert_eq!(client.element().await.name(), "features");
    assert!(identity(&succeeds(&mut client).await.0).contains("/AwesomeXMPP/"));
}
