//! Sections 3, 4 and 6: nodes of an account, their management and discovery.

use super::*;

#[test]
fn section_4_a_publication_creates_the_node_with_the_defaults() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    publish(&juliet, TUNE, "current");
    let config = answer(pubsub(&juliet, "", "get", "#owner", &format!("<configure node='{TUNE}'/>")));
    for (var, value) in [
        ("access_model", "presence"),
        ("send_last_published_item", "on_sub_and_presence"),
        ("max_items", "1"),
    ] {
        let field = config.split(&format!("var='pubsub#{var}'")).nth(1).unwrap();
        let field = &field[..field.find("</field>").unwrap()];
        let chosen = field.rsplit("<value>").find(|one| one.starts_with(&format!("{value}</value>")));
        assert!(chosen.is_some(), "{var}: {field}");
    }
    let items = get(&juliet, "", &format!("<items node='{TUNE}'/>"));
    assert!(items.contains(&format!("<item id='current'>{TUNE_PAYLOAD}</item>")), "{items}");
    publish(&juliet, TUNE, "next");
    let items = get(&juliet, "juliet@example.com", &format!("<items node='{TUNE}'/>"));
    assert!(items.contains("next") && !items.contains("current"), "one item: {items}");
}

#[test]
fn items_are_retracted_and_nodes_are_configured_and_deleted_by_their_owner_only() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[]);
    publish(&juliet, TUNE, "1");
    let to = "juliet@example.com";
    for (ns, content) in [
        ("", publish_request(TUNE, "2")),
        ("", publish_request("elsewhere", "2")),
        ("", "<create node='elsewhere'/>".to_owned()),
        ("", format!("<retract node='{TUNE}'><item id='1'/></retract>")),
        ("#owner", format!("<delete node='{TUNE}'/>")),
        ("#owner", format!("<purge node='{TUNE}'/>")),
        ("#owner", format!("<configure node='{TUNE}'>{}</configure>", form("node_config", &[]))),
    ] {
        let refused = answer(pubsub(&romeo, to, "set", ns, &content));
        assert!(refused.contains("<forbidden "), "{content}: {refused}");
    }
    let configure = form("node_config", &[("access_model", "open"), ("max_items", "max")]);
    let done = |ns: &str, content: &str| {
        let answer = answer(pubsub(&juliet, "", "set", ns, content));
        assert!(answer.contains("type='result'"), "{content}: {answer}");
    };
    done("#owner", &format!("<configure node='{TUNE}'>{configure}</configure>"));
    done("", &publish_request(TUNE, "2"));
    done("", &format!("<retract node='{TUNE}'><item id='1'/></retract>"));
    let items = get(&romeo, to, &format!("<items node='{TUNE}'/>"));
    assert!(items.contains("id='2'") && !items.contains("id='1'"), "{items}");
    done("#owner", &format!("<delete node='{TUNE}'/>"));
    assert!(get(&juliet, "", &format!("<items node='{TUNE}'/>")).contains("<item-not-found "));
}

#[test]
fn section_6_accounts_and_their_nodes_are_discovered() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[]);
    let benvolio = connect(&engine, "benvolio", "street", &[]);
    publish(&juliet, TUNE, "1");
    create(&juliet, "urn:private", &[("access_model", "whitelist")]);
    create(&juliet, "urn:open", &[("access_model", "open")]);
    let disco = |client: &NodeClient, what: &str, node: &str| {
        let node = if node.is_empty() { String::new() } else { format!(" node='{node}'") };
        answer(client.request(&format!(
            "<iq to='juliet@example.com' id='d' type='get'><query xmlns='http://jabber.org/protocol/disco#{what}'{node}/></iq>"
        )))
    };
    for client in [&juliet, &romeo] {
        let info = disco(client, "info", "");
        assert!(info.contains("<identity category='pubsub' type='pep'/>"), "{info}");
        for feature in ["filtered-notifications", "auto-create", "auto-subscribe", "publish-options"] {
            assert!(info.contains(&format!("<feature var='{PUBSUB}#{feature}'/>")), "{feature}");
        }
    }
    let item = |node: &str| format!("jid='juliet@example.com' node='{node}'");
    let own = disco(&juliet, "items", "");
    assert!([TUNE, "urn:private", "urn:open"].iter().all(|node| own.contains(&item(node))), "{own}");
    let of_romeo = disco(&romeo, "items", "");
    assert!(of_romeo.contains(&item(TUNE)) && !of_romeo.contains("urn:private"), "{of_romeo}");
    assert!(of_romeo.contains("jid='juliet@example.com/balcony'"), "{of_romeo}");
    engine.store_calls();
    let of_benvolio = disco(&benvolio, "items", "");
    let calls = engine.store_calls();
    assert!(!calls.contains(&"pubsub.load"), "nodes are not read as a whole: {calls:?}");
    assert!(of_benvolio.contains("urn:open") && !of_benvolio.contains(TUNE), "{of_benvolio}");
    assert!(disco(&romeo, "info", TUNE).contains("<identity category='pubsub' type='leaf'/>"));
    assert!(disco(&romeo, "items", TUNE).contains("name='1'"));
    for (client, node) in [(&benvolio, TUNE), (&romeo, "urn:private"), (&romeo, "urn:none")] {
        assert!(disco(client, "info", node).contains("<item-not-found "), "{node}");
    }
}

