//! Tests of the service contract, with a service that has items and one that has none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use feature_api::disco::DiscoIdentity;
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, FeatureOptions, OptionValue};
use feature_api::service::ServiceSpec;
use feature_api::service::check_service_addresses;
use feature_api::{EnabledFeature, HostError};
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::hooks::{Flow, HandlerOutcome, StopReason};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::service::ServiceCtx;
use throng_core::{NodeLimits, SharedStanza};
use throng_features::{disco, entity_time, ping};
use xml::Ns;

/// A service with items: it echoes messages, and refuses presence.
static ECHO: Feature = Feature {
    name: "echo",
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "component", kind: "generic", name: "Echo" },
    }),
    disco: &[DiscoFeature::Service("urn:example:echo")],
    iq: &[OF_SERVICE, OF_ITEM, OF_RESOURCE, ITEMS],
    options: &[ServiceSpec::address_option("echo.{domain}")],
    build: build_echo,
    ..Feature::EMPTY
};
/// A service that only exists.
static MUTE: Feature = Feature {
    name: "mute",
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "component", kind: "generic", name: "Mute" },
    }),
    options: &[ServiceSpec::address_option("mute.{domain}")],
    ..Feature::EMPTY
};
static LIMITED: Feature = Feature {
    name: "limited",
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "component", kind: "generic", name: "Limited" },
    }),
    options: &[ServiceSpec::address_option("limited.{domain}"), ServiceSpec::rate_option(0)],
    ..Feature::EMPTY
};
const OF_SERVICE: IqKey = IqKey::get(IqTarget::Service, Ns::Time, "time");
const OF_ITEM: IqKey = IqKey::get(IqTarget::ServiceItem, Ns::Time, "time");
const OF_RESOURCE: IqKey = IqKey::set(IqTarget::ServiceItemResource, Ns::Time, "time");
const ITEMS: IqKey = IqKey::get(IqTarget::Service, Ns::DiscoItems, "query");

fn build_echo(builder: &mut FeatureBuilder<'_>) {
    for key in [OF_SERVICE, OF_ITEM, OF_RESOURCE, ITEMS] {
        builder.iq(key, move |request: &mut IqRequest<'_>| {
            let of = request.service.unwrap().address().to_owned();
            IqFlow::result(|w| {
                w.start("answer").attr("target", key.target.as_str()).attr("service", &of).end();
            })
        });
    }
    builder.service_message(|ctx: &mut ServiceCtx<'_>| {
        let id = ctx.stanza.head().id(ctx.stanza.bytes()).unwrap_or_default().into_owned();
        match &*id {
            "panic" => panic!("a handler that fails"),
            "wait" => Flow::Wait(Box::pin(async { HandlerOutcome::refused(StanzaCondition::Gone) })),
            "stamped" => {
                let text = format!(
                    "<message from='{}' to='{}'><body>x</body><stanza-id xmlns='urn:xmpp:sid:0' id='1' by='{}'/></message>",
                    ctx.to,
                    ctx.from,
                    ctx.to.bare()
                );
                ctx.effects.route(SharedStanza::parse(text.as_bytes()), ctx.to.to_jid(), ctx.from.to_jid());
                Flow::Next
            }
            "to-mute" => {
                let to = jid::Jid::parse("mute.example.com").unwrap();
                let text = format!("<message id='x' from='{}' to='{to}'><body>x</body></message>", ctx.to);
                ctx.effects.route(SharedStanza::parse(text.as_bytes()), ctx.to.to_jid(), to);
                Flow::Next
            }
            // An echo of an error would be answered with another.
            _ if ctx.stanza.kind() == StanzaKind::Message(MessageType::Error) => Flow::Next,
            _ => {
                let text = format!(
                    "<message id='{id}' from='{}' to='{}'><body>echo</body></message>",
                    ctx.to, ctx.from
                );
                ctx.effects.route(SharedStanza::parse(text.as_bytes()), ctx.to.to_jid(), ctx.from.to_jid());
                Flow::Stop(StopReason::Consumed)
            }
        }
    });
    builder.service_presence(|_: &mut ServiceCtx<'_>| {
        Flow::Stop(StopReason::Refused(StanzaError::new(StanzaCondition::RegistrationRequired)))
    });
}

fn with(features: &[&'static Feature], addresses: &[(&str, &str)]) -> Vec<EnabledFeature> {
    let options = |feature: &'static Feature| {
        let mut options = FeatureOptions::defaults(feature.options);
        for (_, address) in addresses.iter().filter(|(name, _)| *name == feature.name) {
            let address = OptionValue::Text((*address).to_owned().into());
            options.set(feature.options, "address", address).unwrap();
        }
        options
    };
    features.iter().map(|feature| EnabledFeature { feature, options: options(feature) }).collect()
}

