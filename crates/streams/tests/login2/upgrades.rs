//! Tests of upgrades of SCRAM keys: XEP-0480 (0.2.0).

use sasl::Credentials;

use super::*;

const WANT_256: &str = "<upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-256</upgrade>";
const WANT_512: &str = "<upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-512</upgrade>";

/// Juliet's account was imported from a server with SHA-1 only.
async fn imported() -> TestServer {
    let server = node().await;
    let stored = Credentials::derive_for(&[ScramHash::Sha1], PASSWORD, 64, b"salt").unwrap().encode();
    server.stores.accounts.set_credentials(server.address("juliet").as_ref(), &stored).await.unwrap();
    server
}

async fn stored(server: &TestServer) -> Credentials {
    let login = server.stores.logins.secrets(server.address("juliet").as_ref()).await.unwrap().unwrap();
    Credentials::decode(&login.credentials).unwrap()
}

/// Starts the task; returns the server's answer with the salt.
async fn salt(client: &mut StreamClient, task: &str) -> ReceivedElement {
    client.send(format!("<next {SASL2} task='{task}'/>")).await;
    let data = client.element().await;
    assert!(
        data.name() == "task-data" && data.has("<salt xmlns='urn:xmpp:scram-upgrade:0' iterations='64'>"),
        "{}",
        data.0
    );
    data
}

fn hash(task: &ReceivedElement, hash: ScramHash, password: &str) -> String {
    let salt = encoding::decode_sasl2(&task.all("salt").concat()).unwrap();
    assert_eq!(salt.len(), 16);
    let salted = sasl::client::salted_password(hash, password, &salt, 64).unwrap();
    format!(
        "<task-data {SASL2}><hash xmlns='urn:xmpp:scram-upgrade:0'>\n {}\n</hash></task-data>",
        encoding::encode_challenge(&salted)
    )
}

#[tokio::test]
async fn section_3_the_example_upgrades_the_keys() {
    let server = imported().await;
    let (mut client, features) = encrypted(&server).await;
    let task = scram(&mut client, Mechanism::ScramSha1Plus, &features, WANT_256).await;
    assert_eq!((task.name().as_str(), task.all("task")), ("continue", vec!["UPGR-SCRAM-SHA-256".to_owned()]));
    let data = salt(&mut client, "UPGR-SCRAM-SHA-256").await;
    server.store_calls();
    client.send(hash(&data, ScramHash::Sha256, PASSWORD)).await;
    client.expect("<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>juliet@example.com</authorization-identifier></success>").await;
    assert_eq!(client.element().await.name(), "features");
    assert_eq!(server.store_calls(), ["accounts.upgrade_credentials"]);
    let now = stored(&server).await;
    assert!(now.sha1.is_some() && now.sha256.is_some() && now.sha512.is_none());
    let (mut client, features) = encrypted(&server).await;
    // Keys that exist already are not requested again.
    let success = scram(&mut client, Mechanism::ScramSha256Plus, &features, WANT_256).await;
    assert_eq!(success.name(), "success");
}

#[tokio::test]
async fn section_2_2_several_tasks_in_sequence_and_then_inline_requests() {
    let server = imported().await;
    let (mut client, _) = encrypted(&server).await;
    let token = "<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
    client
        .send(plain("juliet", PASSWORD, &format!("{PHONE}{WANT_256}{WANT_512}{WANT_512}{BIND}{token}")))
        .await;
    for _ in 0..2 {
        let task = client.element().await;
        assert!(task.name() == "continue" && !task.has("authorization-identifier") && !task.has("<token"));
        let name = task.all("task").concat();
        let data = salt(&mut client, &name).await;
        let wanted = if name.ends_with("512") { ScramHash::Sha512 } else { ScramHash::Sha256 };
        client.send(hash(&data, wanted, PASSWORD)).await;
    }
    let (success, _) = succeeds(&mut client).await;
    assert!(identity(&success).contains("/AwesomeXMPP/") && success.has("<token "));
    let now = stored(&server).await;
    assert!(now.sha256.is_some() && now.sha512.is_some());
    for mechanism in [Mechanism::ScramSha512, Mechanism::ScramSha256, Mechanism::ScramSha1] {
        let (mut client, features) = encrypted(&server).await;
        scram(&mut client, mechanism, &features, "").await;
    }
}

