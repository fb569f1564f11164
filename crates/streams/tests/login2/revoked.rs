//! Tests of accounts that change between the proof and the session: XEP-0388, section 3.6.2; RFC 6120, section 6.5.

use std::task::{Context, Poll, Waker};

use sasl::HtMechanism;
use store::{StoreError, StoreFuture, Stores};

use super::fast::{issue, use_token};
use super::*;

/// Result of a call to the memory store, which never waits.
fn now<T>(mut call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the memory store waits"),
    }
}

type Act = fn(&Stores, &jid::Jid);

/// Changes to juliet's account, and the condition sent if they happen before success.
const CHANGES: [(&str, Act, &str); 4] = [
    ("removed", |stores, juliet| drop(now(stores.accounts.remove(juliet.as_ref()))), "not-authorized"),
    (
        "removed and made anew",
        |stores, juliet| {
            let secrets = now(stores.logins.secrets(juliet.as_ref())).unwrap().unwrap();
            now(stores.accounts.remove(juliet.as_ref())).unwrap();
            now(stores.accounts.create(juliet, &secrets.credentials)).unwrap();
        },
        "not-authorized",
    ),
    (
        "disabled",
        |stores, juliet| drop(now(stores.accounts.set_disabled(juliet.as_ref(), true))),
        "account-disabled",
    ),
    (
        "with another password",
        |stores, juliet| drop(now(stores.accounts.set_credentials(juliet.as_ref(), b"other"))),
        "not-authorized",
    ),
];

#[tokio::test]
async fn inline_binding_fails_where_the_account_changed_since_the_proof() {
    for (what, change, condition) in CHANGES {
        for token in [false, true] {
            let wire = node().await;
            let juliet = wire.address("juliet");
            let text = issue(&wire, HtMechanism::Unbound).await;
            // The first use of a token is a write, which would detect the change.
            let (mut client, _) = encrypted(&wire).await;
            use_token(&mut client, HtMechanism::Unbound, &text, "").await;
            succeeds(&mut client).await;
            let (mut client, _) = encrypted(&wire).await;
            let owner = juliet.clone();
            wire.after_proof(move |stores| change(stores, &owner));
            wire.store_calls();
            if token {
                use_token(&mut client, HtMechanism::Unbound, &text, BIND).await;
            } else {
                client.send(plain("juliet", PASSWORD, &format!("{PHONE}{BIND}"))).await;
            }
            assert_eq!(failure(&mut client).await, condition, "{what}, token: {token}");
            assert_eq!(wire.store_calls(), ["logins.secrets", "logins.login"], "{what}, token: {token}");
            assert!(wire.node.routing_table.find(juliet.as_ref()).is_none(), "{what}: no session");
            // The stream continues unauthenticated.
            ends(&mut client, "<message to='juliet@example.com'/>", StreamCondition::NotAuthorized).await;
        }
    }
}

#[tokio::test]
async fn no_token_is_issued_where_the_account_changed_since_the_proof() {
    for (what, change, _) in CHANGES {
        let wire = node().await;
        let juliet = wire.address("juliet");
        let (mut client, _) = encrypted(&wire).await;
        let request = "<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
        let mut scram = ScramClient::new(ScramHash::Sha256, Gs2::None, "juliet", PASSWORD);
        let first = authenticate("SCRAM-SHA-256", &scram.client_first(), &format!("{PHONE}{request}"));
        client.send(first).await;
        let challenge = encoding::decode_response(&client.element().await.text()).unwrap();
        change(&wire.stores, &juliet);
        let proof = encoding::encode_challenge(&scram.client_final(&challenge, None).unwrap());
        client.send(format!("<response {SASL2}>{proof}</response>")).await;
        assert_eq!(failure(&mut client).await, "not-authorized", "{what}");
        let left = now(wire.stores.logins.secrets(juliet.as_ref())).unwrap();
        assert!(left.is_none_or(|secrets| secrets.tokens.is_empty()), "{what}: no token");
    }
}

#[tokio::test]
async fn binding_after_success_ends_the_stream_where_the_account_changed() {
    for (_, change, _) in CHANGES {
        let wire = node().await;
        let (mut client, _) = encrypted(&wire).await;
        client.auth(Mechanism::Plain, &sasl::client::plain(None, "juliet", PASSWORD)).await;
        assert_eq!(client.element().await.name(), "success");
        client.restart();
        client.open().await;
        change(&wire.stores, &wire.address("juliet"));
        let bind = "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>";
        ends(&mut client, bind, StreamCondition::NotAuthorized).await;
    }
}
