//! Conformance tests of [`crate::Roster`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jid::Jid;

use super::{Fixture, UNUSUAL, account, entry, jid, join_all};
use crate::{
    AddressId, BulkItem, BulkRoster, RosterItem, RosterUpdate, RosterUpdateOutcome, StoreErrorKind, Stores,
    Subscription,
};

cases! {
    roster:
    one_contact_is_read_without_the_others,
    the_size_follows_every_change,
    an_entry_can_be_set_and_read,
    unknown_owner_is_not_found,
    keep_changes_nothing,
    a_deleted_entry_can_be_added_again,
    the_closure_sees_the_stored_entry,
    versions_rise_strictly,
    hidden_changes_keep_the_version,
    request_is_kept_only_while_pending,
    an_entry_without_state_is_deleted,
    names_and_groups_need_an_entry,
    unusual_names_and_groups,
    many_writers_on_one_roster,
    many_writers_on_one_entry,
    a_panic_changes_nothing,
    bulk_puts_and_replaces,
    bulk_skips_what_is_unknown,
    bulk_larger_than_a_chunk,
    every_state_comes_back,
    unkept_contact_gets_no_number,
    rosters_do_not_mix,
    resources_of_contacts_do_not_count,
}

const BOTH: Subscription = Subscription(32 | 3);

async fn put(stores: &Stores, owner: AddressId, item: RosterItem) -> RosterUpdateOutcome {
    let contact = item.jid.clone();
    stores.roster.update(owner, &contact, Box::new(move |_| RosterUpdate::Put(item))).await.unwrap()
}

/// The entry as returned by every read, which must agree.
async fn one(stores: &Stores, owner: AddressId, contact: &Jid) -> Option<RosterItem> {
    let snapshot = stores.roster.get(owner).await.unwrap();
    let found = snapshot.items.into_iter().find(|item| item.jid == *contact);
    let entry = stores.roster.entry(owner, contact).await.unwrap();
    assert_eq!((entry.version, &entry.item), (snapshot.version, &found));
    found
}

async fn one_contact_is_read_without_the_others(f: Fixture) {
    let (ann, eve) = (account(&f.stores, "ann").await, account(&f.stores, "eve").await);
    let (bob, dan, nobody) = (jid("bob@example.com"), jid("dan@example.com"), jid("nobody@example.com"));
    put(&f.stores, ann, entry(&bob, BOTH)).await;
    put(&f.stores, ann, entry(&dan, Subscription(8))).await;
    put(&f.stores, eve, entry(&dan, BOTH)).await;
    let name = jid("ann@example.org");
    let state = async |owner: &Jid, contact: &Jid| {
        f.stores.roster.subscription(owner.as_ref(), contact.as_ref()).await.unwrap()
    };
    assert_eq!(state(&name, &bob).await, BOTH);
    assert_eq!(state(&name, &dan).await, Subscription(8), "a shadow, and not eve's");
    assert_eq!(state(&name, &nobody).await, Subscription::NONE);
    assert_eq!(state(&name, &jid("eve@example.org")).await, Subscription::NONE, "a number without an entry");
    assert_eq!(state(&jid("ghost@example.org"), &bob).await, Subscription::NONE);
    assert_eq!(
        state(&jid("ann@example.org/laptop"), &jid("bob@example.com/phone")).await,
        BOTH,
        "bare addresses"
    );
    assert_eq!(one(&f.stores, ann, &dan).await.unwrap().subscription, Subscription(8));
    assert_eq!(one(&f.stores, ann, &nobody).await, None);
    f.stores.accounts.remove(name.as_ref()).await.unwrap();
    assert_eq!(state(&name, &bob).await, Subscription::NONE);
    assert_eq!(f.stores.roster.entry(ann, &bob).await.unwrap_err().kind, StoreErrorKind::NotFound);
}

