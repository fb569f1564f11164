//! Conformance tests of [`crate::LoginTokens`] and of the effect of credential changes on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fixture, account, jid, join_all};
use crate::tokens::MAX_TOKENS_BYTES;
use crate::{StoreErrorKind, Stores, TokensUpdateOutcome};

cases! {
    tokens:
    the_closure_sees_the_stored_bytes,
    tokens_are_stored_only_for_the_proved_credentials,
    the_closure_is_not_called_without_an_account,
    one_of_many_concurrent_updates_consumes_a_token,
    a_panic_changes_nothing,
    bytes_are_returned_unchanged_and_limited,
    a_changed_password_ends_tokens,
    upgraded_credentials_keep_tokens,
}

async fn put(stores: &Stores, bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let ann = jid("ann@example.org");
    let outcome = stores.tokens.update_tokens(ann.as_ref(), None, Box::new(|_| Some(bytes))).await.unwrap();
    assert_eq!(outcome, TokensUpdateOutcome::Applied);
}

async fn tokens(stores: &Stores) -> Vec<u8> {
    stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap().unwrap().tokens
}

async fn the_closure_sees_the_stored_bytes(f: Fixture) {
    account(&f.stores, "ann").await;
    assert!(tokens(&f.stores).await.is_empty());
    let ann = jid("ann@example.org/laptop");
    for round in 0..3u8 {
        let change = move |before: &[u8]| {
            assert_eq!(before.len(), usize::from(round));
            Some([before, &[round]].concat())
        };
        let outcome = f.stores.tokens.update_tokens(ann.as_ref(), None, Box::new(change)).await.unwrap();
        assert_eq!(outcome, TokensUpdateOutcome::Applied);
    }
    assert_eq!(tokens(&f.stores).await, [0, 1, 2]);
    let unchanged = f.stores.tokens.update_tokens(ann.as_ref(), None, Box::new(|_| None)).await.unwrap();
    assert_eq!(unchanged, TokensUpdateOutcome::Applied, "there is such an account");
    assert_eq!(tokens(&f.stores).await, [0, 1, 2]);
    put(&f.stores, b"").await;
    assert!(tokens(&f.stores).await.is_empty());
}

async fn tokens_are_stored_only_for_the_proved_credentials(f: Fixture) {
    account(&f.stores, "ann").await;
    let ann = jid("ann@example.org");
    let proved = f.stores.logins.secrets(ann.as_ref()).await.unwrap().unwrap().revision;
    let update = async |revision| {
        f.stores
            .tokens
            .update_tokens(ann.as_ref(), Some(revision), Box::new(|_| Some(vec![1])))
            .await
            .unwrap()
    };
    assert_eq!(update(proved).await, TokensUpdateOutcome::Applied);
    assert!(f.stores.accounts.set_credentials(ann.as_ref(), b"other").await.unwrap());
    assert_eq!(update(proved).await, TokensUpdateOutcome::Revoked, "another password");
    assert!(tokens(&f.stores).await.is_empty());
    let proved = f.stores.logins.secrets(ann.as_ref()).await.unwrap().unwrap().revision;
    assert!(f.stores.accounts.set_disabled(ann.as_ref(), true).await.unwrap());
    assert_eq!(update(proved).await, TokensUpdateOutcome::Disabled);
    assert!(tokens(&f.stores).await.is_empty());
    f.stores.accounts.set_credentials(ann.as_ref(), b"third").await.unwrap();
    f.stores.accounts.set_disabled(ann.as_ref(), true).await.unwrap();
    assert_eq!(update(proved).await, TokensUpdateOutcome::Revoked, "disabled, with another password");
    f.stores.accounts.remove(ann.as_ref()).await.unwrap();
    assert_eq!(update(proved).await, TokensUpdateOutcome::Revoked, "removed");
}

