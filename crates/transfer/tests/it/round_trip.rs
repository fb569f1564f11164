//! XEP-0227: the examples of the specification, and the same bytes after an export, an import and another export.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jid::Jid;
use store::Subscription;
use store::conformance::block_on_ready;
use throng_transfer::ImportError;
use throng_transfer::server_data::ServerDataSource;

use super::support::{TemporaryFolder, accepts, exported, run, secrets, stores};

/// Sections 4.3 to 4.9, together.
const EXAMPLES: &str = "<?xml version='1.0' encoding='UTF-8'?>
<server-data xmlns='urn:xmpp:pie:0'>
  <!-- Section 4.2 -->
  <host jid='capulet.lit'>
    <user name='juliet' password='r0m30'>
      <query xmlns='jabber:iq:roster'>
        <item jid='romeo@montague.lit' name='Romeo' subscription='both'><group>Friends</group></item>
        <item jid='nurse@capulet.lit' ask='subscribe' subscription='none'/>
      </query>
      <offline-messages>
        <message xmlns='jabber:client' from='romeo@montague.lit/orchard' to='juliet@capulet.lit/balcony' type='chat'>
          <body>Neither, fair saint, if either thee dislike.</body>
          <delay xmlns='urn:xmpp:delay' from='capulet.lit' stamp='1969-07-21T00:32:29Z'>Offline Storage</delay>
        </message>
      </offline-messages>
      <query xmlns='jabber:iq:private'><exodus xmlns='exodus:prefs'><defaultnick>Hamlet</defaultnick></exodus></query>
      <vCard xmlns='vcard-temp'><FN>Juliet Capulet</FN></vCard>
      <query xmlns='jabber:iq:privacy'>
        <default name='public'/>
        <list name='public'>
          <item type='jid' value='tybalt@example.com' action='deny' order='1'/>
          <item action='allow' order='2'/>
        </list>
        <list name='private'><item type='subscription' value='both' action='allow' order='10'/></list>
      </query>
      <presence xmlns='jabber:client' type='subscribe' id='xk3h1v69' from='benvolio@montague.lit'>
        <nick xmlns='http://jabber.org/protocol/nick'>Ben</nick>
      </presence>
      <presence xmlns='jabber:client' type='subscribe' from='mercutio@montague.lit'/>
      <pubsub xmlns='http://jabber.org/protocol/pubsub#owner'/>
    </user>
  </host>
  <host jid='verona.lit'><user name='escalus'/></host>
</server-data>";

#[test]
fn the_examples_of_the_specification_are_imported() {
    let folder = TemporaryFolder::new();
    let mut source = ServerDataSource::open(&folder.write("data.xml", EXAMPLES)).unwrap();
    let stores = stores();
    let (counts, reports) = run(&mut source, &stores).unwrap();
    assert_eq!((counts.accounts, counts.contacts, counts.requests), (1, 2, 2), "{reports:?}");
    assert_eq!((counts.private, counts.vcards, counts.blocked, counts.offline), (1, 1, 1, 1), "{reports:?}");
    assert_eq!(
        reports,
        [
            "juliet@capulet.lit: PEP nodes are not implemented",
            "verona.lit: 1 accounts: the configuration has no such domain; add it to hosts",
        ]
    );
    assert!(accepts(&stores, "juliet@capulet.lit", "r0m30"));
    let juliet = Jid::parse("juliet@capulet.lit").unwrap();
    let id = secrets(&stores, "juliet@capulet.lit").id;
    let roster = block_on_ready(stores.roster.get(id)).unwrap();
    let state =
        |jid: &str| roster.items.iter().find(|item| item.jid.as_str() == jid).map(|item| item.subscription);
    let shown = Subscription::IN_ROSTER;
    assert_eq!(state("romeo@montague.lit"), Some(shown | Subscription::BOTH));
    assert_eq!(state("nurse@capulet.lit"), Some(shown | Subscription::PENDING_OUT));
    assert_eq!(state("mercutio@montague.lit"), Some(Subscription::PENDING_IN));
    let benvolio = roster.items.iter().find(|item| item.jid.as_str() == "benvolio@montague.lit").unwrap();
    assert!(String::from_utf8_lossy(benvolio.request.as_ref().unwrap()).contains("<nick"));
    let blocked = block_on_ready(stores.blocklists.blocklist(juliet.as_ref())).unwrap();
    assert_eq!(blocked, [Jid::parse("tybalt@example.com").unwrap()]);
}

