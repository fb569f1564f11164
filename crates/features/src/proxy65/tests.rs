//! Tests from the examples of XEP-0065, sections 4 and 6: those in which the proxy takes part.

use feature_api::EnabledFeature;
use feature_api::listener::ListenerHandler;
use testkit::{ListenerClient, NodeClient, TestListener, TestNode, assert_same};
use throng_core::NodeLimits;

use super::*;

struct Fixture {
    engine: TestNode,
    /// The listener of the engine's proxy.
    listener: TestListener,
    requester: NodeClient,
}

/// A proxy that listens at port 7625.
fn fixture(options: &[(&'static str, OptionValue)]) -> Fixture {
    fixture_at(&["0.0.0.0:7625", "[::]:7625"], options)
}

fn fixture_at(addresses: &[&str], options: &[(&'static str, OptionValue)]) -> Fixture {
    let mut enabled: Vec<EnabledFeature> = [&crate::disco::FEATURE, &FEATURE]
        .into_iter()
        .map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
        .collect();
    for (key, value) in options {
        enabled[1].options.set(FEATURE.options, key, value.clone()).unwrap();
    }
    let engine = TestNode::start(&enabled, NodeLimits::default());
    let handler = (listener::LISTENER.start)(&engine.node);
    addresses.iter().for_each(|address| handler.add_address(address.parse().unwrap()));
    handler.configure(&engine.node.hosts());
    let listener = TestListener::new(handler, engine.clock.clone());
    engine.create_user("requester");
    let requester = engine.connect("requester", "foo");
    Fixture { engine, listener, requester }
}

impl Fixture {
    /// A party of the bytestream with this destination, in hexadecimal digits.
    fn party(&mut self, destination: &str) -> ListenerClient {
        let mut client = self.listener.connect();
        client.write(&[5, 1, 0]);
        self.listener.run();
        assert_eq!(client.read(), [5, 0]);
        client.write(&[&[5, 1, 0, 3, 40], destination.as_bytes(), &[0, 0]].concat());
        self.listener.run();
        assert_eq!(client.read()[..2], [5, 0]);
        client
    }

    /// Bytestreams activated so far.
    fn activated(&self) -> u64 {
        self.engine.node.extensions.get::<Socks5Proxy>().unwrap().counts().activated
    }

    /// The answer to an activation.
    fn activate(&self) -> String {
        request(&self.requester, "set", "streamer.example.com", ACTIVATION).concat()
    }
}

fn text(value: &'static str) -> OptionValue {
    OptionValue::Text(value.into())
}

/// The proxy of the examples.
fn example() -> Fixture {
    fixture(&[("address", text("streamer.{domain}")), ("streamhost", text("24.24.24.1"))])
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
/// `printf vxf9n471bn46requester@example.com/footarget@example.org/bar | sha1sum`
const DESTINATION: &str = "98b8d688d0f5d895fd41c5e7309a2e9e33ba32ff";
const ACTIVATED: &str =
    "<iq from='streamer.example.com' id='1' to='requester@example.com/foo' type='result'/>";

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
        let Fixture { requester, .. } = fixture(&options);
        let reply = request(&requester, "get", "proxy.example.com", QUERY).concat();
        assert!(reply.contains(&format!("<streamhost {want}/></query>")), "once: {reply}");
    }
}

#[test]
fn section_4_users_of_other_domains_are_forbidden() {
    let mut fixture = example();
    let _parties = [fixture.party(DESTINATION), fixture.party(DESTINATION)];
    fixture.engine.create_user("romeo@example.net");
    let romeo = fixture.engine.connect("romeo@example.net", "foo");
    for (kind, payload) in [("get", QUERY), ("set", ACTIVATION)] {
        let reply = request(&romeo, kind, "streamer.example.com", payload).concat();
        assert!(reply.contains("type='error'") && reply.contains("<error type='auth'><forbidden"), "{reply}");
    }
    assert_eq!(fixture.activated(), 0);
}

#[test]
fn section_4_a_proxy_without_a_listener_is_not_allowed() {
    let Fixture { requester, .. } = fixture_at(&[], &[]);
    let reply = request(&requester, "get", "proxy.example.com", QUERY).concat();
    assert!(reply.contains("<error type='cancel'><not-allowed"), "{reply}");
}

#[test]
fn section_6_3_5_the_requester_activates_the_bytestream() {
    let mut fixture = example();
    let [mut one, mut two] = [fixture.party(DESTINATION), fixture.party(DESTINATION)];
    assert_same(&[fixture.activate()], &[ACTIVATED.to_owned()]);
    one.write(b"a file");
    fixture.listener.run();
    assert_eq!((two.read(), fixture.activated()), (b"a file".to_vec(), 1));
}

#[test]
fn section_6_3_5_addresses_are_normalised_before_the_digest() {
    let mut fixture = example();
    let _parties = [fixture.party(DESTINATION), fixture.party(DESTINATION)];
    let shouted = ACTIVATION.replace("target@example.org/bar", " Target@EXAMPLE.org/bar ");
    let reply = request(&fixture.requester, "set", "streamer.example.com", &shouted);
    assert_same(&reply, &[ACTIVATED.to_owned()]);
}

#[test]
fn section_6_3_5_each_refusal_has_its_condition() {
    for (key, limit) in [("bytestreams_per_user", 1), ("bytestreams", 1)] {
        let mut fixture = fixture(&[("address", text("streamer.{domain}")), (key, OptionValue::Int(limit))]);
        let refused = |reply: String, condition: &str| {
            assert!(reply.contains("type='error'") && reply.contains(condition), "{reply}");
        };
        refused(fixture.activate(), "<item-not-found");
        let _first = fixture.party(DESTINATION);
        refused(fixture.activate(), "<not-allowed");
        let _second = fixture.party(DESTINATION);
        assert_same(&[fixture.activate()], &[ACTIVATED.to_owned()]);
        fixture.listener.run();
        let _others = [fixture.party(DESTINATION), fixture.party(DESTINATION)];
        refused(fixture.activate(), "<resource-constraint");
        assert_eq!(fixture.activated(), 1);
    }
}

#[test]
fn malformed_activations_are_refused() {
    let mut fixture = example();
    let _parties = [fixture.party(DESTINATION), fixture.party(DESTINATION)];
    for (from, to, want) in [
        (" sid='vxf9n471bn46'", "", "<bad-request"),
        (" sid='vxf9n471bn46'", " sid=''", "<bad-request"),
        ("<activate>target@example.org/bar</activate>", "", "<bad-request"),
        ("<activate>", "<activate xmlns='urn:x'>", "<bad-request"),
        ("target@example.org/bar", "@", "<jid-malformed"),
        ("target@example.org/bar", "", "<jid-malformed"),
        (" sid=", " mode='udp' sid=", "<feature-not-implemented"),
    ] {
        let reply = request(&fixture.requester, "set", "streamer.example.com", &ACTIVATION.replace(from, to))
            .concat();
        assert!(reply.contains("type='error'") && reply.contains(want), "{from} {to}: {reply}");
    }
    for to in ["x@streamer.example.com", "x@streamer.example.com/y"] {
        assert!(request(&fixture.requester, "set", to, ACTIVATION).concat().contains("<item-not-found"));
    }
    assert_eq!(fixture.activated(), 0);
}

#[test]
fn of_options_that_apply_before_the_activation_the_highest_value_of_all_domains_counts() {
    let host = |seconds| {
        let mut options = FeatureOptions::defaults(FEATURE.options);
        options.set(FEATURE.options, "activation_timeout_seconds", OptionValue::Int(seconds)).unwrap();
        let enabled = [EnabledFeature { feature: &FEATURE, options }];
        Arc::new(feature_api::build_host("example.com", &enabled, &NodeLimits::default()).unwrap())
    };
    let mut fixture = fixture(&[]);
    let proxy = fixture.engine.node.extensions.get::<Socks5Proxy>().unwrap();
    proxy.configure(&[host(5), host(30), host(10)]);
    let mut party = fixture.party(DESTINATION);
    fixture.listener.advance(29_900);
    assert!(!party.is_closed());
    fixture.listener.advance(100);
    assert!(party.is_closed());
}
