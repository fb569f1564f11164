//! Tests of a reload with running sessions: they get the new handlers, and those of a removed domain end with
//! `host-gone`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions};
use stanza::StreamCondition;
use testkit::TestNode;
use throng_core::NodeLimits;
use throng_core::hooks::{Flow, OpenedCtx, Phase};
use throng_features::registry::{ModuleConfig, enable};

const ALL: [&str; 3] = testkit::engine::DOMAINS;

fn modules(text: &[(&str, bool)]) -> Vec<EnabledFeature> {
    let config = text.iter().map(|(name, on)| ((*name).to_owned(), ModuleConfig::Switch(*on)));
    enable(&config.collect::<BTreeMap<_, _>>()).unwrap()
}

#[test]
fn a_connected_session_follows_each_reload() {
    let engine = TestNode::start(&modules(&[]), NodeLimits::default());
    engine.create_user("juliet");
    let juliet = engine.connect("juliet", "balcony");
    let ask = || {
        juliet.send("<iq type='get' id='1' to='example.com'><time xmlns='urn:xmpp:time'/></iq>");
        juliet.recv().concat()
    };
    assert!(ask().contains("type='result'"));
    for round in 0..3 {
        assert_eq!(engine.reload(&ALL, &modules(&[("entity_time", false)])), 0);
        assert!(ask().contains("<service-unavailable"), "round {round}");
        assert_eq!(engine.reload(&ALL, &modules(&[])), 0);
        assert!(ask().contains("type='result'"), "round {round}");
    }
}

#[test]
fn removing_a_domain_ends_its_sessions_and_no_others() {
    let engine = TestNode::start(&modules(&[]), NodeLimits::default());
    for user in ["juliet", "romeo@example.net"] {
        engine.create_user(user);
    }
    engine.befriend("juliet", "romeo@example.net");
    let juliet = engine.connect("juliet", "balcony");
    let romeo = engine.connect("romeo@example.net", "orchard");
    let late = engine.principal("romeo@example.net");
    juliet.send("<presence/>");
    romeo.send("<presence/>");
    juliet.recv();
    assert_eq!(engine.reload(&["example.com"], &modules(&[])), 1);
    let reason = romeo.session.outbox.close_reason().expect("an end");
    assert_eq!(reason.condition, StreamCondition::HostGone);
    assert_eq!(juliet.session.outbox.close_reason(), None);
    romeo.close();
    let received = juliet.recv().concat();
    assert!(received.contains("type='unavailable'"), "contacts see that he is gone: {received}");
    juliet.send("<message to='romeo@example.net' type='chat' id='m'><body>Where?</body></message>");
    assert!(juliet.recv().concat().contains("<remote-server-not-found"));
    // A client that received the domain's stream header before the removal, and binds after it.
    let late = engine.bind(late, "late").expect("bound, and ended at once");
    assert_eq!(late.session.outbox.close_reason().expect("an end").condition, StreamCondition::HostGone);
}

/// Adds all domains again when the resource `late` is bound: a reload during the login.
static RETURN_OF_DOMAINS: Feature = Feature {
    name: "return-of-domains",
    build: |builder| {
        builder.opened(Phase::Notify, |ctx: &mut OpenedCtx<'_>| {
            if ctx.session.resource() == "late" {
                let host = |domain: &&str| {
                    let host = feature_api::build_host(domain, &modules(&[]), &ctx.node.limits()).unwrap();
                    ((*domain).to_owned(), Arc::new(host))
                };
                ctx.node.set_hosts(ALL.iter().map(host).collect());
            }
            Flow::Next
        });
    },
    ..Feature::EMPTY
};

#[test]
fn a_login_during_the_removal_and_return_of_its_domain_follows_later_reloads() {
    let mut enabled = modules(&[]);
    enabled.push(EnabledFeature { feature: &RETURN_OF_DOMAINS, options: FeatureOptions::default() });
    let engine = TestNode::start(&enabled, NodeLimits::default());
    engine.create_user("romeo@example.net");
    let late = engine.principal("romeo@example.net");
    engine.reload(&["example.com"], &enabled);
    let late = engine.bind(late, "late").expect("a session");
    assert_eq!(late.session.outbox.close_reason(), None);
    for _ in 0..2 {
        let served = engine.node.host("example.net").unwrap();
        assert!(Arc::ptr_eq(&late.session.account.host(), &served));
        engine.reload(&ALL, &enabled);
    }
}
