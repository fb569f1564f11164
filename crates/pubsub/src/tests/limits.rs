//! Bounds: nodes, subscriptions, items, payloads, lists and forms; forged senders.

use super::*;

#[test]
fn nodes_of_a_user_are_limited() {
    let denmark = Denmark::with(&[("nodes_per_user", OptionValue::Int(2))]);
    let hamlet = denmark.node(&[]);
    create(&hamlet, "second", &[]);
    assert_error(&create(&hamlet, "third", &[]), "wait", "resource-constraint", "");
    owner_set(&hamlet, "<delete node='second'/>");
    assert!(create(&hamlet, "third", &[]).contains("type='result'"));
    let francisco = denmark.connect("francisco");
    assert!(create(&francisco, "fourth", &[]).contains("type='result'"));
}

#[test]
fn nodes_are_created_by_those_who_may() {
    let denmark = Denmark::with(&[("creation", OptionValue::Text("admins".into()))]);
    let hamlet = denmark.connect("hamlet");
    assert_error(&create(&hamlet, NODE, &[]), "auth", "forbidden", "");
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    assert!(create(&hamlet, NODE, &[]).contains("type='result'"));
}

#[test]
fn section_6_1_3_9_subscriptions_of_a_user_are_limited() {
    let denmark = Denmark::with(&[
        ("subscriptions_per_user", OptionValue::Int(2)),
        ("subscriptions_per_user_and_node", OptionValue::Int(3)),
    ]);
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let of = |node: &str| set(&francisco, &format!("<subscribe node='{node}' jid='francisco@example.com'/>"));
    for node in ["a", "b"] {
        create(&hamlet, node, &[]);
        assert!(of(node).contains("subscription='subscribed'"));
    }
    assert_error(&of(NODE), "wait", "policy-violation", "too-many-subscriptions");
    // Of one address at one node.
    let options = form("subscribe_options", &[("pubsub#deliver", "1")]);
    let again = format!("<subscribe node='a' jid='francisco@example.com'/><options>{options}</options>");
    for _ in 0..2 {
        assert!(set(&francisco, &again).contains("subscription='subscribed'"));
    }
    assert_error(&set(&francisco, &again), "wait", "policy-violation", "too-many-subscriptions");
}

#[test]
fn subscriptions_with_options_are_limited() {
    let denmark = Denmark::with(&[("special_subscriptions", OptionValue::Int(2))]);
    denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    for resource in ["a", "b"] {
        let content = format!("<subscribe node='{NODE}' jid='francisco@example.com/{resource}'/>");
        assert!(set(&francisco, &content).contains("subscription='subscribed'"));
    }
    let third = set(&francisco, &format!("<subscribe node='{NODE}' jid='francisco@example.com/c'/>"));
    assert_error(&third, "wait", "resource-constraint", "");
    assert!(
        subscribe(&denmark.connect("bernardo")).contains("subscription='subscribed'"),
        "plain ones are not"
    );
}

#[test]
fn items_and_payloads_are_limited() {
    let denmark = Denmark::with(&[("items", OptionValue::Int(3)), ("payload_bytes", OptionValue::Int(100))]);
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    assert_error(&configure(&hamlet, &[("pubsub#max_items", "4")]), "modify", "not-acceptable", "");
    assert_error(&configure(&hamlet, &[("pubsub#max_payload_size", "101")]), "modify", "not-acceptable", "");
    for id in 0..9 {
        publish(&hamlet, &id.to_string());
    }
    assert_eq!(get(&hamlet, &format!("<items node='{NODE}'/>")).matches("<item ").count(), 3);
    let large =
        format!("<publish node='{NODE}'><item><a xmlns='u:a'>{}</a></item></publish>", "x".repeat(100));
    assert_error(&set(&hamlet, &large), "modify", "not-acceptable", "payload-too-big");
}

#[test]
fn requests_are_limited() {
    let denmark = Denmark::with(&[
        ("batch_items", OptionValue::Int(2)),
        ("form_fields", OptionValue::Int(5)),
        ("affiliations", OptionValue::Int(2)),
    ]);
    let hamlet = denmark.node(&[]);
    let three = "<item id='1'/><item id='2'/><item id='3'/>";
    for content in [
        format!("<retract node='{NODE}'>{three}</retract>"),
        format!("<publish node='{NODE}'>{}</publish>", format!("<item>{ENTRY}</item>").repeat(3)),
    ] {
        assert_error(&set(&hamlet, &content), "modify", "not-acceptable", "");
    }
    let items = get(&hamlet, &format!("<items node='{NODE}'>{three}</items>"));
    assert_error(&items, "modify", "not-acceptable", "");
    let fields: Vec<(String, String)> = (0..1000).map(|n| (format!("x-{n}"), String::new())).collect();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(var, value)| (&**var, &**value)).collect();
    assert_error(&configure(&hamlet, &fields), "modify", "not-acceptable", "");
    subscribe(&hamlet);
    let options = form("subscribe_options", &fields);
    let own = format!("<options node='{NODE}' jid='hamlet@example.com'>{options}</options>");
    assert_error(&set(&hamlet, &own), "modify", "bad-request", "invalid-options");
    assert_result(&hamlet, &affiliate(&hamlet, "francisco", "member"), "");
    assert_error(&affiliate(&hamlet, "bernardo", "member"), "modify", "not-acceptable", "");
    let long = format!("<create node='{}'/>", "x".repeat(1024));
    assert_error(&set(&hamlet, &long), "modify", "not-acceptable", "");
    let control = set(&hamlet, "<create node='a&#x9;b'/>");
    assert_error(&control, "modify", "not-acceptable", "");
    let long = format!("<publish node='{NODE}'><item id='{}'>{ENTRY}</item></publish>", "x".repeat(1024));
    assert_error(&set(&hamlet, &long), "modify", "not-acceptable", "");
}

