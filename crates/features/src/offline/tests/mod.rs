//! Tests of XEP-0160: its examples, and every interleaving of storing, delivery, logins and disconnects.

mod backups;
mod harness;
mod lanes;
mod random_schedules;
mod reload;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};

use testkit::assert_same;
use throng_core::session::{QueuedBatch, WrittenMessages};
use throng_core::{Effect, Effects, NodeLimits, SharedStanza};

use self::harness::{OfflineHarness, is_pending};

const ERROR: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";

#[test]
fn section_2_a_message_is_stored_and_delivered_with_a_delay() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.clock.set_unix_millis(1_031_699_305_000);
    let later = bench.ingest(
        &romeo,
        "<message to='juliet@capulet.com'><body>O blessed, blessed night! I am afeard.</body></message>",
    );
    bench.complete(later);
    assert_eq!(bench.receive(&romeo), [""; 0]);
    assert_eq!(bench.stored("juliet"), 1);
    bench.clock.advance(60_000);
    let juliet = bench.online("juliet");
    assert_same(
        &bench.receive(&juliet),
        &["<message from='romeo@capulet.com/balcony' to='juliet@capulet.com'>\
           <body>O blessed, blessed night! I am afeard.</body>\
           <delay xmlns='urn:xmpp:delay' from='capulet.com' stamp='2002-09-10T23:08:25.000Z'/></message>"],
    );
    assert_eq!(bench.stored("juliet"), 0);
    assert!(!bench.flushing(&juliet));
    let metrics = &bench.node.metrics;
    assert_eq!((metrics.offline_stored.get(), metrics.offline_delivered.get()), (1, 1));
}

#[test]
fn many_messages_keep_their_order() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let sent: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    for n in &sent {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", n);
        bench.complete(later);
    }
    let juliet = bench.online("juliet");
    let mut got = Vec::new();
    for _ in 0..10 {
        got.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(got, sent);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn bytes_are_limited_and_one_sender_has_a_share() {
    let bench = OfflineHarness::with(&[("max_bytes", 65_536), ("max_messages", 40)], NodeLimits::default());
    let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
    let say = |client: &_, size: usize| {
        let text = "x".repeat(size);
        let later = bench.ingest(
            client,
            &format!("<message to='juliet@capulet.com' type='chat'><body>{text}</body></message>"),
        );
        bench.complete(later);
        bench.receive(client).concat()
    };
    // Half of the bytes, including those that the server adds.
    assert_eq!((say(&romeo, 20_000), say(&romeo, 10_000)), (String::new(), String::new()));
    let refused = say(&romeo, 5_000);
    let full = |answer: &str| answer[answer.find("<error").unwrap_or_default()..].to_owned();
    let share = full(&refused);
    // Another sender has room; nobody may exceed the total.
    assert_eq!(say(&nurse, 30_000), "");
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet).len(), 3);
    bench.offline(&juliet);
    // Half of the messages.
    let refused = (0..40).filter(|_| !say(&romeo, 1).is_empty()).count();
    assert_eq!((refused, bench.stored("juliet")), (20, 20));
    assert_eq!(say(&nurse, 1), "");
    // The limit of all senders together.
    let refused = say(&nurse, 62_000);
    assert!(refused.contains("<service-unavailable ") && refused.contains("storage is full"), "{refused}");
    assert_eq!(share, full(&refused), "the answer does not tell which limit was reached");
    assert_eq!(bench.node.metrics.offline_refused.get(["sender"]), 21);
    assert_eq!(bench.node.metrics.offline_refused.get(["full"]), 1);
}

