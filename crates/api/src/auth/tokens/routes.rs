//! `/api/v1/tokens`: creating, listing and removing tokens, for administrators and tokens with the scope `admin`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::audit::record_audit_entry;
use throng_commands::{CommandError, TokenScope};

use super::ApiToken;
use crate::auth::{ApiCaller, Scopes};
use crate::extract::{Json, PathParam};
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let may = Access::Scoped(TokenScope::Admin);
    vec![
        ApiOperation::new(Method::GET, "/tokens", "listTokens", may, list)
            .summary("Lists all tokens, without their secrets.")
            .response(200, ResponseBody::Json("Tokens"), "The tokens."),
        ApiOperation::new(Method::POST, "/tokens", "addToken", may, add)
            .summary("Creates a token. Its secret is in the response and never shown again.")
            .request_body(RequestBody::Json("NewToken"))
            .response(201, ResponseBody::Json("MadeToken"), "The token with its secret.")
            .problems(&[409, 422]),
        ApiOperation::new(Method::DELETE, "/tokens/{name}", "deleteToken", may, remove)
            .summary("Removes a token; it is refused from then on.")
            .response(204, ResponseBody::Nothing, "The token was removed.")
            .problems(&[404]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let scopes = || json!({ "type": "array", "items": { "$ref": "#/components/schemas/Scope" } });
    let properties = || {
        json!({
            "name": { "type": "string" },
            "scopes": scopes(),
            "created": { "type": "integer", "description": "Seconds since 1970." },
            "expires": { "type": ["integer", "null"], "description": "Expiry in seconds since 1970; null \
             for never." },
        })
    };
    let required = ["name", "scopes", "created", "expires"];
    let token = json!({ "type": "object", "required": required, "properties": properties() });
    let mut made = json!({ "type": "object", "required": required, "properties": properties() });
    made["properties"]["token"] =
        json!({ "type": "string", "description": "The secret, for `Authorization: Bearer`." });
    if let Some(list) = made["required"].as_array_mut() {
        list.push(json!("token"));
    }
    vec![
        (
            "Tokens",
            json!({
                "type": "object",
                "required": ["items"],
                "properties": { "items": { "type": "array", "items": token } },
            }),
        ),
        (
            "NewToken",
            json!({
                "type": "object",
                "required": ["name", "scopes"],
                "additionalProperties": false,
                "examples": [{ "name": "backup", "scopes": ["read"], "expires": 4_102_444_800_u64 }],
                "properties": {
                    "name": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
                    "scopes": {
                        "type": "array", "minItems": 1, "items": { "$ref": "#/components/schemas/Scope" },
                    },
                    "expires": {
                        "type": ["integer", "null"], "minimum": 0,
                        "description": "Expiry in seconds since 1970; never if absent.",
                    },
                },
            }),
        ),
        ("MadeToken", made),
    ]
}

fn token_json(token: &ApiToken) -> Value {
    json!({
        "name": token.name,
        "scopes": token.scopes.names(),
        "created": token.created,
        "expires": token.expires,
    })
}

async fn list(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let items: Vec<Value> = api.tokens.list().await?.iter().map(token_json).collect();
    Ok(axum::Json(json!({ "items": items })).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    scopes: Vec<String>,
    expires: Option<u64>,
}

async fn add(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    Json(new): Json<NewToken>,
) -> Result<Response, Problem> {
    let scopes = Scopes::parse(new.scopes.iter().map(String::as_str))
        .map_err(|name| Problem::invalid(format!("unknown scope \"{name}\"")))?;
    let now = api.node.clock.unix_millis() / 1000;
    let made = api.tokens.add(&new.name, scopes, now, new.expires).await;
    audit(&api, &caller, "token add", &new.name, made.as_ref().err());
    let (secret, token) = made?;
    let mut value = token_json(&token);
    value["token"] = json!(secret);
    Ok((StatusCode::CREATED, axum::Json(value)).into_response())
}

async fn remove(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    PathParam(name): PathParam,
) -> Result<StatusCode, Problem> {
    let removed = api.tokens.remove(&name).await;
    audit(&api, &caller, "token remove", &name, removed.as_ref().err());
    removed?;
    Ok(StatusCode::NO_CONTENT)
}

fn audit(api: &Api, caller: &ApiCaller, what: &str, on: &str, error: Option<&CommandError>) {
    record_audit_entry(
        &api.node,
        &caller.to_command_caller(),
        what,
        on,
        error.map_or("done", |e| e.condition().as_str()),
    );
}
