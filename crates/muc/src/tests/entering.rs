//! XEP-0045, section 7.2 (entering), 7.6 (nicknames), 7.7 (presence), 7.14 (leaving); section 10.1 (creation).

use testkit::assert_same;

use super::*;

#[test]
fn section_10_1_a_room_is_created_by_entering_it_and_locked_until_it_is_configured() {
    let play = Shakespeare::new();
    let (crone, hag) = (play.crone(), play.hag());
    assert_same(
        &enter(&crone, "firstwitch"),
        &[
            presence(&crone, "firstwitch", &item_of("owner", "moderator", &crone), &[201, 110]),
            no_subject(&crone),
        ],
    );
    // Section 7.2.10.
    assert_error(&enter(&hag, "thirdwitch"), "cancel", "item-not-found");
    // Section 17.2.
    let message = format!("<message to='{ROOM}' type='groupchat'><body>x</body></message>");
    assert_error(&crone.request(&message), "cancel", "item-not-found");
    // Section 10.1.2: an instant room.
    assert_same(&[configure(&crone, "")], &[result(&crone)]);
    assert_eq!(enter(&hag, "thirdwitch").len(), 3);
}

#[test]
fn section_10_1_3_a_room_is_destroyed_when_its_owner_leaves_before_the_first_configuration() {
    let play = Shakespeare::new();
    let crone = play.crone();
    enter(&crone, "firstwitch");
    let left = leave(&crone, "firstwitch");
    let destroyed = format!("{}<destroy/>", item("none", "none"));
    assert_same(&left, &[gone(&crone, "firstwitch", &destroyed, &[110])]);
    assert!(enter(&crone, "firstwitch")[0].contains("<status code='201'/>"));
}

#[test]
fn section_10_1_3_cancelling_the_first_configuration_destroys_the_room() {
    let play = Shakespeare::new();
    let crone = play.crone();
    enter(&crone, "firstwitch");
    let answer = owner(&crone, "set", "<x xmlns='jabber:x:data' type='cancel'/>");
    assert!(answer[0].contains("<destroy/>"), "{answer:?}");
    assert_same(&answer[1..], &[result(&crone)]);
    assert_error(&owner(&crone, "get", ""), "cancel", "item-not-found");
}

#[test]
fn section_7_2_2_a_newcomer_receives_the_others_then_itself_then_the_subject() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let wicca = play.wicca();
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    let hag = play.hag();
    assert_same(
        &enter(&hag, "thirdwitch"),
        &[
            presence(&hag, "firstwitch", &item("owner", "moderator"), &[]),
            presence(&hag, "secondwitch", &item("none", "participant"), &[]),
            presence(&hag, "thirdwitch", &item("none", "participant"), &[110]),
            no_subject(&hag),
        ],
    );
    // Only the moderator sees the address (section 7.2.4).
    assert_same(
        &masked(crone.recv()),
        &[presence(&crone, "thirdwitch", &item_of("none", "participant", &hag), &[])],
    );
    assert_same(&masked(wicca.recv()), &[presence(&wicca, "thirdwitch", &item("none", "participant"), &[])]);
}

#[test]
fn section_7_2_3_a_non_anonymous_room_shows_addresses_and_says_so() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_whois", "anyone"));
    forget(&[&crone]);
    let hag = play.hag();
    assert_same(
        &enter(&hag, "thirdwitch"),
        &[
            presence(&hag, "firstwitch", &item_of("owner", "moderator", &crone), &[]),
            presence(&hag, "thirdwitch", &item_of("none", "participant", &hag), &[100, 110]),
            no_subject(&hag),
        ],
    );
}

#[test]
fn section_7_2_17_errors_of_entering() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (wicca, hag) = (play.wicca(), play.hag());
    // Section 7.2.1: no nickname.
    let answer = hag.request(&format!("<presence to='{ROOM}'>{MUC}</presence>"));
    assert_error(&answer, "modify", "jid-malformed");
    // Section 17.1.
    assert_error(&enter(&hag, "  "), "modify", "jid-malformed");
    // Section 7.2.8.
    assert_error(&enter(&hag, "firstwitch"), "cancel", "conflict");
    admin(&crone, "set", "<item affiliation='member' jid='wiccarocks@example.com' nick='secondwitch'/>");
    assert_error(&enter(&hag, "secondwitch"), "cancel", "conflict");
    assert_eq!(enter(&wicca, "secondwitch").len(), 3, "the nickname is hers");
    // Section 7.2.5.
    let protected = [
        field("muc#roomconfig_passwordprotectedroom", "1"),
        field("muc#roomconfig_roomsecret", "cauldronburn"),
    ];
    configure(&crone, &protected.concat());
    assert_error(&enter(&hag, "thirdwitch"), "auth", "not-authorized");
    let wrong = "<x xmlns='http://jabber.org/protocol/muc'><password>cauldron</password></x>";
    assert_error(&enter_with(&hag, "thirdwitch", wrong), "auth", "not-authorized");
    let right = "<x xmlns='http://jabber.org/protocol/muc'><password>cauldronburn</password></x>";
    assert_eq!(enter_with(&hag, "thirdwitch", right).len(), 4);
    leave(&hag, "thirdwitch");
    configure(&crone, &field("muc#roomconfig_passwordprotectedroom", "0"));
    // Section 7.2.9: administrators may enter all the same.
    configure(&crone, &field("muc#roomconfig_maxusers", "10"));
    // Section 7.2.6.
    configure(&crone, &field("muc#roomconfig_membersonly", "1"));
    assert_error(&enter(&hag, "thirdwitch"), "auth", "registration-required");
    // Section 7.2.7.
    admin(&crone, "set", "<item affiliation='outcast' jid='hag66@example.com'/>");
    assert_error(&enter(&hag, "thirdwitch"), "auth", "forbidden");
}

