//! Bounds: rooms, nicknames, lists, occupants, presence of large rooms; who may create rooms.

use testkit::assert_same;

use super::*;

#[test]
fn rooms_are_created_by_those_who_may_and_up_to_the_limits() {
    let play = Shakespeare::with(&[("rooms_per_user", OptionValue::Int(1))]);
    let crone = play.room("");
    let heath = "heath@conference.example.com/firstwitch";
    let refused = crone.request(&format!("<presence to='{heath}'>{MUC}</presence>"));
    assert_error(&refused, "cancel", "not-allowed");
    let play = Shakespeare::with(&[("creation", OptionValue::Text("admins".into()))]);
    let hag = play.hag();
    assert_error(&enter(&hag, "thirdwitch"), "cancel", "not-allowed");
    play.engine.node.set_admins([jid::Jid::parse("hag66@example.com").unwrap()]);
    assert!(enter(&hag, "thirdwitch").concat().contains("<status code='201'/>"));
    let anonymous = Shakespeare::new();
    let guest = anonymous.engine.connect_anonymous("guest", "web");
    assert_error(&enter(&guest, "guest"), "cancel", "not-allowed");
}

#[test]
fn long_nicknames_and_subjects_are_refused() {
    let play =
        Shakespeare::with(&[("nick_bytes", OptionValue::Int(11)), ("subject_bytes", OptionValue::Int(8))]);
    let crone = play.room("");
    let hag = play.hag();
    assert_error(&enter(&hag, "the third witch"), "modify", "not-acceptable");
    enter(&hag, "thirdwitch");
    assert_error(
        &hag.request(&format!("<presence to='{ROOM}/the third witch'/>")),
        "modify",
        "not-acceptable",
    );
    forget(&[&crone]);
    let long = format!("<message to='{ROOM}' type='groupchat'><subject>cauldrons</subject></message>");
    assert_error(&crone.request(&long), "modify", "not-acceptable");
}

#[test]
fn nicknames_that_administrators_reserve_are_prepared_and_bounded() {
    let play = Shakespeare::with(&[("nick_bytes", OptionValue::Int(11))]);
    let crone = play.room("");
    let member = |user: &str, nick: &str| {
        format!("<item affiliation='member' jid='{user}@example.com' nick='{nick}'/>")
    };
    assert_error(&admin(&crone, "set", &member("hag66", "the third witch")), "modify", "not-acceptable");
    // The same letters, one of them decomposed (RFC 7622, section 3.4.1: NFC).
    assert!(!admin(&crone, "set", &member("hag66", "sorcie\u{300}re")).concat().contains("<error"));
    let listed = admin(&crone, "get", "<item affiliation='member'/>").concat();
    assert!(listed.contains("nick='sorci\u{e8}re'"), "{listed}");
    assert_error(&enter(&play.wicca(), "sorci\u{e8}re"), "cancel", "conflict");
    assert_error(&enter(&play.hecate(), "sorcie\u{300}re"), "cancel", "conflict");
    assert_error(&admin(&crone, "set", &member("hecate", "sorci\u{e8}re")), "cancel", "conflict");
    assert_error(&admin(&crone, "set", &member("hecate", "sorcie\u{300}re")), "cancel", "conflict");
    // A banned user has no reserved nickname.
    let banned = "<item affiliation='outcast' jid='hecate@example.com' nick='the first of all witches'/>";
    assert!(!admin(&crone, "set", banned).concat().contains("<error"));
    let listed = admin(&crone, "get", "<item affiliation='outcast'/>").concat();
    assert!(listed.contains("hecate") && !listed.contains("nick="), "{listed}");
}

#[test]
fn nicknames_of_approved_registrations_are_prepared_and_bounded() {
    let play = Shakespeare::with(&[("nick_bytes", OptionValue::Int(11))]);
    let crone = play.room("");
    let approve = |nick: &str| {
        let fields = [
            field("FORM_TYPE", "http://jabber.org/protocol/muc#register"),
            field("muc#jid", "hag66@example.com"),
            field("muc#register_roomnick", nick),
            field("muc#register_allow", "1"),
        ];
        let form = format!("<x xmlns='jabber:x:data' type='submit'>{}</x>", fields.concat());
        crone.request(&format!("<message to='{ROOM}'>{form}</message>"))
    };
    assert_error(&approve("the third witch"), "modify", "not-acceptable");
    approve("sorcie\u{300}re");
    let listed = admin(&crone, "get", "<item affiliation='member'/>").concat();
    assert!(listed.contains("nick='sorci\u{e8}re'"), "{listed}");
    assert_error(&enter(&play.wicca(), "sorci\u{e8}re"), "cancel", "conflict");
}

#[test]
fn lists_of_affiliations_are_bounded() {
    let play = Shakespeare::with(&[("affiliations", OptionValue::Int(3))]);
    let crone = play.room("");
    let members = |from: usize| -> String {
        (from..from + 2).map(|n| format!("<item affiliation='member' jid='u{n}@example.com'/>")).collect()
    };
    assert!(!admin(&crone, "set", &members(0)).concat().contains("<error"));
    assert_error(&admin(&crone, "set", &members(2)), "wait", "resource-constraint");
}

