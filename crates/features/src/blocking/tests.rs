//! Tests of XEP-0191: its examples, each kind of stanza from and to blocked addresses, and floods.

use testkit::{NodeClient, TestNode, assert_same};
use throng_core::NodeLimits;

use super::*;
use crate::registry::ALL;

const ROMEO: &str = "romeo@example.net";

/// Juliet in the chamber and on the balcony, and Romeo, all available with mutual subscriptions.
fn stage() -> (TestNode, [NodeClient; 3]) {
    let engine = TestNode::new(ALL);
    engine.create_user(ROMEO);
    engine.create_user("juliet");
    engine.befriend(ROMEO, "juliet");
    let clients = online(&engine, [("juliet", "chamber"), ("juliet", "balcony"), (ROMEO, "orchard")]);
    (engine, clients)
}

fn online<const N: usize>(engine: &TestNode, clients: [(&str, &str); N]) -> [NodeClient; N] {
    let clients = clients.map(|(name, resource)| engine.connect(name, resource));
    for client in &clients {
        client.send("<presence/>");
    }
    for client in &clients {
        client.recv();
    }
    clients
}

fn get(client: &NodeClient) -> Vec<String> {
    client.request("<iq type='get' id='blocklist1'><blocklist xmlns='urn:xmpp:blocking'/></iq>")
}

fn items(jids: &[&str]) -> String {
    jids.iter().map(|jid| format!("<item jid='{jid}'/>")).collect()
}

fn set(client: &NodeClient, name: &str, jids: &[&str]) -> Vec<String> {
    let items = items(jids);
    client
        .request(&format!("<iq type='set' id='set1'><{name} xmlns='urn:xmpp:blocking'>{items}</{name}></iq>"))
}

/// Makes a change that succeeds; returns the other stanzas that the client received.
#[track_caller]
fn change(client: &NodeClient, name: &str, jids: &[&str]) -> Vec<String> {
    let mut got = set(client, name, jids);
    let result = format!("<iq type='result' to='{}' id='set1'/>", client.full());
    assert_eq!(got.pop(), Some(result), "{got:?}");
    got
}

/// Asserts a push to this client, with any id.
#[track_caller]
fn assert_push(got: &[String], client: &NodeClient, name: &str, jids: &[&str]) {
    let [push] = got else { panic!("{got:?}") };
    let (before, rest) = push.split_once(" id='").expect(push);
    let (_, after) = rest.split_once('\'').unwrap();
    let items = items(jids);
    let want = format!(
        "<iq to='{}' type='set'><{name} xmlns='urn:xmpp:blocking'>{items}</{name}></iq>",
        client.full()
    );
    assert_same(&[format!("{before}{after}")], &[want]);
}

/// Condition of the only stanza, which is an error.
#[track_caller]
fn condition(got: &[String]) -> &str {
    let [one] = got else { panic!("{got:?}") };
    let (_, rest) = one.split_once("<error type='").expect(one);
    let (_, rest) = rest.split_once("><").unwrap();
    rest.split_once(' ').unwrap().0
}

#[test]
fn sections_3_2_to_3_5_lists_and_pushes() {
    let (_engine, [chamber, balcony, romeo]) = stage();
    let list = |client: &NodeClient, jids: &[&str]| {
        let items = items(jids);
        let want = format!(
            "<iq type='result' id='blocklist1' to='{}'><blocklist xmlns='urn:xmpp:blocking'>{items}</blocklist></iq>",
            client.full()
        );
        assert_same(&get(client), &[want]);
    };
    // No resource has requested the list, so none gets pushes.
    assert!(change(&chamber, "block", &[ROMEO]).is_empty());
    list(&chamber, &[ROMEO]);
    assert_push(
        &change(&chamber, "block", &["iago@shakespeare.lit", ROMEO, ROMEO]),
        &chamber,
        "block",
        &["iago@shakespeare.lit", ROMEO],
    );
    assert!(balcony.recv().is_empty());
    list(&balcony, &["iago@shakespeare.lit", ROMEO]);
    // After the presence that was withheld.
    assert_push(&change(&chamber, "unblock", &[ROMEO])[1..], &chamber, "unblock", &[ROMEO]);
    assert_push(&balcony.recv()[1..], &balcony, "unblock", &[ROMEO]);
    list(&balcony, &["iago@shakespeare.lit"]);
    assert_push(&change(&balcony, "unblock", &[]), &balcony, "unblock", &[]);
    assert_push(&chamber.recv(), &chamber, "unblock", &[]);
    list(&chamber, &[]);
    romeo.recv();
    list(&romeo, &[]);
    assert!(!chamber.session.account.flags.has(flags::ACCOUNT_BLOCKS));
}

