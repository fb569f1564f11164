//! HTTP interface of a node besides XMPP transports: metrics, the REST API, the console, and commands.
//!
//! [`router`] is an `axum` service; the program mounts it on its HTTP listeners. BOSH and WebSocket are transports
//! and belong to `net`. Commands are declared in `core` and `features` and run by the engine; this crate only
//! translates.
//!
//! # Pitfalls
//!
//! Any client that reaches the port can send anything. Every route declares its access.

mod accounts;
mod assets;
mod audit;
pub mod auth;
mod bulk;
mod chat;
pub mod commands;
mod console;
mod domains;
mod extract;
mod health;
mod host_meta;
pub mod log;
mod node_process;
mod nodes;
mod openapi;
mod operation;
pub mod overview;
mod peer;
mod problem;
mod roster;
mod server_process;
mod sessions;
mod traffic;

use std::sync::Arc;

use auth::ApiAuth;
use auth::tokens::ApiTokens;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::any;
use operation::ApiOperation;
use serde_json::Value;
use throng_core::Node;

pub use peer::RequestPeer;
pub use problem::Problem;
pub use server_process::{CertificateStatus, NodeStats, Reloaded, ResourceStatus, ServerProcess};

/// Maximum bytes of a request to `/api/v1`, unless a route overrides it.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// State shared by all handlers.
pub struct Api {
    /// The engine.
    pub node: Arc<Node>,
    /// The process around it.
    pub process: Arc<dyn ServerProcess>,
    /// Tokens for programs.
    pub tokens: Arc<ApiTokens>,
    pub(crate) auth: ApiAuth,
    /// Bulk creations in progress.
    pub(crate) bulk: bulk::ActiveBulkCalls,
    /// The OpenAPI document.
    pub(crate) openapi: Value,
    pub(crate) history: overview::OverviewHistory,
    /// Totals of domains in the last minute.
    pub(crate) traffic: traffic::TrafficWindow,
}

impl Api {
    /// The API of a node. Other nodes of the cluster can ask the node from then on.
    pub fn new(node: Arc<Node>, machine: Arc<dyn ServerProcess>) -> Arc<Api> {
        let tokens = Arc::new(ApiTokens::new(node.stores.server_kv.clone(), node.clock.clone()));
        let document = openapi::document(&operations(), schemas());
        let history = overview::OverviewHistory::default();
        let traffic = traffic::TrafficWindow::default();
        let bulk = bulk::ActiveBulkCalls::default();
        let api = Arc::new(Api {
            node,
            process: machine,
            tokens,
            auth: ApiAuth::default(),
            bulk,
            openapi: document,
            history,
            traffic,
        });
        node_process::provide(&api);
        api
    }

    /// Samples the overview; to be called every [`overview::INTERVAL`] seconds.
    pub fn sample(&self) {
        self.history.sample(&self.node, &self.process.node_stats());
        self.traffic.sample(&self.node);
    }

    /// The last hour of the overview, for [`Api::restore_history`] of a later process; `None` before the first
    /// sample.
    ///
    /// # Errors
    /// When it cannot be compressed, which does not happen in memory.
    pub fn save_history(&self) -> std::io::Result<Option<Vec<u8>>> {
        self.history.save()
    }

    /// Restores the overview of an earlier process, if it is of the last hour; returns whether it did. To be called
    /// before the first sample.
    ///
    /// # Errors
    /// When the bytes are damaged or of another format.
    pub fn restore_history(&self, saved: &[u8]) -> std::io::Result<bool> {
        self.history.restore(saved, self.node.clock.unix_millis() / 1000)
    }
}

/// All routes.
pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(chat::routes())
        .merge(host_meta::routes())
        .merge(console::routes())
        .merge(v1(&api))
        .fallback(health::not_found)
        .with_state(api)
}

/// All declared operations.
fn operations() -> Vec<ApiOperation> {
    let mut all = auth::operations();
    all.extend(auth::tokens::operations());
    all.extend(accounts::operations());
    all.extend(bulk::operations());
    all.extend(roster::operations());
    all.extend(sessions::operations());
    all.extend(commands::operations());
    all.extend(audit::operations());
    all.extend(overview::operations());
    all.extend(log::operations());
    all.extend(nodes::operations());
    all.extend(domains::operations());
    all.extend(traffic::operations());
    all.extend(openapi::operations());
    all
}

/// The schemas that they use.
fn schemas() -> Vec<(&'static str, Value)> {
    let mut all = auth::schemas();
    all.extend(auth::tokens::schemas());
    all.extend(accounts::schemas());
    all.extend(bulk::schemas());
    all.extend(roster::schemas());
    all.extend(sessions::schemas());
    all.extend(commands::schemas());
    all.extend(audit::schemas());
    all.extend(overview::schemas());
    all.extend(log::schemas());
    all.extend(nodes::schemas());
    all.extend(domains::schemas());
    all.extend(traffic::schemas());
    all
}

/// `/api/v1`: responses for programs and for the console, never cached.
fn v1(api: &Arc<Api>) -> Router<Arc<Api>> {
    Router::new()
        .merge(operation::router(api, operations()))
        .route("/api/v1", any(operation::unknown_path))
        .route("/api/v1/", any(operation::unknown_path))
        .route("/api/v1/{*path}", any(operation::unknown_path))
        .method_not_allowed_fallback(operation::method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(map_response(async |mut response: Response| {
            let headers = response.headers_mut();
            headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        }))
}
