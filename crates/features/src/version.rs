//! Software Version: XEP-0092 1.1, section 2.
//!
//! Left out: asking others for theirs. The operating system is told only if the administrator wants it (section 5: it
//! helps attackers).
//!
//! The trap: `os` names the kind of system the server was built for, never what it found out about the machine.

use throng_core::feature::{Builder, Disco, Feature, Kind, OptionSpec, Spec, Value};
use throng_core::iq::{IqFlow, IqKey, IqRequest, Target};
use xml::Ns;

/// Software Version.
pub static FEATURE: Feature = Feature {
    name: "software_version",
    summary: "Tells name and version of the software.",
    specs: &[Spec { name: "XEP-0092", title: "Software Version", version: "1.1", left_out: "" }],
    disco: &[Disco::Server(Ns::Version.as_str())],
    iq: &[KEY],
    options: &[OptionSpec {
        key: "show_os",
        kind: Kind::Bool,
        default: Value::Bool(false),
        doc: "Tell the operating system as well.",
    }],
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(Target::Server, Ns::Version, "query");

fn build(builder: &mut Builder<'_>) {
    let show_os = builder.options.bool("show_os");
    builder.iq(KEY, move |request: &mut IqRequest<'_>| {
        IqFlow::result(|w| {
            w.start_ns("query", Ns::Version).leaf("name", "Throng").leaf("version", request.node.version);
            if show_os {
                w.leaf("os", std::env::consts::OS);
            }
            w.end();
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Engine, assert_same};
    use throng_core::feature::Options;
    use throng_core::{Enabled, Limits};

    fn ask(show_os: bool) -> Vec<String> {
        let mut options = Options::defaults(FEATURE.options);
        options.set(FEATURE.options, "show_os", Value::Bool(show_os)).unwrap();
        let engine = Engine::start(&[Enabled { feature: &FEATURE, options }], Limits::default());
        engine.user("juliet");
        engine
            .connect("juliet", "balcony")
            .ask("<iq type='get' to='example.com' id='version_1'><query xmlns='jabber:iq:version'/></iq>")
    }
    fn answer(os: &str) -> String {
        format!(
            "<iq type='result' from='example.com' to='juliet@example.com/balcony' id='version_1'>\
             <query xmlns='jabber:iq:version'><name>Throng</name><version>test</version>{os}</query></iq>"
        )
    }

    #[test]
    fn section_2_name_and_version() {
        assert_same(&ask(false), &[answer("")]);
    }

    #[test]
    fn the_system_is_told_only_when_wanted() {
        assert_same(&ask(true), &[answer(&format!("<os>{}</os>", std::env::consts::OS))]);
    }
}
