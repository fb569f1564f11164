//! Tests of XEP-0198 (1.6.3), section 9: enabling within Bind 2, resuming within SASL2.

use sasl::HtMechanism;
use throng_core::session::StreamManagementConfig;

use super::fast::{issue, use_token, want};
use super::revoked::{now, tokens};
use super::*;

static MANAGEMENT: Feature = Feature {
    name: "management",
    build: |builder| {
        let management =
            StreamManagementConfig { resume_seconds: 300, unacked_bytes: 65_536, location: String::new() };
        builder.provide(management);
    },
    ..Feature::EMPTY
};

async fn managed() -> TestServer {
    juliet(|setup| setup.features.push(&MANAGEMENT)).await
}

const ENABLE: &str =
    "<bind xmlns='urn:xmpp:bind:0'><tag>Awesome</tag><enable xmlns='urn:xmpp:sm:3' resume='true'/></bind>";

/// Logs in with stream management; returns the client, its address and the resumption id.
async fn enabled(server: &TestServer) -> (StreamClient, String, String) {
    let (mut client, _) = encrypted(server).await;
    client.send(plain("juliet", PASSWORD, ENABLE)).await;
    let (success, _) = succeeds(&mut client).await;
    let (_, enabled) =
        success.0.split_once("<bound xmlns='urn:xmpp:bind:0'><enabled xmlns='urn:xmpp:sm:3'").unwrap();
    let (_, id) = enabled.split_once(" id='").unwrap();
    (client, identity(&success), id.split('\'').next().unwrap().to_owned())
}

fn resume(id: &str, h: u32) -> String {
    format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='{h}'/>{ENABLE}")
}

#[tokio::test]
async fn section_9_inline_resume_and_enable_are_offered() {
    let server = managed().await;
    let (_, features) = encrypted(&server).await;
    assert!(
        features.has("<inline><sm xmlns='urn:xmpp:sm:3'/><bind xmlns='urn:xmpp:bind:0'>"),
        "{}",
        features.0
    );
    assert!(features.has("<feature var='urn:xmpp:sm:3'/></inline></bind>"));
}

//= https://xmpp.org/extensions/xep-0198.html#inline-resume
//= type=test
//# Note: If the client included a <resume/> element in its SASL2 <authenticate/> element, that MUST be processed
//# first by the server.
//= https://xmpp.org/extensions/xep-0198.html#inline-resume
//= type=test
//# If that resumption is successful, the server MUST skip resource binding (a resumed session already has a
//# resource bound) and MUST entirely ignore the <bind/> request that might also be inlined in the <authenticate/>
//# element.
//= https://xmpp.org/extensions/xep-0198.html#inline-resume
//= type=test
//# the stream is considered re-established immediately after the <success/> element instead and stream features
//# MUST NOT be sent in this case.
#[tokio::test]
async fn section_9_2_a_lost_stream_is_resumed_with_one_request() {
    let server = managed().await;
    server.create_user("romeo").await;
    let (mut client, jid, id) = enabled(&server).await;
    assert!(client.sync().await.iter().all(|seen| seen.name() == "r"));
    drop(client);
    testkit::server::run_until_idle().await;
    let mut romeo = server.login("romeo", "orchard").await;
    romeo
        .send(format!("<message to='{jid}' type='chat' id='m1'><body>Art thou there?</body></message>"))
        .await;
    romeo.sync().await;
    let (mut client, _) = encrypted(&server).await;
    // The answer of `sync` was received: one stanza.
    client.send(plain("juliet", PASSWORD, &resume(&id, 1))).await;
    let success = client.element().await;
    assert_eq!(success.name(), "success", "{}", success.0);
    assert_eq!(identity(&success), jid);
    assert!(success.has("<resumed xmlns='urn:xmpp:sm:3'") && !success.has("<bound"), "{}", success.0);
    // No features: the resumed stream continues immediately.
    let mut received = client.element().await;
    while received.name() == "r" {
        received = client.element().await;
    }
    assert!(received.name() == "message" && received.attr("id").as_deref() == Some("m1"), "{}", received.0);
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    assert_eq!(account.sessions().len(), 1);
}

