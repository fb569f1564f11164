//! XEP-0045, sections 8 (moderators) and 9 (administrators).

use testkit::assert_same;

use super::*;

/// firstwitch owns the room, secondwitch administers it, thirdwitch has no affiliation.
struct Coven {
    play: Shakespeare,
    owner: NodeClient,
    admin: NodeClient,
    user: NodeClient,
}

fn coven(fields: &str) -> Coven {
    let play = Shakespeare::new();
    let owner = play.room(fields);
    let (admin_client, user) = (play.wicca(), play.hag());
    admin(&owner, "set", "<item affiliation='admin' jid='wiccarocks@example.com'/>");
    enter(&admin_client, "secondwitch");
    enter(&user, "thirdwitch");
    forget(&[&owner, &admin_client, &user]);
    Coven { play, owner, admin: admin_client, user }
}

impl Coven {
    fn forget(&self) {
        forget(&[&self.owner, &self.admin, &self.user]);
    }
}

#[test]
fn section_8_2_kicking_an_occupant() {
    let coven = coven("");
    let kicked = admin(
        &coven.admin,
        "set",
        "<item nick='thirdwitch' role='none'><reason>Avaunt, you cullion!</reason></item>",
    );
    let note = "<actor nick='secondwitch'/><reason>Avaunt, you cullion!</reason></item>";
    let with_note = |item: String| item.replace("/>", &format!(">{note}"));
    assert_same(
        &kicked,
        &[
            gone(&coven.admin, "thirdwitch", &with_note(item_of("none", "none", &coven.user)), &[307]),
            result(&coven.admin),
        ],
    );
    assert_same(
        &masked(coven.user.recv()),
        &[gone(&coven.user, "thirdwitch", &with_note(item("none", "none")), &[307, 110])],
    );
}

#[test]
fn sections_8_and_9_errors_of_role_changes() {
    let coven = coven("");
    let moderator = coven.play.engine.connect("hecate", "broom");
    enter(&moderator, "hecate");
    let [warlock, member] = ["warlock", "member"].map(|user| {
        coven.play.engine.create_user(user);
        let client = coven.play.engine.connect(user, "staff");
        enter(&client, user);
        client
    });
    admin(
        &coven.owner,
        "set",
        "<item nick='hecate' role='moderator'/><item nick='warlock' role='moderator'/>",
    );
    admin(&coven.owner, "set", "<item affiliation='member' jid='member@example.com'/>");
    coven.forget();
    forget(&[&moderator, &warlock, &member]);
    for (client, item, kind, condition) in [
        // Section 8: requests of others.
        (&coven.user, "<item nick='secondwitch' role='none'/>", "auth", "forbidden"),
        (&coven.user, "<item nick='thirdwitch' role='moderator'/>", "auth", "forbidden"),
        // Section 8.2: nobody kicks users with a higher affiliation, or himself.
        (&coven.admin, "<item nick='firstwitch' role='none'/>", "cancel", "not-allowed"),
        (&moderator, "<item nick='secondwitch' role='none'/>", "cancel", "not-allowed"),
        (&moderator, "<item nick='member' role='none'/>", "cancel", "not-allowed"),
        (&coven.admin, "<item nick='secondwitch' role='none'/>", "cancel", "conflict"),
        // Section 5.1.1: nor do moderators kick each other.
        (&moderator, "<item nick='warlock' role='none'/>", "cancel", "not-allowed"),
        // Section 8.4.
        (&coven.admin, "<item nick='firstwitch' role='visitor'/>", "cancel", "not-allowed"),
        (&coven.owner, "<item nick='secondwitch' role='visitor'/>", "cancel", "not-allowed"),
        (&moderator, "<item nick='secondwitch' role='visitor'/>", "cancel", "not-allowed"),
        (&moderator, "<item nick='member' role='visitor'/>", "cancel", "not-allowed"),
        // Sections 9.6 and 9.7.
        (&moderator, "<item nick='thirdwitch' role='moderator'/>", "auth", "forbidden"),
        (&coven.admin, "<item nick='firstwitch' role='participant'/>", "cancel", "not-allowed"),
        (&coven.owner, "<item nick='nobody' role='none'/>", "cancel", "item-not-found"),
        // Section 17.4.
        (
            &coven.owner,
            "<item nick='thirdwitch' role='visitor' affiliation='none'/>",
            "modify",
            "bad-request",
        ),
        (&coven.owner, "<item nick='thirdwitch'/>", "modify", "bad-request"),
        (&coven.owner, "<item nick='thirdwitch' role='king'/>", "modify", "bad-request"),
        (&coven.owner, "", "modify", "bad-request"),
    ] {
        assert_error(&admin(client, "set", item), kind, condition);
    }
    // Nothing of a request is applied if one item is refused.
    let both = "<item nick='thirdwitch' role='none'/><item nick='firstwitch' role='none'/>";
    assert_error(&admin(&coven.admin, "set", both), "cancel", "not-allowed");
    assert!(coven.user.recv().is_empty());
}

