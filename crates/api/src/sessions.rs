//! Connected sessions of all nodes: listing them, those of an account, showing one and ending one.
//!
//! Each node lists its own sessions ([`throng_commands::cluster_admin::sessions`]); nodes that do not answer are named.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use jid::Jid;
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::cluster_admin::sessions::{
    SessionPage, SessionQuery, SessionRecord, parse_cursor, sessions,
};
use throng_commands::cluster_admin::{NodeSelection, describe_missing};
use throng_commands::{CommandError, CommandErrorKind, RawArguments, TokenScope};

use crate::auth::ApiCaller;
use crate::extract::{
    AccountJid, DEFAULT_PAGE_LIMIT, MAX_PAGE_LIMIT, PathParam, QueryParams, account, node_selection,
    page_limit,
};
use crate::nodes::{missing_schema, node_parameter};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem, commands};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    vec![
        ApiOperation::new(Method::GET, "/sessions", "listSessions", Access::Scoped(TokenScope::Read), list)
            .summary("Lists the sessions of all nodes in no particular order.")
            .query("node", node_parameter(), "Only sessions of this node.")
            .query("account", text(), "Only sessions of this account, all on one page.")
            .query("domain", text(), "Only sessions of this domain.")
            .query("search", text(), "Only sessions whose address contains this text.")
            .query("after", text(), "The `next` of the previous page; the other parameters must be the same.")
            .query("limit", page, "Number of sessions on the page; sessions of one account stay together.")
            .response(200, ResponseBody::Json("SessionPage"), "A page.")
            .problems(&[404]),
        ApiOperation::new(
            Method::GET,
            "/accounts/{jid}/sessions",
            "listSessionsOfAccount",
            Access::Scoped(TokenScope::Read),
            sessions_of_account,
        )
        .summary("Lists the sessions of an account on all nodes.")
        .response(200, ResponseBody::Json("SessionPage"), "All sessions of the account.")
        .problems(&[404]),
        ApiOperation::new(Method::GET, "/sessions/{jid}", "showUserSession", Access::Scoped(TokenScope::Read), show)
            .summary("Returns one session, on whichever node it is. The address is the full JID, with `/` as `%2F`.")
            .response(200, ResponseBody::Json("Session"), "The session.")
            .problems(&[404]),
        ApiOperation::new(
            Method::DELETE,
            "/sessions/{jid}",
            "endSession",
            Access::Scoped(TokenScope::Sessions),
            end,
        )
        .summary(
            "Ends one session, on whichever node it is; its user can log in again. The address is the full JID, with \
             `/` as `%2F`.",
        )
        .response(204, ResponseBody::Nothing, "The session was ended.")
        .problems(&[404, 422]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let maybe_text = |what: &str| json!({ "type": ["string", "null"], "description": what });
    let maybe_number = |what: &str| json!({ "type": ["integer", "null"], "description": what });
    let session = json!({
        "type": "object",
        "required": [
            "jid", "node", "transport", "secure", "address", "client", "idle_seconds", "since", "priority", "managed", "inactive",
            "queued_bytes",
        ],
        "properties": {
            "jid": { "type": "string", "description": "The full JID." },
            "node": { "type": "string", "description": "The node to which it is connected." },
            "transport": maybe_text("`tcp`, `tls`, `websocket`, `bosh`; `detached` while the session has no \
             connection and can be resumed (XEP-0198); null if unknown."),
            "secure": { "type": ["boolean", "null"] },
            "address": maybe_text("IP address and port of the client."),
            "client": maybe_text("Software that the client reports."),
            "idle_seconds": maybe_number("Seconds since data was received from the client."),
            "since": { "type": "integer", "description": "Time of the login, in seconds since 1970." },
            "priority": maybe_number("Priority of its presence; null if it is not available."),
            "managed": { "type": "boolean", "description": "Whether stream management is enabled \
             (XEP-0198)." },
            "inactive": { "type": "boolean", "description": "Whether the client is inactive (XEP-0352)." },
            "queued_bytes": { "type": "integer", "description": "Bytes queued for the client." },
        },
    });
    let page = json!({
        "type": "object",
        "required": ["items", "next", "total", "missing"],
        "properties": {
            "items": { "type": "array", "items": { "$ref": "#/components/schemas/Session" } },
            "next": { "type": ["string", "null"], "description": "Value of `after` for the next page; \
             absent on the last page." },
            "total": { "type": "integer", "description": "Number of sessions of the nodes or of the \
             account." },
            "missing": missing_schema(),
        },
    });
    vec![("Session", session), ("SessionPage", page)]
}

#[derive(Deserialize)]
struct SessionsQuery {
    node: Option<String>,
    account: Option<String>,
    domain: Option<String>,
    search: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(wanted): QueryParams<SessionsQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(wanted.limit)?;
    let wrong = || Problem::invalid("after must be the `next` of the previous page");
    let after = wanted.after.map(|text| parse_cursor(&text).ok_or_else(wrong)).transpose()?;
    let account = wanted.account.as_deref().map(account).transpose()?;
    let nodes = node_selection(&api, wanted.node.as_deref())?;
    let query = SessionQuery {
        domain: wanted.domain.map(|text| text.to_lowercase()),
        search: wanted.search.map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty()),
        account: account.map(|jid| jid.to_string()),
        after: after.map(|jid| jid.to_string()),
        limit,
        brief: false,
    };
    Ok(page(&sessions(&api.node, nodes, query).await))
}

