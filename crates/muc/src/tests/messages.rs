//! XEP-0045, sections 7.2.13 to 7.2.15 (history, subject), 7.4 and 7.5 (messages), 7.8 (invitations), 7.13 (voice), 8.1
//! (subject); XEP-0424, XEP-0425.

use testkit::assert_same;

use super::*;

fn groupchat(client: &NodeClient, content: &str) -> Vec<String> {
    client.request(&format!("<message to='{ROOM}' type='groupchat' id='m1'>{content}</message>"))
}

fn message(to: &NodeClient, nick: &str, content: &str) -> String {
    format!("<message from='{ROOM}/{nick}' to='{}' type='groupchat' id='m1'>{content}</message>", to.full())
}

#[test]
fn section_7_4_a_message_is_reflected_to_all_with_ids_of_the_room() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let forged = format!(
        "<stanza-id xmlns='urn:xmpp:sid:0' id='x' by='{ROOM}'/><occupant-id xmlns='urn:xmpp:occupant-id:0' id='x'/>"
    );
    let received = groupchat(&hag, &format!("<body>Harpier cries: 'tis time.</body>{forged}"));
    assert_eq!(received.len(), 1);
    assert!(!received[0].contains("id='x'"), "{received:?}");
    assert_eq!(received[0].matches("<stanza-id ").count(), 1);
    assert_eq!(received[0].matches("<occupant-id ").count(), 1);
    let body = "<body>Harpier cries: 'tis time.</body>";
    assert_same(&masked(received), &[message(&hag, "thirdwitch", body)]);
    assert_same(&masked(crone.recv()), &[message(&crone, "thirdwitch", body)]);
}

#[test]
fn section_7_4_errors_of_messages() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let hag = play.hag();
    assert_error(&groupchat(&hag, "<body>x</body>"), "modify", "not-acceptable");
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    // A visitor has no voice.
    assert_error(&groupchat(&hag, "<body>x</body>"), "auth", "forbidden");
    let to_nowhere =
        hag.request("<message to='heath@conference.example.com' type='groupchat'><body>x</body></message>");
    assert_error(&to_nowhere, "cancel", "item-not-found");
    let chat = hag.request(&format!("<message to='{ROOM}' type='chat'><body>x</body></message>"));
    assert_error(&chat, "modify", "bad-request");
    assert!(crone.recv().is_empty());
}

#[test]
fn section_7_5_private_messages_and_their_errors() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (wicca, hag) = (play.wicca(), play.hag());
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    let private = |client: &NodeClient, nick: &str, kind: &str| {
        client.request(&format!(
            "<message to='{ROOM}/{nick}' type='{kind}' id='m1'><body>I'll give thee a wind.</body></message>"
        ))
    };
    assert!(private(&wicca, "firstwitch", "chat").is_empty());
    assert_same(
        &masked(crone.recv()),
        &[format!(
            "<message from='{ROOM}/secondwitch' to='{}' type='chat' id='m1'><body>I'll give thee a wind.</body>\
             <x xmlns='http://jabber.org/protocol/muc#user'/></message>",
            crone.full()
        )],
    );
    assert_error(&private(&wicca, "firstwitch", "groupchat"), "modify", "bad-request");
    assert_error(&private(&wicca, "thirdwitch", "chat"), "cancel", "item-not-found");
    assert_error(&private(&hag, "firstwitch", "chat"), "modify", "not-acceptable");
    configure(&crone, &field("muc#roomconfig_allowpm", "moderators"));
    forget(&[&crone, &wicca]);
    assert_error(&private(&wicca, "firstwitch", "chat"), "auth", "forbidden");
    assert!(private(&crone, "secondwitch", "chat").is_empty());
    assert_eq!(wicca.recv().len(), 1);
}

