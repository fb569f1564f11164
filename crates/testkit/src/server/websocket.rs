//! WebSocket clients of tests (RFC 7395): the adapter of the transport's own tests.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "a file of tests, of which a part is used"
)]

#[path = "../../../net/tests/support/framed.rs"]
mod framed;

use net;

pub(crate) use framed::{DOCUMENTS, Framed, accepted};
