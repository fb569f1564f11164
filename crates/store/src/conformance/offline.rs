//! Conformance tests of [`crate::Offline`].

use super::{Fixture, account, jid, join_all};
use crate::{AddressId, AppendOutcome, OfflineMessage, Page, Paged, Quota, StoredMessage, Stores};

cases! {
    offline:
    messages_are_fetched_in_order,
    sequence_numbers_are_never_reused,
    a_full_account_refuses_messages,
    each_account_has_its_own_limit,
    bytes_are_limited_as_well,
    expired_bytes_make_room,
    one_sender_has_a_share,
    expired_messages_make_room,
    fetch_skips_expired_messages,
    expire_sweeps_up_to_its_limit,
    pages_at_every_boundary,
    remove_through_can_be_repeated,
    a_range_is_removed_from_the_middle,
    concurrent_removals_count_each_message_once,
    a_missing_account_stores_nothing,
    many_writers_lose_nothing,
    bytes_are_returned_unchanged,
    the_largest_numbers_are_returned_unchanged,
    later_incarnation_numbers_are_higher,
    an_empty_append_succeeds,
}

fn message(owner: AddressId, text: &str) -> OfflineMessage {
    OfflineMessage { owner, sender: 0, stored_at: 100, expires: None, stanza: text.as_bytes().to_vec() }
}

fn expiring(owner: AddressId, text: &str, expires: u64) -> OfflineMessage {
    OfflineMessage { expires: Some(expires), ..message(owner, text) }
}

async fn append(stores: &Stores, message: OfflineMessage, limit: u32) -> AppendOutcome {
    stores.offline.append(vec![message], Quota::messages_only(limit)).await.unwrap()[0]
}

async fn texts(stores: &Stores, owner: AddressId, now: u64) -> Vec<String> {
    let all = stores.offline.fetch(owner, Page::first(1000), now).await.unwrap();
    all.items.into_iter().map(|waiting| String::from_utf8(waiting.stanza).unwrap()).collect()
}

fn seq(appended: AppendOutcome) -> u64 {
    match appended {
        AppendOutcome::Stored { seq } => seq,
        other => panic!("{other:?}"),
    }
}

async fn messages_are_fetched_in_order(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let input = vec![message(ann, "1"), message(bob, "other"), expiring(ann, "2", 500), message(ann, "3")];
    let answers = f.stores.offline.append(input, Quota::messages_only(10)).await.unwrap();
    assert_eq!(answers.len(), 4);
    let got = f.stores.offline.fetch(ann, Page::first(10), 0).await.unwrap();
    let waiting = |at: usize, expires, text: &str| StoredMessage {
        seq: seq(answers[at]),
        stored_at: 100,
        expires,
        stanza: text.as_bytes().to_vec(),
    };
    let items = vec![waiting(0, None, "1"), waiting(2, Some(500), "2"), waiting(3, None, "3")];
    assert_eq!(got, Paged { items, next: None });
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 3);
    assert_eq!(texts(&f.stores, bob, 0).await, ["other"]);
}

async fn sequence_numbers_are_never_reused(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let mut last = 0;
    for round in 0..5 {
        let first = seq(append(&f.stores, message(ann, "a"), 10).await);
        let second = seq(append(&f.stores, message(ann, "b"), 10).await);
        assert!(last < first && first < second, "round {round}: {last} < {first} < {second}");
        last = second;
        assert_eq!(f.stores.offline.remove_through(ann, second).await.unwrap(), 2);
    }
}

async fn a_full_account_refuses_messages(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let answers = f.stores.offline.append(vec![message(ann, "x"); 5], Quota::messages_only(3)).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| **answer == AppendOutcome::Full).count(), 2);
    assert_eq!(answers[3..], [AppendOutcome::Full, AppendOutcome::Full]);
    assert_eq!(append(&f.stores, message(ann, "y"), 3).await, AppendOutcome::Full);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 3);
    seq(append(&f.stores, message(ann, "y"), 4).await);
    assert_eq!(append(&f.stores, message(ann, "z"), 0).await, AppendOutcome::Full);
    let first = f.stores.offline.fetch(ann, Page::first(1), 0).await.unwrap().items[0].seq;
    f.stores.offline.remove_through(ann, first).await.unwrap();
    seq(append(&f.stores, message(ann, "room again"), 4).await);
}

