//! Sign-in and sign-out, and their protection: limits, cross-site requests, forged cookies, tokens.

mod common;

use common::{ADMIN, ApiFixture, ApiRequest, PASSWORD, api_request, signed_in_user};
use serde_json::json;
use throng_api::auth::TokenScope;

async fn status(fixture: &ApiFixture, ask: ApiRequest<'_>) -> u16 {
    ask.send_to(fixture).await.status.as_u16()
}

#[tokio::test]
async fn an_administrator_signs_in_and_out() {
    let fixture = ApiFixture::new(&[]).await;
    let answer = fixture.try_sign_in(ADMIN, PASSWORD).await;
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.json()["jid"], ADMIN);
    assert_eq!(answer.json()["scopes"], json!(["admin"]));
    let user = signed_in_user(&answer);
    let about =
        api_request("GET /api/v1/session").header("cookie", format!("x=y; throng_session={}", user.cookie));
    assert_eq!(
        about.send_to(&fixture).await.json()["csrf"],
        user.csrf,
        "a page that is loaded again learns it"
    );
    let gone = api_request("DELETE /api/v1/session").signed_in_as(&user).send_to(&fixture).await;
    assert_eq!(gone.status, 204);
    assert!(gone.header("set-cookie").contains("Max-Age=0"));
    let after = api_request("GET /api/v1/session").signed_in_as(&user).send_to(&fixture).await;
    assert_eq!(after.problem(), (401, "not-authorized".to_owned()));
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(10);
    let done: Vec<_> = log.iter().map(|e| (e.actor.as_str(), e.action.as_str(), e.from.as_str())).collect();
    assert_eq!(done, [(ADMIN, "sign-in", "192.0.2.7"), (ADMIN, "sign-out", "192.0.2.7")]);
}

#[tokio::test]
async fn a_plain_connection_gets_a_cookie_that_it_can_send_back() {
    let fixture = ApiFixture::new(&[]).await;
    let mut request = api_request("POST /api/v1/session").json(json!({ "jid": ADMIN, "password": PASSWORD }));
    request.peer.secure = false;
    assert!(!request.send_to(&fixture).await.header("set-cookie").contains("Secure"));
}

