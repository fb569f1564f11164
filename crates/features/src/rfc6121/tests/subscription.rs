//! Tests of RFC 6121, section 3: presence subscriptions.

use feature_api::EnabledFeature;
use feature_api::feature::{FeatureOptions, OptionValue};
use store::Subscription;
use testkit::{TestNode, assert_same};
use throng_core::NodeLimits;

use super::{
    FEATURES, JULIET, ROMEO, count_queued_from, detach, error, is, online, push, send_presence_of_many,
    two_unrelated_users, without_id, without_random_parts,
};

const SUBSCRIBE: &str = "<presence id='xk3h1v69' to='juliet@example.com' type='subscribe'/>";
const SUBSCRIBED: &str = "<presence id='h4v1c4kj' to='romeo@example.net' type='subscribed'/>";

/// Romeo's presence as Juliet receives it.
fn from_romeo(id: &str, ty: &str) -> String {
    format!("<presence from='romeo@example.net' id='{id}' to='juliet@example.com' type='{ty}'/>")
}

fn from_juliet(id: &str, ty: &str) -> String {
    format!("<presence from='juliet@example.com' id='{id}' to='romeo@example.net' type='{ty}'/>")
}

fn juliet_item(attrs: &str) -> String {
    format!("<item jid='juliet@example.com' {attrs}/>")
}

fn romeo_item(attrs: &str) -> String {
    format!("<item jid='romeo@example.net' {attrs}/>")
}

fn state(engine: &TestNode, owner: &str, contact: &str) -> Subscription {
    engine.stored_roster_item(owner, contact).map(|item| item.subscription).unwrap_or_default()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.2.1
//= type=test
//# When a server receives an XML stanza from a connected client, the server MUST add a 'from' attribute to the
//# stanza or override the 'from' attribute specified by the client
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stanza-attribute-from-stamp. Description: Stamp or rewrite the 'from' address of all stanzas received
//# from connected clients. Section: Section 8.1.2.1. Roles: Client N/A, Server MUST.
#[test]
fn section_3_1_request_and_approval() {
    let engine = two_unrelated_users();
    let (foo, bar) = (online(&engine, ROMEO, "foo"), online(&engine, ROMEO, "bar"));
    let (balcony, chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    foo.recv();
    balcony.recv();
    // Sections 3.1.2 and 3.1.3.
    foo.send(SUBSCRIBE);
    let pending = juliet_item("subscription='none' ask='subscribe'");
    assert_same(&without_random_parts(foo.recv()), &[push("romeo@example.net/foo", &pending)]);
    assert_same(&without_random_parts(bar.recv()), &[push("romeo@example.net/bar", &pending)]);
    for juliet in [&balcony, &chamber] {
        assert_same(&juliet.recv(), &[from_romeo("xk3h1v69", "subscribe")]);
    }
    assert_eq!(state(&engine, JULIET, ROMEO), Subscription::PENDING_IN, "no roster item before the approval");
    // A repeated request is routed and not delivered (table 6).
    foo.send(SUBSCRIBE);
    assert!(balcony.recv().is_empty() && foo.recv().is_empty());
    // Section 3.1.5.
    balcony.send(SUBSCRIBED);
    let granted = romeo_item("subscription='from'");
    assert_same(&without_random_parts(balcony.recv()), &[push("juliet@example.com/balcony", &granted)]);
    assert_same(&without_random_parts(chamber.recv()), &[push("juliet@example.com/chamber", &granted)]);
    // Section 3.1.6.
    for (romeo, resource) in [(&foo, "foo"), (&bar, "bar")] {
        assert_same(
            &without_random_parts(romeo.recv()),
            &[
                from_juliet("h4v1c4kj", "subscribed"),
                push(&format!("romeo@example.net/{resource}"), &juliet_item("subscription='to'")),
                "<presence from='juliet@example.com/balcony' to='romeo@example.net'/>".into(),
                "<presence from='juliet@example.com/chamber' to='romeo@example.net'/>".into(),
            ],
        );
    }
    // In one direction only.
    foo.send("<presence><show>away</show></presence>");
    assert!(balcony.recv().is_empty());
    chamber.send("<presence><show>dnd</show></presence>");
    assert_same(
        &bar.recv()[1..],
        &["<presence from='juliet@example.com/chamber' to='romeo@example.net'><show>dnd</show></presence>"],
    );
}

#[test]
fn section_3_1_a_second_request_makes_the_subscription_mutual() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "orchard"), online(&engine, JULIET, "balcony"));
    romeo.send(SUBSCRIBE);
    juliet.send(SUBSCRIBED);
    juliet.send("<presence to='romeo@example.net' type='subscribe'/>");
    romeo.send("<presence to='juliet@example.com' type='subscribed'/>");
    let both = Subscription::BOTH | Subscription::IN_ROSTER;
    assert_eq!((state(&engine, ROMEO, JULIET), state(&engine, JULIET, ROMEO)), (both, both));
    let last = without_random_parts(juliet.recv());
    assert_same(
        &last[last.len() - 2..],
        &[
            push("juliet@example.com/balcony", &romeo_item("subscription='both'")),
            "<presence from='romeo@example.net/orchard' to='juliet@example.com'/>".into(),
        ],
    );
}