#[test]
fn invitations_of_users_are_bounded_until_they_are_accepted() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let users: Vec<NodeClient> = (0..61)
        .map(|number| {
            let user = format!("u{number}");
            play.engine.create_user(&user);
            play.engine.connect(&user, "x")
        })
        .collect();
    let invite = |client: &NodeClient, users: std::ops::Range<usize>| {
        let invitations: String = users.map(|user| format!("<invite to='u{user}@example.com/x'/>")).collect();
        client.request(&format!(
            "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'>{invitations}</x></message>"
        ))
    };
    assert!(invite(&hag, 0..20).is_empty() && invite(&hag, 20..40).is_empty());
    assert_error(&invite(&hag, 40..55), "wait", "resource-constraint");
    assert_error(&invite(&hag, 40..61), "modify", "not-acceptable");
    // Everybody owns the rooms that he creates, so owners have the same limit.
    assert!(invite(&crone, 0..20).is_empty() && invite(&crone, 20..40).is_empty());
    assert_error(&invite(&crone, 40..60), "wait", "resource-constraint");
    play.engine.node.set_admins([jid::Jid::parse("crone1@example.com").unwrap()]);
    assert!(invite(&crone, 40..60).is_empty(), "administrators of the node are exempt");
    enter(&users[0], "u0");
    forget(&[&hag]);
    assert!(invite(&hag, 40..51).is_empty());
}

#[test]
fn presence_of_a_large_room_goes_to_moderators_and_to_the_occupant() {
    let play = Shakespeare::with(&[("presence_occupants", OptionValue::Int(2))]);
    let crone = play.room("");
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    let received = enter(&hag, "thirdwitch");
    assert_eq!(received.len(), 4, "the announced occupants, itself and the subject");
    assert_eq!((crone.recv().len(), wicca.recv().len()), (1, 0));
    hag.send(&format!("<presence to='{ROOM}/thirdwitch' type='unavailable'/>"));
    assert_eq!((crone.recv().len(), wicca.recv().len()), (1, 0));
}

#[test]
fn the_presence_of_chosen_roles_is_broadcast() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_presencebroadcast", "moderator"));
    let (wicca, hag) = (play.wicca(), play.hag());
    assert_eq!(enter(&wicca, "secondwitch").len(), 3);
    forget(&[&crone]);
    assert_eq!(enter(&hag, "thirdwitch").len(), 3, "the moderator, itself and the subject");
    assert_eq!((crone.recv().len(), wicca.recv().len()), (1, 0));
}

#[test]
fn an_occupant_whose_role_is_not_broadcast_any_more_is_shown_as_gone() {
    let play = Shakespeare::new();
    let roles = |names: &[&str]| {
        let values: String = names.iter().map(|name| format!("<value>{name}</value>")).collect();
        format!("<field var='muc#roomconfig_presencebroadcast'>{values}</field>")
    };
    let crone = play.room(&roles(&["moderator", "participant"]));
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    enter(&hag, "thirdwitch");
    forget(&[&crone, &wicca]);
    let is_gone = [gone(&wicca, "thirdwitch", &item("none", "none"), &[])];
    admin(&crone, "set", "<item nick='thirdwitch' role='visitor'/>");
    assert_same(&masked(wicca.recv()), &is_gone);
    assert!(!hag.recv().concat().contains("unavailable"));
    admin(&crone, "set", "<item nick='thirdwitch' role='participant'/>");
    let received = wicca.recv().concat();
    assert!(received.contains("role='participant'") && !received.contains("unavailable"), "{received}");
    configure(&crone, &roles(&["moderator"]));
    let received = wicca.recv();
    assert!(received[0].contains("/thirdwitch'") && received[0].contains("unavailable"), "{received:?}");
    configure(&crone, &roles(&["moderator", "participant"]));
    let received = wicca.recv();
    assert!(received.len() == 3 && !received[1].contains("unavailable"), "{received:?}");
}

#[test]
fn a_reload_changes_limits_of_rooms_that_exist() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let mut options = FeatureOptions::defaults(FEATURE.options);
    options.set(FEATURE.options, "nick_bytes", OptionValue::Int(4)).unwrap();
    let domains = ["example.com", "example.net"];
    play.engine.reload(&domains, &[EnabledFeature { feature: &FEATURE, options }]);
    assert_error(&enter(&play.hag(), "thirdwitch"), "modify", "not-acceptable");
    assert_eq!(
        crone.request(&format!("<message to='{ROOM}' type='groupchat'><body>x</body></message>")).len(),
        1
    );
}

