//! Rooms in the store: what survives when nobody is in the room, and what does not.

use testkit::assert_same;

use super::*;

fn leave(client: &NodeClient, nick: &str) {
    client.request(&format!("<presence to='{ROOM}/{nick}' type='unavailable'/>"));
}

fn say(client: &NodeClient, content: &str) -> Vec<String> {
    client.request(&format!("<message to='{ROOM}' type='groupchat' id='m1'>{content}</message>"))
}

fn persistent(fields: &str) -> String {
    field("muc#roomconfig_persistentroom", "1") + fields
}

#[test]
fn a_persistent_room_is_restored_with_everything_but_its_occupants() {
    let play = Shakespeare::new();
    let fields = [
        field("muc#roomconfig_roomname", "A Dark Cave"),
        field("muc#roomconfig_whois", "anyone"),
        field("muc#roomconfig_passwordprotectedroom", "1"),
        field("muc#roomconfig_roomsecret", "cauldronburn"),
        field("muc#roomconfig_slow_mode_duration", "7"),
        field("muc#roomconfig_presencebroadcast", "moderator"),
    ];
    let crone = play.room(&persistent(&fields.concat()));
    let card = "<vCard xmlns='vcard-temp'><PHOTO><BINVAL>aGVsbG8=</BINVAL></PHOTO></vCard>";
    request(&crone, "set", ROOM, card);
    admin(
        &crone,
        "set",
        "<item affiliation='member' jid='hag66@example.com' nick='thirdwitch'/>\
         <item affiliation='outcast' jid='wiccarocks@example.com'><reason>Treason</reason></item>",
    );
    say(&crone, "<body>Thrice the brinded cat hath mew'd.</body>");
    say(&crone, "<subject>Fire Burn and Cauldron Bubble!</subject>");
    let form = owner(&crone, "get", "");
    leave(&crone, "firstwitch");
    play.engine.run_tasks();
    assert_same(&owner(&crone, "get", ""), &form);
    let bans = admin(&crone, "get", "<item affiliation='outcast'/>").concat();
    assert!(bans.contains("<reason>Treason</reason>"), "{bans}");
    assert_error(&enter(&play.hecate(), "thirdwitch"), "auth", "not-authorized");
    let password = "<x xmlns='http://jabber.org/protocol/muc'><password>cauldronburn</password></x>";
    let hag = play.hag();
    let received = enter_with(&hag, "thirdwitch", password);
    let delay = format!("<delay xmlns='urn:xmpp:delay' from='{ROOM}'/>");
    let from_crone = |content: &str| {
        format!(
            "<message from='{ROOM}/firstwitch' to='{}' type='groupchat' id='m1'>{content}{delay}</message>",
            hag.full()
        )
    };
    assert_same(
        &received,
        &[
            presence(&hag, "thirdwitch", &item_of("member", "participant", &hag), &[100, 110]),
            from_crone("<body>Thrice the brinded cat hath mew'd.</body>"),
            from_crone("<subject>Fire Burn and Cauldron Bubble!</subject>"),
        ],
    );
    assert!(request(&hag, "get", ROOM, "<vCard xmlns='vcard-temp'/>").concat().contains("aGVsbG8="));
}

#[test]
fn a_room_that_becomes_persistent_is_stored_with_its_history_and_one_that_becomes_temporary_is_removed() {
    let play = Shakespeare::new();
    let crone = play.room("");
    say(&crone, "<body>before</body>");
    configure(&crone, &persistent(""));
    say(&crone, "<body>after</body>");
    leave(&crone, "firstwitch");
    let received = enter(&crone, "firstwitch").concat();
    assert!(received.contains("before") && received.contains("after"), "{received}");
    configure(&crone, &field("muc#roomconfig_persistentroom", "0"));
    leave(&crone, "firstwitch");
    assert!(enter(&crone, "firstwitch").concat().contains("<status code='201'/>"));
}

#[test]
fn a_destroyed_room_is_removed_from_the_store() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    say(&crone, "<body>before</body>");
    leave(&crone, "firstwitch");
    // Nobody is in the room.
    assert_same(&owner(&crone, "set", "<destroy/>"), &[result(&crone)]);
    let received = enter(&crone, "firstwitch").concat();
    assert!(received.contains("<status code='201'/>") && !received.contains("before"), "{received}");
}

