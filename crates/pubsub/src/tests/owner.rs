//! Section 8: creation, configuration, deletion, purge, subscriptions and affiliations of others.

use super::*;

#[test]
fn section_8_1_nodes_are_created() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    assert_result(
        &hamlet,
        &create(&hamlet, NODE, &[]),
        &format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'><create node='{NODE}'/></pubsub>"),
    );
    assert_error(&create(&hamlet, NODE, &[]), "cancel", "conflict", "");
    let instant = set(&hamlet, "<create/>");
    let name = attribute(instant.split("<create").nth(1).unwrap(), "node");
    assert!(owner_get(&hamlet, &format!("<configure node='{name}'/>")).contains("pubsub#title"));
    let instant = set(
        &hamlet,
        &format!("<create/><configure>{}</configure>", form("node_config", &[("pubsub#title", "x")])),
    );
    assert!(instant.contains("type='result'"), "{instant}");
    let refused = create(&hamlet, "other", &[("pubsub#access_model", "secret")]);
    assert_error(&refused, "modify", "not-acceptable", "unsupported-access-model");
    assert_error(&get(&hamlet, "<items node='other'/>"), "cancel", "item-not-found", "");
    let with_node = form("node_config", &[]);
    let wrong =
        set(&hamlet, &format!("<create node='other'/><configure node='other'>{with_node}</configure>"));
    assert_error(&wrong, "modify", "bad-request", "");
    let wrong = set(&hamlet, &format!("<configure>{with_node}</configure><create node='other'/>"));
    assert_error(&wrong, "modify", "bad-request", "");
    let guest = denmark.engine.connect_anonymous("guest", "web");
    assert_error(&create(&guest, "guests", &[]), "auth", "forbidden", "");
}

#[test]
fn section_8_2_the_configuration_is_shown_and_changed() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let shown = owner_get(&hamlet, &format!("<configure node='{NODE}'/>"));
    assert!(shown.contains("<x xmlns='jabber:x:data' type='form'>"), "{shown}");
    assert_result(&hamlet, &configure(&hamlet, &[("pubsub#title", "Musings")]), "");
    assert!(francisco.recv().is_empty());
    assert!(owner_get(&hamlet, &format!("<configure node='{NODE}'/>")).contains("<value>Musings</value>"));
    assert_result(
        &hamlet,
        &owner_set(
            &hamlet,
            &format!("<configure node='{NODE}'><x xmlns='jabber:x:data' type='cancel'/></configure>"),
        ),
        "",
    );
    configure(&hamlet, &[("pubsub#notify_config", "1")]);
    let received = events(&francisco).concat();
    assert!(
        received.contains(&format!("<configuration node='{NODE}'><x xmlns='jabber:x:data' type='result'>")),
        "{received}"
    );
    configure(&hamlet, &[("pubsub#deliver_payloads", "0")]);
    testkit::assert_same(
        &events(&francisco),
        &[event(&francisco, &format!("<configuration node='{NODE}'/>"))],
    );
    let other = format!("<configure node='{NODE}'/>");
    assert_error(&owner_get(&francisco, &other), "auth", "forbidden", "");
    assert_error(&owner_get(&hamlet, "<configure/>"), "modify", "bad-request", "nodeid-required");
    assert_error(&owner_get(&hamlet, "<configure node='elsewhere'/>"), "cancel", "item-not-found", "");
    let wrong = configure(&hamlet, &[("pubsub#max_items", "many"), ("pubsub#title", "x")]);
    assert_error(&wrong, "modify", "not-acceptable", "");
    assert!(owner_get(&hamlet, &format!("<configure node='{NODE}'/>")).contains("<value>Musings</value>"));
}

#[test]
fn fewer_items_are_kept_after_the_limit_is_lowered() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    ["1", "2", "3"].iter().for_each(|id| drop(publish(&hamlet, id)));
    configure(&hamlet, &[("pubsub#max_items", "1")]);
    let kept = get(&hamlet, &format!("<items node='{NODE}'/>"));
    assert!(kept.contains("<item id='3'>") && !kept.contains("<item id='2'>"), "{kept}");
    configure(&hamlet, &[("pubsub#persist_items", "0")]);
    assert!(!get(&hamlet, &format!("<items node='{NODE}'/>")).contains("<item "));
}

