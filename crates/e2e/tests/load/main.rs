//! What `throng load` promises, with the real program, real nodes and real networks.
//!
//! `agreement` compares its report with the counters of a node; `nets` runs it over wires that lose packets and with
//! workers on machines of their own; `ends` stops it in the middle; `mistakes` shows what it finds before the first
//! connection; `security` meets a listener that wants TLS; `fast` logs in with tokens; `page` opens its report in a browser. `node`, `run`, `relay` and `space` are what they share.
//!
//! Left out: what a scripted server can show better (the generator's own tests), and how fast it is (`cargo xtask bench`).
//!
//! The traps: cargo does not build another package's binary for a test; `cargo build -p throng-server` comes first, and a
//! stale binary is tested as it is. The tests that load the machine take turns (`node::turn`), for a generator that has
//! to wait for its core is late.
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
mod run_report;
mod security;
#[path = "../shared/space.rs"]
mod space;
mod usage_errors;
