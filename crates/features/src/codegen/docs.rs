//! Generator of documentation and golden files from the features' declarations. `cargo xtask codegen` writes the
//! files, and with `--check` lists stale ones.
//!
//! Not implemented: `muc` and `pubsub`.
//!
//! # Pitfalls
//!
//! The output must not depend on the machine or the time, or the files are stale everywhere else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use feature_api::HostError;
use feature_api::disco::{DiscoInfo, HostDisco};
use feature_api::feature::{OptionKind, OptionValue, Spec};
use feature_api::periodic_job::JobScope;
use throng_core::{Host, NodeLimits, StreamFeatureStage};

use crate::codegen::built_in_specs::BUILT_IN;
use crate::registry::{ALL, enable};

const GENERATED: &str =
    "<!-- Written by `cargo xtask codegen` from the features' declarations; change those. -->\n";

/// All implemented specifications, each with its module or part of the server.
pub fn implemented() -> impl Iterator<Item = (&'static str, Spec)> {
    let modules = ALL.iter().flat_map(|f| f.specs.iter().map(move |s| (f.name, *s)));
    BUILT_IN.iter().map(|b| (b.part, b.spec)).chain(modules)
}

/// `docs/xeps.md`: each specification with its version, its module and its gaps; RFCs first, then by number.
pub fn xeps() -> String {
    let mut rows: Vec<_> = implemented().collect();
    rows.sort_by_key(|(_, s)| (s.name.starts_with("XEP"), s.name));
    let is_module = |name: &str| ALL.iter().any(|f| f.name == name);
    let mut out = format!(
        "{GENERATED}# Specifications\n\nImplemented specifications with their version and module. Parts without a link (streams, TLS, \
         authentication, addresses, routing) are not modules and cannot be switched off. Machine-readable: \
         [doap.xml](../doap.xml). Compliance suites: `throng check --compliance`.\n\n\
         | Specification | Title | Version | Module or part | Not implemented |\n| --- | --- | --- | --- | --- |\n"
    );
    for (module, spec) in rows {
        let link = match spec.name.strip_prefix("XEP-") {
            Some(number) => format!("[{}](https://xmpp.org/extensions/xep-{number}.html)", spec.name),
            None => {
                let number = spec.name.trim_start_matches("RFC ");
                format!("[{}](https://www.rfc-editor.org/rfc/rfc{number})", spec.name)
            }
        };
        let by =
            if is_module(module) { format!("[`{module}`](modules.md#{module})") } else { module.to_owned() };
        let _ =
            writeln!(out, "| {link} | {} | {} | {by} | {} |", spec.title, spec.version, spec.not_implemented);
    }
    out
}

/// `docs/modules.md`: each module with its options.
pub fn modules() -> String {
    let mut out = format!(
        "{GENERATED}# Modules\n\nA module is switched on or off by its name, or configured by a table:\n\n\
         ```toml\n[modules]\nsoftware_version = false\n\n[modules.offline]\nmax_messages = 200\n```\n\nA table switches its module on \
         unless it contains `enabled = false`.\n"
    );
    for feature in ALL {
        let _ = write!(out, "\n## {}\n\n{}", feature.name, feature.summary);
        if !feature.default_on {
            out.push_str(" Off by default.");
        }
        if !feature.needs.is_empty() {
            let _ = write!(out, " Requires {}.", feature.needs.join(", "));
        }
        out.push('\n');
        for route in feature.http_routes {
            let methods = route.methods.join(", ");
            let _ = write!(out, "\nHTTP route `/{}/DOMAIN/…` ({methods}): {}\n", route.prefix, route.doc);
        }
        for listener in feature.listeners {
            let limit = if listener.limits_unauthenticated {
                "The options below limit unauthenticated connections."
            } else {
                "`limits.unauthenticated_connections` applies."
            };
            let (kind, port) = (listener.kind, listener.port);
            let _ = write!(
                out,
                "\nListener of kind `{kind}`, usual port {port}: {} {limit} Without a listener the module cannot {}.\n",
                listener.doc, listener.unavailable
            );
        }
        for job in feature.periodic_jobs {
            let (name, seconds) = (job.name, job.interval_seconds);
            let scope = match job.scope {
                JobScope::Cluster => "on one node",
                JobScope::Deployment => "on one node for all domains",
                JobScope::Node => "on every node",
            };
            let _ = write!(out, "\nPeriodic job `{name}`, every {seconds} seconds {scope}: {}\n", job.doc);
        }
        if !feature.options.is_empty() {
            out.push_str("\n| Option | Type | Default | Meaning |\n| --- | --- | --- | --- |\n");
        }
        for option in feature.options {
            let kind = match option.kind {
                OptionKind::Bool => "true or false".to_owned(),
                OptionKind::Int(low, high) => format!("{low} to {high}"),
                OptionKind::Text => "text".to_owned(),
                OptionKind::Texts => "list of texts".to_owned(),
            };
            let default = match &option.default {
                OptionValue::Bool(b) => b.to_string(),
                OptionValue::Int(n) => n.to_string(),
                OptionValue::Text(t) => format!("\"{t}\""),
                OptionValue::Texts(list) => {
                    let texts: Vec<String> = list.iter().map(|text| format!("\"{text}\"")).collect();
                    format!("[{}]", texts.join(", "))
                }
            };
            let _ = writeln!(out, "| `{}` | {kind} | `{default}` | {} |", option.key, option.doc);
        }
    }
    out
}

