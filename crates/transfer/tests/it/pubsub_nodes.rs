//! PubSub nodes of services and accounts, as Prosody 0.12 and ejabberd 23.01 write them.

use store::conformance::block_on_ready;
use store::{PubSubItem, StoredPubSubNode, Stores};
use throng_transfer::TransferSource;
use throng_transfer::ejabberd::EjabberdDump;
use throng_transfer::prosody::ProsodyFolder;

use super::support::{TemporaryFolder, options, run, run_with, stores};

fn node(stores: &Stores, key: &str) -> Option<StoredPubSubNode> {
    block_on_ready(stores.pubsub.load(jid::Jid::parse(key).unwrap().as_ref())).unwrap()
}

fn items(stores: &Stores, key: &str) -> Vec<PubSubItem> {
    let key = jid::Jid::parse(key).unwrap();
    let seqs = node(stores, key.as_str()).unwrap().items.iter().map(|head| head.seq).collect();
    block_on_ready(stores.pubsub.items(key.as_ref(), seqs)).unwrap()
}

fn subscribers(stores: &Stores, key: &str) -> Vec<String> {
    let key = jid::Jid::parse(key).unwrap();
    let all = block_on_ready(stores.pubsub.subscribers(key.as_ref(), None, 100)).unwrap();
    all.iter().map(jid::Jid::to_string).collect()
}

fn config(node: &StoredPubSubNode) -> String {
    String::from_utf8(node.record.config.clone()).unwrap()
}

/// Imports twice, the first time without writing.
fn import(source: &mut dyn TransferSource) -> (Stores, Vec<String>) {
    let stores = stores();
    let dry_run = run_with(source, &stores, &options(true)).unwrap();
    let (counts, reports) = run(source, &stores).unwrap();
    assert_eq!(dry_run, (counts, reports.clone()));
    assert_eq!(
        (counts.pubsub_nodes, counts.pubsub_subscriptions, counts.pubsub_items),
        (2, 2, 3),
        "{reports:?}"
    );
    (stores, reports)
}

fn check(stores: &Stores) {
    let musings = "pubsub.capulet.lit/princely musings";
    let found = node(stores, musings).unwrap();
    assert_eq!(found.record.creator.as_str(), "juliet@capulet.lit");
    let config = config(&found);
    for field in ["(\"pubsub#title\", [\"Musings\"])", "(\"pubsub#access_model\", [\"whitelist\"])"] {
        assert!(config.contains(field), "{config}");
    }
    let affiliations: Vec<_> = found.affiliations.iter().map(|(user, _)| user.as_str()).collect();
    assert_eq!(affiliations, ["juliet@capulet.lit", "romeo@montague.lit"]);
    assert_eq!(subscribers(stores, musings), ["nurse@capulet.lit"]);
    assert_eq!(found.special.len(), 1);
    assert_eq!(found.special[0].jid.as_str(), "friar@elsewhere.lit/cell");
    let shown = items(stores, musings);
    let ids: Vec<_> = shown.iter().map(|item| (&*item.head.id, item.head.published)).collect();
    assert_eq!(ids, [("1", 1_695_808_044_000), ("2", 1_695_808_045_000)]);
    assert_eq!(shown[1].payload, b"<entry xmlns='http://www.w3.org/2005/Atom'><title>T</title></entry>");
    let tune = items(stores, "nurse@capulet.lit/http://jabber.org/protocol/tune");
    assert_eq!(tune.len(), 1);
    assert_eq!(tune[0].head.publisher.as_str(), "nurse@capulet.lit");
}

