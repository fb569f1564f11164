//! TLS to sources of accounts: which authorities are trusted.
//!
//! Not implemented: client certificates; a way to switch verification off, because a password is sent over it.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Trusted authorities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrustedRoots {
    /// Those of the system.
    System,
    /// Those of a PEM file.
    File(std::path::PathBuf),
}

/// The TLS settings of a client.
///
/// # Errors
/// One sentence, if no authority can be read.
pub fn client_config(roots: &TrustedRoots) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore::empty();
    match roots {
        TrustedRoots::System => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = store.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err(
                    "the system has no trusted certificates; install the package ca-certificates, or set \
                     ca_file to a PEM file"
                        .to_owned(),
                );
            }
        }
        TrustedRoots::File(path) => add_file(&mut store, path)?,
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be configured: {error}"))?;
    Ok(Arc::new(builder.with_root_certificates(store).with_no_client_auth()))
}

fn add_file(store: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let shown = path.display();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let before = store.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("cannot read {shown}: {error}"))?;
        store
            .add(certificate)
            .map_err(|error| format!("a certificate in {shown} cannot be trusted: {error}"))?;
    }
    if store.len() == before {
        return Err(format!("{shown} contains no certificate in PEM form"));
    }
    Ok(())
}
