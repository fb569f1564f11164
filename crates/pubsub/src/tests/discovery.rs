//! Section 5: discovery of the service, its nodes and their items; subscriptions and affiliations of an entity.

use super::*;

fn disco(client: &NodeClient, kind: &str, node: &str) -> String {
    let node = if node.is_empty() { String::new() } else { format!(" node='{node}'") };
    let query = format!("<query xmlns='http://jabber.org/protocol/disco#{kind}'{node}/>");
    answer_of(client.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{query}</iq>")))
}

#[test]
fn section_5_1_the_service_names_its_features() {
    let denmark = Denmark::new();
    let francisco = denmark.connect("francisco");
    let info = disco(&francisco, "info", "");
    assert!(info.contains("<identity category='pubsub' type='service' name='Publish-Subscribe'/>"), "{info}");
    for feature in
        ["publish", "subscribe", "instant-nodes", "publish-options", "retrieve-items", "last-published"]
    {
        assert!(info.contains(&format!("http://jabber.org/protocol/pubsub#{feature}'")), "{feature}");
    }
}

#[test]
fn sections_5_2_to_5_5_nodes_and_items() {
    let denmark = Denmark::new();
    let hamlet = denmark
        .node(&[("pubsub#title", "Princely Musings (Atom)"), ("pubsub#type", "urn:example:e2ee:bundle")]);
    create(&hamlet, "secret", &[("pubsub#access_model", "whitelist")]);
    create(&hamlet, "plain", &[]);
    let francisco = denmark.connect("francisco");
    assert_result(
        &francisco,
        &disco(&francisco, "items", ""),
        &format!(
            "<query xmlns='http://jabber.org/protocol/disco#items'><item jid='{SERVICE}' node='plain' name='plain'/>\
             <item jid='{SERVICE}' node='{NODE}' name='Princely Musings (Atom)'/></query>"
        ),
    );
    publish(&hamlet, "1");
    publish(&hamlet, "2");
    subscribe(&francisco);
    assert_result(
        &francisco,
        &disco(&francisco, "items", NODE),
        &format!(
            "<query xmlns='http://jabber.org/protocol/disco#items' node='{NODE}'><item jid='{SERVICE}' name='1'/>\
             <item jid='{SERVICE}' name='2'/></query>"
        ),
    );
    let info = disco(&francisco, "info", NODE);
    assert!(
        info.contains("<identity category='pubsub' type='leaf' name='Princely Musings (Atom)'/>"),
        "{info}"
    );
    for (var, value) in [
        ("FORM_TYPE", "http://jabber.org/protocol/pubsub#meta-data"),
        ("pubsub#type", "urn:example:e2ee:bundle"),
        ("pubsub#creator", "hamlet@example.com"),
        ("pubsub#access_model", "open"),
        ("pubsub#publish_model", "publishers"),
        ("pubsub#max_items", "10"),
        ("pubsub#owner", "hamlet@example.com"),
        ("pubsub#num_subscribers", "1"),
    ] {
        let field =
            info.split(&format!("<field var='{var}'")).nth(1).unwrap_or_else(|| panic!("{var}: {info}"));
        assert!(
            field.split("</field>").next().unwrap().contains(&format!("<value>{value}</value>")),
            "{var}: {info}"
        );
    }
    for kind in ["info", "items"] {
        assert_error(&disco(&francisco, kind, "elsewhere"), "cancel", "item-not-found", "");
    }
    assert_error(&disco(&francisco, "items", "secret"), "cancel", "not-allowed", "closed-node");
}

#[test]
fn section_5_2_nodes_are_listed_in_pages() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    for number in 0..5 {
        create(&hamlet, &format!("n{number}"), &[]);
    }
    let page = |rest: &str| {
        let set = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>2</max>{rest}</set>");
        let query = format!("<query xmlns='http://jabber.org/protocol/disco#items'>{set}</query>");
        answer_of(hamlet.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{query}</iq>")))
    };
    let (first, second) = (page(""), page("<after>n1</after>"));
    assert!(first.contains("node='n0'") && first.contains("<last>n1</last><count>5</count>"), "{first}");
    assert!(
        second.contains("node='n2'") && second.contains("node='n3'") && !second.contains("node='n1'"),
        "{second}"
    );
    assert!(!page("<after>nowhere</after>").contains("<item "));
}

#[test]
fn sections_5_6_and_5_7_subscriptions_and_affiliations_over_all_nodes() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    create(&hamlet, "node2", &[("pubsub#access_model", "authorize")]);
    create(&hamlet, "node5", &[]);
    let francisco = denmark.connect("francisco");
    assert_result(
        &francisco,
        &get(&francisco, "<subscriptions/>"),
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscriptions/></pubsub>",
    );
    assert_result(
        &francisco,
        &get(&francisco, "<affiliations/>"),
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'><affiliations/></pubsub>",
    );
    subscribe(&francisco);
    for node in ["node2", "node5"] {
        set(&francisco, &format!("<subscribe node='{node}' jid='{}'/>", francisco.full()));
    }
    let all = get(&francisco, "<subscriptions/>");
    assert!(
        all.contains(&format!(
            "<subscription node='{NODE}' jid='francisco@example.com' subscription='subscribed'/>"
        )),
        "{all}"
    );
    assert!(
        all.contains(&format!(
            "<subscription node='node2' jid='{}' subscription='pending'/>",
            francisco.full()
        )),
        "{all}"
    );
    assert!(all.contains("node='node5'") && all.contains("subid='"), "{all}");
    let one = get(&francisco, &format!("<subscriptions node='{NODE}'/>"));
    assert!(one.contains(&format!("<subscriptions node='{NODE}'><subscription node='{NODE}'")), "{one}");
    assert_eq!(one.matches("<subscription ").count(), 1);
    affiliate(&hamlet, "francisco", "publisher");
    let answer = get(&francisco, "<affiliations/>");
    assert!(answer.contains(&format!("<affiliation node='{NODE}' affiliation='publisher'/>")), "{answer}");
    assert_eq!(get(&hamlet, "<affiliations/>").matches("affiliation='owner'").count(), 3);
    let answer = get(&francisco, &format!("<affiliations node='{NODE}'/>"));
    assert!(answer.contains("affiliation='publisher'"), "{answer}");
    let none = get(&francisco, "<affiliations node='node5'/>");
    assert!(none.contains("<affiliations/>"), "{none}");
    let page = "<subscriptions/><set xmlns='http://jabber.org/protocol/rsm'><max>1</max></set>";
    assert_eq!(get(&francisco, page).matches("<subscription ").count(), 1);
}
