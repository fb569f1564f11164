//! Conformance tests of [`crate::UserSearch`].

use super::{Fixture, UNUSUAL, account, jid};
use crate::user_search::{MAX_COUNT, MAX_PAGE_SIZE, search_key};
use crate::{
    NewAccount, SearchPageRequest, SearchableProfile, Seek, StoreErrorKind, Stores, UserQuery, UserSearchPage,
};

cases! {
    user_search:
    each_field_is_searched_by_prefix,
    domains_do_not_mix,
    wildcards_are_plain_text,
    case_folds_and_accents_count,
    unusual_texts_are_found,
    pages_at_every_boundary,
    pages_do_not_shift_when_users_are_removed,
    wrong_cursors_are_not_found,
    removed_accounts_are_not_found,
    counts_and_pages_are_capped,
}

const DOMAIN: &str = "example.org";

fn term(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn any(text: &str) -> UserQuery {
    UserQuery { any: term(text), ..UserQuery::default() }
}

fn user(text: &str) -> UserQuery {
    UserQuery { user: term(text), ..UserQuery::default() }
}

async fn card(stores: &Stores, name: &str, [full, first, last, nick, email]: [&str; 5]) {
    account(stores, name).await;
    let shown = SearchableProfile {
        name: full.into(),
        first: first.into(),
        last: last.into(),
        nick: nick.into(),
        email: email.into(),
    };
    let owner = jid(&format!("{name}@example.org"));
    assert!(stores.vcards.put(owner.as_ref(), Some(b"<vCard/>".to_vec()), shown, None).await.unwrap());
}

/// Accounts with vCards and some without.
async fn create_people(stores: &Stores) {
    card(stores, "romeo", ["Romeo Montague", "Romeo", "Montague", "Romy", "romeo@verona.example"]).await;
    card(stores, "juliet", ["Juliet Capulet", "Juliet", "Capulet", "JuliC", "juliet@verona.example"]).await;
    card(stores, "tybalt", ["Tybalt Capulet", "Tybalt", "Capulet", "ty", "tybalt@verona.example"]).await;
    card(stores, "ty", ["Zoe", "", "", "", ""]).await;
    for name in ["benvolio", "rosaline", "tyrant"] {
        account(stores, name).await;
    }
    stores.accounts.create(&jid("romeo@example.com"), b"").await.unwrap();
    stores.addresses.intern(&jid("rome@example.org")).await.unwrap();
}

async fn search(stores: &Stores, query: &UserQuery, seek: Seek, limit: u32) -> UserSearchPage {
    stores.user_search.search(DOMAIN, query, SearchPageRequest { seek, limit }).await.unwrap()
}

fn names(found: &UserSearchPage) -> Vec<&str> {
    found.users.iter().map(|user| user.jid.local().unwrap()).collect()
}

async fn all_of(stores: &Stores, query: &UserQuery) -> Vec<String> {
    let found = search(stores, query, Seek::First, 1000).await;
    assert!(!found.more);
    assert_eq!(stores.user_search.count(DOMAIN, query).await.unwrap(), found.users.len() as u64);
    names(&found).into_iter().map(str::to_owned).collect()
}

async fn each_field_is_searched_by_prefix(f: Fixture) {
    create_people(&f.stores).await;
    let q = UserQuery::default;
    let cases: Vec<(UserQuery, &[&str])> = vec![
        (q(), &["benvolio", "juliet", "romeo", "rosaline", "ty", "tybalt", "tyrant"]),
        (user("ro"), &["romeo", "rosaline"]),
        (user("ROMEO"), &["romeo"]),
        (user("omeo"), &[]),
        (UserQuery { last: term("capulet"), ..q() }, &["juliet", "tybalt"]),
        (UserQuery { last: term("Cap"), first: term("j"), ..q() }, &["juliet"]),
        (UserQuery { name: term("  juliet   cap "), ..q() }, &["juliet"]),
        (UserQuery { nick: term("juliC"), ..q() }, &["juliet"]),
        (UserQuery { email: term("romeo@verona"), ..q() }, &["romeo"]),
        (UserQuery { email: term("romeo@verona.example.net"), ..q() }, &[]),
        (UserQuery { user: term("t"), last: term("c"), ..q() }, &["tybalt"]),
        (UserQuery { user: term("ty"), name: term("z"), ..q() }, &["ty"]),
        (UserQuery { user: term("ty"), name: term("tybalt c"), ..q() }, &["tybalt"]),
        (any("ty"), &["tybalt", "ty", "tyrant"]),
        (any("ro"), &["romeo", "rosaline"]),
        (any("capulet"), &["juliet", "tybalt"]),
        (UserQuery { any: term("cap"), user: term("j"), ..q() }, &["juliet"]),
        (
            UserQuery { any: term(" "), user: term(""), ..q() },
            &["benvolio", "juliet", "romeo", "rosaline", "ty", "tybalt", "tyrant"],
        ),
    ];
    for (query, expected) in cases {
        assert_eq!(all_of(&f.stores, &query).await, expected, "{query:?}");
    }
    let shown = search(&f.stores, &user("romeo"), Seek::First, 5).await.users.remove(0);
    assert_eq!(shown.jid, jid("romeo@example.org"));
    assert_eq!((shown.shown.nick.as_str(), shown.shown.email.as_str()), ("Romy", "romeo@verona.example"));
    let bare = search(&f.stores, &user("benvolio"), Seek::First, 5).await.users.remove(0);
    assert_eq!(bare.shown, SearchableProfile::default());
}

async fn domains_do_not_mix(f: Fixture) {
    create_people(&f.stores).await;
    let page = || SearchPageRequest { seek: Seek::First, limit: 9 };
    let found = f.stores.user_search.search("example.com", &any("romeo"), page()).await.unwrap();
    assert_eq!(found.users.iter().map(|user| user.jid.as_str()).collect::<Vec<_>>(), ["romeo@example.com"]);
    let none = f.stores.user_search.search("example.net", &UserQuery::default(), page()).await.unwrap();
    assert_eq!(none, UserSearchPage { users: vec![], more: false });
    assert_eq!(f.stores.user_search.count("example.net", &any("a")).await.unwrap(), 0);
}

async fn wildcards_are_plain_text(f: Fixture) {
    create_people(&f.stores).await;
    for text in ["%", "_", "*", "r%", "r_meo", "r*", "?", "[a-z]", "' OR 1=1 --", "\\", "ro%o", "*meo"] {
        assert!(all_of(&f.stores, &any(text)).await.is_empty(), "{text}");
        assert!(all_of(&f.stores, &user(text)).await.is_empty(), "{text}");
        let query = UserQuery { name: term(text), last: term(text), ..UserQuery::default() };
        assert!(all_of(&f.stores, &query).await.is_empty(), "{text}");
    }
    card(&f.stores, "odd", ["100%_*\\ sure", "", "", "", ""]).await;
    for text in ["100%", "100%_", "100%_*", "100%_*\\"] {
        assert_eq!(all_of(&f.stores, &any(text)).await, ["odd"], "{text}");
    }
    assert!(all_of(&f.stores, &any("100_")).await.is_empty());
}

async fn case_folds_and_accents_count(f: Fixture) {
    let cards =
        ["Ångström", "Angstrom", "Straße", "ΟΔΥΣΣΕΥΣ", "ИВАН", "日本 太郎", "𐐀𐐁", "😀", "e\u{301}cole"];
    for (n, name) in cards.iter().enumerate() {
        card(&f.stores, &format!("u{n}"), [name, "", "", "", ""]).await;
    }
    let cases = [
        ("ång", "u0"),
        ("A\u{30a}NG", "u0"),
        ("ang", "u1"),
        ("STRASSE", "u2"),
        ("straß", "u2"),
        ("οδυσσεύς", ""),
        ("οδυσσευς", "u3"),
        ("Иван", "u4"),
        ("日本", "u5"),
        ("日本　太", "u5"),
        ("𐐨", "u6"),
        ("😀", "u7"),
        ("ÉCOLE", "u8"),
        ("ecole", ""),
    ];
    for (text, expected) in cases {
        let query = UserQuery { name: term(text), ..UserQuery::default() };
        let found = all_of(&f.stores, &query).await;
        assert_eq!(found.first().map_or("", String::as_str), expected, "{text:?}");
        assert!(found.len() <= 1, "{text:?}");
    }
}

async fn unusual_texts_are_found(f: Fixture) {
    for (n, text) in UNUSUAL.iter().enumerate() {
        card(&f.stores, &format!("u{n}"), ["", "", text, "", ""]).await;
    }
    for (n, text) in UNUSUAL.iter().enumerate() {
        let query = UserQuery { last: term(text), ..UserQuery::default() };
        let found = all_of(&f.stores, &query).await;
        let name = format!("u{n}");
        assert!(found.contains(&name), "{text:?}");
        let expected =
            UNUSUAL.iter().filter(|other| search_key(other).starts_with(&search_key(text))).count();
        assert_eq!(found.len(), expected, "{text:?}");
    }
}

/// All pages in one direction, each page ascending.
async fn collect_pages(stores: &Stores, query: &UserQuery, limit: u32, back: bool) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut seek = if back { Seek::Last } else { Seek::First };
    loop {
        let found = search(stores, query, seek, limit).await;
        pages.push(names(&found).into_iter().map(str::to_owned).collect::<Vec<_>>());
        if !found.more {
            return pages;
        }
        let edge = if back { found.users.first() } else { found.users.last() };
        let cursor = edge.unwrap().cursor.clone();
        seek = if back { Seek::Before(cursor) } else { Seek::After(cursor) };
    }
}

