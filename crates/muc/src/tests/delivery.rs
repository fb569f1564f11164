//! XEP-0045, sections 11.1 and 18.1.2: who leaves the room because stanzas do not reach it, and errors of private messages.

use super::*;

fn message(body: &str) -> String {
    format!("<message to='{ROOM}' type='groupchat'><body>{body}</body></message>")
}

#[test]
fn section_11_1_an_occupant_who_does_not_read_leaves_with_the_status_333() {
    let limits = NodeLimits { queue_message_bytes: 100_000, ..NodeLimits::default() };
    let play = Shakespeare::with_limits(&[("stanzas_per_second_per_sender", OptionValue::Int(0))], limits);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone, &wicca]);
    // Longer than what an error repeats.
    let long = "x".repeat(30_000);
    let (mut gone_for_crone, mut messages) = (0, 0);
    for _ in 0..50 {
        let received = crone.request(&message(&long)).concat();
        gone_for_crone += received.matches("<status code='333'/>").count();
        messages += wicca.recv().iter().filter(|one| one.contains("<body>")).count();
    }
    assert_eq!((gone_for_crone, messages), (1, 50));
    let ping = "<ping xmlns='urn:xmpp:ping'/>";
    hag.recv();
    let answer = request(&hag, "get", &format!("{ROOM}/thirdwitch"), ping);
    assert_error(&answer, "cancel", "not-acceptable");
}

#[test]
fn section_18_1_2_errors_for_messages_and_presence_of_the_room_remove_the_occupant() {
    for condition in [
        "gone",
        "item-not-found",
        "recipient-unavailable",
        "redirect",
        "remote-server-not-found",
        "remote-server-timeout",
        "service-unavailable",
        "resource-constraint",
    ] {
        for kind in ["message", "presence"] {
            let play = Shakespeare::new();
            let crone = play.room("");
            let hag = play.hag();
            enter(&hag, "thirdwitch");
            forget(&[&crone]);
            let error = error("cancel", condition);
            hag.send(&format!("<{kind} to='{ROOM}/firstwitch' type='error'>{error}</error></{kind}>"));
            let received = crone.recv().concat();
            assert!(received.contains("<status code='333'/>"), "{condition} {kind}: {received}");
        }
    }
}

#[test]
fn section_7_5_a_private_message_that_is_refused_comes_back_and_removes_nobody() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone, &hag]);
    let private = "<message type='chat' id='p1'><body>I'll give thee a wind.</body></message>";
    wicca.send(&private.replacen("<message ", &format!("<message to='{ROOM}/thirdwitch' "), 1));
    assert!(hag.recv().concat().contains("give thee a wind"));
    let text = "<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>hag66@example.com/pda is busy</text>";
    let refused = format!("{}{text}</error>", error("cancel", "service-unavailable"));
    let from_hag = format!("<message to='{ROOM}/secondwitch' type='error' id='p1'>{refused}</message>");
    hag.send(&from_hag);
    let received = wicca.recv();
    assert_error(&received, "cancel", "service-unavailable");
    let addresses =
        received[0].contains(&format!("from='{ROOM}/thirdwitch'")) && received[0].contains("id='p1'");
    assert!(addresses && !received[0].contains("hag66"), "{received:?}");
    assert!(!crone.recv().concat().contains("unavailable'"), "hag is still in the room");
    // Each message has one answer, and nobody sends errors to others without a message.
    let policy = from_hag.replace("service-unavailable", "policy-violation");
    hag.send(&policy);
    assert!(wicca.recv().is_empty());
}

#[test]
fn an_occupant_is_visible_whatever_its_presence_contains() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    let prefixed = |kind: &str, x: &str| {
        format!(
            "<presence to='{ROOM}/thirdwitch' xmlns:p='urn:x' {kind}>{x}<p:a p:b='1'/><show>away</show></presence>"
        )
    };
    hag.request(&prefixed("", MUC));
    let received = crone.recv().concat();
    assert!(received.contains("/thirdwitch'") && received.contains("away</show>"), "{received}");
    assert!(enter(&play.wicca(), "secondwitch").concat().contains("/thirdwitch'"));
    forget(&[&crone]);
    hag.request(&prefixed("", ""));
    assert!(crone.recv().concat().contains("/thirdwitch'"));
    hag.request(&prefixed("type='unavailable'", ""));
    let received = crone.recv().concat();
    assert!(received.contains("/thirdwitch'") && received.contains("type='unavailable'"), "{received}");
}