#[test]
fn section_3_1_3_a_request_waits_until_it_is_answered() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    romeo.send(
        "<presence id='1' to='juliet@example.com/balcony' type='subscribe'>
         <nick xmlns='http://jabber.org/protocol/nick'>Romeo</nick></presence>",
    );
    romeo.send("<presence id='2' to='juliet@example.com' type='subscribe'/>");
    let request = "<presence from='romeo@example.net' id='1' to='juliet@example.com' type='subscribe'>
         <nick xmlns='http://jabber.org/protocol/nick'>Romeo</nick>
         <delay xmlns='urn:xmpp:delay' from='example.com' stamp='*'/></presence>";
    let own = "<presence from='juliet@example.com/balcony' to='juliet@example.com'/>";
    // The roster of the login still contains it.
    let juliet = engine.connect(JULIET, "balcony");
    engine.store_calls();
    assert_same(&without_random_parts(juliet.request("<presence/>")), &[own, request]);
    assert!(engine.store_calls().is_empty());
    // A change of priority is not a new presence session.
    assert_eq!(juliet.request("<presence><priority>5</priority></presence>").len(), 1);
    juliet.send("<presence type='unavailable'/>");
    juliet.recv();
    assert_same(&without_random_parts(juliet.request("<presence/>")), &[own, request]);
    assert_eq!(engine.store_calls(), ["roster.get"], "only because a request is open");
    juliet.close();
    // Without extended content there is no roster entry; denied, the request does not come back.
    let juliet = engine.connect(JULIET, "balcony");
    juliet.send("<presence/>");
    assert_eq!(juliet.recv().len(), 2);
    juliet.send("<presence id='tb2m1b59' to='romeo@example.net' type='unsubscribed'/>");
    assert_eq!(engine.stored_roster_item(JULIET, ROMEO), None);
    juliet.send("<presence type='unavailable'/>");
    juliet.recv();
    assert_same(&juliet.request("<presence/>"), &[own]);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3
