//! Registry of all features in order, and the selection of enabled features by the configuration.
//!
//! The order is the order of stream features, and inside a phase of a hook point it is the order of handlers: the
//! place to look when two features interact. `golden/hook_order.txt` shows the result.
//!
//! Features of other crates, such as `muc`, export the same kind of constant.
//!
//! # Pitfalls
//!
//! A feature that is not in [`ALL`] is never built; the tests below iterate over the list, not the folder.

use std::collections::BTreeMap;

use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions, OptionValue};

/// Every feature, in order.
pub static ALL: &[&Feature] = &[
    // Capabilities of streams before there is a session. These register no handlers.
    &crate::sasl2::FEATURE,
    &crate::bind2::FEATURE,
    &crate::fast_tokens::FEATURE,
    &crate::scram_upgrade::FEATURE,
    // Blocking, before any other handler sees a stanza.
    &crate::blocking::FEATURE,
    // Initial requests of clients. None of these registers a handler on the stanza path, so their relative order does
    // not matter.
    &crate::legacy_session::FEATURE,
    &crate::disco::FEATURE,
    &crate::caps::FEATURE,
    &crate::ping::FEATURE,
    &crate::entity_time::FEATURE,
    &crate::software_version::FEATURE,
    &crate::vcard::FEATURE,
    &crate::private_storage::FEATURE,
    &crate::contact_info::FEATURE,
    &crate::external_services::FEATURE,
    &crate::user_search::FEATURE,
    // Services: they answer at their own addresses.
    &crate::proxy65::FEATURE,
    &crate::upload::FEATURE,
    &muc::FEATURE,
    &pubsub::FEATURE,
    &pubsub::pep::FEATURE,
    // Before presence, which removes a session's presence when it ends.
    &crate::last_activity::FEATURE,
    // Implemented by the streams; it only announces and limits.
    &crate::stream_management::FEATURE,
    // Commands: an interface and the commands that it offers.
    &crate::adhoc::FEATURE,
    &crate::statistics::FEATURE,
    &crate::registration::FEATURE,
    // Forged claims are removed before other handlers read them.
    &crate::anti_spoofing::FEATURE,
    // First handler of every message: archived, stored and delivered copies carry the id.
    &crate::stanza_id::FEATURE,
    // Copies are made of accepted messages, with their ids.
    &crate::carbons::FEATURE,
    // Presence before its consequences: a resource's own presence is sent before its stored messages.
    &crate::rfc6121::roster::FEATURE,
    &crate::rfc6121::subscription::FEATURE,
    &crate::rfc6121::presence::FEATURE,
    // After presence: the message of the day is sent when a resource is available, and before its stored messages.
    &crate::administration::FEATURE,
    // Whether a stanza in a session's queue may be deferred.
    &crate::client_state::FEATURE,
    // The last handler of a message: one that it does not store is returned to the sender.
    &crate::offline::FEATURE,
];

/// Configuration of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleConfig {
    /// `name = true` or `name = false`
    Switch(bool),
    /// `[modules.name]`; `enabled` switches, the rest are options. A table alone switches the module on.
    Options(BTreeMap<String, OptionValue>),
}

/// The enabled features, in registry order, with complete options.
///
/// # Errors
///
/// One sentence with the fix: an unknown module or option (with the nearest name), a value of the wrong type.
/// Disabled dependencies are detected when the host is built.
pub fn enable(modules: &BTreeMap<String, ModuleConfig>) -> Result<Vec<EnabledFeature>, String> {
    for name in modules.keys() {
        if !ALL.iter().any(|f| f.name == name) {
            let near = did_you_mean(name, ALL.iter().map(|f| f.name));
            return Err(format!("unknown module \"{name}\" under [modules]{near}"));
        }
    }
    let mut enabled = Vec::new();
    for feature in ALL {
        let mut on = feature.default_on;
        let mut options = FeatureOptions::defaults(feature.options);
        match modules.get(feature.name) {
            None => {}
            Some(ModuleConfig::Switch(switch)) => on = *switch,
            Some(ModuleConfig::Options(table)) => {
                on = true;
                for (key, value) in table {
                    match (key.as_str(), value) {
                        ("enabled", OptionValue::Bool(switch)) => on = *switch,
                        ("enabled", _) => {
                            return Err(format!(
                                "modules.{}: \"enabled\" must be true or false",
                                feature.name
                            ));
                        }
                        _ => set(feature, &mut options, key, value)?,
                    }
                }
            }
        }
        if on {
            enabled.push(EnabledFeature { feature, options });
        }
    }
    Ok(enabled)
}

fn set(
    feature: &Feature,
    options: &mut FeatureOptions,
    key: &str,
    value: &OptionValue,
) -> Result<(), String> {
    options.set(feature.options, key, value.clone()).map_err(|error| {
        let known = feature.options.iter().any(|o| o.key == key);
        let names = feature.options.iter().map(|o| o.key).chain(["enabled"]);
        let near = if known { String::new() } else { did_you_mean(key, names) };
        format!("modules.{}: {error}{near}", feature.name)
    })
}

