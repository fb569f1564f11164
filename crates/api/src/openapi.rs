//! OpenAPI document (OpenAPI Specification 3.1.0), generated from the declarations of the operations.
//!
//! It is served at `/api/v1/openapi.json` and stored as `golden/openapi.json`, which a test compares, so that a
//! change of the API is visible in the diff. `THRONG_BLESS=1 cargo test -p throng-api openapi` rewrites it.
//!
//! # Pitfalls
//!
//! Schemas of responses allow members that are not named, so that a later version may add some; those of requests do
//! not.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use throng_commands::TokenScope;

use crate::Api;
use crate::operation::{Access, ApiOperation, RequestBody, ResponseBody};

/// The operation that serves the document.
pub(crate) fn operations() -> Vec<ApiOperation> {
    let serve = async |State(api): State<Arc<Api>>| axum::Json(api.openapi.clone());
    vec![
        ApiOperation::new(Method::GET, "/openapi.json", "openapi", Access::Public, serve)
            .summary("Returns this document.")
            .response(200, ResponseBody::Json("Anything"), "An OpenAPI 3.1 document."),
    ]
}

/// Schemas used by operations of several files.
fn common_schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("Anything", json!({ "type": "object" })),
        ("Scope", json!({ "type": "string", "enum": TokenScope::ALL.map(TokenScope::as_str) })),
        (
            "Problem",
            json!({
                "type": "object",
                "description": "RFC 9457",
                "required": ["type", "title", "status", "detail", "condition"],
                "properties": {
                    "type": { "type": "string" },
                    "title": { "type": "string" },
                    "status": { "type": "integer" },
                    "detail": { "type": "string", "description": "Description in one sentence." },
                    "condition": { "type": "string", "description": "The XMPP error condition (RFC 6120, \
                     section 8.3.3)." },
                },
            }),
        ),
    ]
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// Builds the document of these operations.
pub(crate) fn document(operations: &[ApiOperation], schemas: Vec<(&'static str, Value)>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = paths.entry(format!("/api/v1{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = describe(operation);
    }
    let all: Map<String, Value> =
        common_schemas().into_iter().chain(schemas).map(|(k, v)| (k.to_owned(), v)).collect();
    let problems: Map<String, Value> = [400, 401, 403, 404, 409, 413, 415, 422, 429, 503]
        .map(|status| {
            let content = json!({ "application/problem+json": { "schema": reference("Problem") } });
            (status_name(status), json!({ "description": status_name(status), "content": content }))
        })
        .into_iter()
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Throng",
            "version": "1",
            "description": "Administration of a Throng node. Errors are problem details (RFC 9457) with an \
             XMPP error condition. Lists are paginated: `next` of a page is `after` of the following one.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": all,
            "responses": problems,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token created with `throng token add`.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": crate::auth::COOKIE_NAME,
                    "description": "A console session. All methods except GET also require the header \
                     X-CSRF-Token.",
                },
            },
        },
    })
}

/// Example of the variable part of a path.
fn example_path(path: &str) -> &'static str {
    match path {
        "/commands/{name}" => "get-registered-users-num",
        "/tokens/{name}" => "backup",
        "/sessions/{jid}" => "juliet@example.com/balcony",
        _ => "juliet@example.com",
    }
}

fn describe(operation: &ApiOperation) -> Value {
    let mut parameters: Vec<Value> = operation
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            json!({
                "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 },
                "example": example_path(operation.path),
            })
        })
        .collect();
    parameters.extend(operation.query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "description": parameter.text, "schema": parameter.schema,
        })
    }));
    let mut value = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses(operation, !parameters.is_empty()),
    });
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    let body = |kind: &str, schema: &str, required: bool| json!({ "required": required, "content": { kind: { "schema": reference(schema) } } });
    match operation.request_body {
        RequestBody::Nothing => {}
        RequestBody::Json(schema) => value["requestBody"] = body("application/json", schema, true),
        RequestBody::OptionalJson(schema) => value["requestBody"] = body("application/json", schema, false),
        RequestBody::JsonLines(schema) => value["requestBody"] = body("application/x-ndjson", schema, true),
    }
    match operation.access {
        Access::Public => value["security"] = json!([]),
        Access::Authenticated => value["security"] = json!([{ "token": [] }, { "session": [] }]),
        Access::Scoped(scope) => {
            value["security"] = json!([{ "token": [scope.as_str()] }, { "session": [] }]);
            value["x-scope"] = json!(scope.as_str());
        }
    }
    value
}

/// One-word name of a status.
fn status_name(status: u16) -> String {
    let title = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("Problem");
    title.split(' ').collect()
}

fn responses(operation: &ApiOperation, parameters: bool) -> Value {
    let (status, gives, text) = operation.response;
    let content = |kind: &str, schema: &str| json!({ "description": text, "content": { kind: { "schema": reference(schema) } } });
    let good = match gives {
        ResponseBody::Nothing => json!({ "description": text }),
        ResponseBody::Json(schema) => content("application/json", schema),
        ResponseBody::JsonLines(schema) => content("application/x-ndjson", schema),
    };
    let mut all = Map::from_iter([(status.to_string(), good)]);
    let mut problems: Vec<u16> = operation.problems.to_vec();
    if operation.access != Access::Public {
        problems.extend([401, 403, 503]);
    }
    if parameters {
        problems.push(400);
    }
    match operation.request_body {
        RequestBody::Nothing => {}
        RequestBody::OptionalJson(_) => problems.extend([400, 413]),
        RequestBody::Json(_) | RequestBody::JsonLines(_) => problems.extend([400, 413, 415]),
    }
    problems.sort_unstable();
    for status in problems {
        all.insert(
            status.to_string(),
            json!({ "$ref": format!("#/components/responses/{}", status_name(status)) }),
        );
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn golden() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/openapi.json")
    }

    #[test]
    fn the_committed_document_is_current() {
        let document = document(&crate::operations(), crate::schemas());
        let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
        if std::env::var_os("THRONG_BLESS").is_some() {
            std::fs::write(golden(), &text).unwrap();
        }
        let golden_text = std::fs::read_to_string(golden()).unwrap_or_default();
        assert!(
            golden_text == text,
            "golden/openapi.json is outdated: THRONG_BLESS=1 cargo test -p throng-api openapi"
        );
    }

    #[test]
    fn every_reference_resolves_and_every_schema_is_used() {
        let document = document(&crate::operations(), crate::schemas());
        let text = document.to_string();
        for used in text.split("\"#/components/responses/").skip(1) {
            let name = used.split('"').next().unwrap();
            assert!(document["components"]["responses"].get(name).is_some(), "{name}");
        }
        let used: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let known: BTreeSet<&str> =
            document["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(used, known);
    }

    #[test]
    fn operations_have_unique_ids_and_descriptions() {
        let mut ids = BTreeSet::new();
        for operation in crate::operations() {
            assert!(ids.insert(operation.id), "{} is there twice", operation.id);
            assert!(operation.summary.ends_with('.'), "{}", operation.id);
            let open = operation.access == Access::Public;
            assert!(!open || matches!(operation.id, "openapi" | "signIn"), "{} is open", operation.id);
        }
    }
}
