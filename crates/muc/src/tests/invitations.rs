//! XEP-0045, sections 7.8.2 and 9.5: who may invite whom and how often, and what becomes of it.

use super::*;

fn invite(client: &NodeClient, users: &[&str]) -> Vec<String> {
    let invitations: String = users.iter().map(|user| format!("<invite to='{user}'/>")).collect();
    client.request(&format!(
        "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'>{invitations}</x></message>"
    ))
}

fn decline(client: &NodeClient) -> Vec<String> {
    client.request(&format!(
        "<message to='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><decline to='crone1@example.com'/></x>\
         </message>"
    ))
}

#[test]
fn invitations_of_a_user_to_all_rooms_have_a_limit() {
    let play = Shakespeare::with(&[("invitations_per_hour", OptionValue::Int(10))]);
    let crone = play.room("");
    let hecate = play.hecate();
    let user = hecate.full();
    assert!(invite(&crone, &[user; 6]).is_empty());
    let heath = "heath@conference.example.com";
    crone.request(&format!("<presence to='{heath}/firstwitch'>{MUC}</presence>"));
    let form = "<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query>";
    request(&crone, "set", heath, form);
    let elsewhere = |count: usize| -> Vec<String> {
        let invitations = format!("<invite to='{user}'/>").repeat(count);
        crone.request(&format!(
            "<message to='{heath}'><x xmlns='http://jabber.org/protocol/muc#user'>{invitations}</x></message>"
        ))
    };
    assert_error(&elsewhere(5), "wait", "resource-constraint");
    assert!(elsewhere(4).is_empty());
    play.engine.advance(3_600);
    assert!(elsewhere(5).is_empty());
}

#[test]
fn section_7_8_2_invitations_of_one_message_are_all_sent_or_none() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_membersonly", "1"));
    let hecate = play.hecate();
    admin(&crone, "set", "<item affiliation='outcast' jid='hag66@example.com'/>");
    let refused = invite(&crone, &["hecate@example.com/broom", "hag66@example.com"]);
    assert_error(&refused, "auth", "forbidden");
    assert!(hecate.recv().is_empty());
    assert_error(&enter(&hecate, "hecate"), "auth", "registration-required");
    // Those who see addresses learn of the new member, as of every other change.
    let announced = masked(invite(&crone, &["hecate@example.com/broom"])).concat();
    assert!(
        announced.contains("<item affiliation='member' jid='hecate@example.com' role='none'/>"),
        "{announced}"
    );
    assert_eq!(hecate.recv().len(), 1);
}

#[test]
fn section_5_1_1_visitors_invite_as_well_and_nobody_invites_a_server() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_moderatedroom", "1"));
    let (hag, hecate) = (play.hag(), play.hecate());
    enter(&hag, "thirdwitch");
    forget(&[&crone]);
    assert!(invite(&hag, &["hecate@example.com/broom"]).is_empty());
    assert_eq!(hecate.recv().len(), 1);
    assert_error(&invite(&crone, &["example.com"]), "modify", "not-acceptable");
}

#[test]
fn section_7_8_2_who_invites_a_user_who_does_not_exist_gets_an_error() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let received = invite(&crone, &["nobody@example.com"]);
    assert_error(&received, "cancel", "item-not-found");
    assert!(received[0].contains("<invite to='nobody@example.com'/>"), "{received:?}");
}

#[test]
fn section_7_8_2_an_invitation_is_declined_when_nobody_is_in_the_room() {
    let play = Shakespeare::new();
    let fields = [field("muc#roomconfig_membersonly", "1"), field("muc#roomconfig_persistentroom", "1")];
    let crone = play.room(&fields.concat());
    let hecate = play.hecate();
    assert!(invite(&crone, &["hecate@example.com/broom"]).iter().all(|one| !one.contains("type='error'")));
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    forget(&[&hecate]);
    assert!(decline(&hecate).is_empty());
    assert!(crone.recv().concat().contains("<decline from='hecate@example.com'"));
    assert_error(&decline(&hecate), "cancel", "item-not-found");
}