#[test]
fn section_3_3_nothing_from_a_blocked_contact_arrives() {
    let (_engine, [chamber, balcony, romeo]) = stage();
    change(&chamber, "block", &[ROMEO]);
    romeo.recv();
    for to in ["juliet@example.com", "juliet@example.com/chamber"] {
        for (stanza, answer) in [
            ("<message to='{}' type='chat'><body>x</body></message>", Some("service-unavailable")),
            ("<message to='{}'><body>x</body></message>", Some("service-unavailable")),
            ("<message to='{}' type='headline'><body>x</body></message>", None),
            ("<message to='{}' type='groupchat'><body>x</body></message>", None),
            ("<message to='{}' type='error'><body>x</body></message>", None),
            ("<iq to='{}' type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>", Some("service-unavailable")),
            ("<iq to='{}' type='set' id='1'><x xmlns='u:v'/></iq>", Some("service-unavailable")),
            ("<iq to='{}' type='result' id='1'/>", None),
            ("<iq to='{}' type='error' id='1'/>", None),
            ("<presence to='{}'/>", None),
            ("<presence to='{}' type='unavailable'/>", None),
            ("<presence to='{}' type='probe'/>", None),
            ("<presence to='{}' type='error'/>", None),
        ] {
            let got = romeo.request(&stanza.replace("{}", to));
            match answer {
                Some(answer) => assert_eq!(condition(&got), answer, "{stanza}"),
                None => assert!(got.is_empty(), "{stanza} {got:?}"),
            }
            assert!(chamber.recv().is_empty() && balcony.recv().is_empty(), "{stanza}");
        }
    }
    romeo.send("<presence><show>away</show></presence>");
    assert!(chamber.recv().is_empty() && balcony.recv().is_empty());
    // Everything arrives from another sender, and from Romeo after unblocking.
    change(&chamber, "unblock", &[ROMEO]);
    chamber.recv();
    romeo.send("<message to='juliet@example.com/chamber' type='chat'><body>x</body></message>");
    assert_eq!(chamber.recv().len(), 1);
}

#[test]
fn section_3_3_nothing_is_sent_to_a_blocked_contact() {
    let (_engine, [chamber, _balcony, romeo]) = stage();
    change(&chamber, "block", &[ROMEO]);
    romeo.recv();
    let got = chamber.request(
        "<message to='romeo@example.net' type='chat' id='1'><body>Can you hear me now?</body></message>",
    );
    assert_same(
        &got,
        &["<message type='error' from='romeo@example.net' to='juliet@example.com/chamber' id='1'>\
           <body>Can you hear me now?</body><error type='cancel'>\
           <not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/><blocked xmlns='urn:xmpp:blocking:errors'/>\
           </error></message>"],
    );
    for stanza in [
        "<message to='romeo@example.net/orchard' type='groupchat'><body>x</body></message>",
        "<iq to='romeo@example.net/orchard' type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>",
        "<presence to='romeo@example.net/orchard'/>",
        "<presence to='romeo@example.net' type='subscribe'/>",
        "<presence to='romeo@example.net' type='unsubscribed'/>",
        "<presence to='romeo@example.net' type='probe'/>",
    ] {
        assert_eq!(condition(&chamber.request(stanza)), "not-acceptable", "{stanza}");
        assert!(romeo.recv().is_empty(), "{stanza}");
    }
    // Errors and results are never answered.
    assert!(chamber.request("<iq to='romeo@example.net/orchard' type='result' id='1'/>").is_empty());
    chamber.send("<presence><show>away</show></presence>");
    assert!(romeo.recv().is_empty());
}

