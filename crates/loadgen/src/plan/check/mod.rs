//! Checks before the first connection: every foreseeable error of a plan on this machine, at once.
//!
//! [`check`] examines the plan as a whole; `steps` each session in its order; `machine_limits` ports, files and memory;
//! [`workers_needed`] the number of processes.
//!
//! Not implemented: whether the server is reachable and knows the accounts, which the controller tests with one login.
//!
//! # Pitfalls
//!
//! Plans come from Tsung scenarios too. Errors that only a TOML file can contain are found while it is read.

mod machine_limits;
mod steps;
#[cfg(test)]
mod tests;
mod workers;

use super::error::nearest;
use super::{AccountSource, LoadPlan, PlanError, PlanStep, ThresholdSubject, TimeSpan, TransportSecurity};

pub use workers::{WorkerEstimate, workers_needed};

/// SASL mechanisms that this generator supports, by their registered names.
pub const MECHANISMS: &[&str] = &[
    "SCRAM-SHA-512-PLUS",
    "SCRAM-SHA-256-PLUS",
    "SCRAM-SHA-1-PLUS",
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "SCRAM-SHA-1",
    "PLAIN",
    "EXTERNAL",
    "ANONYMOUS",
];

/// Resources of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineCapacity {
    /// Limit of open files per process (the hard limit, to which workers raise theirs).
    pub files: u64,
    /// Hardware threads.
    pub cores: u32,
    /// Available memory in bytes (`MemAvailable`).
    pub memory: u64,
    /// First and last local port (`net.ipv4.ip_local_port_range`).
    pub ports: (u16, u16),
    /// The server runs on this machine and needs its share of cores and memory.
    pub server_here: bool,
}

/// All foreseeable errors; empty if the run may begin.
pub fn check(plan: &LoadPlan, machine: &MachineCapacity) -> Vec<PlanError> {
    let mut errors = Vec::new();
    target(plan, &mut errors);
    accounts(plan, &mut errors);
    arrivals(plan, &mut errors);
    mechanisms(plan, &mut errors);
    for session in &plan.sessions {
        steps::check(plan, session, &mut errors);
    }
    end(plan, &mut errors);
    thresholds(plan, &mut errors);
    machine_limits::check(plan, machine, &mut errors);
    errors
}

fn target(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    let target = &plan.target;
    if target.addresses.is_empty() {
        errors.push(PlanError::of_plan("no server is defined to connect to; give --target HOST:PORT"));
    }
    if target.domain.is_empty() {
        errors.push(PlanError::of_plan("there is no XMPP domain; give --domain, such as --domain localhost"));
    }
    for source in &target.sources {
        if !target.addresses.iter().any(|a| a.is_ipv4() == source.is_ipv4()) && !target.addresses.is_empty() {
            let error = format!(
                "the source address {source} cannot reach any of the targets, which are of the other IP version; give sources of the same version"
            );
            errors.push(PlanError::of_plan(error));
            break;
        }
    }
    if target.web.transport.is_web() {
        let mut starttls = target.security == TransportSecurity::Starttls;
        visit(plan, &mut |step| starttls |= matches!(step, PlanStep::StartTls));
        if starttls {
            errors.push(PlanError::of_plan(
                "BOSH and WebSocket have no STARTTLS; give --security direct, or a --target with https or wss",
            ));
        }
        if target.web.sockets.is_some_and(|most| most < plan.options.connections) {
            errors.push(PlanError::of_plan(
                "each BOSH user needs at least one socket; give --sockets of at least the number of \
                 connections",
            ));
        }
    }
    match (&target.tls.certificate_pem, &target.tls.key_pem) {
        (Some(_), None) => {
            errors.push(PlanError::of_plan("the client certificate has no key; give --key too"))
        }
        (None, Some(_)) => {
            errors.push(PlanError::of_plan("the client key has no certificate; give --cert too"));
        }
        _ => {}
    }
}

fn accounts(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    let (count, connections) = (plan.accounts.count(), plan.options.connections);
    if count < connections {
        let fix = match plan.accounts.source {
            AccountSource::List(_) => format!("add lines to the list, or give --connections {count}"),
            _ => format!("give --count {connections}, or --connections {count}"),
        };
        errors.push(PlanError::of_plan(format!(
            "{connections} connections need {connections} accounts, but there are {count}; {fix}"
        )));
    }
}

fn arrivals(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    if plan.sessions.is_empty() {
        errors.push(PlanError::of_plan("the plan has no session; add one"));
        return;
    }
    if plan.phases.is_empty() && plan.starts.is_empty() {
        errors.push(PlanError::of_plan("the plan has no phase, so no users arrive; add one with a rate"));
    }
    let weight: f64 = plan.sessions.iter().map(|session| session.weight).sum();
    let arriving = plan.phases.iter().filter(|phase| phase.arrives());
    if arriving.clone().any(|phase| phase.weights.is_none()) && weight <= 0.0 {
        errors.push(PlanError::of_plan("all sessions have weight 0; give at least one a weight above 0"));
    }
    for phase in arriving {
        if phase
            .weights
            .as_ref()
            .is_some_and(|weights| weights.len() != plan.sessions.len() || weights.iter().sum::<f64>() <= 0.0)
        {
            errors.push(PlanError::at(
                format!("phase \"{}\"", phase.name),
                "has no session with a weight above 0; give at least one a weight",
            ));
        }
    }
    for phase in &plan.phases {
        if phase.duration_ms.is_none() && (phase.max_users.is_none() || !phase.arrives()) {
            errors.push(PlanError::at(
                format!("phase \"{}\"", phase.name),
                "would never end; add a duration, or a rate and a number of users",
            ));
        }
    }
    if plan.starts.iter().any(|start| usize::from(start.session) >= plan.sessions.len()) {
        errors.push(PlanError::of_plan(
            "a single user starts with a session that does not exist; name an existing one",
        ));
    }
}

