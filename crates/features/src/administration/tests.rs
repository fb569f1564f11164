//! Tests of the commands of XEP-0133 as an administrator's client uses them.

use jid::Jid;
use store::LastActivity;
use testkit::{NodeClient, TestNode};
use throng_commands::shutdown::{Drain, ShutdownKind, check_shutdown, shutdown_planned, wait_for_shutdown};
use throng_core::session::{StreamManagementTerms, flags};

use super::*;

fn engine() -> (TestNode, NodeClient) {
    let engine = TestNode::new(&[
        &crate::adhoc::FEATURE,
        &crate::rfc6121::roster::FEATURE,
        &crate::rfc6121::subscription::FEATURE,
        &crate::rfc6121::presence::FEATURE,
        &FEATURE,
        &crate::offline::FEATURE,
    ]);
    for user in ["bard", "juliet", "romeo"] {
        engine.create_user(user);
    }
    engine.node.set_admins([Jid::parse("bard@example.com").unwrap()]);
    let bard = engine.connect("bard", "globe");
    (engine, bard)
}

fn raw(client: &NodeClient, node: &str, attrs: &str, content: &str) -> String {
    let node = match node.strip_prefix('!') {
        Some(own) => own.to_owned(),
        None => format!("http://jabber.org/protocol/admin#{node}"),
    };
    let mut answers = client.request(&format!(
        "<iq type='set' to='example.com' id='1'>\
         <command xmlns='http://jabber.org/protocol/commands' node='{node}' {attrs}>{content}</command></iq>"
    ));
    let at = answers.iter().position(|a| a.contains("id='1'")).expect("an answer");
    answers.remove(at)
}

fn submit(fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(var, text)| {
        let values = text.split('|').map(|v| format!("<value>{v}</value>")).collect::<String>();
        format!("<field var='{var}'>{values}</field>")
    });
    let kind = "<field type='hidden' var='FORM_TYPE'><value>http://jabber.org/protocol/admin</value></field>";
    format!("<x xmlns='jabber:x:data' type='submit'>{kind}{}</x>", fields.collect::<String>())
}

/// Requests the form and submits it; returns the reply.
fn run(client: &NodeClient, node: &str, fields: &[(&str, &str)]) -> String {
    let form = raw(client, node, "action='execute'", "");
    if form.contains("status='completed'") || form.contains("type='error'") {
        return form;
    }
    assert!(form.contains("status='executing'"), "{form}");
    let id = form.split("sessionid='").nth(1).unwrap().split('\'').next().unwrap();
    raw(client, node, &format!("sessionid='{id}'"), &submit(fields))
}

#[track_caller]
fn done(client: &NodeClient, node: &str, fields: &[(&str, &str)]) -> String {
    let answer = run(client, node, fields);
    assert!(answer.contains("status='completed'"), "{node}: {answer}");
    answer
}

#[track_caller]
fn refused(client: &NodeClient, node: &str, fields: &[(&str, &str)], condition: &str) {
    let answer = run(client, node, fields);
    assert!(answer.contains(&format!("<{condition}")), "{node}: {answer}");
}
/// XEP-0050, section 3.3: a command that fails because of a value completes with a note.
const VALUE: &str = "note type='error'>";
fn value(answer: &str, var: &str) -> Vec<String> {
    let Some((_, rest)) = answer.split_once(&format!("<field var='{var}'")) else { return Vec::new() };
    let field = rest.split("</field>").next().unwrap().split("<option").next().unwrap();
    field.split("<value>").skip(1).map(|v| v.split("</value>").next().unwrap().to_owned()).collect()
}

fn address(name: &str) -> Jid {
    Jid::parse(&format!("{name}@example.com")).unwrap()
}

