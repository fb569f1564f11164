//! Module switch of Bind 2: XEP-0386 1.1.0. Declaration only; implemented as part of `sasl2` in
//! `streams/src/negotiate/bind2.rs`.
//!
//! # Pitfalls
//!
//! Inline requests of binding are registered by the features themselves (`FeatureBuilder::bind2_inline`), not here.

use feature_api::feature::{Feature, Spec};

/// Bind 2.
pub static FEATURE: Feature = Feature {
    name: "bind2",
    summary: "Resource binding as part of the login; a client keeps its resource. Requires `sasl2`.",
    specs: &[Spec {
        name: "XEP-0386",
        title: "Bind 2",
        version: "1.1.0",
        not_implemented: "`<metadata/>` of the archive; offline messages are delivered, not cleared",
    }],
    ..Feature::EMPTY
};
