//! XEP-0045, section 6: what others learn about a room; XEP-0502.

use super::*;

const INFO: &str = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
const ITEMS: &str = "<query xmlns='http://jabber.org/protocol/disco#items'/>";
const ACTIVITY: &str = "<field var='{urn:xmpp:muc-activity}message-activity'";

fn info(client: &NodeClient) -> String {
    request(client, "get", ROOM, INFO).concat()
}

fn say(client: &NodeClient, content: &str) {
    client.request(&format!("<message to='{ROOM}' type='groupchat'>{content}</message>"));
}

#[test]
fn xep_0502_activity_is_published_of_persistent_rooms_that_everybody_finds_and_enters() {
    let play = Shakespeare::new();
    let crone = play.room("");
    assert!(!info(&crone).contains(ACTIVITY), "a temporary room");
    let persistent = field("muc#roomconfig_persistentroom", "1");
    configure(&crone, &persistent);
    forget(&[&crone]);
    // Section 3.1: no number in place of one that is not known.
    assert!(!info(&crone).contains(ACTIVITY));
    play.engine.advance(3_600);
    assert!(info(&crone).contains(&format!("{ACTIVITY} type='text-single'><value>0.00</value>")));
    for (name, value) in [("publicroom", "0"), ("membersonly", "1"), ("passwordprotectedroom", "1")] {
        let secret = field("muc#roomconfig_roomsecret", "cauldronburn");
        configure(&crone, &(field(&format!("muc#roomconfig_{name}"), value) + &secret));
        forget(&[&crone]);
        assert!(!info(&crone).contains(ACTIVITY), "{name}");
        configure(&crone, &field(&format!("muc#roomconfig_{name}"), if value == "1" { "0" } else { "1" }));
        forget(&[&crone]);
    }
    assert!(info(&crone).contains(ACTIVITY));
}

#[test]
fn xep_0502_section_4_messages_with_a_body_count_and_corrections_do_not() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    say(&crone, "<body>one</body>");
    say(&crone, "<body>two</body><no-store xmlns='urn:xmpp:hints'/>");
    say(&crone, "<store xmlns='urn:xmpp:hints'/>");
    say(&crone, "<body>two!</body><replace xmlns='urn:xmpp:message-correct:0' id='m1'/>");
    forget(&[&crone]);
    assert!(info(&crone).contains("<value>2.00</value>"), "{}", info(&crone));
}

#[test]
fn xep_0502_section_3_1_a_room_that_was_loaded_without_messages_does_not_claim_to_be_silent() {
    let play = Shakespeare::with(&[("history_messages", OptionValue::Int(0))]);
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    say(&crone, "<body>one</body>");
    assert!(info(&crone).contains("<value>1.00</value>"));
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    enter(&crone, "firstwitch");
    assert!(!info(&crone).contains(ACTIVITY), "{}", info(&crone));
    say(&crone, "<body>two</body>");
    assert!(info(&crone).contains("<value>1.00</value>"));
}

#[test]
fn section_6_4_the_fields_and_features_of_a_room_that_is_not_open() {
    let play = Shakespeare::new();
    let fields = [
        field("muc#roomconfig_publicroom", "0"),
        field("muc#roomconfig_persistentroom", "1"),
        field("muc#roomconfig_membersonly", "1"),
        field("muc#roomconfig_moderatedroom", "1"),
        field("muc#roomconfig_whois", "anyone"),
        field("muc#roomconfig_passwordprotectedroom", "1"),
        field("muc#roomconfig_roomsecret", "cauldronburn"),
        field("muc#roomconfig_lang", "la"),
        field("muc#roomconfig_pubsub", "xmpp:pubsub.example.com?;node=coven"),
        field("muc#roomconfig_changesubject", "1"),
        field("muc#maxhistoryfetch", "7"),
    ];
    let crone = play.room(&fields.concat());
    crone.request(&format!("<message to='{ROOM}' type='groupchat'><subject>secret</subject></message>"));
    let info = info(&crone);
    for part in [
        "'muc_hidden'",
        "'muc_persistent'",
        "'muc_membersonly'",
        "'muc_moderated'",
        "'muc_nonanonymous'",
        "'muc_passwordprotected'",
        "<field var='muc#roominfo_lang' type='text-single'><value>la</value>",
        "<field var='muc#roomconfig_pubsub' type='text-single'><value>xmpp:pubsub.example.com?;node=coven</value>",
        "<field var='muc#roominfo_subjectmod' type='boolean'><value>1</value>",
        "<field var='muc#maxhistoryfetch' type='text-single'><value>7</value>",
        "<field var='muc#roominfo_contactjid' type='jid-multi'><value>crone1@example.com</value>",
    ] {
        assert!(info.contains(part), "{info} does not contain {part}");
    }
    assert!(!info.contains("secret"), "{info}");
}

