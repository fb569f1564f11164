//! `GET /api/v1/nodes`: the nodes of the cluster, the responding one first. `POST /api/v1/reload`: reloads its
//! configuration.
//!
//! Other nodes are known by name only; each serves its own metrics on its own listener.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use throng_commands::audit::record_audit_entry;

use crate::auth::{ApiCaller, TokenScope};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::server_process::Reloaded;
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    vec![
        ApiOperation::new(Method::GET, "/nodes", "listNodes", Access::Scoped(TokenScope::Read), nodes)
            .summary("Lists the nodes of the cluster, the responding one first.")
            .response(200, ResponseBody::Json("Nodes"), "The nodes."),
        ApiOperation::new(Method::POST, "/reload", "reload", Access::Scoped(TokenScope::Node), reload)
            .summary("Reloads the configuration; applies all of it or nothing.")
            .response(
                200,
                ResponseBody::Json("Reloaded"),
                "The applied changes and those that require a restart.",
            )
            .problems(&[409]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let node = json!({
        "type": "object",
        "required": ["name", "this", "ready"],
        "properties": {
            "name": { "type": "string" },
            "this": { "type": "boolean", "description": "Whether this is the responding node." },
            "ready": { "type": "boolean", "description": "Whether the node accepts clients." },
            "version": { "type": "string" },
            "started": { "type": "integer", "description": "Seconds since 1970." },
            "up_seconds": number(),
            "accounts_online": number(),
            "sessions": number(),
            "connections": number(),
            "cpu_seconds": { "type": "number" },
            "memory_bytes": number(),
        },
    });
    vec![
        (
            "Nodes",
            json!({
                "type": "object",
                "required": ["nodes"],
                "properties": { "nodes": { "type": "array", "items": node } },
            }),
        ),
        (
            "Reloaded",
            json!({
                "type": "object",
                "required": ["lines", "applied", "restart", "warnings"],
                "properties": {
                    "lines": texts(), "applied": texts(), "restart": texts(), "warnings": texts(),
                },
            }),
        ),
    ]
}

async fn nodes(State(api): State<Arc<Api>>) -> Json<Value> {
    let node = &api.node;
    let (stats, started) = (api.process.node_stats(), api.process.started());
    let own = node.cluster.node();
    let mut list = vec![json!({
        "name": own.as_str(),
        "this": true,
        "ready": api.process.ready(),
        "version": node.version,
        "started": started,
        "up_seconds": node.seconds(),
        "accounts_online": node.routing_table.accounts(),
        "sessions": node.routing_table.sessions(),
        "connections": node.outboxes.len(),
        "cpu_seconds": stats.cpu_seconds,
        "memory_bytes": stats.memory_bytes,
    })];
    let others = node.cluster.members().into_iter().filter(|member| member.node != own);
    list.extend(others.map(|m| json!({ "name": m.node.as_str(), "this": false, "ready": true })));
    Json(json!({ "nodes": list }))
}

async fn reload(State(api): State<Arc<Api>>, caller: ApiCaller) -> Result<Json<Reloaded>, Problem> {
    let done = api.process.reload().await;
    let outcome = if done.is_ok() { "done" } else { "not-acceptable" };
    record_audit_entry(&api.node, &caller.to_command_caller(), "reload", "", outcome);
    done.map(Json).map_err(|errors| Problem::new(StatusCode::CONFLICT, "not-acceptable", errors))
}
