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
