//! Logins to accounts of a provider on streams: RFC 6120, section 6; RFC 7628 (OAUTHBEARER).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{ManualClock, Secret};
use feature_api::feature::{Feature, OptionKind, OptionSpec, OptionValue};
use jid::JidRef;
use sasl::{Credentials, Mechanism, encoding};
use testkit::server::{StreamClient, TestServer, TestServerConfig, TlsClientSettings, run_until_idle};
use throng_core::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use throng_core::account_provider::{
    AccountProvider, PasswordCheck, ProviderCapabilities, ProviderErrorKind, ProviderFuture, ScramParameters,
    TokenCheck,
};

const SASL: &str = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl'";

const fn option(key: &'static str, default: i64) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(0, i64::MAX), default: OptionValue::Int(default), doc: "." }
}

static OPTIONS: &[OptionSpec] =
    &[option("lifetime_hours", 504), option("rotate_hours", 24), option("max_clients_per_account", 3)];
static MODULES: [Feature; 2] = [
    Feature { name: "sasl2", ..Feature::EMPTY },
    Feature { name: "fast_tokens", options: OPTIONS, ..Feature::EMPTY },
];

struct Fixture {
    server: TestServer,
    accounts: Arc<MemoryAccounts>,
}

/// A node whose provider has juliet, with SCRAM keys and a token.
fn fixture(capabilities: ProviderCapabilities) -> Fixture {
    fixture_with(capabilities, TestServerConfig::default())
}

fn fixture_with(capabilities: ProviderCapabilities, setup: TestServerConfig) -> Fixture {
    let accounts = Arc::new(MemoryAccounts::new(capabilities));
    let server = TestServerConfig { account_provider: Some(accounts.clone()), ..setup }.start();
    let keys = Credentials::derive("balc0ny", 64, b"salt of the tests").unwrap();
    accounts.set_scram_parameters(ScramParameters { salt_bytes: 17, iterations: 64 });
    accounts.put(&server.address("juliet"), "balc0ny", Some(keys.encode()));
    accounts.put_token("t0ken", &server.address("juliet"));
    Fixture { server, accounts }
}

impl Fixture {
    async fn connect(&self) -> (StreamClient, Vec<String>) {
        let mut client = self.server.connect();
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        let (_, features) = client.open().await;
        (client, features.all("mechanism"))
    }

    async fn login(&self, mechanism: Mechanism, password: &str) -> Result<(), String> {
        let (mut client, _) = self.connect().await;
        client.authenticate(mechanism, "juliet", password).await
    }
}

#[tokio::test]
async fn only_what_the_provider_can_check_is_offered() {
    let none = ProviderCapabilities::default();
    for (capabilities, expected) in [
        (none, vec![]),
        (ProviderCapabilities { passwords: true, ..none }, vec!["PLAIN"]),
        (ProviderCapabilities { tokens: true, ..none }, vec!["OAUTHBEARER"]),
        (
            ProviderCapabilities { passwords: true, tokens: true, lookup: true, ..none },
            vec!["OAUTHBEARER", "PLAIN"],
        ),
    ] {
        let fixture = fixture(capabilities);
        assert_eq!(fixture.connect().await.1, expected, "{capabilities:?}");
        let (mut client, _) = fixture.connect().await;
        client.send(format!("<auth {SASL} mechanism='SCRAM-SHA-256'>biwsbj1hLHI9Yg==</auth>")).await;
        assert_eq!(client.element().await.condition().as_deref(), Some("invalid-mechanism"));
    }
    let (_, offered) = fixture(ALL_CAPABILITIES).connect().await;
    assert!(offered.iter().any(|name| name == "SCRAM-SHA-256-PLUS"));
}

#[tokio::test]
async fn accounts_in_the_store_have_no_bearer_tokens() {
    let server = TestServerConfig::default().start();
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    let (_, features) = client.open().await;
    assert!(features.has("SCRAM-SHA-256") && !features.has("OAUTHBEARER"));
}