#[test]
fn a_sender_of_thousands_of_messages_has_a_bound_and_delays_another_sender_by_one_batch() {
    let quota = [("max_messages", 1_000_000), ("sender_percent", 100)];
    let bench = OfflineHarness::with(&quota, NodeLimits::default());
    let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
    bench.gate.close("append");
    let send = |client, text: &str| bench.send_chat(client, "juliet@capulet.com", text);
    let mut flood: Vec<_> = (0..3_000).map(|n| send(&romeo, &n.to_string())).collect();
    bench.run_until_idle();
    let open = flood.iter_mut().filter_map(|later| is_pending(later).then_some(())).count();
    // A quarter of 4096, and the batch that is being written.
    assert!((1_024..=1_024 + 64).contains(&open), "{open}");
    let refused = bench.receive(&romeo);
    assert_eq!(refused.len(), 3_000 - open);
    assert!(refused.iter().all(|error| error.contains("<resource-constraint ")), "{}", refused[0]);
    assert_eq!(bench.node.metrics.offline_refused.get(["pending"]), refused.len() as u64);
    let mut other = send(&nurse, "nurse");
    assert!(is_pending(&mut other));
    bench.gate.open("append");
    while is_pending(&mut other) {
        bench.tasks.step();
    }
    bench.run_until_idle();
    let juliet = bench.online("juliet");
    let mut bodies = Vec::new();
    while bodies.len() <= open {
        bodies.extend(bench.receive_bodies(&juliet));
    }
    let place = bodies.iter().position(|body| body == "nurse").unwrap();
    assert!(place < 2 * 64, "{place}");
    bodies.retain(|body| body != "nurse");
    assert_eq!(bodies, (0..open).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_store_that_hangs_fails_all_pending_messages_after_one_attempt_more() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.gate.close("append");
    let mut laters: Vec<_> =
        (0..200).map(|n| bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string())).collect();
    bench.run_until_idle();
    bench.gate.calls();
    bench.clock.advance(10_001);
    bench.gate.open("append");
    bench.run_until_idle();
    assert_eq!(laters.iter_mut().filter_map(|later| is_pending(later).then_some(())).count(), 0);
    let errors = bench.receive(&romeo);
    assert_eq!((errors.len(), bench.stored("juliet")), (200 - 64, 64));
    assert!(errors.iter().all(|error| error.contains("<resource-constraint ")));
    assert_eq!(bench.gate.calls(), ["appended"], "no further attempt");
}

#[test]
fn a_delivery_that_failed_is_repeated_while_the_user_stays_online() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in 0..100 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    bench.gate.fail("fetch", true);
    let juliet = bench.online("juliet");
    let sweep = || {
        bench.clock.advance(5_000);
        bench.node.sweep();
        bench.run_until_idle();
    };
    sweep();
    assert!(bench.receive_bodies(&juliet).is_empty());
    bench.gate.fail("fetch", false);
    bench.gate.fail("remove", true);
    // The store cannot remove what the client has: it is not delivered again.
    let mut received = Vec::new();
    for _ in 0..5 {
        sweep();
        received.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(received, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    let removals = bench.gate.calls().iter().filter(|call| **call == "remove").count();
    assert!((2..=12).contains(&removals), "{removals} attempts in 25 seconds");
    assert_eq!(bench.stored("juliet"), 100);
    bench.gate.fail("remove", false);
    sweep();
    assert_eq!(bench.stored("juliet"), 0);
    bench.gate.calls();
    sweep();
    assert!(bench.gate.calls().is_empty(), "nothing is left to do");
}

#[test]
fn a_removal_that_was_repeated_does_not_keep_messages_from_another_resource() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in 1..=10 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    let phone = bench.connect("juliet");
    bench.enable_stream_management(&phone);
    bench.available(&phone, 0);
    bench.run_until_idle();
    let laptop = bench.bind(bench.read_login("juliet"), "laptop");
    bench.available(&laptop, 0);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&phone).len(), 10);
    bench.gate.fail("remove", true);
    bench.acknowledge(&phone, 5);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 10);
    bench.gate.fail("remove", false);
    bench.clock.advance(5_000);
    bench.node.sweep();
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 5);
    bench.offline(&phone);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&laptop), ["6", "7", "8", "9", "10"]);
}

#[test]
fn section_3_only_chat_and_normal_messages_are_stored() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for (ty, children, bounces) in [
        ("headline", "<body>x</body>", false),
        ("error", "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>", false),
        ("groupchat", "<body>x</body>", true),
        ("chat", "<composing xmlns='http://jabber.org/protocol/chatstates'/>", false),
        ("chat", "<body>x</body><no-store xmlns='urn:xmpp:hints'/>", true),
    ] {
        let later = bench
            .ingest(&romeo, &format!("<message to='juliet@capulet.com' type='{ty}'>{children}</message>"));
        bench.complete(later);
        let answer = bench.receive(&romeo);
        assert_eq!(answer.len(), usize::from(bounces), "{ty}: {answer:?}");
        assert!(answer.iter().all(|a| a.contains(&format!("<service-unavailable xmlns='{ERROR}'/>"))));
    }
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn section_2_step_3_a_full_store_and_a_missing_account_are_refused() {
    let bench = OfflineHarness::with(&[("max_messages", 2), ("sender_percent", 100)], NodeLimits::default());
    let romeo = bench.online("romeo");
    for n in 0..3 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
        let answer = bench.receive(&romeo);
        assert_eq!(answer.len(), usize::from(n == 2));
        assert!(answer.iter().all(|a| a.contains("<error type='cancel'><service-unavailable ")));
    }
    let later = bench.send_chat(&romeo, "tybalt@capulet.com", "x");
    bench.complete(later);
    assert!(bench.receive(&romeo)[0].contains("<error type='cancel'><service-unavailable "));
}

