//! Connected sessions: listing them, those of an account, and ending one.
//!
//! Listing walks the routing table shard by shard, in each shard in the order of hashes; so a page of a hundred
//! thousand sessions costs one shard and not a sort of all. Data that only the connections have is requested for the
//! sessions on the page ([`access::session_info`]).
//!
//! Not implemented: sessions of other nodes.
//!
//! # Pitfalls
//!
//! A search has to look at all online users; it yields between shards.

use std::sync::Arc;

use access::session_info::{SessionInfo, request_session_info};
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base::spawn::yield_now;
use feature_api::account_paging::page_of_shard;
use jid::Jid;
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::{RawArguments, TokenScope};
use throng_core::provided::ClientSoftware;
use throng_core::session::flags;
use throng_core::{Account, Session};

use crate::auth::ApiCaller;
use crate::extract::{AccountJid, DEFAULT_PAGE_LIMIT, MAX_PAGE_LIMIT, PathParam, QueryParams, page_limit};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem, commands};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    vec![
        ApiOperation::new(Method::GET, "/sessions", "listSessions", Access::Scoped(TokenScope::Read), list)
            .summary("Lists the sessions of the node in no particular order.")
            .query("domain", text(), "Only sessions of this domain.")
            .query("search", text(), "Only sessions whose address contains this text.")
            .query("after", text(), "The `next` of the previous page; the other parameters must be the same.")
            .query("limit", page, "Number of sessions on the page; sessions of one account stay together.")
            .response(200, ResponseBody::Json("SessionPage"), "A page."),
        ApiOperation::new(
            Method::GET,
            "/accounts/{jid}/sessions",
            "listSessionsOfAccount",
            Access::Scoped(TokenScope::Read),
            sessions_of_account,
        )
        .summary("Lists the sessions of an account.")
        .response(200, ResponseBody::Json("SessionPage"), "All sessions of the account.")
        .problems(&[404]),
        ApiOperation::new(
            Method::DELETE,
            "/sessions/{jid}",
            "endSession",
            Access::Scoped(TokenScope::Sessions),
            end,
        )
        .summary(
            "Ends one session; its user can log in again. The address is the full JID, with `/` as `%2F`.",
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
            "jid", "transport", "secure", "address", "client", "idle_seconds", "since", "priority", "managed", "inactive",
            "queued_bytes",
        ],
        "properties": {
            "jid": { "type": "string", "description": "The full JID." },
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
    vec![(
        "SessionPage",
        json!({
            "type": "object",
            "required": ["items", "next", "total"],
            "properties": {
                "items": { "type": "array", "items": session },
                "next": { "type": ["string", "null"], "description": "Value of `after` for the next page; \
                 absent on the last page." },
                "total": { "type": "integer", "description": "Number of sessions of the node or of the \
                 account." },
            },
        }),
    )]
}

#[derive(Deserialize)]
struct SessionsQuery {
    domain: Option<String>,
    search: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(wanted): QueryParams<SessionsQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(wanted.limit)? as usize;
    let wrong = || Problem::invalid("after must be the `next` of the previous page");
    // The address of an account.
    let cursor = |text: &str| Jid::parse(text).ok().filter(|jid| jid.local().is_some() && jid.is_bare());
    let after = wanted.after.as_deref().map(|text| cursor(text).ok_or_else(wrong)).transpose()?;
    let search = wanted.search.map(|text| text.trim().to_lowercase()).filter(|text| !text.is_empty());
    let domain = wanted.domain.map(|text| text.to_lowercase());
    let holds = |account: &Account| domain.as_deref().is_none_or(|domain| account.jid.domain() == domain);
    let matches = |session: &Session| {
        search.as_deref().is_none_or(|text| {
            let jid = session.jid.as_str();
            jid.contains(text) || jid.to_lowercase().contains(text)
        })
    };
    let table = &api.node.routing_table;
    let mut found = Vec::new();
    let mut next = None;
    'parts: for part in after.as_ref().map_or(0, |jid| table.shard_index(jid.as_ref()))..table.shard_count() {
        for account in page_of_shard(table, part, after.as_ref().map(Jid::as_ref), holds) {
            let sessions = account.sessions().into_iter().filter(|session| matches(session));
            let mut sessions = sessions.peekable();
            if found.len() >= limit && sessions.peek().is_some() {
                break 'parts;
            }
            // All sessions of an account are on one page, since its address is the cursor.
            found.extend(sessions);
            next = Some(account.jid.to_string());
        }
        yield_now().await;
        if part + 1 == table.shard_count() {
            next = None;
        }
    }
    Ok(page(&api, found, next, table.sessions()).await)
}

async fn sessions_of_account(
    State(api): State<Arc<Api>>,
    AccountJid(jid): AccountJid,
) -> Result<Response, Problem> {
    let sessions = match api.node.routing_table.find(jid.as_ref()) {
        Some(account) => account.sessions().to_vec(),
        None if api.node.stores.accounts.exists(jid.as_ref()).await? => Vec::new(),
        None => return Err(Problem::not_found(format!("there is no account {jid}"))),
    };
    let total = sessions.len();
    Ok(page(&api, sessions, None, total).await)
}

async fn page(api: &Api, sessions: Vec<Arc<Session>>, next: Option<String>, total: usize) -> Response {
    let info = request_session_info(&api.node, &sessions).await;
    let items: Vec<Value> = sessions.iter().zip(info).map(|(s, info)| session_json(api, s, info)).collect();
    axum::Json(json!({ "items": items, "next": next, "total": total })).into_response()
}

fn session_json(api: &Api, session: &Session, info: Option<SessionInfo>) -> Value {
    let node = &api.node;
    let now = node.seconds();
    let since = u64::from(now.saturating_sub(node.outboxes.created_at(&session.outbox, now)));
    let transport = match &info {
        Some(info) => Some(info.transport),
        None => session.outbox.is_detached().then_some("detached"),
    };
    json!({
        "jid": session.jid.as_str(),
        "transport": transport,
        "secure": info.as_ref().map(|f| f.secure),
        "address": info.as_ref().map(|f| f.peer.to_string()),
        "client": client_software(session),
        "idle_seconds": info.as_ref().and_then(|f| f.idle_seconds),
        "since": (node.clock.unix_millis() / 1000).saturating_sub(since),
        "priority": session.priority(),
        "managed": session.flags.has(flags::STREAM_MANAGEMENT),
        "inactive": session.flags.has(flags::INACTIVE),
        "queued_bytes": session.outbox.queued_bytes(),
    })
}

fn client_software(session: &Session) -> Option<String> {
    let host = session.account.host();
    let ClientSoftware(software) = host.extensions.get::<ClientSoftware>()?;
    software(session)
}

async fn end(
    State(api): State<Arc<Api>>,
    caller: ApiCaller,
    PathParam(text): PathParam,
) -> Result<StatusCode, Problem> {
    let jid = Jid::parse(&text).ok().filter(|jid| jid.local().is_some() && jid.resource().is_some());
    let jid = jid.ok_or_else(|| {
        Problem::invalid("invalid address of a session; write one such as user@example.org/phone")
    })?;
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
