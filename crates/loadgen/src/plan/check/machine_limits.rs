//! Checks of ports, files and memory of this machine against a plan.
//!
//! Not implemented: resources of the run's other machines, and ports that closed connections still hold (TIME-WAIT).
//!
//! # Pitfalls
//!
//! The memory is that of idle connections; queues of a server that does not read are additional.

use std::net::IpAddr;

use super::super::{LoadPlan, PlanError, PlanStep, TransportSecurity};
use super::workers::{MOST_EACH, each_worker};
use super::{MachineCapacity, visit};

/// Resident memory of a plain connection in the generator, in bytes; also its budget.
const PLAIN_BYTES: u64 = 1_024;
/// The same with TLS.
const TLS_BYTES: u64 = 4_608;
/// Kernel memory of a connected socket without data, in bytes: the socket, its file, inode and entry, epoll's item.
const KERNEL_BYTES: u64 = 4_096;
/// Files of a worker that are not connections.
pub(super) const OTHER_FILES: u64 = 100;
/// Minimum number of files with which a worker is worth starting.
const FEWEST_FILES: u64 = 256;
/// Maximum number of worker processes per machine.
const MOST_WORKERS: u64 = 256;

pub(super) fn check(plan: &LoadPlan, machine: &MachineCapacity, errors: &mut Vec<PlanError>) {
    ports(plan, machine, errors);
    files(plan, machine, errors);
    memory(plan, machine, errors);
}

/// Sockets that are open at one time.
pub(super) fn sockets(plan: &LoadPlan) -> u64 {
    let web = &plan.target.web;
    let two_each = u64::from(plan.options.connections) * u64::from(web.transport.sockets());
    two_each.min(web.sockets.map_or(u64::MAX, u64::from))
}

fn ports(plan: &LoadPlan, machine: &MachineCapacity, errors: &mut Vec<PlanError>) {
    let (first, last) = machine.ports;
    let each = u64::from(last.saturating_sub(first)) + 1;
    let mut targets = plan.target.addresses.clone();
    targets.sort_unstable();
    targets.dedup();
    let mut sources = plan.target.sources.clone();
    sources.sort_unstable();
    sources.dedup();
    let connections = sockets(plan);
    let room = each * targets.len().max(1) as u64 * sources.len().max(1) as u64;
    if connections <= room {
        return;
    }
    let needed = connections.div_ceil(each * targets.len().max(1) as u64);
    let loopback = targets.iter().all(|target| target.ip().is_loopback() && target.is_ipv4());
    let fix = if loopback && needed < 65_000 {
        let last = u32::from(std::net::Ipv4Addr::new(127, 0, 0, 2)) + u32::try_from(needed).unwrap_or(0) - 1;
        format!("give --source 127.0.0.2-{}", IpAddr::V4(last.into()))
    } else {
        format!("give --source with {needed} addresses of this machine, or add machines (--listen)")
    };
    errors.push(PlanError::of_plan(format!(
        "{connections} connections need more than the {room} available ports ({each} for each of {} and \
         {}); {fix}, or fewer --connections",
        counted(sources.len().max(1), "source address", "source addresses"),
        counted(targets.len().max(1), "target", "targets"),
    )));
}

fn counted(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

fn files(plan: &LoadPlan, machine: &MachineCapacity, errors: &mut Vec<PlanError>) {
    if machine.files < FEWEST_FILES {
        errors.push(PlanError::of_plan(format!(
            "a process can open only {} files, too few for a worker; raise the limit with: ulimit -n 20000",
            machine.files
        )));
        return;
    }
    let workers = sockets(plan).div_ceil(each_worker(machine));
    if workers > MOST_WORKERS {
        let fix = if machine.files < MOST_EACH + OTHER_FILES {
            "raise the limit of open files (ulimit -n 20000)"
        } else {
            "add machines (--listen)"
        };
        errors.push(PlanError::of_plan(format!(
            "{} connections need {workers} processes with {} open files each, and the limit is \
             {MOST_WORKERS} processes; {fix}, or give fewer --connections",
            plan.options.connections, machine.files
        )));
    }
}

fn memory(plan: &LoadPlan, machine: &MachineCapacity, errors: &mut Vec<PlanError>) {
    // The server's offer is not known yet: a run that fits without TLS is not refused.
    let mut tls = !matches!(plan.target.security, TransportSecurity::None | TransportSecurity::Auto);
    visit(plan, &mut |step| tls |= matches!(step, PlanStep::StartTls));
    let own = if tls { TLS_BYTES } else { PLAIN_BYTES };
    // On the server's machine the kernel holds the server's sockets too.
    let kernel = if machine.server_here { 2 * KERNEL_BYTES } else { KERNEL_BYTES };
    let needed = u64::from(plan.options.connections) * own + sockets(plan) * kernel;
    if needed > machine.memory {
        let each = own + kernel * u64::from(plan.target.web.transport.sockets());
        let fit = machine.memory / each;
        errors.push(PlanError::of_plan(format!(
            "{} connections need about {} MB of memory and {} MB are free; at most {fit} fit here: give \
             fewer --connections, or add machines (--listen)",
            plan.options.connections,
            needed / 1_000_000,
            machine.memory / 1_000_000
        )));
    }
}
