//! `GET /api/v1/log`: the last lines of the logs of all nodes, from ring buffers in memory
//! ([`throng_commands::log_buffer`]), merged by time.
//!
//! `next` of a response is `after` of the request that continues there: the number of the last known line of each node.
//!
//! # Pitfalls
//!
//! Log lines contain addresses of users, so this requires the scope `node` and not `read`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use throng_commands::cluster_admin::MissingNode;
use throng_commands::cluster_admin::records::log_lines;

use crate::auth::TokenScope;
use crate::extract::{QueryParams, cursor, node_selection};
use crate::nodes::{missing_schema, node_parameter};
use crate::operation::{Access, ApiOperation, ResponseBody};
use crate::{Api, Problem};

pub use throng_commands::log_buffer::{LogBuffer, LogLevel, LogLine, MAX_LINES};

/// Default number of lines of one response.
const DEFAULT_LIMIT: usize = 200;

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let level = json!({ "$ref": "#/components/schemas/LogLevel" });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": DEFAULT_LIMIT });
    let text = json!({ "type": "string" });
    vec![
        ApiOperation::new(Method::GET, "/log", "log", Access::Scoped(TokenScope::Node), log)
            .summary("The last lines of the server logs of all nodes, oldest first.")
            .query("node", node_parameter(), "Only lines of this node.")
            .query(
                "after",
                text,
                "The `next` of a previous response: only later lines; the newest lines if absent.",
            )
            .query("level", level, "Minimum level.")
            .query("limit", limit, "Maximum number of lines.")
            .response(200, ResponseBody::Json("Log"), "Lines since the start of each node, unless discarded.")
            .problems(&[404]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let line = json!({
        "type": "object",
        "required": ["node", "number", "time", "level", "target", "message", "fields"],
        "properties": {
            "node": { "type": "string", "description": "The node that wrote the line." },
            "number": { "type": "integer", "minimum": 1, "description": "Its number among the lines of the node." },
            "time": { "type": "integer", "description": "Milliseconds since 1970." },
            "level": { "$ref": "#/components/schemas/LogLevel" },
            "target": { "type": "string", "description": "Module of the program that wrote the line." },
            "message": text(),
            "fields": { "type": "object", "additionalProperties": text() },
        },
    });
    vec![
        ("LogLevel", json!({ "type": "string", "enum": ["error", "warn", "info", "debug", "trace"] })),
        (
            "Log",
            json!({
                "type": "object",
                "required": ["lines", "next", "missing"],
                "properties": {
                    "lines": { "type": "array", "items": line },
                    "next": { "type": "string", "description": "Value of `after` for the next request." },
                    "missing": missing_schema(),
                },
            }),
        ),
    ]
}

#[derive(Debug, Deserialize)]
struct LogQuery {
    node: Option<String>,
    after: Option<String>,
    level: Option<LogLevel>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct LogResponse {
    lines: Vec<LineResponse>,
    next: String,
    missing: Vec<MissingNode>,
}

#[derive(Debug, Serialize)]
struct LineResponse {
    node: String,
    number: u64,
    time: u64,
    level: LogLevel,
    target: String,
    message: String,
    #[serde(serialize_with = "object")]
    fields: Vec<(String, String)>,
}

fn object<S: Serializer>(fields: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

async fn log(
    State(api): State<Arc<Api>>,
    QueryParams(ask): QueryParams<LogQuery>,
) -> Result<Json<LogResponse>, Problem> {
    let limit = ask.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LINES).contains(&limit) {
        return Err(Problem::invalid(format!("limit must be a number from 1 to {MAX_LINES}")));
    }
    let after = cursor(ask.after.as_deref())?;
    let nodes = node_selection(&api, ask.node.as_deref())?;
    let level = ask.level.unwrap_or(LogLevel::Trace);
    let found = log_lines(&api.node, nodes, after, level, limit).await;
    let lines = found.items.into_iter().map(|(node, line)| {
        let LogLine { number, time, level, target, message, fields } = line;
        LineResponse { node, number, time, level, target, message, fields }
    });
    Ok(Json(LogResponse { lines: lines.collect(), next: found.next.to_string(), missing: found.missing }))
}
