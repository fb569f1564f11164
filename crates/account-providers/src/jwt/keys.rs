//! Keys that verify tokens: from a file, or from a JWK set (RFC 7517, section 5) at a URL, which is read again when a token
//! names an unknown key and from time to time.
//!
//! # Pitfalls
//!
//! Anybody can make a token with an unknown key. The set is read again at most once within [`MIN_REFRESH`], or such tokens
//! would be requests to the identity provider. While a request is under way, and for a time after one has failed, tokens are
//! verified with the keys that are known: an identity provider that hangs must delay neither the logins of known keys nor
//! every login for the whole deadline.
//!
//! A set at a URL is public, so a secret in it is known to everybody and is not used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Millis;
use base::clock::Clock;
use base::lock::LeafMutex;
use environment::account_provider::{ProviderError, ProviderErrorKind};
use http::StatusCode;
use rustls::ClientConfig;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::signature::VerificationKey;
use crate::http_client::{HttpUrl, ServiceClient};
use crate::limiter::{RequestLimiter, RequestLimits};
use crate::secret_file::read_secret_file;

/// Shortest time between two requests for the keys, if the former has succeeded or keys are known.
pub const MIN_REFRESH: Duration = Duration::from_secs(30);
/// Time after which the keys are read again: a removed key must not verify for long.
pub const REFRESH: Duration = Duration::from_secs(3_600);
/// Time for which keys are used although they cannot be read again.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 3_600);
/// Time after a failed request without any known key.
pub const RETRY: Duration = Duration::from_secs(1);
/// Most keys of a set.
const MAX_KEYS: usize = 100;

/// Where keys come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySourceSettings {
    /// A PEM file with `PUBLIC KEY` sections, a JWK or a JWK set.
    File(PathBuf),
    /// A file with the secret of HMAC.
    SecretFile(PathBuf),
    /// The URL of a JWK set.
    Url(HttpUrl),
}

/// Source of keys.
pub enum KeySource {
    /// Read at the start and at a reload.
    Fixed(Arc<[VerificationKey]>),
    /// Read when needed.
    Remote(Box<RemoteKeys>),
}

/// Keys at a URL.
pub struct RemoteKeys {
    client: ServiceClient,
    limiter: RequestLimiter,
    clock: Arc<dyn Clock>,
    /// One request at a time; others wait for its result.
    refresh: Semaphore,
    state: LeafMutex<RemoteState>,
}

#[derive(Clone, Default)]
struct RemoteState {
    /// Keys, and when they were read.
    keys: Option<(Arc<[VerificationKey]>, Millis)>,
    /// The last request failed with this error; the next one may be made at that time.
    failed: Option<(ProviderError, Millis)>,
}

impl KeySource {
    /// Opens a source; reads the keys if they are in a file.
    ///
    /// # Errors
    /// One sentence, if the file cannot be used.
    pub fn open(
        settings: &KeySourceSettings,
        tls: Option<Arc<ClientConfig>>,
        limits: RequestLimits,
        clock: Arc<dyn Clock>,
    ) -> Result<KeySource, String> {
        match settings {
            KeySourceSettings::File(path) => parse_key_file(&read(path)?)
                .map(|keys| KeySource::Fixed(keys.into()))
                .map_err(|error| format!("{}: {error}", path.display())),
            KeySourceSettings::SecretFile(path) => {
                let secret = read_secret_file(path)?;
                // A public key is known to everybody (RFC 8725, section 2.1).
                if secret.expose().trim_ascii_start().starts_with(b"-----BEGIN") {
                    return Err(format!(
                        "{} contains a PEM file, not a secret; set key_file",
                        path.display()
                    ));
                }
                let key = VerificationKey::hmac(secret.expose());
                key.map(|key| KeySource::Fixed([key].into()))
                    .map_err(|error| format!("{}: {error}", path.display()))
            }
            KeySourceSettings::Url(url) => Ok(KeySource::Remote(Box::new(RemoteKeys {
                client: ServiceClient::new(url.clone(), tls, None),
                limiter: RequestLimiter::new(limits),
                clock,
                refresh: Semaphore::new(1),
                state: LeafMutex::default(),
            }))),
        }
    }

    /// Keys for a token that names `key_id`. It may be none of them.
    ///
    /// # Errors
    /// If no keys were read yet, and they cannot be read.
    pub async fn keys(&self, key_id: Option<&str>) -> Result<Arc<[VerificationKey]>, ProviderError> {
        match self {
            KeySource::Fixed(keys) => Ok(keys.clone()),
            KeySource::Remote(remote) => remote.keys(key_id).await,
        }
    }
}

impl RemoteKeys {
    async fn keys(&self, key_id: Option<&str>) -> Result<Arc<[VerificationKey]>, ProviderError> {
        if let Some(current) = self.current(key_id) {
            return current;
        }
        let error = match self.limiter.run("the source of keys", "", self.refresh(key_id)).await {
            Ok(keys) => return Ok(keys),
            Err(error) => error,
        };
        let now = self.clock.now();
        let mut state = self.state.lock();
        let usable = usable(&state, now);
        let pause = if usable.is_some() { MIN_REFRESH } else { RETRY };
        // A call that waited too long in the queue says nothing about the source.
        if error.kind != ProviderErrorKind::Overloaded {
            state.failed = Some((error.clone(), now + pause));
        }
        drop(state);
        let Some(keys) = usable else { return Err(error) };
        tracing::warn!(%error, "the keys of tokens cannot be read again; those known are used");
        Ok(keys)
    }

