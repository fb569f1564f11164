//! Section 7: publishing, preconditions, retracting; section 12: batches, publishers, types of messages.

use super::*;

fn publish_with(client: &NodeClient, fields: &[(&str, &str)]) -> String {
    let options = form("publish-options", fields);
    set(
        client,
        &format!(
            "<publish node='{NODE}'><item id='1'>{ENTRY}</item></publish><publish-options>{options}</publish-options>"
        ),
    )
}

#[test]
fn section_7_1_1_an_item_without_an_id_is_given_one() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let answer = set(&hamlet, &format!("<publish node='{NODE}'><item>{ENTRY}</item></publish>"));
    let id = attribute(answer.split("<publish").nth(1).unwrap(), "id");
    assert!(francisco.recv().concat().contains(&format!("<item id='{id}'>{ENTRY}</item>")));
}

#[test]
fn section_7_1_2_2_events_without_payload() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#deliver_payloads", "0"), ("pubsub#notification_type", "normal")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    let want = event(&francisco, &format!("<items node='{NODE}'><item id='1'/></items>"));
    testkit::assert_same(&events(&francisco), &[want.replace(" type='headline'", "")]);
    let kept = get(&francisco, &format!("<items node='{NODE}'><item id='1'/></items>"));
    assert!(kept.contains(ENTRY), "the payload is retrieved: {kept}");
}

#[test]
fn section_7_1_2_3_the_publisher_is_the_sender() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#itemreply", "publisher")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let forged =
        format!("<publish node='{NODE}'><item id='1' publisher='bard@example.com'>{ENTRY}</item></publish>");
    set(&hamlet, &forged);
    let received = francisco.recv().concat();
    assert!(received.contains("<item id='1' publisher='hamlet@example.com'>"), "{received}");
    let kept = get(&francisco, &format!("<items node='{NODE}'/>"));
    assert!(kept.contains("publisher='hamlet@example.com'") && !kept.contains("bard"), "{kept}");
}

#[test]
fn section_7_1_2_5_a_full_node() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "2")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let kept = || {
        let answer = get(&francisco, &format!("<items node='{NODE}'/>"));
        answer
            .split("<item ")
            .skip(1)
            .map(|item| attribute(&format!(" {item}"), "id"))
            .collect::<Vec<_>>()
            .join("")
    };
    for id in ["a", "b", "c"] {
        publish(&hamlet, id);
    }
    assert!(!francisco.recv().concat().contains("<retract"), "not asked for");
    assert_eq!(kept(), "bc");
    configure(&hamlet, &[("pubsub#notify_retract", "1")]);
    publish(&hamlet, "d");
    let retracted = event(&francisco, &format!("<items node='{NODE}'><retract id='b'/></items>"));
    testkit::assert_same(&events(&francisco)[1..], &[retracted]);
    configure(&hamlet, &[("pubsub#publish_node_full", "discard-oldest")]);
    publish(&hamlet, "e");
    assert_eq!((francisco.recv().len(), kept().as_str()), (1, "de"));
    configure(&hamlet, &[("pubsub#publish_node_full", "reject")]);
    assert_error(&publish(&hamlet, "f"), "cancel", "conflict", "node-full");
    assert!(publish(&hamlet, "d").contains("type='result'"), "an item that is replaced needs no room");
    assert_eq!(kept(), "ed");
}