#[test]
fn nodes_of_prosody_are_imported() {
    let folder = TemporaryFolder::new();
    for user in
        ["capulet%2elit/accounts/juliet", "capulet%2elit/accounts/nurse", "montague%2elit/accounts/romeo"]
    {
        folder.write(&format!("{user}.dat"), "return { [\"password\"] = \"secret\"; };");
    }
    folder.write(
        "pubsub%2ecapulet%2elit/pubsub_nodes/princely%20musings.dat",
        r#"return {
            ["name"] = "princely musings";
            ["config"] = { ["title"] = "Musings"; ["access_model"] = "whitelist"; ["include_payload"] = false; ["max_items"] = 50; };
            ["affiliations"] = { ["juliet@capulet.lit"] = "owner"; ["romeo@montague.lit"] = "publisher"; };
            ["subscribers"] = { ["nurse@capulet.lit"] = true; ["friar@elsewhere.lit/cell"] = { ["pubsub#deliver"] = true; }; };
        };"#,
    );
    let entry = |id: &str, when: u64| {
        format!(
            "item({{ {{ \"T\"; [\"name\"] = \"title\"; [\"attr\"] = {{ [\"xmlns\"] = \"http://www.w3.org/2005/Atom\" }} }}; \
             [\"name\"] = \"entry\"; [\"attr\"] = {{ [\"xmlns\"] = \"http://www.w3.org/2005/Atom\"; [\"stamp\"] = \"x\" }}; \
             [\"key\"] = \"{id}\"; [\"when\"] = {when}; [\"with\"] = \"romeo@montague.lit/x\"; }});\n"
        )
    };
    folder.write(
        "pubsub%2ecapulet%2elit/pubsub_princely%20musings.list",
        [entry("1", 1_695_808_044), entry("2", 1_695_808_045)].concat(),
    );
    folder.write(
        "capulet%2elit/pep/nurse.dat",
        r#"return { ["http://jabber.org/protocol/tune"] = { ["config"] = {}; ["subscribers"] = {}; ["affiliations"] = {}; }; };"#,
    );
    folder.write(
        "capulet%2elit/pep_http%3a%2f%2fjabber%2eorg%2fprotocol%2ftune/nurse.list",
        "item({ [\"name\"] = \"tune\"; [\"attr\"] = { [\"xmlns\"] = \"http://jabber.org/protocol/tune\" }; \
         [\"key\"] = \"t\"; [\"when\"] = 1695808044.5; [\"with\"] = \"nurse@capulet.lit\"; });\n",
    );
    let (stores, reports) = import(&mut ProsodyFolder::open(folder.path()).unwrap());
    assert!(reports.is_empty(), "{reports:?}");
    check(&stores);
    let musings = node(&stores, "pubsub.capulet.lit/princely musings").unwrap();
    for field in [
        "pubsub#deliver_payloads\", [\"0\"]",
        "pubsub#persist_items\", [\"0\"]",
        "pubsub#max_items\", [\"50\"]",
    ] {
        assert!(config(&musings).contains(field), "{}", config(&musings));
    }
    let tune = node(&stores, "nurse@capulet.lit/http://jabber.org/protocol/tune").unwrap();
    assert!(config(&tune).contains("pubsub#max_items\", [\"1\"]"), "{}", config(&tune));
}

const TABLES: &str = "{tables,[{passwd,[{record_name,passwd},{attributes,[us,password]}]},
    {pubsub_item,[{record_name,pubsub_item},{attributes,[itemid,nodeidx,creation,modification,payload]}]},
    {pubsub_state,[{record_name,pubsub_state},{attributes,[stateid,nodeidx,items,affiliation,subscriptions]}]},
    {pubsub_subscription,[{record_name,pubsub_subscription},{attributes,[subid,options]}]},
    {pubsub_node,[{record_name,pubsub_node},{attributes,[nodeid,id,parents,type,owners,options]}]}]}.\n";

/// Items and states before the nodes that they belong to.
const RECORDS: &str = r#"{pubsub_item,{<<"2">>,7},7,{{1695,808040,0},{<<"romeo">>,<<"montague.lit">>,<<>>}},
    {{1695,808045,0},{<<"romeo">>,<<"montague.lit">>,<<"x">>}},
    [{xmlel,<<"entry">>,[{<<"xmlns">>,<<"http://www.w3.org/2005/Atom">>}],[{xmlel,<<"title">>,[],[{xmlcdata,<<"T">>}]}]}]}.
{pubsub_item,{<<"1">>,7},7,{{1695,808044,0},{<<"romeo">>,<<"montague.lit">>,<<>>}},
    {{1695,808044,0},{<<"romeo">>,<<"montague.lit">>,<<"x">>}},[]}.
{pubsub_item,{<<"t">>,8},8,{{1695,808044,0},{<<"nurse">>,<<"capulet.lit">>,<<>>}},
    {{1695,808044,0},{<<"nurse">>,<<"capulet.lit">>,<<>>}},
    [{xmlel,<<"tune">>,[{<<"xmlns">>,<<"http://jabber.org/protocol/tune">>}],[]}]}.
{pubsub_item,{<<"x">>,99},99,{{1695,808044,0},{<<"nurse">>,<<"capulet.lit">>,<<>>}},{{1695,808044,0},undefined},[]}.
{pubsub_state,{{<<"juliet">>,<<"capulet.lit">>,<<>>},7},7,[],owner,[]}.
{pubsub_state,{{<<"romeo">>,<<"montague.lit">>,<<>>},7},7,[<<"1">>],publisher,[]}.
{pubsub_state,{{<<"nurse">>,<<"capulet.lit">>,<<>>},7},7,[],none,[{subscribed,<<"5E6A">>}]}.
{pubsub_state,{{<<"friar">>,<<"elsewhere.lit">>,<<"cell">>},7},7,[],none,[{subscribed,<<"5E6B">>},{none,<<"x">>}]}.
{pubsub_subscription,<<"5E6B">>,[{deliver,true},{show_values,[<<"away">>]}]}.
{pubsub_node,{<<"pubsub.capulet.lit">>,<<"princely musings">>},7,[],<<"flat">>,[{<<"juliet">>,<<"capulet.lit">>,<<>>}],
    [{title,<<"Musings">>},{access_model,whitelist},{deliver_payloads,false},{max_items,infinity}]}.
{pubsub_node,{{<<"nurse">>,<<"capulet.lit">>,<<>>},<<"http://jabber.org/protocol/tune">>},8,[],<<"pep">>,
    [{<<"nurse">>,<<"capulet.lit">>,<<>>}],[]}.
{pubsub_node,{<<"pubsub.montague.lit">>,<<"other">>},9,[],<<"flat">>,[{<<"romeo">>,<<"montague.lit">>,<<>>}],[]}.
{passwd,{<<"juliet">>,<<"capulet.lit">>},<<"secret">>}.
{passwd,{<<"nurse">>,<<"capulet.lit">>},<<"secret">>}.
{passwd,{<<"romeo">>,<<"montague.lit">>},<<"secret">>}.
"#;

