//! Conformance tests of [`crate::Rooms`].

use jid::Jid;

use super::{Fixture, UNUSUAL, jid, join_all};
use crate::rooms::{
    AffiliationPosition, AffiliationQuery, KEEP_ALL, LOADED_AFFILIATIONS, NO_AFFILIATION, RoomAffiliation,
    RoomHistoryEntry, RoomRecord, RoomUpdate, WriteFence,
};
use crate::{StoreErrorKind, Stores};

cases! {
    rooms:
    a_room_is_put_replaced_and_removed,
    the_newest_messages_are_kept_in_order,
    a_part_of_a_long_history_is_loaded,
    a_message_with_a_known_id_replaces_it,
    a_missing_room_has_no_history,
    public_rooms_of_a_service_are_listed_in_pages,
    rooms_of_a_creator_are_counted,
    unusual_titles_and_large_states_are_kept,
    many_writers_append_to_one_room,
    a_write_whose_fence_was_replaced_changes_nothing,
    affiliations_are_put_replaced_and_removed_one_by_one,
    affiliations_are_listed_in_pages,
    a_removed_account_has_no_affiliations_and_has_created_nothing,
    a_hundred_thousand_affiliations_are_read_in_pages,
    removals_of_accounts_are_counted_by_address,
    removals_are_listed_in_their_order,
    a_room_is_replaced_with_nothing_of_the_former_one,
}

fn record(title: &str, is_public: bool, state: &[u8]) -> RoomRecord {
    RoomRecord { creator: jid("ann@example.org"), title: title.to_owned(), is_public, state: state.to_vec() }
}

fn entry(id: &str, message: &[u8]) -> RoomHistoryEntry {
    RoomHistoryEntry { id: id.into(), message: message.to_vec() }
}

async fn put(stores: &Stores, room: &str, record: RoomRecord) {
    let update = RoomUpdate { record: Some(record), ..RoomUpdate::default() };
    stores.rooms.update(jid(room).as_ref(), update, None).await.unwrap();
}

async fn history(stores: &Stores, room: &str) -> Vec<RoomHistoryEntry> {
    stores.rooms.load(jid(room).as_ref(), 99).await.unwrap().map(|room| room.history).unwrap_or_default()
}

async fn a_room_is_put_replaced_and_removed(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    assert_eq!(f.stores.rooms.load(room.as_ref(), 99).await.unwrap(), None);
    put(&f.stores, room.as_str(), record("Cave", true, b"1")).await;
    f.stores.rooms.append(room.as_ref(), vec![entry("a", b"<message/>")], 9, None).await.unwrap();
    put(&f.stores, room.as_str(), record("", false, b"")).await;
    let stored =
        f.stores.rooms.load(jid("coven@rooms.example.org/nick").as_ref(), 99).await.unwrap().unwrap();
    assert_eq!(stored.record, record("", false, b""));
    assert_eq!(stored.history, [entry("a", b"<message/>")], "the history stays");
    assert!(f.stores.rooms.remove(room.as_ref(), None).await.unwrap());
    assert!(!f.stores.rooms.remove(room.as_ref(), None).await.unwrap());
    assert_eq!(f.stores.rooms.load(room.as_ref(), 99).await.unwrap(), None);
    put(&f.stores, room.as_str(), record("", false, b"")).await;
    assert!(history(&f.stores, room.as_str()).await.is_empty(), "the history is removed with the room");
}

async fn the_newest_messages_are_kept_in_order(f: Fixture) {
    let room = "coven@rooms.example.org";
    put(&f.stores, room, record("", true, b"")).await;
    put(&f.stores, "heath@rooms.example.org", record("", true, b"")).await;
    let append = |ids: &'static [&'static str], keep| {
        let messages = ids.iter().map(|id| entry(id, id.as_bytes())).collect();
        f.stores.rooms.append(jid(room).as_ref(), messages, keep, None)
    };
    append(&["b", "c", "a"], 9).await.unwrap();
    let ids =
        |entries: Vec<RoomHistoryEntry>| entries.iter().map(|one| one.id.to_string()).collect::<String>();
    assert_eq!(ids(history(&f.stores, room).await), "abc");
    append(&["e", "d"], 3).await.unwrap();
    assert_eq!(ids(history(&f.stores, room).await), "cde");
    append(&[], 2).await.unwrap();
    assert_eq!(ids(history(&f.stores, room).await), "de");
    append(&["f"], 0).await.unwrap();
    assert!(history(&f.stores, room).await.is_empty());
    assert!(history(&f.stores, "heath@rooms.example.org").await.is_empty());
}

