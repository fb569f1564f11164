//! Example Feature: XEP-0000 0.0.0, section 1, as a service with an address of its own.
//!
//! TODO(example_feature): state what the service does and what it does not implement (`Not implemented: …`); what a
//! reader of the specification gets wrong goes under a heading `# Pitfalls`.

use feature_api::disco::DiscoIdentity;
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use feature_api::service::ServiceSpec;
use stanza::StanzaCondition;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use xml::Ns;

/// Example Feature.
pub static FEATURE: Feature = Feature {
    name: "example_feature",
    summary: "Answers requests of XEP-0000 at an address of its own.",
    specs: &[Spec { name: "XEP-0000", title: "Example Feature", version: "0.0.0", not_implemented: "" }],
    disco: &[DiscoFeature::Service(Ns::Receipts.as_str())],
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "component", kind: "generic", name: "Example Feature" },
    }),
    iq: &[KEY],
    options: &[ServiceSpec::address_option("example-feature.{domain}"), ServiceSpec::rate_option(20)],
    default_on: false,
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(IqTarget::Service, Ns::Receipts, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.iq(KEY, |request: &mut IqRequest<'_>| {
        // Users of every domain of the node can send requests.
        if request.from.domain() != request.host.domain() {
            return IqFlow::error(StanzaCondition::Forbidden);
        }
        IqFlow::result(|w| {
            w.start_ns("query", Ns::Receipts).end();
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TestNode;

    #[test]
    fn section_1_the_service_answers_users_of_its_domain() {
        let node = TestNode::new(&[&FEATURE]);
        for (user, want) in [("juliet", "type='result'"), ("romeo@example.net", "<forbidden")] {
            node.create_user(user);
            let client = node.connect(user, "balcony");
            let service = FEATURE.options[0].default.clone();
            let feature_api::feature::OptionValue::Text(address) = service else { panic!("an address") };
            let address = address.replace("{domain}", "example.com");
            let query = format!("<query xmlns='{}'/>", Ns::Receipts.as_str());
            let reply =
                client.request(&format!("<iq type='get' to='{address}' id='1'>{query}</iq>")).concat();
            assert!(reply.contains(want), "{reply}");
        }
    }
}