async fn pages_at_every_boundary(f: Fixture) {
    // Equal keys, so that the id decides; and several matching keys of one account.
    for n in 0..7 {
        let nick = if n % 2 == 0 { "smile" } else { "smith" };
        card(&f.stores, &format!("sm{n}"), ["Smith", "Smithy", "Smith", nick, "other"]).await;
    }
    account(&f.stores, "smith").await;
    let queries = [
        UserQuery::default(),
        user("sm"),
        UserQuery { last: term("smith"), ..UserQuery::default() },
        UserQuery { last: term("smith"), nick: term("sm"), ..UserQuery::default() },
        any("sm"),
        any("smith"),
    ];
    for query in &queries {
        let expected = all_of(&f.stores, query).await;
        assert!(expected.len() >= 7, "{query:?}");
        for limit in 1..=9 {
            let forward = collect_pages(&f.stores, query, limit, false).await;
            assert_eq!(forward.concat(), expected, "{query:?} limit {limit}");
            assert_eq!(forward.len(), expected.len().div_ceil(limit as usize), "no empty page at the end");
            let mut back = collect_pages(&f.stores, query, limit, true).await;
            back.reverse();
            assert_eq!(back.concat(), expected, "{query:?} back, limit {limit}");
            assert_eq!(back.len(), forward.len());
        }
        for index in 0..=expected.len() + 1 {
            let found = search(&f.stores, query, Seek::Index(index as u32), 3).await;
            let end = expected.len().min(index + 3);
            assert_eq!(names(&found), expected.get(index..end).unwrap_or_default(), "{query:?} from {index}");
            assert_eq!(found.more, end < expected.len() && index < expected.len());
            if let Some(first) = found.users.first() {
                let at = f.stores.user_search.index(DOMAIN, query, &first.cursor).await.unwrap();
                assert_eq!(at, index as u64, "{query:?}");
            }
        }
        let none = search(&f.stores, query, Seek::First, 0).await;
        assert_eq!((none.users.len(), none.more), (0, true), "asks whether there is any");
        let far = search(&f.stores, query, Seek::Index(u32::MAX), 3).await;
        assert_eq!((far.users.len(), far.more), (0, false));
    }
    assert_eq!(
        search(&f.stores, &any("zzz"), Seek::First, 0).await,
        UserSearchPage { users: vec![], more: false }
    );
}

