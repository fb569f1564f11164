//! A text dump as ejabberd 23.01 writes it, with the older and the newer forms of records.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use store::Subscription;
use store::conformance::block_on_ready;
use throng_transfer::ejabberd::EjabberdDump;

use super::support::{TemporaryFolder, accepts, exported, run, secrets, stores};

const TABLES: &str =
    "{tables,[{roster,[{record_name,roster},{attributes,[usj,us,jid,name,subscription,ask,groups,
                          askmessage,xs]}]},
         {passwd,[{record_name,passwd},{attributes,[us,password]}]},
         {private_storage,[{record_name,private_storage},{attributes,[usns,xml]}]},
         {vcard,[{record_name,vcard},{attributes,[us,vcard]}]},
         {privacy,[{record_name,privacy},{attributes,[us,default,lists]}]},
         {offline_msg,[{record_name,offline_msg},{attributes,[us,timestamp,expire,from,to,packet]}]},
         {last_activity,[{record_name,last_activity},{attributes,[us,timestamp,status]}]},
         {muc_room,[{record_name,muc_room},{attributes,[name_host,opts]}]},
         {session,[{record_name,session},{attributes,[sid,usr,us,priority,info]}]}]}.\n";

const RECORDS: &str = "{roster,{<<\"juliet\">>,<<\"capulet.lit\">>,{<<\"romeo\">>,<<\"montague.lit\">>,<<>>}},
        {<<\"juliet\">>,<<\"capulet.lit\">>},
        {<<\"romeo\">>,<<\"montague.lit\">>,<<>>},<<82,195,182,109,101,111>>,both,none,[<<\"Friends\">>],<<>>,[]}.
{roster,{<<\"juliet\">>,<<\"capulet.lit\">>,{<<\"mercutio\">>,<<\"montague.lit\">>,<<>>}},
        {<<\"juliet\">>,<<\"capulet.lit\">>},
        {<<\"mercutio\">>,<<\"montague.lit\">>,<<>>},<<>>,none,in,[],<<\"Hi. \">>,[]}.
{private_storage,{<<\"juliet\">>,<<\"capulet.lit\">>,<<\"storage:bookmarks\">>},
                 {xmlel,<<\"storage\">>,[{<<\"xmlns\">>,<<\"storage:bookmarks\">>}],[]}}.
{vcard,{<<\"juliet\">>,<<\"capulet.lit\">>},
       {xmlel,<<\"vCard\">>,[{<<\"xmlns\">>,<<\"vcard-temp\">>}],[{xmlel,<<\"FN\">>,[],[{xmlcdata,<<\"J\">>}]}]}}.
{privacy,{<<\"juliet\">>,<<\"capulet.lit\">>},<<\"Blocked contacts\">>,
    [{<<\"Blocked contacts\">>,
      [{listitem,jid,{<<\"tybalt\">>,<<\"capulet.lit\">>,<<>>},deny,1,true,false,false,false,false},
       {listitem,none,none,deny,2,false,false,true,false,false}]}]}.
{offline_msg,{<<\"juliet\">>,<<\"capulet.lit\">>},{1700,0,500000},never,
    {jid,<<\"romeo\">>,<<\"montague.lit\">>,<<\"x\">>,<<\"romeo\">>,<<\"montague.lit\">>,<<\"x\">>},
    {jid,<<\"juliet\">>,<<\"capulet.lit\">>,<<>>,<<\"juliet\">>,<<\"capulet.lit\">>,<<>>},
    {xmlel,<<\"message\">>,[{<<\"type\">>,<<\"chat\">>}],[{xmlel,<<\"body\">>,[],[{xmlcdata,<<\"one\">>}]}]}}.
{last_activity,{<<\"juliet\">>,<<\"capulet.lit\">>},1600000000,<<\"gone\">>}.
{muc_room,{<<\"room\">>,<<\"conference.capulet.lit\">>},
    [{title,<<\"The Lobby\">>},{affiliations,[{{<<\"juliet\">>,<<\"capulet.lit\">>,<<>>},{owner,<<>>}}]}]}.
{muc_room,{<<\"room\">>,<<\"conference.montague.lit\">>},[]}.
{session,{{1,2,3},<0.100.0>},{<<\"juliet\">>,<<\"capulet.lit\">>,<<\"x\">>},{<<\"juliet\">>,<<\"capulet.lit\">>},1,[]}.
{vcard,{<<\"juliet\">>,<<\"capulet.lit\">>},Broken}.\n";

/// Keys in the forms of ejabberd before and after 20.
fn passwords() -> String {
    let keys = sasl::Credentials::derive("r0m30", 4096, b"salt").unwrap();
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let (sha1, sha256) = (keys.sha1.unwrap(), keys.sha256.unwrap());
    let salt = encode(b"salt");
    format!(
        "{{passwd,{{<<\"juliet\">>,<<\"capulet.lit\">>}},{{scram,<<\"{}\">>,<<\"{}\">>,<<\"{salt}\">>,4096}}}}.\n\
         {{passwd,{{<<\"romeo\">>,<<\"montague.lit\">>,sha256}},{{scram,<<\"{}\">>,<<\"{}\">>,<<\"{salt}\">>,sha256,4096}}}}.\n\
         {{passwd,{{<<\"nurse\">>,<<\"capulet.lit\">>}},<<\"angelica\">>}}.\n",
        encode(sha1.stored_key.expose()),
        encode(sha1.server_key.expose()),
        encode(sha256.stored_key.expose()),
        encode(sha256.server_key.expose()),
    )
}

#[test]
fn all_tables_of_accounts_are_read_in_any_order() {
    for accounts_first in [true, false] {
        let folder = TemporaryFolder::new();
        let (first, second) = if accounts_first {
            (passwords(), RECORDS.to_owned())
        } else {
            (RECORDS.to_owned(), passwords())
        };
        let path = folder.write("dump.txt", format!("{TABLES}{first}{second}"));
        let stores = stores();
        let (counts, reports) = run(&mut EjabberdDump::open(&path).unwrap(), &stores).unwrap();
        assert_eq!((counts.accounts, counts.contacts, counts.requests), (3, 1, 1), "{reports:?}");
        assert_eq!(
            (counts.private, counts.vcards, counts.blocked, counts.offline),
            (1, 1, 1, 1),
            "{reports:?}"
        );
        assert_eq!((counts.last_activities, counts.rooms), (1, 1));
        let room = jid::Jid::parse("room@conference.capulet.lit").unwrap();
        let stored = block_on_ready(stores.rooms.load(room.as_ref(), 0)).unwrap().unwrap().record;
        assert_eq!(stored.title, "The Lobby");
        for report in [
            "juliet@capulet.lit: 1 privacy rules do more than block an address",
            "conference.montague.lit: 1 rooms: no host has its rooms at this address",
            "is not an Erlang term",
        ] {
            assert!(reports.iter().any(|found| found.contains(report)), "{report}: {reports:?}");
        }
        assert_eq!(reports.len(), 3, "{reports:?}");
        for (jid, password) in [
            ("juliet@capulet.lit", "r0m30"),
            ("romeo@montague.lit", "r0m30"),
            ("nurse@capulet.lit", "angelica"),
        ] {
            assert!(accepts(&stores, jid, password), "{jid}");
        }
        let id = secrets(&stores, "juliet@capulet.lit").id;
        let roster = block_on_ready(stores.roster.get(id)).unwrap().items;
        let romeo = roster.iter().find(|item| item.jid.as_str() == "romeo@montague.lit").unwrap();
        assert_eq!(romeo.name.as_deref(), Some("Römeo"));
        assert_eq!(romeo.subscription, Subscription::IN_ROSTER | Subscription::BOTH);
        let text = exported(&stores);
        assert!(
            text.contains(
                "<message xmlns='jabber:client' type='chat' from='romeo@montague.lit/x' to='juliet@capulet.lit'>\
                 <body>one</body><delay xmlns='urn:xmpp:delay' from='capulet.lit' stamp='2023-11-14T22:13:20.500Z'/></message>"
            ),
            "{text}"
        );
        assert!(text.contains("<status>Hi. </status>"), "{text}");
    }
}

#[test]
fn several_hashes_of_a_password_are_merged() {
    let keys = sasl::Credentials::derive("r0m30", 4096, b"salt").unwrap();
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let record = |name: &str, hash: sasl::ScramHash| {
        let keys = keys.keys(hash).unwrap();
        let (stored, server) = (encode(keys.stored_key.expose()), encode(keys.server_key.expose()));
        format!(
            "{{passwd,{{<<\"juliet\">>,<<\"capulet.lit\">>,{name}}},{{scram,<<\"{stored}\">>,<<\"{server}\">>,<<\"{}\">>,{name},4096}}}}.\n",
            encode(b"salt")
        )
    };
    let folder = TemporaryFolder::new();
    let mut dump = format!("{TABLES}{}", record("sha", sasl::ScramHash::Sha1));
    // Enough others that the second hash is in another batch.
    for user in 0..1_500 {
        dump.push_str(&format!("{{passwd,{{<<\"u{user}\">>,<<\"capulet.lit\">>}},<<\"x\">>}}.\n"));
    }
    dump.push_str(&record("sha512", sasl::ScramHash::Sha512));
    let path = folder.write("dump.txt", dump);
    let stores = stores();
    run(&mut EjabberdDump::open(&path).unwrap(), &stores).unwrap();
    let found = sasl::Credentials::decode(&secrets(&stores, "juliet@capulet.lit").credentials).unwrap();
    assert_eq!((found.sha1, found.sha256, found.sha512), (keys.sha1.clone(), None, keys.sha512.clone()));
}

#[test]
fn another_file_is_refused() {
    let folder = TemporaryFolder::new();
    for (name, content) in [("a", "<xml/>"), ("b", "{other,[]}.\n"), ("c", "{tables,x}.\n")] {
        let path = folder.write(name, content);
        assert!(run(&mut EjabberdDump::open(&path).unwrap(), &stores()).is_err(), "{name}");
    }
}
