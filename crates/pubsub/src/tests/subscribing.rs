//! Sections 6.1 to 6.4, and 8.6: subscriptions, their options, and approval.

use super::*;

#[test]
fn sections_6_1_and_7_1_a_subscriber_receives_what_is_published() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let subscribed = subscribe(&francisco);
    assert_result(
        &francisco,
        &subscribed,
        &format!(
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription node='{NODE}' \
             jid='francisco@example.com' subscription='subscribed'/></pubsub>"
        ),
    );
    let published = publish(&hamlet, "bnd81g37d61f49fgn581");
    assert_result(
        &hamlet,
        &published,
        &format!(
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='{NODE}'>\
             <item id='bnd81g37d61f49fgn581'/></publish></pubsub>"
        ),
    );
    testkit::assert_same(&events(&francisco), &[item_event(&francisco, "bnd81g37d61f49fgn581")]);
    assert!(bernardo.recv().is_empty() && hamlet.recv().is_empty());
    let unsubscribed = set(&francisco, &format!("<unsubscribe node='{NODE}' jid='francisco@example.com'/>"));
    assert!(unsubscribed.contains("subscription='none'"), "{unsubscribed}");
    publish(&hamlet, "2");
    assert!(francisco.recv().is_empty());
}

#[test]
fn section_6_1_3_the_errors_of_subscribing() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let of = |jid: &str| set(&francisco, &format!("<subscribe node='{NODE}' jid='{jid}'/>"));
    assert_error(&of("bernardo@example.com"), "modify", "bad-request", "invalid-jid");
    assert_error(&of("bernardo@@example.com"), "modify", "bad-request", "invalid-jid");
    assert_error(&of(""), "modify", "bad-request", "invalid-jid");
    let nowhere = set(&francisco, "<subscribe node='elsewhere' jid='francisco@example.com'/>");
    assert_error(&nowhere, "cancel", "item-not-found", "");
    affiliate(&hamlet, "francisco", "outcast");
    assert_error(&subscribe(&francisco), "auth", "forbidden", "");
    affiliate(&hamlet, "francisco", "publish-only");
    assert_error(&subscribe(&francisco), "auth", "forbidden", "");
    affiliate(&hamlet, "francisco", "none");
    configure(&hamlet, &[("pubsub#subscribe", "0")]);
    assert_error(&subscribe(&francisco), "cancel", "feature-not-implemented", "unsupported");
    let guest = denmark.engine.connect_anonymous("guest", "web");
    configure(&hamlet, &[("pubsub#subscribe", "1")]);
    assert_error(&subscribe(&guest), "cancel", "forbidden", "");
}

#[test]
fn section_6_1_7_the_last_item_is_sent_with_its_time() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "first");
    publish(&hamlet, "last");
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let received = events(&francisco);
    assert!(received.is_empty(), "the answer comes with the event: {received:?}");
    let bernardo = denmark.connect("bernardo");
    let content = format!("<subscribe node='{NODE}' jid='bernardo@example.com'/>");
    let received = request_all(&bernardo, "set", "", &content);
    let last = received.iter().find(|one| one.starts_with("<message")).unwrap();
    assert!(last.contains("<item id='last'>") && last.contains("<delay xmlns='urn:xmpp:delay'"), "{last}");
    // Presence to the service brings it again (`on_sub_and_presence`).
    let received = bernardo.request(&format!("<presence to='{SERVICE}'/>"));
    assert!(received.concat().contains("<item id='last'>"), "{received:?}");
    configure(&hamlet, &[("pubsub#send_last_published_item", "on_sub")]);
    assert!(bernardo.request(&format!("<presence to='{SERVICE}'/>")).is_empty());
    configure(&hamlet, &[("pubsub#send_last_published_item", "never")]);
    let horatio = denmark.connect("horatio");
    assert_eq!(request_all(&horatio, "set", "", &content.replace("bernardo", "horatio")).len(), 1);
}