#[test]
fn sections_4_1_and_4_2_users_are_added_and_deleted() {
    let (engine, bard) = engine();
    let new = [
        ("accountjid", "hamlet@example.com"),
        ("password", "R0m30"),
        ("password-verify", "R0m30"),
        ("email", "hamlet@denmark.lit"),
        ("given_name", "Hamlet"),
        ("surname", "of Denmark"),
    ];
    done(&bard, "add-user", &new);
    refused(&bard, "add-user", &new, "conflict");
    refused(
        &bard,
        "add-user",
        &[("accountjid", "yorick@example.com"), ("password", "a"), ("password-verify", "b")],
        VALUE,
    );
    for odd in ["hamlet@denmark.lit", "example.com", "x@example.com/castle"] {
        refused(&bard, "add-user", &[("accountjid", odd), ("password", "R0m30")], VALUE);
    }
    let login = engine.block_on(engine.stores.logins.secrets(address("hamlet").as_ref())).unwrap().unwrap();
    assert_eq!(login.credentials, b"R0m30", "keys were derived");
    let vcard = engine.block_on(engine.stores.vcards.get(address("hamlet").as_ref())).unwrap().unwrap();
    assert!(String::from_utf8(vcard).unwrap().contains("<GIVEN>Hamlet</GIVEN>"));

    let hamlet = [engine.connect("hamlet", "castle"), engine.connect("hamlet", "ship")];
    engine.befriend("juliet", "hamlet");
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>");
    juliet.send("<presence/>");
    juliet.recv();
    // With a missing account among them, the others are unchanged.
    let both = [("accountjids", "hamlet@example.com|yorick@example.com")];
    refused(&bard, "delete-user", &both, VALUE);
    assert!(hamlet[0].closed_with().is_none());
    done(&bard, "delete-user", &[("accountjids", "hamlet@example.com")]);
    for client in &hamlet {
        assert_eq!(client.closed_with().unwrap().condition, stanza::StreamCondition::NotAuthorized);
    }
    assert!(!engine.block_on(engine.stores.accounts.exists(address("hamlet").as_ref())).unwrap());
    let received = juliet.recv().join("");
    assert!(
        received.contains("type='unsubscribed'") && received.contains("type='unsubscribe'"),
        "{received}"
    );
    refused(&bard, "delete-user", &[("accountjids", "bard@example.com")], "not-allowed");
}

#[test]
fn sections_4_3_to_4_5_disabling_and_ending_sessions() {
    let (engine, bard) = engine();
    let romeo = [engine.connect("romeo", "orchard"), engine.connect("romeo", "mantua")];
    done(&bard, "end-user-session", &[("accountjids", "romeo@example.com/mantua")]);
    assert!(romeo[1].closed_with().is_some() && romeo[0].closed_with().is_none());
    refused(&bard, "end-user-session", &[("accountjids", "romeo@example.com/mantua")], VALUE);
    done(&bard, "disable-user", &[("accountjids", "romeo@example.com|juliet@example.com")]);
    assert!(romeo[0].closed_with().is_some());
    assert!(
        engine.block_on(engine.stores.logins.secrets(address("romeo").as_ref())).unwrap().unwrap().disabled
    );
    assert_eq!(value(&done(&bard, "get-disabled-users-num", &[]), "disabledusersnum"), ["2"]);
    let list = done(&bard, "get-disabled-users-list", &[("max_items", "25")]);
    assert_eq!(value(&list, "disableduserjids"), ["juliet@example.com", "romeo@example.com"]);
    done(&bard, "reenable-user", &[("accountjids", "romeo@example.com")]);
    assert!(
        !engine.block_on(engine.stores.logins.secrets(address("romeo").as_ref())).unwrap().unwrap().disabled
    );
    refused(&bard, "disable-user", &[("accountjids", "bard@example.com")], "not-allowed");
    refused(&bard, "disable-user", &[("accountjids", "yorick@example.com")], VALUE);
}

