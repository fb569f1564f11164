//! Tests of XEP-0280: its examples, the table of section 6.1, and forged or lost copies.

use feature_api::stream_elements::StreamElements;
use testkit::{NodeClient, TestNode, assert_same};

use super::*;

const TO_JULIET: &str = "juliet@example.com/balcony";

fn engine() -> TestNode {
    let engine = TestNode::new(&[&FEATURE]);
    for name in ["romeo@example.net", "juliet", "tybalt"] {
        engine.create_user(name);
    }
    engine
}

/// A client with this priority; without one it is not available.
fn client(engine: &TestNode, name: &str, resource: &str, priority: Option<i8>) -> NodeClient {
    let client = engine.connect(name, resource);
    client.session.with(|state| {
        state.presence = priority.and_then(|_| SharedStanza::parse(b"<presence/>"));
        client.session.set_priority(priority.unwrap_or_default());
    });
    client
}

fn enable(client: &NodeClient) {
    let result = client.request("<iq id='enable1' type='set'><enable xmlns='urn:xmpp:carbons:2'/></iq>");
    assert_same(&result, &[format!("<iq id='enable1' to='{}' type='result'/>", client.full())]);
}

fn disable(client: &NodeClient) {
    let result = client.request("<iq id='disable1' type='set'><disable xmlns='urn:xmpp:carbons:2'/></iq>");
    assert_same(&result, &[format!("<iq id='disable1' to='{}' type='result'/>", client.full())]);
}

fn copy_of(way: &str, client: &NodeClient, ty: &str, original: &str) -> String {
    format!(
        "<message from='{}' to='{}'{ty}><{way} xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'>\
         {}</forwarded></{way}></message>",
        client.bare(),
        client.full(),
        original.replacen("<message", "<message xmlns='jabber:client'", 1),
    )
}
const CHAT: &str = " type='chat'";

#[test]
fn section_7_other_resources_get_copies_of_received_messages() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "balcony", Some(0));
    let garden = client(&engine, "romeo@example.net", "garden", Some(0));
    let home = client(&engine, "romeo@example.net", "home", Some(0));
    let plain = client(&engine, "romeo@example.net", "plain", Some(0));
    enable(&garden);
    enable(&home);
    let inside = "type='chat'><body>What man art thou</body><thread>0e3141cd80894871a68e6fe6b1ec56fa</thread></message>";
    juliet.send(&format!("<message to='romeo@example.net/garden' {inside}"));
    let original = format!("<message from='{TO_JULIET}' to='romeo@example.net/garden' {inside}");
    assert_same(&garden.recv(), std::slice::from_ref(&original));
    assert_same(&home.recv(), &[copy_of("received", &home, CHAT, &original)]);
    assert!(plain.recv().is_empty() && juliet.recv().is_empty());
}

#[test]
fn section_7_a_resource_that_receives_the_original_gets_no_copy() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "balcony", Some(0));
    let all = [("a", Some(0)), ("b", Some(5)), ("c", Some(-1)), ("d", None)];
    let romeos = all.map(|(resource, priority)| client(&engine, "romeo@example.net", resource, priority));
    romeos.iter().for_each(enable);
    juliet.send("<message to='romeo@example.net' type='chat'><body>x</body></message>");
    let original =
        format!("<message from='{TO_JULIET}' to='romeo@example.net' type='chat'><body>x</body></message>");
    for taker in &romeos[..2] {
        assert_same(&taker.recv(), std::slice::from_ref(&original));
    }
    for other in &romeos[2..] {
        assert_same(&other.recv(), &[copy_of("received", other, CHAT, &original)]);
    }
}

#[test]
fn section_8_other_resources_get_copies_of_sent_messages() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "balcony", Some(0));
    let home = client(&engine, "romeo@example.net", "home", Some(0));
    let garden = client(&engine, "romeo@example.net", "garden", Some(0));
    enable(&garden);
    // The sender need not have carbons enabled, and gets no copy if it has.
    for enabled in [false, true] {
        if enabled {
            enable(&home);
        }
        home.send(&format!("<message to='{TO_JULIET}' type='chat'><body>Neither</body></message>"));
        let original = format!(
            "<message from='{}' to='{TO_JULIET}' type='chat'><body>Neither</body></message>",
            home.full()
        );
        assert_same(&juliet.recv(), std::slice::from_ref(&original));
        assert_same(&garden.recv(), &[copy_of("sent", &garden, CHAT, &original)]);
        assert!(home.recv().is_empty());
    }
}