#[test]
fn section_8_3_the_default_configuration() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    for kind in ["", " type='leaf'"] {
        let shown = owner_get(&hamlet, &format!("<default{kind}/>"));
        assert!(shown.contains("<default><x xmlns='jabber:x:data' type='form'>"), "{shown}");
        assert!(shown.contains("pubsub#send_last_published_item"), "{shown}");
    }
    let unknown = owner_get(&hamlet, "<default type='branch'/>");
    assert_error(&unknown, "cancel", "feature-not-implemented", "unsupported");
}

#[test]
fn section_8_4_a_node_is_deleted() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "authorize")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    affiliate(&hamlet, "francisco", "member");
    subscribe(&francisco);
    subscribe(&bernardo);
    hamlet.recv();
    let delete = format!("<delete node='{NODE}'/>");
    assert_error(&owner_set(&francisco, &delete), "auth", "forbidden", "");
    assert_result(&hamlet, &owner_set(&hamlet, &delete), "");
    for client in [&francisco, &bernardo] {
        testkit::assert_same(&events(client), &[event(client, &delete)]);
    }
    assert_error(&owner_set(&hamlet, &delete), "cancel", "item-not-found", "");
    assert!(!get(&francisco, "<subscriptions/>").contains("<subscription "));
    assert!(create(&francisco, NODE, &[]).contains("type='result'"), "the name is free");
}

#[test]
fn sections_8_4_1_and_6_1_3_11_a_deleted_node_can_have_moved() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    francisco.recv();
    let redirect = "<redirect uri='xmpp:hamlet@example.com?;node=blog'/>";
    owner_set(&hamlet, &format!("<delete node='{NODE}'>{redirect}</delete>"));
    testkit::assert_same(
        &events(&francisco),
        &[event(&francisco, &format!("<delete node='{NODE}'>{redirect}</delete>"))],
    );
    let moved = subscribe(&francisco);
    assert_error(&moved, "modify", "gone", "");
    assert!(moved.contains(">xmpp:hamlet@example.com?;node=blog</gone>"), "{moved}");
    assert_error(&get(&francisco, &format!("<items node='{NODE}'/>")), "modify", "gone", "");
    assert_error(&create(&francisco, NODE, &[]), "cancel", "conflict", "");
    assert!(create(&hamlet, NODE, &[]).contains("type='result'"), "its owner may take the name back");
    assert!(!get(&hamlet, &format!("<items node='{NODE}'/>")).contains("<item "));
}

#[test]
fn section_8_5_a_node_is_purged() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    publish(&hamlet, "2");
    francisco.recv();
    let purge = format!("<purge node='{NODE}'/>");
    assert_error(&owner_set(&francisco, &purge), "auth", "forbidden", "");
    assert_result(&hamlet, &owner_set(&hamlet, &purge), "");
    testkit::assert_same(&events(&francisco), &[event(&francisco, &purge)]);
    assert!(!get(&hamlet, &format!("<items node='{NODE}'/>")).contains("<item "));
    assert_error(&owner_set(&hamlet, "<purge node='elsewhere'/>"), "cancel", "item-not-found", "");
}

