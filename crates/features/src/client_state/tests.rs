//! Tests of client state indication: deferrable stanzas, and when they are sent (XEP-0352, sections 4 and 5).

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use feature_api::stream_elements::{StreamElements, handle_nonza};
use testkit::{NodeClient, TestNode};
use throng_core::session::QueuedBatch;

use super::*;

const ALL: CsiRules = CsiRules { presence: true, notifications: true, events: true };
const NONE: CsiRules = CsiRules { presence: false, notifications: false, events: false };

const STATE: &str = "<composing xmlns='http://jabber.org/protocol/chatstates'/>";
const RECEIPT: &str = "<received xmlns='urn:xmpp:receipts' id='1'/>";
const MARKER: &str = "<displayed xmlns='urn:xmpp:chat-markers:0' id='1'/>";
const EVENT: &str = "<event xmlns='http://jabber.org/protocol/pubsub#event'/>";

fn copy(way: &str, inside: &str) -> String {
    format!(
        "<message from='a@b' type='chat'><{way} xmlns='urn:xmpp:carbons:2'><forwarded xmlns='urn:xmpp:forward:0'>\
         <message xmlns='jabber:client' type='chat'>{inside}</message></forwarded></{way}></message>"
    )
}

#[test]
fn urgent_stanzas_are_sent_and_others_wait() {
    let chat = |inside: &str| format!("<message type='chat'>{inside}</message>");
    let room = |inside: &str| format!("<message type='groupchat'>{inside}</message>");
    let table: &[(&str, bool)] = &[
        // Presence.
        ("<presence/>", true),
        ("<presence type='unavailable'><status>bye</status></presence>", true),
        ("<presence type='subscribe'/>", false),
        ("<presence type='unsubscribed'/>", false),
        ("<presence type='error'/>", false),
        (
            "<presence><x xmlns='http://jabber.org/protocol/muc#user'><item role='participant'/></x></presence>",
            true,
        ),
        (
            "<presence type='unavailable'><x xmlns='http://jabber.org/protocol/muc#user'><status code='307'/>\
             <status code='110'/></x></presence>",
            false,
        ),
        // Messages by content.
        (&chat("<body>x</body>"), false),
        (&chat(&format!("<body>x</body>{STATE}{RECEIPT}")), false),
        (&chat("<subject>x</subject>"), false),
        (&chat("<encrypted xmlns='eu.siacs.conversations.axolotl'/>"), false),
        (&chat("<x xmlns='u:unknown'/>"), false),
        (&chat("<propose xmlns='urn:xmpp:jingle-message:0' id='1'/>"), false),
        ("<message><x xmlns='jabber:x:conference' jid='a@b'/></message>", false),
        ("<message><x xmlns='http://jabber.org/protocol/muc#user'><invite/></x></message>", false),
        (&chat(""), true),
        (&chat(STATE), true),
        (
            &chat(&format!(
                "<thread>1</thread>{RECEIPT}{STATE}<stanza-id xmlns='urn:xmpp:sid:0' id='1' by='a@b'/>"
            )),
            true,
        ),
        (&chat(MARKER), true),
        (&chat(&format!("{MARKER}<x xmlns='u:unknown'/>")), false),
        (&chat("<reactions xmlns='urn:xmpp:reactions:0' id='1'><reaction>x</reaction></reactions>"), true),
        (&chat("<retract xmlns='urn:xmpp:message-retract:1' id='1'/>"), true),
        (&chat(EVENT), true),
        (&chat(&format!("<body>x</body>{EVENT}")), false),
        // Messages by type.
        ("<message type='headline'><body>x</body></message>", true),
        (&format!("<message type='headline'>{EVENT}</message>"), true),
        ("<message type='error'><error type='cancel'/></message>", false),
        (&room("<body>x</body>"), false),
        (&room("<subject>x</subject>"), true),
        (&room("<x xmlns='http://jabber.org/protocol/muc#user'><status code='104'/></x>"), true),
        // Copies.
        (&copy("received", "<body>x</body>"), false),
        (&copy("sent", "<body>x</body>"), false),
        (&copy("received", STATE), true),
        (&copy("sent", STATE), true),
        (&copy("received", MARKER), true),
        (&copy("sent", MARKER), false),
        ("<message from='a@b'><sent xmlns='urn:xmpp:carbons:2'/></message>", false),
        // Requests and responses.
        ("<iq type='set' id='1'><query xmlns='jabber:iq:roster'/></iq>", false),
        ("<iq type='result' id='1'/>", false),
    ];
    for (text, expect) in table {
        let frame = SharedStanza::parse(text.as_bytes()).unwrap();
        assert_eq!(can_wait(&frame, ALL), *expect, "{text}");
        assert!(!can_wait(&frame, NONE), "{text}");
    }
}

struct WakeCount(AtomicU32);
impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Romeo, and Juliet's client with a counter of its wake-ups.
fn stage() -> (TestNode, NodeClient, NodeClient, Arc<WakeCount>, Waker) {
    let engine = TestNode::new(&[&FEATURE]);
    engine.create_user("romeo");
    engine.create_user("juliet");
    let (romeo, juliet) = (engine.connect("romeo", "orchard"), engine.connect("juliet", "phone"));
    juliet.session.with(|state| state.presence = SharedStanza::parse(b"<presence/>"));
    let woken = Arc::new(WakeCount(AtomicU32::new(0)));
    let waker = Waker::from(woken.clone());
    (engine, romeo, juliet, woken, waker)
}

