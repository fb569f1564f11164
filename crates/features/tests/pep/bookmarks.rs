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

/// A list that no conversion knows, as an import stores it.
fn import_private(engine: &TestNode, list: &str) {
    let key = "jabber:iq:private storage storage:bookmarks".to_owned();
    let juliet = Jid::parse("juliet@example.com").unwrap();
    let limits = store::AccountKvLimits { entries: 9, bytes: 9_999 };
    let put = engine.stores.account_kv.put(juliet.as_ref(), vec![(key, list.into())], limits);
    assert!(matches!(engine.block_on(put), Ok(store::PutOutcome::Done)));
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
    import_private(&engine, LIST);
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

/// XEP-0411, section 4: what private XML has is copied before it is replaced.
#[test]
fn the_first_change_of_items_or_of_the_list_keeps_what_only_private_xml_has() {
    let list =
        format!("<storage xmlns='{STORAGE}'><conference jid='{ORCHARD}' name='The Orcard'/></storage>");
    let publish_list = |juliet: &NodeClient| {
        let options = form("publish-options", &[("persist_items", "true"), ("access_model", "whitelist")]);
        set(
            juliet,
            &format!(
                "<publish node='{STORAGE}'><item id='current'>{list}</item></publish><publish-options>{options}\
                 </publish-options>"
            ),
        );
    };
    for is_item in [true, false] {
        let engine = verona();
        import_private(&engine, LIST);
        let juliet = connect(&engine, "juliet", "balcony", &[]);
        match is_item {
            true => publish_bookmark(&engine, &juliet, ORCHARD, &orchard("The Orcard")),
            false => publish_list(&juliet),
        }
        engine.run_tasks();
        for place in [private(&juliet), items(&juliet, STORAGE)] {
            let has = |text: &str| place.contains(text);
            assert!(has(PLAY) && has("url='http://w/'") && has("The Orcard"), "{is_item}: {place}");
        }
        let own = items(&juliet, ITEMS);
        assert!(own.contains(PLAY) && own.contains("The Orcard"), "{is_item}: {own}");
        // All places agree: what is removed is removed everywhere.
        set_private(&engine, &juliet, "<storage xmlns='storage:bookmarks'/>");
        for place in [private(&juliet), items(&juliet, STORAGE), items(&juliet, ITEMS)] {
            assert!(!place.contains("@conference."), "{is_item}: {place}");
        }
    }
}

#[test]
fn a_node_that_keeps_one_bookmark_removes_none_from_the_lists() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    set_private(&engine, &juliet, LIST);
    let delete = pubsub(&juliet, "", "set", "#owner", &format!("<delete node='{ITEMS}'/>"));
    assert!(answer(delete).contains("type='result'"));
    create(&juliet, ITEMS, &[("access_model", "whitelist"), ("max_items", "1")]);
    for room in [ORCHARD, "crypt@conference.shakespeare.lit"] {
        set(&juliet, &format!("<publish node='{ITEMS}'><item id='{room}'>{}</item></publish>", orchard("x")));
        engine.run_tasks();
    }
    let list = private(&juliet);
    assert!(list.contains(PLAY) && list.contains(ORCHARD) && list.contains("crypt@"), "{list}");
}

fn waiting() -> (TestNode, NodeClient) {
    let engine = TestNode::with_waiting_handlers(ALL);
    people(&engine);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    (engine, juliet)
}

fn list_of(rooms: &[(&str, &str)]) -> String {
    let rooms: String =
        rooms.iter().map(|(jid, name)| format!("<conference jid='{jid}' name='{name}'/>")).collect();
    format!("<storage xmlns='{STORAGE}'>{rooms}</storage>")
}

fn send_private(client: &NodeClient, list: &str) {
    client.send(&format!("<iq type='set' id='p'><query xmlns='jabber:iq:private'>{list}</query></iq>"));
}

