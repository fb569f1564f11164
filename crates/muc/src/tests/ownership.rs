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
    assert!(refused.contains(&refusal("modify", "not-acceptable")), "{refused}");
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
        (field("muc#roomconfig_enablelogging", "1"), vec![170]),
        (field("muc#roomconfig_enablelogging", "0"), vec![171]),
        (field("muc#roomconfig_whois", "anyone"), vec![172]),
        (field("muc#roomconfig_whois", "moderators"), vec![173]),
    ] {
        configure(&crone, &fields);
        let received = hag.recv();
        let codes: String = codes.iter().map(|code| format!("<status code='{code}'/>")).collect();
        let only = received.len() == 1 && received[0].matches("<status ").count() == 1;
        assert!(only && received[0].contains(&codes), "{fields}: {received:?}");
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
    assert!(refused.contains(&refusal("cancel", "conflict")), "{refused}");
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

#[test]
fn section_10_4_a_domain_is_no_owner_and_replaces_none() {
    let play = Shakespeare::new();
    let crone = play.room("");
    for affiliation in ["owner", "admin", "member"] {
        let item = format!("<item affiliation='{affiliation}' jid='example.com'/>");
        assert_error(&admin(&crone, "set", &item), "modify", "not-acceptable");
    }
    for list in ["roomowners", "roomadmins"] {
        let values = "<value>crone1@example.com</value><value>example.com</value>";
        let refused = configure(&crone, &format!("<field var='muc#roomconfig_{list}'>{values}</field>"));
        assert!(refused.contains(&refusal("modify", "not-acceptable")), "{list}: {refused}");
    }
    let resigns = "<item affiliation='none' jid='crone1@example.com'/>";
    assert_error(&admin(&crone, "set", resigns), "cancel", "conflict");
}

#[test]
fn section_10_2_owners_and_administrators_who_change_lists_in_the_form_have_their_roles() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    enter(&hag, "thirdwitch");
    let lists = |admins: &str, owners: &str| {
        let list = |name: &str, users: &str| {
            let values: String =
                users.split(' ').map(|user| format!("<value>{user}@example.com</value>")).collect();
            format!("<field var='muc#roomconfig_{name}'>{values}</field>")
        };
        list("roomadmins", admins) + &list("roomowners", owners)
    };
    let shows = |client: &NodeClient, affiliation: &str, role: &str| {
        let received = client.recv().concat();
        let item = format!("<item affiliation='{affiliation}' jid='{}' role='{role}'/>", client.full());
        let hidden = item.replace(&format!(" jid='{}'", client.full()), "");
        assert!(received.contains(&item) || received.contains(&hidden), "{received} has no {item}");
    };
    forget(&[&wicca, &hag]);
    assert!(configure(&crone, &lists("wiccarocks", "crone1 hag66")).contains("type='result'"));
    shows(&wicca, "admin", "moderator");
    shows(&hag, "owner", "moderator");
    // Both change lists at once.
    assert!(configure(&crone, &lists("hag66", "crone1 wiccarocks")).contains("type='result'"));
    shows(&wicca, "owner", "moderator");
    shows(&hag, "admin", "moderator");
    assert!(configure(&crone, &lists("hag66 crone1", "wiccarocks")).contains("type='result'"));
    assert_error(&owner(&crone, "get", ""), "auth", "forbidden");
    forget(&[&hag, &wicca]);
    assert!(configure(&wicca, &lists("crone1", "wiccarocks")).contains("type='result'"));
    shows(&hag, "none", "participant");
}

#[test]
fn a_room_with_many_occupants_takes_few_changes_in_one_form() {
    let play = Shakespeare::with(&[("stanzas_per_second_per_sender", OptionValue::Int(0))]);
    let crone = play.room(&field("muc#roomconfig_whois", "anyone"));
    for number in 0..200 {
        let user = format!("witch{number}");
        play.engine.create_user(&user);
        enter(&play.engine.connect(&user, "cauldron"), &user);
    }
    forget(&[&crone]);
    let values = |count: usize| -> String {
        let users: String = (0..count).map(|n| format!("<value>u{n}@example.com</value>")).collect();
        format!("<field var='muc#roomconfig_roomadmins'>{users}</field>")
    };
    assert!(configure(&crone, &values(1_000)).contains("<not-acceptable "));
    assert!(configure(&crone, &values(900)).contains("type='result'"));
    let answer = configure(&crone, &(field("muc#roomconfig_whois", "moderators") + &values(0)));
    assert!(answer.contains("type='result'"), "{answer}");
    forget(&[&crone]);
    // Only those who see addresses learn of users who are not in the room.
    let answer = configure(&crone, &values(1_000));
    assert!(answer.contains("type='result'"), "{answer}");
    // Each moderator receives presence of all the others.
    let moderators = |count: usize| -> String {
        (0..count).map(|number| format!("<item nick='witch{number}' role='moderator'/>")).collect()
    };
    assert_error(&admin(&crone, "set", &moderators(100)), "modify", "not-acceptable");
    let users: String = (0..100).map(|n| format!("<value>witch{n}@example.com</value>")).collect();
    let owners = format!("<field var='muc#roomconfig_roomadmins'>{users}</field>");
    assert!(configure(&crone, &owners).contains("<not-acceptable "));
    assert!(admin(&crone, "set", &moderators(90)).last().unwrap().contains("type='result'"));
}