async fn a_part_of_a_long_history_is_loaded(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    put(&f.stores, room.as_str(), record("", true, b"")).await;
    for batch in 0..10 {
        let messages = (0..100).map(|number| entry(&format!("{batch}{number:02}"), b"x")).collect();
        f.stores.rooms.append(room.as_ref(), messages, KEEP_ALL, None).await.unwrap();
    }
    for (messages, first) in [(3, Some("997")), (1_000, Some("000")), (2_000, Some("000")), (0, None)] {
        let history = f.stores.rooms.load(room.as_ref(), messages).await.unwrap().unwrap().history;
        assert_eq!(history.len(), messages.min(1_000) as usize);
        assert_eq!(history.first().map(|one| &*one.id), first);
        assert!(history.is_sorted_by(|one, next| one.id < next.id));
    }
    f.stores.rooms.append(room.as_ref(), Vec::new(), 5, None).await.unwrap();
    assert_eq!(history(&f.stores, room.as_str()).await.len(), 5);
}

async fn a_message_with_a_known_id_replaces_it(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    put(&f.stores, room.as_str(), record("", true, b"")).await;
    f.stores.rooms.append(room.as_ref(), vec![entry("a", b"1"), entry("b", b"2")], 9, None).await.unwrap();
    f.stores.rooms.append(room.as_ref(), vec![entry("a", b"retracted")], 9, None).await.unwrap();
    assert_eq!(history(&f.stores, room.as_str()).await, [entry("a", b"retracted"), entry("b", b"2")]);
}

async fn a_missing_room_has_no_history(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    f.stores.rooms.append(room.as_ref(), vec![entry("a", b"1")], 9, None).await.unwrap();
    put(&f.stores, room.as_str(), record("", true, b"")).await;
    assert!(history(&f.stores, room.as_str()).await.is_empty());
}

async fn public_rooms_of_a_service_are_listed_in_pages(f: Fixture) {
    for (room, is_public) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        put(&f.stores, &format!("{room}@rooms.example.org"), record(room, is_public, b"")).await;
    }
    put(&f.stores, "e@rooms.example.net", record("e", true, b"")).await;
    let mut titles = String::new();
    let mut after = None;
    loop {
        let page = f.stores.rooms.list("rooms.example.org", after.clone(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.jid.clone());
        titles.extend(page.iter().map(|room| room.title.as_str()));
    }
    let mut sorted: Vec<char> = titles.chars().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, ['a', 'c', 'd'], "each once");
    assert_eq!(f.stores.rooms.count("rooms.example.org").await.unwrap(), 3);
    assert_eq!(f.stores.rooms.count("rooms.example.com").await.unwrap(), 0);
    let all = f.stores.rooms.list_all("rooms.example.org", None, 9).await.unwrap();
    assert_eq!(all.len(), 4, "hidden rooms included");
    let rest = f.stores.rooms.list_all("rooms.example.org", Some(all[2].jid.clone()), 9).await.unwrap();
    assert_eq!(rest, all[3..]);
    let unknown = Some(jid("x@rooms.example.org"));
    assert!(f.stores.rooms.list("rooms.example.org", unknown, 9).await.unwrap().is_empty());
    assert!(f.stores.rooms.list("rooms.example.com", None, 9).await.unwrap().is_empty());
}

async fn rooms_of_a_creator_are_counted(f: Fixture) {
    let count = |most| {
        let stores = f.stores.clone();
        async move { stores.rooms.count_created(jid("ann@example.org/laptop").as_ref(), most).await.unwrap() }
    };
    assert_eq!(count(9).await, 0);
    for room in ["a", "b", "c"] {
        put(&f.stores, &format!("{room}@rooms.example.org"), record("", false, b"")).await;
    }
    let of_bob = RoomRecord { creator: jid("bob@example.org"), ..record("", false, b"") };
    put(&f.stores, "d@rooms.example.org", of_bob).await;
    assert_eq!((count(9).await, count(2).await), (3, 2));
}

async fn unusual_titles_and_large_states_are_kept(f: Fixture) {
    for (number, title) in UNUSUAL.iter().enumerate() {
        let room = format!("r{number}@rooms.example.org");
        put(&f.stores, &room, record(title, true, &[0, 255])).await;
        let stored = f.stores.rooms.load(jid(&room).as_ref(), 99).await.unwrap().unwrap();
        assert_eq!(stored.record, record(title, true, &[0, 255]));
    }
    let state = vec![7; 300_000];
    put(&f.stores, "large@rooms.example.org", record("", true, &state)).await;
    let stored = f.stores.rooms.load(jid("large@rooms.example.org").as_ref(), 99).await.unwrap().unwrap();
    assert_eq!(stored.record.state, state);
}

