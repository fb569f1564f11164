//! TOML form of a plan; `docs/load-plans.md` is its reference.
//!
//! [`read_toml`] reads everything, records every error, applies the command line's values over those of the file, and
//! scales the result to the requested clock ([`super::scale`]).
//!
//! Not implemented: checks that depend on the machine ([`super::check()`]).
//!
//! # Pitfalls
//!
//! `connections` is read before anything else, since phases and accounts refer to it by word.

mod accounts;
mod reader;
mod steps;
#[cfg(test)]
mod tests;
mod values;

use std::path::PathBuf;

use ::toml::de::DeTable;
use reader::{TomlContext, TomlNode, TomlSection};

use super::error::nearest;
use super::{
    ArrivalPhase, DataTable, HttpBinding, LoadPlan, PlanError, PlanOptions, PlanOverrides, PlanTarget,
    StreamTransport, Threshold, TransportSecurity, UserSession, UserStart, csv, endpoint, overrides, scale,
};

pub use accounts::Preparation;
pub use values::{addresses, sources};

/// Words for transport security.
pub(crate) const SECURITIES: &[(&str, TransportSecurity)] = &[
    ("auto", TransportSecurity::Auto),
    ("none", TransportSecurity::None),
    ("plain", TransportSecurity::None),
    ("starttls", TransportSecurity::Starttls),
    ("direct", TransportSecurity::Direct),
    ("tls", TransportSecurity::Direct),
];
/// Words for transports.
const TRANSPORTS: &[(&str, StreamTransport)] = &[
    ("tcp", StreamTransport::Tcp),
    ("bosh", StreamTransport::Bosh),
    ("websocket", StreamTransport::WebSocket),
];
/// Default address of the HTTP server.
const USUAL_WEB_ADDRESS: &str = "127.0.0.1:5280";
/// Default address of the server.
const USUAL_ADDRESS: &str = "127.0.0.1:5222";
/// Default number of connections.
const USUAL_CONNECTIONS: u32 = 1_000;

/// Reads a plan. Returns all errors at once, in order of their lines.
pub fn read_toml(text: &str, name: &str, arguments: &PlanOverrides) -> Result<LoadPlan, Vec<PlanError>> {
    read_toml_with_preparation(text, name, arguments).map(|(plan, _)| plan)
}

/// Reads a plan together with what it needs on the server (`[prepare]`; without it, the accounts with empty rosters),
/// which is `None` if the accounts are not a pattern.
pub fn read_toml_with_preparation(
    text: &str,
    name: &str,
    arguments: &PlanOverrides,
) -> Result<(LoadPlan, Option<Preparation>), Vec<PlanError>> {
    let mut context = TomlContext::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in &errors {
            context.error(
                error.span().map_or(0, |span| span.start),
                "",
                format!("is not TOML: {}", error.message()),
            );
        }
        return Err(context.errors());
    }
    prepare_context(&mut context, &document, arguments);
    let section = TomlSection::new(&context, "", 0, document.get_ref());
    let read = plan(section, name, arguments);
    let errors = context.errors();
    match read {
        Some((mut plan, preparation)) if errors.is_empty() => {
            scale::scale(&mut plan, arguments.time_scale);
            overrides::apply(&mut plan, arguments);
            Ok((plan, preparation))
        }
        _ => Err(errors),
    }
}

/// Creates the context that later parts refer to by word: the number of connections and the tables.
fn prepare_context(
    context: &mut TomlContext<'_>,
    document: &::toml::Spanned<DeTable<'_>>,
    arguments: &PlanOverrides,
) {
    let (file, tables) = {
        let section = TomlSection::new(context, "", 0, document.get_ref());
        let file = section.get("connections").and_then(|n| n.whole(1, i64::from(u32::MAX))).map(|n| n as u32);
        (file, tables(&section, arguments))
    };
    if arguments.connections == Some(0) {
        context.wrong_nowhere("--connections must be at least 1");
    }
    if !(arguments.time_scale.is_finite() && arguments.time_scale > 0.0) {
        context.wrong_nowhere("--time-scale must be more than 0; 2 is twice as fast, 0.5 half as fast");
    }
    context.connections = arguments.connections.or(file).unwrap_or(USUAL_CONNECTIONS).max(1);
    context.tables = tables;
}

