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
        folder.write("capulet%2elit/pep_urn%3ax/juliet%2ec.list", "");
        folder.write("capulet%2elit/cron/x.dat", "");
        let stores = stores();
        let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores).unwrap();
        assert_eq!((counts.accounts, counts.contacts, counts.requests), (1, 2, 2), "{reports:?}");
        assert_eq!(
            (counts.private, counts.vcards, counts.blocked, counts.offline),
            (1, 1, 2, 2),
            "{reports:?}"
        );
        assert_eq!((reports.len(), counts.pubsub_nodes), (1, 1), "{reports:?}");
        assert!(
            reports[0].contains("offline/juliet%2ec.list is cut off: a string without an end in line 5"),
            "{reports:?}"
        );
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
    for report in [
        "not a valid address",
        "neither a password nor keys",
        "accounts/tybalt.dat is not a file of Prosody: not a value in line 1",
    ] {
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

/// The store and file of a node, as datamanager encodes them.
fn node(folder: &TemporaryFolder, node: &str, items: &str) {
    let store: String = node
        .bytes()
        .map(|byte| match byte {
            b'_' | b'0'..=b'9' | b'a'..=b'z' => char::from(byte).to_string(),
            byte => format!("%{byte:02x}"),
        })
        .collect();
    folder.write(&format!("capulet%2elit/pep_{store}/juliet.list"), items);
}

fn configurations(folder: &TemporaryFolder, access: &str) {
    let nodes = ["urn:xmpp:vcard4", "urn:xmpp:avatar:metadata", "urn:xmpp:avatar:data"];
    let nodes: String = nodes
        .iter()
        .map(|node| {
            format!("[\"{node}\"] = {{ [\"name\"] = \"{node}\"; [\"config\"] = {{ [\"access_model\"] = \"{access}\"; }}; }};")
        })
        .collect();
    folder.write("capulet%2elit/pep/juliet.dat", format!("return {{ {nodes} }};"));
}

/// An item as mod_pep stores it: the payload, with what the store adds.
fn item(id: &str, payload: &str) -> String {
    let (head, attributes) = payload.split_once("[\"attr\"] = {").unwrap();
    let attributes = attributes.strip_suffix('}').unwrap().trim_end().trim_end_matches(';');
    format!(
        "item({head}[\"attr\"] = {{ [\"stamp\"] = \"2023-11-14T22:13:20.1Z\";{attributes};
         [\"key\"] = \"{id}\"; [\"when\"] = 1700000000.10000014; [\"with\"] = \"juliet@capulet.lit\" }});\n"
    )
}

fn tag(name: &str, attributes: &str, content: &str) -> String {
    format!("{{ [\"name\"] = \"{name}\"; [\"attr\"] = {{ {attributes} }}; {content} }}")
}

fn profile(folder: &TemporaryFolder, access: &str) {
    folder.write("capulet%2elit/accounts/juliet.dat", "return { [\"password\"] = \"r0m30\" };");
    configurations(folder, access);
    let value = |kind: &str, value: &str| tag(kind, "", &format!("\"{value}\""));
    let home = tag("parameters", "", &tag("type", "", &value("text", "home")));
    let properties = [
        tag("fn", "", &value("text", "Juliet")),
        tag("n", "", &value("surname", "Capulet")),
        tag("nickname", "", &value("text", "Jule")),
        tag("email", "", &format!("{}; {home}", value("text", "j@x.lit"))),
        tag("tel", "", &value("uri", "tel:+39-1")),
        tag("gender", "", &value("sex", "F")),
    ];
    let card = |content: &str| tag("vcard", "[\"xmlns\"] = \"urn:ietf:params:xml:ns:vcard-4.0\"", content);
    let items = [item("old", &card("")), item("current", &card(&properties.join("; ")))];
    node(folder, "urn:xmpp:vcard4", &items.concat());
    let info = tag("info", "[\"id\"] = \"f00d\"; [\"type\"] = \"image/png\"; [\"bytes\"] = \"3\"", "");
    node(folder, "urn:xmpp:avatar:metadata", &item("f00d", &tag("metadata", "", &info)));
    let images = [item("0bad", &tag("data", "", "\"QkFE\"")), item("f00d", &tag("data", "", "\"UE5H\""))];
    node(folder, "urn:xmpp:avatar:data", &images.concat());
}

#[test]
fn public_nodes_of_the_vcard_and_the_avatar_become_the_vcard() {
    let folder = TemporaryFolder::new();
    profile(&folder, "open");
    let first = stores();
    let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &first).unwrap();
    assert_eq!(counts.vcards, 1, "{reports:?}");
    let text = exported(&first);
    let card = "<vCard xmlns='vcard-temp'><FN>Juliet</FN><N><FAMILY>Capulet</FAMILY></N><NICKNAME>Jule</NICKNAME>\
                <EMAIL><USERID>j@x.lit</USERID><INTERNET/><HOME/></EMAIL><TEL><NUMBER>+39-1</NUMBER></TEL>\
                <PHOTO><TYPE>image/png</TYPE><BINVAL>UE5H</BINVAL></PHOTO></vCard>";
    assert!(text.contains(card), "{text}");
    assert_eq!(reports, ["juliet@capulet.lit: 1 properties of the vCard4 have no place in a vCard",]);
    // A vCard is public, and these nodes are not.
    let folder = TemporaryFolder::new();
    profile(&folder, "presence");
    let second = stores();
    let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &second).unwrap();
    assert_eq!(counts.vcards, 0);
    for content in ["vCard", "avatar"] {
        let report = format!(
            "juliet@capulet.lit: no vCard is made of the PEP node of the {content}: not everybody may see it, and a vCard is public"
        );
        assert!(reports.contains(&report), "{reports:?}");
    }
    // The vCard of the store is what clients see that know no PEP.
    folder.write(
        "capulet%2elit/vcard/juliet.dat",
        format!("return {}", tag("vCard", "[\"xmlns\"] = \"vcard-temp\"", &tag("FN", "", "\"J\""))),
    );
    let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores()).unwrap();
    assert_eq!((counts.vcards, counts.pubsub_nodes), (1, 3), "{reports:?}");
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn bookmarks_of_a_node_become_private_bookmarks() {
    let folder = TemporaryFolder::new();
    folder.write("capulet%2elit/accounts/juliet.dat", "return { [\"password\"] = \"r0m30\" };");
    let xmlns = "[\"xmlns\"] = \"urn:xmpp:bookmarks:1\"";
    let first = format!("{xmlns}; [\"name\"] = \"A & B\"; [\"autojoin\"] = \"true\"");
    let content = format!("{}; {}", tag("nick", xmlns, "\"jule\""), tag("extensions", xmlns, ""));
    let items = [
        item("a@rooms.lit", &tag("conference", xmlns, "")),
        item("b@rooms.lit", &tag("conference", xmlns, "")),
        item("a@rooms.lit", &tag("conference", &first, &content)),
        item("c@rooms.lit", &tag("other", xmlns, "")),
    ];
    node(&folder, "urn:xmpp:bookmarks:1", &items.concat());
    let old = tag("storage", "[\"xmlns\"] = \"storage:bookmarks\"", "");
    folder.write(
        "capulet%2elit/private/juliet.dat",
        format!("return {{ [\"storage:storage:bookmarks\"] = {old} }};"),
    );
    let stores = stores();
    let (counts, reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores).unwrap();
    assert_eq!(counts.private, 1);
    let text = exported(&stores);
    assert!(
        text.contains(
            "<storage xmlns='storage:bookmarks'><conference jid='a@rooms.lit' name='A &amp; B' autojoin='true'>\
             <nick>jule</nick></conference><conference jid='b@rooms.lit'/></storage>"
        ),
        "{text}"
    );
    assert_eq!(
        reports,
        [
            "juliet@capulet.lit: 1 items of the PEP node of bookmarks are not bookmarks",
            "juliet@capulet.lit: 1 bookmarks have extensions, for which private bookmarks have no place",
            "juliet@capulet.lit: the private bookmarks: those of the PEP node were imported",
        ]
    );
}