async fn the_closure_is_not_called_without_an_account(f: Fixture) {
    let called = Arc::new(AtomicU32::new(0));
    let count = called.clone();
    let change = move |_: &[u8]| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(vec![1])
    };
    let found =
        f.stores.tokens.update_tokens(jid("ann@example.org").as_ref(), None, Box::new(change)).await.unwrap();
    assert_eq!(found, TokensUpdateOutcome::Revoked);
    assert_eq!(called.load(Ordering::Relaxed), 0);
}

async fn one_of_many_concurrent_updates_consumes_a_token(f: Fixture) {
    account(&f.stores, "ann").await;
    put(&f.stores, b"token").await;
    let ann = jid("ann@example.org");
    let won = Arc::new(AtomicU32::new(0));
    let tries = (0..30).map(|_| {
        let won = won.clone();
        let take = move |before: &[u8]| {
            (before == b"token").then(|| {
                won.fetch_add(1, Ordering::Relaxed);
                b"used".to_vec()
            })
        };
        f.stores.tokens.update_tokens(ann.as_ref(), None, Box::new(take))
    });
    assert!(
        join_all(tries.collect())
            .await
            .into_iter()
            .all(|found| found.unwrap() == TokensUpdateOutcome::Applied)
    );
    assert_eq!(won.load(Ordering::Relaxed), 1);
    assert_eq!(tokens(&f.stores).await, b"used");
}

async fn a_panic_changes_nothing(f: Fixture) {
    account(&f.stores, "ann").await;
    put(&f.stores, b"kept").await;
    let ann = jid("ann@example.org");
    let error = f.stores.tokens.update_tokens(ann.as_ref(), None, Box::new(|_| panic!("on purpose"))).await;
    assert_eq!(error.unwrap_err().kind, StoreErrorKind::Internal);
    assert_eq!(tokens(&f.stores).await, b"kept");
}

async fn bytes_are_returned_unchanged_and_limited(f: Fixture) {
    account(&f.stores, "ann").await;
    for bytes in [vec![0], (0..=255).collect(), vec![b' '; 10], vec![0xff; MAX_TOKENS_BYTES]] {
        put(&f.stores, &bytes).await;
        assert_eq!(tokens(&f.stores).await, bytes);
    }
    let large = Box::new(|_: &[u8]| Some(vec![1; MAX_TOKENS_BYTES + 1]));
    let error =
        f.stores.tokens.update_tokens(jid("ann@example.org").as_ref(), None, large).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TooLarge);
    assert_eq!(tokens(&f.stores).await.len(), MAX_TOKENS_BYTES, "nothing was changed");
}

async fn a_changed_password_ends_tokens(f: Fixture) {
    let (ann, bob) = (jid("ann@example.org"), jid("bob@example.org"));
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    put(&f.stores, b"token").await;
    f.stores.accounts.set_credentials(bob.as_ref(), b"other").await.unwrap();
    f.stores.accounts.set_disabled(ann.as_ref(), true).await.unwrap();
    assert_eq!(tokens(&f.stores).await, b"token", "another account's password and disabling keep them");
    f.stores.accounts.set_credentials(ann.as_ref(), b"new").await.unwrap();
    assert!(tokens(&f.stores).await.is_empty());
}

async fn upgraded_credentials_keep_tokens(f: Fixture) {
    let ann = jid("ann@example.org");
    account(&f.stores, "ann").await;
    put(&f.stores, b"token").await;
    let upgrade =
        |expected: &[u8], new: &[u8]| f.stores.accounts.upgrade_credentials(ann.as_ref(), expected, new);
    assert!(!upgrade(b"wrong", b"lost").await.unwrap());
    assert!(!upgrade(b"", b"lost").await.unwrap());
    assert!(upgrade(b"ann", b"better").await.unwrap());
    assert!(!upgrade(b"ann", b"late").await.unwrap(), "somebody was first");
    let login = f.stores.logins.secrets(ann.as_ref()).await.unwrap().unwrap();
    assert_eq!((&login.credentials[..], &login.tokens[..]), (&b"better"[..], &b"token"[..]));
    let nobody = jid("bob@example.org");
    assert!(!f.stores.accounts.upgrade_credentials(nobody.as_ref(), b"", b"x").await.unwrap());
}