#[test]
fn section_7_2_9_a_full_room_refuses_users_and_admits_administrators() {
    let play = Shakespeare::with(&[("occupants", OptionValue::Int(2))]);
    let crone = play.room("");
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    assert_error(&enter(&hag, "thirdwitch"), "wait", "service-unavailable");
    admin(&crone, "set", "<item affiliation='admin' jid='hag66@example.com'/>");
    forget(&[&hag]);
    assert_eq!(enter(&hag, "thirdwitch").len(), 4);
}

#[test]
fn section_7_2_18_presence_of_a_user_who_is_not_in_the_room_is_answered_by_a_kick() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    forget(&[&crone]);
    let reason = "<item affiliation='none' role='none'><reason>You are not in the room.</reason></item>";
    let kick = gone(&hag, "thirdwitch", reason, &[110, 307, 333]);
    assert_same(&hag.request(&format!("<presence to='{ROOM}/thirdwitch'/>")), std::slice::from_ref(&kick));
    assert!(crone.recv().is_empty());
    let elsewhere = kick.replace(ROOM, "heath@conference.example.com");
    let to = "heath@conference.example.com/thirdwitch";
    assert_same(&hag.request(&format!("<presence to='{to}'/>")), &[elsewhere]);
}

fn leave(client: &NodeClient, nick: &str) -> Vec<String> {
    masked(client.request(&format!("<presence to='{ROOM}/{nick}' type='unavailable'/>")))
}

#[test]
fn section_7_14_leaving_is_sent_to_all_and_ends_a_temporary_room() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let own = hag.request(&format!(
        "<presence to='{ROOM}/thirdwitch' type='unavailable'><status>gone where the goblins go</status></presence>"
    ));
    let with_status = |text: String| text.replace("<x ", "<status>gone where the goblins go</status><x ");
    assert_same(&masked(own), &[with_status(gone(&hag, "thirdwitch", &item("none", "none"), &[110]))]);
    assert_same(
        &masked(crone.recv()),
        &[with_status(gone(&crone, "thirdwitch", &item_of("none", "none", &hag), &[]))],
    );
    leave(&crone, "firstwitch");
    let hag_creates = enter(&hag, "thirdwitch");
    assert!(hag_creates[0].contains("<status code='201'/>"), "{hag_creates:?}");
}

#[test]
fn section_7_6_a_nickname_is_changed_by_two_presences() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let own = masked(hag.request(&format!("<presence to='{ROOM}/oldhag'/>")));
    let renamed = "<item affiliation='none' nick='oldhag' role='participant'/>";
    assert_same(
        &own,
        &[
            gone(&hag, "thirdwitch", renamed, &[303, 110]),
            presence(&hag, "oldhag", &item("none", "participant"), &[110]),
        ],
    );
    let renamed = renamed.replace("nick=", &format!("jid='{}' nick=", hag.full()));
    assert_same(
        &masked(crone.recv()),
        &[
            gone(&crone, "thirdwitch", &renamed, &[303]),
            presence(&crone, "oldhag", &item_of("none", "participant", &hag), &[]),
        ],
    );
    assert_error(&hag.request(&format!("<presence to='{ROOM}/firstwitch'/>")), "cancel", "conflict");
}

