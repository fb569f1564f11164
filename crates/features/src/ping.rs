//! XMPP Ping: XEP-0199 2.0.1, sections 4.1 (server to client), 4.2 (client to server) and 4.3 (server to server).
//!
//! The server answers for itself, for the sender's account and for every other account. It asks silent clients
//! itself: the engine notices the silence, this feature only makes the question. The client's answer, result or
//! error, ends the silence and nothing more.
//!
//! Left out: 4.4 and 4.5 need no code, since a ping to a full address is routed like any other request.
//!
//! The trap: the answer on behalf of an account must be the same whether the account exists or not (section 7); so it
//! never looks.

use base::id::random_id;
use throng_core::Frame;
use throng_core::feature::{Builder, Disco, Feature, Kind, OptionSpec, Spec, Value};
use throng_core::iq::{IqFlow, IqKey, IqRequest, Target};
use throng_core::session::Session;
use xml::Ns;

/// XMPP Ping.
pub static FEATURE: Feature = Feature {
    name: "ping",
    summary: "Answers pings and asks silent clients for a sign of life.",
    specs: &[Spec { name: "XEP-0199", title: "XMPP Ping", version: "2.0.1", left_out: "" }],
    disco: &[Disco::Server(Ns::Ping.as_str()), Disco::Account(Ns::Ping.as_str())],
    iq: &KEYS,
    options: &[OptionSpec {
        key: "idle_probe",
        kind: Kind::Bool,
        default: Value::Bool(true),
        doc: "Ping clients that have been silent for `limits.idle_seconds` and close streams that do not answer.",
    }],
    build,
    ..Feature::EMPTY
};

const KEYS: [IqKey; 3] = [
    IqKey::get(Target::Server, Ns::Ping, "ping"),
    IqKey::get(Target::OwnAccount, Ns::Ping, "ping"),
    IqKey::get(Target::Account, Ns::Ping, "ping"),
];

fn build(builder: &mut Builder<'_>) {
    for key in KEYS {
        builder.iq(key, |_: &mut IqRequest<'_>| IqFlow::empty());
    }
    if builder.options.bool("idle_probe") {
        builder.idle_probe(probe);
    }
}

/// The question of section 4.1.
fn probe(session: &Session) -> Option<Frame> {
    Frame::build(|w| {
        w.start("iq").attr("from", session.account.host.domain()).attr("to", session.jid.as_str());
        w.attr("id", &random_id()).attr("type", "get").empty("ping", Ns::Ping).end();
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Engine, assert_same};
    use throng_core::feature::Options;
    use throng_core::{Enabled, Limits};

    #[test]
    fn section_4_2_client_to_server() {
        let engine = Engine::new(&[&FEATURE]);
        engine.user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        for (to, from) in [
            ("to='example.com'", "from='example.com'"),
            ("to='juliet@example.com'", "from='juliet@example.com'"),
            ("", ""),
        ] {
            let answer =
                juliet.ask(&format!("<iq {to} id='c2s1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>"));
            assert_same(
                &answer,
                &[format!("<iq {from} to='juliet@example.com/balcony' id='c2s1' type='result'/>")],
            );
        }
    }

    #[test]
    fn a_missing_account_answers_like_any_other() {
        let engine = Engine::new(&[&FEATURE]);
        engine.user("juliet");
        engine.user("romeo@example.net");
        let juliet = engine.connect("juliet", "balcony");
        for to in ["romeo@example.net", "tybalt@example.com"] {
            let answer =
                juliet.ask(&format!("<iq to='{to}' id='1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>"));
            assert_same(
                &answer,
                &[format!("<iq from='{to}' to='juliet@example.com/balcony' id='1' type='result'/>")],
            );
        }
    }

    #[test]
    fn section_4_1_the_question_for_a_sign_of_life() {
        let engine = Engine::new(&[&FEATURE]);
        engine.user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        let probe = juliet.session.account.host.idle_probe.expect("on by default");
        let frame = probe(&juliet.session).unwrap();
        let id = frame.head().id(frame.bytes()).unwrap().into_owned();
        assert_same(
            &[std::str::from_utf8(frame.bytes()).unwrap()],
            &[format!(
                "<iq from='example.com' to='juliet@example.com/balcony' id='{id}' type='get'>\
                 <ping xmlns='urn:xmpp:ping'/></iq>"
            )],
        );
        // The pong, and the refusal of a client that does not know pings, end here.
        let pong = juliet.ask(&format!("<iq to='example.com' id='{id}' type='result'/>"));
        let refusal = juliet.ask(&format!(
            "<iq to='example.com' id='{id}' type='error'><ping xmlns='urn:xmpp:ping'/><error type='cancel'>\
             <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        ));
        assert!(pong.is_empty() && refusal.is_empty());
    }

    #[test]
    fn the_probe_can_be_switched_off() {
        let mut options = Options::defaults(FEATURE.options);
        options.set(FEATURE.options, "idle_probe", Value::Bool(false)).unwrap();
        let engine = Engine::start(&[Enabled { feature: &FEATURE, options }], Limits::default());
        assert!(engine.node.host("example.com").unwrap().idle_probe.is_none());
    }
}