#[tokio::test]
async fn an_invalid_upgrade_task_fails_with_its_condition() {
    let server = imported().await;
    let begin = plain("juliet", PASSWORD, &format!("{WANT_256}{BIND}"));
    for (before_salt, element, condition) in [
        (true, format!("<next {SASL2} task='UPGR-SCRAM-SHA-512'/>"), "malformed-request"),
        (true, format!("<next {SASL2}/>"), "malformed-request"),
        (
            true,
            format!("<task-data {SASL2}><hash xmlns='urn:xmpp:scram-upgrade:0'>AAAA</hash></task-data>"),
            "malformed-request",
        ),
        (true, format!("<abort {SASL2}/>"), "aborted"),
        (false, format!("<next {SASL2} task='UPGR-SCRAM-SHA-256'/>"), "malformed-request"),
        (false, format!("<task-data {SASL2}/>"), "malformed-request"),
        (
            false,
            format!("<task-data {SASL2}><hash xmlns='urn:xmpp:scram-upgrade:0'>AAAA</hash></task-data>"),
            "malformed-request",
        ),
        (
            false,
            format!("<task-data {SASL2}><hash xmlns='urn:xmpp:scram-upgrade:0'>=</hash></task-data>"),
            "incorrect-encoding",
        ),
    ] {
        let (mut client, _) = encrypted(&server).await;
        client.send(&begin).await;
        assert_eq!(client.element().await.name(), "continue");
        if !before_salt {
            salt(&mut client, "UPGR-SCRAM-SHA-256").await;
        }
        assert_eq!(fails(&mut client, &element).await, condition, "{element}");
        // The client is not logged in.
        ends(&mut client, "<presence/>", StreamCondition::NotAuthorized).await;
    }
    assert!(stored(&server).await.sha256.is_none());
    // XEP-0388, section 5.8: after <continue/> there is no other authentication.
    let (mut client, _) = encrypted(&server).await;
    client.send(&begin).await;
    client.element().await;
    ends(&mut client, &begin, StreamCondition::PolicyViolation).await;
    let (mut client, _) = encrypted(&server).await;
    client.send(&begin).await;
    client.element().await;
    ends(&mut client, &format!("<response {SASL2}/>"), StreamCondition::UnsupportedStanzaType).await;
}

/// Begins two upgrades; returns the client and the answer to the first task, which is not sent yet.
async fn during_an_upgrade(server: &TestServer) -> (StreamClient, String) {
    let (mut client, _) = encrypted(server).await;
    client.send(plain("juliet", PASSWORD, &format!("{WANT_256}{WANT_512}"))).await;
    let name = client.element().await.all("task").concat();
    let data = salt(&mut client, &name).await;
    let wanted = if name.ends_with("512") { ScramHash::Sha512 } else { ScramHash::Sha256 };
    (client, hash(&data, wanted, PASSWORD))
}

#[tokio::test]
async fn a_password_changed_during_an_upgrade_fails_the_login() {
    for what in ["another password", "removed", "disabled, with other keys"] {
        let server = juliet(|setup| setup.limits.login_failures_per_address_and_account = 1).await;
        let juliet = server.address("juliet");
        let accounts = &server.stores.accounts;
        let imported = |password| Credentials::derive_for(&[ScramHash::Sha1], password, 64, b"salt").unwrap();
        let old = imported(PASSWORD).encode();
        accounts.set_credentials(juliet.as_ref(), &old).await.unwrap();
        let (mut client, answer) = during_an_upgrade(&server).await;
        let new = imported("new password");
        let condition = match what {
            "removed" => {
                accounts.remove(juliet.as_ref()).await.unwrap();
                "not-authorized"
            }
            "another password" => {
                accounts.set_credentials(juliet.as_ref(), &new.encode()).await.unwrap();
                "not-authorized"
            }
            _ => {
                let keys = imported(PASSWORD).encode();
                accounts
                    .upgrade_credentials(juliet.as_ref(), &old, &[keys, b" ".to_vec()].concat())
                    .await
                    .unwrap();
                accounts.set_disabled(juliet.as_ref(), true).await.unwrap();
                "account-disabled"
            }
        };
        assert_eq!(fails(&mut client, &answer).await, condition, "{what}");
        if what == "another password" {
            assert_eq!(stored(&server).await, new, "not overwritten");
        }
        // The password was right, so this wrong one is the first that counts.
        assert_eq!(fails(&mut client, &plain("juliet", "guess", "")).await, "not-authorized", "{what}");
    }
}

#[tokio::test]
async fn keys_upgraded_by_another_client_meanwhile_do_not_fail_the_login() {
    let server = imported().await;
    let (mut slow, answer) = during_an_upgrade(&server).await;
    let (mut fast, other_answer) = during_an_upgrade(&server).await;
    fast.send(other_answer).await;
    let second = fast.element().await.all("task").concat();
    let data = salt(&mut fast, &second).await;
    let wanted = if second.ends_with("512") { ScramHash::Sha512 } else { ScramHash::Sha256 };
    fast.send(hash(&data, wanted, PASSWORD)).await;
    succeeds(&mut fast).await;
    let keys = stored(&server).await;
    slow.send(answer).await;
    // Both keys exist, so there is no second task.
    succeeds(&mut slow).await;
    assert_eq!(stored(&server).await, keys);
}

#[tokio::test]
async fn unknown_tasks_are_ignored() {
    let server = imported().await;
    let (mut client, _) = encrypted(&server).await;
    let strange = WANT_256.replace("SCRAM-SHA-256", "BLOOP2") + &WANT_256.replace("256", "256-PLUS");
    client.send(plain("juliet", PASSWORD, &strange)).await;
    succeeds(&mut client).await;
}