#[test]
fn copies_to_several_resources_share_one_stanza() {
    let engine = engine();
    let romeos: Vec<_> =
        ["a", "b", "c"].iter().map(|r| client(&engine, "romeo@example.net", r, Some(0))).collect();
    romeos.iter().for_each(enable);
    romeos[0].send("<message to='nobody@example.org' type='chat'><body>x</body></message>");
    let take = |client: &NodeClient| {
        let mut batch = throng_core::session::QueuedBatch::new();
        client
            .session
            .outbox
            .dequeue_all(&mut std::task::Context::from_waker(std::task::Waker::noop()), &mut batch);
        batch[0].stanza.bytes().as_ptr()
    };
    assert_eq!(take(&romeos[1]), take(&romeos[2]));
}

/// Whether a message with these children is copied on each side: (sent, received).
fn copied(ty: &str, children: &str, room: &str) -> (bool, bool) {
    let frame = |from: &str, to: &str| {
        SharedStanza::parse(
            format!("<message from='{from}' to='{to}' type='{ty}'>{children}</message>").as_bytes(),
        )
        .unwrap()
    };
    let full = room.contains('/');
    (
        eligible(&frame("romeo@example.net/a", room), CarbonDirection::Sent, full),
        eligible(&frame(room, "romeo@example.net"), CarbonDirection::Received, full),
    )
}

#[test]
fn section_6_1_eligible_messages_are_copied() {
    const BODY: &str = "<body>x</body>";
    const STATE: &str = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
    const RECEIPT: &str = "<received xmlns='urn:xmpp:receipts' id='1'/>";
    const REQUEST: &str = "<request xmlns='urn:xmpp:receipts'/>";
    const MARKER: &str = "<displayed xmlns='urn:xmpp:chat-markers:0' id='1'/>";
    const PRIVATE: &str = "<body>x</body><private xmlns='urn:xmpp:carbons:2'/>";
    const NO_COPY: &str = "<body>x</body><no-copy xmlns='urn:xmpp:hints'/>";
    const DIRECT: &str = "<x xmlns='jabber:x:conference' jid='room@muc.example'/>";
    const MEDIATED: &str = "<x xmlns='http://jabber.org/protocol/muc#user'><invite to='a@b'/></x>";
    const PM: &str = "<body>x</body><x xmlns='http://jabber.org/protocol/muc#user'/>";
    const FAILED: &str = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>";
    const OMEMO: &str = "<encrypted xmlns='eu.siacs.conversations.axolotl'/>";
    const EVENT: &str = "<event xmlns='http://jabber.org/protocol/pubsub#event'/>";
    const CARBON: &str = "<sent xmlns='urn:xmpp:carbons:2'/>";
    let (yes, no) = ((true, true), (false, false));
    let table: &[(&str, String, &str, (bool, bool))] = &[
        // It is of type chat.
        ("chat", BODY.into(), "a@b/c", yes),
        ("chat", String::new(), "a@b", yes),
        ("chat", STATE.into(), "a@b/c", yes),
        ("chat", OMEMO.into(), "a@b/c", yes),
        // It is of type normal and contains a body.
        ("normal", BODY.into(), "a@b", yes),
        ("unknown", BODY.into(), "a@b", yes),
        ("normal", String::new(), "a@b", no),
        ("normal", OMEMO.into(), "a@b/c", no),
        // Payload elements typically used in IM.
        ("normal", RECEIPT.into(), "a@b/c", yes),
        ("normal", REQUEST.into(), "a@b/c", yes),
        ("normal", STATE.into(), "a@b/c", yes),
        ("normal", MARKER.into(), "a@b/c", yes),
        ("headline", format!("{BODY}{RECEIPT}"), "a@b/c", yes),
        ("headline", BODY.into(), "a@b/c", no),
        ("headline", EVENT.into(), "a@b", no),
        // Errors, in response to one that was eligible.
        ("error", format!("{BODY}{FAILED}"), "a@b/c", yes),
        ("error", format!("{OMEMO}{FAILED}"), "a@b/c", yes),
        ("error", format!("{STATE}{FAILED}"), "a@b/c", yes),
        ("error", FAILED.into(), "a@b", yes),
        ("error", format!("{PRIVATE}{FAILED}"), "a@b/c", no),
        ("error", format!("{EVENT}{FAILED}"), "a@b/c", no),
        // Hints in errors are ignored.
        ("error", format!("{NO_COPY}{FAILED}"), "a@b/c", yes),
        // Group chat.
        ("groupchat", BODY.into(), "room@muc.example/nick", no),
        ("groupchat", DIRECT.into(), "room@muc.example", no),
        ("normal", DIRECT.into(), "a@b/c", yes),
        ("normal", MEDIATED.into(), "room@muc.example", yes),
        ("chat", PM.into(), "room@muc.example/nick", (true, false)),
        ("normal", PM.into(), "room@muc.example/nick", (true, false)),
        ("error", format!("{PM}{FAILED}"), "room@muc.example/nick", yes),
        // Private messages of a room, and copies.
        ("chat", PRIVATE.into(), "a@b/c", no),
        ("chat", format!("{PRIVATE}<no-copy xmlns='urn:xmpp:hints'/>"), "a@b/c", no),
        ("chat", NO_COPY.into(), "a@b/c", no),
        ("chat", CARBON.into(), "a@b", no),
        ("normal", format!("{BODY}{CARBON}"), "a@b", no),
    ];
    for (ty, children, peer, expect) in table {
        assert_eq!(copied(ty, children, peer), *expect, "{ty} {children} {peer}");
    }
}