    async fn refresh(&self, key_id: Option<&str>) -> Result<Arc<[VerificationKey]>, ProviderError> {
        let closed =
            |_| ProviderError::new(ProviderErrorKind::Unavailable, "the source of keys is being closed");
        let _permit = self.refresh.acquire().await.map_err(closed)?;
        // Another call may have read them in the meantime.
        if let Some(current) = self.settled(key_id) {
            return current;
        }
        let keys = self.read().await?;
        *self.state.lock() = RemoteState { keys: Some((keys.clone(), self.clock.now())), failed: None };
        Ok(keys)
    }

    /// The result for this token without a request, or without waiting for one that is under way.
    fn current(&self, key_id: Option<&str>) -> Option<Result<Arc<[VerificationKey]>, ProviderError>> {
        let settled = self.settled(key_id);
        if settled.is_some() || self.refresh.available_permits() > 0 {
            return settled;
        }
        let keys = usable(&self.state.lock(), self.clock.now())?;
        names_key(&keys, key_id).then_some(Ok(keys))
    }

    /// The result for this token, if the keys need not or must not be read again.
    fn settled(&self, key_id: Option<&str>) -> Option<Result<Arc<[VerificationKey]>, ProviderError>> {
        let state = self.state.lock().clone();
        let now = self.clock.now();
        if let Some((keys, read_at)) = &state.keys {
            let fresh = if names_key(keys, key_id) { REFRESH } else { MIN_REFRESH };
            if now < *read_at + fresh {
                return Some(Ok(keys.clone()));
            }
        }
        let (error, _) = state.failed.clone().filter(|(_, next)| now < *next)?;
        Some(usable(&state, now).ok_or(error))
    }

    async fn read(&self) -> Result<Arc<[VerificationKey]>, ProviderError> {
        let response = self.client.get().await?;
        let invalid = |what: String| {
            ProviderError::new(ProviderErrorKind::InvalidResponse, format!("{}: {what}", self.client.url()))
        };
        if response.status != StatusCode::OK {
            return Err(invalid(format!("the status is {}", response.status)));
        }
        let keys = parse_jwk_set(&response.body).map_err(invalid)?;
        let public: Vec<_> = keys.into_iter().filter(|key| !key.is_secret()).collect();
        if public.is_empty() {
            return Err(invalid("it contains secrets only, and a set at a URL is public".to_owned()));
        }
        Ok(public.into())
    }
}

/// Keys that are known and not too old.
fn usable(state: &RemoteState, now: Millis) -> Option<Arc<[VerificationKey]>> {
    let (keys, read_at) = state.keys.as_ref()?;
    (now < *read_at + MAX_AGE).then(|| keys.clone())
}

/// Whether one of the keys may be the one that a token names.
fn names_key(keys: &[VerificationKey], key_id: Option<&str>) -> bool {
    key_id.is_none_or(|id| keys.iter().any(|key| key.id.as_deref().is_none_or(|own| own == id)))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn parse_key_file(file: &[u8]) -> Result<Vec<VerificationKey>, String> {
    if file.trim_ascii_start().starts_with(b"{") {
        return parse_jwk_set(file);
    }
    let mut keys = Vec::new();
    for der in SubjectPublicKeyInfoDer::pem_slice_iter(file) {
        let der = der.map_err(|error| format!("it is not a PEM file: {error}"))?;
        let key = VerificationKey::from_public_key_info(&der)
            .ok_or("a public key is of a kind that is not supported; use RSA, P-256, P-384 or Ed25519")?;
        keys.push(key);
    }
    if keys.is_empty() {
        return Err("it contains neither a PUBLIC KEY in PEM form nor a JWK set".to_owned());
    }
    Ok(keys)
}

/// Reads a JWK set or a single JWK. RFC 7517, section 5: keys of unknown kinds are ignored.
fn parse_jwk_set(document: &[u8]) -> Result<Vec<VerificationKey>, String> {
    let Ok(Value::Object(document)) = serde_json::from_slice(document) else {
        return Err("it is not a JSON object".to_owned());
    };
    let keys: Vec<VerificationKey> = match document.get("keys") {
        Some(Value::Array(keys)) => keys
            .iter()
            .filter_map(Value::as_object)
            .filter_map(VerificationKey::from_jwk)
            .take(MAX_KEYS)
            .collect(),
        Some(_) => return Err("keys is not an array".to_owned()),
        None => VerificationKey::from_jwk(&document).into_iter().collect(),
    };
    if keys.is_empty() { Err("it contains no key that is supported".to_owned()) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_of_every_form_are_read() {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let pem = pair.public_key_pem();
        assert_eq!(parse_key_file(pem.as_bytes()).unwrap().len(), 1);
        assert_eq!(parse_key_file(format!("{pem}\n{pem}").as_bytes()).unwrap().len(), 2);
        let jwk =
            r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}"#;
        assert_eq!(parse_key_file(jwk.as_bytes()).unwrap()[0].id.as_deref(), Some("a"));
        let set = format!("\n {{\"keys\":[{jwk},{{\"kty\":\"new\"}},7]}}");
        assert_eq!(parse_key_file(set.as_bytes()).unwrap().len(), 1);
        for wrong in [
            "",
            "secret",
            "{}",
            "{\"keys\":[]}",
            "{\"keys\":7}",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(parse_key_file(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
