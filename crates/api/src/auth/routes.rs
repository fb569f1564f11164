//! `/api/v1/session`: sign-in, current user and sign-out, for administrators in a browser.
//!
//! # Pitfalls
//!
//! Signing in has no CSRF token yet, so it relies on `Origin` and on its media type, which no form of another site
//! can send.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Secret;
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::audit::record_audit_entry;

use super::sessions::{ConsoleSession, MAX_AGE};
use super::{ApiCaller, ApiPrincipal, COOKIE_NAME, same_origin, sign_in};
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};
use crate::{Api, Problem, RequestPeer};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    vec![
        ApiOperation::new(Method::POST, "/session", "signIn", Access::Public, begin)
            .summary("Signs in an administrator with the password of the XMPP account.")
            .request_body(RequestBody::Json("SignIn"))
            .response(
                201,
                ResponseBody::Json("ConsoleSession"),
                "The session. Its cookie is set by `Set-Cookie`.",
            )
            .problems(&[401, 403, 429, 503]),
        ApiOperation::new(Method::GET, "/session", "showSession", Access::Authenticated, show)
            .summary("Returns the current session or token.")
            .response(200, ResponseBody::Json("ConsoleSession"), "The session or the token."),
        ApiOperation::new(Method::DELETE, "/session", "signOut", Access::Authenticated, end)
            .summary("Signs out and ends the session.")
            .response(204, ResponseBody::Nothing, "The session was ended."),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let maybe_text = |what: &str| json!({ "type": ["string", "null"], "description": what });
    vec![
        (
            "SignIn",
            json!({
                "type": "object",
                "required": ["jid", "password"],
                "additionalProperties": false,
                "properties": {
                    "jid": { "type": "string", "description": "The address of an administrator; in the \
                     default domain the user name is sufficient." },
                    "password": { "type": "string" },
                },
            }),
        ),
        (
            "ConsoleSession",
            json!({
                "type": "object",
                "required": ["jid", "token", "scopes", "csrf", "expires"],
                "properties": {
                    "jid": maybe_text("The address of the administrator."),
                    "token": maybe_text("The name of the token, if one is used."),
                    "scopes": { "type": "array", "items": { "$ref": "#/components/schemas/Scope" } },
                    "csrf": maybe_text("Required value of X-CSRF-Token for all methods except GET."),
                    "expires": {
                        "type": ["integer", "null"], "description": "Latest end of the session, in seconds \
                         since 1970.",
                    },
                },
            }),
        ),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    jid: String,
    password: String,
}

/// The session data that a page needs.
fn session_json(caller: &ApiCaller, now: u64) -> Value {
    let (jid, token) = match &caller.principal {
        ApiPrincipal::Administrator(jid) => (Some(jid.as_str()), None),
        ApiPrincipal::Token(name) => (None, Some(name.as_str())),
    };
    let session = caller.session.as_ref();
    json!({
        "jid": jid,
        "token": token,
        "scopes": caller.scopes.names(),
        "csrf": session.map(|s| s.csrf.as_str()),
        "expires": session.map(|s| (now + s.expires_in) / 1000),
    })
}

async fn begin(
    State(api): State<Arc<Api>>,
    peer: RequestPeer,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if !same_origin(&parts) {
        return Err(Problem::forbidden("cross-site requests are not allowed"));
    }
    let request = Request::from_parts(parts, body);
    let Json(SignIn { jid, password }) = Json::from_request(request, &api).await?;
    let (cookie, session) = sign_in::sign_in(&api, peer, &jid, Secret::new(password)).await?;
    let who = ApiPrincipal::Administrator(session.jid.clone());
    let caller = ApiCaller { principal: who, scopes: super::Scopes::ALL, peer, session: Some(session) };
    let body = Json(session_json(&caller, api.node.clock.unix_millis()));
    let mut response = (StatusCode::CREATED, body).into_response();
    set_cookie(&mut response, &cookie, MAX_AGE / 1000, peer);
    Ok(response)
}

async fn show(State(api): State<Arc<Api>>, caller: ApiCaller) -> Json<Value> {
    Json(session_json(&caller, api.node.clock.unix_millis()))
}

async fn end(State(api): State<Arc<Api>>, caller: ApiCaller) -> Response {
    if let Some(ConsoleSession { id, .. }) = &caller.session {
        api.auth.sessions.end(id);
        record_audit_entry(&api.node, &caller.to_command_caller(), "sign-out", "", "done");
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, "", 0, caller.peer);
    response
}

fn set_cookie(response: &mut Response, value: &str, seconds: u64, peer: RequestPeer) {
    let secure = if peer.secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}
