//! Tests of the connection details in the list of sessions, for each transport.

use std::sync::Arc;

use jid::Jid;
use serde_json::{Value, json};
use testkit::server::{TestServer, TestServerConfig, run_until_idle};
use throng_api::auth::{Scopes, TokenScope};

use crate::common::{FakeServerProcess, api_request};

async fn sessions(server: &TestServer, router: &axum::Router, secret: &str) -> Vec<Value> {
    let answer = api_request("GET /api/v1/sessions").bearer(secret);
    let mut answer = std::pin::pin!(answer.send_to_router(router));
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut answer => break answer,
            () = run_until_idle() => server.node.sweep(),
        }
    };
    answer.json()["items"].as_array().unwrap().clone()
}

async fn start(setup: TestServerConfig) -> (TestServer, axum::Router, String) {
    let setup = TestServerConfig { features: vec![&features::stream_management::FEATURE], ..setup };
    let server = setup.start();
    server.create_user("juliet").await;
    let api = throng_api::Api::new(server.node.clone(), Arc::new(FakeServerProcess));
    let (secret, _) =
        api.tokens.add("reader", Scopes::from_scopes([TokenScope::Read]), 0, None).await.unwrap();
    (server, throng_api::router(api), secret)
}

#[tokio::test]
async fn a_session_lists_transport_address_and_idle_time_of_its_connection() {
    for (transport, secure, setup) in [
        ("memory", false, TestServerConfig::default()),
        ("websocket", true, TestServerConfig { websocket: true, ..TestServerConfig::default() }),
        ("bosh", true, TestServerConfig { bosh: true, ..TestServerConfig::default() }),
    ] {
        let (server, router, secret) = start(setup).await;
        let mut client = server.connect_from("192.0.2.55");
        client.login("juliet", "balcony").await;
        server.advance(40).await;
        let session = sessions(&server, &router, &secret).await.remove(0);
        assert_eq!(session["jid"], "juliet@example.com/balcony");
        assert_eq!((&session["transport"], &session["secure"]), (&json!(transport), &json!(secure)));
        assert_eq!(session["address"], "192.0.2.55:5", "{transport}");
        assert_eq!(session["idle_seconds"], 40, "{transport}");
        client.send("<presence/>").await;
        server.advance(2).await;
        let session = sessions(&server, &router, &secret).await.remove(0);
        let idle = session["idle_seconds"].as_u64().unwrap();
        assert!(idle <= 3, "{transport}: {idle}");
        drop(client);
    }
}

#[tokio::test]
async fn a_detached_session_is_listed_as_detached() {
    let (server, router, secret) = start(TestServerConfig::default()).await;
    let mut client = server.connect();
    client.login("juliet", "balcony").await;
    client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    run_until_idle().await;
    drop(client);
    run_until_idle().await;
    let juliet = Jid::parse("juliet@example.com").unwrap();
    assert!(server.node.routing_table.find(juliet.as_ref()).is_some(), "it may be resumed");
    let session = sessions(&server, &router, &secret).await.remove(0);
    assert_eq!((&session["transport"], &session["managed"]), (&json!("detached"), &json!(true)));
    assert_eq!((&session["address"], &session["idle_seconds"]), (&Value::Null, &Value::Null));
}
