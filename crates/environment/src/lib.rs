//! What the program provides to features: file storage with its HTTP bodies, the public URL, the server secret, password
//! keys, and the relay of bytestreams. Traits and plain types; `server` implements them, and tests have them in memory
//! (`testkit`). Not environment variables: those are in `server/src/config`.
//!
//! Not implemented: how a feature finds them, which is the engine's (`core/src/node_extensions.rs`).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod bytestream_relay;
pub mod file_storage;
mod http_body;
pub mod passwords;
pub mod public_url;
pub mod server_secret;

pub use http_body::{HttpBodyError, HttpBodyStream, HttpRouteBody};
