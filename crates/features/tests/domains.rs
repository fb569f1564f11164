//! Tests of the kinds of domains, and of sessions that outlive many reloads.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use feature_api::EnabledFeature;
use jid::JidRef;
use stanza::{StanzaCondition, StanzaError};
use store::Subscription;
use testkit::TestNode;
use throng_core::domains::{ComponentError, Domain, DomainRoute};
use throng_core::{NodeLimits, SharedStanza};
use throng_features::registry::{ModuleConfig, enable};

const ALL: [&str; 3] = testkit::engine::DOMAINS;

fn only(names: &[&str]) -> Vec<EnabledFeature> {
    let off = throng_features::registry::ALL.iter().map(|feature| feature.name);
    let config = off.map(|name| (name.to_owned(), ModuleConfig::Switch(names.contains(&name))));
    enable(&config.collect::<BTreeMap<_, _>>()).unwrap()
}

#[test]
fn a_session_that_outlives_1000_reloads_keeps_one_host_alive() {
    let engine = TestNode::start(&only(&["ping"]), NodeLimits::default());
    engine.create_user("juliet");
    let juliet = engine.connect("juliet", "balcony");
    let mut hosts = Vec::new();
    for round in 0..1000 {
        hosts.push(Arc::downgrade(&engine.node.host("example.com").unwrap()));
        engine.reload(&ALL, &only(if round % 2 == 0 { &["entity_time"] } else { &["ping"] }));
    }
    assert_eq!(hosts.iter().filter(|host| host.strong_count() > 0).count(), 0);
    let current = engine.node.host("example.com").unwrap();
    assert!(Arc::ptr_eq(&current, &juliet.session.account.host()));
    let reply = juliet.request("<iq type='get' id='1' to='example.com'><ping xmlns='urn:xmpp:ping'/></iq>");
    assert!(reply.concat().contains("type='result'"), "{reply:?}");
}

#[test]
fn a_session_finds_its_domain_again_that_was_removed_and_added() {
    let engine = TestNode::start(&only(&[]), NodeLimits::default());
    engine.create_user("romeo@example.net");
    let romeo = engine.connect("romeo@example.net", "orchard");
    let removed: Weak<_> = Arc::downgrade(&engine.node.host("example.net").unwrap());
    assert_eq!(engine.reload(&["example.com"], &only(&[])), 1, "the session is closing");
    engine.reload(&ALL, &only(&["ping"]));
    assert!(Arc::ptr_eq(&engine.node.host("example.net").unwrap(), &romeo.session.account.host()));
    assert_eq!(removed.strong_count(), 0);
}

/// Records what it takes; refuses stanzas to `nobody`.
#[derive(Default)]
struct RecordedRoute(LeafMutex<Vec<String>>);

impl DomainRoute for RecordedRoute {
    fn send(&self, stanza: &SharedStanza, from: JidRef<'_>, to: JidRef<'_>) -> Result<(), StanzaError> {
        if to.local() == Some("nobody") {
            return Err(StanzaCondition::RecipientUnavailable.into());
        }
        self.0.lock().push(format!("{} {from} {to}", stanza.kind().name()));
        Ok(())
    }
}

impl RecordedRoute {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[test]
fn each_kind_of_domain_has_its_way() {
    let engine = TestNode::start(&only(&[]), NodeLimits::default());
    engine.create_user("juliet");
    let juliet = engine.connect("juliet", "balcony");
    let message =
        |to: &str| juliet.request(&format!("<message to='{to}' id='1'><body>x</body></message>")).concat();
    let (component, remote) = (Arc::new(RecordedRoute::default()), Arc::new(RecordedRoute::default()));

    assert!(matches!(engine.node.domains().find("example.com"), Domain::Accounts(_)));
    assert!(matches!(engine.node.domains().find("irc.example.com"), Domain::Remote(None)));
    assert!(message("x@irc.example.com").contains("<remote-server-not-found"));

    engine.node.set_component("IRC.example.com", Some(component.clone())).unwrap();
    engine.node.set_remote_route(Some(remote.clone()));
    assert!(matches!(engine.node.domains().find("irc.example.com"), Domain::Component(_)));
    for (to, route) in
        [("x@irc.example.com", &component), ("irc.example.com", &component), ("x@far.org", &remote)]
    {
        assert_eq!(message(to), "", "{to}");
        assert_eq!(route.take(), [format!("message juliet@example.com/balcony {to}")]);
    }
    assert!(message("nobody@irc.example.com").contains("<recipient-unavailable"));
    assert!(engine.node.host("irc.example.com").is_none(), "it has no accounts");

    let refused = engine.node.set_component("example.com", Some(component.clone()));
    assert_eq!(refused, Err(ComponentError::DomainIsServed));
    let refused = engine.node.set_component("x@example.com", Some(component.clone()));
    assert_eq!(refused, Err(ComponentError::InvalidDomain));
    assert!(matches!(engine.node.domains().find("example.com"), Domain::Accounts(_)));

    engine.reload(&ALL, &only(&["ping"]));
    assert_eq!(message("x@irc.example.com"), "", "a reload keeps the routes");
    engine.node.set_component("irc.example.com", None).unwrap();
    engine.node.set_remote_route(None);
    assert!(message("x@irc.example.com").contains("<remote-server-not-found"));
}

#[test]
fn a_presence_broadcast_reaches_contacts_of_components_and_other_servers() {
    // A service that takes presence, as rooms do, would be a route.
    let takes_presence = ["muc", "pubsub"];
    let all = throng_features::registry::ALL.iter().copied();
    let features: Vec<_> = all.filter(|feature| !takes_presence.contains(&feature.name)).collect();
    let engine = TestNode::new(&features);
    engine.create_user("juliet");
    for (contact, subscription) in [
        ("x@irc.example.com", Subscription::BOTH),
        ("y@far.org", Subscription::FROM),
        ("z@far.org", Subscription::TO),
        ("blocked@far.org", Subscription::BOTH),
    ] {
        engine.add_contact("juliet", contact, subscription | Subscription::IN_ROSTER);
    }
    let juliet = engine.connect("juliet", "balcony");
    juliet.request(
        "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='blocked@far.org'/></block></iq>",
    );
    engine.store_calls();
    juliet.send("<presence/>");
    assert!(!engine.store_calls().contains(&"addresses.resolve"), "nothing is read while there is no route");
    let (component, remote) = (Arc::new(RecordedRoute::default()), Arc::new(RecordedRoute::default()));
    engine.node.set_component("irc.example.com", Some(component.clone())).unwrap();
    engine.node.set_remote_route(Some(remote.clone()));
    let both = |component: &RecordedRoute, remote: &RecordedRoute| [component.take(), remote.take()].concat();
    let to_both =
        ["x@irc.example.com", "y@far.org"].map(|to| format!("presence juliet@example.com/balcony {to}"));
    juliet.send("<presence><show>away</show></presence>");
    assert_eq!(both(&component, &remote), to_both);
    assert!(engine.store_calls().contains(&"addresses.resolve"));
    // A subscriber receives directed presence once, and what ends it by the broadcast.
    juliet.send("<presence to='y@far.org'/>");
    assert_eq!(remote.take(), to_both[1..]);
    // A contact that is added later is found as well.
    engine.add_contact("juliet", "new@irc.example.com", Subscription::FROM | Subscription::IN_ROSTER);
    juliet.close();
    let mut reached = both(&component, &remote);
    reached.sort_unstable();
    assert_eq!(reached.len(), 3, "{reached:?}");
    assert!(reached[0].ends_with("new@irc.example.com"), "{reached:?}");
}
