//! Tests of the limits on failed logins: by address, by account, across accounts. Nothing reveals which accounts exist.

use super::*;

const THERE: &str = "192.0.2.1";

async fn limited_node() -> TestServer {
    let server = juliet(|setup| {
        setup.limits.auth_attempts = 10;
        setup.limits.login_failures_per_address_and_account = 3;
        setup.limits.login_failures_per_address = 8;
        setup.limits.login_accounts_per_address = 4;
        setup.limits.login_failures_per_account = 6;
    })
    .await;
    server.create_user("romeo").await;
    server
}

async fn attempt(server: &TestServer, peer: &str, user: &str, password: &str) -> Result<(), String> {
    let mut client = server.connect_from(peer);
    shaken(&mut client).await;
    client.send(plain(user, password, "")).await;
    let answer = client.element().await;
    if answer.name() == "success" { Ok(()) } else { Err(answer.condition().unwrap()) }
}

fn refused(server: &TestServer, reason: &'static str) -> u64 {
    server.node.metrics.logins_throttled.get([reason])
}

#[tokio::test]
async fn guesses_at_one_account_from_one_address_are_limited() {
    let server = limited_node().await;
    for _ in 0..3 {
        assert_eq!(attempt(&server, THERE, "juliet", "wrong").await.unwrap_err(), "not-authorized");
    }
    // The right password must look like a wrong one now, or the limit would have no effect.
    assert_eq!(attempt(&server, THERE, "juliet", PASSWORD).await.unwrap_err(), "temporary-auth-failure");
    assert_eq!(refused(&server, "address-and-account"), 1);
    attempt(&server, THERE, "romeo", PASSWORD).await.unwrap();
    attempt(&server, "192.0.2.9", "juliet", PASSWORD).await.unwrap();
    server.advance(600).await;
    attempt(&server, THERE, "juliet", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn an_account_that_does_not_exist_is_limited_like_one_that_does() {
    let server = limited_node().await;
    server.store_calls();
    let mut seen = Vec::new();
    for user in ["juliet", "nobody", "not@valid"] {
        let mut one = Vec::new();
        for _ in 0..5 {
            one.push(
                attempt(&server, &format!("198.51.100.{}", seen.len()), user, "wrong").await.unwrap_err(),
            );
        }
        seen.push(one);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    // Refused before the store is read.
    assert_eq!(server.store_calls().len(), 6);
}

#[tokio::test]
async fn guesses_across_accounts_from_one_address_are_limited() {
    let server = limited_node().await;
    attempt(&server, THERE, "romeo", PASSWORD).await.unwrap();
    let mut tried = 0;
    while attempt(&server, THERE, &format!("user{tried}"), "123456").await.unwrap_err() == "not-authorized" {
        tried += 1;
        assert!(tried < 10, "never limited");
    }
    assert!(refused(&server, "accounts-of-address") + refused(&server, "address") > 0);
    assert_eq!(attempt(&server, THERE, "juliet", PASSWORD).await.unwrap_err(), "temporary-auth-failure");
    // A user that logged in from that address before is unaffected, and so are all others.
    attempt(&server, THERE, "romeo", PASSWORD).await.unwrap();
    attempt(&server, "192.0.2.2", "juliet", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn guesses_at_one_account_from_many_addresses_are_limited() {
    let server = limited_node().await;
    attempt(&server, THERE, "juliet", PASSWORD).await.unwrap();
    for n in 0..6 {
        assert_eq!(
            attempt(&server, &format!("203.0.113.{n}"), "juliet", "wrong").await.unwrap_err(),
            "not-authorized"
        );
    }
    assert_eq!(
        attempt(&server, "203.0.113.99", "juliet", PASSWORD).await.unwrap_err(),
        "temporary-auth-failure"
    );
    assert_eq!(refused(&server, "account"), 1);
    attempt(&server, THERE, "juliet", PASSWORD).await.unwrap();
    attempt(&server, "203.0.113.99", "romeo", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn scram_and_the_old_profile_are_counted_together_with_the_new() {
    let server = limited_node().await;
    let mut client = server.connect_from(THERE);
    client.open().await;
    for _ in 0..2 {
        assert_eq!(
            client.authenticate(Mechanism::ScramSha1, "juliet", "wrong").await.unwrap_err(),
            "not-authorized"
        );
    }
    assert_eq!(attempt(&server, THERE, "juliet", "wrong").await.unwrap_err(), "not-authorized");
    assert_eq!(
        client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap_err(),
        "temporary-auth-failure"
    );
}

#[tokio::test]
async fn failed_token_logins_do_not_block_the_password_from_other_addresses() {
    let server = limited_node().await;
    let fast = format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>");
    for n in 0..10 {
        let mut client = server.connect_from(&format!("203.0.113.{n}"));
        shaken(&mut client).await;
        let guess = sasl::client::hashed_token("juliet", "guess", &[]);
        client.send(authenticate("HT-SHA-256-NONE", &guess, &fast)).await;
        assert_eq!(failure(&mut client).await, "not-authorized");
    }
    attempt(&server, THERE, "juliet", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn failed_password_logins_do_not_block_tokens_from_the_same_address() {
    let server = limited_node().await;
    let ask = format!("{PHONE}<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>");
    let mut client = server.connect_from(THERE);
    shaken(&mut client).await;
    client.send(plain("juliet", PASSWORD, &ask)).await;
    let success = client.element().await;
    let (_, token) = success.0.split_once(" token='").unwrap();
    let proof = sasl::client::hashed_token("juliet", token.split('\'').next().unwrap(), &[]);
    for _ in 0..3 {
        assert_eq!(attempt(&server, THERE, "juliet", "wrong").await.unwrap_err(), "not-authorized");
    }
    assert_eq!(attempt(&server, THERE, "juliet", PASSWORD).await.unwrap_err(), "temporary-auth-failure");
    let mut client = server.connect_from(THERE);
    shaken(&mut client).await;
    let fast = format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>");
    client.send(authenticate("HT-SHA-256-NONE", &proof, &fast)).await;
    assert_eq!(client.element().await.name(), "success");
    // A token is not a guess at the password, so it does not bypass the limit on those.
    assert_eq!(attempt(&server, THERE, "juliet", PASSWORD).await.unwrap_err(), "temporary-auth-failure");
}

#[tokio::test]
async fn unknown_accounts_report_the_iteration_count_of_new_ones() {
    let server = limited_node().await;
    let mut iterations = Vec::new();
    for user in ["juliet", "nobody"] {
        let mut client = server.connect();
        client.open().await;
        client
            .auth(
                Mechanism::ScramSha256,
                &ScramClient::new(ScramHash::Sha256, Gs2::None, user, "x").client_first(),
            )
            .await;
        let challenge =
            String::from_utf8(encoding::decode_response(&client.element().await.text()).unwrap()).unwrap();
        iterations.push(challenge.split(",i=").nth(1).unwrap().to_owned());
    }
    assert_eq!(iterations[0], iterations[1]);
}

/// Answers of the server, in the order in which the clients were connected.
async fn answers(clients: &mut [StreamClient]) -> Vec<String> {
    let mut answers = Vec::new();
    for client in clients {
        let answer = client.element().await;
        answers.push(if answer.name() == "failure" { answer.condition().unwrap() } else { answer.name() });
    }
    answers
}

fn count(answers: &[String], what: &str) -> usize {
    answers.iter().filter(|answer| *answer == what).count()
}

/// Concurrent guesses; the last one is right.
const PARALLEL: usize = 30;

fn guess(n: usize) -> &'static str {
    if n + 1 == PARALLEL { PASSWORD } else { "wrong" }
}

#[tokio::test]
async fn parallel_scram_exchanges_beyond_the_limit_are_refused() {
    let server = limited_node().await;
    let (mut clients, mut proofs) = (Vec::new(), Vec::new());
    for n in 0..PARALLEL {
        let mut client = server.connect_from(THERE);
        client.open().await;
        let mut scram = ScramClient::new(ScramHash::Sha1, Gs2::None, "juliet", guess(n));
        client.auth(Mechanism::ScramSha1, &scram.client_first()).await;
        let challenge = encoding::decode_response(&client.element().await.text()).unwrap();
        proofs.push(encoding::encode_challenge(&scram.client_final(&challenge, None).unwrap()));
        clients.push(client);
    }
    for (client, proof) in clients.iter_mut().zip(proofs) {
        client.send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{proof}</response>")).await;
    }
    let answers = answers(&mut clients).await;
    assert_eq!(count(&answers, "not-authorized"), 3, "{answers:?}");
    // Among them the one with the right password.
    assert_eq!(count(&answers, "temporary-auth-failure"), PARALLEL - 3, "{answers:?}");
    assert_eq!(refused(&server, "address-and-account"), PARALLEL as u64 - 3);
}

#[tokio::test]
async fn parallel_plain_logins_beyond_the_limit_are_refused() {
    let server = limited_node().await;
    for sasl2 in [true, false] {
        let mut clients = Vec::new();
        for _ in 0..PARALLEL {
            let mut client = server.connect_from(THERE);
            shaken(&mut client).await;
            clients.push(client);
        }
        for (n, client) in clients.iter_mut().enumerate() {
            if sasl2 {
                client.send(plain("juliet", guess(n), "")).await;
            } else {
                client.auth(Mechanism::Plain, &sasl::client::plain(None, "juliet", guess(n))).await;
            }
        }
        let answers = answers(&mut clients).await;
        assert_eq!(count(&answers, "not-authorized"), 3, "{answers:?}");
        assert_eq!(count(&answers, "temporary-auth-failure"), PARALLEL - 3, "{answers:?}");
        server.advance(600).await;
    }
}

#[tokio::test]
async fn parallel_token_logins_beyond_the_limit_are_refused() {
    let server = limited_node().await;
    let fast = format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>");
    let mut clients = Vec::new();
    for _ in 0..PARALLEL {
        let mut client = server.connect_from(THERE);
        shaken(&mut client).await;
        clients.push(client);
    }
    let proof = sasl::client::hashed_token("juliet", "guess", &[]);
    for client in &mut clients {
        client.send(authenticate("HT-SHA-256-NONE", &proof, &fast)).await;
    }
    let answers = answers(&mut clients).await;
    assert_eq!(count(&answers, "not-authorized"), 3, "{answers:?}");
    assert_eq!(count(&answers, "temporary-auth-failure"), PARALLEL - 3, "{answers:?}");
}

#[tokio::test]
async fn parallel_logins_with_the_right_password_from_one_address_all_succeed() {
    let server = limited_node().await;
    let mut clients = Vec::new();
    for n in 0..PARALLEL {
        server.create_user(&format!("user{n}")).await;
        let mut client = server.connect_from(THERE);
        shaken(&mut client).await;
        clients.push(client);
    }
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(plain(&format!("user{n}"), PASSWORD, "")).await;
    }
    let answers = answers(&mut clients).await;
    assert_eq!(count(&answers, "success"), PARALLEL, "{answers:?}");
}

#[tokio::test]
async fn an_aborted_exchange_reveals_nothing_and_is_not_counted() {
    let server = limited_node().await;
    for _ in 0..PARALLEL {
        let mut client = server.connect_from(THERE);
        client.open().await;
        client
            .auth(
                Mechanism::ScramSha1,
                &ScramClient::new(ScramHash::Sha1, Gs2::None, "juliet", "x").client_first(),
            )
            .await;
        assert_eq!(client.element().await.name(), "challenge");
    }
    attempt(&server, THERE, "juliet", PASSWORD).await.unwrap();
}