#[test]
fn section_9_a_private_message_goes_to_its_recipient_only_and_unchanged() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "home", Some(0));
    let romeo = client(&engine, "romeo@example.net", "home", Some(0));
    let others =
        [client(&engine, "romeo@example.net", "x", Some(0)), client(&engine, "juliet", "y", Some(0))];
    others.iter().for_each(enable);
    let inside = "to='juliet@example.com/home' type='chat'><body>x</body><private xmlns='urn:xmpp:carbons:2'/>\
                  <no-copy xmlns='urn:xmpp:hints'/></message>";
    romeo.send(&format!("<message {inside}"));
    assert_same(&juliet.recv(), &[format!("<message from='{}' {inside}", romeo.full())]);
    assert!(others.iter().all(|o| o.recv().is_empty()));
}

#[test]
fn a_message_to_oneself_is_copied_once_and_not_to_its_sender() {
    let engine = engine();
    let [a, b, c] = ["a", "b", "c"].map(|r| client(&engine, "romeo@example.net", r, Some(0)));
    [&a, &b, &c].into_iter().for_each(enable);
    a.send("<message to='romeo@example.net/b' type='chat'><body>x</body></message>");
    let original =
        "<message from='romeo@example.net/a' to='romeo@example.net/b' type='chat'><body>x</body></message>";
    assert_same(&b.recv(), &[original]);
    assert_same(&c.recv(), &[copy_of("received", &c, CHAT, original)]);
    assert!(a.recv().is_empty());
    // RFC 6120, section 10.3.1: without `to` it is for the own account, and all three resources receive it.
    a.send("<message type='chat'><body>x</body></message>");
    assert!([&a, &b, &c].iter().all(|client| client.recv().len() == 1));
}

#[test]
fn section_11_forged_copies_are_refused_and_not_delivered() {
    let engine = engine();
    let romeo = client(&engine, "romeo@example.net", "garden", Some(0));
    let home = client(&engine, "romeo@example.net", "home", Some(0));
    let tybalt = client(&engine, "tybalt", "home", Some(0));
    [&romeo, &home].into_iter().for_each(enable);
    let forged = |way: &str| {
        format!(
            "<{way} xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' \
             from='{TO_JULIET}' to='romeo@example.net/garden' type='chat'><body>Thou shall meet me tonite</body>\
             </message></forwarded></{way}>"
        )
    };
    // From another user, and from another client of the same account.
    for sender in [&tybalt, &home] {
        for (way, to) in [("received", "romeo@example.net"), ("sent", "romeo@example.net/garden")] {
            let inside = forged(way);
            let got = sender.request(&format!("<message to='{to}' type='chat' id='1'>{inside}</message>"));
            assert_same(
                &got,
                &[format!(
                    "<message from='{to}' to='{}' type='error' id='1'>{inside}<error type='auth'>\
                     <forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>\
                     <text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas' xml:lang='en'>only servers send carbons</text></error></message>",
                    sender.full()
                )],
            );
            assert!(romeo.recv().is_empty());
        }
    }
    assert!(home.recv().is_empty());
    // Nested in another element it is quoted, not forged.
    tybalt.send(&format!(
        "<message to='romeo@example.net' type='chat'><x xmlns='u:v'>{}</x></message>",
        forged("sent")
    ));
    assert_eq!((romeo.recv().len(), home.recv().len()), (1, 1));
}

