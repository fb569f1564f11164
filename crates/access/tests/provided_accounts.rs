//! Logins to accounts of a provider, and their records in the store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::sync::Arc;

use base::Secret;
use jid::Jid;
use testkit::TestNode;
use throng_access::login::{self, Admission, LoginRecord};
use throng_access::provided_accounts::{
    check_password, check_token, confirm, permits_login_tokens, register,
};
use throng_core::Host;
use throng_core::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use throng_core::account_provider::{
    ProviderCapabilities, ProviderErrorKind, SharedAccountProvider, external_version,
};

struct Fixture {
    engine: TestNode,
    accounts: Arc<MemoryAccounts>,
    host: Arc<Host>,
}

impl Fixture {
    fn new(capabilities: ProviderCapabilities) -> Fixture {
        let engine = TestNode::new(&[]);
        let accounts = Arc::new(MemoryAccounts::new(capabilities));
        let known = engine.node.host("example.net").unwrap();
        let mut host = Host::new(known.jid.clone(), known.domain_counters.clone());
        host.extensions.provide("auth", SharedAccountProvider(accounts.clone())).unwrap();
        Fixture { engine, accounts, host: Arc::new(host) }
    }

    fn check(&self, password: &str) -> Option<LoginRecord> {
        let checked = check_password(self.host.clone(), romeo(), Secret::from(password));
        self.engine.block_on(checked).unwrap()
    }

    /// Logs in with a password.
    fn login(&self, password: &str) -> Option<LoginRecord> {
        let checked = self.check(password)?;
        self.engine.block_on(register(&self.engine.node, checked)).unwrap()
    }

    fn stored(&self) -> Option<store::AccountSecrets> {
        self.engine.block_on(self.engine.stores.logins.secrets(romeo().as_ref())).unwrap()
    }
}

fn romeo() -> Jid {
    Jid::parse("romeo@example.net").unwrap()
}

#[test]
fn the_first_login_creates_the_record_and_a_wrong_password_does_not() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    assert!(fixture.check("wrong").is_none() && fixture.check("").is_none());
    let unproved =
        fixture.engine.block_on(login::load_credentials(&fixture.engine.node, fixture.host.clone(), romeo()));
    assert!(unproved.unwrap().unwrap().provided.is_some());
    assert_eq!(fixture.stored(), None, "nothing is stored before the proof");
    let first = fixture.login("0rchard").unwrap();
    assert!(first.provided.is_none() && !first.disabled && first.credentials.is_empty());
    let again = fixture.login("0rchard").unwrap();
    assert_eq!((again.identity.id, again.identity.revision), (first.identity.id, first.identity.revision));
    let admission = fixture.engine.block_on(login::load_principal(&fixture.engine.node, again.identity));
    assert!(matches!(admission, Ok(Admission::Granted(_))));
    assert!(external_version(&fixture.stored().unwrap().credentials).is_some());
}

#[test]
fn a_changed_password_ends_the_login_tokens() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    let first = fixture.login("0rchard").unwrap();
    let add = Box::new(|_: &[u8]| Some(b"tokens".to_vec()));
    fixture.engine.block_on(login::update_tokens(&fixture.engine.node, &first.identity, add)).unwrap();
    let stored = || {
        let load = login::load_stored(&fixture.engine.node, fixture.host.clone(), romeo());
        fixture.engine.block_on(load).unwrap().unwrap()
    };
    assert_eq!(stored().tokens, b"tokens");
    assert!(fixture.engine.block_on(confirm(stored())).unwrap().is_some());
    fixture.accounts.put(&romeo(), "m0nument", None);
    assert!(
        fixture.engine.block_on(confirm(stored())).unwrap().is_none(),
        "before any login with the new password"
    );
    let second = fixture.login("m0nument").unwrap();
    assert!(second.tokens.is_empty() && second.identity.revision != first.identity.revision);
    let admission = fixture.engine.block_on(login::load_principal(&fixture.engine.node, first.identity));
    assert!(matches!(admission, Ok(Admission::Revoked)), "a login that began with the old password");
}

