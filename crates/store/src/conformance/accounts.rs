//! Conformance tests of [`crate::Accounts`].

use std::sync::Arc;

use jid::Jid;

use super::{Fixture, account, entry, jid, join_all};
use crate::{
    AccountKvLimits, AccountRecord, CreateOutcome, LastActivity, NewAccount, OfflineMessage, Page, Paged,
    RosterUpdate, SearchableProfile, StoreErrorKind, Stores, Subscription, Unblock, UserQuery,
};

cases! {
    accounts:
    create_shows_the_account,
    create_twice_is_refused,
    create_ignores_the_resource,
    bulk_answers_in_order_and_can_be_repeated,
    bulk_larger_than_a_chunk,
    remove_deletes_all_data,
    a_second_remove_finds_no_account,
    removed_account_comes_back_empty_with_higher_version,
    credentials_and_disabled_change,
    lists_page_at_every_boundary,
    pages_do_not_shift_when_accounts_are_removed,
    unusual_names_are_different_accounts,
    wildcards_are_plain_text,
    many_create_the_same_account,
    disabled_accounts_are_listed,
}

fn new(jid: Jid) -> NewAccount {
    NewAccount { jid, credentials: Arc::from(&b"shared"[..]) }
}

async fn create_shows_the_account(f: Fixture) {
    let name = jid("ann@example.org");
    assert!(!f.stores.accounts.exists(name.as_ref()).await.unwrap());
    assert_eq!(f.stores.accounts.get(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), 0);
    let id = f.stores.accounts.create(&name, b"secret").await.unwrap();
    assert!(f.stores.accounts.exists(name.as_ref()).await.unwrap());
    let created_at = base::Clock::unix_millis(&*f.clock);
    let expected = AccountRecord { id, jid: name.clone(), disabled: false, created_at };
    assert_eq!(f.stores.accounts.get(name.as_ref()).await.unwrap(), Some(expected));
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), 1);
    assert_eq!(f.stores.addresses.find(&name).await.unwrap(), Some(id));
}

async fn create_twice_is_refused(f: Fixture) {
    let name = jid("ann@example.org");
    f.stores.accounts.create(&name, b"first").await.unwrap();
    let error = f.stores.accounts.create(&name, b"second").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::AlreadyExists);
    assert!(!error.retryable);
    let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    assert_eq!(login.credentials, b"first");
}

async fn create_ignores_the_resource(f: Fixture) {
    let id = f.stores.accounts.create(&jid("ann@example.org/laptop"), b"x").await.unwrap();
    let shown = f.stores.accounts.get(jid("ann@example.org/phone").as_ref()).await.unwrap().unwrap();
    assert_eq!((shown.id, shown.jid), (id, jid("ann@example.org")));
    let bulk = f.stores.accounts.create_bulk(vec![new(jid("ann@example.org/third"))]).await.unwrap();
    assert_eq!(bulk, [CreateOutcome::Exists(id)]);
}

async fn bulk_answers_in_order_and_can_be_repeated(f: Fixture) {
    let bob = account(&f.stores, "bob").await;
    let input: Vec<NewAccount> = ["ann@example.org", "bob@example.org", "eve@example.com", "ann@example.org"]
        .map(|name| new(jid(name)))
        .into();
    let first = f.stores.accounts.create_bulk(input.clone()).await.unwrap();
    let CreateOutcome::New(ann) = first[0] else { panic!("{first:?}") };
    assert_eq!(first[1], CreateOutcome::Exists(bob));
    assert!(matches!(first[2], CreateOutcome::New(_)));
    assert_eq!(first[3], CreateOutcome::Exists(ann), "a double in the input is there already");
    let again = f.stores.accounts.create_bulk(input).await.unwrap();
    assert_eq!(again, first.iter().map(|created| CreateOutcome::Exists(created.id())).collect::<Vec<_>>());
    let login = f.stores.logins.secrets(jid("bob@example.org").as_ref()).await.unwrap().unwrap();
    assert_eq!(login.credentials, b"bob", "what is there stays");
    let login = f.stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap().unwrap();
    assert_eq!(login.credentials, b"shared");
    assert_eq!(f.stores.accounts.create_bulk(vec![]).await.unwrap(), []);
}