#[test]
fn section_7_2_13_a_newcomer_receives_the_history_then_the_subject() {
    let play = Shakespeare::new();
    let crone = play.room("");
    for text in ["one", "two", "three"] {
        groupchat(&crone, &format!("<body>{text}</body>"));
    }
    groupchat(&crone, "<body>off the record</body><no-store xmlns='urn:xmpp:hints'/>");
    groupchat(&crone, "<composing xmlns='http://jabber.org/protocol/chatstates'/>");
    groupchat(&crone, "<subject>Fire Burn and Cauldron Bubble!</subject>");
    let hag = play.hag();
    let received = enter(&hag, "thirdwitch");
    let delay = format!("<delay xmlns='urn:xmpp:delay' from='{ROOM}'/>");
    let delayed = |content: &str| message(&hag, "firstwitch", &format!("{content}{delay}"));
    assert_same(
        &received[2..],
        &[
            delayed("<body>one</body>"),
            delayed("<body>two</body>"),
            delayed("<body>three</body>"),
            delayed("<subject>Fire Burn and Cauldron Bubble!</subject>"),
        ],
    );
    let wicca = play.wicca();
    let history =
        |request: &str| format!("<x xmlns='http://jabber.org/protocol/muc'><history {request}/></x>");
    for (wanted, count) in [
        ("maxstanzas='2'", 2),
        ("maxchars='0'", 0),
        ("seconds='180'", 3),
        ("since='2999-01-01T00:00:00Z'", 0),
    ] {
        let received = enter_with(&wicca, "secondwitch", &history(wanted));
        assert_eq!(
            received.iter().filter(|one| one.contains("<body>")).count(),
            count,
            "{wanted}: {received:?}"
        );
        wicca.request(&format!("<presence to='{ROOM}/secondwitch' type='unavailable'/>"));
    }
}

#[test]
fn section_8_1_who_may_change_the_subject() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let subject = "<subject>Fire Burn and Cauldron Bubble!</subject>";
    assert_error(&groupchat(&hag, subject), "auth", "forbidden");
    assert_same(&masked(groupchat(&crone, subject)), &[message(&crone, "firstwitch", subject)]);
    assert_same(&masked(hag.recv()), &[message(&hag, "firstwitch", subject)]);
    configure(&crone, &field("muc#roomconfig_changesubject", "1"));
    forget(&[&crone, &hag]);
    assert_eq!(groupchat(&hag, "<subject/>").len(), 1, "the subject is removed");
    // With a body, it is an ordinary message.
    assert_eq!(groupchat(&hag, "<subject>x</subject><body>y</body>").len(), 1);
    let wicca = play.wicca();
    let received = enter(&wicca, "secondwitch");
    assert!(received.last().unwrap().contains("<subject/>"), "{received:?}");
}

#[test]
fn section_7_8_2_mediated_invitations_and_declines() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_membersonly", "1"));
    let (hecate, hag) = (play.engine.connect("hecate", "broom"), play.hag());
    let invite = |client: &NodeClient, to: &str| {
        client.request(&format!(
            "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><invite to='{to}'>\
             <reason>Hey Hecate, this is the place.</reason></invite></x></message>"
        ))
    };
    let decline = |client: &NodeClient| {
        client.request(&format!(
            "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><decline to='crone1@example.com'>\
             <reason>Sorry, I'm too busy right now.</reason></decline></x></message>"
        ))
    };
    assert_error(&invite(&hag, "hecate@example.com"), "modify", "not-acceptable");
    assert_error(&decline(&hag), "cancel", "item-not-found");
    forget(&[&crone]);
    // Only the new member is announced.
    let announced = invite(&crone, "hecate@example.com/broom");
    assert!(announced.len() == 1 && announced[0].contains("affiliation='member'"), "{announced:?}");
    let received = hecate.recv().concat();
    for part in [
        &*format!("<message from='{ROOM}' to='hecate@example.com/broom'"),
        "<x xmlns='http://jabber.org/protocol/muc#user'><invite from='crone1@example.com/desktop'>\
         <reason>Hey Hecate, this is the place.</reason></invite></x>",
        &format!("<x xmlns='jabber:x:conference' jid='{ROOM}'"),
    ] {
        assert!(received.contains(part), "{received} does not contain {part}");
    }
    assert!(decline(&hecate).is_empty());
    let received = crone.recv().concat();
    assert!(
        received.contains(
            "<x xmlns='http://jabber.org/protocol/muc#user'><decline from='hecate@example.com'>\
             <reason>Sorry, I'm too busy right now.</reason></decline></x>"
        ),
        "{received}"
    );
    assert_error(&decline(&hecate), "cancel", "item-not-found");
    // An invitation to an address that does not exist.
    crone.send(&format!(
        "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><invite to='hecate@example.com/broom'/>\
         </x></message>"
    ));
    forget(&[&crone, &hecate]);
    let not_found = error("cancel", "item-not-found");
    hecate.send(&format!("<message to='{ROOM}' type='error'>{not_found}</error></message>"));
    assert_same(
        &crone.recv(),
        &[format!(
            "<message from='{ROOM}' to='{}' type='error'><x xmlns='http://jabber.org/protocol/muc#user'>\
             <invite to='hecate@example.com/broom'/></x>{not_found}</error></message>",
            crone.full()
        )],
    );
    // The invitation made her a member, and members may not invite.
    assert_eq!(enter(&hecate, "hecate").len(), 3);
    assert_error(&invite(&hecate, "hag66@example.com"), "auth", "forbidden");
    configure(&crone, &field("muc#roomconfig_allowinvites", "1"));
    forget(&[&hecate]);
    forget(&[&crone]);
    assert!(invite(&hecate, "hag66@example.com/pda").is_empty());
    forget(&[&hag]);
    assert_eq!(enter(&hag, "thirdwitch").len(), 4);
    // A continued one-to-one conversation, in a room with a password: the attributes of XEP-0249.
    let password = field("muc#roomconfig_roomsecret", "cauldronburn");
    configure(&crone, &(field("muc#roomconfig_passwordprotectedroom", "1") + &password));
    let wicca = play.wicca();
    crone.send(&format!(
        "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><invite to='wiccarocks@example.com/laptop'>\
         <continue thread='e0ffe42b'/></invite></x></message>"
    ));
    let received = wicca.recv().concat();
    let direct = format!(
        "<x xmlns='jabber:x:conference' jid='{ROOM}' password='cauldronburn' continue='true' thread='e0ffe42b'/>"
    );
    assert!(received.contains(&direct), "{received}");
}