async fn pages_do_not_shift_when_users_are_removed(f: Fixture) {
    for n in 0..6 {
        card(&f.stores, &format!("u{n}"), ["Same", "", "", "", ""]).await;
    }
    for query in [user("u"), UserQuery { name: term("same"), ..UserQuery::default() }, any("same")] {
        let first = search(&f.stores, &query, Seek::First, 2).await;
        let last = first.users.last().unwrap().clone();
        f.stores.accounts.remove(last.jid.as_ref()).await.unwrap();
        let next = search(&f.stores, &query, Seek::After(last.cursor.clone()), 2).await;
        assert_eq!(names(&next), ["u2", "u3"], "{query:?}");
        let before = search(&f.stores, &query, Seek::Before(last.cursor), 2).await;
        assert_eq!(names(&before), ["u0"], "{query:?}");
        card(&f.stores, "u1", ["Same", "", "", "", ""]).await;
    }
}

async fn wrong_cursors_are_not_found(f: Fixture) {
    create_people(&f.stores).await;
    for cursor in ["", "x", "romeo@example.org", "0 x", "-1 x", "99999999999999999999 x"] {
        for seek in [Seek::After(cursor.into()), Seek::Before(cursor.into())] {
            let page = SearchPageRequest { seek, limit: 5 };
            let error = f.stores.user_search.search(DOMAIN, &any("r"), page).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::NotFound, "{cursor:?}");
        }
        let error = f.stores.user_search.index(DOMAIN, &any("r"), cursor).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::NotFound, "{cursor:?}");
    }
    // A cursor of another query is just a position.
    for cursor in ["1 ", "4294967294 \u{10ffff}\u{10ffff}", "7 %"] {
        for query in [UserQuery::default(), any("r")] {
            let after = search(&f.stores, &query, Seek::After(cursor.into()), 100).await.users.len();
            let before = search(&f.stores, &query, Seek::Before(cursor.into()), 100).await.users.len();
            assert_eq!(after + before, all_of(&f.stores, &query).await.len(), "{cursor:?}");
        }
    }
}