async fn bulk_larger_than_a_chunk(f: Fixture) {
    let input: Vec<NewAccount> = (0..9001).map(|n| new(jid(&format!("user{n}@example.org")))).collect();
    let created = f.stores.accounts.create_bulk(input).await.unwrap();
    assert_eq!(created.len(), 9001);
    assert!(created.iter().all(|created| matches!(created, CreateOutcome::New(_))));
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), 9001);
    for n in [0, 4095, 4096, 9000] {
        let shown = f.stores.accounts.get(jid(&format!("user{n}@example.org")).as_ref()).await.unwrap();
        assert_eq!(shown.unwrap().id, created[n].id());
    }
}

/// An account with a roster, messages and a label.
async fn account_with_all_data(stores: &Stores) -> crate::AddressId {
    let ann = account(stores, "ann").await;
    for (name, bits) in [("to", 33), ("from", 34), ("ask", 36), ("in", 8), ("approved", 16), ("plain", 32)] {
        let contact = jid(&format!("{name}@example.com"));
        let mut item = entry(&contact, Subscription(bits));
        item.request = Some(b"<presence type='subscribe'/>".to_vec());
        item.name = Some(name.to_owned());
        stores.roster.update(ann, &contact, Box::new(|_| RosterUpdate::Put(item))).await.unwrap();
    }
    let message = OfflineMessage {
        owner: ann,
        sender: 0,
        stored_at: 1,
        expires: Some(2),
        stanza: b"<message/>".to_vec(),
    };
    stores.offline.append(vec![message; 3], crate::Quota::messages_only(10)).await.unwrap();
    let name = jid("ann@example.org");
    let blocked = vec![jid("eve@example.com")];
    stores.blocklists.update_blocklist(name.as_ref(), blocked, Unblock::All, 9).await.unwrap();
    stores.tokens.update_tokens(name.as_ref(), None, Box::new(|_| Some(vec![7]))).await.unwrap();
    let limits = AccountKvLimits { entries: 9, bytes: 99 };
    let values = vec![("key".to_owned(), vec![1])];
    stores.account_kv.put(name.as_ref(), values, limits).await.unwrap();
    let shown = SearchableProfile { nick: "Annie".to_owned(), ..SearchableProfile::default() };
    stores.vcards.put(name.as_ref(), Some(b"<vCard/>".to_vec()), shown, Some([7; 20])).await.unwrap();
    stores.last_seen.set(ann, LastActivity { at: 5, status: None });
    ann
}