async fn the_size_follows_every_change(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let size = async || f.stores.roster.size(ann).await.unwrap();
    assert_eq!(size().await, crate::RosterSize::default());
    let (bob, dan) = (jid("bob@example.com"), jid("dan@example.com"));
    let mut item = entry(&bob, BOTH);
    item.name = Some("B".repeat(1000));
    item.groups = vec!["g".repeat(500), "\u{e9}".repeat(100)];
    let bytes = item.bytes();
    assert_eq!(bytes, 15 + 1000 + 500 + 200);
    put(&f.stores, ann, item).await;
    let first = size().await;
    assert_eq!((first.contacts, first.requests), (1, 0));
    assert!((bytes..bytes + 50).contains(&first.bytes), "{first:?} for {bytes}");
    let request = RosterItem { request: Some(vec![b'x'; 900]), ..entry(&dan, Subscription(8)) };
    put(&f.stores, ann, request).await;
    let second = size().await;
    assert_eq!((second.contacts, second.requests), (2, 1));
    assert!((15..65).contains(&(second.bytes - first.bytes)), "the stanza is not counted");
    put(&f.stores, ann, entry(&bob, BOTH)).await;
    let gone = Box::new(|_| RosterUpdate::Delete);
    f.stores.roster.update(ann, &dan, gone).await.unwrap();
    let third = size().await;
    assert_eq!((third.contacts, third.requests), (1, 0));
    assert!(third.bytes < 65, "{third:?}");
    let ghost = f.stores.addresses.intern(&jid("ghost@example.org")).await.unwrap();
    assert_eq!(f.stores.roster.size(ghost).await.unwrap_err().kind, StoreErrorKind::NotFound);
}

async fn an_entry_can_be_set_and_read(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    let fresh = f.stores.roster.get(ann).await.unwrap();
    assert_eq!(fresh.items, []);
    let mut item = entry(&bob, BOTH);
    item.name = Some("Bob".into());
    item.groups = vec!["Friends".into(), "Work".into()];
    let changed = put(&f.stores, ann, item.clone()).await;
    item.contact = f.stores.addresses.find(&bob).await.unwrap().unwrap();
    assert_eq!(changed.before, None);
    assert_eq!(changed.after.as_ref(), Some(&item));
    assert!(changed.version > fresh.version);
    let got = f.stores.roster.get(ann).await.unwrap();
    assert_eq!((got.version, got.items), (changed.version, vec![item]));
}

async fn unknown_owner_is_not_found(f: Fixture) {
    let ghost = f.stores.addresses.intern(&jid("ghost@example.org")).await.unwrap();
    let bob = jid("bob@example.com");
    let called = Arc::new(AtomicU32::new(0));
    let counter = called.clone();
    let change = Box::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        RosterUpdate::Put(entry(&jid("bob@example.com"), BOTH))
    });
    let error = f.stores.roster.update(ghost, &bob, change).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    assert_eq!(called.load(Ordering::SeqCst), 0);
    assert_eq!(f.stores.roster.get(ghost).await.unwrap_err().kind, StoreErrorKind::NotFound);
    assert_eq!(f.stores.addresses.find(&bob).await.unwrap(), None);
}

async fn keep_changes_nothing(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    let first = put(&f.stores, ann, entry(&bob, BOTH)).await;
    let unchanged = f.stores.roster.update(ann, &bob, Box::new(|_| RosterUpdate::Keep)).await.unwrap();
    assert_eq!(
        (&unchanged.before, &unchanged.after, unchanged.version),
        (&first.after, &first.after, first.version)
    );
    let same = put(&f.stores, ann, entry(&bob, BOTH)).await;
    assert_eq!((&same.before, &same.after, same.version), (&first.after, &first.after, first.version));
    let none =
        f.stores.roster.update(ann, &jid("eve@example.com"), Box::new(|_| RosterUpdate::Keep)).await.unwrap();
    assert_eq!((none.before, none.after, none.version), (None, None, first.version));
}

async fn a_deleted_entry_can_be_added_again(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    let first = put(&f.stores, ann, entry(&bob, BOTH)).await;
    let deleted = f.stores.roster.update(ann, &bob, Box::new(|_| RosterUpdate::Delete)).await.unwrap();
    assert_eq!((&deleted.before, &deleted.after), (&first.after, &None));
    assert!(deleted.version > first.version);
    let again = f.stores.roster.update(ann, &bob, Box::new(|_| RosterUpdate::Delete)).await.unwrap();
    assert_eq!((again.before, again.after, again.version), (None, None, deleted.version));
    let back = put(&f.stores, ann, entry(&bob, BOTH)).await;
    assert!(back.version > deleted.version);
    assert_eq!(back.after, first.after, "the contact keeps its number");
}

async fn the_closure_sees_the_stored_entry(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    put(&f.stores, ann, entry(&bob, Subscription::IN_ROSTER | Subscription::TO)).await;
    let change = Box::new(|item: Option<RosterItem>| {
        let mut item = item.unwrap();
        assert_eq!(item.jid, jid("bob@example.com"));
        item.subscription = item.subscription.with(Subscription::FROM);
        RosterUpdate::Put(item)
    });
    let changed = f.stores.roster.update(ann, &bob, change).await.unwrap();
    assert_eq!(changed.after.unwrap().subscription, BOTH);
}

