//! The switch of Bind 2: XEP-0386. The streams do it (`streams/src/negotiate/bind2.rs`), as part of `sasl2`.
//!
//! Left out: everything; see there. The trap: what may be asked for along with binding is registered by the features
//! themselves (`Builder::bind2_inline`), not here.

use throng_core::feature::{Feature, Spec};

/// Bind 2.
pub static FEATURE: Feature = Feature {
    name: "bind2",
    summary: "Lets clients ask for a resource along with the login; a client keeps its resource. Works with `sasl2` only.",
    specs: &[Spec {
        name: "XEP-0386",
        title: "Bind 2",
        version: "1.1.0",
        not_implemented: "`<metadata/>` of the archive; waiting messages are delivered, not cleared",
    }],
    ..Feature::EMPTY
};