#[test]
fn sections_4_7_to_4_10_one_user_is_changed_and_shown() {
    let (engine, bard) = engine();
    let password = [("accountjid", "romeo@example.com"), ("password", "V3r0n4")];
    done(&bard, "change-user-password", &password);
    let login = engine.block_on(engine.stores.logins.secrets(address("romeo").as_ref())).unwrap().unwrap();
    assert_eq!(login.credentials, b"V3r0n4");
    refused(&bard, "change-user-password", &[("accountjid", "x@example.com"), ("password", "V")], VALUE);

    engine.edit_roster_item("juliet", "romeo@example.net", |item| {
        item.name = Some("Romeo & co".to_owned());
        item.groups = vec!["Friends".to_owned(), "Lovers".to_owned()];
        item.subscription = store::Subscription::BOTH | store::Subscription::IN_ROSTER;
    });
    let roster = done(&bard, "get-user-roster", &[("accountjids", "juliet@example.com")]);
    assert!(
        roster.contains(
            "<query xmlns='jabber:iq:roster'><item jid='romeo@example.net' name='Romeo &amp; co' \
             subscription='both'><group>Friends</group><group>Lovers</group></item></query></x>"
        ),
        "{roster}"
    );
    assert_eq!(value(&roster, "accountjids"), ["juliet@example.com"]);

    let id = engine.block_on(engine.stores.addresses.find(&address("juliet"))).unwrap().unwrap();
    engine.stores.last_seen.set(id, LastActivity { at: 1_071_856_715, status: None });
    let all = [("accountjids", "juliet@example.com|romeo@example.com|bard@example.com")];
    let times = value(&done(&bard, "get-user-lastlogin", &all), "lastlogin");
    assert_eq!(times[..2], ["2003-12-19T17:58:35Z", "never"]);
    assert!(times[2].ends_with('Z'), "{times:?}");

    let juliet = [engine.connect("juliet", "balcony"), engine.connect("juliet", "chamber")];
    let stats = done(&bard, "user-stats", &[("accountjid", "juliet@example.com")]);
    assert_eq!(value(&stats, "onlineresources"), ["balcony", "chamber"]);
    assert_eq!(value(&stats, "rostersize"), ["1"]);
    refused(&bard, "user-stats", &[("accountjid", "x@example.com")], VALUE);
    drop(juliet);
}

