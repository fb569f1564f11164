//! Storage conformance suite with accounts in a backend of their own, and what interruptions between the two backends leave.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]

use std::sync::Arc;

use base::ManualClock;
use throng_store::conformance::{Backend, Case, Fixture, block_on_ready, jid, login, read_login};
use throng_store::separate_auth::separate_auth;
use throng_store::{
    AddressId, AppendOutcome, CreateOutcome, NewAccount, OfflineMessage, Quota, StoreErrorKind, Stores,
    memory,
};

struct SeparateBackend;

/// The authentication backend, the data backend, and both as one.
fn backends(clock: &Arc<ManualClock>) -> [Stores; 3] {
    let (auth, data) = (memory::stores(clock.clone()), memory::stores(clock.clone()));
    // The ids of an address differ.
    block_on_ready(data.addresses.intern(&jid("other@example.net"))).unwrap();
    let both = separate_auth(auth.clone(), data.clone());
    [auth, data, both]
}

impl Backend for SeparateBackend {
    fn run(case: Case) {
        let clock = Arc::new(ManualClock::default());
        let stores = separate_auth(memory::stores(clock.clone()), memory::stores(clock.clone()));
        block_on_ready(case(Fixture { stores, clock }));
    }
}

throng_store::conformance_suite!(crate::SeparateBackend);

const QUOTA: Quota = Quota::messages_only(10);

async fn store_message(stores: &Stores) {
    let owner = stores.addresses.intern(&jid("ann@example.org")).await.unwrap();
    let message = OfflineMessage { owner, sender: 0, stored_at: 1, expires: None, stanza: vec![1] };
    let done = stores.offline.append(vec![message], QUOTA).await.unwrap();
    assert!(matches!(done[..], [AppendOutcome::Stored { .. }]), "{done:?}");
}

#[test]
fn credentials_are_in_one_backend_and_messages_in_the_other() {
    let [auth, data, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let ann = jid("ann@example.org");
        let id = both.accounts.create(&ann, b"secret").await.unwrap();
        assert_eq!(auth.logins.secrets(ann.as_ref()).await.unwrap().unwrap().credentials, b"secret");
        assert_ne!(data.logins.secrets(ann.as_ref()).await.unwrap().unwrap().credentials, b"secret");
        store_message(&both).await;
        assert_eq!(data.offline.count(id).await.unwrap(), 1);
        assert_eq!(login(&both, &ann).await.offline_messages, 1);
        assert_eq!(both.accounts.get(ann.as_ref()).await.unwrap().unwrap().id, id);
        assert_ne!(auth.accounts.get(ann.as_ref()).await.unwrap().unwrap().id, id);
        both.accounts.set_disabled(ann.as_ref(), true).await.unwrap();
        assert!(login(&both, &ann).await.disabled);
    });
}

#[test]
fn only_a_proved_login_creates_an_address_in_the_data_backend() {
    let [auth, data, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let names: Vec<_> = (0..1000).map(|n| jid(&format!("user{n}@example.org"))).collect();
        for name in names.iter().step_by(2) {
            auth.accounts.create(name, b"secret").await.unwrap();
        }
        for (n, name) in names.iter().enumerate() {
            let secrets = both.logins.secrets(name.as_ref()).await.unwrap();
            let proved = both.logins.prove(name.as_ref(), Box::new(|_| false)).await.unwrap();
            assert_eq!((secrets.is_some(), proved.is_some()), (n % 2 == 0, n % 2 == 0), "{name}");
            assert!(secrets.is_none_or(|secrets| secrets.id == AddressId::UNASSIGNED));
        }
        for name in &names {
            assert_eq!(data.addresses.find(name).await.unwrap(), None, "{name}");
        }
        let proved = both.logins.prove(names[0].as_ref(), Box::new(|_| true)).await.unwrap().unwrap();
        assert_eq!(data.addresses.find(&names[0]).await.unwrap(), Some(proved.secrets.id));
        assert!(proved.login.unwrap().unwrap().is_some());
        login(&both, &names[2]).await;
        assert!(data.addresses.find(&names[2]).await.unwrap().is_some());
    });
}

