//! `GET /api/v1/nodes`: the nodes of the cluster with their measurements, the responding one first, and sums. `POST
//! /api/v1/reload`: reloads the configuration of the responding node.
//!
//! # Pitfalls
//!
//! A user with sessions on several nodes is online on each of them, so the sum of users may exceed their number.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use throng_commands::audit::record_audit_entry;
use throng_commands::cluster_admin::NodeSelection;
use throng_commands::cluster_admin::summary::{NodeSummary, summaries};

use crate::auth::{ApiCaller, TokenScope};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::server_process::Reloaded;
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    vec![
        ApiOperation::new(Method::GET, "/nodes", "listNodes", Access::Scoped(TokenScope::Read), nodes)
            .summary("Lists the nodes of the cluster with their measurements, the responding one first.")
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
    let number = |what: &str| json!({ "type": "integer", "minimum": 0, "description": what });
    let sums = [
        ("accounts_online", number("Users with a session on the node.")),
        ("sessions", number("Sessions.")),
        ("connections", number("Streams, with and without a session.")),
        ("unauthenticated_connections", number("Connections without a session.")),
        ("queued_bytes", number("Bytes queued for clients.")),
        ("queued_control_bytes", number("Of these, replies and control stanzas.")),
        ("queued_message_bytes", number("Of these, messages.")),
        ("queued_presence_bytes", number("Of these, presence.")),
        ("queue_full", number("Times that the queue of a session was full, since the start.")),
        ("stanzas_dropped", number("Stanzas dropped since the start.")),
        ("store_in_flight", number("Storage operations that run or wait.")),
        ("memory_bytes", number("Resident memory.")),
        ("cpu_seconds", json!({ "type": "number", "description": "CPU time." })),
    ];
    let mut properties: serde_json::Map<String, Value> =
        sums.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let required: Vec<&String> = properties.keys().collect();
    let totals = json!({
        "type": "object",
        "description": "Sums over the nodes that answered.",
        "required": required,
        "properties": properties,
    });
    let of_node = json!({
        "name": { "type": "string" },
        "this": { "type": "boolean", "description": "Whether this is the responding node." },
        "ready": { "type": "boolean", "description": "Whether the node accepts clients." },
        "version": { "type": "string" },
        "started": { "type": "integer", "description": "Seconds since 1970." },
        "up_seconds": number("Seconds since the start."),
        "cpu_percent": {
            "type": ["number", "null"],
            "description": "CPU load in the last seconds, in percent of one processor; null if unknown.",
        },
    });
    properties.extend(of_node.as_object().cloned().unwrap_or_default());
    let required: Vec<&String> = properties.keys().collect();
    let node = json!({ "type": "object", "required": required, "properties": properties });
    vec![
        (
            "Nodes",
            json!({
                "type": "object",
                "required": ["nodes", "totals", "missing"],
                "properties": {
                    "nodes": { "type": "array", "items": node },
                    "totals": totals,
                    "missing": missing_schema(),
                },
            }),
        ),
        (
            "MissingNode",
            json!({
                "type": "object",
                "required": ["node", "reason"],
                "properties": {
                    "node": { "type": "string", "description": "Its name." },
                    "reason": {
                        "type": "string",
                        "enum": ["no-answer", "not-supported", "too-large", "busy", "unreadable"],
                        "description": "`not-supported`: the node has another version.",
                    },
                },
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

/// The schema of the nodes without an answer.
pub(crate) fn missing_schema() -> Value {
    json!({
        "type": "array",
        "items": { "$ref": "#/components/schemas/MissingNode" },
        "description": "Nodes that are members of the cluster and whose part is missing; empty if none is.",
    })
}

/// The schema of the parameter that selects a node.
pub(crate) fn node_parameter() -> Value {
    json!({ "type": "string", "maxLength": 24 })
}

async fn nodes(State(api): State<Arc<Api>>) -> Json<Value> {
    let own = api.node.cluster.node();
    let found = summaries(&api.node, NodeSelection::All).await;
    let mut totals = serde_json::Map::new();
    let mut list = Vec::with_capacity(found.answers.len());
    for (name, summary) in &found.answers {
        let figures = sums(summary);
        for (figure, value) in &figures {
            let before = totals.entry(figure.clone()).or_insert(json!(0));
            *before = add(before, value);
        }
        let mut node = json!({
            "name": name,
            "this": name == own.as_str(),
            "ready": summary.process.ready,
            "version": summary.version,
            "started": summary.process.started,
            "up_seconds": summary.up_seconds,
            "cpu_percent": summary.process.cpu_percent,
        });
        if let Some(node) = node.as_object_mut() {
            node.extend(figures);
        }
        list.push(node);
    }
    Json(json!({ "nodes": list, "totals": totals, "missing": found.missing }))
}

/// Measurements that have a sum.
fn sums(summary: &NodeSummary) -> serde_json::Map<String, Value> {
    let [control, messages, presence] = summary.queued_bytes;
    let process = &summary.process;
    [
        ("accounts_online", json!(summary.accounts_online)),
        ("sessions", json!(summary.sessions)),
        ("connections", json!(summary.connections)),
        ("unauthenticated_connections", json!(process.unauthenticated_connections)),
        ("queued_bytes", json!(control.saturating_add(messages).saturating_add(presence))),
        ("queued_control_bytes", json!(control)),
        ("queued_message_bytes", json!(messages)),
        ("queued_presence_bytes", json!(presence)),
        ("queue_full", json!(summary.queue_full)),
        ("stanzas_dropped", json!(summary.stanzas_dropped)),
        ("store_in_flight", json!(process.store_in_flight)),
        ("memory_bytes", json!(process.memory_bytes)),
        ("cpu_seconds", json!(process.cpu_seconds)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

fn add(one: &Value, other: &Value) -> Value {
    match (one.as_u64(), other.as_u64()) {
        (Some(one), Some(other)) => json!(one.saturating_add(other)),
        _ => json!(one.as_f64().unwrap_or_default() + other.as_f64().unwrap_or_default()),
    }
}

async fn reload(State(api): State<Arc<Api>>, caller: ApiCaller) -> Result<Json<Reloaded>, Problem> {
    let done = api.process.reload().await;
    let outcome = if done.is_ok() { "done" } else { "not-acceptable" };
    record_audit_entry(&api.node, &caller.to_command_caller(), "reload", "", outcome);
    done.map(Json).map_err(|errors| Problem::new(StatusCode::CONFLICT, "not-acceptable", errors))
}
