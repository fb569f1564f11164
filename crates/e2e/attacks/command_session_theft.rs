//! Takeover of an administrator's command session.
//!
//! Done: a user sends the session id of an administrator's running command with the form filled in; cancels it;
//! tries the commands at the server, at the administrator's address and at the own address; the administrator's
//! other resource does the same.
//!
//! Rule: XEP-0050, section 5, XEP-0133, section 6.
//!
//! Right: `forbidden` for everybody except the administrator, nothing is changed, and the administrator's session
//! continues.

use testkit::server::{ReceivedElement, StreamClient, TestServerConfig};

use crate::support::{ClientTransport, ask};

async fn command(client: &mut StreamClient, to: &str, attributes: &str, form: &str) -> ReceivedElement {
    let request = format!(
        "<iq type='set' to='{to}' id='c'><command xmlns='http://jabber.org/protocol/commands' \
         node='http://jabber.org/protocol/admin#add-user' {attributes}>{form}</command></iq>"
    );
    ask(client, "c", &request).await
}

#[tokio::test]
async fn a_session_id_grants_no_access() {
    let server =
        TestServerConfig { domains: vec!["example.com", "other.example"], ..ClientTransport::Tcp.setup() }
            .start();
    for user in ["boss", "mallory", "boss@other.example"] {
        server.create_user(user).await;
    }
    server.node.set_admins([server.address("boss")]);
    let mut boss = server.login("boss", "laptop").await;
    let mut other_client = server.login("boss", "other").await;
    let mut mallory = server.login("mallory", "x").await;
    let form = "<x xmlns='jabber:x:data' type='submit'><field var='accountjid'><value>evil@example.com</value></field>\
                <field var='password'><value>C4lliope+co</value></field><field var='password-verify'><value>C4lliope+co</value></field></x>";
    let begun = command(&mut boss, "example.com", "action='execute'", "").await;
    let id = begun
        .0
        .split("sessionid='")
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .expect("a session")
        .to_owned();
    for to in
        ["example.com", "mallory@example.com", "boss@example.com", "boss@example.com/laptop", "other.example"]
    {
        for attributes in [
            format!("sessionid='{id}' action='complete'"),
            format!("sessionid='{id}' action='cancel'"),
            format!("sessionid='{id}'"),
            "action='execute'".to_owned(),
        ] {
            let answer = command(&mut mallory, to, &attributes, form).await;
            assert_eq!(answer.attr("type").as_deref(), Some("error"), "{to} {attributes}: {}", answer.0);
        }
    }
    let wrong =
        command(&mut other_client, "example.com", &format!("sessionid='{id}' action='complete'"), form).await;
    assert_eq!(wrong.attr("type").as_deref(), Some("error"), "{}", wrong.0);
    let evil = server.address("evil");
    assert!(!server.stores.accounts.exists(evil.as_ref()).await.unwrap());
    let done = command(&mut boss, "example.com", &format!("sessionid='{id}' action='complete'"), form).await;
    assert!(done.has("completed"), "{}", done.0);
    assert!(server.stores.accounts.exists(evil.as_ref()).await.unwrap());
    // Commands that a user may not execute are not listed.
    let items =
        "<query xmlns='http://jabber.org/protocol/disco#items' node='http://jabber.org/protocol/commands'/>";
    let list = ask(&mut mallory, "l", &format!("<iq type='get' to='example.com' id='l'>{items}</iq>")).await;
    assert!(!list.has("admin#add-user"), "{}", list.0);
}