async fn many_writers_append_to_one_room(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    put(&f.stores, room.as_str(), record("", true, b"")).await;
    let appends = (0..20).map(|number| {
        let message = entry(&format!("{number:02}"), b"x");
        f.stores.rooms.append(room.as_ref(), vec![message], 15, None)
    });
    for appended in join_all(appends.collect()).await {
        appended.unwrap();
    }
    assert_eq!(history(&f.stores, room.as_str()).await.len(), 15);
}

async fn a_write_whose_fence_was_replaced_changes_nothing(f: Fixture) {
    let room = jid("coven@rooms.example.org");
    let fence = |value: &[u8]| Some(WriteFence { key: "slice 7".into(), value: value.into() });
    let (rooms, settings) = (&f.stores.rooms, &f.stores.server_kv);
    let put = |title, value| {
        let affiliations = vec![affiliation(title, 4, "", "")];
        let update = RoomUpdate { record: Some(record(title, true, b"")), affiliations, replaces: false };
        rooms.update(room.as_ref(), update, fence(value))
    };
    assert_eq!(put("none", b"1").await.unwrap_err().kind, StoreErrorKind::Fenced, "no value");
    settings.put("slice 7", b"1").await.unwrap();
    put("first", b"1").await.unwrap();
    rooms.append(room.as_ref(), vec![entry("a", b"1")], 9, fence(b"1")).await.unwrap();
    assert!(settings.compare_and_set("slice 7", Some(b"1"), b"2").await.unwrap());
    let appended = rooms.append(room.as_ref(), vec![entry("b", b"1")], 9, fence(b"1")).await;
    let refused =
        [put("late", b"1").await, appended, rooms.remove(room.as_ref(), fence(b"1")).await.map(drop)];
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!((error.kind, error.retryable), (StoreErrorKind::Fenced, false));
    }
    let stored = rooms.load(room.as_ref(), 99).await.unwrap().unwrap();
    assert_eq!((&*stored.record.title, stored.history), ("first", vec![entry("a", b"1")]));
    assert_eq!(stored.affiliations, [affiliation("first", 4, "", "")]);
    assert!(rooms.remove(room.as_ref(), fence(b"2")).await.unwrap());
}

fn affiliation(user: &str, number: u8, nick: &str, reason: &str) -> RoomAffiliation {
    RoomAffiliation {
        user: jid(&format!("{user}@example.org")),
        affiliation: number,
        nick: nick.into(),
        reason: reason.into(),
    }
}

async fn affiliate(stores: &Stores, room: &str, affiliations: Vec<RoomAffiliation>) {
    let update = RoomUpdate { affiliations, ..RoomUpdate::default() };
    stores.rooms.update(jid(room).as_ref(), update, None).await.unwrap();
}

async fn affiliations(stores: &Stores, room: &str) -> Vec<RoomAffiliation> {
    stores.rooms.load(jid(room).as_ref(), 0).await.unwrap().map(|room| room.affiliations).unwrap_or_default()
}

async fn affiliations_are_put_replaced_and_removed_one_by_one(f: Fixture) {
    let (room, other) = ("coven@rooms.example.org", "heath@rooms.example.org");
    affiliate(&f.stores, room, vec![affiliation("ann", 4, "", "")]).await;
    put(&f.stores, other, record("", true, b"")).await;
    put(&f.stores, room, record("", true, b"")).await;
    assert!(affiliations(&f.stores, room).await.is_empty(), "there was no room");
    affiliate(&f.stores, room, vec![affiliation("ann", 4, "", ""), affiliation("bob", 2, "Bob", "")]).await;
    let mut all = vec![affiliation("ann", 4, "", ""), affiliation("bob", 2, "Bob", "")];
    assert_eq!(affiliations(&f.stores, room).await, all);
    put(&f.stores, room, record("Cave", false, b"1")).await;
    assert_eq!(affiliations(&f.stores, room).await, all, "they stay when the room is put");
    for text in UNUSUAL.iter().filter(|text| text.len() < 1_000) {
        affiliate(&f.stores, room, vec![affiliation("bob", 0, text, text)]).await;
        all[1] = affiliation("bob", 0, text, text);
        assert_eq!(affiliations(&f.stores, room).await, all);
    }
    let domain = RoomAffiliation { user: jid("spam.example"), ..affiliation("x", 0, "", &"x".repeat(4_096)) };
    let gone = affiliation("ann", NO_AFFILIATION, "", "");
    let unknown = affiliation("nobody", NO_AFFILIATION, "", "");
    affiliate(&f.stores, room, vec![gone, unknown, domain.clone()]).await;
    assert_eq!(affiliations(&f.stores, room).await, [all[1].clone(), domain]);
    assert!(affiliations(&f.stores, other).await.is_empty());
    f.stores.rooms.remove(jid(room).as_ref(), None).await.unwrap();
    put(&f.stores, room, record("", true, b"")).await;
    assert!(affiliations(&f.stores, room).await.is_empty(), "they are removed with the room");
}