#[test]
fn section_3_3_contacts_see_the_user_leave_and_section_3_4_come_back() {
    let (engine, [chamber, balcony, romeo]) = stage();
    engine.create_user("nurse");
    engine.add_contact("nurse", "juliet", store::Subscription::FROM | store::Subscription::IN_ROSTER);
    engine.add_contact("juliet", "nurse", store::Subscription::TO | store::Subscription::IN_ROSTER);
    let [nurse] = online(&engine, [("nurse", "hall")]);
    [&chamber, &balcony].into_iter().for_each(|c| drop(c.recv()));
    change(&chamber, "block", &[ROMEO, "nurse@example.com"]);
    assert_same(
        &romeo.recv(),
        &[
            "<presence from='juliet@example.com/chamber' to='romeo@example.net' type='unavailable'/>",
            "<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>",
        ],
    );
    assert!(nurse.recv().is_empty(), "she may not see it");
    romeo.send("<presence><show>dnd</show></presence>");
    chamber.send("<presence><status>alone</status></presence>");
    [&chamber, &balcony, &romeo].into_iter().for_each(|c| drop(c.recv()));
    let got = change(&chamber, "unblock", &[ROMEO, "nurse@example.com"]);
    assert_same(
        &romeo.recv(),
        &[
            "<presence from='juliet@example.com/chamber' to='romeo@example.net'><status>alone</status></presence>",
            "<presence from='juliet@example.com/balcony' to='romeo@example.net'/>",
        ],
    );
    // The user also receives the withheld presence.
    let seen = |got: &[String]| got.iter().filter(|p| p.contains("<show>dnd</show>")).count();
    assert_eq!((seen(&got), seen(&balcony.recv())), (1, 1));
    assert!(nurse.recv().is_empty());
}

#[test]
fn directed_presence_to_a_blocked_entity_ends_with_unavailable() {
    let (engine, [chamber, ..]) = stage();
    engine.create_user("tybalt");
    let [tybalt] = online(&engine, [("tybalt", "street")]);
    chamber.send("<presence to='tybalt@example.com/street'/>");
    assert_eq!(tybalt.recv().len(), 1);
    change(&chamber, "block", &["tybalt@example.com"]);
    let gone =
        "<presence from='juliet@example.com/chamber' to='tybalt@example.com/street' type='unavailable'/>";
    assert_same(&tybalt.recv(), &[gone]);
    chamber.close();
    assert!(tybalt.recv().is_empty());
}

#[test]
fn section_6_blocking_a_single_resource_or_a_domain() {
    let (_engine, [chamber, _balcony, romeo]) = stage();
    let reaches = || {
        romeo.send("<message to='juliet@example.com/chamber' type='chat'><body>x</body></message>");
        romeo.recv();
        chamber.recv().len() == 1
    };
    let sees = || {
        romeo.send("<presence/>");
        romeo.recv();
        chamber.recv().len() == 1
    };
    for (entry, covered) in [
        ("romeo@example.net/orchard", true),
        ("romeo@example.net/home", false),
        ("example.net", true),
        ("example.net/orchard", true),
        ("example.org", false),
    ] {
        change(&chamber, "block", &[entry]);
        chamber.recv();
        assert_eq!((reaches(), sees()), (!covered, !covered), "{entry}");
        change(&chamber, "unblock", &[]);
        chamber.recv();
        romeo.recv();
        assert!(reaches() && sees(), "{entry}");
    }
    // A blocked resource does not see presence, its siblings do.
    change(&chamber, "block", &["romeo@example.net/orchard"]);
    assert_eq!(romeo.recv().len(), 2, "both of Juliet's resources have gone");
    chamber.send("<presence/>");
    assert!(romeo.recv().is_empty());
}

