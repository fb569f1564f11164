//! Tests of RFC 6121, section 4: exchange of presence.

use jid::Jid;
use store::{RosterItem, RosterUpdateOutcome, Subscription};
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::NodeLimits;

use super::{
    FEATURES, JULIET, ROMEO, count_queued_from, detach, error, is, online, send_presence_of_many,
    two_unrelated_users,
};

/// Juliet's contacts of the examples (section 4.1): Romeo and Benvolio both ways, Mercutio only sees her.
fn verona() -> TestNode {
    let engine = two_unrelated_users();
    for name in ["mercutio@example.com", "benvolio@example.net"] {
        engine.create_user(name);
    }
    engine.befriend(JULIET, ROMEO);
    engine.befriend(JULIET, "benvolio@example.net");
    engine.add_contact(JULIET, "mercutio@example.com", Subscription::FROM | Subscription::IN_ROSTER);
    engine.add_contact("mercutio@example.com", JULIET, Subscription::TO | Subscription::IN_ROSTER);
    engine
}

fn from_balcony(to: &str, inner: &str) -> String {
    format!("<presence from='juliet@example.com/balcony' to='{to}'>{inner}</presence>")
}

fn drain(clients: &[&NodeClient]) {
    for client in clients {
        client.recv();
    }
}

fn assert_nothing_received(clients: &[&NodeClient]) {
    for client in clients {
        let received = client.recv();
        assert!(received.is_empty(), "{}: {received:?}", client.full());
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.2
//= type=test
//# If the server receives a presence stanza with no 'to' attribute, it MUST broadcast it to the entities that are
//# subscribed to the sending entity's presence
#[test]
fn section_4_2_initial_presence_reaches_subscribers_and_the_own_resources() {
    let engine = verona();
    let romeo = [online(&engine, ROMEO, "resource1"), online(&engine, ROMEO, "resource2")];
    let mercutio = online(&engine, "mercutio@example.com", "x");
    let unavailable = engine.connect("benvolio@example.net", "not-available");
    let chamber = online(&engine, JULIET, "chamber");
    drain(&[&romeo[0], &romeo[1], &mercutio]);
    let balcony = engine.connect(JULIET, "balcony");
    balcony.send("<presence/>");
    for client in &romeo {
        assert_same(&client.recv(), &[from_balcony(ROMEO, "")]);
    }
    assert_same(&mercutio.recv(), &[from_balcony("mercutio@example.com", "")]);
    assert_same(&chamber.recv(), &[from_balcony(JULIET, "")]);
    // Section 4.2.2: the resource itself as well; then the other resources, then those that a probe would find.
    assert_same(
        &balcony.recv(),
        &[
            from_balcony(JULIET, ""),
            "<presence from='juliet@example.com/chamber' to='juliet@example.com'/>".into(),
            "<presence from='romeo@example.net/resource1' to='juliet@example.com'/>".into(),
            "<presence from='romeo@example.net/resource2' to='juliet@example.com'/>".into(),
        ],
    );
    assert_nothing_received(&[&unavailable]);
}

#[test]
fn presence_at_login_needs_no_store_access() {
    let engine = verona();
    let juliet = engine.connect(JULIET, "balcony");
    assert_eq!(engine.store_calls(), ["logins.secrets", "logins.login"]);
    juliet.send("<iq id='r' type='get'><query xmlns='jabber:iq:roster'/></iq>");
    juliet.send("<presence/>");
    juliet.send("<presence><show>away</show><priority>1</priority></presence>");
    juliet.send("<presence type='unavailable'/>");
    juliet.close();
    assert!(engine.store_calls().is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-11
//= type=test
//# the server MUST NOT reveal the user's presence if the sender is an entity that is not authorized to receive that
//# information as determined by presence subscriptions
//= https://www.rfc-editor.org/rfc/rfc6121#section-11
//= type=test
//# A user's server MUST NOT leak the user's network availability to entities who are not authorized to know the
//# user's presence.
#[test]
fn section_4_3_2_contacts_that_have_not_approved_are_not_shown() {
    let engine = two_unrelated_users();
    // The two rosters disagree; the contact's own is authoritative.
    engine.add_contact(ROMEO, JULIET, Subscription::TO | Subscription::IN_ROSTER);
    online(&engine, JULIET, "balcony");
    let romeo = engine.connect(ROMEO, "orchard");
    assert_same(
        &romeo.request("<presence/>"),
        &["<presence from='romeo@example.net/orchard' to='romeo@example.net'/>"],
    );
}

#[test]
fn section_4_3_2_probes_of_an_account_with_resources() {
    let engine = verona();
    let chamber = online(&engine, JULIET, "chamber");
    let balcony = online(&engine, JULIET, "balcony");
    chamber.send("<presence id='pres1'><show>dnd</show><status>busy!</status></presence>");
    balcony.send("<presence id='pres2'><show>away</show><status>stepped away</status></presence>");
    let romeo = engine.connect(ROMEO, "orchard");
    // A probe by the client instead of its server is answered, too.
    assert_same(
        &romeo.request("<presence id='probe1' to='juliet@example.com' type='probe'/>"),
        &[
            "<presence from='juliet@example.com/chamber' id='pres1' to='romeo@example.net/orchard'>
             <show>dnd</show><status>busy!</status></presence>",
            "<presence from='juliet@example.com/balcony' id='pres2' to='romeo@example.net/orchard'>
             <show>away</show><status>stepped away</status></presence>",
        ],
    );
    // A full address: only the availability of that resource.
    assert_same(
        &romeo.request("<presence id='p' to='juliet@example.com/balcony' type='probe'/>"),
        &["<presence from='juliet@example.com/balcony' to='romeo@example.net/orchard'/>"],
    );
    assert_same(
        &romeo.request("<presence id='p' to='juliet@example.com/garden' type='probe'/>"),
        &[
            "<presence from='juliet@example.com/garden' id='p' to='romeo@example.net/orchard' type='unavailable'/>",
        ],
    );
}

#[test]
fn section_4_3_2_a_subscriber_without_a_session_may_probe() {
    let engine = verona();
    let juliet = online(&engine, JULIET, "balcony");
    engine.create_user("tybalt@example.com");
    engine.add_contact("tybalt@example.com", JULIET, Subscription::TO | Subscription::IN_ROSTER);
    for prober in [ROMEO, "tybalt@example.com"] {
        let from = jid::parse(&format!("{prober}/gone")).unwrap().as_ref().to_jid();
        let to = jid::parse(JULIET).unwrap().as_ref().to_jid();
        let probe = format!("<presence from='{prober}/gone' to='{JULIET}' type='probe'/>");
        let mut effects = throng_core::Effects::default();
        effects.route(throng_core::SharedStanza::parse(probe.as_bytes()), from, to);
        engine.node.perform(effects);
        engine.run_tasks();
    }
    let sees =
        |user: &str| engine.stored_roster_item(user, JULIET).unwrap().subscription.contains(Subscription::TO);
    assert!(sees(ROMEO), "the store knows of the subscription");
    assert!(!sees("tybalt@example.com"), "the store knows of none");
    assert_nothing_received(&[&juliet]);
}

#[test]
fn section_4_3_2_probes_without_resources_or_without_approval() {
    let engine = verona();
    engine.create_user("tybalt@example.com");
    let romeo = engine.connect(ROMEO, "orchard");
    assert_same(
        &romeo.request("<presence id='probe2' to='juliet@example.com' type='probe'/>"),
        &[
            "<presence from='juliet@example.com' id='probe2' to='romeo@example.net/orchard' type='unavailable'/>",
        ],
    );
    // Tybalt's roster has a subscription: the answer corrects that.
    engine.add_contact("tybalt@example.com", JULIET, Subscription::TO | Subscription::IN_ROSTER);
    let tybalt = online(&engine, "tybalt@example.com", "x");
    let probe = |to: &str| tybalt.request(&format!("<presence id='p' to='{to}' type='probe'/>"));
    let healed = probe(JULIET);
    assert_same(
        &healed[..1],
        &["<presence from='juliet@example.com' id='p' to='tybalt@example.com' type='unsubscribed'/>"],
    );
    assert!(healed[1].contains("subscription='none'"), "{healed:?}");
    let juliet = online(&engine, JULIET, "balcony");
    engine.add_contact("tybalt@example.com", JULIET, Subscription::TO | Subscription::IN_ROSTER);
    assert_eq!(probe("juliet@example.com/balcony").len(), 2);
    // An unrelated user receives nothing, whether or not the account exists.
    assert!(probe(JULIET).is_empty() && probe("nobody@example.com").is_empty());
    assert_nothing_received(&[&juliet]);
}

#[test]
fn section_4_3_2_a_subscription_is_one_way() {
    let engine = verona();
    let (mercutio, juliet) =
        (online(&engine, "mercutio@example.com", "x"), online(&engine, JULIET, "balcony"));
    drain(&[&mercutio]);
    assert_same(
        &mercutio.request("<presence to='juliet@example.com' type='probe'/>"),
        &["<presence from='juliet@example.com/balcony' to='mercutio@example.com/x'/>"],
    );
    let probe = "<presence to='mercutio@example.com' type='probe'/>";
    assert!(juliet.request(probe).is_empty());
    // The same while the contact is offline.
    mercutio.close();
    drain(&[&juliet]);
    assert!(juliet.request(probe).is_empty());
    juliet.close();
    let mercutio = engine.connect("mercutio@example.com", "x");
    assert_same(
        &mercutio.request("<presence id='1' to='juliet@example.com' type='probe'/>"),
        &["<presence from='juliet@example.com' id='1' to='mercutio@example.com/x' type='unavailable'/>"],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.4.2
//= type=test
//# Upon receiving a presence stanza expressing updated availability, the user's server MUST broadcast the full XML
//# of that presence stanza to the contacts who are in the user's roster with a subscription type of "from" or
//# "both".
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.4.2
//= type=test
//# The user's server MUST also send the presence stanza to all of the user's available resources (including the
//# resource that generated the presence notification in the first place).
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.4.3
//= type=test
//# Upon receiving presence from the user, the contact's server MUST deliver the user's presence stanza to all of
//# the contact's available resources.
//= https://www.rfc-editor.org/rfc/rfc6121#section-8.5.2.1.2
//= type=test
//# In all cases, the server MUST NOT rewrite the 'to' attribute (i.e., it MUST leave it as <localpart@domainpart>
//# rather than change it to <localpart@domainpart/resourcepart>).
#[test]
fn section_4_4_later_presence_goes_to_subscribers_only() {
    let engine = verona();
    let (romeo, mercutio) = (online(&engine, ROMEO, "x"), online(&engine, "mercutio@example.com", "x"));
    let orchard = online(&engine, ROMEO, "orchard");
    let (balcony, chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    drain(&[&romeo, &orchard, &mercutio, &balcony]);
    balcony.send("<presence><show>away</show></presence>");
    let away = "<show>away</show>";
    for resource in [&romeo, &orchard] {
        assert_same(&resource.recv(), &[from_balcony(ROMEO, away)]);
    }
    assert_same(&mercutio.recv(), &[from_balcony("mercutio@example.com", away)]);
    assert_same(&chamber.recv(), &[from_balcony(JULIET, away)]);
    assert_same(&balcony.recv(), &[from_balcony(JULIET, away)]);
    // Mercutio sees her, she does not see him.
    mercutio.send("<presence><show>dnd</show></presence>");
    assert_nothing_received(&[&balcony, &chamber, &romeo, &orchard]);
}

#[test]
fn section_4_5_unavailable_presence_and_a_new_session() {
    let engine = verona();
    let (romeo, orchard) = (online(&engine, ROMEO, "x"), online(&engine, ROMEO, "orchard"));
    let (balcony, chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    drain(&[&romeo, &orchard, &balcony]);
    balcony.send("<presence type='unavailable'><status>going on vacation</status></presence>");
    let gone = |to: &str| {
        format!(
            "<presence from='juliet@example.com/balcony' to='{to}' type='unavailable'><status>going on vacation</status></presence>"
        )
    };
    assert_same(&romeo.recv(), &[gone(ROMEO)]);
    assert_same(&orchard.recv(), &[gone(ROMEO)]);
    assert_same(&chamber.recv(), &[gone(JULIET)]);
    assert_same(&balcony.recv(), &[gone(JULIET)]);
    assert!(!balcony.session.is_available());
    chamber.send("<presence><show>xa</show></presence>");
    assert_nothing_received(&[&balcony]);
    romeo.recv();
    // The session goes on, so closing the stream sends nothing more.
    balcony.close();
    assert_nothing_received(&[&romeo]);
    // Section 4.5.2, implementation note: available again is initial presence.
    let balcony = engine.connect(JULIET, "balcony");
    balcony.send("<presence type='unavailable'/>");
    assert_nothing_received(&[&romeo]);
    balcony.recv();
    assert_eq!(balcony.request("<presence/>").len(), 4);
    assert_same(&romeo.recv(), &[from_balcony(ROMEO, "")]);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.5.2
//= type=test
//# The user's server MUST NOT depend on receiving unavailable presence from an available resource
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.5.2
//= type=test
//# If an available resource becomes unavailable for any reason (either gracefully or ungracefully), the user's
//# server MUST broadcast unavailable presence to all contacts that are in the user's roster with a subscription
//# type of "from" or "both".
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.5.2
//= type=test
//# If the server detects that the user has gone offline ungracefully, then the server MUST generate the unavailable
//# presence broadcast on the user's behalf.
#[test]
fn section_4_5_2_unavailable_presence_is_broadcast_for_a_lost_stream() {
    let engine = verona();
    let (romeo, chamber) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "chamber"));
    let balcony = online(&engine, JULIET, "balcony");
    drain(&[&romeo, &chamber]);
    balcony.close();
    let gone =
        |to: &str| format!("<presence from='juliet@example.com/balcony' to='{to}' type='unavailable'/>");
    assert_same(&romeo.recv(), &[gone(ROMEO)]);
    assert_same(&chamber.recv(), &[gone(JULIET)]);
    // The last one, too.
    chamber.close();
    assert_eq!(romeo.recv().len(), 1);
}

#[test]
fn a_displaced_session_is_announced_before_its_successor() {
    let engine = verona();
    let romeo = online(&engine, ROMEO, "x");
    online(&engine, JULIET, "balcony");
    romeo.recv();
    let second = engine.connect(JULIET, "balcony");
    second.send("<presence/>");
    assert_same(
        &romeo.recv(),
        &[
            "<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>".into(),
            from_balcony(ROMEO, ""),
        ],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.3
//= type=test
//# When the user's server receives a directed presence stanza, it SHOULD process it according to the following
//# rules.
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.3
//= type=test
//# the user's server MUST locally deliver or remotely route the full XML of that presence stanza but SHOULD NOT
//# otherwise modify the contact's status regarding presence broadcast
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.3
//= type=test
//# the user's server MUST locally deliver or remotely route the full XML of that presence stanza to the entity but
//# MUST NOT modify the contact's status regarding available presence broadcast
#[test]
fn section_4_6_3_directed_presence_ends_with_the_resource() {
    let engine = verona();
    engine.create_user("nurse@example.com");
    let (romeo, nurse) = (online(&engine, ROMEO, "x"), online(&engine, "nurse@example.com", "kitchen"));
    let juliet = online(&engine, JULIET, "balcony");
    romeo.recv();
    // Case 2: to a contact without a subscription.
    juliet.send("<presence id='d1' to='nurse@example.com/kitchen'><show>chat</show></presence>");
    assert_same(
        &nurse.recv(),
        &[
            "<presence id='d1' from='juliet@example.com/balcony' to='nurse@example.com/kitchen'><show>chat</show></presence>",
        ],
    );
    juliet.send("<presence><show>away</show></presence>");
    assert_nothing_received(&[&nurse]);
    // Case 1: to a subscriber; it stays one recipient of the broadcast.
    juliet.send("<presence id='d2' to='romeo@example.net'/>");
    romeo.recv();
    juliet.send("<presence type='unavailable'><status>bye</status></presence>");
    assert_same(
        &nurse.recv(),
        &[
            "<presence from='juliet@example.com/balcony' to='nurse@example.com/kitchen' type='unavailable'><status>bye</status></presence>",
        ],
    );
    assert_eq!(romeo.recv().len(), 1);
    juliet.close();
    assert_nothing_received(&[&nurse, &romeo]);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.3
//= type=test
//# the user's server MUST treat the entity to which the user sends directed presence as in case #2 above.
#[test]
fn section_4_6_3_case_3_directed_presence_without_availability() {
    let engine = verona();
    let romeo = online(&engine, ROMEO, "x");
    let juliet = engine.connect(JULIET, "balcony");
    juliet.send("<presence to='romeo@example.net'/>");
    assert_eq!(romeo.recv().len(), 1);
    juliet.close();
    assert_same(
        &romeo.recv(),
        &["<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>"],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.1
//= type=test
//# The server MUST remove from the directed presence list (or its functional equivalent) any entity to which the
//# user sends directed unavailable presence and SHOULD remove any entity that sends unavailable presence to the
//# user.
#[test]
fn section_4_6_1_either_side_may_end_directed_presence() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "balcony"));
    juliet.send("<presence to='romeo@example.net/x'/>");
    juliet.send("<presence to='romeo@example.net/x' type='unavailable'/>");
    assert_eq!(romeo.recv().len(), 2);
    assert!(juliet.session.with(|state| state.directed_presence.is_none()));
    juliet.send("<presence to='romeo@example.net/x'/>");
    romeo.send("<presence to='juliet@example.com/balcony' type='unavailable'/>");
    assert!(juliet.session.with(|state| state.directed_presence.is_none()));
    romeo.recv();
    juliet.close();
    assert_nothing_received(&[&romeo]);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.6
//= type=test
//# If the probing entity does not have a subscription to the user's presence, then the server MUST check if the
//# user has sent directed presence to the entity during its current session
#[test]
fn section_4_6_6_a_recipient_of_directed_presence_may_probe_that_resource() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "x");
    let (juliet, _chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    juliet.send("<presence to='romeo@example.net/x'><show>chat</show></presence>");
    romeo.recv();
    let here = "<presence from='juliet@example.com/balcony' to='romeo@example.net/x'/>";
    assert_same(&romeo.request("<presence id='p' to='juliet@example.com/balcony' type='probe'/>"), &[here]);
    assert!(romeo.request("<presence id='p' to='juliet@example.com/chamber' type='probe'/>").is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.1
//= type=test
//# Therefore, the acts of creating, modifying, or canceling a presence subscription MUST take precedence over the
//# rules specified in the following subsections.
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.1
//= type=test
//# As another example, if the user then cancels the contact's subscription to the user's presence, the user's
//# server MUST handle the cancellation just as it normally would as described under Section 3.2
#[test]
fn section_4_6_1_a_subscription_that_ends_takes_precedence() {
    let engine = verona();
    let (romeo, juliet) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "balcony"));
    juliet.send("<presence to='romeo@example.net'/>");
    romeo.recv();
    juliet.send("<presence to='romeo@example.net' type='unsubscribed'/>");
    assert!(romeo.recv()[0].contains("type='unavailable'"));
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.6.1
//= type=test
//# the user's server MUST treat the contact just as it would any normal subscriber as described under Section 3
#[test]
fn section_4_6_1_directed_presence_and_then_a_subscription_make_a_normal_subscriber() {
    let engine = verona();
    engine.create_user("nurse@example.com");
    let (nurse, juliet) =
        (online(&engine, "nurse@example.com", "kitchen"), online(&engine, JULIET, "balcony"));
    juliet.send("<presence to='nurse@example.com/kitchen'/>");
    nurse.recv();
    nurse.send("<presence to='juliet@example.com' type='subscribe'/>");
    juliet.send("<presence to='nurse@example.com' type='subscribed'/>");
    nurse.recv();
    // A broadcast reaches subscribers, but not those who only received directed presence.
    juliet.send("<presence><show>away</show></presence>");
    assert_same(
        &nurse.recv(),
        &["<presence from='juliet@example.com/balcony' to='nurse@example.com'><show>away</show></presence>"],
    );
    // Once, although the contact is also in the list of directed presence.
    juliet.close();
    assert_same(
        &nurse.recv(),
        &["<presence from='juliet@example.com/balcony' to='nurse@example.com' type='unavailable'/>"],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-4.3
//= type=test
//# However, if a user's client generates an outbound presence probe then the user's server SHOULD route the probe
//# (if the contact is at another server) or process the probe
//= https://www.rfc-editor.org/rfc/rfc6121#section-4.7.1
//= type=test
//# If the value of the 'type' attribute is not one of the foregoing values, the recipient or an intermediate router
//# SHOULD return a stanza error of <bad-request/>.
#[test]
fn invalid_presence_is_refused() {
    let engine = TestNode::with_limits(
        &FEATURES,
        NodeLimits { directed_presence_entities: 1, ..NodeLimits::default() },
    );
    engine.create_user(JULIET);
    let juliet = engine.connect(JULIET, "balcony");
    let long = format!("<presence><status>{}</status></presence>", "x".repeat(5000));
    assert_eq!(error(&juliet.request(&long)), is("modify", "policy-violation"));
    assert_eq!(
        error(&juliet.request("<presence><priority>200</priority></presence>")),
        is("modify", "bad-request")
    );
    assert_eq!(error(&juliet.request("<presence type='away'/>")), is("modify", "bad-request"));
    assert!(!juliet.session.is_available());
    juliet.send("<presence to='a@example.net'/>");
    juliet.send("<presence to='a@example.net'/>");
    assert_eq!(error(&juliet.request("<presence to='b@example.net'/>")), is("wait", "resource-constraint"));
    assert!(juliet.request("<presence type='probe'/>").is_empty(), "4.3: a probe is no reason for an error");
}

#[test]
fn the_frame_of_a_broadcast_is_shared() {
    let engine = verona();
    let romeo = [online(&engine, ROMEO, "1"), online(&engine, ROMEO, "2")];
    let juliet = online(&engine, JULIET, "balcony");
    let stored = juliet.session.with(|state| state.presence.clone()).unwrap();
    let mut batches = Vec::new();
    for client in &romeo {
        let mut batch = throng_core::session::QueuedBatch::new();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        client.session.outbox.dequeue_all(&mut cx, &mut batch);
        batches.extend(batch);
    }
    let same = batches.iter().filter(|item| std::ptr::eq(item.stanza.bytes(), stored.bytes())).count();
    assert_eq!(same, 2, "one allocation for all receivers");
}

#[test]
fn the_unavailable_of_a_recipient_of_directed_presence_is_not_dropped_for_presence_of_others() {
    for to in ["juliet@example.com/balcony", "juliet@example.com"] {
        let engine = two_unrelated_users();
        let (romeo, juliet) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "balcony"));
        juliet.send("<presence to='romeo@example.net/x'/>");
        detach(&engine, &juliet);
        let gone = format!("<presence to='{to}' type='unavailable'/>");
        romeo.send(&gone);
        assert!(juliet.session.with(|state| state.directed_presence.is_none()));
        // Juliet expects one only.
        romeo.send(&gone);
        send_presence_of_many(&engine, "to='juliet@example.com/balcony'");
        assert_eq!(juliet.closed_with(), None);
        assert_eq!(count_queued_from(&juliet, "romeo@example.net/x"), 1, "{to}");
    }
}

#[test]
fn presence_of_a_connected_user_is_not_expected_because_a_contact_has_the_same_hash() {
    let engine = two_unrelated_users();
    let contact = engine.create_user("benvolio@example.net");
    let (romeo, juliet) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "balcony"));
    // Benvolio, whose address would have the hash of Romeo's.
    let mut item = RosterItem::new(Jid::parse("benvolio@example.net").unwrap());
    (item.contact, item.subscription) = (contact, Subscription::TO);
    juliet.session.account.with(|state| {
        let change =
            RosterUpdateOutcome { before: None, after: Some(item), version: state.roster_version + 1 };
        assert!(state.apply_change(
            engine.node.routing_table.hash(romeo.bare()),
            &engine.node.domains(),
            &change
        ));
    });
    detach(&engine, &juliet);
    romeo.send("<presence to='juliet@example.com/balcony'/>");
    send_presence_of_many(&engine, "to='juliet@example.com/balcony'");
    assert_eq!(count_queued_from(&juliet, "romeo@example.net/x"), 0);
}