fn plan(
    section: TomlSection<'_>,
    name: &str,
    arguments: &PlanOverrides,
) -> Option<(LoadPlan, Option<Preparation>)> {
    let s = &section;
    // Read before; accessed again to mark them as known keys.
    let own = s.get("connections").and_then(|n| n.whole(1, i64::from(u32::MAX)));
    let _ = s.get("tables");
    let title = s.get("title").and_then(|n| n.text()).unwrap_or(name);
    let title = title_of(title, own, s.context.connections);
    let mut target = target(s, arguments);
    bosh(s, &mut target.web);
    let read = accounts::read(s, &target.domain, arguments);
    let sessions = sessions(s);
    let names: Vec<&str> = sessions.iter().map(|session| session.name.as_str()).collect();
    let phases = phases(s, &names);
    let starts = starts(s, &names);
    if phases.is_empty() && starts.is_empty() && s.get("phase").is_none() && s.get("start").is_none() {
        s.context.wrong_nowhere(
            "the plan has no [[phase]], so no users arrive; add one such as: [[phase]] \
         rate = 100, users = \"connections\"",
        );
    }
    let mut options = options(s);
    options.connections = s.context.connections;
    options.tables.clone_from(&s.context.tables);
    let transactions = s.context.transactions.borrow().clone();
    section.finish();
    let (accounts, preparation) = read?;
    let plan = LoadPlan {
        name: name.to_owned(),
        title,
        target,
        accounts,
        phases,
        starts,
        sessions,
        transactions,
        options,
    };
    Some((plan, preparation))
}

/// Adapts the title to a run of another size: a run of 2 000 must not be titled "100 000 connections".
fn title_of(title: &str, own: Option<i64>, connections: u32) -> String {
    let Some(own) = own.and_then(|own| u64::try_from(own).ok()).filter(|own| *own != u64::from(connections))
    else {
        return title.to_owned();
    };
    let grouped = |number: u64| crate::report::unit::grouped(number).replace(['\u{a0}', '\u{202f}'], " ");
    let (published, here) = (grouped(own), grouped(u64::from(connections)));
    let word = if connections == 1 { "connection" } else { "connections" };
    title.replacen(
        &format!("{published} connections"),
        &format!("{here} {word} (of {published} in the plan)"),
        1,
    )
}

fn target(s: &TomlSection<'_>, arguments: &PlanOverrides) -> PlanTarget {
    let mut target = PlanTarget {
        addresses: Vec::new(),
        domain: "localhost".to_owned(),
        security: TransportSecurity::Auto,
        tls: super::PlanTls::default(),
        sources: Vec::new(),
        web: HttpBinding::default(),
    };
    if let Some(section) = s.get("target").and_then(|n| n.section()) {
        if let Some(node) = section.get("address") {
            for text in node.texts().unwrap_or_default() {
                // An unresolvable name does not matter if the command line gives the target.
                match addresses(&text) {
                    Ok(found) => target.addresses.extend(found),
                    Err(what) if arguments.addresses.is_empty() => node.error(what),
                    Err(_) => {}
                }
            }
        }
        if let Some(node) = section.get("sources") {
            for text in node.texts().unwrap_or_default() {
                match sources(&text) {
                    Ok(found) => target.sources.extend(found),
                    Err(what) => node.error(what),
                }
            }
        }
        if let Some(domain) = section.get("domain").and_then(|n| n.text()) {
            target.domain = domain.to_owned();
        }
        web(&section, &mut target, arguments);
        match section.get("security").and_then(|n| n.word(SECURITIES)) {
            // The security given by a URL is not negotiated.
            Some(TransportSecurity::Auto) if target.web.transport.is_web() => {}
            Some(security) => target.security = security,
            None => {}
        }
        target.tls.ca_pem = section.get("ca").and_then(|n| file(&n, arguments));
        target.tls.certificate_pem = section.get("certificate").and_then(|n| file(&n, arguments));
        target.tls.key_pem = section.get("key").and_then(|n| file(&n, arguments));
        target.tls.resume = section.get("resume").and_then(|n| n.boolean()).unwrap_or(false);
        target.tls.only_tls12 = section.get("only_tls12").and_then(|n| n.boolean()).unwrap_or(false);
        section.finish();
    }
    if let Some(domain) = &arguments.domain {
        target.domain.clone_from(domain);
    }
    if target.addresses.is_empty() && arguments.addresses.is_empty() {
        let usual = if target.web.transport.is_web() { USUAL_WEB_ADDRESS } else { USUAL_ADDRESS };
        target.addresses = addresses(usual).unwrap_or_default();
    }
    target
}