async fn remove_deletes_all_data(f: Fixture) {
    let ann = account_with_all_data(&f.stores).await;
    let bob = account(&f.stores, "bob").await;
    let name = jid("ann@example.org");
    let before = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    let removed = f.stores.accounts.remove(name.as_ref()).await.unwrap().unwrap();
    assert_eq!(removed.id, ann);
    let mut contacts: Vec<&str> = removed.contacts.iter().filter_map(|item| item.jid.local()).collect();
    contacts.sort_unstable();
    assert_eq!(
        contacts,
        ["ask", "from", "in", "to"],
        "those with a subscription or request must be notified"
    );

    assert_eq!(f.stores.logins.secrets(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.logins.login(ann, before.revision).await.unwrap(), None);
    assert_eq!(f.stores.accounts.get(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), 1);
    assert_eq!(f.stores.roster.get(ann).await.unwrap_err().kind, StoreErrorKind::NotFound);
    assert_eq!(f.stores.blocklists.blocklist(name.as_ref()).await.unwrap(), Vec::<Jid>::new());
    assert_eq!(f.stores.account_kv.get(name.as_ref(), "key").await.unwrap(), None);
    assert_eq!(f.stores.vcards.get(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.last_seen.get(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.user_search.count("example.org", &UserQuery::default()).await.unwrap(), 1);
    assert_eq!(f.stores.offline.count(ann).await.unwrap(), 0);
    assert_eq!(f.stores.offline.fetch(ann, Page::first(10), 0).await.unwrap().items, []);
    assert_eq!(f.stores.offline.expire(u64::MAX >> 2, 100).await.unwrap(), 0);
    let left = f.stores.accounts.list("example.org", Page::first(10)).await.unwrap();
    assert_eq!(left.items.iter().map(|account| account.id).collect::<Vec<_>>(), [bob]);

    // Nor does a new account of the same name inherit anything.
    assert_eq!(f.stores.accounts.create(&name, b"new").await.unwrap(), ann);
    let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    assert_eq!((login.id, login.credentials, login.tokens), (ann, b"new".to_vec(), vec![]));
    let login = super::login(&f.stores, &name).await;
    assert_eq!((login.roster.len(), login.offline_messages), (0, 0));
    assert!(login.blocklist.is_empty() && login.photo.is_none());
    assert_eq!(f.stores.blocklists.blocklist(name.as_ref()).await.unwrap(), Vec::<Jid>::new());
    assert_eq!(f.stores.account_kv.get(name.as_ref(), "key").await.unwrap(), None);
    assert_eq!(f.stores.vcards.get(name.as_ref()).await.unwrap(), None);
    assert_eq!(f.stores.last_seen.get(name.as_ref()).await.unwrap(), None);
    let nick = UserQuery { nick: Some("a".to_owned()), ..UserQuery::default() };
    assert_eq!(f.stores.user_search.count("example.org", &nick).await.unwrap(), 0);
}

async fn a_second_remove_finds_no_account(f: Fixture) {
    let name = jid("ann@example.org");
    assert_eq!(f.stores.accounts.remove(name.as_ref()).await.unwrap(), None);
    account_with_all_data(&f.stores).await;
    assert!(f.stores.accounts.remove(name.as_ref()).await.unwrap().is_some());
    assert_eq!(f.stores.accounts.remove(name.as_ref()).await.unwrap(), None);
}

async fn removed_account_comes_back_empty_with_higher_version(f: Fixture) {
    let ann = account_with_all_data(&f.stores).await;
    let before = f.stores.roster.get(ann).await.unwrap().version;
    f.stores.accounts.remove(jid("ann@example.org").as_ref()).await.unwrap();
    f.clock.advance(1);
    let ann = account(&f.stores, "ann").await;
    let after = f.stores.roster.get(ann).await.unwrap();
    assert!(after.version > before, "{} > {before}", after.version);
    assert_eq!(after.items, []);
}

async fn credentials_and_disabled_change(f: Fixture) {
    let accounts = &f.stores.accounts;
    let (ann, nobody) = (jid("ann@example.org"), jid("nobody@example.org"));
    account(&f.stores, "ann").await;
    account(&f.stores, "bob").await;
    assert!(accounts.set_credentials(ann.as_ref(), b"changed").await.unwrap());
    assert!(accounts.set_disabled(ann.as_ref(), true).await.unwrap());
    assert!(accounts.set_disabled(ann.as_ref(), true).await.unwrap(), "a repeat is no failure");
    assert!(accounts.get(ann.as_ref()).await.unwrap().unwrap().disabled);
    let login = f.stores.logins.secrets(ann.as_ref()).await.unwrap().unwrap();
    assert_eq!((login.credentials, login.disabled), (b"changed".to_vec(), true));
    let bob = f.stores.logins.secrets(jid("bob@example.org").as_ref()).await.unwrap().unwrap();
    assert_eq!((bob.credentials, bob.disabled), (b"bob".to_vec(), false));
    assert!(accounts.set_disabled(ann.as_ref(), false).await.unwrap());
    assert!(!accounts.get(ann.as_ref()).await.unwrap().unwrap().disabled);
    assert!(!accounts.set_credentials(nobody.as_ref(), b"x").await.unwrap());
    assert!(!accounts.set_disabled(nobody.as_ref(), true).await.unwrap());
    assert!(!accounts.exists(nobody.as_ref()).await.unwrap());
}

async fn collect_pages(stores: &Stores, limit: u32) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut after = 0;
    loop {
        let Paged { items, next } =
            stores.accounts.list("example.org", Page::after(after, limit)).await.unwrap();
        pages.push(items.into_iter().map(|account| account.jid.to_string()).collect());
        match next {
            Some(next) => after = next,
            None => return pages,
        }
    }
}

async fn lists_page_at_every_boundary(f: Fixture) {
    let mut expected = Vec::new();
    for n in 0..7 {
        account(&f.stores, &format!("u{n}")).await;
        f.stores.accounts.create(&jid(&format!("u{n}@example.com")), b"").await.unwrap();
        expected.push(format!("u{n}@example.org"));
    }
    for limit in 1..=9 {
        let pages = collect_pages(&f.stores, limit).await;
        assert_eq!(pages.concat(), expected, "limit {limit}");
        assert_eq!(pages.len(), 7usize.div_ceil(limit as usize), "limit {limit}: no empty page at the end");
        assert!(pages.iter().all(|page| page.len() <= limit as usize));
    }
    let none = f.stores.accounts.list("example.org", Page::first(0)).await.unwrap();
    assert_eq!(none, Paged { items: vec![], next: Some(0) }, "asks whether there is any");
    let empty = f.stores.accounts.list("example.net", Page::first(0)).await.unwrap();
    assert_eq!(empty, Paged { items: vec![], next: None });
    let far = f.stores.accounts.list("example.org", Page::after(u64::MAX, 5)).await.unwrap();
    assert_eq!(far, Paged { items: vec![], next: None });
    let all = f.stores.accounts.list("example.org", Page::first(u32::MAX)).await.unwrap();
    assert_eq!(all.items.len(), 7);
}

async fn pages_do_not_shift_when_accounts_are_removed(f: Fixture) {
    for n in 0..6 {
        account(&f.stores, &format!("u{n}")).await;
    }
    let first = f.stores.accounts.list("example.org", Page::first(2)).await.unwrap();
    for name in ["u0@example.org", "u1@example.org", "u2@example.org"] {
        f.stores.accounts.remove(jid(name).as_ref()).await.unwrap();
    }
    let second = f.stores.accounts.list("example.org", Page::after(first.next.unwrap(), 2)).await.unwrap();
    let names: Vec<String> = second.items.iter().map(|account| account.jid.to_string()).collect();
    assert_eq!(names, ["u3@example.org", "u4@example.org"]);
}

async fn unusual_names_are_different_accounts(f: Fixture) {
    // Each pair differs after normalisation, although many collations treat them as equal.
    let names =
        ["gross", "groß", "a", "ä", "ö", "o", "ı", "i", "ς", "σ", "日本", "日本語", "𐐨", "ｦ", "ㄱ", "e", "é"];
    let mut known: Vec<Jid> = Vec::new();
    for name in names {
        let Ok(jid) = Jid::parse(&format!("{name}@example.org")) else { continue };
        if known.contains(&jid) {
            continue;
        }
        f.stores.accounts.create(&jid, jid.as_str().as_bytes()).await.unwrap();
        known.push(jid);
    }
    assert!(known.len() > 10);
    for jid in &known {
        let login = f.stores.logins.secrets(jid.as_ref()).await.unwrap().unwrap();
        assert_eq!(login.credentials, jid.as_str().as_bytes());
    }
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), known.len() as u64);
}