async fn versions_rise_strictly(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let eve = account(&f.stores, "eve").await;
    let untouched = f.stores.roster.get(eve).await.unwrap().version;
    let bob = jid("bob@example.com");
    let mut last = f.stores.roster.get(ann).await.unwrap().version;
    for round in 0..20 {
        let mut item = entry(&bob, BOTH);
        item.name = Some(format!("round {round}"));
        let changed = put(&f.stores, ann, item).await;
        assert!(changed.version > last, "{} > {last}", changed.version);
        last = changed.version;
        assert_eq!(f.stores.roster.get(ann).await.unwrap().version, last);
    }
    assert_eq!(f.stores.roster.get(eve).await.unwrap().version, untouched, "versions belong to the owner");
}

async fn hidden_changes_keep_the_version(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let (bob, eve) = (jid("bob@example.com"), jid("eve@example.com"));
    let start = put(&f.stores, ann, entry(&bob, BOTH)).await.version;
    let shadow = put(&f.stores, ann, entry(&eve, Subscription::PENDING_IN)).await;
    assert_eq!(shadow.version, start, "a client sees no shadow");
    assert!(shadow.after.is_some());
    assert_eq!(f.stores.roster.get(ann).await.unwrap().items.len(), 2, "a login does");
    let pending = put(&f.stores, ann, entry(&bob, BOTH | Subscription::PENDING_IN)).await;
    assert_eq!(pending.version, start, "an unanswered request is not shown");
    let accepted = put(&f.stores, ann, entry(&eve, Subscription::IN_ROSTER | Subscription::FROM)).await;
    assert!(accepted.version > start);
    let approved = put(&f.stores, ann, entry(&bob, BOTH | Subscription::APPROVED)).await;
    assert!(approved.version > accepted.version, "approval is shown");
}

async fn request_is_kept_only_while_pending(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let eve = jid("eve@example.com");
    let stanza = b"<presence type='subscribe'><status>hi \xc3\xbc</status></presence>\0".to_vec();
    let mut item = entry(&eve, Subscription::PENDING_IN);
    item.request = Some(stanza.clone());
    put(&f.stores, ann, item.clone()).await;
    assert_eq!(one(&f.stores, ann, &eve).await.unwrap().request, Some(stanza.clone()));
    // A second request replaces the first.
    item.request = Some(b"<presence/>".to_vec());
    let changed = put(&f.stores, ann, item.clone()).await;
    assert_eq!(changed.before.unwrap().request, Some(stanza));
    item.subscription = Subscription::IN_ROSTER | Subscription::FROM;
    let changed = put(&f.stores, ann, item).await;
    assert_eq!(changed.after.unwrap().request, None);
    assert_eq!(one(&f.stores, ann, &eve).await.unwrap().request, None);
}

async fn an_entry_without_state_is_deleted(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let eve = jid("eve@example.com");
    put(&f.stores, ann, entry(&eve, Subscription::PENDING_IN)).await;
    let changed = put(&f.stores, ann, entry(&eve, Subscription::NONE)).await;
    assert!(changed.before.is_some());
    assert_eq!(changed.after, None);
    assert_eq!(f.stores.roster.get(ann).await.unwrap().items, []);
}

async fn names_and_groups_need_an_entry(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let eve = jid("eve@example.com");
    let mut item = entry(&eve, Subscription::IN_ROSTER | Subscription::PENDING_IN);
    (item.name, item.groups) = (Some("Eve".into()), vec!["G".into()]);
    put(&f.stores, ann, item.clone()).await;
    item.subscription = Subscription::PENDING_IN;
    let after = put(&f.stores, ann, item).await.after.unwrap();
    assert_eq!((after.name, after.groups), (None, vec![]), "a shadow has no label");
}

async fn unusual_names_and_groups(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    for text in UNUSUAL {
        let mut item = entry(&bob, BOTH);
        item.name = Some((*text).to_owned());
        item.groups = vec![(*text).to_owned(), "x".to_owned(), format!("{text}{text}")];
        put(&f.stores, ann, item.clone()).await;
        let got = one(&f.stores, ann, &bob).await.unwrap();
        assert_eq!((got.name, got.groups), (item.name, item.groups));
    }
    let mut item = entry(&bob, BOTH);
    item.groups = UNUSUAL.iter().map(|text| (*text).to_owned()).collect();
    put(&f.stores, ann, item.clone()).await;
    let got = one(&f.stores, ann, &bob).await.unwrap();
    assert_eq!((got.name, got.groups), (None, item.groups), "no name is not an empty name");
}

