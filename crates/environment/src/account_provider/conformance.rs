//! Conformance suite that every account provider must pass.
//!
//! ```ignore
//! struct Fixture;
//! impl conformance::ProviderFixture for Fixture { .. }
//! environment::account_provider_conformance!(crate::Fixture);
//! ```
//! generates one `#[test]` per case. A case gets a fresh source of accounts, which the test controls, and the provider that
//! reads it. Operations that a provider does not have must be refused; everything else follows the documentation of
//! [`AccountProvider`].
//!
//! # Pitfalls
//!
//! A case is a plain `async fn` and must not depend on a runtime: each provider brings its own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "these are tests, in a library only so that several crates can run them"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::Secret;
use base::spawn::{BoxFuture, join_all};
use jid::Jid;

use super::{AccountProvider, PasswordCheck, ProviderErrorKind, TokenCheck};

/// The domain of all accounts of the suite.
pub const DOMAIN: &str = "example.net";

/// A fault of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceFault {
    /// Connections are refused.
    Dead,
    /// Connections are accepted and never answered.
    Silent,
    /// Answers are not of the protocol.
    Garbage,
    /// Connections are closed in the middle of an answer.
    Cut,
}

impl SourceFault {
    pub const ALL: [SourceFault; 4] =
        [SourceFault::Dead, SourceFault::Silent, SourceFault::Garbage, SourceFault::Cut];
}

/// The source of accounts of a case.
pub trait ProviderSource: Send + Sync {
    /// The provider under test. Its deadline is at most a second.
    fn provider(&self) -> Arc<dyn AccountProvider>;
    /// Adds an account, or replaces its password.
    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()>;
    /// Switches a fault on or off. False if the source cannot have it.
    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool>;
    /// Disables an account; false if the source has no such state.
    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        let _ = account;
        Box::pin(async { false })
    }

    /// A valid token of the account, if the source issues tokens.
    fn token(&self, account: &Jid) -> BoxFuture<'_, Option<String>> {
        let _ = account;
        Box::pin(async { None })
    }

    /// Waits until results that the provider caches have expired.
    fn expire_caches(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Creates sources and runs cases.
pub trait ProviderFixture {
    /// Creates a fresh source, runs the case to completion and cleans up.
    fn run(case: ProviderCase);
}

/// A case that can run on any provider.
pub type ProviderCase = Box<dyn FnOnce(Arc<dyn ProviderSource>) -> BoxFuture<'static, ()> + Send>;

/// The output of a future that is always ready, like those of the provider in memory.
///
/// # Panics
/// If it waits.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a future that must be ready waits"),
    }
}

macro_rules! provider_cases {
    ($($case:ident),+ $(,)?) => { provider_cases! { @($) $($case),+ } };
    (@($d:tt) $($case:ident),+) => {
        pub mod cases {
            $(
                pub fn $case(
                    source: std::sync::Arc<dyn super::ProviderSource>,
                ) -> base::spawn::BoxFuture<'static, ()> {
                    Box::pin(super::$case(source))
                }
            )+
        }

        /// Generates one `#[test]` per case for a [`ProviderFixture`](crate::account_provider::conformance::ProviderFixture).
        #[macro_export]
        macro_rules! account_provider_conformance {
            ($d fixture:ty) => {
                mod account_provider {
                    $(
                        #[test]
                        fn $case() {
                            <$d fixture as $crate::account_provider::conformance::ProviderFixture>::run(Box::new(
                                $crate::account_provider::conformance::cases::$case,
                            ));
                        }
                    )+
                }
            };
        }
    };
}

provider_cases! {
    the_right_password_is_valid_and_others_are_not,
    an_account_that_does_not_exist_has_no_password,
    an_empty_password_is_never_valid,
    names_with_special_characters_find_only_their_own_account,
    passwords_with_special_characters_are_compared_as_they_are,
    a_resource_does_not_matter,
    a_disabled_account_is_reported,
    a_changed_password_replaces_the_earlier_one,
    the_version_changes_with_the_password_only,
    a_token_names_its_account,
    a_token_is_valid_in_its_domain_only,
    altered_tokens_are_invalid,
    an_account_is_created_once,
    the_password_of_an_account_can_be_set,
    a_removed_account_is_gone,
    a_fault_never_authenticates_and_ends_with_its_cause,
    concurrent_calls_get_their_own_results,
    calls_may_be_dropped,
}

fn address(name: &str) -> Jid {
    Jid::from_parts(Some(name), DOMAIN, None).unwrap()
}

