//! Conformance tests of [`crate::Vcards`].

use super::{Fixture, account, jid};
use crate::vcards::{MAX_SEARCHABLE_CHARS, MAX_VCARD_BYTES};
use crate::{SearchPageRequest, SearchableProfile, Seek, StoreErrorKind, Stores, UserQuery};

cases! {
    vcards:
    values_can_be_set_replaced_and_removed,
    a_missing_account_stores_nothing,
    a_card_without_texts_is_not_found,
    large_cards_are_refused,
    the_photos_hash_comes_with_the_login,
    long_texts_are_cut,
    a_card_is_replaced_unless_another_one_is_stored,
}

async fn put(stores: &Stores, vcard: Option<&[u8]>, name: &str) -> bool {
    let searchable = SearchableProfile { name: name.into(), ..SearchableProfile::default() };
    stores
        .vcards
        .put(jid("ann@example.org").as_ref(), vcard.map(<[u8]>::to_vec), searchable, None)
        .await
        .unwrap()
}

async fn get(stores: &Stores) -> Option<Vec<u8>> {
    stores.vcards.get(jid("ann@example.org/laptop").as_ref()).await.unwrap()
}

/// The displayed names of users found by a prefix of the name.
async fn named(stores: &Stores, name: &str) -> Vec<String> {
    let query = UserQuery { name: Some(name.into()), ..UserQuery::default() };
    let page = SearchPageRequest { seek: Seek::First, limit: 10 };
    let found = stores.user_search.search("example.org", &query, page).await.unwrap();
    found.users.into_iter().map(|user| user.shown.name).collect()
}

async fn values_can_be_set_replaced_and_removed(f: Fixture) {
    assert_eq!(get(&f.stores).await, None);
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    assert_eq!(get(&f.stores).await, None);
    assert!(put(&f.stores, Some(b"<vCard/>"), "Ann").await);
    assert_eq!(get(&f.stores).await.as_deref(), Some(&b"<vCard/>"[..]));
    assert_eq!(named(&f.stores, "a").await, ["Ann"]);
    assert!(put(&f.stores, Some(b""), "Other").await);
    assert_eq!(get(&f.stores).await.as_deref(), Some(&b""[..]));
    assert!(named(&f.stores, "a").await.is_empty());
    assert_eq!(named(&f.stores, "o").await, ["Other"]);
    assert_eq!(f.stores.vcards.get(jid("bob@example.org").as_ref()).await.unwrap(), None);
    assert!(put(&f.stores, None, "Other").await, "the texts go with the card");
    assert_eq!(get(&f.stores).await, None);
    assert!(named(&f.stores, "o").await.is_empty());
    assert!(put(&f.stores, None, "").await, "a repeat is no failure");
}

async fn a_missing_account_stores_nothing(f: Fixture) {
    assert!(!put(&f.stores, Some(b"x"), "Ann").await);
    f.stores.addresses.intern(&jid("ann@example.org")).await.unwrap();
    assert!(!put(&f.stores, Some(b"x"), "Ann").await);
    assert_eq!(get(&f.stores).await, None);
    account(&f.stores, "ann").await;
    assert_eq!(get(&f.stores).await, None);
    assert!(named(&f.stores, "a").await.is_empty());
}

async fn a_card_without_texts_is_not_found(f: Fixture) {
    account(&f.stores, "ann").await;
    put(&f.stores, Some(b"x"), "Ann").await;
    put(&f.stores, Some(b"x"), "").await;
    assert!(named(&f.stores, "a").await.is_empty());
    assert!(get(&f.stores).await.is_some());
}

async fn large_cards_are_refused(f: Fixture) {
    account(&f.stores, "ann").await;
    let large = vec![b'x'; MAX_VCARD_BYTES];
    assert!(put(&f.stores, Some(&large), "Ann").await);
    assert_eq!(get(&f.stores).await.unwrap().len(), MAX_VCARD_BYTES);
    let more = Some(vec![b'x'; MAX_VCARD_BYTES + 1]);
    let refused =
        f.stores.vcards.put(jid("ann@example.org").as_ref(), more, SearchableProfile::default(), None).await;
    assert_eq!(refused.unwrap_err().kind, StoreErrorKind::TooLarge);
    assert_eq!(named(&f.stores, "a").await, ["Ann"], "nothing was changed");
}

async fn the_photos_hash_comes_with_the_login(f: Fixture) {
    let ann = jid("ann@example.org");
    account(&f.stores, "ann").await;
    let photo = || async { super::login(&f.stores, &ann).await.photo };
    assert_eq!(photo().await, None);
    for hash in [Some([7; 20]), Some([0; 20]), None, Some([255; 20])] {
        let card = Some(b"x".to_vec());
        assert!(f.stores.vcards.put(ann.as_ref(), card, SearchableProfile::default(), hash).await.unwrap());
        assert_eq!(photo().await, hash);
    }
    assert!(
        f.stores.vcards.put(ann.as_ref(), None, SearchableProfile::default(), Some([1; 20])).await.unwrap()
    );
    assert_eq!(photo().await, None, "it goes with the card");
}

async fn long_texts_are_cut(f: Fixture) {
    account(&f.stores, "ann").await;
    put(&f.stores, Some(b"x"), &"日".repeat(100_000)).await;
    let names = named(&f.stores, &"日".repeat(1000)).await;
    assert_eq!(names, ["日".repeat(MAX_SEARCHABLE_CHARS)]);
}

async fn a_card_is_replaced_unless_another_one_is_stored(f: Fixture) {
    let ann = jid("ann@example.org");
    let replace = |before: Option<&[u8]>, card: Option<&[u8]>, name: &str| {
        let searchable = SearchableProfile { name: name.into(), ..SearchableProfile::default() };
        let [before, card] = [before, card].map(|one| one.map(<[u8]>::to_vec));
        f.stores.vcards.replace(ann.as_ref(), before, card, searchable, Some([7; 20]))
    };
    assert_eq!(replace(None, Some(b"1"), "Ann").await.unwrap(), Some(false), "there is no account");
    account(&f.stores, "ann").await;
    assert_eq!(replace(Some(b""), Some(b"1"), "Ann").await.unwrap(), None);
    assert_eq!(replace(None, Some(b"1"), "Ann").await.unwrap(), Some(true));
    assert_eq!(replace(None, Some(b"2"), "Other").await.unwrap(), None);
    assert_eq!(replace(Some(b"2"), None, "").await.unwrap(), None);
    assert_eq!(get(&f.stores).await.as_deref(), Some(&b"1"[..]));
    assert_eq!(named(&f.stores, "a").await, ["Ann"], "nothing was changed");
    assert_eq!(super::login(&f.stores, &ann).await.photo, Some([7; 20]));
    assert_eq!(replace(Some(b"1"), Some(b"3"), "Other").await.unwrap(), Some(true));
    assert_eq!(named(&f.stores, "o").await, ["Other"]);
    assert_eq!(replace(Some(b"3"), None, "Other").await.unwrap(), Some(true));
    assert_eq!(get(&f.stores).await, None);
    let more = vec![b'x'; MAX_VCARD_BYTES + 1];
    assert_eq!(replace(None, Some(&more), "").await.unwrap_err().kind, StoreErrorKind::TooLarge);
}