#[test]
fn sections_8_3_and_8_4_voice_is_granted_and_revoked() {
    let coven = coven("");
    admin(&coven.admin, "set", "<item nick='thirdwitch' role='visitor'/>");
    let visitor = "<item affiliation='none' role='visitor'><actor nick='secondwitch'/></item>";
    assert_same(&masked(coven.user.recv()), &[presence(&coven.user, "thirdwitch", visitor, &[110])]);
    coven.forget();
    let listed = admin(&coven.admin, "get", "<item role='visitor'/>");
    assert_same(
        &listed,
        &[result(&coven.admin).replace(
            "/>",
            &format!(
                "><query xmlns='http://jabber.org/protocol/muc#admin'><item affiliation='none' jid='{}' \
                 nick='thirdwitch' role='visitor'/></query></iq>",
                coven.user.full()
            ),
        )],
    );
    admin(&coven.admin, "set", "<item nick='thirdwitch' role='participant'/>");
    assert!(coven.user.recv().concat().contains("role='participant'"));
}

#[test]
fn section_9_1_banning_a_user() {
    let coven = coven("");
    admin(
        &coven.admin,
        "set",
        "<item affiliation='outcast' jid='hag66@example.com'><reason>Treason</reason></item>",
    );
    let note =
        "<item affiliation='outcast' role='none'><actor nick='secondwitch'/><reason>Treason</reason></item>";
    assert_same(&masked(coven.user.recv()), &[gone(&coven.user, "thirdwitch", note, &[301, 110])]);
    assert_error(&enter(&coven.user, "thirdwitch"), "auth", "forbidden");
    coven.forget();
    let bans = admin(&coven.admin, "get", "<item affiliation='outcast'/>").concat();
    let listed = "<item affiliation='outcast' jid='hag66@example.com'><reason>Treason</reason></item>";
    assert!(bans.contains(listed), "{bans}");
    // Section 9.2: the ban is lifted.
    admin(&coven.admin, "set", "<item affiliation='none' jid='hag66@example.com'/>");
    assert_eq!(enter(&coven.user, "thirdwitch").len(), 4);
    // A domain.
    coven.forget();
    admin(&coven.owner, "set", "<item affiliation='outcast' jid='example.com'/>");
    assert!(coven.user.recv().concat().contains("<status code='301'/>"));
    assert!(
        coven.admin.recv().concat().contains("outcast"),
        "an administrator has an affiliation of his own"
    );
}

#[test]
fn section_9_errors_of_affiliation_changes() {
    let coven = coven("");
    for (client, item, kind, condition) in [
        (&coven.user, "<item affiliation='outcast' jid='hecate@example.com'/>", "auth", "forbidden"),
        (&coven.user, "<item affiliation='member' jid='nobody@example.com'/>", "auth", "forbidden"),
        // Section 9.1.
        (&coven.admin, "<item affiliation='outcast' jid='crone1@example.com'/>", "cancel", "not-allowed"),
        (&coven.admin, "<item affiliation='outcast' jid='wiccarocks@example.com'/>", "cancel", "conflict"),
        (&coven.owner, "<item affiliation='outcast' jid='crone1@example.com'/>", "cancel", "conflict"),
        // Sections 10.3 to 10.7: only owners.
        (&coven.admin, "<item affiliation='owner' jid='hag66@example.com'/>", "auth", "forbidden"),
        (&coven.admin, "<item affiliation='admin' jid='hag66@example.com'/>", "auth", "forbidden"),
        (&coven.admin, "<item affiliation='none' jid='crone1@example.com'/>", "auth", "forbidden"),
        // Section 10.4: the last owner.
        (&coven.owner, "<item affiliation='admin' jid='crone1@example.com'/>", "cancel", "conflict"),
        (&coven.owner, "<item affiliation='member' jid='@'/>", "modify", "jid-malformed"),
        (&coven.owner, "<item affiliation='member'/>", "modify", "bad-request"),
        (&coven.owner, "<item affiliation='member' nick='nobody'/>", "cancel", "item-not-found"),
    ] {
        assert_error(&admin(client, "set", item), kind, condition);
    }
    for (client, affiliation) in [
        (&coven.user, "outcast"),
        (&coven.user, "member"),
        (&coven.user, "owner"),
        (&coven.admin, "owner"),
        (&coven.admin, "admin"),
    ] {
        let list = admin(client, "get", &format!("<item affiliation='{affiliation}'/>"));
        assert_error(&list, "auth", "forbidden");
    }
    assert!(
        admin(&coven.owner, "get", "<item affiliation='owner'/>")[0].contains("jid='crone1@example.com'")
    );
}

