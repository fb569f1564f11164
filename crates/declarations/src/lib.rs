//! Parts of a feature's declaration that are plain values: specifications, options, stream features. The whole declaration is
//! `Feature` in `feature-api/src/feature.rs`; these parts are separate because the engine reads some of them
//! and must not know `feature-api`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod options;
mod specification;
mod stream_feature;

pub use options::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
pub use specification::Spec;
pub use stream_feature::{StreamFeature, StreamFeatureStage, StreamFeatures};
