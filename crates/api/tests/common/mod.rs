//! Test support: a node without sockets behind the routes of the API, and a client for it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by tests"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use feature_api::feature::Feature;
use http_body_util::BodyExt as _;
use jid::Jid;
use serde_json::Value;
use testkit::TestNode;
use throng_api::{Api, RequestPeer};
use tower::ServiceExt as _;

pub const ADMIN: &str = "admin@example.com";
pub const PASSWORD: &str = "R0m30 and juli3t";
pub const CLIENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// A minimal process around the node, with what the routes need.
pub struct FakeServerProcess;

impl throng_api::ServerProcess for FakeServerProcess {
    fn ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        Ok("# EOF\n".to_owned())
    }

    fn status_json(&self) -> Value {
        Value::Null
    }

    fn node_stats(&self) -> throng_api::NodeStats {
        throng_api::NodeStats { memory_bytes: 5_000_000, ..throng_api::NodeStats::default() }
    }

    fn log(&self) -> Arc<throng_api::log::LogBuffer> {
        Arc::default()
    }

    fn modules(&self) -> &'static [&'static Feature] {
        &[]
    }

    fn default_domain(&self) -> String {
        "example.com".to_owned()
    }

    fn started(&self) -> u64 {
        1_700_000_000
    }

    fn reload(&self) -> base::BoxFuture<'static, Result<throng_api::Reloaded, String>> {
        Box::pin(std::future::ready(Err("[limits] stanzas is not a key".to_owned())))
    }
}

/// A node with its API.
pub struct ApiFixture {
    pub engine: TestNode,
    pub api: Arc<Api>,
    pub router: Router,
}

/// A response.
#[derive(Debug)]
pub struct ApiReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl ApiReply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|v| v.to_str().unwrap()).unwrap_or_default()
    }

    /// Status and condition of a problem.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16());
        assert!(json["detail"].as_str().is_some_and(|d| !d.is_empty()), "{json}");
        (self.status.as_u16(), json["condition"].as_str().unwrap().to_owned())
    }
}

/// A request: method, path, headers as `name: value`, body.
pub struct ApiRequest<'a> {
    pub line: String,
    pub headers: Vec<(&'a str, String)>,
    pub body: Body,
    pub peer: RequestPeer,
}

pub fn api_request<'a>(line: &str) -> ApiRequest<'a> {
    let peer = RequestPeer { address: CLIENT_ADDRESS, secure: true, proxied: false };
    ApiRequest {
        line: line.to_owned(),
        headers: vec![("host", "console.example".to_owned())],
        body: Body::empty(),
        peer,
    }
}

impl<'a> ApiRequest<'a> {
    pub fn header(mut self, name: &'a str, value: impl Into<String>) -> ApiRequest<'a> {
        self.headers.push((name, value.into()));
        self
    }

    pub fn json(mut self, value: Value) -> ApiRequest<'a> {
        self.body = Body::from(value.to_string());
        self.header("content-type", "application/json")
    }

    pub fn text(mut self, kind: &str, text: impl Into<Body>) -> ApiRequest<'a> {
        self.body = text.into();
        self.header("content-type", kind)
    }

    pub fn signed_in_as(self, user: &SignedInUser) -> ApiRequest<'a> {
        self.header("cookie", format!("throng_session={}", user.cookie))
            .header("x-csrf-token", user.csrf.clone())
    }

    pub fn bearer(self, secret: &str) -> ApiRequest<'a> {
        self.header("authorization", format!("Bearer {secret}"))
    }

    pub fn from(mut self, address: &str) -> ApiRequest<'a> {
        self.peer.address = address.parse().unwrap();
        self
    }

    pub async fn send_to(self, fixture: &ApiFixture) -> ApiReply {
        let mut answer = std::pin::pin!(self.send_to_router(&fixture.router));
        std::future::poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            if polled.is_pending() {
                // It may wait for a task of the node, such as that of a room.
                fixture.engine.run_tasks();
                cx.waker().wake_by_ref();
            }
            polled
        })
        .await
    }

    pub async fn send_to_router(self, router: &Router) -> ApiReply {
        let (method, path) = self.line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path).extension(self.peer);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let response = router.clone().oneshot(request.body(self.body).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        ApiReply { status: parts.status, headers: parts.headers, text }
    }
}

/// A user who signed in.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    pub cookie: String,
    pub csrf: String,
}

impl ApiFixture {
    pub async fn new(features: &[&'static Feature]) -> ApiFixture {
        let engine = TestNode::new(features);
        engine.node.set_admins([Jid::parse(ADMIN).unwrap()]);
        let fixture = ApiFixture::of(engine);
        fixture.account(ADMIN, PASSWORD).await;
        fixture
    }

    pub fn of(engine: TestNode) -> ApiFixture {
        let api = Api::new(engine.node.clone(), Arc::new(FakeServerProcess));
        let router = throng_api::router(api.clone());
        ApiFixture { engine, api, router }
    }

    pub async fn account(&self, jid: &str, password: &str) {
        let jid = Jid::parse(jid).unwrap();
        self.engine.stores.accounts.create(&jid, password.as_bytes()).await.unwrap();
    }

    pub async fn try_sign_in(&self, jid: &str, password: &str) -> ApiReply {
        let body = serde_json::json!({ "jid": jid, "password": password });
        api_request("POST /api/v1/session").json(body).send_to(self).await
    }

    pub async fn sign_in(&self) -> SignedInUser {
        signed_in_user(&self.try_sign_in(ADMIN, PASSWORD).await)
    }

    pub async fn token(&self, name: &str, scopes: &[throng_api::auth::TokenScope]) -> String {
        let scopes = throng_api::auth::Scopes::from_scopes(scopes.iter().copied());
        self.api.tokens.add(name, scopes, 0, None).await.unwrap().0
    }
}

pub fn signed_in_user(answer: &ApiReply) -> SignedInUser {
    assert_eq!(answer.status, 201, "{answer:?}");
    let cookie = answer.header("set-cookie").strip_prefix("throng_session=").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    SignedInUser { cookie, csrf: answer.json()["csrf"].as_str().unwrap().to_owned() }
}