#[test]
fn section_7_13_a_visitor_requests_voice_and_a_moderator_grants_it() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let form = |fields: &str| {
        format!(
            "<message to='{ROOM}'><x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#request</value></field>{fields}</x></message>"
        )
    };
    assert!(hag.request(&form(&field("muc#role", "participant"))).is_empty());
    let received = crone.recv().concat();
    assert!(
        received.contains("<field var='muc#roomnick'") && received.contains("hag66@example.com/pda"),
        "{received}"
    );
    let grant = form(&(field("muc#roomnick", "thirdwitch") + &field("muc#request_allow", "true")));
    assert_error(&hag.request(&grant), "auth", "forbidden");
    crone.send(&grant);
    assert_same(&masked(hag.recv()), &[presence(&hag, "thirdwitch", &item("none", "participant"), &[110])]);
    assert_eq!(groupchat(&hag, "<body>x</body>").len(), 1);
}

#[test]
fn occupants_of_a_large_room_receive_messages_in_one_order() {
    let play = Shakespeare::with(&[("presence_occupants", OptionValue::Int(2))]);
    let crone = play.room("");
    let witches: Vec<NodeClient> = (0..600)
        .map(|number| {
            let user = format!("witch{number}");
            play.engine.create_user(&user);
            let witch = play.engine.connect(&user, "cauldron");
            assert_eq!(enter(&witch, &user).len(), if number == 0 { 3 } else { 4 }, "{number}");
            witch
        })
        .collect();
    forget(&[&crone]);
    for body in ["one", "two", "three"] {
        crone.send(&format!("<message to='{ROOM}' type='groupchat'><body>{body}</body></message>"));
        witches[599].send(&format!("<message to='{ROOM}' type='groupchat'><body>{body}!</body></message>"));
    }
    let bodies = |client: &NodeClient| -> Vec<String> {
        let received = client.recv();
        let messages = received.iter().filter(|one| one.contains("<body>"));
        messages
            .map(|one| one.split("<body>").nth(1).unwrap().split('<').next().unwrap().to_owned())
            .collect()
    };
    let order = bodies(&crone);
    assert_eq!(order, ["one", "one!", "two", "two!", "three", "three!"]);
    for witch in &witches {
        assert_eq!(bodies(witch), order);
    }
}

#[test]
fn section_7_9_the_times_of_a_conversation_that_an_owner_sends_are_kept() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let delay =
        |from: &str| format!("<delay xmlns='urn:xmpp:delay' from='{from}' stamp='2004-09-29T01:54:37Z'/>");
    let message = |body: &str, delay: &str| {
        format!("<message to='{ROOM}' type='groupchat'><body>{body}</body>{delay}</message>")
    };
    let own = delay("crone1@example.com/desktop");
    crone.send(&message("Thrice the brinded cat hath mew'd.", &own));
    assert_eq!(hag.recv().concat().matches("stamp='2004-09-29T01:54:37Z'").count(), 1);
    // Nobody speaks for the room, and others do not change times.
    crone.send(&message("forged", &delay(ROOM)));
    hag.send(&message("not an owner", &delay("hag66@example.com/pda")));
    assert!(!hag.recv().concat().contains("<delay"));
    let wicca = play.wicca();
    let x = "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='3'/></x>";
    let presence = format!("<presence to='{ROOM}/secondwitch'>{x}</presence>");
    let history: Vec<String> =
        wicca.request(&presence).into_iter().filter(|one| one.contains("<body>")).collect();
    assert_eq!(history.len(), 3, "{history:?}");
    assert_eq!(history[0].matches("<delay").count(), 1, "no time of the room is added: {}", history[0]);
    assert!(history[0].contains("stamp='2004-09-29T01:54:37Z'"), "{}", history[0]);
    assert!(!history[1].contains("2004") && history[1].contains("<delay"), "{}", history[1]);
}

