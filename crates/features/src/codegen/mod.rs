//! Generators of files from the features' declarations: documentation, `doap.xml`, golden files. Not a feature.
//!
//! `cargo xtask codegen` writes the files. [`built_in_specs`] lists the specifications that no module implements.

pub mod built_in_specs;
pub mod doap;
pub mod docs;
