//! Cases for [`crate::Logins`].
use super::{Fixture, account, all, entry, jid};
use crate::{BulkItem, BulkRoster, Change, ErrorKind, OfflineMessage, Subscription};

pub async fn unknown_account_is_nothing(f: Fixture) {
    assert_eq!(f.stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap(), None);
    // An address that has a number is not yet an account.
    f.stores.addresses.number(&jid("ann@example.org")).await.unwrap();
    assert_eq!(f.stores.logins.secrets(jid("ann@example.org").as_ref()).await.unwrap(), None);
}

pub async fn brings_everything(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    account(&f.stores, "other").await;
    let mut versions = Vec::new();
    for (name, bits) in [("bob", 32 | 3), ("eve", 8), ("dan", 32 | 4)] {
        let contact = jid(&format!("{name}@example.com"));
        let item = entry(&contact, Subscription(bits));
        let request = (bits & 8 != 0).then(|| b"<presence/>".to_vec());
        let item = crate::RosterItem { request, ..item };
        let put = Box::new(move |_| Change::Put(item));
        versions.push(f.stores.roster.change(ann, &contact, put).await.unwrap().version);
    }
    let message =
        OfflineMessage { owner: ann, sender: 0, stored_at: 5, expires: None, stanza: b"<message/>".to_vec() };
    f.stores.offline.append(vec![message.clone(), message], crate::Quota::of_messages(10)).await.unwrap();

    let secrets = f.stores.logins.secrets(jid("ann@example.org/desk").as_ref()).await.unwrap().unwrap();
    assert_eq!((secrets.id, &secrets.credentials[..], secrets.disabled), (ann, &b"ann"[..], false));
    let login = f.stores.logins.login(ann).await.unwrap().unwrap();
    assert!(!login.disabled);
    assert_eq!(login.offline, 2);
    assert_eq!(login.roster_version, versions[2]);
    let snapshot = f.stores.roster.get(ann).await.unwrap();
    assert_eq!(login.roster, snapshot.items, "a login sees what a roster get sees");
    assert_eq!(login.roster.len(), 3);
    let eve = login.roster.iter().find(|item| item.jid == jid("eve@example.com")).unwrap();
    assert_eq!(eve.request.as_deref(), Some(&b"<presence/>"[..]));
}

pub async fn sees_every_write(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    for round in 0..20u8 {
        f.stores.accounts.set_credentials(name.as_ref(), &[round]).await.unwrap();
        f.stores.accounts.set_disabled(name.as_ref(), round % 2 == 0).await.unwrap();
        let message =
            OfflineMessage { owner: ann, sender: 0, stored_at: 5, expires: None, stanza: vec![round] };
        f.stores.offline.append(vec![message], crate::Quota::of_messages(100)).await.unwrap();
        let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
        assert_eq!(login.credentials, [round]);
        assert_eq!(login.disabled, round % 2 == 0);
        let login = f.stores.logins.login(ann).await.unwrap().unwrap();
        assert_eq!(login.disabled, round % 2 == 0);
        assert_eq!(login.offline, u32::from(round) + 1);
    }
    f.stores.accounts.remove(name.as_ref()).await.unwrap();
    assert_eq!(f.stores.logins.secrets(name.as_ref()).await.unwrap(), None);
}

pub async fn large_rosters_come_whole(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let mut items = Vec::new();
    for n in 0..1500 {
        let contact = f.stores.addresses.number(&jid(&format!("contact{n}@example.com"))).await.unwrap();
        let subscription = Subscription::BOTH | Subscription::IN_ROSTER;
        let (name, groups) =
            (Some(format!("Contact {n}")), vec!["Friends".to_owned(), format!("g{}", n % 7)]);
        items.push(BulkItem { contact, name, groups, subscription });
    }
    f.stores.roster.put_bulk(vec![BulkRoster { owner: ann, items: items.clone() }]).await.unwrap();
    let login = f.stores.logins.login(ann).await.unwrap().unwrap();
    assert!(crate::roster::is_large(&login.roster));
    assert_eq!(login.roster.len(), 1500);
    assert_eq!(login.roster_version, f.stores.roster.get(ann).await.unwrap().version);
    items.sort_by_key(|item| item.contact);
    for (got, put) in login.roster.iter().zip(&items) {
        assert_eq!((got.contact, &got.name, &got.groups), (put.contact, &put.name, &put.groups));
    }
}

