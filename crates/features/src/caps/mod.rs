//! Entity Capabilities: XEP-0115 1.6.0, and Entity Capabilities 2.0: XEP-0390 0.3.2.
//!
//! The server's own capabilities: the domain's disco information is hashed once, when the host is complete, and
//! announced as stream features, so that clients which know a hash need no query (XEP-0115, section 6.3; XEP-0390,
//! section 5.2).
//!
//! Clients' capabilities: the hashes that clients announce in presence, or before their presence (XEP-0390, section
//! 5.6), are looked up in [`cache`]. A client is queried only for a hash that is not cached yet
//! (`announcement`), and its reply is accepted only if it matches the hash (`verification`).
//!
//! Not implemented: caps optimization (XEP-0115, section 8.4; XEP-0390, section 6.3), answering for clients (section
//! 6.4), SHA-3, and announcements in directed presence.
//!
//! # Pitfalls
//!
//! The hashed data must be exactly what disco answers. Both read [`DiscoInfo`]; an addition to the answer (a form of
//! XEP-0128) belongs there and must be passed to [`hash`].

mod announcement;
pub mod cache;
pub mod hash;
mod observation;
mod verification;

#[cfg(test)]
mod tests;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use feature_api::disco::DiscoInfo;
use feature_api::feature::{DerivedStreamFeature, DiscoFeature, Feature, FeatureBuilder, Spec};
use hash::{CapsAlgorithm, HashedForm, HashedIdentity, xep_0115_input, xep_0390_input};
use stanza::{PayloadNs, PresenceType, StanzaKind, StanzaKindSet};
use throng_core::StreamFeature;
use throng_core::hooks::{ClosingCtx, Flow, Interest, OutgoingCtx, Phase};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::provided::ClientSoftware;
use xml::Ns;

/// Entity Capabilities.
pub static FEATURE: Feature = Feature {
    name: "caps",
    summary: "Announces the hash of the server's features and caches the features of clients by their \
     hashes.",
    specs: &[
        Spec {
            name: "XEP-0115",
            title: "Entity Capabilities",
            version: "1.6.0",
            not_implemented: "section 8.4: caps optimization",
        },
        Spec {
            name: "XEP-0390",
            title: "Entity Capabilities 2.0",
            version: "0.3.2",
            not_implemented: "sections 6.3 and 6.4: caps optimization, replies on behalf of clients; SHA-3",
        },
    ],
    disco: &[
        DiscoFeature::Server(Ns::Caps.as_str()),
        DiscoFeature::Server(Ns::Caps2.as_str()),
        DiscoFeature::Server("urn:xmpp:caps:gratuitous"),
    ],
    derived_stream_features: &[announce_xep_0115, announce_xep_0390],
    iq: &[GRATUITOUS],
    needs: &["disco"],
    build,
    ..Feature::EMPTY
};

const GRATUITOUS: IqKey = IqKey::set(IqTarget::Server, Ns::Caps2, "c");

/// Identifies the software (XEP-0115, section 4 requires a URI). The project has no site to name; a UUID is unique.
const NODE: &str = "urn:uuid:3f6c1c1e-5b0a-4f0e-9d53-7468726f6e67";

fn build(b: &mut FeatureBuilder<'_>) {
    b.provide(ClientSoftware(announcement::software));
    b.provide(observation::CAPABILITIES);
    let available = StanzaKindSet::of(StanzaKind::Presence(PresenceType::Available));
    let interest = Interest::kinds(available).payload(PayloadNs::Caps).payload(PayloadNs::Caps2);
    b.outgoing(Phase::Copy, interest, |ctx: &mut OutgoingCtx<'_>| {
        if ctx.to.is_none() {
            announcement::process_announcement(ctx.node, ctx.session, ctx.stanza.bytes(), ctx.effects);
        }
        Flow::Next
    });
    b.closing(Phase::Notify, |ctx: &mut ClosingCtx<'_>| {
        cache::withdraw(ctx.node, ctx.session);
        Flow::Next
    });
    b.iq(GRATUITOUS, |r: &mut IqRequest<'_>| {
        if let Some(session) = r.session {
            announcement::process_announcement(r.node, session, r.bytes, r.effects);
        }
        IqFlow::empty()
    });
}

fn hashed_parts(info: &DiscoInfo) -> (Vec<HashedIdentity<'_>>, Vec<HashedForm<'_>>) {
    let identities = info.identities.iter().map(|i| HashedIdentity {
        category: i.category,
        kind: i.kind,
        lang: "",
        name: i.name,
    });
    (identities.collect(), info.forms.iter().map(HashedForm::from_disco).collect())
}

/// XEP-0115: the stream feature of section 6.3, and the node of section 6.2 under which disco answers for it.
fn announce_xep_0115(info: &DiscoInfo) -> DerivedStreamFeature {
    let (identities, forms) = hashed_parts(info);
    let ver = BASE64_STANDARD.encode(CapsAlgorithm::Sha1.digest(&xep_0115_input(
        &identities,
        &info.features,
        &forms,
    )));
    let feature = StreamFeature::authenticated("c", Ns::Caps).with_content(|w| {
        w.attr("hash", "sha-1").attr("node", NODE).attr("ver", &ver);
    });
    DerivedStreamFeature { feature, node: format!("{NODE}#{ver}") }
}

/// XEP-0390: the stream feature of section 5.2, and the node of section 4.3.
fn announce_xep_0390(info: &DiscoInfo) -> DerivedStreamFeature {
    let (identities, forms) = hashed_parts(info);
    let algorithm = CapsAlgorithm::Sha256;
    let hash = BASE64_STANDARD.encode(algorithm.digest(&xep_0390_input(&identities, &info.features, &forms)));
    let feature = StreamFeature::authenticated("c", Ns::Caps2).with_content(|w| {
        w.start_ns("hash", Ns::Hashes2).attr("algo", algorithm.name()).text(&hash).end();
    });
    DerivedStreamFeature { feature, node: format!("{}#{}.{hash}", Ns::Caps2.as_str(), algorithm.name()) }
}
