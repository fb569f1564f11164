//! Hostile use of rooms: the condition of each refusal, bounded state, and neighbours that notice nothing.

use super::*;

/// A node that does not limit the rate of stanzas, so that floods reach the rooms.
fn without_rate(options: &[(&str, OptionValue)]) -> Shakespeare {
    let mut all = vec![("stanzas_per_second_per_sender", OptionValue::Int(0))];
    all.extend_from_slice(options);
    Shakespeare::with(&all)
}

/// Nicknames in the room, as disco#items shows them.
fn nicks(client: &NodeClient) -> Vec<String> {
    let items =
        request(client, "get", ROOM, "<query xmlns='http://jabber.org/protocol/disco#items'/>").concat();
    let nick = |item: &str| item.split('\'').next().unwrap().to_owned();
    items.split(&format!("jid='{ROOM}/")).skip(1).map(nick).collect()
}

fn message(body: &str) -> String {
    format!("<message to='{ROOM}' type='groupchat'><body>{body}</body></message>")
}

fn leave(nick: &str) -> String {
    format!("<presence to='{ROOM}/{nick}' type='unavailable'/>")
}

/// The neighbour receives a message of the owner, and nothing else.
#[track_caller]
fn assert_undisturbed(owner: &NodeClient, neighbour: &NodeClient) {
    forget(&[owner, neighbour]);
    owner.send(&message("Harpier cries."));
    let received = neighbour.recv();
    assert!(received.len() == 1 && received[0].contains("Harpier cries."), "{received:?}");
    assert_eq!(owner.recv().len(), 1);
}

#[test]
fn a_storm_of_joins_and_leaves_leaves_nothing_behind() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&wicca, "secondwitch");
    for _ in 0..1_000 {
        enter(&hag, "thirdwitch");
        hag.request(&leave("thirdwitch"));
        forget(&[&crone, &wicca]);
    }
    assert_eq!(nicks(&crone), ["firstwitch", "secondwitch"]);
    assert_undisturbed(&crone, &wicca);
}

#[test]
fn ten_thousand_joins_of_one_session_under_different_nicknames_are_one_occupant() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let hag = play.hag();
    for number in 0..10_000 {
        hag.send(&format!("<presence to='{ROOM}/witch{number}'>{MUC}</presence>"));
        forget(&[&crone, &hag]);
    }
    assert_eq!(nicks(&crone), ["firstwitch", "witch9999"]);
    assert_undisturbed(&crone, &hag);
}

#[test]
fn a_nickname_that_flaps_is_one_occupant_and_frees_the_names_it_had() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "a");
    for number in 0..1_000 {
        hag.send(&format!("<presence to='{ROOM}/{}'/>", if number % 2 == 0 { "b" } else { "a" }));
        forget(&[&crone, &hag]);
    }
    assert_eq!(nicks(&crone), ["a", "firstwitch"]);
    assert!(enter(&wicca, "b").concat().contains("<status code='110'/>"));
    assert_undisturbed(&crone, &wicca);
}

#[test]
fn huge_subjects_and_configurations_are_refused_and_change_nothing() {
    let play = without_rate(&[]);
    let crone = play.room(&field("muc#roomconfig_roomname", "Cave"));
    let wicca = play.wicca();
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    let long = "x".repeat(20_000);
    let subject = format!("<message to='{ROOM}' type='groupchat'><subject>{long}</subject></message>");
    assert_error(&crone.request(&subject), "modify", "not-acceptable");
    let protected = field("muc#roomconfig_passwordprotectedroom", "1");
    for var in ["roomname", "roomdesc", "roomsecret", "lang", "pubsub"] {
        let refused =
            configure(&crone, &(protected.clone() + &field(&format!("muc#roomconfig_{var}"), &long)));
        assert!(refused.contains("type='error'"), "{var}: {refused}");
    }
    let owners: String = (0..1_200).map(|number| format!("<value>u{number}@example.com</value>")).collect();
    let owners = format!("<field var='muc#roomconfig_roomowners'>{owners}</field>");
    assert!(configure(&crone, &owners).contains("type='error'"));
    assert!(super::owner(&crone, "get", "")[0].contains("<value>Cave</value>"));
    assert_undisturbed(&crone, &wicca);
}

#[test]
fn lists_of_a_hundred_thousand_affiliations_end_at_the_bound_of_bytes() {
    let play = without_rate(&[("affiliations", OptionValue::Int(200_000))]);
    let crone = play.room("");
    let wicca = play.wicca();
    enter(&wicca, "secondwitch");
    let mut refused = None;
    for batch in 0..1_000 {
        let name = |number: usize| format!("a-user-with-a-long-name-{}", batch * 100 + number);
        let items: String = (0..100)
            .map(|number| format!("<item affiliation='outcast' jid='{}@example.com'/>", name(number)))
            .collect();
        let answer = admin(&crone, "set", &items).concat();
        forget(&[&wicca]);
        if answer.contains("<error") {
            refused = Some((batch, answer));
            break;
        }
    }
    let (batch, answer) = refused.expect("the lists are bounded");
    assert!(answer.contains(&refusal("wait", "resource-constraint")), "{answer}");
    assert!((200..400).contains(&batch), "{batch}");
    // Removing is possible.
    let remove = "<item affiliation='none' jid='a-user-with-a-long-name-0@example.com'/>";
    assert!(!admin(&crone, "set", remove).concat().contains("<error"));
    assert_undisturbed(&crone, &wicca);
}

