//! What users may not do to others and to the server: limits that hold over all resources of a user, messages that nobody has asked
//! for, subscriptions that outlive the right to them, and secrets of accounts.

use feature_api::EnabledFeature;
use feature_api::feature::FeatureOptions;
use store::Subscription;
use store::blocklists::Unblock;

use super::*;
use crate::pep;
use crate::pubsub_shared::UserChange;

fn subscribe_at(client: &NodeClient, node: &str, jid: &str) -> String {
    set(client, &format!("<subscribe node='{node}' jid='{jid}'/>"))
}

fn change_subscriptions(owner: &NodeClient, node: &str, changes: &[(&str, &str)]) -> String {
    let changes: String = changes
        .iter()
        .map(|(jid, state)| format!("<subscription jid='{jid}' subscription='{state}'/>"))
        .collect();
    owner_set(owner, &format!("<subscriptions node='{node}'>{changes}</subscriptions>"))
}

#[test]
fn subscriptions_of_all_resources_of_a_user_are_limited_together() {
    let denmark = Denmark::with(&[("subscriptions_per_user_and_node", OptionValue::Int(2))]);
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let of = |resource: &str| subscribe_at(&francisco, NODE, &format!("francisco@example.com/{resource}"));
    assert!(of("a").contains("subscription='subscribed'"));
    assert!(of("b").contains("subscription='subscribed'"));
    assert_error(&of("c"), "wait", "policy-violation", "too-many-subscriptions");
    assert_error(&subscribe(&francisco), "wait", "policy-violation", "too-many-subscriptions");
    let refused = change_subscriptions(&hamlet, NODE, &[("francisco@example.com/d", "subscribed")]);
    assert_error(&refused, "modify", "not-acceptable", "");
}

#[test]
fn an_owner_subscribes_accounts_only_and_leaves_them_room() {
    let denmark = Denmark::with(&[("subscriptions_per_user", OptionValue::Int(4))]);
    let hamlet = denmark.node(&[]);
    let bernardo = denmark.connect("bernardo");
    for (node, is_done) in [("a", true), ("b", true), ("c", false)] {
        create(&hamlet, node, &[]);
        let answer = change_subscriptions(&hamlet, node, &[("bernardo@example.com", "subscribed")]);
        assert_eq!(answer.contains("type='result'"), is_done, "{node}: {answer}");
    }
    assert_eq!(bernardo.recv().len(), 2);
    for node in ["c", NODE] {
        let own = subscribe_at(&bernardo, node, "bernardo@example.com");
        assert!(own.contains("subscription='subscribed'"), "half of the limit is for the user: {own}");
    }
}

/// RFC 6120, section 8.3.3.19: an error must not tell which accounts exist.
#[test]
fn an_owner_does_not_learn_from_answers_which_accounts_exist() {
    let denmark = Denmark::with(&[("special_subscriptions", OptionValue::Int(1))]);
    let hamlet = denmark.node(&[]);
    let closed = [("pubsub#access_model", "whitelist")];
    create(&hamlet, "closed", &closed);
    let answer = |node: &str, jid: &str, state: &str| {
        change_subscriptions(&hamlet, node, &[(jid, state)]).replace(jid, "JID")
    };
    for (node, resource, state) in [
        (NODE, "", "subscribed"),
        (NODE, "/x", "subscribed"),
        // The room for it is taken now.
        (NODE, "/y", "subscribed"),
        (NODE, "", "none"),
        (NODE, "", "pending"),
        ("closed", "", "subscribed"),
    ] {
        let of = |user: &str| answer(node, &format!("{user}@example.com{resource}"), state);
        // The account that exists comes last: what it takes is not there for the other one.
        let absent = if resource == "/y" { String::new() } else { of("nobody") };
        let present = of("horatio");
        let absent = if resource == "/y" { of("nobody") } else { absent };
        assert_eq!(absent, present, "{node} {resource} {state}");
    }
    let listed = owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>"));
    assert!(!listed.contains("nobody"), "nothing is stored: {listed}");
}

