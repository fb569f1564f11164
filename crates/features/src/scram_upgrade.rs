//! The switch of upgrades of stored keys: XEP-0480. The streams do it (`streams/src/negotiate/scram_upgrade.rs`), as part of
//! `sasl2`.
//!
//! Left out: everything; see there. The trap: the name is what the streams ask the host for.

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
