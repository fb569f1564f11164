//! Tests of accounts that change between the proof and the session: XEP-0388, section 3.6.2; XEP-0484, section 4.2;
//! RFC 6120, section 6.5.

use std::task::{Context, Poll, Waker};

use sasl::HtMechanism;
use store::{StoreError, StoreFuture, Stores};

use super::fast::{issue, login, token, use_token, want};
use super::*;

/// Result of a call to the memory store, which never waits.
pub(super) fn now<T>(mut call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the memory store waits"),
    }
}

type Act = fn(&Stores, &jid::Jid);

/// Changes to juliet's account, and the conditions sent if they happen before success: to a client that proved the
/// password, and to one that proved a token.
const CHANGES: [(&str, Act, [&str; 2]); 4] = [
    ("removed", |stores, juliet| drop(now(stores.accounts.remove(juliet.as_ref()))), REVOKED),
    (
        "removed and made anew",
        |stores, juliet| {
            let secrets = now(stores.logins.secrets(juliet.as_ref())).unwrap().unwrap();
            now(stores.accounts.remove(juliet.as_ref())).unwrap();
            now(stores.accounts.create(juliet, &secrets.credentials)).unwrap();
        },
        REVOKED,
    ),
    (
        "disabled",
        |stores, juliet| drop(now(stores.accounts.set_disabled(juliet.as_ref(), true))),
        ["account-disabled"; 2],
    ),
    (
        "with another password",
        |stores, juliet| drop(now(stores.accounts.set_credentials(juliet.as_ref(), b"other"))),
        REVOKED,
    ),
];

const REVOKED: [&str; 2] = ["not-authorized", "credentials-expired"];

/// A node on which one wrong secret is one too many.
async fn node_without_guesses() -> TestServer {
    juliet(|setup| setup.limits.login_failures_per_address_and_account = 1).await
}

/// Asserts that no failure was counted: this wrong secret is answered as one.
async fn assert_no_guess_counted(server: &TestServer, with_token: bool, what: &str) {
    let (mut client, _) = encrypted(server).await;
    if with_token {
        use_token(&mut client, HtMechanism::Unbound, "guess", "").await;
    } else {
        client.send(plain("juliet", "guess", "")).await;
    }
    assert_eq!(failure(&mut client).await, "not-authorized", "{what}, token: {with_token}");
}

pub(super) fn tokens(stores: &Stores, juliet: &jid::Jid) -> Vec<u8> {
    now(stores.logins.secrets(juliet.as_ref())).unwrap().map_or(Vec::new(), |secrets| secrets.tokens)
}

#[tokio::test]
async fn inline_binding_fails_where_the_account_changed_since_the_proof() {
    for (what, change, conditions) in CHANGES {
        for token in [false, true] {
            let server = node_without_guesses().await;
            let juliet = server.address("juliet");
            let text = issue(&server, HtMechanism::Unbound).await;
            // The first use of a token is a write, which would detect the change.
            let (mut client, _) = encrypted(&server).await;
            use_token(&mut client, HtMechanism::Unbound, &text, "").await;
            succeeds(&mut client).await;
            let (mut client, _) = encrypted(&server).await;
            let owner = juliet.clone();
            server.after_proof(move |stores| change(stores, &owner));
            server.store_calls();
            if token {
                use_token(&mut client, HtMechanism::Unbound, &text, BIND).await;
            } else {
                client.send(plain("juliet", PASSWORD, &format!("{PHONE}{BIND}"))).await;
            }
            let condition = conditions[usize::from(token)];
            assert_eq!(failure(&mut client).await, condition, "{what}, token: {token}");
            assert_eq!(server.store_calls(), ["logins.secrets", "logins.login"], "{what}, token: {token}");
            assert!(server.node.routing_table.find(juliet.as_ref()).is_none(), "{what}: no session");
            // The stream continues unauthenticated.
            ends(&mut client, "<message to='juliet@example.com'/>", StreamCondition::NotAuthorized).await;
            assert_no_guess_counted(&server, token, what).await;
        }
    }
}

#[tokio::test]
async fn no_token_is_issued_where_the_account_changed_since_the_proof() {
    for (what, change, [condition, _]) in CHANGES {
        let server = node_without_guesses().await;
        let juliet = server.address("juliet");
        let (mut client, _) = encrypted(&server).await;
        let request = "<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
        let mut scram = ScramClient::new(ScramHash::Sha256, Gs2::None, "juliet", PASSWORD);
        let first = authenticate("SCRAM-SHA-256", &scram.client_first(), &format!("{PHONE}{request}"));
        client.send(first).await;
        let challenge = encoding::decode_response(&client.element().await.text()).unwrap();
        change(&server.stores, &juliet);
        let proof = encoding::encode_challenge(&scram.client_final(&challenge, None).unwrap());
        client.send(format!("<response {SASL2}>{proof}</response>")).await;
        assert_eq!(failure(&mut client).await, condition, "{what}");
        assert!(tokens(&server.stores, &juliet).is_empty(), "{what}: no token");
        assert_no_guess_counted(&server, false, what).await;
    }
}