fn all() -> Vec<EnabledFeature> {
    with(&[&disco::FEATURE, &ping::FEATURE, &entity_time::FEATURE, &ECHO, &MUTE], &[])
}

fn juliet(engine: &TestNode) -> NodeClient {
    engine.create_user("juliet");
    engine.connect("juliet", "balcony")
}

fn stage() -> (TestNode, NodeClient) {
    let engine = TestNode::start(&all(), NodeLimits::default());
    let juliet = juliet(&engine);
    (engine, juliet)
}

fn ask(client: &NodeClient, kind: &str, to: &str, payload: &str) -> String {
    client.request(&format!("<iq type='{kind}' id='1' to='{to}'>{payload}</iq>")).concat()
}

#[test]
fn only_a_service_assigns_stanza_ids_by_its_addresses() {
    let features = with(&[&throng_features::stanza_id::FEATURE, &ECHO], &[]);
    let engine = TestNode::start(&features, NodeLimits::default());
    let juliet = juliet(&engine);
    let received =
        juliet.request("<message id='stamped' to='room@echo.example.com/x'><body>x</body></message>");
    assert!(received.concat().contains("by='room@echo.example.com'"), "{received:?}");
    for by in ["room@echo.example.com", "room@echo.example.com/x", "echo.example.com"] {
        let forged = format!("<stanza-id xmlns='urn:xmpp:sid:0' id='1' by='{by}'/>");
        let received =
            juliet.request(&format!("<message to='{}'><body>x</body>{forged}</message>", juliet.full()));
        assert!(received.concat().contains("<body>x</body>"), "{received:?}");
        assert!(!received.concat().contains(by), "{received:?}");
    }
}

#[test]
fn stanzas_above_the_rate_of_their_sender_are_refused() {
    let mut features = with(&[&disco::FEATURE, &LIMITED], &[]);
    let rate = OptionValue::Int(2);
    features[1].options.set(LIMITED.options, "stanzas_per_second_per_sender", rate).unwrap();
    let engine = TestNode::start(&features, NodeLimits::default());
    let juliet = juliet(&engine);
    engine.create_user("romeo");
    let romeo = engine.connect("romeo", "orchard");
    let refused = |client: &NodeClient, stanza: &str| {
        let received = (0..25).map(|_| client.request(stanza).concat());
        received.filter(|answer| answer.contains("<resource-constraint")).count()
    };
    let request = format!("<iq type='get' id='1' to='limited.example.com'>{TIME}</iq>");
    let message = "<message id='1' to='limited.example.com'><body>x</body></message>";
    assert_eq!(refused(&juliet, &request), 5, "the burst of ten seconds passes");
    assert_eq!(refused(&juliet, message), 25);
    assert_eq!(juliet.request("<presence to='limited.example.com'/>"), [""; 0]);
    let phone = engine.connect("juliet", "phone");
    assert_eq!(refused(&phone, &request), 25, "all sessions of an account share the rate");
    assert_eq!(refused(&romeo, &request), 5);
    let limited = |kind| engine.node.metrics.service_stanzas_limited.get(["limited", kind]);
    assert_eq!((limited("iq"), limited("message"), limited("presence")), (35, 25, 1));
    engine.advance(1);
    assert_eq!(refused(&juliet, &request), 23);
}

#[test]
fn answers_of_a_service_are_not_counted_for_the_service() {
    let limits = NodeLimits { backlog_bytes_per_sender: 150_000, ..NodeLimits::default() };
    let engine = TestNode::start(&all(), limits);
    let attacker = juliet(&engine);
    engine.create_user("romeo");
    let romeo = engine.connect("romeo", "orchard");
    // Neither reads.
    let id = "x".repeat(25_000);
    for (client, requests) in [(&attacker, 10), (&romeo, 5)] {
        for _ in 0..requests {
            client.send(&format!("<iq type='get' id='{id}' to='echo.example.com'>{TIME}</iq>"));
            client.send(&format!("<presence id='{id}' to='echo.example.com'/>"));
        }
    }
    assert_eq!(romeo.recv().len(), 10);
}

const TIME: &str = "<time xmlns='urn:xmpp:time'/>";

