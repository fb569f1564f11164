//! Resolution of arguments to a plan: reads files, resolves names, and calls the parser of the format.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{CommandFailure, PlanArgs, RunArgs, output};
use crate::plan::{self, AccountOverrides, LoadPlan, PlanError, PlanOverrides, PlanTls, Preparation};
use crate::tsung;

/// A plan with its context.
pub(super) struct ResolvedPlan {
    pub(super) plan: LoadPlan,
    /// Accounts that the server must have; `None` if they do not follow a pattern.
    pub(super) preparation: Option<Preparation>,
    /// The first `--target` as given, or the plan's first address.
    pub(super) target: String,
}

/// Reads the requested plan. Reports all errors at once.
pub(super) fn read(run: &RunArgs) -> Result<ResolvedPlan, CommandFailure> {
    let Some(name) = &run.plan else {
        return Err(CommandFailure::usage(
            "no workload was given; give one of `throng load --list`, a .toml plan or a Tsung .xml file",
        ));
    };
    let mut arguments = arguments(&run.shape).map_err(CommandFailure::Usage)?;
    arguments.failover = run.failures.fails_over();
    let path = Path::new(name);
    let has = |ending: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(ending));
    let stem = path.file_stem().map_or_else(|| name.clone(), |stem| stem.to_string_lossy().into_owned());
    let read = if has("xml") || has("toml") || name.contains('/') {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the plan {name} cannot be read"))
            .map_err(CommandFailure::Usage)?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        if has("xml") || tsung::is_scenario(&text) {
            scenario(&text, &stem, &arguments, &folder)
        } else {
            if !names_domain(&text) {
                host_as_domain(&run.shape, &mut arguments);
            }
            arguments.directory = Some(folder);
            plan::read_toml_with_preparation(&text, &stem, &arguments)
        }
    } else {
        host_as_domain(&run.shape, &mut arguments);
        plan::named(name, &arguments)
    };
    let (plan, preparation) = read.map_err(|errors| plan_failure(name, &errors))?;
    let target = run.shape.target.first().cloned();
    let target = target.or_else(|| plan.target.addresses.first().map(ToString::to_string));
    Ok(ResolvedPlan { plan, preparation, target: target.unwrap_or_default() })
}

type PlanResult = Result<(LoadPlan, Option<Preparation>), Vec<PlanError>>;

fn scenario(text: &str, name: &str, arguments: &PlanOverrides, folder: &Path) -> PlanResult {
    let mut files = |file: &str| std::fs::read_to_string(folder.join(file));
    let (plan, notes) = tsung::read(text, name, arguments, &mut files)?;
    for note in notes {
        output::error(&format!("throng load: {name}: {note}"));
    }
    Ok((plan, None))
}

fn plan_failure(name: &str, errors: &[PlanError]) -> CommandFailure {
    match errors {
        [one] => CommandFailure::usage(format!("{name}: {one}")),
        several => {
            let lines: Vec<String> = several.iter().map(|error| format!("  {error}")).collect();
            CommandFailure::usage(format!("{name} has {} errors:\n{}", several.len(), lines.join("\n")))
        }
    }
}

/// Whether a TOML plan names its domain. Invalid TOML is reported elsewhere.
fn names_domain(text: &str) -> bool {
    text.parse::<toml::Table>().is_ok_and(|table| {
        let target = table.get("target").and_then(toml::Value::as_table);
        table.contains_key("domain") || target.is_some_and(|target| target.contains_key("domain"))
    })
}

/// Defaults the domain to the host name of the target, which usually serves that domain.
fn host_as_domain(shape: &PlanArgs, arguments: &mut PlanOverrides) {
    if arguments.domain.is_none() {
        arguments.domain = shape.target.first().and_then(|target| host(target));
    }
}

/// Host of `HOST:PORT` or of a URL, unless it is an IP address.
fn host(target: &str) -> Option<String> {
    let target =
        target.split_once("://").map_or(target, |(_, rest)| rest.split('/').next().unwrap_or_default());
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    let named = !host.is_empty() && !host.contains(':') && host.parse::<std::net::IpAddr>().is_err();
    named.then(|| host.to_owned())
}

