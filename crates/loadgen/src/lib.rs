//! `throng load`: the load generator for any XMPP server.
//!
//! A run is a [`plan`] (a named workload, a TOML file or a Tsung scenario) that a controller ([`control`]) hands to worker
//! processes. Each worker is one thread around epoll ([`engine`]) that drives thousands of users over its own sockets, TLS
//! and SASL ([`socket`], [`sasl`]), and sends what it measured ([`measure`]) once a second. The controller merges that,
//! samples the server ([`host`]), shows it ([`view`]) and writes it down ([`report`]).
//!
//! It shares `jid`, `xml` and `stanza` with the server and nothing else: a bug that both sides share would hide itself.
//! A stream goes over TCP, BOSH or WebSocket ([`web`]), plain or with TLS.
//! Left out: MUC and PubSub; a plan that asks for them is refused by name before the run.
//!
//! Trap: arrivals and messages are due by the clock, whatever the server does, and every latency counts from the
//! due time. Never measure from the moment of sending: a generator that is late would then look like a fast server.

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
