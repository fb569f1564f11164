//! What is acknowledged is in the store, and comes back; failures of the store.

use super::*;

/// Everything is read from the store again.
fn forget(denmark: &Denmark) {
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
}

#[test]
fn a_node_is_read_from_the_store_with_everything_it_has() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#title", "Musings"), ("pubsub#itemreply", "publisher")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe(&francisco);
    let full = set(&bernardo, &format!("<subscribe node='{NODE}' jid='{}'/>", bernardo.full()));
    affiliate(&hamlet, "bard", "publisher");
    publish(&hamlet, "1");
    publish(&hamlet, "2");
    denmark.engine.store_calls();
    publish(&hamlet, "3");
    let calls = denmark.engine.store_calls();
    assert!(!calls.contains(&"pubsub.load"), "a node that is used stays in memory: {calls:?}");
    forget(&denmark);
    francisco.recv();
    bernardo.recv();
    let shown = get(&hamlet, &format!("<items node='{NODE}'/>"));
    assert!(denmark.engine.store_calls().contains(&"pubsub.load"), "it was dropped");
    assert_eq!(shown.matches("publisher='hamlet@example.com'").count(), 3, "{shown}");
    publish(&hamlet, "4");
    assert_eq!((francisco.recv().len(), bernardo.recv().len()), (1, 1));
    let own = get(&bernardo, &format!("<subscriptions node='{NODE}'/>"));
    assert!(own.contains(&attribute(&full, "subid")), "{own}");
    assert!(publish(&denmark.connect("bard"), "5").contains("type='result'"));
    assert!(owner_get(&hamlet, &format!("<configure node='{NODE}'/>")).contains("<value>Musings</value>"));
    forget(&denmark);
    let bard = denmark.connect_as("bard", "globe");
    let received =
        request_all(&bard, "set", "", &format!("<subscribe node='{NODE}' jid='bard@example.com'/>"));
    assert!(
        received.concat().contains("<item id='5' publisher='bard@example.com'>"),
        "the last item: {received:?}"
    );
}

#[test]
fn a_failed_write_is_an_error_and_leaves_nothing_behind() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "1");
    denmark.engine.set_store_failing(true);
    assert!(publish(&hamlet, "2").contains("type='error'"));
    denmark.engine.set_store_failing(false);
    let kept = get(&hamlet, &format!("<items node='{NODE}'/>"));
    assert!(kept.contains("<item id='1'>") && !kept.contains("<item id='2'>"), "{kept}");
    assert!(publish(&hamlet, "3").contains("type='result'"));
}

#[test]
fn many_requests_share_a_write() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    subscribe(&hamlet);
    denmark.engine.store_calls();
    for number in 0..50 {
        hamlet.send(&format!(
            "<iq type='set' to='{SERVICE}' id='p{number}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='{NODE}'><item id='{number}'>{ENTRY}</item></publish></pubsub></iq>"
        ));
    }
    denmark.engine.run_tasks();
    let received = hamlet.recv();
    assert_eq!(received.iter().filter(|one| one.contains("type='result'")).count(), 50);
    let order: Vec<String> = received
        .iter()
        .filter(|one| one.starts_with("<message"))
        .map(|one| attribute(one.split("<item").nth(2).unwrap(), "id"))
        .collect();
    assert_eq!(order, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_node_without_requests_leaves_memory() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let count = || {
        let tasks = denmark.engine.store_calls();
        get(&hamlet, &format!("<items node='{NODE}'/>"));
        let loads = denmark.engine.store_calls().iter().filter(|call| **call == "pubsub.load").count();
        drop(tasks);
        loads
    };
    assert_eq!(count(), 0);
    forget(&denmark);
    assert_eq!(count(), 1);
    let small = Denmark::with(&[("cached_nodes", OptionValue::Int(0))]);
    let hamlet = small.node(&[]);
    small.engine.store_calls();
    publish(&hamlet, "1");
    assert!(small.engine.store_calls().contains(&"pubsub.load"), "nothing is kept");
}

#[test]
fn a_removed_account_leaves_neither_subscriptions_nor_affiliations() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    create(&hamlet, "second", &[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    set(&francisco, &format!("<subscribe node='second' jid='{}'/>", francisco.full()));
    affiliate(&hamlet, "francisco", "publisher");
    let jid = jid::Jid::parse("francisco@example.com").unwrap();
    let host = denmark.engine.node.host("example.com").unwrap();
    denmark.engine.node.account_removed(&host, jid.as_ref(), Vec::new());
    denmark.engine.run_tasks();
    let again = denmark.connect_as("francisco", "barracks");
    assert!(!get(&again, "<subscriptions/>").contains("<subscription "));
    assert!(!get(&again, "<affiliations/>").contains("<affiliation "));
    assert_error(&publish(&again, "1"), "auth", "forbidden", "");
    publish(&hamlet, "2");
    assert!(again.recv().is_empty());
}

#[test]
fn a_removed_account_of_another_domain_leaves_nothing_either() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    denmark.engine.create_user("fortinbras@example.net");
    let connect = |resource| {
        let client = denmark.engine.connect("fortinbras@example.net", resource);
        make_available(&denmark.engine, &client);
        client
    };
    let fortinbras = connect("norway");
    subscribe(&fortinbras);
    let jid = jid::Jid::parse("fortinbras@example.net").unwrap();
    let affiliate = format!(
        "<affiliations node='{NODE}'><affiliation jid='{jid}' affiliation='publisher'/></affiliations>"
    );
    assert!(owner_set(&hamlet, &affiliate).contains("type='result'"));
    assert!(publish(&fortinbras, "0").contains("type='result'"));
    let host = denmark.engine.node.host("example.net").unwrap();
    denmark.engine.node.account_removed(&host, jid.as_ref(), Vec::new());
    denmark.engine.run_tasks();
    let again = connect("poland");
    assert!(!get(&again, "<subscriptions/>").contains("<subscription "));
    assert_error(&publish(&again, "1"), "auth", "forbidden", "");
}