#[test]
fn section_6_2_3_the_errors_of_unsubscribing() {
    let denmark = Denmark::new();
    denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let of = |client: &NodeClient, rest: &str| set(client, &format!("<unsubscribe node='{NODE}'{rest}/>"));
    let own = " jid='francisco@example.com'";
    assert_error(&of(&francisco, own), "cancel", "unexpected-request", "not-subscribed");
    subscribe(&francisco);
    assert_error(&of(&bernardo, own), "auth", "forbidden", "");
    assert_error(&of(&francisco, ""), "modify", "bad-request", "jid-required");
    let nowhere = set(&francisco, &format!("<unsubscribe node='elsewhere'{own}/>"));
    assert_error(&nowhere, "cancel", "item-not-found", "");
    // A subscription without an id ignores one (section 6.2.3.5).
    assert!(of(&francisco, &format!("{own} subid='x'")).contains("subscription='none'"));
    // Two subscriptions need an id.
    let options = form("subscribe_options", &[("pubsub#deliver", "1")]);
    let content = format!("<subscribe node='{NODE}'{own}/><options>{options}</options>");
    let (one, two) = (set(&francisco, &content), set(&francisco, &content));
    assert_error(&of(&francisco, own), "modify", "bad-request", "subid-required");
    assert_error(&of(&francisco, &format!("{own} subid='x'")), "modify", "not-acceptable", "invalid-subid");
    assert_ne!(attribute(&one, "subid"), attribute(&two, "subid"));
    let subid = attribute(&one, "subid");
    let gone = of(&francisco, &format!("{own} subid='{subid}'"));
    assert!(gone.contains(&format!("subid='{subid}'")) && gone.contains("subscription='none'"), "{gone}");
    assert!(of(&francisco, own).contains("subscription='none'"), "the other one is the only one");
}

#[test]
fn section_6_3_options_are_shown_and_set() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let own = format!("node='{NODE}' jid='francisco@example.com'");
    let absent = get(&francisco, &format!("<options {own}/>"));
    assert_error(&absent, "modify", "unexpected-request", "not-subscribed");
    subscribe(&francisco);
    let shown = get(&francisco, &format!("<options {own}/>"));
    for field in ["pubsub#deliver", "pubsub#expire", "pubsub#show-values"] {
        assert!(shown.contains(field), "{field}: {shown}");
    }
    assert!(shown.contains("<option label='Want to Chat'><value>chat</value></option>"), "{shown}");
    assert_error(&get(&bernardo, &format!("<options {own}/>")), "auth", "forbidden", "");
    let no_jid = get(&francisco, &format!("<options node='{NODE}'/>"));
    assert_error(&no_jid, "modify", "bad-request", "jid-required");
    let nowhere = get(&francisco, "<options node='elsewhere' jid='francisco@example.com'/>");
    assert_error(&nowhere, "cancel", "item-not-found", "");
    let submit = |fields: &[(&str, &str)]| {
        set(&francisco, &format!("<options {own}>{}</options>", form("subscribe_options", fields)))
    };
    assert_error(&submit(&[("pubsub#deliver", "maybe")]), "modify", "bad-request", "invalid-options");
    assert_result(&francisco, &submit(&[("pubsub#deliver", "0")]), "");
    publish(&hamlet, "1");
    assert!(francisco.recv().is_empty(), "delivery is off");
    let listed = get(&francisco, &format!("<subscriptions node='{NODE}'/>"));
    assert_eq!(listed.matches("<subscription ").count(), 1, "{listed}");
    submit(&[("pubsub#deliver", "1")]);
    publish(&hamlet, "2");
    assert_eq!(francisco.recv().len(), 1);
}

