//! Section 6.5: retrieval of items.

use super::*;

fn items(client: &NodeClient, rest: &str, content: &str) -> String {
    get(client, &format!("<items node='{NODE}'{rest}>{content}</items>"))
}

/// Ids of the items in an answer.
fn ids(answer: &str) -> Vec<String> {
    answer.split("<item ").skip(1).map(|item| attribute(&format!(" {item}"), "id")).collect()
}

fn page(client: &NodeClient, set: &str) -> String {
    get(client, &format!("<items node='{NODE}'/><set xmlns='http://jabber.org/protocol/rsm'>{set}</set>"))
}

#[test]
fn sections_6_5_2_to_6_5_8_all_some_the_newest_and_particular_items() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let empty = format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='{NODE}'/></pubsub>");
    assert_result(&francisco, &items(&francisco, "", ""), &empty);
    for id in ["1", "2", "3", "4"] {
        publish(&hamlet, id);
    }
    let all = items(&francisco, "", "");
    assert_eq!(ids(&all), ["1", "2", "3", "4"]);
    assert!(all.contains(&format!("<item id='1'>{ENTRY}</item>")), "{all}");
    assert_eq!(ids(&items(&francisco, " max_items='2'", "")), ["3", "4"]);
    assert_eq!(ids(&items(&francisco, " max_items='9'", "")).len(), 4);
    assert_eq!(ids(&items(&francisco, "", "<item id='3'/><item id='1'/><item id='x'/>")), ["1", "3"]);
    assert_result(&francisco, &items(&francisco, "", "<item id='x'/>"), &empty);
    publish(&hamlet, "1");
    assert_eq!(ids(&items(&francisco, "", "")), ["2", "3", "4", "1"], "the newest is the last one");
    assert_error(&items(&francisco, " max_items='many'", ""), "modify", "bad-request", "");
    let nowhere = get(&francisco, "<items node='elsewhere'/>");
    assert_error(&nowhere, "cancel", "item-not-found", "");
    let no_node = get(&francisco, "<items/>");
    assert_error(&no_node, "modify", "bad-request", "nodeid-required");
}

#[test]
fn section_6_5_4_pages() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    for number in 0..6 {
        publish(&hamlet, &format!("i{number}"));
    }
    let first = page(&hamlet, "<max>2</max>");
    assert_eq!(ids(&first), ["i0", "i1"]);
    assert!(first.contains("<first index='0'>i0</first><last>i1</last><count>6</count>"), "{first}");
    assert_eq!(ids(&page(&hamlet, "<max>2</max><after>i1</after>")), ["i2", "i3"]);
    assert_eq!(ids(&page(&hamlet, "<max>2</max><before/>")), ["i4", "i5"]);
    assert_eq!(ids(&page(&hamlet, "<max>2</max><before>i4</before>")), ["i2", "i3"]);
    assert_eq!(ids(&page(&hamlet, "<max>2</max><index>3</index>")), ["i3", "i4"]);
    let count = page(&hamlet, "<max>0</max>");
    assert!(ids(&count).is_empty() && count.contains("<count>6</count>"), "{count}");
    assert_error(&page(&hamlet, "<max>2</max><after>x</after>"), "cancel", "item-not-found", "");
}

#[test]
fn a_list_that_is_too_long_is_a_page() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    for batch in 0..3 {
        let given: String = (0..50).map(|n| format!("<item id='{batch}-{n}'>{ENTRY}</item>")).collect();
        let answer = set(&hamlet, &format!("<publish node='{NODE}'>{given}</publish>"));
        assert!(answer.contains("type='result'"), "{answer}");
    }
    let all = items(&hamlet, "", "");
    assert_eq!(ids(&all).len(), 100);
    assert!(all.contains("<count>150</count>"), "{all}");
    // Payloads that are too large together are cut, too.
    configure(&hamlet, &[("pubsub#max_items", "10")]);
    let large = format!("<a xmlns='u:a'>{}</a>", "x".repeat(60_000));
    for id in 0..5 {
        set(&hamlet, &format!("<publish node='{NODE}'><item id='large{id}'>{large}</item></publish>"));
    }
    let some = page(&hamlet, "<max>5</max><before/>");
    assert!(ids(&some).len() < 5 && some.contains("<set "), "{} items", ids(&some).len());
}