async fn wildcards_are_plain_text(f: Fixture) {
    account(&f.stores, "abc").await;
    for name in ["a_c@example.org", "a%@example.org", "%@example.org"] {
        assert!(!f.stores.accounts.exists(jid(name).as_ref()).await.unwrap(), "{name}");
    }
    assert_eq!(f.stores.accounts.count("%").await.unwrap(), 0);
    assert_eq!(
        f.stores.accounts.count("Example.org").await.unwrap(),
        0,
        "domains are normalised by the caller"
    );
    assert_eq!(f.stores.accounts.count("example.org ").await.unwrap(), 0);
}

async fn many_create_the_same_account(f: Fixture) {
    let names: Vec<Jid> = (0..60).map(|n| jid(&format!("u{}@example.org", n % 6))).collect();
    let got = join_all(names.iter().map(|name| f.stores.accounts.create(name, b"x")).collect()).await;
    assert_eq!(got.iter().filter(|got| got.is_ok()).count(), 6, "each is created exactly once");
    let refused = got.iter().filter_map(|got| got.as_ref().err());
    assert!(refused.into_iter().all(|error| error.kind == StoreErrorKind::AlreadyExists));
    assert_eq!(f.stores.accounts.count("example.org").await.unwrap(), 6);
}

async fn disabled_accounts_are_listed(f: Fixture) {
    let accounts = &f.stores.accounts;
    for n in 0..7 {
        account(&f.stores, &format!("u{n}")).await;
        accounts.create(&jid(&format!("u{n}@example.com")), b"").await.unwrap();
        if n % 2 == 1 {
            accounts.set_disabled(jid(&format!("u{n}@example.org")).as_ref(), true).await.unwrap();
        }
    }
    assert_eq!(accounts.count_disabled("example.org").await.unwrap(), 3);
    assert_eq!(accounts.count_disabled("example.com").await.unwrap(), 0);
    let first = accounts.list_disabled("example.org", Page::first(2)).await.unwrap();
    let names = |slice: &Paged<AccountRecord>| -> Vec<String> {
        slice.items.iter().map(|account| account.jid.to_string()).collect()
    };
    assert_eq!(names(&first), ["u1@example.org", "u3@example.org"]);
    let second = accounts.list_disabled("example.org", Page::after(first.next.unwrap(), 2)).await.unwrap();
    assert_eq!((names(&second), second.next), (vec!["u5@example.org".to_owned()], None));
    accounts.set_disabled(jid("u1@example.org").as_ref(), false).await.unwrap();
    assert_eq!(accounts.count_disabled("example.org").await.unwrap(), 2);
}
