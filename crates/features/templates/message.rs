//! Example Feature: XEP-0000 0.0.0, section 1.
//!
//! TODO(example_feature): state what the server does and what it does not implement (`Not implemented: …`); what a
//! reader of the specification gets wrong goes under a heading `# Pitfalls`.

use feature_api::feature::{Feature, FeatureBuilder, Spec};
use stanza::{PayloadNs, StanzaKindSet};
use throng_core::hooks::{Flow, IncomingCtx, Interest, Phase};

/// Example Feature.
pub static FEATURE: Feature = Feature {
    name: "example_feature",
    summary: "Handles messages of XEP-0000.",
    specs: &[Spec { name: "XEP-0000", title: "Example Feature", version: "0.0.0", not_implemented: "" }],
    build,
    ..Feature::EMPTY
};

fn build(builder: &mut FeatureBuilder<'_>) {
    let interest = Interest::kinds(StanzaKindSet::MESSAGES).payload(PayloadNs::Receipts);
    builder.incoming(Phase::Rewrite, interest, handle_message);
}

/// Messages to an account of this host that have a child in the namespace.
fn handle_message(_: &mut IncomingCtx<'_>) -> Flow {
    Flow::Next
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};
    use xml::Ns;

    #[test]
    fn section_1_a_message_is_delivered() {
        let node = TestNode::new(&[&FEATURE]);
        node.create_user("juliet");
        node.create_user("romeo");
        let (juliet, romeo) = (node.connect("juliet", "balcony"), node.connect("romeo", "orchard"));
        let payload = format!("<query xmlns='{}'/>", Ns::Receipts.as_str());
        juliet.send(&format!("<message to='romeo@example.com/orchard' type='chat'>{payload}</message>"));
        assert_same(
            &romeo.recv(),
            &[format!(
                "<message from='juliet@example.com/balcony' to='romeo@example.com/orchard' type='chat'>\
                 {payload}</message>"
            )],
        );
    }
}
