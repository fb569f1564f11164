//! Both schemas of ejabberd in SQLite, with the tables of its `sql/lite.sql` and `sql/lite.new.sql` that are read.
//!
//! Those of PostgreSQL and MariaDB are in `e2e/tests/moving`, where ejabberd itself writes them.
#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]

use std::path::{Path, PathBuf};

use sqlx::{AnyConnection, Connection};
use store::Subscription;
use throng_transfer_sql::EjabberdDatabase;
use transfer::{AccountItem, AccountPassword, PubSubRecord, SourceRecord, TransferSource};

struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn url(path: &Path) -> String {
    format!("sqlite:{}?mode=rwc", path.display())
}

fn database(sql: &str) -> TemporaryFile {
    let path = std::env::temp_dir().join(format!("throng-ejabberd-{}.db", base::id::random_id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        sqlx::any::install_default_drivers();
        let mut line = AnyConnection::connect(&url(&path)).await.unwrap();
        for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
            sqlx::query(statement).execute(&mut line).await.unwrap();
        }
        line.close().await.unwrap();
    });
    TemporaryFile(path)
}

/// The tables; `HOST` is the column of the new schema, or nothing.
fn schema(new: bool) -> String {
    let tables = "CREATE TABLE users (username text, HOST type smallint, password text NOT NULL,
            serverkey text NOT NULL DEFAULT '', salt text NOT NULL DEFAULT '', iterationcount integer NOT NULL DEFAULT 0);
        CREATE TABLE last (username text, HOST seconds text NOT NULL, state text NOT NULL);
        CREATE TABLE rosterusers (username text NOT NULL, HOST jid text NOT NULL, nick text NOT NULL,
            subscription character(1) NOT NULL, approved boolean NOT NULL, ask character(1) NOT NULL,
            askmessage text NOT NULL);
        CREATE TABLE rostergroups (username text NOT NULL, HOST jid text NOT NULL, grp text NOT NULL);
        CREATE TABLE spool (username text NOT NULL, HOST xml text NOT NULL, seq INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE TABLE vcard (username text, HOST vcard text NOT NULL);
        CREATE TABLE private_storage (username text NOT NULL, HOST namespace text NOT NULL, data text NOT NULL);
        CREATE TABLE privacy_default_list (username text, HOST name text NOT NULL);
        CREATE TABLE privacy_list (username text NOT NULL, HOST name text NOT NULL, id INTEGER PRIMARY KEY);
        CREATE TABLE privacy_list_data (id bigint, t character(1) NOT NULL, value text NOT NULL, action character(1) NOT NULL,
            ord NUMERIC NOT NULL, match_all boolean NOT NULL, match_iq boolean NOT NULL, match_message boolean NOT NULL,
            match_presence_in boolean NOT NULL, match_presence_out boolean NOT NULL);
        CREATE TABLE archive (username text NOT NULL)";
    tables.replace("HOST", if new { "server_host text NOT NULL DEFAULT 'capulet.lit'," } else { "" })
}

