//! The public URL of this node's HTTP listeners.
//!
//! It is `[http] public_url`, or else the address of a listener that clients can use: an `https` listener, or an `http`
//! listener of the same machine.

use std::sync::Arc;

/// Provides the public URL.
pub trait PublicUrl: Send + Sync {
    /// Scheme, host and port at which clients of a domain reach this node, without a trailing slash; `None` if there is
    /// no such URL.
    fn base(&self, domain: &str) -> Option<String>;
}

/// The type under which a program provides it.
pub type SharedPublicUrl = Arc<dyn PublicUrl>;
