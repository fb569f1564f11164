//! Contents of a database: one row or more of each kind of data, and their check.

use store::conformance::jid;
use store::{
    AccountKvLimits, LastActivity, OfflineMessage, Page, Quota, RosterItem, RosterUpdate, SearchPageRequest,
    SearchableProfile, Seek, Stores, Subscription, Unblock, UserQuery,
};

const LIMITS: AccountKvLimits = AccountKvLimits { entries: 9, bytes: 999 };

/// Logout of the account.
fn seen() -> LastActivity {
    LastActivity { at: 1_767_225_600, status: Some("gone".into()) }
}

/// Fills an empty database.
pub async fn fill(stores: &Stores) {
    let ann = stores.accounts.create(&jid("ann@example.org"), b"secret").await.unwrap();
    stores.accounts.create(&jid("bob@example.org"), b"other").await.unwrap();
    let (bob, eve) = (jid("bob@example.org"), jid("eve@example.com"));
    let mut item = RosterItem::new(bob.clone());
    item.subscription = Subscription::BOTH | Subscription::IN_ROSTER;
    (item.name, item.groups) = (Some("Bob".into()), vec!["Friends".into()]);
    stores.roster.update(ann, &bob, Box::new(|_| RosterUpdate::Put(item))).await.unwrap();
    let mut item = RosterItem::new(eve.clone());
    item.subscription = Subscription::PENDING_IN;
    item.request = Some(b"<presence type='subscribe'/>".to_vec());
    stores.roster.update(ann, &eve, Box::new(|_| RosterUpdate::Put(item))).await.unwrap();
    let message = |n: u64| OfflineMessage {
        owner: ann,
        sender: n,
        stored_at: n,
        expires: (n == 1).then_some(5000),
        stanza: format!("<message><body>{n}</body></message>").into_bytes(),
    };
    stores.offline.append(vec![message(1), message(2)], Quota::messages_only(10)).await.unwrap();
    stores.server_kv.put("salt", b"pepper").await.unwrap();
    let name = jid("ann@example.org");
    stores.blocklists.update_blocklist(name.as_ref(), vec![eve], Unblock::All, 9).await.unwrap();
    stores.tokens.update_tokens(name.as_ref(), None, Box::new(|_| Some(b"token".to_vec()))).await.unwrap();
    stores.account_kv.put(name.as_ref(), vec![("key".into(), b"value".to_vec())], LIMITS).await.unwrap();
    let shown = SearchableProfile { name: "Ann Lee".into(), ..SearchableProfile::default() };
    stores.vcards.put(name.as_ref(), Some(b"<vCard/>".to_vec()), shown, Some([7; 20])).await.unwrap();
    stores.last_seen.set(ann, seen());
}

/// Checks that a database has what [`fill`] wrote, and that it can be changed.
pub async fn check(stores: &Stores) {
    let name = jid("ann@example.org");
    let secrets = stores.logins.secrets(name.as_ref()).await.unwrap().unwrap();
    assert_eq!((&secrets.credentials[..], &secrets.tokens[..]), (&b"secret"[..], &b"token"[..]));
    let ann = stores.logins.login(secrets.id, secrets.revision).await.unwrap().unwrap();
    assert_eq!((ann.offline_messages, ann.photo), (2, Some([7; 20])));
    let both = Subscription::BOTH | Subscription::IN_ROSTER;
    let items: Vec<_> = ann.roster.iter().map(|item| (item.jid.as_str(), item.subscription)).collect();
    assert_eq!(items, [("bob@example.org", both), ("eve@example.com", Subscription::PENDING_IN)]);
    assert_eq!(
        (ann.roster[0].name.as_deref(), &ann.roster[0].groups[..]),
        (Some("Bob"), &["Friends".into()][..])
    );
    assert_eq!(ann.roster[1].request.as_deref(), Some(&b"<presence type='subscribe'/>"[..]));
    assert_eq!(stores.blocklists.blocklist(name.as_ref()).await.unwrap(), [jid("eve@example.com")]);
    let waiting = stores.offline.fetch(secrets.id, Page::first(9), 0).await.unwrap().items;
    assert_eq!(waiting[0].expires, Some(5000));
    assert_eq!(waiting[1].stanza, b"<message><body>2</body></message>");
    assert_eq!(stores.server_kv.get("salt").await.unwrap().as_deref(), Some(&b"pepper"[..]));
    assert_eq!(stores.account_kv.get(name.as_ref(), "key").await.unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(stores.vcards.get(name.as_ref()).await.unwrap().as_deref(), Some(&b"<vCard/>"[..]));
    assert_eq!(stores.last_seen.get(name.as_ref()).await.unwrap(), Some(seen()));
    let query = UserQuery { name: Some("ann".into()), ..UserQuery::default() };
    let page = SearchPageRequest { seek: Seek::First, limit: 9 };
    let found = stores.user_search.search("example.org", &query, page).await.unwrap().users;
    assert_eq!(found.iter().map(|user| user.jid.as_str()).collect::<Vec<_>>(), ["ann@example.org"]);
    // The next number of an address is a new one.
    let carol = stores.accounts.create(&jid("carol@example.org"), b"third").await.unwrap();
    assert!(carol > secrets.id);
    stores.accounts.remove(name.as_ref()).await.unwrap();
    assert_eq!(stores.accounts.count("example.org").await.unwrap(), 2);
}