#[test]
fn nobody_sends_the_time_of_the_room_in_an_older_form() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    let delay = format!("<x xmlns='jabber:x:delay' from='{ROOM}' stamp='20020910T23:08:25'/>");
    hag.send(&format!("<message to='{ROOM}' type='groupchat'><body>x</body>{delay}</message>"));
    hag.send(&format!("<presence to='{ROOM}/thirdwitch'>{delay}</presence>"));
    let received = crone.recv();
    assert!(received.len() == 2 && !received.concat().contains("jabber:x:delay"), "{received:?}");
}

#[test]
fn section_7_5_no_session_leaves_because_private_messages_are_refused() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let (hag, phone, wicca) = (play.hag(), play.engine.connect("hag66", "phone"), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&phone, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone, &hag, &phone]);
    let private = |id: &str, bytes: usize| {
        let body = "x".repeat(bytes);
        format!("<message to='{ROOM}/thirdwitch' type='chat' id='{id}'><body>{body}</body></message>")
    };
    // Nothing of a long message is in its error.
    let refused = |id: &str| {
        let error = error("cancel", "service-unavailable");
        format!("<message to='{ROOM}/secondwitch' type='error' id='{id}'>{error}</error></message>")
    };
    let is_gone = || crone.recv().concat().contains("<status code='333'/>");
    assert!(wicca.request(&private("p1", 3_000)).is_empty());
    assert_eq!((hag.recv().len(), phone.recv().len()), (1, 1));
    hag.send(&refused("p1"));
    phone.send(&refused("p1"));
    assert_error(&wicca.recv(), "cancel", "service-unavailable");
    assert!(!is_gone() && hag.recv().is_empty() && phone.recv().is_empty());
    assert_error(&wicca.request(&private(&"p".repeat(2_000), 1)), "modify", "not-acceptable");
    // More than the room remembers.
    for number in 0..200 {
        wicca.send(&private(&format!("n{number}"), 1));
        forget(&[&hag, &phone]);
    }
    (0..200).for_each(|number| hag.send(&refused(&format!("n{number}"))));
    assert_eq!(wicca.recv().len(), 128);
    assert!(!is_gone() && hag.recv().is_empty() && phone.recv().is_empty());
    play.engine.advance(301);
    hag.send(&refused("g1"));
    assert!(hag.recv().concat().contains("<status code='333'/>"), "of a message to all, or none");
}

#[test]
fn section_7_5_nobody_leaves_because_private_messages_fill_a_queue() {
    let limits = NodeLimits { queue_message_bytes: 100_000, ..NodeLimits::default() };
    let play = Shakespeare::with_limits(&[("stanzas_per_second_per_sender", OptionValue::Int(0))], limits);
    let crone = play.room("");
    let (hag, wicca) = (play.hag(), play.wicca());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    forget(&[&crone]);
    let body = "x".repeat(30_000);
    for kind in ["chat", "headline"] {
        let private =
            format!("<message to='{ROOM}/thirdwitch' type='{kind}' id='p1'><body>{body}</body></message>");
        let errors = (0..20).map(|_| wicca.request(&private)).find(|received| !received.is_empty());
        let errors = errors.unwrap_or_default().concat();
        assert!(!errors.contains("333"), "{kind}: {errors}");
        assert!(!crone.recv().concat().contains("<status code='333'/>"), "{kind}");
    }
    let pinged = request(&hag, "get", &format!("{ROOM}/thirdwitch"), "<ping xmlns='urn:xmpp:ping'/>");
    assert!(pinged.last().unwrap().contains("type='result'"), "{pinged:?}");
}

#[test]
fn section_18_1_2_private_messages_to_others_do_not_keep_ghosts_in_the_room() {
    let play = Shakespeare::with(&[("stanzas_per_second_per_sender", OptionValue::Int(0))]);
    let crone = play.room("");
    let (hag, wicca, hecate) = (play.hag(), play.wicca(), play.hecate());
    enter(&hag, "thirdwitch");
    enter(&wicca, "secondwitch");
    enter(&hecate, "hecate");
    // More than the room remembers.
    for number in 0..200 {
        let body = "<body>x</body></message>";
        wicca.send(&format!("<message to='{ROOM}/hecate' type='chat' id='n{number}'>{body}"));
        forget(&[&hecate]);
    }
    forget(&[&crone]);
    let error = error("cancel", "service-unavailable");
    hag.send(&format!("<message to='{ROOM}/firstwitch' type='error' id='m1'>{error}</error></message>"));
    assert!(crone.recv().concat().contains("<status code='333'/>"), "of a message to all");
    hecate.send(&format!("<message to='{ROOM}/secondwitch' type='error' id='n7'>{error}</error></message>"));
    assert!(!crone.recv().concat().contains("<status code='333'/>"), "of a replaced private message");
}
