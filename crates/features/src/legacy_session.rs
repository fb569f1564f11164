//! Session establishment: RFC 3921, section 3, as required by RFC 6121, appendix E.
//!
//! Since RFC 6121 a session begins with resource binding. Older clients still request one and wait for the answer, so
//! the request does nothing and succeeds. The stream feature with `<optional/>` is written by negotiation, next to
//! `<bind/>`.
//!
//! Not implemented: everything else in RFC 3921, which RFC 6121 replaces.
//!
//! # Pitfalls
//!
//! RFC 3921's examples send the request to the domain, but most clients send it without `to`, so both targets answer.

use feature_api::feature::{Feature, FeatureBuilder, Spec};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use xml::Ns;

/// Session establishment of RFC 3921.
pub static FEATURE: Feature = Feature {
    name: "legacy_session",
    summary: "Accepts the session request of clients older than RFC 6121.",
    specs: &[Spec {
        name: "RFC 3921",
        title: "XMPP: Instant Messaging and Presence",
        version: "",
        not_implemented: "all except section 3; replaced by RFC 6121",
    }],
    iq: &KEYS,
    build,
    ..Feature::EMPTY
};

const KEYS: [IqKey; 2] = [
    IqKey::set(IqTarget::OwnAccount, Ns::Session, "session"),
    IqKey::set(IqTarget::Server, Ns::Session, "session"),
];

fn build(builder: &mut FeatureBuilder<'_>) {
    for key in KEYS {
        builder.iq(key, |_: &mut IqRequest<'_>| IqFlow::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};

    #[test]
    fn rfc_3921_section_3_the_request_succeeds() {
        let engine = TestNode::new(&[&FEATURE]);
        engine.create_user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        for (to, from) in [("to='example.com'", "from='example.com'"), ("", "")] {
            let answer = juliet.request(&format!(
                "<iq {to} type='set' id='sess_1'><session xmlns='urn:ietf:params:xml:ns:xmpp-session'/></iq>"
            ));
            let result = format!("<iq {from} to='juliet@example.com/balcony' type='result' id='sess_1'/>");
            assert_same(&answer, &[result]);
        }
    }
}