async fn sessions_of_account(
    State(api): State<Arc<Api>>,
    AccountJid(jid): AccountJid,
) -> Result<Response, Problem> {
    let found = sessions_at(&api, &jid).await;
    if found.sessions.is_empty() && !api.node.stores.accounts.exists(jid.as_ref()).await? {
        return Err(Problem::not_found(format!("there is no account {jid}")));
    }
    Ok(page(&found))
}

/// Sessions of a bare address, or the one with a full address.
async fn sessions_at(api: &Api, jid: &Jid) -> SessionPage {
    let query = SessionQuery { account: Some(jid.to_string()), ..SessionQuery::default() };
    sessions(&api.node, NodeSelection::All, query).await
}

fn page(found: &SessionPage) -> Response {
    let items: Vec<Value> = found.sessions.iter().map(session_json).collect();
    let SessionPage { next, total, missing, .. } = found;
    axum::Json(json!({ "items": items, "next": next, "total": total, "missing": missing })).into_response()
}

fn session_json(session: &SessionRecord) -> Value {
    json!(session)
}

/// The full address of a session in the path.
fn session_address(text: &str) -> Result<Jid, Problem> {
    let jid = Jid::parse(text).ok().filter(|jid| jid.local().is_some() && jid.resource().is_some());
    jid.ok_or_else(|| {
        Problem::invalid("invalid address of a session; write one such as user@example.org/phone")
    })
}

async fn show(State(api): State<Arc<Api>>, PathParam(text): PathParam) -> Result<axum::Json<Value>, Problem> {
    let jid = session_address(&text)?;
    let found = sessions_at(&api, &jid).await;
    match (found.sessions.first(), describe_missing(&found.missing)) {
        (Some(session), _) => Ok(axum::Json(session_json(session))),
        (None, None) => Err(Problem::not_found(format!("there is no session {jid}"))),
        (None, Some(without)) => {
            let text = format!("the session {jid} was not found {without}");
            Err(CommandError::new(CommandErrorKind::Unavailable, text).into())
        }
    }
}

async fn end(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    PathParam(text): PathParam,
) -> Result<StatusCode, Problem> {
    let jid = session_address(&text)?;
    let host = api.node.host(jid.domain());
    let host = host.ok_or_else(|| Problem::not_found(format!("{} is not served here", jid.domain())))?;
    let mut given = RawArguments::default();
    given.add("user", jid.to_string());
    commands::run_by_name(&api, &host, &caller, "end-user-session", given).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Encodes a text as one segment of a path (RFC 3986, section 2.1).
pub(crate) fn percent_encode_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encoded_as_one_path_segment() {
        assert_eq!(percent_encode_segment("a.b@example.org/x ü"), "a.b@example.org%2Fx%20%C3%BC");
    }
}
