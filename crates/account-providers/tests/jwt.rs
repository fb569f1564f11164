//! The JWT provider: the conformance suite with keys of a file and with a JWK set, and when the set is read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod support;

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use account_providers::HttpUrl;
use account_providers::jwt::keys::{MAX_AGE, MIN_REFRESH, REFRESH, RETRY};
use account_providers::jwt::signature::VerificationKey;
use account_providers::jwt::{ClaimRules, JwtAccounts, JwtSettings, KeySource, KeySourceSettings};
use account_providers::limiter::RequestLimits;
use base::clock::Clock;
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use base::{ManualClock, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use environment::account_provider::conformance::{
    DOMAIN, ProviderCase, ProviderFixture, ProviderSource, SourceFault,
};
use environment::account_provider::{AccountProvider, PasswordCheck, ProviderErrorKind, TokenCheck};
use jid::Jid;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;
use support::{FaultyServer, Protocol, block_on};
use throng_account_providers as account_providers;

/// Serves a JWK set.
#[derive(Default)]
struct KeyServer {
    document: LeafMutex<String>,
}

impl Protocol for KeyServer {
    fn read(&self, stream: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        Ok(request)
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        assert!(request.starts_with(b"GET /keys HTTP/1.1\r\n"));
        let body = self.document.lock().clone();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

fn key_pair(id: &str) -> Ed25519KeyPair {
    let seed = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).unwrap()
}

fn key_set(ids: &[&str]) -> String {
    let key = |id: &&str| {
        let public = URL_SAFE_NO_PAD.encode(key_pair(id).public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": public })
    };
    json!({ "keys": ids.iter().map(key).collect::<Vec<_>>() }).to_string()
}

struct Issuer {
    clock: Arc<ManualClock>,
    keys: Arc<KeyServer>,
    server: FaultyServer,
    provider: Arc<JwtAccounts>,
}

impl Issuer {
    fn new(as_password: bool) -> Issuer {
        let clock = Arc::new(ManualClock::new());
        let keys = Arc::new(KeyServer::default());
        *keys.document.lock() = key_set(&["a"]);
        let server = FaultyServer::start(keys.clone());
        let url = HttpUrl::parse(&format!("http://{}/keys", server.address)).unwrap();
        let limits = RequestLimits { deadline: Duration::from_millis(700), ..RequestLimits::default() };
        let source = KeySource::open(&KeySourceSettings::Url(url), None, limits, clock.clone()).unwrap();
        let settings = JwtSettings { claims: ClaimRules::default(), as_password };
        let provider = Arc::new(JwtAccounts::new(settings, source, clock.clone()));
        Issuer { clock, keys, server, provider }
    }

    fn token(&self, user: &str, key: &str) -> String {
        let now = self.clock.unix_millis() / 1000;
        let header = json!({ "alg": "EdDSA", "kid": key }).to_string();
        let claims = json!({ "sub": user, "aud": DOMAIN, "exp": now + 10 * 24 * 3_600 }).to_string();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let tag = key_pair(key).sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    async fn check(&self, token: &str) -> Result<TokenCheck, ProviderErrorKind> {
        self.provider.check_token(DOMAIN, Secret::from(token)).await.map_err(|error| error.kind)
    }

    fn later(&self, time: Duration) {
        self.clock.advance(u64::try_from(time.as_millis()).unwrap());
    }
}

impl ProviderSource for Issuer {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.provider.clone()
    }

    fn put(&self, _account: &Jid, _password: &str) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn token(&self, account: &Jid) -> BoxFuture<'_, Option<String>> {
        let token = Issuer::token(self, account.as_str(), "a");
        Box::pin(async { Some(token) })
    }

    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool> {
        self.server.set_fault(fault);
        self.later(RETRY);
        Box::pin(async { true })
    }

    fn expire_caches(&self) -> BoxFuture<'_, ()> {
        self.later(MAX_AGE);
        Box::pin(async {})
    }
}

struct TokensOnly;

impl ProviderFixture for TokensOnly {
    fn run(case: ProviderCase) {
        block_on(async { case(Arc::new(Issuer::new(false))).await });
    }
}

mod tokens_only {
    environment::account_provider_conformance!(crate::TokensOnly);
}

#[tokio::test]
async fn a_token_is_a_password_of_its_own_account_where_that_is_enabled() {
    let issuer = Issuer::new(true);
    let token = issuer.token("romeo", "a");
    let check = async |address: &str, password: &str| {
        let jid = Jid::parse(address).unwrap();
        issuer.provider.check_password(jid.as_ref(), Secret::from(password)).await.unwrap()
            != PasswordCheck::Invalid
    };
    assert!(check("romeo@example.net", &token).await);
    assert!(!check("juliet@example.net", &token).await);
    assert!(!check("romeo@other.example", &token).await);
    assert!(!check("romeo@example.net", "0rchard").await);
    assert_eq!(issuer.server.answered(), 1, "a password that is no token causes no request");
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_but_not_more_often_than_the_limit() {
    let issuer = Issuer::new(false);
    assert!(matches!(issuer.check(&issuer.token("romeo", "a")).await, Ok(TokenCheck::Valid(..))));
    for n in 0..20 {
        assert_eq!(
            issuer.check(&issuer.token("romeo", &format!("forged{n}"))).await,
            Ok(TokenCheck::Invalid)
        );
    }
    assert_eq!(issuer.server.answered(), 1);
    *issuer.keys.document.lock() = key_set(&["a", "b"]);
    issuer.later(MIN_REFRESH);
    assert!(matches!(issuer.check(&issuer.token("romeo", "b")).await, Ok(TokenCheck::Valid(..))));
    assert_eq!(issuer.server.answered(), 2);
}

#[tokio::test]
async fn a_removed_key_is_forgotten_and_known_keys_survive_a_failure() {
    let issuer = Issuer::new(false);
    let token = issuer.token("romeo", "a");
    assert!(matches!(issuer.check(&token).await, Ok(TokenCheck::Valid(..))));
    issuer.server.set_fault(Some(SourceFault::Dead));
    issuer.later(REFRESH);
    assert!(matches!(issuer.check(&token).await, Ok(TokenCheck::Valid(..))), "the keys are known");
    issuer.later(MAX_AGE);
    assert_eq!(issuer.check(&token).await, Err(ProviderErrorKind::Unavailable), "but not permanently");
    issuer.server.set_fault(None);
    issuer.later(RETRY);
    *issuer.keys.document.lock() = key_set(&["b"]);
    assert_eq!(issuer.check(&token).await, Ok(TokenCheck::Invalid));
}

#[tokio::test]
async fn an_identity_provider_that_hangs_delays_one_login_only() {
    let issuer = Arc::new(Issuer::new(false));
    let token = issuer.token("romeo", "a");
    assert!(matches!(issuer.check(&token).await, Ok(TokenCheck::Valid(..))));
    issuer.server.set_fault(Some(SourceFault::Silent));
    issuer.later(REFRESH);
    let accepted = issuer.server.accepted();
    let (first, others) = tokio::join!(issuer.check(&token), async {
        // After the first one has begun its request.
        tokio::task::yield_now().await;
        let mut valid = 0;
        for n in 0..50 {
            let forged = issuer.token("romeo", &format!("forged{n}"));
            let attempt = tokio::time::timeout(Duration::from_millis(1), issuer.check(&forged)).await;
            assert!(!matches!(attempt, Ok(Ok(TokenCheck::Valid(..)))));
            let known = tokio::time::timeout(Duration::from_millis(100), issuer.check(&token)).await;
            valid += usize::from(matches!(known, Ok(Ok(TokenCheck::Valid(..)))));
        }
        valid
    });
    assert!(matches!(first, Ok(TokenCheck::Valid(..))), "with the known keys: {first:?}");
    assert_eq!(others, 50, "none waits for the request");
    assert!(issuer.server.accepted() <= accepted + 1, "forged tokens cause no requests");
}

#[tokio::test]
async fn secrets_of_a_public_key_set_are_not_used() {
    let issuer = Issuer::new(false);
    let key = json!({ "kty": "oct", "kid": "a", "k": URL_SAFE_NO_PAD.encode([7; 64]) });
    *issuer.keys.document.lock() = json!({ "keys": [key] }).to_string();
    assert_eq!(issuer.check(&issuer.token("romeo", "a")).await, Err(ProviderErrorKind::InvalidResponse));
}

#[test]
fn a_key_of_a_file_is_read_at_the_start() {
    let folder = std::env::temp_dir().join(format!("throng-jwt-{}", base::id::random_id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("secret");
    let open = |content: &str| {
        std::fs::write(&path, content).unwrap();
        let settings = KeySourceSettings::SecretFile(path.clone());
        KeySource::open(&settings, None, RequestLimits::default(), Arc::new(ManualClock::new()))
    };
    assert!(open(&format!("{}\n", "k".repeat(32))).is_ok());
    assert!(open("short\n").err().unwrap().contains("at least 32 bytes"));
    let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
    assert!(open(public).err().unwrap().contains("set key_file"), "everybody knows a public key");
    assert!(VerificationKey::hmac(&[1; 31]).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}