async fn check(provider: &dyn AccountProvider, account: &Jid, password: &str) -> bool {
    let checked = provider.check_password(account.as_ref(), Secret::from(password)).await.unwrap();
    matches!(checked, PasswordCheck::Valid(_))
}

/// The provider, if it checks passwords; those that do not must refuse.
async fn with_passwords(source: &Arc<dyn ProviderSource>) -> Option<Arc<dyn AccountProvider>> {
    let provider = source.provider();
    if provider.capabilities().passwords {
        return Some(provider);
    }
    let refused = provider.check_password(address("romeo").as_ref(), Secret::from("x")).await;
    assert_eq!(refused.unwrap_err().kind, ProviderErrorKind::NotSupported);
    None
}

async fn the_right_password_is_valid_and_others_are_not(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let (romeo, juliet) = (address("romeo"), address("juliet"));
    source.put(&romeo, "0rchard").await;
    source.put(&juliet, "balc0ny").await;
    assert!(check(&*provider, &romeo, "0rchard").await);
    assert!(check(&*provider, &juliet, "balc0ny").await);
    for wrong in ["balc0ny", "0rchar", "0rchard ", "0RCHARD", "x"] {
        assert!(!check(&*provider, &romeo, wrong).await, "{wrong:?}");
    }
    // A wrong attempt must not spoil what was cached about the right one.
    assert!(check(&*provider, &romeo, "0rchard").await);
}

async fn an_account_that_does_not_exist_has_no_password(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    source.put(&address("romeo"), "0rchard").await;
    let nobody = address("nobody");
    if provider.capabilities().lookup {
        assert_eq!(provider.find(nobody.as_ref()).await.unwrap(), None);
        assert!(provider.find(address("romeo").as_ref()).await.unwrap().is_some());
    }
    if let Some(provider) = with_passwords(&source).await {
        assert!(!check(&*provider, &nobody, "0rchard").await);
    }
}

/// RFC 4513, section 5.1.2: a bind with an empty password succeeds as anonymous. Other sources have rows without a password.
async fn an_empty_password_is_never_valid(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    source.put(&address("romeo"), "0rchard").await;
    for name in ["romeo", "nobody"] {
        assert!(!check(&*provider, &address(name), "").await, "{name}");
        assert!(!check(&*provider, &address(name), "\0").await, "{name}");
    }
}

async fn names_with_special_characters_find_only_their_own_account(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    source.put(&address("romeo"), "0rchard").await;
    // Wildcards and quotes of LDAP filters, names, SQL, URLs and JSON, where an address permits them (RFC 7622, 3.3.1).
    for name in [
        "rom*",
        "*",
        "r%6fmeo",
        "romeo)(uid=*",
        "romeo;--",
        "romeo,ou=x",
        "romeo+x",
        "r_meo",
        "%",
        "romeo#",
        "..",
        "romeo?x=1",
        "\\72omeo",
    ] {
        let Ok(jid) = Jid::from_parts(Some(name), DOMAIN, None) else { continue };
        assert!(!check(&*provider, &jid, "0rchard").await, "{name:?}");
        if provider.capabilities().lookup {
            assert_eq!(provider.find(jid.as_ref()).await.unwrap(), None, "{name:?}");
        }
    }
    for name in ["r\u{f6}meo", "ромео", "o.neil-x_1", "a+b"] {
        let jid = address(name);
        source.put(&jid, "s3cret").await;
        assert!(check(&*provider, &jid, "s3cret").await, "{name:?}");
        assert!(!check(&*provider, &jid, "0rchard").await, "{name:?}");
    }
}

async fn passwords_with_special_characters_are_compared_as_they_are(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let romeo = address("romeo");
    for password in
        ["p\u{e4}ss w\u{f6}rd", "a:b&c=d+e%20", "\"quoted\\\"", "' or 1=1 --", "*", "\u{1f339}", "{\"a\":1}"]
    {
        source.put(&romeo, password).await;
        source.expire_caches().await;
        assert!(check(&*provider, &romeo, password).await, "{password:?}");
        assert!(!check(&*provider, &romeo, &format!("{password}x")).await, "{password:?}");
    }
}

async fn a_resource_does_not_matter(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    source.put(&address("romeo"), "0rchard").await;
    let full = Jid::parse(&format!("romeo@{DOMAIN}/garden")).unwrap();
    assert!(check(&*provider, &full, "0rchard").await);
}