#[test]
fn xep_0059_of_many_nodes_those_that_a_user_may_see_are_listed_in_pages() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let romeo = connect(&engine, "romeo", "orchard", &[]);
    for number in 0..150 {
        create(&juliet, &format!("urn:closed:{number}"), &[("access_model", "whitelist")]);
    }
    create(&juliet, "urn:open", &[("access_model", "open")]);
    let list = |client: &NodeClient, set: &str| {
        answer(client.request(&format!(
            "<iq to='juliet@example.com' id='d' type='get'><query xmlns='http://jabber.org/protocol/disco#items'>{set}\
             </query></iq>"
        )))
    };
    let of_romeo = list(&romeo, "");
    assert!(of_romeo.contains("node='urn:open'") && !of_romeo.contains("urn:closed"), "{of_romeo}");
    assert!(!of_romeo.contains("<set "), "{of_romeo}");
    let (mut found, mut page) = (Vec::new(), String::new());
    for number in 0.. {
        let answer = list(&juliet, &page);
        assert_eq!(answer.contains("jid='juliet@example.com/balcony'"), number == 0, "{answer}");
        found.extend(answer.split(" node='").skip(1).map(|one| one[..one.find('\'').unwrap()].to_owned()));
        let Some((_, last)) = answer.split_once("<last>") else { break };
        let last = &last[..last.find('<').unwrap()];
        page =
            format!("<set xmlns='http://jabber.org/protocol/rsm'><max>60</max><after>{last}</after></set>");
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 151);
}

#[test]
fn nodes_end_with_their_account_and_administrators_do_not_own_them() {
    let engine = verona();
    let admin = connect(&engine, "nurse", "chamber", &[]);
    engine.node.set_admins([Jid::parse("nurse@example.com").unwrap()]);
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    create(&juliet, "urn:private", &[("access_model", "whitelist")]);
    publish(&juliet, "urn:private", "1");
    let refused = get(&admin, "juliet@example.com", "<items node='urn:private'/>");
    assert!(refused.contains("<item-not-found "), "{refused}");
    juliet.request("<iq type='set' id='x'><query xmlns='jabber:iq:register'><remove/></query></iq>");
    engine.run_tasks();
    engine.create_user("juliet");
    let again = connect(&engine, "juliet", "balcony", &[]);
    assert!(get(&again, "", "<items node='urn:private'/>").contains("<item-not-found "));
}

#[test]
fn an_account_leaves_nothing_at_nodes_of_others_to_the_next_one_of_its_name() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    let benvolio = connect(&engine, "benvolio", "street", &[]);
    create(&juliet, "urn:private", &[("access_model", "whitelist"), ("publish_model", "publishers")]);
    create(&juliet, "urn:open", &[("access_model", "open")]);
    let affiliate = |node: &str, affiliation: &str| {
        let content = format!(
            "<affiliations node='{node}'><affiliation jid='benvolio@example.com' affiliation='{affiliation}'/></affiliations>"
        );
        let done = answer(pubsub(&juliet, "", "set", "#owner", &content));
        assert!(done.contains("type='result'"), "{done}");
    };
    affiliate("urn:private", "publisher");
    let to = "juliet@example.com";
    let subscribe = format!("<subscribe node='urn:open' jid='{}'/>", benvolio.bare());
    assert!(answer(pubsub(&benvolio, to, "set", "", &subscribe)).contains("subscription='subscribed'"));
    let published = answer(pubsub(&benvolio, to, "set", "", &publish_request("urn:private", "1")));
    assert!(published.contains("type='result'"), "{published}");
    benvolio.request("<iq type='set' id='x'><query xmlns='jabber:iq:register'><remove/></query></iq>");
    engine.run_tasks();
    engine.create_user("benvolio");
    let again = connect(&engine, "benvolio", "street", &[]);
    let refused = get(&again, to, "<items node='urn:private'/>");
    assert!(refused.contains("<item-not-found "), "{refused}");
    let refused = answer(pubsub(&again, to, "set", "", &publish_request("urn:private", "2")));
    assert!(refused.contains("type='error'"), "{refused}");
    publish(&juliet, "urn:open", "1");
    assert!(events(&again.recv()).is_empty());
    assert!(!get(&again, to, "<subscriptions/>").contains("<subscription "));
}

#[test]
fn anonymous_users_have_no_nodes() {
    let engine = verona();
    let ghost = engine.connect_anonymous("ghost", "x");
    let refused = set(&ghost, &publish_request(TUNE, "1"));
    assert!(refused.contains("<not-allowed "), "{refused}");
}
