//! TLS configuration: certificates by domain, reload, client certificates, handshake data (RFC 6120, sections 5 and
//! 13.7; XEP-0368, XEP-0178, RFC 5929, RFC 9266).
//!
//! The stream over it is `stream/tls.rs`.
//!
//! Not implemented: outgoing connections (server to server), OCSP and CRLs.
//!
//! # Pitfalls
//!
//! [`TlsConfig::for_kind`] is called for each connection, so it must only clone a pointer.

pub(crate) mod certificate;
mod client_certificate;
mod config;
pub(crate) mod handshake_capture;
mod self_signed;
pub(crate) mod unbuffered;

pub use client_certificate::ClientCertificate;
pub use config::{CertificateFiles, CertificateSummary, TlsConfig, TlsReloadOutcome, TlsSettings};
pub use unbuffered::{ChannelBinding, TlsInfo};
