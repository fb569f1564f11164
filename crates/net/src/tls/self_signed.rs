//! A self-signed certificate for a server that has none yet: made once, kept, renewed in time.
//!
//! ECDSA P-256, all domains as subject alternative names, valid for 13 months, which is the most that Apple's clients take
//! (398 days). It is made again [`MARGIN`] before it expires, when a domain is missing in it, and when an earlier version
//! made it without an end. The key stays the same as long as it can be read, so a client that trusts the key notices nothing.
//! Subject and issuer are the same name, which says what it is. Left out: ACME.
//!
//! Trap: the key must never be readable by others, not even for a moment, so the file is created with mode 0600.

use crate::tls::certificate::Certificate;
use rcgen::string::Ia5String;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, OtherNameValue, SanType, SerialNumber,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CERTIFICATE: &str = "self-signed-cert.pem";
const KEY: &str = "self-signed-key.pem";
/// What the subject says, and with it the issuer.
const ORGANIZATION: &str = "Throng self-signed certificate";

const DAY: u64 = 86_400;
/// Seconds that a certificate is valid: 13 months.
const VALID: u64 = 396 * DAY;
/// Seconds before now at which it begins, for clients whose clock is behind.
const BEFORE: u64 = DAY;
/// Seconds before its end at which it is made again.
const MARGIN: u64 = 30 * DAY;
/// Longest common name, RFC 5280 appendix A.1.
const COMMON_NAME: usize = 64;

/// Where the certificate is kept.
pub(crate) fn file(directory: &Path) -> PathBuf {
    directory.join(CERTIFICATE)
}

/// The kept certificate if it is still good, else a new one. `now` is in seconds since 1970.
pub(crate) fn load_or_make(directory: &Path, domains: &[String], now: u64) -> Result<Certificate, String> {
    if let Some(kept) = kept(directory, domains, now) {
        return Ok(kept);
    }
    make(directory, domains, now).map_err(|reason| {
        format!("cannot make a self-signed certificate in {}: {reason}", directory.display())
    })?;
    Certificate::load(&file(directory), &directory.join(KEY))
}

/// The kept certificate if it is still good.
pub(crate) fn kept(directory: &Path, domains: &[String], now: u64) -> Option<Certificate> {
    let kept = Certificate::load(&file(directory), &directory.join(KEY)).ok()?;
    let named =
        |domain: &String| kept.domains().any(|name| name == domain || Some(name) == ascii(domain).as_deref());
    (domains.iter().all(named) && !is_due(&kept, now)).then_some(kept)
}

/// Whether a self-signed certificate should be made again.
pub(crate) fn is_due(certificate: &Certificate, now: u64) -> bool {
    let (from, until) = (certificate.not_before, certificate.not_after);
    now < from || now.saturating_add(MARGIN) >= until || until.saturating_sub(from) > VALID
}

fn make(directory: &Path, domains: &[String], now: u64) -> Result<(), Box<dyn std::error::Error>> {
    let earlier = fs::read_to_string(directory.join(KEY)).ok();
    let key = match earlier.and_then(|pem| KeyPair::from_pem(&pem).ok()) {
        Some(key) => key,
        None => KeyPair::generate()?,
    };
    let certificate = params(domains, now)?.self_signed(&key)?;
    fs::create_dir_all(directory)?;
    // The key first: a crash in between leaves a pair that does not match, and the next start makes a new one.
    replace(directory, KEY, &key.serialize_pem(), 0o600)?;
    replace(directory, CERTIFICATE, &certificate.pem(), 0o644)?;
    Ok(())
}

fn params(domains: &[String], now: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    let mut name = rcgen::DistinguishedName::new();
    if let Some(first) = domains.first().filter(|first| first.chars().count() <= COMMON_NAME) {
        name.push(DnType::CommonName, first.as_str());
    }
    name.push(DnType::OrganizationName, ORGANIZATION);
    params.distinguished_name = name;
    for domain in domains {
        params.subject_alt_names.extend(names(domain)?);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BEFORE));
    params.not_after = params.not_before + Duration::from_secs(VALID);
    // Random: the same key signs again at a renewal, and browsers refuse one number for two certificates.
    let mut serial = base::id::random_bytes::<16>();
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// The names that stand for a domain. One that DNS does not know as it is written (RFC 6120 §13.7.1.4) is named as
/// id-on-xmppAddr too.
fn names(domain: &str) -> Result<Vec<SanType>, rcgen::Error> {
    let address = || {
        SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], OtherNameValue::Utf8String(domain.to_owned())))
    };
    let bare = domain.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SanType::IpAddress(ip), address()]);
    }
    Ok(match ascii(domain) {
        Some(name) if name == domain => vec![SanType::DnsName(Ia5String::try_from(name)?)],
        Some(name) => vec![SanType::DnsName(Ia5String::try_from(name)?), address()],
        None => vec![address()],
    })
}

/// A domain as DNS writes it.
fn ascii(domain: &str) -> Option<String> {
    idna::domain_to_ascii(domain).ok().filter(|name| !name.is_empty())
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