#[test]
fn section_5_the_own_account_and_the_own_server_are_not_locked_out() {
    let (engine, [chamber, balcony, _romeo]) = stage();
    engine.create_user("nurse");
    let [nurse] = online(&engine, [("nurse", "hall")]);
    change(&chamber, "block", &["juliet@example.com", "example.com", "juliet@example.com/balcony"]);
    chamber.send("<message to='juliet@example.com/balcony' type='chat'><body>x</body></message>");
    assert_eq!(balcony.recv().len(), 1);
    chamber.send("<presence><show>away</show></presence>");
    assert_eq!(balcony.recv().len(), 1);
    chamber.recv();
    let got = chamber.request("<iq to='example.com' type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert!(got.len() == 1 && got[0].contains("type='result'"), "{got:?}");
    let from: Jid = Jid::parse("example.com").unwrap();
    let frame = SharedStanza::parse(
        b"<message from='example.com' to='juliet@example.com/chamber'><body>x</body></message>",
    );
    let mut effects = Effects::default();
    effects.route(frame, from, chamber.session.jid.clone());
    engine.node.perform(effects);
    assert_eq!(chamber.recv().len(), 1);
    // Other users of the domain are blocked.
    let got = nurse.request("<message to='juliet@example.com' type='chat'><body>x</body></message>");
    assert_eq!(condition(&got), "service-unavailable");
}

#[test]
fn blocking_works_for_offline_users_with_one_store_query() {
    let (engine, [chamber, balcony, romeo]) = stage();
    engine.create_user("nurse");
    let [nurse] = online(&engine, [("nurse", "hall")]);
    change(&chamber, "block", &[ROMEO]);
    [&chamber, &balcony].into_iter().for_each(NodeClient::close);
    romeo.recv();
    engine.store_calls();
    for _ in 0..3 {
        let got = romeo.request("<message to='juliet@example.com' type='chat'><body>x</body></message>");
        assert_eq!(condition(&got), "service-unavailable");
        let got =
            romeo.request("<iq to='juliet@example.com' type='get' id='1'><vCard xmlns='vcard-temp'/></iq>");
        assert_eq!(condition(&got), "service-unavailable");
        for ty in ["subscribe", "unsubscribe", "probe"] {
            assert!(
                romeo.request(&format!("<presence to='juliet@example.com' type='{ty}'/>")).len() <= 1,
                "his own push"
            );
        }
    }
    let blocklist_reads = |engine: &TestNode| {
        engine.store_calls().into_iter().filter(|call| *call == "blocklists.blocklist").count()
    };
    assert_eq!(blocklist_reads(&engine), 1);
    nurse.send("<message to='juliet@example.com' type='chat'><body>from a friend</body></message>");
    assert_eq!(blocklist_reads(&engine), 0, "the list is known");
    let stored = engine.stored_roster_item("juliet", ROMEO).unwrap();
    assert!(!stored.subscription.contains(store::Subscription::PENDING_IN));
}

#[test]
fn stored_messages_of_a_blocked_sender_are_discarded() {
    let (engine, [chamber, ..]) = stage();
    change(&chamber, "block", &[ROMEO]);
    for (from, arrives) in [(ROMEO, false), ("nurse@example.com", true)] {
        for text in [
            "<message from='{}/x' type='chat'><body>x</body></message>",
            "<presence from='{}' type='subscribe'/>",
        ] {
            let frame = SharedStanza::from_store(text.replace("{}", from).as_bytes(), 1).unwrap();
            assert!(engine.node.enqueue(&chamber.session, frame, throng_core::session::ToRewrite::None));
            assert_eq!(chamber.recv().len() == 1, arrives, "{text} from {from}");
        }
    }
}

#[test]
fn the_blocklist_persists_and_is_loaded_at_login() {
    let (engine, [chamber, balcony, romeo]) = stage();
    change(&chamber, "block", &[ROMEO]);
    [&chamber, &balcony].into_iter().for_each(NodeClient::close);
    // A login that read the old list before a change.
    let late = engine.principal("juliet");
    let [one] = online(&engine, [("juliet", "a")]);
    assert_eq!(get(&one).concat().matches("<item ").count(), 1);
    change(&one, "block", &["tybalt@example.com"]);
    one.close();
    let two = engine.bind(late, "b").unwrap();
    engine.run_tasks();
    assert_eq!(get(&two).concat().matches("<item ").count(), 2);
    romeo.recv();
    let got = romeo.request("<message to='juliet@example.com/b' type='chat'><body>x</body></message>");
    assert_eq!(condition(&got), "service-unavailable");
}

#[test]
fn malformed_requests_are_refused() {
    let (_engine, [chamber, ..]) = stage();
    let ask = |inside: &str| {
        let got = chamber.request(&format!("<iq type='set' id='1'>{inside}</iq>"));
        condition(&got).to_owned()
    };
    let block = |inside: &str| ask(&format!("<block xmlns='urn:xmpp:blocking'>{inside}</block>"));
    assert_eq!(block(""), "bad-request");
    assert_eq!(block("<item/>"), "bad-request");
    assert_eq!(block("<item xmlns='u:v' jid='a@b'/>"), "bad-request");
    assert_eq!(block("<item jid='a@b'/><other/>"), "bad-request");
    assert_eq!(block("<item jid='a@b'/><item jid='a@@b'/>"), "jid-malformed");
    assert_eq!(block("<item jid=''/>"), "jid-malformed");
    assert_eq!(ask("<unblock xmlns='urn:xmpp:blocking'><item jid='@'/></unblock>"), "jid-malformed");
    assert_eq!(ask("<blocklist xmlns='urn:xmpp:blocking'/>"), "service-unavailable");
    assert!(!get(&chamber).concat().contains("<item"), "nothing was blocked");
    for to in ["romeo@example.net", "example.com"] {
        let got = chamber.request(&format!(
            "<iq type='set' id='1' to='{to}'><block xmlns='urn:xmpp:blocking'><item jid='a@b'/></block></iq>"
        ));
        assert_eq!(condition(&got), "service-unavailable", "{to}");
    }
}

#[test]
fn an_anonymous_user_has_no_blocklist() {
    let engine = TestNode::new(ALL);
    let guest = engine.connect_anonymous("guest", "x");
    assert_eq!(condition(&set(&guest, "block", &[ROMEO])), "not-allowed");
    assert!(!get(&guest).concat().contains("<item"));
}

#[test]
fn a_flood_ends_at_the_limit_and_affects_no_other_user() {
    let engine = TestNode::with_options(&FEATURE, &[("max_entries", OptionValue::Int(5))]);
    engine.create_user("juliet");
    engine.create_user("nurse");
    let [juliet, nurse] = online(&engine, [("juliet", "a"), ("nurse", "b")]);
    get(&juliet);
    for n in 0..5 {
        change(&juliet, "block", &[&format!("u{n}@x")]);
    }
    let many: Vec<String> = (0..4000).map(|n| format!("user{n}@x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for request in [&many[..], &["new@x"]] {
        let got = set(&juliet, "block", request);
        assert_eq!(condition(&got), "not-allowed");
        assert!(got[0].len() < 1000, "the error does not quote the request");
    }
    // A listed address may be blocked again, and removing an entry makes room.
    change(&juliet, "block", &["u0@x"]);
    change(&juliet, "unblock", &["u1@x"]);
    change(&juliet, "block", &["new@x"]);
    assert_eq!(get(&juliet).concat().matches("<item ").count(), 5);
    change(&nurse, "block", &["u0@x"]);
}

#[test]
fn a_blocklist_has_no_more_text_than_a_roster() {
    let limits = NodeLimits { roster_bytes: 3_000, ..NodeLimits::default() };
    let engine = TestNode::with_limits(&[&FEATURE], limits.clone());
    engine.create_user("juliet");
    let [juliet] = online(&engine, [("juliet", "a")]);
    // Apostrophes become six bytes each.
    let address = |n: u32| format!("u@x/{n}{}", "&apos;".repeat(990));
    for n in 0..3 {
        change(&juliet, "block", &[&address(n)]);
    }
    let refused = set(&juliet, "block", &[&address(3)]);
    assert_eq!(condition(&refused), "not-allowed");
    assert!(get(&juliet).concat().len() < limits.outgoing_stanza_bytes() as usize);
}

#[test]
fn a_failing_store_changes_nothing() {
    let (engine, [chamber, balcony, romeo]) = stage();
    engine.set_store_failing(true);
    condition(&set(&chamber, "block", &[ROMEO]));
    romeo.send("<message to='juliet@example.com/chamber' type='chat'><body>x</body></message>");
    assert_eq!(chamber.recv().len(), 1);
    // The rules of an absent user are unknown: the message is not delivered.
    [&chamber, &balcony].into_iter().for_each(NodeClient::close);
    romeo.recv();
    let got = romeo.request("<message to='juliet@example.com' type='chat'><body>x</body></message>");
    assert!(got.len() == 1 && got[0].contains("type='error'"), "{got:?}");
}

#[test]
fn section_3_3_presence_is_not_answered_when_the_store_fails() {
    for (blocked, connected) in [(true, false), (false, false), (true, true), (false, true)] {
        let engine = TestNode::new(ALL);
        engine.create_user("juliet");
        engine.create_user(ROMEO);
        if blocked {
            let jid = Jid::parse("juliet@example.com").unwrap();
            let add = vec![Jid::parse(ROMEO).unwrap()];
            let remove = Unblock::These(vec![]);
            engine.block_on(engine.stores.blocklists.update_blocklist(jid.as_ref(), add, remove, 9)).unwrap();
        }
        let [romeo] = online(&engine, [(ROMEO, "orchard")]);
        let juliet = connected.then(|| online(&engine, [("juliet", "chamber")]));
        engine.set_store_failing(true);
        for ty in ["probe", "subscribe", "subscribed", "unsubscribe", "unsubscribed"] {
            // As routed after the sender's own side, which needs the store for subscriptions.
            let from = romeo.session.jid.clone();
            let text = format!("<presence from='{from}' to='juliet@example.com' type='{ty}'/>");
            let mut effects = Effects::default();
            let to = Jid::parse("juliet@example.com").unwrap();
            effects.route(SharedStanza::parse(text.as_bytes()), from, to);
            engine.node.perform(effects);
            engine.run_tasks();
            assert_eq!(
                romeo.recv(),
                Vec::<String>::new(),
                "{ty}, blocked: {blocked}, connected: {connected}"
            );
        }
        let dropped = engine.node.metrics.stanzas_dropped.sum();
        assert_eq!(dropped, 5, "blocked: {blocked}, connected: {connected}");
        drop(juliet);
    }
}

#[test]
fn xep_0377_section_6_a_report_is_logged_with_the_block() {
    let (_engine, [chamber, ..]) = stage();
    let item = |report: &str| {
        let got = chamber.request(&format!(
            "<iq type='set' id='block1'><block xmlns='urn:xmpp:blocking'><item jid='{ROMEO}'>{report}</item></block></iq>"
        ));
        got.last().unwrap().contains("type='result'")
    };
    let report = "<report xmlns='urn:xmpp:reporting:1' reason='urn:xmpp:reporting:spam'>\
                  <stanza-id xmlns='urn:xmpp:sid:0' by='romeo@example.net' id='28482-98726-73623'/>\
                  <text xml:lang='en'> Never came trouble to my house like this. </text></report>";
    let text = format!(
        "<iq type='set' id='1'><block xmlns='urn:xmpp:blocking'><item jid='{ROMEO}'>{report}</item></block></iq>"
    );
    let tree = throng_core::shared_stanza::tree(text.as_bytes()).unwrap();
    let BlocklistRequest { jids, reports } = parse_request(&tree, true).unwrap();
    assert_eq!((jids.len(), reports.len()), (1, 1));
    assert_eq!(
        (reports[0].reason.as_str(), reports[0].text.as_str(), reports[0].messages),
        ("urn:xmpp:reporting:spam", "Never came trouble to my house like this.", 1)
    );
    assert!(item(report));
    // A malformed report is ignored.
    assert!(item("<report xmlns='urn:xmpp:reporting:1'/>"));
    assert_eq!(get(&chamber).concat().matches("<report").count(), 0);
}

#[test]
fn concurrent_changes_agree_with_the_store() {
    let (engine, [chamber, balcony, _romeo]) = stage();
    let account = chamber.session.account.clone();
    let node = &engine.node;
    let jid = |text: &str| Jid::parse(text).unwrap();
    // Both start before either completes, and complete in reverse order.
    let views = node.account_views();
    let one = views.update_blocklist(node, &account.jid, vec![jid("a@x")], Unblock::These(vec![]), 9);
    let two =
        views.update_blocklist(node, &account.jid, vec![jid("b@x")], Unblock::These(vec![jid("a@x")]), 9);
    let (_, two) = engine.block_on(two).unwrap();
    let (_, one) = engine.block_on(one).unwrap();
    engine.block_on(async { (two.await, one.await) });
    let stored = engine.block_on(engine.stores.blocklists.blocklist(account.jid.as_ref())).unwrap();
    let view = balcony.session.account.blocked().unwrap();
    let mut sorted = stored.clone();
    sorted.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    assert_eq!(view.entries(), sorted);
}