#[test]
fn section_7_1_3_the_errors_of_publishing() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_payload_size", "100")]);
    let of = |content: &str| set(&hamlet, &format!("<publish node='{NODE}'>{content}</publish>"));
    let nowhere = set(&hamlet, &format!("<publish node='elsewhere'><item>{ENTRY}</item></publish>"));
    assert_error(&nowhere, "cancel", "item-not-found", "");
    let large = format!("<item><a xmlns='u:a'>{}</a></item>", "x".repeat(100));
    assert_error(&of(&large), "modify", "not-acceptable", "payload-too-big");
    assert_error(
        &of("<item><a xmlns='u:a'/><b xmlns='u:b'/></item>"),
        "modify",
        "bad-request",
        "invalid-payload",
    );
    assert_error(&of(""), "modify", "bad-request", "item-required");
    assert_error(&of("<item id='1'/>"), "modify", "bad-request", "payload-required");
    let no_node = set(&hamlet, &format!("<publish><item>{ENTRY}</item></publish>"));
    assert_error(&no_node, "modify", "bad-request", "nodeid-required");
    configure(&hamlet, &[("pubsub#deliver_payloads", "0")]);
    assert!(of("<item id='1'/>").contains("type='result'"), "a notification needs no payload");
    configure(&hamlet, &[("pubsub#persist_items", "0")]);
    assert_error(&of("<item id='1'/>"), "modify", "bad-request", "item-forbidden");
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    assert!(of("").contains("type='result'"));
    testkit::assert_same(&events(&francisco), &[event(&francisco, &format!("<items node='{NODE}'/>"))]);
}

#[test]
fn section_7_1_5_preconditions() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    for met in [
        vec![],
        vec![("pubsub#access_model", "open")],
        vec![
            ("pubsub#persist_items", "true"),
            ("pubsub#max_items", "10"),
            ("pubsub#send_last_published_item", "on_sub_and_presence"),
        ],
    ] {
        assert!(publish_with(&hamlet, &met).contains("type='result'"), "{met:?}");
    }
    for not_met in [
        [("pubsub#access_model", "presence")],
        [("pubsub#max_items", "max")],
        [("pubsub#unknown", "1")],
        [("pubsub#access_model", "nonsense")],
    ] {
        assert_error(&publish_with(&hamlet, &not_met), "cancel", "conflict", "precondition-not-met");
    }
}

#[test]
fn section_7_1_4_a_publication_can_create_the_node() {
    let denmark = Denmark::with(&[("auto_create", OptionValue::Bool(true))]);
    let hamlet = denmark.connect("hamlet");
    let query = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
    let info = hamlet.request(&format!("<iq type='get' to='{SERVICE}' id='r1'>{query}</iq>")).concat();
    assert!(info.contains("pubsub#auto-create'") && info.contains("pubsub#access-open'"), "{info}");
    assert_error(
        &publish_with(&hamlet, &[("pubsub#unknown", "1")]),
        "cancel",
        "conflict",
        "precondition-not-met",
    );
    let info = get(&hamlet, &format!("<items node='{NODE}'/>"));
    assert_error(&info, "cancel", "item-not-found", "");
    let created = publish_with(&hamlet, &[("pubsub#access_model", "whitelist"), ("pubsub#max_items", "max")]);
    assert!(created.contains("<item id='1'/>"), "{created}");
    let francisco = denmark.connect("francisco");
    assert_error(&subscribe(&francisco), "cancel", "not-allowed", "closed-node");
    assert!(owner_get(&hamlet, &format!("<configure node='{NODE}'/>")).contains("<value>max</value>"));
}

#[test]
fn section_7_2_items_are_retracted_with_and_without_notification() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    for id in ["1", "2", "3"] {
        publish(&hamlet, id);
    }
    francisco.recv();
    let of = |attribute: &str, content: &str| {
        set(&hamlet, &format!("<retract node='{NODE}'{attribute}>{content}</retract>"))
    };
    assert_result(&hamlet, &of("", "<item id='1'/>"), "");
    assert!(francisco.recv().is_empty());
    assert_result(&hamlet, &of(" notify='true'", "<item id='2'/>"), "");
    let want = event(&francisco, &format!("<items node='{NODE}'><retract id='2'/></items>"));
    testkit::assert_same(&events(&francisco), &[want]);
    configure(&hamlet, &[("pubsub#notify_retract", "1")]);
    of(" notify='0'", "<item id='3'/>");
    assert!(francisco.recv().is_empty());
    assert_error(&of("", "<item id='3'/>"), "cancel", "item-not-found", "");
    assert_error(&of("", ""), "modify", "bad-request", "item-required");
    assert_error(&of("", "<item/>"), "modify", "bad-request", "item-required");
    let no_node = set(&hamlet, "<retract><item id='1'/></retract>");
    assert_error(&no_node, "modify", "bad-request", "nodeid-required");
    let nowhere = set(&hamlet, "<retract node='elsewhere'><item id='1'/></retract>");
    assert_error(&nowhere, "cancel", "item-not-found", "");
    let other = set(&francisco, &format!("<retract node='{NODE}'><item id='1'/></retract>"));
    assert_error(&other, "auth", "forbidden", "");
}

