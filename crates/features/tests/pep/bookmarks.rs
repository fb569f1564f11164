//! Bookmarks in three places: XEP-0402 1.2.0, XEP-0048 1.2 and XEP-0411 1.1.0.

use super::*;

const STORAGE: &str = "storage:bookmarks";
const ITEMS: &str = "urn:xmpp:bookmarks:1";
const PLAY: &str = "theplay@conference.shakespeare.lit";
const ORCHARD: &str = "orchard@conference.shakespeare.lit";
/// XEP-0048, example 3, with a web page.
const LIST: &str = "<storage xmlns='storage:bookmarks'><conference name='The Play&apos;s the Thing' autojoin='true' \
    jid='theplay@conference.shakespeare.lit'><nick>JC</nick></conference><url name='Works' url='http://w/'/></storage>";

fn private(client: &NodeClient) -> String {
    let query = "<iq type='get' id='p'><query xmlns='jabber:iq:private'><storage xmlns='storage:bookmarks'/></query></iq>";
    answer(client.request(query))
}

fn set_private(engine: &TestNode, client: &NodeClient, list: &str) {
    let stored = answer(
        client
            .request(&format!("<iq type='set' id='p'><query xmlns='jabber:iq:private'>{list}</query></iq>")),
    );
    assert!(stored.contains("type='result'"), "{stored}");
    engine.run_tasks();
}

fn items(client: &NodeClient, node: &str) -> String {
    get(client, "", &format!("<items node='{node}'/>"))
}

/// XEP-0402, section 3.3.
fn publish_bookmark(engine: &TestNode, client: &NodeClient, room: &str, conference: &str) {
    let options = form(
        "publish-options",
        &[
            ("persist_items", "true"),
            ("max_items", "max"),
            ("send_last_published_item", "never"),
            ("access_model", "whitelist"),
        ],
    );
    let published = set(
        client,
        &format!(
            "<publish node='{ITEMS}'><item id='{room}'>{conference}</item></publish>\
             <publish-options>{options}</publish-options>"
        ),
    );
    assert!(published.contains("type='result'"), "{published}");
    engine.run_tasks();
}

fn orchard(name: &str) -> String {
    format!(
        "<conference xmlns='{ITEMS}' name='{name}' autojoin='1'><nick>JC</nick><extensions>\
         <state xmlns='http://myclient.example/bookmark/state' minimized='true'/></extensions></conference>"
    )
}

#[test]
fn the_conversions_are_discovered() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let query = "<iq to='juliet@example.com' id='01' type='get'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>";
    let info = answer(juliet.request(query));
    for var in
        ["urn:xmpp:bookmarks-conversion:0", "urn:xmpp:bookmarks:1#compat", "urn:xmpp:bookmarks:1#compat-pep"]
    {
        assert!(info.contains(&format!("<feature var='{var}'/>")), "{var}");
    }
}

#[test]
fn xep_0411_section_3_private_xml_becomes_items_with_notifications() {
    let engine = verona();
    let old = connect(&engine, "juliet", "old", &[]);
    let modern = connect(&engine, "juliet", "modern", &[STORAGE, ITEMS]);
    let romeo = connect(&engine, "romeo", "orchard", &[STORAGE, ITEMS]);
    set_private(&engine, &old, LIST);
    let mut got = events(&modern.recv());
    got.sort();
    assert_eq!(got, [format!("{STORAGE} current"), format!("{ITEMS} {PLAY}")]);
    assert!(events(&romeo.recv()).is_empty(), "bookmarks are private");
    for node in [STORAGE, ITEMS] {
        let refused = get(&romeo, "juliet@example.com", &format!("<items node='{node}'/>"));
        assert!(refused.contains("<item-not-found "), "{refused}");
    }
    assert!(items(&modern, STORAGE).contains("url='http://w/'"));
    let own = items(&modern, ITEMS);
    assert!(own.contains(&format!("<item id='{PLAY}'>")) && own.contains("<nick>JC</nick>"), "{own}");
    // XEP-0402, section 5.3.2: no notification for what is unchanged; one for what is removed.
    let more = LIST.replace("<url ", &format!("<conference jid='{ORCHARD}'/><url "));
    set_private(&engine, &old, &more);
    let of_items: Vec<String> =
        events(&modern.recv()).into_iter().filter(|one| one.starts_with(ITEMS)).collect();
    assert_eq!(of_items, [format!("{ITEMS} {ORCHARD}")]);
    set_private(&engine, &old, "<storage xmlns='storage:bookmarks'/>");
    let received = modern.recv().concat();
    assert!(received.contains(&format!("<retract id='{PLAY}'/>")), "{received}");
    assert!(!items(&modern, ITEMS).contains("<item "));
    assert!(!private(&old).contains("conference"));
}

