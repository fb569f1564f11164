//! Tests of logins that overlap a change of the account: RFC 6120, section 6.5; the account has been read and its
//! session is not bound yet.

use super::*;

#[test]
fn a_session_bound_after_its_account_was_disabled_or_removed_ends() {
    for what in ["disabled", "removed", "removed and made anew", "nothing"] {
        let engine = two_unrelated_users();
        let juliet = jid::Jid::parse(JULIET).unwrap();
        let late = engine.principal(JULIET);
        match what {
            "disabled" => engine.block_on(engine.node.set_account_disabled(&juliet, true)).unwrap(),
            "removed" => engine.block_on(engine.node.remove_account(juliet.as_ref())).unwrap(),
            "removed and made anew" => {
                engine.block_on(engine.node.remove_account(juliet.as_ref())).unwrap();
                engine.create_user(JULIET);
            }
            // A change of another account in the same stripe, or of a contact, looks like this.
            _ => drop(engine.block_on(engine.node.set_account_disabled(&juliet, false))),
        }
        let client = engine.bind(late, "balcony").unwrap();
        engine.run_tasks();
        let stays = what == "nothing";
        assert_eq!(engine.node.routing_table.find(juliet.as_ref()).is_some(), stays, "{what}");
        drop(client);
    }
}
