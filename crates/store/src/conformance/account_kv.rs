//! Conformance tests of [`crate::AccountKv`].

use super::{Fixture, UNUSUAL, account, jid, join_all};
use crate::account_kv::MAX_KEY_BYTES;
use crate::{AccountKvLimits, PutOutcome, StoreErrorKind, Stores};

cases! {
    account_kv:
    values_can_be_set_replaced_and_removed,
    all_values_of_an_account_are_listed_by_key,
    a_missing_account_stores_nothing,
    limits_are_enforced,
    long_keys_are_refused,
    unusual_keys_are_different,
    many_writers_stay_within_the_limits,
    a_value_is_replaced_unless_another_one_is_stored,
}

const ROOM: AccountKvLimits = AccountKvLimits { entries: 1000, bytes: 1_000_000 };

async fn put(stores: &Stores, values: &[(&str, &[u8])], limits: AccountKvLimits) -> PutOutcome {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect();
    stores.account_kv.put(jid("ann@example.org").as_ref(), values, limits).await.unwrap()
}

async fn get(stores: &Stores, key: &str) -> Option<Vec<u8>> {
    stores.account_kv.get(jid("ann@example.org/laptop").as_ref(), key).await.unwrap()
}

async fn values_can_be_set_replaced_and_removed(f: Fixture) {
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    assert_eq!(get(&f.stores, "k").await, None);
    assert_eq!(put(&f.stores, &[("k", b"1"), ("l", b""), ("k", b"2")], ROOM).await, PutOutcome::Done);
    assert_eq!(get(&f.stores, "k").await.as_deref(), Some(&b"2"[..]), "the later one counts");
    assert_eq!(get(&f.stores, "l").await.as_deref(), Some(&b""[..]), "an empty value is a value");
    assert_eq!(put(&f.stores, &[("k", b"3")], ROOM).await, PutOutcome::Done);
    assert_eq!(get(&f.stores, "k").await.as_deref(), Some(&b"3"[..]));
    assert_eq!(put(&f.stores, &[], ROOM).await, PutOutcome::Done);
    let (ann, bob) = (jid("ann@example.org"), jid("bob@example.org"));
    assert_eq!(f.stores.account_kv.get(bob.as_ref(), "k").await.unwrap(), None);
    assert!(!f.stores.account_kv.remove(bob.as_ref(), "k").await.unwrap());
    assert!(f.stores.account_kv.remove(ann.as_ref(), "k").await.unwrap());
    assert!(!f.stores.account_kv.remove(ann.as_ref(), "k").await.unwrap());
    assert_eq!(get(&f.stores, "k").await, None);
    assert!(get(&f.stores, "l").await.is_some());
}

async fn all_values_of_an_account_are_listed_by_key(f: Fixture) {
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    let ann = jid("ann@example.org/laptop");
    assert!(f.stores.account_kv.entries(ann.as_ref()).await.unwrap().is_empty());
    put(&f.stores, &[("b", b"2"), ("a", b"1"), ("B", b""), ("\u{e9}", b"4")], ROOM).await;
    let entries = f.stores.account_kv.entries(ann.as_ref()).await.unwrap();
    let shown: Vec<(&str, &[u8])> = entries.iter().map(|(key, value)| (key.as_str(), &value[..])).collect();
    assert_eq!(shown, [("B", &b""[..]), ("a", b"1"), ("b", b"2"), ("\u{e9}", b"4")]);
    for other in ["bob@example.org", "carl@example.org"] {
        assert!(f.stores.account_kv.entries(jid(other).as_ref()).await.unwrap().is_empty());
    }
}

async fn a_missing_account_stores_nothing(f: Fixture) {
    assert_eq!(put(&f.stores, &[("k", b"1")], ROOM).await, PutOutcome::NoAccount);
    f.stores.addresses.intern(&jid("ann@example.org")).await.unwrap();
    assert_eq!(put(&f.stores, &[("k", b"1")], ROOM).await, PutOutcome::NoAccount);
    assert_eq!(get(&f.stores, "k").await, None);
    assert!(!f.stores.account_kv.remove(jid("ann@example.org").as_ref(), "k").await.unwrap());
}