#[test]
fn changes_of_an_owner_without_effect_notify_nobody() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let change = |state: &str| {
        let answer = change_subscriptions(&hamlet, NODE, &[("francisco@example.com", state)]);
        assert!(answer.contains("type='result'"), "{answer}");
        francisco.recv().len()
    };
    assert_eq!(
        [change("none"), change("subscribed"), change("subscribed"), change("none"), change("none")],
        [0, 1, 0, 1, 0]
    );
    let twice = [("francisco@example.com", "subscribed"), ("francisco@example.com", "none")];
    assert!(change_subscriptions(&hamlet, NODE, &twice).contains("type='result'"));
    assert_eq!(francisco.recv().len(), 2);
    assert!(!owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>")).contains("<subscription "));
}

#[test]
fn changes_for_others_are_limited_by_user() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let many: Vec<String> = (0..600).map(|number| format!("u{number}@example.com")).collect();
    let none: Vec<(&str, &str)> = many.iter().map(|jid| (&**jid, "none")).collect();
    assert!(change_subscriptions(&hamlet, NODE, &none).contains("type='result'"));
    let refused = change_subscriptions(&hamlet, NODE, &none);
    assert_error(&refused, "wait", "resource-constraint", "");
    let one = affiliate(&hamlet, "francisco", "member");
    assert!(one.contains("type='result'"), "a small change fits: {one}");
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    assert!(change_subscriptions(&hamlet, NODE, &none).contains("type='result'"));
}

#[test]
fn a_model_that_excludes_nobody_reads_no_subscribers() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    subscribe(&denmark.connect("francisco"));
    denmark.engine.store_calls();
    configure(&hamlet, &[("pubsub#access_model", "authorize")]);
    configure(&hamlet, &[("pubsub#access_model", "open")]);
    let calls = denmark.engine.store_calls();
    assert!(!calls.contains(&"pubsub.subscribers"), "{calls:?}");
}

#[test]
fn a_subscriber_whose_server_does_not_know_it_any_more_is_removed() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe_at(&francisco, NODE, francisco.full());
    subscribe(&bernardo);
    let bounce = |condition: &str| {
        francisco.send(&format!(
            "<message to='{SERVICE}' type='error'><event xmlns='http://jabber.org/protocol/pubsub#event'>\
             <items node='{NODE}'/></event><error type='cancel'><{condition} xmlns='{STANZAS}'/></error></message>"
        ));
        denmark.engine.run_tasks();
        owner_get(&hamlet, &format!("<subscriptions node='{NODE}'/>"))
    };
    assert!(bounce("remote-server-timeout").contains("francisco"));
    let left = bounce("item-not-found");
    assert!(!left.contains("francisco") && left.contains("bernardo"), "{left}");
}

#[test]
fn an_owner_whom_others_have_named_receives_nothing_until_it_acts() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#notify_sub", "1")]);
    let (francisco, bard) = (denmark.connect("francisco"), denmark.connect("bard"));
    affiliate(&hamlet, "bard", "owner");
    subscribe(&francisco);
    assert!(bard.recv().is_empty());
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
    set(&francisco, &format!("<unsubscribe node='{NODE}' jid='francisco@example.com'/>"));
    assert!(bard.recv().is_empty(), "neither after the node was read again");
    assert!(owner_get(&bard, &format!("<configure node='{NODE}'/>")).contains("pubsub#title"));
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
    subscribe(&francisco);
    assert_eq!(bard.recv().len(), 1);
    assert!(hamlet.recv().len() >= 3);
}

