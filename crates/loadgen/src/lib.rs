//! `throng load`: load generator for any XMPP server, over TCP, BOSH or WebSocket ([`web`]), plain or with TLS.
//!
//! A run is a [`plan`] (a named workload, a TOML file or a Tsung scenario) that a controller ([`control`]) distributes
//! to worker processes. Each worker is one thread around epoll ([`engine`]) that drives thousands of users over its own
//! sockets, TLS and SASL ([`socket`], [`sasl`]) and reports its measurements ([`measure`]) once a second. The
//! controller merges them, samples the server ([`server_monitor`]), displays the run ([`view`]) and writes the
//! [`report`].
//!
//! It shares only `jid`, `xml` and `stanza` with the server: a bug in code that both sides share would go unnoticed.
//!
//! # Pitfalls
//!
//! Arrivals and messages are due by the clock, whatever the server does, and every latency counts from the due time.
//! Never measure from the time of sending: a generator that is late would then look like a fast server.

pub mod cli;
pub mod clock;
pub mod control;
pub mod engine;
pub mod measure;
pub mod plan;
pub mod report;
pub mod sasl;
pub mod server_monitor;
pub mod socket;
pub mod tsung;
pub mod view;
pub mod web;