#[test]
fn the_domain_lists_its_services_and_each_describes_itself() {
    let (_engine, juliet) = stage();
    let head =
        |from: &str| format!("<iq type='result' id='1' from='{from}' to='juliet@example.com/balcony'>");
    assert_same(
        &[ask(&juliet, "get", "example.com", "<query xmlns='http://jabber.org/protocol/disco#items'/>")],
        &[format!(
            "{}<query xmlns='http://jabber.org/protocol/disco#items'><item jid='echo.example.com' name='Echo'/>\
             <item jid='mute.example.com' name='Mute'/></query></iq>",
            head("example.com")
        )],
    );
    assert_same(
        &[ask(&juliet, "get", "echo.example.com", "<query xmlns='http://jabber.org/protocol/disco#info'/>")],
        &[format!(
            "{}<query xmlns='http://jabber.org/protocol/disco#info'>\
             <identity category='component' type='generic' name='Echo'/>\
             <feature var='http://jabber.org/protocol/disco#info'/>\
             <feature var='http://jabber.org/protocol/disco#items'/>\
             <feature var='urn:example:echo'/><feature var='urn:xmpp:ping'/></query></iq>",
            head("echo.example.com")
        )],
    );
    assert_same(
        &[ask(&juliet, "get", "mute.example.com", "<query xmlns='http://jabber.org/protocol/disco#items'/>")],
        &[format!(
            "{}<query xmlns='http://jabber.org/protocol/disco#items'/></iq>",
            head("mute.example.com")
        )],
    );
    for what in ["info", "items"] {
        let query = format!("<query xmlns='http://jabber.org/protocol/disco#{what}' node='x'/>");
        assert!(ask(&juliet, "get", "mute.example.com", &query).contains("<item-not-found"));
    }
    let own =
        ask(&juliet, "get", "echo.example.com", "<query xmlns='http://jabber.org/protocol/disco#items'/>");
    assert!(own.contains("<answer target='service'"), "its own handler takes precedence: {own}");
}

#[test]
fn each_target_has_its_handlers_and_its_errors() {
    let (engine, juliet) = stage();
    for (kind, to, want) in [
        ("get", "echo.example.com", "<answer target='service' service='echo.example.com'/>"),
        ("get", "echo.example.com/x", "<answer target='service' service='echo.example.com'/>"),
        ("get", "room@echo.example.com", "<answer target='service-item' service='echo.example.com'/>"),
        (
            "set",
            "room@echo.example.com/nick",
            "<answer target='service-item-resource' service='echo.example.com'/>",
        ),
        // No handler.
        ("set", "echo.example.com", "<service-unavailable"),
        ("get", "room@echo.example.com/nick", "<service-unavailable"),
        ("set", "room@echo.example.com", "<service-unavailable"),
        // A service without items has none.
        ("get", "mute.example.com", "<service-unavailable"),
        ("get", "room@mute.example.com", "<item-not-found"),
        ("get", "room@mute.example.com/nick", "<item-not-found"),
        // The domain of accounts is not a service, and the other way round.
        ("get", "example.com", "<tzo>"),
    ] {
        let reply = ask(&juliet, kind, to, TIME);
        assert!(reply.contains(want), "{kind} {to}: {reply}");
        assert!(reply.contains(&format!("from='{to}'")), "{reply}");
    }
    let pong = ask(&juliet, "get", "mute.example.com", "<ping xmlns='urn:xmpp:ping'/>");
    assert!(pong.contains("type='result'"), "{pong}");
    assert_eq!(engine.node.metrics.service_stanzas.get(["echo", "iq"]), 7);
    assert_eq!(engine.node.metrics.service_stanzas.get(["mute", "iq"]), 4);
}

#[test]
fn messages_and_presence_have_handlers_and_errors() {
    let (_engine, juliet) = stage();
    let message = |to: &str, id: &str| {
        juliet.request(&format!("<message to='{to}' id='{id}'><body>x</body></message>")).concat()
    };
    assert_same(
        &[message("room@echo.example.com", "1")],
        &["<message from='room@echo.example.com' to='juliet@example.com/balcony' id='1'><body>echo</body></message>"
            .to_owned()],
    );
    assert!(message("echo.example.com", "panic").contains("<internal-server-error"));
    assert!(message("echo.example.com", "wait").contains("<gone"));
    assert!(message("mute.example.com", "1").contains("<service-unavailable"));
    assert!(message("room@mute.example.com", "1").contains("<item-not-found"));
    let refused = juliet.request("<presence to='room@echo.example.com/nick' id='p'/>").concat();
    assert!(refused.contains("type='error'") && refused.contains("<registration-required"), "{refused}");
    assert!(refused.contains("from='room@echo.example.com/nick'"), "{refused}");
    assert_eq!(juliet.request("<presence to='mute.example.com'/>"), [""; 0]);
}

