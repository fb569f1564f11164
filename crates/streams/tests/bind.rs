//! Tests of resource binding: RFC 6120, section 7.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use stanza::StreamCondition;
use testkit::server::{PASSWORD, TestServer, TestServerConfig};
use throng_core::NodeLimits;

async fn authenticated(server: &TestServer, user: &str) -> testkit::server::StreamClient {
    let mut client = server.connect();
    client.open().await;
    client.authenticate(sasl::Mechanism::ScramSha1, user, PASSWORD).await.unwrap();
    client.open().await;
    client
}

async fn one() -> TestServer {
    let server = TestServer::new();
    server.create_user("juliet").await;
    server
}

#[tokio::test]
async fn section_7_1_stanzas_before_a_resource_end_the_stream() {
    let server = one().await;
    for stanza in [
        "<message to='romeo@example.com'><body>x</body></message>",
        "<presence/>",
        "<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>",
        "<iq type='get' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
        "<iq type='set' id='1'><unbind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
    ] {
        let mut client = authenticated(&server, "juliet").await;
        client.send(stanza).await;
        client.expect_stream_error(StreamCondition::NotAuthorized).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-7.6.2.2
//= type=test
//# If the client is otherwise not allowed to bind a resource to the stream, the server MUST return a <not-allowed/>
//# stanza error (Section 8.3.3.10).
#[tokio::test]
async fn section_7_1_a_stream_has_one_resource() {
    let server = one().await;
    let mut client = server.login("juliet", "balcony").await;
    for to in ["", "to='example.com'"] {
        client
            .send(format!("<iq type='set' id='2' {to}><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"))
            .await;
        let answer = client.element().await;
        assert_eq!(answer.condition().as_deref(), Some("not-allowed"), "{}", answer.0);
        assert_eq!(answer.attr("id").as_deref(), Some("2"));
    }
    assert_eq!(server.node.routing_table.sessions(), 1);
}

#[tokio::test]
async fn section_7_6_1_the_server_generates_a_resource() {
    let server = one().await;
    let mut made = std::collections::HashSet::new();
    for body in [
        "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>",
        "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource/></bind>",
    ] {
        let mut client = authenticated(&server, "juliet").await;
        client.send(format!("<iq type='set' id='tn281v37'>{body}</iq>")).await;
        let answer = client.element().await;
        assert_eq!(
            (answer.attr("type").as_deref(), answer.attr("id").as_deref()),
            (Some("result"), Some("tn281v37"))
        );
        let jid = answer.all("jid").concat();
        let resource = jid.strip_prefix("juliet@example.com/").expect("a full address");
        assert!(resource.len() >= 16, "{resource} could be guessed (section 13.10.2)");
        made.insert(resource.to_owned());
    }
    assert_eq!(made.len(), 2);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.3.6
//= type=test
//# The resourcepart of the full JID (<localpart@domainpart/resourcepart>) MUST be the resource negotiated by the
//# client and server during resource binding.
//= https://www.rfc-editor.org/rfc/rfc6120#section-7.7.1
//= type=test
//# The server SHOULD accept the client-submitted resourcepart.
#[tokio::test]
async fn section_7_7_1_the_client_requests_a_resource() {
    let server = one().await;
    for (requested, bound) in
        [("balcony", "balcony"), ("a b", "a b"), ("&lt;&amp;&gt;", "<&>"), ("Ŝambro", "Ŝambro")]
    {
        let mut client = authenticated(&server, "juliet").await;
        assert_eq!(client.bind(requested).await.unwrap(), format!("juliet@example.com/{bound}"));
        client.sync().await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-7.7.2.1
//= type=test
//# the server can return a <bad-request/> stanza error (Section 8.3.3.1) but SHOULD instead process the
//# resourcepart so that it is in conformance.
#[tokio::test]
async fn section_7_7_2_1_a_bad_resource_may_be_followed_by_a_good_one() {
    let server = one().await;
    let mut client = authenticated(&server, "juliet").await;
    for bad in ["\u{200E}\u{E000}", &"x".repeat(usize::from(server.node.limits().resourcepart_bytes) + 1)] {
        let error = client.bind(bad).await.unwrap_err();
        assert_eq!(
            (error.condition().as_deref(), error.error_type().as_deref()),
            (Some("bad-request"), Some("modify"))
        );
    }
    assert_eq!(client.bind("balcony").await.unwrap(), "juliet@example.com/balcony");
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-7.7.3
//= type=test
//# If an error occurs when a client submits a resourcepart, the server SHOULD allow a configurable but reasonable
//# number of retries
//= https://www.rfc-editor.org/rfc/rfc6120#section-7.7.3
//= type=test
//# After the client has reached the retry limit, the server MUST close the stream with a <policy-violation/> stream
//# error (Section 4.9.3.14).
#[tokio::test]
async fn section_7_7_3_retries_are_limited() {
    let default = NodeLimits::default().bind_attempts;
    assert!((5..=10).contains(&default));
    for attempts in [1, 6, default] {
        let limits = NodeLimits { bind_attempts: attempts, ..NodeLimits::default() };
        let server = TestServerConfig { limits, ..TestServerConfig::default() }.start();
        server.create_user("juliet").await;
        let mut client = authenticated(&server, "juliet").await;
        for _ in 0..attempts {
            assert_eq!(
                client.bind("\u{E000}").await.unwrap_err().condition().as_deref(),
                Some("bad-request")
            );
        }
        assert_eq!(client.bind("balcony").await.unwrap(), "juliet@example.com/balcony", "{attempts}");
        let mut client = authenticated(&server, "juliet").await;
        for _ in 0..=attempts {
            assert_eq!(
                client.bind("\u{E000}").await.unwrap_err().condition().as_deref(),
                Some("bad-request")
            );
        }
        client.expect_stream_error(StreamCondition::PolicyViolation).await;
    }
}

#[tokio::test]
async fn failed_resumptions_and_refused_binds_count_together() {
    let limits = NodeLimits { bind_attempts: 5, ..NodeLimits::default() };
    let server = TestServerConfig { limits, ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    let sm = "xmlns='urn:xmpp:sm:3'";
    let resume = format!("<resume {sm} previd='00112233445566778899aabbccddeeff:balcony' h='0'/>");
    for refused in [&resume, &format!("<enable {sm}/>"), &format!("<r {sm}/>")] {
        let mut client = authenticated(&server, "juliet").await;
        client.bind("\u{E000}").await.unwrap_err();
        for _ in 0..4 {
            client.send(refused).await;
            assert_eq!(client.element().await.name(), "failed", "{refused}");
        }
        client.send(refused).await;
        assert_eq!(client.element().await.name(), "failed", "{refused}");
        client.expect_stream_error(StreamCondition::PolicyViolation).await;
    }
    // A client that resumes in vain still has its retries.
    let mut client = authenticated(&server, "juliet").await;
    for _ in 0..5 {
        client.send(&resume).await;
        assert_eq!(client.element().await.name(), "failed");
    }
    client.bind("balcony").await.unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.3.6
//= type=test
//# The server has experienced a misconfiguration or other internal error that prevents it from processing the
//# stanza; the associated error type SHOULD be "cancel".
#[tokio::test]
async fn section_8_3_3_6_after_a_store_failure_the_client_can_bind_again() {
    let server = one().await;
    let mut client = authenticated(&server, "juliet").await;
    server.set_store_failing(true);
    let error = client.bind("balcony").await.unwrap_err();
    assert_eq!(
        (error.condition().as_deref(), error.error_type().as_deref()),
        (Some("internal-server-error"), Some("wait"))
    );
    assert!(error.has("the account is temporarily unavailable; try again later"));
    server.set_store_failing(false);
    client.bind("balcony").await.unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-7.1
//= type=test
//# Security Warning: A server SHOULD enable the administrator of an XMPP service to limit the number of connected
//# resources in order to prevent certain denial-of-service attacks as described under Section 13.12.
//= https://www.rfc-editor.org/rfc/rfc6120#section-7.6.2.1
//= type=test
//# If the account has reached a limit on the number of simultaneous connected resources allowed, the server MUST
//# return a <resource-constraint/> stanza error (Section 8.3.3.18).
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# A server implementation SHOULD enable a server administrator to limit the number of connected resources it will
//# allow an account to bind at any one time.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.12
//= type=test
//# the receiving server MUST return a <resource-constraint/> stanza error (Section 8.3.3.18).
#[tokio::test]
async fn section_7_6_2_1_too_many_resources_fail_with_resource_constraint() {
    let limits = NodeLimits { sessions_per_account: 2, ..NodeLimits::default() };
    let server = TestServerConfig { limits, ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    let mut first = server.login("juliet", "a").await;
    let mut second = server.login("juliet", "b").await;
    let mut third = authenticated(&server, "juliet").await;
    let error = third.bind("c").await.unwrap_err();
    assert_eq!(
        (error.condition().as_deref(), error.error_type().as_deref()),
        (Some("resource-constraint"), Some("wait"))
    );
    // The other sessions are undisturbed, and the same stream can bind once a resource is free.
    second.sync().await;
    first.send("</stream:stream>").await;
    first.expect_end().await;
    third.bind("c").await.unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-7.5
//= type=test
//# A resourcepart MUST at a minimum be unique among the connected resources for that <localpart@domainpart>.
//= https://www.rfc-editor.org/rfc/rfc6120#section-7.7.2.2
//= type=test
//# the server MUST do one of the following (which of these the server does is a matter for implementation or local
//# service policy
#[tokio::test]
async fn section_7_7_2_2_the_older_stream_of_a_resource_ends_with_conflict() {
    let server = one().await;
    let mut old = server.login("juliet", "balcony").await;
    let mut new = server.login("juliet", "balcony").await;
    old.expect_stream_error(StreamCondition::Conflict).await;
    new.sync().await;
    assert_eq!(server.node.routing_table.sessions(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.3.6
//= type=test
//# The server MUST ensure that the resulting JID (including localpart
#[tokio::test]
async fn section_7_7_2_2_resources_are_compared_after_preparation() {
    let server = one().await;
    // U+00A0 is a space in the profile of resources (RFC 8265, section 4.2.1).
    let mut old = server.login("juliet", "a b").await;
    let new = server.login("juliet", "a\u{A0}b").await;
    assert_eq!(new.jid, "juliet@example.com/a b");
    old.expect_stream_error(StreamCondition::Conflict).await;
}

#[tokio::test]
async fn a_bind_request_without_an_id_is_refused() {
    let server = one().await;
    let mut client = authenticated(&server, "juliet").await;
    client.send("<iq type='set'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>").await;
    assert_eq!(client.element().await.condition().as_deref(), Some("bad-request"));
    client.bind("balcony").await.unwrap();
}

#[tokio::test]
async fn bind_with_a_prefix_of_the_stream_header() {
    let server = one().await;
    let mut client = server.connect();
    client.open().await;
    client.authenticate(sasl::Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client
        .open_with(
            "<stream:stream to='example.com' version='1.0' xmlns='jabber:client' xmlns:b='urn:ietf:params:xml:ns:xmpp-bind' \
             xmlns:stream='http://etherx.jabber.org/streams'>",
        )
        .await;
    client.send("<iq type='set' id='1'><b:bind><b:resource>balcony</b:resource></b:bind></iq>").await;
    assert_eq!(client.element().await.all("jid"), ["juliet@example.com/balcony"]);
}

#[tokio::test]
async fn sasl_after_success_and_another_domain_after_success() {
    let server =
        TestServerConfig { domains: vec!["example.com", "example.net"], ..TestServerConfig::default() }
            .start();
    server.create_user("juliet").await;
    let mut client = authenticated(&server, "juliet").await;
    client.auth(sasl::Mechanism::ScramSha1, b"n,,n=juliet,r=abcdefghijklmnop").await;
    client.expect_stream_error(StreamCondition::PolicyViolation).await;
    let mut client = server.connect();
    client.open().await;
    client.authenticate(sasl::Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.restart();
    client.send(testkit::server::STREAM_HEADER.replace("example.com", "example.net")).await;
    client.expect_stream_error(StreamCondition::NotAuthorized).await;
}

#[tokio::test]
async fn a_login_and_a_bind_query_the_store_once_each() {
    let server = one().await;
    server.store_calls();
    let mut client = server.login("juliet", "balcony").await;
    client.sync().await;
    assert_eq!(server.store_calls(), ["logins.secrets", "logins.login"]);
}

#[tokio::test]
async fn section_7_1_a_request_that_must_be_refused_reads_no_roster() {
    // An authenticated client that never binds would hold the roster until the negotiation deadline.
    let limits = NodeLimits { sessions_per_account: 1, ..NodeLimits::default() };
    let server = TestServerConfig { limits, ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    let mut client = authenticated(&server, "juliet").await;
    server.store_calls();
    for bad in ["\u{200E}\u{E000}", &"x".repeat(usize::from(server.node.limits().resourcepart_bytes) + 1)] {
        let error = client.bind(bad).await.unwrap_err();
        assert_eq!(error.condition().as_deref(), Some("bad-request"));
    }
    assert_eq!(server.store_calls(), Vec::<&str>::new());
    let mut other = server.login("juliet", "orchard").await;
    server.store_calls();
    assert_eq!(client.bind("balcony").await.unwrap_err().condition().as_deref(), Some("resource-constraint"));
    assert_eq!(server.store_calls(), Vec::<&str>::new());
    // The connected resource may be replaced.
    client.bind("orchard").await.unwrap();
    assert_eq!(server.store_calls(), ["logins.login"]);
    other.expect_stream_error(StreamCondition::Conflict).await;
}

#[tokio::test]
async fn bound_streams_no_longer_count_as_unauthenticated() {
    let server = one().await;
    let _early = server.connect();
    let mut client = authenticated(&server, "juliet").await;
    assert_eq!(server.connection_limiter.counts().unauthenticated, 2);
    client.bind("balcony").await.unwrap();
    assert_eq!(
        (server.connection_limiter.counts().unauthenticated, server.connection_limiter.counts().connections),
        (1, 2)
    );
}
