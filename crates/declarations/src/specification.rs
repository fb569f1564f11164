//! Specifications that features implement, for the documentation.

/// A specification that a feature implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// `XEP-0199`, `RFC 6121`.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Version implemented; empty for an RFC.
    pub version: &'static str,
    /// Parts that are not implemented; empty if there are none.
    pub not_implemented: &'static str,
}
