//! What the program provides to features and logins: file storage with its HTTP bodies, the public URL, the server secret,
//! password keys, and accounts that are kept elsewhere. Traits and plain types; `server` and the adapters implement them, and
//! tests have them in memory (`testkit`). Not environment variables: those are in `server/src/config`.
//!
//! Not implemented: how a feature finds them, which is the engine's (`core/src/node_extensions.rs`).

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod account_provider;
pub mod file_storage;
mod http_body;
pub mod passwords;
pub mod public_url;
pub mod server_secret;

pub use http_body::{HttpBodyError, HttpBodyStream, HttpRouteBody};