#[tokio::test]
async fn only_administrators_sign_in() {
    let fixture = ApiFixture::new(&[]).await;
    fixture.account("juliet@example.com", "sunrise").await;
    let wrong = fixture.try_sign_in(ADMIN, "wrong").await;
    assert_eq!(wrong.problem(), (401, "not-authorized".to_owned()));
    let nobody = fixture.try_sign_in("nobody@example.com", "wrong").await;
    assert_eq!((wrong.text, wrong.status), (nobody.text, nobody.status), "nothing tells who has an account");
    for other in ["admin@elsewhere.example", "example.com", "admin@example.com/x", "", "@", "a@b@c"] {
        assert_eq!(fixture.try_sign_in(other, PASSWORD).await.status, 401, "{other}");
    }
    assert_eq!(fixture.try_sign_in("juliet@example.com", "wrong").await.status, 401);
    let user = fixture.try_sign_in("juliet@example.com", "sunrise").await;
    assert_eq!(user.problem(), (403, "forbidden".to_owned()));
    let admin = jid::Jid::parse(ADMIN).unwrap();
    fixture.engine.stores.accounts.set_disabled(admin.as_ref(), true).await.unwrap();
    assert_eq!(fixture.try_sign_in(ADMIN, PASSWORD).await.problem(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn password_guessing_is_throttled_as_over_xmpp() {
    let fixture = ApiFixture::new(&[]).await;
    let limit = fixture.engine.node.limits().login_failures_per_address_and_account;
    for _ in 0..limit {
        assert_eq!(fixture.try_sign_in(ADMIN, "guess").await.status, 401);
    }
    let limited = fixture.try_sign_in(ADMIN, PASSWORD).await;
    assert_eq!(limited.problem(), (429, "policy-violation".to_owned()));
    assert!(!limited.headers.contains_key("set-cookie"));
    // Other addresses are unaffected, and this one may try again after the window.
    let body = json!({ "jid": ADMIN, "password": PASSWORD });
    assert_eq!(status(&fixture, api_request("POST /api/v1/session").json(body).from("192.0.2.8")).await, 201);
    fixture.engine.advance(600);
    fixture.sign_in().await;
    // One guess for each of many accounts.
    let tried = async |n: u32| fixture.try_sign_in(&format!("user{n}@example.com"), "guess").await.status;
    let mut count = 0;
    while tried(count).await == 401 {
        count += 1;
        assert!(count < 200, "there must be an end");
    }
    assert_eq!(tried(1000).await, 429);
}

#[tokio::test]
async fn parallel_guesses_are_answered_up_to_the_limit() {
    let fixture = ApiFixture::new(&[]).await;
    let limit = fixture.engine.node.limits().login_failures_per_address_and_account as usize;
    // Eight at a time, since further requests are asked to retry.
    let mut answers = Vec::new();
    for _ in 0..limit / 2 {
        let guesses = (0..8).map(|_| fixture.try_sign_in(ADMIN, "guess"));
        answers
            .extend(store::conformance::join_all(guesses.collect()).await.into_iter().map(|got| got.status));
    }
    assert_eq!(answers.iter().filter(|status| **status == 401).count(), limit, "{answers:?}");
    assert!(answers.iter().skip(limit).all(|status| *status == 429), "{answers:?}");
}

#[tokio::test]
async fn the_request_body_must_be_small_json() {
    let fixture = ApiFixture::new(&[]).await;
    let post = || api_request("POST /api/v1/session");
    for (request, expected) in [
        (post(), 415),
        (post().text("text/plain", format!("{{\"jid\":\"{ADMIN}\",\"password\":\"{PASSWORD}\"}}")), 415),
        (post().text("application/x-www-form-urlencoded", "jid=a&password=b"), 415),
        (post().text("application/json", "{"), 400),
        (post().text("application/json", vec![b'x'; 300_000]), 413),
        (post().json(json!({ "jid": ADMIN })), 400),
        (post().json(json!({ "jid": ADMIN, "password": PASSWORD, "more": 1 })), 400),
        (post().json(json!({ "jid": ADMIN, "password": "x".repeat(4_000) })), 400),
    ] {
        let answer = request.send_to(&fixture).await;
        assert_eq!(answer.problem().0, expected, "{answer:?}");
        assert!(!answer.text.contains(PASSWORD));
    }
    assert_eq!(status(&fixture, api_request("PUT /api/v1/session")).await, 405);
}

#[tokio::test]
async fn cross_site_requests_are_refused() {
    let fixture = ApiFixture::new(&[]).await;
    let user = fixture.sign_in().await;
    let body = json!({ "jid": ADMIN, "password": PASSWORD });
    let evil = || ("origin", "https://evil.example");
    let (name, value) = evil();
    let sign_in = api_request("POST /api/v1/session").json(body).header(name, value).send_to(&fixture).await;
    assert_eq!(sign_in.problem(), (403, "forbidden".to_owned()));
    for (name, value) in
        [evil(), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "null")]
    {
        for line in ["GET /api/v1/session", "DELETE /api/v1/session"] {
            let answer = api_request(line).signed_in_as(&user).header(name, value).send_to(&fixture).await;
            assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{line} {name} {value}");
        }
    }
    let cookie = format!("throng_session={}", user.cookie);
    for token in [None, Some(""), Some("x"), Some(&user.csrf[1..]), Some(&user.cookie)] {
        let mut request = api_request("DELETE /api/v1/session").header("cookie", cookie.clone());
        if let Some(token) = token {
            request = request.header("x-csrf-token", token);
        }
        assert_eq!(request.send_to(&fixture).await.problem(), (403, "forbidden".to_owned()), "{token:?}");
    }
    // None of this ended the session.
    let own =
        api_request("DELETE /api/v1/session").signed_in_as(&user).header("origin", "https://console.example");
    assert_eq!(status(&fixture, own.header("sec-fetch-site", "same-origin")).await, 204);
}

#[tokio::test]
async fn forged_cookies_are_rejected() {
    let fixture = ApiFixture::new(&[]).await;
    let user = fixture.sign_in().await;
    let flipped = format!("{}{}", &user.cookie[..21], if user.cookie.ends_with('A') { 'Q' } else { 'A' });
    for forged in ["", "x", &"x".repeat(10_000), &flipped, &user.csrf] {
        let request = api_request("GET /api/v1/session").header("cookie", format!("throng_session={forged}"));
        assert_eq!(request.send_to(&fixture).await.problem(), (401, "not-authorized".to_owned()));
    }
    // A neighbouring site that sets cookies for us does not lock users out.
    let both = format!("throng_session=x; throng_session={}", user.cookie);
    assert_eq!(status(&fixture, api_request("GET /api/v1/session").header("cookie", both)).await, 200);
}

#[tokio::test]
async fn a_session_ends_when_its_account_changes() {
    let fixture = ApiFixture::new(&[]).await;
    let node = &fixture.engine.node;
    let admin = jid::Jid::parse(ADMIN).unwrap();
    let about = |user| api_request("GET /api/v1/session").signed_in_as(user);
    // Idle timeout.
    let user = fixture.sign_in().await;
    fixture.engine.clock.advance(60 * 60 * 1000);
    assert_eq!(status(&fixture, about(&user)).await, 401);
    // No administrator any more.
    let user = fixture.sign_in().await;
    node.set_admins([]);
    assert_eq!(status(&fixture, about(&user)).await, 401);
    node.set_admins([admin.clone()]);
    assert_eq!(status(&fixture, about(&user)).await, 401, "it does not come back");
    // A changed password is noticed within 15 seconds.
    let user = fixture.sign_in().await;
    fixture.engine.stores.accounts.set_credentials(admin.as_ref(), b"other").await.unwrap();
    fixture.engine.clock.advance(15_000);
    assert_eq!(status(&fixture, about(&user)).await, 401);
    let user = signed_in_user(&fixture.try_sign_in(ADMIN, "other").await);
    fixture.engine.stores.accounts.set_disabled(admin.as_ref(), true).await.unwrap();
    fixture.engine.clock.advance(15_000);
    assert_eq!(status(&fixture, about(&user)).await, 401);
}

#[tokio::test]
async fn a_token_authenticates_with_its_own_scopes() {
    let fixture = ApiFixture::new(&[]).await;
    let secret = fixture.token("backup", &[TokenScope::Read, TokenScope::Accounts]).await;
    let about = api_request("GET /api/v1/session")
        .bearer(&secret)
        .header("origin", "https://evil.example")
        .send_to(&fixture)
        .await;
    assert_eq!(
        about.json(),
        json!({
            "jid": null, "token": "backup", "scopes": ["read", "accounts"], "csrf": null, "expires": null,
        })
    );
    for (name, value) in [
        ("authorization", "Bearer x".to_owned()),
        ("authorization", format!("Basic {secret}")),
        ("authorization", String::new()),
        ("authorization", format!("Bearer {}", "x".repeat(9_000))),
    ] {
        // A cookie beside a wrong token is ignored.
        let user = fixture.sign_in().await;
        let answer = api_request("GET /api/v1/session")
            .signed_in_as(&user)
            .header(name, value)
            .send_to(&fixture)
            .await;
        assert_eq!(answer.problem(), (401, "not-authorized".to_owned()));
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
    }
    fixture.api.tokens.remove("backup").await.unwrap();
    assert_eq!(status(&fixture, api_request("GET /api/v1/session").bearer(&secret)).await, 401);
}

#[tokio::test]
async fn a_name_without_domain_belongs_to_the_default_domain() {
    let fixture = ApiFixture::new(&[]).await;
    let user = fixture.try_sign_in("Admin", PASSWORD).await;
    assert_eq!(user.json()["jid"], ADMIN);
}
