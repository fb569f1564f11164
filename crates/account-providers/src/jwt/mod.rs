//! JSON Web Tokens (RFC 7519) of an identity provider as logins: SASL OAUTHBEARER (RFC 7628), and PLAIN with the token as the
//! password for clients that have nothing else.
//!
//! Signatures are those of JWS (RFC 7515 and 7518, EdDSA of RFC 8037) in [`signature`], keys come from a file or a JWK set
//! at a URL ([`keys`]), and the claims are checked in [`claims`].
//!
//! Not implemented: encrypted tokens (JWE); introspection of opaque tokens (RFC 7662): see `check_token` of
//! [`crate::http_service`].
//!
//! # Pitfalls
//!
//! A token is valid until it expires, whatever happens to the account. Sessions outlive it. Let tokens be short.

pub mod claims;
pub mod keys;
pub mod provider;
pub mod signature;

pub use claims::{ClaimRules, UserClaim};
pub use keys::{KeySource, KeySourceSettings};
pub use provider::{JwtAccounts, JwtSettings};
