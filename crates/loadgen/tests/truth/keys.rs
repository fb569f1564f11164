//! Tests of SCRAM keys: derived once per account outside the engine, measured apart from the server's times, and
//! derived before the run if the salts are known.

use loadgen::control::message::AccountSalt;
use loadgen::measure::{Counter, Timing};
use loadgen::plan::PlanStep as Do;

use crate::support::driver::{RunOutcome, TestRunConfig, run_with};
use crate::support::plans::{login, plan};
use crate::support::script::ServerScript;
use crate::support::server::ScriptedServer;

/// Ten users, each with its own password, log in twice.
fn twice(config: TestRunConfig) -> RunOutcome {
    let server =
        ScriptedServer::start(ServerScript { mechanisms: vec!["SCRAM-SHA-1"], ..ServerScript::default() });
    let steps = vec![Do::Repeat {
        times: Some(2),
        counter: None,
        first: 0,
        increment: 1,
        steps: vec![login(), Do::Disconnect],
    }];
    let outcome = run_with(plan(&server, 10, steps), &server, config);
    assert_eq!((outcome.count(Counter::Logins), server.truth().scram), (20, 20), "{:?}", outcome.errors);
    outcome
}

fn salts(outcome: &RunOutcome) -> Vec<AccountSalt> {
    outcome.finals.iter().flat_map(|last| last.salts.clone()).collect()
}

#[test]
fn each_key_is_derived_once_and_its_wait_is_measured_separately() {
    let outcome = twice(TestRunConfig::alone());
    assert_eq!((outcome.count(Counter::KeysDerived), outcome.count(Counter::KeysAhead)), (10, 0));
    assert!(outcome.count(Counter::KeysCpu) > 0);
    assert_eq!(outcome.timing(Timing::Derive).count, 10);
    assert_eq!(outcome.timing(Timing::Authenticate).count, 20);
    assert_eq!(salts(&outcome), [], "nobody has asked for salts");
}

#[test]
fn salts_of_an_earlier_run_are_derived_before_the_start() {
    let first = twice(TestRunConfig { learn: true, ..TestRunConfig::alone() });
    let known = salts(&first);
    assert_eq!(known.len(), 10);
    let again = twice(TestRunConfig { learn: true, salts: known.clone(), ..TestRunConfig::alone() });
    assert_eq!((again.count(Counter::KeysDerived), again.count(Counter::KeysAhead)), (10, 10));
    assert_eq!(again.timing(Timing::Derive).count, 0, "no login waits for a key");
    assert_eq!(salts(&again).len(), 10, "what was known is kept");
    // An outdated salt costs a wasted derivation but no login.
    let stale = known.into_iter().map(|salt| AccountSalt { salt: vec![7; 16], ..salt }).collect();
    let again = twice(TestRunConfig { salts: stale, ..TestRunConfig::alone() });
    assert_eq!((again.count(Counter::KeysDerived), again.count(Counter::KeysAhead)), (20, 10));
}