const ROWS: &str = "
    INSERT INTO users (username, type, password) VALUES ('juliet', 1, 'r0m30');
    INSERT INTO users (username, type, password, serverkey, salt, iterationcount) VALUES
        ('nurse', 2, 'Q6qT/SbybblGCZz8e8eSfCJOQic=', '0pXWGK0GZJ6TR73AIUN3ITYtA1g=', 'c2FsdA==', 4096);
    INSERT INTO last (username, seconds, state) VALUES ('juliet', '1600000000', 'gone');
    INSERT INTO rosterusers VALUES_ROSTER ('juliet', 'romeo@montague.lit', 'Romeo', 'B', 1, 'N', ''),
        ('juliet', 'mercutio@montague.lit', '', 'N', 0, 'I', 'hi');
    INSERT INTO rostergroups (username, jid, grp) VALUES ('juliet', 'romeo@montague.lit', 'A'), ('juliet', 'romeo@montague.lit', 'B');
    INSERT INTO spool (username, xml) VALUES ('juliet', '<message from=\"a@b\" to=\"juliet@capulet.lit\"><body>1</body></message>'),
        ('juliet', '<message>');
    INSERT INTO vcard (username, vcard) VALUES ('juliet', '<vCard xmlns=\"vcard-temp\"><FN>J</FN></vCard>');
    INSERT INTO private_storage (username, namespace, data) VALUES ('juliet', 'u', '<a xmlns=\"u\"/>');
    INSERT INTO privacy_default_list (username, name) VALUES ('juliet', 'x');
    INSERT INTO privacy_list (username, name, id) VALUES ('juliet', 'x', 7), ('juliet', 'y', 8);
    INSERT INTO privacy_list_data VALUES (7, 'j', 'tybalt@capulet.lit', 'd', 1, 1, 0, 0, 0, 0),
        (7, 'n', '', 'd', 2, 0, 0, 1, 0, 0), (8, 'j', 'other@capulet.lit', 'd', 1, 1, 0, 0, 0, 0);
    INSERT INTO archive (username) VALUES ('juliet')";

fn read(source: &mut EjabberdDatabase) -> Vec<SourceRecord> {
    let mut records = Vec::new();
    while let Some(record) = source.next_record().unwrap() {
        records.push(record);
    }
    records
}

#[test]
fn both_schemas_give_the_same_records() {
    let rows = ROWS
        .replace("VALUES_ROSTER", "(username, jid, nick, subscription, approved, ask, askmessage) VALUES");
    let mut first = None;
    for new in [true, false] {
        let file = database(&format!("{};{rows}", schema(new)));
        let mut source = EjabberdDatabase::open(&url(&file.0), Some("capulet.lit")).unwrap();
        let records = read(&mut source);
        source.rewind().unwrap();
        assert_eq!(read(&mut source), records, "the order is fixed");
        let skipped = records.iter().filter(|record| matches!(record, SourceRecord::Skipped(_))).count();
        assert_eq!(skipped, 3, "{records:?}");
        let items: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                SourceRecord::Item { owner, item } => Some((owner.as_str(), item)),
                SourceRecord::Room(_) | SourceRecord::PubSub(_) | SourceRecord::Skipped(_) => None,
            })
            .collect();
        assert!(items.iter().any(|(owner, item)| *owner == "nurse@capulet.lit"
            && matches!(item, AccountItem::Account { password: AccountPassword::Scram(_), .. })));
        let contact = items.iter().find_map(|(_, item)| match item {
            AccountItem::Contact(contact) => Some(contact),
            _ => None,
        });
        let contact = contact.unwrap();
        assert_eq!(contact.groups, ["A", "B"]);
        let state = Subscription::IN_ROSTER | Subscription::BOTH | Subscription::APPROVED;
        assert_eq!(contact.subscription, state);
        assert!(items.iter().any(|(_, item)| matches!(item, AccountItem::Blocked(list) if list.len() == 1)));
        assert_eq!(items.len(), 9, "{items:?}");
        assert_eq!(*first.get_or_insert(records.clone()), records);
    }
}

#[test]
fn an_old_schema_needs_its_domain_and_another_database_is_refused() {
    let file = database(&schema(false));
    let mut source = EjabberdDatabase::open(&url(&file.0), None).unwrap();
    assert!(source.next_record().unwrap_err().to_string().contains("--domain"));
    let file = database("CREATE TABLE other (a text)");
    let mut source = EjabberdDatabase::open(&url(&file.0), None).unwrap();
    assert!(source.next_record().is_err());
}

