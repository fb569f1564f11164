//! Renamed keys, modules and options: an old name is refused, and the message contains the new one.
//!
//! An old name is reported and its value is then read under the new name, so that one run finds the other errors as
//! well.
//!
//! # Pitfalls
//!
//! An entry names the section as it is called after the entries above it: options of a renamed module appear under
//! its new name.

use toml::{Table, Value};

use super::source::{ConfigSource, KeyPath};

/// Destination of a renamed key's value.
#[derive(Clone, Copy, Debug)]
enum Now {
    /// The same section, under this key.
    Key(&'static str),
    /// Another section.
    Section(&'static str),
}
use Now::{Key, Section};

/// Section, old key, and destination. `auth` and `modules` include those of single hosts.
const RENAMED: &[(&str, &str, Now)] = &[
    ("", "domains", Key("hosts")),
    ("", "domain", Key("host")),
    ("auth", "iterations", Key("scram_iterations")),
    ("auth", "anonymous", Key("allow_anonymous")),
    ("listen", "plain_without_tls", Key("allow_plain_without_tls")),
    ("tls", "more", Key("certificates")),
    ("tls", "certificate", Section("[[tls.certificates]]")),
    ("tls", "key", Section("[[tls.certificates]]")),
    ("http", "origins", Key("allowed_origins")),
    ("http", "head_seconds", Key("header_timeout_seconds")),
    ("http", "body_seconds", Key("body_timeout_seconds")),
    ("http", "idle_seconds", Key("idle_timeout_seconds")),
    ("http", "write_seconds", Key("write_stall_timeout_seconds")),
    ("http.bosh", "max_wait", Key("max_wait_seconds")),
    ("http.bosh", "max_inactivity", Key("max_inactivity_seconds")),
    ("http.bosh", "max_pause", Key("max_pause_seconds")),
    ("http.bosh", "polling", Key("polling_seconds")),
    ("limits", "negotiation_seconds", Key("negotiation_timeout_seconds")),
    ("limits", "login_failures_per_pair", Key("login_failures_per_address_and_account")),
    ("limits", "idle_seconds", Key("idle_ping_seconds")),
    ("limits", "ping_seconds", Key("ping_timeout_seconds")),
    ("limits", "blocked_seconds", Key("write_stall_timeout_seconds")),
    ("limits", "waiting_bytes", Key("backlog_bytes")),
    ("limits", "waiting_bytes_per_account", Key("backlog_bytes_per_account")),
    ("limits", "waiting_bytes_per_sender", Key("backlog_bytes_per_sender")),
    ("limits", "directed_presence", Key("directed_presence_entities")),
    ("limits", "resource_bytes", Key("resourcepart_bytes")),
    ("limits", "half_open", Key("unauthenticated_connections")),
    ("limits", "broadcasts_per_minute", Key("presence_broadcasts_per_minute")),
    ("limits", "broadcasts_burst", Key("presence_broadcasts_burst")),
    ("limits", "directed_per_minute", Key("directed_presence_per_minute")),
    ("limits", "directed_burst", Key("directed_presence_burst")),
    ("modules", "claims", Key("anti_spoofing")),
    ("modules", "contact", Key("contact_info")),
    ("modules", "fast", Key("fast_tokens")),
    ("modules", "last", Key("last_activity")),
    ("modules", "private", Key("private_storage")),
    ("modules", "search", Key("user_search")),
    ("modules", "session", Key("legacy_session")),
    ("modules", "time", Key("entity_time")),
    ("modules", "version", Key("software_version")),
    ("modules.blocking", "limit", Key("max_entries")),
    ("modules.fast_tokens", "clients", Key("max_clients_per_account")),
    ("modules.offline", "limit", Key("max_messages")),
    ("modules.presence", "iq_without_subscription", Key("allow_iq_without_subscription")),
    ("modules.presence", "presence_bytes", Key("max_bytes")),
    ("modules.private_storage", "bytes", Key("max_bytes")),
    ("modules.private_storage", "entries", Key("max_entries")),
    ("modules.pubsub", "subscriptions_per_address", Key("subscriptions_per_user_and_node")),
    ("modules.registration", "per_address", Key("accounts_per_hour_per_address")),
    ("modules.registration", "per_hour", Key("accounts_per_hour")),
    ("modules.registration", "reserved", Key("reserved_usernames")),
    ("modules.registration", "shortest_name", Key("min_username_length")),
    ("modules.registration", "without_tls", Key("allow_without_tls")),
    ("modules.roster", "group_bytes", Key("max_group_bytes")),
    ("modules.roster", "groups", Key("max_groups_per_contact")),
    ("modules.roster", "name_bytes", Key("max_name_bytes")),
    ("modules.stanza_id", "assign", Key("assign_ids")),
    ("modules.statistics", "open", Key("public")),
    ("modules.subscription", "pending_requests", Key("max_pending_requests")),
    ("modules.user_search", "results", Key("max_results")),
    ("modules.user_search", "who", Key("access")),
    ("modules.vcard", "bytes", Key("max_bytes")),
];

/// Reports every old name and moves its value to its destination.
pub(super) fn refuse(table: &mut Table, source: &mut ConfigSource) {
    for (section, old, now) in RENAMED {
        let parts: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
        let mut found = |name: &str, table: &mut Table, path: &KeyPath| {
            let Some(value) = table.remove(*old) else { return };
            let from = path.then(*old);
            let written = if name.is_empty() { (*old).to_owned() } else { format!("[{name}] {old}") };
            let fault = match now {
                Key(new) => format!("{written} has been renamed to {new}"),
                Section(new) => format!("{written} has moved to {new}"),
            };
            source.syntax_errors.push((source.location_within(&from).cloned(), fault));
            if let Key(new) = now {
                source.rename(&from, &path.then(*new));
                table.entry(*new).or_insert(value);
            }
        };
        each(table, "", &parts, &KeyPath::default(), &mut found);
        if matches!(parts.first(), Some(&("auth" | "modules"))) {
            let of_hosts: Vec<&str> = ["host", ANY].into_iter().chain(parts).collect();
            each(table, "", &of_hosts, &KeyPath::default(), &mut found);
        }
    }
}

/// Matches every key of a section.
const ANY: &str = "*";

/// Calls a function with each section of a name, and that section's name in messages.
fn each(
    table: &mut Table,
    name: &str,
    parts: &[&str],
    path: &KeyPath,
    found: &mut dyn FnMut(&str, &mut Table, &KeyPath),
) {
    let Some((first, rest)) = parts.split_first() else { return found(name, table, path) };
    for (key, value) in table.iter_mut().filter(|(key, _)| *first == ANY || key == first) {
        let part = if *first == ANY { format!("\"{key}\"") } else { key.clone() };
        let name = if name.is_empty() { part } else { format!("{name}.{part}") };
        let path = path.then(key.as_str());
        match value {
            Value::Table(inner) => each(inner, &name, rest, &path, found),
            Value::Array(list) => {
                for (number, value) in list.iter_mut().enumerate() {
                    if let Value::Table(inner) = value {
                        each(inner, &name, rest, &path.then(number.to_string()), found);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::config::reader::{ConfigError, overlay};

    /// The errors of a file with one key.
    fn errors_of(section: &str, key: &str) -> Vec<String> {
        let head = match section {
            "" => String::new(),
            "listen" => "[[listen]]\n".to_owned(),
            section => format!("[{section}]\n"),
        };
        // Where a section is expected, the value is a section, so that it is entered.
        let value = if key == "domain" { "{ }" } else { "1" };
        let (table, mut source) =
            ConfigSource::read(&format!("{head}{key} = {value}\n"), Some("f".to_owned()));
        of(table, &mut source)
    }

    fn of(table: Table, source: &mut ConfigSource) -> Vec<String> {
        let error = NodeConfig::from_table(table, std::mem::take(source)).unwrap_err();
        error.downcast::<ConfigError>().unwrap().0
    }

    fn sentence(section: &str, old: &str, now: Now) -> String {
        let written = if section.is_empty() { old.to_owned() } else { format!("[{section}] {old}") };
        match now {
            Key(new) => format!("{written} has been renamed to {new}"),
            Section(new) => format!("{written} has moved to {new}"),
        }
    }

    #[test]
    fn every_old_name_is_refused_at_its_line_with_the_new_one() {
        for (section, old, now) in RENAMED {
            let mut sections = vec![(*section).to_owned()];
            if section.starts_with("modules") || *section == "auth" && *old != "iterations" {
                sections.push(format!("host.\"localhost\".{section}"));
            }
            for section in &sections {
                let found = errors_of(section, old);
                let line = if section.is_empty() { 1 } else { 2 };
                let expected = format!("f:{line}:1: {}", sentence(section, old, *now));
                assert!(found.contains(&expected), "{expected} is missing in {found:#?}");
                // The new name must be known, or it would be reported as a mistake too.
                assert!(!found.iter().any(|one| one.contains("unknown")), "{found:#?}");
            }
        }
    }

    #[test]
    fn every_old_name_is_refused_in_the_environment() {
        for (section, old, now) in RENAMED.iter().filter(|(section, ..)| *section != "listen") {
            let path: Vec<&str> = section.split('.').chain([*old]).filter(|part| !part.is_empty()).collect();
            let name = format!("THRONG__{}", path.join("__").to_uppercase());
            let value = if *old == "domain" { "{ }" } else { "1" };
            let (mut table, mut source) = ConfigSource::read("", None);
            overlay(&mut table, &mut source, [(name.clone(), value.to_owned())].into_iter()).unwrap();
            let expected = format!("{name}: {}", sentence(section, old, *now));
            let found = of(table, &mut source);
            assert!(found.contains(&expected), "{expected} is missing in {found:#?}");
        }
    }

    #[test]
    fn errors_under_an_old_name_are_reported_in_the_same_run() {
        let text = "[modules.fast]\nclients = 0\n[http.bosh]\nmax_wait = 0\n";
        let (table, mut source) = ConfigSource::read(text, None);
        let found = of(table, &mut source).join("\n");
        for part in [
            "[modules] fast has been renamed to fast_tokens",
            "[modules.fast_tokens] clients has been renamed to max_clients_per_account",
            "modules.fast_tokens: ",
            "[http.bosh] max_wait has been renamed to max_wait_seconds",
            "[http.bosh] max_wait_seconds must be a whole number between 1 and 600",
        ] {
            assert!(found.contains(part), "{part} is missing in {found}");
        }
    }

    #[test]
    fn every_old_name_is_in_the_upgrade_notes() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../UPGRADING");
        let notes: String = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        for (section, old, now) in RENAMED {
            let section = if section.is_empty() { "(top)" } else { section };
            let (Key(new) | Section(new)) = now;
            let row = format!("| `{section}` | `{old}` | `{new}` |");
            assert!(notes.contains(&row), "{row} is missing in UPGRADING");
        }
    }
}