#[test]
fn texts_that_are_not_utf_8_are_counted_and_the_rest_is_taken() {
    let folder = TemporaryFolder::new();
    folder.write("capulet%2elit/accounts/juliet.dat", "return { [\"password\"] = \"r0m30\" };");
    folder.write(
        "capulet%2elit/roster/juliet.dat",
        "return { [\"a@b\"] = { [\"name\"] = \"\\255\"; [\"subscription\"] = \"both\"; [\"groups\"] = { [\"\\255\"] = true } };
         [\"\\255@b\"] = { [\"subscription\"] = \"both\" } };",
    );
    folder.write(
        "capulet%2elit/blocklist/juliet.dat",
        "return { [false] = {}; [\"\\255\"] = true; [\"x.lit\"] = 1 };",
    );
    folder.write(
        "capulet%2elit/offline/juliet.list",
        "item({ [\"name\"] = \"message\"; [\"attr\"] = {}; \"\\255\" });",
    );
    let stores = stores();
    let (counts, mut reports) = run(&mut ProsodyFolder::open(folder.path()).unwrap(), &stores).unwrap();
    assert_eq!((counts.accounts, counts.contacts, counts.blocked, counts.offline), (1, 1, 1, 0));
    reports.sort();
    assert_eq!(
        reports,
        [
            "juliet@capulet.lit: 1 blocked addresses are not valid",
            "juliet@capulet.lit: 2 names or groups of the contact a@b are not UTF-8",
            "juliet@capulet.lit: an offline message: it is not an element",
            "juliet@capulet.lit: the address of a contact is not UTF-8",
        ]
    );
}