/// `url`, or `transport` and `path`.
fn web(section: &TomlSection<'_>, target: &mut PlanTarget, arguments: &PlanOverrides) {
    if let Some(node) = section.get("url") {
        if section.get("address").is_some()
            || section.get("transport").is_some()
            || section.get("path").is_some()
        {
            node.error("replaces address, transport and path; keep only one of the two forms");
        }
        match node
            .text()
            .and_then(|text| endpoint(text).or_else(|| node.none("must begin with http, https, ws or wss")))
        {
            Some(Ok(found)) => {
                target.addresses = found.addresses;
                target.security = found.security;
                target.web.transport = found.transport;
                target.web.path = found.path;
                target.web.host = found.host;
            }
            Some(Err(what)) if arguments.addresses.is_empty() => node.error(what),
            _ => {}
        }
    }
    if let Some(transport) = section.get("transport").and_then(|n| n.word(TRANSPORTS)) {
        target.web.transport = transport;
    }
    if let Some(node) = section.get("path")
        && let Some(path) = node.text()
    {
        if path.starts_with('/') && !path.contains([' ', '\r', '\n']) {
            path.clone_into(&mut target.web.path);
        } else {
            node.error("must begin with / and contain no spaces, such as \"/http-bind\"");
        }
    }
    if let Some(host) = section.get("host").and_then(|n| n.text()) {
        host.clone_into(&mut target.web.host);
    }
}

/// `[bosh]`.
fn bosh(s: &TomlSection<'_>, web: &mut HttpBinding) {
    let Some(section) = s.get("bosh").and_then(|n| n.section()) else { return };
    if let Some(ms) = section.get("wait").and_then(|n| n.span_ms()) {
        web.wait_s = u32::try_from(ms.div_ceil(1_000)).unwrap_or(u32::MAX);
    }
    web.keep_alive_ms = section.get("keep_alive").and_then(|n| n.span_ms()).unwrap_or(web.keep_alive_ms);
    web.sockets = section.get("sockets").and_then(|n| n.amount());
    section.finish();
}

/// Content of a file named by the plan.
fn file(node: &TomlNode<'_>, arguments: &PlanOverrides) -> Option<String> {
    let name = node.text()?;
    let path = match &arguments.directory {
        Some(directory) => directory.join(name),
        None => PathBuf::from(name),
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) => node.none(format!("the file {} cannot be read: {error}", path.display())),
    }
}