#[test]
fn errors_and_responses_are_never_answered() {
    let (engine, juliet) = stage();
    let error = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>";
    for text in [
        format!("<message to='mute.example.com' type='error' id='wait'>{error}</message>"),
        format!("<message to='echo.example.com' type='error' id='wait'>{error}</message>"),
        format!("<presence to='echo.example.com' type='error' id='1'>{error}</presence>"),
        format!("<iq to='echo.example.com' type='error' id='1'>{error}</iq>"),
        "<iq to='room@mute.example.com' type='result' id='1'/>".to_owned(),
    ] {
        assert_eq!(juliet.request(&text), [""; 0], "{text}");
    }
    // One service writes to another, which returns an error: one stanza each, then silence.
    let before = engine.node.metrics.service_stanzas.sum();
    assert_eq!(juliet.request("<message to='echo.example.com' id='to-mute'/>"), [""; 0]);
    assert!(engine.node.metrics.service_stanzas.sum() - before <= 4);
}

#[test]
fn users_of_other_domains_of_the_node_reach_a_service() {
    let (engine, _juliet) = stage();
    engine.create_user("romeo@example.net");
    let romeo = engine.connect("romeo@example.net", "orchard");
    let reply = ask(&romeo, "get", "echo.example.com", TIME);
    assert!(reply.contains("service='echo.example.com'"), "{reply}");
    assert!(ask(&romeo, "get", "echo.example.net", TIME).contains("service='echo.example.net'"));
    let echoed = romeo.request("<message to='room@echo.example.com' id='1'/>").concat();
    assert!(echoed.contains("<body>echo</body>"), "{echoed}");
    assert!(
        romeo.request("<message to='mute.example.com' id='1'/>").concat().contains("<service-unavailable")
    );
    assert!(engine.node.host("echo.example.com").is_none(), "it has no accounts");
}

#[test]
fn the_address_is_an_option_and_follows_a_reload() {
    let (engine, juliet) = stage();
    let moved = with(&[&disco::FEATURE, &ECHO], &[("echo", "Echo-Two.{domain}")]);
    assert_eq!(engine.reload(&testkit::engine::DOMAINS, &moved), 0);
    assert!(ask(&juliet, "get", "echo-two.example.com", TIME).contains("service='echo-two.example.com'"));
    for gone in ["echo.example.com", "mute.example.com"] {
        assert!(ask(&juliet, "get", gone, TIME).contains("<remote-server-not-found"), "{gone}");
    }
    let items = ask(&juliet, "get", "example.com", "<query xmlns='http://jabber.org/protocol/disco#items'/>");
    assert!(items.contains("<item jid='echo-two.example.com'") && !items.contains("mute"), "{items}");
}

fn hosts(addresses: &[(&str, &str)]) -> Result<(), HostError> {
    let build = |domain: &str| {
        let host =
            feature_api::build_host(domain, &with(&[&ECHO, &MUTE], addresses), &NodeLimits::default())?;
        Ok((domain.to_owned(), std::sync::Arc::new(host)))
    };
    check_service_addresses(&["example.com", "example.net"].into_iter().map(build).collect::<Result<_, _>>()?)
}

#[test]
fn addresses_that_cannot_be_are_refused_in_a_sentence() {
    let refused = |addresses: &[(&str, &str)]| hosts(addresses).unwrap_err().to_string();
    assert_eq!(hosts(&[]), Ok(()));
    for wrong in ["", "room@echo.example.com", "echo.example.com/x", "a b"] {
        assert_eq!(
            refused(&[("echo", wrong)]),
            format!(
                "modules.echo: \"{wrong}\" is not a valid address of a service; write a domain such as \
                 \"echo.{{domain}}\""
            )
        );
    }
    assert_eq!(
        refused(&[("echo", "example.NET")]),
        "modules.echo of example.com cannot have the address example.net: example.net is a domain of accounts; set \
         another address under [modules.echo]"
    );
    assert_eq!(
        refused(&[("mute", "echo.{domain}")]),
        "modules.mute of example.com cannot have the address echo.example.com: modules.echo of example.com has it; set \
         another address under [modules.mute]"
    );
    assert_eq!(
        refused(&[("echo", "echo.example.org")]),
        "modules.echo of example.net cannot have the address echo.example.org: modules.echo of example.com has it; set \
         another address under [modules.echo]"
    );
}

#[test]
fn handlers_of_a_service_need_a_declared_service() {
    static WRONG: Feature = Feature {
        name: "wrong",
        build: |builder: &mut FeatureBuilder<'_>| {
            builder.service_message(|_: &mut ServiceCtx<'_>| Flow::Next)
        },
        ..Feature::EMPTY
    };
    let error = feature_api::build_host("example.com", &with(&[&WRONG], &[]), &NodeLimits::default()).err();
    let problem = "registers handlers or forms of a service; declare it under `service`".to_owned();
    assert_eq!(error, Some(HostError::Undeclared("wrong", problem)));
}
