//! Memory of occupants and rooms, and allocations of a copy of a message. Bytes are as requested: the allocator adds some to each.

use std::ops::Range;

use counting_allocator::{count, live_bytes};
use feature_api::feature::OptionValue;
use testkit::NodeClient;

use super::{MUC, Shakespeare};

/// Bytes of an occupant beyond its session, with a nickname and addresses of 5 to 30 octets.
const OCCUPANT_BYTES: isize = 250;
/// Bytes of a room beyond its occupants.
const ROOM_BYTES: isize = 1_650;
const CAPS: &str = "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='https://gajim.org' \
                    ver='q07IKJEyjvHSyhy//CH0CxmKi8w='/>";

fn clients(engine: &Shakespeare, count: usize) -> Vec<NodeClient> {
    (0..count).map(|n| engine.engine.connect_anonymous(&format!("u{n}"), "r")).collect()
}

fn many_occupants() -> Shakespeare {
    Shakespeare::with(&[
        ("occupants", OptionValue::Int(5_000)),
        ("presence_occupants", OptionValue::Int(5_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ])
}

/// A room that everybody may enter, without occupants other than its owner.
fn open_room(engine: &Shakespeare, owner: &NodeClient, room: &str) {
    owner.send(&format!("<presence to='{room}@conference.example.com/owner'>{MUC}</presence>"));
    owner.request(&format!(
        "<iq type='set' to='{room}@conference.example.com' id='c'><query xmlns='http://jabber.org/protocol/muc#owner'>\
         <x xmlns='jabber:x:data' type='submit'/></query></iq>"
    ));
    engine.engine.run_tasks();
}

/// Joins, and drains the queues.
fn fill(engine: &Shakespeare, all: &[NodeClient], range: Range<usize>, room: &str) {
    for n in range.clone() {
        all[n].send(&format!("<presence to='{room}@conference.example.com/u{n}'>{MUC}{CAPS}</presence>"));
        engine.engine.run_tasks();
        if n % 64 == 63 || n + 1 == range.end {
            all[..range.end].iter().for_each(|client| drop(client.recv()));
        }
    }
}

#[test]
fn an_occupant_with_standard_presence_is_small() {
    const OCCUPANTS: usize = 700;
    let engine = many_occupants();
    let (owner, clients) = (engine.crone(), clients(&engine, OCCUPANTS));
    // What a client needs for its first stanza is not an occupant's, and what the first ones need is the room's.
    open_room(&engine, &owner, "other");
    fill(&engine, &clients, 0..OCCUPANTS, "other");
    open_room(&engine, &owner, "large");
    fill(&engine, &clients, 0..20, "large");
    owner.recv();
    let before = live_bytes();
    fill(&engine, &clients, 20..OCCUPANTS, "large");
    owner.recv();
    let each = (live_bytes() - before) / (OCCUPANTS as isize - 20);
    println!("{each} bytes an occupant");
    assert!(each <= OCCUPANT_BYTES, "{each} bytes an occupant");
}

#[test]
fn a_room_of_20_is_small() {
    const ROOMS: isize = 40;
    let engine = many_occupants();
    let (owner, clients) = (engine.crone(), clients(&engine, 19));
    let fill = |room: &str| {
        open_room(&engine, &owner, room);
        fill(&engine, &clients, 0..19, room);
        owner.recv();
    };
    (0..10).for_each(|n| fill(&format!("first{n}")));
    let before = live_bytes();
    (0..ROOMS).for_each(|n| fill(&format!("room{n}")));
    let each = (live_bytes() - before) / ROOMS;
    println!("{each} bytes a room of 20");
    assert!(each <= ROOM_BYTES + 20 * OCCUPANT_BYTES, "{each} bytes a room of 20");
}

#[test]
fn copies_of_a_message_need_no_allocations() {
    const OCCUPANTS: usize = 500;
    let engine = many_occupants();
    let (owner, clients) = (engine.crone(), clients(&engine, OCCUPANTS));
    open_room(&engine, &owner, "large");
    fill(&engine, &clients, 0..OCCUPANTS, "large");
    owner.recv();
    let message = "<message type='groupchat' to='large@conference.example.com' id='1'><body>Harpier cries</body></message>";
    let allocations = count(|| {
        clients[1].send(message);
        engine.engine.run_tasks();
    });
    assert!(clients[7].recv().concat().contains("Harpier cries"));
    println!("{allocations} allocations of a message to {OCCUPANTS}");
    assert!(allocations <= OCCUPANTS / 5, "{allocations} allocations of a message to {OCCUPANTS}");
}
