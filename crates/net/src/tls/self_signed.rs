//! Self-signed certificate for a server without one: generated once, persisted, renewed before it expires.
//!
//! ECDSA P-256, all domains as subject alternative names, valid for 13 months, because Apple's clients accept at most
//! 398 days. It is renewed [`RENEWAL_SECONDS`] before it expires, if a domain is missing, and if an earlier version
//! generated it without an expiry. The key is reused as long as it is readable, so clients that trust the key notice
//! nothing. Subject and issuer are the same name, which marks it as self-signed.
//!
//! Not implemented: ACME.
//!
//! # Pitfalls
//!
//! The key must never be readable by others, not even briefly, so the file is created with mode 0600.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, OtherNameValue, SanType, SerialNumber,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::tls::certificate::ServerCertificate;

const CERTIFICATE_FILE: &str = "self-signed-cert.pem";
const KEY_FILE: &str = "self-signed-key.pem";
/// Organisation of the subject and the issuer.
const ORGANIZATION: &str = "Throng self-signed certificate";

const DAY: u64 = 86_400;
/// Validity in seconds: 13 months.
const VALIDITY_SECONDS: u64 = 396 * DAY;
/// Seconds by which the start of validity is backdated, for clients with a slow clock.
const BACKDATE_SECONDS: u64 = DAY;
/// Seconds before expiry at which it is renewed.
const RENEWAL_SECONDS: u64 = 30 * DAY;
/// Maximum length of a common name (RFC 5280, appendix A.1).
const MAX_COMMON_NAME: usize = 64;

/// Path of the certificate.
pub(crate) fn certificate_path(directory: &Path) -> PathBuf {
    directory.join(CERTIFICATE_FILE)
}

/// The stored certificate if it is still valid, else a new one. `now` is in seconds since 1970.
pub(crate) fn load_or_create(
    directory: &Path,
    domains: &[String],
    now: u64,
) -> Result<ServerCertificate, String> {
    if let Some(existing) = load_existing(directory, domains, now) {
        return Ok(existing);
    }
    create(directory, domains, now).map_err(|reason| {
        format!("cannot create a self-signed certificate in {}: {reason}", directory.display())
    })?;
    ServerCertificate::load(&certificate_path(directory), &directory.join(KEY_FILE))
}

/// The stored certificate if it is still valid.
pub(crate) fn load_existing(directory: &Path, domains: &[String], now: u64) -> Option<ServerCertificate> {
    let existing = ServerCertificate::load(&certificate_path(directory), &directory.join(KEY_FILE)).ok()?;
    let named = |domain: &String| {
        existing.domains().any(|name| name == domain || Some(name) == to_ascii_domain(domain).as_deref())
    };
    (domains.iter().all(named) && !needs_renewal(&existing, now)).then_some(existing)
}

/// Whether a self-signed certificate should be renewed.
pub(crate) fn needs_renewal(certificate: &ServerCertificate, now: u64) -> bool {
    let (from, until) = (certificate.not_before, certificate.not_after);
    now < from
        || now.saturating_add(RENEWAL_SECONDS) >= until
        || until.saturating_sub(from) > VALIDITY_SECONDS
}

fn create(directory: &Path, domains: &[String], now: u64) -> Result<(), Box<dyn std::error::Error>> {
    let earlier = PrivateKeyDer::from_pem_file(directory.join(KEY_FILE)).ok();
    let key = match earlier.and_then(|der| KeyPair::try_from(&der).ok()) {
        Some(key) => key,
        None => KeyPair::generate()?,
    };
    let certificate = params(domains, now)?.self_signed(&key)?;
    fs::create_dir_all(directory)?;
    // The key first: a crash in between leaves a pair that does not match, and the next start generates a new one.
    replace_atomically(directory, KEY_FILE, &pem("PRIVATE KEY", key.serialized_der()), 0o600)?;
    replace_atomically(directory, CERTIFICATE_FILE, &pem("CERTIFICATE", certificate.der()), 0o644)?;
    Ok(())
}

fn params(domains: &[String], now: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    let mut name = rcgen::DistinguishedName::new();
    if let Some(first) = domains.first().filter(|first| first.chars().count() <= MAX_COMMON_NAME) {
        name.push(DnType::CommonName, first.as_str());
    }
    name.push(DnType::OrganizationName, ORGANIZATION);
    params.distinguished_name = name;
    for domain in domains {
        params.subject_alt_names.extend(names(domain)?);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BACKDATE_SECONDS));
    params.not_after = params.not_before + Duration::from_secs(VALIDITY_SECONDS);
    // Random, because a renewal signs with the same key, and browsers refuse two certificates with the same number.
    let mut serial = base::id::random_bytes::<16>();
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// PEM (RFC 7468, section 2): Base64 in lines of 64 characters.
fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let encoded = BASE64.encode(der);
    for (at, character) in encoded.chars().enumerate() {
        if at > 0 && at % 64 == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text + &format!("\n-----END {label}-----\n")
}

/// Subject alternative names of a domain. An internationalised domain (RFC 6120, section 13.7.1.4) also gets an
/// id-on-xmppAddr.
fn names(domain: &str) -> Result<Vec<SanType>, rcgen::Error> {
    let address = || {
        SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], OtherNameValue::Utf8String(domain.to_owned())))
    };
    let bare = domain.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SanType::IpAddress(ip), address()]);
    }
    Ok(match to_ascii_domain(domain) {
        Some(name) if name == domain => vec![SanType::DnsName(Ia5String::try_from(name)?)],
        Some(name) => vec![SanType::DnsName(Ia5String::try_from(name)?), address()],
        None => vec![address()],
    })
}

/// ASCII form of a domain for DNS.
fn to_ascii_domain(domain: &str) -> Option<String> {
    idna::domain_to_ascii(domain).ok().filter(|name| !name.is_empty())
}

/// Replaces a file atomically, with its mode.
fn replace_atomically(directory: &Path, name: &str, text: &str, mode: u32) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_has_lines_of_64_characters_and_is_read_back() {
        for length in [1, 47, 48, 49, 96, 121] {
            let der: Vec<u8> = (0..length).collect();
            let text = pem("CERTIFICATE", &der);
            assert!(text.lines().all(|line| (1..=64).contains(&line.len())), "{text}");
            let read = rustls::pki_types::CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
            assert_eq!(read.as_ref(), der);
        }
    }
}