#[test]
fn the_roster_of_an_owner_whom_others_have_named_says_nothing() {
    let denmark = Denmark::new();
    let groups = [("pubsub#access_model", "roster"), ("pubsub#roster_groups_allowed", "friends")];
    let hamlet = denmark.node(&groups);
    publish(&hamlet, "1");
    let (francisco, bard) = (denmark.connect("francisco"), denmark.connect("bard"));
    affiliate(&hamlet, "bard", "owner");
    denmark.engine.befriend("bard", "francisco");
    denmark.engine.edit_roster_item("bard", "francisco", |item| item.groups = vec!["friends".into()]);
    let read = || get(&francisco, &format!("<items node='{NODE}'/>"));
    assert_error(&read(), "auth", "not-authorized", "not-in-roster-group");
    owner_get(&bard, &format!("<configure node='{NODE}'/>"));
    assert!(read().contains("<item id='1'>"), "it has accepted");
    // Presence of one owner and the group of another are not enough.
    denmark.engine.add_contact("bard", "francisco", Subscription::NONE);
    denmark.engine.edit_roster_item("bard", "francisco", |item| {
        item.subscription = Subscription::IN_ROSTER;
        item.groups = vec!["friends".into()];
    });
    denmark.engine.befriend("hamlet", "francisco");
    assert_error(&read(), "auth", "not-authorized", "not-in-roster-group");
}

