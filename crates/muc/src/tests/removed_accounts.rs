//! Accounts that are removed, and those that have their names later.

use jid::Jid;
use throng_core::feature_notice::NoticeCtx;

use super::several_nodes::{Cluster, ROOMS, room};
use super::*;
use crate::removed_accounts::handle_notice;

fn remove(play: &Shakespeare, user: &str) {
    let jid = Jid::parse(&format!("{user}@example.com")).unwrap();
    play.engine.block_on(play.engine.stores.accounts.remove(jid.as_ref())).unwrap().unwrap();
    let host = play.engine.node.host("example.com").unwrap();
    play.engine.node.account_removed(&host, jid.as_ref(), Vec::new());
    play.engine.run_tasks();
}

fn member(affiliation: &str, user: &str, nick: &str) -> String {
    format!("<item affiliation='{affiliation}' jid='{user}@example.com' nick='{nick}'/>")
}

#[test]
fn the_next_account_with_the_name_of_an_owner_does_not_own_the_stored_room() {
    let play = Shakespeare::with(&[("rooms_per_user", OptionValue::Int(1))]);
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    admin(&crone, "set", &(member("admin", "wiccarocks", "second") + &member("outcast", "hag66", "")));
    crone.request(&format!("<presence to='{ROOM}/firstwitch' type='unavailable'/>"));
    for user in ["crone1", "hag66"] {
        remove(&play, user);
        play.engine.create_user(user);
    }
    let crone = play.engine.connect("crone1", "again");
    let entered = enter(&crone, "second");
    assert_error(&entered, "cancel", "conflict");
    let entered = enter(&crone, "firstwitch").concat();
    assert!(entered.contains("affiliation='none'") && !entered.contains("role='moderator'"), "{entered}");
    assert_error(&owner(&crone, "get", ""), "auth", "forbidden");
    assert_error(&enter(&play.hag(), "thirdwitch"), "auth", "forbidden");
    // The former room is not one of this user's.
    let heath = crone.request(&format!("<presence to='heath@conference.example.com/x'>{MUC}</presence>"));
    assert!(heath.concat().contains("<status code='201'/>"), "{heath:?}");
}

#[test]
fn rooms_in_memory_end_the_affiliations_nicknames_hats_and_voice_of_a_removed_account() {
    for persistent in ["0", "1"] {
        let play = Shakespeare::new();
        let fields =
            field("muc#roomconfig_persistentroom", persistent) + &field("muc#roomconfig_whois", "anyone");
        let crone = play.room(&fields);
        let hag = play.hag();
        enter(&hag, "thirdwitch");
        admin(&crone, "set", &(member("admin", "wiccarocks", "second") + &member("outcast", "hecate", "")));
        forget(&[&crone, &hag]);
        remove(&play, "wiccarocks");
        remove(&play, "hecate");
        let gone = "<item affiliation='none' jid='wiccarocks@example.com' role='none'/>";
        for client in [&crone, &hag] {
            let received = client.recv();
            assert!(received.len() == 1 && received[0].contains(gone), "{persistent}: {received:?}");
        }
        assert!(!owner(&crone, "get", "").concat().contains("wiccarocks"));
        assert!(enter(&hag, "second").concat().contains("<status code='110'/>"), "the nickname is free");
        play.engine.create_user("wiccarocks");
        let again = play.wicca();
        assert!(enter(&again, "secondwitch").concat().contains("affiliation='none'"));
        play.engine.create_user("hecate");
        assert_error(&enter(&play.hecate(), "hecate"), "auth", "forbidden");
        // The last owner: nobody owns the room then.
        remove(&play, "crone1");
        play.engine.create_user("crone1");
        let crone = play.engine.connect("crone1", "again");
        assert!(enter(&crone, "first").concat().contains("affiliation='none'"));
        assert_error(&owner(&crone, "get", ""), "auth", "forbidden");
    }
}

#[test]
fn rooms_on_other_nodes_learn_of_removals() {
    let cluster = Cluster::new(3);
    let crone = cluster.connect(0, "crone1");
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.configure(&crone, number, number % 2 == 0);
        let item = member("admin", "hag66", "third");
        let query = format!("<query xmlns='http://jabber.org/protocol/muc#admin'>{item}</query>");
        let set = cluster.send(&crone, &format!("<iq type='set' to='{}' id='a1'>{query}</iq>", room(number)));
        assert!(set.concat().contains("type='result'"), "{set:?}");
    }
    let jid = Jid::parse("hag66@example.com").unwrap();
    let second = cluster.nodes.node(1);
    second.block_on(second.stores.accounts.remove(jid.as_ref())).unwrap().unwrap();
    let host = second.node.host("example.com").unwrap();
    second.node.account_removed(&host, jid.as_ref(), Vec::new());
    cluster.nodes.settle();
    second.create_user("hag66");
    let hag = cluster.connect(1, "hag66");
    for number in 0..ROOMS {
        let entered = cluster.enter(&hag, number, "thirdwitch");
        assert!(entered.contains("affiliation='none'"), "room {number}: {entered}");
        assert!(!entered.contains("affiliation='admin'"), "room {number}: {entered}");
    }
}

