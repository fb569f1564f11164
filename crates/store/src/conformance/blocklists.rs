//! Conformance tests of [`crate::Blocklists`].

use jid::Jid;

use super::{Fixture, account, jid, join_all};
use crate::blocklists::{MAX_BLOCKLIST_BYTES, decode};
use crate::{BlocklistChange, BlocklistOutcome, Stores, Unblock};

cases! {
    blocklists:
    keeps_the_order_of_adding,
    resources_of_blocked_addresses_count,
    a_full_list_takes_no_more,
    bytes_are_limited,
    a_missing_account_has_an_empty_list,
    unusual_addresses_are_returned_unchanged,
    many_writers_lose_nothing,
}

fn none() -> Unblock {
    Unblock::These(Vec::new())
}

fn jids(texts: &[&str]) -> Vec<Jid> {
    texts.iter().map(|text| jid(text)).collect()
}

async fn change(stores: &Stores, add: &[&str], remove: Unblock, limit: u32) -> BlocklistOutcome {
    let ann = jid("ann@example.org");
    stores.blocklists.update_blocklist(ann.as_ref(), jids(add), remove, limit).await.unwrap()
}

async fn changed(stores: &Stores, add: &[&str], remove: Unblock) -> BlocklistChange {
    match change(stores, add, remove, 100).await {
        BlocklistOutcome::Changed(change) => change,
        other => panic!("{other:?}"),
    }
}

/// The list as returned by a read and by a login, which must agree.
async fn list(stores: &Stores) -> Vec<Jid> {
    let ann = jid("ann@example.org");
    let list = stores.blocklists.blocklist(ann.as_ref()).await.unwrap();
    let login = super::login(stores, &ann).await;
    assert_eq!(decode(&login.blocklist).unwrap(), list);
    assert_eq!(login.blocklist.is_empty(), list.is_empty());
    list
}

async fn keeps_the_order_of_adding(f: Fixture) {
    account(&f.stores, "ann").await;
    assert!(list(&f.stores).await.is_empty());
    let first = changed(&f.stores, &["zoe@example.org", "example.com"], none()).await;
    assert_eq!(first.added, jids(&["zoe@example.org", "example.com"]));
    assert_eq!((first.removed, &first.list), (vec![], &first.added));
    let second = changed(&f.stores, &["bob@example.org/laptop", "zoe@example.org"], none()).await;
    assert_eq!(second.added, jids(&["bob@example.org/laptop"]), "what is there is not added again");
    assert_eq!(second.list, jids(&["zoe@example.org", "example.com", "bob@example.org/laptop"]));
    assert_eq!(list(&f.stores).await, second.list);
    let third = changed(&f.stores, &[], Unblock::These(jids(&["example.com", "nobody@example.org"]))).await;
    assert_eq!((third.added, third.removed), (vec![], jids(&["example.com"])));
    assert_eq!(list(&f.stores).await, jids(&["zoe@example.org", "bob@example.org/laptop"]));
    let last = changed(&f.stores, &[], Unblock::All).await;
    assert_eq!((last.removed.len(), last.list), (2, vec![]));
    assert!(list(&f.stores).await.is_empty());
    let again = changed(&f.stores, &[], Unblock::All).await;
    assert!(again.removed.is_empty(), "a repeat is no failure");
}

async fn resources_of_blocked_addresses_count(f: Fixture) {
    account(&f.stores, "ann").await;
    changed(&f.stores, &["b@c", "b@c/d", "b@c/D", "c", "c/d"], none()).await;
    changed(&f.stores, &[], Unblock::These(jids(&["b@c", "c/d"]))).await;
    assert_eq!(list(&f.stores).await, jids(&["b@c/d", "b@c/D", "c"]));
}

