//! Account providers: accounts of a domain that are kept by an HTTP service, by an identity provider that signs JSON Web
//! Tokens, in an LDAP directory, or in a foreign SQL table.
//!
//! Each implements [`environment::account_provider::AccountProvider`] and passes its conformance suite. All of them bound the
//! requests in progress and those that wait ([`limiter`]), and end within a deadline. A password that was right is
//! remembered for a short time ([`password_cache`]), so that many logins after a restart are not many requests.
//!
//! Not implemented: SASL, which is in `sasl` and `streams`; the records of these accounts in the store, which are in
//! `access`; the connection to a SQL database, which the program provides as a [`sql::ForeignTable`].
//!
//! # Pitfalls
//!
//! Addresses are data of clients. Each provider has its own way to quote them, in one function with its tests.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod account_name;
pub mod ber;
mod http_client;
pub mod http_service;
pub mod jwt;
pub mod ldap;
pub mod limiter;
pub mod metrics;
pub mod password_cache;
mod secret_file;
pub mod sql;
mod tls;

pub use http_client::HttpUrl;
pub use secret_file::read_secret_file;
pub use tls::{TrustedRoots, client_config};