#[test]
fn section_12_9_a_batch_is_published_or_retracted_as_a_whole() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "3")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let batch = |ids: &[&str]| {
        let items: String = ids.iter().map(|id| format!("<item id='{id}'>{ENTRY}</item>")).collect();
        set(&hamlet, &format!("<publish node='{NODE}'>{items}</publish>"))
    };
    assert!(batch(&["1", "2"]).contains("<item id='1'/><item id='2'/>"));
    let want = format!("<items node='{NODE}'><item id='1'>{ENTRY}</item><item id='2'>{ENTRY}</item></items>");
    testkit::assert_same(&events(&francisco), &[event(&francisco, &want)]);
    assert_error(&batch(&["a", "b", "c", "d"]), "cancel", "not-allowed", "max-items-exceeded");
    assert_error(&batch(&["a", "a"]), "modify", "bad-request", "");
    let missing = set(&hamlet, &format!("<retract node='{NODE}'><item id='1'/><item id='x'/></retract>"));
    assert_error(&missing, "cancel", "item-not-found", "");
    assert!(get(&hamlet, &format!("<items node='{NODE}'/>")).contains("<item id='1'>"));
    let both = set(&hamlet, &format!("<retract node='{NODE}'><item id='1'/><item id='2'/></retract>"));
    assert_result(&hamlet, &both, "");
}

#[test]
fn large_batches_are_several_messages() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let payload = format!("<a xmlns='u:a'>{}</a>", "x".repeat(50_000));
    let items: String = (0..4).map(|id| format!("<item id='{id}'>{payload}</item>")).collect();
    set(&hamlet, &format!("<publish node='{NODE}'>{items}</publish>"));
    assert_eq!(francisco.recv().len(), 2);
}

#[test]
fn publishers_hear_nothing_if_the_node_says_so() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("throng#publishers_hear_nothing", "1"), ("pubsub#publish_model", "open")]);
    let francisco = denmark.connect("francisco");
    subscribe(&hamlet);
    subscribe(&francisco);
    publish(&hamlet, "1");
    assert_eq!((hamlet.recv().len(), francisco.recv().len()), (0, 1));
    publish(&francisco, "2");
    assert_eq!((hamlet.recv().len(), francisco.recv().len()), (1, 0));
}

#[test]
fn presence_based_delivery_is_for_available_users() {
    let denmark = Denmark::new();
    let hamlet =
        denmark.node(&[("pubsub#presence_based_delivery", "1"), ("pubsub#notification_type", "normal")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.engine.connect("bernardo", "tower"));
    subscribe(&francisco);
    subscribe(&bernardo);
    let full = set(&bernardo, &format!("<subscribe node='{NODE}' jid='{}'/>", bernardo.full()));
    assert!(full.contains("subscription='subscribed'"), "{full}");
    publish(&hamlet, "1");
    assert_eq!((francisco.recv().len(), bernardo.recv().len()), (1, 0));
}

#[test]
fn purge_offline_removes_the_items_of_who_leaves() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#purge_offline", "1"), ("pubsub#publish_model", "subscribers")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    publish(&francisco, "2");
    francisco.send(&format!("<presence to='{SERVICE}' type='unavailable'/>"));
    denmark.engine.run_tasks();
    let kept = get(&hamlet, &format!("<items node='{NODE}'/>"));
    assert!(kept.contains("<item id='1'>") && !kept.contains("<item id='2'>"), "{kept}");
}
