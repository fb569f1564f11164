//! Module switch of SASL Upgrade Tasks, which upgrade stored keys: XEP-0480 0.2.0. Declaration only; implemented as
//! part of `sasl2` in `streams/src/negotiate/scram_upgrade.rs`.
//!
//! # Pitfalls
//!
//! The streams look the module up by its name.

use throng_core::feature::{Feature, Spec};

/// SASL Upgrade Tasks.
pub static FEATURE: Feature = Feature {
    name: "scram_upgrade",
    summary: "Asks clients for the SCRAM keys that an account lacks, as after an import. Works with `sasl2` only.",
    specs: &[Spec {
        name: "XEP-0480",
        title: "SASL Upgrade Tasks",
        version: "0.2.0",
        not_implemented: "keys made by the server where PLAIN has brought the password",
    }],
    ..Feature::EMPTY
};
