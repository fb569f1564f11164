//! Overview, log, nodes, domains and reload: access, responses, and errors of invalid requests.

mod common;

use common::{ApiFixture, api_request};
use throng_api::auth::TokenScope;

#[tokio::test]
async fn each_observation_endpoint_requires_its_scope() {
    let fixture = ApiFixture::new(&[]).await;
    let (read, node) =
        (fixture.token("r", &[TokenScope::Read]).await, fixture.token("n", &[TokenScope::Node]).await);
    for (line, reader, operator) in [
        ("GET /api/v1/overview", 200, 403),
        ("GET /api/v1/nodes", 200, 403),
        ("GET /api/v1/domains", 200, 403),
        ("GET /api/v1/log", 403, 200),
        ("POST /api/v1/reload", 403, 409),
    ] {
        assert_eq!(
            api_request(line).send_to(&fixture).await.problem(),
            (401, "not-authorized".to_owned()),
            "{line}"
        );
        assert_eq!(api_request(line).bearer(&read).send_to(&fixture).await.status, reader, "{line}");
        assert_eq!(api_request(line).bearer(&node).send_to(&fixture).await.status, operator, "{line}");
    }
}

#[tokio::test]
async fn metrics_are_served_to_loopback_and_tokens() {
    let fixture = ApiFixture::new(&[]).await;
    let page = "GET /metrics";
    let at = |host: &str| {
        let mut request = api_request(page);
        request.headers = vec![("host", host.to_owned())];
        request
    };
    for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(at("localhost:5280").from(local).send_to(&fixture).await.status, 200, "{local}");
    }
    for host in
        ["localhost", "LocalHost:1", "localhost.", "127.0.0.1:5280", "127.9.9.9", "[::1]", "[::1]:5280"]
    {
        assert_eq!(at(host).from("127.0.0.1").send_to(&fixture).await.status, 200, "{host}");
    }
    // Host headers forwarded by tunnels and proxies that add no header of their own.
    for host in [
        "xmpp.example.org",
        "xmpp.example.org:5443",
        "192.0.2.1:5280",
        "[2001:db8::1]:5280",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "a@localhost",
        "",
    ] {
        assert_eq!(at(host).from("127.0.0.1").send_to(&fixture).await.status, 403, "{host}");
    }
    let mut nowhere = api_request(page).from("127.0.0.1");
    nowhere.headers.clear();
    assert_eq!(nowhere.send_to(&fixture).await.status, 403, "HTTP/1.0 without Host");
    for elsewhere in ["192.0.2.7", "10.0.0.1", "2001:db8::1", "0.0.0.0"] {
        let refused = at("localhost").from(elsewhere).send_to(&fixture).await;
        assert_eq!(refused.status, 403, "{elsewhere}");
        assert!(
            refused.text.contains("metrics_allow") && refused.text.lines().count() == 1,
            "{}",
            refused.text
        );
    }
    let mut behind_a_proxy = at("localhost").from("127.0.0.1");
    behind_a_proxy.peer.proxied = true;
    assert_eq!(
        behind_a_proxy.send_to(&fixture).await.status,
        403,
        "a proxy on this machine speaks for others"
    );
    for (scope, status) in [
        (TokenScope::Metrics, 200),
        (TokenScope::Read, 200),
        (TokenScope::Admin, 200),
        (TokenScope::Accounts, 403),
        (TokenScope::Node, 403),
    ] {
        let token = fixture.token(scope.as_str(), &[scope]).await;
        assert_eq!(
            api_request(page).from("192.0.2.7").bearer(&token).send_to(&fixture).await.status,
            status,
            "{scope:?}"
        );
    }
    assert_eq!(api_request(page).from("192.0.2.7").bearer("throng_x").send_to(&fixture).await.status, 403);
    let metrics = fixture.token("m", &[TokenScope::Metrics]).await;
    assert_eq!(
        api_request("GET /api/v1/overview").bearer(&metrics).send_to(&fixture).await.problem().0,
        403,
        "nothing else"
    );
    for open in ["GET /healthz", "GET /readyz"] {
        assert_eq!(api_request(open).from("192.0.2.7").send_to(&fixture).await.status, 200, "{open}");
    }
    assert_eq!(fixture.engine.node.metrics.scrapes_refused.get(), 17);
}

#[tokio::test]
async fn the_overview_grows_by_a_point_every_two_seconds() {
    let fixture = ApiFixture::new(&[]).await;
    let admin = fixture.sign_in().await;
    let overview = async |query: &str| {
        api_request(&format!("GET /api/v1/overview{query}"))
            .signed_in_as(&admin)
            .send_to(&fixture)
            .await
            .json()
    };
    let nothing = overview("").await;
    assert_eq!(nothing["series"]["cpu"], serde_json::json!([]), "{nothing}");
    for _ in 0..4 {
        fixture.engine.clock.advance(2_000);
        fixture.api.sample();
    }
    let seen = overview("").await;
    assert_eq!(seen["series"]["memory"], serde_json::json!([5_000_000, 5_000_000, 5_000_000]));
    assert_eq!((&seen["interval"], &seen["units"]["memory"]), (&2.into(), &"bytes".into()));
    assert_eq!(seen["series"]["delivery_p99"], serde_json::json!([null, null, null]));
    let since = seen["now"].as_u64().unwrap() - 2;
    let newer = overview(&format!("?since={since}")).await;
    assert_eq!(newer["series"]["memory"].as_array().map(Vec::len), Some(1));
    assert_eq!(newer["current"]["ready"], true);
}

#[tokio::test]
async fn nodes_and_domains_are_described() {
    let fixture = ApiFixture::new(&[]).await;
    let admin = fixture.sign_in().await;
    let nodes = api_request("GET /api/v1/nodes").signed_in_as(&admin).send_to(&fixture).await.json();
    assert_eq!(
        (&nodes["nodes"][0]["this"], &nodes["nodes"][0]["started"]),
        (&true.into(), &1_700_000_000.into())
    );
    let domains = api_request("GET /api/v1/domains").signed_in_as(&admin).send_to(&fixture).await.json();
    let own = domains["domains"].as_array().unwrap().iter().find(|d| d["name"] == "example.com").unwrap();
    assert_eq!((&own["default"], &own["accounts"], &own["online"]), (&true.into(), &1.into(), &0.into()));
}

#[tokio::test]
async fn a_failed_reload_reports_the_reason_and_is_audited() {
    let fixture = ApiFixture::new(&[]).await;
    let admin = fixture.sign_in().await;
    let answer = api_request("POST /api/v1/reload").signed_in_as(&admin).send_to(&fixture).await;
    assert_eq!(answer.problem(), (409, "not-acceptable".to_owned()));
    assert!(answer.text.contains("stanzas is not a key"));
    let (entries, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(1);
    assert_eq!((entries[0].action.as_str(), entries[0].outcome.as_str()), ("reload", "not-acceptable"));
}

#[tokio::test]
async fn a_malformed_query_is_a_problem() {
    let fixture = ApiFixture::new(&[]).await;
    let admin = fixture.sign_in().await;
    for path in [
        "overview?since=yesterday",
        "overview?since=-1",
        "log?after=x",
        "log?level=loud",
        "log?limit=0",
        "log?limit=99999",
    ] {
        let answer = api_request(&format!("GET /api/v1/{path}")).signed_in_as(&admin).send_to(&fixture).await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{path}");
    }
}