#[test]
fn section_10_1_the_account_flag_follows_enable_and_disable() {
    let engine = engine();
    let [a, b] = ["a", "b"].map(|r| client(&engine, "romeo@example.net", r, Some(0)));
    let wanted = || a.session.account.flags.has(flags::ACCOUNT_CARBONS);
    assert!(!wanted());
    for _ in 0..2 {
        enable(&a);
    }
    enable(&b);
    disable(&a);
    assert!(wanted());
    disable(&b);
    disable(&b);
    assert!(!wanted());
    enable(&b);
    assert!(wanted());
    b.close();
    assert!(!wanted(), "who wanted them is gone");
    let refused =
        a.request("<iq id='1' to='juliet@example.com' type='set'><enable xmlns='urn:xmpp:carbons:2'/></iq>");
    assert!(refused[0].contains("<not-allowed"), "{refused:?}");
}

#[test]
fn section_10_3_an_undeliverable_copy_is_dropped_silently() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "balcony", Some(0));
    let a = client(&engine, "romeo@example.net", "a", Some(0));
    let b = client(&engine, "romeo@example.net", "b", Some(0));
    let c = client(&engine, "romeo@example.net", "c", Some(0));
    [&a, &b].into_iter().for_each(enable);
    juliet.send("<message to='romeo@example.net/a' type='chat'><body>x</body></message>");
    // The copy is still in the queue of `b` when its connection is lost.
    b.close();
    assert_eq!(a.recv().len(), 1);
    assert!(juliet.recv().is_empty() && c.recv().is_empty());
    // A client that bounces a copy sends the error to the account, where it is consumed.
    a.send("<message to='romeo@example.net' type='error'><received xmlns='urn:xmpp:carbons:2'/></message>");
    assert!([&a, &c, &juliet].iter().all(|client| client.recv().is_empty()));
}

#[test]
fn a_message_rerouted_after_a_lost_connection_is_not_copied_again() {
    let engine = engine();
    let juliet = client(&engine, "juliet", "balcony", Some(0));
    let a = client(&engine, "romeo@example.net", "a", Some(0));
    let b = client(&engine, "romeo@example.net", "b", Some(0));
    let c = client(&engine, "romeo@example.net", "c", None);
    enable(&c);
    juliet.send("<message to='romeo@example.net/a' type='chat'><body>x</body></message>");
    assert_eq!(c.recv().len(), 1);
    a.close();
    assert_eq!(b.recv().len(), 1);
    assert!(c.recv().is_empty());
}

#[test]
fn an_undeliverable_message_is_copied_to_the_senders_resources_only() {
    let engine = engine();
    let [a, b] = ["a", "b"].map(|r| client(&engine, "romeo@example.net", r, Some(0)));
    let juliet = client(&engine, "juliet", "balcony", Some(-1));
    [&b, &juliet].into_iter().for_each(enable);
    let got = a.request("<message to='juliet@example.com' type='chat'><body>x</body></message>");
    assert!(got.len() == 1 && got[0].contains("<service-unavailable"), "{got:?}");
    // The message, and the error in response to it.
    let copies = b.recv();
    assert!(
        copies.len() == 2 && copies[0].contains("<sent") && copies[1].contains("<received"),
        "{copies:?}"
    );
    assert!(juliet.recv().is_empty());
}

#[test]
fn bind_2_enables_carbons_inline() {
    let engine = engine();
    let romeo = client(&engine, "romeo@example.net", "a", Some(0));
    let host = romeo.session.account.host();
    let handler = StreamElements::of(&host).bind2_inline(Ns::Carbons2, "enable").unwrap();
    let mut answer = Vec::new();
    let bytes = b"<enable xmlns='urn:xmpp:carbons:2'/>";
    handler(&mut Bind2InlineCtx { node: &engine.node, session: &romeo.session, bytes, answer: &mut answer });
    assert!(romeo.session.flags.has(flags::CARBONS) && answer.is_empty());
    assert!(romeo.session.account.flags.has(flags::ACCOUNT_CARBONS));
}