fn sessions(s: &TomlSection<'_>) -> Vec<UserSession> {
    let Some(node) = s.get("session") else {
        s.context.wrong_nowhere("the plan has no [[session]]; add one with steps = [\"login\"]");
        return Vec::new();
    };
    let mut sessions = Vec::new();
    for node in node.list().unwrap_or_default() {
        let Some(section) = node.section() else { continue };
        let name = section.get("name").and_then(|n| n.text()).unwrap_or("session").to_owned();
        let weight = section.get("weight").and_then(|n| n.number()).unwrap_or(1.0);
        let accept_subscriptions =
            section.get("accept_subscriptions").and_then(|n| n.boolean()).unwrap_or(false);
        let steps = match section.need("steps", "steps = [\"login\", \"presence\"]") {
            Some(node) => steps::steps(&node, 0),
            None => Vec::new(),
        };
        if sessions.iter().any(|other: &UserSession| other.name == name) {
            node.error(format!("there are two sessions named \"{name}\"; give each its own name"));
        }
        section.finish();
        sessions.push(UserSession { name, weight, accept_subscriptions, steps });
    }
    sessions
}

fn phases(s: &TomlSection<'_>, sessions: &[&str]) -> Vec<ArrivalPhase> {
    let mut phases = Vec::new();
    let Some(node) = s.get("phase") else { return phases };
    for node in node.list().unwrap_or_default() {
        let Some(section) = node.section() else { continue };
        let name = section.get("name").and_then(|n| n.text());
        let name = name.map_or_else(|| format!("phase {}", phases.len() + 1), str::to_owned);
        let duration = section.get("duration");
        let users = section.get("users");
        let batch = section.get("batch").and_then(|n| n.whole(1, 1_000_000)).unwrap_or(1) as u32;
        let rate = rate(&section, batch);
        let poisson = section.get("poisson").and_then(|n| n.boolean()).unwrap_or(false);
        let wait_all_end = section.get("wait_all_end").and_then(|n| n.boolean()).unwrap_or(false);
        let weights = section.get("weights").and_then(|n| weights(&n, sessions));
        let concurrency = concurrency(&section);
        if duration.is_none() && users.is_none() {
            node.error(
                "would never end; add a \"duration\" such as \"1m\", or \"users\" such as \"connections\"",
            );
        } else if duration.is_none() && rate == Some(0.0) && concurrency.is_none() {
            node.error(
                "has users but no rate, so they never arrive; add a \"rate\" such as 100 (users per second)",
            );
        }
        let duration_ms = duration.and_then(|n| n.span_ms());
        let max_users = users.and_then(|n| n.amount());
        section.finish();
        let rate = rate.unwrap_or(0.0);
        phases.push(ArrivalPhase {
            name,
            duration_ms,
            rate,
            batch,
            poisson,
            max_users,
            weights,
            wait_all_end,
            concurrency,
        });
    }
    phases
}

/// `concurrency`: closed-loop arrivals, which exclude all keys that set a rate.
fn concurrency(section: &TomlSection<'_>) -> Option<u32> {
    let node = section.get("concurrency")?;
    if ["rate", "every", "batch", "poisson"].iter().any(|key| section.get(key).is_some()) {
        return node.none(
            "cannot be combined with \"rate\", \"every\", \"batch\" or \"poisson\": users \
         arrive when others have finished",
        );
    }
    node.amount()
}

/// `rate` in users per second, or `every`, the interval between arrivals (or batches); 0 without both.
fn rate(section: &TomlSection<'_>, batch: u32) -> Option<f64> {
    let rate = section.get("rate");
    let every = section.get("every");
    match (rate, every) {
        (Some(_), Some(every)) => every.none("cannot be combined with \"rate\"; keep one of the two"),
        (Some(rate), None) => rate.number(),
        (None, Some(every)) => match every.span_exact() {
            Some(ms) if ms > 0.0 => Some(f64::from(batch) * 1_000.0 / ms),
            Some(_) => every.none("must be more than 0"),
            None => None,
        },
        (None, None) => Some(0.0),
    }
}

fn weights(node: &TomlNode<'_>, sessions: &[&str]) -> Option<Vec<f64>> {
    let mut weights = vec![0.0; sessions.len()];
    for (name, _, node) in node.section()?.entries() {
        match sessions.iter().position(|known| known == name) {
            Some(index) => weights[index] = node.number().unwrap_or(0.0),
            None => {
                let near = nearest(name, sessions.iter().copied());
                node.error(format!("no session is defined \"{name}\"{near}"));
            }
        }
    }
    Some(weights)
}