#[test]
fn sections_9_3_and_9_4_membership_is_granted_and_revoked() {
    let coven = coven(&field("muc#roomconfig_membersonly", "1"));
    assert_error(&enter(&coven.user, "thirdwitch"), "auth", "registration-required");
    let granted = admin(&coven.admin, "set", "<item affiliation='member' jid='hag66@example.com'/>");
    // Occupants who see addresses learn about it, although the user is not in the room.
    assert!(
        granted[0].contains("<item affiliation='member' jid='hag66@example.com' role='none'/>"),
        "{granted:?}"
    );
    assert_eq!(enter(&coven.user, "thirdwitch").len(), 4);
    coven.forget();
    admin(&coven.admin, "set", "<item affiliation='none' jid='hag66@example.com'/>");
    let note = "<item affiliation='none' role='none'><actor nick='secondwitch'/></item>";
    assert_same(&masked(coven.user.recv()), &[gone(&coven.user, "thirdwitch", note, &[321, 110])]);
}

#[test]
fn section_9_5_a_new_member_is_invited_and_members_get_the_list() {
    let fields = [field("muc#roomconfig_membersonly", "1"), field("muc#roomconfig_whois", "anyone")];
    let coven = coven(&fields.concat());
    let set = "<item affiliation='member' jid='hag66@example.com' nick='third&#xA0;witch'><reason>x</reason></item>";
    let get = "<item affiliation='member'/>";
    assert_error(&admin(&coven.user, "get", get), "auth", "forbidden");
    // Without the presence feature, no session is available for the invitation, so it comes back.
    let returned = "<invite to='hag66@example.com'/>";
    let answer = admin(&coven.admin, "set", set).concat();
    assert!(answer.contains(returned), "{answer}");
    let list = admin(&coven.user, "get", get).concat();
    assert!(list.contains("nick='third witch'"), "{list}");
    // Who is affiliated already is not invited again. An empty nickname ends the reservation.
    let answer =
        admin(&coven.admin, "set", "<item affiliation='member' jid='hag66@example.com' nick=''/>").concat();
    assert!(!answer.contains(returned), "{answer}");
    let list = admin(&coven.user, "get", get).concat();
    assert!(list.contains("jid='hag66@example.com'/>"), "{list}");
}

#[test]
fn section_5_2_affiliations_change_the_role_of_occupants() {
    let coven = coven(&field("muc#roomconfig_moderatedroom", "1"));
    for (affiliation, role) in [
        ("member", "participant"),
        ("admin", "moderator"),
        ("member", "participant"),
        ("owner", "moderator"),
        ("none", "visitor"),
    ] {
        admin(&coven.owner, "set", &format!("<item affiliation='{affiliation}' jid='hag66@example.com'/>"));
        let received = coven.user.recv().concat();
        assert!(received.contains(&format!("affiliation='{affiliation}'")), "{received}");
        assert!(received.contains(&format!("role='{role}'")), "{affiliation}: {received}");
    }
}

#[test]
fn section_7_10_two_users_of_one_request_do_not_reserve_the_same_nickname() {
    let coven = coven("");
    let items = "<item affiliation='member' jid='hag66@example.com' nick='witch'/>\
                 <item affiliation='member' jid='hecate@example.com' nick='witch'/>";
    assert_error(&admin(&coven.owner, "set", items), "cancel", "conflict");
    assert!(!admin(&coven.owner, "get", "<item affiliation='member'/>").concat().contains("<item "));
}

#[test]
fn sections_9_2_and_9_5_nothing_is_applied_if_one_affiliation_is_refused() {
    let coven = coven("");
    for items in [
        "<item affiliation='outcast' jid='hag66@example.com'/><item affiliation='outcast' jid='crone1@example.com'/>",
        "<item affiliation='member' jid='hag66@example.com'/><item affiliation='admin' jid='hecate@example.com'/>",
    ] {
        assert!(admin(&coven.admin, "set", items).concat().contains("type='error'"));
        assert!(coven.user.recv().is_empty());
    }
}

