//! XEP-0045, sections 6 (discovery), 7.10 (registration), 7.12 (reserved nicknames); XEP-0410; XEP-0486.

use feature_api::feature::DiscoFeature;
use testkit::assert_same;

use super::*;

const STABLE_ID: &str = "http://jabber.org/protocol/muc#stable_id";

const INFO: &str = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
const ITEMS: &str = "<query xmlns='http://jabber.org/protocol/disco#items'/>";
const PING: &str = "<ping xmlns='urn:xmpp:ping'/>";

#[test]
fn section_6_3_public_rooms_are_listed() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_roomname", "A Dark Cave"));
    let list = |client: &NodeClient| request(client, "get", "conference.example.com", ITEMS).concat();
    let listed = format!("<item jid='{ROOM}' name='A Dark Cave'/>");
    assert!(list(&crone).contains(&listed), "{}", list(&crone));
    configure(&crone, &field("muc#roomconfig_publicroom", "0"));
    forget(&[&crone]);
    assert!(!list(&crone).contains(&listed));
}

#[test]
fn section_6_3_the_list_has_pages() {
    let play = Shakespeare::new();
    let crone = play.crone();
    for room in ["alpha", "beta", "gamma"] {
        let to = format!("{room}@conference.example.com");
        crone.request(&format!("<presence to='{to}/witch'>{MUC}</presence>"));
        let form = "<x xmlns='jabber:x:data' type='submit'/>";
        request(
            &crone,
            "set",
            &to,
            &format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{form}</query>"),
        );
    }
    let page = |set: &str| {
        let query = format!(
            "<query xmlns='http://jabber.org/protocol/disco#items'><set xmlns='http://jabber.org/protocol/rsm'>{set}\
             </set></query>"
        );
        request(&crone, "get", "conference.example.com", &query).concat()
    };
    let first = page("<max>2</max>");
    assert!(first.contains("alpha@") && first.contains("beta@") && !first.contains("gamma@"), "{first}");
    assert!(first.contains("<count>3</count>"), "{first}");
    let second = page("<max>2</max><after>beta@conference.example.com</after>");
    assert!(!second.contains("alpha@") && second.contains("gamma@"), "{second}");
    // The id of a page's end is accepted however long the address is.
    let long = format!("a{}@conference.example.com", "l".repeat(1_010));
    crone.request(&format!("<presence to='{long}/witch'>{MUC}</presence>"));
    let form = "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query>";
    request(&crone, "set", &long, form);
    let first = page("<max>1</max>");
    let last = first.split("<last>").nth(1).unwrap().split('<').next().unwrap();
    assert!(last.starts_with(&long), "{first}");
    let second = page(&format!("<max>1</max><after>{last}</after>"));
    assert!(second.contains("alpha@"), "{second}");
}

#[test]
fn section_6_4_information_about_a_room() {
    let play = Shakespeare::new();
    let fields =
        [field("muc#roomconfig_roomname", "A Dark Cave"), field("muc#roomconfig_roomdesc", "The place")];
    let crone = play.room(&fields.concat());
    let info = request(&crone, "get", ROOM, INFO).concat();
    for part in [
        "<identity category='conference' name='A Dark Cave' type='text'/>",
        "<feature var='http://jabber.org/protocol/muc'/>",
        "<feature var='http://jabber.org/protocol/muc#register'/>",
        "<feature var='http://jabber.org/protocol/muc#roomconfig'/>",
        "<feature var='http://jabber.org/protocol/muc#roominfo'/>",
        "<feature var='urn:xmpp:message-retract:1#tombstone'/>",
        "<feature var='muc_public'/>",
        "<feature var='muc_temporary'/>",
        "<feature var='muc_open'/>",
        "<feature var='muc_unmoderated'/>",
        "<feature var='muc_semianonymous'/>",
        "<feature var='muc_unsecured'/>",
        "<value>http://jabber.org/protocol/muc#roominfo</value>",
        "<field var='muc#roominfo_description' type='text-single'><value>The place</value></field>",
        "<field var='muc#roominfo_occupants' type='text-single'><value>1</value></field>",
    ] {
        assert!(info.contains(part), "{info} does not contain {part}");
    }
    // Section 7.4: the service, too, says that messages keep their ids.
    let stable_id = |one: &DiscoFeature| matches!(one, DiscoFeature::Service(STABLE_ID));
    assert!(FEATURE.disco.iter().any(stable_id));
    let nowhere = request(&crone, "get", "heath@conference.example.com", INFO);
    assert_error(&nowhere, "cancel", "item-not-found");
    assert!(
        request(&crone, "get", ROOM, ITEMS).concat().contains(&format!("<item jid='{ROOM}/firstwitch'/>"))
    );
    // Section 6.6.
    let occupant = request(&play.hag(), "get", &format!("{ROOM}/firstwitch"), INFO);
    assert_error(&occupant, "modify", "bad-request");
}