#[test]
fn homographs_of_nicknames_and_addresses_are_the_same_name() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "sorci\u{e8}re");
    forget(&[&crone]);
    // Decomposed: the prepared form is the same (RFC 7622, section 3.4.1).
    assert_error(&enter(&play.wicca(), "sorcie\u{300}re"), "cancel", "conflict");
    // A ban of an address in another spelling is that of the user.
    admin(&crone, "set", "<item affiliation='outcast' jid='ＨＥＣＡＴＥ@EXAMPLE.com'/>");
    assert_error(&enter(&play.hecate(), "hecate"), "auth", "forbidden");
    // Letters of another script are another name (section 17.1 leaves them to clients).
    assert!(enter(&play.wicca(), "wіtch").concat().contains("<status code='110'/>"));
}

#[test]
fn messages_of_others_and_forged_senders_do_not_reach_the_room() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let (hag, hecate) = (play.hag(), play.hecate());
    enter(&hag, "thirdwitch");
    forget(&[&crone, &hag]);
    assert_error(&hecate.request(&message("x")), "modify", "not-acceptable");
    let private = format!("<message to='{ROOM}/thirdwitch' type='chat'><body>x</body></message>");
    assert_error(&hecate.request(&private), "modify", "not-acceptable");
    // The stream of a client does not send in the name of another one.
    for from in ["crone1@example.com/desktop".to_owned(), format!("{ROOM}/firstwitch")] {
        let forged = message("x").replacen("<message ", &format!("<message from='{from}' "), 1);
        let sent = hecate.try_send(&forged);
        let answered = hecate.recv().concat();
        assert!(sent.is_err() || answered.contains("type='error'"), "{from}: {answered}");
    }
    assert!(crone.recv().is_empty() && hag.recv().is_empty());
}

#[test]
fn a_flood_of_presence_of_one_occupant_is_bounded_by_its_rate() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone, &wicca]);
    for number in 0..2_000 {
        hag.send(&format!("<presence to='{ROOM}/thirdwitch'><status>{number}</status></presence>"));
    }
    let received = wicca.recv().len();
    assert!((100..600).contains(&received), "{received}: the burst of ten seconds");
    assert_undisturbed(&crone, &wicca);
}

#[test]
fn long_presence_is_passed_on_without_its_content() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let long = "x".repeat(20_000);
    hag.send(&format!("<presence to='{ROOM}/thirdwitch'><status>{long}</status></presence>"));
    let received = crone.recv().concat();
    assert!(received.contains("/thirdwitch") && !received.contains("xxx"), "{received}");
}

#[test]
fn floods_of_room_names_end_at_the_limit_of_the_user_and_leave_others_their_rooms() {
    let play = without_rate(&[("rooms_per_user", OptionValue::Int(100))]);
    let (crone, hag) = (play.crone(), play.hag());
    let mut created = 0;
    for number in 0..1_000 {
        let received = crone
            .request(&format!("<presence to='room{number}@conference.example.com/crone'>{MUC}</presence>"))
            .concat();
        if received.contains("<status code='201'/>") {
            created += 1;
        } else {
            assert!(received.contains(" type='cancel'><not-allowed "), "{received}");
        }
    }
    assert_eq!(created, 100);
    assert!(enter(&hag, "thirdwitch").concat().contains("<status code='201'/>"));
    // Presence without entering, and requests, make no room.
    for number in 0..1_000 {
        let room = format!("other{number}@conference.example.com");
        hag.request(&format!("<presence to='{room}/x'/>"));
        request(&hag, "get", &room, "<query xmlns='http://jabber.org/protocol/disco#info'/>");
    }
    let items = "<query xmlns='http://jabber.org/protocol/disco#items'/>";
    assert!(!request(&hag, "get", "conference.example.com", items).concat().contains("other"));
}

#[test]
fn an_occupant_that_does_not_read_costs_the_others_nothing() {
    let play = without_rate(&[]);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone, &wicca]);
    let long = "x".repeat(30_000);
    let mut received = 0;
    for _ in 0..300 {
        assert_eq!(crone.request(&message(&long)).iter().filter(|one| one.contains("<body>")).count(), 1);
        for one in wicca.recv() {
            received += usize::from(one.contains("<body>"));
        }
    }
    assert_eq!(received, 300);
    assert_undisturbed(&crone, &wicca);
}