#[test]
fn section_6_5_5_the_last_item_of_a_transient_node() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#persist_items", "0")]);
    publish(&hamlet, "1");
    publish(&hamlet, "2");
    assert_eq!(ids(&items(&hamlet, "", "")), ["2"]);
    let retract = set(&hamlet, &format!("<retract node='{NODE}'><item id='2'/></retract>"));
    assert_error(&retract, "cancel", "feature-not-implemented", "unsupported");
    let purge = owner_set(&hamlet, &format!("<purge node='{NODE}'/>"));
    assert_error(&purge, "cancel", "feature-not-implemented", "unsupported");
    configure(&hamlet, &[("pubsub#deliver_payloads", "0")]);
    let answer = items(&hamlet, "", "");
    assert_error(&answer, "cancel", "feature-not-implemented", "unsupported");
    assert!(answer.contains("feature='persistent-items'"), "{answer}");
}

#[test]
fn sections_6_5_9_1_and_6_5_9_2_subscription_ids() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "1");
    let francisco = denmark.connect("francisco");
    let full = set(&francisco, &format!("<subscribe node='{NODE}' jid='{}'/>", francisco.full()));
    let subid = attribute(&full, "subid");
    assert_eq!(ids(&items(&francisco, &format!(" subid='{subid}'"), "")), ["1"]);
    assert_error(&items(&francisco, " subid='x'", ""), "modify", "not-acceptable", "invalid-subid");
}

#[test]
fn items_expire() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#item_expire", "60")]);
    publish(&hamlet, "old");
    denmark.engine.advance(30);
    publish(&hamlet, "young");
    denmark.engine.advance(40);
    assert_eq!(ids(&items(&hamlet, "", "")), ["young"]);
    denmark.engine.advance(40);
    assert!(ids(&items(&hamlet, "", "")).is_empty());
}

/// Ids in an answer, in their order.
fn ids_of(answer: &str) -> Vec<String> {
    answer.split("<item ").skip(1).map(|one| attribute(&format!(" {one}"), "id")).collect()
}

#[test]
fn xep_0413_items_are_ordered_by_creation_and_modification() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    // C and then A are overwritten.
    for id in ["A", "B", "C", "D", "C", "A"] {
        publish(&hamlet, id);
    }
    let order = |by: &str, rest: &str| {
        get(&hamlet, &format!("<items node='{NODE}'/><order xmlns='urn:xmpp:order-by:1' by='{by}'{rest}"))
    };
    assert_eq!(ids_of(&order("creation", "/>")), ["A", "B", "C", "D"]);
    assert_eq!(ids_of(&order("modification", "/>")), ["B", "D", "C", "A"]);
    assert_eq!(ids_of(&order("creation", " desc='true'/>")), ["D", "C", "B", "A"]);
    assert_eq!(ids_of(&order("modification", " desc='1'/>")), ["A", "C", "D", "B"]);
    let newest = format!(
        "<items node='{NODE}' max_items='3'/><order xmlns='urn:xmpp:order-by:1' by='creation' desc='true'/>"
    );
    assert_eq!(ids_of(&get(&hamlet, &newest)), ["D", "C", "B"]);
    let page = |by: &str, desc: &str, after: &str| {
        let set = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>2</max>{after}</set>");
        order(by, &format!("{desc}/>{set}"))
    };
    let first = page("modification", "", "");
    assert_eq!(ids_of(&first), ["B", "D"]);
    assert!(first.contains("<first index='0'>B</first><last>D</last><count>4</count>"), "{first}");
    let second = page("modification", "", "<after>D</after>");
    assert_eq!(ids_of(&second), ["C", "A"]);
    assert!(second.contains("<first index='2'>C</first><last>A</last><count>4</count>"), "{second}");
    let second = page("creation", " desc='true'", "<after>C</after>");
    assert_eq!(ids_of(&second), ["B", "A"]);
    assert!(second.contains("<first index='2'>B</first>"), "{second}");
    assert_error(&order("{urn:example}size", "/>"), "cancel", "feature-not-implemented", "");
    assert_error(&order("creation", " desc='perhaps'/>"), "modify", "bad-request", "");
    let info = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
    let info = answer_of(hamlet.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{info}</iq>")));
    for feature in ["urn:xmpp:order-by:1", "urn:xmpp:order-by:1@http://jabber.org/protocol/pubsub"] {
        assert!(info.contains(&format!("<feature var='{feature}'/>")), "{feature}: {info}");
    }
}

#[test]
fn xep_0413_the_creation_survives_the_store() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    for id in ["A", "B", "A"] {
        publish(&hamlet, id);
    }
    denmark.engine.advance(400);
    let content = format!("<items node='{NODE}'/><order xmlns='urn:xmpp:order-by:1' by='creation'/>");
    assert_eq!(ids_of(&get(&hamlet, &content)), ["A", "B"]);
}
