//! Sections 4.1, 4.5, 6.1.3 and 6.5.9: access models, publish models and affiliations.

use store::Subscription;

use super::*;

fn read(client: &NodeClient) -> String {
    get(client, &format!("<items node='{NODE}'/>"))
}

#[test]
fn section_4_5_open_everybody_may_read_and_subscribe() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    publish(&hamlet, "1");
    let francisco = denmark.connect("francisco");
    assert!(read(&francisco).contains("<item id='1'>"));
    affiliate(&hamlet, "francisco", "outcast");
    assert_error(&read(&francisco), "auth", "forbidden", "");
}

#[test]
fn section_4_5_presence_and_roster_ask_the_rosters_of_owners() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "presence")]);
    publish(&hamlet, "1");
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    for answer in [read(&francisco), subscribe(&francisco)] {
        assert_error(&answer, "auth", "not-authorized", "presence-subscription-required");
    }
    denmark.engine.add_contact("hamlet", "francisco", Subscription::FROM);
    assert!(read(&francisco).contains("<item id='1'>"));
    assert!(subscribe(&francisco).contains("subscription='subscribed'"));
    let fields = [("pubsub#access_model", "roster"), ("pubsub#roster_groups_allowed", "friends|servants")];
    let configured = configure(&hamlet, &fields);
    assert_result(&hamlet, &configured, "");
    denmark.engine.befriend("hamlet", "bernardo");
    for answer in [read(&bernardo), subscribe(&bernardo)] {
        assert_error(&answer, "auth", "not-authorized", "not-in-roster-group");
    }
    denmark.engine.edit_roster_item("hamlet", "bernardo", |item| item.groups = vec!["servants".into()]);
    assert!(read(&bernardo).contains("<item id='1'>"));
    assert!(subscribe(&bernardo).contains("subscription='subscribed'"));
}

#[test]
fn section_4_5_whitelist_admits_members() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#access_model", "whitelist")]);
    publish(&hamlet, "1");
    let francisco = denmark.connect("francisco");
    for answer in [read(&francisco), subscribe(&francisco)] {
        assert_error(&answer, "cancel", "not-allowed", "closed-node");
    }
    affiliate(&hamlet, "francisco", "member");
    assert!(read(&francisco).contains("<item id='1'>"));
    assert!(subscribe(&francisco).contains("subscription='subscribed'"));
    assert!(subscribe(&hamlet).contains("subscription='subscribed'"), "an owner is on the whitelist");
    affiliate(&hamlet, "francisco", "none");
    publish(&hamlet, "2");
    assert!(!francisco.recv().concat().contains("<item id='2'>"), "who is removed loses the subscription");
}

#[test]
fn subscribers_who_lose_access_are_removed_when_the_model_changes() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    let full = format!("<subscribe node='{NODE}' jid='{}'/>", bernardo.full());
    subscribe(&francisco);
    set(&bernardo, &full);
    subscribe(&hamlet);
    configure(&hamlet, &[("pubsub#access_model", "whitelist")]);
    assert!(francisco.recv().concat().contains("subscription='none'"));
    assert!(bernardo.recv().concat().contains("subscription='none'"));
    publish(&hamlet, "1");
    assert!(francisco.recv().is_empty() && bernardo.recv().is_empty());
    assert!(get(&hamlet, "<subscriptions/>").contains("<subscription "), "the owner stays");
}

#[test]
fn section_7_1_who_may_publish() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    assert_error(&publish(&francisco, "1"), "auth", "forbidden", "");
    for affiliation in ["publisher", "publish-only"] {
        affiliate(&hamlet, "francisco", affiliation);
        assert!(publish(&francisco, "1").contains("type='result'"), "{affiliation}");
    }
    for affiliation in ["none", "member", "none", "outcast"] {
        affiliate(&hamlet, "francisco", affiliation);
        assert_error(&publish(&francisco, "1"), "auth", "forbidden", "");
    }
    configure(&hamlet, &[("pubsub#publish_model", "subscribers")]);
    assert_error(&publish(&bernardo, "2"), "auth", "forbidden", "");
    subscribe(&bernardo);
    assert!(publish(&bernardo, "2").contains("type='result'"));
    configure(&hamlet, &[("pubsub#publish_model", "open")]);
    assert!(publish(&denmark.connect("bard"), "3").contains("type='result'"));
    assert_error(&publish(&francisco, "4"), "auth", "forbidden", "");
}

#[test]
fn items_of_others_are_neither_overwritten_nor_retracted_by_others_who_may_publish() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[("pubsub#publish_model", "open")]);
    let (francisco, bernardo) = (denmark.connect("francisco"), denmark.connect("bernardo"));
    publish(&francisco, "mine");
    assert_error(&publish(&bernardo, "mine"), "auth", "forbidden", "");
    let retract = format!("<retract node='{NODE}'><item id='mine'/></retract>");
    assert_error(&set(&bernardo, &retract), "auth", "forbidden", "");
    assert!(publish(&francisco, "mine").contains("type='result'"));
    assert!(publish(&hamlet, "mine").contains("type='result'"), "an owner may");
    assert_error(&set(&francisco, &retract), "auth", "forbidden", "");
    assert_result(&hamlet, &set(&hamlet, &retract), "");
}

#[test]
fn administrators_own_every_node() {
    let denmark = Denmark::new();
    denmark.node(&[("pubsub#access_model", "whitelist")]);
    let bard = denmark.connect("bard");
    denmark.engine.node.set_admins([jid::Jid::parse("bard@example.com").unwrap()]);
    assert!(publish(&bard, "1").contains("type='result'"));
    assert!(owner_get(&bard, &format!("<configure node='{NODE}'/>")).contains("pubsub#access_model"));
}
