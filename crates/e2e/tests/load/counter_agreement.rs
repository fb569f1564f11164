//! Tests that the generator's counts of a run agree with the node's.

use throng_e2e::{KillOnDrop, signal, wait, wait_for_progress};

use crate::node::{LoadNode, exclusive_turn};
use crate::relay::CuttableRelay;
use crate::run_report::RunReport;

/// 10 000 users arrive at 250 per second and send one message each; another tenth of accounts never log in. An unoptimised node
/// on a machine that does other work can do that: an overloaded one refuses messages, which it counts as sent, too.
#[test]
fn ten_thousand_users_are_counted_as_the_node_counts_them() {
    let _turn = exclusive_turn();
    const USERS: u64 = 10_000;
    let node = LoadNode::start("count", 11_000);
    // Recipients are random: some are online, some log in later and find the message stored, some never log in.
    node.plan(
        "count.toml",
        r#"
title = "A message from each, to anybody"
[accounts]
prefix = "u"
count = 11_000
[options]
hold = "10m"
drain = "2s"
[[phase]]
rate = 250
users = "connections"
[[session]]
steps = [
  { login = { mechanisms = ["SCRAM-SHA-1"] } },
  "presence",
  { think = "1s..3s" },
  { message = { to = "random", size = 100 } },
  { think = "1h" },
]
"#,
    );
    let before = node.metrics();
    let mut load = node.load("out", &["count.toml", "-n", "10000", "--workers", "2", "--quiet"]);
    load.args(["--pid", &node.pid().to_string(), "--metrics", &node.metrics_url()]);
    let mut load = KillOnDrop(load.spawn().expect("throng starts"));
    wait_for_progress("each to have sent and received", || {
        let now = node.metrics();
        // Both counters are read one after the other, while the node counts.
        let kept = now
            .sum("throng_offline_messages_stored_total")
            .saturating_sub(now.sum("throng_offline_messages_delivered_total"));
        let [messages, presence] = ["message", "presence"].map(|kind| {
            ["in", "out"]
                .map(|way| now.sum(&format!("throng_stanzas_total{{kind=\"{kind}\",direction=\"{way}\"}}")))
        });
        let ended = load.0.try_wait().expect("a child");
        assert!(ended.is_none(), "the run ended: {}", node.log());
        let done = messages == [USERS, USERS.saturating_sub(kept)] && presence == [USERS, USERS];
        done.then_some(()).ok_or((messages, presence))
    });
    signal(load.0.id(), "INT");
    assert!(load.wait_for_exit("the run").success(), "{}", node.log());
    let after = node.metrics();
    let run = RunReport::read(&node.folder.join("out"));
    let server = |name: &str| after.sum(name) - before.sum(name);
    let describe = || format!("{}\n{}", run.messages(), node.status().unwrap_or_default());

    assert_eq!(run.end_reason(), "interrupted", "{}", describe());
    for (ours, theirs) in [
        ("connections", USERS),
        ("logins", USERS),
        ("logins", server("throng_logins_total{mechanism=\"SCRAM-SHA-1\"}")),
        ("logins", server("throng_sessions_opened_total")),
        ("messages_sent", USERS),
        ("messages_sent", server("throng_stanzas_total{kind=\"message\",direction=\"in\"}")),
        ("messages_delivered", server("throng_stanzas_total{kind=\"message\",direction=\"out\"}")),
        ("messages_delayed", server("throng_offline_messages_delivered_total")),
        (
            "messages_waiting",
            server("throng_offline_messages_stored_total")
                - server("throng_offline_messages_delivered_total"),
        ),
        ("messages_refused", server("throng_stanzas_bounced_total")),
        ("messages_lost", 0),
        ("messages_duplicate", 0),
        ("messages_reordered", 0),
        ("presence_sent", server("throng_stanzas_total{kind=\"presence\",direction=\"in\"}")),
        ("presence_received", server("throng_stanzas_total{kind=\"presence\",direction=\"out\"}")),
        ("sessions_lost", 0),
        ("users_finished", USERS),
    ] {
        assert_eq!(run.count(ours), theirs, "{ours}\n{}", describe());
        assert_eq!(run.count(ours), run.count_of_seconds(ours), "{ours} by seconds");
    }
    // The comparison is meaningful only if every route of a message was used.
    for way in ["messages_delivered", "messages_delayed", "messages_waiting"] {
        assert!(run.count(way) > 100, "{way}\n{}", describe());
    }
    let missing =
        run.count("messages_sent") - run.count("messages_delivered") - run.count("messages_waiting");
    assert_eq!(missing, 0, "{}", describe());
    assert_eq!(run.timing("login", "count"), USERS, "{}", describe());
}

/// The network of 1 000 of 2 100 users fails while all of them exchange messages.
#[test]
fn a_thousand_connections_that_are_cut_are_a_thousand_lost_sessions() {
    let _turn = exclusive_turn();
    const USERS: u64 = 2_100;
    let node = LoadNode::start("cut", USERS as u32);
    let relay = CuttableRelay::start(&node.target);
    node.plan(
        "talk.toml",
        r#"
title = "Talk until the end"
[options]
hold = "10m"
drain = "2s"
[[phase]]
rate = 500
users = "connections"
[[session]]
steps = ["login", "presence", { meanwhile = { do = [{ every = "2s", message = { to = "random", size = 100 } }] } }]
"#,
    );
    // Half of the users connect through the relay.
    let mut load = node.load("out", &["talk.toml", "-n", "2100", "--workers", "2", "--quiet"]);
    let mut load =
        KillOnDrop(load.args(["--target", &relay.address.to_string()]).spawn().expect("throng starts"));
    wait_for_progress("all users", || {
        let sessions = node.status_value("sessions");
        (sessions == USERS).then_some(()).ok_or(sessions)
    });
    relay.cut(1_000);
    wait("the cut ones to be gone", || (node.status_value("sessions") == USERS - 1_000).then_some(()));
    let stored = node.status_value("offline_stored");
    wait("messages for those who were cut", || (node.status_value("offline_stored") > stored).then_some(()));
    let talked = node.status_value("messages_in");
    wait("the others to go on", || (node.status_value("messages_in") > talked + 1_000).then_some(()));
    signal(load.0.id(), "INT");
    let status = load.wait_for_exit("the run");
    let run = RunReport::read(&node.folder.join("out"));
    assert!(status.success(), "{}{}", run.messages(), node.log());

    assert_eq!(run.count("logins"), USERS, "{}", run.messages());
    assert_eq!(run.count("sessions_lost"), 1_000, "{}", run.messages());
    assert_eq!(run.count("users_finished"), USERS - 1_000, "{}", run.messages());
    // Each message is accounted for. Those to users cut off may still be fetched. Those from users cut off to others
    // are lost if they were in flight in the connection, and then the node has not received them either.
    let [sent, arrived, waiting, lost] =
        ["messages_sent", "messages_delivered", "messages_waiting", "messages_lost"].map(|n| run.count(n));
    let unseen = sent - node.status_value("messages_in");
    assert_eq!(sent, arrived + waiting + lost, "{}", run.messages());
    assert!(lost <= unseen, "{unseen} messages never came to the node\n{}", run.messages());
    assert!(waiting > 100, "{unseen} messages never came to the node\n{}", run.messages());
    assert_eq!(run.count("messages_duplicate") + run.count("messages_reordered"), 0, "{}", run.messages());
    // The others continued: the users online until the end are as many as were not cut off.
    let online = run.seconds().filter_map(|second| second["gauges"]["online"].as_i64()).collect::<Vec<_>>();
    assert!(online.contains(&1_100), "{online:?}");
}