#[test]
fn section_8_8_an_owner_lists_and_changes_subscriptions() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe(&francisco);
    set(&bernardo, &format!("<subscribe node='{NODE}' jid='{}'/>", bernardo.full()));
    let list = format!("<subscriptions node='{NODE}'/>");
    assert_error(&owner_get(&francisco, &list), "auth", "forbidden", "");
    assert_error(&owner_get(&hamlet, "<subscriptions node='elsewhere'/>"), "cancel", "item-not-found", "");
    let listed = owner_get(&hamlet, &list);
    assert!(
        listed.contains("<subscription jid='francisco@example.com' subscription='subscribed'/>"),
        "{listed}"
    );
    assert!(listed.contains(&format!("jid='{}'", bernardo.full())) && listed.contains("subid='"), "{listed}");
    let change = |content: &str| {
        owner_set(&hamlet, &format!("<subscriptions node='{NODE}'>{content}</subscriptions>"))
    };
    let answer = change(
        "<subscription jid='francisco@example.com' subscription='none'/>\
         <subscription jid='bard@example.com' subscription='subscribed'/><subscription jid='horatio@example.com'/>",
    );
    assert_result(&hamlet, &answer, "");
    assert!(francisco.recv().concat().contains("jid='francisco@example.com' subscription='none'"));
    let bard = denmark.connect("bard");
    publish(&hamlet, "1");
    assert_eq!((bard.recv().len(), francisco.recv().len()), (1, 0));
    // What cannot be changed is in the error, as it is.
    let answer = change(&format!(
        "<subscription jid='bard@example.com' subscription='none'/><subscription jid='{}' subscription='unconfigured'/>",
        bernardo.full()
    ));
    assert_error(&answer, "modify", "not-acceptable", "");
    assert!(
        answer.contains(&format!(
            "<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'><subscriptions node='{NODE}'>"
        )),
        "{answer}"
    );
    assert!(
        answer.contains("subscription='subscribed'/></subscriptions>") && !answer.contains("bard"),
        "{answer}"
    );
    assert!(!owner_get(&hamlet, &list).contains("bard"), "the other change was made");
}

#[test]
fn section_8_9_an_owner_lists_and_changes_affiliations() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let list = format!("<affiliations node='{NODE}'/>");
    assert_error(&owner_get(&francisco, &list), "auth", "forbidden", "");
    let listed = owner_get(&hamlet, &list);
    assert!(listed.contains("<affiliation jid='hamlet@example.com' affiliation='owner'/>"), "{listed}");
    let change =
        |content: &str| owner_set(&hamlet, &format!("<affiliations node='{NODE}'>{content}</affiliations>"));
    let of = |user: &str, affiliation: &str| {
        format!("<affiliation jid='{user}@example.com' affiliation='{affiliation}'/>")
    };
    assert_result(&hamlet, &change(&of("bard", "publisher")), "");
    // The last owner stays; the rest is changed (section 8.9.2.4).
    let answer = change(&[of("hamlet", "none"), of("bard", "none"), of("francisco", "publisher")].concat());
    assert_error(&answer, "modify", "not-acceptable", "");
    let kept = format!("<affiliations node='{NODE}'>{}</affiliations></pubsub>", of("hamlet", "owner"));
    assert!(answer.contains(&kept), "{answer}");
    let listed = owner_get(&hamlet, &list);
    assert!(!listed.contains("bard") && listed.contains(&of("francisco", "publisher")), "{listed}");
    // A transition that the table of section 4.1 does not have.
    assert_error(&change(&of("francisco", "member")), "modify", "not-acceptable", "");
    assert_error(
        &change(&[of("bard", "member"), of("bard", "outcast")].concat()),
        "modify",
        "bad-request",
        "",
    );
    assert_error(&change(&of("bard", "king")), "modify", "bad-request", "");
    assert_result(&hamlet, &change(&[of("francisco", "owner"), of("bard", "member")].concat()), "");
    assert_result(&hamlet, &change(&of("hamlet", "none")), "");
    assert_error(&owner_get(&hamlet, &list), "auth", "forbidden", "");
}

#[test]
fn section_8_7_4_affiliations_decide_about_pending_subscriptions() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "authorize")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe(&francisco);
    subscribe(&bernardo);
    affiliate(&hamlet, "francisco", "publisher");
    affiliate(&hamlet, "bernardo", "outcast");
    assert!(francisco.recv().concat().contains("subscription='subscribed'"));
    assert!(bernardo.recv().concat().contains("subscription='none'"));
    publish(&hamlet, "1");
    assert_eq!((francisco.recv().len(), bernardo.recv().len()), (1, 0));
}

#[test]
fn notify_sub_tells_the_owners() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#notify_sub", "1")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    assert!(hamlet.recv().concat().contains("jid='francisco@example.com' subscription='subscribed'"));
    set(&francisco, &format!("<unsubscribe node='{NODE}' jid='francisco@example.com'/>"));
    assert!(hamlet.recv().concat().contains("jid='francisco@example.com' subscription='none'"));
}
