//! Module switch of the Extensible SASL Profile (SASL2): XEP-0388 1.0.4, and Initial Authentication Pipelining:
//! XEP-0509 0.2.0. Declaration only; implemented in `streams/src/negotiate/sasl2.rs`.
//!
//! # Pitfalls
//!
//! The streams look the module up by its name.

use feature_api::feature::{Feature, Spec};

/// Extensible SASL Profile.
pub static FEATURE: Feature = Feature {
    name: "sasl2",
    summary: "Login, resource binding and stream features in a single request.",
    specs: &[
        Spec {
            name: "XEP-0388",
            title: "Extensible SASL Profile",
            version: "1.0.4",
            not_implemented: "mandatory tasks such as a second factor",
        },
        Spec {
            name: "XEP-0509",
            title: "Initial Authentication Pipelining",
            version: "0.2.0",
            not_implemented: "",
        },
    ],
    ..Feature::EMPTY
};
