//! Checks of what features register against what they declare: HTTP routes and periodic jobs.

use std::collections::BTreeMap;

use crate::feature::{Feature, HostRegistrations};
use crate::host::HostError;

/// Prefixes that the server uses itself.
const RESERVED_PREFIXES: &[&str] = &[
    "api",
    "assets",
    "bosh",
    "chat",
    "console",
    "healthz",
    "http-bind",
    "metrics",
    "readyz",
    "ws",
    "xmpp-websocket",
];

/// Whether the prefix of an HTTP route can be used.
fn is_valid(prefix: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    !prefix.is_empty() && prefix.bytes().all(known) && !RESERVED_PREFIXES.contains(&prefix)
}

/// How the HTTP routes and periodic jobs that a feature registered differ from the declared ones, if they do.
pub(crate) fn undeclared_parts(feature: &Feature, parts: &HostRegistrations) -> Option<String> {
    let registered = parts.http_routes.iter().filter(|route| route.feature == feature.name);
    let routes: Vec<&str> = registered.map(|route| route.spec.prefix).collect();
    let declared: Vec<&str> = feature.http_routes.iter().map(|spec| spec.prefix).collect();
    if let Some(spec) = feature.http_routes.iter().find(|spec| !is_valid(spec.prefix)) {
        return Some(format!("declares the HTTP route \"{}\", which is reserved or not a word", spec.prefix));
    }
    let registered = parts.periodic_jobs.iter().filter(|job| job.feature == feature.name);
    let jobs: Vec<&str> = registered.map(|job| job.spec.name).collect();
    let declared_jobs: Vec<&str> = feature.periodic_jobs.iter().map(|spec| spec.name).collect();
    difference("HTTP route", "http_routes", &declared, &routes)
        .or_else(|| difference("periodic job", "periodic_jobs", &declared_jobs, &jobs))
}

fn difference(kind: &str, field: &str, declared: &[&str], registered: &[&str]) -> Option<String> {
    if let Some(name) = registered.iter().find(|name| !declared.contains(name)) {
        Some(format!("registers the {kind} {name}; add it to `{field}` of the declaration"))
    } else if let Some(name) = declared.iter().find(|name| !registered.contains(name)) {
        Some(format!("declares the {kind} {name}; register it in `build`"))
    } else if declared.len() != registered.len() {
        Some(format!("declares or registers a {kind} twice; remove one"))
    } else {
        None
    }
}

/// Refuses two features with the same route or job.
pub(crate) fn duplicate_parts(parts: &HostRegistrations) -> Result<(), HostError> {
    let routes = parts
        .http_routes
        .iter()
        .map(|route| (route.feature, format!("the HTTP route {}", route.spec.prefix)));
    let jobs =
        parts.periodic_jobs.iter().map(|job| (job.feature, format!("the periodic job {}", job.spec.name)));
    let mut owners = BTreeMap::new();
    for (feature, part) in routes.chain(jobs) {
        if let Some(first) = owners.insert(part.clone(), feature) {
            return Err(HostError::DuplicateProvider(first, feature, part));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_one_word_that_the_server_does_not_use() {
        assert!(is_valid("upload") && is_valid("bits-of-binary"));
        assert!(!is_valid("http-bind") && !is_valid("readyz"));
        assert!(
            !is_valid("") && !is_valid("api") && !is_valid("a/b") && !is_valid("%2e") && !is_valid("Upload")
        );
    }
}