#[test]
fn section_7_10_registration_reserves_a_nickname() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    let register = |client: &NodeClient, payload: &str| {
        request(client, "set", ROOM, &format!("<query xmlns='jabber:iq:register'>{payload}</query>"))
    };
    let form = |nick: &str| {
        format!(
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#register</value></field>{}</x>",
            field("muc#register_roomnick", nick)
        )
    };
    let shown = request(&hag, "get", ROOM, "<query xmlns='jabber:iq:register'/>").concat();
    assert!(shown.contains("muc#register_roomnick") && !shown.contains("<registered/>"), "{shown}");
    assert_error(&register(&hag, ""), "modify", "bad-request");
    assert_same(&register(&hag, &form("thirdwitch")), &[result(&hag)]);
    let reserved = "<query xmlns='http://jabber.org/protocol/disco#info' node='x-roomuser-item'/>";
    let answer = request(&hag, "get", ROOM, reserved).concat();
    assert!(answer.contains("<identity category='conference' name='thirdwitch' type='text'/>"), "{answer}");
    let wicca = play.wicca();
    assert_error(&register(&wicca, &form("thirdwitch")), "cancel", "conflict");
    assert_error(&enter(&wicca, "thirdwitch"), "cancel", "conflict");
    admin(&crone, "set", "<item affiliation='outcast' jid='wiccarocks@example.com'/>");
    assert_error(&register(&wicca, &form("secondwitch")), "cancel", "not-allowed");
    let other_node = "<query xmlns='http://jabber.org/protocol/disco#info' node='http://jabber.org/protocol/muc#traffic'/>";
    assert_error(&request(&hag, "get", ROOM, other_node), "cancel", "feature-not-implemented");
    assert_same(&register(&hag, "<remove/>"), &[result(&hag)]);
}

#[test]
fn section_9_9_an_administrator_approves_a_registration() {
    let play = Shakespeare::new();
    let fields = [field("muc#roomconfig_membersonly", "1"), field("muc#roomconfig_persistentroom", "1")];
    let crone = play.room(&fields.concat());
    let hag = play.hag();
    forget(&[&crone]);
    let form = |fields: &str| {
        format!(
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#register</value></field>{fields}</x>"
        )
    };
    let nick = field("muc#register_roomnick", "thirdwitch");
    let query = format!("<query xmlns='jabber:iq:register'>{}</query>", form(&nick));
    assert_same(&request(&hag, "set", ROOM, &query), &[result(&hag)]);
    assert_error(&enter(&hag, "thirdwitch"), "auth", "registration-required");
    let asked = crone.recv().concat();
    assert!(asked.contains("<value>hag66@example.com</value>"), "{asked}");
    let allow = [nick, field("muc#jid", "hag66@example.com"), field("muc#register_allow", "1")];
    // Also from outside of the room.
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    let approval = format!("<message to='{ROOM}'>{}</message>", form(&allow.concat()));
    assert_error(&hag.request(&approval), "modify", "not-acceptable");
    assert!(crone.request(&approval).is_empty());
    assert!(enter(&hag, "thirdwitch").concat().contains("affiliation='member'"));
}

