//! Section 4.3: who receives events, and from which address.

use super::*;

#[test]
fn section_1_2_interested_parties_receive_event_notifications() {
    let engine = verona();
    let balcony = connect(&engine, "juliet", "balcony", &[TUNE]);
    let chamber = connect(&engine, "juliet", "chamber", &[TUNE]);
    let mute = connect(&engine, "juliet", "mute", &[]);
    let orchard = connect(&engine, "romeo", "orchard", &[TUNE]);
    let other = connect(&engine, "romeo", "other", &["urn:x"]);
    let nurse = connect(&engine, "nurse", "chamber", &[TUNE]);
    let benvolio = connect(&engine, "benvolio", "street", &[TUNE]);
    // The presence of one another.
    for client in [&balcony, &chamber, &mute, &orchard, &other, &nurse, &benvolio] {
        client.recv();
    }
    let own = publish(&balcony, TUNE, "1");
    assert_eq!(events(&own), [format!("{TUNE} 1")], "the publisher, too");
    for client in [&chamber, &orchard, &nurse] {
        let received = client.recv();
        let [event] = &received[..] else { panic!("{received:?}") };
        let id = attribute(event, "id");
        let want = format!(
            "<message from='juliet@example.com' to='{}' id='{id}' type='headline'>\
             <event xmlns='http://jabber.org/protocol/pubsub#event'><items node='{TUNE}'>\
             <item id='1'>{TUNE_PAYLOAD}</item></items></event></message>",
            client.full()
        );
        testkit::assert_same(&[event], &[want]);
    }
    for client in [&mute, &other, &benvolio] {
        assert!(client.recv().is_empty(), "{}", client.full());
    }
    chamber.send("<presence type='unavailable'/>");
    chamber.recv();
    publish(&balcony, TUNE, "2");
    assert!(events(&chamber.recv()).is_empty(), "unavailable");
}

#[test]
fn a_subscriber_with_an_interested_client_receives_an_event_once() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[]);
    create(&juliet, TUNE, &[("access_model", "open")]);
    let clients = ["romeo", "benvolio"].map(|user| connect(&engine, user, "x", &[TUNE]));
    for client in &clients {
        let content = format!("<subscribe node='{TUNE}' jid='{}'/>", client.bare());
        let done = answer(pubsub(client, "juliet@example.com", "set", "", &content));
        assert!(done.contains("subscription='subscribed'"), "{done}");
    }
    publish(&juliet, TUNE, "1");
    for client in &clients {
        assert_eq!(events(&client.recv()), [format!("{TUNE} 1")], "{}", client.full());
    }
}

#[test]
fn a_publication_costs_no_reads_of_the_store() {
    let engine = verona();
    let juliet = connect(&engine, "juliet", "balcony", &[TUNE]);
    let romeo = connect(&engine, "romeo", "orchard", &[TUNE]);
    publish(&juliet, TUNE, "1");
    romeo.recv();
    engine.store_calls();
    publish(&juliet, TUNE, "2");
    assert_eq!(events(&romeo.recv()).len(), 1);
    assert_eq!(engine.store_calls(), ["pubsub.apply"]);
}