#[test]
fn a_tombstone_replaces_the_stored_message() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    let received = say(&crone, "<body>magic potions</body>").concat();
    let id = received.split("<stanza-id ").nth(1).unwrap().split(" id='").nth(1).unwrap();
    let id = id.split('\'').next().unwrap();
    let moderate = format!(
        "<moderate id='{id}' xmlns='urn:xmpp:message-moderate:1'><retract xmlns='urn:xmpp:message-retract:1'/></moderate>"
    );
    request(&crone, "set", ROOM, &moderate);
    leave(&crone, "firstwitch");
    let received = enter(&crone, "firstwitch").concat();
    assert!(received.contains("<retracted ") && !received.contains("magic potions"), "{received}");
}

#[test]
fn while_the_store_fails_rooms_answer_with_errors_and_are_not_created_anew() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    leave(&crone, "firstwitch");
    play.engine.set_store_failing(true);
    let received = enter(&crone, "firstwitch");
    assert!(received.len() == 1 && received[0].contains("type='error'"), "{received:?}");
    assert!(owner(&crone, "get", "")[0].contains("type='error'"));
    play.engine.set_store_failing(false);
    assert!(!enter(&crone, "firstwitch").concat().contains("<status code='201'/>"));
    play.engine.set_store_failing(true);
    assert!(configure(&crone, &field("muc#roomconfig_roomname", "Cave")).contains("type='error'"));
    play.engine.set_store_failing(false);
    // It is stored with the next input.
    say(&crone, "<body>x</body>");
    leave(&crone, "firstwitch");
    assert!(owner(&crone, "get", "")[0].contains("<value>Cave</value>"));
}

#[test]
fn a_message_that_is_not_stored_gives_its_sender_an_error() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    crone.enable_stream_management();
    play.engine.set_store_failing(true);
    let mut received = say(&crone, "<body>lost</body>");
    play.engine.run_tasks();
    received.extend(crone.recv());
    let errors: Vec<&String> = received.iter().filter(|one| one.contains("type='error'")).collect();
    assert!(errors.len() == 1 && errors[0].contains("id='m1'"), "{received:?}");
    assert_eq!(crone.handled(), crone.sent(), "the stream goes on");
    play.engine.set_store_failing(false);
    assert!(!say(&crone, "<body>kept</body>").concat().contains("type='error'"));
    leave(&crone, "firstwitch");
    let history = enter(&crone, "firstwitch").concat();
    assert!(history.contains("kept") && !history.contains("lost"), "{history}");
}

#[test]
fn stored_rooms_are_listed_and_count_for_their_creator() {
    let play = Shakespeare::with(&[("rooms_per_user", OptionValue::Int(1))]);
    let crone = play.room(&persistent(&field("muc#roomconfig_roomname", "A Dark Cave")));
    leave(&crone, "firstwitch");
    let items = "<query xmlns='http://jabber.org/protocol/disco#items'/>";
    let list = request(&crone, "get", "conference.example.com", items).concat();
    assert!(list.contains(&format!("<item jid='{ROOM}' name='A Dark Cave'/>")), "{list}");
    let heath = "heath@conference.example.com/firstwitch";
    let refused = crone.request(&format!("<presence to='{heath}'>{MUC}</presence>"));
    assert_error(&refused, "cancel", "not-allowed");
}

#[test]
fn the_store_keeps_more_messages_than_memory_and_newcomers_receive_the_latest() {
    let options =
        [("history_messages", OptionValue::Int(10)), ("stored_history_messages", OptionValue::Int(50))];
    let play = Shakespeare::with(&options);
    let crone = play.room(&persistent(""));
    for number in 0..80 {
        say(&crone, &format!("<body>{number}</body>"));
    }
    leave(&crone, "firstwitch");
    let jid = jid::Jid::parse(ROOM).unwrap();
    let stored =
        || play.engine.block_on(play.engine.stores.rooms.load(jid.as_ref(), 999)).unwrap().unwrap().history;
    assert_eq!(stored().len(), 50);
    let received = enter(&crone, "firstwitch");
    let history: Vec<&String> = received.iter().filter(|one| one.contains("<body>")).collect();
    assert_eq!(history.len(), 10);
    assert!(history[0].contains("<body>70</body>") && history[9].contains("<body>79</body>"), "{history:?}");
    say(&crone, "<body>80</body>");
    leave(&crone, "firstwitch");
    assert_eq!(stored().len(), 50);
}

