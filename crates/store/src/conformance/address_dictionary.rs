//! Conformance tests of [`crate::AddressDictionary`].

use super::{Fixture, account, jid, join_all};
use crate::AddressId;

cases! {
    address_dictionary:
    ids_are_stable,
    resources_are_ignored,
    unknown_addresses_are_not_found,
    resolves_what_is_known,
    concurrent_interning_gives_one_id,
    ids_are_in_the_order_of_the_input,
    ids_of_removed_accounts_are_kept,
    resolves_more_than_one_statement_takes,
}

async fn ids_are_stable(f: Fixture) {
    let addresses = &f.stores.addresses;
    let ann = addresses.intern(&jid("ann@example.org")).await.unwrap();
    let bob = addresses.intern(&jid("bob@example.org")).await.unwrap();
    assert_ne!(ann, bob);
    assert_eq!(addresses.intern(&jid("ann@example.org")).await.unwrap(), ann);
    assert_eq!(addresses.find(&jid("bob@example.org")).await.unwrap(), Some(bob));
}

async fn resources_are_ignored(f: Fixture) {
    let addresses = &f.stores.addresses;
    let id = addresses.intern(&jid("ann@example.org/laptop")).await.unwrap();
    assert_eq!(addresses.find(&jid("ann@example.org/phone")).await.unwrap(), Some(id));
    assert_eq!(addresses.resolve(&[id]).await.unwrap(), [(id, jid("ann@example.org"))]);
}

async fn unknown_addresses_are_not_found(f: Fixture) {
    let addresses = &f.stores.addresses;
    assert_eq!(addresses.find(&jid("nobody@example.org")).await.unwrap(), None);
    let unknown = [AddressId::new(77).unwrap(), AddressId::UNASSIGNED];
    assert_eq!(addresses.resolve(&unknown).await.unwrap(), []);
    assert_eq!(addresses.resolve(&[]).await.unwrap(), []);
}

async fn resolves_what_is_known(f: Fixture) {
    let addresses = &f.stores.addresses;
    let mut expected = Vec::new();
    // Addresses are case-folded and width-mapped before; the store must not fold them again.
    for text in [
        "example.org",
        "ann@example.org",
        "groß@example.org",
        "gross@example.org",
        "日本@例え.jp",
        "𐐨@example.org",
    ] {
        expected.push((addresses.intern(&jid(text)).await.unwrap(), jid(text)));
    }
    let mut ids: Vec<AddressId> = expected.iter().map(|(id, _)| *id).collect();
    ids.push(AddressId::new(1_000_000).unwrap());
    let mut got = addresses.resolve(&ids).await.unwrap();
    got.sort_by_key(|(id, _)| *id);
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(got, expected);
    expected.dedup_by_key(|(id, _)| *id);
    assert_eq!(expected.len(), 6, "every address has its own number");
}

async fn concurrent_interning_gives_one_id(f: Fixture) {
    let requested: Vec<_> = (0..50).map(|n| jid(&format!("user{}@example.org", n % 5))).collect();
    let numbers = join_all(requested.iter().map(|jid| f.stores.addresses.intern(jid)).collect()).await;
    let mut numbers: Vec<AddressId> = numbers.into_iter().map(Result::unwrap).collect();
    for n in 5..50 {
        assert_eq!(numbers[n], numbers[n % 5]);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5);
}

async fn ids_are_in_the_order_of_the_input(f: Fixture) {
    let addresses = &f.stores.addresses;
    let known = addresses.intern(&jid("user7@example.org")).await.unwrap();
    let mut requested: Vec<_> = (0..600).rev().map(|n| jid(&format!("user{n}@example.org"))).collect();
    requested.push(jid("user7@example.org/laptop"));
    let numbers = addresses.intern_many(&requested).await.unwrap();
    assert_eq!((numbers.len(), numbers[592], numbers[600]), (601, known, known));
    assert_eq!(addresses.intern_many(&requested).await.unwrap(), numbers);
    for at in [0, 300, 599] {
        assert_eq!(addresses.find(&requested[at]).await.unwrap(), Some(numbers[at]));
    }
    assert_eq!(addresses.intern_many(&[]).await.unwrap(), []);
}

async fn ids_of_removed_accounts_are_kept(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    f.stores.accounts.remove(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
    let later = f.stores.addresses.intern(&jid("bob@example.org")).await.unwrap();
    assert_ne!(later, ann, "a number is never used again");
    assert_eq!(f.stores.addresses.intern(&jid("ann@example.org")).await.unwrap(), ann);
}

async fn resolves_more_than_one_statement_takes(f: Fixture) {
    let mut ids = Vec::new();
    for n in 0..300 {
        ids.push(f.stores.addresses.intern(&jid(&format!("u{n}@example.org"))));
    }
    let ids: Vec<AddressId> = join_all(ids).await.into_iter().map(Result::unwrap).collect();
    for count in [1, 2, 8, 9, 64, 65, 255, 256, 257, 300] {
        let mut got: Vec<AddressId> =
            f.stores.addresses.resolve(&ids[..count]).await.unwrap().into_iter().map(|(id, _)| id).collect();
        got.sort_unstable();
        let mut expected = ids[..count].to_vec();
        expected.sort_unstable();
        assert_eq!(got, expected);
    }
}
