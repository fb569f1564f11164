//! What connections say of themselves when sessions are listed, over each transport.

use std::sync::Arc;

use jid::Jid;
use serde_json::{Value, json};
use testkit::wire::{Setup, Wire, settle};
use throng_api::auth::{Scope, Scopes};

use crate::common::{Process, ask};

async fn sessions(wire: &Wire, router: &axum::Router, secret: &str) -> Vec<Value> {
    let answer = ask("GET /api/v1/sessions").bearer(secret);
    let mut answer = std::pin::pin!(answer.at(router));
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut answer => break answer,
            () = settle() => wire.node.sweep(),
        }
    };
    answer.json()["items"].as_array().unwrap().clone()
}

async fn start(setup: Setup) -> (Wire, axum::Router, String) {
    let setup = Setup { features: vec![&features::stream_management::FEATURE], ..setup };
    let wire = setup.start();
    wire.user("juliet").await;
    let api = throng_api::Api::new(wire.node.clone(), Arc::new(Process));
    let (secret, _) = api.tokens.add("reader", Scopes::of([Scope::Read]), 0, None).await.unwrap();
    (wire, throng_api::router(api), secret)
}

#[tokio::test]
async fn a_connection_says_how_it_is_connected_from_where_and_since_when_it_is_silent() {
    for (transport, secure, setup) in [
        ("memory", false, Setup::default()),
        ("websocket", true, Setup { websocket: true, ..Setup::default() }),
        ("bosh", true, Setup { bosh: true, ..Setup::default() }),
    ] {
        let (wire, router, secret) = start(setup).await;
        let mut client = wire.connect_from("192.0.2.55");
        client.login("juliet", "balcony").await;
        wire.advance(40).await;
        let session = sessions(&wire, &router, &secret).await.remove(0);
        assert_eq!(session["jid"], "juliet@example.com/balcony");
        assert_eq!((&session["transport"], &session["secure"]), (&json!(transport), &json!(secure)));
        assert_eq!(session["address"], "192.0.2.55:5", "{transport}");
        assert_eq!(session["idle_seconds"], 40, "{transport}");
        client.send("<presence/>").await;
        wire.advance(2).await;
        let session = sessions(&wire, &router, &secret).await.remove(0);
        let idle = session["idle_seconds"].as_u64().unwrap();
        assert!(idle <= 3, "{transport}: {idle}");
        drop(client);
    }
}

#[tokio::test]
async fn a_session_without_a_connection_says_so_at_once() {
    let (wire, router, secret) = start(Setup::default()).await;
    let mut client = wire.connect();
    client.login("juliet", "balcony").await;
    client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    settle().await;
    drop(client);
    settle().await;
    let juliet = Jid::parse("juliet@example.com").unwrap();
    assert!(wire.node.table.find(juliet.as_ref()).is_some(), "it may be resumed");
    let session = sessions(&wire, &router, &secret).await.remove(0);
    assert_eq!((&session["transport"], &session["managed"]), (&json!("detached"), &json!(true)));
    assert_eq!((&session["address"], &session["idle_seconds"]), (&Value::Null, &Value::Null));
}
