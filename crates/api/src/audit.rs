//! `GET /api/v1/audit`: the newest entries of the audit log, held in memory ([`throng_commands::audit`]).

use std::sync::Arc;

use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::TokenScope;
use throng_commands::audit::{AuditEntry, MAX_ENTRIES, audit_log};

use crate::extract::{DEFAULT_PAGE_LIMIT, MAX_PAGE_LIMIT, QueryParams, page_limit};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    let number = json!({ "type": "integer", "minimum": 0 });
    vec![
        ApiOperation::new(Method::GET, "/audit", "listAudit", Access::Scoped(TokenScope::Read), list)
            .summary("The audit log: administrative actions with their origin, oldest first.")
            .query("after", number, "Only entries with higher numbers; the newest entries if absent.")
            .query("limit", page, "Maximum number of entries.")
            .response(
                200,
                ResponseBody::Json("Audit"),
                "Entries since the start of the node, unless discarded.",
            ),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = |what: &str| json!({ "type": "string", "description": what });
    let entry = json!({
        "type": "object",
        "required": ["number", "at", "who", "interface", "from", "what", "on", "outcome"],
        "properties": {
            "number": { "type": "integer", "minimum": 1 },
            "at": { "type": "integer", "description": "Milliseconds since 1970." },
            "who": text("An address, `operator`, or `token:` and the name of a token."),
            "interface": text("`http`, `socket` or `xmpp`."),
            "from": text("The client's IP address, if known."),
            "what": text("The command, or an action such as `sign-in`."),
            "on": text("The target."),
            "outcome": text("`done`, the condition of the error, or `cancelled`."),
        },
    });
    vec![(
        "Audit",
        json!({
            "type": "object",
            "required": ["items", "last"],
            "properties": {
                "items": { "type": "array", "items": entry },
                "last": {
                    "type": "integer",
                    "description": format!("The number of the newest entry; the last {MAX_ENTRIES} entries \
                     are kept."),
                },
            },
        }),
    )]
}

#[derive(Deserialize)]
struct AuditQuery {
    after: Option<u64>,
    limit: Option<u32>,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(wanted): QueryParams<AuditQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(wanted.limit)? as usize;
    let (entries, last) = match wanted.after {
        Some(after) => audit_log(&api.node).after(after, limit),
        None => audit_log(&api.node).newest(limit),
    };
    let items: Vec<Value> = entries.iter().map(entry_json).collect();
    Ok(axum::Json(json!({ "items": items, "last": last })).into_response())
}

fn entry_json(entry: &AuditEntry) -> Value {
    json!({
        "number": entry.number,
        "at": entry.at,
        "who": entry.actor,
        "interface": entry.interface,
        "from": entry.from,
        "what": entry.action,
        "on": entry.subject,
        "outcome": entry.outcome,
    })
}