async fn many_writers_on_one_roster(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let contacts: Vec<Jid> = (0..100).map(|n| jid(&format!("c{n}@example.com"))).collect();
    let changes = contacts.iter().map(|contact| {
        let item = entry(contact, BOTH);
        f.stores.roster.update(ann, contact, Box::new(move |_| RosterUpdate::Put(item)))
    });
    let mut versions: Vec<u64> =
        join_all(changes.collect()).await.into_iter().map(|c| c.unwrap().version).collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 100, "no version is given twice");
    let got = f.stores.roster.get(ann).await.unwrap();
    assert_eq!(got.items.len(), 100);
    assert!(got.items.windows(2).all(|pair| pair[0].contact < pair[1].contact), "ordered by number");
}

async fn many_writers_on_one_entry(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    let changes = (0..100).map(|n: u32| {
        f.stores.roster.update(
            ann,
            &bob,
            Box::new(move |item| {
                let mut item = item.unwrap_or_else(|| entry(&jid("bob@example.com"), BOTH));
                item.groups.push(n.to_string());
                RosterUpdate::Put(item)
            }),
        )
    });
    for changed in join_all(changes.collect()).await {
        changed.unwrap();
    }
    let mut groups = one(&f.stores, ann, &bob).await.unwrap().groups;
    assert_eq!(groups.len(), 100, "no change was lost");
    groups.sort_unstable();
    groups.dedup();
    assert_eq!(groups.len(), 100);
}

async fn a_panic_changes_nothing(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let bob = jid("bob@example.com");
    let first = put(&f.stores, ann, entry(&bob, BOTH)).await;
    let panics =
        || -> crate::RosterUpdateFn { Box::new(|_| std::panic::resume_unwind(Box::new("on purpose"))) };
    // Next to others, which must not be affected.
    let others = (0..5).map(|n| (n, jid(&format!("c{n}@example.com")))).collect::<Vec<_>>();
    let changes = others.iter().map(|(n, contact)| match n {
        2 => f.stores.roster.update(ann, &bob, panics()),
        _ => {
            let item = entry(contact, BOTH);
            f.stores.roster.update(ann, contact, Box::new(move |_| RosterUpdate::Put(item)))
        }
    });
    let results = join_all(changes.collect()).await;
    for (n, result) in results.into_iter().enumerate() {
        match (n, result) {
            (2, Err(error)) => assert_eq!(error.kind, StoreErrorKind::Internal),
            (2, Ok(changed)) => panic!("{changed:?}"),
            (_, result) => drop(result.unwrap()),
        }
    }
    assert_eq!(one(&f.stores, ann, &bob).await, first.after);
    assert_eq!(f.stores.roster.get(ann).await.unwrap().items.len(), 5);
}

fn bulk(contact: AddressId, bits: u8) -> BulkItem {
    BulkItem { contact, name: None, groups: vec![], subscription: Subscription(bits) }
}

async fn bulk_puts_and_replaces(f: Fixture) {
    let (ann, eve) = (account(&f.stores, "ann").await, account(&f.stores, "eve").await);
    let bob = f.stores.addresses.intern(&jid("bob@example.com")).await.unwrap();
    put(&f.stores, ann, entry(&jid("dan@example.com"), BOTH)).await;
    let before = f.stores.roster.get(ann).await.unwrap().version;
    let labelled = BulkItem { name: Some("Bob".into()), groups: vec!["G".into()], ..bulk(bob, 35) };
    let input = vec![
        BulkRoster { owner: ann, items: vec![labelled.clone(), bulk(eve, 35)] },
        BulkRoster { owner: eve, items: vec![bulk(ann, 35)] },
    ];
    assert_eq!(f.stores.roster.put_bulk(input.clone()).await.unwrap(), 3);
    let after = f.stores.roster.get(ann).await.unwrap();
    assert!(after.version > before);
    assert_eq!(after.items.len(), 3, "others stay");
    let got = after.items.iter().find(|item| item.contact == bob).unwrap();
    assert_eq!((&got.name, &got.groups, got.subscription), (&labelled.name, &labelled.groups, BOTH));
    assert_eq!(got.jid, jid("bob@example.com"));

    assert_eq!(f.stores.roster.put_bulk(input).await.unwrap(), 3, "may be repeated");
    assert_eq!(f.stores.roster.get(ann).await.unwrap().items, after.items);
    let twice = vec![BulkRoster { owner: ann, items: vec![bulk(bob, 33), bulk(bob, 34)] }];
    f.stores.roster.put_bulk(twice).await.unwrap();
    let got = f.stores.roster.get(ann).await.unwrap();
    let got = got.items.iter().find(|item| item.contact == bob).unwrap();
    assert_eq!(got.subscription, Subscription(34), "the later one counts");
    assert_eq!(f.stores.roster.put_bulk(vec![]).await.unwrap(), 0);
}

