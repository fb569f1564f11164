//! What features are made of: declarations, the registration of handlers, and the assembly of a host from its features.
//!
//! A feature is one constant ([`feature::Feature`]) with a function that registers its handlers
//! ([`feature::FeatureBuilder`]). [`build_host`] checks the registrations of all enabled features against their declarations
//! and against each other, and returns the engine's [`throng_core::Host`].

pub mod account_data;
mod background;
pub mod disco;
mod disco_declarations;
pub mod feature;
mod feature_check;
pub mod feature_state;
pub mod host;
pub mod http_route;
pub mod listener;
pub mod periodic_job;
pub mod server_iq;
pub mod service;
pub mod stream_elements;

pub use feature::{Feature, FeatureBuilder};
pub use host::{EnabledFeature, HostError, build_host, build_host_with};
