//! The published workloads and the generator's own, by name.
//!
//! Each is a TOML plan in `crates/loadgen/workloads`, which says in its comments what was published and what was chosen.
//! Those that differ in one number only share a file with words such as `@ROSTER@` in it. Left out: those that need
//! BOSH or PubSub; they are refused by name.
//!
//! Trap: `--connections` is the only size. A workload must never change its shape with it, or figures of two sizes
//! cannot be compared.

use super::mistake::nearest;
use super::toml::read_toml_with_preparation;
use super::{Arguments, Mistake, Plan, Preparation};

/// A workload that the program knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, with the published number of connections.
    pub title: &'static str,
    /// One line: what it shows.
    pub about: &'static str,
}

/// A workload and where it is written.
struct Entry {
    workload: Workload,
    text: &'static str,
    /// What its words stand for.
    words: &'static [(&'static str, &'static str)],
}

const ROSTER: &str = include_str!("../../workloads/tigase-roster.toml");
const ATOM: &str = include_str!("../../workloads/atom-cluster.toml");

const fn entry(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    text: &'static str,
    words: &'static [(&'static str, &'static str)],
) -> Entry {
    Entry { workload: Workload { name, title, about }, text, words }
}

const ENTRIES: &[Entry] = &[
    entry(
        "tigase-30k",
        "30 000 connections, messages in bursts (Tigase 2007)",
        "4 400 packets a second on average, 10 000 in peaks",
        include_str!("../../workloads/tigase-30k.toml"),
        &[],
    ),
    entry(
        "tigase-500k",
        "622 000 connections, empty rosters (Tigase 2010)",
        "200 logins a second, then 80 minutes of light traffic",
        include_str!("../../workloads/tigase-500k.toml"),
        &[],
    ),
    entry(
        "tigase-300k-roster50",
        "300 000 connections, 50 contacts each (Tigase 2010)",
        "222 logins a second, each with presence to and from 25 contacts, later 50",
        include_str!("../../workloads/tigase-300k-roster50.toml"),
        &[],
    ),
    entry(
        "tigase-roster-0",
        "100 000 connections, 0 contacts each (Tigase 2010)",
        "what a contact costs: the ground",
        ROSTER,
        &[("@ROSTER@", "0")],
    ),
    entry(
        "tigase-roster-10",
        "100 000 connections, 10 contacts each (Tigase 2010)",
        "what a contact costs: 10",
        ROSTER,
        &[("@ROSTER@", "10")],
    ),
    entry(
        "tigase-roster-20",
        "100 000 connections, 20 contacts each (Tigase 2010)",
        "what a contact costs: 20",
        ROSTER,
        &[("@ROSTER@", "20")],
    ),
    entry(
        "tigase-roster-30",
        "100 000 connections, 30 contacts each (Tigase 2010)",
        "what a contact costs: 30",
        ROSTER,
        &[("@ROSTER@", "30")],
    ),
    entry(
        "tigase-roster-40",
        "100 000 connections, 40 contacts each (Tigase 2010)",
        "what a contact costs: 40, where the published server stopped to answer",
        ROSTER,
        &[("@ROSTER@", "40")],
    ),
    entry(
        "tigase-roster-50",
        "100 000 connections, 50 contacts each (Tigase 2010)",
        "what a contact costs: 50",
        ROSTER,
        &[("@ROSTER@", "50")],
    ),
    entry(
        "atom-cluster-1",
        "Cluster of 1 node, 150 contacts of which 30 online (Atom 2011)",
        "up to 24 000 connections; a message every 100 s, a presence change every 600 s",
        ATOM,
        &[("@NODES@ nodes", "1 node"), ("@NODES@", "1"), ("@CONNECTIONS@", "24_000")],
    ),
    entry(
        "atom-cluster-2",
        "Cluster of 2 nodes, 150 contacts of which 30 online (Atom 2011)",
        "up to 27 000 connections: 1.1 times those of one node",
        ATOM,
        &[("@NODES@", "2"), ("@CONNECTIONS@", "27_000")],
    ),
    entry(
        "atom-cluster-3",
        "Cluster of 3 nodes, 150 contacts of which 30 online (Atom 2011)",
        "up to 37 000 connections",
        ATOM,
        &[("@NODES@", "3"), ("@CONNECTIONS@", "37_000")],
    ),
    entry(
        "atom-cluster-4",
        "Cluster of 4 nodes, 150 contacts of which 30 online (Atom 2011)",
        "up to 43 000 connections",
        ATOM,
        &[("@NODES@", "4"), ("@CONNECTIONS@", "43_000")],
    ),
    entry(
        "atom-cluster-5",
        "Cluster of 5 nodes, 150 contacts of which 30 online (Atom 2011)",
        "up to 53 000 connections: 2.2 times those of one node",
        ATOM,
        &[("@NODES@", "5"), ("@CONNECTIONS@", "53_000")],
    ),
    entry(
        "flood",
        "100 pairs, 8 messages under way in each direction",
        "messages a second and CPU a message, in a closed loop",
        include_str!("../../workloads/flood.toml"),
        &[],
    ),
    entry(
        "steady",
        "10 000 connections, a message every 5 s from each",
        "delivery under 2 000 messages a second",
        include_str!("../../workloads/steady.toml"),
        &[],
    ),
    entry(
        "login-storm",
        "10 000 logins at 1 000 a second",
        "CPU and time of a login",
        include_str!("../../workloads/login-storm.toml"),
        &[],
    ),
    entry(
        "idle",
        "10 000 idle connections",
        "memory of a connection",
        include_str!("../../workloads/idle.toml"),
        &[],
    ),
];

