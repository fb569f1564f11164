//! A data folder as Prosody 0.12 and 13 write it.

use jid::Jid;
use sasl::ScramHash;
use store::Subscription;
use store::conformance::block_on_ready;
use throng_transfer::prosody::ProsodyFolder;

use super::support::{TemporaryFolder, accepts, exported, hex, run, secrets, stores};

fn juliet(folder: &TemporaryFolder, hash: ScramHash) {
    let keys = sasl::Credentials::derive("r0m30", 4096, b"8a4e-salt").unwrap();
    let keys = keys.keys(hash).unwrap().clone();
    folder.write(
        "capulet%2elit/accounts/juliet%2ec.dat",
        format!(
            "return {{\n\t[\"created\"] = 1700000000;\n\t[\"iteration_count\"] = 4096;\n\t[\"salt\"] = \"8a4e-salt\";\n\
             \t[\"server_key\"] = \"{}\";\n\t[\"stored_key\"] = \"{}\";\n}};\n",
            hex(keys.server_key.expose()),
            hex(keys.stored_key.expose())
        ),
    );
    folder.write(
        "capulet%2elit/roster/juliet%2ec.dat",
        "return { [false] = { [\"version\"] = 7; [\"pending\"] = {
             [\"mercutio@montague.lit\"] = true;
             [\"benvolio@montague.lit\"] = { [\"name\"] = \"presence\"; [\"attr\"] = { [\"type\"] = \"subscribe\";
                 [\"from\"] = \"benvolio@montague.lit\"; [\"to\"] = \"juliet.c@capulet.lit\" }; } } };
         [\"romeo@montague.lit\"] = { [\"subscription\"] = \"both\"; [\"name\"] = \"R\\195\\182meo\";
             [\"groups\"] = { [\"Lovers\"] = true; [\"Friends\"] = true } };
         [\"nurse@capulet.lit\"] = { [\"subscription\"] = \"from\"; [\"ask\"] = \"subscribe\"; [\"groups\"] = {}; };
         [\"shared@capulet.lit\"] = { [\"subscription\"] = \"both\"; [\"persist\"] = false; };
         [\"juliet.c@capulet.lit\"] = { [\"subscription\"] = \"both\"; }; };",
    );
    folder.write(
        "capulet%2elit/private/juliet%2ec.dat",
        "return { [\"storage:storage:bookmarks\"] = { [\"name\"] = \"storage\"; [\"attr\"] = { [\"xmlns\"] = \"storage:bookmarks\" };
         { [\"name\"] = \"conference\"; [\"attr\"] = { [\"xmlns\"] = \"storage:bookmarks\"; [\"jid\"] = \"a@b\" }; } } };",
    );
    folder.write(
        "capulet%2elit/vcard/juliet%2ec.dat",
        "return { [\"name\"] = \"vCard\"; [\"attr\"] = { [\"xmlns\"] = \"vcard-temp\" }; \"\\n\"; { [\"name\"] = \"FN\";
         [\"attr\"] = { [\"xmlns\"] = \"vcard-temp\" }; \"Juliet\" } };",
    );
    folder.write(
        "capulet%2elit/blocklist/juliet%2ec.dat",
        "return { [false] = { [\"created\"] = 1 }; [\"tybalt@capulet.lit\"] = 1700000000; [\"spam.example\"] = true };",
    );
    folder.write(
        "capulet%2elit/offline/juliet%2ec.list",
        "item({ [\"name\"] = \"message\"; [\"attr\"] = { [\"to\"] = \"juliet.c@capulet.lit\"; [\"type\"] = \"chat\";
         [\"from\"] = \"romeo@montague.lit/orchard\"; [\"stamp\"] = \"2023-11-14T22:13:20Z\"; [\"stamp_legacy\"] = \"x\" };
         { [\"name\"] = \"body\"; [\"attr\"] = {}; \"one\" }; [\"when\"] = 1700000000; [\"key\"] = \"k\" });
         item({ [\"name\"] = \"message\"; [\"attr\"] = { [\"stamp\"] = \"2023-11-14T22:13:21Z\" }; [\"when\"] = 1700000001.5 });
         item({ [\"name\"] = \"mess",
    );
}

#[test]
fn all_data_of_an_account_are_read() {
    for hash in [ScramHash::Sha1, ScramHash::Sha256] {
        let folder = TemporaryFolder::new();
        juliet(&folder, hash);
        folder.write("capulet%2elit/pep/juliet%2ec.list", "");
        folder.write("capulet%2elit/cron/x.dat", "");
        let stores = stores();
        let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores).unwrap();
        assert_eq!((counts.accounts, counts.contacts, counts.requests), (1, 2, 2), "{reports:?}");
        assert_eq!(
            (counts.private, counts.vcards, counts.blocked, counts.offline),
            (1, 1, 2, 2),
            "{reports:?}"
        );
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert!(reports[0].contains("PEP nodes are not implemented; 1 files"), "{reports:?}");
        assert!(reports[1].contains("offline messages are cut off"), "{reports:?}");
        assert!(accepts(&stores, "juliet.c@capulet.lit", "r0m30"));
        let id = secrets(&stores, "juliet.c@capulet.lit").id;
        let roster = block_on_ready(stores.roster.get(id)).unwrap().items;
        let item = |jid: &str| roster.iter().find(|item| item.jid.as_str() == jid).unwrap();
        let romeo = item("romeo@montague.lit");
        assert_eq!(romeo.name.as_deref(), Some("Römeo"));
        assert_eq!(romeo.groups, ["Friends", "Lovers"]);
        let shown = Subscription::IN_ROSTER;
        assert_eq!(
            item("nurse@capulet.lit").subscription,
            shown | Subscription::FROM | Subscription::PENDING_OUT
        );
        assert!(item("benvolio@montague.lit").request.is_some());
        assert!(item("mercutio@montague.lit").request.is_none());
        let text = exported(&stores);
        assert!(
            text.contains(
                "<message xmlns='jabber:client' from='romeo@montague.lit/orchard' to='juliet.c@capulet.lit' \
                 type='chat'><body>one</body><delay xmlns='urn:xmpp:delay' from='capulet.lit' \
                 stamp='2023-11-14T22:13:20.000Z'/></message>"
            ),
            "{text}"
        );
        assert!(
            text.contains("<storage xmlns='storage:bookmarks'><conference jid='a@b'/></storage>"),
            "{text}"
        );
        assert!(text.contains("<vCard xmlns='vcard-temp'>\n<FN>Juliet</FN></vCard>"), "{text}");
        assert!(text.contains("stamp='2023-11-14T22:13:21.000Z'"), "{text}");
    }
}

#[test]
fn passwords_in_plain_text_and_disabled_accounts_are_read() {
    let folder = TemporaryFolder::new();
    folder.write(
        "capulet%2elit/accounts/nurse.dat",
        "return { [\"password\"] = \"angelica\"; [\"disabled\"] = true };",
    );
    folder.write("capulet%2elit/accounts/%ff.dat", "return {};");
    folder.write("capulet%2elit/accounts/friar.dat", "return { [\"salt\"] = \"x\" };");
    folder.write("capulet%2elit/accounts/tybalt.dat", "return os.exit();");
    let stores = stores();
    let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores).unwrap();
    assert_eq!(counts.accounts, 2);
    assert!(accepts(&stores, "nurse@capulet.lit", "angelica"));
    let nurse = Jid::parse("nurse@capulet.lit").unwrap();
    assert!(block_on_ready(stores.accounts.get(nurse.as_ref())).unwrap().unwrap().disabled);
    for report in
        ["not a valid address", "neither a password nor keys", "tybalt@capulet.lit: accounts is not a file"]
    {
        assert!(reports.iter().any(|found| found.contains(report)), "{report}: {reports:?}");
    }
}

#[test]
fn another_folder_is_refused_with_a_hint() {
    let folder = TemporaryFolder::new();
    folder.write("etc/prosody.cfg.lua", "");
    let Err(error) = ProsodyFolder::open(folder.path()) else { panic!() };
    assert!(error.to_string().contains("data_path"), "{error}");
    assert!(ProsodyFolder::open(&folder.path().join("missing")).is_err());
}
