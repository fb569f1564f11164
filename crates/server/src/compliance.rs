//! `throng check --compliance`: compliance of a node with this configuration with XEP-0479 0.1.0, XMPP Compliance
//! Suites 2023, section 2, in the server roles.
//!
//! The provided specifications are derived from the modules' declarations and from
//! `features::codegen::built_in_specs`; so the report follows the code, and only the table of requirements is here. A
//! specification declared by several modules is provided when all of them are on.
//!
//! Not implemented: rows without requirements for servers, and "specifications of note".
//!
//! # Pitfalls
//!
//! An enabled module may still provide nothing because of an option; such cases are listed in [`settings`].

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use feature_api::EnabledFeature;
use features::codegen::built_in_specs::BUILT_IN;
use features::registry::ALL;
use net::ListenerKind;
use streams::TlsPolicy;

use crate::config::NodeConfig;

/// One row of a suite's table, for servers.
struct SuiteRow {
    feature: &'static str,
    /// Required of a core server; an advanced server requires all rows.
    core: bool,
    specs: &'static [&'static str],
}

const fn core_row(feature: &'static str, specs: &'static [&'static str]) -> SuiteRow {
    SuiteRow { feature, core: true, specs }
}

const fn advanced_row(feature: &'static str, specs: &'static [&'static str]) -> SuiteRow {
    SuiteRow { feature, core: false, specs }
}

/// The suites of section 2, in its order.
static SUITES: [(&str, &[SuiteRow]); 5] = [
    (
        "Core",
        &[
            core_row("Core features", &["RFC 6120"]),
            core_row("TLS", &["RFC 7590"]),
            advanced_row("Direct TLS", &["XEP-0368"]),
            core_row("Feature discovery", &["XEP-0030"]),
            advanced_row("Feature broadcasts", &["XEP-0115"]),
            core_row("Server extensibility", &["XEP-0114"]),
            advanced_row("Event publishing", &["XEP-0163"]),
        ],
    ),
    ("Web", &[core_row("Web connection mechanisms", &["RFC 7395", "XEP-0206"])]),
    (
        "IM",
        &[
            core_row("Core features", &["RFC 6121"]),
            advanced_row("User avatar compatibility", &["XEP-0398", "XEP-0153"]),
            core_row("vcard-temp", &["XEP-0054"]),
            core_row("Outbound message synchronization", &["XEP-0280"]),
            advanced_row("User blocking", &["XEP-0191"]),
            core_row("Group chat", &["XEP-0045", "XEP-0249"]),
            advanced_row("Advanced group chat", &["XEP-0048", "XEP-0313", "XEP-0402", "XEP-0410"]),
            advanced_row("Private data via PubSub", &["XEP-0223"]),
            advanced_row("Private XML storage", &["XEP-0049"]),
            advanced_row("Stream management", &["XEP-0198"]),
            advanced_row("History storage and retrieval", &["XEP-0313"]),
            core_row("File upload", &["XEP-0363"]),
        ],
    ),
    (
        "Mobile",
        &[
            core_row("Stream management", &["XEP-0198"]),
            core_row("Client state indication", &["XEP-0352"]),
            advanced_row("Third party push notifications", &["XEP-0357"]),
        ],
    ),
    ("A/V calling", &[core_row("STUN/TURN server discovery", &["XEP-0215"])]),
];

/// Providers of a specification, or why it is not provided.
type Provided = Result<String, String>;

/// The report, separate for each domain where domains differ.
///
/// # Errors
/// When the modules of a domain cannot be read.
pub(crate) fn report(config: &NodeConfig) -> Result<Vec<String>> {
    let mut lines = vec!["XEP-0479 XMPP Compliance Suites 2023, version 0.1.0, for servers".to_owned()];
    let mut seen: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for domain in &config.hosts {
        let enabled = features::registry::enable(&config.modules_of(domain)).map_err(|e| anyhow!("{e}"))?;
        seen.entry(suites(config, &enabled)).or_default().push(domain);
    }
    for (suites, domains) in seen {
        lines.push(String::new());
        lines.push(domains.join(", "));
        lines.extend(suites);
    }
    Ok(lines)
}

fn suites(config: &NodeConfig, enabled: &[EnabledFeature]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut core_missing = [0; 2];
    for (at, (name, rows)) in SUITES.iter().enumerate() {
        let rows: Vec<_> = rows.iter().map(|row| (row, row_providers(config, enabled, row))).collect();
        let missing = |advanced: bool| {
            let wanted = rows.iter().filter(|(row, _)| advanced || row.core);
            wanted.filter(|(_, found)| found.iter().any(|(_, by)| by.is_err())).count()
        };
        let own = [missing(false), missing(true)];
        if at == 0 {
            core_missing = own;
        }
        lines.push(String::new());
        for (level, title) in ["server", "advanced server"].into_iter().enumerate() {
            let verdict = match (own[level], core_missing[level]) {
                (0, 0) => "compliant".to_owned(),
                // Sections 2.2 to 2.5: the other suites include all of the core suite.
                (0, n) => format!("complete except for {n} missing from the core suite"),
                (n, _) => format!("{n} missing"),
            };
            lines.push(format!("{name}, {title}: {verdict}"));
        }
        for (row, found) in rows {
            let level = if row.core { "server" } else { "advanced" };
            for (spec, by) in found {
                let (state, text) = match by {
                    Ok(by) => ("met", by),
                    Err(reason) => ("missing", reason),
                };
                lines.push(format!("  {state:<8}{level:<10}{:<34}{spec:<10}{text}", row.feature));
            }
        }
    }
    lines
}

fn row_providers(
    config: &NodeConfig,
    enabled: &[EnabledFeature],
    row: &SuiteRow,
) -> Vec<(&'static str, Provided)> {
    row.specs.iter().map(|spec| (*spec, provider(config, enabled, spec))).collect()
}

fn provider(config: &NodeConfig, enabled: &[EnabledFeature], spec: &str) -> Provided {
    let declares = |specs: &[feature_api::feature::Spec]| specs.iter().any(|s| s.name == spec);
    let modules: Vec<&str> = ALL.iter().filter(|f| declares(f.specs)).map(|f| f.name).collect();
    let is_on = |name: &&&str| enabled.iter().any(|e| e.feature.name == **name);
    let off: Vec<&str> = modules.iter().filter(|name| !is_on(name)).copied().collect();
    if !off.is_empty() {
        let list = off.join(", ");
        return Err(format!("enable {list} under [modules]"));
    }
    let parts: Vec<&str> = BUILT_IN.iter().filter(|b| b.spec.name == spec).map(|b| b.part).collect();
    if modules.is_empty() && parts.is_empty() {
        return Err("not implemented".to_owned());
    }
    if let Some(reason) = settings(config, enabled, spec) {
        return Err(reason);
    }
    let part = (!parts.is_empty()).then(|| format!("built in ({})", parts.join(", ")));
    let module = match modules.as_slice() {
        [] => None,
        [one] => Some(format!("module {one}")),
        all => Some(format!("modules {}", all.join(", "))),
    };
    Ok(part.into_iter().chain(module).collect::<Vec<_>>().join(", "))
}

/// Missing settings without which an implemented specification is not provided.
fn settings(config: &NodeConfig, enabled: &[EnabledFeature], spec: &str) -> Option<String> {
    let clients =
        || config.listen.iter().filter(|l| matches!(l.kind, ListenerKind::C2s | ListenerKind::C2sTls));
    match spec {
        "RFC 6120" if clients().next().is_none() => Some("no [[listen]] accepts clients".to_owned()),
        "RFC 7590" if clients().any(|l| l.tls == TlsPolicy::Off) => {
            Some("a [[listen]] has tls = \"off\"".to_owned())
        }
        "XEP-0368" if !clients().any(|l| l.kind == ListenerKind::C2sTls) => {
            Some("no [[listen]] of kind c2s-tls".to_owned())
        }
        "RFC 7395" | "XEP-0124" | "XEP-0206" | "XEP-0156"
            if !config.listen.iter().any(|l| matches!(l.kind, ListenerKind::Http | ListenerKind::Https)) =>
        {
            Some("no [[listen]] of kind http or https".to_owned())
        }
        "RFC 7395" if config.http.settings.websocket.is_none() => {
            Some("[http.websocket] enabled = false".to_owned())
        }
        "XEP-0124" | "XEP-0206" if config.http.settings.bosh_body_bytes.is_none() => {
            Some("[http.bosh] enabled = false".to_owned())
        }
        "XEP-0215" => {
            let module = enabled.iter().find(|e| e.feature.name == "external_services");
            let none = module.is_some_and(|e| e.options.texts("services").is_empty());
            none.then(|| "[modules.external_services] services is empty".to_owned())
        }
        _ => crate::web::public_url::missing(config, spec)
            .or_else(|| crate::service_listeners::missing_listener(config, spec)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        report(&NodeConfig::from_text(text).unwrap()).unwrap()
    }

    /// State and reason of a row.
    fn row(lines: &[String], feature: &str, spec: &str) -> (String, String) {
        let line = lines.iter().find(|l| l.contains(feature) && l.contains(spec));
        let line = line.unwrap_or_else(|| panic!("no {feature} {spec} in {lines:#?}"));
        let state = line.split_whitespace().next().unwrap_or_default();
        let by = line.split(spec).nth(1).unwrap_or_default().trim();
        (state.to_owned(), by.to_owned())
    }

    fn pair(state: &str, by: &str) -> (String, String) {
        (state.to_owned(), by.to_owned())
    }

    #[test]
    fn a_row_is_missing_if_its_module_is_disabled() {
        let mut tried = 0;
        for (_, rows) in &SUITES {
            for row in *rows {
                for spec in row.specs {
                    for module in ALL.iter().filter(|f| f.specs.iter().any(|s| s.name == *spec)) {
                        let on = module.needs.iter().chain([&module.name]);
                        let on: String = on.map(|name| format!("{name} = true\n")).collect();
                        let on = NodeConfig::from_text(&format!("[modules]\n{on}")).unwrap();
                        let off =
                            NodeConfig::from_text(&format!("[modules]\n{} = false", module.name)).unwrap();
                        let of = |config: &NodeConfig| {
                            let enabled = features::registry::enable(&config.modules).unwrap();
                            provider(config, &enabled, spec)
                        };
                        let expected = format!("enable {} under [modules]", module.name);
                        assert_eq!(of(&off), Err(expected), "{spec}");
                        let now = of(&on);
                        let others = ALL.iter().filter(|f| f.specs.iter().any(|s| s.name == *spec));
                        let all_on = others.into_iter().all(|f| f.default_on || f.name == module.name);
                        let needs_more =
                            settings(&on, &features::registry::enable(&on.modules).unwrap(), spec);
                        assert!(now.is_ok() || !all_on || needs_more.is_some(), "{spec}: {now:?}");
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried >= 5, "{tried}");
    }

    #[test]
    fn a_met_row_names_its_provider() {
        let all = lines("");
        assert_eq!(row(&all, "Core features", "RFC 6120"), pair("met", "built in (streams)"));
        assert_eq!(row(&all, "Feature discovery", "XEP-0030"), pair("met", "module disco"));
        assert_eq!(row(&all, "Direct TLS", "XEP-0368"), pair("met", "built in (net)"));
        let (state, by) = row(&all, "Core features", "RFC 6121");
        assert!(state == "met" && by.contains("modules roster, subscription, presence"), "{by}");
        assert_eq!(row(&all, "Server extensibility", "XEP-0114"), pair("missing", "not implemented"));
    }

    #[test]
    fn a_disabled_option_makes_a_row_missing() {
        let plain = lines("[[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:1'\ntls = 'off'\n");
        assert_eq!(row(&plain, "TLS ", "RFC 7590"), pair("missing", "a [[listen]] has tls = \"off\""));
        assert_eq!(row(&plain, "Direct TLS", "XEP-0368").0, "missing");
        let none = pair("missing", "no [[listen]] of kind http or https");
        assert_eq!(row(&plain, "Web connection mechanisms", "RFC 7395"), none);
        let off = lines("[http.websocket]\nenabled = false");
        assert_eq!(row(&off, "Web connection mechanisms", "RFC 7395").1, "[http.websocket] enabled = false");
        assert_eq!(row(&lines(""), "Web connection mechanisms", "RFC 7395"), pair("met", "built in (net)"));
        let turn = lines("[modules]\nexternal_services = true");
        assert!(row(&turn, "STUN/TURN", "XEP-0215").1.contains("services is empty"));
        let turn = lines("[modules.external_services]\nservices = ['stun:stun.example.org:3478']");
        assert_eq!(row(&turn, "STUN/TURN", "XEP-0215"), pair("met", "module external_services"));
    }

    #[test]
    fn domains_with_different_results_are_reported_separately() {
        let all = lines("hosts = ['a.org', 'b.org', 'c.org']\n[host.'b.org'.modules]\ncaps = false\n");
        let heads: Vec<_> = all.iter().filter(|l| l.contains(".org")).map(String::as_str).collect();
        assert!(heads.len() == 2 && heads.contains(&"a.org, c.org") && heads.contains(&"b.org"), "{heads:?}");
    }

    #[test]
    fn a_suite_is_compliant_only_with_the_core_suite() {
        let all = lines("[modules.external_services]\nservices = ['stun:stun.example.org:3478']");
        let verdict = all.iter().find(|l| l.starts_with("A/V calling, server")).unwrap();
        let core = all.iter().find(|l| l.starts_with("Core, server")).unwrap();
        let expected = if core.ends_with("compliant") { "compliant" } else { "missing from the core suite" };
        assert!(verdict.ends_with(expected), "{verdict}; {core}");
    }
}
