//! Backups of messages that clients take slowly: DESIGN of `throng_core::message_backup`, through routing, store and logins.

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
fn a_full_store_does_not_stop_the_sender() {
    let options = [("max_messages", 1), ("sender_percent", 100)];
    let bench = OfflineHarness::with(&options, NodeLimits::default());
    let (romeo, juliet) = connected(&bench);
    let laters = ["1", "2"].map(|n| bench.send_chat(&romeo, "juliet@capulet.com", n));
    bench.back_up();
    laters.into_iter().for_each(|later| bench.complete(later));
    assert_eq!((bench.stored("juliet"), bench.receive(&romeo).len()), (1, 0), "no error: it may arrive");
    assert_eq!(bench.receive_bodies(&juliet), ["1", "2"]);
    bench.acknowledge_and_remove(&juliet, 2);
    assert_eq!(bench.stored("juliet"), 0);
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
