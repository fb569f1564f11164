//! Tests of `throng load` with the real program, real nodes and real networks.
//!
//! `counter_agreement` compares its report with the counters of a node, and `rooms` that of rooms; `networks` runs it over links that lose packets
//! and with workers on separate machines; `interruption` stops it halfway; `usage_errors` shows what it detects before
//! the first connection; `security` uses a listener that requires TLS; `fast` logs in with tokens; `report_page` opens
//! its report in a browser. `node`, `run_report`, `relay` and `space` are shared helpers.
//!
//! Not implemented: what a scripted server shows better (the generator's own tests), and its speed
//! (`cargo xtask bench`).
//!
//! # Pitfalls
//!
//! Cargo does not build another package's binary for a test: run `cargo build -p throng-server` first; a stale binary
//! is tested without warning. The tests that load the machine run one at a time (`node::turn`), because a generator
//! that waits for its core is late.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the lints exempt functions marked as tests, not what those call; time here is the machine's"
)]

mod counter_agreement;
mod fast;
mod interruption;
mod networks;
mod node;
mod relay;
mod report_page;
mod rooms;
mod run_report;
mod security;
#[path = "../shared/space.rs"]
mod space;
mod usage_errors;