pub async fn rosters_beyond_reason_are_not_read(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let mut items = Vec::new();
    for n in 0..70 {
        let contact = f.stores.addresses.number(&jid(&format!("contact{n}@example.com"))).await.unwrap();
        let name = Some("x".repeat(1 << 20));
        items.push(BulkItem { contact, name, groups: vec![], subscription: Subscription::IN_ROSTER });
    }
    f.stores.roster.put_bulk(vec![BulkRoster { owner: ann, items }]).await.unwrap();
    assert_eq!(f.stores.logins.login(ann).await.unwrap_err().kind, ErrorKind::TooLarge);
    assert_eq!(f.stores.roster.get(ann).await.unwrap_err().kind, ErrorKind::TooLarge);
    assert_eq!(f.stores.roster.size(ann).await.unwrap().contacts, 70);
    // It can still be made smaller, one entry at a time.
    for n in 0..10 {
        let contact = jid(&format!("contact{n}@example.com"));
        f.stores.roster.change(ann, &contact, Box::new(|_| Change::Delete)).await.unwrap();
    }
    assert_eq!(f.stores.logins.login(ann).await.unwrap().unwrap().roster.len(), 60);
}

pub async fn what_proves_a_client_is_apart_from_what_a_session_needs(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    assert!(f.stores.tokens.change_tokens(name.as_ref(), Box::new(|_| Some(b"t".to_vec()))).await.unwrap());
    let secrets = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    assert_eq!((secrets.id, &secrets.tokens[..]), (ann, &b"t"[..]));
    // A number without an account, and both questions at once.
    let ghost = f.stores.addresses.number(&jid("ghost@example.org")).await.unwrap();
    assert_eq!(f.stores.logins.login(ghost).await.unwrap(), None);
    let logins = all((0..100).map(|n| f.stores.logins.login(if n % 2 == 0 { ann } else { ghost })).collect());
    let secrets = all((0..100).map(|_| f.stores.logins.secrets(name.as_ref())).collect());
    for (n, login) in logins.await.into_iter().enumerate() {
        assert_eq!(login.unwrap().is_some(), n % 2 == 0);
    }
    assert!(secrets.await.into_iter().all(|secrets| secrets.unwrap().unwrap().id == ann));
}

pub async fn many_at_once_get_their_own(f: Fixture) {
    let mut names = Vec::new();
    for n in 0..100 {
        account(&f.stores, &format!("user{n}")).await;
        names.push(jid(&format!("user{n}@example.org")));
        names.push(jid(&format!("nobody{n}@example.org")));
    }
    let got = all(names.iter().map(|name| f.stores.logins.secrets(name.as_ref())).collect()).await;
    for (name, got) in names.iter().zip(got) {
        let expected = name.local().filter(|local| local.starts_with("user"));
        let got = got.unwrap().map(|login| String::from_utf8(login.credentials).unwrap());
        assert_eq!(got.as_deref(), expected);
    }
}

pub async fn the_same_account_many_times_at_once(f: Fixture) {
    let ann = account(&f.stores, "ann").await;
    let name = jid("ann@example.org");
    let got = all((0..50).map(|_| f.stores.logins.secrets(name.as_ref())).collect()).await;
    assert!(got.into_iter().all(|login| login.unwrap().unwrap().id == ann));
}

pub async fn unusual_bytes_of_credentials(f: Fixture) {
    let name = jid("ann@example.org");
    account(&f.stores, "ann").await;
    for credentials in [vec![], vec![0], (0..=255).collect(), vec![0xff; 5000]] {
        f.stores.accounts.set_credentials(name.as_ref(), &credentials).await.unwrap();
        let login = f.stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
        assert_eq!(login.credentials, credentials);
    }
}