async fn removed_accounts_are_not_found(f: Fixture) {
    create_people(&f.stores).await;
    let romeo = jid("romeo@example.org");
    f.stores.accounts.remove(romeo.as_ref()).await.unwrap();
    for query in [user("romeo"), any("romeo"), UserQuery { last: term("montague"), ..UserQuery::default() }] {
        assert!(all_of(&f.stores, &query).await.is_empty(), "{query:?}");
    }
    account(&f.stores, "romeo").await;
    assert_eq!(all_of(&f.stores, &any("romeo")).await, ["romeo"]);
    assert!(all_of(&f.stores, &any("montague")).await.is_empty(), "an old card does not come back");
}

async fn counts_and_pages_are_capped(f: Fixture) {
    let most = MAX_COUNT as usize;
    let new = (0..most + 5)
        .map(|n| NewAccount { jid: jid(&format!("user{n:06}@example.org")), credentials: [0u8; 1].into() });
    f.stores.accounts.create_bulk(new.collect()).await.unwrap();
    for query in [UserQuery::default(), user("user"), any("u")] {
        assert_eq!(f.stores.user_search.count(DOMAIN, &query).await.unwrap(), MAX_COUNT);
        let page = search(&f.stores, &query, Seek::First, u32::MAX).await;
        assert_eq!((page.users.len(), page.more), (MAX_PAGE_SIZE as usize, true));
        let last = search(&f.stores, &query, Seek::Last, 1).await;
        assert_eq!(names(&last), [format!("user{:06}", most + 4)]);
        let index = f.stores.user_search.index(DOMAIN, &query, &last.users[0].cursor).await.unwrap();
        assert_eq!(index, MAX_COUNT);
        let far = search(&f.stores, &query, Seek::Index(9_999), 2).await;
        assert_eq!(names(&far), ["user009999", "user010000"]);
        let beyond = search(&f.stores, &query, Seek::Index(10_000), 2).await;
        assert_eq!((beyond.users.len(), beyond.more), (0, false));
    }
    assert_eq!(f.stores.user_search.count(DOMAIN, &user("user00012")).await.unwrap(), 10);
}
