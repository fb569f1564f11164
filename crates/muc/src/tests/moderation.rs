//! XEP-0424 and XEP-0425: retracted messages, their tombstones and the retractions in the history.

use testkit::assert_same;

use super::*;

fn groupchat(client: &NodeClient, content: &str) -> Vec<String> {
    client.request(&format!("<message to='{ROOM}' type='groupchat' id='m1'>{content}</message>"))
}

fn moderation(id: &str) -> String {
    format!(
        "<moderate id='{id}' xmlns='urn:xmpp:message-moderate:1'><retract xmlns='urn:xmpp:message-retract:1'/>\
         <reason>This message contains inappropriate content for this forum</reason></moderate>"
    )
}

/// The room's id of the last message.
fn stanza_id(received: &[String]) -> String {
    let text = received.last().unwrap();
    let start = text.find("<stanza-id ").unwrap();
    let id = text[start..].find(" id='").unwrap() + start + 5;
    text[id..].split('\'').next().unwrap().to_owned()
}

#[test]
fn xep_0425_a_moderator_retracts_a_message_and_newcomers_receive_a_tombstone() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "oldhag");
    forget(&[&crone]);
    let id = stanza_id(&groupchat(&hag, "<body>DM me for free magic potions!</body>"));
    forget(&[&crone]);
    let moderate = format!(
        "<moderate id='{id}' xmlns='urn:xmpp:message-moderate:1'><retract xmlns='urn:xmpp:message-retract:1'/>\
         <reason>This message contains inappropriate content for this forum</reason></moderate>"
    );
    assert_error(&request(&hag, "set", ROOM, &moderate), "modify", "forbidden");
    let unmasked = crone.request(&format!("<iq type='set' to='{ROOM}' id='r1'>{moderate}</iq>"));
    let received = masked(unmasked.clone());
    assert_same(&received[1..], &[result(&crone)]);
    for part in [
        &*format!("<retract xmlns='urn:xmpp:message-retract:1' id='{id}'>"),
        &format!("<moderated xmlns='urn:xmpp:message-moderate:1' by='{ROOM}/firstwitch'"),
        "<reason>This message contains inappropriate content for this forum</reason>",
    ] {
        assert!(received[0].contains(part), "{received:?} does not contain {part}");
    }
    let retraction = stanza_id(&unmasked[..1]);
    let received = enter(&play.wicca(), "secondwitch").concat();
    assert!(!received.contains("magic potions") && received.contains("<retracted "), "{received}");
    // XEP-0424, section 5: clients match it with the retraction.
    let tombstone = received.split_once("<retracted ").unwrap().1.split_once('>').unwrap().0;
    assert!(tombstone.contains(&format!("id='{retraction}'")), "{tombstone} {retraction}");
}

#[test]
fn xep_0424_an_occupant_retracts_only_own_messages() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "oldhag");
    let id = stanza_id(&groupchat(&crone, "<body>Have not saints lips</body>"));
    let retract =
        format!("<retract id='{id}' xmlns='urn:xmpp:message-retract:1'/><store xmlns='urn:xmpp:hints'/>");
    groupchat(&hag, &retract);
    assert!(enter(&play.wicca(), "secondwitch").concat().contains("Have not saints lips"));
    groupchat(&crone, &retract);
    let hecate = play.engine.connect("hecate", "broom");
    assert!(!enter(&hecate, "hecate").concat().contains("Have not saints lips"));
}

