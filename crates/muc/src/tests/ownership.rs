//! XEP-0045, section 10 (owners).

use testkit::assert_same;

use super::*;

#[test]
fn section_10_1_3_a_reserved_room_is_configured_by_its_form() {
    let play = Shakespeare::new();
    let crone = play.crone();
    enter(&crone, "firstwitch");
    let form = owner(&crone, "get", "").concat();
    for var in [
        "muc#maxhistoryfetch",
        "muc#roomconfig_allowpm",
        "muc#roomconfig_allowinvites",
        "muc#roomconfig_changesubject",
        "muc#roomconfig_enablelogging",
        "muc#roomconfig_getmemberlist",
        "muc#roomconfig_lang",
        "muc#roomconfig_pubsub",
        "muc#roomconfig_maxusers",
        "muc#roomconfig_membersonly",
        "muc#roomconfig_moderatedroom",
        "muc#roomconfig_passwordprotectedroom",
        "muc#roomconfig_persistentroom",
        "muc#roomconfig_presencebroadcast",
        "muc#roomconfig_publicroom",
        "muc#roomconfig_roomadmins",
        "muc#roomconfig_roomdesc",
        "muc#roomconfig_roomname",
        "muc#roomconfig_roomowners",
        "muc#roomconfig_roomsecret",
        "muc#roomconfig_whois",
    ] {
        assert!(form.contains(&format!("var='{var}'")), "{var} is not in {form}");
    }
    let blank = field("muc#roomconfig_passwordprotectedroom", "1");
    let refused = configure(&crone, &blank);
    assert!(refused.contains(&error("modify", "not-acceptable")), "{refused}");
    let fields = [
        field("muc#roomconfig_roomname", "A Dark Cave"),
        field("muc#roomconfig_roomadmins", "wiccarocks@example.com"),
    ];
    assert_same(&[configure(&crone, &fields.concat())], &[result(&crone)]);
    assert!(owner(&crone, "get", "")[0].contains("<value>A Dark Cave</value>"));
    assert!(enter(&play.wicca(), "secondwitch").concat().contains("role='moderator'"));
}

#[test]
fn section_10_2_only_owners_configure_and_changes_are_announced() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    assert_error(&owner(&hag, "get", ""), "auth", "forbidden");
    assert_error(&owner(&hag, "set", "<destroy/>"), "auth", "forbidden");
    for (fields, codes) in [
        (field("muc#roomconfig_roomname", "Cave"), vec![104]),
        (field("muc#roomconfig_enablelogging", "1"), vec![170, 104]),
        (field("muc#roomconfig_enablelogging", "0"), vec![171, 104]),
        (field("muc#roomconfig_whois", "anyone"), vec![172, 104]),
        (field("muc#roomconfig_whois", "moderators"), vec![173, 104]),
    ] {
        configure(&crone, &fields);
        let received = hag.recv();
        let codes: String = codes.iter().map(|code| format!("<status code='{code}'/>")).collect();
        assert!(received.len() == 1 && received[0].contains(&codes), "{fields}: {received:?}");
        assert!(received[0].contains("type='groupchat'"));
    }
    configure(&crone, &field("muc#roomconfig_roomname", "Cave"));
    assert!(hag.recv().is_empty(), "nothing has changed");
    configure(&crone, &field("muc#roomconfig_membersonly", "1"));
    let received = hag.recv().concat();
    assert!(received.contains("<status code='322'/>"), "{received}");
}

#[test]
fn section_10_2_a_room_keeps_an_owner() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let others = field("muc#roomconfig_roomowners", "");
    let refused = configure(&crone, &others);
    assert!(refused.contains(&error("cancel", "conflict")), "{refused}");
    let handed_over = field("muc#roomconfig_roomowners", "hag66@example.com");
    assert_same(&[configure(&crone, &handed_over)], &[result(&crone)]);
    assert_error(&owner(&crone, "get", ""), "auth", "forbidden");
    assert!(owner(&play.hag(), "get", "")[0].contains("type='result'"));
}

#[test]
fn section_10_9_a_destroyed_room_names_an_alternative() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let notice = "<destroy jid='coven@chat.shakespeare.lit'><reason>Macbeth doth come.</reason></destroy>";
    let answer = owner(&crone, "set", notice);
    let hag_gone = hag.recv();
    let room_gone =
        |to: &NodeClient, nick: &str| gone(to, nick, &format!("{}{notice}", item("none", "none")), &[110]);
    // XEP-0421.
    assert!(hag_gone[0].contains("<occupant-id "), "{hag_gone:?}");
    assert_same(&answer, &[room_gone(&crone, "firstwitch"), result(&crone)]);
    assert_same(&masked(hag_gone), &[room_gone(&hag, "thirdwitch")]);
    let message = hag.request(&format!("<message to='{ROOM}' type='groupchat'><body>x</body></message>"));
    assert_error(&message, "cancel", "item-not-found");
}

#[test]
fn a_persistent_room_exists_without_occupants() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    let received = enter(&play.hag(), "thirdwitch");
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(!received[0].contains("201"), "{received:?}");
}

#[test]
fn section_11_2_occupants_learn_that_the_service_is_shut_down_and_the_history_is_kept() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    hag.send(&format!("<message to='{ROOM}' type='groupchat'><body>Harpier cries</body></message>"));
    forget(&[&crone, &hag]);
    play.engine.block_on(peers::slices::shut_down(&play.engine.node));
    let end = |nick: &str, client: &NodeClient| {
        gone(
            client,
            nick,
            &item_of(if nick == "firstwitch" { "owner" } else { "none" }, "none", client),
            &[332, 110],
        )
    };
    assert_same(&masked(crone.recv()), &[end("firstwitch", &crone)]);
    let of_hag = masked(hag.recv()).concat();
    assert!(of_hag.contains("<status code='332'/>") && of_hag.contains("<status code='110'/>"), "{of_hag}");
    let again = enter(&hag, "thirdwitch").concat();
    assert!(again.contains("Harpier cries") && !again.contains("/firstwitch' type"), "{again}");
}
