//! Tests of reloads while messages are being stored and delivered: the recipient queues outlive the handlers.

use super::harness::{OfflineHarness, is_pending};

#[test]
fn what_was_being_stored_stays_in_front_of_what_comes_after_the_reload() {
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
fn a_delivery_under_way_stays_one_and_newer_messages_stay_behind_it() {
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
fn an_option_counts_from_the_next_message_on_for_who_is_connected_too() {
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
fn switched_off_what_waits_is_kept_and_switched_on_again_it_is_delivered_once() {
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
