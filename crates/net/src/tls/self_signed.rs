//! A self-signed certificate for a server that has none yet: made once, kept, renewed in time.
//!
//! ECDSA P-256, all domains as subject alternative names, valid for 13 months, which is the most that Apple's clients take
//! (398 days). It is made again [`RENEWAL_SECONDS`] before it expires, when a domain is missing in it, and when an earlier version
//! made it without an end. The key stays the same as long as it can be read, so a client that trusts the key notices nothing.
//! Subject and issuer are the same name, which says what it is. Left out: ACME.
//!
//! Trap: the key must never be readable by others, not even for a moment, so the file is created with mode 0600.

use crate::tls::certificate::ServerCertificate;
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

const CERTIFICATE_FILE: &str = "self-signed-cert.pem";
const KEY_FILE: &str = "self-signed-key.pem";
/// What the subject says, and with it the issuer.
const ORGANIZATION: &str = "Throng self-signed certificate";

const DAY: u64 = 86_400;
/// Seconds that a certificate is valid: 13 months.
const VALIDITY_SECONDS: u64 = 396 * DAY;
/// Seconds before now at which it begins, for clients whose clock is behind.
const BACKDATE_SECONDS: u64 = DAY;
/// Seconds before its end at which it is made again.
const RENEWAL_SECONDS: u64 = 30 * DAY;
/// Longest common name, RFC 5280 appendix A.1.
const MAX_COMMON_NAME: usize = 64;

/// Where the certificate is kept.
pub(crate) fn certificate_path(directory: &Path) -> PathBuf {
    directory.join(CERTIFICATE_FILE)
}

/// The kept certificate if it is still good, else a new one. `now` is in seconds since 1970.
pub(crate) fn load_or_create(
    directory: &Path,
    domains: &[String],
    now: u64,
) -> Result<ServerCertificate, String> {
    if let Some(kept) = load_existing(directory, domains, now) {
        return Ok(kept);
    }
    create(directory, domains, now).map_err(|reason| {
        format!("cannot make a self-signed certificate in {}: {reason}", directory.display())
    })?;
    ServerCertificate::load(&certificate_path(directory), &directory.join(KEY_FILE))
}

/// The kept certificate if it is still good.
pub(crate) fn load_existing(directory: &Path, domains: &[String], now: u64) -> Option<ServerCertificate> {
    let kept = ServerCertificate::load(&certificate_path(directory), &directory.join(KEY_FILE)).ok()?;
    let named = |domain: &String| {
        kept.domains().any(|name| name == domain || Some(name) == to_ascii_domain(domain).as_deref())
    };
    (domains.iter().all(named) && !needs_renewal(&kept, now)).then_some(kept)
}

/// Whether a self-signed certificate should be made again.
pub(crate) fn needs_renewal(certificate: &ServerCertificate, now: u64) -> bool {
    let (from, until) = (certificate.not_before, certificate.not_after);
    now < from
        || now.saturating_add(RENEWAL_SECONDS) >= until
        || until.saturating_sub(from) > VALIDITY_SECONDS
}

fn create(directory: &Path, domains: &[String], now: u64) -> Result<(), Box<dyn std::error::Error>> {
    let earlier = fs::read_to_string(directory.join(KEY_FILE)).ok();
    let key = match earlier.and_then(|pem| KeyPair::from_pem(&pem).ok()) {
        Some(key) => key,
        None => KeyPair::generate()?,
    };
    let certificate = params(domains, now)?.self_signed(&key)?;
    fs::create_dir_all(directory)?;
    // The key first: a crash in between leaves a pair that does not match, and the next start makes a new one.
    replace_atomically(directory, KEY_FILE, &key.serialize_pem(), 0o600)?;
    replace_atomically(directory, CERTIFICATE_FILE, &certificate.pem(), 0o644)?;
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
    Ok(match to_ascii_domain(domain) {
        Some(name) if name == domain => vec![SanType::DnsName(Ia5String::try_from(name)?)],
        Some(name) => vec![SanType::DnsName(Ia5String::try_from(name)?), address()],
        None => vec![address()],
    })
}

/// A domain as DNS writes it.
fn to_ascii_domain(domain: &str) -> Option<String> {
    idna::domain_to_ascii(domain).ok().filter(|name| !name.is_empty())
}

/// Writes a file that is either the old one or the new one, whole and with its mode, at any moment.
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
