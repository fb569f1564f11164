//! Estimate of the number of worker processes that a plan needs, for its connections and for its load.
//!
//! The load is estimated from the plan: logins and stanzas per second, at the generator's CPU budget. Presence that a
//! server fans out is not in the plan and not in the estimate; a worker that is late reports it during the run.

use super::super::{LoadPlan, PlanStep, StreamTransport, TransportSecurity};
use super::machine_limits::{OTHER_FILES, sockets};
use super::{MachineCapacity, mean};

/// Maximum number of connections of one worker.
pub(super) const MOST_EACH: u64 = 19_000;
/// CPU time of a SCRAM login in milliseconds, without and with TLS.
const LOGIN_MS: f64 = 0.15;
const TLS_LOGIN_MS: f64 = 1.0;
/// CPU time of a message sent and received, in milliseconds.
const MESSAGE_MS: f64 = 0.01;
/// The same including the BOSH requests that carry it.
const BOSH_MESSAGE_MS: f64 = 0.08;
/// Share of a core that a worker may use: latency suffers long before 100 %.
const FULL: f64 = 0.6;

/// Estimated number of worker processes, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEstimate {
    /// At least 1.
    pub count: u16,
    /// One sentence for display.
    pub reason: String,
}

/// Connections that fit in one worker.
pub(super) fn each_worker(machine: &MachineCapacity) -> u64 {
    machine.files.saturating_sub(OTHER_FILES).clamp(1, MOST_EACH)
}

/// Number of workers that this machine needs for the plan.
pub fn workers_needed(plan: &LoadPlan, machine: &MachineCapacity) -> WorkerEstimate {
    let connections = u64::from(plan.options.connections);
    let each = each_worker(machine);
    // A user's two sockets are in the same worker.
    let for_files = sockets(plan).div_ceil(each).max(1);
    let work = work(plan);
    // A server on the same machine gets the other half.
    let cores = if machine.server_here { machine.cores / 2 } else { machine.cores }.max(1);
    let wanted = (work.cores / FULL).ceil().clamp(1.0, f64::from(cores)) as u64;
    let count = for_files.max(wanted);
    let plural = if count == 1 { "process" } else { "processes" };
    let reason = if for_files >= wanted && for_files > 1 {
        let reason = if each == MOST_EACH { "at most" } else { "by the limit of open files" };
        format!("{count} {plural} for {connections} connections, {each} in each {reason}")
    } else if wanted > 1 && work.closed_loop {
        format!("{count} {plural}, since a closed loop uses all available CPU")
    } else if wanted > 1 {
        format!(
            "{count} {plural} for about {:.1} cores of work ({:.0} logins and {:.0} stanzas a second)",
            work.cores, work.logins, work.stanzas
        )
    } else {
        format!("{count} {plural} for {connections} connections")
    };
    WorkerEstimate { count: u16::try_from(count).unwrap_or(u16::MAX), reason }
}

/// Peak load of a plan on the generator.
struct PeakLoad {
    logins: f64,
    stanzas: f64,
    cores: f64,
    closed_loop: bool,
}

fn work(plan: &LoadPlan) -> PeakLoad {
    let logins = plan.phases.iter().map(|phase| phase.rate).fold(0.0, f64::max);
    let total: f64 = plan.sessions.iter().map(|session| session.weight).sum();
    let mut stanzas = 0.0;
    let mut closed_loop = false;
    for session in &plan.sessions {
        let share = if total > 0.0 { session.weight / total } else { 1.0 };
        let (rate, closed) = fullest(&session.steps);
        stanzas += share * rate * f64::from(plan.options.connections);
        closed_loop |= closed;
    }
    let plain = matches!(plan.target.security, TransportSecurity::None | TransportSecurity::Auto);
    let login_ms = if plain { LOGIN_MS } else { TLS_LOGIN_MS };
    let message_ms =
        if plan.target.web.transport == StreamTransport::Bosh { BOSH_MESSAGE_MS } else { MESSAGE_MS };
    let mut cores = (logins * login_ms + stanzas * message_ms) / 1_000.0;
    if closed_loop {
        cores = f64::INFINITY;
    }
    PeakLoad { logins, stanzas, cores, closed_loop }
}

/// Stanzas per second of the busiest step, and whether one is a closed loop.
fn fullest(steps: &[PlanStep]) -> (f64, bool) {
    let mut best = (0.0_f64, false);
    for step in steps {
        let (rate, closed) = match step {
            PlanStep::Meanwhile { activities, .. } => (
                activities.iter().map(|a| f64::from(a.batch) * 1_000.0 / mean(a.every).max(0.001)).sum(),
                false,
            ),
            PlanStep::Bounce { .. } => (0.0, true),
            PlanStep::Repeat { steps, .. }
            | PlanStep::While { steps, .. }
            | PlanStep::If { steps, .. }
            | PlanStep::ForEach { steps, .. }
            | PlanStep::Transaction { steps, .. } => fullest(steps),
            _ => (0.0, false),
        };
        best = (best.0.max(rate), best.1 || closed);
    }
    best
}
