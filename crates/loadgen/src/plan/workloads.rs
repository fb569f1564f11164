//! Published workloads and the generator's own, by name.
//!
//! Each is a TOML plan in `crates/loadgen/workloads`, whose comments state what was published and what was chosen.
//! Workloads that differ in one number share a file with words such as `@ROSTER@` in it.
//!
//! # Pitfalls
//!
//! `--connections` is the only size. A workload must never change its shape with it, or metrics of two sizes cannot be
//! compared.

use super::error::nearest;
use super::toml::read_toml_with_preparation;
use super::{LoadPlan, PlanError, PlanOverrides, Preparation};

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name on the command line.
    pub name: &'static str,
    /// Title with the published number of connections.
    pub title: &'static str,
    /// One line: what it measures.
    pub about: &'static str,
}

/// A workload and its source file.
struct WorkloadEntry {
    workload: Workload,
    text: &'static str,
    /// Values of the words in the file.
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
) -> WorkloadEntry {
    WorkloadEntry { workload: Workload { name, title, about }, text, words }
}

const ENTRIES: &[WorkloadEntry] = &[
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
        "cost of a contact: baseline",
        ROSTER,
        &[("@ROSTER@", "0")],
    ),
    entry(
        "tigase-roster-10",
        "100 000 connections, 10 contacts each (Tigase 2010)",
        "cost of a contact: 10",
        ROSTER,
        &[("@ROSTER@", "10")],
    ),
    entry(
        "tigase-roster-20",
        "100 000 connections, 20 contacts each (Tigase 2010)",
        "cost of a contact: 20",
        ROSTER,
        &[("@ROSTER@", "20")],
    ),
    entry(
        "tigase-roster-30",
        "100 000 connections, 30 contacts each (Tigase 2010)",
        "cost of a contact: 30",
        ROSTER,
        &[("@ROSTER@", "30")],
    ),
    entry(
        "tigase-roster-40",
        "100 000 connections, 40 contacts each (Tigase 2010)",
        "cost of a contact: 40, where the published server stopped responding",
        ROSTER,
        &[("@ROSTER@", "40")],
    ),
    entry(
        "tigase-roster-50",
        "100 000 connections, 50 contacts each (Tigase 2010)",
        "cost of a contact: 50",
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
        "openfire-bosh",
        "10 000 BOSH users, 24 contacts each (Openfire)",
        "10 users every 2 s over HTTP, a message every 5 s and presence every 30 s from each",
        include_str!("../../workloads/openfire-bosh.toml"),
        &[],
    ),
    entry(
        "muc-large",
        "10 000 connections in one room, a message per second",
        "joins of all at once, then delivery to each of 10 000 occupants",
        include_str!("../../workloads/muc-large.toml"),
        &[],
    ),
    entry(
        "muc-many",
        "15 000 connections, each in 20 rooms of 20",
        "2 000 messages per second in 15 000 rooms, 40 000 copies",
        include_str!("../../workloads/muc-many.toml"),
        &[],
    ),
    entry(
        "pubsub-1m-nodes",
        "10 000 connections, a million nodes with a thousand subscriptions each",
        "events of a service with a billion subscriptions",
        include_str!("../../workloads/pubsub-1m-nodes.toml"),
        &[],
    ),
    entry(
        "pubsub-1m-subscribers",
        "15 000 connections, a hundred nodes with a million subscriptions each",
        "events to those who are online of a million subscribers",
        include_str!("../../workloads/pubsub-1m-subscribers.toml"),
        &[],
    ),
    entry(
        "pubsub-many-publishers",
        "10 000 connections, ten of which listen to all others at one node",
        "publications of many to few",
        include_str!("../../workloads/pubsub-many-publishers.toml"),
        &[],
    ),
    entry(
        "pubsub-fanout",
        "10 000 connections subscribed to one node, an item per second",
        "delivery of an event to each of 10 000 subscribers",
        include_str!("../../workloads/pubsub-fanout.toml"),
        &[],
    ),
    entry(
        "pubsub-subscribe",
        "1 000 connections, 5 000 subscriptions begun or ended per second",
        "durable changes of subscriptions per second",
        include_str!("../../workloads/pubsub-subscribe.toml"),
        &[],
    ),
    entry(
        "flood",
        "100 pairs, 8 messages in flight in each direction",
        "messages per second and CPU per message, in a closed loop",
        include_str!("../../workloads/flood.toml"),
        &[],
    ),
    entry(
        "steady",
        "10 000 connections, a message every 5 s from each",
        "delivery at 2 000 messages per second",
        include_str!("../../workloads/steady.toml"),
        &[],
    ),
    entry(
        "login-storm",
        "10 000 logins at 1 000 per second",
        "CPU and latency of a login",
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

/// All workloads that can be run, in display order.
pub fn workloads() -> Vec<Workload> {
    ENTRIES.iter().map(|entry| entry.workload).collect()
}

/// Plan of a named workload and what it needs on the server. An unknown name is one error that says so.
pub fn named(
    name: &str,
    arguments: &PlanOverrides,
) -> Result<(LoadPlan, Option<Preparation>), Vec<PlanError>> {
    let Some(text) = workload_text(name) else {
        let near = nearest(name, ENTRIES.iter().map(|entry| entry.workload.name));
        let fix = if near.is_empty() { "; throng load --list shows all".to_owned() } else { near };
        return Err(vec![PlanError::of_plan(format!("unknown workload \"{name}\"{fix}"))]);
    };
    read_toml_with_preparation(&text, name, arguments)
}

/// TOML text of a named workload: a starting point for a plan. `None` for unknown names.
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
    use crate::plan::{
        AccountSource, Activity, Destination, LoadPlan, PlanStep, PubSubNodeSelection, PubSubStep,
        RoomSelection, RoomStep, StreamTransport, TimeSpan, TransportSecurity,
    };

    fn at(name: &str, connections: Option<u32>) -> (LoadPlan, Preparation) {
        let arguments = PlanOverrides { connections, ..PlanOverrides::default() };
        let (plan, preparation) =
            named(name, &arguments).unwrap_or_else(|errors| panic!("{name}: {}", errors[0]));
        (plan, preparation.unwrap())
    }

    #[test]
    fn every_workload_is_a_plan_at_every_size() {
        for workload in workloads() {
            for connections in [1, 19_000, 1_000_000] {
                let (plan, preparation) = at(workload.name, Some(connections));
                assert_eq!(plan.options.connections, connections);
                assert_eq!(plan.phases[0].max_users, Some(connections));
                assert_eq!(plan.name, workload.name);
                assert!(preparation.accounts >= u64::from(connections), "{}", workload.name);
                assert!(preparation.accounts > u64::from(preparation.roster), "{}", workload.name);
                assert!(!workload.about.is_empty());
            }
        }
    }

    #[test]
    fn the_number_of_connections_changes_nothing_else() {
        for workload in workloads() {
            let shape = |connections| {
                let (mut plan, mut preparation) = at(workload.name, Some(connections));
                plan.options.connections = 0;
                plan.title.clear();
                plan.phases[0].max_users = None;
                preparation.accounts = 0;
                if let AccountSource::Pattern { count, .. } = &mut plan.accounts.source {
                    *count = 0;
                }
                for step in &mut plan.sessions[0].steps {
                    if let PlanStep::Room(RoomStep::Join {
                        room: RoomSelection::Ring { rooms, .. }, ..
                    }) = step
                    {
                        *rooms = 0;
                    }
                    if let PlanStep::Barrier { timeout_ms, users } = step {
                        (*timeout_ms, *users) = (0, None);
                    }
                }
                (plan, preparation)
            };
            assert_eq!(shape(1_000), shape(1_000_000), "{}", workload.name);
        }
    }

    /// Published values or, for arrivals of the first, derived from them: connections, accounts, contacts, arrivals per
    /// second, hold in minutes.
    const TABLE: &[(&str, u32, u64, u32, f64, u64)] = &[
        ("tigase-30k", 30_000, 200_004, 4, 10.0, 144),
        ("tigase-500k", 622_000, 622_000, 0, 200.0, 80),
        ("tigase-300k-roster50", 300_000, 300_000, 50, 1_000.0 / 4.5, 20),
        ("tigase-roster-0", 100_000, 100_000, 0, 1_000.0 / 15.0, 20),
        ("tigase-roster-10", 100_000, 100_000, 10, 1_000.0 / 15.0, 20),
        ("tigase-roster-20", 100_000, 100_000, 20, 1_000.0 / 15.0, 20),
        ("tigase-roster-30", 100_000, 100_000, 30, 1_000.0 / 15.0, 20),
        ("tigase-roster-40", 100_000, 100_000, 40, 1_000.0 / 15.0, 20),
        ("tigase-roster-50", 100_000, 100_000, 50, 1_000.0 / 15.0, 20),
        ("atom-cluster-1", 24_000, 120_000, 150, 10.0, 110),
        ("atom-cluster-2", 27_000, 135_000, 150, 10.0, 110),
        ("atom-cluster-3", 37_000, 185_000, 150, 10.0, 110),
        ("atom-cluster-4", 43_000, 215_000, 150, 10.0, 110),
        ("atom-cluster-5", 53_000, 265_000, 150, 10.0, 110),
    ];

    #[test]
    fn published_workloads_are_as_published() {
        let published = workloads().len() - 12;
        assert_eq!(TABLE.len(), published, "the generator's own are eleven, and one is over BOSH");
        for (name, connections, accounts, roster, rate, minutes) in TABLE {
            let (plan, preparation) = at(name, None);
            let listed = workloads().into_iter().find(|workload| workload.name == *name).unwrap();
            assert_eq!(plan.title, listed.title);
            assert_eq!(plan.options.connections, *connections, "{name}");
            assert_eq!((preparation.accounts, preparation.roster), (*accounts, *roster), "{name}");
            assert!((plan.phases[0].rate - rate).abs() < 1e-9, "{name}: {}", plan.phases[0].rate);
            assert_eq!(plan.options.hold_ms, Some(minutes * 60_000), "{name}");
            assert_eq!((plan.phases.len(), plan.phases[0].batch, plan.phases[0].poisson), (1, 1, false));
            let usual = if plan.target.web.transport.is_web() {
                TransportSecurity::None
            } else {
                TransportSecurity::Auto
            };
            assert_eq!(plan.target.security, usual, "{name}");
            let [PlanStep::Login { mechanisms, .. }, PlanStep::Roster, PlanStep::Presence { .. }, ..] =
                plan.sessions[0].steps.as_slice()
            else {
                panic!("{name} begins with login, roster and presence");
            };
            assert!(mechanisms.is_empty());
        }
    }

    #[test]
    fn traffic_of_the_published_workloads() {
        for (name, ..) in TABLE.iter().skip(1) {
            let (plan, _) = at(name, None);
            let Some(PlanStep::Meanwhile { duration: None, activities }) = plan.sessions[0].steps.get(3)
            else {
                panic!("{name} goes on until the run ends");
            };
            let [message, presence] = activities.as_slice() else { panic!("{name}: two things") };
            assert_eq!(message.every, TimeSpan::Fixed(100_000.0), "{name}");
            assert_eq!(presence.every, TimeSpan::Fixed(600_000.0), "{name}");
            assert!(matches!(presence.step, PlanStep::Presence { to: None, status: Some(_), .. }), "{name}");
            let to = match name.starts_with("atom") {
                true => Destination::OnlineContact,
                false => Destination::Online,
            };
            assert!(matches!(&message.step, PlanStep::Message { to: found, .. } if *found == to), "{name}");
        }
    }

    /// 4 426 packets per second on average with peaks of 10 000, from 500 to 10 000 of 30 000 connections at once.
    #[test]
    fn bursts_of_30k() {
        let (plan, _) = at("tigase-30k", None);
        let connections = f64::from(plan.options.connections);
        let Some(PlanStep::Repeat { times: None, steps, .. }) = plan.sessions[0].steps.last() else {
            panic!("it goes on until the run ends");
        };
        let mut at_once = Vec::new();
        for wave in steps.chunks(3) {
            let [
                PlanStep::Set(lot),
                PlanStep::If { condition: drawn, steps: busy },
                PlanStep::If { condition, steps: idle },
            ] = wave
            else {
                panic!("{wave:?}");
            };
            assert!(matches!(lot[0].1, crate::plan::VariableValue::RandomNumber(1, 60)));
            assert_eq!(drawn.value, condition.value);
            let crate::plan::TemplatePart::Literal(sixtieths) = &drawn.value.0[0] else { panic!("a number") };
            at_once.push(connections * sixtieths.parse::<f64>().unwrap() / 60.0);
            let minute = TimeSpan::Fixed(60_000.0);
            assert_eq!(idle.as_slice(), [PlanStep::Think(minute)]);
            let [PlanStep::Meanwhile { duration, activities }] = busy.as_slice() else { panic!("{busy:?}") };
            assert_eq!(*duration, Some(minute));
            let [Activity { every: TimeSpan::Fixed(every), step: PlanStep::Message { .. }, .. }] =
                activities.as_slice()
            else {
                panic!("{activities:?}");
            };
            assert_eq!(*every, 2_000.0);
        }
        assert_eq!(at_once, [500.0, 1_500.0, 3_000.0, 4_500.0, 7_000.0, 10_000.0]);
        let packets = |connections: f64| connections / 2.0 * 2.0;
        let average = packets(at_once.iter().sum::<f64>() / 6.0);
        assert!((average / 4_426.0 - 1.0).abs() < 0.01, "{average}");
        assert_eq!(packets(10_000.0), 10_000.0);
    }

    /// With every fifth account of the ring, 30 of 150 contacts are users of the run.
    #[test]
    fn a_fifth_of_the_contacts_is_online_on_atoms() {
        let (plan, preparation) = at("atom-cluster-2", Some(1_000));
        let AccountSource::Pattern { prefix, .. } = &plan.accounts.source else { panic!("a pattern") };
        let half = u64::from(preparation.roster) / 2;
        for index in [0, 1, 500, 999] {
            let own = plan.accounts.number_of(index);
            let near = (1..=half).flat_map(|d| {
                [(own + d) % preparation.accounts, (own + preparation.accounts - d) % preparation.accounts]
            });
            let online = near.filter(|n| plan.accounts.index_of(&format!("{prefix}{n}")).is_some()).count();
            assert_eq!(online, 30);
        }
    }

    #[test]
    fn the_published_test_of_bosh() {
        let (plan, preparation) = at("openfire-bosh", None);
        assert_eq!(
            (plan.options.connections, preparation.accounts, preparation.roster),
            (10_000, 10_000, 24)
        );
        let web = &plan.target.web;
        assert_eq!((web.transport, web.path(), web.sockets), (StreamTransport::Bosh, "/http-bind", None));
        assert_eq!(plan.target.addresses, ["127.0.0.1:5280".parse().unwrap()]);
        assert_eq!((plan.phases[0].rate, plan.phases[0].batch), (5.0, 10));
        let [
            PlanStep::Login { .. },
            PlanStep::OpenSession,
            PlanStep::Roster,
            PlanStep::Presence { .. },
            PlanStep::Meanwhile { activities, .. },
        ] = plan.sessions[0].steps.as_slice()
        else {
            panic!("{:?}", plan.sessions[0].steps);
        };
        assert_eq!(
            activities.iter().map(|it| it.every).collect::<Vec<_>>(),
            [5_000.0, 30_000.0].map(TimeSpan::Fixed)
        );
    }

    #[test]
    fn the_generators_own() {
        let (flood, _) = at("flood", None);
        assert_eq!(
            flood.sessions[0].steps.last(),
            Some(&PlanStep::Bounce {
                in_flight: 8,
                duration_ms: None,
                size: 100,
                one_sided: false,
                to: Destination::Partner
            })
        );
        let (steady, _) = at("steady", None);
        let Some(PlanStep::Meanwhile { activities, .. }) = steady.sessions[0].steps.last() else {
            panic!("traffic")
        };
        assert_eq!((activities.len(), activities[0].every), (1, TimeSpan::Fixed(5_000.0)));
        assert_eq!(at("login-storm", None).0.phases[0].rate, 1_000.0);
        assert_eq!(at("idle", None).0.sessions[0].steps.len(), 4);
    }

    #[test]
    fn rooms_of_the_workloads() {
        let (large, _) = at("muc-large", None);
        let messages = large.sessions[0].steps.iter().rev().find_map(|step| match step {
            PlanStep::If { condition, steps } => Some((condition, steps.as_slice())),
            _ => None,
        });
        let Some((condition, [PlanStep::Meanwhile { activities, .. }])) = messages else {
            panic!("messages")
        };
        // Ten users, each every 10 s: one message per second.
        assert_eq!(condition.value, crate::plan::TextTemplate::literal("10"));
        assert_eq!(activities[0].every, TimeSpan::Fixed(10_000.0));
        let (many, _) = at("muc-many", None);
        let room = many.sessions[0].steps.iter().find_map(|step| match step {
            PlanStep::Room(RoomStep::Join { room, .. }) => Some(room.clone()),
            _ => None,
        });
        assert_eq!(room, Some(RoomSelection::Ring { offset: 0, rooms: 15_000, count: 20 }));
        let Some(PlanStep::Meanwhile { activities, .. }) = many.sessions[0].steps.last() else {
            panic!("traffic")
        };
        assert_eq!(f64::from(many.options.connections) / 7.5, 2_000.0);
        assert_eq!(activities[0].every, TimeSpan::Fixed(7_500.0));
    }

    #[test]
    fn nodes_of_the_workloads() {
        let node_of = |name: &str| {
            let (plan, _) = at(name, None);
            let steps = plan.sessions[0].steps.iter();
            steps.clone().find_map(|step| match step {
                PlanStep::PubSub(step) => Some(step.clone()),
                PlanStep::If { steps, .. } => match steps.as_slice() {
                    [PlanStep::PubSub(step)] => Some(step.clone()),
                    _ => None,
                },
                _ => None,
            })
        };
        let ring = |nodes, count| PubSubNodeSelection::Ring { offset: 0, nodes, count };
        let subscribe = PubSubStep::Subscribe { node: ring(1_000_000, 10), wait: true };
        assert_eq!(node_of("pubsub-1m-nodes"), Some(subscribe));
        assert_eq!(node_of("pubsub-1m-subscribers"), Some(PubSubStep::Listen { node: ring(100, 100) }));
        let node0 = PubSubNodeSelection::Named(crate::plan::TextTemplate::literal("node0"));
        assert_eq!(
            node_of("pubsub-many-publishers"),
            Some(PubSubStep::Subscribe { node: node0, wait: true })
        );
    }

    #[test]
    fn unknown_workload_names_are_refused() {
        let sentence = |name: &str| named(name, &PlanOverrides::default()).unwrap_err()[0].to_string();
        assert_eq!(
            sentence("tigase-roster-60"),
            "unknown workload \"tigase-roster-60\"; did you mean \"tigase-roster-0\"?"
        );
        assert_eq!(sentence("x"), "unknown workload \"x\"; throng load --list shows all");
    }
}
