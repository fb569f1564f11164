//! Entity Capabilities: XEP-0115 1.6.0, and Entity Capabilities 2.0: XEP-0390 0.3.2.
//!
//! The server's own: the domain's disco information is hashed once, when the host is complete, and announced as stream
//! features, so that clients which know a hash need not ask (XEP-0115 section 6.3, XEP-0390 section 5.2).
//!
//! The clients': what they announce in presence, or before their presence (XEP-0390 section 5.6), is looked up in
//! [`throng_core::clients`]; a client is asked only for a hash that nobody has answered for yet ([`heard`]), and its answer is
//! believed only if it is what the hash stands for ([`told`]).
//!
//! Left out: caps optimization (XEP-0115 section 8.4, XEP-0390 section 6.3), answering for clients (section 6.4), SHA-3,
//! and what clients announce in directed presence.
//!
//! The trap: what is hashed must be exactly what disco answers. Both read [`DiscoInfo`]; whoever adds something to the
//! answer (a form of XEP-0128) adds it there and hands it to [`hash`].

pub mod hash;
mod heard;
mod told;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use stanza::{Kind, KindSet, PresenceType};
use throng_core::disco::DiscoInfo;
use throng_core::feature::{Announced, Builder, Disco, Feature, Spec};
use throng_core::hooks::{ClosingCtx, Flow, Interest, OutgoingCtx, Phase};
use throng_core::iq::{IqFlow, IqKey, IqRequest, Target};
use xml::{Ns, Writer};

use hash::{Algorithm, Form, Identity, input_1, input_2};

/// Entity Capabilities.
pub static FEATURE: Feature = Feature {
    name: "caps",
    summary: "Announces a hash of the server's features, and learns the features of clients by their hashes.",
    specs: &[
        Spec {
            name: "XEP-0115",
            title: "Entity Capabilities",
            version: "1.6.0",
            left_out: "section 8.4: caps optimization",
        },
        Spec {
            name: "XEP-0390",
            title: "Entity Capabilities 2.0",
            version: "0.3.2",
            left_out: "sections 6.3 and 6.4: caps optimization, answering for clients; SHA-3",
        },
    ],
    disco: &[
        Disco::Server(Ns::Caps.as_str()),
        Disco::Server(Ns::Caps2.as_str()),
        Disco::Server("urn:xmpp:caps:gratuitous"),
    ],
    announce: &[announce_1, announce_2],
    iq: &[GRATUITOUS],
    needs: &["disco"],
    build,
    ..Feature::EMPTY
};

const GRATUITOUS: IqKey = IqKey::set(Target::Server, Ns::Caps2, "c");

/// Names the software (XEP-0115 section 4 wants a URI). The project has no site to name; a UUID is nobody else's.
const NODE: &str = "urn:uuid:3f6c1c1e-5b0a-4f0e-9d53-7468726f6e67";

fn build(b: &mut Builder<'_>) {
    b.software(heard::software);
    let available = KindSet::of(Kind::Presence(PresenceType::Available));
    let interest = Interest::kinds(available).payload(Ns::Caps).payload(Ns::Caps2);
    b.outgoing(Phase::Copy, interest, |ctx: &mut OutgoingCtx<'_>| {
        if ctx.to.is_none() {
            heard::hear(ctx.node, ctx.session, ctx.frame.bytes(), ctx.effects);
        }
        Flow::Next
    });
    b.closing(Phase::Notify, Interest::ALL, |ctx: &mut ClosingCtx<'_>| {
        ctx.node.clients.withdraw(ctx.session);
        Flow::Next
    });
    b.iq(GRATUITOUS, |r: &mut IqRequest<'_>| {
        if let Some(session) = r.session {
            heard::hear(r.node, session, r.bytes, r.effects);
        }
        IqFlow::empty()
    });
}

fn parts(info: &DiscoInfo) -> (Vec<Identity<'_>>, Vec<Form<'_>>) {
    let identities = info.identities.iter().map(|i| Identity {
        category: i.category,
        kind: i.kind,
        lang: "",
        name: i.name,
    });
    (identities.collect(), info.forms.iter().map(Form::of).collect())
}

/// XEP-0115: the stream feature of section 6.3, and the node of section 6.2 under which disco answers for it.
fn announce_1(info: &DiscoInfo) -> Announced {
    let (identities, forms) = parts(info);
    let ver = BASE64_STANDARD.encode(Algorithm::Sha1.digest(&input_1(&identities, &info.features, &forms)));
    let mut element = Vec::new();
    let mut w = Writer::new(&mut element);
    w.start_ns("c", Ns::Caps).attr("hash", "sha-1").attr("node", NODE).attr("ver", &ver).end();
    Announced { element, node: format!("{NODE}#{ver}") }
}

/// XEP-0390: the stream feature of section 5.2, and the node of section 4.3.
fn announce_2(info: &DiscoInfo) -> Announced {
    let (identities, forms) = parts(info);
    let algorithm = Algorithm::Sha256;
    let hash = BASE64_STANDARD.encode(algorithm.digest(&input_2(&identities, &info.features, &forms)));
    let mut element = Vec::new();
    let mut w = Writer::new(&mut element);
    w.start_ns("c", Ns::Caps2);
    w.start_ns("hash", Ns::Hashes2).attr("algo", algorithm.name()).text(&hash).end();
    w.end();
    Announced { element, node: format!("{}#{}.{hash}", Ns::Caps2.as_str(), algorithm.name()) }
}

#[cfg(test)]
mod tests;
