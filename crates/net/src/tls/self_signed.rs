//! A certificate of our own for a server that has none yet: made once, kept, and said to be what it is.
//!
//! ECDSA P-256, all domains as dNSName, valid until 4096 (nobody checks the dates of a self-signed certificate, and a
//! server must not fail because a throwaway expired). Left out: renewal, ACME.
//! Trap: the key must never be readable by others, not even for a moment, so the file is created with mode 0600.

use crate::tls::certificate::Certificate;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const CERTIFICATE: &str = "self-signed-cert.pem";
const KEY: &str = "self-signed-key.pem";

/// The kept certificate if it is good for all domains, else a new one.
pub(crate) fn load_or_make(directory: &Path, domains: &[String]) -> Result<Certificate, String> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    if let Ok(kept) = Certificate::load(&certificate, &key)
        && domains.iter().all(|domain| kept.names.dns.contains(domain))
    {
        return Ok(kept);
    }
    make(directory, domains).map_err(|reason| {
        format!("cannot make a self-signed certificate in {}: {reason}", directory.display())
    })?;
    Certificate::load(&certificate, &key)
}

fn make(directory: &Path, domains: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(domains)?;
    fs::create_dir_all(directory)?;
    // The key first: a crash in between leaves a pair that does not match, and the next start makes a new one.
    replace(directory, KEY, &made.signing_key.serialize_pem(), 0o600)?;
    replace(directory, CERTIFICATE, &made.cert.pem(), 0o644)?;
    Ok(())
}

/// Writes a file that is either the old one or the new one, whole and with its mode, at any moment.
fn replace(directory: &Path, name: &str, text: &str, mode: u32) -> std::io::Result<()> {
    let draft = directory.join(format!(".{name}.new"));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(draft, directory.join(name))
}
