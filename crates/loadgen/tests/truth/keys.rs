//! SCRAM's keys: derived once for each account beside the engine, told apart from the server's times, and ahead of the run
//! where the salts are known.

use loadgen::control::message::Salt;
use loadgen::measure::{Counter, Timing};
use loadgen::plan::Step as Do;

use crate::support::plans::{login, plan};
use crate::support::port::{Course, Outcome, run_with};
use crate::support::script::Script;
use crate::support::server::Server;

/// Ten users, each with a password of its own, log in twice.
fn twice(course: Course) -> Outcome {
    let server = Server::start(Script { mechanisms: vec!["SCRAM-SHA-1"], ..Script::default() });
    let steps = vec![Do::Repeat {
        times: Some(2),
        counter: None,
        first: 0,
        increment: 1,
        steps: vec![login(), Do::Disconnect],
    }];
    let outcome = run_with(plan(&server, 10, steps), &server, course);
    assert_eq!((outcome.count(Counter::Logins), server.truth().scram), (20, 20), "{:?}", outcome.errors);
    outcome
}

fn salts(outcome: &Outcome) -> Vec<Salt> {
    outcome.finals.iter().flat_map(|last| last.salts.clone()).collect()
}

#[test]
fn each_key_is_derived_once_and_the_wait_for_it_is_a_time_of_its_own() {
    let outcome = twice(Course::alone());
    assert_eq!((outcome.count(Counter::KeysDerived), outcome.count(Counter::KeysAhead)), (10, 0));
    assert!(outcome.count(Counter::KeysCpu) > 0);
    assert_eq!(outcome.timing(Timing::Derive).count, 10);
    assert_eq!(outcome.timing(Timing::Authenticate).count, 20);
    assert_eq!(salts(&outcome), [], "nobody has asked for salts");
}

#[test]
fn salts_of_an_earlier_run_are_derived_before_the_start() {
    let first = twice(Course { learn: true, ..Course::alone() });
    let known = salts(&first);
    assert_eq!(known.len(), 10);
    let again = twice(Course { learn: true, salts: known.clone(), ..Course::alone() });
    assert_eq!((again.count(Counter::KeysDerived), again.count(Counter::KeysAhead)), (10, 10));
    assert_eq!(again.timing(Timing::Derive).count, 0, "no login waits for a key");
    assert_eq!(salts(&again).len(), 10, "what was known is kept");
    // A salt that is another one by now costs a derivation in vain and no login.
    let stale = known.into_iter().map(|salt| Salt { salt: vec![7; 16], ..salt }).collect();
    let again = twice(Course { salts: stale, ..Course::alone() });
    assert_eq!((again.count(Counter::KeysDerived), again.count(Counter::KeysAhead)), (20, 10));
}