#[test]
fn a_list_that_changes_while_it_is_converted_leaves_no_bookmark_behind() {
    for call in ["account_kv.get", "pubsub.load", "pubsub.apply"] {
        let (engine, juliet) = waiting();
        engine.hold_store_call(Some(call));
        send_private(&juliet, &list_of(&[(PLAY, "a"), (ORCHARD, "b")]));
        settle(&engine);
        send_private(&juliet, &list_of(&[(PLAY, "a")]));
        settle(&engine);
        engine.hold_store_call(None);
        settle(&engine);
        juliet.recv();
        for place in [private(&juliet), items(&juliet, STORAGE), items(&juliet, ITEMS)] {
            assert!(place.contains(PLAY) && !place.contains(ORCHARD), "{call}: {place}");
        }
    }
}

#[test]
fn a_list_that_changes_while_items_are_converted_is_not_overwritten() {
    for call in ["account_kv.get", "pubsub.items", "pubsub.load"] {
        let (engine, juliet) = waiting();
        set_private(&engine, &juliet, &list_of(&[(PLAY, "a")]));
        settle(&engine);
        engine.hold_store_call(Some(call));
        juliet.send(&format!(
            "<iq type='set' id='b'><pubsub xmlns='{PUBSUB}'><publish node='{ITEMS}'><item id='{ORCHARD}'>{}</item>\
             </publish></pubsub></iq>",
            orchard("b")
        ));
        settle(&engine);
        send_private(&juliet, &list_of(&[(PLAY, "renamed")]));
        settle(&engine);
        engine.hold_store_call(None);
        settle(&engine);
        juliet.recv();
        for place in [private(&juliet), items(&juliet, STORAGE), items(&juliet, ITEMS)] {
            assert!(place.contains("name='renamed'") && place.contains(ORCHARD), "{call}: {place}");
        }
    }
}

#[test]
fn a_client_that_changes_both_lists_removes_a_bookmark() {
    let (engine, juliet) = waiting();
    set_private(&engine, &juliet, &list_of(&[(PLAY, "a"), (ORCHARD, "b")]));
    settle(&engine);
    let list = list_of(&[(PLAY, "a")]);
    engine.hold_store_call(Some("pubsub.load"));
    send_private(&juliet, &list);
    let publish = format!("<publish node='{STORAGE}'><item id='current'>{list}</item></publish>");
    juliet.send(&format!("<iq type='set' id='s'><pubsub xmlns='{PUBSUB}'>{publish}</pubsub></iq>"));
    settle(&engine);
    engine.hold_store_call(None);
    settle(&engine);
    settle(&engine);
    juliet.recv();
    for place in [private(&juliet), items(&juliet, STORAGE), items(&juliet, ITEMS)] {
        assert!(place.contains(PLAY) && !place.contains(ORCHARD), "{place}");
    }
}

#[test]
fn xep_0411_section_5_a_node_with_members_is_not_written() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    for node in [STORAGE, ITEMS] {
        create(&juliet, node, &[("access_model", "whitelist"), ("max_items", "max")]);
        let member = format!(
            "<affiliations node='{node}'><affiliation jid='romeo@example.com' affiliation='member'/></affiliations>"
        );
        assert!(answer(pubsub(&juliet, "", "set", "#owner", &member)).contains("type='result'"));
    }
    set_private(&engine, &juliet, LIST);
    for node in [STORAGE, ITEMS] {
        assert!(!items(&juliet, node).contains("<item "), "{node}");
    }
}

#[test]
fn many_bookmarks_are_converted_in_batches_that_the_node_admits() {
    let engine = verona_with("pep", "batch_items", 7);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let rooms: Vec<String> = (0..50).map(|n| format!("room{n}@conference.shakespeare.lit")).collect();
    let rooms: Vec<(&str, &str)> = rooms.iter().map(|room| (room.as_str(), "x")).collect();
    let count = || {
        let info = get(&juliet, "", &format!("<items node='{ITEMS}'/>"));
        info.matches("<item ").count()
    };
    set_private(&engine, &juliet, &list_of(&rooms));
    assert_eq!(count(), 50);
    juliet.recv();
    let modern = connect(&engine, "juliet", "modern", &[ITEMS]);
    set_private(&engine, &juliet, &list_of(&rooms[..1]));
    assert_eq!(count(), 1);
    assert_eq!(events(&modern.recv()).len(), 7, "49 items in retractions of 7");
}