#[test]
fn section_5_of_xep_0424_a_user_who_has_the_message_receives_its_retraction_later() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    let hag = play.hag();
    enter(&hag, "oldhag");
    forget(&[&crone]);
    let first = stanza_id(&groupchat(&crone, "<body>one</body>"));
    let second = stanza_id(&groupchat(&crone, "<body>two</body>"));
    hag.request(&format!("<presence to='{ROOM}/oldhag' type='unavailable'/>"));
    forget(&[&crone]);
    play.engine.advance(60);
    let since = stamp(play.engine.node.clock.unix_millis());
    play.engine.advance(60);
    request(&crone, "set", ROOM, &moderation(&first));
    // Without a body and without a hint to store it.
    groupchat(&crone, &format!("<retract id='{second}' xmlns='urn:xmpp:message-retract:1'/>"));
    let since = format!("<x xmlns='http://jabber.org/protocol/muc'><history since='{since}'/></x>");
    let received = enter_with(&hag, "oldhag", &since).concat();
    let retract = |id: &str| format!("<retract xmlns='urn:xmpp:message-retract:1' id='{id}'><moderated ");
    assert!(received.contains(&retract(&first)), "{received}");
    let own = format!("<retract id='{second}' xmlns='urn:xmpp:message-retract:1'/>");
    assert!(received.contains(&own) && !received.contains("<body>"), "{received}");
    // Also after the room was read from the store.
    for (client, nick) in [(&hag, "oldhag"), (&crone, "firstwitch")] {
        client.request(&format!("<presence to='{ROOM}/{nick}' type='unavailable'/>"));
    }
    let received = enter(&play.wicca(), "secondwitch").concat();
    assert!(received.contains(&retract(&first)) && received.contains(&own), "{received}");
    assert_eq!(received.matches("<retracted ").count(), 2, "{received}");
}

fn stamp(millis: u64) -> String {
    stanza::payload::datetime::format_utc(millis, false)
}

#[test]
fn section_5_of_xep_0425_a_moderated_subject_is_not_sent_to_newcomers() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "oldhag");
    configure(&crone, &field("muc#roomconfig_changesubject", "1"));
    forget(&[&crone, &hag]);
    let id = stanza_id(&groupchat(&hag, "<subject>free magic potions</subject>"));
    forget(&[&crone]);
    request(&crone, "set", ROOM, &moderation(&id));
    let received = enter(&play.wicca(), "secondwitch");
    assert!(!received.concat().contains("magic potions"), "{received:?}");
    assert!(received.last().unwrap().contains("<subject/>"), "{received:?}");
}

#[test]
fn tombstones_repeat_no_long_ids() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let long = "x".repeat(10_000);
    let send = |content: &str| {
        let message = format!("<message to='{ROOM}' type='groupchat' id='{long}'>{content}</message>");
        crone.request(&message)
    };
    for _ in 0..5 {
        let id = stanza_id(&send("<body>x</body>"));
        send(&format!("<retract id='{id}' xmlns='urn:xmpp:message-retract:1'/>"));
    }
    let received = enter(&play.hag(), "thirdwitch");
    let tombstones: Vec<&String> = received.iter().filter(|one| one.contains("<retracted ")).collect();
    assert_eq!(tombstones.len(), 5);
    assert!(tombstones.iter().all(|one| one.len() < 1_000), "{}", tombstones[0]);
}

#[test]
fn retractions_that_retract_nothing_are_not_in_the_history() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "oldhag");
    let id = stanza_id(&groupchat(&crone, "<body>Have not saints lips</body>"));
    let own = stanza_id(&groupchat(&crone, "<body>Palmers</body>"));
    let retract = |id: &str| {
        let body = "<body>/me retracted a previous message</body>";
        format!(
            "{body}<retract id='{id}' xmlns='urn:xmpp:message-retract:1'/><store xmlns='urn:xmpp:hints'/>"
        )
    };
    // Of another user, and one for the second time.
    groupchat(&hag, &retract(&id));
    groupchat(&crone, &retract(&own));
    groupchat(&crone, &retract(&own));
    let received = enter(&play.wicca(), "secondwitch").concat();
    assert!(received.contains("Have not saints lips"), "{received}");
    assert!(!received.contains(&format!("<retract id='{id}'")), "{received}");
    assert_eq!(received.matches(&format!("<retract id='{own}'")).count(), 1, "{received}");
    // An older one, which the room does not have in memory any more, stays.
    groupchat(&hag, &retract("older"));
    assert!(enter(&play.hecate(), "hecate").concat().contains("<retract id='older'"));
}
