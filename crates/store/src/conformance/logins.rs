//! Conformance tests of [`crate::Logins`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Fixture, account, entry, jid, join_all, login, read_login};
use crate::{
    AddressId, BulkItem, BulkRoster, OfflineMessage, ProofFn, RosterUpdate, StoreErrorKind, Subscription,
};

cases! {
    logins:
    an_unknown_account_has_no_login,
    a_login_returns_all_data,
    a_login_sees_every_write,
    large_rosters_are_complete,
    rosters_over_the_maximum_are_refused,
    secrets_do_not_contain_session_data,
    only_the_credentials_that_were_proved_log_in,
    no_login_is_read_before_the_proof_succeeds,
    a_proof_that_panics_fails_alone,
    concurrent_logins_get_their_own_data,
    one_account_can_log_in_many_times_at_once,
    credentials_may_be_any_bytes,
}

async fn an_unknown_account_has_no_login(f: Fixture) {
    assert_eq!(f.stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap(), None);
    // An address with an id is not necessarily an account.
    f.stores.addresses.intern(&jid("ann@example.org")).await.unwrap();
    assert_eq!(f.stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap(), None);
}

async fn a_login_returns_all_data(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    account(&f.stores, "other").await;
    let mut versions = Vec::new();
    for (name, bits) in [("bob", 32 | 3), ("eve", 8), ("dan", 32 | 4)] {
        let contact = jid(&format!("{name}@example.com"));
        let item = entry(&contact, Subscription(bits));
        let request = (bits & 8 != 0).then(|| b"<presence/>".to_vec());
        let item = crate::RosterItem { request, ..item };
        let put = Box::new(move |_| RosterUpdate::Put(item));
        versions.push(f.stores.roster.update(ann, &contact, put).await.unwrap().version);
    }
    let message =
        OfflineMessage { owner: ann, sender: 0, stored_at: 5, expires: None, stanza: b"<message/>".to_vec() };
    f.stores.offline.append(vec![message.clone(), message], crate::Quota::messages_only(10)).await.unwrap();

    let secrets = f.stores.logins.secrets(jid("ann@example.org/laptop").as_ref()).await.unwrap().unwrap();
    assert_eq!((secrets.id, &secrets.credentials[..], secrets.disabled), (ann, &b"ann"[..], false));
    let login = login(&f.stores, &jid("ann@example.org")).await;
    assert!(!login.disabled);
    assert_eq!(login.offline_messages, 2);
    assert_eq!(login.roster_version, versions[2]);
    let snapshot = f.stores.roster.get(ann).await.unwrap();
    assert_eq!(login.roster, snapshot.items, "a login sees what a roster get sees");
    assert_eq!(login.roster.len(), 3);
    let eve = login.roster.iter().find(|item| item.jid == jid("eve@example.com")).unwrap();
    assert_eq!(eve.request.as_deref(), Some(&b"<presence/>"[..]));
}

async fn a_login_sees_every_write(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    for round in 0..20u8 {
        f.stores.accounts.set_credentials(name.as_ref(), &[round]).await.unwrap();
        f.stores.accounts.set_disabled(name.as_ref(), round % 2 == 0).await.unwrap();
        let message =
            OfflineMessage { owner: ann, sender: 0, stored_at: 5, expires: None, stanza: vec![round] };
        f.stores.offline.append(vec![message], crate::Quota::messages_only(100)).await.unwrap();
        let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
        assert_eq!(login.credentials, [round]);
        assert_eq!(login.disabled, round % 2 == 0);
        let login = super::login(&f.stores, &name).await;
        assert_eq!(login.disabled, round % 2 == 0);
        assert_eq!(login.offline_messages, u32::from(round) + 1);
    }
    f.stores.accounts.remove(name.as_ref()).await.unwrap();
    assert_eq!(f.stores.logins.secrets(name.as_ref()).await.unwrap(), None);
}

async fn large_rosters_are_complete(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let mut items = Vec::new();
    for n in 0..1500 {
        let contact = f.stores.addresses.intern(&jid(&format!("contact{n}@example.com"))).await.unwrap();
        let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
        let (name, groups) =
            (Some(format!("Contact {n}")), vec!["Friends".to_owned(), format!("g{}", n % 7)]);
        items.push(BulkItem { contact, name, groups, subscription });
    }
    f.stores.roster.put_bulk(vec![BulkRoster { owner: ann, items: items.clone() }]).await.unwrap();
    let login = login(&f.stores, &jid("ann@example.org")).await;
    assert!(crate::roster::is_large(&login.roster));
    assert_eq!(login.roster.len(), 1500);
    assert_eq!(login.roster_version, f.stores.roster.get(ann).await.unwrap().version);
    items.sort_by_key(|item| item.contact);
    for (got, put) in login.roster.iter().zip(&items) {
        assert_eq!((got.contact, &got.name, &got.groups), (put.contact, &put.name, &put.groups));
    }
}

