//! Module switch of SASL Upgrade Tasks, which upgrade stored keys: XEP-0480 0.2.0. Declaration only; implemented as
//! part of `sasl2` in `streams/src/negotiate/scram_upgrade.rs`.
//!
//! # Pitfalls
//!
//! The streams look the module up by its name.

use feature_api::feature::{Feature, Spec};

/// SASL Upgrade Tasks.
pub static FEATURE: Feature = Feature {
    name: "scram_upgrade",
    summary: "Requests missing SCRAM keys of an account from clients, for example after an import. Requires \
     `sasl2`.",
    specs: &[Spec {
        name: "XEP-0480",
        title: "SASL Upgrade Tasks",
        version: "0.2.0",
        not_implemented: "keys derived by the server after a login with PLAIN",
    }],
    ..Feature::EMPTY
};