#[test]
fn expired_messages_are_not_delivered() {
    let bench = OfflineHarness::with(&[("expiry_days", 7)], NodeLimits::default());
    let romeo = bench.online("romeo");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "old");
    bench.complete(later);
    bench.clock.advance(3 * 86_400_000);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "new");
    bench.complete(later);
    bench.clock.advance(5 * 86_400_000);
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), ["new"]);
}

#[test]
fn a_job_removes_expired_messages() {
    let bench = OfflineHarness::with(&[("expiry_days", 7)], NodeLimits::default());
    let romeo = bench.online("romeo");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "old");
    bench.complete(later);
    bench.clock.advance(8 * 86_400_000);
    bench.node.sweep();
    bench.run_until_idle();
    assert_eq!(bench.node.metrics.offline_expired.get(), 1);
}

#[test]
fn a_resource_with_negative_priority_gets_no_offline_messages_and_reads_no_store() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let juliet = bench.connect("juliet");
    bench.available(&juliet, -1);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(later);
    assert_eq!(bench.receive_bodies(&juliet), [""; 0]);
    bench.gate.calls();
    bench.available(&juliet, -2);
    bench.run_until_idle();
    assert_eq!(bench.gate.calls(), [""; 0]);
    bench.available(&juliet, 5);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&juliet), ["1"]);
    // No messages are stored any more: the store is not queried again.
    bench.gate.calls();
    bench.available(&juliet, 6);
    bench.run_until_idle();
    assert_eq!(bench.gate.calls(), [""; 0]);
}

#[test]
fn a_guest_has_no_offline_storage() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let guest = testkit::login::anonymous_identity(bench.node.host("capulet.com").unwrap()).unwrap();
    let loaded = store::conformance::block_on_ready(testkit::login::load_principal(&bench.node, guest));
    let principal = loaded.unwrap().granted().unwrap();
    let to = principal.jid.as_str().to_owned();
    let guest = bench.bind(principal, "x");
    let later = bench.send_chat(&romeo, &to, "x");
    bench.complete(later);
    assert!(bench.receive(&romeo)[0].contains("<service-unavailable "));
    bench.available(&guest, 0);
    assert_eq!(bench.gate.calls(), [""; 0]);
}

#[test]
fn a_resource_that_binds_during_a_write_gets_the_message_before_newer_ones() {
    for gate in ["append", "appended"] {
        let bench = OfflineHarness::new();
        let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
        bench.gate.close(gate);
        let mut first = bench.send_chat(&romeo, "juliet@capulet.com", "1");
        bench.run_until_idle();
        assert!(is_pending(&mut first), "the sender gets no answer before it is on disk");
        let juliet = bench.online("juliet");
        // The sender's connection breaks and comes back: its stream does not wait any more, but its message is being
        // stored.
        drop(first);
        let second = bench.send_chat(&nurse, "juliet@capulet.com", "2");
        bench.gate.open(gate);
        bench.complete(second);
        let mut got = bench.receive_bodies(&juliet);
        got.extend(bench.receive_bodies(&juliet));
        assert_eq!(got, ["1", "2"], "{gate}");
        assert!(!bench.flushing(&juliet));
        assert_eq!(bench.stored("juliet"), 0);
    }
}

#[test]
fn a_login_that_counted_before_the_write_and_binds_after_it_gets_the_message() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let principal = bench.read_login("juliet");
    assert_eq!(principal.offline_messages, 0);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(later);
    let juliet = bench.bind(principal, "balcony");
    bench.available(&juliet, 0);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&juliet), ["1"]);
}

