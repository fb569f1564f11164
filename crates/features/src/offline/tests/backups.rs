//! Backups of messages that clients take slowly: DESIGN of `throng_core::message_backup`, through routing, store and logins.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use throng_core::session::flags;
use throng_core::{NodeLimits, Session};

use super::harness::{OfflineHarness, is_pending};

/// A sender with stream management, and a recipient who acknowledges.
fn connected(bench: &OfflineHarness) -> (Arc<Session>, Arc<Session>) {
    let romeo = bench.online("romeo");
    romeo.flags.set(flags::STREAM_MANAGEMENT);
    let juliet = bench.online("juliet");
    bench.enable_stream_management(&juliet);
    bench.gate.calls();
    (romeo, juliet)
}

impl OfflineHarness {
    /// The time of a backup comes.
    fn back_up(&self) {
        self.clock.advance(throng_core::message_backup::OVERDUE_MILLIS);
        self.node.back_up_overdue();
        self.run_until_idle();
    }

    fn acknowledge_and_remove(&self, session: &Arc<Session>, count: usize) {
        self.acknowledge(session, count);
        self.node.remove_delivered_backups(session);
        self.run_until_idle();
    }
}

#[test]
fn a_message_that_is_acknowledged_in_time_is_safe_without_the_store() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    let mut later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
    assert_eq!(bench.receive_bodies(&juliet), ["x"]);
    assert!(is_pending(&mut later), "it would be lost with the node");
    bench.acknowledge_and_remove(&juliet, 1);
    assert!(!is_pending(&mut later));
    bench.back_up();
    assert_eq!(bench.gate.calls(), [""; 0]);
}

#[test]
fn a_slow_client_gets_a_message_once_and_its_sender_waits_for_the_store_only() {
    for full_address in [false, true] {
        let bench = OfflineHarness::new();
        let (romeo, juliet) = connected(&bench);
        let to = if full_address { "juliet@capulet.com/balcony" } else { "juliet@capulet.com" };
        let mut later = bench.send_chat(&romeo, to, "x");
        bench.clock.advance(99);
        bench.node.back_up_overdue();
        assert!(is_pending(&mut later));
        bench.back_up();
        assert!(!is_pending(&mut later));
        assert_eq!(bench.stored("juliet"), 1);
        let metrics = &bench.node.metrics;
        assert_eq!(
            (metrics.offline_backups.get(), metrics.offline_stored.get()),
            (1, 0),
            "she is not offline"
        );
        assert!(!bench.flushing(&juliet), "newer messages follow it in the queue");
        assert_eq!(bench.receive_bodies(&juliet), ["x"]);
        bench.acknowledge_and_remove(&juliet, 1);
        assert_eq!((bench.stored("juliet"), bench.receive_bodies(&juliet).len()), (0, 0));
    }
}

#[test]
fn a_sender_without_stream_management_causes_no_backup() {
    let bench = OfflineHarness::new();
    let (romeo, _juliet) = connected(&bench);
    romeo.flags.clear(flags::STREAM_MANAGEMENT);
    assert!(bench.send_chat(&romeo, "juliet@capulet.com", "x").is_none());
    bench.back_up();
    assert_eq!(bench.gate.calls(), [""; 0]);
}

#[test]
fn the_backup_of_a_session_that_ends_is_delivered_at_the_next_login() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
    bench.back_up();
    bench.complete(later);
    bench.offline(&juliet);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 1, "it is not stored twice");
    let juliet = bench.online("juliet");
    assert_eq!((bench.receive_bodies(&juliet), bench.stored("juliet")), (vec!["x".to_owned()], 0));
}

#[test]
fn another_resource_does_not_get_what_a_session_holds_until_that_ends() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
    bench.back_up();
    bench.complete(later);
    let cell = bench.bind(bench.read_login("juliet"), "cell");
    bench.available(&cell, 0);
    bench.run_until_idle();
    assert_eq!((bench.receive_bodies(&cell).len(), bench.stored("juliet")), (0, 1));
    bench.offline(&juliet);
    bench.run_until_idle();
    assert_eq!((bench.receive_bodies(&cell), bench.stored("juliet")), (vec!["x".to_owned()], 0));
}

