//! Commands over HTTP: the declarations of `core` and the features, with JSON arguments and results.
//!
//! The same declarations are used by XEP-0050 and `throng command`; rights, checks, errors and the audit log are
//! those of [`throng_commands::run_command`]. A token needs the scope that the command declares.
//!
//! # Pitfalls
//!
//! Secret fields are write-only. No value of a request may appear in a response.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use throng_commands::audit::record_audit_entry;
use throng_commands::{
    Command, CommandErrorKind, CommandField, CommandFieldKind, CommandOutput, FieldNaming, OutputValue,
    RawArguments, TokenScope, commands_of, may_use, run_command,
};
use throng_core::Host;

use crate::auth::ApiCaller;
use crate::extract::{PathParam, QueryParams, host};
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};
use crate::{Api, Problem};

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let domain = || json!({ "type": "string" });
    let text = "The domain of the commands; the default domain if absent.";
    vec![
        ApiOperation::new(Method::GET, "/commands", "listCommands", Access::Scoped(TokenScope::Read), list)
            .summary("Lists the commands of a domain with their fields.")
            .query("domain", domain(), text)
            .response(200, ResponseBody::Json("Commands"), "The commands.")
            .problems(&[404]),
        ApiOperation::new(
            Method::GET,
            "/commands/{name}",
            "showCommand",
            Access::Scoped(TokenScope::Read),
            show,
        )
        .summary("Returns a command; for one that edits data, with the current values of its fields.")
        .query("domain", domain(), text)
        .response(200, ResponseBody::Json("Command"), "The command.")
        .problems(&[404]),
        ApiOperation::new(Method::POST, "/commands/{name}", "runCommand", Access::Authenticated, run)
            .summary(
                "Runs a command. The body has a member for each field; a token requires the scope of \
             the command.",
            )
            .query("domain", domain(), text)
            .request_body(RequestBody::OptionalJson("CommandInput"))
            .response(200, ResponseBody::Json("CommandOutput"), "The command succeeded.")
            .problems(&[404, 409, 422]),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let field = json!({
        "type": "object",
        "required": ["name", "label", "kind", "type", "required"],
        "properties": {
            "name": text(),
            "label": text(),
            "kind": { "type": "string", "description": "Description of the type." },
            "type": { "enum": ["jid", "jids", "text", "secret", "lines", "int", "count", "bool", "choice", "table"] },
            "doc": text(),
            "default": text(),
            "required": { "type": "boolean" },
            "minimum": { "type": "integer" },
            "maximum": { "type": "integer" },
            "choices": { "type": "array", "items": {
                "type": "object",
                "required": ["value", "label"],
                "properties": { "value": text(), "label": text() },
            } },
            "columns": { "type": "array", "items": { "$ref": "#/components/schemas/Field" } },
        },
    });
    let fields = || json!({ "type": "array", "items": { "$ref": "#/components/schemas/Field" } });
    vec![
        ("Field", field),
        (
            "Command",
            json!({
                "type": "object",
                "required": ["name", "title", "doc", "changes", "scope", "module", "input", "output"],
                "properties": {
                    "name": text(),
                    "title": text(),
                    "doc": text(),
                    "changes": { "type": "boolean", "description": "Whether the command changes data; \
                     others are safe to repeat." },
                    "scope": { "$ref": "#/components/schemas/Scope" },
                    "module": { "type": "string", "description": "The module that provides the command." },
                    "input": fields(),
                    "output": fields(),
                    "present": {
                        "type": "object",
                        "description": "Current values of the fields.",
                        "additionalProperties": { "type": "array", "items": { "type": "string" } },
                    },
                },
            }),
        ),
        (
            "Commands",
            json!({
                "type": "object",
                "required": ["items"],
                "properties": { "items": { "type": "array", "items": { "$ref": "#/components/schemas/Command" } } },
            }),
        ),
        (
            "CommandInput",
            json!({
                "type": "object",
                "examples": [{}],
                "description": "A member for each field: a string, a number, a boolean or a list of strings.",
                "additionalProperties": {
                    "type": ["string", "integer", "boolean", "array", "null"], "items": { "type": "string" },
                },
            }),
        ),
        (
            "CommandOutput",
            json!({
                "type": "object",
                "description": "A member for each field of the output, and a `note` to show.",
                "properties": { "note": text() },
            }),
        ),
    ]
}

#[derive(Deserialize)]
struct CommandsQuery {
    domain: Option<String>,
}

async fn list(
    State(api): State<Arc<Api>>,
    QueryParams(of): QueryParams<CommandsQuery>,
) -> Result<Response, Problem> {
    let host = host(&api, of.domain.as_deref())?;
    Ok(axum::Json(json!({ "items": describe(&host) })).into_response())
}

