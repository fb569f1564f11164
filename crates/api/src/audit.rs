//! `GET /api/v1/audit`: the newest entries of the audit logs of all nodes, held in memory ([`throng_commands::audit`]) and
//! merged by time.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use throng_commands::TokenScope;
use throng_commands::audit::{AuditEntry, MAX_ENTRIES};
use throng_commands::cluster_admin::records::audit_entries;

use crate::extract::{DEFAULT_PAGE_LIMIT, MAX_PAGE_LIMIT, QueryParams, cursor, node_selection, page_limit};
use crate::nodes::{missing_schema, node_parameter};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let page =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE_LIMIT, "default": DEFAULT_PAGE_LIMIT });
    let text = json!({ "type": "string" });
    vec![
        ApiOperation::new(Method::GET, "/audit", "listAudit", Access::Scoped(TokenScope::Read), list)
            .summary("The audit logs of all nodes: administrative actions with their origin, oldest first.")
            .query("node", node_parameter(), "Only entries of this node.")
            .query(
                "after",
                text,
                "The `next` of a previous response: only later entries; the newest entries if absent.",
            )
            .query("limit", page, "Maximum number of entries.")
            .response(
                200,
                ResponseBody::Json("Audit"),
                "Entries since the start of each node, unless discarded.",
            )
            .problems(&[404]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = |what: &str| json!({ "type": "string", "description": what });
    let entry = json!({
        "type": "object",
        "required": ["node", "number", "at", "who", "interface", "from", "what", "on", "outcome"],
        "properties": {
            "node": text("The node on which the action was performed."),
            "number": { "type": "integer", "minimum": 1, "description": "Its number among the entries of the node." },
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
            "required": ["items", "next", "missing"],
            "properties": {
                "items": { "type": "array", "items": entry },
                "next": {
                    "type": "string",
                    "description": format!("Value of `after` for the next request; each node keeps its last \
                     {MAX_ENTRIES} entries."),
                },
                "missing": missing_schema(),
            },
        }),
    )]
}

#[derive(Deserialize)]
struct AuditQuery {
    node: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(wanted): QueryParams<AuditQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(wanted.limit)? as usize;
    let after = cursor(wanted.after.as_deref())?;
    let nodes = node_selection(&api, wanted.node.as_deref())?;
    let found = audit_entries(&api.node, nodes, after, limit).await;
    let items: Vec<Value> = found.items.iter().map(|(node, entry)| entry_json(node, entry)).collect();
    let next = found.next.to_string();
    Ok(axum::Json(json!({ "items": items, "next": next, "missing": found.missing })).into_response())
}

fn entry_json(node: &str, entry: &AuditEntry) -> Value {
    json!({
        "node": node,
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