#[tokio::test]
async fn passwords_keys_and_tokens_of_the_provider_log_in_and_bind() {
    let fixture = fixture(ALL_CAPABILITIES);
    for (mechanism, secret) in [
        (Mechanism::Plain, "balc0ny"),
        (Mechanism::ScramSha256, "balc0ny"),
        (Mechanism::ScramSha512Plus, "balc0ny"),
        (Mechanism::OauthBearer, "t0ken"),
    ] {
        let (mut client, _) = fixture.connect().await;
        assert_eq!(client.authenticate(mechanism, "juliet", secret).await, Ok(()), "{mechanism}");
        client.open().await;
        let bound = client.bind(mechanism.name()).await.map_err(|error| error.0.clone());
        assert_eq!(bound, Ok(format!("juliet@example.com/{}", mechanism.name())));
    }
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        assert_eq!(fixture.login(mechanism, "wrong").await, Err("not-authorized".to_owned()), "{mechanism}");
    }
}

#[tokio::test]
async fn the_challenge_does_not_tell_which_accounts_exist() {
    let fixture = fixture(ALL_CAPABILITIES);
    let challenge = async |user: &str| {
        let (mut client, _) = fixture.connect().await;
        client.auth(Mechanism::ScramSha256, format!("n,,n={user},r=abcdef").as_bytes()).await;
        String::from_utf8(encoding::decode_response(&client.element().await.text()).unwrap()).unwrap()
    };
    let (known, missing) = (challenge("juliet").await, challenge("nobody").await);
    let shape = |challenge: &str| {
        let field = |name: &str| challenge.split(',').find_map(|field| field.strip_prefix(name)).unwrap();
        (field("s=").len(), field("i=").to_owned())
    };
    assert_eq!(shape(&known), shape(&missing), "{known} {missing}");
    assert_eq!(shape(&missing).1, "64", "{missing}");
}

#[tokio::test]
async fn a_bearer_token_is_not_exchanged_for_a_login_token() {
    let features = MODULES.iter().collect();
    let fixture =
        fixture_with(ALL_CAPABILITIES, TestServerConfig { features, ..TestServerConfig::default() });
    let bearer = sasl::client::oauth_bearer(None, "t0ken");
    let plain = sasl::client::plain(None, "juliet", "balc0ny");
    for (mechanism, initial, expected) in [("OAUTHBEARER", bearer, false), ("PLAIN", plain, true)] {
        let (mut client, _) = fixture.connect().await;
        let initial = encoding::encode_challenge(&initial);
        client
            .send(format!(
                "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='{mechanism}'><initial-response>{initial}\
                 </initial-response><user-agent id='phone'/>\
                 <request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/></authenticate>"
            ))
            .await;
        let success = client.element().await;
        assert_eq!(success.name(), "success", "{}", success.0);
        assert_eq!(success.0.contains("<token "), expected, "{mechanism}: {}", success.0);
    }
}

// RFC 7628, section 3.2.2.
#[tokio::test]
async fn a_refused_token_gets_an_error_before_the_failure() {
    let fixture = fixture(ALL_CAPABILITIES);
    let (mut client, _) = fixture.connect().await;
    client.auth(Mechanism::OauthBearer, &sasl::client::oauth_bearer(None, "expired")).await;
    let challenge = client.element().await;
    assert_eq!(challenge.name(), "challenge");
    let error = encoding::decode_response(&challenge.text()).unwrap();
    assert_eq!(error, br#"{"status":"invalid_token"}"#);
    client.send(format!("<response {SASL}>AQ==</response>")).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("not-authorized"));
    // The stream permits another attempt.
    client.auth(Mechanism::OauthBearer, &sasl::client::oauth_bearer(None, "t0ken")).await;
    assert_eq!(client.element().await.name(), "success");
}

#[tokio::test]
async fn a_token_of_another_account_than_requested_is_refused() {
    let fixture = fixture(ALL_CAPABILITIES);
    let romeo = fixture.server.address("romeo");
    fixture.accounts.put(&romeo, "0rchard", None);
    let (mut client, _) = fixture.connect().await;
    let message = sasl::client::oauth_bearer(Some(romeo.as_str()), "t0ken");
    client.auth(Mechanism::OauthBearer, &message).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("invalid-authzid"));
}

