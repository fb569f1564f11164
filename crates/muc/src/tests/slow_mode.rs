//! XEP-0500: who waits, and for what.

use super::*;

fn groupchat(client: &NodeClient, content: &str) -> Vec<String> {
    client.request(&format!("<message to='{ROOM}' type='groupchat' id='m1'>{content}</message>"))
}

fn slow_room(play: &Shakespeare) -> NodeClient {
    play.room(&field("muc#roomconfig_slow_mode_duration", "20"))
}

fn leave(client: &NodeClient, nick: &str) {
    client.request(&format!("<presence to='{ROOM}/{nick}' type='unavailable'/>"));
}

#[test]
fn section_6_users_wait_but_administrators_and_owners_do_not() {
    let play = Shakespeare::new();
    let crone = slow_room(&play);
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    play.engine.advance(1);
    assert_eq!(groupchat(&hag, "<body>one</body>").len(), 1);
    let refused = groupchat(&hag, "<body>two</body>");
    assert_error(&refused, "wait", "policy-violation");
    assert!(refused[0].contains("You have to wait 20 seconds"), "{refused:?}");
    forget(&[&crone]);
    assert_eq!(groupchat(&crone, "<body>one</body>").len(), 1);
    assert_eq!(groupchat(&crone, "<body>two</body>").len(), 1);
    forget(&[&hag]);
    play.engine.advance(20);
    assert_eq!(groupchat(&hag, "<body>two</body>").len(), 1);
    // A moderator without an affiliation is a user as others.
    admin(&crone, "set", "<item nick='thirdwitch' role='moderator'/>");
    forget(&[&crone, &hag]);
    assert_error(&groupchat(&hag, "<body>three</body>"), "wait", "policy-violation");
}

#[test]
fn section_6_the_limit_is_that_of_the_user_in_all_sessions_and_visits() {
    let play = Shakespeare::new();
    let crone = slow_room(&play);
    let (hag, phone) = (play.hag(), play.engine.connect("hag66", "phone"));
    enter(&hag, "thirdwitch");
    assert_eq!(groupchat(&hag, "<body>one</body>").len(), 1);
    leave(&hag, "thirdwitch");
    enter_with(&hag, "thirdwitch", "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x>");
    assert_error(&groupchat(&hag, "<body>two</body>"), "wait", "policy-violation");
    enter(&phone, "otherwitch");
    assert_error(&groupchat(&phone, "<body>two</body>"), "wait", "policy-violation");
    forget(&[&crone]);
}

#[test]
fn section_6_only_messages_with_a_body_count() {
    let play = Shakespeare::new();
    let crone = slow_room(&play);
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let marker = "<displayed xmlns='urn:xmpp:chat-markers:0' id='1'/><store xmlns='urn:xmpp:hints'/>";
    for _ in 0..2 {
        assert!(groupchat(&hag, marker)[0].contains("displayed"));
    }
    assert!(!groupchat(&hag, "<body>one</body>")[0].contains("type='error'"));
    assert!(groupchat(&hag, marker)[0].contains("displayed"));
}

#[test]
fn sections_4_and_5_the_form_has_a_range_and_everybody_sees_the_duration() {
    let play = Shakespeare::new();
    let crone = slow_room(&play);
    let form = owner(&crone, "get", "").concat();
    assert!(
        form.contains(
            "<validate xmlns='http://jabber.org/protocol/xdata-validate' datatype='xs:integer'><range min='0' "
        ),
        "{form}"
    );
    for wrong in ["-1", "soon"] {
        let refused = configure(&crone, &field("muc#roomconfig_slow_mode_duration", wrong));
        assert!(refused.contains(&refusal("modify", "not-acceptable")), "{refused}");
    }
    let info = "<query xmlns='http://jabber.org/protocol/disco#info'/>";
    let info = request(&play.hag(), "get", ROOM, info).concat();
    let shown = "<field var='muc#roominfo_slow_mode_duration' type='text-single'><value>20</value></field>";
    assert!(info.contains(shown), "{info}");
}

#[test]
fn messages_without_a_body_do_not_push_the_others_out_of_the_history() {
    let play = Shakespeare::with(&[("history_messages", OptionValue::Int(15))]);
    let crone = slow_room(&play);
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    (0..3).for_each(|number| drop(groupchat(&crone, &format!("<body>{number}</body>"))));
    forget(&[&hag]);
    let store = "<store xmlns='urn:xmpp:hints'/>";
    for number in 0..30 {
        let marker = format!("<displayed xmlns='urn:xmpp:chat-markers:0' id='{number}'/>{store}");
        let retraction = format!("<retract xmlns='urn:xmpp:message-retract:1' id='{number}'/>");
        for content in [marker, retraction] {
            // Occupants have them all.
            assert!(groupchat(&hag, &content)[0].contains(&content));
        }
    }
    forget(&[&crone]);
    let count = |received: Vec<String>, text: &str| received.iter().filter(|one| one.contains(text)).count();
    assert_eq!(count(enter(&play.wicca(), "secondwitch"), "<body>"), 3);
    forget(&[&hag]);
    // The sender still has the one message of this time.
    assert_eq!(groupchat(&hag, "<body>one</body>").len(), 1);
    assert_eq!(count(enter(&play.hecate(), "hecate"), "<body>"), 4);
}
