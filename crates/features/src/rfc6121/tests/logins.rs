//! Tests of logins that overlap a change of the account: RFC 6120, section 6.5; the account has been read and its
//! session is not bound yet.

use stanza::StreamCondition;
use store::Subscription;
use throng_commands::account_admin;

use super::*;

#[test]
fn a_session_bound_after_its_account_was_disabled_or_removed_ends() {
    for what in ["disabled", "removed", "removed and made anew", "nothing"] {
        let engine = two_unrelated_users();
        let juliet = jid::Jid::parse(JULIET).unwrap();
        let late = engine.principal(JULIET);
        match what {
            "disabled" => {
                engine.block_on(account_admin::set_account_disabled(&engine.node, &juliet, true)).unwrap()
            }
            "removed" => {
                engine.block_on(account_admin::remove_account(&engine.node, juliet.as_ref())).unwrap()
            }
            "removed and made anew" => {
                engine.block_on(account_admin::remove_account(&engine.node, juliet.as_ref())).unwrap();
                engine.create_user(JULIET);
            }
            // A change of another account in the same stripe, or of a contact, looks like this.
            _ => drop(engine.block_on(account_admin::set_account_disabled(&engine.node, &juliet, false))),
        }
        let client = engine.bind(late, "balcony").unwrap();
        engine.run_tasks();
        let stays = what == "nothing";
        assert_eq!(engine.node.routing_table.find(juliet.as_ref()).is_some(), stays, "{what}");
        drop(client);
    }
}

/// Logs in, lets `change` happen before the session is bound, and binds.
fn bind_after(engine: &TestNode, change: impl FnOnce()) -> NodeClient {
    let principal = engine.principal(JULIET);
    change();
    engine.bind(principal, "balcony").unwrap()
}

fn disable(engine: &TestNode) {
    let jid = jid::Jid::parse(JULIET).unwrap();
    engine.block_on(account_admin::set_account_disabled(&engine.node, &jid, true)).unwrap();
}

#[test]
fn a_session_whose_account_cannot_be_verified_after_bind_ends() {
    for disabled in [true, false] {
        let engine = two_unrelated_users();
        let juliet = bind_after(&engine, || {
            if disabled {
                disable(&engine);
            } else {
                engine.add_contact(JULIET, ROMEO, Subscription::BOTH);
            }
            engine.set_store_failing(true);
        });
        assert!(!juliet.session.is_ended(), "the first failure is not the end");
        (0..5).for_each(|_| engine.advance(1));
        assert!(juliet.session.is_ended(), "disabled: {disabled}");
        assert_eq!(juliet.closed_with().unwrap().condition, StreamCondition::ResourceConstraint);
        assert_eq!(engine.store_calls().iter().filter(|call| **call == "logins.login").count(), 4);
    }
}

#[test]
fn the_check_after_bind_is_repeated_until_the_store_answers() {
    let engine = two_unrelated_users();
    let juliet = bind_after(&engine, || {
        disable(&engine);
        engine.set_store_failing(true);
    });
    engine.advance(1);
    assert!(!juliet.session.is_ended());
    engine.set_store_failing(false);
    engine.advance(1);
    assert_eq!(juliet.closed_with().unwrap().condition, StreamCondition::NotAuthorized);

    let engine = two_unrelated_users();
    let juliet = bind_after(&engine, || {
        engine.add_contact(JULIET, ROMEO, Subscription::BOTH);
        engine.set_store_failing(true);
    });
    engine.set_store_failing(false);
    engine.store_calls();
    (0..3).for_each(|_| engine.advance(1));
    assert!(juliet.session.account.with(|state| state.contacts().len() == 1) && !juliet.session.is_ended());
    assert_eq!(engine.store_calls(), ["logins.login"], "one read brings roster, blocklist and state");
}

#[test]
fn a_roster_view_that_cannot_be_read_again_ends_the_sessions_of_its_account() {
    let engine = two_unrelated_users();
    let [one, two] = ["balcony", "chamber"].map(|resource| online(&engine, JULIET, resource));
    let romeo = online(&engine, ROMEO, "orchard");
    engine.add_contact(JULIET, ROMEO, Subscription::BOTH | Subscription::IN_ROSTER);
    let account = &one.session.account;
    let old = engine.stored_roster_item(JULIET, ROMEO).unwrap();
    let version = account.with(|state| state.roster_version);
    let late = store::RosterUpdateOutcome { before: None, after: Some(old), version: version - 1 };
    engine.set_store_failing(true);
    for _ in 0..3 {
        assert!(!engine.node.roster_changed(account.jid.as_ref(), romeo.bare(), &late));
    }
    engine.run_tasks();
    engine.store_calls();
    engine.advance(1);
    assert_eq!(engine.store_calls(), ["roster.get"], "one repetition for an account");
    (0..3).for_each(|_| engine.advance(1));
    assert!(one.session.is_ended() && two.session.is_ended() && !romeo.session.is_ended());
}

#[test]
fn changes_reported_out_of_order_start_one_read_of_the_roster_at_a_time() {
    let engine = two_unrelated_users();
    let juliet = online(&engine, JULIET, "balcony");
    let romeo = online(&engine, ROMEO, "orchard");
    engine.add_contact(JULIET, ROMEO, Subscription::BOTH | Subscription::IN_ROSTER);
    let account = &juliet.session.account;
    let old = engine.stored_roster_item(JULIET, ROMEO).unwrap();
    let version = account.with(|state| state.roster_version);
    let late = store::RosterUpdateOutcome { before: None, after: Some(old), version: version - 1 };
    engine.store_calls();
    for round in 0..2 {
        for _ in 0..100 {
            assert!(!engine.node.roster_changed(account.jid.as_ref(), romeo.bare(), &late));
        }
        engine.run_tasks();
        assert_eq!(engine.store_calls(), ["roster.get"], "round {round}");
    }
}
