//! XEP-0317 (Hats).

use super::*;

const HOST: &str = "http://schemas.example.com/hats#host";

fn command(client: &NodeClient, name: &str, fields: &[(&str, &str)]) -> String {
    let form = match fields {
        [] => String::new(),
        fields => {
            let fields: String =
                fields.iter().map(|(var, value)| field(&format!("hats#{var}"), value)).collect();
            let kind = field("FORM_TYPE", "urn:xmpp:hats:commands");
            format!("<x xmlns='jabber:x:data' type='submit'>{kind}{fields}</x>")
        }
    };
    let node = format!("urn:xmpp:hats:commands:{name}");
    let command =
        format!("<command xmlns='http://jabber.org/protocol/commands' node='{node}'>{form}</command>");
    let answers = request(client, "set", ROOM, &command);
    answers.into_iter().find(|one| one.starts_with("<iq ")).unwrap()
}

#[test]
fn hats_are_created_assigned_shown_removed_and_destroyed() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    let form = command(&crone, "create", &[]);
    assert!(form.contains("status='executing'") && form.contains("var='hats#title'"), "{form}");
    forget(&[&hag]);
    let created = command(&crone, "create", &[("title", "Host"), ("uri", HOST), ("hue", "327.255249")]);
    assert!(created.contains("status='completed'"), "{created}");
    assert!(hag.recv().concat().contains("<status code='104'/>"));
    let form = command(&crone, "assign", &[]);
    assert!(form.contains(&format!("<option label='Host'><value>{HOST}</value></option>")), "{form}");
    command(&crone, "assign", &[("jid", "hag66@example.com"), ("uri", HOST)]);
    let hats =
        format!("<hats xmlns='urn:xmpp:hats:0'><hat title='Host' uri='{HOST}' hue='327.255249'/></hats>");
    let shown = hag.recv().concat();
    assert!(shown.contains(&hats) && shown.contains("<status code='110'/>"), "{shown}");
    assert!(enter(&play.wicca(), "secondwitch").concat().contains(&hats), "newcomers see it");
    let listed = command(&crone, "list-assigned", &[]);
    assert!(listed.contains("<value>hag66@example.com</value>") && listed.contains("Host"), "{listed}");
    let info = request(&hag, "get", ROOM, "<query xmlns='http://jabber.org/protocol/disco#info'/>").concat();
    assert!(info.contains("<feature var='urn:xmpp:hats:0'/>") && info.contains("var='hats#hash'"), "{info}");
    forget(&[&crone, &hag]);
    command(&crone, "create", &[("title", "Presenter"), ("uri", HOST)]);
    let shown = hag.recv().concat();
    assert!(shown.contains(&format!("<hat title='Presenter' uri='{HOST}'/>")), "{shown}");
    command(&crone, "unassign", &[("jid", "hag66@example.com"), ("uri", HOST)]);
    let shown = hag.recv().concat();
    assert!(shown.contains("<presence ") && !shown.contains("<hats "), "{shown}");
    command(&crone, "assign", &[("jid", "hag66@example.com"), ("uri", HOST)]);
    forget(&[&hag]);
    command(&crone, "destroy", &[("uri", HOST)]);
    let shown = hag.recv().concat();
    assert!(shown.contains("<presence ") && !shown.contains("<hats "), "{shown}");
    let gone = command(&crone, "assign", &[("jid", "hag66@example.com"), ("uri", HOST)]);
    assert!(gone.contains("<item-not-found "), "{gone}");
}

#[test]
fn only_administrators_manage_hats_and_users_do_not_give_themselves_any() {
    let play = Shakespeare::new();
    let crone = play.room("");
    let hag = play.hag();
    enter(&hag, "thirdwitch");
    command(&crone, "create", &[("title", "Host"), ("uri", HOST)]);
    for name in ["create", "destroy", "assign", "unassign", "list-assigned"] {
        let refused = command(&hag, name, &[("jid", "hag66@example.com"), ("uri", HOST), ("title", "Host")]);
        assert!(refused.contains(&refusal("auth", "forbidden")), "{name}: {refused}");
    }
    assert!(command(&hag, "list", &[]).contains(HOST));
    let outsider = command(&play.hecate(), "list", &[]);
    assert!(outsider.contains(&refusal("auth", "forbidden")), "{outsider}");
    forget(&[&crone, &hag]);
    let forged = format!("<hats xmlns='urn:xmpp:hats:0'><hat title='Host' uri='{HOST}'/></hats>");
    hag.send(&format!("<presence to='{ROOM}/thirdwitch'>{forged}</presence>"));
    let seen = crone.recv().concat();
    assert!(seen.contains("/thirdwitch") && !seen.contains("<hats "), "{seen}");
}

#[test]
fn hats_are_stored_and_bounded() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    for number in 0..50 {
        let uri = format!("{HOST}{number}");
        let created = command(&crone, "create", &[("title", "Host"), ("uri", &uri)]);
        assert!(created.contains("status='completed'"), "{created}");
    }
    let full = command(&crone, "create", &[("title", "Host"), ("uri", HOST)]);
    assert!(full.contains(&refusal("wait", "resource-constraint")), "{full}");
    for number in 0..6 {
        let uri = format!("{HOST}{number}");
        let assigned = command(&crone, "assign", &[("jid", "crone1@example.com"), ("uri", &uri)]);
        assert_eq!(assigned.contains("status='completed'"), number < 5, "{assigned}");
    }
    let long = command(&crone, "create", &[("title", &"x".repeat(257)), ("uri", HOST)]);
    assert!(long.contains("<bad-payload "), "{long}");
    let hue = command(&crone, "create", &[("title", "x"), ("uri", HOST), ("hue", "red")]);
    assert!(hue.contains("<bad-payload "), "{hue}");
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    let entered = enter(&crone, "firstwitch").concat();
    assert_eq!(entered.matches("<hat ").count(), 5, "{entered}");
}
