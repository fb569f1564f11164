//! `[modules]` and `[host."…"]`: the modules that are enabled, for all hosts and per host.

use std::collections::BTreeMap;

use feature_api::feature::OptionValue;
use features::registry::ModuleConfig;
use streams::AuthPolicy;

use super::account_provider::{self, ProviderConfig};
use super::reader::{ConfigErrors, ConfigSection};
use super::source::KeyPath;

/// Module settings, by module name.
pub(crate) type Modules = BTreeMap<String, ModuleConfig>;

/// Settings of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostConfig {
    /// Override those of all hosts; see [`merge`].
    pub(crate) modules: Modules,
    /// Complete, including the inherited settings.
    pub(crate) auth: AuthPolicy,
    /// Complete, too.
    pub(crate) provider: ProviderConfig,
}

/// Reads the settings per host.
pub(super) fn hosts(
    root: &mut ConfigSection,
    served: &[String],
    auth: AuthPolicy,
    provider: &ProviderConfig,
) -> BTreeMap<String, HostConfig> {
    let mut hosts = BTreeMap::new();
    for (written, mut section) in root.named("host") {
        let (faults, path) = (section.faults.clone(), section.here());
        let name = jid::Jid::parse(&written).map_or_else(|_| written.clone(), |jid| jid.to_string());
        if !served.contains(&name) {
            let near = features::registry::did_you_mean(&name, served.iter().map(String::as_str));
            let fix = if near.is_empty() { "; add it there".to_owned() } else { near };
            faults.at(&path, format!("[host.\"{written}\"] is not listed in hosts{fix}"));
        }
        let mut own = section.section("auth");
        let auth = super::listen::auth(&mut own, auth);
        let provider = account_provider::provider(&mut own, provider);
        own.finish();
        let modules = modules(&mut section);
        section.finish();
        if hosts.insert(name, HostConfig { modules, auth, provider }).is_some() {
            faults.at(
                &path,
                format!("[host.\"{written}\"] occurs twice with different spellings; merge the sections"),
            );
        }
    }
    hosts
}

pub(super) fn modules(section: &mut ConfigSection) -> Modules {
    let mut modules = Modules::new();
    let (faults, section_name, path) =
        (section.faults.clone(), section.key_in_section("modules"), section.path("modules"));
    let domain_prefix =
        section_name.strip_suffix(" modules").map(|domain| format!("{domain} ")).unwrap_or_default();
    for (name, value) in section.section("modules").into_entries() {
        let path = path.then(name.as_str());
        let Some(config) = parse_module(&name, value, &section_name, &path, &faults) else { continue };
        // One module and one option at a time, so that each mistake is reported with its location.
        for (path, part) in single_option_configs(&config, &path) {
            if let Err(error) = features::registry::enable(&Modules::from([(name.clone(), part)])) {
                faults.at(&path, format!("{domain_prefix}{error}"));
                if !features::registry::ALL.iter().any(|feature| feature.name == name) {
                    break;
                }
            }
        }
        modules.insert(name, config);
    }
    modules
}

/// The parts of a module's configuration that are validated separately, with their paths.
fn single_option_configs(config: &ModuleConfig, path: &KeyPath) -> Vec<(KeyPath, ModuleConfig)> {
    match config {
        ModuleConfig::Options(options) if !options.is_empty() => {
            let part = |(key, value): (&String, &OptionValue)| {
                let one = BTreeMap::from([(key.clone(), value.clone())]);
                (path.then(key.as_str()), ModuleConfig::Options(one))
            };
            options.iter().map(part).collect()
        }
        whole => vec![(path.clone(), whole.clone())],
    }
}

fn parse_module(
    name: &str,
    value: toml::Value,
    section_name: &str,
    path: &KeyPath,
    faults: &ConfigErrors,
) -> Option<ModuleConfig> {
    let table = match value {
        toml::Value::Boolean(on) => return Some(ModuleConfig::Switch(on)),
        toml::Value::Table(table) => table,
        _ => {
            faults.at(path, format!("{section_name}.{name} must be true, false or a table of options"));
            return None;
        }
    };
    let mut options = BTreeMap::new();
    for (key, value) in table {
        let value = match value {
            toml::Value::Boolean(b) => Some(OptionValue::Bool(b)),
            toml::Value::Integer(n) => Some(OptionValue::Int(n)),
            toml::Value::String(s) => Some(OptionValue::Text(s.into())),
            toml::Value::Array(list) => {
                let texts = list.into_iter().map(|text| match text {
                    toml::Value::String(text) => Some(text),
                    _ => None,
                });
                texts.collect::<Option<Vec<_>>>().map(OptionValue::Texts)
            }
            _ => None,
        };
        match value {
            Some(value) => drop(options.insert(key, value)),
            None => faults.at(
                &path.then(key.as_str()),
                format!(
                    "{section_name}.{name} {key} must be a boolean, a number, a string or a list of strings"
                ),
            ),
        }
    }
    Some(ModuleConfig::Options(options))
}

/// Merges a domain's settings over those of all domains: options one by one; a switch alone retains the options.
pub(super) fn merge(all: &Modules, own: &Modules) -> Modules {
    let mut merged = all.clone();
    for (name, own) in own {
        let both = match (merged.remove(name), own.clone()) {
            (Some(ModuleConfig::Options(mut options)), ModuleConfig::Options(own)) => {
                // A table alone enables its module, whatever the settings of all domains are.
                options.remove("enabled");
                options.extend(own);
                ModuleConfig::Options(options)
            }
            (Some(ModuleConfig::Options(mut options)), ModuleConfig::Switch(on)) => {
                options.insert("enabled".to_owned(), OptionValue::Bool(on));
                ModuleConfig::Options(options)
            }
            (_, own) => own,
        };
        merged.insert(name.clone(), both);
    }
    merged
}
