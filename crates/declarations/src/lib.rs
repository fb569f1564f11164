//! What a feature declares as plain values: specifications, options, stream features. The engine's
//! `feature-api/src/feature.rs` is the whole declaration.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod options;
mod specification;
mod stream_feature;

pub use options::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
pub use specification::Spec;
pub use stream_feature::{StreamFeature, StreamFeatureStage, StreamFeatures};