/// The occupant id of a client that has entered.
fn own_id(entered: &[String]) -> String {
    let own = entered.iter().find(|one| one.contains("<status code='110'/>")).unwrap();
    let id = own.split_once("<occupant-id ").unwrap().1.split_once(" id='").unwrap().1;
    id.split('\'').next().unwrap().to_owned()
}

#[test]
fn a_node_that_may_have_missed_removals_reads_them() {
    // With a notice that says so, and without one.
    for (persistent, has_notice) in [("0", true), ("1", true), ("0", false), ("1", false)] {
        let play = Shakespeare::new();
        let crone = play.room(&field("muc#roomconfig_persistentroom", persistent));
        let (wicca, hag) = (play.wicca(), play.hag());
        admin(&crone, "set", &(member("admin", "wiccarocks", "second") + &member("member", "hag66", "")));
        let enter_unmasked = |client: &NodeClient, nick: &str| {
            client.request(&format!("<presence to='{ROOM}/{nick}'>{MUC}</presence>"))
        };
        let former = own_id(&enter_unmasked(&wicca, "second"));
        enter(&hag, "thirdwitch");
        forget(&[&crone, &wicca, &hag]);
        // Another program has removed the account.
        let jid = Jid::parse("wiccarocks@example.com").unwrap();
        play.engine.block_on(play.engine.stores.accounts.remove(jid.as_ref())).unwrap().unwrap();
        match has_notice {
            true => {
                let host = play.engine.node.host("example.com").unwrap();
                let node = &play.engine.node;
                handle_notice(&NoticeCtx { node, host: &host, from: None, content: None });
                play.engine.run_tasks();
            }
            false => play.engine.advance(10),
        }
        let received = crone.recv().concat();
        assert!(
            received.contains("affiliation='none'") && received.contains("role='participant'"),
            "{received}"
        );
        assert!(!received.contains("thirdwitch"), "{received}");
        forget(&[&wicca]);
        assert_error(&admin(&wicca, "set", &member("member", "hecate", "")), "auth", "forbidden");
        assert!(admin(&crone, "get", "<item affiliation='member'/>").concat().contains("hag66"));
        wicca.request(&format!("<presence to='{ROOM}/second' type='unavailable'/>"));
        play.engine.create_user("wiccarocks");
        let again = play.engine.connect("wiccarocks", "again");
        assert_ne!(own_id(&enter_unmasked(&again, "second")), former, "another user");
        // What the next account is given stays.
        admin(&crone, "set", &member("admin", "wiccarocks", "second"));
        play.engine.advance(20);
        assert!(admin(&crone, "get", "<item affiliation='admin'/>").concat().contains("wiccarocks"));
    }
}

#[test]
fn a_room_of_a_lost_node_does_not_have_accounts_that_were_removed_meanwhile() {
    let mut cluster = Cluster::new(3);
    let crone = cluster.connect(0, "crone1");
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.configure(&crone, number, number % 2 == 0);
        let item = member("admin", "hag66", "third");
        let query = format!("<query xmlns='http://jabber.org/protocol/muc#admin'>{item}</query>");
        cluster.send(&crone, &format!("<iq type='set' to='{}' id='a1'>{query}</iq>", room(number)));
    }
    cluster.pass(2);
    // While nobody has its rooms in memory.
    cluster.nodes.crash(1);
    let jid = Jid::parse("hag66@example.com").unwrap();
    let first = cluster.nodes.node(0);
    first.block_on(first.stores.accounts.remove(jid.as_ref())).unwrap().unwrap();
    cluster.pass(15);
    cluster.nodes.node(0).create_user("hag66");
    let hag = cluster.connect(2, "hag66");
    for number in 0..ROOMS {
        let entered = cluster.enter(&hag, number, "thirdwitch");
        assert!(entered.contains("<status code='110'/>"), "room {number}: {entered}");
        assert!(!entered.contains("affiliation='admin'"), "room {number}: {entered}");
    }
}

#[test]
fn xep_0421_the_next_account_with_the_name_of_a_removed_one_has_another_occupant_id() {
    let play = Shakespeare::new();
    let crone = play.room(&field("muc#roomconfig_persistentroom", "1"));
    let id = |room: &str| {
        let client = play.hag();
        let to = format!("{room}@conference.example.com/thirdwitch");
        let id = own_id(&client.request(&format!("<presence to='{to}'>{MUC}</presence>")));
        client.send(&format!("<presence to='{to}' type='unavailable'/>"));
        client.close();
        play.engine.run_tasks();
        id
    };
    let (first, other) = (id("coven"), id("heath"));
    assert_eq!(id("coven"), first);
    remove(&play, "hag66");
    play.engine.create_user("hag66");
    let second = id("coven");
    assert_ne!(second, first);
    assert_eq!(id("coven"), second, "it is stable");
    assert_ne!(id("heath"), other);
    remove(&play, "hag66");
    play.engine.create_user("hag66");
    assert!(![first, second].contains(&id("coven")));
    drop(crone);
}