/// `; did you mean "x"?`, or nothing if no name is near.
pub fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match names.map(|n| (strsim::levenshtein(name, n), n)).min() {
        Some((d, near)) if d <= 1 + name.len() / 3 => format!("; did you mean \"{near}\"?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use testkit::TestNode;
    use throng_core::NodeLimits;

    fn all(names: &BTreeSet<&str>) -> Vec<EnabledFeature> {
        let on = ALL.iter().filter(|f| names.contains(f.name));
        on.map(|feature| EnabledFeature { feature, options: FeatureOptions::defaults(feature.options) })
            .collect()
    }

    fn find(name: &str) -> &'static Feature {
        ALL.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no feature {name}"))
    }

    /// Adds the features' dependencies, transitively.
    fn with_needs(names: &mut BTreeSet<&'static str>) {
        loop {
            let more: Vec<_> = names.iter().flat_map(|n| find(n).needs.iter().copied()).collect();
            let before = names.len();
            names.extend(more);
            if names.len() == before {
                return;
            }
        }
    }

    /// Builds a host and routes a message between two users.
    fn assert_routes_messages(names: &BTreeSet<&'static str>) {
        let engine = TestNode::start(&all(names), NodeLimits::default());
        engine.create_user("romeo@example.net");
        engine.create_user("juliet");
        let romeo = engine.connect("romeo@example.net", "orchard");
        let juliet = engine.connect("juliet", "balcony");
        romeo.send("<message to='juliet@example.com/balcony' type='chat'><body>Neither</body></message>");
        assert_eq!(juliet.recv().len(), 1, "with {names:?}");
        juliet.close();
        romeo.send("<presence/>");
        romeo.close();
    }

    fn config(entries: &[(&str, ModuleConfig)]) -> BTreeMap<String, ModuleConfig> {
        entries.iter().map(|(name, config)| ((*name).to_owned(), config.clone())).collect()
    }

    fn options(entries: &[(&str, OptionValue)]) -> ModuleConfig {
        ModuleConfig::Options(entries.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
    }

    fn refused(entries: &[(&str, ModuleConfig)]) -> String {
        enable(&config(entries)).err().expect("a refusal")
    }

    #[test]
    fn names_are_unique_and_needs_exist() {
        let names: BTreeSet<_> = ALL.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), ALL.len());
        for feature in ALL {
            for need in feature.needs {
                assert!(names.contains(need), "{} needs {need}, which does not exist", feature.name);
            }
            let keys: BTreeSet<_> = feature.options.iter().map(|o| o.key).collect();
            assert_eq!(keys.len(), feature.options.len(), "{} has an option twice", feature.name);
            assert!(!keys.contains("enabled"), "{}: `enabled` is the switch", feature.name);
        }
    }

    #[test]
    fn each_request_has_one_owner() {
        let mut owners = BTreeMap::new();
        for feature in ALL {
            for key in feature.iq {
                // Each service has a table of its own.
                let service = feature.service.is_some() && key.target.is_of_service();
                let table = if service { feature.name } else { "" };
                let other = owners.insert(format!("{table} {key:?}"), feature.name);
                assert_eq!(other, None, "{} and {other:?} answer {key:?}", feature.name);
            }
        }
    }

    #[test]
    fn each_command_is_described() {
        let mut names = BTreeSet::new();
        for command in ALL.iter().flat_map(|f| throng_commands::declared_commands(f)) {
            let name = command.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(command.node == name || command.node.ends_with(&format!("#{name}")), "{name}");
            assert!(!command.title.is_empty() && command.doc.ends_with('.'), "{name}");
            for fields in [command.input, command.output] {
                let of = |f: fn(&throng_commands::CommandField) -> &'static str| -> BTreeSet<_> {
                    fields.iter().map(f).collect()
                };
                assert_eq!(
                    (of(|f| f.name).len(), of(|f| f.var).len()),
                    (fields.len(), fields.len()),
                    "{name}"
                );
                assert!(fields.iter().all(|f| !f.label.is_empty()), "{name}");
            }
            for stage in 0..command.stages() {
                assert!(command.stage(stage).count() > 0, "{name} has no fields at stage {stage}");
            }
            // Omitted fields, and every default and proposal, are accepted.
            for field in command.input {
                let mut given = throng_commands::RawArguments::default();
                for field in command.input.iter().filter(|f| f.required) {
                    given.add(field.name, example(field).to_owned());
                }
                if let throng_commands::CommandFieldKind::Int(_, _, proposals) = field.kind {
                    for (value, _) in proposals {
                        let mut given = given.clone();
                        given.0.retain(|(key, _)| key != field.name);
                        given.add(field.name, value.to_string());
                        assert!(
                            command.parse_input(&given, throng_commands::FieldNaming::Name).is_ok(),
                            "{name}"
                        );
                    }
                }
                let read = command.parse_input(&given, throng_commands::FieldNaming::Name);
                assert!(read.is_ok(), "{name}: {read:?}");
            }
        }
        assert!(names.len() >= 30);
    }

    fn example(field: &throng_commands::CommandField) -> &'static str {
        use throng_commands::CommandFieldKind;
        match field.kind {
            CommandFieldKind::Jid | CommandFieldKind::Jids => "juliet@example.com",
            CommandFieldKind::Int(..) | CommandFieldKind::Count(..) | CommandFieldKind::Bool => "1",
            CommandFieldKind::Choice(list) => list[0].0,
            _ => "text",
        }
    }

    #[test]
    fn each_feature_is_described() {
        for feature in ALL {
            assert!(feature.summary.ends_with('.'), "{}: the summary is one sentence", feature.name);
            assert!(!feature.specs.is_empty(), "{} implements nothing", feature.name);
            for spec in feature.specs {
                let rfc = spec.name.starts_with("RFC ");
                assert!(rfc || spec.name.starts_with("XEP-") && spec.name.len() == 8, "{}", spec.name);
                assert!(rfc || !spec.version.is_empty(), "{} has no version", spec.name);
                assert!(!spec.title.is_empty(), "{} has no title", spec.name);
            }
            for option in feature.options {
                assert!(option.doc.ends_with('.'), "{}.{}", feature.name, option.key);
                let mut set = FeatureOptions::default();
                let default = set.set(feature.options, option.key, option.default.clone());
                assert_eq!(default, Ok(()), "{}.{}", feature.name, option.key);
            }
        }
    }

    #[test]
    fn each_feature_works_without_the_others() {
        assert_routes_messages(&BTreeSet::new());
        for feature in ALL {
            let mut names = BTreeSet::from([feature.name]);
            with_needs(&mut names);
            assert_routes_messages(&names);
        }
    }

    #[test]
    fn each_feature_can_be_left_out() {
        assert_routes_messages(&ALL.iter().map(|f| f.name).collect());
        for without in ALL {
            let names = ALL.iter().map(|f| f.name).filter(|name| {
                let mut needed = BTreeSet::from([*name]);
                with_needs(&mut needed);
                !needed.contains(without.name)
            });
            assert_routes_messages(&names.collect());
        }
    }

    #[test]
    fn golden_files_are_current() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        for (name, fresh) in crate::codegen::docs::golden_files().unwrap() {
            let current = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert!(
                current == fresh,
                "golden/{name} has changed; if that is meant, run `cargo xtask codegen`. It is now:\n{fresh}"
            );
        }
    }

    #[test]
    fn the_empty_configuration_has_the_defaults() {
        let enabled = enable(&BTreeMap::new()).unwrap();
        let names: Vec<_> = enabled.iter().map(|e| e.feature.name).collect();
        let want: Vec<_> = ALL.iter().filter(|f| f.default_on).map(|f| f.name).collect();
        assert_eq!(names, want);
        assert!(feature_api::build_host("example.org", &enabled, &NodeLimits::default()).is_ok());
    }

    #[test]
    fn modules_are_switched_and_configured() {
        let enabled = enable(&config(&[
            ("entity_time", ModuleConfig::Switch(false)),
            ("ping", options(&[("idle_probe", OptionValue::Bool(false))])),
            (
                "software_version",
                options(&[("enabled", OptionValue::Bool(false)), ("show_os", OptionValue::Bool(true))]),
            ),
            ("offline", options(&[("max_messages", OptionValue::Int(7))])),
        ]))
        .unwrap();
        let of = |name: &str| enabled.iter().find(|e| e.feature.name == name);
        assert!(of("entity_time").is_none() && of("software_version").is_none());
        assert!(!of("ping").unwrap().options.bool("idle_probe"));
        let offline = &of("offline").unwrap().options;
        assert_eq!((offline.int("max_messages"), offline.int("expiry_days")), (7, 0));
    }

    #[test]
    fn errors_are_one_sentence_with_the_fix() {
        let on = ModuleConfig::Switch(true);
        assert_eq!(
            refused(&[("ofline", on.clone())]),
            "unknown module \"ofline\" under [modules]; did you mean \"offline\"?"
        );
        assert_eq!(refused(&[("quantum", on)]), "unknown module \"quantum\" under [modules]");
        assert_eq!(
            refused(&[("offline", options(&[("max_mesages", OptionValue::Int(1))]))]),
            "modules.offline: unknown option \"max_mesages\"; did you mean \"max_messages\"?"
        );
        assert_eq!(
            refused(&[("offline", options(&[("max_messages", OptionValue::Int(-1))]))]),
            "modules.offline: \"max_messages\" must be between 0 and 1000000"
        );
        assert_eq!(
            refused(&[("ping", options(&[("enabled", OptionValue::Int(1))]))]),
            "modules.ping: \"enabled\" must be true or false"
        );
    }
}
