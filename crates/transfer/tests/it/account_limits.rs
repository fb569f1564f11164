//! Imported data within the limits that clients have: what exceeds them is counted and listed, and the rest is taken.

use std::fmt::Write;

use jid::Jid;
use store::conformance::block_on_ready;
use store::{AccountKvLimits, Page, Quota, Stores};
use throng_transfer::server_data::ServerDataSource;
use throng_transfer::{AccountLimits, ImportCounts, ImportOptions};

use super::interrupted::FailingSource;
use super::support::{TemporaryFolder, options, run_with, secrets, stores};

const LIMITS: AccountLimits = AccountLimits {
    roster_items: 4,
    requests: 1,
    name_bytes: 8,
    private: AccountKvLimits { entries: 2, bytes: 10_000 },
    vcard_bytes: 100,
    blocked: 2,
    offline: Quota { messages: 3, bytes: 10_000, sender_percent: 100 },
    stanza_bytes: 500,
    ..AccountLimits::UNLIMITED
};

fn limited(dry_run: bool) -> ImportOptions {
    let mut options = options(dry_run);
    for domain in &mut options.domains {
        domain.limits = LIMITS;
    }
    options
}

/// An account with more of everything than an account may have.
fn document() -> String {
    let mut text = "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'><user name='u' password='p'>\
                    <query xmlns='jabber:iq:roster'><item jid='u@capulet.lit' subscription='both'/>"
        .to_owned();
    for contact in 0..5 {
        write!(text, "<item jid='c{contact}@x.lit' subscription='both' name='a long name'/>").unwrap();
    }
    text.push_str("</query><query xmlns='jabber:iq:private'>");
    for value in 0..4 {
        write!(text, "<v xmlns='urn:x:{value}'/>").unwrap();
    }
    text.push_str("</query><query xmlns='jabber:iq:privacy'><default name='b'/><list name='b'>");
    for blocked in 0..4 {
        write!(text, "<item type='jid' value='b{blocked}@x.lit' action='deny' order='{blocked}'/>").unwrap();
    }
    write!(text, "</list></query><vCard xmlns='vcard-temp'><FN>{}</FN></vCard>", "x".repeat(100)).unwrap();
    text.push_str("<offline-messages>");
    for message in 0..5 {
        write!(text, "<message xmlns='jabber:client' from='a@b'><body>{message}</body></message>").unwrap();
    }
    write!(text, "<message xmlns='jabber:client'><body>{}</body></message>", "x".repeat(500)).unwrap();
    text.push_str("</offline-messages>");
    for request in 0..3 {
        write!(text, "<presence xmlns='jabber:client' type='subscribe' from='r{request}@x.lit'/>").unwrap();
    }
    text.push_str("</user></host></server-data>");
    text
}

fn expected_reports() -> Vec<String> {
    let mut reports: Vec<String> = [
        "an account cannot be its own contact",
        "the vCard has more than 100 bytes",
        "an offline message has more than 500 bytes",
        "1 contacts: a roster has at most 4 contacts and",
        "2 private values: an account has at most 2 with 10000 bytes in total",
        "2 blocked addresses: a blocklist has at most 2 addresses and",
        "2 offline messages: an account has at most 3 with 10000 bytes in total",
        "3 subscription requests: an account has at most 1, and its roster at most 4 contacts and",
    ]
    .map(str::to_owned)
    .into();
    reports.extend((0..5).map(|n| format!("the name of the contact c{n}@x.lit has more than 8 bytes")));
    reports
}

fn check(counts: &ImportCounts, reports: &[String]) {
    let expected = expected_reports();
    for report in &expected {
        assert!(reports.iter().any(|found| found.contains(report)), "{report}: {reports:#?}");
    }
    assert_eq!(reports.len(), expected.len(), "{reports:#?}");
    assert_eq!((counts.contacts, counts.requests), (4, 0));
    assert_eq!((counts.private, counts.vcards, counts.blocked, counts.offline), (2, 0, 2, 3));
}

fn check_stored(stores: &Stores) {
    let jid = Jid::parse("u@capulet.lit").unwrap();
    let id = secrets(stores, "u@capulet.lit").id;
    let roster = block_on_ready(stores.roster.get(id)).unwrap().items;
    assert_eq!(roster.len(), 4);
    assert!(roster.iter().all(|item| item.name.is_none()));
    assert_eq!(block_on_ready(stores.account_kv.entries(jid.as_ref())).unwrap().len(), 2);
    assert_eq!(block_on_ready(stores.blocklists.blocklist(jid.as_ref())).unwrap().len(), 2);
    let stored = block_on_ready(stores.offline.fetch(id, Page::first(10), 0)).unwrap().items;
    let stored: Vec<_> =
        stored.iter().map(|message| String::from_utf8_lossy(&message.stanza).into_owned()).collect();
    assert_eq!(stored.len(), 3, "{stored:?}");
    // The oldest are taken, as for messages that arrive.
    assert!((0..3).all(|n| stored[n].contains(&format!("<body>{n}</body>"))), "{stored:?}");
}

#[test]
fn what_exceeds_a_limit_is_counted_and_listed_and_the_rest_is_taken() {
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", document());
    let stores = stores();
    let mut source = ServerDataSource::open(&path).unwrap();
    let (counts, reports) = run_with(&mut source, &stores, &limited(true)).unwrap();
    check(&counts, &reports);
    let (counts, reports) = run_with(&mut source, &stores, &limited(false)).unwrap();
    check(&counts, &reports);
    check_stored(&stores);
}

#[test]
fn limits_hold_for_all_batches_of_an_account_and_after_an_interruption() {
    const CONTACTS: u32 = 2_500;
    let mut text = "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'><user name='u' password='p'>\
                    <query xmlns='jabber:iq:roster'>"
        .to_owned();
    for contact in 0..CONTACTS {
        write!(text, "<item jid='c{contact}@x.lit' subscription='both'/>").unwrap();
    }
    text.push_str("</query><offline-messages>");
    text.push_str(&"<message xmlns='jabber:client' from='a@b'><body>x</body></message>".repeat(2_500));
    text.push_str("</offline-messages></user></host></server-data>");
    let folder = TemporaryFolder::new();
    let path = folder.write("data.xml", text);
    for left in [u64::MAX, 6_000, 6_600, 9_000] {
        let stores = stores();
        let mut options = limited(false);
        options.domains[0].limits.roster_items = 1_700;
        options.domains[0].limits.offline = Quota::messages_only(1_300);
        let mut source = FailingSource { inner: ServerDataSource::open(&path).unwrap(), left };
        while let Err(error) = run_with(&mut source, &stores, &options) {
            assert!(matches!(error, throng_transfer::ImportError::Source(_)), "{error}");
        }
        let id = secrets(&stores, "u@capulet.lit").id;
        assert_eq!(block_on_ready(stores.roster.get(id)).unwrap().items.len(), 1_700, "{left}");
        assert_eq!(block_on_ready(stores.offline.count(id)).unwrap(), 1_300, "{left}");
    }
}