//= https://xmpp.org/extensions/xep-0198.html#inline-resume
//= type=test
//# In this case, the server MUST include the <failed/> element defined by this specification in its SASL2
//# <success/> response
#[tokio::test]
async fn section_9_2_a_failed_resume_falls_back_to_bind() {
    let server = managed().await;
    server.create_user("romeo").await;
    let (mut old, _, id) = enabled(&server).await;
    // Romeo has obtained juliet's id; it is useless to him.
    for (user, id) in [("romeo", id.as_str()), ("juliet", "0123"), ("juliet", "")] {
        let (mut client, _) = encrypted(&server).await;
        client.send(plain(user, PASSWORD, &resume(id, 0))).await;
        let (success, _) = succeeds(&mut client).await;
        let failed = success.0.find("<failed xmlns='urn:xmpp:sm:3'").expect("an answer to resume");
        assert!(success.0[failed..].contains("item-not-found"), "{}", success.0);
        let bound =
            success.0.find("<bound xmlns='urn:xmpp:bind:0'><enabled ").expect("a resource all the same");
        assert!(failed < bound && identity(&success).contains("/Awesome/"));
    }
    old.send("<r xmlns='urn:xmpp:sm:3'/>").await;
    let mut received = old.element().await;
    while received.name() == "r" {
        received = old.element().await;
    }
    assert_eq!(received.name(), "a", "juliet's stream is undisturbed");
}

#[tokio::test]
async fn a_token_login_resumes_a_stream() {
    let server = managed().await;
    let (mut client, _) = encrypted(&server).await;
    let token = "<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
    client.send(plain("juliet", PASSWORD, &format!("{PHONE}{ENABLE}{token}"))).await;
    let (success, _) = succeeds(&mut client).await;
    let find = |name: &str| {
        let (_, rest) = success.0.split_once(&format!(" {name}='")).unwrap();
        rest.split('\'').next().unwrap().to_owned()
    };
    let (id, token) = (find("id"), find("token"));
    drop(client);
    testkit::server::run_until_idle().await;
    let (mut client, _) = encrypted(&server).await;
    let proof = sasl::client::hashed_token("juliet", &token, &[]);
    let more = format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>{}", resume(&id, 0));
    server.store_calls();
    client.send(authenticate("HT-SHA-256-NONE", &proof, &more)).await;
    let answer = client.element().await;
    assert!(answer.has("<resumed xmlns='urn:xmpp:sm:3'"), "{}", answer.0);
    let calls = server.store_calls();
    assert!(!calls.contains(&"logins.login"), "the session has its roster: {calls:?}");
    assert_eq!(identity(&answer), identity(&success));
}

/// XEP-0388, section 3.6.2: a server must not process the inline features of a failed authentication request.
#[tokio::test]
async fn no_token_is_issued_where_resumption_and_then_the_login_fail() {
    let server = managed().await;
    let juliet = server.address("juliet");
    let (_live, _, id) = enabled(&server).await;
    let (_, resource) = id.split_once(':').unwrap();
    let wrong = format!("00112233445566778899aabbccddeeff:{resource}");
    let owner = juliet.clone();
    server.after_proof(move |stores| {
        now(stores.accounts.set_disabled(owner.as_ref(), true)).unwrap();
    });
    let (mut client, _) = encrypted(&server).await;
    let request = format!("{}{}", want(HtMechanism::Unbound), resume(&wrong, 0));
    client.send(plain("juliet", PASSWORD, &request)).await;
    assert_eq!(failure(&mut client).await, "account-disabled");
    assert!(tokens(&server.stores, &juliet).is_empty(), "the resource exists, but the token is wrong");
}

/// As above: the stream error takes the place of success.
#[tokio::test]
async fn a_resumption_with_a_count_too_high_leaves_the_tokens_unchanged() {
    let server = managed().await;
    let juliet = server.address("juliet");
    let (mut live, _, id) = enabled(&server).await;
    let text = issue(&server, HtMechanism::Unbound).await;
    let before = tokens(&server.stores, &juliet);
    let resume = format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='1000'/>");
    let invalidate = "<fast xmlns='urn:xmpp:fast:0' invalidate='true'/>";
    for more in [String::new(), ENABLE.to_owned(), invalidate.to_owned(), want(HtMechanism::Exporter)] {
        let (mut client, _) = encrypted(&server).await;
        use_token(&mut client, HtMechanism::Unbound, &text, &format!("{more}{resume}")).await;
        client.expect_stream_error(StreamCondition::UndefinedCondition).await;
        assert_eq!(tokens(&server.stores, &juliet), before, "{more}");
    }
    live.sync().await;
}
