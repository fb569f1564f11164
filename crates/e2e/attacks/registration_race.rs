//! Race between registrations of one name.
//!
//! Done: fifty streams register the same name with different passwords at the same time, in different spellings; an
//! account is removed and created again while one of its sessions can be resumed.
//!
//! Rule: XEP-0077, section 3.1 (`conflict`); account takeover by a race is CWE-362.
//!
//! Right: one registration succeeds, the others get `conflict`; data of the previous account does not belong to its
//! successor.

use feature_api::feature::OptionValue;
use sasl::Mechanism;
use testkit::server::{PASSWORD, TestServerConfig, run_until_idle};

use crate::support::{ClientTransport, ask};

fn setup() -> TestServerConfig {
    let options = vec![
        ("registration", "open", OptionValue::Bool(true)),
        ("registration", "allow_without_tls", OptionValue::Bool(true)),
        ("registration", "accounts_per_hour_per_address", OptionValue::Int(100_000)),
    ];
    TestServerConfig { options, ..ClientTransport::Tcp.setup() }
}

#[tokio::test]
async fn one_of_many_concurrent_registrations_succeeds() {
    let server = setup().start();
    let mut all = Vec::new();
    for _ in 0..50 {
        let mut client = server.connect();
        client.open().await;
        all.push(client);
    }
    for (n, client) in all.iter_mut().enumerate() {
        let name = ["hamlet", "HAMLET", "Hamlet", "\u{ff48}amlet"][n % 4];
        client
            .send(format!(
                "<iq type='set' id='r'><query xmlns='jabber:iq:register'><username>{name}</username><password>C4lliope+co {n}</password></query></iq>"
            ))
            .await;
    }
    let mut made = Vec::new();
    for (n, client) in all.iter_mut().enumerate() {
        let answer = client.element().await;
        match answer.attr("type").as_deref() {
            Some("result") => made.push(n),
            _ => assert_eq!(answer.condition().as_deref(), Some("conflict"), "{}", answer.0),
        }
    }
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(server.stores.accounts.exists(server.address("hamlet").as_ref()).await.unwrap());
}

#[tokio::test]
async fn a_recreated_account_inherits_nothing() {
    let server = setup().start();
    server.create_user("romeo").await;
    server.create_user("hamlet").await;
    let mut romeo = server.login("romeo", "x").await;
    let mut old = server.login("hamlet", "old").await;
    old.send("<presence/>").await;
    ask(
        &mut old,
        "p",
        "<iq type='set' id='p'><query xmlns='jabber:iq:private'><a xmlns='urn:x'>secret</a></query></iq>",
    )
    .await;
    ask(&mut old, "v", "<iq type='set' id='v'><vCard xmlns='vcard-temp'><FN>secret</FN></vCard></iq>").await;
    ask(
        &mut old,
        "r",
        "<iq type='set' id='r'><query xmlns='jabber:iq:roster'><item jid='secret@example.com'/></query></iq>",
    )
    .await;
    ask(&mut old, "b", "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='secret@example.net'/></block></iq>").await;
    old.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    let id = old.element().await.attr("id").expect("an identifier");
    // Its connection is lost, so the session is detached; one message waits in the session, a later one in the store.
    drop(old);
    run_until_idle().await;
    romeo.send("<message to='hamlet@example.com' type='chat'><body>secret</body></message>").await;
    romeo.sync().await;
    let mut last = server.login("hamlet", "last").await;
    last.send("<iq type='set' id='gone'><query xmlns='jabber:iq:register'><remove/></query></iq>").await;
    let _ = crate::support::read_until_end(&mut last).await;
    run_until_idle().await;
    romeo.send("<message to='hamlet@example.com' type='chat'><body>secret to nobody</body></message>").await;
    romeo.sync().await;
    server.create_user_with_password("hamlet", "C4lliope+co").await;
    let mut new = server.connect();
    new.open().await;
    assert!(new.authenticate(Mechanism::ScramSha256, "hamlet", PASSWORD).await.is_err());
    new.authenticate(Mechanism::ScramSha256, "hamlet", "C4lliope+co").await.expect("a login");
    new.open().await;
    new.send(format!("<resume xmlns='urn:xmpp:sm:3' h='0' previd='{id}'/>")).await;
    let answer = new.element().await;
    assert_eq!(answer.name(), "failed", "{}", answer.0);
    new.bind("new").await.expect("a resource");
    new.send("<presence/>").await;
    for request in [
        "<query xmlns='jabber:iq:private'><a xmlns='urn:x'/></query>",
        "<vCard xmlns='vcard-temp'/>",
        "<query xmlns='jabber:iq:roster'/>",
        "<blocklist xmlns='urn:xmpp:blocking'/>",
    ] {
        let answer = ask(&mut new, "g", &format!("<iq type='get' id='g'>{request}</iq>")).await;
        assert!(!answer.has("secret"), "{}", answer.0);
    }
    for seen in new.sync().await {
        assert!(!seen.has("secret"), "{}", seen.0);
    }
}