#[test]
fn newer_messages_queue_after_stored_ones_from_the_moment_the_resource_is_available() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let first = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(first);
    let juliet = bench.connect("juliet");
    // The effects of her presence come later: here, after a message that another task sends.
    juliet.set_available(SharedStanza::parse(b"<presence/>").unwrap(), 0);
    let second = bench.send_chat(&romeo, "juliet@capulet.com", "2");
    bench.node.perform(Effects(vec![Effect::Available(juliet.clone())]));
    bench.complete(second);
    let mut got = bench.receive_bodies(&juliet);
    got.extend(bench.receive_bodies(&juliet));
    assert_eq!(got, ["1", "2"]);
    assert!(!bench.flushing(&juliet));
}

#[test]
fn newer_messages_of_a_sender_follow_one_that_is_still_being_stored() {
    for (gate, binds_before) in [("append", false), ("append", true), ("appended", false), ("appended", true)]
    {
        let bench = OfflineHarness::new();
        let romeo = bench.online("romeo");
        let before = binds_before.then(|| bench.connect("juliet"));
        bench.gate.close(gate);
        let first = bench.send_chat(&romeo, "juliet@capulet.com", "1");
        bench.run_until_idle();
        let juliet = before.unwrap_or_else(|| bench.connect("juliet"));
        // The effects of her presence come later than a message of the sender, who does not wait.
        juliet.set_available(SharedStanza::parse(b"<presence/>").unwrap(), 0);
        let second = bench.send_chat(&romeo, "juliet@capulet.com", "2");
        assert!(second.is_some(), "not past the first one");
        bench.node.perform(Effects(vec![Effect::Available(juliet.clone())]));
        let third = bench.send_chat(&romeo, "juliet@capulet.com", "3");
        bench.gate.open(gate);
        for later in [first, second, third] {
            bench.complete(later);
        }
        let mut got = bench.receive_bodies(&juliet);
        got.extend(bench.receive_bodies(&juliet));
        assert_eq!(got, ["1", "2", "3"], "{gate} {binds_before}");
        assert!(!bench.flushing(&juliet));
        assert_eq!(bench.stored("juliet"), 0);
    }
}

#[test]
fn messages_of_one_sender_are_stored_in_groups_and_in_order() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.gate.calls();
    bench.gate.close("append");
    let sent: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let mut later: Vec<_> = sent.iter().map(|n| bench.send_chat(&romeo, "juliet@capulet.com", n)).collect();
    bench.run_until_idle();
    assert!(later.iter_mut().all(is_pending), "none is safe");
    bench.gate.open("append");
    later.into_iter().for_each(|later| bench.complete(later));
    let writes = bench.gate.calls().iter().filter(|call| **call == "append").count();
    assert!(writes <= 3, "{writes} writes for 100 messages");
    let juliet = bench.online("juliet");
    let mut got = bench.receive_bodies(&juliet);
    for _ in 0..3 {
        got.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(got, sent);
}

#[test]
fn newer_messages_queue_after_those_being_delivered() {
    for gate in ["fetch", "fetched", "remove"] {
        let bench = OfflineHarness::new();
        let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
        let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
        bench.complete(later);
        bench.gate.close(gate);
        let juliet = bench.online("juliet");
        // With the last page queued, the session's queue preserves the order.
        assert_eq!(bench.flushing(&juliet), gate != "remove", "{gate}");
        let mut got = bench.receive_bodies(&juliet);
        let mut second = bench.send_chat(&romeo, "juliet@capulet.com", "2");
        let mut third = bench.send_chat(&nurse, "juliet@capulet.com", "3");
        bench.run_until_idle();
        // They are written while the store is read.
        assert!(!is_pending(&mut second) && !is_pending(&mut third), "{gate}");
        bench.gate.open(gate);
        bench.run_until_idle();
        for _ in 0..3 {
            got.extend(bench.receive_bodies(&juliet));
        }
        assert_eq!(got, ["1", "2", "3"], "{gate}");
        assert!(!bench.flushing(&juliet));
        let fourth = bench.send_chat(&romeo, "juliet@capulet.com", "4");
        assert!(fourth.is_none(), "past the store again");
        assert_eq!(bench.receive_bodies(&juliet), ["4"]);
        assert_eq!(bench.stored("juliet"), 0);
    }
}

