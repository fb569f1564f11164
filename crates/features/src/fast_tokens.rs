//! Module switch and options of Fast Authentication Streamlining Tokens (FAST): XEP-0484 0.2.0. Declaration only;
//! implemented as part of `sasl2` in `streams/src/negotiate/fast_tokens.rs`.
//!
//! # Pitfalls
//!
//! The streams read the options by name, so an option that is renamed here must be renamed there.

use feature_api::feature::{Feature, OptionKind, OptionSpec, OptionValue, Spec};

/// Fast Authentication Streamlining Tokens.
pub static FEATURE: Feature = Feature {
    name: "fast_tokens",
    summary: "Lets clients reconnect with a token in one round trip. Requires `sasl2`.",
    specs: &[Spec {
        name: "XEP-0484",
        title: "Fast Authentication Streamlining Tokens",
        version: "0.2.0",
        not_implemented: "TLS early data, and so `count`; HT-SHA-256-UNIQ",
    }],
    options: &[
        OptionSpec {
            key: "lifetime_hours",
            kind: OptionKind::Int(1, 87_600),
            default: OptionValue::Int(504),
            doc: "Hours until an unused token expires.",
        },
        OptionSpec {
            key: "rotate_hours",
            kind: OptionKind::Int(1, 87_600),
            default: OptionValue::Int(24),
            doc: "Age in hours after which a token is replaced when it is used.",
        },
        OptionSpec {
            key: "max_clients_per_account",
            kind: OptionKind::Int(1, 64),
            default: OptionValue::Int(32),
            doc: "Maximum number of clients per account with tokens; the oldest token is removed first.",
        },
    ],
    ..Feature::EMPTY
};