//= type=test
//# the server MUST stamp the outgoing presence stanza with the bare JID <localpart@domainpart> of the sending
//# entity
//= https://www.rfc-editor.org/rfc/rfc6121#section-12
//= type=test
//# Feature: presence-sub-cancel. Description: Treat an outbound presence stanza of type "unsubscribed" as the act
//# of denying a subscription request received from another entity or canceling a subscription approval previously
//# granted to another entity, and treat an inbound presence stanza of type "unsubscribed" as an subscription denial
//# or cancellation from another entity. Section: Section 3.2. Roles: Client MUST, Server MUST.
#[test]
fn section_3_1_4_a_denial_ends_the_request() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "orchard"), online(&engine, JULIET, "balcony"));
    romeo.send(SUBSCRIBE);
    romeo.recv();
    juliet.send("<presence id='tb2m1b59' to='romeo@example.net' type='unsubscribed'/>");
    assert_same(&without_random_parts(juliet.recv()), &[from_romeo("xk3h1v69", "subscribe")]);
    assert_same(
        &without_random_parts(romeo.recv()),
        &[
            from_juliet("tb2m1b59", "unsubscribed"),
            push("romeo@example.net/orchard", &juliet_item("subscription='none'")),
        ],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.3
//= type=test
//# If the contact exists and the user already has a subscription to the contact's presence, then the contact's
//# server MUST auto-reply on behalf of the contact by sending a presence stanza of type "subscribed" from the
//# contact's bare JID to the user's bare JID.
#[test]
fn section_3_1_3_a_request_of_an_existing_subscriber_is_answered_by_the_server() {
    let engine = two_unrelated_users();
    engine.add_contact(JULIET, ROMEO, Subscription::FROM | Subscription::IN_ROSTER);
    let (juliet, romeo) = (online(&engine, JULIET, "balcony"), online(&engine, ROMEO, "orchard"));
    romeo.send(SUBSCRIBE);
    assert!(juliet.recv().is_empty());
    assert_same(
        &without_random_parts(romeo.recv()),
        &[
            push("romeo@example.net/orchard", &juliet_item("subscription='none' ask='subscribe'")),
            from_juliet("xk3h1v69", "subscribed"),
            push("romeo@example.net/orchard", &juliet_item("subscription='to'")),
            "<presence from='juliet@example.com/balcony' to='romeo@example.net'/>".into(),
        ],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.6
//= type=test
//# When the user's server receives a subscription approval, it MUST first check if the contact is in the user's
//# roster with subscription='none' or subscription='from' and the 'ask' flag set to "subscribe"
//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.6
//= type=test
//# then the user's server MUST silently ignore the subscription approval notification by not delivering it to the
//# user
#[test]
fn section_3_1_6_an_unrequested_approval_is_ignored() {
    let engine = two_unrelated_users();
    engine.add_contact(JULIET, ROMEO, Subscription::PENDING_IN);
    let (romeo, juliet) = (online(&engine, ROMEO, "orchard"), online(&engine, JULIET, "balcony"));
    juliet.send(SUBSCRIBED);
    let received = romeo.recv();
    assert!(received.iter().all(|s| !s.contains("type='")), "{received:?}");
    assert_eq!(engine.stored_roster_item(ROMEO, JULIET), None);
}

#[test]
fn section_3_2_unsubscribed_cancels_a_subscription() {
    let engine = two_unrelated_users();
    engine.add_contact(JULIET, ROMEO, Subscription::FROM | Subscription::IN_ROSTER);
    engine.add_contact(ROMEO, JULIET, Subscription::TO | Subscription::IN_ROSTER);
    let romeo = online(&engine, ROMEO, "foo");
    let (balcony, chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    balcony.recv();
    romeo.recv();
    balcony.send("<presence id='ij5b1v7g' to='romeo@example.net' type='unsubscribed'/>");
    assert_same(
        &without_random_parts(romeo.recv()),
        &[
            "<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>".into(),
            "<presence from='juliet@example.com/chamber' to='romeo@example.net' type='unavailable'/>".into(),
            from_juliet("ij5b1v7g", "unsubscribed"),
            push("romeo@example.net/foo", &juliet_item("subscription='none'")),
        ],
    );
    for (juliet, resource) in [(&balcony, "balcony"), (&chamber, "chamber")] {
        let to = format!("juliet@example.com/{resource}");
        assert_same(&without_random_parts(juliet.recv()), &[push(&to, &romeo_item("subscription='none'"))]);
    }
    // Section 3.2.2, rule 1: without a subscription to cancel nothing is sent.
    balcony.send("<presence to='romeo@example.net' type='unsubscribed'/>");
    assert!(romeo.recv().is_empty() && balcony.recv().is_empty());
}

#[test]
fn section_3_3_unsubscribe_ends_a_subscription() {
    let engine = two_unrelated_users();
    engine.add_contact(JULIET, ROMEO, Subscription::FROM | Subscription::IN_ROSTER);
    engine.add_contact(ROMEO, JULIET, Subscription::TO | Subscription::IN_ROSTER);
    let romeo = online(&engine, ROMEO, "foo");
    let (balcony, chamber) = (online(&engine, JULIET, "balcony"), online(&engine, JULIET, "chamber"));
    balcony.recv();
    romeo.recv();
    romeo.send("<presence id='ul4bs71n' to='juliet@example.com' type='unsubscribe'/>");
    for (juliet, resource) in [(&balcony, "balcony"), (&chamber, "chamber")] {
        let to = format!("juliet@example.com/{resource}");
        assert_same(
            &without_random_parts(juliet.recv()),
            &[from_romeo("ul4bs71n", "unsubscribe"), push(&to, &romeo_item("subscription='none'"))],
        );
    }
    assert_same(
        &without_random_parts(romeo.recv()),
        &[
            push("romeo@example.net/foo", &juliet_item("subscription='none'")),
            "<presence from='juliet@example.com/balcony' to='romeo@example.net' type='unavailable'/>".into(),
            "<presence from='juliet@example.com/chamber' to='romeo@example.net' type='unavailable'/>".into(),
        ],
    );
    // Ignored if the sender is not subscribed.
    romeo.send("<presence to='juliet@example.com' type='unsubscribe'/>");
    assert!(balcony.recv().is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.3.3
//= type=test
//# then the contact's server MUST simply remove any record of the inbound presence subscription request
#[test]
fn section_3_3_3_unsubscribe_withdraws_a_request() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "orchard"), online(&engine, JULIET, "balcony"));
    romeo.send(SUBSCRIBE);
    romeo.send("<presence id='2' to='juliet@example.com' type='unsubscribe'/>");
    assert_same(&juliet.recv(), &[from_romeo("xk3h1v69", "subscribe"), from_romeo("2", "unsubscribe")]);
    assert_eq!(engine.stored_roster_item(JULIET, ROMEO), None);
}

#[test]
fn section_3_4_pre_approval() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "bar"), online(&engine, JULIET, "balcony"));
    romeo.send("<presence id='pg81vx64' to='juliet@example.com' type='subscribed'/>");
    let item = juliet_item("approved='true' subscription='none'");
    assert_same(&without_random_parts(romeo.recv()), &[push("romeo@example.net/bar", &item)]);
    assert!(juliet.recv().is_empty(), "it is not routed");
    juliet.send("<presence id='s1' to='romeo@example.net' type='subscribe'/>");
    assert_same(
        &without_random_parts(romeo.recv()),
        &[push("romeo@example.net/bar", &juliet_item("subscription='from'"))],
    );
    assert_same(
        &without_random_parts(juliet.recv()),
        &[
            push("juliet@example.com/balcony", &romeo_item("subscription='none' ask='subscribe'")),
            from_romeo("s1", "subscribed"),
            push("juliet@example.com/balcony", &romeo_item("subscription='to'")),
            "<presence from='romeo@example.net/bar' to='juliet@example.com'/>".into(),
        ],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.2.2
//= type=test
//# the contact's server MUST remove the pre-approval and MUST NOT route or deliver the presence stanza of type
//# "unsubscribed" to the user.
#[test]
fn section_3_4_cancelling_a_pre_approval_notifies_no_other_user() {
    let engine = two_unrelated_users();
    let (romeo, juliet) = (online(&engine, ROMEO, "bar"), online(&engine, JULIET, "balcony"));
    romeo.send("<presence to='juliet@example.com' type='subscribed'/>");
    romeo.recv();
    romeo.send("<presence to='juliet@example.com' type='unsubscribed'/>");
    assert_same(
        &without_random_parts(romeo.recv()),
        &[push("romeo@example.net/bar", &juliet_item("subscription='none'"))],
    );
    assert!(juliet.recv().is_empty());
}

#[test]
fn an_offline_account_keeps_its_side_in_step() {
    let engine = two_unrelated_users();
    engine.befriend(JULIET, ROMEO);
    let romeo = online(&engine, ROMEO, "orchard");
    romeo.send("<presence to='juliet@example.com' type='unsubscribe'/>");
    assert_eq!(state(&engine, JULIET, ROMEO), Subscription::TO | Subscription::IN_ROSTER);
    romeo.send("<presence to='juliet@example.com' type='unsubscribed'/>");
    assert_eq!(state(&engine, JULIET, ROMEO), Subscription::IN_ROSTER);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.5.3.1
//= type=test
//# For a presence stanza, the server SHOULD ignore the stanza (or behave as described in [XMPP-IM]).
//= https://www.rfc-editor.org/rfc/rfc6121#section-8.5.1
//= type=test
//# For a presence stanza of type "subscribe", "subscribed", "unsubscribe", or "unsubscribed", the server MUST
//# silently ignore the stanza.
#[test]
fn section_8_5_1_requests_to_a_missing_account_are_not_answered() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    for ty in ["subscribe", "unsubscribe", "subscribed", "unsubscribed"] {
        romeo.send(&format!("<presence id='1' to='nobody@example.com' type='{ty}'/>"));
        let received = romeo.recv();
        assert!(received.iter().all(|s| s.starts_with("<iq")), "only pushes: {received:?}");
    }
    // The missing account's address has a number as a contact, and still no account.
    romeo.send("<presence id='1' to='nobody@example.com' type='subscribe'/>");
    assert!(romeo.recv().iter().all(|s| s.starts_with("<iq")));
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.2
//= type=test
//# then the user's server MUST return an appropriate error stanza to the user.
#[test]
fn section_3_1_2_a_server_that_cannot_be_found_is_an_error() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    let got = romeo.request("<presence id='xk3h1v69' to='juliet@elsewhere.example' type='subscribe'/>");
    assert_eq!(error(&got[1..]), is("cancel", "remote-server-not-found"));
    assert!(got[1].contains("to='romeo@example.net'") && got[1].contains("id='xk3h1v69'"), "{got:?}");
}

#[test]
fn subscriptions_to_oneself_without_address_or_above_the_limit_have_no_effect() {
    let engine = TestNode::with_limits(&FEATURES, NodeLimits { roster_items: 1, ..NodeLimits::default() });
    engine.create_user(ROMEO);
    let romeo = online(&engine, ROMEO, "orchard");
    assert!(romeo.request("<presence to='romeo@example.net/x' type='subscribe'/>").is_empty());
    assert_eq!(engine.stored_roster_item(ROMEO, ROMEO), None);
    assert_eq!(error(&romeo.request("<presence type='subscribe'/>")), is("modify", "bad-request"));
    romeo.send(SUBSCRIBE);
    romeo.recv();
    assert_eq!(
        error(&romeo.request("<presence to='a@example.com' type='subscribe'/>")),
        is("modify", "policy-violation")
    );
    assert_eq!(
        error(&romeo.request("<presence to='a@example.com' type='subscribed'/>")),
        is("modify", "policy-violation")
    );
    assert!(
        romeo.request("<presence to='juliet@example.com' type='unsubscribe'/>")[0].contains("type='set'")
    );
}

#[test]
fn a_large_request_is_stored_without_its_children() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    let long = "x".repeat(5000);
    romeo.send(&format!(
        "<presence id='1' to='juliet@example.com' type='subscribe'><status>{long}</status></presence>"
    ));
    let juliet = engine.connect(JULIET, "balcony");
    assert_same(
        &without_random_parts(juliet.request("<presence/>"))[1..],
        &["<presence from='romeo@example.net' id='1' to='juliet@example.com' type='subscribe'>
           <delay xmlns='urn:xmpp:delay' from='example.com' stamp='*'/></presence>"],
    );
}

#[test]
fn a_request_with_a_large_id_is_stored_without_its_id() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    romeo.send(&format!("<presence id='{}' to='juliet@example.com' type='subscribe'/>", "x".repeat(5000)));
    let request = engine.stored_roster_item(JULIET, ROMEO).unwrap().request.unwrap();
    assert!(request.len() < 300, "{}", String::from_utf8_lossy(&request));
}

#[test]
fn open_requests_are_limited() {
    let enabled: Vec<EnabledFeature> = FEATURES
        .iter()
        .map(|feature| {
            let mut options = FeatureOptions::defaults(feature.options);
            let _ = options.set(feature.options, "max_pending_requests", OptionValue::Int(2));
            EnabledFeature { feature, options }
        })
        .collect();
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.create_user(JULIET);
    for (n, online_now) in [(1, false), (2, true), (3, true), (4, false)] {
        let juliet = online_now.then(|| online(&engine, JULIET, "balcony"));
        let name = format!("suitor{n}@example.net");
        engine.create_user(&name);
        online(&engine, &name, "x").send(SUBSCRIBE);
        assert_eq!(engine.stored_roster_item(JULIET, &name).is_some(), n <= 2, "{name}");
        if let Some(juliet) = juliet {
            juliet.close();
        }
    }
}

#[test]
fn a_failing_store_is_an_error_to_the_sender() {
    let engine = two_unrelated_users();
    let romeo = online(&engine, ROMEO, "orchard");
    engine.set_store_failing(true);
    assert_eq!(error(&romeo.request(SUBSCRIBE)), is("wait", "resource-constraint"));
    engine.set_store_failing(false);
    assert_eq!(engine.stored_roster_item(ROMEO, JULIET), None);
}

#[test]
fn a_removed_account_leaves_no_pending_requests() {
    let engine = two_unrelated_users();
    engine.create_user("nurse@example.com");
    engine.befriend(JULIET, ROMEO);
    let romeo = online(&engine, ROMEO, "orchard");
    let juliet = online(&engine, JULIET, "balcony");
    juliet.send("<presence to='nurse@example.com' type='subscribe'/>");
    romeo.recv();
    let owner = juliet.session.account.clone();
    let removed = engine.block_on(engine.stores.accounts.remove(owner.jid.as_ref())).unwrap().unwrap();
    engine.node.account_removed(&owner.host(), owner.jid.as_ref(), removed.contacts);
    engine.run_tasks();
    let received: Vec<String> = without_random_parts(romeo.recv()).iter().map(|s| without_id(s)).collect();
    assert!(received[0].contains("type='unavailable'"), "{received:?}");
    assert_eq!(state(&engine, ROMEO, JULIET), Subscription::IN_ROSTER);
    assert_eq!(engine.stored_roster_item("nurse@example.com", JULIET), None, "the request is taken back");
}

#[test]
fn subscription_errors_of_others_do_not_end_a_detached_session() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    detach(&engine, &juliet);
    send_presence_of_many(&engine, "to='juliet@example.com' type='error'");
    assert_eq!(juliet.closed_with(), None);
    let queued = juliet.session.outbox.queued_bytes();
    let quarter = engine.node.limits().queue_presence_bytes / 4;
    assert!(queued > quarter / 2 && queued <= quarter, "{queued} of {quarter}");
}

#[test]
fn the_unavailable_after_the_users_own_unsubscribe_is_not_dropped_for_presence_of_others() {
    let engine = two_unrelated_users();
    engine.befriend(JULIET, ROMEO);
    let (_romeo, juliet) = (online(&engine, ROMEO, "x"), online(&engine, JULIET, "balcony"));
    juliet.send("<presence to='romeo@example.net' type='unsubscribe'/>");
    detach(&engine, &juliet);
    send_presence_of_many(&engine, "to='juliet@example.com/balcony'");
    assert_eq!(count_queued_from(&juliet, "romeo@example.net/x"), 1);
}