#[test]
fn section_17_3_entering_again_synchronizes_and_changes_the_nickname() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_whois", "anyone"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    crone.send(&format!("<message to='{ROOM}' type='groupchat'><body>Thrice</body></message>"));
    forget(&[&crone, &hag]);
    let others = presence(&hag, "firstwitch", &item_of("owner", "moderator", &crone), &[]);
    let own = |nick: &str| presence(&hag, nick, &item_of("none", "participant", &hag), &[100, 110]);
    let without_history = "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x>";
    assert_same(
        &enter_with(&hag, "thirdwitch", without_history),
        &[others.clone(), own("thirdwitch"), no_subject(&hag)],
    );
    assert!(enter(&hag, "thirdwitch")[2].contains("<body>Thrice</body>"));
    forget(&[&crone]);
    let renamed = item_of("none", "participant", &hag).replace(" role=", " nick='oldhag' role=");
    assert_same(
        &enter_with(&hag, "oldhag", without_history),
        &[gone(&hag, "thirdwitch", &renamed, &[303, 110]), others, own("oldhag"), no_subject(&hag)],
    );
    assert_same(
        &masked(crone.recv()),
        &[
            gone(&crone, "thirdwitch", &renamed, &[303]),
            presence(&crone, "oldhag", &item_of("none", "participant", &hag), &[]),
        ],
    );
}

#[test]
fn section_7_7_availability_is_passed_on_without_elements_of_rooms() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    hag.send(&format!(
        "<presence to='{ROOM}/thirdwitch' xml:lang='la'><show>xa</show><x xmlns='http://jabber.org/protocol/muc#user'>\
         <item affiliation='owner' role='moderator'/></x></presence>"
    ));
    let want = presence(&crone, "thirdwitch", &item_of("none", "participant", &hag), &[]);
    assert_same(&masked(crone.recv()), &[want.replace("><x ", " xml:lang='la'><show>xa</show><x ")]);
}

#[test]
fn sessions_of_one_user_share_a_nickname() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (pda, phone) = (play.hag(), play.engine.connect("hag66", "phone"));
    enter(&pda, "thirdwitch");
    forget(&[&crone]);
    assert_eq!(enter(&phone, "thirdwitch").len(), 3);
    forget(&[&crone, &pda]);
    crone.send(&format!("<message to='{ROOM}' type='groupchat'><body>Thrice</body></message>"));
    assert_eq!((pda.recv().len(), phone.recv().len()), (1, 1));
    forget(&[&crone]);
    assert!(leave(&phone, "thirdwitch")[0].contains("type='unavailable'"));
    assert!(!crone.recv().concat().contains("unavailable"), "the occupant is still in the room");
    leave(&pda, "thirdwitch");
    assert!(crone.recv().concat().contains("unavailable"));
}

#[test]
fn section_18_1_2_an_occupant_whose_session_is_gone_is_removed() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    // Without the presence feature, nothing tells the room.
    hag.close();
    crone.send(&format!("<message to='{ROOM}' type='groupchat'><body>Thrice</body></message>"));
    let received = masked(crone.recv());
    assert_eq!(received.len(), 2, "{received:?}");
    assert_same(&received[1..], &[gone(&crone, "thirdwitch", &item_of("none", "none", &hag), &[333])]);
    let error =
        "<error type='cancel'><recipient-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>";
    let wicca = play.wicca();
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    wicca.send(&format!("<message to='{ROOM}' type='error'>{error}</message>"));
    assert!(crone.recv().concat().contains("<status code='333'/>"));
}

#[test]
fn section_7_2_12_a_newcomer_learns_that_the_room_is_logged() {
    let play = Shakespeare::new();
    let _crone = play.room(&field("muc#roomconfig_enablelogging", "1"));
    let own = enter(&play.hag(), "thirdwitch").concat();
    assert!(own.contains("<status code='170'/><status code='110'/>"), "{own}");
}

#[test]
fn xep_0421_section_4_1_an_occupant_id_is_stable_in_a_room_and_differs_between_rooms() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    let occupant_id = |to: &str| {
        let received = hag.request(&format!("<presence to='{to}/thirdwitch'>{MUC}</presence>"));
        let own = received.iter().find(|one| one.contains("code='110'")).unwrap().clone();
        own.split("<occupant-id ")
            .nth(1)
            .unwrap()
            .split(" id='")
            .nth(1)
            .unwrap()
            .split('\'')
            .next()
            .unwrap()
            .to_owned()
    };
    let first = occupant_id(ROOM);
    leave(&hag, "thirdwitch");
    forget(&[&crone]);
    assert_eq!(occupant_id(ROOM), first);
    assert_ne!(occupant_id("heath@conference.example.com"), first);
}

#[test]
fn section_11_1_every_session_of_a_nickname_that_is_gone_is_removed() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (pda, phone) = (play.hag(), play.engine.connect("hag66", "phone"));
    enter(&pda, "thirdwitch");
    enter(&phone, "thirdwitch");
    forget(&[&crone]);
    pda.close();
    phone.close();
    crone.send(&format!("<message to='{ROOM}' type='groupchat'><body>Thrice</body></message>"));
    let received = crone.recv().concat();
    assert_eq!(received.matches("<status code='333'/>").count(), 1, "{received}");
}