#[test]
fn messages_pending_storage_are_queued_directly_after_the_last_page() {
    let bench = OfflineHarness::new();
    let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(later);
    bench.gate.calls();
    bench.gate.close("fetched");
    let juliet = bench.online("juliet");
    // One is being written, two are pending.
    bench.gate.close("append");
    let mut senders = vec![bench.send_chat(&romeo, "juliet@capulet.com", "2")];
    bench.run_until_idle();
    bench.deliver_from_remote("friar", "juliet@capulet.com", "3");
    senders.push(bench.send_chat(&nurse, "juliet@capulet.com", "4"));
    bench.gate.open("fetched");
    bench.run_until_idle();
    assert!(senders.iter_mut().all(is_pending));
    assert!(bench.flushing(&juliet));
    bench.gate.open("append");
    bench.run_until_idle();
    assert!(!senders.iter_mut().any(is_pending), "all senders go on");
    assert!(!bench.flushing(&juliet));
    // The connection has not taken anything yet.
    let calls = bench.gate.calls();
    assert_eq!(calls.iter().filter(|c| **c == "append").count(), 1, "{calls:?}");
    assert!(!calls.contains(&"remove"));
    assert_eq!(bench.receive_bodies(&juliet), ["1", "2", "3", "4"]);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn a_delivery_ends_under_continuous_traffic_from_many() {
    for managed in [false, true] {
        let bench = OfflineHarness::new();
        let names = ["romeo", "nurse"];
        let mut senders: Vec<_> = names.iter().map(|name| (bench.online(name), None, 0)).collect();
        for n in 0..200 {
            let later = bench.send_chat(&senders[0].0, "juliet@capulet.com", &format!("old {n}"));
            bench.complete(later);
        }
        bench.gate.calls();
        let juliet = bench.connect("juliet");
        if managed {
            bench.enable_stream_management(&juliet);
        }
        bench.available(&juliet, 0);
        let (mut got, mut friar, mut direct) = (Vec::new(), 0, 0);
        for round in 0..300_u32 {
            for (at, (session, later, sent)) in senders.iter_mut().enumerate() {
                if !is_pending(later) {
                    *later = bench.send_chat(session, "juliet@capulet.com", &format!("{} {sent}", names[at]));
                    *sent += 1;
                    direct += u32::from(later.is_none());
                }
            }
            bench.deliver_from_remote("friar", "juliet@capulet.com", &format!("friar {friar}"));
            friar += 1;
            bench.tasks.step();
            got.extend(bench.take_queued_bodies(&juliet));
            if managed && round % 3 == 0 {
                bench.acknowledge(&juliet, got.len());
            }
        }
        bench.acknowledge(&juliet, got.len());
        bench.run_until_idle();
        got.extend(bench.receive_bodies(&juliet));
        bench.acknowledge(&juliet, got.len());
        bench.run_until_idle();
        assert!(!bench.flushing(&juliet));
        assert!(direct > 500, "{direct} past the store");
        let writes = bench.gate.calls().iter().filter(|c| **c == "append").count();
        assert!(writes <= 8, "{writes} writes");
        assert_eq!(bench.stored("juliet"), 0);
        for (name, sent) in
            [("old", 200), (names[0], senders[0].2), (names[1], senders[1].2), ("friar", friar)]
        {
            let texts: Vec<_> = got.iter().filter(|t| t.starts_with(name)).cloned().collect();
            let want: Vec<_> = (0..sent).map(|n| format!("{name} {n}")).collect();
            assert_eq!(texts, want);
        }
    }
}

#[test]
fn messages_stay_stored_until_the_kernel_has_taken_them() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in ["1", "2"] {
        bench.complete(bench.send_chat(&romeo, "juliet@capulet.com", n));
    }
    let juliet = bench.online("juliet");
    let (mut batch, mut written) = (QueuedBatch::new(), WrittenMessages::default());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(juliet.outbox.dequeue(&mut cx, &mut batch, 1, 0).more);
    batch.iter().for_each(|item| written.add(item));
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 2, "the first one is in the buffer of the connection");
    juliet.outbox.confirm_flushed(&mut written);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 1);
    juliet.outbox.dequeue(&mut cx, &mut batch, u32::MAX, 0);
    bench.run_until_idle();
    bench.offline(&juliet);
    let juliet = bench.online("juliet");
    assert_eq!((bench.receive_bodies(&juliet), bench.stored("juliet")), (vec!["2".to_owned()], 0));
}