#[test]
fn a_message_that_is_delivered_or_abandoned_while_its_backup_is_written_is_neither_lost_nor_doubled() {
    for (gate, acknowledged) in [("append", true), ("append", false), ("appended", true), ("appended", false)]
    {
        let bench = OfflineHarness::new();
        let (romeo, juliet) = connected(&bench);
        let mut later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
        bench.gate.close(gate);
        bench.back_up();
        assert!(is_pending(&mut later));
        if acknowledged {
            assert_eq!(bench.receive_bodies(&juliet), ["x"]);
            bench.acknowledge_and_remove(&juliet, 1);
        } else {
            bench.offline(&juliet);
        }
        bench.gate.open(gate);
        bench.complete(later);
        assert_eq!(bench.stored("juliet"), u32::from(!acknowledged), "{gate}");
        bench.offline(&juliet);
        let juliet = bench.online("juliet");
        assert_eq!(bench.receive_bodies(&juliet).len(), usize::from(!acknowledged), "{gate}");
        assert_eq!(bench.stored("juliet"), 0);
    }
}

#[test]
fn a_message_that_is_stored_follows_those_that_a_session_holds() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    for n in ["1", "2"] {
        drop(bench.send_chat(&romeo, "juliet@capulet.com", n));
    }
    bench.available(&juliet, -1);
    bench.run_until_idle();
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "3");
    bench.complete(later);
    assert_eq!(bench.stored("juliet"), 3);
    bench.offline(&juliet);
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), ["1", "2", "3"]);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn what_a_slow_client_holds_is_backed_up_beyond_the_quota_of_its_account() {
    let bench = OfflineHarness::with(&[("max_messages", 10)], NodeLimits::default());
    let (romeo, juliet) = connected(&bench);
    // The quota admits 10 messages, and 5 of one sender.
    let laters: Vec<_> =
        (0..30).map(|n| bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string())).collect();
    bench.back_up();
    laters.into_iter().for_each(|later| bench.complete(later));
    assert_eq!((bench.stored("juliet"), bench.receive(&romeo).len()), (30, 0));
    bench.available(&juliet, -1);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "30");
    bench.complete(later);
    assert!(
        bench.receive(&romeo).concat().contains("storage is full"),
        "the quota is that of other messages"
    );
    assert_eq!(bench.receive_bodies(&juliet).len(), 30);
    bench.acknowledge_and_remove(&juliet, 30);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn sessions_that_end_one_after_the_other_leave_a_bounded_number_of_messages_and_do_not_stop_the_sender() {
    let bench = OfflineHarness::with(&[("max_messages", 2)], NodeLimits::default());
    let (romeo, mut juliet) = connected(&bench);
    for n in 0..10 {
        let laters = [0, 1, 2].map(|m| bench.send_chat(&romeo, "juliet@capulet.com", &format!("{n} {m}")));
        bench.back_up();
        for mut later in laters {
            assert!(!is_pending(&mut later));
        }
        assert_eq!(bench.receive(&romeo), [""; 0], "no error: it may arrive");
        bench.offline(&juliet);
        bench.run_until_idle();
        bench.receive(&romeo);
        juliet = bench.online("juliet");
        bench.enable_stream_management(&juliet);
    }
    // Twice the quota, and one batch.
    assert!((4..=7).contains(&bench.stored("juliet")), "{}", bench.stored("juliet"));
}

#[test]
fn a_backup_that_is_lost_with_the_store_task_returns_an_error_if_no_session_holds_the_message() {
    for ended in [false, true] {
        let bench = OfflineHarness::new();
        let (romeo, juliet) = connected(&bench);
        let mut later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
        bench.gate.close("append");
        bench.back_up();
        if ended {
            bench.offline(&juliet);
        }
        bench.gate.close("panic");
        bench.gate.open("append");
        assert!(catch_unwind(AssertUnwindSafe(|| bench.tasks.step())).is_err());
        bench.gate.open("panic");
        bench.run_until_idle();
        assert!(!is_pending(&mut later), "the sender does not wait permanently");
        let errors = bench.receive(&romeo).concat();
        assert_eq!(errors.contains("<internal-server-error "), ended, "{errors}");
    }
}