#[test]
fn section_8_6_voice_is_granted_to_who_has_requested_it() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "a");
    enter(&wicca, "b");
    forget(&[&crone]);
    let form = |fields: &str| {
        format!(
            "<message to='{ROOM}'><x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/muc#request</value></field>{fields}</x></message>"
        )
    };
    for _ in 0..5 {
        hag.send(&form(&field("muc#role", "participant")));
    }
    assert_eq!(crone.recv().len(), 1, "one request in a minute");
    hag.send(&format!("<presence to='{ROOM}/c'/>"));
    wicca.send(&format!("<presence to='{ROOM}/a'/>"));
    forget(&[&crone, &hag, &wicca]);
    let grant =
        [field("muc#jid", hag.full()), field("muc#roomnick", "a"), field("muc#request_allow", "true")];
    crone.send(&form(&grant.concat()));
    assert!(hag.recv().concat().contains("role='participant'"));
    forget(&[&wicca]);
    assert_error(&groupchat(&wicca, "<body>x</body>"), "auth", "forbidden");
    // Section 7.13: who has voice requests none.
    hag.send(&form(&field("muc#role", "participant")));
    assert!(!crone.recv().concat().contains("muc#request"));
}

#[test]
fn section_7_2_14_the_characters_of_the_history_count_with_its_address() {
    let play = Shakespeare::new();
    let crone = play.room("");
    groupchat(&crone, "<body>Thrice the brinded cat hath mew'd.</body>");
    let hag = play.hag();
    let received = |limit: usize| {
        let x = format!("<x xmlns='http://jabber.org/protocol/muc'><history maxchars='{limit}'/></x>");
        let received = hag.request(&format!("<presence to='{ROOM}/thirdwitch'>{x}</presence>"));
        received.into_iter().find(|one| one.contains("<body>")).map(|one| one.len())
    };
    let length = received(100_000).expect("the message");
    assert_eq!(received(length), Some(length));
    assert_eq!(received(length - 1), None);
}

#[test]
fn section_7_2_15_the_time_of_a_subject_is_that_of_the_room() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let delay = "<delay xmlns='urn:xmpp:delay' from='crone1@example.com' stamp='2002-10-13T23:58:37Z'/>";
    groupchat(&crone, &format!("<subject>Fire</subject>{delay}"));
    let hag = play.hag();
    let subject = hag.request(&format!("<presence to='{ROOM}/thirdwitch'>{MUC}</presence>")).pop().unwrap();
    assert!(subject.contains(&format!("<delay xmlns='urn:xmpp:delay' from='{ROOM}'")), "{subject}");
    assert!(!subject.contains("2002-"), "{subject}");
}

#[test]
fn section_7_5_who_may_send_private_messages() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    let private = |client: &NodeClient, nick: &str| {
        client.request(&format!("<message to='{ROOM}/{nick}' type='chat'><body>x</body></message>"))
    };
    for (who, visitor, moderator) in [
        ("anyone", true, true),
        ("participants", false, true),
        ("moderators", false, true),
        ("none", false, false),
    ] {
        configure(&crone, &field("muc#roomconfig_allowpm", who));
        forget(&[&crone, &hag]);
        assert_eq!(private(&hag, "firstwitch").is_empty(), visitor, "{who}");
        forget(&[&crone, &hag]);
        assert_eq!(private(&crone, "thirdwitch").is_empty(), moderator, "{who}");
        forget(&[&crone, &hag]);
    }
}

#[test]
fn chat_states_receipts_and_nicknames_are_passed_on_and_only_messages_with_a_body_kept() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    for content in [
        "<composing xmlns='http://jabber.org/protocol/chatstates'/>",
        "<received xmlns='urn:xmpp:receipts' id='m1'/>",
        "<body>x</body><request xmlns='urn:xmpp:receipts'/><nick xmlns='http://jabber.org/protocol/nick'>Hag</nick>",
    ] {
        assert_same(&masked(groupchat(&hag, content)), &[message(&hag, "thirdwitch", content)]);
        assert_same(&masked(crone.recv()), &[message(&crone, "thirdwitch", content)]);
    }
    let history = enter(&play.wicca(), "secondwitch");
    assert_eq!(history.iter().filter(|one| one.contains("id='m1'")).count(), 1, "{history:?}");
}