#[test]
fn a_subscription_gives_nothing_when_the_right_to_read_has_ended() {
    let denmark = Denmark::new();
    let hamlet =
        denmark.node(&[("pubsub#access_model", "presence"), ("pubsub#publish_model", "subscribers")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    for user in ["francisco", "bernardo"] {
        denmark.engine.add_contact("hamlet", user, Subscription::FROM | Subscription::IN_ROSTER);
    }
    subscribe(&francisco);
    subscribe_at(&bernardo, NODE, bernardo.full());
    publish(&hamlet, "1");
    assert_eq!((francisco.recv().len(), bernardo.recv().len()), (1, 1));
    assert!(publish(&francisco, "2").contains("type='result'"));
    francisco.recv();
    bernardo.recv();
    for user in ["francisco", "bernardo"] {
        denmark.engine.add_contact("hamlet", user, Subscription::IN_ROSTER);
    }
    publish(&hamlet, "3");
    assert!(francisco.recv().is_empty() && bernardo.recv().is_empty());
    assert!(francisco.request(&format!("<presence to='{SERVICE}'/>")).is_empty(), "nor the last item");
    assert_error(&publish(&francisco, "4"), "auth", "forbidden", "");
    affiliate(&hamlet, "francisco", "member");
    publish(&hamlet, "5");
    assert_eq!(francisco.recv().len(), 1, "a member may read");
}

#[test]
fn the_end_of_presence_is_received_from_a_sender_above_its_rate() {
    let denmark = Denmark::with(&[("stanzas_per_second_per_sender", OptionValue::Int(2))]);
    let hamlet = denmark.node(&[("pubsub#tempsub", "1")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    for _ in 0..60 {
        francisco.send(&format!("<presence to='{SERVICE}'/>"));
    }
    francisco.send(&format!("<presence to='{SERVICE}' type='unavailable'/>"));
    denmark.engine.run_tasks();
    francisco.recv();
    publish(&hamlet, "1");
    assert!(francisco.recv().is_empty());
}

#[test]
fn presence_of_one_user_does_not_displace_the_end_of_that_of_others() {
    let denmark = waiting(&[]);
    let hamlet = denmark.node(&[("pubsub#tempsub", "1")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    subscribe(&francisco);
    subscribe(&bernardo);
    denmark.engine.hold_store_call(Some("pubsub.subscriptions_of"));
    for _ in 0..1_200 {
        francisco.send(&format!("<presence to='{SERVICE}'/>"));
    }
    bernardo.send(&format!("<presence to='{SERVICE}' type='unavailable'/>"));
    denmark.engine.run_tasks();
    denmark.engine.hold_store_call(None);
    denmark.engine.run_tasks();
    publish(&hamlet, "1");
    assert!(!francisco.recv().is_empty() && bernardo.recv().is_empty());
}

#[test]
fn the_end_of_presence_waits_until_the_store_answers() {
    let denmark = waiting(&[]);
    let hamlet = denmark.node(&[("pubsub#tempsub", "1")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    denmark.engine.set_store_failing(true);
    francisco.send(&format!("<presence to='{SERVICE}' type='unavailable'/>"));
    denmark.engine.run_tasks();
    denmark.engine.set_store_failing(false);
    denmark.engine.advance(20);
    denmark.engine.run_tasks();
    francisco.recv();
    publish(&hamlet, "1");
    assert!(francisco.recv().is_empty());
}

#[test]
fn users_of_another_domain_who_wait_for_their_rate_take_no_place_of_others() {
    let denmark = waiting(&[]);
    let hamlet = denmark.node(&[("pubsub#send_last_published_item", "on_sub_and_presence")]);
    let francisco = denmark.connect("francisco");
    subscribe(&francisco);
    publish(&hamlet, "1");
    francisco.recv();
    let presence = &pubsub_presence(&denmark);
    // All nodes of the domain's rate are visited.
    let far = |number: usize| jid::Jid::parse(&format!("u{number}@far.lit/x")).unwrap();
    for number in 0..2_000 {
        presence.add("far.lit", &far(number), UserChange::Available);
    }
    francisco.send(&format!("<presence to='{SERVICE}'/>"));
    denmark.engine.run_tasks();
    assert!(francisco.recv().concat().contains("<item id='1'>"));
}

fn pubsub_presence(denmark: &Denmark) -> std::sync::Arc<crate::presence_fan_out::PresenceFanOuts> {
    let host = denmark.engine.node.host("example.com").unwrap();
    let crate::ServiceOfHost(service) = host.extensions.get().unwrap();
    service.shared.presence.clone()
}

#[test]
fn an_event_to_few_subscribers_reads_no_roster_and_one_to_many_reads_it_once() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "presence")]);
    let users: Vec<String> = (0..40).map(|number| format!("user{number}")).collect();
    for user in &users {
        denmark.engine.create_user(user);
        denmark.engine.add_contact("hamlet", user, Subscription::FROM | Subscription::IN_ROSTER);
    }
    let clients: Vec<NodeClient> = users.iter().map(|user| denmark.connect(user)).collect();
    let publish_and_count = |id: &str| {
        denmark.engine.store_calls();
        publish(&hamlet, id);
        denmark.engine.store_calls().iter().filter(|call| **call == "roster.get").count()
    };
    assert!(subscribe(&clients[0]).contains("subscription='subscribed'"));
    assert_eq!(publish_and_count("1"), 0);
    assert_eq!(clients[0].recv().len(), 1);
    clients[1..].iter().for_each(|client| drop(subscribe(client)));
    assert_eq!(publish_and_count("2"), 1);
    assert_eq!(publish_and_count("3"), 0, "the roster has not changed");
    assert!(clients.iter().all(|client| client.recv().len() == 2));
    denmark.engine.add_contact("hamlet", "user7", Subscription::IN_ROSTER);
    assert_eq!(publish_and_count("4"), 1);
    let received: Vec<usize> = clients.iter().map(|client| client.recv().len()).collect();
    assert_eq!((received[7], received.iter().sum::<usize>()), (0, 39));
}

#[test]
fn the_page_after_a_subscription_that_has_ended_is_an_error() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let own = subscribe_at(&francisco, NODE, francisco.full());
    let subid = attribute(&own, "subid");
    subscribe(&bernardo);
    set(&francisco, &format!("<unsubscribe node='{NODE}' jid='{}' subid='{subid}'/>", francisco.full()));
    for after in [&subid, "horatio@example.com"] {
        let page = format!(
            "<subscriptions node='{NODE}'/><set xmlns='http://jabber.org/protocol/rsm'><max>2</max><after>{after}</after></set>"
        );
        assert_error(&owner_get(&hamlet, &page), "cancel", "item-not-found", "");
    }
}

#[test]
fn long_lists_are_read_in_pages() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    for user in ["bard", "bernardo", "francisco", "horatio"] {
        affiliate(&hamlet, user, "member");
        let client = denmark.connect(user);
        subscribe_at(&client, NODE, client.full());
    }
    subscribe(&hamlet);
    let page = |kind: &str, rest: &str| {
        let set = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>2</max>{rest}</set>");
        owner_get(&hamlet, &format!("<{kind} node='{NODE}'/>{set}"))
    };
    for (kind, entry) in [("affiliations", "<affiliation "), ("subscriptions", "<subscription ")] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let answer = page(kind, &after);
            assert!(answer.contains("<count>5</count>"), "{answer}");
            found.extend(answer.split(entry).skip(1).map(|one| attribute(&format!(" {one}"), "jid")));
            let Some(last) = answer.split("<last>").nth(1) else { break };
            after = format!("<after>{}</after>", &last[..last.find('<').unwrap()]);
        }
        found.dedup();
        assert_eq!(found.len(), 5, "{kind}: {found:?}");
    }
    assert!(!owner_get(&hamlet, &format!("<affiliations node='{NODE}'/>")).contains("<set "));
}