#[test]
fn a_message_that_a_client_acknowledges_while_a_page_is_read_is_not_delivered_from_the_store() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.back_up();
    bench.complete(later);
    bench.available(&juliet, -1);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "2");
    bench.complete(later);
    assert_eq!((bench.receive_bodies(&juliet), bench.stored("juliet")), (vec!["1".to_owned()], 2));
    bench.gate.close("fetched");
    bench.available(&juliet, 0);
    bench.run_until_idle();
    bench.acknowledge_and_remove(&juliet, 1);
    assert_eq!(bench.stored("juliet"), 1);
    bench.gate.open("fetched");
    bench.run_until_idle();
    assert_eq!(bench.receive_bodies(&juliet), ["2"]);
    bench.acknowledge_and_remove(&juliet, 2);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn a_backup_that_is_being_written_while_a_page_is_read_is_not_delivered_to_another_resource() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "x");
    bench.gate.close("appended");
    bench.back_up();
    let cell = bench.bind(bench.read_login("juliet"), "cell");
    bench.available(&cell, 0);
    bench.run_until_idle();
    assert_eq!(bench.stored("juliet"), 1);
    assert_eq!(bench.receive_bodies(&cell), [""; 0]);
    bench.gate.open("appended");
    bench.complete(later);
    assert_eq!(bench.receive_bodies(&cell), [""; 0]);
    assert_eq!(bench.receive_bodies(&juliet), ["x"]);
    bench.acknowledge_and_remove(&juliet, 1);
    assert_eq!(bench.stored("juliet"), 0);
}

#[test]
fn a_pending_message_that_several_resources_take_is_backed_up_when_the_first_of_them_ends() {
    let bench = OfflineHarness::new();
    let (romeo, juliet) = connected(&bench);
    bench.available(&juliet, -1);
    let send = |text: &str| bench.send_chat(&romeo, "juliet@capulet.com", text);
    bench.complete(send("0"));
    bench.gate.close("append");
    let stored = send("1");
    bench.run_until_idle();
    let mut pending = send("2");
    let cell = bench.bind(bench.read_login("juliet"), "cell");
    bench.available(&cell, 5);
    bench.available(&juliet, 0);
    bench.run_until_idle();
    bench.gate.open("append");
    bench.complete(stored);
    assert_eq!((bench.stored("juliet"), is_pending(&mut pending)), (2, true), "it is in two queues");
    bench.offline(&cell);
    bench.run_until_idle();
    bench.back_up();
    assert!(!is_pending(&mut pending), "one resource must not hold up its sender");
    assert_eq!(bench.stored("juliet"), 3);
}

#[test]
fn all_messages_of_a_session_that_ends_are_stored_though_one_sender_sent_them() {
    let options = [("max_messages", 100_000), ("sender_percent", 100)];
    let bench = OfflineHarness::with(&options, NodeLimits::default());
    let (romeo, juliet) = connected(&bench);
    romeo.flags.clear(flags::STREAM_MANAGEMENT);
    for n in 0..1_500 {
        let later = bench.send_chat(&romeo, "juliet@capulet.com", &n.to_string());
        bench.complete(later);
    }
    assert_eq!(bench.receive(&romeo), [""; 0], "they are in her queue");
    bench.offline(&juliet);
    for _ in 0..10 {
        bench.run_until_idle();
    }
    assert_eq!((bench.stored("juliet"), bench.receive(&romeo).len()), (1_500, 0));
}

#[test]
fn a_message_that_is_not_stored_for_offline_users_has_no_backup() {
    let bench = OfflineHarness::new();
    let (romeo, _juliet) = connected(&bench);
    let later = bench.ingest(
        &romeo,
        "<message to='juliet@capulet.com' type='chat'><body>x</body><no-store xmlns='urn:xmpp:hints'/></message>",
    );
    bench.back_up();
    bench.complete(later);
    assert_eq!(bench.stored("juliet"), 0);
}
