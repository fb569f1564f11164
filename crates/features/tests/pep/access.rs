//! Section 4.3 with the access models of XEP-0060, section 4.5; XEP-0191.

use super::*;

const ITEMS: &str = "<items node='urn:x'/>";
const JULIET: &str = "juliet@example.com";

fn with_model(fields: &[(&str, &str)]) -> (TestNode, NodeClient) {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &["urn:x"]);
    create(&juliet, "urn:x", fields);
    publish(&juliet, "urn:x", "1");
    (engine, juliet)
}

/// What each user is answered, and whether it receives the next event without a subscription.
fn access(engine: &TestNode, juliet: &NodeClient) -> Vec<(&'static str, &'static str, bool)> {
    let users = ["romeo", "nurse", "benvolio"];
    let clients = users.map(|user| (user, connect(engine, user, "x", &["urn:x"])));
    let own = publish(juliet, "urn:x", "2");
    assert_eq!(events(&own), ["urn:x 2"], "own clients always");
    let of = |(user, client): &(&'static str, NodeClient)| {
        let receives = !events(&client.recv()).is_empty();
        let answer = get(client, JULIET, ITEMS);
        let conditions = [SECRET, RESULT];
        let condition = conditions.into_iter().find(|condition| answer.contains(condition));
        (*user, condition.unwrap_or_else(|| panic!("{answer}")), receives)
    };
    let found = clients.iter().map(of).collect();
    clients.iter().for_each(|(_, client)| client.close());
    found
}

const RESULT: &str = "type='result'";
/// Those who may not read a node do not learn that it exists.
const SECRET: &str = "<item-not-found ";

#[test]
fn presence_is_the_default() {
    let (engine, juliet) = with_model(&[]);
    let refused = SECRET;
    let want = [("romeo", RESULT, true), ("nurse", RESULT, true), ("benvolio", refused, false)];
    assert_eq!(access(&engine, &juliet), want);
}

#[test]
fn an_open_node_is_read_by_all_and_pushed_to_contacts() {
    let (engine, juliet) = with_model(&[("access_model", "open")]);
    let want = [("romeo", RESULT, true), ("nurse", RESULT, true), ("benvolio", RESULT, false)];
    assert_eq!(access(&engine, &juliet), want);
}

#[test]
fn roster_groups() {
    let (engine, juliet) = with_model(&[("access_model", "roster"), ("roster_groups_allowed", "Servants")]);
    let refused = SECRET;
    let want = [("romeo", refused, false), ("nurse", RESULT, true), ("benvolio", refused, false)];
    assert_eq!(access(&engine, &juliet), want);
}

#[test]
fn a_whitelist_is_for_members() {
    let (engine, juliet) = with_model(&[("access_model", "whitelist")]);
    let refused = SECRET;
    let want = [("romeo", refused, false), ("nurse", refused, false), ("benvolio", refused, false)];
    assert_eq!(access(&engine, &juliet), want);
    let affiliate = "<affiliations node='urn:x'><affiliation jid='romeo@example.com' affiliation='member'/></affiliations>";
    let done = answer(pubsub(&juliet, "", "set", "#owner", affiliate));
    assert!(done.contains(RESULT), "{done}");
    assert_eq!(access(&engine, &juliet)[0], ("romeo", RESULT, true));
}

#[test]
fn an_outcast_receives_nothing() {
    let (engine, juliet) = with_model(&[("access_model", "open")]);
    let affiliate = "<affiliations node='urn:x'><affiliation jid='romeo@example.com' affiliation='outcast'/></affiliations>";
    answer(pubsub(&juliet, "", "set", "#owner", affiliate));
    let romeo = connect(&engine, "romeo", "x", &["urn:x"]);
    publish(&juliet, "urn:x", "2");
    assert!(events(&romeo.recv()).is_empty());
    assert!(get(&romeo, JULIET, ITEMS).contains(SECRET));
}

#[test]
fn blocked_and_removed_contacts_receive_nothing() {
    let (engine, juliet) = with_model(&[]);
    let romeo = connect(&engine, "romeo", "x", &["urn:x"]);
    let nurse = connect(&engine, "nurse", "x", &["urn:x"]);
    let block = |client: &NodeClient, whom: &str| {
        client.request(&format!(
            "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='{whom}@example.com'/></block></iq>"
        ));
    };
    block(&juliet, "romeo");
    romeo.recv();
    publish(&juliet, "urn:x", "2");
    assert!(events(&romeo.recv()).is_empty(), "the owner blocks the contact");
    assert_eq!(events(&nurse.recv()), ["urn:x 2"]);
    romeo.close();
    let romeo = engine.connect("romeo", "y");
    assert!(events(&become_available(&romeo, &["urn:x"])).is_empty(), "neither the last item");
    juliet.close();
    romeo.close();
    let romeo = engine.connect("romeo", "z");
    assert!(events(&become_available(&romeo, &["urn:x"])).is_empty(), "neither while the owner is offline");
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    block(&nurse, "juliet");
    nurse.recv();
    publish(&juliet, "urn:x", "3");
    assert!(events(&nurse.recv()).is_empty(), "the contact blocks the owner");
    nurse.request("<iq type='set' id='b'><unblock xmlns='urn:xmpp:blocking'/></iq>");
    publish(&juliet, "urn:x", "4");
    assert_eq!(events(&nurse.recv()), ["urn:x 4"]);
    juliet.request("<presence to='nurse@example.com' type='unsubscribed'/>");
    nurse.recv();
    publish(&juliet, "urn:x", "5");
    assert!(events(&nurse.recv()).is_empty(), "a contact that was removed");
}

#[test]
fn xep_0248_accounts_have_no_collections() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &["urn:x"]);
    let configure = form("node_config", &[("node_type", "collection")]);
    let refused = set(&juliet, &format!("<create node='urn:x'/><configure>{configure}</configure>"));
    for part in ["<feature-not-implemented ", "<unsupported ", "feature='collections'"] {
        assert!(refused.contains(part), "{refused}");
    }
    create(&juliet, "urn:x", &[]);
    let associate = "<collection node='urn:x'><associate node='urn:y'/></collection>";
    let refused = answer(pubsub(&juliet, "", "set", "#owner", associate));
    assert!(refused.contains("feature='collections'"), "{refused}");
    let root = set(&juliet, "<subscribe jid='juliet@example.com'/>");
    assert!(root.contains("<nodeid-required "), "{root}");
    let info = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
    let info = answer(juliet.request(&format!("<iq type='get' id='r1' to='{JULIET}'>{info}</iq>")));
    assert!(!info.contains("pubsub#collections") && info.contains("urn:xmpp:order-by:1"), "{info}");
    publish(&juliet, "urn:x", "1");
    publish(&juliet, "urn:x", "2");
    let order = "<items node='urn:x'/><order xmlns='urn:xmpp:order-by:1' by='creation' desc='true'/>";
    let items = get(&juliet, JULIET, order);
    assert!(items.contains("<item id='2'"), "{items}");
}