#[tokio::test]
async fn a_provider_that_fails_is_a_temporary_failure_and_recovers() {
    let fixture = fixture(ALL_CAPABILITIES);
    for kind in [
        ProviderErrorKind::Unavailable,
        ProviderErrorKind::Timeout,
        ProviderErrorKind::Overloaded,
        ProviderErrorKind::InvalidResponse,
    ] {
        fixture.accounts.set_fault(Some(kind));
        for mechanism in [Mechanism::Plain, Mechanism::OauthBearer, Mechanism::ScramSha256] {
            let (mut client, _) = fixture.connect().await;
            let first = match mechanism {
                Mechanism::Plain => sasl::client::plain(None, "juliet", "balc0ny"),
                Mechanism::OauthBearer => sasl::client::oauth_bearer(None, "t0ken"),
                _ => b"n,,n=juliet,r=abcdef".to_vec(),
            };
            client.auth(mechanism, &first).await;
            let condition = client.element().await.condition();
            assert_eq!(condition.as_deref(), Some("temporary-auth-failure"), "{kind:?} {mechanism}");
        }
    }
    fixture.accounts.set_fault(None);
    assert_eq!(fixture.login(Mechanism::Plain, "balc0ny").await, Ok(()));
}

#[tokio::test]
async fn guesses_are_throttled_before_the_provider_is_called() {
    let fixture = fixture(ALL_CAPABILITIES);
    let limit = fixture.server.node.limits().login_failures_per_address_and_account;
    for _ in 0..limit {
        let refused = fixture.login(Mechanism::Plain, "wrong").await;
        assert_eq!(refused, Err("not-authorized".to_owned()));
    }
    let calls = fixture.accounts.calls();
    for password in ["wrong", "balc0ny"] {
        let limited = fixture.login(Mechanism::Plain, password).await;
        assert_eq!(limited, Err("temporary-auth-failure".to_owned()), "{password}");
    }
    assert_eq!(fixture.accounts.calls(), calls);
}

#[tokio::test]
async fn a_valid_token_does_not_lift_the_limits_of_another_account() {
    let mut setup = TestServerConfig::default();
    setup.limits.login_failures_per_account = 3;
    let fixture = fixture_with(ALL_CAPABILITIES, setup);
    let romeo = fixture.server.address("romeo");
    fixture.accounts.put(&romeo, "0rchard", None);
    let guess = async || {
        let (mut client, _) = fixture.connect().await;
        client.authenticate(Mechanism::Plain, "romeo", "guess").await
    };
    for _ in 0..3 {
        assert_eq!(guess().await, Err("not-authorized".to_owned()));
    }
    assert_eq!(guess().await, Err("temporary-auth-failure".to_owned()));
    let (mut client, _) = fixture.connect().await;
    let message = sasl::client::oauth_bearer(Some(romeo.as_str()), "t0ken");
    client.auth(Mechanism::OauthBearer, &message).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("invalid-authzid"));
    assert_eq!(guess().await, Err("temporary-auth-failure".to_owned()), "the token is one of juliet");
}

#[tokio::test]
async fn a_disabled_account_learns_it_after_the_proof_only() {
    let fixture = fixture(ALL_CAPABILITIES);
    fixture.accounts.set_disabled(&fixture.server.address("juliet"), true);
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha1] {
        assert_eq!(fixture.login(mechanism, "balc0ny").await, Err("account-disabled".to_owned()));
        assert_eq!(fixture.login(mechanism, "wrong").await, Err("not-authorized".to_owned()));
    }
}

/// A provider that never answers.
#[derive(Default)]
struct SilentAccounts(AtomicUsize);

impl SilentAccounts {
    fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn call<T: Send + 'static>(&self) -> ProviderFuture<'_, T> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

impl AccountProvider for SilentAccounts {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities { passwords: true, tokens: true, ..ProviderCapabilities::default() }
    }

    fn check_password(&self, _account: JidRef<'_>, _password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        self.call()
    }

    fn check_token(&self, _domain: &str, _token: Secret) -> ProviderFuture<'_, TokenCheck> {
        self.call()
    }
}

fn silent_server() -> (TestServer, Arc<SilentAccounts>) {
    let accounts = Arc::new(SilentAccounts::default());
    let mut setup =
        TestServerConfig { account_provider: Some(accounts.clone()), ..TestServerConfig::default() };
    setup.policy.allow_plain_without_tls = true;
    setup.limits.login_failures_per_address_and_account = 5;
    setup.limits.login_failures_per_address = 12;
    setup.limits.login_accounts_per_address = 6;
    setup.limits.login_failures_per_account = 9;
    (setup.start(), accounts)
}

async fn guess(server: &TestServer, peer: &str, user: &str) -> StreamClient {
    let mut client = server.connect_from(peer);
    client.open().await;
    client.auth(Mechanism::Plain, &sasl::client::plain(None, user, "guess")).await;
    client
}

