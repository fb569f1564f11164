//! Reloads while messages are being stored and delivered: the desks outlive the handlers.
use super::bench::{Bench, waits};

#[test]
fn what_was_being_stored_stays_in_front_of_what_comes_after_the_reload() {
    let bench = Bench::new();
    let (romeo, nurse) = (bench.online("romeo"), bench.online("nurse"));
    bench.gate.shut("append");
    let mut first = bench.say(&romeo, "juliet@capulet.com", "before");
    bench.steps();
    assert!(waits(&mut first));
    bench.reload(Some(&[("max_messages", 50)]));
    let mut second = bench.say(&nurse, "juliet@capulet.com", "after");
    bench.steps();
    assert!(waits(&mut second), "it waits behind the first at the same desk");
    bench.gate.open("append");
    bench.finish(first);
    bench.finish(second);
    assert_eq!(bench.stored("juliet"), 2);
    let juliet = bench.online("juliet");
    assert_eq!(bench.bodies(&juliet), ["before", "after"]);
    assert_eq!(bench.bodies(&juliet), [""; 0]);
}

#[test]
fn a_delivery_under_way_stays_one_and_newer_messages_stay_behind_it() {
    let bench = Bench::new();
    let romeo = bench.online("romeo");
    let later = bench.say(&romeo, "juliet@capulet.com", "1");
    bench.finish(later);
    bench.gate.shut("fetched");
    let juliet = bench.online("juliet");
    assert!(bench.flushing(&juliet));
    bench.reload(Some(&[]));
    bench.available(&juliet, 1);
    let later = bench.say(&romeo, "juliet@capulet.com", "2");
    bench.gate.open("fetched");
    bench.finish(later);
    let mut got = Vec::new();
    for _ in 0..5 {
        got.extend(bench.bodies(&juliet));
    }
    assert_eq!(got, ["1", "2"]);
    assert!(!bench.flushing(&juliet));
}

#[test]
fn an_option_counts_from_the_next_message_on_for_who_is_connected_too() {
    let bench = Bench::new();
    let romeo = bench.online("romeo");
    let later = bench.say(&romeo, "juliet@capulet.com", "1");
    bench.finish(later);
    bench.reload(Some(&[("max_messages", 1)]));
    let later = bench.say(&romeo, "juliet@capulet.com", "2");
    bench.finish(later);
    let answer = bench.recv(&romeo);
    assert!(answer[0].contains("<service-unavailable "), "{answer:?}");
    assert_eq!(bench.stored("juliet"), 1);
}

#[test]
fn switched_off_what_waits_is_kept_and_switched_on_again_it_is_delivered_once() {
    let bench = Bench::new();
    let romeo = bench.online("romeo");
    bench.gate.shut("append");
    let later = bench.say(&romeo, "juliet@capulet.com", "kept");
    bench.steps();
    bench.reload(None);
    let refused = bench.say(&romeo, "juliet@capulet.com", "refused");
    assert!(refused.is_none());
    let answer = bench.recv(&romeo);
    assert!(answer.len() == 1 && answer[0].contains("<service-unavailable "), "{answer:?}");
    bench.reload(Some(&[]));
    bench.gate.open("append");
    bench.finish(later);
    assert_eq!(bench.recv(&romeo), [""; 0]);
    let juliet = bench.online("juliet");
    assert_eq!(bench.bodies(&juliet), ["kept"]);
    assert_eq!(bench.stored("juliet"), 0);
}