#[test]
fn nodes_of_ejabberd_are_imported_in_any_order() {
    let folder = TemporaryFolder::new();
    let path = folder.write("dump.txt", format!("{TABLES}{RECORDS}"));
    let (stores, reports) = import(&mut EjabberdDump::open(&path).unwrap());
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[0].contains("belongs to a PubSub node that does not exist"), "{reports:?}");
    assert!(reports[1].starts_with("pubsub.montague.lit: 1 PubSub nodes: no host"), "{reports:?}");
    check(&stores);
    let musings = node(&stores, "pubsub.capulet.lit/princely musings").unwrap();
    assert!(config(&musings).contains("pubsub#max_items\", [\"max\"]"), "{}", config(&musings));
    assert_eq!(&*musings.special[0].subid, "5E6B");
    let options = String::from_utf8(musings.special[0].state.clone()).unwrap();
    assert!(options.contains("pubsub#deliver\", [\"1\"]"), "{options}");
}

#[test]
fn a_node_that_exists_is_left_alone() {
    let folder = TemporaryFolder::new();
    let path = folder.write("dump.txt", format!("{TABLES}{RECORDS}"));
    let stores = stores();
    let key = jid::Jid::parse("pubsub.capulet.lit/princely musings").unwrap();
    let record = store::PubSubNodeRecord {
        creator: jid::Jid::parse("nurse@capulet.lit").unwrap(),
        created: 1,
        title: "own".to_owned(),
        is_listed: true,
        config: Vec::new(),
    };
    block_on_ready(stores.pubsub.apply(key.as_ref(), vec![store::PubSubChange::Put(record.clone())]))
        .unwrap();
    let (counts, reports) = run(&mut EjabberdDump::open(&path).unwrap(), &stores).unwrap();
    assert_eq!((counts.pubsub_nodes, counts.pubsub_items), (1, 1));
    assert!(reports.iter().any(|report| report.contains("a node with this name exists")), "{reports:?}");
    let found = node(&stores, key.as_str()).unwrap();
    assert!(found.record == record && found.items.is_empty() && found.affiliations.is_empty());
}

/// A user who registers the address later would own the node, or read it.
#[test]
fn what_users_without_an_account_have_is_skipped() {
    let folder = TemporaryFolder::new();
    let records = RECORDS.replace("{passwd,{<<\"romeo\">>", "{passwd,{<<\"tybalt\">>");
    let records = records.replace("{passwd,{<<\"juliet\">>", "{passwd,{<<\"paris\">>");
    let path = folder.write("dump.txt", format!("{TABLES}{records}"));
    let stores = stores();
    let dry_run = run_with(&mut EjabberdDump::open(&path).unwrap(), &stores, &options(true)).unwrap();
    let (counts, reports) = run(&mut EjabberdDump::open(&path).unwrap(), &stores).unwrap();
    assert_eq!(dry_run, (counts, reports.clone()));
    let key = "pubsub.capulet.lit/princely musings";
    let found = node(&stores, key).unwrap();
    assert!(found.affiliations.is_empty(), "{:?}", found.affiliations);
    assert_eq!(found.record.creator.as_str(), "pubsub.capulet.lit", "administrators have it");
    assert_eq!((subscribers(&stores, key), found.special.len()), (vec!["nurse@capulet.lit".to_owned()], 1));
    let of_missing = reports.iter().filter(|report| report.ends_with("there is no such account"));
    assert_eq!(of_missing.count(), 3, "{reports:?}");
}

#[test]
fn items_of_one_moment_and_without_a_time_are_all_imported() {
    let folder = TemporaryFolder::new();
    let mut records = RECORDS.to_owned();
    for number in 0..4_500 {
        let at = if number < 4_200 { "{1695,808044,0}" } else { "undefined" };
        records +=
            &format!("{{pubsub_item,{{<<\"i{number}\">>,7}},7,{{{at},undefined}},{{{at},undefined}},[]}}.\n");
    }
    let path = folder.write("dump.txt", format!("{TABLES}{records}"));
    let stores = stores();
    run(&mut EjabberdDump::open(&path).unwrap(), &stores).unwrap();
    let key = "pubsub.capulet.lit/princely musings";
    assert_eq!(node(&stores, key).unwrap().items.len(), 4_502);
    let shown = items(&stores, key);
    assert_eq!(&*shown.last().unwrap().head.id, "2", "it is newer than the others");
}