async fn each_account_has_its_own_limit(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let input =
        vec![message(ann, "1"), message(ann, "2"), message(bob, "3"), message(ann, "4"), message(bob, "5")];
    let answers = f.stores.offline.append(input, Quota::messages_only(2)).await.unwrap();
    let full: Vec<bool> = answers.iter().map(|answer| *answer == AppendOutcome::Full).collect();
    assert_eq!(full, [false, false, false, true, false]);
}

async fn bytes_are_limited_as_well(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let quota = Quota { messages: 10, bytes: 100, sender_percent: 100 };
    let sized = |owner, size: usize| OfflineMessage { stanza: vec![b'x'; size], ..message(owner, "") };
    let input = vec![sized(ann, 60), sized(ann, 41), sized(bob, 100), sized(ann, 40), sized(bob, 1)];
    let answers = f.stores.offline.append(input, quota).await.unwrap();
    let full: Vec<bool> = answers.iter().map(|answer| *answer == AppendOutcome::Full).collect();
    assert_eq!(full, [false, true, false, false, true]);
    let one = |owner, size| f.stores.offline.append(vec![sized(owner, size)], quota);
    assert_eq!(one(ann, 1).await.unwrap(), [AppendOutcome::Full], "counted over calls");
    // Removed messages make room, and no more than that.
    assert_eq!(f.stores.offline.remove_through(ann, seq(answers[0])).await.unwrap(), 1);
    assert_eq!(one(ann, 61).await.unwrap(), [AppendOutcome::Full]);
    seq(one(ann, 60).await.unwrap()[0]);
    assert_eq!(f.stores.offline.remove_through(bob, u64::MAX).await.unwrap(), 1);
    assert_eq!(one(bob, 101).await.unwrap(), [AppendOutcome::Full]);
    seq(one(bob, 100).await.unwrap()[0]);
}

async fn expired_bytes_make_room(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let quota = Quota { messages: 10, bytes: 100, sender_percent: 100 };
    let sized = |size: usize, stored_at, expires| OfflineMessage {
        stanza: vec![b'x'; size],
        stored_at,
        expires,
        ..message(ann, "")
    };
    let one = |size, at, expires| f.stores.offline.append(vec![sized(size, at, expires)], quota);
    seq(one(60, 100, Some(150)).await.unwrap()[0]);
    seq(one(40, 100, Some(300)).await.unwrap()[0]);
    assert_eq!(one(60, 149, None).await.unwrap(), [AppendOutcome::Full]);
    seq(one(60, 150, None).await.unwrap()[0]);
    assert_eq!(one(1, 150, None).await.unwrap(), [AppendOutcome::Full]);
    assert_eq!(f.stores.offline.expire(300, 10).await.unwrap(), 1);
    assert_eq!(one(41, 150, None).await.unwrap(), [AppendOutcome::Full]);
    seq(one(40, 150, None).await.unwrap()[0]);
}

