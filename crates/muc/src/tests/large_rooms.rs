//! Whose presence is sent to whom: XEP-0045, sections 7.2.2 and 8, and the limit of large rooms.

use super::*;

fn leave(client: &NodeClient, nick: &str) {
    client.request(&format!("<presence to='{ROOM}/{nick}' type='unavailable'/>"));
}

fn shows(received: &[String], nick: &str) -> bool {
    received.iter().any(|one| one.contains(&format!("{ROOM}/{nick}'")) && !one.contains("unavailable'"))
}

#[test]
fn an_occupant_who_was_hidden_is_shown_when_others_have_left() {
    let play = Shakespeare::with(&[("presence_occupants", OptionValue::Int(3))]);
    let crone = play.room("");
    let (wicca, hag, hecate) = (play.wicca(), play.hag(), play.hecate());
    enter(&wicca, "secondwitch");
    enter(&hecate, "hecate");
    assert!(shows(&enter(&hag, "thirdwitch"), "secondwitch"));
    assert!(!shows(&hecate.recv(), "thirdwitch"), "one too many");
    forget(&[&crone]);
    leave(&wicca, "secondwitch");
    assert!(shows(&masked(hecate.recv()), "thirdwitch"));
    assert_eq!(crone.recv().len(), 1, "a moderator has the presence already");
    leave(&hecate, "hecate");
    assert!(shows(&enter(&wicca, "secondwitch"), "thirdwitch"));
    assert!(shows(&masked(hag.recv()), "secondwitch"));
}

#[test]
fn moderators_are_shown_to_all_however_many_are_in_the_room() {
    let play = Shakespeare::with(&[("presence_occupants", OptionValue::Int(1))]);
    let crone = play.room("");
    let (wicca, hag, hecate) = (play.wicca(), play.hag(), play.hecate());
    admin(&crone, "set", "<item affiliation='admin' jid='wiccarocks@example.com'/>");
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    assert!(shows(&masked(hag.recv()), "secondwitch"), "an administrator");
    assert!(shows(&enter(&hecate, "hecate"), "secondwitch"));
    forget(&[&hecate]);
    admin(&crone, "set", "<item nick='thirdwitch' role='moderator'/>");
    assert!(shows(&masked(hecate.recv()), "thirdwitch"), "one who became a moderator");
}

#[test]
fn section_8_who_becomes_a_moderator_sees_what_moderators_see_and_the_reverse() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_presencebroadcast", "moderator"));
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    enter(&hag, "thirdwitch");
    forget(&[&crone, &hag]);
    assert!(wicca.recv().is_empty());
    admin(&crone, "set", "<item nick='secondwitch' role='moderator'/>");
    let received = masked(wicca.recv());
    assert!(shows(&received, "thirdwitch") && shows(&received, "firstwitch"), "{received:?}");
    for item in [item_of("none", "participant", &hag), item_of("owner", "moderator", &crone)] {
        assert!(received.concat().contains(&item), "{received:?} has no {item}");
    }
    admin(&crone, "set", "<item nick='secondwitch' role='participant'/>");
    let received = masked(wicca.recv());
    let is_gone =
        |one: &&String| one.contains(&format!("{ROOM}/thirdwitch'")) && one.contains("unavailable'");
    assert_eq!(received.iter().filter(is_gone).count(), 1, "{received:?}");
}

#[test]
fn section_7_2_9_the_maximum_counts_occupants_and_not_their_sessions() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_maxusers", "10"));
    let witches: Vec<NodeClient> = (0..9)
        .map(|number| {
            let user = format!("witch{number}");
            play.engine.create_user(&user);
            let witch = play.engine.connect(&user, "cauldron");
            enter(&witch, &user);
            witch
        })
        .collect();
    forget(&[&crone, &witches[0]]);
    assert_error(&enter(&play.hag(), "thirdwitch"), "wait", "service-unavailable");
    let phone = play.engine.connect("witch0", "phone");
    assert!(enter(&phone, "witch0").concat().contains("<status code='110'/>"));
}

#[test]
fn section_17_3_administrators_of_the_node_are_shown_as_owners_and_stay_in_their_rooms() {
    let play = Shakespeare::new();
    let crone = play.room("");
    play.engine.node.set_admins([jid::Jid::parse("hag66@example.com").unwrap()]);
    let hag = play.hag();
    let own = enter(&hag, "thirdwitch");
    assert!(
        own.concat().contains("<item affiliation='owner' jid='hag66@example.com/pda' role='moderator'/>")
    );
    forget(&[&crone]);
    let received = configure(&hag, &field("muc#roomconfig_membersonly", "1"));
    assert!(received.contains("type='result'"), "{received}");
    let received = crone.recv().concat();
    assert!(!received.contains("322"), "{received}");
    assert_error(&admin(&crone, "set", "<item nick='thirdwitch' role='none'/>"), "cancel", "not-allowed");
    let ban = "<item affiliation='outcast' jid='hag66@example.com'/>";
    crone.recv();
    assert_error(&admin(&crone, "set", ban), "cancel", "not-allowed");
}