#[test]
fn an_answer_reads_no_more_payloads_than_it_shows() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#max_items", "max")]);
    let large = "x".repeat(60_000);
    for id in 0..10 {
        let item = format!("<item id='{id}'><a xmlns='u:a'>{large}</a></item>");
        set(&hamlet, &format!("<publish node='{NODE}'>{item}</publish>"));
    }
    hamlet.recv();
    let ids = |query: &str| {
        let answer = get(&hamlet, query);
        answer.split("<item ").skip(1).map(|one| attribute(&format!(" {one}"), "id")).collect::<String>()
    };
    assert_eq!(ids(&format!("<items node='{NODE}'/>")), "012");
    assert_eq!(ids(&format!("<items node='{NODE}' max_items='5'/>")), "789", "the newest ones");
    let last = "<set xmlns='http://jabber.org/protocol/rsm'><max>5</max><before/></set>";
    assert_eq!(ids(&format!("<items node='{NODE}'/>{last}")), "789");
    let before = "<set xmlns='http://jabber.org/protocol/rsm'><max>5</max><before>7</before></set>";
    assert_eq!(ids(&format!("<items node='{NODE}'/>{before}")), "456");
    let calls = denmark.engine.store_calls();
    assert!(calls.contains(&"pubsub.items_within"), "{calls:?}");
}

#[test]
fn a_refused_creation_leaves_the_address_of_a_node_that_has_moved() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let redirect = "<redirect uri='xmpp:hamlet@example.com?;node=blog'/>";
    owner_set(&hamlet, &format!("<delete node='{NODE}'>{redirect}</delete>"));
    let refused = create(&hamlet, NODE, &[("pubsub#access_model", "secret")]);
    assert_error(&refused, "modify", "not-acceptable", "unsupported-access-model");
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
    assert_error(&get(&francisco, &format!("<items node='{NODE}'/>")), "modify", "gone", "");
    assert_error(&create(&francisco, NODE, &[]), "cancel", "conflict", "");
}

#[test]
fn requests_under_way_share_the_limits_of_a_user() {
    let denmark =
        waiting(&[("nodes_per_user", OptionValue::Int(3)), ("subscriptions_per_user", OptionValue::Int(2))]);
    let hamlet = denmark.connect("hamlet");
    // All know what the store has before one of them changes it.
    let send_all = |client: &NodeClient, counts: &'static str, content: &dyn Fn(usize) -> String| {
        denmark.engine.hold_store_call(Some(counts));
        for number in 0..8 {
            client.send(&format!(
                "<iq type='set' to='{SERVICE}' id='r{number}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>{}\
                 </pubsub></iq>",
                content(number)
            ));
        }
        denmark.engine.run_tasks();
        denmark.engine.hold_store_call(None);
        denmark.engine.run_tasks();
        client.recv().iter().filter(|one| one.contains("type='result'")).count()
    };
    let created = send_all(&hamlet, "pubsub.count_created", &|number| format!("<create node='n{number}'/>"));
    assert_eq!(created, 3);
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    for number in 0..8 {
        create(&hamlet, &format!("n{number}"), &[]);
    }
    let francisco = denmark.connect("francisco");
    let subscribed = send_all(&francisco, "pubsub.count_subscriptions", &|number| {
        format!("<subscribe node='n{number}' jid='francisco@example.com'/>")
    });
    assert_eq!(subscribed, 2);
}