fn arguments(shape: &PlanArgs) -> Result<PlanOverrides> {
    let mut addresses = Vec::new();
    let mut endpoint = None;
    for target in &shape.target {
        let wrong = |sentence: String| anyhow::anyhow!("--target: {sentence}");
        if let Some(found) = plan::endpoint(target) {
            let found = found.map_err(wrong)?;
            addresses.extend(found.addresses.iter().copied());
            let same = |other: &plan::TargetUrl| {
                (other.transport, other.security, &other.path)
                    == (found.transport, found.security, &found.path)
            };
            anyhow::ensure!(
                endpoint.as_ref().is_none_or(same) && (endpoint.is_some() || addresses.len() == 1),
                "--target {target}: all targets must use the same transport"
            );
            endpoint.get_or_insert(found);
            continue;
        }
        anyhow::ensure!(endpoint.is_none(), "--target {target}: all targets must use the same transport");
        addresses
            .extend(plan::addresses(target).map_err(|sentence| anyhow::anyhow!("--target: {sentence}"))?);
    }
    let mut sources = Vec::new();
    for source in &shape.source {
        sources.extend(plan::sources(source).map_err(|sentence| anyhow::anyhow!("--source: {sentence}"))?);
    }
    anyhow::ensure!(
        shape.time_scale > 0.0 && shape.time_scale.is_finite(),
        "--time-scale {} is invalid; give a number above 0, such as 10 for ten times faster",
        shape.time_scale
    );
    if let Some(rate) = shape.rate {
        anyhow::ensure!(rate > 0.0 && rate.is_finite(), "--rate {rate} is invalid; give a number above 0");
    }
    Ok(PlanOverrides {
        connections: shape.connections,
        time_scale: shape.time_scale,
        duration_ms: shape.duration,
        hold_ms: shape.hold,
        arrival_rate: shape.rate,
        message_every: shape.every,
        message_size: shape.size,
        in_flight: shape.in_flight,
        addresses,
        endpoint,
        sockets: shape.sockets,
        domain: shape.domain.clone(),
        security: shape.security,
        tls: tls(shape)?,
        sources,
        accounts: accounts(shape)?,
        mechanisms: shape.mechanism.clone(),
        seed: shape.seed,
        acceptable_ms: shape.acceptable,
        keep_going: shape.keep_going,
        fail_on: shape.fail_on.clone(),
        register: shape.register,
        ..PlanOverrides::default()
    })
}

fn file(flag: &str, path: Option<&PathBuf>) -> Result<Option<String>> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("{flag} {} cannot be read", path.display()))
    };
    path.map(read).transpose()
}

fn tls(shape: &PlanArgs) -> Result<Option<PlanTls>> {
    let tls = PlanTls {
        ca_pem: file("--ca", shape.ca.as_ref())?,
        certificate_pem: file("--cert", shape.cert.as_ref())?,
        key_pem: file("--key", shape.key.as_ref())?,
        resume: shape.resume,
        only_tls12: shape.tls12,
    };
    Ok((tls != PlanTls::default()).then_some(tls))
}

fn accounts(shape: &PlanArgs) -> Result<AccountOverrides> {
    let from_file = file("--password-file", shape.password_file.as_ref())?;
    let first_line = from_file.map(|text| text.lines().next().unwrap_or_default().to_owned());
    Ok(AccountOverrides {
        prefix: shape.user_prefix.clone(),
        first: shape.first,
        count: shape.count,
        stride: shape.stride,
        password: shape.password.clone().or(first_line),
        csv: file("--users", shape.users.as_ref())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_target_is_its_domain_unless_it_is_an_address() {
        assert_eq!(host("xmpp.example.org:5222").as_deref(), Some("xmpp.example.org"));
        assert_eq!(host("localhost").as_deref(), Some("localhost"));
        for target in ["127.0.0.1:5222", "127.0.0.1", "[::1]:5222", "::1", ":5222"] {
            assert_eq!(host(target), None, "{target}");
        }
    }

    #[test]
    fn the_domain_of_a_plan_file_takes_precedence() {
        assert!(names_domain("[target]\ndomain = \"a\""));
        assert!(!names_domain("[target]\naddress = \"a:5222\""));
        assert!(!names_domain("not toml at all"));
    }
}