#[test]
fn sections_4_13_to_4_22_users_are_counted_and_listed_in_pages() {
    let (engine, bard) = engine();
    let romeo = engine.connect("romeo", "orchard");
    let guest = engine.connect_anonymous("guest", "x");
    let elsewhere = "paris@example.net";
    engine.create_user(elsewhere);
    let paris = engine.connect(elsewhere, "x");
    romeo.session.flags.set(flags::INACTIVE);
    for (node, var, want) in [
        ("get-registered-users-num", "registeredusersnum", "3"),
        ("get-disabled-users-num", "disabledusersnum", "0"),
        ("get-online-users-num", "onlineusersnum", "2"),
        ("get-active-users-num", "activeusersnum", "1"),
        ("get-idle-users-num", "idleusersnum", "1"),
    ] {
        assert_eq!(value(&done(&bard, node, &[]), var), [want], "{node}");
    }
    for (node, var, want) in [
        ("get-registered-users-list", "registereduserjids", &["bard", "juliet", "romeo"][..]),
        ("get-disabled-users-list", "disableduserjids", &[]),
        ("get-active-users", "activeuserjids", &["bard"]),
        ("get-idle-users", "idleuserjids", &["romeo"]),
    ] {
        let want: Vec<String> = want.iter().map(|name| address(name).to_string()).collect();
        assert_eq!(value(&done(&bard, node, &[("max_items", "none")]), var), want, "{node}");
    }
    let form = raw(&bard, "get-online-users-list", "", "");
    assert!(form.contains("type='list-single'") && form.contains("<option label='None'><value>none</value>"));

    let more: Vec<NodeClient> = (0..300)
        .map(|n| {
            engine.create_user(&format!("u{n}"));
            engine.connect(&format!("u{n}"), "x")
        })
        .collect();
    for (node, var, number) in [
        ("get-online-users-list", "onlineuserjids", 302),
        ("get-registered-users-list", "registereduserjids", 303),
    ] {
        let (mut users, mut after, mut pages) = (std::collections::BTreeSet::new(), None::<String>, 0);
        loop {
            let mut fields = vec![("max_items", "37")];
            fields.extend(after.as_deref().map(|a| ("x-after", a)));
            let page = done(&bard, node, &fields);
            let list = value(&page, var);
            assert!(list.len() <= 37 && list.iter().all(|user| users.insert(user.clone())), "{node}: {page}");
            pages += 1;
            match value(&page, "x-next").pop() {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!((users.len(), pages), (number, 9), "{node}");
    }
    refused(&bard, "get-online-users-list", &[("x-after", "romeo")], VALUE);
    refused(&bard, "get-online-users-list", &[("max_items", "100000")], VALUE);
    drop((more, guest, paris));
}

#[test]
fn section_4_23_announcements_reach_online_users() {
    let (engine, bard) = engine();
    let (romeo, juliet) = (engine.connect("romeo", "orchard"), engine.connect("juliet", "balcony"));
    let busy = engine.connect("juliet", "chamber");
    romeo.send("<presence/>");
    juliet.send("<presence/>");
    busy.send("<presence><priority>-1</priority></presence>");
    for client in [&romeo, &juliet, &busy] {
        client.recv();
    }
    engine.create_user("paris@example.net");
    let elsewhere = engine.connect("paris@example.net", "tomb");
    elsewhere.send("<presence/>");
    elsewhere.recv();
    let answer = done(&bard, "announce", &[("announcement", "Attention!|We apologize.")]);
    assert!(answer.contains("it is being sent to 3 users"), "those of the domain: {answer}");
    assert!(elsewhere.recv().is_empty());
    for client in [&romeo, &juliet] {
        let got = client.recv();
        assert_eq!(got.len(), 1, "{got:?}");
        assert!(got[0].contains("type='headline'") && got[0].contains("from='example.com'"));
        assert!(got[0].contains(&format!("to='{}'", client.bare().as_str())), "{got:?}");
        assert!(got[0].contains("<body>Attention!\nWe apologize.</body>"), "{got:?}");
    }
    assert!(busy.recv().is_empty() && bard.recv().is_empty(), "a negative priority takes none");
    refused(&bard, "announce", &[("announcement", "")], "bad-request");
}

#[test]
fn section_4_24_a_detached_session_gets_no_message_of_the_day_while_another_is_connected() {
    let (engine, bard) = engine();
    let (phone, laptop) = (engine.connect("romeo", "phone"), engine.connect("romeo", "laptop"));
    phone.send("<presence><priority>5</priority></presence>");
    laptop.send("<presence/>");
    let outbox = &phone.session.outbox;
    let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: false };
    assert!(outbox.enable_management(terms, [0; 16]) && outbox.detach(engine.node.seconds(), None));
    laptop.recv();
    done(&bard, "set-motd", &[("motd", "The play begins at two")]);
    assert!(laptop.recv().join("").contains("<body>The play begins at two</body>"));
}

#[test]
fn sections_4_24_to_4_26_the_message_of_the_day_is_seen_once() {
    let (engine, bard) = engine();
    let motd =
        |client: &NodeClient| client.recv().iter().filter(|s| s.contains("Message of the day")).count();
    assert!(
        run(&bard, "delete-motd", &[]).contains("<note type='info'>there is no message of the day</note>")
    );
    let form = raw(&bard, "edit-motd", "", "");
    assert!(form.contains("status='executing'") && value(&form, "motd").is_empty(), "an empty form: {form}");
    let romeo = engine.connect("romeo", "orchard");
    let second = engine.connect("romeo", "mantua");
    for client in [&romeo, &second] {
        client.send("<presence/>");
    }
    engine.store_calls();
    done(&bard, "set-motd", &[("motd", "The re-opening of the|Globe Theatre")]);
    assert_eq!(motd(&romeo) + motd(&second), 1, "one resource of who is online");
    second.send("<presence><priority>3</priority></presence>");
    assert_eq!(motd(&romeo) + motd(&second), 0);
    let juliet = engine.connect("juliet", "balcony");
    assert_eq!(motd(&juliet), 0, "not before she is available");
    engine.store_calls();
    juliet.send("<presence><priority>-1</priority></presence>");
    assert_eq!(motd(&juliet), 0, "not to a resource that takes no messages");
    juliet.send("<presence/>");
    assert_eq!(motd(&juliet), 1);
    assert!(!engine.store_calls().contains(&"private.put"), "no row for an account");
    juliet.close();
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence/>");
    assert_eq!(motd(&juliet), 0, "she has seen it");

    let form = raw(&bard, "edit-motd", "", "");
    assert_eq!(value(&form, "motd"), ["The re-opening of the", "Globe Theatre"]);
    done(&bard, "edit-motd", &[("motd", "It was cancelled")]);
    assert_eq!(motd(&juliet), 0, "it is not sent again to users who have seen it");
    engine.create_user("nurse");
    let nurse = engine.connect("nurse", "hall");
    nurse.send("<presence/>");
    assert!(nurse.recv().join("").contains("<body>It was cancelled</body>"));
    let guest = engine.connect_anonymous("guest", "x");
    guest.send("<presence/>");
    assert_eq!(motd(&guest), 0);

    // Another node, or a restarted one, knows which accounts have seen it.
    let other = TestNode::new(&[&FEATURE]);
    for key in ["motd:example.com", "motd-seen:example.com:0"] {
        let stored = engine.block_on(engine.stores.server_kv.get(key)).unwrap().unwrap();
        other.block_on(other.stores.server_kv.put(key, &stored)).unwrap();
    }
    for user in ["bard", "juliet", "romeo", "nurse", "tybalt"] {
        other.create_user(user);
    }
    for (user, times) in [("juliet", 0), ("nurse", 0), ("tybalt", 1)] {
        let client = other.connect(user, "x");
        client.send("<presence/>");
        // Without the feature `presence` that does not make a resource available.
        let mut effects = throng_core::Effects::default();
        effects.add(throng_core::Effect::Available(client.session.clone()));
        client.session.with(|state| state.presence = throng_core::SharedStanza::parse(b"<presence/>"));
        other.node.perform(effects);
        other.run_tasks();
        assert_eq!(motd(&client), times, "{user}");
    }

    done(&bard, "delete-motd", &[]);
    engine.create_user("tybalt");
    let tybalt = engine.connect("tybalt", "x");
    tybalt.send("<presence/>");
    assert_eq!(motd(&tybalt), 0);
    done(&bard, "set-motd", &[("motd", "A new one")]);
    assert_eq!(motd(&juliet) + motd(&nurse) + motd(&tybalt), 3, "a new message is new to everybody");
    done(&bard, "delete-motd", &[]);
    done(&bard, "edit-motd", &[("motd", "Written where there was none")]);
    assert_eq!(motd(&juliet) + motd(&nurse) + motd(&tybalt), 0, "for those who come");
    juliet.send("<presence type='unavailable'/>");
    juliet.send("<presence/>");
    assert_eq!(motd(&juliet), 1);
}

#[test]
fn sections_4_27_and_4_28_new_users_are_welcomed() {
    let (engine, bard) = engine();
    assert!(
        run(&bard, "delete-welcome", &[]).contains("<note type='info'>there is no welcome message</note>")
    );
    done(&bard, "set-welcome", &[("welcome", "Welcome to|Shakespeare.lit")]);
    assert_eq!(value(&raw(&bard, "set-welcome", "", ""), "welcome"), ["Welcome to", "Shakespeare.lit"]);
    done(&bard, "add-user", &[("accountjid", "hamlet@example.com"), ("password", "x")]);
    // It is stored like any message to an offline user.
    let waiting = |name: &str| -> String {
        let id = engine.block_on(engine.stores.addresses.find(&address(name))).unwrap().unwrap();
        let slice = engine.block_on(engine.stores.offline.fetch(id, store::Page::first(9), 0)).unwrap();
        slice.items.iter().map(|m| String::from_utf8_lossy(&m.stanza).into_owned()).collect()
    };
    let got = waiting("hamlet");
    assert!(
        got.contains("<body>Welcome to\nShakespeare.lit</body>") && got.contains("from='example.com'"),
        "{got}"
    );
    done(&bard, "delete-welcome", &[]);
    done(&bard, "add-user", &[("accountjid", "yorick@example.com"), ("password", "x")]);
    assert_eq!(waiting("yorick"), "");
}

#[test]
fn section_4_29_the_list_of_administrators_survives_a_restart() {
    let (engine, bard) = engine();
    let settings = &*engine.stores.server_kv;
    let configured = [address("bard")];
    let settle =
        |configured: &[Jid]| engine.block_on(admins::effective_admins(settings, configured)).unwrap();
    assert_eq!(settle(&configured), configured);
    assert_eq!(value(&raw(&bard, "edit-admin", "", ""), "adminjids"), ["bard@example.com"]);
    refused(&bard, "edit-admin", &[("adminjids", "bard@example.com|hecate@example.com")], VALUE);
    refused(&bard, "edit-admin", &[("adminjids", "chris@marlowe.lit")], VALUE);
    refused(&bard, "edit-admin", &[], "bad-request");
    done(&bard, "edit-admin", &[("adminjids", "bard@example.com|juliet@example.com")]);
    assert!(engine.node.is_admin(address("juliet").as_ref()));
    assert_eq!(settle(&configured), [address("bard"), address("juliet")]);
    let juliet = engine.connect("juliet", "balcony");
    done(&juliet, "get-online-users-num", &[]);
    // An edit of the configuration takes precedence.
    let edited = [address("bard"), address("romeo")];
    assert_eq!(settle(&edited), edited);
    assert_eq!(settle(&configured), configured);
}

#[test]
fn the_password_policy_is_shown_and_changed() {
    let (engine, bard) = engine();
    let policy = done(&bard, "!get-password-policy", &[]);
    assert_eq!(value(&policy, "x-length"), ["8"]);
    done(&bard, "!change-password-policy", &[("x-length", "12"), ("x-different", "5"), ("x-no-name", "0")]);
    let policy = done(&bard, "!get-password-policy", &[]);
    assert_eq!(
        (value(&policy, "x-length"), value(&policy, "x-no-name")),
        (vec!["12".into()], vec!["0".into()])
    );
    refused(&bard, "!change-password-policy", &[("x-length", "0")], "bad-request");
    drop(engine);
}

#[test]
fn sections_4_30_and_4_31_restart_and_shutdown_are_requested() {
    let (engine, bard) = engine();
    bard.send("<presence/>");
    bard.recv();
    assert_eq!(value(&raw(&bard, "shutdown", "", ""), "delay"), ["30"]);
    let restart = [("delay", "120"), ("announcement", "The service will be restarted|in 2 minutes!")];
    let form = raw(&bard, "restart", "", "");
    let id = form.split("sessionid='").nth(1).unwrap().split('\'').next().unwrap();
    let got = bard.request(&format!(
        "<iq type='set' to='example.com' id='2'><command xmlns='http://jabber.org/protocol/commands' \
         node='http://jabber.org/protocol/admin#restart' sessionid='{id}'>{}</command></iq>",
        submit(&restart)
    ));
    assert!(got.iter().any(|s| s.contains("in 2 minutes!")), "{got:?}");
    assert_eq!(shutdown_planned(&engine.node).unwrap().kind, ShutdownKind::Restart);
    done(&bard, "shutdown", &[("delay", "60")]);
    engine.advance(59);
    let mut waiting = Box::pin(wait_for_shutdown(&engine.node));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    check_shutdown(&engine.node);
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    engine.advance(1);
    check_shutdown(&engine.node);
    assert_eq!(engine.block_on(waiting).kind, ShutdownKind::Stop, "the later command counts");
    refused(&bard, "shutdown", &[("delay", "0")], VALUE);
}

#[test]
fn a_drain_begins_at_once_and_redirects_to_a_valid_host_only() {
    let (engine, bard) = engine();
    let wrong = [
        "a b",
        "romeo@example.net",
        "example.net/x",
        "example.net:0",
        "example.net:99999",
        ":5222",
        "::1",
        "[::g]",
    ];
    for host in wrong {
        refused(&bard, "!drain", &[("x-other-host", host)], VALUE);
    }
    for host in ["", "xmpp2.example.net:5222", "192.0.2.7", "[::1]", "[2001:db8::1]:5299"] {
        done(&bard, "!drain", &[("x-rate", "250"), ("x-other-host", host)]);
        let other_host = Some(host.to_owned()).filter(|host| !host.is_empty());
        let drain = Drain { streams_per_second: 250, other_host };
        assert_eq!(engine.block_on(wait_for_shutdown(&engine.node)).kind, ShutdownKind::Drain(drain));
    }
}

#[test]
fn iterating_over_all_users_yields() {
    let (engine, bard) = engine();
    let clients: Vec<NodeClient> = (0..2_000)
        .map(|n| {
            engine.create_user(&format!("u{n}"));
            let client = engine.connect(&format!("u{n}"), "x");
            client.session.with(|state| state.presence = throng_core::SharedStanza::parse(b"<presence/>"));
            client
        })
        .collect();
    let frame = announce::headline("example.com", "s", "t").unwrap();
    let node = engine.node.clone();
    let mut sending = Box::pin(async move { announce::broadcast(&node, "example.com", &frame).await });
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut turns = 0;
    while sending.as_mut().poll(&mut cx).is_pending() {
        turns += 1;
    }
    assert!(turns >= 64, "{turns}");
    assert!(clients.iter().all(|client| client.recv().len() == 1));
    drop(bard);
}
