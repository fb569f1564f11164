//! Test that no request reveals whether an account exists or is connected: RFC 6121, sections 8.5.1 and 8.5.3.1.
//! Covers every request that any module answers for another account, and an unknown one, with the modules' default
//! options.
//!
//! Not covered: vCards, which are public (XEP-0054, section 5); the account here has none.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use store::Subscription;
use testkit::TestNode;
use throng_core::NodeLimits;
use throng_core::iq::IqTarget;
use throng_features::registry::{ModuleConfig, enable};

fn engine(modules: BTreeMap<String, ModuleConfig>) -> TestNode {
    let engine = TestNode::start(&enable(&modules).unwrap(), NodeLimits::default());
    for user in ["romeo", "online", "offline", "friendly"] {
        engine.create_user(user);
    }
    // A user who may see Romeo's presence does not thereby become visible to Romeo.
    engine.add_contact("friendly", "romeo@example.com", Subscription::TO);
    engine
}

#[test]
fn a_hidden_account_answers_every_request_like_a_missing_one() {
    let all = throng_features::registry::ALL.iter().map(|feature| {
        let registered = feature.default_on || feature.name == "external_services";
        (feature.name.to_owned(), ModuleConfig::Switch(registered))
    });
    let engine = engine(all.collect());
    let romeo = engine.connect("romeo", "orchard");
    let connected: Vec<_> = ["online", "friendly"].map(|name| engine.connect(name, "here")).into();
    connected.iter().for_each(|client| client.send("<presence/>"));
    let host = engine.node.host("example.com").unwrap();
    let mut requests: Vec<(bool, String)> = host
        .iq
        .keys()
        .filter(|(key, _)| key.target == IqTarget::Account)
        .map(|(key, _)| (key.set, format!("<{} xmlns='{}'/>", key.name, key.ns.as_str())))
        .collect();
    assert!(requests.len() > 6, "{requests:?}");
    requests.push((false, "<query xmlns='urn:example:unknown'/>".into()));
    requests.push((false, "<query xmlns='http://jabber.org/protocol/disco#info' node='x'/>".into()));
    requests.push((
        false,
        "<query xmlns='http://jabber.org/protocol/disco#items' node='http://jabber.org/protocol/commands'/>"
            .into(),
    ));
    for (set, payload) in requests {
        for resource in ["", "/here", "/gone"] {
            let ask = |name: &str| {
                romeo.recv();
                let kind = if set { "set" } else { "get" };
                let to = format!("{name}@example.com{resource}");
                let answer = romeo.request(&format!("<iq to='{to}' id='1' type='{kind}'>{payload}</iq>"));
                assert_eq!(answer.len(), 1, "{to} {payload}");
                answer.concat().replace(&format!("{name}@"), "somebody@")
            };
            let missing = ask("missing");
            for name in ["online", "offline", "friendly"] {
                assert_eq!(ask(name), missing, "{name}{resource} {payload}");
            }
        }
    }
    for client in connected {
        client.recv().iter().for_each(|seen| assert!(!seen.starts_with("<iq"), "{seen}"));
    }
}

#[test]
fn rfc_6121_section_8_5_3_1_a_domain_may_choose_to_deliver_requests_to_full_addresses() {
    let mut modules = BTreeMap::new();
    for deliver in [false, true] {
        let options =
            [("allow_iq_without_subscription".to_owned(), feature_api::feature::OptionValue::Bool(deliver))];
        modules.insert("presence".to_owned(), ModuleConfig::Options(options.into()));
        let engine = engine(modules.clone());
        let (romeo, online) = (engine.connect("romeo", "orchard"), engine.connect("online", "here"));
        let answer = romeo
            .request("<iq to='online@example.com/here' id='1' type='get'><query xmlns='urn:x'/></iq>")
            .concat();
        assert_eq!(answer.contains("<service-unavailable "), !deliver, "{answer}");
        assert_eq!(online.recv().len(), usize::from(deliver));
        // A missing resource stays unavailable, and so does data that a feature restricts to users who may see
        // presence (XEP-0012, section 4).
        let gone =
            romeo.request("<iq to='online@example.com/x' id='2' type='get'><query xmlns='urn:x'/></iq>");
        assert!(gone.concat().contains("<service-unavailable "));
        let last = "<iq to='online@example.com/here' id='3' type='get'><query xmlns='jabber:iq:last'/></iq>";
        assert!(romeo.request(last).concat().contains("<forbidden ") && online.recv().is_empty());
    }
}