#[test]
fn xep_0410_a_ping_to_oneself_shows_whether_one_is_in_the_room() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    let ping = |nick: &str| request(&hag, "get", &format!("{ROOM}/{nick}"), PING);
    assert_error(&ping("thirdwitch"), "cancel", "not-acceptable");
    let nowhere = request(&hag, "get", "heath@conference.example.com/thirdwitch", PING);
    assert_error(&nowhere, "cancel", "not-acceptable");
    enter(&hag, "thirdwitch");
    assert_same(&ping("thirdwitch"), &[result(&hag).replace(ROOM, &format!("{ROOM}/thirdwitch"))]);
    assert_error(&ping("nobody"), "cancel", "item-not-found");
    forget(&[&crone]);
    // A ping to another occupant is passed on, and so is the answer.
    assert!(ping("firstwitch").is_empty());
    let received = crone.recv().concat();
    assert!(received.contains(&format!("from='{ROOM}/thirdwitch'")) && received.contains(PING), "{received}");
    let id = received.split(" id='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    assert_ne!(id, "r1");
    crone.send(&format!("<iq to='{ROOM}/thirdwitch' type='result' id='{id}' xml:lang='la'/>"));
    let answer = result(&hag).replace(ROOM, &format!("{ROOM}/firstwitch")).replace("/>", " xml:lang='la'/>");
    assert_same(&hag.recv(), &[answer]);
    crone.send(&format!("<iq to='{ROOM}/thirdwitch' type='result' id='{id}'/>"));
    assert!(hag.recv().is_empty(), "a second answer");
}

#[test]
fn xep_0486_owners_set_the_avatar_of_a_room() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    let card =
        "<vCard xmlns='vcard-temp'><PHOTO><TYPE>image/png</TYPE><BINVAL>aGVsbG8=</BINVAL></PHOTO></vCard>";
    assert_error(&request(&hag, "set", ROOM, card), "auth", "forbidden");
    let answer = request(&crone, "set", ROOM, card);
    assert!(answer[0].contains("<status code='104'/>"), "{answer:?}");
    assert_same(answer.last_chunk::<1>().unwrap(), &[result(&crone)]);
    let shown = request(&hag, "get", ROOM, "<vCard xmlns='vcard-temp'/>").concat();
    assert!(shown.contains("<BINVAL>aGVsbG8=</BINVAL>"), "{shown}");
    let info = request(&hag, "get", ROOM, INFO).concat();
    assert!(info.contains("<value>aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d</value>"), "{info}");
}

#[test]
fn xep_0307_a_unique_name_is_suggested() {
    let play = Shakespeare::new();
    let crone = play.crone();
    let unique = "<unique xmlns='http://jabber.org/protocol/muc#unique'/>";
    let ask = || request(&crone, "get", "conference.example.com", unique).concat();
    assert_ne!(ask(), ask());
}

#[test]
fn section_9_9_administrators_receive_the_registration_of_a_user_once_and_completely() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_membersonly", "1"));
    let hag = play.hag();
    forget(&[&crone]);
    let register = |last: &str| {
        let fields = [
            field("muc#register_roomnick", "thirdwitch"),
            field("muc#register_last", last),
            field("muc#register_faqentry", "Just another witch."),
        ];
        let form = format!(
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#register</value></field>{}</x>",
            fields.concat()
        );
        request(&hag, "set", ROOM, &format!("<query xmlns='jabber:iq:register'>{form}</query>"))
    };
    assert_same(&register(&"x".repeat(2_000)), &[result(&hag)]);
    let asked = crone.recv().concat();
    assert!(asked.contains("<value>Just another witch.</value>") && !asked.contains("xxx"), "{asked}");
    for _ in 0..10 {
        assert_same(&register("Witch"), &[result(&hag)]);
    }
    assert!(crone.recv().is_empty());
}

