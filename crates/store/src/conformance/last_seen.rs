//! Conformance tests of [`crate::LastSeen`].

use super::{Fixture, UNUSUAL, account, jid};
use crate::{AddressId, LastActivity, Stores};

cases! {
    last_seen:
    the_latest_value_is_returned,
    a_missing_account_stores_nothing,
    unusual_texts_are_returned_unchanged,
    many_logouts_at_once_are_stored,
    nothing_is_dropped_between_two_flushes,
}

fn seen(at: u64, status: &str) -> LastActivity {
    LastActivity { at, status: Some(status.to_owned()) }
}

async fn get(stores: &Stores, name: &str) -> Option<LastActivity> {
    stores.last_seen.get(jid(&format!("{name}@example.org")).as_ref()).await.unwrap()
}

async fn the_latest_value_is_returned(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    assert_eq!(get(&f.stores, "ann").await, None);
    f.stores.last_seen.set(ann, seen(5, "gone"));
    assert_eq!(get(&f.stores, "ann").await, Some(seen(5, "gone")), "at once");
    f.stores.last_seen.set(ann, LastActivity { at: 7, status: None });
    assert_eq!(get(&f.stores, "ann").await, Some(LastActivity { at: 7, status: None }));
    f.stores.last_seen.set(ann, seen(6, "the clock was set back"));
    assert_eq!(get(&f.stores, "ann").await.unwrap().at, 6);
    assert_eq!(get(&f.stores, "bob").await, None);
}

async fn a_missing_account_stores_nothing(f: Fixture) {
    f.stores.last_seen.set(AddressId::UNASSIGNED, seen(1, "guest"));
    let ann = f.stores.addresses.intern(&jid("ann@example.org")).await.unwrap();
    f.stores.last_seen.set(ann, seen(1, "no account"));
    assert_eq!(get(&f.stores, "ann").await, None);
    account(&f.stores, "ann").await;
    assert_eq!(get(&f.stores, "ann").await, None, "what was set before the account is not its own");
}

async fn unusual_texts_are_returned_unchanged(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    for (n, text) in UNUSUAL.iter().enumerate() {
        f.stores.last_seen.set(ann, seen(n as u64, text));
        assert_eq!(get(&f.stores, "ann").await, Some(seen(n as u64, text)));
    }
    f.stores.last_seen.set(ann, seen(1, &"日".repeat(5000)));
    assert_eq!(get(&f.stores, "ann").await, Some(seen(1, &"日".repeat(341))), "cut at 1024 bytes");
}

async fn many_logouts_at_once_are_stored(f: Fixture) {
    let names: Vec<_> = (0..3000).map(|n| jid(&format!("u{n}@example.org"))).collect();
    let new = names.iter().map(|jid| crate::NewAccount { jid: jid.clone(), credentials: [0u8; 1].into() });
    let ids = f.stores.accounts.create_bulk(new.collect()).await.unwrap();
    for round in 0..3 {
        for (n, id) in ids.iter().enumerate() {
            f.stores.last_seen.set(id.id(), LastActivity { at: round * 10_000 + n as u64, status: None });
        }
    }
    for (n, name) in names.iter().enumerate().step_by(97) {
        let seen = f.stores.last_seen.get(name.as_ref()).await.unwrap().unwrap();
        assert_eq!(seen.at, 20_000 + n as u64);
    }
}

async fn nothing_is_dropped_between_two_flushes(f: Fixture) {
    f.stores.last_seen.flush().await.unwrap();
    let ann = account(&f.stores, "ann").await;
    for round in 0..3 {
        f.stores.last_seen.set(ann, seen(round, "gone"));
        f.stores.last_seen.flush().await.unwrap();
        assert_eq!(get(&f.stores, "ann").await, Some(seen(round, "gone")));
    }
    let names: Vec<_> = (0..2_000).map(|n| jid(&format!("u{n}@example.org"))).collect();
    let new = names.iter().map(|jid| crate::NewAccount { jid: jid.clone(), credentials: [0u8; 1].into() });
    let ids = f.stores.accounts.create_bulk(new.collect()).await.unwrap();
    for chunk in ids.chunks(700) {
        chunk.iter().for_each(|id| f.stores.last_seen.set(id.id(), seen(9, "")));
        f.stores.last_seen.flush().await.unwrap();
    }
    for name in names.iter().step_by(97) {
        assert_eq!(f.stores.last_seen.get(name.as_ref()).await.unwrap(), Some(seen(9, "")));
    }
}
