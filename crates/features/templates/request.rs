//! Example Feature: XEP-0000 0.0.0, section 1.
//!
//! TODO(example_feature): state what the server does and what it does not implement (`Not implemented: …`); what a
//! reader of the specification gets wrong goes under a heading `# Pitfalls`.

use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use xml::Ns;

/// Example Feature.
pub static FEATURE: Feature = Feature {
    name: "example_feature",
    summary: "Answers requests of XEP-0000.",
    specs: &[Spec { name: "XEP-0000", title: "Example Feature", version: "0.0.0", not_implemented: "" }],
    disco: &[DiscoFeature::Server(Ns::Receipts.as_str())],
    iq: &[KEY],
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(IqTarget::Server, Ns::Receipts, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.iq(KEY, |_: &mut IqRequest<'_>| {
        IqFlow::result(|w| {
            w.start_ns("query", Ns::Receipts).end();
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};

    #[test]
    fn section_1_the_server_answers_a_request() {
        let node = TestNode::new(&[&FEATURE]);
        node.create_user("juliet");
        let juliet = node.connect("juliet", "balcony");
        let query = format!("<query xmlns='{}'/>", Ns::Receipts.as_str());
        assert_same(
            &juliet.request(&format!("<iq type='get' to='example.com' id='1'>{query}</iq>")),
            &[format!(
                "<iq type='result' from='example.com' to='juliet@example.com/balcony' id='1'>{query}</iq>"
            )],
        );
    }
}
