//! Offline messages of sources that send through lanes: services, components, other servers.

use jid::Jid;
use throng_core::{SharedStanza, StanzaSource};

use super::harness::OfflineHarness;

/// Routes this many messages to juliet in her lane.
fn route(bench: &OfflineHarness, from: &str, count: usize) {
    let (from, to) = (Jid::parse(from).unwrap(), Jid::parse("juliet@capulet.com").unwrap());
    for n in 0..count {
        let text =
            format!("<message from='{from}' to='{to}' type='chat' id='{n}'><body>{n}</body></message>");
        let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
        let wait = bench.node.route_in_lane(StanzaSource::Component, stanza, from.as_ref(), to.as_ref());
        assert!(wait.is_none(), "the lane has room");
    }
}

#[test]
fn messages_of_one_lane_are_written_many_at_once_and_in_order() {
    let bench = OfflineHarness::new();
    route(&bench, "news@irc.montague.net", 100);
    bench.run_until_idle();
    let writes = bench.gate.calls().iter().filter(|call| **call == "append").count();
    assert!(writes <= 4, "{writes} transactions for 100 messages");
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_lane_counts_messages_until_they_are_stored() {
    let bench = OfflineHarness::new();
    let (from, to) = (Jid::parse("irc.montague.net").unwrap(), Jid::parse("juliet@capulet.com").unwrap());
    let text =
        format!("<message from='{from}' to='{to}' type='chat'><body>{}</body></message>", "x".repeat(10_000));
    let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
    let route =
        || bench.node.route_in_lane(StanzaSource::Component, stanza.clone(), from.as_ref(), to.as_ref());
    bench.gate.close("append");
    let mut routed = 0;
    let wait = loop {
        match route() {
            None => routed += 1,
            Some(wait) => break wait,
        }
        bench.run_until_idle();
    };
    assert!((20..30).contains(&routed), "{routed} messages of 10 kB are in a lane of 256 kB");
    bench.gate.open("append");
    bench.tasks.block_on(wait);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), routed + 1);
    assert!(!bench.node.has_lane(bench.node.routing_table.hash(to.as_ref())), "it does not stay open");
}

#[test]
fn the_senders_of_a_lane_that_ends_early_get_errors() {
    const COUNT: usize = 300;
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.gate.close("append");
    // More than may wait for receipts, so some were not handled.
    route(&bench, "romeo@capulet.com/balcony", COUNT);
    bench.run_until_idle();
    assert_eq!(bench.receive(&romeo).len(), 0);
    bench.tasks.drop_tasks();
    bench.run_until_idle();
    let errors = bench.receive(&romeo);
    assert!(errors.iter().all(|error| error.contains("<internal-server-error ")), "{}", errors[0]);
    assert_eq!(errors.len(), COUNT);
    bench.gate.open("append");
    route(&bench, "romeo@capulet.com/balcony", 1);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 1, "the lane works again");
}
