//! Software Version: XEP-0092 1.1, section 2. The operating system is included only if the administrator enables it
//! (section 5: it helps attackers).
//!
//! Not implemented: querying the version of others.
//!
//! # Pitfalls
//!
//! `os` names the kind of system the server was built for, never details of the machine.

use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use xml::Ns;

/// Software Version.
pub static FEATURE: Feature = Feature {
    name: "software_version",
    summary: "Reports the name and version of the software.",
    specs: &[Spec { name: "XEP-0092", title: "Software Version", version: "1.1", not_implemented: "" }],
    disco: &[DiscoFeature::Server(Ns::Version.as_str())],
    iq: &[KEY],
    options: &[OptionSpec {
        key: "show_os",
        kind: OptionKind::Bool,
        default: OptionValue::Bool(false),
        doc: "Report the operating system as well.",
    }],
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(IqTarget::Server, Ns::Version, "query");

fn build(builder: &mut FeatureBuilder<'_>) {
    let show_os = builder.options.bool("show_os");
    builder.iq(KEY, move |request: &mut IqRequest<'_>| {
        IqFlow::result(|w| {
            w.start_ns("query", Ns::Version)
                .text_element("name", "Throng")
                .text_element("version", request.node.version);
            if show_os {
                w.text_element("os", std::env::consts::OS);
            }
            w.end();
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};

    fn ask(show_os: bool) -> Vec<String> {
        let engine = TestNode::with_options(&FEATURE, &[("show_os", OptionValue::Bool(show_os))]);
        engine.create_user("juliet");
        engine
            .connect("juliet", "balcony")
            .request("<iq type='get' to='example.com' id='version_1'><query xmlns='jabber:iq:version'/></iq>")
    }

    fn answer(os: &str) -> String {
        format!(
            "<iq type='result' from='example.com' to='juliet@example.com/balcony' id='version_1'>\
             <query xmlns='jabber:iq:version'><name>Throng</name><version>test</version>{os}</query></iq>"
        )
    }

    #[test]
    fn section_2_the_reply_has_name_and_version() {
        assert_same(&ask(false), &[answer("")]);
    }

    #[test]
    fn the_operating_system_is_reported_only_when_enabled() {
        assert_same(&ask(true), &[answer(&format!("<os>{}</os>", std::env::consts::OS))]);
    }
}