/// Reports a run that would never end.
fn end(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    if plan.options.hold_ms.is_some() || plan.options.duration_ms.is_some() {
        return;
    }
    if let Some(session) = plan.sessions.iter().find(|session| session.steps.iter().any(endless)) {
        errors.push(PlanError::at(
            format!("session \"{}\"", session.name),
            "lasts until the run ends, and nothing ends the run; give --hold or --duration, such as --hold \
             1m",
        ));
    }
}

fn endless(step: &PlanStep) -> bool {
    match step {
        PlanStep::Meanwhile { duration: None, .. }
        | PlanStep::Bounce { duration_ms: None, .. }
        | PlanStep::Repeat { times: None, .. } => true,
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => steps.iter().any(endless),
        _ => false,
    }
}

fn mechanisms(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    let mut lists: Vec<&[String]> = Vec::new();
    let mut has_tls = plan.target.security != TransportSecurity::None;
    visit(plan, &mut |step| match step {
        PlanStep::Login { mechanisms, .. }
        | PlanStep::FastLogin { mechanisms, .. }
        | PlanStep::Authenticate { mechanisms, .. } => lists.push(mechanisms),
        PlanStep::StartTls => has_tls = true,
        PlanStep::ChangeTarget { security, .. } => has_tls |= *security != TransportSecurity::None,
        _ => {}
    });
    lists.sort_unstable();
    lists.dedup();
    let mut unknown: Vec<&String> = lists.iter().flat_map(|list| list.iter()).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.retain(|name| !MECHANISMS.contains(&name.as_str()));
    for name in unknown {
        let near = nearest(&name.to_ascii_uppercase(), MECHANISMS.iter().copied());
        let fix = if near.is_empty() { format!("; known are {}", MECHANISMS.join(", ")) } else { near };
        errors.push(PlanError::of_plan(format!("unknown SASL mechanism \"{name}\"{fix}")));
    }
    if lists.iter().any(|list| list.iter().any(|m| m == "EXTERNAL"))
        && plan.target.tls.certificate_pem.is_none()
    {
        errors.push(PlanError::of_plan(
            "EXTERNAL requires a client certificate; give --cert FILE and --key FILE",
        ));
    }
    let bound = |name: &String| name == "EXTERNAL" || name.ends_with("-PLUS");
    if let Some(list) = lists.iter().find(|list| !list.is_empty() && list.iter().all(bound))
        && !has_tls
    {
        errors.push(PlanError::of_plan(format!(
            "{} requires TLS; give --security starttls or --security direct",
            list.join(", ")
        )));
    }
    let anonymous = matches!(plan.accounts.source, AccountSource::Anonymous { .. });
    if anonymous && lists.iter().any(|list| !list.is_empty() && !list.iter().any(|m| m == "ANONYMOUS")) {
        errors.push(PlanError::of_plan(
            "anonymous users can log in only with ANONYMOUS; give --mechanism ANONYMOUS, or accounts",
        ));
    }
}

/// Reports a threshold on a transaction that the plan does not have: it would never be met.
fn thresholds(plan: &LoadPlan, errors: &mut Vec<PlanError>) {
    for threshold in &plan.options.fail_on {
        let ThresholdSubject::Timing(name) = &threshold.subject else { continue };
        let Some(name) = name.strip_prefix("tr:") else { continue };
        if !plan.transactions.iter().any(|known| known == name) {
            let near = nearest(name, plan.transactions.iter().map(String::as_str));
            errors.push(PlanError::of_plan(format!(
                "\"{}\": the plan has no transaction \"{name}\"{near}",
                threshold.text
            )));
        }
    }
}

/// Calls `each` for every step of the plan, inner ones too.
fn visit<'a>(plan: &'a LoadPlan, each: &mut impl FnMut(&'a PlanStep)) {
    for session in &plan.sessions {
        visit_steps(&session.steps, each);
    }
}

fn visit_steps<'a>(steps: &'a [PlanStep], each: &mut impl FnMut(&'a PlanStep)) {
    for step in steps {
        each(step);
        match step {
            PlanStep::Repeat { steps, .. }
            | PlanStep::While { steps, .. }
            | PlanStep::If { steps, .. }
            | PlanStep::ForEach { steps, .. }
            | PlanStep::Transaction { steps, .. } => visit_steps(steps, each),
            PlanStep::Meanwhile { activities, .. } => {
                for activity in activities {
                    visit_steps(std::slice::from_ref(&activity.step), each);
                }
            }
            PlanStep::NoWait(step) | PlanStep::Delivered { presence: step, .. } => {
                visit_steps(std::slice::from_ref(step), each)
            }
            _ => {}
        }
    }
}

/// Mean of a span, in milliseconds.
fn mean(time: TimeSpan) -> f64 {
    match time {
        TimeSpan::Fixed(ms) | TimeSpan::Exponential(ms) => ms,
        TimeSpan::Uniform(from, to) => f64::midpoint(from, to),
    }
}
