//! Conformance tests of [`crate::ServerKv`].

use super::{Fixture, UNUSUAL, join_all};
use crate::StoreErrorKind;
use crate::server_kv::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

cases! {
    server_kv:
    values_can_be_set_and_replaced,
    the_first_value_wins,
    many_first_writers_agree,
    a_value_is_set_only_if_the_stored_one_is_expected,
    of_many_writers_with_one_expectation_one_succeeds,
    keys_are_compared_by_bytes,
    limits_are_enforced,
}

async fn values_can_be_set_and_replaced(f: Fixture) {
    let settings = &f.stores.server_kv;
    assert_eq!(settings.get("salt").await.unwrap(), None);
    for value in [&b"one"[..], b"", b"\0\xff\0"] {
        settings.put("salt", value).await.unwrap();
        assert_eq!(settings.get("salt").await.unwrap().as_deref(), Some(value));
    }
}

async fn the_first_value_wins(f: Fixture) {
    let settings = &f.stores.server_kv;
    assert_eq!(settings.put_if_absent("salt", b"first").await.unwrap(), b"first");
    assert_eq!(settings.put_if_absent("salt", b"second").await.unwrap(), b"first");
    assert_eq!(settings.get("salt").await.unwrap().as_deref(), Some(&b"first"[..]));
}

async fn many_first_writers_agree(f: Fixture) {
    let values: Vec<[u8; 1]> = (0..50u8).map(|n| [n]).collect();
    let got =
        join_all(values.iter().map(|value| f.stores.server_kv.put_if_absent("salt", value)).collect()).await;
    let first = got[0].as_ref().unwrap();
    assert!(got.iter().all(|value| value.as_ref().unwrap() == first));
}

async fn a_value_is_set_only_if_the_stored_one_is_expected(f: Fixture) {
    let settings = &f.stores.server_kv;
    let set = async |expected: Option<&[u8]>, value: &[u8]| {
        settings.compare_and_set("lease", expected, value).await.unwrap()
    };
    assert!(!set(Some(b""), b"a").await, "there is no value");
    assert!(set(None, b"a").await);
    assert!(!set(None, b"b").await, "there is one");
    assert!(!set(Some(b"A"), b"b").await);
    assert!(!set(Some(b"a\0"), b"b").await);
    assert_eq!(settings.get("lease").await.unwrap().as_deref(), Some(&b"a"[..]));
    assert!(set(Some(b"a"), b"\0\xff").await);
    assert!(set(Some(b"\0\xff"), b"").await);
    assert!(set(Some(b""), b"c").await);
    assert_eq!(settings.get("lease").await.unwrap().as_deref(), Some(&b"c"[..]));
}

async fn of_many_writers_with_one_expectation_one_succeeds(f: Fixture) {
    let settings = &f.stores.server_kv;
    let values: Vec<[u8; 1]> = (0..50u8).map(|n| [n]).collect();
    for expected in [None, Some(&b"free"[..])] {
        let calls = values.iter().map(|value| settings.compare_and_set("lease", expected, value)).collect();
        let set = join_all(calls).await;
        let winners: Vec<usize> = (0..50).filter(|at| *set[*at].as_ref().unwrap()).collect();
        let [winner] = winners[..] else { panic!("{winners:?}") };
        assert_eq!(settings.get("lease").await.unwrap().as_deref(), Some(&values[winner][..]));
        settings.put("lease", b"free").await.unwrap();
    }
}

async fn keys_are_compared_by_bytes(f: Fixture) {
    for key in UNUSUAL {
        f.stores.server_kv.put(key, key.as_bytes()).await.unwrap();
    }
    for key in UNUSUAL {
        let value = f.stores.server_kv.get(key).await.unwrap();
        assert_eq!(value.as_deref(), Some(key.as_bytes()), "{key:?}");
    }
}

async fn limits_are_enforced(f: Fixture) {
    let settings = &f.stores.server_kv;
    settings.put(&"k".repeat(MAX_KEY_BYTES), &vec![1; MAX_VALUE_BYTES]).await.unwrap();
    assert_eq!(
        settings.get(&"k".repeat(MAX_KEY_BYTES)).await.unwrap().map(|value| value.len()),
        Some(MAX_VALUE_BYTES)
    );
    let too_large = |error: crate::StoreError| assert_eq!(error.kind, StoreErrorKind::TooLarge);
    too_large(settings.put(&"k".repeat(MAX_KEY_BYTES + 1), b"").await.unwrap_err());
    too_large(settings.put("k", &vec![1; MAX_VALUE_BYTES + 1]).await.unwrap_err());
    too_large(settings.put_if_absent("k", &vec![1; MAX_VALUE_BYTES + 1]).await.unwrap_err());
    too_large(settings.compare_and_set("k", None, &vec![1; MAX_VALUE_BYTES + 1]).await.unwrap_err());
}