#[test]
fn section_6_3_7_subscribe_and_configure() {
    let denmark = Denmark::new();
    denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let subscribe = format!("<subscribe node='{NODE}' jid='francisco@example.com'/>");
    let options =
        form("subscribe_options", &[("pubsub#deliver", "1"), ("pubsub#show-values", "chat|online")]);
    let answer = set(&francisco, &format!("{subscribe}<options>{options}</options>"));
    assert!(
        answer.contains("subid='") && answer.contains("type='result'><field var='FORM_TYPE'"),
        "{answer}"
    );
    assert!(answer.contains("<value>chat</value><value>online</value>"), "{answer}");
    for wrong in [
        format!("<options>{options}</options>{subscribe}"),
        format!("{subscribe}<options node='{NODE}'>{options}</options>"),
        format!("{subscribe}<options jid='francisco@example.com'>{options}</options>"),
    ] {
        assert_error(&set(&francisco, &wrong), "modify", "bad-request", "");
    }
}

#[test]
fn section_6_4_default_options() {
    let denmark = Denmark::new();
    denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    for node in [String::new(), format!(" node='{NODE}'")] {
        let answer = get(&francisco, &format!("<default{node}/>"));
        assert!(
            answer.contains(&format!("<default{node}><x xmlns='jabber:x:data' type='result'>")),
            "{answer}"
        );
        assert!(answer.contains("pubsub#subscribe_options"), "{answer}");
    }
}

#[test]
fn section_7_1_2_4_a_user_with_several_subscriptions_receives_one_event_with_their_ids() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let options = form("subscribe_options", &[("pubsub#deliver", "1")]);
    let second = set(
        &francisco,
        &format!("<subscribe node='{NODE}' jid='francisco@example.com'/><options>{options}</options>"),
    );
    let full = set(&francisco, &format!("<subscribe node='{NODE}' jid='{}'/>", francisco.full()));
    publish(&hamlet, "1");
    let mut received = events(&francisco);
    received.sort_by_key(|one| one.contains("<headers"));
    assert_eq!(received.len(), 2, "the bare and the full address: {received:?}");
    testkit::assert_same(
        &received[..1],
        &[event_to(francisco.full(), &format!("<items node='{NODE}'><item id='1'>{ENTRY}</item></items>"))],
    );
    let (second, full) = (attribute(&second, "subid"), attribute(&full, "subid"));
    let headers = received[1].split("<headers xmlns='http://jabber.org/protocol/shim'>").nth(1).unwrap();
    assert_eq!(headers.matches("<header name='SubID'>").count(), 2);
    assert!(headers.contains(&second) && !headers.contains(&full), "{headers}");
    set(&hamlet, &format!("<retract node='{NODE}' notify='1'><item id='1'/></retract>"));
    let received = events(&francisco);
    assert_eq!(received.iter().filter(|one| one.contains(&second)).count(), 1, "{received:?}");
    let own = get(&francisco, "<subscriptions/>");
    assert_eq!(own.matches("subid='").count(), 3, "{own}");
}