/// The node was killed between the two.
#[test]
fn an_account_that_was_created_by_half_is_completed_at_its_login() {
    let [auth, data, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let ann = jid("ann@example.org");
        auth.accounts.create(&ann, b"secret").await.unwrap();
        assert_eq!(
            both.accounts.create(&ann, b"other").await.unwrap_err().kind,
            StoreErrorKind::AlreadyExists
        );
        assert_eq!(data.logins.secrets(ann.as_ref()).await.unwrap(), None, "nobody has authenticated");
        assert_eq!(login(&both, &ann).await.offline_messages, 0);
        store_message(&both).await;
        assert_eq!(login(&both, &ann).await.offline_messages, 1);
    });
}

#[test]
fn what_an_interrupted_removal_leaves_does_not_belong_to_the_next_account_of_the_name() {
    let [auth, data, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let ann = jid("ann@example.org");
        let leave_data = async || {
            store_message(&both).await;
            auth.accounts.remove(ann.as_ref()).await.unwrap().unwrap();
            assert_eq!(both.logins.secrets(ann.as_ref()).await.unwrap(), None);
            assert!(data.accounts.exists(ann.as_ref()).await.unwrap());
        };
        both.accounts.create(&ann, b"first").await.unwrap();
        leave_data().await;
        // Created here.
        both.accounts.create(&ann, b"second").await.unwrap();
        assert_eq!(login(&both, &ann).await.offline_messages, 0);
        leave_data().await;
        // Created elsewhere.
        auth.accounts.create(&ann, b"third").await.unwrap();
        assert_eq!(login(&both, &ann).await.offline_messages, 0);
        leave_data().await;
        let new = || vec![NewAccount { jid: ann.clone(), credentials: (*b"fourth").into() }];
        let created = both.accounts.create_bulk(new()).await.unwrap();
        assert!(matches!(created[..], [CreateOutcome::New(_)]));
        assert_eq!(login(&both, &ann).await.offline_messages, 0);
        // An interrupted removal can be repeated.
        leave_data().await;
        assert!(both.accounts.remove(ann.as_ref()).await.unwrap().is_some());
        assert!(!data.accounts.exists(ann.as_ref()).await.unwrap());
        // Before its first login an account is not linked, and looks like one that was not moved: the removal must be repeated.
        both.accounts.create_bulk(new()).await.unwrap();
        leave_data().await;
        assert_eq!(both.accounts.create_bulk(new()).await.unwrap_err().kind, StoreErrorKind::AlreadyExists);
        assert!(both.accounts.remove(ann.as_ref()).await.unwrap().is_some());
        both.accounts.create_bulk(new()).await.unwrap();
        assert_eq!(login(&both, &ann).await.offline_messages, 0);
    });
}

#[test]
fn data_from_before_the_separation_are_neither_removed_nor_given_away() {
    let [auth, data, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let ann = jid("ann@example.org");
        data.accounts.create(&ann, &[7; 300]).await.unwrap();
        store_message(&both).await;
        assert_eq!(both.logins.secrets(ann.as_ref()).await.unwrap(), None);
        assert_eq!(both.accounts.create(&ann, b"new").await.unwrap_err().kind, StoreErrorKind::AlreadyExists);
        // Moved, but its credentials are still here.
        auth.accounts.create(&ann, &[7; 300]).await.unwrap();
        assert!(read_login(&both, &ann).await.is_err());
        data.accounts.upgrade_credentials(ann.as_ref(), &[7; 300], b"").await.unwrap();
        assert_eq!(login(&both, &ann).await.offline_messages, 1);
    });
}

#[test]
fn a_password_that_changes_during_a_login_ends_it_and_keeps_the_data() {
    let [_, _, both] = backends(&Arc::new(ManualClock::default()));
    block_on_ready(async {
        let ann = jid("ann@example.org");
        let id = both.accounts.create(&ann, b"old").await.unwrap();
        store_message(&both).await;
        let proved = both.logins.secrets(ann.as_ref()).await.unwrap().unwrap();
        both.accounts.set_credentials(ann.as_ref(), b"new").await.unwrap();
        assert_eq!(both.logins.login(id, proved.revision).await.unwrap(), None);
        assert_eq!(read_login(&both, &ann).await.unwrap().unwrap().offline_messages, 1);
    });
}
