//! Hostile use of a room of 10 000: counts of stanzas and bytes, no times.

use counting_allocator::live_bytes;
use throng_core::NodeLimits;

use super::*;

const CROWD: usize = 10_000;
/// Occupants whose presence everybody receives.
const ANNOUNCED: i64 = 10;

fn play(limits: NodeLimits) -> Shakespeare {
    Shakespeare::with_limits(
        &[
            ("occupants", OptionValue::Int(20_000)),
            ("presence_occupants", OptionValue::Int(ANNOUNCED)),
            ("stanzas_per_second_per_sender", OptionValue::Int(0)),
        ],
        limits,
    )
}

fn connect(play: &Shakespeare) -> Vec<NodeClient> {
    (0..CROWD).map(|n| play.engine.connect_anonymous(&format!("u{n}"), "r")).collect()
}

/// Everybody enters; the most stanzas that one of them receives.
fn enter_all(crowd: &[NodeClient], owner: &NodeClient) -> usize {
    let mut most = 0;
    for (n, client) in crowd.iter().enumerate() {
        client.send(&format!("<presence to='{ROOM}/u{n}'>{MUC}</presence>"));
        if n < 20 {
            // The first ones are shown to all.
            crowd[..n].iter().for_each(|one| forget(&[one]));
        }
        most = most.max(client.recv().len());
        assert_eq!(owner.recv().len(), 1, "{n}: a moderator sees everybody");
    }
    most
}

fn message(body: &str) -> String {
    format!("<message to='{ROOM}' type='groupchat'><body>{body}</body></message>")
}

#[test]
fn of_ten_thousand_the_slow_occupant_suffers_alone() {
    const QUEUE: u32 = 60_000;
    const MESSAGES: usize = 12;
    let play = play(NodeLimits { queue_message_bytes: QUEUE, ..NodeLimits::default() });
    let crone = play.room("");
    let crowd = connect(&play);
    enter_all(&crowd, &crone);
    let (slow, others) = crowd.split_last().unwrap();
    let before = live_bytes();
    let long = "x".repeat(10_000);
    let (mut removals, mut copies) = (0, 0);
    for number in 0..MESSAGES {
        let received = crone.request(&message(&format!("{number} {long}")));
        let of = format!("<body>{number} ");
        let is_message = |one: &String| one.contains(&of);
        assert_eq!(received.iter().filter(|one| is_message(one)).count(), 1);
        removals += received.iter().filter(|one| one.contains("<status code='333'/>")).count();
        for client in others {
            let received = client.recv();
            // Each message before the next one, so the order is the same for everybody.
            assert!(received.len() == 1 && is_message(&received[0]), "{number}: {received:?}");
            copies += 1;
        }
    }
    assert_eq!((removals, copies), (1, MESSAGES * others.len()));
    let held = live_bytes() - before;
    println!("{held} bytes after {MESSAGES} messages of 10 kB to {CROWD}");
    // The queue of the slow one, the history, and what grows to its size once.
    assert!(held < 2_000_000, "{held} bytes");
    let waiting: Vec<String> = slow.recv();
    let bytes: usize = waiting.iter().map(String::len).sum();
    assert!(bytes < QUEUE as usize + 20_000, "{bytes} bytes waited");
    assert!(waiting[0].contains("<body>0 "), "what it had received stays in order");
    assert!(crone.request(&message("next")).concat().contains("next"));
    assert!(!slow.recv().concat().contains("<body>next"), "it is not in the room any more");
}

#[test]
fn a_storm_of_ten_thousand_joins_and_leaves_costs_each_the_same_and_leaves_nothing() {
    let play = play(NodeLimits::default());
    let crone = play.room("");
    let crowd = connect(&play);
    // What clients and the room need once.
    enter_all(&crowd, &crone);
    let leave = |crone: &NodeClient| {
        for (n, client) in crowd.iter().enumerate() {
            client.send(&format!("<presence to='{ROOM}/u{n}' type='unavailable'/>"));
            assert!(client.recv().concat().contains("<status code='110'/>"), "{n}");
            // Some are shown when only a few are left.
            crone.recv();
        }
        crowd.iter().for_each(|client| forget(&[client]));
    };
    leave(&crone);
    let before = live_bytes();
    // The announced, the own presence, the subject; and the moderator.
    let most = enter_all(&crowd, &crone);
    assert!(most <= ANNOUNCED as usize + 3, "{most} stanzas");
    let full = live_bytes() - before;
    println!("{} bytes an occupant", full / CROWD as isize);
    assert!(full < CROWD as isize * 350, "{full} bytes of {CROWD} occupants");
    leave(&crone);
    let left = live_bytes() - before;
    println!("{left} bytes are left");
    assert!(left < 200_000, "{left} bytes are left");
    let items =
        request(&crone, "get", ROOM, "<query xmlns='http://jabber.org/protocol/disco#items'/>").concat();
    assert_eq!(items.matches("<item ").count(), 1, "{items}");
}

#[test]
fn ten_thousand_joins_of_one_user_under_different_nicknames_are_as_many_occupants_as_sessions() {
    let play = play(NodeLimits::default());
    let crone = play.room("");
    // More sessions of an account end others of them.
    let limit = NodeLimits::default().sessions_per_account;
    let sessions: Vec<NodeClient> =
        (0..limit).map(|n| play.engine.connect("hag66", &format!("r{n}"))).collect();
    let wicca = play.wicca();
    enter(&wicca, "secondwitch");
    let participants =
        || admin(&crone, "get", "<item role='participant'/>").concat().matches("<item ").count();
    let mut before = 0;
    for number in 0..10_000 {
        let session = &sessions[number % sessions.len()];
        session.send(&format!("<presence to='{ROOM}/witch{number}'>{MUC}</presence>"));
        sessions.iter().for_each(|one| forget(&[one]));
        forget(&[&crone, &wicca]);
        if number == 1_000 {
            before = live_bytes();
        }
    }
    // The neighbour, too.
    assert_eq!(participants(), sessions.len() + 1);
    let more = live_bytes() - before;
    println!("{more} bytes after further 9 000 nicknames");
    assert!(more < 100_000, "{more} bytes after further 9 000 nicknames");
    crone.send(&message("Harpier cries."));
    assert_eq!(wicca.recv().len(), 1);
}