const NODES: &str = "CREATE TABLE pubsub_node (host text NOT NULL, node text NOT NULL, parent text NOT NULL DEFAULT '',
        plugin text NOT NULL, nodeid INTEGER PRIMARY KEY AUTOINCREMENT);
    CREATE TABLE pubsub_node_option (nodeid bigint, name text NOT NULL, val text NOT NULL);
    CREATE TABLE pubsub_node_owner (nodeid bigint, owner text NOT NULL);
    CREATE TABLE pubsub_state (nodeid bigint, jid text NOT NULL, affiliation character(1),
        subscriptions text NOT NULL DEFAULT '', stateid INTEGER PRIMARY KEY AUTOINCREMENT);
    CREATE TABLE pubsub_item (nodeid bigint, itemid text NOT NULL, publisher text NOT NULL, creation varchar(32) NOT NULL,
        modification varchar(32) NOT NULL, payload text NOT NULL DEFAULT '');
    CREATE TABLE pubsub_subscription_opt (subid text NOT NULL, opt_name varchar(32), opt_value text NOT NULL);
    INSERT INTO pubsub_node VALUES ('pubsub.capulet.lit', 'musings', '', 'flat', 7),
        ('nurse@capulet.lit', 'http://jabber.org/protocol/tune', '', 'pep', 8);
    INSERT INTO pubsub_node_option VALUES (7, 'title', '<<\"Musings\">>'), (7, 'deliver_payloads', 'false'), (7, 'rsm', 'true');
    INSERT INTO pubsub_node_owner VALUES (8, 'nurse@capulet.lit');
    INSERT INTO pubsub_state (nodeid, jid, affiliation, subscriptions) VALUES (7, 'juliet@capulet.lit', 'o', ''),
        (7, 'nurse@capulet.lit', 'n', 's:5E6A,p:5E6B');
    INSERT INTO pubsub_item VALUES (7, '2', 'romeo@montague.lit', '001695:808040:000000', '001695:808045:000000', '<a xmlns=\"u:a\"/>'),
        (7, '1', 'romeo@montague.lit', '001695:808044:000000', '001695:808044:000000', ''),
        (8, 't', 'nurse@capulet.lit', '001695:808044:000000', '001695:808044:000000', '<broken');
    INSERT INTO pubsub_subscription_opt VALUES ('5E6B', 'DELIVER', '0'), ('5E6B', 'SHOW_VALUES', 'away'),
        ('5E6B', 'SHOW_VALUES', 'dnd')";

#[test]
fn pubsub_nodes_are_before_what_they_have() {
    let database = database(&format!("{};{NODES}", schema(true)));
    let mut source = EjabberdDatabase::open(&url(&database.0), None).unwrap();
    let mut shown = Vec::new();
    while let Some(record) = source.next_record().unwrap() {
        shown.push(match record {
            SourceRecord::PubSub(record) => match *record {
                PubSubRecord::Node(node) => format!(
                    "{} {:?} {:?}",
                    node.address.name,
                    node.owners.first().map(|jid| jid.as_str()),
                    node.config
                ),
                PubSubRecord::State(state) => {
                    format!("{} {} {:?}", state.jid, state.affiliation, state.subscriptions)
                }
                PubSubRecord::Item(item) => {
                    format!("{} {:?} {}", item.id, item.published, String::from_utf8(item.payload).unwrap())
                }
            },
            SourceRecord::Skipped(skipped) => format!("{}: {}", skipped.place, skipped.reason),
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "musings Some(\"juliet@capulet.lit\") [(\"pubsub#deliver_payloads\", [\"0\"]), (\"pubsub#title\", [\"Musings\"])]",
        "http://jabber.org/protocol/tune Some(\"nurse@capulet.lit\") []",
        "juliet@capulet.lit owner []",
        "nurse@capulet.lit  [SourceSubscription { subid: \"5E6A\", is_pending: false, options: [] }, SourceSubscription { \
         subid: \"5E6B\", is_pending: true, options: [(\"pubsub#deliver\", [\"0\"]), (\"pubsub#show-values\", [\"away\", \"dnd\"])] }]",
        "1 Some(1695808044000) ",
        "2 Some(1695808045000) <a xmlns=\"u:a\"/>",
    ];
    assert_eq!(shown[..6], expected);
    assert!(
        shown[6].starts_with("the PubSub node http://jabber.org/protocol/tune: it is not valid XML"),
        "{}",
        shown[6]
    );
    assert_eq!(shown.len(), 7);
}