#[test]
fn xep_0411_section_3_the_item_with_the_list_becomes_private_xml_and_items() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let options = form("publish-options", &[("persist_items", "true"), ("access_model", "whitelist")]);
    let published = set(
        &juliet,
        &format!(
            "<publish node='{STORAGE}'><item id='current'>{LIST}</item></publish><publish-options>{options}</publish-options>"
        ),
    );
    assert!(published.contains("type='result'"), "{published}");
    engine.run_tasks();
    assert!(private(&juliet).contains(LIST), "{}", private(&juliet));
    assert!(items(&juliet, ITEMS).contains(PLAY));
}

#[test]
fn xep_0402_section_5_3_items_become_the_lists_and_keep_their_extensions() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    set_private(&engine, &juliet, LIST);
    publish_bookmark(&engine, &juliet, ORCHARD, &orchard("The Orcard"));
    for list in [private(&juliet), items(&juliet, STORAGE)] {
        assert!(list.contains(&format!("jid='{ORCHARD}' name='The Orcard' autojoin='true'")), "{list}");
        assert!(list.contains(&format!("jid='{PLAY}'")) && list.contains("url='http://w/'"), "{list}");
    }
    // A client that knows lists only changes it.
    set_private(
        &engine,
        &juliet,
        &format!("<storage xmlns='{STORAGE}'><conference jid='{ORCHARD}' name='The Orchard'/></storage>"),
    );
    let own = items(&juliet, ITEMS);
    assert!(own.contains("name='The Orchard'") && own.contains("minimized='true'"), "{own}");
    assert!(!own.contains(PLAY) && !own.contains("<nick>"), "{own}");
    let retracted =
        set(&juliet, &format!("<retract node='{ITEMS}' notify='true'><item id='{ORCHARD}'/></retract>"));
    assert!(retracted.contains("type='result'"), "{retracted}");
    engine.run_tasks();
    for list in [private(&juliet), items(&juliet, STORAGE)] {
        assert!(!list.contains("<conference"), "{list}");
    }
}

#[test]
fn xep_0411_section_5_nodes_that_others_read_are_not_written() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    create(&juliet, STORAGE, &[("access_model", "open")]);
    create(&juliet, ITEMS, &[("access_model", "presence")]);
    set_private(&engine, &juliet, LIST);
    for node in [STORAGE, ITEMS] {
        assert!(!items(&juliet, node).contains("<item "), "{node}");
    }
}

#[test]
fn bookmarks_that_are_only_in_private_xml_are_converted_for_the_first_client_that_asks() {
    let engine = verona();
    let key = "jabber:iq:private storage storage:bookmarks".to_owned();
    let juliet = Jid::parse("juliet@example.com").unwrap();
    let limits = store::AccountKvLimits { entries: 9, bytes: 9_999 };
    let put = engine.node.stores.account_kv.put(juliet.as_ref(), vec![(key, LIST.into())], limits);
    assert!(matches!(engine.block_on(put), Ok(store::PutOutcome::Done)));
    let old = connect(&engine, "juliet", "old", &[TUNE]);
    engine.run_tasks();
    assert!(items(&old, ITEMS).contains("<item-not-found "));
    let modern = engine.connect("juliet", "modern");
    let received = become_available(&modern, &[ITEMS]);
    engine.run_tasks();
    let received = [received, modern.recv()].concat();
    assert_eq!(events(&received), [format!("{ITEMS} {PLAY}")]);
    assert!(items(&modern, STORAGE).contains("url='http://w/'"));
}