#[test]
fn an_export_of_an_import_has_the_same_bytes() {
    let folder = TemporaryFolder::new();
    let first = stores();
    run(&mut ServerDataSource::open(&folder.write("examples.xml", EXAMPLES)).unwrap(), &first).unwrap();
    let id = secrets(&first, "juliet@capulet.lit").id;
    let juliet = Jid::parse("juliet@capulet.lit").unwrap();
    // What the specification has no place for.
    block_on_ready(first.accounts.set_disabled(juliet.as_ref(), true)).unwrap();
    first.last_seen.set(id, store::LastActivity { at: 1_600_000_000, status: Some("a <b>".into()) });
    let message = store::OfflineMessage {
        owner: id,
        sender: 0,
        stored_at: 5,
        expires: Some(super::support::NOW + 1_500),
        stanza: b"<message xmlns='jabber:client' to='juliet@capulet.lit'><body>&amp;\n</body></message>"
            .to_vec(),
    };
    let quota = store::Quota::messages_only(100);
    block_on_ready(first.offline.append(vec![message], quota)).unwrap();
    for (jid, state) in [
        ("approved@montague.lit", Subscription::APPROVED),
        ("hidden@montague.lit", Subscription::FROM),
        ("requesting@montague.lit", Subscription::PENDING_IN),
    ] {
        let contact = Jid::parse(jid).unwrap();
        let item = store::RosterItem { subscription: state, ..store::RosterItem::new(contact.clone()) };
        let change = Box::new(move |_: Option<store::RosterItem>| store::RosterUpdate::Put(item));
        block_on_ready(first.roster.update(id, &contact, change)).unwrap();
    }
    let text = exported(&first);
    for part in ["<disabled ", "<last-activity ", "<expires ", "<hidden-item ", "SCRAM-SHA-512"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let second = stores();
    let mut source = ServerDataSource::open(&folder.write("export.xml", &text)).unwrap();
    let (counts, reports) = run(&mut source, &second).unwrap();
    assert_eq!((counts.accounts, reports), (1, vec![]));
    assert_eq!(exported(&second), text);
    assert!(accepts(&second, "juliet@capulet.lit", "r0m30"));
}

#[test]
fn keys_of_an_export_of_ejabberd_are_encoded_twice() {
    let keys = sasl::Credentials::derive("secret", 4096, b"salt").unwrap();
    let keys = keys.sha1.unwrap();
    let twice = |bytes: &[u8]| BASE64_STANDARD.encode(BASE64_STANDARD.encode(bytes));
    let (salt, stored, server) =
        (twice(b"salt"), twice(keys.stored_key.expose()), twice(keys.server_key.expose()));
    let folder = TemporaryFolder::new();
    let path = folder.write(
        "ejabberd.xml",
        format!(
            "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'><user name='nurse'>\
             <scram-credentials xmlns='urn:xmpp:pie:0#scram' mechanism='SCRAM-SHA-1'><iter-count>4096</iter-count>\
             <salt>{salt}</salt><server-key>{server}</server-key><stored-key>{stored}</stored-key></scram-credentials>\
             <offline-messages><message from='a@b' to='nurse@capulet.lit'><body>x</body></message></offline-messages>\
             </user></host></server-data>"
        ),
    );
    let stores = stores();
    let (counts, reports) = run(&mut ServerDataSource::open(&path).unwrap(), &stores).unwrap();
    assert_eq!((counts.accounts, counts.offline, reports), (1, 1, vec![]));
    assert!(accepts(&stores, "nurse@capulet.lit", "secret"));
}

#[test]
fn keys_of_old_exports_of_ejabberd_that_cannot_be_used_are_no_passwords() {
    let keys = sasl::Credentials::derive("secret", 4096, b"salt").unwrap().sha256.unwrap();
    let [stored, server] =
        [&keys.stored_key, &keys.server_key].map(|key| BASE64_STANDARD.encode(key.expose()));
    let [right, zero, unknown, sha1] =
        [("sha256,", "4096"), ("sha256,", "0"), ("sha384,", "4096"), ("", "4096")]
            .map(|(hash, iterations)| format!("scram:{hash}{stored},{server},c2FsdA==,{iterations}"));
    let plain = "scram:a,b,c,d".to_owned();
    let users = [&right, &zero, &unknown, &sha1, &plain]
        .into_iter()
        .zip(["right", "zero", "unknown", "sha1", "plain"])
        .map(|(password, name)| format!("<user name='{name}' password='{password}'/>"));
    let folder = TemporaryFolder::new();
    let path = folder.write(
        "ejabberd.xml",
        format!(
            "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>{}</host></server-data>",
            users.collect::<String>()
        ),
    );
    let stores = stores();
    let (counts, reports) = run(&mut ServerDataSource::open(&path).unwrap(), &stores).unwrap();
    assert_eq!((counts.accounts, counts.passwords), (5, 1), "{reports:?}");
    assert!(accepts(&stores, "right@capulet.lit", "secret"));
    assert!(accepts(&stores, "plain@capulet.lit", &plain), "it does not have the form of keys");
    for (name, keys) in [("zero", &zero), ("unknown", &unknown), ("sha1", &sha1)] {
        let account = format!("{name}@capulet.lit");
        assert!(!accepts(&stores, &account, keys), "{name}");
        let reported = reports.iter().filter(|report| report.starts_with(&account)).count();
        assert_eq!(reported, 2, "the keys, and that there is no password: {reports:?}");
    }
}

#[test]
fn the_shapes_of_imported_keys_are_stored_for_decoys() {
    let mut keys = sasl::Credentials::derive("secret", 4096, b"salt").unwrap();
    (keys.sha256, keys.sha512) = (None, None);
    let encode = |key: &sasl::KeyBytes| BASE64_STANDARD.encode(key.expose());
    let sha1 = keys.sha1.as_ref().unwrap();
    let (stored, server) = (encode(&sha1.stored_key), encode(&sha1.server_key));
    let folder = TemporaryFolder::new();
    let path = folder.write(
        "data.xml",
        format!(
            "<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>\
             <user name='nurse' password='scram:{stored},{server},c2FsdA==,4096'/>\
             <user name='tybalt' password='scram:{stored},{server},c2FsdA==,4096'/><user name='nobody'/></host>\
             <host jid='other.example'><user name='a' password='x'/></host></server-data>"
        ),
    );
    let stores = stores();
    for _ in 0..2 {
        run(&mut ServerDataSource::open(&path).unwrap(), &stores).unwrap();
        let mut expected = sasl::KeyShapes::default();
        for _ in 0..2 {
            expected.count(sasl::KeyShape::of(&keys).unwrap());
        }
        let shapes = |domain| block_on_ready(throng_transfer::key_shapes(&stores, domain)).unwrap();
        assert_eq!(shapes("capulet.lit"), expected, "accounts that exist already are not counted again");
        assert!(shapes("other.example").is_empty(), "the server has no such domain");
    }
}

#[test]
fn section_5_included_files_are_read_below_the_folder_only() {
    let folder = TemporaryFolder::new();
    folder.write("secret.xml", "<user xmlns='urn:xmpp:pie:0' name='other'/>");
    let main = folder.write(
        "data/main.xml",
        "<server-data xmlns='urn:xmpp:pie:0' xmlns:xi='http://www.w3.org/2001/XInclude'>\
         <xi:include href='capulet.lit.xml'/></server-data>",
    );
    folder.write(
        "data/capulet.lit.xml",
        "<host xmlns='urn:xmpp:pie:0' xmlns:xi='http://www.w3.org/2001/XInclude' jid='capulet.lit'>\
         <xi:include href='capulet.lit/juliet%20.xml'/><xi:include href='../secret.xml'/>\
         <xi:include href='/etc/passwd'/><xi:include href='missing.xml'/><xi:include href='link.xml'/></host>",
    );
    std::os::unix::fs::symlink("../secret.xml", main.with_file_name("link.xml")).unwrap();
    folder.write("data/capulet.lit/juliet .xml", "<user xmlns='urn:xmpp:pie:0' name='juliet' password='x'/>");
    let stores = stores();
    let (counts, reports) = run(&mut ServerDataSource::open(&main).unwrap(), &stores).unwrap();
    assert_eq!((counts.accounts, reports.len()), (1, 4), "{reports:?}");
    assert!(accepts(&stores, "juliet@capulet.lit", "x"));
}

#[test]
fn data_that_cannot_be_read_are_reported_or_end_the_import() {
    let folder = TemporaryFolder::new();
    let wrap = |users: &str| {
        format!("<server-data xmlns='urn:xmpp:pie:0'><host jid='capulet.lit'>{users}</host></server-data>")
    };
    for (name, users, report) in [
        ("1", "<user name='a@b'/>", "the address is not valid"),
        (
            "2",
            "<user name='a' password='x'><vCard xmlns='vcard-temp'><p:FN/></vCard></user>",
            "not valid XML",
        ),
        ("3", "<user name='a' password='x'><x xmlns='urn:x'/></user>", "the namespace urn:x is not known"),
        ("4", "<user name='a'/>", "the account has no password"),
        (
            "5",
            "<user name='a' password='x'><offline-messages><presence xmlns='jabber:client'/></offline-messages></user>",
            "it is not a message",
        ),
        (
            "6",
            "<user name='a' password='x'><query xmlns='jabber:iq:roster'><item jid='@'/></query></user>",
            "the contact @ is not valid",
        ),
    ] {
        let path = folder.write(name, wrap(users));
        let (_, reports) = run(&mut ServerDataSource::open(&path).unwrap(), &stores()).unwrap();
        assert!(reports.iter().any(|found| found.contains(report)), "{report}: {reports:?}");
    }
    for (name, document) in [
        ("7", "<other/>".to_owned()),
        ("8", wrap("<user name='a'>")),
        ("8b", wrap("<user name='a'></x>")),
        ("8c", wrap("<user name='a' password='x'><vCard xmlns='vcard-temp'><FN></vCard></user>")),
        ("9", "<server-data xmlns='urn:xmpp:pie:0'><host jid='a@b'/></server-data>".to_owned()),
        ("10", "<!DOCTYPE x><server-data xmlns='urn:xmpp:pie:0'/>".to_owned()),
    ] {
        let path = folder.write(name, document);
        let ended = run(&mut ServerDataSource::open(&path).unwrap(), &stores());
        assert!(matches!(ended, Err(ImportError::Source(_))), "{name}");
    }
}
