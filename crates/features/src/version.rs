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
    name: "version",
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