async fn bulk_skips_what_is_unknown(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let ghost = f.stores.addresses.intern(&jid("ghost@example.org")).await.unwrap();
    let nobody = AddressId::new(4_000_000).unwrap();
    let input = vec![
        BulkRoster { owner: ghost, items: vec![bulk(ann, 35)] },
        BulkRoster { owner: ann, items: vec![bulk(nobody, 35), bulk(ghost, 35), bulk(ann, 0)] },
        BulkRoster { owner: nobody, items: vec![] },
    ];
    assert_eq!(f.stores.roster.put_bulk(input).await.unwrap(), 1);
    let got = f.stores.roster.get(ann).await.unwrap();
    assert_eq!(got.items.iter().map(|item| item.contact).collect::<Vec<_>>(), [ghost]);
}

async fn bulk_larger_than_a_chunk(f: Fixture) {
    let mut owners = Vec::new();
    for n in 0..40 {
        owners.push(account(&f.stores, &format!("u{n}")).await);
    }
    let contacts = join_all(
        (0..500)
            .map(|n| {
                let stores = f.stores.clone();
                async move { stores.addresses.intern(&jid(&format!("c{n}@example.com"))).await.unwrap() }
            })
            .collect(),
    )
    .await;
    let rosters = owners.iter().map(|owner| {
        let items = contacts.iter().map(|contact| bulk(*contact, 35)).collect();
        BulkRoster { owner: *owner, items }
    });
    assert_eq!(f.stores.roster.put_bulk(rosters.collect()).await.unwrap(), 20_000);
    for owner in owners {
        assert_eq!(f.stores.roster.get(owner).await.unwrap().items.len(), 500);
    }
}

async fn every_state_comes_back(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    for bits in 1..64u8 {
        let contact = jid(&format!("s{bits}@example.com"));
        let mut item = entry(&contact, Subscription(bits));
        item.request = Some(vec![bits]);
        let put = put(&f.stores, ann, item).await.after.unwrap();
        assert_eq!(put.subscription, Subscription(bits));
        assert_eq!(put.request.is_some(), bits & 8 != 0);
        assert_eq!(one(&f.stores, ann, &contact).await, Some(put));
    }
}

async fn unkept_contact_gets_no_number(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let eve = jid("eve@example.com");
    for change in
        [RosterUpdate::Keep, RosterUpdate::Delete, RosterUpdate::Put(entry(&eve, Subscription::NONE))]
    {
        f.stores.roster.update(ann, &eve, Box::new(move |_| change)).await.unwrap();
    }
    assert_eq!(
        f.stores.addresses.find(&eve).await.unwrap(),
        None,
        "unknown contacts must not fill the dictionary"
    );
}

async fn rosters_do_not_mix(f: Fixture) {
    let (ann, eve) = (account(&f.stores, "ann").await, account(&f.stores, "eve").await);
    let bob = jid("bob@example.com");
    put(&f.stores, ann, entry(&bob, BOTH)).await;
    put(&f.stores, eve, entry(&bob, Subscription::PENDING_IN)).await;
    f.stores.roster.update(eve, &bob, Box::new(|_| RosterUpdate::Delete)).await.unwrap();
    assert_eq!(one(&f.stores, ann, &bob).await.unwrap().subscription, BOTH);
    assert_eq!(f.stores.roster.get(eve).await.unwrap().items, []);
}

async fn resources_of_contacts_do_not_count(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let full = jid("bob@example.com/laptop");
    let changed = put(&f.stores, ann, entry(&full, BOTH)).await;
    assert_eq!(changed.after.unwrap().jid, jid("bob@example.com"));
    let change =
        f.stores.roster.update(ann, &jid("bob@example.com/phone"), Box::new(|_| RosterUpdate::Delete));
    assert!(change.await.unwrap().before.is_some());
}
