//! What a node serves over HTTP besides XMPP itself: figures for machines and for people, the console, and commands.
//!
//! [`router`] is a service of `axum`; the program puts it behind its HTTP listeners. BOSH and WebSocket are not here but in
//! `net`: they are transports. Commands are declared in `core` and `features` and carried out by the engine; this crate
//! only translates.
//!
//! The trap: whoever can reach the port can send anything. Every route says who may use it.

pub mod auth;
mod console;
mod health;
mod machine;
mod peer;
mod problem;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use throng_core::Node;

use auth::Auth;
use auth::tokens::Tokens;
pub use machine::Machine;
pub use peer::Peer;
pub use problem::Problem;

/// Bytes of a request to `/api/v1`, where a route does not say otherwise.
const BODY: usize = 64 * 1024;

/// What requests are answered from.
pub struct Api {
    /// The engine.
    pub node: Arc<Node>,
    /// The process around it.
    pub machine: Arc<dyn Machine>,
    /// Tokens for programs.
    pub tokens: Tokens,
    pub(crate) auth: Auth,
}

impl Api {
    /// The API of a node.
    pub fn new(node: Arc<Node>, machine: Arc<dyn Machine>) -> Arc<Api> {
        let tokens = Tokens::new(node.stores.settings.clone());
        Arc::new(Api { node, machine, tokens, auth: Auth::default() })
    }
}

/// All routes.
pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(console::routes())
        .merge(v1())
        .fallback(health::nowhere)
        .with_state(api)
}

/// `/api/v1`: answers for programs and for the console, never kept by anybody on the way.
fn v1() -> Router<Arc<Api>> {
    Router::new().merge(auth::routes()).layer(DefaultBodyLimit::max(BODY)).layer(map_response(
        async |mut response: Response| {
            let headers = response.headers_mut();
            headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        },
    ))
}