async fn limits_are_enforced(f: Fixture) {
    account(&f.stores, "ann").await;
    let limits = AccountKvLimits { entries: 2, bytes: 20 };
    assert_eq!(put(&f.stores, &[("a", b"12345"), ("b", b"12345")], limits).await, PutOutcome::Done);
    assert_eq!(put(&f.stores, &[("c", b"")], limits).await, PutOutcome::Full, "a third key");
    assert_eq!(
        put(&f.stores, &[("b", b"1234567890123")], limits).await,
        PutOutcome::Done,
        "exactly 20 bytes"
    );
    assert_eq!(put(&f.stores, &[("b", b"12345678901234")], limits).await, PutOutcome::Full);
    assert_eq!(put(&f.stores, &[("a", b""), ("c", b"")], limits).await, PutOutcome::Full);
    assert_eq!(get(&f.stores, "a").await.as_deref(), Some(&b"12345"[..]), "all or none");
    let lower = AccountKvLimits { entries: 1, bytes: 5 };
    assert_eq!(put(&f.stores, &[("b", b"1")], lower).await, PutOutcome::Done, "what shrinks is welcome");
    assert_eq!(put(&f.stores, &[("b", b"12")], lower).await, PutOutcome::Full);
    assert_eq!(
        put(&f.stores, &[("€", b"")], AccountKvLimits { entries: 9, bytes: 10 }).await,
        PutOutcome::Full
    );
    assert_eq!(
        put(&f.stores, &[("€", b"")], AccountKvLimits { entries: 9, bytes: 11 }).await,
        PutOutcome::Done,
        "keys count in bytes"
    );
    let more = put(&f.stores, &[("d", &[b'x'; 100])], AccountKvLimits::UNLIMITED).await;
    assert_eq!(more, PutOutcome::Done, "values of others do not count against it");
}

async fn long_keys_are_refused(f: Fixture) {
    account(&f.stores, "ann").await;
    let key = "k".repeat(MAX_KEY_BYTES);
    assert_eq!(put(&f.stores, &[(&key, b"1")], ROOM).await, PutOutcome::Done);
    let values = vec![(format!("{key}k"), vec![])];
    let error = f.stores.account_kv.put(jid("ann@example.org").as_ref(), values, ROOM).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TooLarge);
    assert_eq!(get(&f.stores, &format!("{key}k")).await, None);
}

async fn unusual_keys_are_different(f: Fixture) {
    account(&f.stores, "ann").await;
    let values: Vec<(&str, &[u8])> = UNUSUAL.iter().map(|key| (*key, key.as_bytes())).collect();
    assert_eq!(put(&f.stores, &values, ROOM).await, PutOutcome::Done);
    for key in UNUSUAL {
        assert_eq!(get(&f.stores, key).await.as_deref(), Some(key.as_bytes()), "{key:?}");
    }
    let ann = jid("ann@example.org");
    for key in UNUSUAL {
        assert!(f.stores.account_kv.remove(ann.as_ref(), key).await.unwrap(), "{key:?}");
    }
}

async fn many_writers_stay_within_the_limits(f: Fixture) {
    account(&f.stores, "ann").await;
    let limits = AccountKvLimits { entries: 10, bytes: 1000 };
    let ann = jid("ann@example.org");
    let puts = (0..50)
        .map(|n| f.stores.account_kv.put(ann.as_ref(), vec![(format!("k{n:02}"), vec![1; 7])], limits));
    let outcomes = join_all(puts.collect()).await;
    let done = outcomes.into_iter().filter(|outcome| *outcome.as_ref().unwrap() == PutOutcome::Done).count();
    assert_eq!(done, 10);
}

async fn a_value_is_replaced_unless_another_one_is_stored(f: Fixture) {
    let ann = jid("ann@example.org");
    let replace = |before: Option<&[u8]>, value: &[u8], limits| {
        f.stores.account_kv.replace(ann.as_ref(), "k", before.map(<[u8]>::to_vec), value.to_vec(), limits)
    };
    assert_eq!(replace(None, b"1", ROOM).await.unwrap(), Some(PutOutcome::NoAccount));
    account(&f.stores, "ann").await;
    assert_eq!(replace(Some(b""), b"1", ROOM).await.unwrap(), None);
    assert_eq!(replace(None, b"1", ROOM).await.unwrap(), Some(PutOutcome::Done));
    assert_eq!(replace(None, b"2", ROOM).await.unwrap(), None);
    assert_eq!(replace(Some(b"2"), b"3", ROOM).await.unwrap(), None);
    assert_eq!(get(&f.stores, "k").await.as_deref(), Some(&b"1"[..]), "nothing was changed");
    let small = AccountKvLimits { entries: 1, bytes: 3 };
    assert_eq!(replace(Some(b"1"), b"four", small).await.unwrap(), Some(PutOutcome::Full));
    assert_eq!(replace(Some(b"1"), b"4", small).await.unwrap(), Some(PutOutcome::Done));
    assert_eq!(get(&f.stores, "k").await.as_deref(), Some(&b"4"[..]));
    // Of those who have read the same value, one replaces it.
    let all = (0..20).map(|n| replace(Some(b"4"), format!("w{n}").as_bytes(), ROOM));
    let outcomes = join_all(all.collect()).await;
    assert_eq!(outcomes.into_iter().filter(|outcome| outcome.as_ref().unwrap().is_some()).count(), 1);
}