async fn rosters_over_the_maximum_are_refused(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let mut items = Vec::new();
    for n in 0..70 {
        let contact = f.stores.addresses.intern(&jid(&format!("contact{n}@example.com"))).await.unwrap();
        let name = Some("x".repeat(1 << 20));
        items.push(BulkItem { contact, name, groups: vec![], subscription: Subscription::IN_ROSTER });
    }
    f.stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
    let name = jid("ann@example.org");
    assert_eq!(read_login(&f.stores, &name).await.unwrap_err().kind, StoreErrorKind::TooLarge);
    assert_eq!(f.stores.roster.get(ann).await.unwrap_err().kind, StoreErrorKind::TooLarge);
    assert_eq!(f.stores.roster.size(ann).await.unwrap().contacts, 70);
    // It can still be reduced, one entry at a time.
    for n in 0..10 {
        let contact = jid(&format!("contact{n}@example.com"));
        f.stores.roster.update(ann, &contact, Box::new(|_| RosterUpdate::Delete)).await.unwrap();
    }
    assert_eq!(login(&f.stores, &name).await.roster.len(), 60);
}

async fn secrets_do_not_contain_session_data(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    f.stores.tokens.update_tokens(name.as_ref(), None, Box::new(|_| Some(b"t".to_vec()))).await.unwrap();
    let secrets = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    assert_eq!((secrets.id, &secrets.tokens[..]), (ann, &b"t"[..]));
    // An id without an account, and both calls concurrently.
    let ghost = f.stores.addresses.intern(&jid("ghost@example.org")).await.unwrap();
    let revision = secrets.revision;
    assert_eq!(f.stores.logins.login(ghost, revision).await.unwrap(), None);
    let one = |n: u32| f.stores.logins.login(if n.is_multiple_of(2) { ann } else { ghost }, revision);
    let logins = join_all((0..100).map(one).collect());
    let secrets = join_all((0..100).map(|_| f.stores.logins.secrets(name.as_ref())).collect());
    for (n, login) in logins.await.into_iter().enumerate() {
        assert_eq!(login.unwrap().is_some(), n % 2 == 0);
    }
    assert!(secrets.await.into_iter().all(|secrets| secrets.unwrap().unwrap().id == ann));
}

async fn only_the_credentials_that_were_proved_log_in(f: Fixture) {
    let name = jid("ann@example.org");
    let ann = account(&f.stores, "ann").await;
    let accounts = &f.stores.accounts;
    let revision = async || f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap().revision;
    let reads = async |revision| f.stores.logins.login(ann, revision).await.unwrap().is_some();

    let first = revision().await;
    assert!(reads(first).await);
    // Only a password change changes the revision.
    assert!(accounts.upgrade_credentials(name.as_ref(), b"ann", b"better").await.unwrap());
    accounts.set_disabled(name.as_ref(), true).await.unwrap();
    accounts.set_disabled(name.as_ref(), false).await.unwrap();
    f.stores.tokens.update_tokens(name.as_ref(), None, Box::new(|_| Some(b"t".to_vec()))).await.unwrap();
    assert_eq!(revision().await, first);

    accounts.set_credentials(name.as_ref(), b"other").await.unwrap();
    let second = revision().await;
    assert!(!reads(first).await && reads(second).await);
    // Setting the same password again counts as a change.
    accounts.set_credentials(name.as_ref(), b"other").await.unwrap();
    let third = revision().await;
    assert!(!reads(first).await && !reads(second).await && reads(third).await);

    // The id of the address stays; the clock of these tests stands still.
    accounts.remove(name.as_ref()).await.unwrap().unwrap();
    assert!(!reads(third).await);
    assert_eq!(accounts.create(&name, b"ann").await.unwrap(), ann);
    let anew = revision().await;
    assert!(!reads(first).await && !reads(second).await && !reads(third).await && reads(anew).await);

    // All in one statement.
    let logins = join_all([third, anew, first, anew].map(|r| f.stores.logins.login(ann, r)).into()).await;
    let found: Vec<bool> = logins.into_iter().map(|login| login.unwrap().is_some()).collect();
    assert_eq!(found, [false, true, false, true]);
}