/// Published workloads that this version cannot run, and what they need.
const REFUSED: &[(&str, &str)] = &[
    ("openfire-bosh", "BOSH (XEP-0124, XEP-0206)"),
    ("pubsub-1m-nodes", "PubSub (XEP-0060)"),
    ("pubsub-1m-subscribers", "PubSub (XEP-0060)"),
];

/// All workloads that can be run, in the order of the list that users see.
pub fn workloads() -> Vec<Workload> {
    ENTRIES.iter().map(|entry| entry.workload).collect()
}

/// The plan of a named workload and what it needs on the server. A name that is unknown, or known and not possible in
/// this version, is one mistake that says so.
pub fn named(name: &str, arguments: &Arguments) -> Result<(Plan, Option<Preparation>), Vec<Mistake>> {
    let Some(text) = workload_text(name) else {
        if let Some((_, what)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(vec![Mistake::of_plan(format!(
                "the workload {name} needs {what}, which this version does not speak; throng load --list shows what can be run"
            ))]);
        }
        let near = nearest(name, ENTRIES.iter().map(|entry| entry.workload.name));
        let mend = if near.is_empty() { "; throng load --list shows all".to_owned() } else { near };
        return Err(vec![Mistake::of_plan(format!("there is no workload \"{name}\"{mend}"))]);
    };
    read_toml_with_preparation(&text, name, arguments)
}

/// The TOML text of a named workload: a plan to begin one's own from. `None` for names that cannot be run.
pub fn workload_text(name: &str) -> Option<String> {
    let entry = ENTRIES.iter().find(|entry| entry.workload.name == name)?;
    let mut text = entry.text.to_owned();
    for (word, value) in entry.words {
        text = text.replace(word, value);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_a_plan_at_every_size() {
        for workload in workloads() {
            for connections in [1, 19_000, 1_000_000] {
                let arguments = Arguments { connections: Some(connections), ..Arguments::default() };
                let (plan, preparation) = named(workload.name, &arguments)
                    .unwrap_or_else(|m| panic!("{}: {}", workload.name, m.first().unwrap()));
                assert_eq!(plan.options.connections, connections);
                assert_eq!(plan.title, workload.title);
                let preparation = preparation.unwrap();
                assert!(preparation.accounts >= u64::from(connections), "{}", workload.name);
            }
        }
    }
}
