//! Tests of RFC 6121, section 2: the roster.

use store::Subscription;
use testkit::{TestNode, assert_same};
use throng_core::NodeLimits;

use super::{
    FEATURES, JULIET, ROMEO, error, is, online, push, two_unrelated_users, without_id, without_random_parts,
};

const GET: &str = "<iq id='hu2bac18' type='get'><query xmlns='jabber:iq:roster'/></iq>";

fn result(id: &str, items: &str) -> String {
    format!(
        "<iq id='{id}' to='juliet@example.com/balcony' type='result'><query xmlns='jabber:iq:roster' ver='*'>{items}</query></iq>"
    )
}

fn set(id: &str, item: &str) -> String {
    format!("<iq id='{id}' type='set'><query xmlns='jabber:iq:roster'>{item}</query></iq>")
}

fn version(stanza: &str) -> String {
    let at = stanza.find("ver='").unwrap() + 5;
    stanza[at..].split('\'').next().unwrap().to_owned()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.1.1
//= type=test
//# which MUST be the full JID of the client; however, if the stanza does not include a 'to' address then the client
//# MUST treat it as if the 'to' address were included with a value of the client's full JID.
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.3
//= type=test
//# If the server receives an IQ stanza with no 'to' attribute, it MUST process the stanza on behalf of the account
//# from which received the stanza, as follows:
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.3
//= type=test
//# the server MUST handle the stanza on behalf of the sending entity or return an appropriate error to the sending
//# entity.
//= https://www.rfc-editor.org/rfc/rfc6121#section-2
//= type=test
//# When the user adds items to the roster or modifies existing items, if an error does not occur then the server
//# SHOULD store that data unmodified if at all possible and MUST return the data it has stored when an authorized
//# client requests the roster.
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.2.3
//= type=test
//# The 'jid' attribute is REQUIRED whenever a client or server adds, updates, deletes, or returns a roster item.
//= https://www.rfc-editor.org/rfc/rfc6121#section-12
//= type=test
//# Feature: roster-get. Description: Treat an IQ stanza of type "get" containing an empty <query/> element
//# qualified by the 'jabber:iq:roster' namespace as a request to retrieve the roster information associated with an
//# account on a server. Section: Section 2.1.3. Roles: Client MUST, Server MUST.
#[test]
fn section_2_2_the_roster_is_read_at_login() {
    let engine = two_unrelated_users();
    engine.edit_roster_item(JULIET, ROMEO, |item| {
        item.subscription = Subscription::BOTH | Subscription::IN_ROSTER;
        item.name = Some("Romeo".into());
        item.groups = vec!["Friends".into()];
    });
    engine.add_contact(JULIET, "mercutio@example.com", Subscription::FROM | Subscription::IN_ROSTER);
    engine.add_contact(JULIET, "unknown@example.org", Subscription::PENDING_IN);
    let juliet = engine.connect(JULIET, "balcony");
    engine.store_calls();
    assert_same(
        &without_random_parts(juliet.request(GET)),
        &[result(
            "hu2bac18",
            "<item jid='romeo@example.net' name='Romeo' subscription='both'><group>Friends</group></item>
             <item jid='mercutio@example.com' subscription='from'/>",
        )],
    );
    assert!(engine.store_calls().is_empty(), "the login read it already");
    assert_eq!(juliet.request(GET).len(), 1);
    assert_eq!(engine.store_calls(), ["roster.get"], "the second time it is read anew");
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.4
//= type=test
//# If the roster exists but there are no contacts in the roster, then the server MUST return an IQ-result
//# containing a child <query/> element that in turn contains no <item/> children
#[test]
fn section_2_1_4_an_empty_roster_is_an_empty_query() {
    let engine = two_unrelated_users();
    let juliet = engine.connect(JULIET, "balcony");
    assert_same(&without_random_parts(juliet.request(GET)), &[result("hu2bac18", "")]);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.3
//= type=test
//# where the <query/> element MUST NOT contain any <item/> child elements.
#[test]
fn section_2_1_3_a_get_holds_no_item() {
    let engine = two_unrelated_users();
    let juliet = engine.connect(JULIET, "balcony");
    let wrong = "<iq id='1' type='get'><query xmlns='jabber:iq:roster'><item jid='a@b'/></query></iq>";
    assert_eq!(error(&juliet.request(wrong)), is("modify", "bad-request"));
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.2.1
//= type=test
//# the stanza MUST either (a) not include a 'from' attribute or (b) include a 'from' attribute whose value is the
//# account's bare JID
#[test]
fn section_2_3_adding_an_item_reaches_interested_resources_only() {
    let engine = two_unrelated_users();
    let balcony = online(&engine, JULIET, "balcony");
    let chamber = online(&engine, JULIET, "chamber");
    let garden = engine.connect(JULIET, "garden");
    balcony.recv();
    let item = "<item jid='nurse@example.com' name='Nurse'><group>Servants</group></item>";
    let pushed =
        "<item jid='nurse@example.com' name='Nurse' subscription='none'><group>Servants</group></item>";
    assert_same(
        &without_random_parts(balcony.request(&set("ph1xaz53", item))),
        &[
            push("juliet@example.com/balcony", pushed),
            "<iq id='ph1xaz53' to='juliet@example.com/balcony' type='result'/>".into(),
        ],
    );
    assert_same(&without_random_parts(chamber.recv()), &[push("juliet@example.com/chamber", pushed)]);
    assert!(garden.recv().is_empty(), "it never asked for the roster");
    assert!(garden.request(GET)[0].contains("Nurse"));
}

#[test]
fn a_roster_is_limited_in_bytes_and_may_always_become_smaller() {
    let engine =
        TestNode::with_limits(&FEATURES, NodeLimits { roster_bytes: 2_000, ..NodeLimits::default() });
    engine.create_user(JULIET);
    let juliet = engine.connect(JULIET, "balcony");
    let put = |jid: &str, bytes: usize| {
        juliet.request(&set("e", &format!("<item jid='{jid}@example.com' name='{}'/>", "x".repeat(bytes))))
    };
    let full = |answer: Vec<String>| assert_eq!(error(&answer), is("modify", "policy-violation"));
    let done = |answer: Vec<String>| assert!(answer[0].contains("type='result'"), "{answer:?}");
    done(put("nurse", 900));
    done(put("tybalt", 900));
    full(put("mother", 200));
    assert!(engine.stored_roster_item(JULIET, "mother@example.com").is_none());
    // An existing entry may grow within the bytes that are left, and shrink whatever the limit is.
    done(put("nurse", 1_020));
    full(put("tybalt", 1_020));
    let limits = NodeLimits { roster_bytes: 500, ..NodeLimits::default() };
    engine.node.set_limits(limits);
    done(put("nurse", 800));
    full(juliet.request("<presence id='s' type='subscribe' to='mother@example.com'/>"));
    done(put("nurse", 1));
    done(put("tybalt", 1));
    done(put("mother", 200));
}

#[test]
fn section_2_3_3_invalid_items_are_refused() {
    let engine = TestNode::with_limits(&FEATURES, NodeLimits { roster_items: 2, ..NodeLimits::default() });
    engine.create_user(JULIET);
    let juliet = engine.connect(JULIET, "balcony");
    let ask = |item: &str| error(&juliet.request(&set("e", item)));
    let nurse = |inner: &str| format!("<item jid='nurse@example.com'>{inner}</item>");
    assert_eq!(
        ask("<item jid='nurse@example.com'/><item jid='mother@example.com'/>"),
        is("modify", "bad-request")
    );
    assert_eq!(ask(""), is("modify", "bad-request"));
    assert_eq!(ask("<item name='x'/>"), is("modify", "bad-request"));
    assert_eq!(ask(&nurse("<group>Servants</group><group>Servants</group>")), is("modify", "bad-request"));
    assert_eq!(ask(&nurse("<group></group>")), is("modify", "not-acceptable"));
    assert_eq!(ask(&nurse(&format!("<group>{}</group>", "x".repeat(1024)))), is("modify", "not-acceptable"));
    let many: String = (0..51).map(|n| format!("<group>{n}</group>")).collect();
    assert_eq!(ask(&nurse(&many)), is("modify", "not-acceptable"));
    let long = format!("<item jid='nurse@example.com' name='{}'/>", "x".repeat(1024));
    assert_eq!(ask(&long), is("modify", "not-acceptable"));
    assert_eq!(ask("<item jid='nur se@example.com'/>"), is("modify", "jid-malformed"));
    assert_eq!(ask("<item jid='juliet@example.com'/>"), is("cancel", "not-allowed"));
    assert_eq!(ask("<item jid='nobody@example.com' subscription='remove'/>"), is("modify", "item-not-found"));
    for name in ["nurse", "mother"] {
        juliet.request(&set("ok", &format!("<item jid='{name}@example.com'/>")));
    }
    assert_eq!(ask("<item jid='one@example.com'/>"), is("modify", "policy-violation"), "the roster is full");
    assert!(
        juliet.request(&set("ok", "<item jid='nurse@example.com' name='N'/>"))[0].contains("type='result'")
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2
//= type=test
//# Security Warning: Because the user's roster can contain confidential data, the server MUST restrict access to
//# this data so that only authorized entities
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.5
//= type=test
//# Therefore, the entity that processes a roster set MUST verify that the sender of the roster set is authorized to
//# update the roster, and if not return a <forbidden/> error.
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.3.3
//= type=test
//# The server MUST return a <forbidden/> stanza error to the client if the sender of the roster set is not
//# authorized to update the roster
#[test]
fn section_2_3_3_the_roster_of_another_user_is_forbidden() {
    let engine = two_unrelated_users();
    let juliet = engine.connect(JULIET, "balcony");
    let item = "<query xmlns='jabber:iq:roster'><item jid='nurse@example.com'/></query>";
    let got = juliet.request(&format!("<iq id='ix7s53v2' to='romeo@example.net' type='set'>{item}</iq>"));
    assert_eq!(error(&got), is("auth", "forbidden"));
    let get = "<iq id='1' to='romeo@example.net' type='get'><query xmlns='jabber:iq:roster'/></iq>";
    assert_eq!(error(&juliet.request(get)), is("auth", "forbidden"));
    assert!(engine.stored_roster_item(ROMEO, "nurse@example.com").is_none());
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.2.5
//= type=test
//# in a roster set the server MUST ignore all values of the 'subscription' attribute other than "remove".
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.5
//= type=test
//# The server MUST ignore any value of the 'subscription' attribute other than "remove" (see Section 2.1.2.5).
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.4.1
//= type=test
//# Because a roster item is atomic, the item MUST be updated exactly as provided in the roster set.
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.4.2
//= type=test
//# As with adding a roster item, if the roster item can be successfully processed then the server MUST update the
//# item in the user's roster, send a roster push to all of the user's interested resources
#[test]
fn section_2_4_an_update_replaces_the_item_and_keeps_the_subscription() {
    let engine = two_unrelated_users();
    engine.edit_roster_item(JULIET, ROMEO, |item| {
        item.subscription = Subscription::TO | Subscription::IN_ROSTER;
        item.name = Some("Romeo".into());
        item.groups = vec!["Friends".into()];
    });
    let juliet = online(&engine, JULIET, "balcony");
    let wrong = "<item jid='romeo@example.net' name='' subscription='both' ask='subscribe' approved='true'/>";
    assert_same(
        &without_random_parts(juliet.request(&set("1", wrong)))[..1],
        &[push("juliet@example.com/balcony", "<item jid='romeo@example.net' subscription='to'/>")],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.5.2
//= type=test
//# As with adding a roster item, if the server can successfully process the roster set then it MUST update the item
//# in the user's roster, send a roster push to all of the user's interested resources
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.5.2
//= type=test
//# If the user has a presence subscription to the contact, then the user's server MUST send a presence stanza of
//# type "unsubscribe" to the contact (in order to unsubscribe from the contact's presence).
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.5.2
//= type=test
//# If the contact has a presence subscription to the user, then the user's server MUST send a presence stanza of
//# type "unsubscribed" to the contact
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.5.2
//= type=test
//# If the presence subscription is mutual, then the user's server MUST send both a presence stanza of type
//# "unsubscribe" and a presence stanza of type "unsubscribed" to the contact.
#[test]
fn section_2_5_removing_ends_both_subscriptions() {
    let engine = two_unrelated_users();
    engine.befriend(JULIET, ROMEO);
    let juliet = online(&engine, JULIET, "balcony");
    let romeo = online(&engine, ROMEO, "orchard");
    juliet.recv();
    let got = without_random_parts(
        juliet.request(&set("hm4hs97y", "<item jid='romeo@example.net' subscription='remove'/>")),
    );
    assert_same(
        &got,
        &[
            push("juliet@example.com/balcony", "<item jid='romeo@example.net' subscription='remove'/>"),
            "<presence from='romeo@example.net/orchard' to='juliet@example.com' type='unavailable'/>".into(),
            "<iq id='hm4hs97y' to='juliet@example.com/balcony' type='result'/>".into(),
        ],
    );
    let received: Vec<String> = romeo.recv().into_iter().map(|s| without_id(&s)).collect();
    let pushed = |state: &str| {
        push("romeo@example.net/orchard", &format!("<item jid='juliet@example.com' subscription='{state}'/>"))
    };
    assert_same(
        &without_random_parts(received),
        &[
            "<presence from='juliet@example.com' to='romeo@example.net' type='unsubscribe'/>".into(),
            pushed("to").replace(" id='*'", ""),
            "<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>".into(),
            "<presence from='juliet@example.com' to='romeo@example.net' type='unsubscribed'/>".into(),
            pushed("none").replace(" id='*'", ""),
        ],
    );
    assert!(engine.stored_roster_item(JULIET, ROMEO).is_none());
    juliet.send("<presence><show>away</show></presence>");
    assert!(romeo.recv().is_empty(), "no presence after the end");
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.1
//= type=test
//# A server MUST process a roster set and outbound presence subscription request in either order (i.e., in whatever
//# order generated by the client).
#[test]
fn section_2_5_an_unanswered_request_outlives_the_item() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    let romeo = online(&engine, ROMEO, "orchard");
    juliet.send(&set("1", "<item jid='romeo@example.net'/>"));
    romeo.send("<presence to='juliet@example.com' type='subscribe'/>");
    juliet.send(&set("2", "<item jid='romeo@example.net' subscription='remove'/>"));
    juliet.recv();
    let stored = engine.stored_roster_item(JULIET, ROMEO).unwrap();
    assert_eq!(stored.subscription, Subscription::PENDING_IN);
    assert!(online_presence(&juliet).contains("type='subscribe'"));
}

/// Becomes unavailable and available again.
fn online_presence(client: &testkit::NodeClient) -> String {
    client.send("<presence type='unavailable'/>");
    client.recv();
    client.request("<presence/>").join("")
}

#[test]
fn section_2_6_only_a_changed_roster_is_sent_again() {
    let engine = two_unrelated_users();
    let first = online(&engine, JULIET, "chamber");
    let ask = |client: &testkit::NodeClient, ver: &str| {
        client.request(&format!("<iq id='v' type='get'><query xmlns='jabber:iq:roster' ver='{ver}'/></iq>"))
    };
    let whole = ask(&first, "");
    let old = version(&whole[0]);
    assert_same(&ask(&first, &old), &["<iq id='v' to='juliet@example.com/chamber' type='result'/>"]);
    let pushed = first.request(&set("1", "<item jid='nurse@example.com'/>"));
    let new = version(&pushed[0]);
    assert_ne!(old, new, "a push names the version that it leads to");
    let second = engine.connect(JULIET, "balcony");
    engine.store_calls();
    assert_same(&ask(&second, &new), &["<iq id='v' to='juliet@example.com/balcony' type='result'/>"]);
    assert!(engine.store_calls().is_empty());
    let third = engine.connect(JULIET, "garden");
    let whole = ask(&third, &old);
    assert!(whole[0].contains("nurse@example.com"), "a full roster instead of interim pushes");
    assert_eq!(version(&whole[0]), new);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.2
//= type=test
//# If the server cannot process the roster get, it MUST return an appropriate stanza error as described in
//# [XMPP-CORE]
#[test]
fn a_failing_store_is_an_error_and_changes_nothing() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    engine.set_store_failing(true);
    assert_eq!(error(&juliet.request(GET)), is("wait", "resource-constraint"));
    assert_eq!(
        error(&juliet.request(&set("1", "<item jid='nurse@example.com'/>"))),
        is("wait", "resource-constraint")
    );
    engine.set_store_failing(false);
    assert!(engine.stored_roster_item(JULIET, "nurse@example.com").is_none());
}

#[test]
fn an_anonymous_user_has_an_empty_roster_that_stays_empty() {
    let engine = two_unrelated_users();
    let guest = engine.connect_anonymous("guest", "x");
    engine.store_calls();
    let got = guest.request(GET);
    assert!(got[0].contains("type='result'") && !got[0].contains("<item"), "{got:?}");
    assert_eq!(
        error(&guest.request(&set("1", "<item jid='nurse@example.com'/>"))),
        is("cancel", "not-allowed")
    );
    assert_eq!(
        error(&guest.request("<presence to='romeo@example.net' type='subscribe'/>")),
        is("cancel", "not-allowed")
    );
    assert!(engine.store_calls().is_empty(), "the store knows nothing of it");
}

#[test]
fn the_roster_read_at_login_is_released_when_the_resource_becomes_available() {
    let engine = two_unrelated_users();
    let juliet = engine.connect(JULIET, "balcony");
    assert!(juliet.session.account.with(|state| state.prefetched().is_some()));
    juliet.send("<presence/>");
    assert!(juliet.session.account.with(|state| state.prefetched().is_none()));
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-2.6.3
//= type=test
//# Roster pushes MUST occur in order of modification and the version contained in a roster push MUST be unique.
#[test]
fn changes_reported_out_of_order_leave_no_stale_view() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    engine.add_contact(JULIET, ROMEO, Subscription::BOTH | Subscription::IN_ROSTER);
    let old = engine.stored_roster_item(JULIET, ROMEO).unwrap();
    engine.add_contact(JULIET, ROMEO, Subscription::IN_ROSTER);
    let account = &juliet.session.account;
    let (owner, contact) = (account.jid.as_ref(), jid::Jid::parse(ROMEO).unwrap());
    let version = account.with(|state| state.roster_version);
    let (hash, id) = (engine.node.routing_table.hash(contact.as_ref()), old.contact);
    let late = store::RosterUpdateOutcome { before: None, after: Some(old), version: version - 1 };
    assert!(!engine.node.roster_changed(owner, contact.as_ref(), &late));
    engine.run_tasks();
    assert_eq!(
        account.with(|state| state.find(hash, id)),
        Subscription::IN_ROSTER,
        "read again from the store"
    );
}

/// Another login has read the roster before the change.
#[test]
fn a_client_that_has_missed_a_push_does_not_receive_what_another_login_has_read() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    let _other = engine.connect(JULIET, "chamber");
    assert!(juliet.session.account.with(|state| state.prefetched().is_some()));
    // Another node changes it, and this one does not learn that.
    let (contact, owner) = (jid::Jid::parse(ROMEO).unwrap(), juliet.session.account.id);
    let mut item = store::RosterItem::new(contact.clone());
    item.subscription = Subscription::IN_ROSTER;
    let change = Box::new(move |_| store::RosterUpdate::Put(item));
    engine.block_on(engine.node.stores.roster.update(owner, &contact, change)).unwrap();
    juliet.session.flags.set(throng_core::session::flags::MAY_LACK_ROSTER_PUSH);
    let get = "<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>";
    let answer = juliet.request(get).concat();
    assert!(answer.contains(ROMEO), "{answer}");
}
