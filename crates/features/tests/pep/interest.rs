//! Last items when a client becomes available or its capabilities become known, each exactly once (section 4.3.4); capabilities
//! that lie (XEP-0115, section 5.4).

use super::*;

fn published() -> TestNode {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    publish(&juliet, TUNE, "1");
    publish(&juliet, "urn:x", "2");
    engine
}

/// The last items that a client receives when it becomes available.
fn first_items(client: &NodeClient, nodes: &[&str]) -> Vec<String> {
    let mut all = events(&become_available(client, nodes));
    all.sort_unstable();
    all
}

fn last_items(client: &NodeClient) -> Vec<String> {
    let mut all = events(&client.recv());
    all.sort_unstable();
    all
}

#[test]
fn last_items_are_sent_when_capabilities_are_verified_and_when_they_are_known() {
    let engine = published();
    let tune = format!("{TUNE} 1");
    let romeo = engine.connect("romeo", "orchard");
    romeo.send(&presence(&[TUNE]));
    let first = romeo.recv();
    assert!(events(&first).is_empty(), "its capabilities are not known");
    assert!(answer_query(&romeo, &first, &[TUNE]));
    let received = romeo.recv();
    assert_eq!(events(&received), [tune.clone()]);
    let delayed = "<delay xmlns='urn:xmpp:delay' from='juliet@example.com'";
    assert!(received.concat().contains(delayed), "{received:?}");
    romeo.send(&presence(&[TUNE]));
    romeo.send("<presence><show>away</show></presence>");
    assert!(last_items(&romeo).is_empty(), "once");
    // Another client with the same capabilities is not asked.
    let nurse = engine.connect("nurse", "chamber");
    nurse.send(&presence(&[TUNE]));
    assert_eq!(last_items(&nurse), [tune.clone()]);
    nurse.send("<presence type='unavailable'/>");
    nurse.send(&presence(&[TUNE]));
    assert_eq!(last_items(&nurse), [tune], "available again");
}

#[test]
fn own_items_are_sent_to_an_own_client() {
    let engine = published();
    let juliet = engine.connect("juliet", "chamber");
    assert_eq!(first_items(&juliet, &["urn:x"]), ["urn:x 2"]);
    let benvolio = engine.connect("benvolio", "street");
    assert!(first_items(&benvolio, &["urn:x"]).is_empty());
}

#[test]
fn changed_capabilities_bring_only_what_is_newly_wanted() {
    let engine = published();
    let romeo = engine.connect("romeo", "orchard");
    assert_eq!(first_items(&romeo, &[TUNE]), [format!("{TUNE} 1")]);
    // Unknown capabilities, which are verified later.
    assert_eq!(first_items(&romeo, &[TUNE, "urn:x"]), ["urn:x 2"]);
    // Known ones.
    become_available(&romeo, &[TUNE]);
    assert_eq!(first_items(&romeo, &[TUNE, "urn:x"]), ["urn:x 2"]);
}

#[test]
fn all_clients_that_wait_for_one_verification_receive_their_last_items() {
    let engine = published();
    let clients: Vec<NodeClient> = (0..20).map(|i| engine.connect("romeo", &format!("r{i}"))).collect();
    for client in &clients {
        client.send(&presence(&[TUNE]));
    }
    let received: Vec<Vec<String>> = clients.iter().map(|client| client.recv()).collect();
    let both = clients.iter().zip(&received);
    let queried = both.filter(|(client, received)| answer_query(client, received, &[TUNE])).count();
    engine.run_tasks();
    assert_eq!(queried, 1);
    for client in &clients {
        assert_eq!(events(&client.recv()), [format!("{TUNE} 1")], "{}", client.full());
    }
}

#[test]
fn capabilities_that_lie_are_not_believed() {
    let engine = published();
    let juliet = connect(&engine, "juliet", "chamber", &[]);
    let romeo = engine.connect("romeo", "orchard");
    romeo.send(&presence(&["urn:none"]));
    let received = romeo.recv();
    assert!(answer_query(&romeo, &received, &[TUNE]), "another answer than announced");
    assert!(last_items(&romeo).is_empty());
    publish(&juliet, TUNE, "3");
    assert!(last_items(&romeo).is_empty());
    // The lie is not kept for others.
    let nurse = engine.connect("nurse", "chamber");
    assert!(first_items(&nurse, &["urn:none"]).is_empty());
    let other = engine.connect("nurse", "other");
    assert_eq!(first_items(&other, &[TUNE]), [format!("{TUNE} 3")]);
}

#[test]
fn a_node_that_says_so_sends_no_last_item() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    create(&juliet, "urn:x", &[("send_last_published_item", "never")]);
    publish(&juliet, "urn:x", "1");
    let romeo = engine.connect("romeo", "orchard");
    assert!(first_items(&romeo, &["urn:x"]).is_empty());
}

#[test]
fn a_client_without_interest_costs_no_read() {
    let engine = published();
    connect(&engine, "nurse", "chamber", &[]);
    let romeo = engine.connect("romeo", "orchard");
    engine.store_calls();
    romeo.send(&presence(&[]));
    romeo.recv();
    assert!(
        engine.store_calls().iter().all(|call| !call.starts_with("pubsub")),
        "{:?}",
        engine.store_calls()
    );
    // With interest: the nodes of all contacts are one read.
    let other = engine.connect("romeo", "other");
    become_available(&other, &["urn:none"]);
    let calls = engine.store_calls();
    assert_eq!(
        calls.iter().filter(|call| call.starts_with("pubsub")).collect::<Vec<_>>(),
        [&"pubsub.of_services"]
    );
}