async fn affiliations_are_listed_in_pages(f: Fixture) {
    let room = "coven@rooms.example.org";
    put(&f.stores, room, record("", true, b"")).await;
    let all: Vec<_> = (0..9).map(|n| affiliation(&format!("u{n}"), 2 * (n % 2), "", "")).collect();
    for one in &all {
        // So that the order of numbers is known.
        affiliate(&f.stores, room, vec![one.clone()]).await;
    }
    let page = |affiliation, position, limit| {
        let page = AffiliationQuery { affiliation, position, limit };
        let stores = f.stores.clone();
        async move {
            let found = stores.rooms.affiliations(jid(room).as_ref(), page).await.unwrap();
            found
                .iter()
                .map(|one| one.user.local().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        }
    };
    use AffiliationPosition::{After, Before, First, Index, Last};
    let user = |n: u32| jid(&format!("u{n}@example.org"));
    assert_eq!(page(None, First, 4).await, "u0 u1 u2 u3");
    assert_eq!(page(None, After(user(3)), 99).await, "u4 u5 u6 u7 u8");
    assert_eq!(page(None, Before(user(3)), 2).await, "u1 u2");
    assert_eq!(page(None, Last, 2).await, "u7 u8");
    assert_eq!(page(Some(2), First, 2).await, "u1 u3");
    assert_eq!(page(Some(2), After(user(3)), 2).await, "u5 u7");
    assert_eq!(page(Some(2), After(user(4)), 1).await, "u5", "a user with another affiliation");
    assert_eq!(page(Some(0), Before(user(6)), 2).await, "u2 u4");
    assert_eq!(page(Some(0), Last, 2).await, "u6 u8");
    assert_eq!(page(Some(0), Index(3), 9).await, "u6 u8");
    assert_eq!(page(Some(0), After(jid("nobody@example.org")), 9).await, "");
    assert_eq!(page(Some(4), First, 9).await, "");
}

async fn a_removed_account_has_no_affiliations_and_has_created_nothing(f: Fixture) {
    let (room, other) = ("coven@rooms.example.org", "heath@rooms.example.org");
    let ann = jid("ann@example.org");
    f.stores.accounts.create(&ann, b"x").await.unwrap();
    for room in [room, other] {
        put(&f.stores, room, record("", true, b"")).await;
    }
    let bob = affiliation("bob", 3, "Bob", "");
    affiliate(&f.stores, room, vec![affiliation("ann", 4, "Ann", ""), bob.clone()]).await;
    let ban = affiliation("ann", 0, "", "spam");
    affiliate(&f.stores, other, vec![ban.clone()]).await;
    f.stores.accounts.remove(ann.as_ref()).await.unwrap().unwrap();
    assert_eq!(affiliations(&f.stores, room).await, [bob]);
    assert_eq!(affiliations(&f.stores, other).await, [ban], "a ban stays");
    assert_eq!(f.stores.rooms.count_created(ann.as_ref(), 9).await.unwrap(), 0);
    let stored = f.stores.rooms.load(jid(room).as_ref(), 0).await.unwrap().unwrap();
    assert_eq!(stored.record.creator, jid(room));
}

async fn a_hundred_thousand_affiliations_are_read_in_pages(f: Fixture) {
    let room = "coven@rooms.example.org";
    put(&f.stores, room, record("", true, b"")).await;
    for batch in 0..20 {
        let users = (0..5_000).map(|n| affiliation(&format!("u{batch}-{n}"), 2, "", ""));
        affiliate(&f.stores, room, users.collect()).await;
    }
    assert_eq!(affiliations(&f.stores, room).await.len(), LOADED_AFFILIATIONS as usize);
    let (mut seen, mut position) = (std::collections::BTreeSet::new(), AffiliationPosition::First);
    loop {
        let page = AffiliationQuery { affiliation: Some(2), position, limit: 1_000 };
        let page = f.stores.rooms.affiliations(jid(room).as_ref(), page).await.unwrap();
        let Some(last) = page.last() else { break };
        position = AffiliationPosition::After(last.user.clone());
        seen.extend(page.into_iter().map(|one| one.user));
    }
    assert_eq!(seen.len(), 100_000);
    f.stores.rooms.remove(jid(room).as_ref(), None).await.unwrap();
}

async fn remove(f: &Fixture, user: &Jid) {
    f.stores.accounts.create(user, b"x").await.unwrap();
    f.stores.accounts.remove(user.as_ref()).await.unwrap().unwrap();
}

async fn removals_of_accounts_are_counted_by_address(f: Fixture) {
    let users = ["ann", "bob", "carol"].map(|user| jid(&format!("{user}@example.org")));
    for (times, user) in users.iter().enumerate() {
        for _ in 0..times {
            remove(&f, user).await;
        }
    }
    let former = f.stores.rooms.former_accounts(0, 9).await.unwrap();
    let former: Vec<_> = former.into_iter().map(|one| (one.user, one.times)).collect();
    assert_eq!(former, [(users[1].clone(), 1), (users[2].clone(), 2)]);
}

async fn removals_are_listed_in_their_order(f: Fixture) {
    let users = ["ann", "bob", "carol"].map(|user| jid(&format!("{user}@example.org")));
    let room = "coven@rooms.example.org";
    put(&f.stores, room, record("", true, b"")).await;
    let contained = async || f.stores.rooms.load(jid(room).as_ref(), 0).await.unwrap().unwrap().removals;
    let mut last = contained().await;
    for user in &users {
        remove(&f, user).await;
        assert!(contained().await > last, "each has a higher number");
        last = contained().await;
    }
    let mut pages = Vec::new();
    let mut after = 0;
    loop {
        let page = f.stores.rooms.former_accounts(after, 2).await.unwrap();
        let Some(one) = page.last() else { break };
        assert!(one.number > after && page.is_sorted_by_key(|one| one.number));
        after = one.number;
        pages.extend(page.into_iter().map(|one| one.user));
    }
    assert_eq!((pages, after), (users.to_vec(), last));
    assert!(f.stores.rooms.former_accounts(after, 9).await.unwrap().is_empty());
    // Only the latest removal of an address is listed.
    remove(&f, &users[0]).await;
    let later = f.stores.rooms.former_accounts(after, 9).await.unwrap();
    assert_eq!(later.iter().map(|one| (&one.user, one.times)).collect::<Vec<_>>(), [(&users[0], 2)]);
    assert_eq!(f.stores.rooms.former_accounts(0, 9).await.unwrap().len(), 3);
    // Of many at a time, none is missed by who asks again while they are made.
    let many: Vec<Jid> = (0..20).map(|n| jid(&format!("u{n}@example.org"))).collect();
    for user in &many {
        f.stores.accounts.create(user, b"x").await.unwrap();
    }
    let mut after = later[0].number;
    let removals = many.iter().map(|user| f.stores.accounts.remove(user.as_ref()));
    for removed in join_all(removals.collect()).await {
        removed.unwrap().unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let page = f.stores.rooms.former_accounts(after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.number;
        seen.extend(page.into_iter().map(|one| one.user));
    }
    assert_eq!(seen.len(), many.len());
}

async fn a_room_is_replaced_with_nothing_of_the_former_one(f: Fixture) {
    let (room, other) = (jid("coven@rooms.example.org"), "heath@rooms.example.org");
    for room in [room.as_str(), other] {
        put(&f.stores, room, record("Cave", true, b"1")).await;
        affiliate(&f.stores, room, vec![affiliation("ann", 4, "Ann", ""), affiliation("bob", 0, "", "")])
            .await;
        f.stores.rooms.append(jid(room).as_ref(), vec![entry("a", b"1")], 9, None).await.unwrap();
    }
    let update = |title| RoomUpdate {
        replaces: true,
        record: Some(record(title, false, b"2")),
        affiliations: vec![affiliation("bob", 2, "", "")],
    };
    for title in ["Heath", "Moor"] {
        f.stores.rooms.update(room.as_ref(), update(title), None).await.unwrap();
        let stored = f.stores.rooms.load(room.as_ref(), 9).await.unwrap().unwrap();
        assert_eq!(stored.record, record(title, false, b"2"));
        assert_eq!(stored.affiliations, [affiliation("bob", 2, "", "")]);
        assert!(stored.history.is_empty());
    }
    assert_eq!((affiliations(&f.stores, other).await.len(), history(&f.stores, other).await.len()), (2, 1));
    let new = jid("moor@rooms.example.org");
    f.stores.rooms.update(new.as_ref(), update("Moor"), None).await.unwrap();
    assert_eq!(affiliations(&f.stores, new.as_str()).await.len(), 1, "there was none");
}
