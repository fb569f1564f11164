//! Tests of reloads while messages are being stored and delivered: the recipient queues outlive the handlers.

use super::harness::{OfflineHarness, is_pending};

#[test]
fn messages_being_stored_precede_those_after_a_reload() {
    let bench = OfflineHarness::new();
    let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
    bench.gate.close("append");
    let mut first = bench.send_chat(&romeo, "juliet@capulet.com", "before");
    bench.run_until_idle();
    assert!(is_pending(&mut first));
    bench.reload(Some(&[("max_messages", 50)]));
    let mut second = bench.send_chat(&nurse, "juliet@capulet.com", "after");
    bench.run_until_idle();
    assert!(is_pending(&mut second), "it waits for the first in the queue of the same recipient");
    bench.gate.open("append");
    bench.complete(first);
    bench.complete(second);
    assert_eq!(bench.stored("juliet"), 2);
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), ["before", "after"]);
    assert_eq!(bench.receive_bodies(&juliet), [""; 0]);
}

#[test]
fn a_delivery_in_progress_continues_across_a_reload_before_newer_messages() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(later);
    bench.gate.close("fetched");
    let juliet = bench.online("juliet");
    assert!(bench.flushing(&juliet));
    bench.reload(Some(&[]));
    bench.available(&juliet, 1);
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "2");
    bench.gate.open("fetched");
    bench.complete(later);
    let mut got = Vec::new();
    for _ in 0..5 {
        got.extend(bench.receive_bodies(&juliet));
    }
    assert_eq!(got, ["1", "2"]);
    assert!(!bench.flushing(&juliet));
}

#[test]
fn a_changed_option_applies_to_the_next_message_also_for_connected_users() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "1");
    bench.complete(later);
    bench.reload(Some(&[("max_messages", 1)]));
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "2");
    bench.complete(later);
    let answer = bench.receive(&romeo);
    assert!(answer[0].contains("<service-unavailable "), "{answer:?}");
    assert_eq!(bench.stored("juliet"), 1);
}

#[test]
fn disabling_the_module_keeps_stored_messages_and_enabling_it_delivers_them_once() {
    let bench = OfflineHarness::new();
    let romeo = bench.online("romeo");
    bench.gate.close("append");
    let later = bench.send_chat(&romeo, "juliet@capulet.com", "kept");
    bench.run_until_idle();
    bench.reload(None);
    let refused = bench.send_chat(&romeo, "juliet@capulet.com", "refused");
    assert!(refused.is_none());
    let answer = bench.receive(&romeo);
    assert!(answer.len() == 1 && answer[0].contains("<service-unavailable "), "{answer:?}");
    bench.reload(Some(&[]));
    bench.gate.open("append");
    bench.complete(later);
    assert_eq!(bench.receive(&romeo), [""; 0]);
    let juliet = bench.online("juliet");
    assert_eq!(bench.receive_bodies(&juliet), ["kept"]);
    assert_eq!(bench.stored("juliet"), 0);
}