#[test]
fn malformed_requests_are_refused() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    for content in ["", "<nonsense/>", "<subscribe xmlns='u:x'/>"] {
        assert_error(&set(&hamlet, content), "modify", "bad-request", "");
        assert_error(&owner_set(&hamlet, content), "modify", "bad-request", "");
    }
    // Requests of the wrong type.
    assert_error(&get(&hamlet, "<create node='x'/>"), "modify", "bad-request", "");
    assert_error(&set(&hamlet, &format!("<items node='{NODE}'/>")), "modify", "bad-request", "");
    let notify = set(&hamlet, &format!("<retract node='{NODE}' notify='perhaps'><item id='1'/></retract>"));
    assert_error(&notify, "modify", "bad-request", "");
}

#[test]
fn a_refused_flood_disturbs_no_neighbour() {
    let denmark = Denmark::with(&[("stanzas_per_second_per_sender", OptionValue::Int(1))]);
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let refused = (0..30).filter(|_| publish(&hamlet, "1").contains("resource-constraint")).count();
    assert!(refused > 10, "{refused}");
    assert!(subscribe(&francisco).contains("subscription='subscribed'"));
}

#[test]
fn users_that_do_not_exist_are_not_subscribed() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#notification_type", "normal")]);
    for jid in ["nobody@example.com", "nobody@example.com/elsinore"] {
        let content = format!("<subscription jid='{jid}' subscription='subscribed'/>");
        let answer = owner_set(&hamlet, &format!("<subscriptions node='{NODE}'>{content}</subscriptions>"));
        assert_result(&hamlet, &answer, "");
    }
    publish(&hamlet, "1");
    denmark.engine.run_tasks();
    let listed = owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>"));
    assert!(listed.contains("type='result'") && !listed.contains("nobody"), "{listed}");
}

#[test]
fn a_node_with_more_subscribers_than_memory_holds_reads_them_for_each_event() {
    let denmark = Denmark::with(&[("cached_subscribers", OptionValue::Int(2))]);
    let hamlet = denmark.node(&[]);
    let users = ["francisco", "bernardo", "horatio", "bard"].map(|user| denmark.connect(user));
    for user in &users {
        assert!(subscribe(user).contains("subscription='subscribed'"));
        assert!(subscribe(user).contains("subscription='subscribed'"), "again");
    }
    let full = format!("<subscribe node='{NODE}' jid='{}'/>", users[0].full());
    set(&users[0], &full);
    for id in ["1", "2"] {
        publish(&hamlet, id);
        assert_eq!(users.each_ref().map(|user| user.recv().len()), [2, 1, 1, 1], "each once");
    }
    let own = get(&users[1], &format!("<subscriptions node='{NODE}'/>"));
    assert_eq!(own.matches("<subscription ").count(), 1);
    set(&users[1], &format!("<unsubscribe node='{NODE}' jid='bernardo@example.com'/>"));
    publish(&hamlet, "3");
    assert_eq!(users.each_ref().map(|user| user.recv().len()), [2, 0, 1, 1]);
    configure(&hamlet, &[("pubsub#publish_model", "subscribers")]);
    assert!(publish(&users[2], "4").contains("type='result'"));
    assert_error(&publish(&users[1], "5"), "auth", "forbidden", "");
    users.iter().for_each(|user| drop(user.recv()));
    owner_set(&hamlet, &format!("<delete node='{NODE}'/>"));
    assert_eq!(users.each_ref().map(|user| user.recv().len()), [2, 0, 1, 1], "all hear of the deletion");
}

#[test]
fn thousands_of_subscribers_receive_an_event_and_the_end_of_their_subscription() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let add = |from: usize| {
        let all: String = (from..from + 1_000)
            .map(|number| format!("<subscription jid='u{number:05}@example.com' subscription='subscribed'/>"))
            .collect();
        owner_set(&hamlet, &format!("<subscriptions node='{NODE}'>{all}</subscriptions>"))
    };
    for number in 0..3_000 {
        denmark.engine.create_user(&format!("u{number:05}"));
    }
    // Others are limited.
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    for batch in 0..3 {
        assert_result(&hamlet, &add(batch * 1_000), "");
    }
    let users = ["u00000", "u01500", "u02999"].map(|user| denmark.connect(user));
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
    publish(&hamlet, "1");
    assert_eq!(users.each_ref().map(|user| user.recv().len()), [1, 1, 1], "read from the store in pages");
    publish(&hamlet, "2");
    assert_eq!(users.each_ref().map(|user| user.recv().len()), [1, 1, 1]);
    let page = "<set xmlns='http://jabber.org/protocol/rsm'><max>5</max></set>";
    let listed = owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>{page}"));
    assert!(
        listed.contains("<count>3000</count>") && listed.matches("<subscription ").count() == 5,
        "{listed}"
    );
    configure(&hamlet, &[("pubsub#access_model", "whitelist")]);
    assert_eq!(users.each_ref().map(|user| user.recv().len()), [1, 1, 1], "who may not stay is notified");
    let listed = owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>{page}"));
    assert!(listed.contains("<count>0</count>"), "{listed}");
}
