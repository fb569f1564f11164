//! Lists of 100 000 affiliations: what is stored, what is in memory, and what clients receive. Counts and sizes, no times.

use counting_allocator::live_bytes;
use jid::Jid;

use super::*;

const MEMBERS: usize = 100_000;
/// Bytes of a member of a large room, with an address of 18 bytes.
const MEMBER_BYTES: isize = 60;

fn stored_state(play: &Shakespeare) -> (usize, usize) {
    let room = Jid::parse(ROOM).unwrap();
    let stored = play.engine.block_on(play.engine.stores.rooms.load(room.as_ref(), 0)).unwrap().unwrap();
    (stored.record.state.len(), stored.affiliations.len())
}

fn set(crone: &NodeClient, from: usize, affiliation: &str) {
    let items: String = (from..from + 100)
        .map(|n| format!("<item affiliation='{affiliation}' jid='u{n}@example.com'/>"))
        .collect();
    let answer = admin(crone, "set", &items).pop().unwrap();
    assert!(answer.contains("type='result'"), "{from}: {answer}");
}

/// A page of the members; the addresses and the number of all.
fn page(client: &NodeClient, set: &str) -> (Vec<String>, usize) {
    let set = match set {
        "" => String::new(),
        set => format!("<set xmlns='http://jabber.org/protocol/rsm'>{set}</set>"),
    };
    let answer = admin(client, "get", &format!("<item affiliation='member'/>{set}")).concat();
    let members = answer.split(" jid='").skip(1).map(|rest| rest.split('\'').next().unwrap().to_owned());
    let count = answer.split_once("<count>").unwrap_or_else(|| panic!("{answer}")).1;
    (members.collect(), count.split('<').next().unwrap().parse().unwrap())
}