#[test]
fn publications_that_wait_for_the_store_are_bounded_in_bytes() {
    let denmark = waiting(&[]);
    let hamlet = denmark.node(&[]);
    let large = "x".repeat(60_000);
    denmark.engine.hold_store_call(Some("pubsub.apply"));
    for number in 0..200 {
        hamlet.send(&format!(
            "<iq type='set' to='{SERVICE}' id='p{number}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='{NODE}'><item id='{number}'><a xmlns='u:a'>{large}</a></item></publish></pubsub></iq>"
        ));
    }
    denmark.engine.run_tasks();
    let refused = hamlet.recv().iter().filter(|one| one.contains("resource-constraint")).count();
    assert!(refused > 50, "{refused} of 12 MB");
    denmark.engine.hold_store_call(None);
    denmark.engine.run_tasks();
    let done = hamlet.recv().iter().filter(|one| one.contains("type='result'")).count();
    assert_eq!(done, 200 - refused);
}

/// A node whose store may be slow.
pub(super) fn waiting(options: &[(&str, OptionValue)]) -> Denmark {
    let engine = TestNode::with_waiting_handlers(&[&FEATURE]);
    let mut enabled =
        EnabledFeature { feature: &FEATURE, options: FeatureOptions::defaults(FEATURE.options) };
    for (key, value) in options {
        enabled.options.set(FEATURE.options, key, value.clone()).unwrap();
    }
    engine.reload(&["example.com"], &[enabled]);
    for user in ["hamlet", "francisco", "bernardo"] {
        engine.create_user(user);
    }
    Denmark { engine }
}

/// A node with personal eventing, too.
fn with_pep() -> Denmark {
    let enabled = [&FEATURE, &pep::FEATURE]
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) });
    let engine = TestNode::start(&enabled, NodeLimits::default());
    for user in ["hamlet", "francisco", "bernardo"] {
        engine.create_user(user);
    }
    Denmark { engine }
}

/// Sends a request to the account of hamlet; the answer.
fn at_account(client: &NodeClient, kind: &str, ns: &str, content: &str) -> String {
    answer_of(client.request(&format!(
        "<iq type='{kind}' to='hamlet@example.com' id='r1'><pubsub xmlns='http://jabber.org/protocol/pubsub{ns}'>\
         {content}</pubsub></iq>"
    )))
}

