//! Contact Addresses for XMPP Services: XEP-0157 1.1.1, section 3, as a form of XEP-0128 1.0.1 in the domain's disco
//! information.
//!
//! Not implemented: RFC 2142's mailboxes, which are the operator's.
//!
//! # Pitfalls
//!
//! The form is part of the domain's capabilities hash; a change of addresses changes the hash.

use feature_api::disco::DiscoForm;
use feature_api::feature::{Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec};

/// Contact Addresses for XMPP Services.
pub static FEATURE: Feature = Feature {
    name: "contact_info",
    summary: "Contact addresses of the service.",
    specs: &[
        Spec {
            name: "XEP-0157",
            title: "Contact Addresses for XMPP Services",
            version: "1.1.1",
            not_implemented: "",
        },
        Spec {
            name: "XEP-0128",
            title: "Service Discovery Extensions",
            version: "1.0.1",
            not_implemented: "forms of accounts",
        },
    ],
    options: &[
        addresses(
            "abuse",
            "Contacts for abuse reports: URIs such as `mailto:abuse@example.org` or \
             `xmpp:abuse@example.org`.",
        ),
        addresses("admin", "Contacts of the administrators: URIs."),
        addresses("feedback", "Contacts for feedback: URIs."),
        addresses("sales", "Contacts for sales: URIs."),
        addresses("security", "Contacts for security reports: URIs."),
        addresses("status", "Pages with the status of the service: URIs."),
        addresses("support", "Contacts for support: URIs."),
    ],
    needs: &["disco"],
    build,
    ..Feature::EMPTY
};

const fn addresses(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Texts, default: OptionValue::Texts(Vec::new()), doc }
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let mut fields = Vec::new();
    for option in FEATURE.options {
        let uris: Vec<String> =
            builder.options.texts(option.key).iter().filter(|uri| is_uri(uri)).cloned().collect();
        if uris.len() < builder.options.texts(option.key).len() {
            tracing::warn!(
                option = option.key,
                "ignored a contact address that is not a URI; prefix it with `mailto:` or `xmpp:`"
            );
        }
        if !uris.is_empty() {
            fields.push((format!("{}-addresses", option.key), uris));
        }
    }
    if !fields.is_empty() {
        let form_type = "http://jabber.org/network/serverinfo".to_owned();
        builder.disco_form(DiscoForm { form_type, fields });
    }
}

/// A scheme, a colon and a non-empty rest, without blanks: the requirement of RFC 3986, section 3 for every URI.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !rest.is_empty()
        && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use feature_api::EnabledFeature;
    use feature_api::feature::FeatureOptions;
    use testkit::TestNode;
    use throng_core::NodeLimits;

    fn engine(addresses: &[(&str, &[&str])]) -> TestNode {
        let mut options = FeatureOptions::defaults(FEATURE.options);
        for (key, list) in addresses {
            let list = list.iter().map(|text| (*text).to_owned()).collect();
            options.set(FEATURE.options, key, OptionValue::Texts(list)).unwrap();
        }
        let defaults = |feature: &'static Feature| EnabledFeature {
            feature,
            options: FeatureOptions::defaults(feature.options),
        };
        let caps = defaults(&crate::caps::FEATURE);
        let engine = TestNode::start(
            &[defaults(&crate::disco::FEATURE), caps, EnabledFeature { feature: &FEATURE, options }],
            NodeLimits::default(),
        );
        engine.create_user("juliet");
        engine
    }

    fn info(engine: &TestNode) -> String {
        let ask = "<iq to='example.com' id='1' type='get'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>";
        engine.connect("juliet", "balcony").request(ask).remove(0)
    }

    #[test]
    fn section_3_the_form_lists_the_configured_addresses() {
        let engine = engine(&[
            ("abuse", &["mailto:abuse@shakespeare.lit", "xmpp:abuse@shakespeare.lit"]),
            ("status", &["https://status.shakespeare.lit"]),
        ]);
        let answer = info(&engine);
        assert!(
            answer.contains(
                "<x xmlns='jabber:x:data' type='result'><field var='FORM_TYPE' type='hidden'>\
                 <value>http://jabber.org/network/serverinfo</value></field><field var='abuse-addresses'>\
                 <value>mailto:abuse@shakespeare.lit</value><value>xmpp:abuse@shakespeare.lit</value></field>\
                 <field var='status-addresses'><value>https://status.shakespeare.lit</value></field></x>"
            ),
            "{answer}"
        );
    }

    #[test]
    fn without_addresses_there_is_no_form() {
        assert!(!info(&engine(&[])).contains("jabber:x:data"));
        assert!(
            !info(&engine(&[("admin", &["admin@example.com", "call me:now"])])).contains("jabber:x:data")
        );
    }

    #[test]
    fn the_capabilities_hash_covers_the_form() {
        let feature = |engine: &TestNode| engine.node.host("example.com").unwrap().stream_features.clone();
        let (without, with) = (engine(&[]), engine(&[("admin", &["mailto:xmpp@example.com"])]));
        assert_ne!(feature(&without), feature(&with));
    }
}