#[test]
fn a_node_that_could_not_be_closed_is_not_reported_as_closed() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    denmark.engine.set_store_failing(true);
    let close = || configure(&hamlet, &[("pubsub#access_model", "whitelist")]);
    assert_error(&close(), "wait", "resource-constraint", "");
    denmark.engine.set_store_failing(false);
    publish(&hamlet, "1");
    assert!(francisco.recv().concat().contains("<item id='1'>"), "it is still open");
    assert_result(&hamlet, &close(), "");
    francisco.recv();
    publish(&hamlet, "2");
    assert!(francisco.recv().is_empty());
}

/// Its weight and its creator are known when it is read, so that nodes that are used once count, too.
#[test]
fn a_large_node_that_is_used_once_counts_with_everything_it_has() {
    let denmark = Denmark::with(&[("cached_nodes", OptionValue::Int(2))]);
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    for batch in 0..3 {
        let items: String =
            (0..100).map(|item| format!("<item id='{batch}-{item}'>{ENTRY}</item>")).collect();
        set(&hamlet, &format!("<publish node='{NODE}'>{items}</publish>"));
    }
    forget(&denmark);
    for _ in 0..2 {
        denmark.engine.store_calls();
        get(&hamlet, &format!("<items node='{NODE}'/>"));
        assert!(denmark.engine.store_calls().contains(&"pubsub.load"), "it is larger than the room for all");
    }
}

#[test]
fn nodes_that_are_used_once_count_for_their_creator() {
    let denmark = Denmark::with(&[("cached_nodes", OptionValue::Int(6))]);
    let (hamlet, francisco) = (denmark.connect("hamlet"), denmark.connect("francisco"));
    create(&francisco, "own", &[]);
    for number in 0..20 {
        create(&hamlet, &format!("n{number}"), &[]);
    }
    forget(&denmark);
    let items = |node: &str| get(&hamlet, &format!("<items node='{node}'/>"));
    items("own");
    for number in 0..20 {
        items(&format!("n{number}"));
    }
    denmark.engine.store_calls();
    items("own");
    assert!(!denmark.engine.store_calls().contains(&"pubsub.load"), "nodes of another user have its room");
}

#[test]
fn what_a_removed_account_has_is_read_once() {
    let enabled = [&FEATURE, &crate::pep::FEATURE]
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) });
    let denmark = Denmark { engine: TestNode::start(&enabled, NodeLimits::default()) };
    for user in ["hamlet", "francisco"] {
        denmark.engine.create_user(user);
    }
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let at = |client: &NodeClient, account: &str, content: &str| {
        answer_of(client.request(&format!(
            "<iq type='set' to='{account}@example.com' id='r1'><pubsub xmlns='http://jabber.org/protocol/pubsub'>{content}</pubsub></iq>"
        )))
    };
    let open = form("node_config", &[("pubsub#access_model", "open")]);
    let create = format!("<create node='urn:own'/><configure>{open}</configure>");
    assert!(at(&francisco, "francisco", &create).contains("type='result'"));
    assert!(at(&hamlet, "hamlet", &create).contains("type='result'"));
    subscribe(&francisco);
    at(&francisco, "hamlet", "<subscribe node='urn:own' jid='francisco@example.com'/>");
    let jid = jid::Jid::parse("francisco@example.com").unwrap();
    let host = denmark.engine.node.host("example.com").unwrap();
    denmark.engine.store_calls();
    denmark.engine.node.account_removed(&host, jid.as_ref(), Vec::new());
    denmark.engine.run_tasks();
    let reads = denmark.engine.store_calls().iter().filter(|call| **call == "pubsub.nodes_of_entity").count();
    assert_eq!(reads, 2, "a page, and that there are no more");
    let again = denmark.connect_as("francisco", "barracks");
    assert!(!get(&again, "<subscriptions/>").contains("<subscription "));
    publish(&hamlet, "1");
    at(&hamlet, "hamlet", &format!("<publish node='urn:own'><item id='1'>{ENTRY}</item></publish>"));
    assert!(again.recv().is_empty());
    let items = at(&again, "francisco", "<retract node='urn:own'><item id='1'/></retract>");
    assert_error(&items, "cancel", "item-not-found", "");
}