#[test]
fn section_6_1_4_an_owner_approves_or_denies() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "authorize")]);
    let horatio = denmark.connect("horatio");
    let pending = subscribe(&horatio);
    assert!(pending.contains("subscription='pending'"), "{pending}");
    assert_error(&subscribe(&horatio), "auth", "not-authorized", "pending-subscription");
    let asked = hamlet.recv().concat();
    assert!(
        asked.contains("pubsub#subscribe_authorization")
            && asked.contains("<value>horatio@example.com</value>")
    );
    publish(&hamlet, "1");
    assert!(horatio.recv().is_empty());
    let items = get(&horatio, &format!("<items node='{NODE}'/>"));
    assert_error(&items, "auth", "not-authorized", "not-subscribed");
    let subid = asked.split("pubsub#subid' type='hidden'><value>").nth(1).unwrap();
    let subid = subid[..subid.find('<').unwrap()].to_owned();
    let decide = |client: &NodeClient, allow: &str| {
        client.send(&format!(
            "<message to='{SERVICE}' id='approve1'>{}</message>",
            form(
                "subscribe_authorization",
                &[
                    ("pubsub#subid", &subid),
                    ("pubsub#node", NODE),
                    ("pubsub#subscriber_jid", "horatio@example.com"),
                    ("pubsub#allow", allow),
                ],
            )
        ));
        denmark.engine.run_tasks();
    };
    // Forged: the subscriber approves itself.
    decide(&horatio, "true");
    assert!(horatio.recv().is_empty());
    hamlet.send(&format!(
        "<message to='{SERVICE}'><x xmlns='jabber:x:data' type='cancel'><field var='FORM_TYPE'>\
         <value>http://jabber.org/protocol/pubsub#subscribe_authorization</value></field></x></message>"
    ));
    denmark.engine.run_tasks();
    assert!(get(&horatio, "<subscriptions/>").contains("subscription='pending'"));
    decide(&hamlet, "true");
    let received = events(&horatio);
    assert!(
        received[0].contains(
            "<subscription node='princely_musings' jid='horatio@example.com' subscription='subscribed'/>"
        ),
        "{received:?}"
    );
    assert!(received[1].contains("<item id='1'>"), "the last item: {received:?}");
    publish(&hamlet, "2");
    assert_eq!(horatio.recv().len(), 1);
    let bard = denmark.connect("bard");
    subscribe(&bard);
    hamlet.recv();
    hamlet.send(&format!(
        "<message to='{SERVICE}'>{}</message>",
        form(
            "subscribe_authorization",
            &[("pubsub#node", NODE), ("pubsub#subscriber_jid", "bard@example.com"), ("pubsub#allow", "0")],
        )
    ));
    denmark.engine.run_tasks();
    assert!(bard.recv().concat().contains("subscription='none'"));
    assert!(!get(&bard, "<subscriptions/>").contains("<subscription "));
}

#[test]
fn section_12_4_temporary_subscriptions_end_with_presence() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#tempsub", "1")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    assert_eq!(francisco.recv().len(), 1);
    francisco.send(&format!("<presence to='{SERVICE}' type='unavailable'/>"));
    denmark.engine.run_tasks();
    publish(&hamlet, "2");
    assert!(francisco.recv().is_empty());
}

#[test]
fn section_12_18_a_lease_ends() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let now = denmark.engine.node.clock.unix_millis();
    let end = stanza::payload::datetime::format_utc(now + 60_000, false);
    let options = form("subscribe_options", &[("pubsub#expire", &end)]);
    let own = format!("node='{NODE}' jid='francisco@example.com'");
    assert_result(&francisco, &set(&francisco, &format!("<options {own}>{options}</options>")), "");
    assert!(get(&francisco, &format!("<options {own}/>")).contains(&end));
    publish(&hamlet, "1");
    assert_eq!(francisco.recv().len(), 1);
    denmark.engine.advance(61);
    publish(&hamlet, "2");
    let received = francisco.recv().concat();
    assert!(received.contains("subscription='none'") && !received.contains("<item "), "{received}");
}

#[test]
fn section_16_4_2_events_are_sent_for_the_wanted_presence_only() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    let want = |values: &str| {
        let options = form("subscribe_options", &[("pubsub#show-values", values)]);
        let own = format!("node='{NODE}' jid='francisco@example.com'");
        set(&francisco, &format!("<options {own}>{options}</options>"));
        publish(&hamlet, "1");
        francisco.recv().len()
    };
    assert_eq!((want("chat|away"), want("online|chat"), want("dnd")), (0, 1, 0));
    assert_eq!(want("chat|online|away|xa|dnd"), 1);
}

#[test]
fn after_the_last_item_is_retracted_the_one_before_it_is_the_last() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "first");
    publish(&hamlet, "second");
    set(&hamlet, &format!("<retract node='{NODE}'><item id='second'/></retract>"));
    let francisco = denmark.connect("francisco");
    let content = format!("<subscribe node='{NODE}' jid='francisco@example.com'/>");
    let received = request_all(&francisco, "set", "", &content).concat();
    assert!(received.contains(&format!("<item id='first'>{ENTRY}</item>")), "{received}");
}