async fn a_disabled_account_is_reported(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    if !source.disable(&romeo).await {
        return;
    }
    source.expire_caches().await;
    match provider.check_password(romeo.as_ref(), Secret::from("0rchard")).await.unwrap() {
        PasswordCheck::Valid(account) => assert!(account.disabled),
        // Some directories do not distinguish the two.
        PasswordCheck::Invalid => {}
    }
    let wrong = provider.check_password(romeo.as_ref(), Secret::from("wrong")).await.unwrap();
    assert_eq!(wrong, PasswordCheck::Invalid, "only the owner learns that the account is disabled");
    if provider.capabilities().lookup {
        assert!(provider.find(romeo.as_ref()).await.unwrap().is_none_or(|found| found.disabled));
    }
}

async fn a_changed_password_replaces_the_earlier_one(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    assert!(check(&*provider, &romeo, "0rchard").await);
    source.put(&romeo, "m0nument").await;
    // A cache may keep what was right, but never what was wrong.
    assert!(check(&*provider, &romeo, "m0nument").await);
    source.expire_caches().await;
    assert!(!check(&*provider, &romeo, "0rchard").await);
    assert!(check(&*provider, &romeo, "m0nument").await);
}

async fn the_version_changes_with_the_password_only(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    if !provider.capabilities().versions {
        return;
    }
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    let version = async || {
        source.expire_caches().await;
        let found = provider.find(romeo.as_ref()).await.unwrap().unwrap();
        assert!(found.version.as_ref().is_some_and(|version| !version.is_empty()));
        found.version
    };
    let first = version().await;
    assert_eq!(version().await, first);
    source.put(&romeo, "m0nument").await;
    assert_ne!(version().await, first);
}

/// The provider and a token of romeo, if the source has tokens; providers that do not must refuse.
async fn with_token(source: &Arc<dyn ProviderSource>) -> Option<(Arc<dyn AccountProvider>, String)> {
    let provider = source.provider();
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    match source.token(&romeo).await {
        Some(token) => Some((provider, token)),
        None => {
            assert!(!provider.capabilities().tokens, "a source with tokens must issue one");
            let refused = provider.check_token(DOMAIN, Secret::from("x")).await;
            assert_eq!(refused.unwrap_err().kind, ProviderErrorKind::NotSupported);
            None
        }
    }
}

async fn a_token_names_its_account(source: Arc<dyn ProviderSource>) {
    let Some((provider, token)) = with_token(&source).await else { return };
    match provider.check_token(DOMAIN, Secret::from(token)).await.unwrap() {
        TokenCheck::Valid(jid, account) => assert_eq!((jid, account.disabled), (address("romeo"), false)),
        TokenCheck::Invalid => panic!("the token is valid"),
    }
}

async fn a_token_is_valid_in_its_domain_only(source: Arc<dyn ProviderSource>) {
    let Some((provider, token)) = with_token(&source).await else { return };
    let checked = provider.check_token("other.example", Secret::from(token)).await;
    assert!(matches!(checked, Ok(TokenCheck::Invalid)), "{checked:?}");
}

async fn altered_tokens_are_invalid(source: Arc<dyn ProviderSource>) {
    let Some((provider, token)) = with_token(&source).await else { return };
    let mut altered: Vec<String> =
        vec![String::new(), "x".to_owned(), format!("{token}x"), format!("x{token}")];
    altered.extend((0..token.len()).step_by(7).filter_map(|at| {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).ok().filter(|altered| *altered != token)
    }));
    altered.push(token[..token.len() - 1].to_owned());
    for altered in altered {
        let checked = provider.check_token(DOMAIN, Secret::from(altered.as_str())).await;
        assert!(matches!(checked, Ok(TokenCheck::Invalid)), "{altered:?}: {checked:?}");
    }
}

async fn an_account_is_created_once(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    let romeo = address("romeo");
    let created = provider.create(romeo.as_ref(), Secret::from("0rchard")).await;
    if !provider.capabilities().create {
        assert_eq!(created.unwrap_err().kind, ProviderErrorKind::NotSupported);
        return;
    }
    created.unwrap();
    let again = provider.create(romeo.as_ref(), Secret::from("m0nument")).await;
    assert_eq!(again.unwrap_err().kind, ProviderErrorKind::AlreadyExists);
    assert!(check(&*provider, &romeo, "0rchard").await);
    assert!(!check(&*provider, &romeo, "m0nument").await);
}

