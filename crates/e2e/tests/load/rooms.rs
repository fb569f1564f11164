//! Tests of rooms (XEP-0045) under load: every copy of every message arrives once, in one order for all occupants.
//!
//! The plans end by an interrupt when the node has sent everything: a user that closed its stream would rightly miss
//! copies.

use throng_e2e::{KillOnDrop, signal, wait_for_progress};

use crate::node::{LoadNode, exclusive_turn};
use crate::run_report::RunReport;

/// Runs a plan until the node has sent these numbers of messages, subjects of joins included.
fn run(node: &LoadNode, out: &str, plan: &str, words: &[&str], messages_out: u64) -> RunReport {
    let before = sent(node);
    let words = [&[plan, "--quiet"], words].concat();
    let mut load = KillOnDrop(node.load(out, &words).spawn().expect("throng starts"));
    wait_for_progress("all copies", || {
        let ended = load.0.try_wait().expect("a child");
        assert!(ended.is_none(), "the run ended: {}", node.log());
        let sent = sent(node) - before;
        (sent >= messages_out).then_some(()).ok_or(sent)
    });
    signal(load.0.id(), "INT");
    assert!(load.wait_for_exit("the run").success(), "{}", node.log());
    assert_eq!(sent(node) - before, messages_out);
    RunReport::read(&node.folder.join(out))
}

/// Messages that the node has sent to clients.
fn sent(node: &LoadNode) -> u64 {
    node.metrics().sum("throng_stanzas_total{kind=\"message\",direction=\"out\"}")
}

/// Compares a report with these counts; all faults must be zero.
fn assert_account(run: &RunReport, expected: &[(&str, u64)]) {
    let faults = [
        "room_copies_lost",
        "room_copies_duplicate",
        "room_copies_reordered",
        "room_sender_reordered",
        "room_copies_outside",
        "room_messages_unreceived",
        "room_messages_refused",
        "room_join_errors",
        "sessions_lost",
        "timeouts",
    ];
    for (name, count) in expected.iter().copied().chain(faults.map(|name| (name, 0))) {
        assert_eq!(run.count(name), count, "{name}\n{}", run.messages());
    }
}

/// Everybody joins, leaves and joins again, and then sends five messages, each as soon as the last has arrived.
#[test]
fn every_occupant_of_a_large_room_receives_every_message_once_and_in_one_order() {
    let _turn = exclusive_turn();
    const USERS: u64 = 60;
    const MESSAGES: u64 = 5;
    let node = LoadNode::start("room", 60);
    node.plan(
        "room.toml",
        r#"
title = "One room"
[options]
hold = "10m"
drain = "2s"
[[phase]]
rate = 100
users = "connections"
[[session]]
steps = [
  "login",
  "presence",
  { set = { number = "{n}" } },
  { if = { variable = "number", below = 1, steps = [{ room_join = { room = "lobby", history = 0 } }] } },
  { barrier = { users = "connections", timeout = "2m" } },
  { if = { variable = "number", at_least = 1, steps = [
    { room_join = { room = "lobby", history = 0 } },
    "room_leave",
    { room_join = { room = "lobby", history = 0 } },
  ] } },
  { barrier = { users = "connections", timeout = "2m" } },
  { repeat = { times = 5, steps = [{ room_message = { room = "lobby", size = 100, wait = "delivery" } }] } },
  { think = "1h" },
]
"#,
    );
    let joins = USERS + (USERS - 1);
    // A newcomer receives the subject.
    let run = run(&node, "out", "room.toml", &["-n", "60"], joins + MESSAGES * USERS * USERS);
    assert_account(
        &run,
        &[
            ("room_joins", joins),
            ("room_leaves", USERS - 1),
            ("room_messages_sent", MESSAGES * USERS),
            ("room_copies", MESSAGES * USERS * USERS),
            ("room_history", 0),
        ],
    );
    assert_eq!(run.timing("room_message", "count"), MESSAGES * USERS * USERS, "{}", run.messages());
    assert_eq!(run.timing("room_join", "count"), joins, "{}", run.messages());
}

/// Forty rooms of twenty, and users of two processes, whose order is compared as well.
#[test]
fn occupants_of_many_rooms_receive_what_the_rooms_send() {
    let _turn = exclusive_turn();
    const USERS: u64 = 40;
    const MESSAGES: u64 = 10;
    const ROOM: u64 = 20;
    let node = LoadNode::start("rooms", 40);
    node.plan(
        "rooms.toml",
        r#"
title = "Many rooms"
[options]
hold = "10m"
drain = "2s"
[[phase]]
rate = 20
users = "connections"
[[session]]
steps = [
  "login",
  "presence",
  { room_join = { room = "ring", count = 20, rooms = "connections", history = 0 } },
  # Longer than the arrivals of the other process and its repeated joins of locked rooms.
  { think = "8s" },
  { repeat = { times = 10, steps = [{ room_message = { room = "joined", size = 100, wait = "delivery" } }] } },
  { think = "1h" },
]
"#,
    );
    let all = USERS * ROOM + MESSAGES * USERS * ROOM;
    let run = run(&node, "out", "rooms.toml", &["-n", "40", "--workers", "2"], all);
    assert_account(
        &run,
        &[
            ("room_joins", USERS * ROOM),
            ("room_messages_sent", MESSAGES * USERS),
            ("room_copies", MESSAGES * USERS * ROOM),
        ],
    );
}