/// A proof that accepts this account's secrets and counts its calls.
fn proof_of(ann: AddressId, proof_calls: &Arc<AtomicUsize>) -> ProofFn {
    let proof_calls = proof_calls.clone();
    Box::new(move |secrets| {
        proof_calls.fetch_add(1, Ordering::Relaxed);
        secrets.is_some_and(|secrets| secrets.id == ann)
    })
}

async fn no_login_is_read_before_the_proof_succeeds(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let names = ["ann", "bob", "nobody"].map(|name| jid(&format!("{name}@example.org")));
    account(&f.stores, "bob").await;
    let proof_calls = Arc::new(AtomicUsize::new(0));
    let prove = |n: usize| f.stores.logins.prove(names[n % 3].as_ref(), proof_of(ann, &proof_calls));

    let right = prove(0).await.unwrap().unwrap();
    assert_eq!((right.secrets.id, &right.secrets.credentials[..]), (ann, &b"ann"[..]));
    assert_eq!(right.login.unwrap().unwrap().unwrap(), login(&f.stores, &names[0]).await);
    let wrong = prove(1).await.unwrap().unwrap();
    assert_eq!(&wrong.secrets.credentials[..], b"bob");
    assert!(wrong.login.is_none(), "nothing is read before the proof");
    assert!(prove(2).await.unwrap().is_none());
    assert_eq!(proof_calls.load(Ordering::Relaxed), 3, "a proof is judged for nobody, too");

    // Interleaved with other logins.
    let attempts = join_all((0..90).map(prove).collect());
    let others = join_all((0..30).map(|_| f.stores.logins.secrets(names[0].as_ref())).collect());
    for (n, attempt) in attempts.await.into_iter().enumerate() {
        let login = attempt.unwrap().map(|attempt| attempt.login.map(|login| login.unwrap().is_some()));
        assert_eq!(login, [Some(Some(true)), Some(None), None][n % 3]);
    }
    assert!(others.await.into_iter().all(|secrets| secrets.unwrap().unwrap().id == ann));
    assert_eq!(proof_calls.load(Ordering::Relaxed), 93);

    f.stores.accounts.set_disabled(names[0].as_ref(), true).await.unwrap();
    let barred = prove(0).await.unwrap().unwrap();
    assert!(barred.secrets.disabled && barred.login.is_none());
}

async fn a_proof_that_panics_fails_alone(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    let proof_calls = Arc::new(AtomicUsize::new(0));
    let attempts = (0..20).map(|n| {
        let proof =
            if n == 7 { Box::new(|_: Option<&_>| panic!("a test")) } else { proof_of(ann, &proof_calls) };
        f.stores.logins.prove(name.as_ref(), proof)
    });
    for (n, attempt) in join_all(attempts.collect()).await.into_iter().enumerate() {
        match attempt {
            Ok(attempt) => assert!(n != 7 && attempt.unwrap().login.is_some()),
            Err(error) => assert_eq!((n, error.kind), (7, StoreErrorKind::Internal)),
        }
    }
}

async fn concurrent_logins_get_their_own_data(f: Fixture) {
    let mut names = Vec::new();
    for n in 0..100 {
        account(&f.stores, &format!("user{n}")).await;
        names.push(jid(&format!("user{n}@example.org")));
        names.push(jid(&format!("nobody{n}@example.org")));
    }
    let got = join_all(names.iter().map(|name| f.stores.logins.secrets(name.as_ref())).collect()).await;
    for (name, got) in names.iter().zip(got) {
        let expected = name.local().filter(|local| local.starts_with("user"));
        let got = got.unwrap().map(|login| String::from_utf8(login.credentials).unwrap());
        assert_eq!(got.as_deref(), expected);
    }
}

async fn one_account_can_log_in_many_times_at_once(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    let got = join_all((0..50).map(|_| f.stores.logins.secrets(name.as_ref())).collect()).await;
    assert!(got.into_iter().all(|login| login.unwrap().unwrap().id == ann));
}

async fn credentials_may_be_any_bytes(f: Fixture) {
    let name = jid("ann@example.org");
    account(&f.stores, "ann").await;
    for credentials in [vec![], vec![0], (0..=255).collect(), vec![0xff; 5000]] {
        f.stores.accounts.set_credentials(name.as_ref(), &credentials).await.unwrap();
        let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
        assert_eq!(login.credentials, credentials);
    }
}