#[test]
fn section_9_9_administrators_receive_another_nickname_of_a_registration() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_membersonly", "1"));
    let hag = play.hag();
    forget(&[&crone]);
    let register = |client: &NodeClient, nick: &str| {
        let form = format!(
            "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#register</value></field>{}</x>",
            field("muc#register_roomnick", nick)
        );
        request(client, "set", ROOM, &format!("<query xmlns='jabber:iq:register'>{form}</query>"))
    };
    assert_same(&register(&hag, "thirdwitch"), &[result(&hag)]);
    assert!(crone.recv().concat().contains("<value>thirdwitch</value>"));
    assert_error(&register(&hag, "hag"), "wait", "resource-constraint");
    play.engine.advance(60);
    assert_same(&register(&hag, "hag"), &[result(&hag)]);
    assert!(crone.recv().concat().contains("<value>hag</value>"));
    // Users who need not even be in the room do not keep others out for a day.
    for number in 0..63 {
        let guest = play.engine.connect_anonymous(&format!("guest{number}"), "web");
        assert_same(&register(&guest, &format!("guest{number}")), &[result(&guest)]);
    }
    let wicca = play.wicca();
    assert_error(&register(&wicca, "secondwitch"), "wait", "resource-constraint");
    play.engine.advance(60);
    forget(&[&crone]);
    assert_same(&register(&wicca, "secondwitch"), &[result(&wicca)]);
    assert!(crone.recv().concat().contains("<value>secondwitch</value>"));
}

#[test]
fn section_7_10_owners_end_the_reservation_of_their_nickname_and_stay_owners() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let register = |payload: &str| {
        request(&crone, "set", ROOM, &format!("<query xmlns='jabber:iq:register'>{payload}</query>"))
    };
    let form = format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
         <value>http://jabber.org/protocol/muc#register</value></field>{}</x>",
        field("muc#register_roomnick", "crone")
    );
    let reserved = "<query xmlns='http://jabber.org/protocol/disco#info' node='x-roomuser-item'/>";
    let shown = || request(&crone, "get", ROOM, reserved).concat();
    assert!(!shown().contains("<identity "));
    assert_same(&register(&form), &[result(&crone)]);
    assert!(shown().contains("name='crone'"));
    let registered = request(&crone, "get", ROOM, "<query xmlns='jabber:iq:register'/>").concat();
    assert!(registered.contains("<registered/><username>crone</username>"), "{registered}");
    assert_same(&register("<remove/>"), &[result(&crone)]);
    assert!(!shown().contains("<identity ") && owner(&crone, "get", "")[0].contains("type='result'"));
}

#[test]
fn one_occupant_does_not_take_the_requests_of_others() {
    let play = Shakespeare::with(&[("stanzas_per_second_per_sender", OptionValue::Int(0))]);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    wicca.send(&format!("<iq type='get' to='{ROOM}/firstwitch' id='w1'>{PING}</iq>"));
    let asked = crone.recv().concat();
    let id = asked.split(" id='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    for number in 0..300 {
        hag.send(&format!("<iq type='get' to='{ROOM}/firstwitch' id='h{number}'>{PING}</iq>"));
    }
    forget(&[&crone, &hag, &wicca]);
    crone.send(&format!("<iq to='{ROOM}/secondwitch' type='result' id='{id}'/>"));
    assert!(wicca.recv().concat().contains("id='w1'"));
    // What changes something at another client is a private message, too.
    configure(&crone, &field("muc#roomconfig_allowpm", "none"));
    forget(&[&crone, &hag, &wicca]);
    let set = format!("<iq type='set' to='{ROOM}/firstwitch' id='w2'><x xmlns='urn:x'/></iq>");
    assert_error(&wicca.request(&set), "auth", "forbidden");
    assert!(crone.recv().is_empty());
}