/// `docs/commands.md`: each command with its fields.
pub fn commands() -> String {
    let mut out = format!(
        "{GENERATED}# Commands\n\nAdministrators use these commands in XMPP clients (XEP-0050), over HTTP, and as `throng command NAME \
         FIELD=VALUE…`; repeat a field that has several values. See [administration.md](administration.md).\n"
    );
    for feature in ALL {
        for command in throng_commands::declared_commands(feature) {
            let reads = if command.changes { "" } else { " It changes nothing." };
            let _ = write!(
                out,
                "\n## {}\n\n{}{reads} Node `{}`, module `{}`.\n",
                command.name, command.doc, command.node, feature.name
            );
            for (title, fields) in [("Field", command.input), ("Output", command.output)] {
                if fields.is_empty() {
                    continue;
                }
                let _ = write!(out, "\n| {title} | In forms | Type | Meaning |\n| --- | --- | --- | --- |\n");
                for field in fields {
                    let must = match (title, field.required, field.default) {
                        ("Output", ..) => String::new(),
                        (_, _, default) if !default.is_empty() => format!(", default `{default}`"),
                        (_, true, _) => ", required".to_owned(),
                        _ => String::new(),
                    };
                    let doc = format!("{}. {}", field.label, field.doc);
                    let kind = field.kind.describe();
                    let _ = writeln!(
                        out,
                        "| `{}` | `{}` | {kind}{must} | {} |",
                        field.name,
                        field.var,
                        doc.trim_end()
                    );
                }
            }
        }
    }
    out
}

/// `docs/hooks.md`: the handlers of each module, in order.
///
/// # Errors
///
/// When no host can be built from the registry.
pub fn hooks() -> Result<String, HostError> {
    let mut out = format!(
        "{GENERATED}# Hooks\n\nHandlers of a host with all modules, in the order in which they run. Within a phase, the \
         position in `crates/features/src/registry.rs` decides.\n\n| Point | Phase | Module |\n| --- | --- | --- |\n"
    );
    for line in default_host()?.hooks.order().lines() {
        let _ = writeln!(out, "| {} |", line.replace(' ', " | "));
    }
    Ok(out)
}

/// The golden files: name and content.
///
/// # Errors
///
/// When no host can be built from the registry.
pub fn golden_files() -> Result<[(&'static str, String); 4], HostError> {
    let host = default_host()?;
    let disco = HostDisco::of(&host);
    let features = host.stream_features.to_xml(StreamFeatureStage::Authenticated).replace("/><", "/>\n<");
    Ok([
        ("disco_server.txt", disco_text(&disco.server)),
        ("disco_account.txt", disco_text(&disco.account)),
        ("hook_order.txt", host.hooks.order()),
        ("stream_features.txt", features + "\n"),
    ])
}

/// A host with every module that is enabled by default, with default options.
fn default_host() -> Result<Host, HostError> {
    // The empty configuration has no unknown names.
    let enabled = enable(&BTreeMap::new()).unwrap_or_default();
    feature_api::build_host("example.org", &enabled, &NodeLimits::default())
}

fn disco_text(info: &DiscoInfo) -> String {
    let mut out = String::new();
    for i in &info.identities {
        let line = format!("identity {}/{} {}", i.category, i.kind, i.name);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    for feature in &info.features {
        let _ = writeln!(out, "feature {feature}");
    }
    out
}