#[test]
fn the_memory_of_rooms_that_one_user_has_created_is_bounded() {
    let play = Shakespeare::with(&[
        ("memory_per_user", OptionValue::Int(200_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ]);
    let (crone, hag) = (play.crone(), play.hag());
    let join = |client: &NodeClient, room: &str| {
        let to = format!("{room}@conference.example.com");
        let entered = client.request(&format!("<presence to='{to}/witch'>{MUC}</presence>")).concat();
        let form = "<x xmlns='jabber:x:data' type='submit'/>";
        request(
            client,
            "set",
            &to,
            &format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{form}</query>"),
        );
        entered
    };
    let say = |client: &NodeClient, room: &str, count: usize| {
        let body = "x".repeat(10_000);
        for _ in 0..count {
            client.send(&format!(
                "<message to='{room}@conference.example.com' type='groupchat'><body>{body}</body></message>"
            ));
            client.recv();
        }
    };
    let rooms = ["a", "b", "c", "d", "e"];
    for room in rooms {
        assert!(join(&crone, room).contains("<status code='201'/>"));
    }
    assert!(join(&hag, "heath").contains("<status code='201'/>"));
    say(&crone, "a", 2);
    let before = counting_allocator::live_bytes();
    rooms.iter().for_each(|room| say(&crone, room, 40));
    let more = counting_allocator::live_bytes() - before;
    assert!(more < 300_000, "{more} bytes of 2 MB");
    // Others have their own.
    say(&hag, "heath", 15);
    let again =
        play.wicca().request(&format!("<presence to='heath@conference.example.com/w'>{MUC}</presence>"));
    assert_eq!(again.concat().matches("<body>").count(), 15);
}

#[test]
fn users_who_are_invited_fill_half_of_the_bytes_of_the_lists() {
    let play = Shakespeare::with(&[
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
        ("invitations_per_hour", OptionValue::Int(1_000_000)),
    ]);
    let fields = [field("muc#roomconfig_membersonly", "1"), field("muc#roomconfig_allowinvites", "1")];
    let crone = play.room(&fields.concat());
    play.engine.node.set_admins([jid::Jid::parse("hag66@example.com").unwrap()]);
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    admin(&crone, "set", "<item affiliation='member' jid='hag66@example.com'/>");
    play.engine.node.set_admins([]);
    play.engine.advance(1);
    forget(&[&crone, &hag]);
    let long = "x".repeat(1_000);
    let refused = (0..2_000).find(|number| {
        let invite = format!("<invite to='{long}{number}@example.com'/>");
        let message = format!(
            "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'>{invite}</x></message>"
        );
        let answer = hag.request(&message).concat();
        forget(&[&crone]);
        // They do not exist, which frees the pending invitations.
        answer.contains("resource-constraint")
    });
    assert!((400..600).contains(&refused.expect("a limit")), "{refused:?}");
    let ban = format!("<item affiliation='outcast' jid='{long}@example.org'/>");
    assert!(!admin(&crone, "set", &ban).concat().contains("<error"));
}

#[test]
fn what_waits_for_answers_counts_as_memory_of_the_creator_and_ids_are_bounded() {
    let play = Shakespeare::with(&[
        ("memory_per_user", OptionValue::Int(150_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ]);
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    let to = format!("{ROOM}/firstwitch");
    let iq = |id: &str| {
        let payload = "<query xmlns='jabber:iq:version'/>";
        hag.request(&format!("<iq type='get' to='{to}' id='{id}'>{payload}</iq>"))
    };
    assert_error(&iq(&"i".repeat(1_025)), "modify", "not-acceptable");
    let create = |room: &str| {
        let to = format!("{room}@conference.example.com/witch");
        crone.request(&format!("<presence to='{to}'>{MUC}</presence>")).concat()
    };
    assert!(create("heath").contains("<status code='201'/>"));
    for number in 0..150 {
        let id = format!("{number:03}{}", "i".repeat(1_000));
        if number < 32 {
            iq(&id);
        }
        hag.send(&format!("<message to='{to}' type='chat' id='{id}'><body>x</body></message>"));
        forget(&[&crone]);
    }
    let refused = create("moor");
    assert!(refused.contains("<not-allowed "), "{refused}");
    // They expire.
    play.engine.advance(301);
    iq("last");
    hag.send(&format!("<message to='{to}' type='chat' id='last'><body>x</body></message>"));
    forget(&[&crone]);
    assert!(create("moor").contains("<status code='201'/>"));
}

#[test]
fn users_are_banned_although_the_rooms_of_the_creator_take_too_much_memory() {
    let play = Shakespeare::with(&[
        ("memory_per_user", OptionValue::Int(150_000)),
        ("stanzas_per_second_per_sender", OptionValue::Int(0)),
    ]);
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    let body = "x".repeat(10_000);
    // What a room has after an input above the bound is less, so it is above it at some inputs only.
    let change = |number: usize, affiliation: &str| {
        hag.send(&format!("<message to='{ROOM}' type='groupchat'><body>{body}</body></message>"));
        forget(&[&crone, &hag]);
        let user = format!("{affiliation}{number}@example.org");
        admin(&crone, "set", &format!("<item affiliation='{affiliation}' jid='{user}'/>")).concat()
    };
    let answers: Vec<String> = (0..50).map(|number| change(number, "member")).collect();
    assert!(answers.iter().any(|answer| answer.contains("<resource-constraint ")), "{answers:?}");
    for number in 0..50 {
        let answer = change(number, "outcast");
        assert!(answer.contains("type='result'"), "{number}: {answer}");
    }
}