#[tokio::test]
async fn xep_0484_section_4_2_a_revoked_token_is_credentials_expired_at_its_first_use() {
    for (what, change, [_, condition]) in CHANGES {
        let server = node_without_guesses().await;
        let juliet = server.address("juliet");
        let text = issue(&server, HtMechanism::Unbound).await;
        let (mut client, _) = encrypted(&server).await;
        // Without binding, the first use is the only access to the store after the proof.
        server.before_tokens(move |stores| change(stores, &juliet));
        use_token(&mut client, HtMechanism::Unbound, &text, "").await;
        assert_eq!(failure(&mut client).await, condition, "{what}");
        assert_no_guess_counted(&server, true, what).await;
    }
}

#[tokio::test]
async fn a_token_removed_by_another_login_is_not_counted_as_a_guess() {
    let server = node_without_guesses().await;
    let juliet = server.address("juliet");
    let text = issue(&server, HtMechanism::Unbound).await;
    let (mut client, _) = encrypted(&server).await;
    server.before_tokens(move |stores| {
        now(stores.tokens.update_tokens(juliet.as_ref(), None, Box::new(|_| Some(Vec::new())))).unwrap();
    });
    use_token(&mut client, HtMechanism::Unbound, &text, "").await;
    assert_eq!(failure(&mut client).await, "credentials-expired");
    assert_no_guess_counted(&server, true, "removed").await;
}

/// XEP-0388, section 3.6.2: a server must not process the inline features of a failed authentication request.
#[tokio::test]
async fn section_3_6_2_no_inline_request_takes_effect_in_a_login_that_fails() {
    let stale = "<resume xmlns='urn:xmpp:sm:3' previd='00112233445566778899aabbccddeeff:orchard' h='0'/>";
    for resume in ["", stale] {
        let server = node().await;
        let juliet = server.address("juliet");
        let disable = |server: &TestServer| {
            let owner = juliet.clone();
            server.after_proof(move |stores| {
                now(stores.accounts.set_disabled(owner.as_ref(), true)).unwrap();
            });
        };
        let enable = || now(server.stores.accounts.set_disabled(juliet.as_ref(), false)).unwrap();

        // A token request.
        let (mut client, _) = encrypted(&server).await;
        disable(&server);
        let request = format!("{}{BIND}{resume}", want(HtMechanism::Unbound));
        client.send(plain("juliet", PASSWORD, &request)).await;
        assert_eq!(failure(&mut client).await, "account-disabled", "{resume}");
        assert!(tokens(&server.stores, &juliet).is_empty(), "{resume}");
        assert!(server.node.routing_table.find(juliet.as_ref()).is_none(), "{resume}");
        enable();

        // The invalidation of a token, the request for another one, and the rotation of a token that is due.
        let text = issue(&server, HtMechanism::Unbound).await;
        let before = tokens(&server.stores, &juliet);
        server.clock.advance(2 * 86_400_000);
        let invalidate = "<fast xmlns='urn:xmpp:fast:0' invalidate='true'/>";
        for more in [String::new(), invalidate.to_owned(), want(HtMechanism::Exporter)] {
            let (mut client, _) = encrypted(&server).await;
            disable(&server);
            use_token(&mut client, HtMechanism::Unbound, &text, &format!("{more}{BIND}{resume}")).await;
            assert_eq!(failure(&mut client).await, "account-disabled", "{more}{resume}");
            assert_eq!(tokens(&server.stores, &juliet), before, "{more}{resume}");
            enable();
        }
        let rotated = login(&server, HtMechanism::Unbound, &text, &format!("{BIND}{resume}")).await.unwrap();
        assert!(token(&rotated).is_some(), "{resume}: the token is still valid and due");
    }
}

#[tokio::test]
async fn binding_after_success_ends_the_stream_where_the_account_changed() {
    for (_, change, _) in CHANGES {
        let server = node().await;
        let (mut client, _) = encrypted(&server).await;
        client.auth(Mechanism::Plain, &sasl::client::plain(None, "juliet", PASSWORD)).await;
        assert_eq!(client.element().await.name(), "success");
        client.restart();
        client.open().await;
        change(&server.stores, &server.address("juliet"));
        let bind = "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>";
        ends(&mut client, bind, StreamCondition::NotAuthorized).await;
    }
}