#[test]
fn a_long_history_is_bounded_although_old_messages_are_not_removed_each_time() {
    let options =
        [("history_messages", OptionValue::Int(5)), ("stored_history_messages", OptionValue::Int(1_000))];
    let play = Shakespeare::with(&options);
    let crone = play.room(&persistent(""));
    for number in 0..3_000 {
        say(&crone, &format!("<body>{number}</body>"));
        play.engine.advance(1);
    }
    let jid = jid::Jid::parse(ROOM).unwrap();
    let stored = play.engine.block_on(play.engine.stores.rooms.load(jid.as_ref(), 9_999));
    let stored = stored.unwrap().unwrap().history.len();
    assert!((1_000..1_300).contains(&stored), "{stored}");
}

#[test]
fn a_room_that_could_not_be_removed_is_replaced_when_it_becomes_persistent_again() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    let (hag, wicca) = ("<item affiliation='outcast' jid='hag66@example.com'/>", "wiccarocks@example.com");
    admin(&crone, "set", &format!("<item affiliation='member' jid='{wicca}'/>"));
    say(&crone, "<body>before</body>");
    play.engine.set_store_failing(true);
    assert!(configure(&crone, &field("muc#roomconfig_persistentroom", "0")).contains("type='error'"));
    admin(&crone, "set", hag);
    admin(&crone, "set", &format!("<item affiliation='none' jid='{wicca}'/>"));
    say(&crone, "<body>while it was temporary</body>");
    play.engine.set_store_failing(false);
    assert!(configure(&crone, &persistent("")).contains("type='result'"));
    leave(&crone, "firstwitch");
    assert_error(&enter(&play.hag(), "thirdwitch"), "auth", "forbidden");
    let entered = enter(&play.wicca(), "secondwitch").concat();
    assert!(entered.contains("affiliation='none'"), "{entered}");
    assert!(entered.contains("before") && entered.contains("while it was temporary"), "{entered}");
}

#[test]
fn a_destroyed_room_whose_removal_fails_is_removed_later_and_never_used_again() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    say(&crone, "<body>before</body>");
    let jid = jid::Jid::parse(ROOM).unwrap();
    let is_stored =
        || play.engine.block_on(play.engine.stores.rooms.load(jid.as_ref(), 9)).unwrap().is_some();
    play.engine.set_store_failing(true);
    assert!(owner(&crone, "set", "<destroy/>").concat().contains("type='error'"));
    // Not as it was, and not anew.
    assert!(enter(&crone, "firstwitch").concat().contains("type='error'"));
    play.engine.set_store_failing(false);
    let entered = enter(&crone, "firstwitch").concat();
    assert!(entered.contains("<status code='201'/>") && !entered.contains("before"), "{entered}");
    assert!(!is_stored());
    // Without another input, too.
    configure(&crone, &persistent(""));
    play.engine.set_store_failing(true);
    assert!(owner(&crone, "set", "<destroy/>").concat().contains("type='error'"));
    play.engine.advance(10);
    play.engine.set_store_failing(false);
    assert!(is_stored());
    play.engine.advance(5);
    assert!(!is_stored());
}

#[test]
fn the_last_change_before_a_room_leaves_memory_is_stored_later_if_the_store_fails() {
    let play = Shakespeare::new();
    let crone = play.room(&persistent(""));
    let ban = "<item affiliation='outcast' jid='hag66@example.com'/>";
    play.engine.set_store_failing(true);
    assert!(admin(&crone, "set", ban).concat().contains("type='error'"));
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    play.engine.set_store_failing(false);
    play.engine.advance(5);
    assert_error(&enter(&play.hag(), "thirdwitch"), "auth", "forbidden");
    let jid = jid::Jid::parse(ROOM).unwrap();
    let stored = play.engine.block_on(play.engine.stores.rooms.load(jid.as_ref(), 0)).unwrap().unwrap();
    assert_eq!(stored.affiliations.len(), 2, "the owner and the ban");
}