fn say(engine: &TestNode, client: &NodeClient, name: &str) {
    let bytes = format!("<{name} xmlns='urn:xmpp:csi:0'/>");
    let done = handle_nonza(&engine.node, &client.session, Ns::Csi, name, bytes.as_bytes());
    assert!(matches!(done, Some(Ok(()))));
}

/// Empties the queue, as the connection does when it is woken; returns the ids.
fn take(client: &NodeClient, waker: &Waker) -> Vec<String> {
    let mut batch = QueuedBatch::new();
    client.session.outbox.dequeue_all(&mut Context::from_waker(waker), &mut batch);
    batch.iter().map(|i| i.stanza.head().id(i.stanza.bytes()).unwrap_or_default().into_owned()).collect()
}

#[test]
fn section_4_2_delayed_stanzas_are_sent_in_order_with_the_next_urgent_one() {
    let (engine, romeo, juliet, woken, waker) = stage();
    let to = "to='juliet@example.com/phone' type='chat'";
    let send = |id: u32, inside: &str| romeo.send(&format!("<message {to} id='{id}'>{inside}</message>"));
    take(&juliet, &waker);
    send(1, STATE);
    assert_eq!((woken.0.load(Ordering::Relaxed), take(&juliet, &waker)), (1, vec!["1".into()]), "active");
    say(&engine, &juliet, "inactive");
    send(2, RECEIPT);
    send(3, STATE);
    romeo.send("<presence to='juliet@example.com/phone' id='4'/>");
    send(5, MARKER);
    send(6, "<paused xmlns='http://jabber.org/protocol/chatstates'/>");
    romeo.send("<presence to='juliet@example.com/phone' id='7'><show>away</show></presence>");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    send(8, "<body>Good night</body>");
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    // The newest chat state and the newest presence of the same sender, and everything else in order of arrival.
    assert_eq!(take(&juliet, &waker), ["2", "5", "6", "7", "8"]);
}

#[test]
fn section_5_1_active_sends_delayed_stanzas_immediately() {
    let (engine, romeo, juliet, woken, waker) = stage();
    take(&juliet, &waker);
    say(&engine, &juliet, "inactive");
    say(&engine, &juliet, "inactive");
    say(&engine, &juliet, "active");
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "there is nothing to send");
    say(&engine, &juliet, "inactive");
    romeo.send(&format!("<message to='juliet@example.com/phone' type='chat' id='1'>{STATE}</message>"));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    say(&engine, &juliet, "active");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // Later stanzas are queued after it.
    romeo.send(&format!("<message to='juliet@example.com/phone' type='chat' id='2'>{RECEIPT}</message>"));
    assert_eq!(take(&juliet, &waker), ["1", "2"]);
    romeo.send(&format!("<message to='juliet@example.com/phone' type='chat' id='3'>{RECEIPT}</message>"));
    assert_eq!(woken.0.load(Ordering::Relaxed), 2, "nothing waits any more");
}

#[test]
fn the_delay_queue_is_bounded() {
    let (engine, romeo, juliet, woken, waker) = stage();
    take(&juliet, &waker);
    say(&engine, &juliet, "inactive");
    let text = "<message to='juliet@example.com/phone' type='headline'><body>news</body></message>";
    let mut sent = 0;
    while woken.0.load(Ordering::Relaxed) == 0 {
        romeo.send(text);
        sent += 1;
        assert!(sent < 1000, "the queue holds {} bytes", juliet.session.outbox.queued_bytes());
    }
    assert!(juliet.session.outbox.queued_bytes() < 65 * 1024);
    assert_eq!(take(&juliet, &waker).len(), sent);
    // A thousand presences of one sender are reduced to one.
    for _ in 0..1000 {
        romeo.send("<presence to='juliet@example.com/phone' id='p'/>");
    }
    assert_eq!((woken.0.load(Ordering::Relaxed), take(&juliet, &waker)), (1, vec!["p".into()]));
}

#[test]
fn bind_2_begins_inactive_and_a_new_stream_active() {
    let (engine, _romeo, juliet, ..) = stage();
    assert!(!juliet.session.flags.has(flags::INACTIVE));
    let host = juliet.session.account.host().clone();
    for (name, inactive) in [("inactive", true), ("active", false)] {
        let bytes = format!("<{name} xmlns='urn:xmpp:csi:0'/>");
        let handler = StreamElements::of(&host).bind2_inline(Ns::Csi, name).unwrap();
        let mut answer = Vec::new();
        let (node, session) = (&engine.node, &juliet.session);
        handler(&mut Bind2InlineCtx { node, session, bytes: bytes.as_bytes(), answer: &mut answer });
        assert!(answer.is_empty() && juliet.session.flags.has(flags::INACTIVE) == inactive, "{name}");
    }
}

#[test]
fn security_considerations_the_state_is_not_disclosed() {
    let (engine, romeo, juliet, _, waker) = stage();
    say(&engine, &juliet, "inactive");
    romeo.send("<message to='juliet@example.com/phone' type='chat'><body>x</body></message>");
    assert!(romeo.recv().is_empty());
    assert_eq!(take(&juliet, &waker).len(), 1);
}
