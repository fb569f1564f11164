//! Tests of the HTTP API with real features: accounts, sessions, commands, and the three interfaces to commands.
//!
//! Everything except the test with a complete node runs without sockets, over the in-memory store.
//!
//! # Pitfalls
//!
//! The helpers are those of the crate `api`, which cannot link features itself.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the lints exempt functions marked as tests, not what those call"
)]

extern crate api as throng_api;

#[path = "../../../api/tests/common/mod.rs"]
mod common;

mod accounts;
mod bulk;
mod command_interfaces;
mod commands;
mod node;
mod roster;
mod session_details;
mod sessions;
mod several_nodes;
mod tokens;

use std::collections::BTreeMap;

use common::ApiFixture;
use jid::Jid;
use testkit::TestNode;
use throng_core::NodeLimits;

/// A node with an administrator and all modules that are enabled by default.
async fn fixture() -> ApiFixture {
    let enabled = features::registry::enable(&BTreeMap::new()).expect("the defaults");
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.node.set_admins([Jid::parse(common::ADMIN).unwrap()]);
    let fixture = ApiFixture::of(engine);
    fixture.account(common::ADMIN, common::PASSWORD).await;
    fixture
}
