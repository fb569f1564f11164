//! Tests from the examples of XEP-0065, sections 4 and 6: those in which the proxy takes part.

use std::net::SocketAddr;
use std::sync::Arc;

use base::lock::LeafMutex;
use feature_api::EnabledFeature;
use jid::JidRef;
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::NodeLimits;

use super::*;

/// Listens at port 7625, and knows one bytestream.
#[derive(Default)]
struct RecordedRelay {
    refuses: LeafMutex<Option<ActivationRefusal>>,
    activated: LeafMutex<Vec<String>>,
    closed: bool,
}

impl BytestreamRelay for RecordedRelay {
    fn addresses(&self) -> Vec<SocketAddr> {
        if self.closed { vec![] } else { vec!["0.0.0.0:7625".parse().unwrap(), "[::]:7625".parse().unwrap()] }
    }

    fn activate(
        &self,
        destination: [u8; 20],
        service: &str,
        user: JidRef<'_>,
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal> {
        if let Some(refusal) = *self.refuses.lock() {
            return Err(refusal);
        }
        let hex = destination.map(|byte| format!("{byte:02x}")).concat();
        let bytestreams = limits.bytestreams_per_user;
        self.activated.lock().push(format!("{hex} {service} {user} {bytestreams}"));
        Ok(())
    }
}

struct Fixture {
    engine: TestNode,
    relay: Arc<RecordedRelay>,
    requester: NodeClient,
}

fn fixture(options: &[(&'static str, OptionValue)], relay: RecordedRelay) -> Fixture {
    let mut enabled: Vec<EnabledFeature> = [&crate::disco::FEATURE, &FEATURE]
        .into_iter()
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
        .collect();
    for (key, value) in options {
        enabled[1].options.set(FEATURE.options, key, value.clone()).unwrap();
    }
    let engine = TestNode::start(&enabled, NodeLimits::default());
    let relay = Arc::new(relay);
    engine.node.extensions.insert::<SharedBytestreamRelay>(relay.clone());
    engine.create_user("requester");
    let requester = engine.connect("requester", "foo");
    Fixture { engine, relay, requester }
}

fn text(value: &'static str) -> OptionValue {
    OptionValue::Text(value.into())
}

/// The proxy of the examples.
fn example() -> Fixture {
    fixture(
        &[("address", text("streamer.{domain}")), ("streamhost", text("24.24.24.1"))],
        RecordedRelay::default(),
    )
}

fn request(client: &NodeClient, kind: &str, to: &str, payload: &str) -> Vec<String> {
    client.request(&format!("<iq type='{kind}' id='1' to='{to}'>{payload}</iq>"))
}

fn result(from: &str, payload: &str) -> [String; 1] {
    [format!("<iq from='{from}' id='1' to='requester@example.com/foo' type='result'>{payload}</iq>")]
}

const QUERY: &str = "<query xmlns='http://jabber.org/protocol/bytestreams'/>";
const ACTIVATION: &str = "<query xmlns='http://jabber.org/protocol/bytestreams' sid='vxf9n471bn46'>\
                          <activate>target@example.org/bar</activate></query>";

#[test]
fn section_4_the_server_lists_the_proxy() {
    let Fixture { requester, .. } = example();
    assert_same(
        &request(&requester, "get", "example.com", "<query xmlns='http://jabber.org/protocol/disco#items'/>"),
        &result(
            "example.com",
            "<query xmlns='http://jabber.org/protocol/disco#items'>\
             <item jid='streamer.example.com' name='File transfer proxy'/></query>",
        ),
    );
}

#[test]
fn section_4_the_proxy_describes_itself() {
    let Fixture { requester, .. } = example();
    assert_same(
        &request(
            &requester,
            "get",
            "streamer.example.com",
            "<query xmlns='http://jabber.org/protocol/disco#info'/>",
        ),
        &result(
            "streamer.example.com",
            "<query xmlns='http://jabber.org/protocol/disco#info'>\
             <identity category='proxy' type='bytestreams' name='File transfer proxy'/>\
             <feature var='http://jabber.org/protocol/bytestreams'/>\
             <feature var='http://jabber.org/protocol/disco#info'/>\
             <feature var='http://jabber.org/protocol/disco#items'/></query>",
        ),
    );
}

#[test]
fn section_4_the_proxy_returns_its_network_address() {
    let Fixture { requester, .. } = example();
    assert_same(
        &request(&requester, "get", "streamer.example.com", QUERY),
        &result(
            "streamer.example.com",
            "<query xmlns='http://jabber.org/protocol/bytestreams'>\
             <streamhost host='24.24.24.1' jid='streamer.example.com' port='7625'/></query>",
        ),
    );
}

#[test]
fn the_network_address_is_that_of_the_listener_or_the_configured_one() {
    for (options, want) in [
        (vec![], "host='example.com' jid='proxy.example.com' port='7625'"),
        (
            vec![("streamhost_port", OptionValue::Int(80))],
            "host='example.com' jid='proxy.example.com' port='80'",
        ),
        (vec![("streamhost", text("2001:db8::1"))], "host='2001:db8::1' jid='proxy.example.com' port='7625'"),
    ] {
        let Fixture { requester, .. } = fixture(&options, RecordedRelay::default());
        let reply = request(&requester, "get", "proxy.example.com", QUERY).concat();
        assert!(reply.contains(&format!("<streamhost {want}/></query>")), "once: {reply}");
    }
}

#[test]
fn section_4_users_of_other_domains_are_forbidden() {
    let Fixture { engine, relay, .. } = example();
    engine.create_user("romeo@example.net");
    let romeo = engine.connect("romeo@example.net", "foo");
    for (kind, payload) in [("get", QUERY), ("set", ACTIVATION)] {
        let reply = request(&romeo, kind, "streamer.example.com", payload).concat();
        assert!(reply.contains("type='error'") && reply.contains("<error type='auth'><forbidden"), "{reply}");
    }
    assert!(relay.activated.lock().is_empty());
}

#[test]
fn section_4_a_proxy_without_a_listener_is_not_allowed() {
    let Fixture { requester, .. } = fixture(&[], RecordedRelay { closed: true, ..RecordedRelay::default() });
    let reply = request(&requester, "get", "proxy.example.com", QUERY).concat();
    assert!(reply.contains("<error type='cancel'><not-allowed"), "{reply}");
}

#[test]
fn section_6_3_5_the_requester_activates_the_bytestream() {
    let Fixture { requester, relay, .. } = example();
    assert_same(
        &request(&requester, "set", "streamer.example.com", ACTIVATION),
        &["<iq from='streamer.example.com' id='1' to='requester@example.com/foo' type='result'/>".to_owned()],
    );
    // printf vxf9n471bn46requester@example.com/footarget@example.org/bar | sha1sum
    assert_eq!(
        *relay.activated.lock(),
        ["98b8d688d0f5d895fd41c5e7309a2e9e33ba32ff streamer.example.com requester@example.com 5"]
    );
}

#[test]
fn section_6_3_5_addresses_are_normalised_before_the_digest() {
    let Fixture { requester, relay, .. } = example();
    let shouted = ACTIVATION.replace("target@example.org/bar", " Target@EXAMPLE.org/bar ");
    for payload in [ACTIVATION, &shouted] {
        request(&requester, "set", "streamer.example.com", payload);
    }
    let activated = relay.activated.lock();
    assert_eq!(activated[0], activated[1]);
}

#[test]
fn section_6_3_5_each_refusal_has_its_condition() {
    let Fixture { requester, relay, .. } = example();
    for (refusal, want) in [
        (ActivationRefusal::NotConnected, "<item-not-found"),
        (ActivationRefusal::OneParty, "<not-allowed"),
        (ActivationRefusal::UserLimit, "<resource-constraint"),
    ] {
        *relay.refuses.lock() = Some(refusal);
        let reply = request(&requester, "set", "streamer.example.com", ACTIVATION).concat();
        assert!(reply.contains("type='error'") && reply.contains(want), "{reply}");
    }
}

#[test]
fn malformed_activations_are_refused() {
    let Fixture { requester, relay, .. } = example();
    for (from, to, want) in [
        (" sid='vxf9n471bn46'", "", "<bad-request"),
        (" sid='vxf9n471bn46'", " sid=''", "<bad-request"),
        ("<activate>target@example.org/bar</activate>", "", "<bad-request"),
        ("<activate>", "<activate xmlns='urn:x'>", "<bad-request"),
        ("target@example.org/bar", "@", "<jid-malformed"),
        ("target@example.org/bar", "", "<jid-malformed"),
        (" sid=", " mode='udp' sid=", "<feature-not-implemented"),
    ] {
        let reply =
            request(&requester, "set", "streamer.example.com", &ACTIVATION.replace(from, to)).concat();
        assert!(reply.contains("type='error'") && reply.contains(want), "{from} {to}: {reply}");
    }
    for to in ["x@streamer.example.com", "x@streamer.example.com/y"] {
        assert!(request(&requester, "set", to, ACTIVATION).concat().contains("<item-not-found"));
    }
    assert!(relay.activated.lock().is_empty());
}