#[test]
fn a_token_login_needs_an_account_that_still_exists_and_is_enabled() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    fixture.login("0rchard").unwrap();
    let confirmed = || {
        let load = login::load_stored(&fixture.engine.node, fixture.host.clone(), romeo());
        let stored = fixture.engine.block_on(load).unwrap().unwrap();
        fixture.engine.block_on(confirm(stored))
    };
    fixture.accounts.set_disabled(&romeo(), true);
    assert!(confirmed().unwrap().unwrap().disabled);
    fixture.accounts.set_fault(Some(ProviderErrorKind::Timeout));
    assert!(confirmed().unwrap_err().retryable);
    fixture.accounts.set_fault(None);
    fixture.accounts.forget(&romeo());
    assert!(confirmed().unwrap().is_none());
}

#[test]
fn login_tokens_need_a_provider_that_reports_versions() {
    assert!(permits_login_tokens(&Fixture::new(ALL_CAPABILITIES).host));
    let without = ProviderCapabilities { versions: false, ..ALL_CAPABILITIES };
    assert!(!permits_login_tokens(&Fixture::new(without).host));
    assert!(permits_login_tokens(&TestNode::new(&[]).node.host("example.net").unwrap()));
}

#[test]
fn tokens_of_a_time_with_a_provider_are_not_trusted_without_it() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    let identity = fixture.login("0rchard").unwrap().identity;
    let add = Box::new(|_: &[u8]| Some(b"tokens".to_vec()));
    fixture.engine.block_on(login::update_tokens(&fixture.engine.node, &identity, add)).unwrap();
    // Its passwords are in the store.
    let host = fixture.engine.node.host("example.net").unwrap();
    let load = login::load_stored(&fixture.engine.node, host.clone(), romeo());
    let stored = fixture.engine.block_on(load).unwrap().unwrap();
    assert!(fixture.engine.block_on(confirm(stored)).unwrap().is_none());
    let judge = |tokens: Option<&[u8]>| tokens.is_some_and(|tokens| !tokens.is_empty());
    let proved = login::prove(&fixture.engine.node, host, romeo(), judge);
    assert!(fixture.engine.block_on(proved).unwrap().unwrap().1.is_none());
}

#[test]
fn either_side_may_disable_an_account() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    fixture.accounts.set_disabled(&romeo(), true);
    assert!(fixture.login("0rchard").unwrap().disabled);
    assert_eq!(fixture.stored(), None, "a disabled account needs no record");
    fixture.accounts.set_disabled(&romeo(), false);
    assert!(!fixture.login("0rchard").unwrap().disabled);
    let disable = fixture.engine.stores.accounts.set_disabled(romeo().as_ref(), true);
    assert!(fixture.engine.block_on(disable).unwrap());
    assert!(fixture.login("0rchard").unwrap().disabled);
}

#[test]
fn keys_of_a_time_before_the_provider_are_kept_but_neither_used_nor_returned() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    let create = fixture.engine.stores.accounts.create(&romeo(), b"\x01scram keys");
    fixture.engine.block_on(create).unwrap();
    fixture.accounts.put(&romeo(), "0rchard", None);
    assert!(fixture.login("0rchard").unwrap().credentials.is_empty());
    assert_eq!(fixture.stored().unwrap().credentials, b"\x01scram keys");
}

#[test]
fn a_bearer_token_logs_in_to_the_account_that_it_names() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    fixture.accounts.put_token("t0ken", &romeo());
    fixture.accounts.put_token("foreign", &Jid::parse("romeo@other.example").unwrap());
    let check = |token: &str| {
        fixture.engine.block_on(check_token(fixture.host.clone(), Secret::from(token))).unwrap()
    };
    assert_eq!(check("t0ken").unwrap().identity.jid, romeo());
    assert!(check("foreign").is_none() && check("other").is_none() && check("").is_none());
}

#[test]
fn a_provider_that_fails_is_no_wrong_password() {
    let fixture = Fixture::new(ALL_CAPABILITIES);
    fixture.accounts.put(&romeo(), "0rchard", None);
    for kind in ProviderErrorKind::ALL {
        fixture.accounts.set_fault(Some(kind));
        let checked = check_password(fixture.host.clone(), romeo(), Secret::from("0rchard"));
        let error = fixture.engine.block_on(checked).unwrap_err();
        assert!(!error.public_text.contains(kind.name()) && error.cause.contains(kind.name()), "{error:?}");
        assert_eq!(error.retryable, kind.is_retryable());
    }
}