async fn the_password_of_an_account_can_be_set(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    let warm = provider.capabilities().passwords && check(&*provider, &romeo, "0rchard").await;
    let set = provider.set_password(romeo.as_ref(), Secret::from("m0nument")).await;
    if !provider.capabilities().set_password {
        assert_eq!(set.unwrap_err().kind, ProviderErrorKind::NotSupported);
        return;
    }
    set.unwrap();
    for none in ["", "\0"] {
        let refused = provider.set_password(romeo.as_ref(), Secret::from(none)).await;
        assert_eq!(refused.unwrap_err().kind, ProviderErrorKind::PasswordRefused, "{none:?}");
    }
    assert!(warm && check(&*provider, &romeo, "m0nument").await);
    // Without waiting: this server has changed it.
    assert!(!check(&*provider, &romeo, "0rchard").await);
    let missing = provider.set_password(address("nobody").as_ref(), Secret::from("x")).await;
    assert_eq!(missing.unwrap_err().kind, ProviderErrorKind::NotFound);
}

async fn a_removed_account_is_gone(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    let warm = provider.capabilities().passwords && check(&*provider, &romeo, "0rchard").await;
    let removed = provider.remove(romeo.as_ref()).await;
    if !provider.capabilities().remove {
        assert_eq!(removed.unwrap_err().kind, ProviderErrorKind::NotSupported);
        return;
    }
    removed.unwrap();
    assert!(warm && !check(&*provider, &romeo, "0rchard").await);
    let again = provider.remove(romeo.as_ref()).await;
    assert_eq!(again.unwrap_err().kind, ProviderErrorKind::NotFound);
}

async fn a_fault_never_authenticates_and_ends_with_its_cause(source: Arc<dyn ProviderSource>) {
    let provider = source.provider();
    let (romeo, juliet) = (address("romeo"), address("juliet"));
    source.put(&romeo, "0rchard").await;
    source.put(&juliet, "balc0ny").await;
    let token = source.token(&juliet).await;
    for fault in SourceFault::ALL {
        source.expire_caches().await;
        if !source.set_fault(Some(fault)).await {
            continue;
        }
        if provider.capabilities().passwords {
            let failed = provider.check_password(romeo.as_ref(), Secret::from("0rchard")).await;
            let kind = failed.expect_err("a login without the source").kind;
            assert!(kind.is_retryable(), "{fault:?}: {kind:?}");
            match fault {
                SourceFault::Dead => assert_eq!(kind, ProviderErrorKind::Unavailable),
                SourceFault::Silent => assert_eq!(kind, ProviderErrorKind::Timeout),
                SourceFault::Garbage | SourceFault::Cut => {}
            }
        }
        if let Some(token) = &token {
            let checked = provider.check_token(DOMAIN, Secret::from(token.as_str())).await;
            // Keys that were read before may still verify it.
            assert!(!matches!(checked, Ok(TokenCheck::Invalid)), "{fault:?}: the token is not invalid");
        }
        source.set_fault(None).await;
        if provider.capabilities().passwords {
            // Without a restart, and at once.
            assert!(check(&*provider, &juliet, "balc0ny").await, "after {fault:?}");
        }
    }
}

async fn concurrent_calls_get_their_own_results(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let names: Vec<Jid> = (0..6).map(|n| address(&format!("user{n}"))).collect();
    for (n, name) in names.iter().enumerate() {
        source.put(name, &format!("pass{n}")).await;
    }
    let calls = (0..24).map(|n| {
        let (account, right) = (&names[n % 6], n % 4 != 0);
        let password = if right { format!("pass{}", n % 6) } else { format!("pass{}", (n + 1) % 6) };
        let call = provider.check_password(account.as_ref(), Secret::from(password));
        let call: BoxFuture<'_, bool> =
            Box::pin(async move { matches!(call.await.unwrap(), PasswordCheck::Valid(_)) == right });
        call
    });
    assert_eq!(join_all(calls.collect()).await, [true; 24]);
}

async fn calls_may_be_dropped(source: Arc<dyn ProviderSource>) {
    let Some(provider) = with_passwords(&source).await else { return };
    let romeo = address("romeo");
    source.put(&romeo, "0rchard").await;
    for polls in 0..4 {
        let mut call = provider.check_password(romeo.as_ref(), Secret::from("0rchard"));
        for _ in 0..polls {
            if poll_once(&mut call).await {
                break;
            }
        }
    }
    assert!(check(&*provider, &romeo, "0rchard").await, "a response belongs to the request that was dropped");
}

async fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}