async fn a_full_list_takes_no_more(f: Fixture) {
    account(&f.stores, "ann").await;
    changed(&f.stores, &["a@b", "c@d"], none()).await;
    assert_eq!(change(&f.stores, &["e@f"], none(), 2).await, BlocklistOutcome::Full);
    assert_eq!(list(&f.stores).await, jids(&["a@b", "c@d"]), "nothing of it was done");
    let swap = change(&f.stores, &["e@f"], Unblock::These(jids(&["a@b"])), 2).await;
    assert!(matches!(swap, BlocklistOutcome::Changed(_)), "one goes and one comes");
    let there = change(&f.stores, &["c@d"], none(), 1).await;
    assert!(matches!(there, BlocklistOutcome::Changed(_)), "nothing is added");
    let less = change(&f.stores, &[], Unblock::These(jids(&["c@d"])), 0).await;
    assert!(
        matches!(less, BlocklistOutcome::Changed(_)),
        "a limit that was lowered does not hold what is there"
    );
    assert_eq!(list(&f.stores).await, jids(&["e@f"]));
}

async fn bytes_are_limited(f: Fixture) {
    let ann = jid("ann@example.org");
    account(&f.stores, "ann").await;
    let long: Vec<Jid> = (0..80).map(|n| jid(&format!("a@b/{}{n}", "x".repeat(1000)))).collect();
    assert!(long.iter().map(|jid| jid.as_str().len()).sum::<usize>() > MAX_BLOCKLIST_BYTES);
    let add = |add: &[Jid]| f.stores.blocklists.update_blocklist(ann.as_ref(), add.to_vec(), none(), 1000);
    assert_eq!(add(&long).await.unwrap(), BlocklistOutcome::Full);
    assert!(matches!(add(&long[..60]).await.unwrap(), BlocklistOutcome::Changed(_)));
    assert_eq!(add(&long[60..]).await.unwrap(), BlocklistOutcome::Full);
    assert_eq!(list(&f.stores).await, long[..60]);
}

async fn a_missing_account_has_an_empty_list(f: Fixture) {
    let bob = jid("bob@example.org");
    assert!(f.stores.blocklists.blocklist(bob.as_ref()).await.unwrap().is_empty());
    let outcome = f.stores.blocklists.update_blocklist(bob.as_ref(), jids(&["a"]), none(), 9).await.unwrap();
    assert_eq!(outcome, BlocklistOutcome::NoAccount);
    // Not even if its address has an id.
    f.stores.addresses.intern(&bob).await.unwrap();
    let outcome = f.stores.blocklists.update_blocklist(bob.as_ref(), jids(&["a"]), none(), 9).await.unwrap();
    assert_eq!(outcome, BlocklistOutcome::NoAccount);
}

async fn unusual_addresses_are_returned_unchanged(f: Fixture) {
    account(&f.stores, "ann").await;
    let mut odd: Vec<Jid> =
        super::UNUSUAL.iter().filter_map(|text| Jid::from_parts(Some("a"), "b", Some(text)).ok()).collect();
    odd.dedup();
    assert!(odd.len() > 20);
    let texts: Vec<&str> = odd.iter().map(Jid::as_str).collect();
    changed(&f.stores, &texts, none()).await;
    assert_eq!(list(&f.stores).await, odd);
}

async fn many_writers_lose_nothing(f: Fixture) {
    let ann = jid("ann@example.org");
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    let add = |n: usize| {
        let add = vec![jid(&format!("u{}@example.com", n % 40))];
        f.stores.blocklists.update_blocklist(ann.as_ref(), add, none(), 30)
    };
    let outcomes = join_all((0..80).map(add).collect()).await;
    let mut added = 0;
    for outcome in outcomes {
        if let BlocklistOutcome::Changed(change) = outcome.unwrap() {
            added += change.added.len();
            assert!(change.list.len() <= 30);
        }
    }
    assert_eq!((added, list(&f.stores).await.len()), (30, 30));
    let bob = f.stores.blocklists.blocklist(jid("bob@example.org").as_ref()).await.unwrap();
    assert!(bob.is_empty(), "it is nobody else's list");
}