async fn one_sender_has_a_share(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let quota = Quota { messages: 10, bytes: 1000, sender_percent: 50 };
    let from = |owner, sender, size: usize| OfflineMessage {
        sender,
        stanza: vec![b'x'; size],
        ..message(owner, "")
    };
    let stored = |answers: &[AppendOutcome]| {
        answers.iter().filter(|a| matches!(a, AppendOutcome::Stored { .. })).count()
    };
    let of =
        |owner, sender, size, count| f.stores.offline.append(vec![from(owner, sender, size); count], quota);
    let answers = of(ann, 7, 1, 8).await.unwrap();
    assert_eq!(stored(&answers), 5, "half of the messages");
    assert_eq!(answers[5..], [AppendOutcome::SenderFull; 3]);
    assert_eq!(of(ann, 7, 1, 1).await.unwrap(), [AppendOutcome::SenderFull], "counted over calls");
    assert_eq!(stored(&of(bob, 7, 1, 1).await.unwrap()), 1, "for each account alone");
    assert_eq!(stored(&of(ann, i64::MAX as u64, 1, 3).await.unwrap()), 3, "others have theirs");
    assert_eq!(stored(&of(ann, 0, 1, 3).await.unwrap()), 2, "whom no share binds fills the rest");
    assert_eq!(of(ann, 8, 1, 1).await.unwrap(), [AppendOutcome::Full]);
    f.stores.offline.remove_through(ann, u64::MAX).await.unwrap();
    // Half of the bytes; a sender's first message is accepted at any size.
    let mixed = vec![from(ann, 7, 400), from(ann, 7, 101), from(ann, 7, 100), from(ann, 8, 500)];
    let answers = f.stores.offline.append(mixed, quota).await.unwrap();
    assert!(answers[1] == AppendOutcome::SenderFull && stored(&answers) == 3, "{answers:?}");
    assert_eq!(of(ann, 9, 1, 1).await.unwrap(), [AppendOutcome::Full]);
    assert_eq!(stored(&of(bob, 10, 800, 1).await.unwrap()), 1);
    assert_eq!(of(bob, 10, 1, 1).await.unwrap(), [AppendOutcome::SenderFull]);
}

async fn expired_messages_make_room(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let input = vec![expiring(ann, "old", 150), expiring(ann, "later", 300), message(ann, "kept")];
    f.stores.offline.append(input, Quota::messages_only(3)).await.unwrap();
    let at = |stored_at| OfflineMessage { stored_at, ..message(ann, "new") };
    assert_eq!(append(&f.stores, at(149), 3).await, AppendOutcome::Full);
    seq(append(&f.stores, at(150), 3).await);
    assert_eq!(append(&f.stores, at(150), 3).await, AppendOutcome::Full);
    assert_eq!(texts(&f.stores, ann, 150).await, ["later", "kept", "new"]);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 3);
}

async fn fetch_skips_expired_messages(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let input = vec![expiring(ann, "a", 200), message(ann, "b"), expiring(ann, "c", 300)];
    f.stores.offline.append(input, Quota::messages_only(10)).await.unwrap();
    assert_eq!(texts(&f.stores, ann, 199).await, ["a", "b", "c"]);
    assert_eq!(texts(&f.stores, ann, 200).await, ["b", "c"]);
    assert_eq!(texts(&f.stores, ann, 300).await, ["b"]);
    let page = f.stores.offline.fetch(ann, Page::first(1), 250).await.unwrap();
    assert_eq!(page.items.len(), 1, "expired messages take no place on a page");
    assert!(page.next.is_some());
}

async fn expire_sweeps_up_to_its_limit(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    for n in 0..6 {
        let owner = if n % 2 == 0 { ann } else { bob };
        append(&f.stores, expiring(owner, "x", 200 + n), 100).await;
        append(&f.stores, message(owner, "stays"), 100).await;
    }
    assert_eq!(f.stores.offline.expire(199, 100).await.unwrap(), 0);
    assert_eq!(f.stores.offline.expire(203, 3).await.unwrap(), 3);
    assert_eq!(f.stores.offline.expire(203, 3).await.unwrap(), 1);
    assert_eq!(f.stores.offline.expire(203, 3).await.unwrap(), 0);
    let counts = f.stores.offline.count(ann).await.unwrap() + f.stores.offline.count(bob).await.unwrap();
    assert_eq!(counts, 8, "the counters follow");
    assert_eq!(f.stores.offline.expire(u64::MAX >> 2, 100).await.unwrap(), 2);
    assert_eq!(texts(&f.stores, ann, 0).await, ["stays"; 3]);
}