#[test]
fn a_hundred_thousand_members_are_set_listed_admitted_and_removed() {
    let play = Shakespeare::with(&[
        ("affiliations", OptionValue::Int(200_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ]);
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    let (state, _) = stored_state(&play);
    for batch in 0..MEMBERS / 100 {
        set(&crone, batch * 100, "member");
    }
    assert_eq!(
        stored_state(&play),
        (state, 1_000),
        "the state has no lists, and the store gives a part of them"
    );
    // What a room in use has in memory beyond one that is not.
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    let before = live_bytes();
    assert!(enter(&crone, "firstwitch").concat().contains("affiliation='owner'"));
    let loaded = live_bytes() - before;
    println!("{loaded} bytes of a room with {MEMBERS} members");
    assert!(loaded <= MEMBERS as isize * MEMBER_BYTES, "{loaded} bytes");
    // A client that does not know pages gets the first one.
    let (first, count) = page(&crone, "");
    assert_eq!((first.len(), count), (1_000, MEMBERS));
    let mut seen = std::collections::BTreeSet::new();
    let mut after = String::new();
    loop {
        let (members, _) = page(&crone, &format!("<max>1000</max>{after}"));
        let Some(last) = members.last() else { break };
        after = format!("<after>{last}</after>");
        seen.extend(members);
    }
    assert_eq!(seen.len(), MEMBERS);
    let (last, _) = page(&crone, "<max>3</max><before/>");
    let (previous, _) = page(&crone, &format!("<max>3</max><before>{}</before>", last[0]));
    let (by_index, _) = page(&crone, &format!("<max>6</max><index>{}</index>", MEMBERS - 6));
    assert_eq!(by_index, [previous, last].concat());
    assert_eq!(page(&crone, "<max>0</max>"), (Vec::new(), MEMBERS));
    assert!(configure(&crone, &field("muc#roomconfig_membersonly", "1")).contains("type='result'"));
    let (state, _) = stored_state(&play);
    let member = play.engine.connect_anonymous("u77777", "r");
    assert!(enter(&member, "member").concat().contains("affiliation='member'"));
    let outsider = play.engine.connect_anonymous("u100000", "r");
    assert_error(&enter(&outsider, "outsider"), "auth", "registration-required");
    forget(&[&crone, &member]);
    // The lists are too long for a room without the store.
    let temporary = configure(&crone, &field("muc#roomconfig_persistentroom", "0"));
    assert!(temporary.contains(&refusal("modify", "not-acceptable")), "{temporary}");
    for batch in 0..MEMBERS / 100 {
        set(&crone, batch * 100, "none");
        forget(&[&member]);
    }
    assert_eq!(page(&crone, "<max>9</max>"), (Vec::new(), 0));
    assert_eq!(stored_state(&play), (state, 1));
    // Lists that are short again are in memory.
    let temporary = configure(&crone, &field("muc#roomconfig_persistentroom", "0"));
    assert!(temporary.contains("type='result'"), "{temporary}");
    assert_error(&enter(&member, "member"), "auth", "registration-required");
}

#[test]
fn a_change_of_a_list_writes_one_row_and_not_the_room() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    set(&crone, 0, "outcast");
    let room = Jid::parse(ROOM).unwrap();
    // What the room does not write again stays as somebody else has left it.
    let rooms = &play.engine.stores.rooms;
    let mut record = play.engine.block_on(rooms.load(room.as_ref(), 0)).unwrap().unwrap().record;
    record.title = "written by the test".to_owned();
    let update = store::RoomUpdate { record: Some(record), ..Default::default() };
    play.engine.block_on(rooms.update(room.as_ref(), update, None)).unwrap();
    admin(&crone, "set", "<item affiliation='none' jid='u7@example.com'/>");
    admin(&crone, "set", "<item affiliation='member' jid='u8@example.com' nick='eighth'/>");
    let stored = play.engine.block_on(rooms.load(room.as_ref(), 0)).unwrap().unwrap();
    assert_eq!((&*stored.record.title, stored.affiliations.len()), ("written by the test", 100));
    let eighth = stored.affiliations.iter().find(|one| one.user.local() == Some("u8")).unwrap();
    assert_eq!((eighth.affiliation, &*eighth.nick), (2, "eighth"));
}

#[test]
fn xep_0059_section_2_4_a_position_is_a_user_of_the_list() {
    let play = Shakespeare::with(&[("stanzas_per_second_per_sender", OptionValue::Int(0))]);
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    for from in (0..1_100).step_by(100) {
        set(&crone, from, "member");
    }
    admin(&crone, "set", "<item affiliation='outcast' jid='hag66@example.com'/>");
    let list = |position: &str| {
        let set = format!("<set xmlns='http://jabber.org/protocol/rsm'><max>1</max>{position}</set>");
        admin(&crone, "get", &format!("<item affiliation='member'/>{set}"))
    };
    // An account, an address of another list and one that is nowhere: the answers do not tell them apart.
    for user in ["hecate@example.com", "hag66@example.com", "nobody@example.com", "crone1@example.com", "@"] {
        for position in ["after", "before"] {
            let answer = list(&format!("<{position}>{user}</{position}>"));
            assert_error(&answer, "cancel", "item-not-found");
        }
    }
    assert_eq!(list("<after>u7@example.com</after>").concat().matches("<item ").count(), 1);
    let two = admin(&crone, "get", "<item affiliation='member'/><item affiliation='outcast'/>");
    assert_error(&two, "modify", "bad-request");
}

#[test]
fn half_of_the_bytes_of_long_lists_is_for_users_who_are_invited() {
    let play = Shakespeare::with(&[
        ("affiliations", OptionValue::Int(100_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ]);
    let fields = field("muc#roomconfig_persistentroom", "1") + &field("muc#roomconfig_membersonly", "1");
    let crone = play.room(&fields);
    play.engine.node.set_admins([Jid::parse("wiccarocks@example.com").unwrap()]);
    let wicca = play.wicca();
    // 600 kB of several MB.
    for batch in 0..60 {
        let items: String = (0..100)
            .map(|n| {
                let user = format!("{}{}", "x".repeat(85), batch * 100 + n);
                format!("<item affiliation='member' jid='{user}@example.com'/>")
            })
            .collect();
        // Invitations to users that do not exist come back after it.
        let answer = admin(&wicca, "set", &items).concat();
        assert!(answer.contains("type='result'"), "{answer}");
    }
    let invite = "<invite to='hecate@example.com'/>";
    let message =
        format!("<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'>{invite}</x></message>");
    assert_eq!(crone.request(&message).concat().matches("type='error'").count(), 0);
    assert!(enter(&play.hecate(), "hecate").concat().contains("affiliation='member'"));
}