#[test]
fn section_5_1_voice_is_retained_in_moderated_rooms() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    admin(&crone, "set", "<item nick='thirdwitch' role='participant'/>");
    leave(&hag, "thirdwitch");
    assert!(enter(&hag, "thirdwitch").concat().contains("role='participant'"));
    admin(&crone, "set", "<item nick='thirdwitch' role='visitor'/>");
    leave(&hag, "thirdwitch");
    assert!(enter(&hag, "thirdwitch").concat().contains("role='visitor'"));
}

#[test]
fn occupants_who_are_removed_together_do_not_see_each_other_leave() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let witches: Vec<NodeClient> = (0..50)
        .map(|number| {
            let user = format!("witch{number}");
            play.engine.create_user(&user);
            let witch = play.engine.connect(&user, "cauldron");
            enter(&witch, &user);
            witch
        })
        .collect();
    admin(&crone, "set", "<item affiliation='member' jid='witch0@example.com'/>");
    witches.iter().for_each(|witch| forget(&[witch]));
    configure(&crone, &field("muc#roomconfig_membersonly", "1"));
    let gone = |client: &NodeClient| client.recv().concat().matches("<status code='322'/>").count();
    assert_eq!((gone(&witches[0]), gone(&witches[1]), gone(&witches[49])), (49, 1, 1));
}

#[test]
fn who_is_not_a_moderator_any_more_is_hidden_if_too_many_are_shown() {
    let play = Shakespeare::with(&[("presence_occupants", OptionValue::Int(2))]);
    let crone = play.room("");
    let (wicca, hag, hecate) = (play.wicca(), play.hag(), play.hecate());
    enter(&wicca, "secondwitch");
    enter(&hecate, "hecate");
    enter(&hag, "thirdwitch");
    forget(&[&crone, &wicca, &hecate]);
    admin(&crone, "set", "<item nick='thirdwitch' role='moderator'/>");
    assert!(shows(&masked(hecate.recv()), "thirdwitch"));
    forget(&[&crone, &wicca]);
    admin(&crone, "set", "<item nick='thirdwitch' role='participant'/>");
    let item = item("none", "none");
    testkit::assert_same(&masked(hecate.recv()), &[gone(&hecate, "thirdwitch", &item, &[])]);
    assert!(shows(&masked(hag.recv()), "thirdwitch"), "its own presence");
    // One of the first ones, of whom there are not too many, is shown further.
    admin(&crone, "set", "<item nick='secondwitch' role='moderator'/>");
    admin(&crone, "set", "<item nick='secondwitch' role='participant'/>");
    assert!(!hecate.recv().concat().contains("unavailable'"));
    hag.request(&format!("<presence to='{ROOM}/thirdwitch' type='unavailable'/>"));
    let received = enter(&hag, "thirdwitch");
    assert!(shows(&received, "secondwitch") && !shows(&received, "hecate"), "{received:?}");
}

#[test]
fn section_17_3_administrators_of_the_node_stay_whatever_the_lists_say_and_as_long_as_they_are_administrators()
 {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let kick = "<item nick='thirdwitch' role='none'/>";
    // Since the hag has entered.
    play.engine.node.set_admins([jid::Jid::parse("hag66@example.com").unwrap()]);
    let refused = admin(&crone, "set", kick);
    let want = error("cancel", "not-allowed").split_off("<error".len());
    assert!(refused.last().unwrap().contains(&want), "{refused:?}");
    assert!(
        masked(hag.recv())
            .concat()
            .contains("affiliation='owner' jid='hag66@example.com/pda' role='moderator'")
    );
    configure(&crone, &field("muc#roomconfig_membersonly", "1"));
    let change = |jid: &str, affiliation: &str| {
        let answer = admin(&crone, "set", &format!("<item affiliation='{affiliation}' jid='{jid}'/>"));
        assert!(answer.last().unwrap().contains("type='result'"), "{jid} {affiliation}: {answer:?}");
    };
    for affiliation in ["member", "none", "admin", "none"] {
        change("hag66@example.com", affiliation);
    }
    change("example.com", "outcast");
    let received = masked(hag.recv()).concat();
    assert!(!received.contains("unavailable'") && !received.contains("role='participant'"), "{received}");
    assert!(!received.contains("affiliation='none' jid='hag66@example.com/pda'"), "{received}");
    change("example.com", "none");
    play.engine.node.set_admins([]);
    // The room is not open to her any more.
    assert!(admin(&crone, "set", kick).last().unwrap().contains("<item-not-found "));
    assert!(hag.recv().concat().contains("<status code='321'/>"));
}