async fn pages_at_every_boundary(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let input = (0..7).map(|n| message(ann, &n.to_string())).collect();
    f.stores.offline.append(input, Quota::messages_only(100)).await.unwrap();
    for limit in 1..=8u32 {
        let (mut after, mut got, mut pages) = (0, Vec::new(), 0);
        loop {
            let page = f.stores.offline.fetch(ann, Page::after(after, limit), 0).await.unwrap();
            assert!(page.items.len() <= limit as usize);
            got.extend(page.items.into_iter().map(|waiting| String::from_utf8(waiting.stanza).unwrap()));
            pages += 1;
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(got, ["0", "1", "2", "3", "4", "5", "6"], "limit {limit}");
        assert_eq!(pages, 7u32.div_ceil(limit));
    }
    let far = f.stores.offline.fetch(ann, Page::after(u64::MAX, 5), 0).await.unwrap();
    assert_eq!(far, Paged { items: vec![], next: None });
}

async fn remove_through_can_be_repeated(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let input = (0..4).map(|n| message(ann, &n.to_string())).collect();
    let answers = f.stores.offline.append(input, Quota::messages_only(100)).await.unwrap();
    let through = seq(answers[1]);
    assert_eq!(f.stores.offline.remove_through(ann, through).await.unwrap(), 2);
    append(&f.stores, message(ann, "late"), 100).await;
    assert_eq!(f.stores.offline.remove_through(ann, through).await.unwrap(), 0);
    assert_eq!(texts(&f.stores, ann, 0).await, ["2", "3", "late"]);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 3);
    assert_eq!(f.stores.offline.remove_through(ann, u64::MAX).await.unwrap(), 3);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 0);
}

async fn a_range_is_removed_from_the_middle(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let input = (0..5).map(|n| message(ann, &n.to_string())).collect();
    let answers = f.stores.offline.append(input, Quota::messages_only(100)).await.unwrap();
    append(&f.stores, message(bob, "other"), 100).await;
    let (first, last) = (seq(answers[1]), seq(answers[2]));
    assert_eq!(f.stores.offline.remove_range(ann, first, last).await.unwrap(), 2);
    assert_eq!(f.stores.offline.remove_range(ann, first, last).await.unwrap(), 0);
    assert_eq!(texts(&f.stores, ann, 0).await, ["0", "3", "4"]);
    assert_eq!(f.stores.offline.remove_range(ann, seq(answers[4]), seq(answers[4])).await.unwrap(), 1);
    assert_eq!(f.stores.offline.remove_range(ann, u64::MAX, u64::MAX).await.unwrap(), 0);
    let counts = (f.stores.offline.count(ann).await.unwrap(), f.stores.offline.count(bob).await.unwrap());
    assert_eq!(counts, (2, 1));
}

async fn concurrent_removals_count_each_message_once(f: Fixture) {
    let (ann, bob) = (account(&f.stores, "ann").await, account(&f.stores, "bob").await);
    let input = (0..9).map(|n| message(ann, &n.to_string())).collect();
    let answers = f.stores.offline.append(input, Quota::messages_only(100)).await.unwrap();
    append(&f.stores, message(bob, "other"), 100).await;
    let ranges =
        [(0, 3), (2, 5), (2, 5), (5, 7)].map(|(first, last)| (seq(answers[first]), seq(answers[last])));
    let mut removals: Vec<_> =
        ranges.iter().map(|(first, last)| f.stores.offline.remove_range(ann, *first, *last)).collect();
    removals.insert(2, f.stores.offline.remove_range(bob, 0, u64::MAX));
    let removed: u32 = join_all(removals).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(removed, 9);
    assert_eq!(texts(&f.stores, ann, 0).await, ["8"]);
    let counts = (f.stores.offline.count(ann).await.unwrap(), f.stores.offline.count(bob).await.unwrap());
    assert_eq!(counts, (1, 0));
}

