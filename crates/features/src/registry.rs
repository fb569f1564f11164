//! All features in one ordered list, and the way from the configuration to the features that are on.
//!
//! The order is the order of stream features, and inside a phase of a hook point it is the order of handlers: the place
//! to look when two features meet. `golden/hook_order.txt` shows the outcome.
//!
//! Left out: `muc` and `pubsub`, which export the same kind of constant from their own crates.
//!
//! The trap: a feature that is not in [`ALL`] does not exist, whatever its file says; the tests below walk the list, not
//! the folder.

use std::collections::BTreeMap;

use throng_core::Enabled;
use throng_core::feature::{Feature, Options, Value};

/// Every feature, in order.
pub static ALL: &[&Feature] = &[
    // Requests that clients make first. None of these registers a handler on the stanza path, so among
    // themselves their order does not matter.
    &crate::session::FEATURE,
    &crate::disco::FEATURE,
    &crate::caps::FEATURE,
    &crate::ping::FEATURE,
    &crate::time::FEATURE,
    &crate::version::FEATURE,
    // First on the way of every message: what is archived, stored and delivered carries the id.
    &crate::stanza_id::FEATURE,
    // Presence before what presence sets off: a resource's own presence is out before its waiting messages are.
    &crate::rfc6121::roster::FEATURE,
    &crate::rfc6121::subscription::FEATURE,
    &crate::rfc6121::presence::FEATURE,
    // The last that takes a message: what it does not keep goes back to the sender.
    &crate::offline::FEATURE,
];

/// What the configuration says of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleConfig {
    /// `name = true` or `name = false`
    Switch(bool),
    /// `[modules.name]`; `enabled` switches, the rest are options. A table alone switches the module on.
    Options(BTreeMap<String, Value>),
}

/// The features that are on, in registry order, with complete options.
///
/// # Errors
/// One sentence with the mend: an unknown module or option (with the nearest name), a value of the wrong type.
/// Whether a needed feature is off is found when the host is built.
pub fn enable(modules: &BTreeMap<String, ModuleConfig>) -> Result<Vec<Enabled>, String> {
    for name in modules.keys() {
        if !ALL.iter().any(|f| f.name == name) {
            let near = nearest(name, ALL.iter().map(|f| f.name));
            return Err(format!("unknown module \"{name}\" under [modules]{near}"));
        }
    }
    let mut enabled = Vec::new();
    for feature in ALL {
        let mut on = feature.default_on;
        let mut options = Options::defaults(feature.options);
        match modules.get(feature.name) {
            None => {}
            Some(ModuleConfig::Switch(switch)) => on = *switch,
            Some(ModuleConfig::Options(table)) => {
                on = true;
                for (key, value) in table {
                    match (key.as_str(), value) {
                        ("enabled", Value::Bool(switch)) => on = *switch,
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
            enabled.push(Enabled { feature, options });
        }
    }
    Ok(enabled)
}

fn set(feature: &Feature, options: &mut Options, key: &str, value: &Value) -> Result<(), String> {
    options.set(feature.options, key, value.clone()).map_err(|error| {
        let known = feature.options.iter().any(|o| o.key == key);
        let names = feature.options.iter().map(|o| o.key).chain(["enabled"]);
        let near = if known { String::new() } else { nearest(key, names) };
        format!("modules.{}: {error}{near}", feature.name)
    })
}

/// `; did you mean "x"?`, or nothing if no name is near.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    match names.map(|n| (distance(name, n), n)).min() {
        Some((d, near)) if d <= 1 + name.len() / 3 => format!("; did you mean \"{near}\"?"),
        _ => String::new(),
    }
}

/// Insertions, removals and replacements that lead from one name to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
