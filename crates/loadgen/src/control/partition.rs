//! Partition of users among workers: a weighted table of owners, clock domains, and source addresses.
//!
//! User or arrival `i` belongs to worker `owners[i % owners.len()]`: no overlap, and no communication is needed.
//!
//! # Pitfalls
//!
//! Owners are interleaved, not in blocks, so that each worker's share arrives evenly over time.

use std::net::IpAddr;

use anyhow::{Result, bail};

use super::handshake::WorkerHello;

/// Length of the table if weights differ; shares are accurate to one part of it.
const SLOTS: usize = 240;
/// Files that a worker needs besides its connections.
const SPARE_FILES: u64 = 100;

/// Table of owners for these workers and number of connections.
pub(crate) fn owners(workers: &[WorkerHello], connections: u32) -> Result<Vec<u16>> {
    let capacities: Vec<f64> = workers.iter().map(|w| w.files.saturating_sub(SPARE_FILES) as f64).collect();
    let needed = f64::from(connections);
    let all: f64 = capacities.iter().sum();
    if all < needed {
        bail!(
            "the plan requires {connections} connections and the {} workers can open {all:.0} in total; add \
             workers (--workers, --listen) or raise their limit of open files (ulimit -n)",
            workers.len()
        );
    }
    let wanted_shares: Vec<f64> = workers
        .iter()
        .map(|w| {
            let on_machine = workers.iter().filter(|other| other.machine == w.machine).count();
            // A worker is one thread; more workers than cores share the cores.
            (f64::from(w.cores.max(1)) / on_machine as f64).min(1.0)
        })
        .collect();
    Ok(interleave(&fit(&wanted_shares, &capacities, needed)))
}

/// Distributes shares by weight, none above its limit; the excess goes to the others.
fn fit(wanted_shares: &[f64], capacities: &[f64], needed: f64) -> Vec<f64> {
    let mut share = vec![0.0; wanted_shares.len()];
    let mut full = vec![false; wanted_shares.len()];
    let mut left = needed.max(1.0);
    loop {
        let open: f64 =
            wanted_shares.iter().zip(&full).filter(|(_, full)| !**full).map(|(share, _)| share).sum();
        if open <= 0.0 {
            return share;
        }
        let mut again = false;
        for index in 0..wanted_shares.len() {
            if !full[index] && left * wanted_shares[index] / open > capacities[index] {
                share[index] = capacities[index];
                full[index] = true;
                again = true;
            }
        }
        if again {
            left =
                needed.max(1.0) - share.iter().zip(&full).filter(|(_, f)| **f).map(|(s, _)| s).sum::<f64>();
            continue;
        }
        for index in 0..wanted_shares.len() {
            if !full[index] {
                share[index] = left * wanted_shares[index] / open;
            }
        }
        return share;
    }
}

/// Table in which each number appears according to its share, as evenly as possible.
fn interleave(share: &[f64]) -> Vec<u16> {
    let equal = share.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9);
    let length = if equal { share.len() } else { SLOTS.max(4 * share.len()) };
    let all: f64 = share.iter().sum();
    let mut credit = vec![0.0; share.len()];
    (0..length)
        .map(|_| {
            for (credit, share) in credit.iter_mut().zip(share) {
                *credit += share / all;
            }
            let mut best = 0;
            for (index, value) in credit.iter().enumerate() {
                if *value > credit[best] + 1e-9 {
                    best = index;
                }
            }
            credit[best] -= 1.0;
            best as u16
        })
        .collect()
}

/// Clock domain of each worker; 0 is the controller's machine.
pub(crate) fn clocks(own: &str, workers: &[WorkerHello]) -> Vec<u16> {
    let mut machines = vec![own];
    workers
        .iter()
        .map(|worker| {
            let known = machines.iter().position(|m| *m == worker.machine);
            known.unwrap_or_else(|| {
                machines.push(&worker.machine);
                machines.len() - 1
            }) as u16
        })
        .collect()
}

/// Source addresses of each worker: its own if it has any; otherwise its part of the plan's, if it runs here.
pub(crate) fn sources(plan: &[IpAddr], own: &str, workers: &[WorkerHello]) -> Vec<Vec<IpAddr>> {
    let takes = |w: &WorkerHello| w.machine == own && w.sources.is_empty();
    let sharing = workers.iter().filter(|w| takes(w)).count();
    let mut next_offset = 0;
    workers
        .iter()
        .map(|worker| {
            if !takes(worker) {
                return worker.sources.clone();
            }
            let offset = next_offset;
            next_offset += 1;
            if plan.len() < sharing {
                return plan.to_vec();
            }
            plan.iter().skip(offset).step_by(sharing).copied().collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(machine: &str, cores: u32, files: u64) -> WorkerHello {
        WorkerHello { machine: machine.to_owned(), cores, files, ..WorkerHello::default() }
    }

    fn shares(owners: &[u16], workers: usize) -> Vec<usize> {
        (0..workers).map(|w| owners.iter().filter(|o| usize::from(**o) == w).count()).collect()
    }

    #[test]
    fn equal_workers_take_turns() {
        let workers = vec![worker("a", 2, 20_000); 2];
        assert_eq!(owners(&workers, 30_000).unwrap(), [0, 1]);
        assert_eq!(owners(&workers[..1], 100).unwrap(), [0]);
    }

    #[test]
    fn a_machine_with_more_cores_than_workers_takes_more() {
        let workers = [worker("a", 1, 20_000), worker("a", 1, 20_000), worker("b", 8, 20_000)];
        let owners = owners(&workers, 1_000).unwrap();
        assert_eq!(shares(&owners, 3), [60, 60, 120]);
        // Interleaved: any four consecutive entries contain the third worker twice.
        assert!(owners.windows(4).all(|w| w.iter().filter(|o| **o == 2).count() == 2));
    }

    #[test]
    fn no_worker_gets_more_users_than_it_may_open_files() {
        let workers = [worker("a", 4, 1_100), worker("b", 4, 20_000)];
        let owners = owners(&workers, 10_000).unwrap();
        assert_eq!(shares(&owners, 2), [24, 216]);
        let error = super::owners(&workers[..1], 10_000).unwrap_err().to_string();
        assert!(error.contains("can open 1000 in total"), "{error}");
    }

    #[test]
    fn clocks_are_by_machine() {
        let workers = [worker("b", 1, 1), worker("own", 1, 1), worker("c", 1, 1), worker("b", 1, 1)];
        assert_eq!(clocks("own", &workers), [1, 0, 2, 1]);
    }

    #[test]
    fn source_addresses_are_shared_out_on_this_machine_only() {
        let ip = |last| IpAddr::from([127, 0, 0, last]);
        let mut workers = vec![worker("own", 1, 1), worker("far", 1, 1), worker("own", 1, 1)];
        let plan = [ip(2), ip(3), ip(4)];
        assert_eq!(sources(&plan, "own", &workers), [vec![ip(2), ip(4)], vec![], vec![ip(3)]]);
        workers[1].sources = vec![ip(9)];
        assert_eq!(sources(&plan[..1], "own", &workers), [vec![ip(2)], vec![ip(9)], vec![ip(2)]]);
    }
}
