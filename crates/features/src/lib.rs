//! Features of the server beyond routing, one file or folder for each specification.
//!
//! Start at [`registry`]. A feature is one constant, [`feature_api::feature::Feature`], with everything that other
//! crates need: specifications, requests, disco variables, options, and the function that registers its handlers. The
//! smallest one to copy from is [`ping`].
//!
//! # Pitfalls
//!
//! A feature never uses another feature. They share data only through a hook's context, or through a declaration in
//! `throng_core`.

pub mod adhoc;
pub mod administration;
pub mod anti_spoofing;
pub mod bind2;
pub mod blocking;
pub mod caps;
pub mod carbons;
pub mod client_state;
pub mod codegen;
pub mod contact_info;
pub mod disco;
pub mod entity_time;
pub mod external_services;
pub mod fast_tokens;
pub mod last_activity;
pub mod legacy_session;
pub mod offline;
pub mod ping;
pub mod private_storage;
pub mod proxy65;
pub mod registration;
pub mod registry;
pub mod rfc6121;
pub mod sasl2;
pub mod scram_upgrade;
pub mod software_version;
pub mod stanza_id;
pub mod statistics;
pub mod stream_management;
pub mod upload;
pub mod user_search;
pub mod vcard;