fn starts(s: &TomlSection<'_>, sessions: &[&str]) -> Vec<UserStart> {
    let mut starts = Vec::new();
    let Some(node) = s.get("start") else { return starts };
    for node in node.list().unwrap_or_default() {
        let Some(section) = node.section() else { continue };
        let at_ms = section.need("at", "at = \"10s\"").and_then(|n| n.span_ms());
        let users = section.get("users").and_then(|n| n.amount()).unwrap_or(1);
        let session = match section.get("session") {
            None => Some(0),
            Some(node) => node.text().and_then(|name| {
                sessions.iter().position(|known| *known == name).or_else(|| {
                    node.none(format!(
                        "no session is defined \"{name}\"{}",
                        nearest(name, sessions.iter().copied())
                    ))
                })
            }),
        };
        section.finish();
        if let (Some(at_ms), Some(session)) = (at_ms, session) {
            let session = u16::try_from(session).unwrap_or(u16::MAX);
            starts.extend((0..users).map(|_| UserStart { at_ms, session }));
        }
    }
    starts
}

fn options(s: &TomlSection<'_>) -> PlanOptions {
    let mut options = PlanOptions::default();
    let Some(section) = s.get("options").and_then(|n| n.section()) else { return options };
    let span = |key| section.get(key).and_then(|n| n.span_ms());
    let boolean = |key| section.get(key).and_then(|n| n.boolean());
    let whole = |key, high| section.get(key).and_then(|n| n.whole(0, high));
    options.duration_ms = span("duration");
    options.hold_ms = span("hold");
    options.drain_ms = span("drain").unwrap_or(options.drain_ms);
    options.connect_timeout_ms = span("connect_timeout").unwrap_or(options.connect_timeout_ms);
    options.answer_timeout_ms = span("answer_timeout").unwrap_or(options.answer_timeout_ms);
    options.acceptable_ms = span("acceptable").unwrap_or(options.acceptable_ms);
    options.keep_going = boolean("keep_going").unwrap_or(options.keep_going);
    options.retries = whole("retries", 1_000_000).map_or(options.retries, |n| n as u32);
    options.retry_ms = span("retry_pause").unwrap_or(options.retry_ms);
    options.seed = whole("seed", i64::MAX).map_or(options.seed, |n| n as u64);
    options.receive_buffer = whole("receive_buffer", i64::from(i32::MAX)).map(|n| n as u32);
    options.send_buffer = whole("send_buffer", i64::from(i32::MAX)).map(|n| n as u32);
    options.muc_service = section.get("muc_service").and_then(|n| n.text()).map(str::to_owned);
    options.pubsub_service = section.get("pubsub_service").and_then(|n| n.text()).map(str::to_owned);
    options.stamps = boolean("stamps").unwrap_or(options.stamps);
    if let Some(node) = section.get("fail_on") {
        for text in node.texts().unwrap_or_default() {
            match Threshold::parse(&text) {
                Ok(threshold) => options.fail_on.push(threshold),
                Err(what) => node.error(what),
            }
        }
    }
    section.finish();
    options
}

/// `[tables]`: a file name or rows for each name.
fn tables(s: &TomlSection<'_>, arguments: &PlanOverrides) -> Vec<DataTable> {
    let Some(section) = s.get("tables").and_then(|n| n.section()) else { return Vec::new() };
    let mut tables = Vec::new();
    for (name, _, node) in section.entries() {
        let rows = if node.is_text() {
            file(node, arguments).map(|text| csv::rows(&text))
        } else {
            node.list().map(|rows| rows.iter().filter_map(TomlNode::texts).collect())
        };
        let Some(rows) = rows else { continue };
        if rows.is_empty() {
            node.error(format!("the table \"{name}\" has no lines"));
        }
        tables.push(DataTable { name: (*name).to_owned(), rows });
    }
    tables
}