#[tokio::test]
async fn only_as_many_parallel_guesses_as_the_limit_reach_the_provider() {
    let (server, accounts) = silent_server();
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(guess(&server, "192.0.2.1", "juliet").await);
    }
    run_until_idle().await;
    assert_eq!(accounts.calls(), 5, "address and account");
    // Those that have reached the provider are in progress although their clients are gone.
    drop(clients);
    run_until_idle().await;
    let _next = guess(&server, "192.0.2.1", "juliet").await;
    run_until_idle().await;
    assert_eq!(accounts.calls(), 5, "after the clients are gone");

    let (server, accounts) = silent_server();
    let mut clients = Vec::new();
    for n in 0..50 {
        clients.push(guess(&server, &format!("192.0.2.{n}"), "juliet").await);
    }
    run_until_idle().await;
    assert_eq!(accounts.calls(), 9, "account");

    let (server, accounts) = silent_server();
    for n in 0..50 {
        clients.push(guess(&server, "192.0.2.1", &format!("user{}", n % 4)).await);
    }
    run_until_idle().await;
    assert_eq!(accounts.calls(), 12, "address");

    let (server, accounts) = silent_server();
    for n in 0..50 {
        clients.push(guess(&server, "192.0.2.1", &format!("user{n}")).await);
    }
    run_until_idle().await;
    assert!((5..=9).contains(&accounts.calls()), "{} accounts of an address", accounts.calls());
}

#[tokio::test]
async fn only_as_many_parallel_bearer_tokens_as_the_limit_reach_the_provider() {
    let (server, accounts) = silent_server();
    let juliet = server.address("juliet");
    let mut clients = Vec::new();
    for n in 0..50 {
        let mut client = server.connect_from("192.0.2.1");
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        client.open().await;
        let message = sasl::client::oauth_bearer(Some(juliet.as_str()), &format!("t0ken{n}"));
        client.auth(Mechanism::OauthBearer, &message).await;
        clients.push(client);
    }
    run_until_idle().await;
    assert_eq!(accounts.calls(), 5);
}

#[tokio::test]
async fn only_a_proved_login_creates_an_address() {
    for separate in [false, true] {
        let auth = separate.then(|| store::memory::stores(Arc::new(ManualClock::new())));
        for provided in [false, true] {
            let mut setup = TestServerConfig { auth: auth.clone(), ..TestServerConfig::default() };
            setup.policy.allow_plain_without_tls = true;
            let (server, accounts) = match provided {
                true => {
                    let Fixture { server, accounts } = fixture_with(ALL_CAPABILITIES, setup);
                    (server, Some(accounts))
                }
                false => (setup.start(), None),
            };
            if !provided && let Some(auth) = &auth {
                // As if the owner had added them to the database of [auth].
                let keys = Credentials::derive("balc0ny", 64, b"salt of the tests").unwrap().encode();
                for n in (0..1000).step_by(2) {
                    auth.accounts.create(&server.address(&format!("user{n}")), &keys).await.unwrap();
                }
                auth.accounts.create(&server.address("juliet"), &keys).await.unwrap();
            }
            if let Some(accounts) = &accounts {
                for n in (0..1000).step_by(2) {
                    accounts.put(&server.address(&format!("user{n}")), "0rchard", None);
                }
            }
            let attempt = async |user: &str, mechanism, password: &str| {
                let mut client = server.connect();
                client.open().await;
                client.authenticate(mechanism, user, password).await.map(|()| client)
            };
            for n in 0..1000 {
                let mechanism = if n % 4 < 2 { Mechanism::Plain } else { Mechanism::ScramSha1 };
                let refused = attempt(&format!("user{n}"), mechanism, "wrong").await.map(drop);
                assert_eq!(refused, Err("not-authorized".to_owned()), "user{n}");
            }
            for n in 0..1000 {
                let address = server.address(&format!("user{n}"));
                let found = server.stores.addresses.find(&address).await.unwrap();
                assert_eq!(found, None, "separate: {separate}, provided: {provided}, {address}");
            }
            if separate || provided {
                let mut client = attempt("juliet", Mechanism::Plain, "balc0ny").await.unwrap();
                client.open().await;
                client.bind("balcony").await.map_err(|error| error.0.clone()).unwrap();
                let juliet = server.address("juliet");
                assert!(server.stores.addresses.find(&juliet).await.unwrap().is_some());
            }
        }
    }
}