//= https://xmpp.org/extensions/xep-0198.html#acking
//= type=test
//# A server SHOULD treat unacknowledged stanzas in the same way that it would treat a stanza sent to an unavailable
//# resource
#[test]
fn unacknowledged_messages_stay_stored_and_are_delivered_again() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in 1..=5 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    let juliet = bench.connect("juliet");
    bench.enable_stream_management(&juliet);
    bench.available(&juliet, 0);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&juliet), ["1", "2", "3", "4", "5"]);
    assert_eq!(bench.stored("juliet"), 5, "taken is not enough");
    bench.acknowledge(&juliet, 2);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 3);
    // Bypasses the store, after the others.
    assert!(bench.send_chat(&romeo, "juliet@capulet.com", "6").is_none());
    assert_eq!(bench.receive_bodies(&juliet), ["6"]);
    bench.offline(&juliet);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 4, "the three once, and the new one behind them");
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), ["3", "4", "5", "6"]);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 0);
    assert_eq!(bench.node.metrics.offline_delivered.get(), 6);
}

#[test]
fn another_resource_gets_unacknowledged_messages_before_newer_ones() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in 1..=3 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    let phone = bench.connect("juliet");
    bench.enable_stream_management(&phone);
    bench.available(&phone, 0);
    bench.run_until_idle();
    bench.receive_bodies(&phone);
    bench.acknowledge(&phone, 1);
    let laptop = bench.bind(bench.read_login("juliet"), "laptop");
    bench.available(&laptop, 0);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&laptop), [""; 0], "the phone has them");
    bench.offline(&phone);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "4");
    bench.complete(later);
    let mut got = bench.receive_bodies(&laptop);
    got.extend(bench.receive_bodies(&laptop));
    assert_eq!(got, ["2", "3", "4"]);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn a_connection_lost_during_delivery_loses_nothing_and_changes_no_order() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    for n in 0..70 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    // The first page is queued when the connection is lost.
    let juliet = bench.online("juliet");
    bench.offline(&juliet);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 70, "neither lost nor stored twice");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "70");
    bench.complete(later);
    let juliet = bench.online("juliet");
    let mut got = bench.receive_bodies(&juliet);
    for _ in 0..3 {
        got.extend(bench.receive_bodies(&juliet));
    }
    let want: Vec<String> = (0..=70).map(|n| n.to_string()).collect();
    assert_eq!(got, want);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn a_slow_receiver_gets_all_messages_in_order() {
    let limits = NodeLimits { queue_message_bytes: 1000, ..NodeLimits::default() };
    let bench = OfflineHarness::with(&[], limits);
    let romeo = bench.online("romeo");
    let juliet = bench.online("juliet");
    let want: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    for n in &want {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", n);
        bench.complete(later);
    }
    assert!(bench.stored("juliet") > 30, "the queue was full, the rest went into the store");
    let mut got = Vec::new();
    for _ in 0..60 {
        got.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(got, want);
    assert!(!bench.flushing(&juliet));
}

#[test]
fn messages_after_one_that_found_the_queue_full_do_not_overtake_it() {
    let bench = OfflineHarness::with(&[], NodeLimits { queue_message_bytes: 1000, ..NodeLimits::default() });
    let juliet = bench.online("juliet");
    bench.gate.close("append");
    for n in 0..5 {
        bench.deliver_from_remote("friar", "juliet@capulet.com", &n.to_string());
    }
    let mut got = bench.receive_bodies(&juliet);
    assert!(got.len() < 5, "the queue was full");
    bench.deliver_from_remote("friar", "juliet@capulet.com", "5");
    bench.gate.open("append");
    for _ in 0..5 {
        got.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(got, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_panic_in_the_store_fails_the_message_and_leaves_nothing_locked() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.gate.close("panic");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    assert!(catch_unwind(AssertUnwindSafe(|| bench.tasks.step())).is_err());
    bench.gate.open("panic");
    bench.complete(later);
    assert!(bench.receive(&romeo)[0].contains("<internal-server-error "));
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "2");
    bench.complete(later);

    let juliet = bench.connect("juliet");
    bench.gate.close("panic");
    bench.available(&juliet, 0);
    assert!(bench.flushing(&juliet));
    assert!(catch_unwind(AssertUnwindSafe(|| bench.tasks.step())).is_err());
    assert!(!bench.flushing(&juliet));
    bench.gate.open("panic");
    bench.available(&juliet, 0);
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&juliet), ["2"]);
}
