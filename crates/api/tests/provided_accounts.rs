//! Sign-in to the console with an account that a provider keeps.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use access::login_throttle::login_throttle;
use base::Secret;
use base::lock::LeafMutex;
use common::{ApiFixture, CLIENT_ADDRESS, api_request, signed_in_user};
use jid::{Jid, JidRef};
use throng_commands::account_admin;
use throng_core::Host;
use throng_core::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use throng_core::account_provider::{
    AccountProvider, MAX_VERSION_BYTES, PasswordCheck, ProvidedAccount, ProviderCapabilities,
    ProviderErrorKind, ProviderFuture, SharedAccountProvider,
};
use tokio::sync::Semaphore;

const DIRECTOR: &str = "director@example.net";

/// All accounts have one password, of which no version is known by default.
struct OnePassword {
    password: LeafMutex<String>,
    version: Option<Vec<u8>>,
    /// Checks of this password wait for a permit.
    held: Option<&'static str>,
    permits: Semaphore,
}

impl OnePassword {
    fn account(&self) -> ProvidedAccount {
        ProvidedAccount { version: self.version.clone(), ..ProvidedAccount::default() }
    }
}

impl AccountProvider for OnePassword {
    fn name(&self) -> &'static str {
        "a test"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        let known = self.version.is_some();
        ProviderCapabilities {
            passwords: true,
            set_password: true,
            lookup: known,
            versions: known,
            ..ProviderCapabilities::default()
        }
    }

    fn find(&self, _account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        Box::pin(async { Ok(Some(self.account())) })
    }

    fn check_password(&self, _account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        Box::pin(async move {
            if self.held.is_some_and(|held| password.expose() == held.as_bytes()) {
                drop(self.permits.acquire().await);
            }
            Ok(match password.expose() == self.password.lock().as_bytes() {
                true => PasswordCheck::Valid(self.account()),
                false => PasswordCheck::Invalid,
            })
        })
    }

    fn set_password(&self, _account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        *self.password.lock() = password.expose_str().unwrap().to_owned();
        Box::pin(async { Ok(()) })
    }
}

fn one_password(version: Option<Vec<u8>>, held: Option<&'static str>) -> Arc<OnePassword> {
    let (password, permits) = (LeafMutex::new("0rchard".to_owned()), Semaphore::new(0));
    Arc::new(OnePassword { password, version, held, permits })
}

/// An API whose provider has one password.
async fn fixture(held: Option<&'static str>) -> (ApiFixture, Arc<OnePassword>) {
    let provider = one_password(None, held);
    (with_provider(provider.clone()).await, provider)
}

/// An API whose provider keeps the accounts of example.net, one of them an administrator's.
async fn with_provider(provider: Arc<dyn AccountProvider>) -> ApiFixture {
    let fixture = ApiFixture::new(&[]).await;
    let node = &fixture.engine.node;
    let known = node.host("example.net").unwrap();
    let mut host = Host::new(known.jid.clone(), known.domain_counters.clone());
    host.extensions.provide("auth", SharedAccountProvider(provider)).unwrap();
    let hosts = node.hosts().into_iter().filter(|other| other.domain() != "example.net");
    node.set_hosts(hosts.chain([Arc::new(host)]).map(|host| (host.domain().to_owned(), host)).collect());
    node.set_admins([Jid::parse(common::ADMIN).unwrap(), Jid::parse(DIRECTOR).unwrap()]);
    fixture
}

/// Starts a call that does not end yet.
async fn begin<F: Future + ?Sized>(call: &mut Pin<Box<F>>) {
    poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn a_session_ends_with_a_password_of_which_no_version_is_known() {
    let (fixture, _) = fixture(None).await;
    let user = signed_in_user(&fixture.try_sign_in(DIRECTOR, "0rchard").await);
    let about = || api_request("GET /api/v1/session").signed_in_as(&user);
    fixture.engine.clock.advance(15_000);
    assert_eq!(about().send_to(&fixture).await.status, 200);
    let director = Jid::parse(DIRECTOR).unwrap();
    account_admin::change_password(&fixture.engine.node, director.as_ref(), "m0nument".into()).await.unwrap();
    fixture.engine.clock.advance(15_000);
    assert_eq!(about().send_to(&fixture).await.status, 401);
}

#[tokio::test]
async fn a_session_goes_on_if_versions_are_empty_or_longer_than_what_is_stored() {
    for version in [Vec::new(), vec![1; MAX_VERSION_BYTES + 1]] {
        let length = version.len();
        let fixture = with_provider(one_password(Some(version), None)).await;
        let user = signed_in_user(&fixture.try_sign_in(DIRECTOR, "0rchard").await);
        fixture.engine.clock.advance(15_000);
        let about = api_request("GET /api/v1/session").signed_in_as(&user).send_to(&fixture).await;
        assert_eq!(about.status, 200, "version of {length} bytes");
    }
}

#[tokio::test]
async fn a_session_ends_when_the_provider_removes_disables_or_changes_its_account() {
    let accounts = Arc::new(MemoryAccounts::new(ALL_CAPABILITIES));
    let fixture = with_provider(accounts.clone()).await;
    let director = Jid::parse(DIRECTOR).unwrap();
    let changes: [(&dyn Fn(), u16); 5] = [
        (&|| (), 200),
        (&|| accounts.set_fault(Some(ProviderErrorKind::Timeout)), 200),
        (&|| accounts.forget(&director), 401),
        (&|| accounts.set_disabled(&director, true), 401),
        (&|| accounts.put(&director, "m0nument", None), 401),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        accounts.set_fault(None);
        accounts.put(&director, "0rchard", None);
        let user = signed_in_user(&fixture.try_sign_in(DIRECTOR, "0rchard").await);
        change();
        fixture.engine.clock.advance(15_000);
        let about = api_request("GET /api/v1/session").signed_in_as(&user).send_to(&fixture).await;
        assert_eq!(about.status, expected, "{number}");
    }
}

#[tokio::test]
async fn a_provider_that_hangs_excludes_no_administrator_of_another_domain() {
    let (fixture, _provider) = fixture(Some("x")).await;
    let names: Vec<String> = (0..20).map(|n| format!("user{n}@example.net")).collect();
    let mut hanging: Vec<_> = names.iter().map(|name| Box::pin(fixture.try_sign_in(name, "x"))).collect();
    for call in &mut hanging {
        begin(call).await;
    }
    fixture.sign_in().await;
}

#[tokio::test]
async fn a_right_password_beyond_the_limit_touches_no_record() {
    let (fixture, provider) = fixture(Some("0rchard")).await;
    let mut right = Box::pin(fixture.try_sign_in(DIRECTOR, "0rchard"));
    begin(&mut right).await;
    // Proofs of SCRAM count when they arrive, also while a password is checked.
    let node = &fixture.engine.node;
    let (limits, throttle) = (node.limits(), login_throttle(node));
    let keys = throttle.keys(CLIENT_ADDRESS, DIRECTOR, false);
    for _ in 0..limits.login_failures_per_address_and_account {
        throttle.check_and_record(&limits, node.seconds(), &keys, false).unwrap();
    }
    provider.permits.add_permits(1);
    assert_eq!(right.await.status, 429);
    let director = Jid::parse(DIRECTOR).unwrap();
    assert_eq!(fixture.engine.stores.logins.secrets(director.as_ref()).await.unwrap(), None);
}