async fn show(
    State(api): State<Arc<Api>>,
    PathParam(name): PathParam,
    QueryParams(of): QueryParams<CommandsQuery>,
    caller: ApiCaller,
) -> Result<Response, Problem> {
    let host = host(&api, of.domain.as_deref())?;
    let entry = commands_of(&host).by_name(&name).ok_or_else(|| unknown(&host, &name))?;
    let mut value = command_json(entry.command, entry.owner);
    let shown = may_use(&api.node, &host, entry.command, &caller.to_command_caller());
    if let Some(present) = entry.current_values.as_ref().filter(|_| shown) {
        let values = match present.read(&api.node, &host).await {
            // Nothing to edit yet is a valid answer, and the command itself exists.
            Err(error) if error.kind == CommandErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let secret = |name: &str| {
            entry.command.input.iter().any(|f| f.name == name && matches!(f.kind, CommandFieldKind::Secret))
        };
        let values = values.into_iter().filter(|(name, _)| !secret(name));
        value["present"] =
            values.map(|(name, list)| (name.to_owned(), json!(list))).collect::<Map<_, _>>().into();
    }
    Ok(axum::Json(value).into_response())
}

async fn run(
    State(api): State<Arc<Api>>,
    PathParam(name): PathParam,
    QueryParams(of): QueryParams<CommandsQuery>,
    caller: ApiCaller,
    body: Bytes,
) -> Result<Response, Problem> {
    let host = host(&api, of.domain.as_deref())?;
    let given = if body.is_empty() { RawArguments::default() } else { parse_arguments(&body)? };
    let output = run_by_name(&api, &host, &caller, &name, given).await?;
    Ok(axum::Json(output_json(&output)).into_response())
}

/// Runs a command by its name.
pub(crate) async fn run_by_name(
    api: &Arc<Api>,
    host: &Arc<Host>,
    caller: &ApiCaller,
    name: &str,
    given: RawArguments,
) -> Result<CommandOutput, Problem> {
    let entry = commands_of(host).by_name(name).ok_or_else(|| unknown(host, name))?;
    if let Err(problem) = caller.require_scope(entry.command.needs()) {
        record_audit_entry(&api.node, &caller.to_command_caller(), entry.command.name, "", problem.condition);
        return Err(problem);
    }
    let input = entry.command.parse_input(&given, FieldNaming::Name)?;
    Ok(run_command(&api.node, host, entry, caller.to_command_caller(), input).await?)
}

fn unknown(host: &Host, name: &str) -> Problem {
    let name: String = name.chars().take(64).collect();
    Problem::not_found(format!("{} has no command \"{name}\"; its module may be disabled", host.domain()))
}

/// Parses arguments from a JSON object.
fn parse_arguments(body: &[u8]) -> Result<RawArguments, Problem> {
    let wrong = || Problem::invalid("the request must be a JSON object with a member for each field");
    let values: Map<String, Value> = serde_json::from_slice(body).map_err(|_| wrong())?;
    let mut given = RawArguments::default();
    for (key, value) in values {
        let list = match value {
            Value::Array(list) => list,
            Value::Null => continue,
            one => vec![one],
        };
        for value in list {
            match value {
                Value::String(text) => given.add(&key, text),
                Value::Number(number) => given.add(&key, number.to_string()),
                Value::Bool(on) => given.add(&key, on.to_string()),
                _ => return Err(wrong()),
            }
        }
    }
    Ok(given)
}

/// Describes the commands of a host as JSON.
pub fn describe(host: &Host) -> Vec<Value> {
    commands_of(host).iter().map(|entry| command_json(entry.command, entry.owner)).collect()
}

fn command_json(command: &Command, module: &str) -> Value {
    json!({
        "name": command.name,
        "title": command.title,
        "doc": command.doc,
        "changes": command.changes,
        "scope": command.needs().as_str(),
        "module": module,
        "input": command.input.iter().map(field_json).collect::<Vec<_>>(),
        "output": command.output.iter().map(field_json).collect::<Vec<_>>(),
    })
}

fn field_json(field: &CommandField) -> Value {
    let mut value = json!({
        "name": field.name,
        "label": field.label,
        "kind": field.kind.describe(),
        "doc": field.doc,
        "default": field.default,
        "required": field.required && field.default.is_empty(),
    });
    let choice = |value: String, label: &str| json!({ "value": value, "label": label });
    let kind = match field.kind {
        CommandFieldKind::Jid => "jid",
        CommandFieldKind::Jids => "jids",
        CommandFieldKind::Text => "text",
        CommandFieldKind::Secret => "secret",
        CommandFieldKind::Lines => "lines",
        CommandFieldKind::Bool => "bool",
        CommandFieldKind::Int(low, high, proposals) => {
            (value["minimum"], value["maximum"]) = (json!(low), json!(high));
            value["choices"] = proposals.iter().map(|(n, label)| choice(n.to_string(), label)).collect();
            "int"
        }
        CommandFieldKind::Count(most, proposals) => {
            (value["minimum"], value["maximum"]) = (json!(1), json!(most));
            value["choices"] = proposals.iter().map(|n| choice(n.to_string(), &n.to_string())).collect();
            "count"
        }
        CommandFieldKind::Choice(list) => {
            value["choices"] = list.iter().map(|(value, label)| choice((*value).to_owned(), label)).collect();
            "choice"
        }
        CommandFieldKind::Table(columns) => {
            value["columns"] = columns.iter().map(self::field_json).collect();
            "table"
        }
    };
    value["type"] = json!(kind);
    value
}

/// The output of a command as JSON.
pub fn output_json(output: &CommandOutput) -> Value {
    let mut map = Map::new();
    for (field, shown) in &output.values {
        map.insert(field.name.to_owned(), value_json(field, shown));
    }
    if !output.note.is_empty() {
        map.insert("note".to_owned(), json!(output.note));
    }
    Value::Object(map)
}

fn value_json(field: &CommandField, shown: &OutputValue) -> Value {
    match (shown, field.kind) {
        (OutputValue::Text(text), _) => json!(text),
        (OutputValue::Texts(texts), _) => json!(texts),
        (OutputValue::Int(n), _) => json!(n),
        (OutputValue::Bool(on), _) => json!(on),
        (OutputValue::Rows(rows), CommandFieldKind::Table(columns)) => rows
            .iter()
            .map(|row| {
                let cells = columns.iter().zip(row).map(|(c, cell)| (c.name.to_owned(), value_json(c, cell)));
                Value::Object(cells.collect())
            })
            .collect(),
        (OutputValue::Rows(_), _) => Value::Null,
    }
}