#[test]
fn section_6_5_banned_users_do_not_see_the_occupants() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let occupant = format!("<item jid='{ROOM}/firstwitch'/>");
    assert!(request(&play.hag(), "get", ROOM, ITEMS).concat().contains(&occupant));
    admin(&crone, "set", "<item affiliation='outcast' jid='hag66@example.com'/>");
    let hag = play.engine.connect("hag66", "phone");
    assert!(!request(&hag, "get", ROOM, ITEMS).concat().contains(&occupant));
}

#[test]
fn xep_0486_a_vcard_without_a_photo_has_no_hash() {
    let play = Shakespeare::new();
    let crone = play.room("");
    request(&crone, "set", ROOM, "<vCard xmlns='vcard-temp'><FN>Coven</FN></vCard>");
    assert!(!info(&crone).contains("avatarhash"));
    let photo = |text: &str| format!("<PHOTO><BINVAL>{text}</BINVAL></PHOTO>");
    let two = photo("aGVsbG8=") + &photo("d29ybGQ=");
    let received = request(&crone, "set", ROOM, &format!("<vCard xmlns='vcard-temp'>{two}</vCard>"));
    assert!(received.iter().all(|one| !one.starts_with("<presence")), "{received:?}");
    let shown = info(&crone);
    let hashes = shown.split("muc#roominfo_avatarhash").nth(1).unwrap().split("</field>").next().unwrap();
    assert_eq!(hashes.matches("<value>").count(), 2, "{hashes}");
    request(&crone, "set", ROOM, "<vCard xmlns='vcard-temp'/>");
    assert!(!info(&crone).contains("avatarhash"));
}

#[test]
fn xep_0050_section_2_2_commands_of_a_room_have_information() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let items =
        "<query xmlns='http://jabber.org/protocol/disco#items' node='http://jabber.org/protocol/commands'/>";
    let items = request(&crone, "get", ROOM, items).concat();
    let node = items.split(" node='").nth(2).unwrap().split('\'').next().unwrap().to_owned();
    let info = format!("<query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/>");
    let info = request(&crone, "get", ROOM, &info).concat();
    for part in [
        "category='automation'",
        "type='command-node'",
        "http://jabber.org/protocol/commands",
        "jabber:x:data",
    ] {
        assert!(info.contains(part), "{info} does not contain {part}");
    }
}

#[test]
fn section_6_3_a_page_follows_a_temporary_room_that_is_gone() {
    let play = Shakespeare::new();
    let (crone, hag) = (play.crone(), play.hag());
    let form = "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query>";
    for (client, room) in [(&crone, "alpha"), (&hag, "beta"), (&crone, "gamma")] {
        let to = format!("{room}@conference.example.com");
        client.request(&format!("<presence to='{to}/witch'>{MUC}</presence>"));
        request(client, "set", &to, form);
    }
    let page = |set: &str| {
        let query = format!(
            "<query xmlns='http://jabber.org/protocol/disco#items'><set xmlns='http://jabber.org/protocol/rsm'>{set}\
             </set></query>"
        );
        request(&crone, "get", "conference.example.com", &query).concat()
    };
    let first = page("<max>2</max>");
    let last = first.split("<last>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    hag.request("<presence to='beta@conference.example.com/witch' type='unavailable'/>");
    let second = page(&format!("<max>2</max><after>{last}</after>"));
    assert!(second.contains("gamma@") && !second.contains("alpha@"), "{second}");
}
