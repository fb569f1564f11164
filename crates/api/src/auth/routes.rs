//! `/api/v1/session`: signing in, who is signed in, signing out. For administrators in a browser.
//!
//! The trap: signing in has no CSRF token yet, so it leans on `Origin` and on its media type, which no form of another site
//! can send.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base::Secret;
use serde::Deserialize;
use serde_json::json;

use super::sessions::{AGE, Found};
use super::{COOKIE_NAME, Caller, Who, same_origin, signin};
use crate::{Api, Peer, Problem};

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/api/v1/session", get(show).post(begin).delete(end))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    jid: String,
    password: String,
}

/// What a page needs to know of its session.
fn about(caller: &Caller, now: u64) -> serde_json::Value {
    let (jid, token) = match &caller.who {
        Who::Administrator(jid) => (Some(jid.as_str()), None),
        Who::Token(name) => (None, Some(name.as_str())),
    };
    let session = caller.session.as_ref();
    json!({
        "jid": jid,
        "token": token,
        "scopes": caller.scopes.names(),
        "csrf": session.map(|s| s.csrf.as_str()),
        "expires": session.map(|s| (now + s.left) / 1000),
    })
}

async fn begin(State(api): State<Arc<Api>>, peer: Peer, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if !same_origin(&parts) {
        return Err(Problem::forbidden("this request comes from another site"));
    }
    let request = Request::from_parts(parts, body);
    let Json(SignIn { jid, password }) = Json::from_request(request, &api).await?;
    let (cookie, session) = signin::sign_in(&api, peer, &jid, Secret::new(password)).await?;
    let who = Who::Administrator(session.jid.clone());
    let caller = Caller { who, scopes: super::Scopes::ALL, peer, session: Some(session) };
    let body = Json(about(&caller, api.node.clock.unix_millis()));
    let mut response = (StatusCode::CREATED, body).into_response();
    set_cookie(&mut response, &cookie, AGE / 1000, peer);
    Ok(response)
}

async fn show(State(api): State<Arc<Api>>, caller: Caller) -> Json<serde_json::Value> {
    Json(about(&caller, api.node.clock.unix_millis()))
}

async fn end(State(api): State<Arc<Api>>, caller: Caller) -> Response {
    if let Some(Found { id, .. }) = &caller.session {
        api.auth.sessions.end(id);
        api.node.audit(&caller.as_command(), "sign-out", "", "done");
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, "", 0, caller.peer);
    response
}

fn set_cookie(response: &mut Response, value: &str, seconds: u64, peer: Peer) {
    let secure = if peer.secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}
