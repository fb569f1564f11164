//! XMPP Ping: XEP-0199 2.0.1, sections 4.1 (server to client), 4.2 (client to server) and 4.3 (server to server).
//!
//! The server answers for itself and its services, for the sender's account, and for another account to users who may
//! see its presence. It also pings idle clients: the engine detects the idle client, this feature only builds the ping.
//! The client's answer, result or error, resets the idle timer and has no other effect.
//!
//! Not implemented: sections 4.4 and 4.5 need no code, since a ping to a full address is routed like any other
//! request.
//!
//! # Pitfalls
//!
//! Users who may not see an account's presence get the answer for a missing account (section 7), which is the one for
//! any request to a missing account (RFC 6121, section 8.5.1).

use base::id::random_id;
use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use stanza::StanzaCondition;
use throng_core::SharedStanza;
use throng_core::iq::{IqAnswer, IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::provided::KeepAlivePing;
use throng_core::server_error::store_error;
use throng_core::session::Session;
use throng_core::visibility::Visibility;
use xml::Ns;

/// XMPP Ping.
pub static FEATURE: Feature = Feature {
    name: "ping",
    summary: "Replies to pings and pings idle clients.",
    specs: &[Spec { name: "XEP-0199", title: "XMPP Ping", version: "2.0.1", not_implemented: "" }],
    disco: &[
        DiscoFeature::Server(Ns::Ping.as_str()),
        DiscoFeature::Account(Ns::Ping.as_str()),
        DiscoFeature::Service(Ns::Ping.as_str()),
    ],
    iq: &[SERVER, OWN, OTHER, SERVICE],
    options: &[OptionSpec {
        key: "idle_probe",
        kind: OptionKind::Bool,
        default: OptionValue::Bool(true),
        doc: "Ping clients that are idle for `limits.idle_ping_seconds` and close streams that do not \
         respond.",
    }],
    build,
    ..Feature::EMPTY
};

const SERVER: IqKey = IqKey::get(IqTarget::Server, Ns::Ping, "ping");
const OWN: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Ping, "ping");
const OTHER: IqKey = IqKey::get(IqTarget::Account, Ns::Ping, "ping");
const SERVICE: IqKey = IqKey::get(IqTarget::Service, Ns::Ping, "ping");

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.iq(SERVER, |_: &mut IqRequest<'_>| IqFlow::empty());
    builder.iq(OWN, |_: &mut IqRequest<'_>| IqFlow::empty());
    builder.iq(OTHER, ping_account);
    builder.iq(SERVICE, |_: &mut IqRequest<'_>| IqFlow::empty());
    if builder.options.bool("idle_probe") {
        builder.provide(KeepAlivePing(keepalive_ping));
    }
}

/// Answers for another account.
fn ping_account(request: &mut IqRequest<'_>) -> IqFlow {
    let answer = |trusted: bool| -> IqAnswer {
        if trusted { Ok(Vec::new()) } else { Err(StanzaCondition::ServiceUnavailable.into()) }
    };
    let Some(to) = request.to else { return IqFlow::Reply(answer(false)) };
    match request.node.visibility(to, request.from) {
        Visibility::Visible => IqFlow::Reply(answer(true)),
        Visibility::NeedsCheck(question) => {
            IqFlow::wait(async move { question.run().await.map_err(store_error).and_then(answer) })
        }
    }
}

/// Keep-alive ping of section 4.1.
fn keepalive_ping(session: &Session) -> Option<SharedStanza> {
    SharedStanza::build(|w| {
        w.start("iq").attr("from", session.account.jid.domain()).attr("to", session.jid.as_str());
        w.attr("id", &random_id()).attr("type", "get").empty_element("ping", Ns::Ping).end();
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Subscription;
    use testkit::{TestNode, assert_same};

    #[test]
    fn section_4_2_a_client_pings_the_server() {
        let engine = TestNode::new(&[&FEATURE]);
        engine.create_user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        for (to, from) in [
            ("to='example.com'", "from='example.com'"),
            ("to='juliet@example.com'", "from='juliet@example.com'"),
            ("", ""),
        ] {
            let answer =
                juliet.request(&format!("<iq {to} id='c2s1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>"));
            assert_same(
                &answer,
                &[format!("<iq {from} to='juliet@example.com/balcony' id='c2s1' type='result'/>")],
            );
        }
    }

    #[test]
    fn rfc_6121_section_8_5_1_only_users_who_may_see_an_account_get_its_reply() {
        let engine = TestNode::new(&[&FEATURE]);
        for user in ["juliet", "romeo@example.net", "nurse", "friend", "paris"] {
            engine.create_user(user);
        }
        for friend in ["romeo@example.net", "friend"] {
            engine.add_contact(friend, "juliet@example.com", Subscription::FROM);
        }
        // The other direction of the subscription grants no visibility.
        engine.add_contact("paris", "juliet@example.com", Subscription::TO);
        let juliet = engine.connect("juliet", "balcony");
        let _connected = [engine.connect("friend", "1"), engine.connect("nurse", "1")];
        let ask = |to: &str, payload: &str| {
            juliet.recv();
            juliet.request(&format!("<iq to='{to}' id='1' type='get'>{payload}</iq>")).remove(0)
        };
        let ping = "<ping xmlns='urn:xmpp:ping'/>";
        for to in ["romeo@example.net", "friend@example.com"] {
            assert_same(
                &[ask(to, ping)],
                &[format!("<iq from='{to}' to='juliet@example.com/balcony' id='1' type='result'/>")],
            );
        }
        // For all others a missing account, one without resources and one with a resource get the same answer, which
        // is that of an unknown request.
        for to in ["tybalt@example.com", "paris@example.com", "nurse@example.com"] {
            let unknown = ask(to, "<unknown xmlns='urn:xmpp:ping'/>").replace("unknown", "ping");
            let answer = ask(to, ping);
            assert!(answer.contains("<service-unavailable "), "{answer}");
            assert_eq!(answer, unknown);
        }
    }

    #[test]
    fn section_4_1_the_server_pings_an_idle_client() {
        let engine = TestNode::new(&[&FEATURE]);
        engine.create_user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        let host = juliet.session.account.host();
        let KeepAlivePing(build_ping) = host.extensions.get::<KeepAlivePing>().expect("on by default");
        let frame = build_ping(&juliet.session).unwrap();
        let id = frame.head().id(frame.bytes()).unwrap().into_owned();
        assert_same(
            &[std::str::from_utf8(frame.bytes()).unwrap()],
            &[format!(
                "<iq from='example.com' to='juliet@example.com/balcony' id='{id}' type='get'>\
                 <ping xmlns='urn:xmpp:ping'/></iq>"
            )],
        );
        // Neither the pong nor the error of a client that does not support pings is routed further.
        let pong = juliet.request(&format!("<iq to='example.com' id='{id}' type='result'/>"));
        let refusal = juliet.request(&format!(
            "<iq to='example.com' id='{id}' type='error'><ping xmlns='urn:xmpp:ping'/><error type='cancel'>\
             <service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        ));
        assert!(pong.is_empty() && refusal.is_empty());
    }

    #[test]
    fn the_keep_alive_ping_can_be_disabled() {
        let engine = TestNode::with_options(&FEATURE, &[("idle_probe", OptionValue::Bool(false))]);
        assert!(engine.node.host("example.com").unwrap().extensions.get::<KeepAlivePing>().is_none());
    }
}