#[test]
fn sections_9_8_10_5_and_10_8_the_lists_of_moderators_administrators_and_owners() {
    let coven = coven("");
    let moderators = admin(&coven.admin, "get", "<item role='moderator'/>").concat();
    for (affiliation, client, nick) in
        [("owner", &coven.owner, "firstwitch"), ("admin", &coven.admin, "secondwitch")]
    {
        let jid = client.full();
        let item = format!("<item affiliation='{affiliation}' jid='{jid}' nick='{nick}' role='moderator'/>");
        assert!(moderators.contains(&item), "{moderators}");
        let list = admin(&coven.owner, "get", &format!("<item affiliation='{affiliation}'/>")).concat();
        let bare = jid.split('/').next().unwrap();
        assert!(list.contains(&format!("<item affiliation='{affiliation}' jid='{bare}'/>")), "{list}");
    }
    assert_error(&admin(&coven.user, "get", "<item role='moderator'/>"), "auth", "forbidden");
    assert_error(&admin(&coven.user, "get", "<item role='participant'/>"), "auth", "forbidden");
    // Section 8.5, with a delta.
    let delta = "<item nick='thirdwitch' role='visitor'/>";
    admin(&coven.admin, "set", delta);
    let voices = admin(&coven.admin, "get", "<item role='participant'/>").concat();
    assert!(!voices.contains("thirdwitch"), "{voices}");
}

#[test]
fn long_lists_have_pages() {
    let coven = coven("");
    let users = |from: usize| -> String {
        (from..from + 100)
            .map(|n| format!("<item affiliation='outcast' jid='u{n:03}@example.com'/>"))
            .collect()
    };
    for batch in 0..3 {
        admin(&coven.owner, "set", &users(batch * 100));
    }
    let page = |set: &str| {
        let item = format!(
            "<item affiliation='outcast'/><set xmlns='http://jabber.org/protocol/rsm'><max>100</max>{set}</set>"
        );
        admin(&coven.owner, "get", &item).pop().unwrap()
    };
    for (set, first, last) in [
        ("", 0, 99),
        ("<after>u099@example.com</after>", 100, 199),
        ("<before>u200@example.com</before>", 100, 199),
        ("<before/>", 200, 299),
        ("<index>150</index>", 150, 249),
    ] {
        let page = page(set);
        assert_eq!(page.matches("<item ").count(), 100, "{set}");
        let ends = format!(
            "<first index='{first}'>u{first:03}@example.com</first><last>u{last:03}@example.com</last>"
        );
        assert!(page.contains(&ends) && page.contains("<count>300</count>"), "{set}: {page}");
    }
    coven.forget();
    let all = admin(&coven.owner, "get", "<item affiliation='outcast'/>").pop().unwrap();
    assert!(all.matches("<item ").count() == 300 && !all.contains("<set "), "a client that knows no pages");
}

#[test]
fn reasons_of_entries_that_exist_count_for_the_bound_of_bytes() {
    let coven = coven("");
    let reason = "x".repeat(1_000);
    let items = |from: usize, reason: &str| -> String {
        let item = |n: usize| {
            format!("<item affiliation='outcast' jid='u{n}@example.com'><reason>{reason}</reason></item>")
        };
        (from..from + 100).map(item).collect()
    };
    for batch in 0..15 {
        assert!(!admin(&coven.owner, "set", &items(batch * 100, "")).concat().contains("<error"));
        coven.forget();
    }
    let refused = (0..15).map(|batch| admin(&coven.owner, "set", &items(batch * 100, &reason)).concat());
    assert!(refused.filter(|answer| answer.contains("<resource-constraint ")).count() >= 4);
}

#[test]
fn section_17_3_who_is_no_administrator_of_the_service_any_more_is_an_occupant_like_others() {
    for members_only in ["0", "1"] {
        let play = Shakespeare::new();
        let crone = play.room(&field("muc#roomconfig_membersonly", members_only));
        admin(&crone, "set", "<item affiliation='member' jid='hag66@example.com'/>");
        let (hag, wicca) = (play.hag(), play.wicca());
        enter(&hag, "thirdwitch");
        play.engine.node.set_admins([jid::Jid::parse("wiccarocks@example.com").unwrap()]);
        play.engine.advance(1);
        assert!(enter(&wicca, "secondwitch").concat().contains("affiliation='owner'"));
        forget(&[&crone, &hag, &wicca]);
        play.engine.node.set_admins([]);
        play.engine.advance(1);
        let received = crone.recv().concat();
        match members_only {
            "1" => assert!(received.contains("<status code='321'/>"), "{received}"),
            _ => assert!(received.contains("affiliation='none'") && received.contains("role='participant'")),
        }
        forget(&[&wicca]);
        let kick = admin(&wicca, "set", "<item nick='thirdwitch' role='none'/>");
        assert_error(&kick, "auth", "forbidden");
        // One who becomes an administrator is shown as an owner.
        forget(&[&crone]);
        play.engine.node.set_admins([jid::Jid::parse("hag66@example.com").unwrap()]);
        play.engine.advance(1);
        let received = crone.recv().concat();
        assert!(received.contains("affiliation='owner'") && received.contains("/thirdwitch"), "{received}");
    }
}
