//! A data folder that Prosody 13.0 (25 commits after 13.0.1) wrote with its default modules, filled by slixmpp and
//! `prosodyctl shell`. The domain and the times were replaced; the indexes of lists, which are not text, are made here.
//!
//! # Pitfalls
//!
//! Times must be before that of the tests, since an import replaces those in the future.

use jid::Jid;
use sasl::ScramHash;
use store::conformance::block_on_ready;
use store::{LastActivity, Stores, Subscription};
use throng_transfer::prosody::ProsodyFolder;

use super::support::{TemporaryFolder, accepts, exported, options, run, run_with, secrets, stores};

/// Files, each after a line `== PATH`.
const FILES: &str = include_str!("prosody_13.txt");

fn folder() -> TemporaryFolder {
    let folder = TemporaryFolder::new();
    for file in FILES.split("== ").filter(|file| !file.is_empty()) {
        let (path, content) = file.split_once('\n').unwrap();
        folder.write(path, content);
        if let Some(path) = path.strip_suffix("list") {
            // The magic number of the format, and the end of the first item.
            let end = content.find("\n});\n").unwrap() + "\n});\n".len();
            let index = [7_767_640_u64, end as u64].map(u64::to_le_bytes).concat();
            folder.write(&format!("{path}lidx"), index);
        }
    }
    // What remains when a room is not in use.
    std::fs::create_dir(folder.path().join("rooms%2ecapulet%2elit/state")).unwrap();
    folder
}

fn roster(stores: &Stores, jid: &str) -> Vec<(String, Subscription, bool)> {
    let id = secrets(stores, jid).id;
    let items = block_on_ready(stores.roster.get(id)).unwrap().items;
    let mut items: Vec<_> = items
        .into_iter()
        .map(|item| (item.jid.to_string(), item.subscription, item.request.is_some()))
        .collect();
    items.sort_by(|first, second| first.0.cmp(&second.0));
    items
}

#[test]
fn everything_with_a_place_is_taken_and_the_rest_is_reported() {
    let folder = folder();
    let stores = stores();
    let mut source = ProsodyFolder::open(folder.path()).unwrap();
    let dry_run = run_with(&mut source, &stores, &options(true)).unwrap();
    let (counts, reports) = run(&mut source, &stores).unwrap();
    assert_eq!(dry_run, (counts, reports.clone()));
    assert_eq!((counts.accounts, counts.keys, counts.passwords), (5, [5, 0, 0], 0));
    assert_eq!((counts.contacts, counts.requests, counts.blocked), (4, 1, 2));
    assert_eq!((counts.private, counts.vcards), (3, 2));
    assert_eq!((counts.offline, counts.last_activities, counts.rooms), (2, 4, 1));
    assert_eq!(
        reports,
        [
            "capulet.lit: roles of accounts are not implemented; 2 files in account_roles",
            "capulet.lit: message archives are not implemented; 2 files in archive",
            "romeo@capulet.lit: 1 bookmarks have extensions, for which private bookmarks have no place",
            "tybalt@capulet.lit: its owner has removed it, and Prosody would have deleted it later; it is imported as \
             disabled",
        ]
    );
}

#[test]
fn accounts_have_their_keys_and_states() {
    let stores = stores();
    run(&mut ProsodyFolder::open(folder().path()).unwrap(), &stores).unwrap();
    for (user, disabled, seen) in [
        ("juliet", false, Some(1_695_808_043)),
        ("nurse", false, Some(1_695_808_044)),
        // An administrator has disabled it, and it was never used.
        ("paris", true, None),
        ("romeo", false, Some(1_695_808_044)),
        // Its owner has removed it.
        ("tybalt", true, Some(1_695_808_118)),
    ] {
        let jid = format!("{user}@capulet.lit");
        assert!(accepts(&stores, &jid, "correct horse battery staple"), "{user}");
        let account =
            block_on_ready(stores.accounts.get(Jid::parse(&jid).unwrap().as_ref())).unwrap().unwrap();
        assert_eq!(account.disabled, disabled, "{user}");
        let activity = block_on_ready(stores.last_seen.get(account.jid.as_ref())).unwrap();
        assert_eq!(activity, seen.map(|at| LastActivity { at, status: None }), "{user}");
        let keys = sasl::Credentials::decode(&secrets(&stores, &jid).credentials).unwrap();
        assert_eq!(keys.keys(ScramHash::Sha1).unwrap().iterations.get(), 10_000, "{user}");
    }
}

#[test]
fn rosters_and_blocklists_are_the_same() {
    let stores = stores();
    run(&mut ProsodyFolder::open(folder().path()).unwrap(), &stores).unwrap();
    let shown = Subscription::IN_ROSTER;
    let nurse = roster(&stores, "nurse@capulet.lit");
    assert_eq!(
        nurse,
        [
            ("later@example.net".to_owned(), shown | Subscription::APPROVED, false),
            ("romeo@capulet.lit".to_owned(), Subscription::PENDING_IN, true),
        ]
    );
    let romeo = roster(&stores, "romeo@capulet.lit");
    assert_eq!(
        romeo,
        [
            ("juliet@capulet.lit".to_owned(), shown | Subscription::BOTH, false),
            ("nurse@capulet.lit".to_owned(), shown | Subscription::PENDING_OUT, false),
        ]
    );
    for (user, blocked) in [("nurse", "spam.example"), ("romeo", "tybalt@example.net")] {
        let jid = Jid::parse(&format!("{user}@capulet.lit")).unwrap();
        let found = block_on_ready(stores.blocklists.blocklist(jid.as_ref())).unwrap();
        assert_eq!(found.iter().map(Jid::as_str).collect::<Vec<_>>(), [blocked]);
    }
}

#[test]
fn elements_and_messages_are_the_same() {
    let stores = stores();
    run(&mut ProsodyFolder::open(folder().path()).unwrap(), &stores).unwrap();
    let text = exported(&stores);
    for element in [
        "<item jid='juliet@capulet.lit' name='Bee &amp; Co' subscription='both'><group>Friends</group><group>Verona</group></item>",
        "<notes xmlns='urn:example:notes'><note>Zu\u{308}rich</note></notes>",
        "<storage xmlns='storage:bookmarks'><conference jid='balcony@rooms.example.net' name='B'/></storage>",
        "<storage xmlns='storage:bookmarks'><conference jid='verona@rooms.example.net' name='Ver\u{f6}na &amp; Co' \
         autojoin='true'><nick>jule</nick><password>s\"ecret</password></conference>\
         <conference jid='mantua@rooms.example.net'/></storage>",
        "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><N><FAMILY>Capulet</FAMILY><GIVEN>Juliet</GIVEN></N>\
         <NICKNAME>Jule</NICKNAME><EMAIL><USERID>juliet@example.net</USERID><INTERNET/><HOME/></EMAIL>\
         <TEL><NUMBER>+39-1</NUMBER><WORK/></TEL><PHOTO><TYPE>image/png</TYPE><BINVAL>UE5H</BINVAL></PHOTO></vCard>",
        "<vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN><NICKNAME>Jule</NICKNAME></vCard>",
        "<body>first &lt;&amp;&gt; text</body><stanza-id xmlns='urn:xmpp:sid:0'",
        "<body>second \u{2603} text</body>",
        "<delay xmlns='urn:xmpp:delay' from='capulet.lit' stamp='2023-09-27T09:47:23.000Z'/></message>",
    ] {
        assert!(text.contains(element), "{element} in {text}");
    }
}
