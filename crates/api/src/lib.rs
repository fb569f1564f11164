//! What a node serves over HTTP besides XMPP itself: figures for machines and for people, the console, and commands.
//!
//! [`router`] is a service of `axum`; the program puts it behind its HTTP listeners. BOSH and WebSocket are not here but in
//! `net`: they are transports. Commands are declared in `core` and `features` and carried out by the engine; this crate
//! only translates.
//!
//! The trap: whoever can reach the port can send anything. Every route says who may use it.

mod health;
mod machine;

use std::sync::Arc;

use axum::Router;
use throng_core::Node;

pub use machine::Machine;

/// What requests are answered from.
pub struct Api {
    /// The engine.
    pub node: Arc<Node>,
    /// The process around it.
    pub machine: Arc<dyn Machine>,
}

/// All routes.
pub fn router(api: Arc<Api>) -> Router {
    Router::new().merge(health::routes()).fallback(health::nowhere).with_state(api)
}