async fn a_missing_account_stores_nothing(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let ghost = f.stores.addresses.intern(&jid("ghost@example.org")).await.unwrap();
    let answers = f
        .stores
        .offline
        .append(vec![message(ghost, "x"), message(ann, "y")], Quota::messages_only(10))
        .await
        .unwrap();
    assert_eq!(answers[0], AppendOutcome::NoAccount);
    seq(answers[1]);
    assert_eq!(f.stores.offline.count(ghost).await.unwrap(), 0);
    assert_eq!(f.stores.offline.fetch(ghost, Page::first(5), 0).await.unwrap().items, []);
    assert_eq!(f.stores.offline.remove_through(ghost, 5).await.unwrap(), 0);
}

async fn many_writers_lose_nothing(f: Fixture) {
    let owners =
        [account(&f.stores, "a").await, account(&f.stores, "b").await, account(&f.stores, "c").await];
    let appends = (0..200).map(|n| {
        let input =
            vec![message(owners[n % 3], &format!("{n}a")), message(owners[(n + 1) % 3], &format!("{n}b"))];
        f.stores.offline.append(input, Quota::messages_only(1000))
    });
    let answers = join_all(appends.collect()).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().len() == 2));
    let mut got = Vec::new();
    for owner in owners {
        let waiting = f.stores.offline.fetch(owner, Page::first(1000), 0).await.unwrap().items;
        assert!(waiting.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        assert_eq!(f.stores.offline.count(owner).await.unwrap() as usize, waiting.len());
        got.extend(waiting.into_iter().map(|waiting| String::from_utf8(waiting.stanza).unwrap()));
    }
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), 400);
}

async fn bytes_are_returned_unchanged(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let stanzas = [vec![], vec![0], (0..=255).collect::<Vec<u8>>(), vec![b'x'; 262_144]];
    for stanza in &stanzas {
        append(&f.stores, OfflineMessage { stanza: stanza.clone(), ..message(ann, "") }, 100).await;
    }
    let got = f.stores.offline.fetch(ann, Page::first(10), 0).await.unwrap();
    let got: Vec<Vec<u8>> = got.items.into_iter().map(|waiting| waiting.stanza).collect();
    assert!(got == stanzas);
}

async fn the_largest_numbers_are_returned_unchanged(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let largest = i64::MAX.unsigned_abs();
    let (quota, numbers) = (Quota::messages_only(10), [largest, largest - 1, 1 << 32, u32::MAX.into(), 0]);
    let messages = numbers.map(|number| OfflineMessage {
        sender: number,
        stored_at: number,
        expires: Some(largest),
        ..message(ann, &number.to_string())
    });
    // Alone and together: a backend may write one row in another way than several.
    for message in &messages {
        seq(f.stores.offline.append(vec![message.clone()], quota).await.unwrap()[0]);
    }
    for one in f.stores.offline.append(messages.to_vec(), quota).await.unwrap() {
        seq(one);
    }
    let got = f.stores.offline.fetch(ann, Page::first(100), largest - 1).await.unwrap().items;
    for (got, number) in got.iter().zip(numbers.iter().cycle()) {
        assert_eq!((got.stored_at, got.expires), (*number, Some(largest)));
        assert_eq!(got.stanza, number.to_string().into_bytes());
    }
    assert_eq!(got.len(), 10);
    assert_eq!(f.stores.offline.remove_through(ann, largest).await.unwrap(), 10);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 0);
}

async fn later_incarnation_numbers_are_higher(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let before = seq(append(&f.stores, message(ann, "x"), 10).await);
    f.stores.accounts.remove(jid("ann@example.org").as_ref()).await.unwrap();
    f.clock.advance(1);
    assert_eq!(account(&f.stores, "ann").await, ann);
    let after = seq(append(&f.stores, message(ann, "y"), 10).await);
    assert!(after > before, "a late removal must not touch the new account's messages");
    assert_eq!(f.stores.offline.remove_through(ann, before).await.unwrap(), 0);
}

async fn an_empty_append_succeeds(f: Fixture) {
    assert_eq!(f.stores.offline.append(vec![], Quota::messages_only(10)).await.unwrap(), []);
}