#[test]
fn other_users_do_not_learn_which_nodes_an_account_has() {
    let denmark = with_pep();
    let (hamlet, francisco) = (denmark.connect("hamlet"), denmark.connect("francisco"));
    for (node, model) in [("urn:closed", "whitelist"), ("urn:contacts", "presence"), ("urn:groups", "roster")]
    {
        let config = form("node_config", &[("pubsub#access_model", model)]);
        let created = at_account(
            &hamlet,
            "set",
            "",
            &format!("<create node='{node}'/><configure>{config}</configure>"),
        );
        assert!(created.contains("type='result'"), "{created}");
    }
    let own = "jid='francisco@example.com'";
    let options = form("subscribe_options", &[]);
    let config = form("node_config", &[("pubsub#title", "x")]);
    type OfNode<'a> = &'a dyn Fn(&str) -> String;
    let requests: [(&str, &str, OfNode<'_>); 17] = [
        ("set", "", &|node| format!("<create node='{node}'/>")),
        ("set", "", &|node| format!("<publish node='{node}'><item id='1'>{ENTRY}</item></publish>")),
        ("set", "", &|node| format!("<retract node='{node}'><item id='1'/></retract>")),
        ("set", "", &|node| format!("<subscribe node='{node}' {own}/>")),
        ("set", "", &|node| format!("<subscribe node='{node}' jid='bernardo@example.com'/>")),
        ("set", "", &|node| format!("<unsubscribe node='{node}' {own}/>")),
        ("get", "", &|node| format!("<options node='{node}' {own}/>")),
        ("set", "", &|node| format!("<options node='{node}' {own}>{options}</options>")),
        ("get", "", &|node| format!("<default node='{node}'/>")),
        ("get", "", &|node| format!("<items node='{node}'/>")),
        ("get", "", &|node| format!("<subscriptions node='{node}'/>")),
        ("get", "", &|node| format!("<affiliations node='{node}'/>")),
        ("get", "#owner", &|node| format!("<configure node='{node}'/>")),
        ("set", "#owner", &|node| format!("<configure node='{node}'>{config}</configure>")),
        ("set", "#owner", &|node| format!("<delete node='{node}'/>")),
        ("get", "#owner", &|node| format!("<subscriptions node='{node}'/>")),
        ("get", "#owner", &|node| format!("<affiliations node='{node}'/>")),
    ];
    for (kind, ns, content) in requests {
        let of = |node: &str| at_account(&francisco, kind, ns, &content(node)).replace(node, "N");
        let absent = of("urn:absent");
        assert!(absent.contains("type='error'"), "{absent}");
        for node in ["urn:closed", "urn:contacts", "urn:groups"] {
            assert_eq!(of(node), absent, "{node}");
        }
    }
    denmark.engine.add_contact("hamlet", "francisco", Subscription::FROM | Subscription::IN_ROSTER);
    let of = |node: &str| at_account(&francisco, "get", "", &format!("<items node='{node}'/>"));
    assert!(of("urn:contacts").contains("type='result'") && of("urn:closed").contains("item-not-found"));
}

#[test]
fn a_contact_that_is_removed_or_blocked_receives_nothing_from_an_account() {
    let denmark = with_pep();
    let (hamlet, francisco) = (denmark.connect("hamlet"), denmark.connect("francisco"));
    let create = |node: &str, model: &str| {
        let config = form("node_config", &[("pubsub#access_model", model)]);
        at_account(&hamlet, "set", "", &format!("<create node='{node}'/><configure>{config}</configure>"));
    };
    let publish = |node: &str, id: &str| {
        let published = at_account(
            &hamlet,
            "set",
            "",
            &format!("<publish node='{node}'><item id='{id}'>{ENTRY}</item></publish>"),
        );
        assert!(published.contains("type='result'"), "{published}");
        francisco.recv().len()
    };
    create("urn:open", "open");
    create("urn:contacts", "presence");
    denmark.engine.add_contact("hamlet", "francisco", Subscription::FROM | Subscription::IN_ROSTER);
    for node in ["urn:open", "urn:contacts"] {
        let own = format!("<subscribe node='{node}' jid='francisco@example.com'/>");
        let subscribed = at_account(&francisco, "set", "", &own);
        assert!(subscribed.contains("subscription='subscribed'"), "{subscribed}");
        assert_eq!(publish(node, "1"), 1, "{node}");
    }
    denmark.engine.add_contact("hamlet", "francisco", Subscription::IN_ROSTER);
    assert_eq!((publish("urn:open", "2"), publish("urn:contacts", "2")), (1, 0));
    let (owner, other) = (hamlet.bare().to_jid(), francisco.bare().to_jid());
    let node = &denmark.engine.node;
    let block =
        node.account_views().update_blocklist(node, &owner, vec![other], Unblock::These(Vec::new()), 10);
    let (_, is_read_elsewhere) = denmark.engine.block_on(block).unwrap();
    denmark.engine.block_on(is_read_elsewhere);
    assert_eq!(publish("urn:open", "3"), 0);
}
